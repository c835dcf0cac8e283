"""What can happen to workloads, as events."""

from __future__ import annotations

from typing import ClassVar

from plimsoll.ledger.model import Change
from plimsoll.workloads.model import Workload


class WorkloadObserved(Change, frozen=True):
    """A workload was seen running, like this."""

    kind: ClassVar[str] = "workload.observed"

    workload: Workload

    @property
    def subject(self) -> str:
        return f"workload/{self.workload.id}"


class WorkloadGone(Change, frozen=True):
    """A workload that ran is no longer seen."""

    kind: ClassVar[str] = "workload.gone"

    workload: str

    @property
    def subject(self) -> str:
        return f"workload/{self.workload}"
