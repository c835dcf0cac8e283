"""How each method would have done: decisions at a rolling origin, each made with what was known then, then judged by
every hour that followed. Pure.

Decisions start `window` hours after the history does and are made every `horizon` hours; an incomplete last horizon is
dropped. An hour is violated if the healthy nodes fall below the promise at any instant of it. Clusters are judged at
the same hours, so that a method may learn from what had happened to the others by then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plimsoll.health.forecast.history import History
from plimsoll.health.forecast.method import Ask, FleetView, Method, Promise, Record, Records, View
from plimsoll.health.forecast.methods import HINDSIGHT

ROUNDING = 1e-9
Decide = Callable[[Method, View, Ask, Records], Promise]


def as_it_is(method: Method, view: View, ask: Ask, records: Records) -> Promise:
    """What the method says."""
    return method.promise(view, ask, records)


@dataclass(frozen=True)
class Decision:
    """A promise and what became of it. Hours count from the start of the history; shortfall is in node-hours."""

    cluster: str
    method: str
    at: int
    until: int
    total: int
    promised: int
    violated_hours: int
    shortfall: int

    @property
    def buffer_share(self) -> float:
        return (self.total - self.promised) / self.total


@dataclass(frozen=True)
class Score:
    """How a method did. `shortfall_mean` is how many nodes were missing, on average over the violated hours."""

    method: str
    violation_rate: float
    buffer_share: float
    worst_cluster: str
    worst_violation_rate: float
    shortfall_mean: float


@dataclass(frozen=True)
class Backtest:
    """All of it. `recommended` is the cheapest method that kept the target, or the one that came nearest to it."""

    ask: Ask
    window: int
    hours: int
    scores: Sequence[Score]
    decisions: Sequence[Decision]
    records: Mapping[tuple[str, str], Records]
    """By method and cluster: the accounts as they stand at the end."""

    def score(self, method: str) -> Score:
        return next(score for score in self.scores if score.method == method)


def decision_hours(hour_count: int, *, window: int, horizon: int) -> range:
    """When decisions are made."""
    return range(window, hour_count - horizon + 1, horizon)


def backtest(
    histories: Sequence[History],
    methods: Sequence[Method],
    ask: Ask,
    *,
    window: int,
    first: int | None = None,
    decide: Decide = as_it_is,
    tell: Callable[[int], None] = lambda _done: None,
    views: Callable[[Sequence[History], int, int], FleetView] = FleetView,
) -> Backtest:
    """Let each method decide, from hour `first` on (else as soon as a window is over), and judge it.

    What is judged is what would be promised: at most what is healthy at that moment. `tell` hears up to which hour it
    has been decided. `views` may have a view already, as what was known at an hour does not change.
    """
    hours = histories[0].span.hour_count if histories else 0
    decisions: list[Decision] = []
    accounts = {
        method.name: ({history.name: Record() for history in histories}, Record(), method) for method in methods
    }
    moments = decision_hours(hours, window=window if first is None else first, horizon=ask.horizon)
    for at in moments:
        fleet = views(histories, at, window)
        alive = [(history, view) for history, view in zip(histories, fleet.views, strict=True) if view.total > 0]
        for own, shared, method in accounts.values():
            made = []
            for history, view in alive:
                records = Records(own[view.name], shared, max(1, len(alive)))
                # What is not healthy now is not promised from now on, however soon it returns.
                promised = min(view.total - decide(method, view, ask, records).buffer, view.healthy)
                made.append(_judge(history, method.name, at, ask.horizon, view.total, promised))
            # What became of a promise is known only after its horizon, so no decision of this moment may see it.
            for decision in made:
                own[decision.cluster].add(decision.violated_hours / ask.horizon)
                shared.add(decision.violated_hours / ask.horizon)
            decisions += made
        tell(at)
    ends = {
        (name, cluster): Records(record, shared, max(1, len(histories)))
        for name, (own, shared, _) in accounts.items()
        for cluster, record in own.items()
    }
    decisions += [decision for history in histories for decision in _hindsight(history, moments, ask)]
    names = [*accounts, HINDSIGHT]
    decisions.sort(key=lambda each: (names.index(each.method), each.cluster, each.at))
    scores = [_score(name, [each for each in decisions if each.method == name]) for name in names] if decisions else []
    return Backtest(ask, window, hours, scores, decisions, ends)


def _judge(history: History, method: str, at: int, horizon: int, total: int, promised: int) -> Decision:
    missing = promised - history.healthy_least[at : at + horizon]
    missing = missing[missing > 0]
    return Decision(history.name, method, at, at + horizon, total, promised, len(missing), int(missing.sum()))


def _hindsight(history: History, moments: range, ask: Ask) -> list[Decision]:
    """The smallest constant whole-node buffer that would have been violated in at most the allowed share of hours."""
    totals = {at: history.total_at(at) for at in moments}
    totals = {at: total for at, total in totals.items() if total > 0}
    if not totals:
        return []
    needed = np.concatenate([total - history.healthy_least[at : at + ask.horizon] for at, total in totals.items()])
    allowed = math.floor(ask.risk * len(needed) + ROUNDING)
    buffer = max(0, int(np.sort(needed)[len(needed) - 1 - allowed]))
    return [_judge(history, HINDSIGHT, at, ask.horizon, total, max(0, total - buffer)) for at, total in totals.items()]


def _score(method: str, decisions: Sequence[Decision]) -> Score:
    by_cluster: dict[str, list[int]] = {}
    for each in decisions:
        counted = by_cluster.setdefault(each.cluster, [0, 0])
        counted[0] += each.violated_hours
        counted[1] += each.until - each.at
    rates = {cluster: violated / hours for cluster, (violated, hours) in by_cluster.items()}
    worst = max(rates, key=lambda cluster: (rates[cluster], cluster))
    violated, hours = (sum(counted[i] for counted in by_cluster.values()) for i in (0, 1))
    return Score(
        method,
        violated / hours,
        float(np.mean([each.buffer_share for each in decisions])),
        worst,
        rates[worst],
        sum(each.shortfall for each in decisions) / violated if violated else 0.0,
    )


def eligible_names(methods: Sequence[Method], *, is_each: bool) -> set[str]:
    """Those to choose from: for the fleet as a whole, or for each cluster. Who asks for one baseline gets that one."""
    return {
        method.name
        for method in methods
        if (method.promises_each or not is_each) and (method.may_be_recommended or len(methods) == 1)
    }


def recommend(scores: Sequence[Score], methods: Sequence[Method], risk: float, *, is_each: bool = False) -> str | None:
    """The method with the smallest buffer among those that kept the target; else the one with the fewest violations.

    A score is of all cluster-hours together, so a method whose target is the fleet's may win. With `is_each` only
    methods count that a forecast would choose for a cluster; None where none of them was asked for.
    """
    eligible = eligible_names(methods, is_each=is_each)
    judged = [score for score in scores if score.method in eligible]
    if not judged:
        return None
    kept = [score for score in judged if score.violation_rate <= risk + ROUNDING]
    if kept:
        return min(kept, key=lambda score: (score.buffer_share, score.violation_rate)).method
    return min(judged, key=lambda score: (score.violation_rate, score.buffer_share)).method
