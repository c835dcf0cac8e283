"""What the checker finds, and the calendar it reads moments in. Pure; shares no code with what makes plans.

A moment is seconds since 1970, so that no arithmetic depends on a clock that changes; what day and what hour it is, the
window's zone says.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from plimsoll.campaigns.check.due import Due, Lots
from plimsoll.campaigns.model import MINUTES_A_DAY, Batch, Campaign, Score


class Code(enum.StrEnum):
    """What can be wrong with a plan. Public: add, never rename."""

    UNKNOWN_UNIT = "unknown_unit"
    UNIT_MISSING = "unit_missing"
    NO_WORK_RULE = "no_work_rule"
    BATCH_UNKNOWN = "batch_unknown"
    BATCH_MISSING = "batch_missing"
    BATCH_TWICE = "batch_twice"
    WRONG_NODES = "wrong_nodes"
    WRONG_MODE = "wrong_mode"
    WRONG_LENGTH = "wrong_length"
    BEFORE_START = "before_start"
    PAST_DEADLINE = "past_deadline"
    WRONG_WEEKDAY = "wrong_weekday"
    NO_FLY = "no_fly"
    OFF_SLOT = "off_slot"
    OUTSIDE_WINDOW = "outside_window"
    NOT_CONSECUTIVE = "not_consecutive"
    OTHER_HOUR = "other_hour"
    CANARY_SOAK = "canary_soak"
    STRICT_ORDER = "strict_order"
    NOT_TOGETHER = "not_together"
    OUT_AT_ONCE = "out_at_once"
    OUT_PER_DAY = "out_per_day"
    AVERAGE_LOSS = "average_loss"
    STARTS_PER_DAY = "starts_per_day"
    CREWS = "crews"
    UNKNOWN_WEIGHT = "unknown_weight"
    OBJECTIVE = "objective"


class Problem(msgspec.Struct, frozen=True):
    """A rule that a plan breaks: `rule` is its place in the file; `found` and `allowed` are the numbers."""

    code: Code
    rule: str
    text: str
    unit: str | None = None
    batch: int | None = None
    day: date | None = None
    moment: datetime | None = None
    found: float | str | None = None
    allowed: float | str | None = None


class Checked(msgspec.Struct, frozen=True):
    """A plan held against its file and the fleet. The score is worked out anew, from the batches that are known."""

    problems: tuple[Problem, ...]
    score: Score

    @property
    def is_valid(self) -> bool:
        return not self.problems


class Placed(NamedTuple):
    """A batch of the plan that the file asks for, and when it is out. `day` is the local day of its start."""

    due: Due
    batch: Batch
    day: date
    start: float
    end: float

    @property
    def lots(self) -> Lots:
        return self.due.batches[self.batch.number - 1]

    @property
    def nodes(self) -> int:
        return sum(count for _, count in self.lots)

    @property
    def stays(self) -> int:
        """Nodes expected not to come back when it ends."""
        return self.due.stays[self.batch.number - 1] if self.due.stay_seconds > 0 else 0


class Calendar(NamedTuple):
    """The local days of a campaign, and when each begins; `midnights` has one more, at which the last one ends."""

    zone: ZoneInfo
    days: tuple[date, ...]
    midnights: tuple[float, ...]

    def local(self, seconds: float) -> datetime:
        return datetime.fromtimestamp(seconds, UTC).astimezone(self.zone)

    def at(self, day: date, minutes: int) -> float:
        """When local clocks show so many minutes after midnight; the first time, where they show it twice."""
        whole, rest = divmod(minutes, MINUTES_A_DAY)
        clock = datetime(day.year, day.month, day.day, rest // 60, rest % 60, tzinfo=self.zone)
        return (clock + timedelta(days=whole)).timestamp()

    @property
    def hours(self) -> float:
        return (self.midnights[-1] - self.midnights[0]) / 3600


def make_calendar(campaign: Campaign) -> Calendar:
    zone = ZoneInfo(campaign.window.tz)
    count = campaign.deadline.toordinal() - campaign.start.toordinal() + 1
    days = [campaign.start + timedelta(days=number) for number in range(count + 1)]
    midnights = [datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() for day in days]
    return Calendar(zone, tuple(days[:-1]), tuple(midnights))


def show(value: float) -> str:
    """A count as people write it; a fraction with four digits that matter, and never rounded to what it is not."""
    return f"{round(value):,}" if abs(value - round(value)) < 1e-6 else f"{value:,.4f}".rstrip("0")


def is_over(found: float, allowed: float) -> bool:
    """Whether a sum is above what is allowed by more than the last bits of a float."""
    return found > allowed + 1e-9 * max(1.0, abs(allowed))


def group_by_unit(placed: Sequence[Placed]) -> dict[str, list[Placed]]:
    """The batches of each unit, in the order of their numbers."""
    found: dict[str, list[Placed]] = {}
    for each in sorted(placed, key=lambda each: (each.due.name, each.batch.number)):
        found.setdefault(each.due.name, []).append(each)
    return found
