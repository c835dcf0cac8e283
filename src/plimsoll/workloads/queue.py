"""The queue: who starts when room comes, who grows, and for whom an island is kept. Pure, within a turn.

Guaranteed before flex; inside a team tier, rank, submit time; between teams, for flex, the lowest flex held for what is
guaranteed. Workloads of one shape succeed or fail together, so that a queue of 100,000 is tried shape by shape. The
first gang that does not fit gets an island kept for it: what comes after may use that only without delaying it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from fractions import Fraction

import msgspec

from plimsoll.fleet.model import IslandKey, PoolKey
from plimsoll.health.model import from_microseconds
from plimsoll.quota.fill import inside
from plimsoll.quota.model import QuotaKey
from plimsoll.workloads.act import evict, place, take_up
from plimsoll.workloads.changes import BookingDropped, TeamHoldEnded, WorkloadWaits
from plimsoll.workloads.model import Asked, Because, Booking, RunsAs, Shape, replicas
from plimsoll.workloads.offers import Offer, best_offer, guaranteed_pools, node_gpus
from plimsoll.workloads.preempt import Preemption
from plimsoll.workloads.refusal import refusal_for
from plimsoll.workloads.repair import repair_all
from plimsoll.workloads.rights import inside_new, new_claims
from plimsoll.workloads.rooms import Plan, rooms_for
from plimsoll.workloads.shape import missing_parts
from plimsoll.workloads.turn import Turn

STARTS_MAX = 1_000_000
"""Workloads that one round starts at most: a bound, not a limit that anybody should meet."""


def run_round(turn: Turn, *, grace: timedelta, pools: Collection[PoolKey] | None = None) -> None:
    """Let time and room do their work: holds end, bookings begin, broken gangs are repaired, what waits starts, what
    may grow grows. Only in these pools, where some are named.
    """
    end_holds(turn)
    if turn.work.bookings:
        begin_bookings(turn)
    repair_all(turn, grace=grace)
    start_waiting(turn, grace=grace, pools=pools)
    grow_elastic(turn, grace=grace, pools=pools)


def end_holds(turn: Turn) -> None:
    """What a team kept until a date is anybody's in the team again."""
    for hold in sorted(turn.work.holds.values(), key=lambda each: each.id):
        if hold.until <= turn.now:
            turn.do(TeamHoldEnded(hold.id, hold.team, "expired"))


def begin_bookings(turn: Turn) -> None:
    """Whoever booked starts as soon as the room is there: when the victims are due, or sooner if others left."""
    for name, booking in sorted(turn.work.bookings.items(), key=lambda each: (each[1].due, each[0])):
        is_due = booking.due <= turn.now
        if not is_due and not _fits(turn, booking, is_booked=True):
            continue
        asked = turn.work.asked[name]
        missing = missing_parts(asked.spec, turn.work.workloads.get(name))
        turn.do(BookingDropped(name))
        if not _fits(turn, booking):
            evict(turn, booking.victims, by=name)
        if _fits(turn, booking):  # else a node was lost meanwhile: it waits, and is offered something else
            place(turn, asked, booking.pool, booking.places, Because.STARTED if missing else Because.GROWN)


def _fits(turn: Turn, booking: Booking, *, is_booked: bool = False) -> bool:
    """Whether the room is free; `is_booked`: what is kept for it now counts as free."""
    wanted: dict[str, int] = {}
    called: dict[str, int] = {}
    for each in booking.places:
        wanted[each.island] = wanted.get(each.island, 0) + each.gpus
    for victim in booking.victims:
        called[victim.island] = called.get(victim.island, 0) + victim.gpus
    for island, gpus in wanted.items():
        kept = max(0, gpus - called.get(island, 0)) if is_booked else 0
        if turn.floor.free.get(IslandKey(island, booking.sku), 0) + kept < gpus:
            return False
    return True


def start_waiting(turn: Turn, *, grace: timedelta, pools: Collection[PoolKey] | None = None) -> None:
    """Try the queue in the order of service until nothing more can start."""
    failed: set[Shape] = set()
    for _ in range(STARTS_MAX):
        shape = _next_shape(turn, failed, pools)
        if shape is None:
            return
        name = turn.work.queue.of(shape)[0][-1]
        if not try_start(turn, name, grace=grace):
            failed.add(shape)


def _next_shape(turn: Turn, failed: Collection[Shape], pools: Collection[PoolKey] | None) -> Shape | None:
    """Whose turn it is among the shapes that were not tried yet."""
    best: tuple[tuple[object, ...], Shape] | None = None
    for shape in turn.work.queue.listed():
        if shape in failed or not _may_start(turn, shape, pools):
            continue
        rank = _service_rank(turn, shape)
        if best is None or rank < best[0]:
            best = rank, shape
    return best[1] if best is not None else None


def _may_start(turn: Turn, shape: Shape, pools: Collection[PoolKey] | None) -> bool:
    """A quick look: is there any room, or anything that could be called back?"""
    mine = turn.floor.pools_in(shape.where)
    largest = shape.gpus_largest
    for pool in mine if pools is None else pools:
        if pools is not None and pool not in mine:
            continue
        if shape.cluster and pool.cluster != shape.cluster:
            continue
        if turn.floor.largest(pool) >= largest:
            return True
        if QuotaKey(shape.team, *pool) in turn.book.guaranteed:
            return True
    return False


def _service_rank(turn: Turn, shape: Shape) -> tuple[object, ...]:
    item = turn.work.queue.of(shape)[0]
    mine = turn.floor.pools_in(shape.where)
    asked = turn.work.asked[item[-1]]
    parts = missing_parts(asked.spec, turn.work.workloads.get(item[-1]))
    if guaranteed_pools(turn, asked, parts, mine):
        return (0, Fraction(0), *item)
    ratio = team_ratio(turn, shape.team, mine)
    return (1, ratio, *item) if ratio is not None else (2, Fraction(0), *item)


def team_ratio(turn: Turn, team: str, pools: Iterable[PoolKey]) -> Fraction | None:
    """Flex that a team holds in these pools for each GPU it is guaranteed there; None without a guarantee."""
    held = guaranteed = 0
    for pool in pools:
        key = QuotaKey(team, *pool)
        mine = turn.book.guaranteed.get(key, 0)
        guaranteed += mine
        claims = turn.book.claims.get(key)
        if claims:
            held += sum(claim.gpus for claim in claims) - inside(claims, mine)
    return Fraction(held, guaranteed) if guaranteed else None


def try_start(turn: Turn, name: str, *, grace: timedelta) -> bool:
    """Start a workload that waits, or say why it can't."""
    asked = turn.work.asked[name]
    running = turn.work.workloads.get(name)
    parts = missing_parts(asked.spec, running)
    offer = best_offer(turn, asked, parts, cluster=running.cluster if running is not None else "")
    if offer is not None:
        take_up(turn, asked, offer, grace=grace)
        return True
    wait(turn, asked)
    return False


def wait(turn: Turn, asked: Asked) -> None:
    """Record why a workload waits, if that is news, and keep an island for it if it is the first to need one."""
    reason, is_guaranteed = refusal_for(turn, asked)
    before = turn.work.waits.get(asked.spec.name)
    pool = PoolKey(reason.cluster, reason.sku)
    keeps = before is not None and before.holds_island
    if not keeps and reason.island:
        keeps = _may_keep(turn, pool, is_guaranteed=is_guaranteed)
    now = reason.cause, reason.island, keeps
    if before is not None and (before.reason.cause, before.reason.island, before.holds_island) == now:
        return
    starts = expected_start(turn, pool, reason.island, reason.gpus) if keeps else None
    turn.do(WorkloadWaits(asked.spec.name, reason, holds_island=keeps, is_guaranteed=is_guaranteed, starts=starts))


def _may_keep(turn: Turn, pool: PoolKey, *, is_guaranteed: bool) -> bool:
    """One island of a pool is kept for work inside guarantees, and one for flex."""
    kept = (turn.work.waits[name] for name in turn.work.reservations.get(pool, ()))
    return not any(each.is_guaranteed is is_guaranteed for each in kept)


def expected_start(turn: Turn, pool: PoolKey, island: str, gpus: int) -> datetime | None:
    """When so many GPUs of an island should be free, by what its work said to need; None where nobody said enough."""
    free = turn.floor.free.get(IslandKey(island, pool.sku), 0)
    ends = []
    for name, workload in turn.work.workloads.items():
        asked = turn.work.asked.get(name)
        if workload.cluster != pool.cluster or asked is None or not asked.spec.hours:
            continue
        for part in workload.parts:
            here = sum(block.gpus for block in part.blocks if block.island == island)
            account = turn.work.accounts.get((name, part.name))
            if here and part.sku == pool.sku and account is not None:
                ends.append((account.first_started, asked.spec.hours, here))
    moments = sorted((from_microseconds(begun) + timedelta(hours=hours), here) for begun, hours, here in ends)
    for moment, here in moments:
        free += here
        if free >= gpus:
            return moment
    return None


def grow_elastic(turn: Turn, *, grace: timedelta, pools: Collection[PoolKey] | None = None) -> None:
    """Elastic parts take what is free, in the order of service; inside a guarantee they call flex back for it."""
    for pool in sorted(pools if pools is not None else turn.work.growing.listed()):
        for *_, name, part in list(turn.work.growing.of(pool)):
            _grow(turn, pool, name, part, grace=grace)


def _grow(turn: Turn, pool: PoolKey, name: str, part_name: str, *, grace: timedelta) -> None:
    asked, running = turn.work.asked[name], turn.work.workloads[name]
    part = asked.spec.part(part_name)
    has = running.running(part_name)
    wanted = part.most - (replicas(part, has.blocks) if has is not None else 0)
    key = QuotaKey(asked.spec.team, *pool)
    largest = turn.floor.largest(pool)
    is_guaranteed = turn.book.guaranteed.get(key, 0) > turn.book.claimed.get(key, 0)
    if largest < part.gpus and not is_guaranteed:
        return
    claims = new_claims(asked.spec, [part], submitted=asked.submitted, gpus={part.name: wanted * part.gpus})
    inside_count = inside_new(turn, key, claims, holder=asked.spec.owner)[part.name] // part.gpus
    plan = Plan(rooms_for(turn, asked, pool, is_guaranteed=inside_count > 0), node_gpus(turn, pool))
    allowed = inside_count if asked.spec.runs_as is RunsAs.GUARANTEED else wanted
    found = plan.put_replicas(part, allowed)
    if plan.places:
        place(turn, asked, pool, plan.places, Because.GROWN)
    elif found < inside_count and pool in turn.book.lines:
        _call_back(turn, asked, pool, part_name, inside_count, grace=grace)


def _call_back(turn: Turn, asked: Asked, pool: PoolKey, part_name: str, count: int, *, grace: timedelta) -> None:
    """Replicas inside the guarantee, in the place of flex."""
    part = msgspec.structs.replace(asked.spec.part(part_name), least=count)
    plan = Plan(rooms_for(turn, asked, pool, is_guaranteed=True), node_gpus(turn, pool))
    preemption = Preemption(turn, asked, [part], pool)
    if preemption.make_room(plan, part, plan.fit(part)) and preemption.victims:
        offer = Offer(pool, True, tuple(plan.places), tuple(preemption.victims), preemption.price)
        take_up(turn, asked, offer, grace=grace, because=Because.GROWN)
