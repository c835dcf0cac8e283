"""Which method for which pool, and what it promises: the part of a forecast that is the same now and then. Pure.

The method is chosen per pool by a short back-test on the pool's own past; where that is thin, what happened to the rest
of the fleet counts as well. Nothing here looks beyond the hour at which the histories end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plimsoll.health.forecast.arrivals import Arrivals, Outlook
from plimsoll.health.forecast.backtest import ROUNDING, Backtest, backtest, eligible_names
from plimsoll.health.forecast.guarded import Pooled, floored
from plimsoll.health.forecast.history import History
from plimsoll.health.forecast.method import Ask, FleetView, Method, Promise, Records, View
from plimsoll.health.forecast.reserve import Burst, Reserve, bursts_of, reserve_for
from plimsoll.health.forecast.survival import Survival

WINDOW_HOURS = 90 * 24
CHOICE_HORIZONS_MAX = 13
"""A method is chosen by at most so many horizons of the past."""
FLEET_HORIZONS = 13
"""The fleet's record counts as much as so many horizons of a pool's own."""
PLANNED_LEVEL = 0.9
LEFT_HOURS_MAX = 365 * 24.0
"""Nobody is told to wait longer than a year: by then somebody has decided."""

Views = Callable[[Sequence[History], int, int], FleetView]
"""Makes the view of histories at an hour, with a window; or has it already."""


@dataclass(frozen=True)
class Candidate:
    """How a method did on a pool in the choice; `violation_rate` with the fleet's record mixed in."""

    method: str
    violation_rate: float
    own_violation_rate: float
    buffer: float


@dataclass(frozen=True)
class Decided:
    """What a pool is promised, in nodes, by which method, and what is held back beside that."""

    method: Method
    candidates: Sequence[Candidate]
    promise: Promise
    expected: Outlook
    reserve: Reserve


class Choice:
    """How all methods did up to the end of these histories, which have no planned work in them."""

    def __init__(
        self, unplanned: Sequence[History], methods: Sequence[Method], ask: Ask, *, views: Views = FleetView
    ) -> None:
        hours = unplanned[0].span.hour_count if unplanned else 0
        self.horizons = max(0, min(CHOICE_HORIZONS_MAX, (hours - min(WINDOW_HOURS, hours // 2)) // ask.horizon))
        first = hours - self.horizons * ask.horizon
        window = min(WINDOW_HOURS, first)
        judged = backtest(unplanned, methods, ask, window=window, first=first, decide=floored, views=views)
        self._methods, self._records, self._risk = methods, judged.records, ask.risk
        self._candidates = _candidates(judged, methods, [history.name for history in unplanned])

    def decide(self, view: View, ask: Ask, bursts: FleetBursts) -> Decided:
        """The promise for one pool; `ask` with what is known of the time ahead."""
        candidates = self._candidates[view.name]
        chosen = _choose(candidates, self._methods, self._risk)
        promise = floored(chosen, view, ask, self._records.get((chosen.name, view.name), Records()))
        expected = (chosen if isinstance(chosen, Arrivals) else Pooled()).expect(view, ask)
        reserve = reserve_for(
            view,
            bursts.by_pool[view.name],
            bursts.shares,
            ask,
            buffer=promise.buffer,
            expected_out=float((1 - expected.cumulated).sum()),
            island_most=bursts.island_most[view.name],
        )
        return Decided(chosen, candidates, promise, expected, reserve)


@dataclass(frozen=True)
class FleetBursts:
    """The bursts of all pools, as numbers of nodes and as shares of their pools."""

    by_pool: Mapping[str, Sequence[Burst]]
    shares: Sequence[float]
    island_most: Mapping[str, int]

    @classmethod
    def of(cls, unplanned: Sequence[History], islands: Sequence[Sequence[str]], views: Sequence[View]) -> FleetBursts:
        """`islands` says for each history, by the number of a node, where it is."""
        found = {history.name: bursts_of(history, where) for history, where in zip(unplanned, islands, strict=True)}
        shares = [burst.node_count / max(view.total, 1) for view in views for burst in found[view.name]]
        most = {
            history.name: max(Counter(where).values(), default=0)
            for history, where in zip(unplanned, islands, strict=True)
        }
        return cls(found, shares, most)


def planned_survival(histories: Sequence[History]) -> Survival:
    """How long planned work takes, over the whole fleet."""
    lasted, is_open = [np.zeros(0)], [np.zeros(0, bool)]
    for history in histories:
        mine = history.is_planned
        is_open.append(np.isinf(history.ended[mine]))
        lasted.append(np.minimum(history.ended[mine], history.span.hour_count) - history.began[mine])
    return Survival.of(np.concatenate(lasted), np.concatenate(is_open))


def planned_left(lasting: Survival, age: float) -> float:
    """How long planned work of this age is put in for where nobody told its end: as long as nearly all of it takes."""
    return min(max(lasting.left(age, PLANNED_LEVEL), 1.0), LEFT_HOURS_MAX)


def _candidates(judged: Backtest, methods: Sequence[Method], pools: Sequence[str]) -> dict[str, list[Candidate]]:
    """How each method did on each pool. A pool's own few horizons are weighed with the fleet's record."""
    found: dict[str, list[Candidate]] = {pool: [] for pool in pools}
    horizon = judged.ask.horizon
    own: dict[tuple[str, str], list[int]] = {}
    for each in judged.decisions:
        counted = own.setdefault((each.method, each.cluster), [0, 0, 0])
        counted[0] += each.violated_hours
        counted[1] += each.until - each.at
        counted[2] += each.total - each.promised
    for method in methods:
        rate = judged.score(method.name).violation_rate if judged.scores else 0.0
        for pool in pools:
            violated, hours, buffer = own.get((method.name, pool), (0, 0, 0))
            mixed = (violated + FLEET_HORIZONS * horizon * rate) / (hours + FLEET_HORIZONS * horizon)
            alone = violated / hours if hours else 0.0
            found[pool].append(Candidate(method.name, mixed, alone, buffer * horizon / hours if hours else 0.0))
    return found


def _choose(candidates: Sequence[Candidate], methods: Sequence[Method], risk: float) -> Method:
    """The cheapest one that kept the target, or the one that came nearest.

    Of two that cost the same, one that looks at who is out now: the other is the floor under another name.
    """
    if len(methods) == 1:
        return methods[0]
    eligible = eligible_names(methods, is_each=True)
    blind = {method.name for method in methods if not method.sees_present}
    candidates = [each for each in candidates if each.method in eligible]
    kept = [each for each in candidates if each.violation_rate <= risk + ROUNDING]
    best = (
        min(kept, key=lambda each: (each.buffer, each.method in blind, each.violation_rate))
        if kept
        else min(candidates, key=lambda each: (each.violation_rate, each.buffer))
    )
    return next(method for method in methods if method.name == best.method)
