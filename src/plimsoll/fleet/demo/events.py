"""What hits many nodes at once: bursts with a common cause, and planned work on a few clusters.

The schedule is drawn once for the fleet; what it does to each node is the business of `history`.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll.fleet.demo import worked_case
from plimsoll.fleet.demo.layout import Cluster
from plimsoll.fleet.demo.outages import DAY, HOUR, NETWORK, PLANNED_REASONS, POWER

BURST_COUNT = 8
BURST_SHARE = (0.15, 0.40)
BURST_HOURS = (1.0, 9.0)
BURST_QUIET_DAYS = 3

WHOLE_COUNT = 14
ROLLING_COUNT = 6
WORK_HOURS_OF_DAY = (11, 15)
ROLLING_SHARE = (0.05, 0.10)
ROLLING_DAYS_MAX = 22
UNDER_WAY_SHARE = 0.06


@dataclass(frozen=True)
class Burst:
    """Some neighbouring nodes lost within minutes, for one reason."""

    nodes: tuple[str, ...]
    at: int
    hours: float
    reason: str


@dataclass(frozen=True)
class Batch:
    """Nodes taken out together by planned work."""

    nodes: tuple[str, ...]
    at: int
    hours: float
    reason: str


@dataclass(frozen=True)
class Schedule:
    """All of it, by cluster name."""

    bursts: dict[str, list[Burst]]
    batches: dict[str, list[Batch]]


def draw_schedule(seed: int, clusters: Sequence[Cluster], *, start: int, until: int) -> Schedule:
    """Draw the events of the window from `start` to `until`. The cluster of the worked case is left alone."""
    eligible = [c for c in clusters if c.phase == "production" and c.name != worked_case.CLUSTER]
    rng = random.Random(f"{seed}/bursts")
    bursts = defaultdict(list)
    for cluster in rng.choices(eligible, k=BURST_COUNT):
        bursts[cluster.name].append(_burst(rng, cluster, start=start, until=until))
    return Schedule(bursts=dict(bursts), batches=_planned_work(seed, eligible, start=start, until=until))


def _burst(rng: random.Random, cluster: Cluster, *, start: int, until: int) -> Burst:
    """A row of racks of one island, or of the whole cluster, goes dark."""
    is_island = rng.random() < 0.6
    nodes = rng.choice(cluster.islands).nodes if is_island else cluster.nodes
    count = max(1, round(len(nodes) * rng.uniform(*BURST_SHARE)))
    first = rng.randrange(len(nodes) - count + 1)
    return Burst(
        nodes=nodes[first : first + count],
        at=rng.randint(start + DAY, until - BURST_QUIET_DAYS * DAY),
        hours=rng.uniform(*BURST_HOURS),
        reason=rng.choice((POWER, NETWORK)),
    )


def _planned_work(seed: int, clusters: Sequence[Cluster], *, start: int, until: int) -> dict[str, list[Batch]]:
    """Small clusters are taken whole, big ones rolling; the healthiest of these is under way at `until`."""
    rng = random.Random(f"{seed}/planned-work")
    batches = {}
    for cluster in rng.sample([c for c in clusters if not c.is_big], WHOLE_COUNT):
        at = _working_hour(rng, rng.randint(start + DAY, until - 2 * DAY))
        batches[cluster.name] = [Batch(cluster.nodes, at, rng.uniform(4, 8), rng.choice(PLANNED_REASONS))]
    rolling = rng.sample([c for c in clusters if c.is_big], ROLLING_COUNT)
    under_way = min(rolling, key=lambda cluster: cluster.out_node_count / len(cluster.nodes))
    for cluster in rolling:
        if cluster is under_way:
            share = UNDER_WAY_SHARE
            at = until - 2 * HOUR - round(0.5 / share) * DAY
        else:
            share = rng.uniform(*ROLLING_SHARE)
            at = _working_hour(rng, rng.randint(start + DAY, until - ROLLING_DAYS_MAX * DAY))
        batches[cluster.name] = _rolling(rng, cluster, at=at, share=share, until=until)
    return batches


def _rolling(rng: random.Random, cluster: Cluster, *, at: int, share: float, until: int) -> list[Batch]:
    """A share of the nodes each day, at the same hour, until all had their turn or the window ends."""
    hours = rng.uniform(4, 6)
    reason = rng.choice(PLANNED_REASONS)
    nodes = cluster.nodes
    size = math.ceil(len(nodes) * share)
    turns = [nodes[first : first + size] for first in range(0, len(nodes), size)]
    days = range(at, until, DAY)
    return [Batch(turn, day, hours, reason) for turn, day in zip(turns, days, strict=False)]


def _working_hour(rng: random.Random, at: int) -> int:
    """An hour of that day in which planned work starts."""
    return at // DAY * DAY + rng.randint(*WORK_HOURS_OF_DAY) * HOUR
