"""What can happen to health, as events."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from plimsoll.fleet.model import Service
from plimsoll.health.facts import Facts, Hold
from plimsoll.health.model import Ahead
from plimsoll.ledger.model import Change


class NodeChange(Change, frozen=True):
    """Something that happened to one node: on the node's own stream, so that whoever writes there at once conflicts."""

    node: str

    @property
    def subject(self) -> str:
        return f"node/{self.node}"


class NodeHistory(NodeChange, frozen=True, gc=False):
    """A node came into a service in the past, as told by somebody; when it happened is the event's `effective_at`.

    It completes the timeline and leaves the node's present alone: `nodes.csv` says what is now.
    """

    kind: ClassVar[str] = "node.history"

    service: Service
    reason: str = ""
    labels: dict[str, str] = {}


class NodeMoved(NodeChange, frozen=True):
    """A node's facts changed: its service, its health, its owner, or when it is expected back.

    `was` holds the fields that changed, as they were; `signal` and `hold` are what brought it about. `is_withdrawal`:
    the node comes back because it should never have left, so its coming back answers no signal.
    """

    kind: ClassVar[str] = "node.moved"

    service: Service
    facts: Facts
    was: dict[str, str] = {}
    signal: str = ""
    hold: str = ""
    is_withdrawal: bool = False


class HoldPlaced(NodeChange, frozen=True):
    """A hold was placed on a node, or the hold of that id was changed (extended, or its draining ended)."""

    kind: ClassVar[str] = "hold.placed"

    hold: Hold


class HoldEnded(NodeChange, frozen=True):
    """A hold on a node ended. `cause`: released by a person, settled, expired, or withdrawn by later knowledge."""

    kind: ClassVar[str] = "hold.ended"

    hold: str
    owner: str
    cause: str


class SignalsAnswered(NodeChange, frozen=True):
    """A node's signals up to a moment ask for nothing more: a person let them be, or the one problem named is gone."""

    kind: ClassVar[str] = "node.answered"

    until: datetime
    signal: str = ""


class CheckTicked(NodeChange, frozen=True):
    """A named check of the validation was answered for a node."""

    kind: ClassVar[str] = "node.checked"

    check: str
    is_passed: bool
    detail: str = ""


class NodeSteered(NodeChange, frozen=True):
    """A node was drained or resumed in its scheduler, because our facts say so."""

    kind: ClassVar[str] = "node.steered"

    scheduler: str
    act: str


class FeedChanged(Change, frozen=True):
    """A feed was first heard, went silent, came back, or covers other nodes than before."""

    kind: ClassVar[str] = "feed.changed"

    feed: str
    is_silent: bool
    heard_at: datetime
    joined: list[str] = []
    left: list[str] = []

    @property
    def subject(self) -> str:
        return f"feed/{self.feed}"


class ExitsCounted(Change, frozen=True):
    """Automation took nodes out of service, and a breaker counted them.

    It is on the breaker's own stream: of two processes that count at once, one has to look again.
    """

    kind: ClassVar[str] = "breaker.counted"

    scope: str
    taken: int

    @property
    def subject(self) -> str:
        return f"breaker/{self.scope}"


class BreakerTripped(Change, frozen=True):
    """Automation wanted to take more nodes out than it may, and stopped. The nodes are those held back now."""

    kind: ClassVar[str] = "breaker.tripped"

    scope: str
    limit: int
    window_seconds: float
    taken: int
    nodes: list[str]

    @property
    def subject(self) -> str:
        return f"breaker/{self.scope}"


class BreakerReset(Change, frozen=True):
    """A person let automation go on in a scope. `is_dismissed`: what was held back is not to be done."""

    kind: ClassVar[str] = "breaker.reset"

    scope: str
    is_dismissed: bool = False

    @property
    def subject(self) -> str:
        return f"breaker/{self.scope}"


class PolicyApplied(Change, frozen=True):
    """Another policy decides from now on what signals lead to; all of its text, so that the past can be explained."""

    kind: ClassVar[str] = "health.policy"

    name: str
    text: str

    @property
    def subject(self) -> str:
        return "health/policy"


class WorkAnnounced(Change, frozen=True):
    """Planned work was announced: these nodes will be out from its start to its end. Nothing moves by that."""

    kind: ClassVar[str] = "work.announced"

    ahead: Ahead

    @property
    def subject(self) -> str:
        return f"work/{self.ahead.id}"


class WorkWithdrawn(Change, frozen=True):
    """Announced work is ahead no more. `cause`: withdrawn, withdrawn by another, or over because its end has passed."""

    kind: ClassVar[str] = "work.withdrawn"

    work: str
    cause: str

    @property
    def subject(self) -> str:
        return f"work/{self.work}"
