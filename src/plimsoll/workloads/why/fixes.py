"""What could be done so that work starts, one thing at a time: each a change to a what-if of the state. Pure.

Two kinds: what gives the work a right to the room (holds, quota, rank), and what gives it the room (moves, stops,
waiting). Each looks at the what-if as it is when its turn comes, so that they add up. Whether the work then starts is
decided by the real placement (`actions.py`), never here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from plimsoll.fleet.model import PoolKey
from plimsoll.health.fold import Health
from plimsoll.quota.changes import QuotaGranted, QuotaTransferred
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import look
from plimsoll.quota.model import Kind, QuotaKey, Tier
from plimsoll.quota.policy import Policy, day_of
from plimsoll.quota.requests.givers import find_givers
from plimsoll.times import show_time
from plimsoll.words import counted
from plimsoll.workloads.act import evict
from plimsoll.workloads.changes import PartRanked, PartScaled, TeamHoldEnded, WorkloadEnded
from plimsoll.workloads.model import Asked, Because, Place, RunsAs, Victim
from plimsoll.workloads.offers import node_gpus
from plimsoll.workloads.repair import move_replicas
from plimsoll.workloads.rights import Held, held_in, part_spec
from plimsoll.workloads.rooms import Plan
from plimsoll.workloads.shape import missing_parts
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.victims import Option, fewest
from plimsoll.workloads.why.model import Act, ActionKind
from plimsoll.workloads.why.near import Closest, close_now, position_in
from plimsoll.workloads.why.outs import Out
from plimsoll.workloads.why.waits import Done, waiting_nodes, waiting_planned, waiting_work

HOLDS_TRIED = 2
"""Of a team's holds in a pool so many are tried one by one, the largest first; then all of them together."""
WAITS_TRIED = 3
"""In so many islands it is tried what their nodes bring when they return, the first to return first."""


class Fix(NamedTuple):
    """Something to try in a pool. None where there is nothing of the kind to do. `is_alone`: not with others."""

    kind: ActionKind
    pool: PoolKey
    do: Callable[[Turn, Asked], Done | None]
    is_alone: bool = False


def fixes_for(
    turn: Turn, asked: Asked, close: Closest, outs: Sequence[Out], policy: Policy, *, is_submitted: bool
) -> Iterator[Fix]:
    """What can be tried so that work starts in a pool: first what gives it the right, then what gives it the room."""
    pool, team = close.pool, asked.spec.team
    if team and not close.is_guaranteed and asked.spec.runs_as is not RunsAs.FLEX:
        holds = sorted(
            (turn.work.holds[each] for each in turn.work.team_holds.get(QuotaKey(team, *pool), ())),
            key=lambda hold: (-hold.gpus, hold.id),
        )
        others = [hold.id for hold in holds if hold.keeper not in (asked.spec.name, asked.spec.owner)]
        for some in [*([each] for each in others[:HOLDS_TRIED]), *([others] if len(others) > 1 else [])]:
            yield Fix(ActionKind.RELEASE_HOLD, pool, _releasing(tuple(some)))
        if pool in turn.book.lines:
            yield Fix(ActionKind.RANK, pool, _ranking(is_submitted=is_submitted))
            yield Fix(ActionKind.LOWER_OWN, pool, _lowering(pool))
            yield Fix(ActionKind.TRANSFER, pool, _transferring(pool, policy))
            yield Fix(ActionKind.REQUEST, pool, _requesting(pool))
            yield Fix(ActionKind.STOP_OWN, pool, _stopping_inside(pool))
    yield Fix(ActionKind.MOVE_REPLICAS, pool, _moving(pool))
    if team:
        yield Fix(ActionKind.STOP_OWN, pool, _stopping_there(pool))
    for place in range(WAITS_TRIED) if outs else ():
        yield Fix(ActionKind.WAIT_NODES, pool, waiting_nodes(pool, outs, place), is_alone=place > 0)
    if asked.spec.hours and turn.state.of(Health).ahead:
        yield Fix(ActionKind.WAIT_PLANNED, pool, waiting_planned(pool))
    yield Fix(ActionKind.WAIT_WORK, pool, waiting_work(pool))


# The right.


def _releasing(holds: tuple[str, ...]) -> Callable[[Turn, Asked], Done | None]:
    def do(turn: Turn, _asked: Asked) -> Done | None:
        words = []
        for each in holds:
            hold = turn.work.holds.get(each)
            if hold is None:
                return None
            turn.do(TeamHoldEnded(hold.id, hold.team, "released"))
            words.append(f"{hold.gpus:,} kept for {hold.keeper} until {show_time(hold.until.replace(microsecond=0))}")
        command = "; ".join(f"plimsoll workload release {each}" for each in holds)
        return Done(Act(ActionKind.RELEASE_HOLD, f"release what the team keeps: {', '.join(words)}", command))

    return do


def _short_of_right(turn: Turn, asked: Asked, pool: PoolKey) -> int:
    """GPUs of the guarantee that are missing, in whole nodes."""
    position = position_in(turn, asked, pool)
    size = node_gpus(turn, pool)
    parts = missing_parts(asked.spec, turn.work.workloads.get(asked.spec.name))
    missing = max(0, position.gpus - position.left) if position is not None else sum(p.gpus_least for p in parts)
    return -(-missing // size) * size


def _transferring(pool: PoolKey, policy: Policy) -> Callable[[Turn, Asked], Done | None]:
    def do(turn: Turn, asked: Asked) -> Done | None:
        need = _short_of_right(turn, asked, pool)
        if not need:
            return None
        [found] = look(turn.state, [pool], policy, day_of(turn.now))
        givers = find_givers(turn.state, found, need, taker=asked.spec.team)
        if sum(giver.gpus for giver in givers) < need:
            return None
        for giver in givers:
            turn.do(QuotaTransferred(*pool, giver.team, asked.spec.team, giver.gpus))
        where = f"--cluster {pool.cluster} --sku {pool.sku}"
        commands = [f"plimsoll quota transfer {each.team} {asked.spec.team} {each.gpus} {where}" for each in givers]
        words = ", ".join(f"{each.gpus:,} from {each.team}" for each in givers)
        says = f"take over guarantee that is not in use: {words} (they and the RPM decide)"
        return Done(Act(ActionKind.TRANSFER, says, "; ".join(commands)))

    return do


def _requesting(pool: PoolKey) -> Callable[[Turn, Asked], Done | None]:
    def do(turn: Turn, asked: Asked) -> Done | None:
        need, book = _short_of_right(turn, asked, pool), turn.state.of(QuotaBook)
        under = book.line_of(pool) - sum(book.guaranteed_in(pool).values()) - book.reserved().get(pool, 0)
        if not need or under < need:
            return None
        turn.do(QuotaGranted(*pool, asked.spec.team, need))
        says = f"ask for {need:,} more: {under:,} lie under the line and are promised to nobody (an RPM approves)"
        command = f"plimsoll quota request {asked.spec.team} {need} --sku {pool.sku} --cluster {pool.cluster}"
        return Done(Act(ActionKind.REQUEST, says, command))

    return do


def _ranking(*, is_submitted: bool) -> Callable[[Turn, Asked], Done | None]:
    """First among the team's own: what comes before it now becomes flex."""

    def do(turn: Turn, asked: Asked) -> Done | None:
        parts = missing_parts(asked.spec, turn.work.workloads.get(asked.spec.name))
        if len(parts) != 1 or (parts[0].tier, parts[0].rank) == (Tier.CRITICAL, 1):
            return None
        part = parts[0]
        if any(each.rank == 1 for each in asked.spec.parts if each.name != part.name):
            return None
        turn.do(PartRanked(asked.spec.name, part.name, Tier.CRITICAL, 1))
        it = part.name if is_submitted else "it"
        says = f"put {it} before the team's other work: tier critical, rank 1; what comes after it becomes flex"
        command = "plimsoll workload submit FILE   # with tier: critical, rank: 1"
        if is_submitted:
            command = f"plimsoll workload rank {asked.spec.name} --part {part.name} --tier critical --rank 1"
        return Done(Act(ActionKind.RANK, says, command))

    return do


def _lowering(pool: PoolKey) -> Callable[[Turn, Asked], Done | None]:
    """The fewest GPUs of the team's own work that come after it then: they become flex, and run on where they may."""

    def do(turn: Turn, asked: Asked) -> Done | None:
        need = _short_of_right(turn, asked, pool)
        parts = missing_parts(asked.spec, turn.work.workloads.get(asked.spec.name))
        if not need or len(parts) != 1:
            return None
        mine, options = parts[0], []
        for held in held_in(turn, pool):
            inside = held.gpus - held.flex
            if held.team != asked.spec.team or held.work == asked.spec.name or held.is_spare or not inside:
                continue
            spec = part_spec(turn, held)
            if held.work in turn.work.asked and (spec.tier.place, spec.rank) <= (mine.tier.place, mine.rank):
                options.append(Option(held, inside, inside, True))
        taken = fewest(options, need)
        if taken is None or not taken.chosen:
            return None
        words, commands = [], []
        for place, _ in taken.chosen:
            held = options[place].who
            used = {part.rank for part in turn.work.asked[held.work].spec.parts if part.name != held.part}
            rank = next(each for each in range(mine.rank + 1, mine.rank + len(used) + 2) if each not in used)
            turn.do(PartRanked(held.work, held.part, mine.tier, rank))
            words.append(f"{held.work}/{held.part} ({held.gpus:,} GPUs)")
            where = f"--part {held.part} --tier {mine.tier.value} --rank {rank}"
            commands.append(f"plimsoll workload rank {held.work} {where}")
        says = f"put work of the team itself after it, so that it becomes flex: {', '.join(words)}"
        return Done(Act(ActionKind.LOWER_OWN, says, "; ".join(commands)))

    return do


def _stopping_inside(pool: PoolKey) -> Callable[[Turn, Asked], Done | None]:
    def do(turn: Turn, asked: Asked) -> Done | None:
        need = _short_of_right(turn, asked, pool)
        return _stop(turn, asked, pool, "", need) if need else None

    return do


# The room.


def _stopping_there(pool: PoolKey) -> Callable[[Turn, Asked], Done | None]:
    def do(turn: Turn, asked: Asked) -> Done | None:
        close = close_now(turn, asked, pool)
        return _stop(turn, asked, pool, close.island, close.missing) if close.missing else None

    return do


def _stop(turn: Turn, asked: Asked, pool: PoolKey, island: str, need: int) -> Done | None:
    """The fewest GPUs of the team's own work that are enough: replicas first. In one island, where named."""
    options = []
    for held in held_in(turn, pool):
        if held.team != asked.spec.team or held.work == asked.spec.name or held.is_spare:
            continue
        here = held.islands.get(island, 0) if island else held.gpus
        if not here:
            continue
        spec = part_spec(turn, held)
        # A part that is scaled gives up its smallest blocks first: only in a single island is it known where.
        if (
            held.kind is Kind.ELASTIC
            and len(held.islands) == 1
            and (times := held.gpus // spec.gpus - max(1, spec.least)) > 0
        ):
            options.append(Option(held, spec.gpus, spec.gpus, False, min(times, here // spec.gpus)))
        workload = turn.work.workloads[held.work]
        everything = sum(block.gpus for part in workload.parts for block in part.blocks)
        mine = sum(
            block.gpus for part in workload.parts for block in part.blocks if not island or block.island == island
        )
        options.append(Option(held, mine, everything, True))
    options = _one_stop_each(options)
    taken = fewest(options, need)
    if taken is None or not taken.chosen:
        return None
    words, commands, own = [], [], 0
    gone_whole = {options[place].who.work for place, _ in taken.chosen if options[place].stops}
    for place, times in taken.chosen:
        option = options[place]
        held = option.who
        if not option.stops and held.work in gone_whole:
            continue  # another part of the same work was chosen, and that stops all of it
        if option.stops:
            turn.do(WorkloadEnded(held.work, "cancelled"))
            words.append(f"cancel {held.work} ({option.cost:,} GPUs)")
            commands.append(f"plimsoll workload cancel {held.work}")
            own += option.cost
        else:
            spec = part_spec(turn, held)
            most = held.gpus // spec.gpus - times
            turn.do(PartScaled(held.work, held.part, spec.least, most))
            [where] = held.islands
            gone = Victim(held.work, held.part, where, times * spec.gpus, False, held.team)
            evict(turn, [gone], by=asked.spec.name, because=Because.SCALED)
            words.append(f"scale {held.work}/{held.part} down to {counted(most, 'replica')}")
            commands.append(f"plimsoll workload scale {held.work} --part {held.part} --max {most}")
            own += times * spec.gpus
    return Done(
        Act(ActionKind.STOP_OWN, f"stop work of the team itself: {'; '.join(words)}", "; ".join(commands)), own=own
    )


def _one_stop_each(options: Sequence[Option]) -> list[Option]:
    """A workload is cancelled once, whatever parts it has."""
    found, seen = list[Option](), set[str]()
    for option in options:
        if option.stops and option.who.work in seen:
            continue
        if option.stops:
            seen.add(option.who.work)
        found.append(option)
    return found


def _moving(pool: PoolKey) -> Callable[[Turn, Asked], Done | None]:
    def do(turn: Turn, asked: Asked) -> Done | None:
        close = close_now(turn, asked, pool)
        if not close.missing or not close.island:
            return None
        # Flex would be called back for a guarantee anyhow; moving it as well hurts nobody, so that is tried first.
        for with_flex, need in ((True, close.gpus - close.free), (False, close.missing)):
            if not close.is_guaranteed and not with_flex:
                return None
            if done := _move(turn, asked, pool, close.island, need, with_flex=with_flex):
                return done
        return None

    return do


def _move(turn: Turn, asked: Asked, pool: PoolKey, island: str, need: int, *, with_flex: bool) -> Done | None:
    options = []
    for held in held_in(turn, pool):
        if held.kind is not Kind.ELASTIC or held.is_spare or island not in held.islands:
            continue
        if held.work in (asked.spec.name, *turn.work.leaving) or (held.flex and not with_flex):
            continue
        unit = part_spec(turn, held).gpus
        if times := held.islands[island] // unit:
            options.append(Option(held, unit, unit, False, times))
    taken = fewest(options, need)
    if taken is None or not taken.chosen:
        return None
    plan = Plan([each for each in turn.floor.by_pool.of(pool) if each[1] != island], 1)
    moves: list[tuple[Held, int, list[Place]]] = []
    for place, times in taken.chosen:
        held, before = options[place].who, len(plan.places)
        if plan.put_replicas(part_spec(turn, held), times) < times:
            return None
        moves.append((held, times, plan.places[before:]))
    words = []
    for held, times, places in moves:
        move_replicas(turn, held, pool, island, places, by=asked.spec.name)
        where = ", ".join(sorted({each.island for each in places}))
        words.append(f"{counted(times, 'replica')} of {held.work}/{held.part} from {island} to {where}")
    need_text = f"--for {_block(turn, asked)} --sku {pool.sku} --cluster {pool.cluster}"
    command = f"plimsoll workload defrag {need_text} --apply   # these moves, or others that free as much"
    return Done(Act(ActionKind.MOVE_REPLICAS, f"move {'; '.join(words)}", command), moved=taken.freed)


def _block(turn: Turn, asked: Asked) -> int:
    parts = missing_parts(asked.spec, turn.work.workloads.get(asked.spec.name))
    return max(part.gpus for part in parts)
