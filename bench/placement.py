"""Single decisions in a full fleet: 18,500 nodes, 400 islands, 10,000 running parts; each against a plain scan over all
nodes (and, where somebody must leave, over all running parts) in the same run.

A decision is from the question to the answer with all that it changes in the state: where it starts and on which nodes,
who must leave for it, or the reason why it can't. It is undone afterwards, so that each meets the same fleet.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from bench.figures import Figure
from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Cluster, IslandKey, Node, Phase, Purpose, Service
from plimsoll.fleet.selector import Scope
from plimsoll.ledger.model import Draft
from plimsoll.memory import no_collection
from plimsoll.quota.changes import PoolAligned, QuotaAssigned
from plimsoll.quota.model import Kind, Quota, QuotaKey, Tier
from plimsoll.quota.plan import policy_in_force
from plimsoll.rooms import KINDS
from plimsoll.state.state import State
from plimsoll.workloads.changes import WorkloadEnded, WorkloadSubmitted
from plimsoll.workloads.model import PartSpec, Spec
from plimsoll.workloads.queue import try_start
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.why.ask import explain_if

NOW = datetime(2026, 1, 5, tzinfo=UTC)
RECORDED_AT = "2026-01-05T00:00:00.000000Z"
GRACE = timedelta(minutes=15)
CLUSTERS, ISLANDS, NODES, PARTS = 72, 400, 18_500, 10_000
GPUS, TEAMS, TEAMS_IN_POOL = 8, 60, 12
SKUS = ("H100", "H200", "GB200")
GUARANTEED_SHARE = 0.85
ASKED, ASKED_WHY = 300, 60
ELASTIC_MEDIAN_MAX, GANG_P99_MAX, REFUSAL_MAX = 0.0002, 0.010, 0.050


def measure() -> list[Figure]:
    with no_collection():
        state = build()
        return [_elastic(state), _gang(state), _refusal(state), _why(state)]


def build() -> State:
    """A fleet whose teams run about what they are guaranteed, some more and some less, nearly all of it in use."""
    dice, state = random.Random(1), State(KINDS)
    state.assume(_fleet_drafts(dice), recorded_at=RECORDED_AT)
    state.assume(_quota_drafts(dice, state), recorded_at=RECORDED_AT)
    turn = Turn(state, NOW)
    keys = sorted(turn.book.guaranteed)
    weights = [turn.book.guaranteed[key] for key in keys]
    for number in range(5 * PARTS):
        if len(turn.work.workloads) >= PARTS:
            break
        name, key = f"work-{number:05d}", dice.choices(keys, weights)[0]
        turn.do(WorkloadSubmitted(_running_spec(dice, name, key)))
        if not try_start(turn, name, grace=timedelta(0)):
            turn.do(WorkloadEnded(name, "cancelled"))
        turn.drafts.clear()
    return state


def _fleet_drafts(dice: random.Random) -> list[Draft]:
    drafts, made = [], 0
    for number in range(CLUSTERS):
        name = f"cluster-{number:02d}"
        drafts.append(Draft(ClusterRecorded(Cluster(name, "r", Area.US, "c", "p", Purpose.RESEARCH, Phase.PRODUCTION))))
        islands = ISLANDS // CLUSTERS + (number < ISLANDS % CLUSTERS)
        for each in range(islands):
            size = NODES // ISLANDS + (made < NODES % ISLANDS)
            made += 1
            drafts += [
                Draft(
                    NodeRecorded(
                        Node(
                            f"{name}-{each}-{place:02d}",
                            name,
                            f"{name}-{each}",
                            SKUS[number % len(SKUS)],
                            GPUS,
                            Service.REPAIR if dice.random() < 0.04 else Service.IN_SERVICE,
                        )
                    )
                )
                for place in range(size)
            ]
    return drafts


def _quota_drafts(dice: random.Random, state: State) -> list[Draft]:
    drafts = []
    for pool, count in sorted(state.of(Fleet).pools.items()):
        teams = [f"team-{each:02d}" for each in sorted(dice.sample(range(TEAMS), TEAMS_IN_POOL))]
        line = int(GUARANTEED_SHARE * count.nodes_in_service)
        cuts = sorted(dice.sample(range(1, line), TEAMS_IN_POOL - 1))
        shares = [b - a for a, b in zip([0, *cuts], [*cuts, line], strict=True)]
        drafts += [
            Draft(QuotaAssigned(Quota(team, *pool, nodes * GPUS))) for team, nodes in zip(teams, shares, strict=True)
        ]
        guaranteed = {team: nodes * GPUS for team, nodes in zip(teams, shares, strict=True)}
        drafts.append(Draft(PoolAligned(*pool, line * GPUS, "fixed:0.15", guaranteed)))
    return drafts


def _running_spec(dice: random.Random, name: str, key: QuotaKey) -> Spec:
    where = Scope((("cluster", (key.cluster,)), ("sku", (key.sku,))))
    tier, rank = dice.choice(list(Tier)), dice.randint(1, 3)
    if dice.random() < 0.4:
        least = dice.randint(1, 2)
        part = PartSpec("serve", Kind.ELASTIC, tier, rank, dice.choice((2, 4, 8)), least=least, most=least + 2)
    else:
        part = PartSpec("train", Kind.GANG, tier, rank, dice.choice((4, 4, 8, 8, 8, 16, 16, 24, 32)))
    return Spec(name, key.team, where, (part,))


def _anywhere(team: str, sku: str, name: str, part: PartSpec) -> Spec:
    return Spec(name, team, Scope((("sku", (sku,)),)), (part,))


def _decide(state: State, spec: Spec) -> tuple[float, str]:
    """The time of a decision, and what came of it."""
    with state.what_if():
        turn = Turn(state, NOW)
        turn.do(WorkloadSubmitted(spec))
        began = time.perf_counter()
        try_start(turn, spec.name, grace=GRACE)
        seconds = time.perf_counter() - began
        if spec.name in turn.work.bookings:
            return seconds, "calls back"
        return seconds, "starts" if spec.name in turn.work.workloads else "waits"


def _scan(state: State, sku: str, gpus: int) -> str:
    """The baseline: look at every node, sum up what is free by island, take the tightest that fits."""
    floor = Turn(state, NOW).floor
    free: dict[IslandKey, int] = {}
    for node, spot in floor.spots.items():
        if spot.service is Service.IN_SERVICE and spot.key.sku == sku:
            free[spot.key] = free.get(spot.key, 0) + spot.gpus - floor.used.get(node, 0)
    return min(((left, key.island) for key, left in free.items() if left >= gpus), default=(0, ""))[1]


def _scan_parts(state: State, sku: str, gpus: int) -> str:
    """The same where somebody must leave: all running parts as well, and the island with the most of them."""
    island = _scan(state, sku, gpus)
    held: dict[str, int] = {}
    for workload in Turn(state, NOW).work.workloads.values():
        for part in workload.parts:
            for block in part.blocks:
                if part.sku == sku:
                    held[block.island] = held.get(block.island, 0) + block.gpus
    return island or max(held, key=lambda each: (held[each], each))


def _times(asks: list[tuple[Spec, str]], state: State, wanted: str) -> list[float]:
    found = []
    for spec, _ in asks:
        seconds, how = _decide(state, spec)
        if how == wanted:
            found.append(seconds)
    assert len(found) > ASKED // 10, f"only {len(found)} of {len(asks)} {wanted}: that measures nothing"
    return found


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _asks(state: State, make: Callable[[random.Random], PartSpec], seed: int) -> list[tuple[Spec, str]]:
    dice = random.Random(seed)
    keys = sorted(Turn(state, NOW).book.guaranteed)
    found = []
    for number in range(ASKED):
        key = dice.choice(keys)
        found.append((_anywhere(key.team, key.sku, f"ask-{number}", make(dice)), key.sku))
    return found


def _size(state: State) -> str:
    turn = Turn(state, NOW)
    parts = sum(len(each.parts) for each in turn.work.workloads.values())
    pools = turn.fleet.pools
    healthy = sum(pools[pool].gpus_in_service for pool in pools)
    used = sum(turn.work.held.values()) / healthy
    return f"{len(turn.fleet.nodes):,} nodes, {len(turn.fleet.islands)} islands, {parts:,} parts, {used:.0%} used"


def _figure(name: str, size: str, *, seconds: float, what: str, baseline: float, limit: float) -> Figure:
    return Figure(
        name,
        size,
        f"{what} {seconds * 1e3:.3f} ms",
        f"plain scan {baseline * 1e3:.2f} ms",
        f"{baseline / seconds:.1f}x quicker" if seconds <= baseline else f"{seconds / baseline:.1f}x slower",
        f"under {limit * 1e3:g} ms",
        seconds < limit,
    )


def _elastic(state: State) -> Figure:
    asks = _asks(
        state, lambda dice: PartSpec("serve", Kind.ELASTIC, Tier.MID, 1, 2, least=1, most=dice.randint(1, 4)), 2
    )
    times = _times(asks, state, "starts")
    base = statistics.median(_timed(lambda sku=sku: _scan(state, sku, 2)) for _, sku in asks[:20])  # type: ignore[misc]
    median = statistics.median(times)
    size = f"{_size(state)}; {len(times)} decisions"
    return _figure("elastic decision", size, seconds=median, what="median", baseline=base, limit=ELASTIC_MEDIAN_MAX)


def _gang(state: State) -> Figure:
    """Gangs inside a guarantee that find no free room: whom to call back is searched in every island they may use."""
    asks = _asks(state, lambda dice: PartSpec("train", Kind.GANG, Tier.HIGH, 1, dice.choice((64, 96, 128))), 3)
    times = sorted(_times(asks, state, "calls back"))
    base = statistics.median(_timed(lambda sku=sku: _scan_parts(state, sku, 128)) for _, sku in asks[:20])  # type: ignore[misc]
    p99 = times[int(0.99 * (len(times) - 1))]
    size = f"{_size(state)}; {len(times)} decisions"
    return _figure("gang with preemption search", size, seconds=p99, what="p99", baseline=base, limit=GANG_P99_MAX)


def _refusal(state: State) -> Figure:
    """Gangs of a whole island: nowhere to be had, and the answer says where it comes closest and what is missing."""
    largest = max(count.gpus for count in state.of(Fleet).islands.values())
    asks = _asks(state, lambda _dice: PartSpec("train", Kind.GANG, Tier.HIGH, 1, largest), 4)
    times = sorted(_times(asks, state, "waits"))
    base = statistics.median(_timed(lambda sku=sku: _scan_parts(state, sku, largest)) for _, sku in asks[:20])  # type: ignore[misc]
    size = f"{_size(state)}; {len(times)} decisions"
    return _figure(
        "can't fit, with its reason", size, seconds=times[-1], what="slowest", baseline=base, limit=REFUSAL_MAX
    )


def _why(state: State) -> Figure:
    """The whole answer of `why --if` for the same gangs: every step, what stands in the way, and what would help, each
    of these tried on a what-if. The fleet has no history, so that nobody is asked when nodes come back.
    """
    largest = max(count.gpus for count in state.of(Fleet).islands.values())
    asks = _asks(state, lambda _dice: PartSpec("train", Kind.GANG, Tier.HIGH, 1, largest), 4)[:ASKED_WHY]
    policy = policy_in_force(state)
    times = sorted(
        _timed(lambda spec=spec: explain_if(state, spec, now=NOW, grace=GRACE, policy=policy))  # type: ignore[misc]
        for spec, _ in asks
    )
    base = statistics.median(_timed(lambda sku=sku: _scan_parts(state, sku, largest)) for _, sku in asks[:20])  # type: ignore[misc]
    median = statistics.median(times)
    size = f"{_size(state)}; {len(times)} answers, the slowest {times[-1] * 1e3:.0f} ms"
    return _figure("can't fit, with all of why", size, seconds=median, what="median", baseline=base, limit=REFUSAL_MAX)
