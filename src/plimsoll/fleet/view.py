"""The fleet as people ask for it: counts by area, cluster, island, SKU; nodes by a filter. Pure."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from plimsoll.filter import Filter
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Cluster, Count, Node, Phase, Service

NODE_FIELDS = ("node", "cluster", "island", "sku", "gpus", "service", "since", "reason")
CLUSTER_FIELDS = ("region", "area", "colo", "provider", "purpose", "phase")


class By(enum.StrEnum):
    """What the fleet can be counted by."""

    AREA = "area"
    REGION = "region"
    COLO = "colo"
    CLUSTER = "cluster"
    ISLAND = "island"
    SKU = "sku"
    PURPOSE = "purpose"
    PROVIDER = "provider"
    PHASE = "phase"
    SERVICE = "service"


class Group(msgspec.Struct, frozen=True):
    """The nodes that share one value. GPUs and A100e count only in clusters in production; `total` and `healthy` are
    the words of the glossary. `not_in_production` are the GPUs of clusters that are still being created.
    """

    name: str
    clusters: int
    islands: int
    nodes: int
    nodes_in_service: int
    total: int
    healthy: int
    healthy_share: float | None
    total_a100e: float
    healthy_a100e: float
    not_in_production: int


def node_fields(fleet: Fleet) -> list[str]:
    """Every field that nodes can be filtered by: their own, their cluster's, and all labels."""
    labels = {name for node in fleet.nodes.values() if node.labels for name in node.labels}
    labels |= {name for cluster in fleet.clusters.values() for name in cluster.labels}
    return [*NODE_FIELDS, *CLUSTER_FIELDS, *sorted(labels - {*NODE_FIELDS, *CLUSTER_FIELDS})]


def find_nodes(fleet: Fleet, where: Filter) -> Iterator[Node]:
    """The nodes that pass, by id. Retired ones only when the filter speaks of `service`."""
    where.check(node_fields(fleet))
    asks_for_service = any(term.field == "service" for term in where.terms)
    for name in sorted(fleet.nodes):
        node = fleet.nodes[name]
        if not asks_for_service and node.service is Service.RETIRED:
            continue
        if not where.terms or where.matches(_getter(node, fleet.clusters[node.cluster])):
            yield node


def _getter(node: Node, cluster: Cluster) -> Callable[[str], object]:
    def get(field: str) -> object:
        if field == "node":
            return node.id
        if field in NODE_FIELDS:
            return getattr(node, field)
        if field in CLUSTER_FIELDS:
            return getattr(cluster, field)
        return node.labels.get(field, cluster.labels.get(field))

    return get


class ClusterRow(msgspec.Struct, frozen=True):
    """A cluster in a list: where it is, what for, how large."""

    cluster: str
    region: str
    area: str
    colo: str
    provider: str
    purpose: str
    phase: str
    islands: int
    nodes: int
    nodes_in_service: int
    skus: tuple[str, ...]
    labels: dict[str, str]


def find_clusters(fleet: Fleet, where: Filter) -> list[ClusterRow]:
    """The clusters that pass, by name. Retired ones only when the filter speaks of `phase`."""
    labels = {name for cluster in fleet.clusters.values() for name in cluster.labels}
    where.check(["cluster", *CLUSTER_FIELDS, "sku", *sorted(labels - {"cluster", "sku", *CLUSTER_FIELDS})])
    asks_for_phase = any(term.field == "phase" for term in where.terms)
    islands = Counter(fleet.island_cluster.values())
    found = []
    for _, cluster in sorted(fleet.clusters.items()):
        if cluster.phase is Phase.RETIRED and not asks_for_phase:
            continue
        pools = {key.sku: count for key, count in sorted(fleet.pools.items()) if key.cluster == cluster.id}
        if any(where.matches(_cluster_getter(cluster, sku)) for sku in pools or (None,)):
            found.append(_cluster_row(cluster, pools, islands[cluster.id]))
    return found


def _cluster_getter(cluster: Cluster, sku: str | None) -> Callable[[str], object]:
    def get(field: str) -> object:
        if field == "cluster":
            return cluster.id
        if field in CLUSTER_FIELDS:
            return getattr(cluster, field)
        return sku if field == "sku" else cluster.labels.get(field)

    return get


def _cluster_row(cluster: Cluster, pools: Mapping[str, Count], islands: int) -> ClusterRow:
    return ClusterRow(
        cluster=cluster.id,
        region=cluster.region,
        area=str(cluster.area),
        colo=cluster.colo,
        provider=cluster.provider,
        purpose=str(cluster.purpose),
        phase=str(cluster.phase),
        islands=islands,
        nodes=sum(count.nodes for count in pools.values()),
        nodes_in_service=sum(count.nodes_in_service for count in pools.values()),
        skus=tuple(pools),
        labels=cluster.labels,
    )


class Cell(NamedTuple):
    """Nodes that no count tells apart. An island is of one cluster."""

    cluster: str
    island: str
    sku: str
    service: Service
    gpus: int


Cells = Mapping[Cell, int]


def count_cells(nodes: Iterable[Node]) -> Cells:
    """How many nodes are in each cell: whatever the fleet is counted by is a sum of these."""
    return Counter(Cell(node.cluster, node.island, node.sku, node.service, node.gpus) for node in nodes)


def count_groups(fleet: Fleet, cells: Cells, by: By) -> list[Group]:
    """Count nodes by one value, in the order of its names. A cluster without nodes is in none."""
    members: dict[str, dict[Cell, int]] = {}
    for cell, nodes in cells.items():
        members.setdefault(str(_value(fleet, cell, by)), {})[cell] = nodes
    return [_group(fleet, name, members[name]) for name in sorted(members)]


def count_all(fleet: Fleet, cells: Cells) -> Group:
    """One group of everything given."""
    return _group(fleet, "fleet", cells)


def _value(fleet: Fleet, cell: Cell, by: By) -> object:
    if by in (By.CLUSTER, By.ISLAND, By.SKU, By.SERVICE):
        return getattr(cell, by.value)
    return getattr(fleet.clusters[cell.cluster], by.value)


def _group(fleet: Fleet, name: str, cells: Cells) -> Group:
    total: Counter[str] = Counter()
    healthy: Counter[str] = Counter()
    not_in_production = nodes_in_service = 0
    for cell, nodes in cells.items():
        is_in_service = cell.service is Service.IN_SERVICE
        nodes_in_service += nodes * is_in_service
        if cell.service is Service.RETIRED:
            continue
        if fleet.clusters[cell.cluster].phase is not Phase.PRODUCTION:
            not_in_production += nodes * cell.gpus
            continue
        total[cell.sku] += nodes * cell.gpus
        if is_in_service:
            healthy[cell.sku] += nodes * cell.gpus
    total_gpus, healthy_gpus = total.total(), healthy.total()
    return Group(
        name=name,
        clusters=len({cell.cluster for cell in cells}),
        islands=len({cell.island for cell in cells}),
        nodes=sum(cells.values()),
        nodes_in_service=nodes_in_service,
        total=total_gpus,
        healthy=healthy_gpus,
        healthy_share=round(healthy_gpus / total_gpus, 4) if total_gpus else None,
        total_a100e=_a100e(fleet, total),
        healthy_a100e=_a100e(fleet, healthy),
        not_in_production=not_in_production,
    )


def _a100e(fleet: Fleet, gpus: Counter[str]) -> float:
    return round(sum((fleet.a100e(sku) or 0.0) * count for sku, count in gpus.items()), 1)
