"""Why a team can't use all of its quota: from assigned to guaranteed to what it can start now, step by step. Pure.

The steps add up exactly. A broken node hurts a promise only where fewer GPUs work than are guaranteed; everywhere else
it costs flex, and that is said and not counted against the team.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from plimsoll.fleet.model import Phase, PoolKey
from plimsoll.quota.fill import fill
from plimsoll.quota.model import Claim, QuotaKey
from plimsoll.quota.names import check_team
from plimsoll.state.state import State
from plimsoll.times import show_time
from plimsoll.words import counted, span_text
from plimsoll.workloads.losses import in_service, losses_in, lost_already, out_of_service
from plimsoll.workloads.reasons import Cause
from plimsoll.workloads.shape import HOLD_PREFIX
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.why.model import Named, PoolWhy, Step, TeamWhy, step
from plimsoll.workloads.why.outs import Out, back_by, back_text, by_reason, nodes_out
from plimsoll.workloads.why.planned import planned_outs
from plimsoll.workloads.why.space import Booked, Space, booked_inside, space_in

ASSIGNED, GUARANTEED = "assigned", "guaranteed"


def explain_team(state: State, team: str, *, now: datetime, grace: timedelta) -> TeamWhy:
    """The answer for every pool where the team holds, is guaranteed or uses something."""
    check_team(state, team)
    turn = Turn(state, now)
    pools = sorted(pool for pool, teams in turn.book.pool_teams.items() if team in teams)
    outs = nodes_out(state, pools, now=now)
    found = tuple(_pool(turn, team, pool, outs[pool], grace) for pool in pools)
    return TeamWhy(team, tuple(_answer(team, found)), found, planned_outs(state, pools, now=now))


class _Use(NamedTuple):
    """What of a guarantee is taken: by own work inside it, by what is kept, and what is left."""

    inside: dict[str, int]
    kept: dict[str, int]
    left: int
    flex: int


def use_of(claims: Sequence[Claim], guaranteed: int) -> _Use:
    """Who fills a guarantee."""
    inside, kept, left, flex = dict[str, int](), dict[str, int](), guaranteed, 0
    for claim, taken in zip(claims, fill(claims, guaranteed), strict=True):
        if claim.reserve:
            reserved = min(left, claim.reserve)
            left -= reserved
            if reserved:
                kept[claim.work.removeprefix(HOLD_PREFIX)] = reserved
        left -= taken
        flex += claim.gpus - taken
        if taken:
            inside[claim.work] = inside.get(claim.work, 0) + taken
    return _Use(inside, kept, left, flex)


def _pool(turn: Turn, team: str, pool: PoolKey, outs: Sequence[Out], grace: timedelta) -> PoolWhy:
    book, key = turn.book, QuotaKey(team, *pool)
    assigned = book.quotas[key].gpus if key in book.quotas else 0
    guaranteed = book.guaranteed.get(key, 0)
    claims = book.claims.get(key, ())
    use = use_of(claims, guaranteed)
    steps = [*_promise_steps(turn, team, pool, assigned, guaranteed), *_use_steps(turn, key, use)]
    booked = booked_inside(turn, key, use.left)
    space = space_in(turn, pool, team, booked)
    if booked:
        steps.append(_booked_step(turn, booked))
    wanted = use.left - sum(each.gpus for each in booked)
    steps += _room_steps(turn, pool, wanted, space, outs, grace)
    startable = min(wanted, space.open)
    block, island = space.largest(startable)
    return PoolWhy(
        *pool,
        assigned=assigned,
        guaranteed=guaranteed,
        startable=startable,
        free=min(startable, space.free),
        largest_block=block,
        largest_block_island=island,
        allocated=sum(claim.gpus for claim in claims),
        flex_used=use.flex,
        shortfall=shortfall_of(turn, pool) if guaranteed else 0,
        steps=tuple(sorted(steps, key=lambda each: (each.after != ASSIGNED, each.cause.place))),
        notes=(
            *_notes(turn, pool, use, startable, block, island, space, outs, grace),
            *_waiting_notes(turn, team, pool),
        ),
    )


def shortfall_of(turn: Turn, pool: PoolKey) -> int:
    """GPUs that are guaranteed of a pool and have no working machine behind them."""
    count = turn.fleet.pools.get(pool)
    healthy = count.gpus_in_service if count is not None else 0
    return max(0, sum(turn.book.guaranteed_in(pool).values()) - healthy)


def _promise_steps(turn: Turn, team: str, pool: PoolKey, assigned: int, guaranteed: int) -> Iterator[Step]:
    """From what the book says to what is promised."""
    cut = assigned - guaranteed
    where = f"{pool.sku} of {pool.cluster}"
    plan = f"plimsoll quota plan {pool.cluster}"
    if pool not in turn.book.lines:
        if cut:
            says = f"nothing of {where} is guaranteed yet: no alignment was applied; all work runs as flex"
            yield step(ASSIGNED, Cause.NOT_ALIGNED, cut, says, next_step=plan)
        return
    assert cut >= 0, f"{team} is guaranteed {-cut} more {where} than it holds"
    never, flex, late = cut_shares(turn, pool).get(team, (0, 0, 0))
    count = turn.fleet.pools.get(pool)
    all_assigned, healthy = turn.book.assigned.get(pool, 0), count.gpus_in_service if count is not None else 0
    if never:
        says = f"never backed: quotas of {where} add up to {all_assigned:,}, and {healthy:,} GPUs work"
        if count is not None and (broken := min(count.gpus, all_assigned) - healthy) > 0:
            says += f"; {broken:,} of the gap are on nodes that are out, which the promise was aligned without"
        yield step(
            ASSIGNED,
            Cause.NEVER_BACKED,
            never,
            says,
            next_step=f"plimsoll quota request {team} {never} --sku {pool.sku}",
        )
    if flex:
        says = f"healthy, but too uncertain to promise: the line in force is {turn.book.line_of(pool):,}; it is flex"
        yield step(ASSIGNED, Cause.TO_FLEX, flex, says, next_step=f"plimsoll quota show {pool.cluster}")
    if late:
        says = (
            "under the line and not guaranteed: the book has changed since the last alignment, or a block stayed whole"
        )
        yield step(ASSIGNED, Cause.NOT_ALIGNED, late, says, next_step=plan)


def cut_shares(turn: Turn, pool: PoolKey) -> dict[str, tuple[int, int, int]]:
    """What of each team's cut was never backed, is now flex, or awaits an alignment: the pool's sums, shared out in
    proportion to the cuts, so that the teams' shares add up to them.
    """
    book, cuts = turn.book, dict[str, int]()
    for team in book.pool_teams.get(pool, ()):
        key = QuotaKey(team, *pool)
        cut = (book.quotas[key].gpus if key in book.quotas else 0) - book.guaranteed.get(key, 0)
        if cut > 0:
            cuts[team] = cut
    total = sum(cuts.values())
    count, assigned = turn.fleet.pools.get(pool), book.assigned.get(pool, 0)
    healthy = count.gpus_in_service if count is not None else 0
    over = min(total, max(0, assigned - book.line_of(pool)))
    never = min(over, max(0, assigned - healthy))
    shares, before = {}, 0
    for team, cut in sorted(cuts.items()):
        bounds = [[part * each // total for each in (before, before + cut)] for part in (never, over)]
        mine_never = bounds[0][1] - bounds[0][0]
        mine_over = max(mine_never, bounds[1][1] - bounds[1][0])
        shares[team] = mine_never, mine_over - mine_never, cut - mine_over
        before += cut
    return shares


def _use_steps(turn: Turn, key: QuotaKey, use: _Use) -> Iterator[Step]:
    """What the team itself has taken of its guarantee."""
    dead = _dead_inside(turn, key, use)
    alive = sum(use.inside.values()) - sum(dead.values())
    named = sorted(((gpus - dead.get(work, 0), work) for work, gpus in use.inside.items()), reverse=True)
    if alive:
        of = tuple(Named(work, gpus) for gpus, work in named if gpus)
        says = f"in use by its own {counted(len(of), 'workload')}"
        yield step(GUARANTEED, Cause.IN_USE, alive, says, of=of, next_step=f"plimsoll workload list team={key.team}")
    if dead:
        of = tuple(Named(work, gpus) for work, gpus in sorted(dead.items()))
        says = "held by its own work, but the nodes under it are out"
        yield step(GUARANTEED, Cause.NODE_LOST, sum(dead.values()), says, of=of)
    if use.kept:
        of = tuple(Named(each, gpus, _hold_text(turn, each)) for each, gpus in sorted(use.kept.items()))
        ends = [turn.work.holds[each].until for each in use.kept]
        says = "kept by the team: " + "; ".join(f"{each.gpus:,} {each.says}" for each in of)
        release = f"plimsoll workload release {of[0].name}"
        total = sum(use.kept.values())
        yield step(
            GUARANTEED, Cause.TEAM_HELD, total, says, until=max(ends), is_told=True, of=of, next_step=release
        )  # fmt: skip


def _hold_text(turn: Turn, hold_id: str) -> str:
    hold = turn.work.holds[hold_id]
    return f"for {hold.keeper} until {show_time(hold.until.replace(microsecond=0))}"


def _dead_inside(turn: Turn, key: QuotaKey, use: _Use) -> dict[str, int]:
    """What of the work inside the guarantee stands on nodes that are out, where more is held than works. On those that
    drain it still runs.
    """
    state, pool = turn.state, key.pool
    if not losses_in(state, pool, working=in_service(state, pool)):
        return {}
    found: dict[str, int] = {}
    for loss in lost_already(state, pool, out_of_service(state, [pool])[pool]):
        if loss.team == key.team and not loss.is_flex and loss.work in use.inside:
            found[loss.work] = min(use.inside[loss.work], found.get(loss.work, 0) + loss.gpus)
    return found


def _booked_step(turn: Turn, places: Sequence[Booked]) -> Step:
    booked: dict[str, int] = {}
    for each in places:
        booked[each.workload] = booked.get(each.workload, 0) + each.gpus
    dues = [turn.work.bookings[name].due for name in booked]
    of = tuple(
        Named(name, gpus, f"starts at the latest {show_time(turn.work.bookings[name].due.replace(microsecond=0))}")
        for name, gpus in sorted(booked.items())
    )
    says = "called back for its own work, which starts when the flex there has left: " + ", ".join(sorted(booked))
    return step(
        GUARANTEED, Cause.LENT_DRAINING, sum(booked.values()), says, until=max(dues), is_told=True, of=of
    )  # fmt: skip


def _room_steps(
    turn: Turn, pool: PoolKey, wanted: int, space: Space, outs: Sequence[Out], grace: timedelta
) -> Iterator[Step]:
    """What is left of the guarantee and can't be had for want of working GPUs."""
    cluster = turn.fleet.clusters.get(pool.cluster)
    hardware = wanted - min(wanted, space.ever)
    if hardware and (cluster is None or cluster.phase is not Phase.PRODUCTION):
        phase = cluster.phase if cluster is not None else "gone"
        yield step(GUARANTEED, Cause.NO_SUCH_ROOM, hardware, f"cluster {pool.cluster} is {phase}: nothing starts in it")
    elif hardware:
        yield from _hardware_steps(turn, pool, hardware, outs)
    if others := min(wanted, space.ever) - min(wanted, space.unbooked):
        says = f"flex there was called back for {', '.join(space.bookers)} and has yet to leave"
        due = max(turn.work.bookings[name].due for name in space.bookers)
        yield step(GUARANTEED, Cause.LENT_DRAINING, others, says, until=due + grace, is_told=False)
    if kept := min(wanted, space.unbooked) - min(wanted, space.open):
        says = f"an island is kept for {', '.join(space.keepers)}, which waits for more room in it"
        yield step(GUARANTEED, Cause.RESERVED, kept, says, next_step=f"plimsoll why {space.keepers[0]}")


def _hardware_steps(turn: Turn, pool: PoolKey, missing: int, outs: Sequence[Out]) -> Iterator[Step]:
    """Fewer GPUs work than are promised: whom to thank for it, in proportion to what each has out."""
    count = turn.fleet.pools.get(pool)
    total, healthy = (count.gpus, count.gpus_in_service) if count is not None else (0, 0)
    promised = sum(turn.book.guaranteed_in(pool).values())
    faults, planned = ([out for out in outs if out.is_planned is kind] for kind in (False, True))
    gpus = [sum(out.node.gpus for out in some) for some in (faults, planned)]
    over = min(missing, max(0, promised - total)) if sum(gpus) else missing
    left = missing - over
    by_plan = left * gpus[1] // sum(gpus) if sum(gpus) else 0
    why = f"{healthy:,} of {total:,} GPUs work and {promised:,} are guaranteed"
    if over:
        yield step(GUARANTEED, Cause.OVER_PROMISED, over, f"{why}: more than there will be when all are back")
    for cause, mine, part in (
        (Cause.NODES_UNHEALTHY, faults, left - by_plan),
        (Cause.PLANNED_WORK, planned, by_plan),
    ):
        if part:
            until, is_told, _ = back_by(mine, part)
            what = "out for planned work" if cause is Cause.PLANNED_WORK else "broken"
            says = f"{counted(len(mine), 'node')} {what}, {back_text(mine)}; {why}"
            show = f"plimsoll fleet nodes cluster={pool.cluster} sku={pool.sku} 'service!=in_service'"
            yield step(
                GUARANTEED, cause, part, says, until=until, is_told=is_told, of=by_reason(mine), next_step=show
            )  # fmt: skip


def _notes(
    turn: Turn,
    pool: PoolKey,
    use: _Use,
    startable: int,
    block: int,
    island: str,
    space: Space,
    outs: Sequence[Out],
    grace: timedelta,
) -> Iterator[str]:
    """What costs the team nothing, and how what it can have is scattered."""
    count = turn.fleet.pools.get(pool)
    healthy = count.gpus_in_service if count is not None else 0
    promised = sum(turn.book.guaranteed_in(pool).values())
    if short := shortfall_of(turn, pool):
        yield (
            f"{short:,} GPUs of the promises of this pool have no working machine behind them: {healthy:,} work and"
            f" {promised:,} are guaranteed; what every team can start is true for each alone, not for all at once"
        )
    if outs and healthy >= promised and pool in turn.book.lines:
        is_or_are = "is" if len(outs) == 1 else "are"
        yield (
            f"{counted(len(outs), 'node')} of {pool.cluster} {is_or_are} out: that costs flex, not the guarantee;"
            f" {healthy:,} GPUs work and {promised:,} are guaranteed"
        )
    if startable > space.free:
        called = startable - space.free
        yield f"for {called:,} of the startable GPUs flex is called back first: within {span_text(grace)}"
    if startable and block < startable:
        yield f"GPUs are free, but scattered: the largest block in one island is {block:,}, in {island}"
    if use.flex:
        yield f"{use.flex:,} GPUs run beyond the guarantee, as flex: they go when a guarantee needs them"


def _waiting_notes(turn: Turn, team: str, pool: PoolKey) -> Iterator[str]:
    for name in turn.work.reservations.get(pool, ()):
        wait = turn.work.waits[name]
        if turn.work.asked[name].spec.team == team:
            yield f"island {wait.reason.island} is kept for the team's own {name}, which waits: plimsoll why {name}"


def _answer(team: str, pools: Sequence[PoolWhy]) -> Iterator[str]:
    """The answer in a sentence, and then the step that costs most."""
    if not pools:
        yield f"{team} holds nothing and runs nothing: there is no quota to use."
        return
    assigned, guaranteed, startable = (
        sum(getattr(pool, name) for pool in pools) for name in ("assigned", "guaranteed", "startable")
    )
    inside = sum(each.gpus for pool in pools for each in pool.steps if each.cause is Cause.IN_USE)
    lost = guaranteed - inside - startable
    first = f"{team} can start {startable:,} GPUs more inside its guarantee now" if startable else (
        f"{team} can start nothing more inside its guarantee now"
    )  # fmt: skip
    short = sum(pool.shortfall for pool in pools)
    if short and not lost and guaranteed >= assigned:
        yield (
            f"{first}, but {short:,} GPUs of the promises there have no working machine behind them;"
            f" {inside:,} of {guaranteed:,} guaranteed GPUs are in use."
        )
        yield from _short_text(pools)
        return
    if not lost and guaranteed >= assigned:
        yield f"{first}: nothing is wrong; {inside:,} of {guaranteed:,} guaranteed GPUs are in use."
        return
    yield f"{first}: of {assigned:,} assigned {guaranteed:,} are guaranteed, {inside:,} of those are in use" + (
        f", and {lost:,} can't be had." if lost else "."
    )
    yield from _short_text(pools)
    worst = max(
        ((each.gpus, -each.cause.place, pool, each) for pool in pools for each in pool.steps
         if each.cause is not Cause.IN_USE and each.gpus > 0),
        key=lambda found: found[:2], default=None,
    )  # fmt: skip
    if worst is not None:
        gpus, _, pool, reason = worst
        until = f" Expected until {show_time(reason.until.replace(microsecond=0))}." if reason.until else ""
        yield f"Most of it: {gpus:,} {pool.sku} of {pool.cluster}: {reason.says}.{until}"


def _short_text(pools: Sequence[PoolWhy]) -> Iterator[str]:
    """Where more is guaranteed than works, for whoever has a part in it."""
    for pool in sorted(pools, key=lambda each: -each.shortfall):
        if pool.shortfall:
            yield (
                f"Shortfall: {pool.shortfall:,} GPUs of the promises of {pool.sku} of {pool.cluster} have no working"
                " machine behind them; whoever starts first has the rest."
            )
