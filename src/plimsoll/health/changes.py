"""What can happen to health, as events."""

from __future__ import annotations

from typing import ClassVar

from plimsoll.fleet.model import Service
from plimsoll.ledger.model import Change


class NodeHistory(Change, frozen=True, gc=False):
    """A node came into a service in the past, as told by somebody; when it happened is the event's `effective_at`.

    It completes the timeline and leaves the node's present alone: `nodes.csv` says what is now.
    """

    kind: ClassVar[str] = "node.history"

    node: str
    service: Service
    reason: str = ""
    labels: dict[str, str] = {}

    @property
    def subject(self) -> str:
        return f"node/{self.node}"
