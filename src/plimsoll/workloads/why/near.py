"""Where work that waits comes closest to running, what stands in the way there, and where it stands in its guarantee.

The same rooms, claims and preemption are looked at as when it is placed, so that the two can't disagree. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from plimsoll.fleet.model import IslandKey, PoolKey
from plimsoll.quota.fill import fill
from plimsoll.quota.model import Kind, QuotaKey
from plimsoll.workloads.model import Asked, PartSpec, RunsAs
from plimsoll.workloads.offers import guaranteed_pools, node_gpus
from plimsoll.workloads.preempt import Preemption
from plimsoll.workloads.reasons import Cause
from plimsoll.workloads.rights import NOWHERE, Held, held_in, new_claims, part_spec, stuck_in, with_new
from plimsoll.workloads.rooms import Plan, barred_nodes, rooms_for
from plimsoll.workloads.shape import HOLD_PREFIX, missing_parts
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.victims import Option, fewest
from plimsoll.workloads.why.model import InWay, Named, Near, Position, Step, step
from plimsoll.workloads.why.outs import Out, back_text, by_reason

INSTALLED = "installed"
IN_WAY_SHOWN = 8
BEFORE_SHOWN = 10


class Closest(NamedTuple):
    """A pool and how much is missing in it, before anything is told of it."""

    missing: int
    pool: PoolKey
    island: str
    is_guaranteed: bool
    part: PartSpec
    gpus: int
    free: int
    callable: int
    own_places: Mapping[str, int]
    """What parts of the same work that find room take of the islands."""
    rooms: tuple[tuple[int, int, str], ...] = ()
    """For a gang: free and callable GPUs by island, the closest first; islands that are too small for it even if they
    were empty are left out. Free is below 0 where more is held than works.
    """

    def needs_in(self, island: str) -> int:
        """GPUs that a gang misses in one of its islands."""
        return next(max(1, self.gpus - free - called) for free, called, name in self.rooms if name == island)

    def at(self, island: str) -> Closest:
        """The same, for another of its islands."""
        free, called = next((max(0, free), called) for free, called, name in self.rooms if name == island)
        return self._replace(
            missing=max(1, self.gpus - free - called), island=island, free=free, callable=called
        )  # fmt: skip


def pools_for(turn: Turn, asked: Asked) -> tuple[PoolKey, ...]:
    """Where the work may run; where some of it runs already, only there."""
    running = turn.work.workloads.get(asked.spec.name)
    pools = turn.floor.pools_in(asked.spec.where)
    if running is None:
        return pools
    return tuple(pool for pool in pools if pool == (running.cluster, running.parts[0].sku))


def closest(turn: Turn, asked: Asked) -> list[Closest]:
    """For each pool where the work may run, where it comes closest; the closest first."""
    parts = missing_parts(asked.spec, turn.work.workloads.get(asked.spec.name))
    pools = pools_for(turn, asked)
    inside = guaranteed_pools(turn, asked, parts, pools)
    if inside and asked.spec.runs_as is RunsAs.GUARANTEED:
        pools = tuple(inside)  # whatever is free elsewhere, it may not run there
    found = [closest_in(turn, asked, parts, pool, is_guaranteed=pool in inside) for pool in pools]
    return sorted(found, key=lambda each: (each.missing, not each.is_guaranteed, -each.free, each.pool))


def closest_in(turn: Turn, asked: Asked, parts: Sequence[PartSpec], pool: PoolKey, *, is_guaranteed: bool) -> Closest:
    """How close the first part that finds no room comes to it in a pool; missing 0 where all find some."""
    rooms = rooms_for(turn, asked, pool, is_guaranteed=is_guaranteed)
    flex = _callable(turn, asked, parts, pool) if is_guaranteed else {}
    ordered = sorted(parts, key=lambda part: (not part.is_gang, -part.gpus, part.rank))
    largest = max((max(0, free) + flex.get(island, 0) for free, island in rooms), default=0)
    own: dict[str, int] = {}
    if ordered[0].gpus > largest:
        blocked = ordered[0]  # no search for victims is needed to see that
    else:
        plan = Plan(rooms, node_gpus(turn, pool))
        found = _blocked(turn, asked, ordered, pool, plan, is_guaranteed=is_guaranteed)
        if found is None:
            first = ordered[0]
            island = plan.places[0].island if plan.places else ""
            return Closest(0, pool, island, is_guaranteed, first, _needs(first), _needs(first), 0, {})
        blocked = found
        for place in plan.places:
            if place.part != blocked.name:
                own[place.island] = own.get(place.island, 0) + place.gpus
        rooms = [(free - own.get(island, 0), island) for free, island in rooms]
    gpus = _needs(blocked)
    if not blocked.is_gang:
        unit = blocked.gpus
        free = sum(max(0, free) // unit * unit for free, _ in rooms)
        called = sum((max(0, free) + flex.get(each, 0)) // unit * unit for free, each in rooms) - free
        return Closest(max(1, gpus - free - called), pool, "", is_guaranteed, blocked, gpus, free, called, own)
    offered = [(free, flex.get(island, 0), island) for free, island in rooms]
    offered = [each for each in offered if _installed(turn, pool, each[2]) >= gpus] or offered
    offered.sort(key=lambda each: (max(0, each[0]) + each[1], each[0], each[2]), reverse=True)
    close = Closest(gpus, pool, "", is_guaranteed, blocked, gpus, 0, 0, own, tuple(offered))
    return close.at(offered[0][2]) if offered else close


def _installed(turn: Turn, pool: PoolKey, island: str) -> int:
    count = turn.fleet.islands.get(IslandKey(island, pool.sku))
    return count.gpus if count is not None else 0


def close_now(turn: Turn, asked: Asked, pool: PoolKey) -> Closest:
    """How close work comes to running in one pool, on the what-if as it is."""
    parts = missing_parts(asked.spec, turn.work.workloads.get(asked.spec.name))
    is_guaranteed = pool in guaranteed_pools(turn, asked, parts, [pool])
    return closest_in(turn, asked, parts, pool, is_guaranteed=is_guaranteed)


def _needs(part: PartSpec) -> int:
    return part.gpus if part.is_gang else part.gpus_least


def _blocked(
    turn: Turn, asked: Asked, parts: Sequence[PartSpec], pool: PoolKey, plan: Plan, *, is_guaranteed: bool
) -> PartSpec | None:
    """The first part that finds no room, as it is placed; None where all find some."""
    preemption = Preemption(turn, asked, parts, pool) if is_guaranteed else None
    for part in parts:
        count = plan.fit(part)
        if count and not (preemption is not None and preemption.make_room(plan, part, count)):
            return part
    return None


def _held(turn: Turn, asked: Asked, parts: Sequence[PartSpec], pool: PoolKey) -> list[Held]:
    least = {each.name: each.gpus_least for each in parts}
    claims = new_claims(asked.spec, parts, submitted=asked.submitted, gpus=least)
    found = held_in(turn, pool, team=asked.spec.team, claims=claims, holder=asked.spec.owner)
    return [held for held in found if held.work != asked.spec.name]


def _callable(turn: Turn, asked: Asked, parts: Sequence[PartSpec], pool: PoolKey) -> dict[str, int]:
    """Flex by island that a guarantee can call back."""
    flex: dict[str, int] = {}
    for held in _held(turn, asked, parts, pool):
        if held.flex and held.work not in turn.work.leaving:
            for island, gpus in held.islands.items():
                flex[island] = flex.get(island, 0) + min(gpus, held.flex)
    return flex


def tell(turn: Turn, asked: Asked, close: Closest, outs: Sequence[Out]) -> Near:
    """What stands in the way where work comes closest, with all numbers."""
    parts = missing_parts(asked.spec, turn.work.workloads.get(asked.spec.name))
    pool, part = close.pool, close.part
    islands = [close.island] if part.is_gang and close.island else [each for _, each in turn.floor.by_pool.of(pool)]
    mine = [out for out in outs if out.node.island in islands]
    installed = sum(_installed(turn, pool, island) for island in islands)
    held = [
        each
        for each in _held(turn, asked, parts, pool)
        if any(island in each.islands for island in islands) and not (close.is_guaranteed and each.flex == each.gpus)
    ]
    steps = _steps(turn, asked, close, islands, installed, mine, held)
    return Near(
        *pool,
        island=close.island,
        runs_as="guaranteed" if close.is_guaranteed else "flex",
        part=part.name,
        is_gang=part.is_gang,
        gpus=close.gpus,
        free=close.free,
        callable=close.callable,
        missing=close.missing,
        installed=installed,
        steps=tuple(sorted(steps, key=lambda each: each.cause.place)) if close.missing else (),
        in_way=tuple(_in_way(turn, close, islands, held)) if close.missing else (),
    )


def _steps(
    turn: Turn,
    asked: Asked,
    close: Closest,
    islands: Sequence[str],
    installed: int,
    outs: Sequence[Out],
    held: Sequence[Held],
) -> Iterator[Step]:
    """From what is installed to what the work could have: exactly."""
    pool, names = close.pool, set(islands)
    left = installed - close.free - close.callable

    def take(gpus: int) -> int:
        nonlocal left
        taken = max(0, min(left, gpus))
        left -= taken
        return taken

    for cause, is_planned in ((Cause.NODES_UNHEALTHY, False), (Cause.PLANNED_WORK, True)):
        some = [out for out in outs if out.is_planned is is_planned]
        if gone := take(sum(out.node.gpus for out in some)):
            backs = [out.back for out in some if out.back is not None]
            is_told = bool(backs) and all(out.is_told for out in some)
            yield step(
                INSTALLED, cause, gone, back_text(some), until=min(backs, default=None), is_told=is_told,
                of=by_reason(some), next_step=f"plimsoll why {some[0].node.id}",
            )  # fmt: skip
    barred = barred_nodes(turn, asked, pool) if asked.spec.hours else {}
    if ahead := take(sum(gpus for island, gpus in barred.items() if island in names)):
        says = f"planned work begins on their nodes before {asked.spec.name} would end ({asked.spec.hours:g} hours)"
        yield step(INSTALLED, Cause.PLANNED_AHEAD, ahead, says, next_step="plimsoll health announced")
    kept = [
        wait
        for name in turn.work.reservations.get(pool, ())
        if name != asked.spec.name and (wait := turn.work.waits[name]).reason.island in names
    ]
    free = sum(max(0, gpus) for gpus, island in turn.floor.by_pool.of(pool) if island in names)
    if kept and (reserved := take(min(free - close.free - ahead, sum(wait.reason.gpus for wait in kept)))):
        of = tuple(Named(wait.workload, wait.reason.gpus) for wait in kept)
        yield step(
            INSTALLED, Cause.RESERVED, reserved, f"kept for {', '.join(wait.workload for wait in kept)}", of=of,
            until=min((wait.starts for wait in kept if wait.starts), default=None),
        )  # fmt: skip
    bookings = [each for each in turn.work.bookings.values() if each.pool == pool]
    booked = {
        each.workload: sum(place.gpus for place in each.places if place.island in names)
        - sum(victim.gpus for victim in each.victims if victim.island in names)
        for each in bookings
    }
    if called := take(sum(max(0, gpus) for gpus in booked.values())):
        due = max(each.due for each in bookings)
        says = f"booked by {', '.join(sorted(name for name, gpus in booked.items() if gpus > 0))}"
        yield step(INSTALLED, Cause.LENT_DRAINING, called, says, until=due, is_told=True)
    if own := take(sum(gpus for island, gpus in close.own_places.items() if island in names)):
        yield step(INSTALLED, Cause.IN_USE, own, "taken by its other parts")
    yield from _held_steps(turn, asked, close, names, held, left)


def _held_steps(
    turn: Turn, asked: Asked, close: Closest, names: set[str], held: Sequence[Held], left: int
) -> Iterator[Step]:
    """What runs there and stays: the team's own, and others'; rests that no replica fits into."""
    for cause, is_own in ((Cause.IN_USE, True), (Cause.IN_USE_BY_OTHERS, False)):
        stays: dict[str, int] = {}
        for each in held:
            if (each.team == asked.spec.team) is is_own:
                name = f"{each.work}/{each.part}"
                stays[name] = stays.get(name, 0) + _stays(turn, close, each, names)
        of, before = list[Named](), left
        for name, gpus in sorted(stays.items(), key=lambda each: (-each[1], each[0])):
            if taken := min(left, gpus):
                left -= taken
                of.append(Named(name, taken))
        if of:
            whose = "the team's own work" if is_own else "other teams' work"
            inside = " inside guarantees" if close.is_guaranteed and not is_own else ""
            yield step(INSTALLED, cause, before - left, f"held by {whose}{inside}", of=tuple(of))
    if left > 0:
        says = "rests too small for a replica, and flex that leaves only as a whole"
        yield step(INSTALLED, Cause.ISLAND_FRAGMENTED, left, says)


def _stays(turn: Turn, close: Closest, held: Held, names: set[str]) -> int:
    """GPUs of working nodes there that a part keeps: without what would be called back, or was counted as out."""
    stays = 0
    for island, gpus in held.islands.items():
        if island in names:
            is_called = close.is_guaranteed and held.work not in turn.work.leaving
            called = min(gpus, held.flex) if is_called else 0
            stays += max(0, gpus - called - stuck_in(turn, held, island))
    return stays


def _in_way(turn: Turn, close: Closest, islands: Sequence[str], held: Sequence[Held]) -> list[InWay]:
    """Who would have to go from there: the fewest elastic replicas that are enough, else the largest holders."""
    options, names = [], set(islands)
    for each in held:
        here = _stays(turn, close, each, names)
        if each.kind is Kind.ELASTIC and not each.is_spare:
            unit = part_spec(turn, each).gpus
            if times := here // unit:
                options.append(Option(each, unit, unit, False, times))
    taken = fewest(options, close.missing)
    if taken is not None:
        chosen = [(options[place].who, options[place].gpus * times, times) for place, times in taken.chosen]
    else:
        shares = [(each, _stays(turn, close, each, names), 1) for each in held]
        chosen = sorted(
            (share for share in shares if share[1]), key=lambda share: (-share[1], share[0].work, share[0].part)
        )[:IN_WAY_SHOWN]
    return [
        InWay(each.work, each.part, each.team, each.kind.value, gpus, count, each.flex > 0)
        for each, gpus, count in chosen
    ]


def position_in(turn: Turn, asked: Asked, pool: PoolKey) -> Position | None:
    """Where work stands in its team's guarantee of a pool; None where it has none there."""
    key = QuotaKey(asked.spec.team, *pool)
    guaranteed = turn.book.guaranteed.get(key, 0)
    if not guaranteed:
        return None
    parts = missing_parts(asked.spec, turn.work.workloads.get(asked.spec.name))
    least = {part.name: part.gpus_least for part in parts}
    claims = new_claims(asked.spec, parts, submitted=asked.submitted, gpus=least)
    merged = with_new(turn, key, claims, holder=asked.spec.owner)
    before, kept, left, got, is_past = dict[str, int](), list[Named](), guaranteed, 0, False
    left_before = guaranteed
    for claim, inside in zip(merged, fill(merged, guaranteed), strict=True):
        if claim.work == asked.spec.name and claim.island == NOWHERE:
            if not is_past:
                left_before, is_past = left, True
            got += inside
        elif claim.reserve:
            taken = min(left, claim.reserve)
            left -= taken
            if taken:
                kept.append(Named(claim.work.removeprefix(HOLD_PREFIX), taken))
        elif inside and not is_past:
            name = f"{claim.work}/{claim.part}"
            before[name] = before.get(name, 0) + inside
        left -= inside
    wanted = sum(least.values())
    largest = sorted(before.items(), key=lambda each: (-each[1], each[0]))[:BEFORE_SHOWN]
    shown = tuple(Named(name, gpus) for name, gpus in largest)
    return Position(
        *pool, guaranteed, wanted, sum(before.values()), shown, tuple(kept), max(0, left_before), wanted - got
    )
