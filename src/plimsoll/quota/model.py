"""The nouns of what is promised: the book, the work that uses it, the line in force, and what is asked for."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from plimsoll.fleet.model import PoolKey


class Kind(enum.StrEnum):
    """How a part bears a loss: a gang not at all, an elastic part by having less."""

    GANG = "gang"
    ELASTIC = "elastic"


class Tier(enum.StrEnum):
    """What a team finds more important among its own work, most important first."""

    CRITICAL = "critical"
    HIGH = "high"
    MID = "mid"
    LOW = "low"

    @property
    def place(self) -> int:
        """0 comes first."""
        return _TIER_PLACE[self]


_TIER_PLACE = {tier: place for place, tier in enumerate(Tier)}


class Mode(enum.StrEnum):
    """What the controller may do in a cluster by itself: watch, tell, or act."""

    OBSERVE = "observe"
    PROPOSE = "propose"
    ENFORCE = "enforce"


class QuotaKey(NamedTuple):
    """A team's share of a pool."""

    team: str
    cluster: str
    sku: str

    @property
    def pool(self) -> PoolKey:
        return PoolKey(self.cluster, self.sku)


class Quota(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the quota book says a team holds in a pool, in GPUs, before correction."""

    team: str
    cluster: str
    sku: str
    gpus: int
    labels: dict[str, str] = {}

    @property
    def key(self) -> QuotaKey:
        return QuotaKey(self.team, self.cluster, self.sku)


ClaimOrder = tuple[bool, int, int, int, str, bool, str, str]


class Claim(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """GPUs that running work holds of a team's quota in one island. `work` is the workload, `part` its part.

    `submitted` is when it was asked for, in microseconds; 0 for work that was only observed. `is_flex`: it asked for
    nothing of the guarantee. `is_first`: it draws on a part of the quota that the team keeps for it. A claim of no GPUs
    may `reserve` some: what the team keeps for somebody who does not use it yet.
    """

    work: str
    island: str
    kind: Kind
    tier: Tier
    rank: int
    gpus: int
    idle_gpus: int = 0
    part: str = ""
    submitted: int = 0
    is_spare: bool = False
    is_flex: bool = False
    is_first: bool = False
    reserve: int = 0
    unit: int = 1
    """GPUs of a replica: elastic work counts by replica."""

    @property
    def order(self) -> ClaimOrder:
        """A team's claims fill its guarantee in this order: tier, rank, submit time."""
        return (
            not self.is_first,
            _TIER_PLACE[self.tier],
            self.rank,
            self.submitted,
            self.work,
            self.is_spare,
            self.part,
            self.island,
        )


class Haircut(msgspec.Struct, frozen=True):
    """What a correction takes from a team, by what it hurts, in GPUs."""

    unscheduled: int = 0
    idle: int = 0
    running: int = 0

    @classmethod
    def total(cls, haircuts: Iterable[Haircut]) -> Haircut:
        unscheduled = idle = running = 0
        for each in haircuts:
            unscheduled += each.unscheduled
            idle += each.idle
            running += each.running
        return cls(unscheduled, idle, running)

    @property
    def gpus(self) -> int:
        return self.unscheduled + self.idle + self.running

    @property
    def stage(self) -> int:
        """1 no cut, 2 only unscheduled, 3 idle, 4 running."""
        if self.running:
            return 4
        if self.idle:
            return 3
        return 2 if self.unscheduled else 1


class LineInForce(msgspec.Struct, frozen=True):
    """The line of a pool as the last applied alignment recorded it, in GPUs."""

    gpus: int
    policy: str
    since: datetime


class Promised(msgspec.Struct, frozen=True):
    """What was promised of a pool from a moment on: GPUs by team."""

    since: datetime
    line: int
    teams: Mapping[str, int]
    policy: str = ""

    @property
    def gpus(self) -> int:
        return sum(self.teams.values())


class PoolPromise(msgspec.Struct, frozen=True):
    """What a scheduler is told of a pool: all that an outlet needs. GPUs, in whole nodes."""

    pool: PoolKey
    gpus_per_node: int
    healthy: int
    line: int
    guaranteed: Mapping[str, int]

    @property
    def flex_standing(self) -> int:
        return max(0, self.healthy - sum(self.guaranteed.values()))


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """Quota that came with an end: it goes back by itself, to `giver` where it was a transfer, else to flex."""

    id: str
    team: str
    cluster: str
    sku: str
    gpus: int
    until: datetime
    giver: str = ""

    @property
    def key(self) -> QuotaKey:
        return QuotaKey(self.team, self.cluster, self.sku)


class Answer(enum.StrEnum):
    """What a team says to a notice."""

    NONE = "none"
    AGREED = "agreed"
    OBJECTED = "objected"


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A team was told that its guarantee in a pool will fall, by how much of what, and from when on."""

    id: str
    team: str
    cluster: str
    sku: str
    was: int
    guaranteed: int
    haircut: Haircut
    given_at: datetime
    due: datetime
    answer: Answer = Answer.NONE
    answered_by: str = ""
    comment: str = ""
    is_announced: bool = False
    """Whether a person's roll-out named the day; else the controller did."""

    @property
    def key(self) -> QuotaKey:
        return QuotaKey(self.team, self.cluster, self.sku)

    @property
    def stage(self) -> int:
        return self.haircut.stage


class RequestState(enum.StrEnum):
    """Where a request stands."""

    OPEN = "open"
    WAITING = "waiting"
    """Approved, and it begins later: until then nobody else is promised what it was given."""
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


class Approved(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a request was approved: GPUs of a pool, from when on. `option` is the one that was chosen.

    `givers` are the teams it comes from, each with its GPUs; without any it comes out of what nobody is promised.
    """

    option: str
    cluster: str
    sku: str
    gpus: int
    starts: datetime
    givers: tuple[tuple[str, int], ...] = ()

    @property
    def pool(self) -> PoolKey:
        return PoolKey(self.cluster, self.sku)


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """A team asks for more: how much of what, where, whether in one island, from when and for how long."""

    id: str
    team: str
    sku: str
    gpus: int
    asked_at: datetime
    expires: datetime
    cluster: str = ""
    area: str = ""
    is_one_island: bool = False
    starts: datetime | None = None
    ends: datetime | None = None
    reason: str = ""
    by: str = ""
    state: RequestState = RequestState.OPEN
    answer: str = ""
    """Why it was denied, or the option that was approved."""
    approved: Approved | None = None


class Callback(msgspec.Struct, frozen=True):
    """Flex that a guarantee wants back: who gives how many GPUs of which work, and until when."""

    team: str
    gpus: int
    due: datetime
    victims: tuple[tuple[str, str, int], ...]
    """Team, work, GPUs."""
