"""A recipe: the steps that make a cluster of some kind, and what must hold before it may carry work. Frozen nouns.

A recipe is data that people write (`recipe_file.py`); a cluster keeps the version with which it began until somebody
migrates it.
"""

from __future__ import annotations

import enum

import msgspec

from plimsoll.lifecycle.model import ConditionType


class RetryClass(enum.StrEnum):
    """What is done when a step fails."""

    BACKOFF = "backoff"
    """Try again after a while, longer each time; after `attempts` a person is asked."""
    PERSON = "person"
    """Never by itself: what it did may not be done twice."""


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a step is tried again. Seconds grow from `first` to `most`, twice as long each time."""

    kind: RetryClass = RetryClass.BACKOFF
    attempts: int = 6
    first_seconds: float = 60.0
    most_seconds: float = 1800.0


class Elsewhere(msgspec.Struct, frozen=True, omit_defaults=True):
    """What another cluster must have reached first: a phase, a condition, or a step that is done.

    `cluster` may name fields of the spec in braces, such as `hub-{region}`. One that does not exist is waited for.
    """

    cluster: str
    reaches: str


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """A local command that prints JSON, one message a line. Words and values may name fields of the spec in braces."""

    words: tuple[str, ...]
    env: dict[str, str] = {}


class BuildJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Buildkite build."""

    pipeline: str
    branch: str = "main"
    commit: str = "HEAD"
    env: dict[str, str] = {}


class ScaleSets(msgspec.Struct, frozen=True, omit_defaults=True):
    """Scale sets as objects of the Azure Service Operator: one for each island."""

    group: str
    namespace: str = "default"
    subnet: str = ""
    image: str = ""
    context: str = ""
    ssh_key: str = ""
    password_secret: str = ""
    """NAME/KEY of a secret in the namespace. Azure wants this or an SSH key of every machine."""
    labels: dict[str, str] = {}


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step. It does exactly one of `run`, `build` and `scale_sets`; the check-in may do nothing by itself."""

    name: str
    sets: ConditionType | None
    """The condition that it brings about; a step of the way out has none."""
    needs: tuple[str, ...] = ()
    after: tuple[Elsewhere, ...] = ()
    run: Command | None = None
    build: BuildJob | None = None
    scale_sets: ScaleSets | None = None
    within_seconds: float = 4 * 3600.0
    retry: Retry = Retry()
    asks: str = ""

    @property
    def kind(self) -> str:
        return "run" if self.run else "build" if self.build else "scale_sets" if self.scale_sets else "gate"


class Machine(msgspec.Struct, frozen=True):
    """What a node of a SKU is at the provider."""

    vm: str
    family: str
    cores: int
    gpus: int


class QuotaSource(enum.StrEnum):
    """Who says how much quota there is."""

    NONE = "none"
    FILE = "file"
    AZURE = "azure"


class Quota(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where quota is looked up, and for how long after a scale set is full it may not show in what is used yet."""

    source: QuotaSource = QuotaSource.FILE
    file: str = "quota.csv"
    settle_seconds: float = 900.0

    @property
    def name(self) -> str:
        """Who says it."""
        return self.file if self.source is QuotaSource.FILE else str(self.source)


class Validation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What makes a cluster's health green: the share of its nodes in service, for so long without a break."""

    healthy_share: float = 0.95
    steady_seconds: float = 1800.0
    filled_share: float = 1.0
    """The share of the machines that must be there before its scale sets are ready."""


class Recipe(msgspec.Struct, frozen=True, omit_defaults=True):
    """The way in, and the way out."""

    name: str
    version: int
    text: str
    steps: tuple[Step, ...]
    out: tuple[Step, ...] = ()
    machines: dict[str, Machine] = {}
    quota: Quota = Quota()
    validation: Validation = Validation()
    asks: str = "the fleet's engineers"
    labels: tuple[str, ...] = ()
    """Those that its texts name: a cluster that is made with it has to have them."""

    def step(self, name: str) -> Step | None:
        return next((step for step in (*self.steps, *self.out) if step.name == name), None)

    def needs_of(self, step: Step) -> tuple[str, ...]:
        """What comes before a step: what it names, and the check-in, also where a step in between is waived."""
        if step in self.out:
            return step.needs
        gates = (each.name for each in self.setting(ConditionType.CHECKED_IN))
        return (*step.needs, *(gate for gate in gates if gate != step.name and gate not in step.needs))

    def setting(self, kind: ConditionType) -> tuple[Step, ...]:
        """The steps that a condition needs."""
        return tuple(step for step in self.steps if step.sets is kind)
