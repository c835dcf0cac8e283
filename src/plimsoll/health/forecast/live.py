"""The forecast for the fleet as it is now: which method for which pool, what it promises, and why. Pure.

It starts where the history ends. The method is chosen per pool by a short back-test on the pool's own past; where that
is thin, what happened to the rest of the fleet counts as well. Planned work is taken out of the random part, and put in
as known where it is: today that is the work under way, and whatever the caller knows of the time ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Phase, PoolKey, Service
from plimsoll.health.fold import Health
from plimsoll.health.forecast.arrivals import Outlook
from plimsoll.health.forecast.backtest import ROUNDING, Backtest, backtest
from plimsoll.health.forecast.guarded import Pooled, shared_survival
from plimsoll.health.forecast.history import HOUR, History, IntArray, Marks, Span, history_of, told_span
from plimsoll.health.forecast.method import TOUCHED_HOURS, Ask, FleetView, Method, Promise, Records, Taking, View
from plimsoll.health.forecast.methods import METHODS, methods_named
from plimsoll.health.forecast.reserve import Reserve, bursts_of, colo_bursts, reserve_for
from plimsoll.health.forecast.survival import Survival
from plimsoll.health.model import Mark, from_microseconds, is_planned, to_microseconds

WINDOW_HOURS = 90 * 24
CHOICE_HORIZONS_MAX = 13
"""A method is chosen by at most so many horizons of the past."""
FLEET_HORIZONS = 13
"""The fleet's record counts as much as so many horizons of a pool's own."""
PLANNED_LEVEL = 0.9
LEFT_HOURS_MAX = 365 * 24.0
"""Nobody is told to wait longer than a year: by then somebody has decided."""
SHORT_DAYS = 180
"""With less history than this a rare burst has probably not been seen, and the answer says so."""


@dataclass(frozen=True)
class Down:
    """A node that is not in service: since when, why, and when it is expected back.

    A fault is expected back at the time by which half of such faults are; planned work when nearly all of it is done.
    """

    node: str
    service: Service
    since: datetime | None
    reason: str
    is_planned: bool
    returns: datetime


@dataclass(frozen=True)
class Candidate:
    """How a method did on a pool in the choice; `violation_rate` with the fleet's record mixed in."""

    method: str
    violation_rate: float
    own_violation_rate: float
    buffer: float


@dataclass(frozen=True)
class PoolForecast:
    """What is promised of a pool, in nodes."""

    pool: PoolKey
    gpus_per_node: int
    total: int
    healthy: int
    promised: int
    method: str
    candidates: Sequence[Candidate]
    why: Mapping[str, float]
    down: Sequence[Down]
    planned: Sequence[Taking]
    reserve: Reserve
    expected: Outlook
    past: IntArray
    """The fewest healthy nodes in each hour of the window, planned work included."""


@dataclass(frozen=True)
class Forecast:
    """All pools asked for. `start` is where the history ends."""

    start: datetime
    ask: Ask
    history_days: float
    horizons_judged: int
    pools: Sequence[PoolForecast]
    colo_bursts: Mapping[str, int]
    """Per colo how often several of its pools were hit at the same time: a domain larger than any pool's reserve."""

    @property
    def is_short(self) -> bool:
        return self.history_days < SHORT_DAYS


@dataclass(frozen=True)
class _Pool:
    key: PoolKey
    nodes: Sequence[Node]
    history: History
    unplanned: History

    @property
    def name(self) -> str:
        return self.unplanned.name


def live_span(fleet: Fleet, health: Health, marks: Marks) -> Span | None:
    """Whole hours up to the latest time that is told."""
    span = told_span(fleet, health, marks)
    return None if span is None else Span(span.end - span.hour_count * HOUR, span.end)


def forecast(
    fleet: Fleet,
    health: Health,
    span: Span,
    ask: Ask,
    *,
    clusters: Sequence[str] = (),
    method: str = "",
    takings: Mapping[PoolKey, Sequence[Taking]] | None = None,
) -> Forecast:
    """What to promise of each pool in production; of these clusters only, where some are named."""
    marks = Marks(health)
    pools = [_pool(key, nodes, health, marks, span) for key, nodes in sorted(_production(fleet).items())]
    methods = methods_named([method]) if method else tuple(each for each in METHODS if each.promises_each)
    hours = span.hour_count
    horizons = min(CHOICE_HORIZONS_MAX, (hours - min(WINDOW_HOURS, hours // 2)) // ask.horizon)
    first = hours - horizons * ask.horizon
    unplanned = [pool.unplanned for pool in pools]
    judged = backtest(unplanned, methods, ask, window=min(WINDOW_HOURS, first), first=first)
    by_pool = _candidates(judged, methods, [pool.name for pool in pools])
    view = FleetView(unplanned, hours, WINDOW_HOURS)
    bursts = {pool.name: bursts_of(pool.unplanned, [node.island for node in pool.nodes]) for pool in pools}
    shares = [
        burst.node_count / max(each.total, 1) for each in view.views for burst in bursts[each.name]
    ]  # fmt: skip
    planned_lasting = _planned_survival([pool.history for pool in pools])
    told = []
    for pool, each in zip(pools, view.views, strict=True):
        if (clusters and pool.key.cluster not in clusters) or not each.total:
            continue
        down = _down(pool, each, planned_lasting, span)
        known = [*_under_way(down, span), *(takings or {}).get(pool.key, ())]
        asked = Ask(ask.horizon, ask.target, known)
        candidates = by_pool[pool.name]
        chosen = _choose(candidates, methods, ask.risk)
        records = judged.records.get((chosen.name, pool.name), Records())
        promise = chosen.promise(each, asked, records)
        expected = Pooled().expect(each, asked)
        reserve = reserve_for(
            each,
            bursts[pool.name],
            shares,
            buffer=promise.buffer,
            expected_out=float((1 - expected.cumulated).sum()),
            island_most=max(Counter(node.island for node in pool.nodes).values()),
        )
        told.append(_told(pool, each, chosen, candidates, promise, down, known, reserve, expected))
    colos = {pool.name: fleet.clusters[pool.key.cluster].colo for pool in pools}
    together = colo_bursts([burst for found in bursts.values() for burst in found], colos)
    return Forecast(from_microseconds(span.end), ask, span.days, horizons, told, together)


def _told(
    pool: _Pool,
    view: View,
    chosen: Method,
    candidates: Sequence[Candidate],
    promise: Promise,
    down: Sequence[Down],
    known: Sequence[Taking],
    reserve: Reserve,
    expected: Outlook,
) -> PoolForecast:
    window = min(WINDOW_HOURS, view.hour)
    return PoolForecast(
        pool=pool.key,
        gpus_per_node=pool.nodes[0].gpus,
        total=view.total,
        healthy=view.total - len(down),
        # What is not healthy now can't be promised from now on, however soon it returns.
        promised=min(view.total - promise.buffer, view.total - len(down)),
        method=chosen.name,
        candidates=candidates,
        why=expected.why | dict(promise.why),
        down=down,
        planned=known,
        reserve=reserve,
        expected=expected,
        past=pool.history.healthy_least[view.hour - window : view.hour],
    )


def _production(fleet: Fleet) -> dict[PoolKey, list[Node]]:
    """The nodes of each pool of clusters in production, by id; those that left too, as they were there once."""
    pools: dict[PoolKey, list[Node]] = {key: [] for key in fleet.pools if _is_in_production(fleet, key.cluster)}
    for node in sorted(fleet.nodes.values(), key=lambda node: node.id):
        if (key := PoolKey(node.cluster, node.sku)) in pools:
            pools[key].append(node)
    return pools


def _is_in_production(fleet: Fleet, cluster: str) -> bool:
    return fleet.clusters[cluster].phase is Phase.PRODUCTION


def _pool(key: PoolKey, nodes: Sequence[Node], health: Health, marks: Marks, span: Span) -> _Pool:
    told = history_of(f"{key.cluster}/{key.sku}", nodes, health, marks, span)
    is_out = np.array([node.service not in (Service.IN_SERVICE, Service.RETIRED) for node in nodes], bool)
    planned = np.array([is_planned(Mark(node.service, node.reason)) for node in nodes], bool)
    history = told.with_present(is_out, planned)
    return _Pool(key, nodes, history, history.unplanned())


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
    """The cheapest one that kept the target, or the one that came nearest."""
    eligible = {method.name for method in methods if method.may_be_recommended or len(methods) == 1}
    candidates = [each for each in candidates if each.method in eligible]
    kept = [each for each in candidates if each.violation_rate <= risk + ROUNDING]
    best = (
        min(kept, key=lambda each: (each.buffer, each.violation_rate))
        if kept
        else min(candidates, key=lambda each: (each.violation_rate, each.buffer))
    )
    return next(method for method in methods if method.name == best.method)


def _planned_survival(histories: Sequence[History]) -> Survival:
    """How long planned work takes, over the whole fleet."""
    lasted, is_open = [], []
    for history in histories:
        mine = history.is_planned
        is_open.append(np.isinf(history.ended[mine]))
        lasted.append(np.minimum(history.ended[mine], history.span.hour_count) - history.began[mine])
    return Survival.of(np.concatenate(lasted), np.concatenate(is_open))


def _down(pool: _Pool, view: View, planned_lasting: Survival, span: Span) -> list[Down]:
    """Who is out now, longest first."""
    history, found = pool.history, []
    lasting = shared_survival(view)
    for place in np.flatnonzero(np.isinf(history.ended)):
        node = pool.nodes[history.node[place]]
        age = max(0.0, history.span.hour_count - float(history.began[place]))
        planned = bool(history.is_planned[place])
        # When planned work ends is not recorded yet, so it is put in for as long as nearly all of it takes.
        left = planned_lasting.left(age, PLANNED_LEVEL) if planned else lasting.left(age + TOUCHED_HOURS, 0.5)
        is_told = history.began[place] < history.span.hour_count or node.since is not None
        since = from_microseconds(span.start + round(float(history.began[place]) * HOUR)) if is_told else None
        returns = from_microseconds(span.end + round(min(max(left, 1.0), LEFT_HOURS_MAX) * HOUR))
        found.append(Down(node.id, node.service, since, node.reason, planned, returns))
    return sorted(found, key=lambda down: (down.since is None, down.since or down.returns, down.node))


def _under_way(down: Sequence[Down], span: Span) -> list[Taking]:
    """Planned work that has begun, as known takings."""
    ends: dict[float, int] = {}
    for each in down:
        if each.is_planned:
            end = (to_microseconds(each.returns) - span.end) / HOUR
            ends[end] = ends.get(end, 0) + 1
    return [Taking(0.0, end, count) for end, count in sorted(ends.items())]
