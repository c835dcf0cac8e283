"""The nouns of the memory: a change, a draft of it, the event it becomes, the head of the chain.

The ledger knows no capability: to it a change is a kind, a subject and a payload.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, NamedTuple

import msgspec

from plimsoll.times import format_time, parse_time

GENESIS = "0" * 64
"""The `prev_hash` of the first event."""


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened, typed. Each capability has its own; its fields are the payload.

    A kind never changes its meaning. Fields may be added with a default; any other change of shape is a new kind with
    a number at its end (`node.recorded.2`), and the fold of the old one stays for ever.
    """

    kind: ClassVar[str]

    @property
    def subject(self) -> str:
        """The stream the change belongs to, such as `node/tiger-0001`: what a stale writer conflicts on."""
        raise NotImplementedError


class Draft(NamedTuple):
    """A change on its way into the ledger. `effective_at` is when it happened, where that is not now."""

    change: Change
    reason: str = ""
    effective_at: datetime | None = None


class Event(NamedTuple):
    """A committed change: a row of the table `events`, all text as it is stored and hashed."""

    revision: int
    recorded_at: str
    effective_at: str
    actor: str
    kind: str
    subject: str
    reason: str
    payload: str
    prev_hash: str
    hash: str

    @property
    def recorded_time(self) -> datetime:
        """When we learnt it."""
        return parse_time(self.recorded_at)

    @property
    def effective_time(self) -> datetime:
        """When it happened."""
        return parse_time(self.effective_at)


class Head(NamedTuple):
    """Where the chain ends. Published (`audit head`), it proves later that no tail was cut off."""

    revision: int
    hash: str
    recorded_at: str

    def __str__(self) -> str:
        return f"{self.revision}:{self.hash}"


EMPTY_HEAD = Head(0, GENESIS, "")


class Snapshot(NamedTuple):
    """A folded state at a revision. `hash` is the chain's hash there: a snapshot of another chain is not used."""

    revision: int
    fold_version: str
    hash: str
    body: bytes


class Paper(NamedTuple):
    """A row of the table `papers`: something short-lived that is no event, such as a session or a receipt.

    `expires_at` is in the stored form of a moment (`format_time`), "" for never. Whoever reads a paper looks at it.
    """

    kind: str
    id: str
    expires_at: str
    body: str

    def is_over(self, now: datetime) -> bool:
        """Whether its time is over."""
        return bool(self.expires_at) and self.expires_at <= format_time(now)


class EventFilter(msgspec.Struct, frozen=True):
    """Which events to read. Empty fields match everything; a `*` at the end of a text matches any rest."""

    subject: str = ""
    actor: str = ""
    kind: str = ""
    recorded_from: str = ""
    recorded_until: str = ""
