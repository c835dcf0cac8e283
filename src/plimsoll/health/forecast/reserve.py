"""The common-cause reserve: what one more burst in a failure domain would take beyond the buffer. Pure.

It is kept apart from the promise on purpose. The promise says what holds in the allowed share of hours; a burst that is
rarer than that breaks it and is still worth a thought. Whoever promises the reserve away as well knows what it costs.
A burst belongs to the smallest domain that holds most of its nodes: an island, else the cluster; clusters of one colo
that are hit at the same time make it the colo's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plimsoll.health.forecast.history import BURST_GAP_HOURS, OPENING_HOUR, History
from plimsoll.health.forecast.method import BURST_NODES_MIN, View

DOMAIN_SHARE = 0.8
"""A burst is an island's when at least this share of its nodes is there."""
SIZE_LEVEL = 0.9
"""The reserve is for a burst as large as this share of those seen: the very largest may never come again."""
YEAR_HOURS = 365 * 24


@dataclass(frozen=True)
class Burst:
    """Nodes of a pool lost together: when (in hours of the history), how many, and in which island, if in one."""

    pool: str
    hour: float
    node_count: int
    island: str


@dataclass(frozen=True)
class Reserve:
    """For one pool: nodes to hold back beyond the buffer, and what that rests on."""

    node_count: int
    burst_nodes: int
    burst_count: int
    bursts_per_year: float
    domain: str
    is_borrowed: bool


def bursts_of(history: History, islands: Sequence[str]) -> list[Burst]:
    """The bursts of a history; `islands` by the number of a node."""
    if not len(history.storm):
        return []
    _, first = np.unique(history.storm, return_index=True)
    number = history.storm_burst
    found = []
    sizes = np.bincount(number)
    ends = np.cumsum(sizes)
    for end, size in zip(ends[sizes >= BURST_NODES_MIN], sizes[sizes >= BURST_NODES_MIN], strict=True):
        begin = end - size  # storms come in the order of time, so a burst is a stretch of them
        if history.storm_began[begin] <= OPENING_HOUR:
            continue
        hit = [islands[node] for node in history.node[first[begin:end]]]
        most = max(set(hit), key=lambda island: (hit.count(island), island))
        island = most if hit.count(most) >= DOMAIN_SHARE * len(hit) else ""
        found.append(Burst(history.name, float(history.storm_began[begin]), len(hit), island))
    return found


def reserve_for(
    view: View,
    bursts: Sequence[Burst],
    fleet_shares: Sequence[float],
    *,
    buffer: int,
    expected_out: float,
    island_most: int,
) -> Reserve:
    """What a burst would take on top of the nodes expected to be out, less what the buffer covers already.

    A pool that never saw one is judged by the fleet's bursts, in proportion to its size and as far as its largest
    island goes.
    """
    sizes = [float(burst.node_count) for burst in bursts] or [share * view.total for share in fleet_shares]
    if not sizes:
        return Reserve(0, 0, 0, 0.0, "", is_borrowed=False)
    burst_nodes = min(view.total if bursts else island_most, round(float(np.quantile(sizes, SIZE_LEVEL))))
    needed = min(view.total, round(expected_out) + burst_nodes) - buffer
    in_island = sum(bool(burst.island) for burst in bursts)
    domain = "" if not bursts else "island" if 2 * in_island >= len(bursts) else "cluster"
    per_year = len(bursts) * YEAR_HOURS / max(view.hour, 1)
    return Reserve(max(0, needed), burst_nodes, len(bursts), per_year, domain, is_borrowed=not bursts)


def colo_bursts(bursts: Sequence[Burst], colo_of: dict[str, str]) -> dict[str, int]:
    """Per colo how often several of its pools were hit at the same time."""
    counted: dict[str, int] = {}
    for colo in sorted(set(colo_of.values())):
        mine = sorted((b for b in bursts if colo_of.get(b.pool) == colo), key=lambda b: b.hour)
        groups: list[list[Burst]] = []
        for burst in mine:
            if groups and burst.hour - groups[-1][-1].hour <= BURST_GAP_HOURS:
                groups[-1].append(burst)
            else:
                groups.append([burst])
        if several := sum(len({burst.pool for burst in group}) > 1 for group in groups):
            counted[colo] = several
    return counted
