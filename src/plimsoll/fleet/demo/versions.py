"""Which versions are on the demo's nodes: two or three of each component, by cluster, with a few stragglers.

Planned work of the past has left its mark: a cluster that had its turn is new, one that is in the middle is mixed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from plimsoll.fleet.demo.events import Batch, Schedule
from plimsoll.fleet.demo.layout import Cluster
from plimsoll.fleet.demo.outages import HOUR

BIOS, DRIVER, NIC_FIRMWARE = "bios", "driver", "nic-firmware"
OLD_NEW = {NIC_FIRMWARE: ("28.39", "28.41"), DRIVER: ("550.127", "560.35")}
DRIVER_OF_OLD = "535.216"
BIOS_OLD_NEW = {"A100": ("5.22", "5.22"), "H100": ("2.14", "2.17"), "H200": ("2.14", "2.17"), "GB200": ("1.08", "1.11")}

NEW_SHARE = {NIC_FIRMWARE: 0.70, DRIVER: 0.55, BIOS: 0.80}
"""Of the clusters, how many have the newer version."""
STRAGGLER_CLUSTERS_SHARE = 0.25
STRAGGLER_NODES_SHARE = 0.02
PLANNED = "planned: "


def draw_versions(
    seed: int, clusters: Sequence[Cluster], schedule: Schedule, *, until: int
) -> list[tuple[str, str, str]]:
    """Node, component, version: in the order of the nodes."""
    rows = []
    for cluster in clusters:
        rows += _cluster_rows(seed, cluster, schedule.batches.get(cluster.name, []), until)
    return rows


def _cluster_rows(seed: int, cluster: Cluster, batches: Sequence[Batch], until: int) -> list[tuple[str, str, str]]:
    rng = random.Random(f"{seed}/versions/{cluster.name}")
    is_new = {component: rng.random() < share for component, share in NEW_SHARE.items()}
    worked_on = {batch.reason.removeprefix(PLANNED) for batch in batches}
    updated = {
        (node, batch.reason.removeprefix(PLANNED))
        for batch in batches
        if batch.at + batch.hours * HOUR <= until
        for node in batch.nodes
    }
    has_stragglers = rng.random() < STRAGGLER_CLUSTERS_SHARE
    rows = []
    for island in cluster.islands:
        for node in island.nodes:
            lags = has_stragglers and rng.random() < STRAGGLER_NODES_SHARE
            new = {
                component: (node, component) in updated if component in worked_on else is_new[component] and not lags
                for component in is_new
            }
            rows.append((node, BIOS, BIOS_OLD_NEW[island.sku][new[BIOS]]))
            rows.append((node, DRIVER, _driver(island.sku, is_new=new[DRIVER])))
            rows.append((node, NIC_FIRMWARE, OLD_NEW[NIC_FIRMWARE][new[NIC_FIRMWARE]]))
    return rows


def _driver(sku: str, *, is_new: bool) -> str:
    """Old nodes stay on their own branch, and the newest ones never had the older driver."""
    if sku == "A100":
        return DRIVER_OF_OLD
    return OLD_NEW[DRIVER][is_new or sku == "GB200"]
