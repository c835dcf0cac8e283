"""What can happen in a cluster's life, as events. All of them belong to the stream of their cluster."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from plimsoll.ledger.model import Change
from plimsoll.lifecycle.model import Condition, Going, SetSeen, Spec
from plimsoll.lifecycle.recipe import Machine


class RecipeRecorded(Change, frozen=True):
    """A version of a recipe was put there. `text` is the file as it was given."""

    kind: ClassVar[str] = "recipe.recorded"

    recipe: str
    version: int
    text: str
    machines: dict[str, Machine] = {}
    """What its SKUs are made of, also where the file leaves that to us: it stays as it was then."""

    @property
    def subject(self) -> str:
        return f"recipe/{self.recipe}"


class _OfCluster(Change, frozen=True):
    cluster: str

    @property
    def subject(self) -> str:
        return f"cluster/{self.cluster}"


class ClusterPlanned(_OfCluster, frozen=True):
    """A cluster is wanted. `uid` tells it from every other one, here and outside."""

    kind: ClassVar[str] = "cluster.planned"

    spec: Spec
    uid: str
    recipe_version: int


class ClusterRespecified(_OfCluster, frozen=True):
    """What is wanted was changed: `was` holds the fields as they were."""

    kind: ClassVar[str] = "cluster.respecified"

    spec: Spec
    recipe_version: int
    was: dict[str, str | None] = {}


class ConditionsChanged(_OfCluster, frozen=True):
    """What is true of a cluster, as far as it changed."""

    kind: ClassVar[str] = "cluster.conditions"

    conditions: tuple[Condition, ...]


class QuotaClaimed(_OfCluster, frozen=True):
    """So many cores of each family are promised to this cluster, and to no other."""

    kind: ClassVar[str] = "cluster.quota_claimed"

    cores: dict[str, int]


class QuotaReleased(_OfCluster, frozen=True):
    """What was promised to this cluster is taken back: the quota fell before anything was begun."""

    kind: ClassVar[str] = "cluster.quota_released"


class ClusterCheckedIn(_OfCluster, frozen=True):
    """Somebody checked the cluster in: its bootstrap may begin."""

    kind: ClassVar[str] = "cluster.checked_in"


class StepIntended(_OfCluster, frozen=True):
    """A step is about to be begun outside. Written before the call, so that whoever comes next looks for it first."""

    kind: ClassVar[str] = "cluster.step_intended"

    step: str
    attempt: int
    operation: str
    place: str = ""


class StepSeen(_OfCluster, frozen=True):
    """How a step is, as it was seen outside."""

    kind: ClassVar[str] = "cluster.step_seen"

    step: str
    attempt: int
    going: Going
    reason: str = ""
    detail: str = ""
    handle: str = ""
    next_attempt_at: datetime | None = None
    log: str = ""


class StepRetried(_OfCluster, frozen=True):
    """A person says that a step may be tried again, now."""

    kind: ClassVar[str] = "cluster.step_retried"

    step: str


class StepWaived(_OfCluster, frozen=True):
    """A person says that a step is done, or not needed."""

    kind: ClassVar[str] = "cluster.step_waived"

    step: str


class SetsSeen(_OfCluster, frozen=True):
    """Scale sets whose number of machines changed."""

    kind: ClassVar[str] = "cluster.sets_seen"

    sets: tuple[SetSeen, ...]


class ClusterPaused(_OfCluster, frozen=True):
    """Nothing new is begun for this cluster."""

    kind: ClassVar[str] = "cluster.paused"


class ClusterResumed(_OfCluster, frozen=True):
    """The cluster goes on."""

    kind: ClassVar[str] = "cluster.resumed"


class RecipeMigrated(_OfCluster, frozen=True):
    """The cluster goes on with another version of its recipe."""

    kind: ClassVar[str] = "cluster.recipe_migrated"

    recipe: str
    version: int
    was: int


class ClusterAvailable(_OfCluster, frozen=True):
    """Everything holds, for long enough: its nodes count."""

    kind: ClassVar[str] = "cluster.available"


class ClusterLeaving(_OfCluster, frozen=True):
    """The cluster is to be drained and retired."""

    kind: ClassVar[str] = "cluster.leaving"


class ClusterGone(_OfCluster, frozen=True):
    """The cluster is retired."""

    kind: ClassVar[str] = "cluster.gone"
