"""The queue: who starts when room comes, who grows, and for whom an island is kept. Pure, within a turn.

Guaranteed before flex; inside a team tier, rank, submit time; between teams, for flex, the lowest flex held for what is
guaranteed. Workloads of one shape succeed or fail together, so that a queue of 100,000 is tried shape by shape. The
first gang that does not fit gets an island kept for it: what comes after may use that only without delaying it.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from plimsoll.fleet.model import IslandKey, PoolKey
from plimsoll.health.model import from_microseconds
from plimsoll.quota.model import QuotaKey
from plimsoll.workloads.act import take_up
from plimsoll.workloads.bookings import begin_bookings
from plimsoll.workloads.changes import TeamHoldEnded, WorkloadWaits
from plimsoll.workloads.growth import grow_elastic
from plimsoll.workloads.model import Asked, Shape
from plimsoll.workloads.offers import best_offer, guaranteed_pools
from plimsoll.workloads.reasons import Cause, Reason
from plimsoll.workloads.refusal import refusal_for
from plimsoll.workloads.repair import repair_all
from plimsoll.workloads.rights import flex_held
from plimsoll.workloads.shape import missing_parts
from plimsoll.workloads.turn import Turn

PASSING = (Cause.RESERVED, Cause.LENT_DRAINING, Cause.PLANNED_AHEAD)
"""Refusals that can end without anything becoming free."""


def run_round(
    turn: Turn, *, grace: timedelta, pools: Collection[PoolKey] | None = None, asking: Collection[str] = ()
) -> None:
    """Let time and room do their work: holds end, bookings begin, broken gangs are repaired, what waits starts, what
    may grow grows. Only in these pools, where some are named. `asking` are the workloads that somebody just submitted
    or changed: only they take flex from other flex, so that nothing changes hands by itself.
    """
    end_holds(turn)
    if turn.work.bookings:
        begin_bookings(turn)
    repair_all(turn, grace=grace)
    start_waiting(turn, grace=grace, pools=pools, asking=asking)
    if grow_elastic(turn, grace=grace, pools=pools):
        start_waiting(turn, grace=grace, pools=pools)  # somebody had to leave, and may go elsewhere


def start_asked(turn: Turn, names: Collection[str], *, grace: timedelta) -> None:
    """Workloads that were just submitted: they start and grow if they can; nobody else has more room by that."""
    start_waiting(turn, grace=grace, asking=names, only_asking=True)
    running = (turn.work.workloads.get(name) for name in names if name in turn.work.growers)
    pools = {PoolKey(each.cluster, part.sku) for each in running if each is not None for part in each.parts}
    if pools and grow_elastic(turn, grace=grace, pools=pools):
        start_waiting(turn, grace=grace)


def settle_due(turn: Turn, *, grace: timedelta) -> None:
    """What time alone has brought about: as a round, but who waits is tried only if that made room. Everybody who
    makes room lets those start who wait for it, so that there is nothing else for them.
    """
    before = len(turn.drafts)
    end_holds(turn)
    if turn.work.bookings:
        begin_bookings(turn)
    repair_all(turn, grace=grace)
    if len(turn.drafts) > before:
        start_waiting(turn, grace=grace)
        if grow_elastic(turn, grace=grace):
            start_waiting(turn, grace=grace)


def end_holds(turn: Turn) -> None:
    """What a team kept until a date is anybody's in the team again."""
    for hold in sorted(turn.work.holds.values(), key=lambda each: each.id):
        if hold.until <= turn.now:
            turn.do(TeamHoldEnded(hold.id, hold.team, "expired"))


def start_waiting(
    turn: Turn,
    *,
    grace: timedelta,
    pools: Collection[PoolKey] | None = None,
    asking: Collection[str] = (),
    only_asking: bool = False,
) -> None:
    """Try the queue in the order of service until nothing more can start; only what can be in these pools, where some
    are named. Whoever had to leave meanwhile is tried as well. `asking`: see `run_round`; `only_asking`: there is no
    new room, so that nobody else is tried.

    Where pools are named, only free room is new: who was refused before is tried again when enough has become free.
    """
    seen = set(turn.work.queue.listed())
    askers = {turn.work.queued[name][0] for name in asking if name in turn.work.queued}
    waiting = askers if only_asking else seen
    while waiting:
        _try_all(turn, waiting, grace=grace, pools=pools, askers=askers)
        now = set(turn.work.queue.listed())
        waiting = now - seen
        seen |= now
    untold = [turn.work.queue.of(shape)[0] for shape in turn.work.queue.listed()]
    for *_, name in sorted(untold, key=lambda item: (item[2], item)):  # who asked first: it may be kept an island
        if name not in turn.work.waits:  # nothing waits without a word, even if there was no use in trying
            wait(turn, turn.work.asked[name])


def _try_all(
    turn: Turn,
    shapes: Iterable[Shape],
    *,
    grace: timedelta,
    pools: Collection[PoolKey] | None,
    askers: Collection[Shape],
) -> None:
    oldest: dict[str, int] = {}
    trying = []
    for shape in shapes:
        if _may_start(turn, shape, pools):
            trying.append(shape)
            submitted = turn.work.queue.of(shape)[0][2]
            oldest[shape.team] = min(submitted, oldest.get(shape.team, submitted))
    queue = [(_service_rank(turn, shape, oldest), shape) for shape in trying]
    heapq.heapify(queue)
    while queue:
        rank, shape = heapq.heappop(queue)
        if not turn.work.queue.of(shape):
            continue
        now = _service_rank(turn, shape, oldest)
        if now > rank and queue and _comes_before(queue[0], (now, shape)):
            heapq.heappush(queue, (now, shape))  # its team holds more by now: others come first
        elif (refused := _start_or_wait(turn, now[-1], grace=grace, wins_back=shape in askers)) is not None:
            _remember(turn, shape, now[-1], refused)
        elif turn.work.queue.of(shape):
            heapq.heappush(queue, (_service_rank(turn, shape, oldest), shape))


def _comes_before(other: tuple[Rank, Shape], mine: tuple[Rank, Shape]) -> bool:
    """Whether another is first. Of one team that looks in the same place, what it holds counts for both alike, though
    it was told of the other before it held so much.
    """
    (theirs, their_shape), (rank, shape) = other, mine
    is_alike = (their_shape.team, their_shape.where, theirs[0]) == (shape.team, shape.where, rank[0])
    return theirs[2:] < rank[2:] if is_alike else theirs < rank


def _may_start(turn: Turn, shape: Shape, pools: Collection[PoolKey] | None) -> bool:
    """A quick look: is there any room, or anything that could be called back?"""
    if pools is not None and _is_patient(turn, shape):
        return False
    mine = turn.floor.pools_in(shape.where)
    largest = shape.gpus_largest
    for pool in mine if pools is None else pools:
        if pools is not None and pool not in mine:
            continue
        if shape.cluster and pool.cluster != shape.cluster:
            continue
        if turn.floor.largest(pool) >= largest:
            return True
        key = QuotaKey(shape.team, *pool)
        if key in turn.book.guaranteed or _has_lower(turn, key, shape):
            return True
    return False


def _has_lower(turn: Turn, key: QuotaKey, shape: Shape) -> bool:
    """Whether something of a lower tier or a later rank of the team runs there: it would give way."""
    claims = turn.book.claims.get(key)
    if not claims:
        return False
    last = claims[-1]
    return (last.tier.place, last.rank) > turn.work.queue.of(shape)[0][:2]


def _remember(turn: Turn, shape: Shape, name: str, refused: Reason) -> None:
    """What a shape was refused for: as long as less than that becomes free, it would be refused again. Not where an
    island is kept for it, nor where something else than room is in the way: that may end at any time.
    """
    turn.floor.patience.pop(shape, None)
    if refused.missing > 0 and refused.cause not in PASSING and not turn.work.waits[name].holds_island:
        freed = turn.floor.freed_in(turn.floor.pools_in(shape.where))
        turn.floor.be_patient(shape, freed, refused.missing, _claimed(turn, shape.team))


def _is_patient(turn: Turn, shape: Shape) -> bool:
    memo = turn.floor.patience.get(shape)
    if memo is None:
        return False
    freed, missing, claimed = memo
    now = turn.floor.freed_in(turn.floor.pools_in(shape.where))
    return now - freed < missing and _claimed(turn, shape.team) >= claimed


def _claimed(turn: Turn, team: str) -> int:
    """All that a team claims where it is guaranteed something: when that falls, there is more guarantee to be had."""
    claimed = turn.book.claimed
    return sum(claimed.get(QuotaKey(team, *pool), 0) for pool in turn.book.guaranteed_pools.get(team, ()))


Rank = tuple[int, float, int, str, int, int, int, str]
"""Guaranteed before flex, flex held for what is guaranteed, and between teams that stand alike in that whoever has
waited longest: tier never counts between teams. Inside a team tier, rank, submit time and name.
"""


def _service_rank(turn: Turn, shape: Shape, oldest: Mapping[str, int]) -> Rank:
    """`oldest`: when each team first asked for something that waits."""
    item = turn.work.queue.of(shape)[0]
    mine = turn.floor.pools_in(shape.where)
    asked = turn.work.asked[item[-1]]
    parts = missing_parts(asked.spec, turn.work.workloads.get(item[-1]))
    if guaranteed_pools(turn, asked, parts, mine):
        return (0, 0.0, oldest[shape.team], shape.team, *item)
    ratio = team_ratio(turn, shape.team, mine)
    level, ratio = (1, ratio) if ratio is not None else (2, 0.0)
    return (level, ratio, oldest[shape.team], shape.team, *item)


def team_ratio(turn: Turn, team: str, pools: Iterable[PoolKey]) -> float | None:
    """Flex that a team holds in these pools for each GPU it is guaranteed there; None without a guarantee."""
    held = guaranteed = 0
    for pool in pools:
        key = QuotaKey(team, *pool)
        guaranteed += turn.book.guaranteed.get(key, 0)
        held += flex_held(turn, key)
    return held / guaranteed if guaranteed else None


def try_start(turn: Turn, name: str, *, grace: timedelta, wins_back: bool = True) -> bool:
    """Start a workload that waits, or say why it can't. Whether it started."""
    return _start_or_wait(turn, name, grace=grace, wins_back=wins_back) is None


def _start_or_wait(turn: Turn, name: str, *, grace: timedelta, wins_back: bool) -> Reason | None:
    asked = turn.work.asked[name]
    running = turn.work.workloads.get(name)
    parts = missing_parts(asked.spec, running)
    where = {"cluster": running.cluster, "sku": running.parts[0].sku} if running is not None else {}
    offer = best_offer(turn, asked, parts, wins_back=wins_back, **where)
    if offer is not None:
        take_up(turn, asked, offer, grace=grace)
        return None
    return wait(turn, asked)


def wait(turn: Turn, asked: Asked) -> Reason:
    """Why a workload waits. It is recorded if it is news, and an island is kept for the first gang that needs one."""
    reason, is_guaranteed = refusal_for(turn, asked)
    name, before = asked.spec.name, turn.work.waits.get(asked.spec.name)
    pool = PoolKey(reason.cluster, reason.sku)
    keeps = _needs_island(turn, asked, reason) and _may_keep(turn, pool, name, is_guaranteed=is_guaranteed)
    now = WorkloadWaits(name, reason, holds_island=keeps, is_guaranteed=is_guaranteed)
    if before is None or _news(before) != _news(now):
        starts = expected_start(turn, pool, reason.island, reason.gpus) if keeps else None
        turn.do(msgspec.structs.replace(now, starts=starts))
    return reason


def _news(told: WorkloadWaits) -> tuple[object, ...]:
    """What is worth an event when it changes; the numbers are asked for anew by whoever looks."""
    reason = told.reason
    return reason.cause, reason.cluster, reason.sku, reason.island, told.holds_island, told.is_guaranteed


def _needs_island(turn: Turn, asked: Asked, reason: Reason) -> bool:
    """Whether it is a gang that waits: replicas take what room there is."""
    parts = missing_parts(asked.spec, turn.work.workloads.get(asked.spec.name))
    return bool(reason.island) and any(part.is_gang and part.gpus == reason.gpus for part in parts)


def _may_keep(turn: Turn, pool: PoolKey, name: str, *, is_guaranteed: bool) -> bool:
    """One island of a pool is kept for work inside guarantees, and one for flex; whoever has it keeps it."""
    kept = (turn.work.waits[each] for each in turn.work.reservations.get(pool, ()) if each != name)
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
