"""Signals: what somebody observed about a node at a moment, and what is remembered of them.

The same observations in any order, once or twice, must lead to the same facts. So a signal is remembered by its own
moment, never by when it came. What is remembered is a raw sample and no event: it lives in the table of cursors.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import groupby

import msgspec

from plimsoll.health.model import to_microseconds

RETENTION = timedelta(days=30)
"""Older signals say nothing about a node now; they are refused."""
RUN_POINTS_KEPT = 10
"""Of signals in a row that say the same, so many of the first and of the last are kept: no rule waits for more."""
RUNS_KEPT = 20
"""So many stretches, bad and good in turn, are kept: enough for a problem that comes and goes as often as can count."""
SCOPE_PREFIX = "signal/"


class SignalKind(enum.StrEnum):
    """What a signal is about. Its name says which one: the XID code, the check, the provider's event."""

    XID = "xid"
    CHECK = "check"
    HEARTBEAT = "heartbeat"
    ECC = "ecc"
    THERMAL = "thermal"
    PROVIDER = "provider"
    SCHEDULER = "scheduler"

    @property
    def is_lasting(self) -> bool:
        """Whether it goes on until a good signal ends it. An XID or a provider's event just happens."""
        return self not in _HAPPENING


_HAPPENING = (SignalKind.XID, SignalKind.PROVIDER)


class Signal(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One observation. A good one (`ok`): the check passed, the heartbeat is there, the provider has finished."""

    node: str
    kind: SignalKind
    at: datetime
    name: str = ""
    value: float | None = None
    is_ok: bool = msgspec.field(default=False, name="ok")
    detail: str = ""


class SignalKey(msgspec.Struct, frozen=True, order=True):
    """What repeats of one problem have in common."""

    kind: SignalKind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else str(self.kind)

    @classmethod
    def read(cls, text: str) -> SignalKey:
        """The opposite of `str`."""
        kind, _, name = text.partition(" ")
        return cls(SignalKind(kind), name)


def scope_of(node: str) -> str:
    """Where the memory of a node's problems is kept."""
    return f"{SCOPE_PREFIX}{node}"


def point(at: datetime, *, is_ok: bool) -> int:
    """A signal's moment and whether it is good, in one number."""
    return to_microseconds(at) << 1 | is_ok


class Memory(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered of one problem of a node: its points in order; the rest belongs to the latest bad one."""

    points: tuple[int, ...] = ()
    value: float | None = None
    detail: str = ""
    source: str = ""

    @property
    def latest_bad(self) -> int:
        """In microseconds; 0 where there is none."""
        return next((each >> 1 for each in reversed(self.points) if not each & 1), 0)

    @property
    def latest(self) -> int:
        """The moment of the last point, good or bad; 0 where there is none."""
        return self.points[-1] >> 1 if self.points else 0

    def is_good_at(self, good: int) -> bool:
        """Whether a good point is no news: the last one up to it is good already, or there is none."""
        return next((bool(each & 1) for each in reversed(self.points) if each <= good), True)

    def ended_by(self, moment: int) -> bool:
        """Whether a bad signal was followed by a good one no later than a moment, in microseconds."""
        kinds = [each & 1 for each in self.points if each >> 1 <= moment]
        return 0 in kinds and 1 in kinds[kinds.index(0) :]

    def merged(self, other: Memory) -> Memory:
        """Both, as if they had been one from the start."""
        if not other.points:
            return self
        newest = max(self, other, key=lambda each: (each.latest_bad, each.value or 0.0, each.detail, each.source))
        return Memory(compact({*self.points, *other.points}), newest.value, newest.detail, newest.source)


def compact(points: Iterable[int]) -> tuple[int, ...]:
    """Points in order, those left out that no rule could ever need. At one moment bad stands before good."""
    ordered = sorted(points)
    if len(ordered) <= RUN_POINTS_KEPT:
        return tuple(ordered)
    runs = [list(run) for _, run in groupby(ordered, key=lambda each: each & 1)]
    return tuple(each for run in runs[-RUNS_KEPT:] for each in _ends(run))


def _ends(run: list[int]) -> list[int]:
    """The first and the last of many: when it began, and whether it has come often of late."""
    return run if len(run) <= 2 * RUN_POINTS_KEPT else [*run[:RUN_POINTS_KEPT], *run[-RUN_POINTS_KEPT:]]
