"""What a workload can be offered: where it can start, as what, and who must give way for it. Pure.

Inside its guarantee before flex, in free room before calling anything back; never by taking what lies inside another
team's guarantee (rule 3).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from plimsoll.fleet.model import PoolKey
from plimsoll.health.fold import Health
from plimsoll.quota.model import QuotaKey
from plimsoll.workloads.model import Asked, PartSpec, Place, RunsAs, Victim
from plimsoll.workloads.preempt import Preemption
from plimsoll.workloads.rights import inside_new, new_claims
from plimsoll.workloads.rooms import Plan, rooms_for
from plimsoll.workloads.shape import node_size
from plimsoll.workloads.turn import Turn

POOLS_FEW = 4
"""In so many pools each is looked at."""
ISLANDS_WALKED_MAX = 200
"""Islands with room that are passed by, before each pool is looked at after all."""
OFFERS_MAX = 8


class Offer(NamedTuple):
    """Where parts can start. `is_guaranteed`: all that they must have lies inside the team's guarantee."""

    pool: PoolKey
    is_guaranteed: bool
    places: tuple[Place, ...]
    victims: tuple[Victim, ...]
    price: tuple[int, ...]
    """Among offers of a kind the lowest is taken."""


def best_offer(
    turn: Turn, asked: Asked, parts: Sequence[PartSpec], *, cluster: str = "", sku: str = "", wins_back: bool = True
) -> Offer | None:
    """The best place for parts that must start together; in the pool where others of them run already. `wins_back`:
    flex may take the place of other flex.
    """
    pools = turn.floor.pools_in(asked.spec.where)
    if cluster:
        pools = tuple(pool for pool in pools if pool.cluster == cluster and sku in ("", pool.sku))
    is_one_gang = len(parts) == 1 and parts[0].is_gang and not parts[0].spare_nodes
    if is_one_gang and len(pools) > POOLS_FEW and (found := _tightest(turn, asked, parts, pools, is_guaranteed=True)):
        return found
    inside = guaranteed_pools(turn, asked, parts, pools)
    found = _first(turn, asked, parts, _roomy(turn, parts, inside), is_guaranteed=True)
    if found is None and inside:
        found = _lowest(_calling_back(turn, asked, parts, pool, is_guaranteed=True) for pool in inside)
    if found is not None or asked.spec.runs_as is RunsAs.GUARANTEED:
        return found
    others = [pool for pool in pools if pool not in inside] if inside else pools
    if is_one_gang and len(others) > POOLS_FEW:
        found = _tightest(turn, asked, parts, others, is_guaranteed=False)
    if found is None:
        found = _first(turn, asked, parts, _roomy(turn, parts, others), is_guaranteed=False)
    if found is None and wins_back:
        # Where there is free room that is kept for a gang before it, nobody is stopped to spare that: it waits as well.
        largest = max(part.gpus for part in parts)
        mine = [
            pool for pool in others if _has_part_in(turn, asked.spec.team, pool) and turn.floor.largest(pool) < largest
        ]
        found = _lowest(_calling_back(turn, asked, parts, pool, is_guaranteed=False) for pool in mine)
    return found


def _tightest(
    turn: Turn, asked: Asked, parts: Sequence[PartSpec], pools: Sequence[PoolKey], *, is_guaranteed: bool
) -> Offer | None:
    """One gang among many pools: the tightest island of all of them, found without looking at each pool."""
    if asked.spec.hours and turn.state.of(Health).ahead:
        return None  # what of an island can be used depends on its nodes
    [part] = parts
    wanted, barred = frozenset(pools), set[PoolKey]()
    best: tuple[int, PoolKey] | None = None
    for sku in dict.fromkeys(pool.sku for pool in pools):
        islands = turn.floor.by_sku.of(sku)
        start = bisect_left(islands, (part.gpus,))
        for free, island in islands[start : start + ISLANDS_WALKED_MAX]:
            pool = PoolKey(turn.fleet.island_cluster[island], sku)
            if pool not in wanted or pool in barred:
                continue
            if turn.work.reservations.get(pool) or (
                is_guaranteed and not guaranteed_pools(turn, asked, parts, (pool,), only=pool)
            ):
                barred.add(pool)
                continue
            if best is None or (free, pool) < best:
                best = free, pool
            break
    if best is None:
        return None
    return _in_free_room(turn, asked, parts, best[1], is_guaranteed=is_guaranteed)


def _first(
    turn: Turn, asked: Asked, parts: Sequence[PartSpec], pools: Iterable[PoolKey], *, is_guaranteed: bool
) -> Offer | None:
    """The best of the first few that take the parts, the pools with the tightest room first. Where all that is wanted
    fits, the first it is.
    """
    wanted = sum(part.gpus * part.most for part in parts)
    offers: list[Offer] = []
    for pool in pools:
        offer = _in_free_room(turn, asked, parts, pool, is_guaranteed=is_guaranteed)
        if offer is not None:
            if sum(place.gpus for place in offer.places if not place.is_spare) >= wanted:
                return offer
            offers.append(offer)
            if len(offers) == OFFERS_MAX:
                break
    return _lowest(offers)


def guaranteed_pools(
    turn: Turn, asked: Asked, parts: Sequence[PartSpec], pools: Collection[PoolKey], *, only: PoolKey | None = None
) -> list[PoolKey]:
    """The pools in which all that the parts must have would lie inside the team's guarantee; `only` looks at one."""
    if asked.spec.runs_as is RunsAs.FLEX:
        return []
    team = asked.spec.team
    least = {part.name: part.gpus_least for part in parts}
    claims = new_claims(asked.spec, parts, submitted=asked.submitted, gpus=least)
    wanted = sum(least.values())
    found = []
    for pool in turn.book.guaranteed_pools.get(team, ()) if only is None else (only,):
        key = QuotaKey(team, *pool)
        if turn.book.guaranteed.get(key, 0) >= wanted and pool in pools:
            inside = inside_new(turn, key, claims, holder=asked.spec.owner)
            if all(inside[part.name] >= least[part.name] for part in parts):
                found.append(pool)
    return found


def _roomy(turn: Turn, parts: Iterable[PartSpec], pools: Sequence[PoolKey]) -> list[PoolKey]:
    """The pools with an island that has room for the largest piece, the tightest such island first."""
    largest = max(part.gpus for part in parts)
    found: dict[PoolKey, int] = {}
    for pool in pools:
        islands = turn.floor.tightest(pool, largest)
        if islands:
            found[pool] = islands[0][0]
    return sorted(found, key=lambda pool: (found[pool], pool))


def _has_part_in(turn: Turn, team: str, pool: PoolKey) -> bool:
    key = QuotaKey(team, *pool)
    return key in turn.book.guaranteed or key in turn.book.claims


def _lowest(offers: Iterable[Offer | None]) -> Offer | None:
    return min((offer for offer in offers if offer is not None), key=lambda each: (each.price, each.pool), default=None)


def _in_free_room(
    turn: Turn, asked: Asked, parts: Sequence[PartSpec], pool: PoolKey, *, is_guaranteed: bool
) -> Offer | None:
    plan = Plan(rooms_for(turn, asked, pool, is_guaranteed=is_guaranteed), node_gpus(turn, pool))
    if any(plan.fit(part) for part in _largest_first(parts)):
        return None
    if asked.spec.runs_as is not RunsAs.GUARANTEED:
        grow(plan, parts)
    if not plan.places:
        return None
    extra = sum(place.gpus for place in plan.places)
    return Offer(pool, is_guaranteed, tuple(plan.places), (), (plan.leftover, -extra))


def _calling_back(
    turn: Turn, asked: Asked, parts: Sequence[PartSpec], pool: PoolKey, *, is_guaranteed: bool
) -> Offer | None:
    plan = Plan(rooms_for(turn, asked, pool, is_guaranteed=is_guaranteed), node_gpus(turn, pool))
    preemption = Preemption(turn, asked, parts, pool)
    for part in _largest_first(parts):
        if not preemption.make_room(plan, part, plan.fit(part)):
            return None
    if not plan.places:
        return None
    return Offer(pool, is_guaranteed, tuple(plan.places), tuple(preemption.victims), preemption.price)


def grow(plan: Plan, parts: Iterable[PartSpec], has: Mapping[str, int] | None = None) -> None:
    """As many more replicas as are wanted and find free room."""
    for part in parts:
        if not part.is_gang:
            now = (has or {}).get(part.name, part.least)
            plan.put_replicas(part, part.most - now)


def _largest_first(parts: Iterable[PartSpec]) -> list[PartSpec]:
    """Gangs before replicas, the largest first: what is hard to place chooses first."""
    return sorted(parts, key=lambda part: (not part.is_gang, -part.gpus, part.rank))


def node_gpus(turn: Turn, pool: PoolKey) -> int:
    return node_size(turn.fleet, *pool)
