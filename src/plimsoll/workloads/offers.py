"""What a workload can be offered: where it can start, as what, and who must give way for it. Pure.

Inside its guarantee before flex, in free room before calling anything back; never by taking what lies inside another
team's guarantee (rule 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from plimsoll.fleet.model import PoolKey
from plimsoll.quota.model import QuotaKey
from plimsoll.workloads.model import Asked, PartSpec, Place, RunsAs, Victim
from plimsoll.workloads.preempt import Preemption
from plimsoll.workloads.rights import inside_new, new_claims
from plimsoll.workloads.rooms import Plan, rooms_for
from plimsoll.workloads.turn import Turn


class Offer(NamedTuple):
    """Where parts can start. `is_guaranteed`: all that they must have lies inside the team's guarantee."""

    pool: PoolKey
    is_guaranteed: bool
    places: tuple[Place, ...]
    victims: tuple[Victim, ...]
    price: tuple[int, ...]
    """Among offers of a kind the lowest is taken."""


def best_offer(turn: Turn, asked: Asked, parts: Sequence[PartSpec], *, cluster: str = "") -> Offer | None:
    """The best place for parts that must start together; in one cluster where others of them run already."""
    pools = turn.floor.pools_in(asked.spec.where)
    if cluster:
        pools = tuple(pool for pool in pools if pool.cluster == cluster)
    inside = guaranteed_pools(turn, asked, parts, pools)
    found = _lowest(_in_free_room(turn, asked, parts, pool, is_guaranteed=True) for pool in inside)
    if found is None and inside:
        found = _lowest(_calling_back(turn, asked, parts, pool, is_guaranteed=True) for pool in inside)
    if found is not None or asked.spec.runs_as is RunsAs.GUARANTEED:
        return found
    others = [pool for pool in _roomy(turn, parts, pools) if pool not in inside]
    found = _lowest(_in_free_room(turn, asked, parts, pool, is_guaranteed=False) for pool in others)
    if found is None:
        mine = [pool for pool in pools if pool not in inside and _has_part_in(turn, asked.spec.team, pool)]
        found = _lowest(_calling_back(turn, asked, parts, pool, is_guaranteed=False) for pool in mine)
    return found


def guaranteed_pools(turn: Turn, asked: Asked, parts: Sequence[PartSpec], pools: Sequence[PoolKey]) -> list[PoolKey]:
    """The pools in which all that the parts must have would lie inside the team's guarantee."""
    if asked.spec.runs_as is RunsAs.FLEX:
        return []
    team = asked.spec.team
    least = {part.name: part.gpus_least for part in parts}
    claims = new_claims(asked.spec, parts, submitted=asked.submitted, gpus=least)
    wanted = sum(least.values())
    found = []
    for pool in turn.book.guaranteed_pools.get(team, ()):
        key = QuotaKey(team, *pool)
        if turn.book.guaranteed[key] >= wanted and pool in pools:
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
    return turn.fleet.pools[pool].gpus_per_node
