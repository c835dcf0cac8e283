"""A forecast of the state as it is: what can't be forecast is refused here, with how much history there is. Pure."""

from __future__ import annotations

from datetime import datetime

from plimsoll.errors import NotFound, Refused, UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase, Service
from plimsoll.health.fold import Health
from plimsoll.health.forecast.history import Marks, Span
from plimsoll.health.forecast.live import Forecast, forecast, live_span
from plimsoll.health.forecast.method import Ask
from plimsoll.state.state import State
from plimsoll.words import near

HORIZONS_MIN = 2
"""A forecast needs at least so many horizons of history: one to learn from, one to choose a method by."""


def checked_ask(*, horizon: int, target: float) -> Ask:
    """What is asked, if it can be."""
    if not 0 < 1 - target < 1:  # also none that is so small that nothing is left of it
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
        raise too_short(
            span,
            f"two horizons of {days_text(ask.horizon)}",
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
        raise NotFound(
            "no_such_cluster",
            f"there is no cluster {name[:100]!r} among {len(fleet.clusters)}{near(name, fleet.clusters)}",
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


def too_short(span: Span | None, what: str, needed: int, next_step: str) -> Refused:
    days = span.days if span else 0.0
    return Refused(
        "history_too_short",
        f"the history runs over {days:.1f} days, and {what} take {needed / 24:g} days",
        next_step=next_step,
        history_days=round(days, 3),
        needed_days=needed / 24,
    )


def days_text(hours: int) -> str:
    return f"{hours // 24} days" if hours % 24 == 0 else f"{hours} hours"
