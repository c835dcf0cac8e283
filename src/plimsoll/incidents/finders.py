"""What is wrong right now, of the kinds that health, quota and workloads can tell. Pure.

A trouble is named by what it is about, so that it is the same one whenever somebody looks. Looking is cheap: only of a
pool that has just become short is it worked out when that began and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Phase, PoolKey, Service
from plimsoll.health.fold import FLEET_SCOPE, Health
from plimsoll.health.model import EMPTY_TIMELINE, Mark, from_microseconds, is_planned, to_microseconds
from plimsoll.health.policy import default_policy
from plimsoll.health.policy import parse_policy as read_health_policy
from plimsoll.health.silence import fallen_silent
from plimsoll.incidents.fold import Incidents, breaker_about
from plimsoll.incidents.model import Look, Trouble
from plimsoll.incidents.reasons import Kind
from plimsoll.quota.fold import POLICY, QuotaBook
from plimsoll.quota.policy import DEFAULT_POLICY
from plimsoll.quota.policy import parse_policy as read_quota_policy
from plimsoll.state.state import State
from plimsoll.times import show_second
from plimsoll.words import counted, rough_span
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.reasons import Cause

REASONS_SHOWN = 3


def short_pools(look: Look) -> Iterator[Trouble]:
    """Pools of which fewer GPUs work than are guaranteed."""
    state = look.state
    short = shortfalls(state)
    fresh = {pool for pool in short if not _is_open(state, pool.stream)}
    out = _out_by_pool(state, fresh) if fresh else {}
    for pool, (guaranteed, healthy) in sorted(short.items()):
        missing = guaranteed - healthy
        since, why = look.now, ""
        if pool in fresh:
            since = _short_since(state, pool, missing, out.get(pool, []), look.now)
            why = _why_out(out.get(pool, []))
        yield Trouble(
            Kind.BROKEN_PROMISE,
            pool.stream,
            f"{pool.cluster} {pool.sku}: fewer GPUs work than are guaranteed",
            since,
            missing,
            "gpus",
            f"{guaranteed:,} guaranteed, {healthy:,} healthy{why}",
            clusters=(pool.cluster,),
            teams=tuple(sorted(state.of(QuotaBook).guaranteed_in(pool))),
            next_step=f"plimsoll quota show {pool.cluster}",
        )


def shortfalls(state: State) -> dict[PoolKey, tuple[int, int]]:
    """Pools whose promise is broken: what is guaranteed of them, and what is healthy."""
    fleet, book = state.of(Fleet), state.of(QuotaBook)
    found = {}
    for pool in book.lines:
        guaranteed = sum(book.guaranteed_in(pool).values())
        count, cluster = fleet.pools.get(pool), fleet.clusters.get(pool.cluster)
        is_there = count is not None and cluster is not None and cluster.phase is Phase.PRODUCTION
        healthy = count.gpus_in_service if count is not None and is_there else 0
        if healthy < guaranteed:
            found[pool] = guaranteed, healthy
    return found


def _is_open(state: State, about: str) -> bool:
    tables = state.of(Incidents)
    return tables.newest.get(about, "") in tables.open_found


def _out_by_pool(state: State, pools: set[PoolKey]) -> dict[PoolKey, list[tuple[datetime | None, Node]]]:
    """The nodes of these pools that are out, each with when it left; None where nobody knows."""
    found: dict[PoolKey, list[tuple[datetime | None, Node]]] = {}
    health = state.of(Health)
    for node in state.of(Fleet).nodes.values():
        if node.service is not Service.IN_SERVICE and (pool := PoolKey(node.cluster, node.sku)) in pools:
            found.setdefault(pool, []).append((_left_at(health, node), node))
    return found


def _left_at(health: Health, node: Node) -> datetime | None:
    """When a node that is out of service left it."""
    timeline = health.timelines.get(node.id, EMPTY_TIMELINE)
    left = None
    for moment, number in reversed(list(timeline.entries())):
        if health.marks[number].service is Service.IN_SERVICE:
            break
        left = moment
    return node.since if left is None else from_microseconds(left)


def _short_since(
    state: State, pool: PoolKey, missing: int, out: list[tuple[datetime | None, Node]], now: datetime
) -> datetime:
    """Since when a pool is short: the newest exits are undone until it no longer is. Not before its last promise."""
    promised = state.of(QuotaBook).promised.get(pool, ())
    floor = promised[-1].since if promised else now
    since = floor
    for left, node in sorted(out, key=lambda each: (each[0] or floor, each[1].id), reverse=True):
        since = left or floor
        missing -= node.gpus
        if missing <= 0:
            break
    return min(max(since, floor), now)


def _why_out(out: list[tuple[datetime | None, Node]]) -> str:
    """What keeps the nodes of a pool out, the most first."""
    nodes = [node for _, node in out if node.service is not Service.RETIRED]
    if not nodes:
        return ""
    planned = sum(is_planned(Mark(node.service, node.reason)) for node in nodes)
    reasons = Counter(node.reason or str(node.service) for node in nodes)
    shown = sorted(reasons.items(), key=lambda each: (-each[1], each[0]))[:REASONS_SHOWN]
    words = ", ".join(f"{reason[:60]} ({count})" for reason, count in shown)
    return f"; {counted(len(nodes), 'node')} out, {planned} of them planned: {words}"


def late_waits(look: Look) -> Iterator[Trouble]:
    """Work that fits its team's guarantee and waits beyond its grace. In a pool that is short that is told already,
    and where only no island has it all no promise is broken.
    """
    state = look.state
    tables = state.of(Workloads)
    late: dict[tuple[str, PoolKey], list[tuple[int, str, int]]] = {}
    grace = _grace_us(state)
    newest = to_microseconds(look.now) - grace
    for name, wait in tables.waits.items():
        reason, begin = wait.reason, tables.queued_since.get(name)
        if not wait.is_guaranteed or begin is None or begin >= newest or not reason.cluster:
            continue
        if reason.cause is not Cause.ISLAND_FRAGMENTED:
            key = tables.asked[name].spec.team, PoolKey(reason.cluster, reason.sku)
            late.setdefault(key, []).append((begin + grace, name, reason.gpus))
    if not late:
        return
    short = shortfalls(state)
    for (team, pool), waits in sorted(late.items()):
        if pool in short:
            continue
        waits.sort()
        since, first, _ = waits[0]
        more = f" and {len(waits) - 1} more" if len(waits) > 1 else ""
        yield Trouble(
            Kind.BROKEN_PROMISE,
            f"team/{team}/{pool.cluster}/{pool.sku}",
            f"{team} waits for what it is guaranteed of {pool.cluster} {pool.sku}",
            from_microseconds(since),
            sum(gpus for _, _, gpus in waits),
            "gpus",
            f"{first}{more} beyond the grace of {rough_span(timedelta(microseconds=grace))}",
            clusters=(pool.cluster,),
            teams=(team,),
            next_step=f"plimsoll why {first}",
        )


def _grace_us(state: State) -> int:
    text = state.of(QuotaBook).policies.get(POLICY)
    grace = DEFAULT_POLICY.flex_grace if text is None else _read_grace(text)
    return grace // timedelta(microseconds=1)


@lru_cache(maxsize=4)
def _read_grace(text: str) -> timedelta:
    """Reading a policy takes longer than all the rest of a look."""
    return read_quota_policy(text, source="the policy in force").flex_grace


@lru_cache(maxsize=4)
def _read_silence(text: str | None) -> timedelta:
    return (default_policy() if text is None else read_health_policy(text, source="the policy in force")).silence


def tripped_breakers(look: Look) -> Iterator[Trouble]:
    """Breakers that hold automation back."""
    for scope, tripped in sorted(look.state.of(Health).breakers.items()):
        where = scope.partition("/")[2]
        yield Trouble(
            Kind.BREAKER,
            breaker_about(scope),
            f"the breaker of {where or 'the fleet'} has tripped",
            min(tripped.since, look.now),
            len(tripped.nodes),
            "nodes",
            f"{counted(tripped.taken, 'node')} {'was' if tripped.taken == 1 else 'were'} taken out, at most"
            f" {tripped.limit:,} may be; {counted(len(tripped.nodes), 'bad one')}"
            f" {'is' if len(tripped.nodes) == 1 else 'are'} held back in service",
            clusters=() if scope == FLEET_SCOPE else (where,),
            next_step=f"plimsoll health breaker {scope} --go-on (or --dismiss) --reason TEXT",
        )


def silent_feeds(look: Look) -> Iterator[Trouble]:
    """Feeds that have said nothing for too long, recorded as silent or not yet."""
    health, nodes = look.state.of(Health), look.state.of(Fleet).nodes
    silence = _read_silence(health.policies.get("policy"))
    since = {name: feed.since for name, feed in health.feeds.items() if feed.is_silent}
    fallen = fallen_silent(health, look.heard, silence=silence, now=look.now)
    since |= {name: at + silence for name, at in fallen.items()}
    if not since:
        return
    covered: Counter[str] = Counter()
    clusters: dict[str, set[str]] = {}
    for node, feeds in health.covers.items():
        for feed in feeds:
            if feed in since:
                covered[feed] += 1
                if node in nodes:
                    clusters.setdefault(feed, set()).add(nodes[node].cluster)
    for feed, at in sorted(since.items()):
        last = look.heard.get(feed)
        yield Trouble(
            Kind.SILENT_FEED,
            f"feed/{feed}",
            f"feed {feed} is silent",
            min(at, look.now),
            covered[feed],
            "nodes",
            f"the health of {counted(covered[feed], 'node')} is unknown"
            + (f"; last heard at {show_second(last)}" if last is not None else ""),
            clusters=tuple(sorted(clusters.get(feed, ()))),
            next_step="plimsoll health show",
        )


FINDERS = (short_pools, late_waits, tripped_breakers, silent_feeds)
