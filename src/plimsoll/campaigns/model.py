"""The nouns of planned work: what a campaign file asks for, and the plan that answers it. Frozen.

`Campaign` is the file, word for word; `Plan` is when each batch of nodes goes out. Times in a plan are moments; dates
and hours in a file are those of its window's zone.
"""

from __future__ import annotations

import enum
from datetime import date, datetime

import msgspec

from plimsoll.fleet.selector import Scope

MINUTES_A_DAY = 24 * 60


class Impact(enum.StrEnum):
    """Whether a change takes a node out of service."""

    DISRUPTIVE = "disruptive"
    IMPACTLESS = "impactless"


class Mode(enum.StrEnum):
    """How a cluster is taken out: all of it at once, or a share of its nodes each day."""

    WHOLE = "whole"
    ROLLING = "rolling"


class Size(enum.StrEnum):
    """A cluster by its nodes in scope."""

    BIG = "big"
    SMALL = "small"


class LimitKind(enum.StrEnum):
    """What a limit counts."""

    OUT_AT_ONCE = "out_at_once"
    OUT_PER_DAY = "out_per_day"
    AVERAGE_LOSS = "average_loss"
    STARTS_PER_DAY = "starts_per_day"
    CREWS = "crews"


class Measure(enum.StrEnum):
    """The unit in which a limit counts capacity."""

    NODES = "nodes"
    GPUS = "gpus"
    A100E = "a100e"


class Base(enum.StrEnum):
    """Of what a share is taken: the nodes that the limit's scope matches, or all nodes in production."""

    SCOPE = "scope"
    FLEET = "fleet"


class Counts(enum.StrEnum):
    """Whether a limit counts planned work alone, or other outages as well."""

    PLANNED = "planned"
    ALL = "all"


class ImpactRule(msgspec.Struct, frozen=True):
    """The impact that a change has where a scope matches; the first match wins."""

    scope: Scope
    impact: Impact


class VersionChange(msgspec.Struct, frozen=True):
    """A component that gets a version. All changes of a campaign are made in one outage."""

    component: str
    version: str
    impacts: tuple[ImpactRule, ...]


class Window(msgspec.Struct, frozen=True):
    """The hours of a day in which nodes may be out for planned work: minutes after local midnight, and weekdays."""

    opens: int
    closes: int
    tz: str
    days: tuple[int, ...]
    """Monday is 0."""


class Work(msgspec.Struct, frozen=True):
    """How the units of a scope are done. `minutes` is how long a batch is out of service."""

    scope: Scope
    mode: Mode
    minutes: int
    share_per_day: float = 1.0


class Limit(msgspec.Struct, frozen=True):
    """What must not be exceeded on the days on which it holds: a number, or a share of a base."""

    kind: LimitKind
    scope: Scope = Scope()
    at_most: float | None = None
    at_most_share: float | None = None
    of: Base = Base.SCOPE
    unit: Measure = Measure.NODES
    counts: Counts = Counts.PLANNED
    from_day: date | None = None
    until_day: date | None = None
    weekdays: tuple[int, ...] = ()

    def holds_on(self, day: date) -> bool:
        return (
            (self.from_day is None or self.from_day <= day)
            and (self.until_day is None or day <= self.until_day)
            and (not self.weekdays or day.weekday() in self.weekdays)
        )


class Expect(msgspec.Struct, frozen=True):
    """How many nodes of a batch are expected not to come back, and for how long."""

    scope: Scope
    non_return_share: float
    repair_days: float


class Canary(msgspec.Struct, frozen=True):
    """Clusters that go first, and how long everybody else waits after the last of them has ended."""

    clusters: tuple[str, ...]
    soak_minutes: int


class NoFly(msgspec.Struct, frozen=True):
    """Dates, both inclusive, on which a scope may not be touched."""

    scope: Scope
    from_day: date
    to_day: date
    why: str = ""


class Group(msgspec.Struct, frozen=True):
    """A step of the order. `is_strict`: it starts only after every group before it has ended."""

    scope: Scope
    weight: float
    is_strict: bool = False


class Spread(msgspec.Struct, frozen=True):
    """Work is to be spread evenly over the values of a key, by the share of each value's nodes a day."""

    scope: Scope
    over: str


class Aims(msgspec.Struct, frozen=True):
    """What the parts of the objective weigh."""

    exposure: float = 1.0
    imbalance: float = 0.0
    peak: float = 0.0


class Replanning(msgspec.Struct, frozen=True):
    """What a new plan costs those who know the old one: what starts within `freeze_minutes` does not move, and every
    batch that moves weighs `move_weight`. By default more than anything that a move could be good for."""

    freeze_minutes: int = 24 * 60
    move_weight: float = 100_000.0


class Running(msgspec.Struct, frozen=True):
    """How batches are carried out. Without `work` somebody says when it is done; without `validate` the checks of the
    health policy do."""

    work: tuple[str, ...] = ()
    validate: tuple[str, ...] = ()
    grace_minutes: int = 60
    notice_minutes: int = 24 * 60
    late_minutes: int = 120
    confirms: str = "provider"


class Campaign(msgspec.Struct, frozen=True):
    """A campaign file."""

    name: str
    changes: tuple[VersionChange, ...]
    scope: Scope
    start: date
    deadline: date
    window: Window
    slot_minutes: int
    work: tuple[Work, ...]
    big_over: int | None = None
    is_together: bool = False
    limits: tuple[Limit, ...] = ()
    expect: tuple[Expect, ...] = ()
    canary: Canary | None = None
    no_fly: tuple[NoFly, ...] = ()
    order: tuple[Group, ...] = ()
    spread: Spread | None = None
    aims: Aims = Aims()
    replanning: Replanning = Replanning()
    running: Running = Running()
    roster: tuple[str, ...] = ()

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Every selector of the file."""
        listed = [self.scope, *(rule.scope for change in self.changes for rule in change.impacts)]
        for group in (self.work, self.limits, self.expect, self.no_fly, self.order):
            listed += [each.scope for each in group]
        return (*listed, *([self.spread.scope] if self.spread else []))


class Batch(msgspec.Struct, frozen=True):
    """Nodes that go out together: the `number`-th of a unit, from 1."""

    unit: str
    mode: Mode
    number: int
    nodes: int
    start: datetime
    end: datetime

    @property
    def id(self) -> str:
        """What tells it apart within its campaign, in every plan."""
        return f"{self.unit}#{self.number}"


class Score(msgspec.Struct, frozen=True):
    """The objective: its parts unweighted, `total` weighted."""

    total: float
    exposure: float
    imbalance: float
    peak: float


class Status(enum.StrEnum):
    """What is known of the best plan."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


class Plan(msgspec.Struct, frozen=True):
    """When each batch goes out. `bound`: no plan can have a lower total."""

    campaign: str
    number: int
    status: Status
    score: Score | None
    bound: float | None
    batches: tuple[Batch, ...]
    greedy: Score | None = None
    """What the planner that people would be reaches, for comparison."""

    @property
    def gap(self) -> float | None:
        if self.score is None or self.bound is None:
            return None
        return (self.score.total - self.bound) / max(1.0, self.score.total)
