"""The days of a campaign as numbers: which minutes a batch may start in, and when it then ends. Pure.

All moments are whole minutes after local midnight of the start day, real minutes: on a day on which the clock changes
the window is as long as it really is. A local time that a day does not have is no start on that day.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from plimsoll.campaigns.model import MINUTES_A_DAY, Campaign, Window

_MINUTE = timedelta(minutes=1)


class Day(NamedTuple):
    """A local day. `slots`: by number, the minute in which it begins; None where the clock skips it.

    `is_open`: its weekday is one of the window's.
    """

    number: int
    date: date
    midnight: int
    closes: int
    is_open: bool
    slots: tuple[int | None, ...]


class Days(NamedTuple):
    """All days from the start to the deadline. `ends` is the midnight after the last."""

    origin: datetime
    zone: str
    days: tuple[Day, ...]
    ends: int

    def moment(self, minute: int) -> datetime:
        """A minute as a moment, in the window's zone."""
        return (self.origin + minute * _MINUTE).astimezone(ZoneInfo(self.zone))

    def minute(self, moment: datetime) -> int:
        """The minute in which a moment lies."""
        return (moment.astimezone(UTC) - self.origin) // _MINUTE


def make_days(campaign: Campaign) -> Days:
    zone = ZoneInfo(campaign.window.tz)
    origin = _local(campaign.start, 0, zone)
    count = (campaign.deadline - campaign.start).days + 1
    dates = [campaign.start + timedelta(days=index) for index in range(count)]
    days = tuple(_day(number, each, origin, zone, campaign) for number, each in enumerate(dates))
    return Days(origin, campaign.window.tz, days, _since(origin, dates[-1], MINUTES_A_DAY, zone))


def _day(number: int, day: date, origin: datetime, zone: ZoneInfo, campaign: Campaign) -> Day:
    window = campaign.window
    slots = tuple(
        _since(origin, day, at, zone) if _exists(day, at, zone) else None
        for at in range(window.opens, window.closes, campaign.slot_minutes)
    )
    closes = _since(origin, day, window.closes, zone)
    return Day(number, day, _since(origin, day, 0, zone), closes, _is_open(day, window), slots)


def _is_open(day: date, window: Window) -> bool:
    return day.weekday() in window.days


def _local(day: date, minutes: int, zone: ZoneInfo) -> datetime:
    """The moment at which local clocks show so many minutes after midnight; the first, where they show it twice."""
    midnight = datetime.combine(day + timedelta(days=minutes // MINUTES_A_DAY), time())
    return (midnight + timedelta(minutes=minutes % MINUTES_A_DAY)).replace(tzinfo=zone).astimezone(UTC)


def _exists(day: date, minutes: int, zone: ZoneInfo) -> bool:
    local = datetime.combine(day, time()) + timedelta(minutes=minutes)
    return _local(day, minutes, zone).astimezone(zone).replace(tzinfo=None) == local


def _since(origin: datetime, day: date, minutes: int, zone: ZoneInfo) -> int:
    return (_local(day, minutes, zone) - origin) // _MINUTE
