"""The nouns of `why`: steps down from what is promised to what can be had, where work comes closest, and what helps.

Codes and numbers are for machines, `says` is for people. The GPUs of the steps of one chain always add up to its gap.
"""

from __future__ import annotations

import enum
from datetime import datetime

import msgspec

from plimsoll.workloads.reasons import Cause, Move
from plimsoll.workloads.why.planned import PlannedOut


class Named(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that stands behind a number: a workload's part, a hold, or a reason for which nodes are out."""

    name: str
    gpus: int
    says: str = ""


class Step(msgspec.Struct, frozen=True):
    """One step down: so many GPUs fewer, why, whose move it is, and until when as far as anybody knows.

    `after` says what it takes from. `is_told`: somebody said until when; else it is what the past lets expect.
    """

    after: str
    cause: Cause
    gpus: int
    says: str
    move: Move
    until: datetime | None = None
    is_told: bool = False
    next: str = ""
    of: tuple[Named, ...] = ()


def step(
    after: str,
    cause: Cause,
    gpus: int,
    says: str,
    *,
    until: datetime | None = None,
    is_told: bool = False,
    next_step: str = "",
    of: tuple[Named, ...] = (),
) -> Step:
    """A step whose move is its cause's."""
    return Step(after, cause, gpus, says, cause.move, until, is_told, next_step, of)


class PoolWhy(msgspec.Struct, frozen=True):
    """A team's quota in a pool, in GPUs: `assigned` less the steps after it is `guaranteed`; that less the steps after
    it is `startable`, of which `free` needs nobody to leave. `largest_block` of it is in one island.
    `shortfall`: so much of what is guaranteed to all teams of the pool has no working machine behind it; 0 where the
    team has no guarantee there.
    """

    cluster: str
    sku: str
    assigned: int
    guaranteed: int
    startable: int
    free: int
    largest_block: int
    largest_block_island: str
    allocated: int
    flex_used: int
    shortfall: int
    steps: tuple[Step, ...]
    notes: tuple[str, ...]


class TeamWhy(msgspec.Struct, frozen=True):
    """Why a team can't use all of its quota."""

    team: str
    answer: tuple[str, ...]
    pools: tuple[PoolWhy, ...]
    planned: tuple[PlannedOut, ...] = ()
    """What the team will be without for announced work."""


class InWay(msgspec.Struct, frozen=True):
    """A running part that holds GPUs where they are needed; `count` replicas of it would have to go."""

    workload: str
    part: str
    team: str
    kind: str
    gpus: int
    count: int
    is_flex: bool


class Near(msgspec.Struct, frozen=True):
    """How close work comes to running in a pool: in its nearest island, or in all of them where it is elastic.

    It needs `gpus`; `free` are free for it, `callable` would be called back for it, `missing` are not there (at least
    1, where flex would leave only as a whole). `installed` less the steps is `free` + `callable`.
    """

    cluster: str
    sku: str
    island: str
    runs_as: str
    part: str
    is_gang: bool
    gpus: int
    free: int
    callable: int
    missing: int
    installed: int
    steps: tuple[Step, ...]
    in_way: tuple[InWay, ...]


class Position(msgspec.Struct, frozen=True):
    """Where work stands among its team's own: what comes before it in the guarantee, and what that leaves. `before`
    names the largest of what comes to `before_gpus`.
    """

    cluster: str
    sku: str
    guaranteed: int
    gpus: int
    before_gpus: int
    before: tuple[Named, ...]
    kept: tuple[Named, ...]
    left: int
    missing: int


class Harm(enum.StrEnum):
    """What an action costs, cheapest first."""

    NOBODY = "nobody"
    MOVED = "moved"
    OWN_WORK = "own_work"
    OTHERS_FLEX = "others_flex"
    WAITING = "waiting"

    @property
    def place(self) -> int:
        """0 is cheapest."""
        return list(Harm).index(self)


class ActionKind(enum.StrEnum):
    """What can be done. Add, never rename."""

    NOTHING = "nothing"
    ELSEWHERE = "elsewhere"
    OTHER_SKU = "other_sku"
    AS_FLEX = "as_flex"
    RELEASE_HOLD = "release_hold"
    MOVE_REPLICAS = "move_replicas"
    TRANSFER = "transfer"
    REQUEST = "request"
    RANK = "rank"
    LOWER_OWN = "lower_own"
    STOP_OWN = "stop_own"
    SMALLER = "smaller"
    SHORTER = "shorter"
    WAIT_NODES = "wait_nodes"
    WAIT_PLANNED = "wait_planned"
    WAIT_WORK = "wait_work"


class Act(msgspec.Struct, frozen=True):
    """One thing to do, and what to type for it; empty where there is nothing to type."""

    kind: ActionKind
    says: str
    command: str = ""


class Action(msgspec.Struct, frozen=True):
    """Acts that together let the work start, checked on a what-if: when, where and as what it started there.

    `moved`, `own` and `others` are GPUs: of replicas that move, of the team's own work that stops or is given up, of
    other teams' flex that is called back.
    """

    acts: tuple[Act, ...]
    harm: Harm
    moved: int
    own: int
    others: int
    starts: datetime
    is_estimate: bool
    cluster: str
    sku: str
    runs_as: str
    checked: bool
    queue_checked: bool
    """Whether it was also seen that nobody who waits comes first and takes the room."""

    @property
    def cost(self) -> tuple[object, ...]:
        """Among actions the lowest is shown first."""
        amount = self.own + self.others
        kinds = [list(ActionKind).index(act.kind) for act in self.acts]
        return self.harm.place, amount, self.moved, self.starts, len(self.acts), kinds


class Threat(msgspec.Struct, frozen=True):
    """What may happen to work that runs."""

    cause: Cause
    gpus: int
    says: str
    at: datetime | None = None


class WorkWhy(msgspec.Struct, frozen=True):
    """Why a workload waits, or what threatens it while it runs. `standing`: waiting, starting, partly, running, or
    startable: nothing is wrong, and the next round starts it.
    """

    workload: str
    team: str
    standing: str
    answer: tuple[str, ...]
    cause: Cause | None
    gpus: int
    missing: int
    earliest: datetime | None
    is_estimate: bool
    near: tuple[Near, ...]
    position: Position | None
    notes: tuple[str, ...]
    actions: tuple[Action, ...]
    threats: tuple[Threat, ...] = ()
    interruptions: tuple[str, ...] = ()
    checks: int = 0
    is_search_cut: bool = False
    """Whether combinations were left untried: the search for them has a bound."""
