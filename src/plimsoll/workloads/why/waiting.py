"""Why work waits: what it needs, where it comes closest, what stands in the way, and what would help. Pure.

The first sentence is the answer. Everything that is claimed of an action was seen on a what-if.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from plimsoll.fleet.model import PoolKey
from plimsoll.health.fold import Health
from plimsoll.quota.policy import Policy
from plimsoll.state.state import State
from plimsoll.times import show_time
from plimsoll.words import counted, span_text
from plimsoll.workloads.model import Asked, Booking
from plimsoll.workloads.queue import expected_start
from plimsoll.workloads.reasons import Cause, Reason
from plimsoll.workloads.refusal import refusal_for
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.why.actions import find_actions
from plimsoll.workloads.why.model import Act, Action, ActionKind, InWay, Near, Position, WorkWhy
from plimsoll.workloads.why.near import Closest, closest, position_in, tell
from plimsoll.workloads.why.outs import Out, nodes_out, to_the_hour
from plimsoll.workloads.why.right import WHOSE, Short, position_text, short_of_right
from plimsoll.workloads.why.stop_text import interruption_lines, last_stop
from plimsoll.workloads.why.waits import returns_for, with_return

POOLS_SHOWN = 3
WAITS = (ActionKind.WAIT_NODES, ActionKind.WAIT_PLANNED, ActionKind.WAIT_WORK)


def explain_waiting(
    state: State, name: str, *, now: datetime, grace: timedelta, policy: Policy, is_hypothetical: bool = False
) -> WorkWhy:
    """The answer for work that waits. The state is left as it was."""
    turn = Turn(state, now)
    asked = turn.work.asked[name]
    booking = turn.work.bookings.get(name)
    if booking is not None:
        return _starting(asked, booking, now)
    closes = closest(turn, asked)
    refusal = refusal_for(turn, asked)
    shown = [close.pool for close in closes[:POOLS_SHOWN]]
    position = _best_position(turn, asked, closes)
    if position is not None and (right := PoolKey(position.cluster, position.sku)) not in shown:
        shown.append(right)
    outs = nodes_out(state, shown, now=now)
    closes = [with_return(close, outs.get(close.pool, ())) for close in closes]
    found = find_actions(
        state, name, closes, outs, now=now, grace=grace, policy=policy, is_submitted=not is_hypothetical
    )  # fmt: skip
    short = short_of_right(turn, asked, closes, position, refusal.reason.cause)
    near = () if short is not None else tuple(_near(turn, asked, [each for each in closes if each.pool in shown], outs))
    can_start = next((each for each in found.actions if each.acts[0].kind is ActionKind.NOTHING), None)
    if can_start is not None:
        position = position_in(turn, asked, PoolKey(can_start.cluster, can_start.sku))
    start = _earliest(turn, asked, closes, found.actions)
    cause, missing = _lasting(turn, refusal.reason, near), max(1, min(near[0].missing, near[0].gpus)) if near else 0
    if short is not None:
        cause, missing = short.cause, short.missing
    answer = (
        _yes(asked, can_start, now)
        if can_start is not None
        else _no(turn, asked, cause, near, position, found.actions, start, short)
    )
    return WorkWhy(
        workload="" if is_hypothetical else name,
        team=asked.spec.team,
        standing="startable" if can_start is not None else "partly" if name in turn.work.workloads else "waiting",
        answer=tuple(answer),
        cause=cause if can_start is None else None,
        gpus=sum(part.gpus_least for part in asked.spec.parts),
        missing=missing if can_start is None else 0,
        earliest=can_start.starts if can_start is not None else start.at,
        is_estimate=start.is_estimate,
        near=near,
        position=position,
        notes=tuple(_notes(turn, asked, near, position, now)),
        actions=() if is_hypothetical and can_start is not None else found.actions,
        interruptions=tuple(interruption_lines(state, name, asked.spec.team)),
        checks=found.tries,
        is_search_cut=found.is_cut,
    )


def _near(turn: Turn, asked: Asked, closes: Sequence[Closest], outs: Mapping[PoolKey, Sequence[Out]]) -> Iterator[Near]:
    """Where it comes closest, pool by pool; after the closest the island that has room first when nodes return."""
    for place, close in enumerate(closes):
        mine = outs[close.pool]
        yield tell(turn, asked, close, mine)
        first = next(iter(returns_for(close, mine)), None) if not place else None
        if first is not None and first.island not in ("", close.island):
            yield tell(turn, asked, close.at(first.island), mine)


def _lasting(turn: Turn, reason: Reason, near: Sequence[Near]) -> Cause:
    """The lasting cause. Too much is promised only where it would be with every node back."""
    if reason.cause is Cause.OVER_PROMISED and near:
        pool = PoolKey(reason.cluster, reason.sku)
        count, promised = turn.fleet.pools.get(pool), sum(turn.book.guaranteed_in(pool).values())
        if count is not None and count.gpus_in_service < promised <= count.gpus:
            return Cause.NODES_UNHEALTHY
    return reason.cause


def _starting(asked: Asked, booking: Booking, now: datetime) -> WorkWhy:
    victims = sorted({victim.workload for victim in booking.victims})
    called = sum(victim.gpus for victim in booking.victims)
    due = show_time(booking.due.replace(microsecond=0))
    back = f"{called:,} GPUs of flex were called back for it, from {', '.join(victims)}"
    answer = (
        f"{asked.spec.name} starts at the latest at {due} in {booking.cluster}: {back}.",
        "There is nothing to do.",
    )
    if booking.due < now:
        late = span_text(now - booking.due)
        answer = (
            f"{asked.spec.name} should have started at {due} in {booking.cluster} and is {late} overdue: {back}.",
            "No round ran since then; the next one starts it: plimsoll workload run.",
        )
    return WorkWhy(
        asked.spec.name, asked.spec.team, "starting", answer, Cause.LENT_DRAINING,
        asked.spec.gpus_least, called, booking.due, False, (), None, (), (),
    )  # fmt: skip


def _best_position(turn: Turn, asked: Asked, closes: Sequence[Closest]) -> Position | None:
    """Where least of the guarantee is missing; where it comes closest, among equals."""
    mine = set(turn.book.guaranteed_pools.get(asked.spec.team, ()))
    found = [
        position
        for close in closes
        if close.pool in mine and (position := position_in(turn, asked, close.pool)) is not None
    ]
    return min(found, key=lambda each: each.missing, default=None)


class _Start(NamedTuple):
    """When work starts by itself as far as anybody knows, whether that is an estimate, and what happens then."""

    at: datetime | None
    is_estimate: bool = False
    when: str = ""


def _earliest(turn: Turn, asked: Asked, closes: Sequence[Closest], actions: Sequence[Action]) -> _Start:
    """When it starts by itself: when nodes return, or work ends as it said."""
    waits = [
        _Start(action.starts, action.is_estimate, "; ".join(_event(act) for act in action.acts))
        for action in actions
        if all(act.kind in WAITS for act in action.acts)
    ]
    told = turn.work.waits.get(asked.spec.name)
    if told is not None and told.starts is not None and told.starts > turn.now:
        waits.append(_Start(to_the_hour(told.starts), True))
    elif closes and closes[0].island and not waits:
        at = expected_start(turn, closes[0].pool, closes[0].island, closes[0].gpus)
        if at is not None and at > turn.now:
            waits.append(_Start(to_the_hour(at), True))
    return min(waits, key=lambda each: (each.at or turn.now, each.is_estimate, each.when), default=_Start(None))


def _event(act: Act) -> str:
    """What is waited for: the words of the act up to its time."""
    return act.says.removeprefix("wait until ").partition(": ")[0]


def _yes(asked: Asked, action: Action, now: datetime) -> Iterator[str]:
    where = f"{action.sku} of {action.cluster}, as {action.runs_as}"
    called = action.own + action.others
    after = f"; {called:,} GPUs of flex are called back for it" if called else ""
    when = "now" if action.starts <= now else f"at {show_time(action.starts.replace(microsecond=0))}"
    yield f"Yes: {asked.spec.name} can start {when} in {where}{after}."


def _no(
    turn: Turn,
    asked: Asked,
    cause: Cause,
    near: Sequence[Near],
    position: Position | None,
    actions: Sequence[Action],
    start: _Start,
    short: Short | None,
) -> Iterator[str]:
    """No, because of what, how many are short, when, and what to do."""
    name, team = asked.spec.name, asked.spec.team
    if short is not None:
        yield (
            f"No: {name} can't start now. It may run only inside a guarantee, and {short.says}:"
            f" {short.missing:,} GPUs of guarantee short."
        )
    elif not near:
        yield f"No: no cluster in production matches {{{asked.spec.where}}}."
        return
    else:
        yield f"No: {name} can't start now. {_closest_text(near[0])}"
    if (stopped := last_stop(turn.state, asked)) is not None:
        yield f"{stopped}."
    if short is None and position is not None and position.missing:
        yield f"{position_text(team, position)}, so it is no work inside the guarantee."
    elif cause is Cause.NO_GUARANTEE and short is None:
        yield f"{team} has no guarantee there: it can only start as flex, in room that nobody else uses."
    if start.at is not None:
        how = ", an estimate" if start.is_estimate else ""
        when = f": when {start.when}" if start.when else ""
        yield f"Earliest by itself: {show_time(start.at.replace(microsecond=0))}{how}{when}."
    elif short is not None:
        yield f"By itself it does not start: that is {WHOSE[short.cause.move]}: {short.command}"
    else:
        yield "When it starts by itself nobody can say: nothing that stands in the way has told an end."
    if actions:
        first = actions[0]
        words = "; then ".join(act.says for act in first.acts)
        yield f"Do this: {words}. It starts {_when(first, turn.now)} (checked)."
    else:
        yield "No action was found that lets it start; what was tried is in the figures."


def _when(action: Action, now: datetime) -> str:
    return "then at once" if action.starts <= now else f"then at {show_time(action.starts.replace(microsecond=0))}"


def _closest_text(near: Near) -> str:
    where = f"{near.sku} of {near.cluster}"
    if near.is_gang:
        call = f" and {near.callable:,} more that it may call back" if near.callable else ""
        text = (
            f"The largest free block is {near.free:,}{call} in island {near.island} ({where});"
            f" you need {near.gpus:,}: {near.missing:,} short"
        )
    else:
        call = f", {near.callable:,} more if flex is called back" if near.callable else ""
        text = f"{near.free:,} GPUs are free for {near.part} in {where}{call}; it needs {near.gpus:,}"
        text += f": {near.missing:,} short"
    blockers = in_way_text(near.in_way)
    return f"{text}; {blockers}." if blockers else f"{text}."


def in_way_text(in_way: Sequence[InWay]) -> str:
    """`2 replicas of eval/graders stand in the way`."""
    if not in_way:
        return ""
    words = [
        f"{counted(each.count, 'replica')} of {each.workload}/{each.part}"
        if each.kind == "elastic" and each.count
        else f"{each.workload}/{each.part} ({each.gpus:,} GPUs)"
        for each in in_way[:3]
    ]
    more = f" and {len(in_way) - 3} more" if len(in_way) > 3 else ""
    is_one = len(in_way) == 1 and in_way[0].count == 1
    return f"{', '.join(words)}{more} {'stands' if is_one else 'stand'} in the way"


def _notes(turn: Turn, asked: Asked, near: Sequence[Near], position: Position | None, now: datetime) -> Iterator[str]:
    """What else is worth knowing: its place, planned work ahead, and islands that are kept."""
    if position is not None and not position.missing:
        yield (
            f"All of it lies inside the guarantee of {asked.spec.team} in {position.cluster}"
            f" ({position.guaranteed:,} {position.sku}): it may call back flex, and nobody may take its place."
        )
    for each in near:
        works = [
            work
            for work in sorted(turn.state.of(Health).ahead.values(), key=lambda work: work.order)
            if not work.is_over(now) and any(
                (spot := turn.floor.spots.get(node)) is not None
                and (spot.cluster, spot.key.sku) == (each.cluster, each.sku)
                and each.island in ("", spot.key.island)
                for node in work.nodes
            )
        ]  # fmt: skip
        for work in works[:2]:
            yield (
                f"Planned work ahead in {each.island or each.cluster}: {work.reason},"
                f" {counted(len(work.nodes), 'node')}, {show_time(work.starts)} to {show_time(work.ends)}."
            )
    wait = turn.work.waits.get(asked.spec.name)
    if wait is not None and wait.holds_island:
        yield f"Island {wait.reason.island} is kept for it: what comes later may not delay it there."
