"""The common-cause reserve: what one more burst in a failure domain would take beyond the buffer. Pure.

It is kept apart from the promise on purpose. The promise says what holds in the allowed share of hours; a burst that is
rarer than that breaks it and is still worth a thought. Whoever promises the reserve away as well knows what it costs.
How much of it a quota line holds back is a matter of how often bursts come, not only of how large they are: see
`Reserve.held_nodes`.
A burst belongs to the smallest domain that holds most of its nodes: an island, else the cluster; clusters of one colo
that are hit at the same time make it the colo's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plimsoll.health.forecast.history import BURST_GAP_HOURS, OPENING_HOUR, History
from plimsoll.health.forecast.method import Ask, View

DOMAIN_SHARE = 0.8
"""A burst is an island's when at least this share of its nodes is there."""
SIZE_LEVEL = 0.9
"""The reserve is for a burst as large as this share of those seen: the very largest may never come again."""
YEAR_HOURS = 365 * 24
BORROWED_HOURS = 90 * 24.0
"""The fleet's bursts count as much as so many hours of a pool's own past, as they do in the promise."""
COINCIDENCES_MAX = 0.1
"""So many groups of nodes lost close together may be there by chance, in all the time seen: larger ones are bursts."""


@dataclass(frozen=True)
class Burst:
    """Nodes of a pool lost together: when (in hours of the history), how many, and in which island, if in one."""

    pool: str
    hour: float
    node_count: int
    island: str


@dataclass(frozen=True)
class Reserve:
    """For one pool: nodes to hold back beyond the buffer, and what that rests on.

    `node_count` is what one more burst would take. Of these `held_nodes` are worth holding back: a burst that takes
    more comes in no larger share of horizons than the target allows.
    `burst_count`, how often and the domain are the pool's own; `is_borrowed`: its size is by what the fleet saw.
    """

    node_count: int
    held_nodes: int
    burst_nodes: int
    burst_count: int
    bursts_per_year: float
    domain: str
    is_borrowed: bool


def burst_nodes_min(group_count: int, hours: float) -> int:
    """From how many nodes on a group lost close together is a burst: fewer may be a coincidence.

    If groups came by chance alone, each would have one more node with the chance that another failure follows within
    the gap, and one more after that with its square. So a large pool that loses nodes every day has pairs and triples
    by chance, and a small quiet one does not. A group counts once, so that bursts do not raise the rate that they are
    judged by.
    """
    follows = -math.expm1(-group_count / max(hours, 1.0) * BURST_GAP_HOURS)
    if group_count * follows <= COINCIDENCES_MAX:
        return 2
    return 1 + math.ceil(math.log(COINCIDENCES_MAX / group_count) / math.log(follows))


def bursts_of(history: History, islands: Sequence[str]) -> list[Burst]:
    """The bursts of a history; `islands` by the number of a node."""
    if not len(history.storm):
        return []
    _, first = np.unique(history.storm, return_index=True)
    number = history.storm_burst
    found = []
    sizes = np.bincount(number)
    ends = np.cumsum(sizes)
    is_burst = sizes >= burst_nodes_min(len(sizes), history.span.hour_count)
    for end, size in zip(ends[is_burst], sizes[is_burst], strict=True):
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
    ask: Ask,
    *,
    buffer: int,
    expected_out: float,
    island_most: int,
) -> Reserve:
    """What a burst would take on top of the nodes expected to be out, less what the buffer covers already.

    What the fleet saw counts beside what the pool saw, in proportion to its size and as far as its largest island
    goes; the larger of both is taken. So a pool that saw small bursts only holds no less than one that saw none.
    """
    own = [float(burst.node_count) for burst in bursts]
    fleet = [min(share * view.total, float(island_most)) for share in fleet_shares]
    every = own + fleet
    if not every:
        return Reserve(0, 0, 0, 0, 0.0, "", is_borrowed=False)
    own_nodes, every_nodes = (round(float(np.quantile(each, SIZE_LEVEL))) if each else 0 for each in (own, every))
    burst_nodes = min(view.total, max(own_nodes, every_nodes))
    needed = max(0, min(view.total, round(expected_out) + burst_nodes) - buffer)
    likely = likely_nodes(view, own, fleet, ask)
    held = min(needed, max(0, round(expected_out) + likely - buffer)) if likely else 0
    in_island = sum(bool(burst.island) for burst in bursts)
    domain = "" if not bursts else "island" if 2 * in_island >= len(bursts) else "cluster"
    per_year = len(bursts) * YEAR_HOURS / max(view.hour, 1)
    return Reserve(needed, held, burst_nodes, len(bursts), per_year, domain, is_borrowed=every_nodes > own_nodes)


def likely_nodes(view: View, own: Sequence[float], fleet: Sequence[float], ask: Ask) -> int:
    """The size that a burst exceeds in at most the allowed share of horizons; 0 where bursts are rarer than that.

    Bursts come again as often as they came: a pool's own, and the fleet's as a prior that fades with time. The promise
    counts hours, so a burst of a few hours may be within its risk however often it comes; this counts horizons.
    """
    seen = view.hour + BORROWED_HOURS
    pool_hours = max(1, view.hour) * (len(view.fleet.views) if view.fleet is not None else 1)
    sizes = np.array([*own, *fleet])
    expected = ask.horizon / seen * np.array([1.0] * len(own) + [BORROWED_HOURS / pool_hours] * len(fleet))
    if ask.risk >= 1:  # a target so small that nothing is left of it: nothing has to hold
        return 0
    allowed = -math.log1p(-ask.risk)
    order = np.argsort(sizes)
    # How many bursts above each size are to be expected: the sum over those that come after it.
    above = np.concatenate([np.cumsum(expected[order][::-1])[::-1], [0.0]])
    place = int(np.argmax(above <= allowed))
    return round(float(sizes[order][place - 1])) if place else 0


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
