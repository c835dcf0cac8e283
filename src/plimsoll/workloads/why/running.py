"""Work that runs: as what, where, what threatens it, and what interrupted it last. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from plimsoll.state.state import State
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.view import WorkView, look_at
from plimsoll.workloads.why.model import WorkWhy
from plimsoll.workloads.why.stop_text import interruption_lines
from plimsoll.workloads.why.threats import threats_of


def explain_running(state: State, name: str, *, now: datetime) -> WorkWhy:
    """The answer for work that runs."""
    turn = Turn(state, now)
    [view] = look_at(state, [name], now=now)
    threats, unsure = threats_of(turn, view, now)
    islands = sorted({island for part in view.parts for island in part.islands})
    where = f"{view.sku} of {view.cluster}, island {', '.join(islands[:3])}" + (
        f" and {len(islands) - 3} more" if len(islands) > 3 else ""
    )
    answer = [f"{name} runs: {view.gpus:,} GPUs, {_as_what(view)}, in {where}."]
    if threats:
        answer.append(f"What may happen to it: {threats[0].says}.")
    elif unsure:
        answer.append("By the order of loss nothing takes it; but nobody told on which nodes it runs.")
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
        notes=(*unsure, *_wanting(view)),
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
