"""Why a workload can't start now, in short: the lasting cause, the number that is missing, and where it comes closest.

The long answer, step by step, is `why`'s; both look at the same numbers. Pure, within a turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from plimsoll.fleet.model import Count, IslandKey, PoolKey
from plimsoll.quota.fill import fill
from plimsoll.quota.model import QuotaKey
from plimsoll.workloads.model import Asked, PartSpec, RunsAs
from plimsoll.workloads.offers import guaranteed_pools
from plimsoll.workloads.reasons import Cause, Reason
from plimsoll.workloads.rights import flex_in, new_claims
from plimsoll.workloads.rooms import barred_nodes, rooms_for
from plimsoll.workloads.shape import missing_parts
from plimsoll.workloads.turn import Turn


class Refusal(NamedTuple):
    """A reason, and whether the workload has a right to what it waits for."""

    reason: Reason
    is_guaranteed: bool


class Nearest(NamedTuple):
    """The island where a part comes closest to running. All in GPUs."""

    missing: int
    pool: PoolKey
    island: str
    free: int
    callable: int
    """Flex in the island that would have to leave."""
    out: int
    """On nodes of the island that are not in service."""


def refusal_for(turn: Turn, asked: Asked) -> Refusal:
    """Why the parts of a workload that must start can't."""
    running = turn.work.workloads.get(asked.spec.name)
    parts = missing_parts(asked.spec, running)
    pools = turn.floor.pools_in(asked.spec.where)
    if running is not None:
        pools = tuple(pool for pool in pools if pool == (running.cluster, running.parts[0].sku))
    part = max(parts, key=lambda each: (each.gpus, each.name))
    if not pools:
        return Refusal(Reason(Cause.NO_SUCH_ROOM, part.gpus, part.gpus), False)
    inside = guaranteed_pools(turn, asked, parts, pools)
    if inside:
        return Refusal(_of_guarantee(turn, asked, parts, part, inside), True)
    return Refusal(_of_flex(turn, asked, parts, part, pools), False)


def _of_guarantee(
    turn: Turn, asked: Asked, parts: Sequence[PartSpec], part: PartSpec, pools: Sequence[PoolKey]
) -> Reason:
    """It has a right to the room, and even with all flex gone the room is not there."""
    found = (nearest_islands(turn, asked, parts, part, pool)[0] for pool in pools)
    nearest = min(found, key=lambda near: (_is_too_small(turn, near, part), near))
    reason = Reason(Cause.NODES_UNHEALTHY, part.gpus, max(0, nearest.missing), *nearest.pool, nearest.island)
    if nearest.missing <= 0:  # the largest part has its room, and another one has not
        return _because(reason, Cause.ISLAND_FRAGMENTED, 0)
    if (kept := _kept_for_others(turn, asked, part, pools)) is not None:
        return kept
    if asked.spec.hours and any(barred_nodes(turn, asked, pool) for pool in pools):
        ahead = barred_nodes(turn, asked, nearest.pool).get(nearest.island, 0)
        if ahead >= nearest.missing:
            return _because(reason, Cause.PLANNED_AHEAD)
    if nearest.out >= nearest.missing:
        return reason
    islands = [near for pool in pools for near in nearest_islands(turn, asked, parts, part, pool)]
    if sum(near.free + near.callable for near in islands if near.pool == nearest.pool) >= part.gpus:
        return _because(reason, Cause.ISLAND_FRAGMENTED)
    broken = [near for near in islands if near.out >= near.missing and not _is_too_small(turn, near, part)]
    if not broken:
        return _because(reason, Cause.OVER_PROMISED)
    near = min(broken)  # elsewhere the nodes that are out would be enough
    return Reason(Cause.NODES_UNHEALTHY, part.gpus, near.missing, *near.pool, near.island)


def _kept_for_others(turn: Turn, asked: Asked, part: PartSpec, pools: Sequence[PoolKey]) -> Reason | None:
    """It would fit, were an island not kept for a gang that comes first."""
    for pool in pools:
        for name in turn.work.reservations.get(pool, ()):
            told = turn.work.waits[name]
            free = turn.floor.free.get(IslandKey(told.reason.island, pool.sku), 0)
            if name != asked.spec.name and told.is_guaranteed and free >= part.gpus:
                missing = min(part.gpus, told.reason.gpus)
                return Reason(Cause.RESERVED, part.gpus, missing, *pool, told.reason.island)
    return None


def _of_flex(turn: Turn, asked: Asked, parts: Sequence[PartSpec], part: PartSpec, pools: Sequence[PoolKey]) -> Reason:
    """It is beyond the guarantee, and there is no flex for it either."""
    if asked.spec.runs_as is RunsAs.GUARANTEED:
        return _beyond_guarantee(turn, asked, parts, pools)
    best, free, island = _most_free(turn, part, pools)
    islands = turn.floor.by_pool.of(best)
    missing = max(0, part.gpus - max(0, free))
    cause = Cause.FLEX_TAKEN
    if asked.spec.runs_as is not RunsAs.FLEX:
        guaranteed = [pool for pool in turn.book.guaranteed_pools.get(asked.spec.team, ()) if pool in pools]
        cause = Cause.OVER_GUARANTEE if guaranteed else Cause.NO_GUARANTEE
        if any(_fits_without_holds(turn, asked, parts, pool) for pool in guaranteed):
            cause = Cause.TEAM_HELD
    elif sum(max(0, each) for each, _ in islands) >= part.gpus and part.is_gang:
        cause = Cause.ISLAND_FRAGMENTED
    rooms = rooms_for(turn, asked, best, is_guaranteed=False)
    if not missing and rooms and rooms[-1][0] < part.gpus:
        ahead = asked.spec.hours and barred_nodes(turn, asked, best)
        cause, missing = (Cause.PLANNED_AHEAD if ahead else Cause.RESERVED), part.gpus - max(0, rooms[-1][0])
    return Reason(cause, part.gpus, missing, *best, island)


def _beyond_guarantee(turn: Turn, asked: Asked, parts: Sequence[PartSpec], pools: Sequence[PoolKey]) -> Reason:
    """It asks for nothing but its guarantee, and that is not enough: no room would help, so none is named."""
    team, need = asked.spec.team, sum(part.gpus_least for part in parts)
    mine = [pool for pool in turn.book.guaranteed_pools.get(team, ()) if pool in pools]
    if not mine:
        return Reason(Cause.NO_GUARANTEE, need, need, *max(pools))
    left = {pool: _left_of_guarantee(turn, asked, parts, pool) for pool in mine}
    best = max(mine, key=lambda pool: (left[pool], pool))
    is_held = any(_fits_without_holds(turn, asked, parts, pool) for pool in mine)
    cause = Cause.TEAM_HELD if is_held else Cause.OVER_GUARANTEE
    return Reason(cause, need, max(0, need - left[best]), *best)


def _left_of_guarantee(turn: Turn, asked: Asked, parts: Sequence[PartSpec], pool: PoolKey) -> int:
    """What of the team's guarantee its work that comes first leaves to these parts, at most."""
    key = QuotaKey(asked.spec.team, *pool)
    order = min(
        new_claims(asked.spec, parts, submitted=asked.submitted, gpus={part.name: 0 for part in parts}),
        key=lambda claim: claim.order,
    ).order
    claims = [claim for claim in turn.book.claims.get(key, ()) if claim.order < order and claim.work != asked.spec.name]
    guaranteed = turn.book.guaranteed.get(key, 0)
    kept = sum(claim.reserve for claim in claims)
    return max(0, guaranteed - sum(fill(claims, guaranteed)) - kept)


def _most_free(turn: Turn, part: PartSpec, pools: Sequence[PoolKey]) -> tuple[PoolKey, int, str]:
    """The island with the most free GPUs among those that could take the part if they were empty; only where there is
    none, among all: who waits for an island must not wait for one that is too small.
    """
    found: list[tuple[bool, int, PoolKey, str]] = []
    for pool in pools:
        for free, island in reversed(turn.floor.by_pool.of(pool)):
            is_large = _count(turn, pool, island).gpus >= part.gpus
            found.append((is_large, free, pool, island))
            if is_large:
                break
    if not found:
        return max(pools), 0, ""
    _, free, pool, island = max(found)
    return pool, free, island


def _is_too_small(turn: Turn, near: Nearest, part: PartSpec) -> bool:
    return _count(turn, near.pool, near.island).gpus < part.gpus


def _count(turn: Turn, pool: PoolKey, island: str) -> Count:
    """What is installed in an island; nothing where all of it was retired."""
    return turn.fleet.islands.get(IslandKey(island, pool.sku)) or Count(0, 0, 0, 0)


def _fits_without_holds(turn: Turn, asked: Asked, parts: Sequence[PartSpec], pool: PoolKey) -> bool:
    """Whether it would lie inside the guarantee if the team kept nothing for somebody else."""
    key = QuotaKey(asked.spec.team, *pool)
    if key not in turn.work.team_holds:
        return False
    least = {part.name: part.gpus_least for part in parts}
    new = new_claims(asked.spec, parts, submitted=asked.submitted, gpus=least)
    kept = [claim for claim in turn.book.claims.get(key, ()) if not claim.reserve]
    merged = sorted((*kept, *new), key=lambda claim: claim.order)
    inside = fill(merged, turn.book.guaranteed.get(key, 0))
    return all(
        taken >= claim.gpus for claim, taken in zip(merged, inside, strict=True) if claim.work == asked.spec.name
    )


def nearest_islands(
    turn: Turn, asked: Asked, parts: Sequence[PartSpec], part: PartSpec, pool: PoolKey
) -> list[Nearest]:
    """How close each island of a pool is to a part that has a right to it, the closest first; those that could not
    take it even if they were empty come last.
    """
    least = {each.name: each.gpus_least for each in parts}
    claims = new_claims(asked.spec, parts, submitted=asked.submitted, gpus=least)
    flex: dict[str, int] = {}
    for held in flex_in(turn, pool, team=asked.spec.team, claims=claims, holder=asked.spec.owner):
        if held.work != asked.spec.name and held.work not in turn.work.leaving:
            for island, gpus in held.islands.items():
                flex[island] = flex.get(island, 0) + min(gpus, held.flex)
    found = []
    for free, island in rooms_for(turn, asked, pool, is_guaranteed=True):
        count = _count(turn, pool, island)
        out = count.gpus - count.gpus_in_service
        called = flex.get(island, 0)
        # Below 0 more is held or kept than works: that is missing as well.
        found.append(Nearest(part.gpus - free - called, pool, island, max(0, free), called, out))
    return sorted(found, key=lambda near: (_is_too_small(turn, near, part), near))


def _because(reason: Reason, cause: Cause, missing: int | None = None) -> Reason:
    missing = reason.missing if missing is None else missing
    return Reason(cause, reason.gpus, missing, reason.cluster, reason.sku, reason.island, reason.detail)
