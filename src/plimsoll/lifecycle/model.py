"""The nouns of a cluster's life: what is wanted, what is true of it, and how far each step is. Frozen.

`Spec` is what a person entered; `Condition` is what is true, with a reason, a message and whose move it is; `Work` is
how far one step is. A `Life` is all of it. The phase is derived from the conditions (`phases.py`), never set.
"""

from __future__ import annotations

import enum
from datetime import datetime

import msgspec

from plimsoll.fleet.model import Area, Purpose

NODES_MAX = 20_000
SET_NODES_MAX = 1_000
"""What one scale set can hold."""


class Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The row of the sheet: a cluster as it is wanted. `labels` are its extra columns."""

    name: str
    region: str
    area: Area
    colo: str
    provider: str
    purpose: Purpose
    subscription: str
    sku: str
    nodes: int
    islands: int = 1
    recipe: str = "standard"
    owner: str = ""
    wanted: datetime | None = None
    """When it is needed: of two that wait for the same quota, the one that is needed first goes first."""
    labels: dict[str, str] = {}


class ConditionType(enum.StrEnum):
    """What may be true of a cluster, in the order in which it comes about."""

    SPEC_VALID = "SpecValid"
    QUOTA_SUFFICIENT = "QuotaSufficient"
    CHECKED_IN = "CheckedIn"
    INFRASTRUCTURE_APPLIED = "InfrastructureApplied"
    SCALE_SETS_READY = "ScaleSetsReady"
    SERVICES_DEPLOYED = "ServicesDeployed"
    DEPENDENCIES_APPLIED = "DependenciesApplied"
    HEALTH_GREEN = "HealthGreen"
    AVAILABLE = "Available"


class Truth(enum.StrEnum):
    """Whether a condition holds. Unknown: nobody could look."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Severity(enum.StrEnum):
    """How bad it is that a condition does not hold: on its way, slower than it should be, or stopped."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Move(enum.StrEnum):
    """Whose move it is."""

    NOBODY = "nobody"
    CONTROLLER = "controller"
    PERSON = "person"
    PROVIDER = "provider"
    OTHER_CLUSTER = "other cluster"


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is or is not true of a cluster. `since` is when its status changed last, `changed` its reason."""

    type: ConditionType
    status: Truth
    reason: str
    message: str
    severity: Severity
    move: Move
    generation: int
    """Of the spec that was looked at."""
    since: datetime
    changed: datetime
    next_step: str = ""
    told: datetime | None = None
    """When all of this was written down."""

    @property
    def is_true(self) -> bool:
        return self.status is Truth.TRUE


class Going(enum.StrEnum):
    """How a step is. There is no end in failure: one that failed is tried again, or waits for a person."""

    INTENDED = "intended"
    """It was written down that it is to begin; nobody has seen yet whether it did."""
    RUNNING = "running"
    BLOCKED = "blocked"
    """It runs, and waits for a person outside."""
    RETRYING = "retrying"
    """It failed, and begins again at `next_attempt_at`."""
    STUCK = "stuck"
    """It failed, and a person has to say what next."""
    DONE = "done"

    @property
    def is_outside(self) -> bool:
        """Whether something of it may be going on outside."""
        return self in (Going.INTENDED, Going.RUNNING, Going.BLOCKED)


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a step of one cluster is. `operation` names its attempt wherever it goes."""

    step: str
    going: Going
    attempt: int
    operation: str
    since: datetime
    begun: datetime
    """When its first attempt began."""
    tried: datetime
    """When its latest attempt began."""
    place: str = ""
    handle: str = ""
    reason: str = ""
    detail: str = ""
    next_attempt_at: datetime | None = None
    ended: datetime | None = None
    log: str = ""
    generation: int = 1
    seen: datetime | None = None
    """When what is told of it here was seen."""
    failures: int = 0
    """Attempts in a row that failed since a person last said to try again."""


class SetSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """A scale set as it was last seen: how many machines are wanted, and how many are there."""

    name: str
    island: str
    wanted: int
    there: int
    detail: str = ""
    steady_since: datetime | None = None
    """Since when as many are there."""


class QuotaKey(msgspec.Struct, frozen=True, eq=False):
    """What a provider gives by the number: a VM family's cores in a region of a subscription.

    Azure, sheets and recipes write the same names in several ways: capitals and blanks do not tell two apart.
    """

    subscription: str
    region: str
    family: str

    @property
    def plain(self) -> tuple[str, str, str]:
        return plain_name(self.subscription), plain_name(self.region), plain_name(self.family)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QuotaKey) and self.plain == other.plain

    def __lt__(self, other: QuotaKey) -> bool:
        return self.plain < other.plain

    def __hash__(self) -> int:
        return hash(self.plain)

    def __str__(self) -> str:
        return f"{self.subscription} {self.region} {self.family}"


def plain_name(text: str) -> str:
    """A provider's name without what does not tell it from another."""
    return text.replace(" ", "").lower()


class Said(msgspec.Struct, frozen=True):
    """That somebody said something: who, when, why."""

    by: str
    at: datetime
    why: str = ""


class Life(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that is known of a cluster's way into production, and out of it."""

    spec: Spec
    uid: str
    recipe_version: int
    planned: Said
    generation: int = 1
    conditions: dict[str, Condition] = {}
    works: dict[str, Work] = {}
    claim: dict[str, int] = {}
    """The cores that are promised to it, by family; nobody else is promised them."""
    claimed_at: datetime | None = None
    checked_in: Said | None = None
    paused: Said | None = None
    leaving: Said | None = None
    sets: dict[str, SetSeen] = {}
    available_at: datetime | None = None
    gone_at: datetime | None = None
    flips: tuple[datetime, ...] = ()
    """When its health was green and then not, lately."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def stream(self) -> str:
        return f"cluster/{self.spec.name}"

    def work(self, step: str) -> Work | None:
        return self.works.get(step)

    def is_done(self, step: str) -> bool:
        work = self.works.get(step)
        return work is not None and work.going is Going.DONE

    def condition(self, kind: ConditionType) -> Condition | None:
        return self.conditions.get(kind)

    @property
    def has_begun(self) -> bool:
        """Whether anything was ever begun outside for it, or done there by hand."""
        return bool(self.works)
