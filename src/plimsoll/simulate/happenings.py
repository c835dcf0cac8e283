"""What happens next in the demo fleet, so that its pages move: nodes fail and are repaired, jobs come and go. Pure.

Decides from the state, the moment and the seed alone, and so that the fleet stays as it is for hours: each thing is
made likelier the further the state is from where it should be. Must never pick what people or campaigns hold.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from plimsoll.fleet.demo.names import ELASTIC_TOPICS, GANG_TOPICS, OWNERS
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import IslandKey, Node, Phase, PoolKey, Service
from plimsoll.fleet.selector import Scope
from plimsoll.health.decide import policy_in_force
from plimsoll.health.facts import AUTOMATION, HealthFact
from plimsoll.health.fold import FLEET_SCOPE, Health, cluster_scope
from plimsoll.health.model import to_microseconds
from plimsoll.health.policy import Breaker, CheckBy
from plimsoll.health.signals import Signal, SignalKind
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Kind, Request, RequestState, Tier
from plimsoll.quota.requests.desk import Asked as QuotaAsked
from plimsoll.state.state import State
from plimsoll.workloads.fold_tables import Workloads, floor_of
from plimsoll.workloads.model import Asked, PartSpec, Spec

FEED = "demo"
PREFIX = "live-"
"""What the names of the demo's own jobs begin with: it ends no others."""
EVERY_SECONDS = 3.0
"""How often something is asked for: a few things of the page move every minute, and a ledger grows slowly."""

HEALTH_SHARE, QUOTA_SHARE = 0.16, 0.006
"""Of all things that happen, so many are about nodes and about quota; the others are jobs."""
OUT_SHARE_WANTED = 0.06
"""The share of nodes out of service that failures and repairs hold the fleet at."""
OUT_SHARE_PULL = 80.0
UNDER_WORK_CHANCE = 0.3
"""A failure hits a node under one of the demo's own jobs so often; else a free one."""
DEGRADED_MAX = 20
BREAKER_SHARE_MAX = 0.6
"""Where so much is taken out of what a breaker allows, nothing more fails."""
OUT_AT_LEAST = timedelta(minutes=4)
VALIDATES_AT_LEAST = timedelta(seconds=45)

JOBS_MAX = 180
WAITING_MAX = 10
RUN_MINUTES = (6.0, 45.0)
WAIT_MINUTES = (8.0, 25.0)
FAILED_SHARE = 0.08
BIG_CHANCE = 0.05
BIG_GPUS = (256, 352, 512)
GANG_NODES = (1, 1, 2, 2, 4, 4, 8)
TRIES_MAX = 50
FREE_NODES_LEFT = 2
"""A job leaves so many nodes of its island free: what runs there need not leave for it."""

REQUESTS_OPEN_MAX = 4
REQUEST_OPEN_FOR = timedelta(minutes=25)
REQUEST_HOURS = (2, 12)


class Failed(msgspec.Struct, frozen=True):
    """A node's signals say that something is wrong with it."""

    signals: tuple[Signal, ...]


class Eased(msgspec.Struct, frozen=True):
    """A problem that only degraded a node is gone."""

    signals: tuple[Signal, ...]


class Repaired(msgspec.Struct, frozen=True):
    """Somebody put a node right: it validates."""

    node: str
    words: str


class Accepted(msgspec.Struct, frozen=True):
    """Somebody ticks the check of a validating node that waits for a person."""

    node: str
    check: str


class Submitted(msgspec.Struct, frozen=True):
    """A job comes."""

    spec: Spec


class Ended(msgspec.Struct, frozen=True):
    """A job is over: finished, failed or cancelled."""

    workload: str
    how: str
    by: str


class Requested(msgspec.Struct, frozen=True):
    """A team asks for more, for some hours."""

    asked: QuotaAsked
    by: str


class Withdrawn(msgspec.Struct, frozen=True):
    """Nobody has answered a request, and it is not needed any more."""

    request: str
    team: str
    by: str


Happening = Failed | Eased | Repaired | Accepted | Submitted | Ended | Requested | Withdrawn


class Fault(NamedTuple):
    """A way in which nodes fail: how often, and what is heard of it. `times` in a row, a minute apart."""

    weight: int
    kind: SignalKind
    name: str
    value: float | None
    detail: str
    times: int = 1


FAULTS = (
    Fault(30, SignalKind.XID, "79", None, "the GPU has fallen off the bus"),
    Fault(14, SignalKind.XID, "119", None, "the GPU's firmware does not answer"),
    Fault(12, SignalKind.XID, "48", None, "double-bit error"),
    Fault(10, SignalKind.ECC, "row-remap-failure", 1.0, "no row is left to remap to"),
    Fault(16, SignalKind.CHECK, "link-bandwidth", None, "a link is slower than it should be", 2),
    Fault(8, SignalKind.PROVIDER, "hardware-host", None, "the host is to be looked at"),
    Fault(10, SignalKind.THERMAL, "gpu", 93.0, "a GPU runs hot", 3),
)
REPAIRS = ("GPU reseated", "board replaced", "firmware loaded anew", "cable replaced", "host swapped", "fan replaced")


def next_happenings(state: State, now: datetime, seed: int) -> list[Happening]:
    """What happens at this moment; the same for the same state, second and seed."""
    dice = random.Random(f"alive {seed} {int(now.timestamp())}")  # noqa: S311
    draw = dice.random()
    found: Happening | None = None
    if draw < HEALTH_SHARE:
        found = _of_nodes(state, now, dice)
    elif draw < HEALTH_SHARE + QUOTA_SHARE:
        found = _of_quota(state, now, dice)
    found = found or _of_jobs(state, now, dice)
    return [] if found is None else [found]


# Nodes.


class _Nodes(NamedTuple):
    """The nodes that the demo may touch, by what they could do next."""

    total: int
    out: int
    fit: list[Node]
    broken: list[Node]
    validating: list[Node]


def _of_nodes(state: State, now: datetime, dice: random.Random) -> Happening | None:
    health = state.of(Health)
    nodes = _look(state, now)
    if not nodes.total:
        return None
    checks = [check.name for check in policy_in_force(state).validation if check.by is CheckBy.MANUAL]
    for node in nodes.validating:
        since = node.since or now
        done = {tick.check for tick in health.ticks.get(node.id, ()) if tick.at >= since}
        if (check := next((name for name in checks if name not in done), None)) is not None:
            return Accepted(node.id, check)
    hot = sorted(
        name
        for name, facts in health.facts.items()
        if facts.health is HealthFact.DEGRADED and facts.source == FEED and _is_in_service(state, name)
    )
    if len(hot) > DEGRADED_MAX or (hot and dice.random() < len(hot) / (2 * DEGRADED_MAX)):
        return Eased((Signal(dice.choice(hot), SignalKind.THERMAL, now, "gpu", 61.0, is_ok=True),))
    share = nodes.out / nodes.total
    fails = 0.5 + OUT_SHARE_PULL * (OUT_SHARE_WANTED - share)
    if nodes.broken and dice.random() > fails:
        return Repaired(dice.choice(nodes.broken).id, dice.choice(REPAIRS))
    return _fail(state, nodes, now, dice) if dice.random() < max(fails, 0.0) * 2 else None


def _is_in_service(state: State, name: str) -> bool:
    node = state.of(Fleet).nodes.get(name)
    return node is not None and node.service is Service.IN_SERVICE


def _look(state: State, now: datetime) -> _Nodes:
    fleet, health = state.of(Fleet), state.of(Health)
    made = {name for name, cluster in fleet.clusters.items() if cluster.phase is Phase.PRODUCTION}
    may_fail = _may_fail(state, made, now)
    total, out = 0, 0
    fit: list[Node] = []
    broken: list[Node] = []
    validating: list[Node] = []
    for node in fleet.nodes.values():
        if node.cluster not in made or node.service in (Service.RETIRED, Service.JOINING):
            continue
        total += 1
        if node.service is Service.IN_SERVICE:
            if node.cluster in may_fail and node.id not in health.ahead_of:
                fit.append(node)
            continue
        if any(hold.owner != AUTOMATION for hold in health.holds.get(node.id, ())):
            continue  # somebody else's: a campaign's, a person's
        out += 1
        span = timedelta(0) if node.since is None else now - node.since
        if node.service is Service.VALIDATING and span >= VALIDATES_AT_LEAST:
            validating.append(node)
        elif node.service in (Service.QUARANTINED, Service.REPAIR, Service.DRAINING) and span >= OUT_AT_LEAST:
            broken.append(node)
    # A state that was loaded has its nodes in another order than one that was folded.
    fit.sort(key=lambda node: node.id)
    broken.sort(key=lambda node: node.id)
    validating.sort(key=lambda node: (node.since or now, node.id))
    return _Nodes(total, out, fit, broken, validating)


def _may_fail(state: State, made: Collection[str], now: datetime) -> set[str]:
    """The clusters in which one more failure is far from tripping a breaker: those are for people's own trials."""
    fleet, policy = state.of(Fleet), policy_in_force(state)
    sizes: Counter[str] = Counter()
    for pool, count in fleet.pools.items():
        sizes[pool.cluster] += count.nodes
    if _is_near(state, FLEET_SCOPE, policy.fleet_breaker, sizes.total(), now):
        return set()
    breaker = policy.cluster_breaker
    return {name for name in made if not _is_near(state, cluster_scope(name), breaker, sizes[name], now)}


def _is_near(state: State, scope: str, breaker: Breaker, nodes: int, now: datetime) -> bool:
    health = state.of(Health)
    if scope in health.breakers:
        return True
    oldest = to_microseconds(now - breaker.within)
    taken = sum(at > oldest for at in health.exits.get(scope, ()))
    return taken >= BREAKER_SHARE_MAX * breaker.limit(nodes)


def _fail(state: State, nodes: _Nodes, now: datetime, dice: random.Random) -> Happening | None:
    node = _whom(state, nodes, dice)
    if node is None:
        return None
    fault = dice.choices(FAULTS, [each.weight for each in FAULTS])[0]
    moments = [now - timedelta(minutes=minutes) for minutes in reversed(range(fault.times))]
    return Failed(
        tuple(Signal(node.id, fault.kind, at, fault.name, fault.value, detail=fault.detail) for at in moments)
    )


def _whom(state: State, nodes: _Nodes, dice: random.Random) -> Node | None:
    """A node under one of the demo's own jobs, which is then moved, or one that nobody needs."""
    floor = floor_of(state)
    if dice.random() < UNDER_WORK_CHANCE:
        under = {name for name, parts in floor.parts_on.items() if any(each[0].startswith(PREFIX) for each in parts)}
        if mine := [node for node in nodes.fit if node.id in under]:
            return dice.choice(mine)
    for _ in range(TRIES_MAX):
        if not nodes.fit:
            return None
        node = dice.choice(nodes.fit)
        key = floor.spots[node.id].key
        if not floor.used.get(node.id) and floor.free.get(key, 0) >= FREE_NODES_LEFT * node.gpus:
            return node
    return None


# Jobs.


def _of_jobs(state: State, now: datetime, dice: random.Random) -> Happening | None:
    work = state.of(Workloads)
    mine = sorted(name for name in work.asked if name.startswith(PREFIX))
    waiting = [name for name in mine if name not in work.workloads]
    over = [name for name in mine if _is_over(work, name, now)]
    is_full = len(mine) >= JOBS_MAX
    if over and (is_full or dice.random() < 0.5):
        return _end(work.asked[over[0]], dice, is_running=over[0] in work.workloads)
    if not is_full and len(waiting) < WAITING_MAX:
        return _submit(state, now, dice)
    if over:
        return _end(work.asked[over[0]], dice, is_running=over[0] in work.workloads)
    return None


def _is_over(work: Workloads, name: str, now: datetime) -> bool:
    """Whether a job has run, or waited, for as long as it does: that follows from its name."""
    share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
    low, high = RUN_MINUTES if name in work.workloads else WAIT_MINUTES
    minutes = (to_microseconds(now) - work.asked[name].submitted) / 60e6
    return minutes >= low + (high - low) * share**2


def _end(asked: Asked, dice: random.Random, *, is_running: bool) -> Ended:
    how = "failed" if dice.random() < FAILED_SHARE else "finished"
    return Ended(asked.spec.name, how if is_running else "cancelled", asked.spec.owner)


def _submit(state: State, now: datetime, dice: random.Random) -> Happening | None:
    fleet, book = state.of(Fleet), state.of(QuotaBook)
    pools = [pool for pool in sorted(book.pool_teams) if pool in fleet.pools]
    pools = [pool for pool in pools if fleet.clusters[pool.cluster].phase is Phase.PRODUCTION]
    if not pools:
        return None
    pool = dice.choice(pools)
    team, owner = dice.choice(sorted(book.pool_teams[pool])), dice.choice(OWNERS)
    part = _part(state, pool, dice)
    if part is None:
        return None
    topic = dice.choice(GANG_TOPICS if part.is_gang else ELASTIC_TOPICS)
    spec = Spec(
        f"{PREFIX}{topic}-{pool.cluster}-{int(now.timestamp()) % 10_000_000:07d}",
        team,
        Scope((("cluster", (pool.cluster,)), ("sku", (pool.sku,)))),
        (part,),
        owner=owner,
        checkpoint_minutes=float(dice.choice((10, 20, 30))),
        restart_minutes=5.0,
    )
    return Submitted(spec)


def _part(state: State, pool: PoolKey, dice: random.Random) -> PartSpec | None:
    """What a job asks for: mostly what fits into what is free, now and then more than that, so that somebody waits."""
    size = state.of(Fleet).pools[pool].gpus_per_node
    islands: Sequence[tuple[int, str]] = floor_of(state).by_pool.of(pool)
    free = max((gpus for gpus, _ in islands), default=0) // size - FREE_NODES_LEFT
    tier = dice.choice((Tier.CRITICAL, Tier.HIGH, Tier.HIGH, Tier.MID, Tier.LOW))
    if dice.random() < BIG_CHANCE:
        nodes = max(1, dice.choice(BIG_GPUS) // size)
        nodes = min(nodes, max(state.of(Fleet).islands[key].nodes for key in _islands(state, pool)))
        return PartSpec("train", Kind.GANG, tier, 1, nodes * size)
    fitting = [nodes for nodes in GANG_NODES if nodes <= free]
    if not fitting:
        return None
    nodes = dice.choice(fitting)
    if dice.random() < 0.3:
        return PartSpec("replicas", Kind.ELASTIC, tier, 1, size, least=1, most=nodes)
    return PartSpec("train", Kind.GANG, tier, 1, nodes * size)


def _islands(state: State, pool: PoolKey) -> list[IslandKey]:
    fleet = state.of(Fleet)
    return [key for key in fleet.islands if key.sku == pool.sku and fleet.island_cluster[key.island] == pool.cluster]


# Quota.


def _of_quota(state: State, now: datetime, dice: random.Random) -> Happening | None:
    book, fleet = state.of(QuotaBook), state.of(Fleet)
    mine = [each for _, each in sorted(book.requests.items()) if each.state is RequestState.OPEN and _is_mine(each)]
    old = [each for each in mine if now - each.asked_at >= REQUEST_OPEN_FOR]
    if old and (len(mine) >= REQUESTS_OPEN_MAX or dice.random() < 0.5):
        return Withdrawn(old[0].id, old[0].team, old[0].by)
    if len(mine) >= REQUESTS_OPEN_MAX:
        return None
    pools = [pool for pool in sorted(book.pool_teams) if pool in fleet.pools and book.pool_teams[pool]]
    if not pools:
        return None
    pool = dice.choice(pools)
    asked = QuotaAsked(
        team=dice.choice(sorted(book.pool_teams[pool])),
        sku=pool.sku,
        gpus=dice.choice((2, 4, 8)) * fleet.pools[pool].gpus_per_node,
        cluster=pool.cluster,
        ends=now + timedelta(hours=dice.randint(*REQUEST_HOURS)),
        reason=f"{PREFIX}{dice.choice(GANG_TOPICS)} should be over today",
    )
    return Requested(asked, dice.choice(OWNERS))


def _is_mine(request: Request) -> bool:
    return request.reason.startswith(PREFIX)
