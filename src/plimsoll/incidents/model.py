"""The nouns of what went wrong: a trouble as it is found, an incident, a notice to an owner, a post. Frozen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from plimsoll.incidents.reasons import Fate, Kind, What
from plimsoll.state.state import State

HOUR_US = 3_600_000_000
TOLD = "told"
"""What a post of notices says happened; one of an incident says another word."""


class Look(NamedTuple):
    """What finders look at: the state, the time, and when each feed last spoke."""

    state: State
    now: datetime
    heard: Mapping[str, datetime] = {}


class Trouble(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that is wrong now. `about` names it, always in the same way; `amount` of `unit` says how bad it is."""

    kind: Kind
    about: str
    title: str
    since: datetime
    amount: int
    unit: str
    detail: str = ""
    clusters: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    next_step: str = ""


Finder = Callable[[Look], Iterable[Trouble]]
"""Finds what is wrong of one kind. Pure: the same look gives the same troubles."""


class Numbers(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an incident came to: how long there was trouble, the most at once, its sum over time, and who was hurt."""

    seconds: float
    most: int = 0
    unit: str = ""
    unit_hours: float = 0.0
    teams: tuple[str, ...] = ()


class Incident(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where everybody looks while something is going on. A person's that is not a campaign's own holds campaigns back
    on the clusters that it is about; on all, where it names none.

    `course` is the amount from each moment on. `is_on`: there is trouble now; it closes a while after that ended.
    """

    id: str
    title: str
    opened_at: datetime
    opened_by: str
    roster: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    campaign: str = ""
    notes: tuple[tuple[datetime, str, str], ...] = ()
    closed_at: datetime | None = None
    kind: Kind = Kind.PERSON
    about: str = ""
    teams: tuple[str, ...] = ()
    """Everybody who was hurt so far."""
    unit: str = ""
    amount: int = 0
    most: int = 0
    is_on: bool = False
    as_of: datetime | None = None
    """Up to when the sums below count."""
    on_us: int = 0
    amount_us: int = 0
    gone_at: datetime | None = None
    course: tuple[tuple[datetime, int], ...] = ()
    next_step: str = ""
    noticed_at: datetime | None = None
    closed_by: str = ""
    numbers: Numbers | None = None

    @property
    def holds_campaigns(self) -> bool:
        return self.closed_at is None and not self.campaign and not self.kind.is_automatic

    @property
    def has_trouble(self) -> bool:
        """Whether there is something to do: while its trouble is gone it only waits to be closed."""
        return self.closed_at is None and (self.is_on or not self.kind.is_automatic)

    @property
    def move(self) -> str:
        """Whose move it is, as far as its kind tells; nobody's without trouble."""
        return self.kind.move if self.has_trouble else ""

    def numbers_at(self, now: datetime) -> Numbers:
        """What it has come to by a moment."""
        if self.numbers is not None and self.closed_at is not None:
            return self.numbers
        if not self.kind.is_automatic or self.as_of is None:
            return Numbers(max(0.0, ((self.closed_at or now) - self.opened_at).total_seconds()))
        passed = max(0, (now - self.as_of) // timedelta(microseconds=1)) if self.is_on else 0
        return Numbers(
            (self.on_us + passed) / 1e6,
            self.most,
            self.unit,
            round((self.amount_us + passed * self.amount) / HOUR_US, 3),
            self.teams,
        )


class Loss(msgspec.Struct, frozen=True, omit_defaults=True):
    """What running work lost, and nobody was told yet. `by` is the node, or the planned work."""

    workload: str
    team: str
    owner: str
    parts: tuple[str, ...]
    at: datetime
    what: What
    by: str
    detail: str
    hows: dict[str, str] = {}
    """What a part went on with at once, where it did."""


class OwnerNotice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the owner of running work was told: what happened, what was done about it, and what is left to do."""

    workload: str
    team: str
    owner: str
    at: datetime
    what: What
    by: str
    happened: str
    done: str
    left: str
    told_at: datetime
    gpus: int = 0
    nodes: tuple[str, ...] = ()
    """All that it is about, while no newer notice of its kind knows better."""
    post: str = ""
    """The post that carries it to the chat."""


class Post(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message for the chat: of an incident that opened, came back or closed, or of notices to owners."""

    id: str
    subject: str
    what: str
    queued_at: datetime
    fate: Fate = Fate.WAITING
    attempts: int = 0
    changed_at: datetime | None = None
    detail: str = ""

    @property
    def is_to_owners(self) -> bool:
        """Whether it is of notices. Its subject does not say so: an incident may have any name."""
        return self.what == TOLD


class Did(NamedTuple):
    """What a pass did: `opened`, `noted`, `closed` an incident, or `told` an owner."""

    what: str
    name: str
    text: str
