"""Work that runs: as what, where, what threatens it, and what interrupted it last. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from plimsoll.fleet.model import PoolKey
from plimsoll.health.ahead import nodes_ahead
from plimsoll.health.fold import Health
from plimsoll.quota.model import QuotaKey
from plimsoll.state.state import State
from plimsoll.times import show_time
from plimsoll.words import counted
from plimsoll.workloads.reasons import Cause
from plimsoll.workloads.rights import Held, flex_by_team, flex_ratio, held_in
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.view import WorkView, look_at
from plimsoll.workloads.why.model import Threat, WorkWhy
from plimsoll.workloads.why.stop_text import interruption_lines

_FOREVER = datetime.max.replace(tzinfo=UTC)


def explain_running(state: State, name: str, *, now: datetime) -> WorkWhy:
    """The answer for work that runs."""
    turn = Turn(state, now)
    [view] = look_at(state, [name], now=now)
    threats = sorted(_threats(turn, view, now), key=lambda each: (each.cause.place, -each.gpus))
    islands = sorted({island for part in view.parts for island in part.islands})
    where = f"{view.sku} of {view.cluster}, island {', '.join(islands[:3])}" + (
        f" and {len(islands) - 3} more" if len(islands) > 3 else ""
    )
    answer = [f"{name} runs: {view.gpus:,} GPUs, {_as_what(view)}, in {where}."]
    if threats:
        answer.append(f"What may happen to it: {threats[0].says}.")
    else:
        answer.append("Nothing threatens it that anybody knows of.")
    return WorkWhy(
        workload=name,
        team=view.team,
        standing=view.standing.value,
        answer=tuple(answer),
        cause=None,
        gpus=view.gpus,
        missing=0,
        earliest=None,
        is_estimate=False,
        near=(),
        position=None,
        notes=tuple(_wanting(view)),
        actions=(),
        threats=tuple(threats),
        interruptions=tuple(interruption_lines(state, name, view.team)),
    )


def _as_what(view: WorkView) -> str:
    inside, flex = (sum(getattr(part, name) for part in view.parts) for name in ("guaranteed", "flex"))
    if inside and flex:
        return f"{inside:,} guaranteed and {flex:,} as flex"
    return "all guaranteed" if inside else "all as flex"


def _wanting(view: WorkView) -> Iterator[str]:
    for part in view.parts:
        if 0 < part.gpus < part.wanted:
            yield f"{part.part} has {part.gpus:,} of the {part.wanted:,} GPUs it could use: it grows when there is room"


def _threats(turn: Turn, view: WorkView, now: datetime) -> Iterator[Threat]:
    name = view.workload
    for booker in view.leaves_for:
        booking = turn.work.bookings[booker]
        gpus = sum(victim.gpus for victim in booking.victims if victim.workload == name)
        due = show_time(booking.due.replace(microsecond=0))
        yield Threat(
            Cause.PREEMPTED, gpus, f"{gpus:,} GPUs of it were called back for {booker} and leave by {due}", booking.due
        )
    for table, cause, words in (
        (turn.floor.lost, Cause.NODE_LOST, "are out: it is repaired in the next round"),
        (turn.floor.drains, Cause.PLANNED_WORK, "drain: it must leave them"),
    ):
        nodes = sorted({node for (work, _), some in table.items() if work == name for node in some})
        if nodes:
            gpus = sum(turn.floor.spots[node].gpus for node in nodes if node in turn.floor.spots)
            yield Threat(cause, gpus, f"{_some(nodes)} under it {words}")
    mine = sorted({node for part in view.parts for node in part.nodes})
    ahead = nodes_ahead(turn.state.of(Health), mine, now=now, until=_FOREVER)
    for work in sorted(set(ahead.values()), key=lambda each: each.order):
        nodes = [node for node, each in ahead.items() if each == work]
        gpus = sum(turn.floor.spots[node].gpus for node in nodes)
        says = (
            f"planned work ({work.reason}) takes {_some(nodes)} from {show_time(work.starts)} to {show_time(work.ends)}"
        )
        yield Threat(Cause.PLANNED_AHEAD, gpus, says, work.starts)
    flex = sum(part.flex for part in view.parts)
    if flex:
        yield Threat(Cause.FLEX_TAKEN, flex, _first_to_go(turn, view, flex))


def _some(nodes: Sequence[str]) -> str:
    return f"{nodes[0]}" if len(nodes) == 1 else f"{counted(len(nodes), 'node')} ({nodes[0]}, …)"


def _first_to_go(turn: Turn, view: WorkView, flex: int) -> str:
    """Flex goes when a guarantee needs it: how much of the pool's flex goes before."""
    pool = PoolKey(view.cluster, view.sku)
    held = [each for each in held_in(turn, pool) if each.flex]
    order = going_order(turn, pool, held)
    place = next(place for place, each in enumerate(order) if each.work == view.workload)
    before = sum(each.flex for each in order[:place])
    first = "it goes first" if not before else f"{before:,} GPUs of other flex go before it"
    return (
        f"{flex:,} GPUs of it are flex and go when a guarantee needs them; of the flex in {view.cluster} {first}"
        " where that is enough"
    )


def going_order(turn: Turn, pool: PoolKey, held: Sequence[Held]) -> list[Held]:
    """Flex in the order in which it is called back: spares, then whoever holds most flex for its guarantee, the last of
    its own order first.
    """
    flex = flex_by_team(held)
    ratios = {team: flex_ratio(gpus, turn.book.guaranteed.get(QuotaKey(team, *pool), 0)) for team, gpus in flex.items()}
    found = sorted(held, key=lambda each: each.order, reverse=True)
    found.sort(key=lambda each: each.team)
    found.sort(key=lambda each: _weight(ratios[each.team]), reverse=True)
    found.sort(key=lambda each: not each.is_spare)
    return found


def _weight(ratio: float | None) -> tuple[bool, float]:
    return ratio is None, ratio or 0.0
