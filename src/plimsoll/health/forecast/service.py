"""Where a forecast or a back-test gets its past from: the state of a ledger, or a fleet folder read on the side.

What can't be forecast is refused here, with how much history there is and how much is needed.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from plimsoll.errors import NotFound, Refused, UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Phase, Service
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.fleet.sheet import Sheet
from plimsoll.health.fold import Health
from plimsoll.health.forecast.backtest import Backtest, backtest
from plimsoll.health.forecast.history import History, Marks, Span, history_of, told_span
from plimsoll.health.forecast.live import Forecast, forecast, live_span
from plimsoll.health.forecast.method import Ask, Method
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State

SHEETS_NEEDED = {"clusters", "nodes", "history"}
HORIZONS_MIN = 2
"""A forecast needs at least so many horizons of history: one to learn from, one to choose a method by."""


@dataclass(frozen=True)
class FolderBacktest:
    """A back-test with the time it rests on, and the clusters that are not in production or have no nodes."""

    span: Span
    result: Backtest
    skipped: Sequence[str]


def checked_ask(*, horizon: int, target: float) -> Ask:
    """What is asked, if it can be."""
    if not 0 < target < 1:
        raise UsageError(
            "bad_target",
            f"--target {target:g} is no probability to hold a promise with",
            next_step="give a number between 0 and 1, such as --target 0.99",
            value=target,
        )
    if horizon < 1:
        raise UsageError(
            "bad_span", f"a horizon of {horizon} hours has no hour to keep a promise in", next_step="--horizon 7d"
        )
    return Ask(horizon, target)


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
        raise _too_short(
            span,
            f"a window of {_days(window)} and a horizon of {_days(ask.horizon)}",
            window + ask.horizon,
            "--window and --horizon that add up to less, or a longer history.csv",
        )
    histories: list[History] = [
        history_of(cluster, nodes, health, marks, span) for cluster, nodes in sorted(by_cluster.items()) if nodes
    ]
    return FolderBacktest(span, backtest(histories, methods, ask, window=window, tell=tell), skipped)


def forecast_state(state: State, ask: Ask, *, now: datetime, cluster: str = "", method: str = "") -> Forecast:
    """Forecast the pools of a cluster in production, or of all of them, from now on."""
    fleet, health = state.of(Fleet), state.of(Health)
    if not fleet.nodes:
        raise Refused(
            "nothing_to_forecast",
            "the fleet is empty: there is no node to forecast",
            next_step="plimsoll demo, or plimsoll fleet import DIR",
        )
    if cluster:
        _check_cluster(fleet, cluster)
    span = live_span(fleet, health, Marks(health))
    if span is None or span.hour_count < HORIZONS_MIN * ask.horizon:
        raise _too_short(
            span,
            f"two horizons of {_days(ask.horizon)}",
            HORIZONS_MIN * ask.horizon,
            "a shorter --horizon, or import a longer history.csv",
        )
    found = forecast(fleet, health, span, ask, now=now, clusters=[cluster] if cluster else [], method=method)
    if not found.pools:
        raise Refused(
            "nothing_to_forecast",
            f"none of the {len(fleet.clusters)} clusters is in production and has nodes",
            next_step="plimsoll fleet show --by phase",
        )
    return found


def _check_cluster(fleet: Fleet, name: str) -> None:
    known = fleet.clusters.get(name)
    if known is None:
        near = difflib.get_close_matches(name, fleet.clusters, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise NotFound(
            "no_such_cluster",
            f"there is no cluster {name[:100]!r} among {len(fleet.clusters)}{hint}",
            next_step="plimsoll fleet show --by cluster",
            cluster=name[:100],
        )
    has_nodes = any(node.cluster == name and node.service is not Service.RETIRED for node in fleet.nodes.values())
    if known.phase is not Phase.PRODUCTION or not has_nodes:
        what = f"is in phase {known.phase}" if known.phase is not Phase.PRODUCTION else "has 0 nodes"
        raise Refused(
            "nothing_to_forecast",
            f"cluster {name} {what}: nothing is promised of it",
            next_step=f"plimsoll fleet show cluster={name}",
            cluster=name,
        )


def _too_short(span: Span | None, what: str, needed: int, next_step: str) -> Refused:
    days = span.days if span else 0.0
    return Refused(
        "history_too_short",
        f"the history runs over {days:.1f} days, and {what} take {needed / 24:g} days",
        next_step=next_step,
        history_days=round(days, 3),
        needed_days=needed / 24,
    )


def _days(hours: int) -> str:
    return f"{hours // 24} days" if hours % 24 == 0 else f"{hours} hours"
