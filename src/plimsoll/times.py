"""Moments as text and back. One form is stored: UTC, microseconds, fixed width, so that text order is time order."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import msgspec

from plimsoll.errors import UsageError

Clock = Callable[[], datetime]
"""Where a service gets the time from; decisions get the time itself."""

CLOCK_SKEW_MAX = timedelta(minutes=5)
"""How far ahead of our clock an observation may be before it is called a date in the future."""

TIME_FORMS = "write 2026-01-05, 2026-01-05T11:00Z, today, or a span back from now such as 36h or 7d"
"""What to tell a person whose time can't be read."""

_encode = msgspec.json.encode  # many times faster than `isoformat`
_SPAN = re.compile(r"(\d+)(s|m|h|d|w)")
_SPAN_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def utc_now() -> datetime:
    """The clock of the machine. Only services and the command line call it."""
    return datetime.now(UTC)


def format_time(moment: datetime) -> str:
    """`2026-01-05T11:00:00.000000Z`: the stored form."""
    text = _encode(moment if moment.tzinfo is UTC else moment.astimezone(UTC))[1:-1].decode()
    return text if moment.microsecond else f"{text[:-1]}.000000Z"


def show_time(moment: datetime | None) -> str:
    """`2026-01-05T11:00:00Z`: the form for files and people; empty for an unknown moment."""
    if moment is None:
        return ""
    return _encode(moment if moment.tzinfo is UTC else moment.astimezone(UTC))[1:-1].decode()


def show_second(moment: datetime | None) -> str:
    """`2026-01-05T11:00:00Z` for a sentence: nobody reads microseconds there."""
    return "" if moment is None else show_time(moment.replace(microsecond=0))


def parse_time(text: str) -> datetime:
    """Read ISO 8601; without a zone it is UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is UTC:
        return moment
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text} is outside the calendar in UTC") from None


def parse_moment(text: str, *, now: datetime) -> datetime:
    """Read what a person types for a moment: ISO 8601, `now`, `today`, or a span back from now such as `36h`, `7d`."""
    if text == "now":
        return now
    if text == "today":
        return datetime.combine(now.date(), datetime.min.time(), UTC)
    try:
        if span := _SPAN.fullmatch(text):
            return now - timedelta(seconds=int(span[1]) * _SPAN_SECONDS[span[2]])
        return parse_time(text)
    except (ValueError, OverflowError):
        raise UsageError("bad_time", f"{text[:100]!r} is not a time", next_step=TIME_FORMS, value=text[:100]) from None


def as_moment(value: date | datetime) -> datetime:
    """A spreadsheet's date or naive date-time, taken as UTC."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return datetime(value.year, value.month, value.day, tzinfo=UTC)
