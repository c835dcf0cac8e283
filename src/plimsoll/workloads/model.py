"""The nouns of who runs where: what is asked for, what runs, on which blocks of islands, and what became of it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from plimsoll.fleet.model import PoolKey
from plimsoll.fleet.selector import Scope
from plimsoll.quota.model import Claim, Kind, QuotaKey, Tier


class Block(msgspec.Struct, frozen=True, omit_defaults=True):
    """GPUs that a part holds in one island; on which nodes, where that is known, as pairs of node and GPUs."""

    island: str
    gpus: int
    idle_gpus: int = 0
    nodes: tuple[tuple[str, int], ...] = ()


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """One running part of a workload. A gang has exactly one block. `is_assumed`: the import had to place it itself.

    The spare nodes of a gang are a part of their own with the gang's name.
    """

    kind: Kind
    tier: Tier
    rank: int
    sku: str
    blocks: tuple[Block, ...]
    is_assumed: bool = False
    labels: dict[str, str] = {}
    name: str = ""
    is_spare: bool = False
    is_flex: bool = False
    is_first: bool = False
    unit: int = 1
    """GPUs of a replica; 1 where nobody said."""

    @property
    def gpus(self) -> int:
        return sum(block.gpus for block in self.blocks)

    @property
    def idle_gpus(self) -> int:
        return sum(block.idle_gpus for block in self.blocks)


class Workload(msgspec.Struct, frozen=True, omit_defaults=True):
    """A team's running work; all its parts are in one cluster. `submitted` is in microseconds, 0 where observed."""

    id: str
    team: str
    cluster: str
    parts: tuple[Part, ...]
    submitted: int = 0

    def claims(self) -> dict[QuotaKey, list[Claim]]:
        """What it holds of its team's quotas."""
        found: dict[QuotaKey, list[Claim]] = {}
        for part in self.parts:
            claims = found.setdefault(QuotaKey(self.team, self.cluster, part.sku), [])
            for block in part.blocks:
                claims.append(
                    Claim(
                        self.id,
                        block.island,
                        part.kind,
                        part.tier,
                        part.rank,
                        block.gpus,
                        block.idle_gpus,
                        part.name,
                        self.submitted,
                        part.is_spare,
                        part.is_flex,
                        part.is_first,
                        unit=part.unit,
                    )
                )
        return found

    @property
    def gpus(self) -> int:
        return sum(part.gpus for part in self.parts)

    def running(self, name: str) -> Part | None:
        """The part of this name, without its spares."""
        for part in self.parts:
            if part.name == name and not part.is_spare:
                return part
        return None

    def spares(self, name: str) -> Part | None:
        for part in self.parts:
            if part.name == name and part.is_spare:
                return part
        return None


class RunsAs(enum.StrEnum):
    """What a workload may run as. Work beyond a guarantee is flex, whatever it asks for."""

    ANY = "any"
    GUARANTEED = "guaranteed"
    FLEX = "flex"


class PartSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part as it is asked for: `gpus` in one island (a gang), or in each replica, of which `least` to `most` run."""

    name: str
    kind: Kind
    tier: Tier
    rank: int
    gpus: int
    least: int = 1
    most: int = 1
    spare_nodes: int = 0

    @property
    def is_gang(self) -> bool:
        return self.kind is Kind.GANG

    @property
    def gpus_least(self) -> int:
        """Without so many the part is of no use."""
        return self.gpus * self.least


class Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A workload file: who asks for what, where it may run, and what it costs to be stopped."""

    name: str
    team: str
    where: Scope
    parts: tuple[PartSpec, ...]
    owner: str = ""
    runs_as: RunsAs = RunsAs.ANY
    hours: float = 0.0
    """How long it is expected to run; 0 where nobody said."""
    checkpoint_minutes: float = 0.0
    restart_minutes: float = 0.0

    def part(self, name: str) -> PartSpec:
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(name)

    @property
    def gpus_least(self) -> int:
        return sum(part.gpus_least for part in self.parts)


class Shape(NamedTuple):
    """What two workloads must have in common so that, at one moment, both can start or neither can."""

    team: str
    where: Scope
    runs_as: RunsAs
    hours: float
    owner: str
    cluster: str
    needs: tuple[tuple[str, int, int, int, int, int, int], ...]
    """Of each part that must start: kind, tier, rank, GPUs, least, most, spare nodes."""

    @property
    def gpus_largest(self) -> int:
        """The most GPUs that must be in one island."""
        return max(need[3] for need in self.needs)


class Place(NamedTuple):
    """GPUs of an island for a part; `is_spare` for its spare nodes."""

    part: str
    island: str
    gpus: int
    is_spare: bool = False


class Right(enum.StrEnum):
    """By which right other work came first (rule 3)."""

    GUARANTEE = "guarantee"
    """It lies inside its team's guarantee, and what stopped was flex."""
    FAIR_SHARE = "fair_share"
    """Both were flex, and its team held less of it for its guarantee."""
    TEAM_ORDER = "team_order"
    """It is the same team's, and comes first by tier, rank or submit time."""
    UNKNOWN = "unknown"


class Victim(NamedTuple):
    """GPUs of an island that a part gives up, so that something with a better right can have them."""

    workload: str
    part: str
    island: str
    gpus: int
    stops: bool
    """Whether the part stops; else it runs on with less."""
    team: str
    is_spare: bool = False
    right: Right = Right.UNKNOWN


class Booking(msgspec.Struct, frozen=True):
    """Room that was called back for a workload: it starts when the victims have left, at the latest when it is due."""

    workload: str
    cluster: str
    sku: str
    places: tuple[Place, ...]
    victims: tuple[Victim, ...]
    due: datetime

    @property
    def pool(self) -> PoolKey:
        return PoolKey(self.cluster, self.sku)


class Because(enum.StrEnum):
    """Why the placement of a part changed."""

    STARTED = "started"
    GROWN = "grown"
    REPAIRED = "repaired"
    MOVED = "moved"
    SCALED = "scaled"
    PREEMPTED = "preempted"
    NODE_LOST = "node_lost"
    PLANNED_WORK = "planned_work"

    @property
    def interrupts(self) -> bool:
        """Whether a gang to which this happens starts again from its last checkpoint."""
        return self not in (Because.STARTED, Because.GROWN, Because.SCALED)


class PartPlaced(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that a part holds from now on; without blocks it has stopped and waits."""

    part: str
    blocks: tuple[Block, ...]
    spares: tuple[Block, ...] = ()


class Interruption(msgspec.Struct, frozen=True, omit_defaults=True):
    """A gang lost its progress since the last checkpoint, or an elastic part some replicas. `by` is the node, or the
    workload that came first.
    """

    part: str
    at: int
    because: Because
    by: str = ""
    detail: str = ""
    down_us: int = 0
    """How long it stood still for it, so far as it is over."""
    lost_us: int = 0
    """What it had done since its last checkpoint."""
    gpus: int = 0
    """What it gave up; an elastic part runs on with the rest."""


class Account(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a part, in microseconds. `gpus` runs since `since`; not at all where that is 0."""

    first_started: int = 0
    since: int = 0
    stopped: int = 0
    gpus: int = 0
    run_us: int = 0
    down_us: int = 0
    lost_us: int = 0
    """Run again from a checkpoint: time that produced nothing in the end."""
    restart_us: int = 0
    gpu_us: int = 0
    checkpoint_base: int = 0
    """When the present stretch without interruption began."""
    interruptions: int = 0
    by_cause: dict[str, int] = {}


class TeamHold(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a team's quota that is kept for a person or a run of the team until a date."""

    id: str
    team: str
    cluster: str
    sku: str
    gpus: int
    keeper: str
    """The owner of work, or the name of a workload, that it is kept for."""
    until: datetime
    by: str = ""
    reason: str = ""

    @property
    def key(self) -> QuotaKey:
        return QuotaKey(self.team, self.cluster, self.sku)


class WaitSpell(NamedTuple):
    """A wait that is over, in microseconds: who waited how long for how many GPUs of a pool, and why."""

    end: int
    begin: int
    workload: str
    team: str
    gpus: int
    cause: str
    is_guaranteed: bool
    """Whether it had a right to what it waited for."""


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """A workload that was submitted, or observed and then taken over. `submitted` is in microseconds."""

    spec: Spec
    submitted: int
    is_observed: bool = False
    original: Spec | None = None
    """As it was submitted, where it was scaled or ranked since."""


class Past(msgspec.Struct, frozen=True, omit_defaults=True):
    """A workload that is over: how it ended, and what became of its parts."""

    spec: Spec
    submitted: int
    ended: int
    how: str
    cluster: str = ""
    sku: str = ""
    accounts: dict[str, Account] = {}
    interruptions: tuple[Interruption, ...] = ()
    nodes: tuple[str, ...] = ()
    """Those it ran on when it ended."""
    by: str = ""
    reason: str = ""


def replicas(part: PartSpec, blocks: Sequence[Block]) -> int:
    """How many whole replicas run in these blocks."""
    return sum(block.gpus // part.gpus for block in blocks)
