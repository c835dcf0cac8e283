"""A pool of capacity, (cluster, SKU), as quotas and workloads see it: healthy nodes, counted by island."""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll.fleet.demo.layout import GPUS_PER_NODE, Cluster


@dataclass(frozen=True)
class Pool:
    """The nodes in service of one SKU of one cluster."""

    cluster: str
    purpose: str
    sku: str
    in_service_by_island: dict[str, int]

    @property
    def gpus_per_node(self) -> int:
        """The same for all nodes of a pool."""
        return GPUS_PER_NODE[self.sku]

    @property
    def healthy_node_count(self) -> int:
        """Nodes in service in the pool."""
        return sum(self.in_service_by_island.values())


def pools_of(cluster: Cluster, in_service: set[str]) -> list[Pool]:
    """The pools of a cluster, sorted by SKU."""
    return [
        Pool(
            cluster=cluster.name,
            purpose=cluster.purpose,
            sku=sku,
            in_service_by_island={
                island.name: sum(node in in_service for node in island.nodes)
                for island in cluster.islands
                if island.sku == sku
            },
        )
        for sku in sorted({island.sku for island in cluster.islands})
    ]
