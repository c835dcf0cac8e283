"""The nouns of what exists: clusters, islands, nodes, SKUs, pools. Frozen; the words are those of the glossary."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import NamedTuple

import msgspec


class Area(enum.StrEnum):
    """A group of regions."""

    US = "us"
    EU = "eu"
    UK = "uk"
    OTHER = "other"


class Purpose(enum.StrEnum):
    """What a cluster is for."""

    RESEARCH = "research"
    APPLIED = "applied"


class Phase(enum.StrEnum):
    """How far a cluster is in its life."""

    PLANNED = "planned"
    PROVISIONING = "provisioning"
    PROVISIONED = "provisioned"
    PRODUCTION = "production"
    RETIRED = "retired"


class Service(enum.StrEnum):
    """Whether a node is in service. Only `in_service` counts as healthy capacity."""

    IN_SERVICE = "in_service"
    DRAINING = "draining"
    QUARANTINED = "quarantined"
    MAINTENANCE = "maintenance"
    REPAIR = "repair"
    VALIDATING = "validating"
    JOINING = "joining"
    RETIRED = "retired"


class Cluster(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cluster belongs to a colo and a region, a region to an area. `labels` are the extra columns of its row."""

    id: str
    region: str
    area: Area
    colo: str
    provider: str
    purpose: Purpose
    phase: Phase
    labels: dict[str, str] = {}


class Node(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A node has GPUs of one SKU and belongs to one island. `since` is when it came into this service, if known."""

    id: str
    cluster: str
    island: str
    sku: str
    gpus: int
    service: Service
    since: datetime | None = None
    reason: str = ""
    labels: dict[str, str] = {}


class PoolKey(NamedTuple):
    """A pool of capacity: one SKU of one cluster."""

    cluster: str
    sku: str

    @property
    def stream(self) -> str:
        """The stream of everything that is promised from this pool."""
        return f"pool/{self.cluster}/{self.sku}"


class IslandKey(NamedTuple):
    """One SKU of one island: what a gang must fit into."""

    island: str
    sku: str


class Count(msgspec.Struct, frozen=True, gc=False):
    """How much a pool or an island holds, retired nodes left out."""

    nodes: int = 0
    gpus: int = 0
    nodes_in_service: int = 0
    gpus_in_service: int = 0

    def plus(self, gpus: int, nodes: int, nodes_in_service: int) -> Count:
        """With so many nodes of so many GPUs more; fewer where negative."""
        return Count(
            self.nodes + nodes,
            self.gpus + nodes * gpus,
            self.nodes_in_service + nodes_in_service,
            self.gpus_in_service + nodes_in_service * gpus,
        )

    @property
    def gpus_per_node(self) -> int:
        """All nodes of a pool have the same number of GPUs."""
        return self.gpus // self.nodes


class Sku(msgspec.Struct, frozen=True, omit_defaults=True):
    """A GPU model whose weight per GPU somebody has set, in A100-equivalents."""

    id: str
    a100e: float
    labels: dict[str, str] = {}


A100E_DEFAULT = {"A100": 1.0, "H100": 3.2, "H200": 3.2, "GB200": 8.0}
"""Weight per GPU in A100-equivalents by dense bf16; `skus.csv` changes or adds to it."""
