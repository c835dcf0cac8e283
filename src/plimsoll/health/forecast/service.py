"""Where a back-test gets its past from: a fleet folder read on the side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from plimsoll.errors import Refused, UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Phase
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.fleet.sheet import Sheet
from plimsoll.health.fold import Health
from plimsoll.health.forecast.backtest import Backtest, backtest
from plimsoll.health.forecast.history import History, Marks, Span, history_of, told_span
from plimsoll.health.forecast.method import Ask, Method
from plimsoll.health.forecast.present import days_text, too_short
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State

SHEETS_NEEDED = {"clusters", "nodes", "history"}


@dataclass(frozen=True)
class FolderBacktest:
    """A back-test with the time it rests on, and the clusters that are not in production or have no nodes."""

    span: Span
    result: Backtest
    skipped: Sequence[str]


def read_folder_state(keeper: Keeper, source: Source, sheets: Sequence[Sheet]) -> State:
    """The state that a folder's clusters, nodes and history make, in a database of its own."""
    plan, _ = import_fleet(keeper, source, sheets, actor="backtest")
    state = keeper.state()
    if not any(sheet.name == "history" and sheet.drafts for sheet in plan.sheets):
        nodes = state.of(Fleet).nodes
        told = sum(node.since is not None for node in nodes.values())
        what = "has no transitions" if "history" in source.raws else "is not there"
        raise Refused(
            "no_history",
            f"history.csv {what}: 0 transitions, and `since` of {told} of {len(nodes)} nodes tells no past",
            next_step="add history.csv (time,node,service,reason), or plimsoll fleet export DIR where there is one",
            transitions=0,
        )
    return state


def sheets_needed(sheets: Sequence[Sheet]) -> list[Sheet]:
    """Those that a back-test reads: what else is in a folder neither helps it nor stops it."""
    return [sheet for sheet in sheets if sheet.name in SHEETS_NEEDED]


def backtest_state(
    state: State,
    methods: Sequence[Method],
    ask: Ask,
    *,
    window: int,
    tell: Callable[[int], None] = lambda _done: None,
) -> FolderBacktest:
    """Back-test every cluster in production."""
    fleet, health = state.of(Fleet), state.of(Health)
    if window < 1:
        raise UsageError("bad_span", f"a window of {window} hours holds no history", next_step="--window 90d")
    by_cluster: dict[str, list[Node]] = {
        cluster.id: [] for cluster in fleet.clusters.values() if cluster.phase is Phase.PRODUCTION
    }
    for node in sorted(fleet.nodes.values(), key=lambda node: node.id):
        if node.cluster in by_cluster:
            by_cluster[node.cluster].append(node)
    skipped = sorted(set(fleet.clusters) - {cluster for cluster, nodes in by_cluster.items() if nodes})
    if len(skipped) == len(fleet.clusters):
        raise Refused(
            "nothing_to_forecast",
            f"none of the {len(fleet.clusters)} clusters is in production and has nodes",
            next_step="give them the phase production in clusters.csv",
        )
    marks = Marks(health)
    span = told_span(fleet, health, marks)
    if span is None or span.hour_count < window + ask.horizon:
        raise too_short(
            span,
            f"a window of {days_text(window)} and a horizon of {days_text(ask.horizon)}",
            window + ask.horizon,
            "--window and --horizon that add up to less, or a longer history.csv",
        )
    histories: list[History] = [
        history_of(cluster, nodes, health, marks, span) for cluster, nodes in sorted(by_cluster.items()) if nodes
    ]
    return FolderBacktest(span, backtest(histories, methods, ask, window=window, tell=tell), skipped)
