"""What can happen to the fleet, as events. `was` holds the fields that changed, as they were before."""

from __future__ import annotations

from typing import ClassVar

from plimsoll.fleet.model import Cluster, Node
from plimsoll.ledger.model import Change


class FleetImported(Change, frozen=True):
    """A fleet folder or workbook was taken in: what it was and how much it changed, per sheet."""

    kind: ClassVar[str] = "fleet.imported"

    source: str
    digest: str
    counts: dict[str, dict[str, int]]

    @property
    def subject(self) -> str:
        return "fleet"


class SkuWeighed(Change, frozen=True):
    """A SKU's weight per GPU in A100-equivalents was set."""

    kind: ClassVar[str] = "sku.weighed"

    sku: str
    a100e: float
    was: float | None = None
    labels: dict[str, str] = {}

    @property
    def subject(self) -> str:
        return f"sku/{self.sku}"


class ClusterRecorded(Change, frozen=True):
    """A cluster was added or changed."""

    kind: ClassVar[str] = "cluster.recorded"

    cluster: Cluster
    was: dict[str, str | None] = {}

    @property
    def subject(self) -> str:
        return f"cluster/{self.cluster.id}"


class NodeRecorded(Change, frozen=True):
    """A node was added or changed. It is an observation: no table of legal moves judges it."""

    kind: ClassVar[str] = "node.recorded"

    node: Node
    was: dict[str, str | None] = {}

    @property
    def subject(self) -> str:
        return f"node/{self.node.id}"
