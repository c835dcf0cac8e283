"""The iCalendar format, RFC 5545: lines, text and time zones as calendar clients read them. Pure.

Decides nothing about what is in a calendar. Must never let a text break out of its line, or cut a character in two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

LINE_OCTETS_MAX = 75
_UTC_NAMES = {"UTC", "Etc/UTC", "Etc/UCT", "Etc/Zulu", "Zulu", "UCT", "Universal", "Etc/Universal"}
_MINUTE = timedelta(minutes=1)


def is_utc(zone: str) -> bool:
    return zone in _UTC_NAMES


def escape(text: str) -> str:
    """A TEXT value."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    plain = "".join(sign for sign in plain if sign == "\n" or (sign.isprintable() or sign == "\u00a0"))
    return plain.replace("\\", "\\\\").replace(";", "\\;").replace(",", "\\,").replace("\n", "\\n")


def text_line(name: str, value: str) -> str:
    return f"{name}:{escape(value)}"


def utc_line(name: str, moment: datetime) -> str:
    return f"{name}:{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def time_line(name: str, moment: datetime, zone: str) -> str:
    """A moment in a zone. What clocks show twice can't be told apart there, so such a moment is told in UTC."""
    local = moment.astimezone(ZoneInfo(zone))
    if is_utc(zone) or local.fold:
        return utc_line(name, moment)
    return f"{name};TZID={zone}:{local:%Y%m%dT%H%M%S}"


def fold_line(line: str) -> str:
    """Cut into pieces of at most 75 octets, each but the first after a space."""
    assert "\n" not in line, "a text is escaped before it becomes a line"
    assert "\r" not in line, "and has no other line breaks"
    pieces: list[str] = []
    piece, octets = "", 0
    for sign in line:
        size = len(sign.encode())
        if octets + size > LINE_OCTETS_MAX:
            pieces.append(piece)
            piece, octets = " ", 1
        piece += sign
        octets += size
    return "\r\n".join([*pieces, piece])


def document(lines: Iterable[str]) -> bytes:
    return "".join(f"{fold_line(line)}\r\n" for line in lines).encode()


def zone_lines(name: str, *, first: datetime, last: datetime) -> list[str]:
    """The definition of a zone, for the whole years in which a calendar's moments lie."""
    zone = ZoneInfo(name)
    begin = datetime(first.astimezone(zone).year, 1, 1, tzinfo=zone).astimezone(UTC)
    end = datetime(last.astimezone(zone).year + 1, 1, 1, tzinfo=zone).astimezone(UTC)
    lines = ["BEGIN:VTIMEZONE", f"TZID:{name}", *_observance(zone, begin, _offset(zone, begin))]
    for moment in _transitions(zone, begin, end):
        lines += _observance(zone, moment, _offset(zone, moment - _MINUTE))
    return [*lines, "END:VTIMEZONE"]


def _observance(zone: tzinfo, moment: datetime, before: timedelta) -> list[str]:
    """What holds from a moment on."""
    local = moment.astimezone(zone)
    kind = "DAYLIGHT" if (local.dst() or timedelta(0)) > timedelta(0) else "STANDARD"
    return [
        f"BEGIN:{kind}",
        f"DTSTART:{(moment + before).replace(tzinfo=None):%Y%m%dT%H%M%S}",
        f"TZOFFSETFROM:{_offset_text(before)}",
        f"TZOFFSETTO:{_offset_text(_offset(zone, moment))}",
        text_line("TZNAME", local.tzname() or "LMT"),
        f"END:{kind}",
    ]


def _offset(zone: tzinfo, moment: datetime) -> timedelta:
    found = moment.astimezone(zone).utcoffset()
    assert found is not None, "a zone has an offset"
    return found


def _mark(zone: tzinfo, moment: datetime) -> tuple[timedelta, str | None]:
    return _offset(zone, moment), moment.astimezone(zone).tzname()


def _offset_text(offset: timedelta) -> str:
    seconds = abs(int(offset.total_seconds()))
    text = f"{'-' if offset < timedelta(0) else '+'}{seconds // 3600:02}{seconds // 60 % 60:02}"
    return text + (f"{seconds % 60:02}" if seconds % 60 else "")


def _transitions(zone: tzinfo, begin: datetime, end: datetime) -> Iterator[datetime]:
    """The moments at which clocks change; no zone does that twice a day."""
    day = timedelta(days=1)
    moment = begin
    while moment < end:
        if _mark(zone, moment) != _mark(zone, moment + day):
            low, high = 0, 24 * 60
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (
                    (middle, high) if _mark(zone, moment + middle * _MINUTE) == _mark(zone, moment) else (low, middle)
                )
            yield moment + high * _MINUTE
        moment += day
