"""The forecast for the fleet as it is now: which method for which pool, what it promises, and why. Pure.

It starts now: what nobody told to have changed since the history ended is still so, but that silence is no proof that
nothing failed, so rates are those of the history. The method is chosen per pool by a short back-test on the pool's own
past; where that is thin, what happened to the rest of the fleet counts as well. Planned work is taken out of the random
part, and put in as known where it is: the work under way, and whatever the caller knows of the time ahead. A node that
is out and has a return told by its facts or its holds is out until the latest of these; only where there is none is it
guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Phase, PoolKey, Service
from plimsoll.health.fold import Health
from plimsoll.health.forecast.arrivals import Arrivals, Outlook
from plimsoll.health.forecast.backtest import ROUNDING, Backtest, backtest, eligible_names
from plimsoll.health.forecast.guarded import Pooled, floored, shared_survival
from plimsoll.health.forecast.history import (
    HOUR,
    History,
    IntArray,
    Marks,
    Span,
    history_of,
    told_span,
    without_the_untold,
)
from plimsoll.health.forecast.method import (
    TOUCHED_HOURS,
    Ask,
    FleetView,
    Method,
    Present,
    Promise,
    Records,
    Taking,
    View,
    together,
)
from plimsoll.health.forecast.methods import METHODS, methods_named
from plimsoll.health.forecast.reserve import Reserve, bursts_of, colo_bursts, reserve_for
from plimsoll.health.forecast.survival import Survival
from plimsoll.health.model import Mark, from_microseconds, is_planned

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

    Where nobody told when (`is_told`), a fault is expected back at the time by which half of such faults are, and
    planned work when nearly all of it is done.
    """

    node: str
    service: Service
    since: datetime | None
    reason: str
    is_planned: bool
    returns: datetime
    is_told: bool


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
    is_capped: bool
    """Whether the method would have promised nodes that are out now."""


@dataclass(frozen=True)
class Forecast:
    """All pools asked for. `start` is the moment of the asking; the last transition may be older."""

    start: datetime
    history_end: datetime
    ask: Ask
    history_days: float
    horizons_judged: int
    pools: Sequence[PoolForecast]
    colo_bursts: Mapping[str, int]
    """Per colo how often several of its pools were hit at the same time: a domain larger than any pool's reserve."""

    @property
    def is_short(self) -> bool:
        return self.history_days < SHORT_DAYS

    @property
    def quiet_hours(self) -> float:
        """How long ago the history ended."""
        return (self.start - self.history_end) / timedelta(hours=1)


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
    now: datetime | None = None,
    clusters: Sequence[str] = (),
    method: str = "",
    takings: Mapping[PoolKey, Sequence[Taking]] | None = None,
) -> Forecast:
    """What to promise of each pool in production, from now on; of these clusters only, where some are named."""
    marks = Marks(health)
    history_end = from_microseconds(span.end)
    start = max(now or history_end, history_end)
    quiet_hours = (start - history_end) / timedelta(hours=1)
    pools = [_pool(key, nodes, health, marks, span) for key, nodes in sorted(_production(fleet).items())]
    methods = methods_named([method]) if method else tuple(each for each in METHODS if each.promises_each)
    hours = span.hour_count
    horizons = min(CHOICE_HORIZONS_MAX, (hours - min(WINDOW_HOURS, hours // 2)) // ask.horizon)
    first = hours - horizons * ask.horizon
    unplanned = [pool.unplanned for pool in pools]
    judged = backtest(unplanned, methods, ask, window=min(WINDOW_HOURS, first), first=first, decide=floored)
    by_pool = _candidates(judged, methods, [pool.name for pool in pools])
    returns = {pool.name: _told_returns(pool, health, start) for pool in pools}
    presents = {pool.name: Present(quiet_hours, _due(pool, returns[pool.name], start)) for pool in pools}
    view = FleetView(unplanned, hours, WINDOW_HOURS, presents)
    bursts = {pool.name: bursts_of(pool.unplanned, [node.island for node in pool.nodes]) for pool in pools}
    shares = [
        burst.node_count / max(each.total, 1) for each in view.views for burst in bursts[each.name]
    ]  # fmt: skip
    planned_lasting = _planned_survival([pool.history for pool in pools])
    told = []
    for pool, each in zip(pools, view.views, strict=True):
        if (clusters and pool.key.cluster not in clusters) or not each.total:
            continue
        down = _down(pool, each, planned_lasting, start, returns[pool.name])
        known = [*_under_way(down, start), *(takings or {}).get(pool.key, ())]
        asked = Ask(ask.horizon, ask.target, known)
        candidates = by_pool[pool.name]
        chosen = _choose(candidates, methods, ask.risk)
        records = judged.records.get((chosen.name, pool.name), Records())
        promise = floored(chosen, each, asked, records)
        expected = (chosen if isinstance(chosen, Arrivals) else Pooled()).expect(each, asked)
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
    return Forecast(start, history_end, ask, span.days, horizons, told, together)


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
        why=promise.why,
        down=down,
        planned=known,
        reserve=reserve,
        expected=expected,
        past=pool.history.healthy_least[view.hour - window : view.hour],
        is_capped=promise.buffer < len(down),
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
    nodes = without_the_untold(nodes, health, marks)
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


def _planned_survival(histories: Sequence[History]) -> Survival:
    """How long planned work takes, over the whole fleet."""
    lasted, is_open = [], []
    for history in histories:
        mine = history.is_planned
        is_open.append(np.isinf(history.ended[mine]))
        lasted.append(np.minimum(history.ended[mine], history.span.hour_count) - history.began[mine])
    return Survival.of(np.concatenate(lasted), np.concatenate(is_open))


def told_return(health: Health, node: Node, start: datetime) -> datetime | None:
    """When a node that is out is expected back by those who have it: the latest of its facts and its holds.

    What lies in the past has not come true, and says nothing.
    """
    holds = health.holds.get(node.id, ())
    ends = [health.facts_of(node).expected_return]
    ends += [end for hold in holds for end in (hold.expires_at, hold.expected_return)]
    latest = max((end for end in ends if end is not None), default=None)
    return latest if latest is not None and latest > start else None


def _told_returns(pool: _Pool, health: Health, start: datetime) -> dict[int, datetime]:
    """By the number of a node that is out, when it is told to be back."""
    out = {int(node) for node in pool.history.node[np.isinf(pool.history.ended)]}
    found = {number: told_return(health, pool.nodes[number], start) for number in sorted(out)}
    return {number: moment for number, moment in found.items() if moment is not None}


def _due(pool: _Pool, returns: Mapping[int, datetime], start: datetime) -> dict[int, float]:
    """The same for faults only, in hours: planned work is put in by itself."""
    faulty = {int(node) for node in pool.unplanned.node[np.isinf(pool.unplanned.ended)]}
    return {number: _hours(start, moment) for number, moment in returns.items() if number in faulty}


def _hours(start: datetime, moment: datetime) -> float:
    return (moment - start) / timedelta(hours=1)


def _down(
    pool: _Pool, view: View, planned_lasting: Survival, start: datetime, told: Mapping[int, datetime]
) -> list[Down]:
    """Who is out now, longest first."""
    history, found = pool.history, []
    span, lasting = history.span, shared_survival(view)
    for place in np.flatnonzero(np.isinf(history.ended)):
        number = int(history.node[place])
        node = pool.nodes[number]
        age = max(0.0, span.hour_count - float(history.began[place])) + view.present.quiet_hours
        planned = bool(history.is_planned[place])
        # Where nobody told when planned work ends, it is put in for as long as nearly all of it takes.
        left = planned_lasting.left(age, PLANNED_LEVEL) if planned else lasting.left(age + TOUCHED_HOURS, 0.5)
        guess = start + timedelta(hours=min(max(left, 1.0), LEFT_HOURS_MAX))
        is_since_told = history.began[place] < span.hour_count or node.since is not None
        since = from_microseconds(span.start + round(float(history.began[place]) * HOUR)) if is_since_told else None
        returns = told.get(number, guess)
        found.append(Down(node.id, node.service, since, node.reason, planned, returns, number in told))
    return sorted(found, key=lambda down: (down.since is None, down.since or down.returns, down.node))


def _under_way(down: Sequence[Down], start: datetime) -> tuple[Taking, ...]:
    """Planned work that has begun, as known takings."""
    return together(_hours(start, each.returns) for each in down if each.is_planned)
