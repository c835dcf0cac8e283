"""What can happen to campaigns, as events."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from plimsoll.campaigns.model import Campaign, Plan
from plimsoll.campaigns.run.progress import Step
from plimsoll.ledger.model import Change


class CampaignChange(Change, frozen=True):
    """Something happened to a campaign."""

    campaign: str

    @property
    def subject(self) -> str:
        return f"campaign/{self.campaign}"


class CampaignPlanned(CampaignChange, frozen=True):
    """A plan was made, or made anew: the file, when each batch goes out, and which nodes it is of."""

    kind: ClassVar[str] = "campaign.planned"

    file: Campaign
    text: str
    plan: Plan
    names: dict[str, tuple[str, ...]]
    impactless: dict[str, tuple[str, ...]] = {}


class CampaignStarted(CampaignChange, frozen=True):
    """A campaign runs from now on. What takes nothing out of service counts as done with this."""

    kind: ClassVar[str] = "campaign.started"

    number: int
    incident: str = ""


class CampaignPaused(CampaignChange, frozen=True):
    """Nothing new begins until somebody says so."""

    kind: ClassVar[str] = "campaign.paused"


class CampaignResumed(CampaignChange, frozen=True):
    """It goes on."""

    kind: ClassVar[str] = "campaign.resumed"


class CampaignCancelled(CampaignChange, frozen=True):
    """Nothing new begins; what is under way is brought to its end."""

    kind: ClassVar[str] = "campaign.cancelled"


class CampaignEnded(CampaignChange, frozen=True):
    """Nothing is left to do: all batches are over."""

    kind: ClassVar[str] = "campaign.ended"


class CampaignPublished(CampaignChange, frozen=True):
    """A plan was told to those whom it is about. `feed` is what calendars were given, to number the next ones.

    `posted`: the number that goes to the chat with this, 0 where the chat did not take it; nothing if it was not asked.
    """

    kind: ClassVar[str] = "campaign.published"

    number: int
    feed: str = ""
    posted: int | None = None


class BatchStepped(CampaignChange, frozen=True):
    """A batch went a step further. `nodes` where they were first taken, `lost` those that did not come back.

    The same step again: another `attempt` at it, or its command is begun at a `place` now. `closed` are nodes that stay
    closed in their scheduler when it is over: they are not in service.
    """

    kind: ClassVar[str] = "batch.stepped"

    batch: str
    step: Step
    nodes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    attempt: int = 0
    place: str = ""
    closed: tuple[str, ...] = ()


class BatchBooked(CampaignChange, frozen=True):
    """The time of a batch is kept free in its scheduler, so that nothing is planned into it; no `start`: not any more.

    Recorded before the scheduler is told and, with `is_done`, after.
    """

    kind: ClassVar[str] = "batch.booked"

    batch: str
    start: datetime | None = None
    is_done: bool = False


class BatchOpened(CampaignChange, frozen=True):
    """Nodes that had not come back with a batch, and are in service again, were opened in their scheduler."""

    kind: ClassVar[str] = "batch.opened"

    batch: str
    nodes: tuple[str, ...]


class BatchLate(CampaignChange, frozen=True):
    """A batch has not ended in time, and those who stand by were told."""

    kind: ClassVar[str] = "batch.late"

    batch: str
    told: tuple[str, ...] = ()


class GangAgreed(CampaignChange, frozen=True):
    """The owner of a gang agrees that it stops for a batch, before its grace has passed."""

    kind: ClassVar[str] = "batch.agreed"

    batch: str
    workload: str
