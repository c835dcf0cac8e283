"""Growth: elastic parts that run take more replicas as there is room. Pure, within a turn.

Inside a guarantee first, calling flex back where there is no room; what is free beyond that goes to the team with the
lowest flex held for what it is guaranteed. Inside a team tier, rank, submit time; between teams tier never counts.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from fractions import Fraction
from typing import NamedTuple

import msgspec

from plimsoll.fleet.model import PoolKey
from plimsoll.quota.model import QuotaKey
from plimsoll.workloads.act import place, take_up
from plimsoll.workloads.model import Asked, Because, PartSpec, Place, RunsAs, replicas
from plimsoll.workloads.offers import Offer, node_gpus
from plimsoll.workloads.preempt import Preemption
from plimsoll.workloads.rights import flex_held, inside_new, new_claims
from plimsoll.workloads.rooms import Plan, rooms_for
from plimsoll.workloads.shape import spares_missing
from plimsoll.workloads.turn import Turn


class Grower(NamedTuple):
    """An elastic part that could use `wanted` more replicas."""

    asked: Asked
    part: PartSpec
    wanted: int


def grow_elastic(turn: Turn, *, grace: timedelta, pools: Collection[PoolKey] | None = None) -> bool:
    """Elastic parts take what is free; inside a guarantee they call flex back for it. Whether anybody left for that."""
    has_left = False
    for pool in sorted(pools if pools is not None else turn.work.growing.listed()):
        for *_, name, part in list(turn.work.growing.of(pool)):
            has_left |= _grow_inside(turn, pool, name, part, grace=grace)
            _refill_spares(turn, pool, name, part)
        _grow_as_flex(turn, pool)
    return has_left


def _grower(turn: Turn, pool: PoolKey, name: str, part_name: str) -> Grower | None:
    """None where the part has all it wants, or stopped, or waits for what was called back for it."""
    if (pool, part_name) not in _growing_parts(turn, name) or name in turn.work.bookings:
        return None
    asked, running = turn.work.asked[name], turn.work.workloads[name]
    part = asked.spec.part(part_name)
    if part.is_gang:
        return None
    has = running.running(part_name)
    return Grower(asked, part, part.most - (replicas(part, has.blocks) if has is not None else 0))


def _refill_spares(turn: Turn, pool: PoolKey, name: str, part_name: str) -> None:
    """A gang that used its spares, or started without, takes free nodes of its island for them."""
    if (pool, part_name) not in _growing_parts(turn, name) or name in turn.work.bookings:
        return
    asked, running = turn.work.asked[name], turn.work.workloads[name]
    part, has = asked.spec.part(part_name), running.running(part_name)
    if not part.is_gang or has is None:
        return
    size, island = node_gpus(turn, pool), has.blocks[0].island
    is_guaranteed = bool(turn.book.guaranteed.get(QuotaKey(asked.spec.team, *pool)))
    free = next((free for free, each in rooms_for(turn, asked, pool, is_guaranteed=is_guaranteed) if each == island), 0)
    count = min(spares_missing(part, running), free // size)
    if count > 0:
        where = Place(part_name, island, count * size, is_spare=True)
        place(turn, asked, pool, [where], Because.GROWN)


def _growing_parts(turn: Turn, name: str) -> list[tuple[PoolKey, str]]:
    return [(pool, item[-1]) for pool, item in turn.work.growers.get(name, ())]


def _grow_inside(turn: Turn, pool: PoolKey, name: str, part_name: str, *, grace: timedelta) -> bool:
    """Whether flex left for it."""
    grower = _grower(turn, pool, name, part_name)
    if grower is None or grower.asked.spec.runs_as is RunsAs.FLEX:
        return False
    asked, part, wanted = grower
    key = QuotaKey(asked.spec.team, *pool)
    if not turn.book.guaranteed.get(key):
        return False
    claims = new_claims(asked.spec, [part], submitted=asked.submitted, gpus={part.name: wanted * part.gpus})
    count = inside_new(turn, key, claims, holder=asked.spec.owner)[part.name] // part.gpus
    if not count:
        return False
    plan = Plan(rooms_for(turn, asked, pool, is_guaranteed=True), node_gpus(turn, pool))
    found = plan.put_replicas(part, count)
    if plan.places:
        place(turn, asked, pool, plan.places, Because.GROWN)
    if found == count or pool not in turn.book.lines:
        return False
    return _call_back(turn, asked, pool, part, count - found, grace=grace)


def _call_back(turn: Turn, asked: Asked, pool: PoolKey, part: PartSpec, count: int, *, grace: timedelta) -> bool:
    """Replicas inside the guarantee in the place of flex, as many as can be had."""
    part = msgspec.structs.replace(part, least=count)
    plan = Plan(rooms_for(turn, asked, pool, is_guaranteed=True), node_gpus(turn, pool))
    preemption = Preemption(turn, asked, [part], pool)
    preemption.make_room(plan, part, count)
    if not preemption.victims:
        return False
    offer = Offer(pool, True, tuple(plan.places), tuple(preemption.victims), preemption.price)
    take_up(turn, asked, offer, grace=grace, because=Because.GROWN)
    return not grace


def _grow_as_flex(turn: Turn, pool: PoolKey) -> None:
    """What is free, by the teams' flex for their guarantee. It is dealt out by number, and then placed."""
    waiting: dict[str, list[Grower]] = {}
    for *_, name, part_name in turn.work.growing.of(pool):
        grower = _grower(turn, pool, name, part_name)
        if grower is not None and grower.asked.spec.runs_as is not RunsAs.GUARANTEED:
            waiting.setdefault(grower.asked.spec.team, []).append(grower)
    if not waiting or turn.floor.largest(pool) < min(each.part.gpus for mine in waiting.values() for each in mine):
        return
    for grower, count in _deal(turn, pool, waiting):
        plan = Plan(rooms_for(turn, grower.asked, pool, is_guaranteed=False), node_gpus(turn, pool))
        plan.put_replicas(grower.part, count)
        if plan.places:
            place(turn, grower.asked, pool, plan.places, Because.GROWN)


def _deal(turn: Turn, pool: PoolKey, waiting: dict[str, list[Grower]]) -> list[tuple[Grower, int]]:
    """How many replicas each part gets: of several teams the one with the lowest flex for its guarantee gets the next,
    until nothing is free.
    """
    if len(waiting) == 1:
        return [(grower, grower.wanted) for mine in waiting.values() for grower in mine]
    plan = Plan(turn.floor.by_pool.of(pool), node_gpus(turn, pool))
    guaranteed = {team: turn.book.guaranteed.get(QuotaKey(team, *pool), 0) for team in waiting}
    flex = {team: flex_held(turn, QuotaKey(team, *pool)) for team in waiting}
    dealt: dict[tuple[str, str], tuple[Grower, int]] = {}
    queues = {team: list(reversed(mine)) for team, mine in waiting.items()}
    while queues:
        team = min(queues, key=lambda each: (*_rank(flex[each], guaranteed[each]), _first_asked(waiting[each]), each))
        grower = queues[team][-1]
        who = grower.asked.spec.name, grower.part.name
        count = dealt[who][1] if who in dealt else 0
        if count < grower.wanted and plan.put_replicas(grower.part, 1):
            dealt[who] = grower, count + 1
            flex[team] += grower.part.gpus
            continue
        queues[team].pop()
        if not queues[team]:
            del queues[team]
    return list(dealt.values())


def _rank(flex: int, guaranteed: int) -> tuple[bool, Fraction]:
    """A team without a guarantee comes after all others."""
    return not guaranteed, Fraction(flex, guaranteed or 1)


def _first_asked(growers: list[Grower]) -> int:
    return min(grower.asked.submitted for grower in growers)
