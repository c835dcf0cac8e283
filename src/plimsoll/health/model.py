"""The nouns of what works: a node's timeline of service.

A fleet has millions of past transitions, so a timeline is two packed columns: moments, and the number of a `Mark`
(service, reason, labels) that many transitions share.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from plimsoll.fleet.model import Service

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TIME = struct.Struct("=q")
_MARK = struct.Struct("=I")


def to_microseconds(moment: datetime) -> int:
    """A moment as a number, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def from_microseconds(number: int) -> datetime:
    return _EPOCH + timedelta(microseconds=number)


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a node went to, and why. `labels` are the extra columns of its row in `history.csv`."""

    service: Service
    reason: str = ""
    labels: tuple[tuple[str, str], ...] = ()


class Timeline(msgspec.Struct, frozen=True, gc=False):
    """When one node came into which service, in the order of time. Before its first entry it was in service."""

    times: bytes = b""
    marks: bytes = b""

    def __len__(self) -> int:
        return len(self.times) // 8

    def moments(self) -> memoryview:
        """Microseconds since 1970, ascending."""
        return memoryview(self.times).cast("q")

    def mark_numbers(self) -> memoryview:
        return memoryview(self.marks).cast("I")

    def entries(self) -> Iterator[tuple[int, int]]:
        return zip(self.moments(), self.mark_numbers(), strict=True)

    def marks_at(self, moment: int) -> list[int]:
        """The numbers of the marks made at exactly this moment."""
        moments = self.moments()
        first, last = bisect_left(moments, moment), bisect_right(moments, moment)
        return list(self.mark_numbers()[first:last])

    def with_entry(self, moment: int, mark: int) -> Timeline:
        """One transition more, after those of the same moment."""
        time_bytes, mark_bytes = _TIME.pack(moment), _MARK.pack(mark)
        if not self.times or _TIME.unpack_from(self.times, len(self.times) - 8)[0] <= moment:
            return Timeline(self.times + time_bytes, self.marks + mark_bytes)
        place = bisect_right(self.moments(), moment)
        return Timeline(
            self.times[: 8 * place] + time_bytes + self.times[8 * place :],
            self.marks[: 4 * place] + mark_bytes + self.marks[4 * place :],
        )


EMPTY_TIMELINE = Timeline()
