"""The nouns of a campaign that runs: how far each batch is, who stands by, what has gone wrong. Frozen."""

from __future__ import annotations

import enum
import hashlib
from datetime import datetime, timedelta

import msgspec

from plimsoll.campaigns.model import Batch, Campaign, Plan
from plimsoll.health.ahead import WORK_ID_MAX


class Phase(enum.StrEnum):
    """Where a campaign is in its life."""

    PLANNED = "planned"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    """What is under way is brought to its end; nothing new begins."""
    CANCELLED = "cancelled"
    DONE = "done"

    @property
    def is_over(self) -> bool:
        return self in (Phase.CANCELLED, Phase.DONE)


class Step(enum.StrEnum):
    """How far a batch is. Each is recorded when it begins, so that a crash leaves no doubt about what was tried."""

    PLANNED = "planned"
    MARKING = "marking"
    """The nodes are ours, drain, and are being marked in their schedulers."""
    DRAINING = "draining"
    WORKING = "working"
    """Handed over: a command runs, or somebody works on it and says when it is done."""
    VALIDATING = "validating"
    RETURNED = "returned"
    CANCELLED = "cancelled"

    @property
    def is_under_way(self) -> bool:
        return self in _UNDER_WAY

    @property
    def is_over(self) -> bool:
        return self in (Step.RETURNED, Step.CANCELLED)


_UNDER_WAY = (Step.MARKING, Step.DRAINING, Step.WORKING, Step.VALIDATING)


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a batch is. `nodes` are those that were really taken; `lost` those of them that did not come back.

    `attempt` counts how often its work was begun; `late_told`: that it is late has been said.
    """

    batch: Batch
    step: Step
    since: datetime
    nodes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    started: datetime | None = None
    ended: datetime | None = None
    attempt: int = 0
    detail: str = ""
    late_told: datetime | None = None
    agreed: tuple[str, ...] = ()
    """Gangs whose owner has agreed that they stop now."""
    place: str = ""
    """Where the command of this step and attempt was begun."""

    @property
    def span(self) -> timedelta | None:
        """How long it really took."""
        return self.ended - self.started if self.started and self.ended else None


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """A campaign as the ledger knows it: the file and plan in force, and how far it is.

    `names`: the nodes of each batch of the plan, by the batch's id. `history`: number, when, by whom, why, and total of
    each plan there was. `before`: the plan before this one. `published`: the number told last, `posted`: in the chat.
    """

    name: str
    campaign: Campaign
    text: str
    plan: Plan
    names: dict[str, tuple[str, ...]]
    phase: Phase = Phase.PLANNED
    progress: dict[str, Progress] = {}
    impactless: dict[str, tuple[str, ...]] = {}
    history: tuple[tuple[int, datetime, str, str, float], ...] = ()
    before: Plan | None = None
    started_at: datetime | None = None
    started_by: str = ""
    incident: str = ""
    why: str = ""
    published: int = 0
    posted: int = 0
    booked: dict[str, tuple[datetime, bool]] = {}
    """Batches whose time is kept free in their scheduler: for when, and whether the scheduler knows for sure."""
    closed: dict[str, str] = {}
    """Nodes that were not in service when their batch ended and are still closed in their scheduler, and the batch."""

    def step_of(self, batch: str) -> Step:
        found = self.progress.get(batch)
        return Step.PLANNED if found is None else found.step

    @property
    def owner(self) -> str:
        """In whose name holds are placed and work is announced."""
        return owner_of(self.name)

    def batches_under_way(self) -> list[Progress]:
        return [each for _, each in sorted(self.progress.items()) if each.step.is_under_way]


def owner_of(campaign: str) -> str:
    return f"campaign:{campaign}"


def hold_id(campaign: str, batch: str) -> str:
    """The hold of a batch on its nodes."""
    return f"campaign:{campaign}:{batch}"


def lost_hold_id(campaign: str) -> str:
    """The hold on nodes that did not come back."""
    return f"campaign:{campaign}:not-returned"


def work_id(campaign: str, batch: str) -> str:
    """The announcement of a batch. Long names are cut, and still told apart."""
    name = f"{campaign}:{batch}"
    if len(name) <= WORK_ID_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name[: WORK_ID_MAX - 13]}-{digest}"
