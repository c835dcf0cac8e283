"""What can happen to workloads, as events."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from plimsoll.ledger.model import Change
from plimsoll.quota.model import Tier
from plimsoll.workloads.model import Because, Booking, PartPlaced, Spec, TeamHold, Workload
from plimsoll.workloads.reasons import Reason


def workload_stream(name: str) -> str:
    """The stream of everything that happens to a workload."""
    return f"workload/{name}"


class WorkloadObserved(Change, frozen=True):
    """A workload was seen running, like this."""

    kind: ClassVar[str] = "workload.observed"

    workload: Workload

    @property
    def subject(self) -> str:
        return workload_stream(self.workload.id)


class WorkloadGone(Change, frozen=True):
    """A workload that ran is no longer seen."""

    kind: ClassVar[str] = "workload.gone"

    workload: str

    @property
    def subject(self) -> str:
        return workload_stream(self.workload)


class WorkloadSubmitted(Change, frozen=True):
    """Somebody wants this to run."""

    kind: ClassVar[str] = "workload.submitted"

    spec: Spec

    @property
    def subject(self) -> str:
        return workload_stream(self.spec.name)


class WorkloadPlaced(Change, frozen=True):
    """What these parts hold from now on, all of it in one pool. `by` is the node or the workload that made it so."""

    kind: ClassVar[str] = "workload.placed"

    workload: str
    cluster: str
    sku: str
    parts: tuple[PartPlaced, ...]
    because: Because
    by: str = ""
    detail: str = ""

    @property
    def subject(self) -> str:
        return workload_stream(self.workload)


class WorkloadBooked(Change, frozen=True):
    """Flex was called back for a workload, which starts as soon as its victims have left."""

    kind: ClassVar[str] = "workload.booked"

    booking: Booking

    @property
    def subject(self) -> str:
        return workload_stream(self.booking.workload)


class BookingDropped(Change, frozen=True):
    """What was called back for a workload is no longer waited for: its victims stay."""

    kind: ClassVar[str] = "workload.booking_dropped"

    workload: str

    @property
    def subject(self) -> str:
        return workload_stream(self.workload)


class WorkloadWaits(Change, frozen=True):
    """Why a workload does not run. Where `holds_island`, the island of the reason is kept free for it: work that comes
    after it may use that only if it is gone before `starts`.
    """

    kind: ClassVar[str] = "workload.waits"

    workload: str
    reason: Reason
    holds_island: bool = False
    is_guaranteed: bool = False
    starts: datetime | None = None

    @property
    def subject(self) -> str:
        return workload_stream(self.workload)


class WorkloadEnded(Change, frozen=True):
    """A workload is over: `finished`, `cancelled`, or what else its owner says."""

    kind: ClassVar[str] = "workload.ended"

    workload: str
    how: str

    @property
    def subject(self) -> str:
        return workload_stream(self.workload)


class PartScaled(Change, frozen=True):
    """Another number of replicas is wanted of an elastic part."""

    kind: ClassVar[str] = "workload.scaled"

    workload: str
    part: str
    least: int
    most: int

    @property
    def subject(self) -> str:
        return workload_stream(self.workload)


class PartRanked(Change, frozen=True):
    """A part got another tier or rank among its team's own."""

    kind: ClassVar[str] = "workload.ranked"

    workload: str
    part: str
    tier: Tier
    rank: int

    @property
    def subject(self) -> str:
        return workload_stream(self.workload)


class TeamHoldPlaced(Change, frozen=True):
    """A team keeps a part of its quota for somebody."""

    kind: ClassVar[str] = "team.held"

    hold: TeamHold

    @property
    def subject(self) -> str:
        return f"team/{self.hold.team}"


class TeamHoldEnded(Change, frozen=True):
    """A team's hold is over: `released` or `expired`."""

    kind: ClassVar[str] = "team.hold_ended"

    hold: str
    team: str
    how: str

    @property
    def subject(self) -> str:
        return f"team/{self.team}"
