"""The nouns of what works: a node's timeline of service, and the planned work ahead of it.

A fleet has millions of past transitions, so a timeline is packed: each entry is a moment and the number of a
`Mark` (service, reason, labels) that many transitions share.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from plimsoll.fleet.model import Service

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ENTRY = struct.Struct("=qq")
"""A moment and the number of a mark."""


def to_microseconds(moment: datetime) -> int:
    """A moment as a number, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def from_microseconds(number: int) -> datetime:
    return _EPOCH + timedelta(microseconds=number)


_PROGRESS = {
    Service.DRAINING: 0,
    Service.QUARANTINED: 1,
    Service.MAINTENANCE: 2,
    Service.REPAIR: 3,
    Service.JOINING: 4,
    Service.VALIDATING: 5,
    Service.IN_SERVICE: 6,
    Service.RETIRED: 7,
}


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a node went to, and why. `labels` are the extra columns of its row in `history.csv`.

    `is_assumed`: nobody said when, so the moment is the one at which it was noticed.
    """

    service: Service
    reason: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    is_assumed: bool = False

    @property
    def order(self) -> tuple[int, str]:
        """History comes in any order, so transitions of one instant are put in that of a way back into service."""
        return _PROGRESS[self.service], self.reason


PLANNED_REASONS = ("planned:", "provider:")
"""How the reason of planned work begins: ours, or the provider's with notice."""


def is_planned(mark: Mark) -> bool:
    """Whether somebody wanted the node out of service: maintenance, or a reason that says so. Else it is a fault."""
    return mark.service is Service.MAINTENANCE or mark.reason.casefold().startswith(PLANNED_REASONS)


WITHDRAWN_REASON = "withdrawn:"
"""How the reason of a return begins that says the exit before it was a mistake."""


class Timeline(msgspec.Struct, frozen=True, gc=False):
    """When one node came into which service, in the order of time. Before its first entry it was in service."""

    packed: bytes = b""

    def __len__(self) -> int:
        return len(self.packed) // _ENTRY.size

    def moments(self) -> memoryview:
        """Microseconds since 1970, ascending."""
        return memoryview(self.packed).cast("q")[::2]

    def mark_numbers(self) -> memoryview:
        return memoryview(self.packed).cast("q")[1::2]

    def entries(self) -> Iterator[tuple[int, int]]:
        return zip(self.moments(), self.mark_numbers(), strict=True)

    def marks_at(self, moment: int) -> list[int]:
        """The numbers of the marks made at exactly this moment."""
        moments = self.moments()
        first, last = bisect_left(moments, moment), bisect_right(moments, moment)
        return list(self.mark_numbers()[first:last])

    def is_past(self, moment: int) -> bool:
        """Whether an entry is as late as this moment, or later."""
        return bool(self.packed) and _ENTRY.unpack_from(self.packed, len(self.packed) - _ENTRY.size)[0] >= moment

    def has_since(self, moment: int, count: int) -> bool:
        """Whether so many entries, or more, are as late as this moment."""
        place = len(self.packed) - count * _ENTRY.size
        return place >= 0 and (count == 0 or _ENTRY.unpack_from(self.packed, place)[0] >= moment)

    def with_last(self, moment: int, mark: int) -> Timeline:
        """One transition more, later than all there are."""
        return Timeline(self.packed + _ENTRY.pack(moment, mark))

    def with_all_last(self, entries: Sequence[int]) -> Timeline:
        """Transitions more, later than all there are: moment, mark, moment, mark, …"""
        return Timeline(self.packed + struct.pack(f"={len(entries)}q", *entries))

    def with_marks_at(self, moment: int, marks: Sequence[int]) -> Timeline:
        """These marks, in their order, for the ones that were made at this moment."""
        moments = self.moments()
        first, last = bisect_left(moments, moment), bisect_right(moments, moment)
        made = b"".join(_ENTRY.pack(moment, mark) for mark in marks)
        return Timeline(self.packed[: _ENTRY.size * first] + made + self.packed[_ENTRY.size * last :])


EMPTY_TIMELINE = Timeline()


class Ahead(msgspec.Struct, frozen=True, omit_defaults=True):
    """Planned work that somebody announced and that has not begun: these nodes will be out from `starts` to `ends`.

    It is word of mouth and no hold: a node is in service until whoever does the work holds it.
    """

    id: str
    owner: str
    nodes: tuple[str, ...]
    starts: datetime
    ends: datetime
    reason: str

    def is_over(self, now: datetime) -> bool:
        return self.ends <= now

    @property
    def order(self) -> tuple[datetime, str]:
        """What starts first stands first."""
        return self.starts, self.id
