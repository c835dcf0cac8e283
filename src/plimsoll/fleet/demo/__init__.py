"""A believable demo fleet, as the rows of a fleet folder. Pure: the same seed and end give the same rows.

`layout` decides what exists, `events` and `history` what happened to it, `quotas` who was promised what, `workloads`
what runs, `versions` what is installed. Each draws from random streams named after what it decides, so that changing
one leaves the others alone. One cluster holds the worked case of the quota rules exactly. Every name is made up.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime

from plimsoll.fleet.demo.events import draw_schedule
from plimsoll.fleet.demo.history import WINDOW_DAYS, History, draw_history, in_service_nodes
from plimsoll.fleet.demo.layout import GPUS_PER_NODE, Cluster, lay_out
from plimsoll.fleet.demo.outages import DAY, HOUR
from plimsoll.fleet.demo.pools import Pool, pools_of
from plimsoll.fleet.demo.quotas import draw_quotas, over_promised
from plimsoll.fleet.demo.versions import draw_versions
from plimsoll.fleet.demo.workloads import Part, draw_workloads

Row = tuple[str, ...]

CLUSTER_COLUMNS: Row = ("cluster", "region", "area", "colo", "provider", "purpose", "phase", "serves")
NODE_COLUMNS: Row = ("node", "cluster", "island", "sku", "gpus", "service", "since", "reason")
QUOTA_COLUMNS: Row = ("team", "cluster", "sku", "gpus")
WORKLOAD_COLUMNS: Row = (
    "workload",
    "team",
    "cluster",
    "island",
    "sku",
    "gpus",
    "kind",
    "tier",
    "rank",
    "idle_gpus",
    "owner",
)
VERSION_COLUMNS: Row = ("node", "component", "version")
HISTORY_COLUMNS: Row = ("time", "node", "service", "reason")

COMMISSIONED_DAYS_AGO = (120, 900)

__all__ = ["demo_fleet"]


def demo_fleet(*, seed: int, until: datetime) -> dict[str, list[Row]]:
    """The rows of a fleet folder by file, header first, for a fleet whose history ends at `until`."""
    assert until.tzinfo is not None
    end = int(until.timestamp())
    start = end - WINDOW_DAYS * DAY
    clusters = lay_out(seed)
    schedule = draw_schedule(seed, clusters, start=start, until=end)
    history = {c.name: draw_history(seed, c, schedule, start=start, until=end) for c in clusters}

    production = [cluster for cluster in clusters if cluster.phase == "production"]
    over = over_promised(seed, production)
    quota_rows: list[Row] = []
    workload_rows: list[Row] = []
    for cluster in production:
        pools = pools_of(cluster, in_service_nodes(cluster, history[cluster.name]))
        for pool, assigned in zip(pools, draw_quotas(seed, pools, is_over=cluster.name in over), strict=True):
            quota_rows += [
                (team, pool.cluster, pool.sku, str(nodes * pool.gpus_per_node)) for team, nodes in assigned.items()
            ]
            workload_rows += [_workload_row(pool, part) for part in draw_workloads(seed, pool, assigned)]
    return {
        "clusters": [CLUSTER_COLUMNS, *map(_cluster_row, clusters)],
        "nodes": [NODE_COLUMNS, *(r for c in clusters for r in _node_rows(seed, c, history[c.name], start=start))],
        "quotas": [QUOTA_COLUMNS, *quota_rows],
        "workloads": [WORKLOAD_COLUMNS, *workload_rows],
        "versions": [VERSION_COLUMNS, *draw_versions(seed, clusters, schedule, until=end)],
        "history": [HISTORY_COLUMNS, *_history_rows(list(history.values()))],
    }


def _cluster_row(cluster: Cluster) -> Row:
    site = cluster.site
    return (
        cluster.name,
        site.region,
        site.area,
        site.colo,
        site.provider,
        cluster.purpose,
        cluster.phase,
        cluster.serves,
    )


def _node_rows(seed: int, cluster: Cluster, history: History, *, start: int) -> list[Row]:
    """A node that nothing happened to is in service since its island was commissioned."""
    rng = random.Random(f"{seed}/commissioned/{cluster.name}")
    rows: list[Row] = []
    for island in cluster.islands:
        commissioned = _iso(start - rng.randint(*COMMISSIONED_DAYS_AGO) * DAY - rng.randrange(24) * HOUR)
        gpus = str(GPUS_PER_NODE[island.sku])
        for node in island.nodes:
            service, since, reason = "in_service", commissioned, ""
            if node in history:
                at, service, reason = history[node][-1]
                since = _iso(at)
            rows.append((node, cluster.name, island.name, island.sku, gpus, service, since, reason))
    return rows


def _workload_row(pool: Pool, part: Part) -> Row:
    return (
        part.workload,
        part.team,
        pool.cluster,
        part.island,
        pool.sku,
        str(part.gpus),
        part.kind,
        part.tier,
        str(part.rank),
        str(part.idle_gpus),
        part.owner,
    )


def _history_rows(histories: Sequence[History]) -> list[Row]:
    """All transitions of the fleet, sorted by time and node."""
    transitions = sorted(
        (at, node, service, reason)
        for history in histories
        for node, line in history.items()
        for at, service, reason in line
    )
    return [(_iso(at), node, service, reason) for at, node, service, reason in transitions]


def _iso(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
