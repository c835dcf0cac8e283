"""Numbers and names as people say them."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from datetime import timedelta


def counted(count: int, noun: str) -> str:
    """`1 pool`, `2 pools`, `3 batches`."""
    if count == 1:
        return f"{count:,} {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith(('ch', 'sh', 's', 'x')) else 's'}"


def span_text(span: timedelta) -> str:
    """`7 days`, `90 minutes`."""
    for unit, noun in ((timedelta(days=1), "day"), (timedelta(hours=1), "hour"), (timedelta(minutes=1), "minute")):
        if span and not span % unit:
            return counted(span // unit, noun)
    return counted(int(span.total_seconds()), "second")


def near(name: str, known: Collection[str]) -> str:
    """A hint at the name that was probably meant; empty where none is near."""
    found = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {found[0]}?" if found else ""


def rough_span(span: timedelta) -> str:
    """How long something has been so, as people say it: `3 h 10 min`, `2 days 4 h`, `40 s`."""
    seconds = max(0, int(span.total_seconds()))
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return counted(days, "day") + (f" {hours} h" if hours else "")
    if hours:
        return f"{hours} h" + (f" {minutes} min" if minutes else "")
    return f"{minutes} min" if minutes else f"{seconds} s"
