"""The forecast as it would have been made at an hour of the past, with what was known then. Pure.

It must never look ahead: a decision at an hour is the same on a history that is cut there. When planned work ends and
when a node is due back was told to those who asked then, but is not kept, so both are guessed as where nobody tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Phase, PoolKey
from plimsoll.health.fold import Health
from plimsoll.health.forecast.choice import (
    CHOICE_HORIZONS_MAX,
    WINDOW_HOURS,
    Choice,
    FleetBursts,
    planned_left,
    planned_survival,
)
from plimsoll.health.forecast.history import HOUR, History, Marks, Span, history_of, without_the_untold
from plimsoll.health.forecast.live import live_span
from plimsoll.health.forecast.method import Ask, FleetView, Taking, together
from plimsoll.health.forecast.methods import METHODS
from plimsoll.health.forecast.present import HORIZONS_MIN
from plimsoll.health.forecast.survival import Survival


@dataclass(frozen=True)
class PastPool:
    """A pool with all of its past: planned work included, and without. `islands` by the number of a node."""

    key: PoolKey
    gpus_per_node: int
    history: History
    unplanned: History
    islands: Sequence[str]

    def healthy_at(self, hour: int) -> int:
        """Nodes in service at that instant."""
        return self.history.total_at(hour) - self.history.out_at(hour)


def past_pools(fleet: Fleet, health: Health, *, end: int) -> list[PastPool]:
    """The pools of clusters in production, up to `end` (in microseconds); none where nobody told a transition.

    What nobody told to have changed since the last transition is taken as it was.
    """
    marks = Marks(health)
    span = live_span(fleet, health, marks)
    if span is None:
        return []
    end = max(span.end, end)
    span = Span(end - max(1, (end - span.start) // HOUR) * HOUR, end)
    nodes: dict[PoolKey, list[Node]] = {
        key: [] for key in sorted(fleet.pools) if fleet.clusters[key.cluster].phase is Phase.PRODUCTION
    }
    for node in sorted(fleet.nodes.values(), key=lambda node: node.id):
        if (key := PoolKey(node.cluster, node.sku)) in nodes:
            nodes[key].append(node)
    found = []
    for key, every in nodes.items():
        mine = without_the_untold(every, health, marks)
        history = history_of(f"{key.cluster}/{key.sku}", mine, health, marks, span)
        size = fleet.pools[key].gpus_per_node
        found.append(PastPool(key, size, history, history.unplanned(), [node.island for node in mine]))
    return found


@dataclass(frozen=True)
class Then:
    """What would have been forecast of a pool, in nodes; `reserve` is what a line would have held back of it."""

    promised: int
    reserve: int
    method: str

    @property
    def line(self) -> int:
        return max(0, self.promised - self.reserve)


class Rewind:
    """Forecasts of the past of these pools, hour after hour; asked in the order of time it remembers what it can.

    What is known at an hour never changes, so the views of one forecast serve those after it.
    """

    def __init__(self, pools: Sequence[PastPool]) -> None:
        self._pools = pools
        self._whole = [pool.unplanned for pool in pools]
        self._views: dict[tuple[int, int], FleetView] = {}

    def at(self, hour: int, ask: Ask) -> dict[PoolKey, Then]:
        """What would have been promised at that hour, and held in reserve."""
        assert hour >= first_hour(ask.horizon), "a forecast needs something to learn from"
        self._forget(hour - (CHOICE_HORIZONS_MAX + 1) * ask.horizon)
        unplanned = [history.cut(hour) for history in self._whole]
        methods = tuple(each for each in METHODS if each.promises_each)
        choice = Choice(unplanned, methods, ask, views=self._view)
        view = self._view(unplanned, hour, WINDOW_HOURS)
        bursts = FleetBursts.of(unplanned, [pool.islands for pool in self._pools], view.views)
        known = [pool.history.cut(hour) for pool in self._pools]
        lasting = planned_survival(known)
        found = {}
        for pool, history, each in zip(self._pools, known, view.views, strict=True):
            if not each.total:
                found[pool.key] = Then(0, 0, "")
                continue
            decided = choice.decide(each, Ask(ask.horizon, ask.target, _under_way(history, lasting)), bursts)
            healthy = each.total - history.out_at(hour)
            promised = min(each.total - decided.promise.buffer, healthy)
            found[pool.key] = Then(promised, decided.reserve.held_nodes, decided.method.name)
        return found

    def _view(self, _cut: Sequence[History], hour: int, window: int) -> FleetView:
        """The view of the whole histories: it is the same as that of the cut ones, and can be used again."""
        key = (hour, min(window, hour))
        if key not in self._views:
            self._views[key] = FleetView(self._whole, hour, window)
        return self._views[key]

    def _forget(self, before: int) -> None:
        self._views = {key: view for key, view in self._views.items() if key[0] >= before}


def first_hour(horizon: int) -> int:
    """The first hour of a history at which a forecast over so many hours can be made."""
    return HORIZONS_MIN * horizon


def _under_way(history: History, lasting: Survival) -> tuple[Taking, ...]:
    """Planned work that has begun by the end of a cut history."""
    ages = history.span.hour_count - history.began[np.isinf(history.ended) & history.is_planned]
    return together(planned_left(lasting, float(age)) for age in ages)
