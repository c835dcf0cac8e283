"""The plan of alignment from the state in memory: the fleet, a fleet fifty times as large, and one pool after an event.

The baseline looks at every entry of the book and every claim once and adds them up by pool: less no plan can do.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import cycle

import msgspec

from bench.figures import Figure, Times, alternate
from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Cluster, Node, Phase, PoolKey, Purpose, Service
from plimsoll.ledger.model import Draft
from plimsoll.memory import no_collection
from plimsoll.quota.changes import QuotaAssigned
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Kind, Quota, Tier
from plimsoll.quota.plan import make_plan, summarise
from plimsoll.quota.policy import DEFAULT_POLICY
from plimsoll.rooms import KINDS
from plimsoll.state.state import State
from plimsoll.workloads.changes import WorkloadObserved
from plimsoll.workloads.model import Block, Part, Workload

NOW = datetime(2026, 1, 5, tzinfo=UTC)
RECORDED_AT = "2026-01-05T00:00:00.000000Z"
TEAMS = 200
GPUS = 8
ISLAND_NODES = 64
RUNS, LARGE_RUNS, EVENTS = 15, 3, 200
PLAN_SECONDS_MAX, LARGE_SECONDS_MAX, EVENT_SECONDS_MAX = 0.050, 2.0, 0.005


def measure() -> list[Figure]:
    state = build(clusters=72, nodes=18_500, teams_in_pool=20)
    figures = [
        _plan("plan of the fleet", state, runs=RUNS, limit=PLAN_SECONDS_MAX),
        _after_event(state),
    ]
    state = build(clusters=4_000, nodes=1_000_000, teams_in_pool=10)
    return [*figures, _plan("plan of a very large fleet", state, runs=LARGE_RUNS, limit=LARGE_SECONDS_MAX)]


def build(*, clusters: int, nodes: int, teams_in_pool: int) -> State:
    """A fleet that is promised a tenth above what is installed; a twelfth is out, nearly all of the rest is used."""
    state = State(KINDS)
    with no_collection():
        state.assume(_drafts(random.Random(1), clusters, nodes, teams_in_pool), recorded_at=RECORDED_AT)
    return state


def _drafts(dice: random.Random, clusters: int, nodes: int, teams_in_pool: int) -> Iterator[Draft]:
    for number in range(clusters):
        name = f"cluster-{number:04d}"
        yield Draft(ClusterRecorded(Cluster(name, "r1", Area.US, "c1", "p", Purpose.RESEARCH, Phase.PRODUCTION)))
        count = nodes // clusters + (number < nodes % clusters)
        healthy = [0] * (count // ISLAND_NODES + 1)
        for place in range(count):
            island, is_out = place // ISLAND_NODES, dice.random() < 1 / 12
            healthy[island] += not is_out
            service = Service.REPAIR if is_out else Service.IN_SERVICE
            yield Draft(NodeRecorded(Node(f"{name}-{place:04d}", name, f"{name}-i{island}", "H200", GPUS, service)))
        for team in dice.sample(range(TEAMS), teams_in_pool):
            held = dice.randrange(1, 22 * count // (10 * teams_in_pool) + 2)
            yield Draft(QuotaAssigned(Quota(f"team-{team:03d}", name, "H200", held * GPUS)))
            yield from _work(dice, f"team-{team:03d}", name, held, healthy)


def _work(dice: random.Random, team: str, cluster: str, held: int, healthy: list[int]) -> Iterator[Draft]:
    """Two gangs and graders beside them, as far as the islands have room."""
    parts = []
    for rank, kind in enumerate((Kind.GANG, Kind.GANG, Kind.ELASTIC), start=1):
        island = dice.randrange(len(healthy))
        nodes = min(healthy[island], max(1, held * dice.randrange(1, 6) // 10))
        if nodes:
            healthy[island] -= nodes
            idle = dice.choice((0, 0, 0, nodes * GPUS // 2))
            block = Block(f"{cluster}-i{island}", nodes * GPUS, idle)
            parts.append(Part(kind, dice.choice(list(Tier)), rank, "H200", (block,)))
    if parts:
        yield Draft(WorkloadObserved(Workload(f"{cluster}-{team}", team, cluster, tuple(parts))))


def _sizes(state: State) -> str:
    fleet, book = state.of(Fleet), state.of(QuotaBook)
    claims = sum(map(len, book.claims.values()))
    load = os.getloadavg()[0]
    return (
        f"{len(fleet.clusters):,} clusters, {len(fleet.nodes):,} nodes, {len(book.teams())} teams,"
        f" {len(book.quotas):,} quotas, {claims:,} claims; load {load:.1f} on {os.cpu_count()} cores"
    )


def _sums(state: State) -> dict[PoolKey, tuple[int, int]]:
    """The baseline: what is held and what is used, by pool."""
    book = state.of(QuotaBook)
    held: dict[PoolKey, int] = {}
    used: dict[PoolKey, int] = {}
    for key, quota in book.quotas.items():
        held[key.pool] = held.get(key.pool, 0) + quota.gpus
    for key, claims in book.claims.items():
        used[key.pool] = used.get(key.pool, 0) + sum(claim.gpus for claim in claims)
    return {pool: (gpus, used.get(pool, 0)) for pool, gpus in held.items()}


def _plan(name: str, state: State, *, runs: int, limit: float) -> Figure:
    ours, baseline = alternate(runs, lambda: make_plan(state, DEFAULT_POLICY, now=NOW), lambda: _sums(state))
    summary = summarise(make_plan(state, DEFAULT_POLICY, now=NOW).hulls)
    assert summary.pools_over > summary.pools // 2, "a plan that cuts nothing measures nothing"
    return _figure(name, f"{_sizes(state)}; {summary.pools_over:,} pools over", ours, baseline, limit)


def _after_event(state: State) -> Figure:
    """A node fails or returns: the event in the state, and the plan of its pool."""
    nodes = cycle(random.Random(2).sample(sorted(state.of(Fleet).nodes.values(), key=lambda node: node.id), EVENTS))

    def one() -> None:
        node = state.of(Fleet).nodes[next(nodes).id]
        service = Service.REPAIR if node.service is Service.IN_SERVICE else Service.IN_SERVICE
        change = NodeRecorded(msgspec.structs.replace(node, service=service))
        state.assume([Draft(change)], recorded_at=RECORDED_AT)
        make_plan(state, DEFAULT_POLICY, now=NOW, pools=[PoolKey(node.cluster, node.sku)])

    ours, baseline = alternate(EVENTS, one, lambda: _sums(state))
    return _figure("plan of one pool after a node event", _sizes(state), ours, baseline, EVENT_SECONDS_MAX)


def _figure(name: str, size: str, ours: Times, baseline: Times, limit: float) -> Figure:
    ratio = f"{ours.median / baseline.median:.1f}x"
    return Figure(
        name, size, str(ours), f"one look at all {baseline}", ratio, f"under {limit:g} s", ours.median < limit
    )
