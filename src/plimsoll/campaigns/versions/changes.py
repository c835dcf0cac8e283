"""What can happen to versions, as events."""

from __future__ import annotations

from typing import ClassVar

from plimsoll.campaigns.versions.model import Combination, Result
from plimsoll.fleet.selector import Scope
from plimsoll.ledger.model import Change


class VersionsRecorded(Change, frozen=True):
    """Nodes of a cluster have other versions than before, by a campaign or as somebody saw it.

    Many nodes in one event: a stream for each would cost as much as the work. An empty version: the component is not
    there any more.
    """

    kind: ClassVar[str] = "versions.recorded"

    cluster: str
    versions: dict[str, str]
    nodes: list[str]
    campaign: str = ""

    @property
    def subject(self) -> str:
        return f"versions/{self.cluster}"


class VersionWanted(Change, frozen=True):
    """A component is to have a version where a scope matches; an empty version takes the wish back."""

    kind: ClassVar[str] = "versions.wanted"

    component: str
    version: str
    scope: Scope = Scope()

    @property
    def subject(self) -> str:
        return "versions-wanted"


class CombinationTested(Change, frozen=True):
    """Versions were tested together; when is the event's `effective_at`."""

    kind: ClassVar[str] = "versions.tested"

    combination: Combination
    result: Result
    where: str = ""
    note: str = ""

    @property
    def subject(self) -> str:
        return "versions-tested"


class ComponentsRelevant(Change, frozen=True):
    """From now on combinations are told apart by these components; by all of them where none is named."""

    kind: ClassVar[str] = "versions.relevant"

    components: list[str]

    @property
    def subject(self) -> str:
        return "versions-relevant"
