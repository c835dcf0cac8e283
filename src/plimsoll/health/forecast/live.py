"""The forecast for the fleet as it is now: which method for which pool, what it promises, and why. Pure.

It starts now: what nobody told to have changed since the history ended is still so, but that silence is no proof that
nothing failed, so rates are those of the history. Which method is used is the business of `choice`. Planned work is
taken out of the random part, and put in as known where it is: the work under way, the work announced, and whatever else
the caller knows of the time ahead. A node that is out and has a return told by its facts or its holds is out until the
latest of these; only where there is none is it guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Phase, PoolKey, Service
from plimsoll.health.ahead import stretches
from plimsoll.health.fold import Health
from plimsoll.health.forecast.arrivals import Outlook
from plimsoll.health.forecast.choice import (
    LEFT_HOURS_MAX,
    WINDOW_HOURS,
    Candidate,
    Choice,
    Decided,
    FleetBursts,
    planned_left,
    planned_survival,
)
from plimsoll.health.forecast.guarded import shared_survival
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
    Present,
    Taking,
    View,
    together,
)
from plimsoll.health.forecast.methods import METHODS, methods_named
from plimsoll.health.forecast.reserve import Reserve, colo_bursts
from plimsoll.health.forecast.survival import Survival
from plimsoll.health.model import Mark, from_microseconds, is_planned

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
    unplanned = [pool.unplanned for pool in pools]
    choice = Choice(unplanned, methods, ask)
    returns = {pool.name: _told_returns(pool, health, start) for pool in pools}
    presents = {pool.name: Present(quiet_hours, _due(pool, returns[pool.name], start)) for pool in pools}
    view = FleetView(unplanned, span.hour_count, WINDOW_HOURS, presents)
    bursts = FleetBursts.of(unplanned, [[node.island for node in pool.nodes] for pool in pools], view.views)
    planned_lasting = planned_survival([pool.history for pool in pools])
    told = []
    for pool, each in zip(pools, view.views, strict=True):
        if (clusters and pool.key.cluster not in clusters) or not each.total:
            continue
        down = _down(pool, each, planned_lasting, start, returns[pool.name])
        announced = _announced(pool, health, down, start, ask.horizon)
        known = [*_under_way(down, start), *announced, *(takings or {}).get(pool.key, ())]
        decided = choice.decide(each, Ask(ask.horizon, ask.target, known), bursts)
        told.append(_told(pool, each, decided, down, known))
    colos = {pool.name: fleet.clusters[pool.key.cluster].colo for pool in pools}
    together = colo_bursts([burst for found in bursts.by_pool.values() for burst in found], colos)
    return Forecast(start, history_end, ask, span.days, choice.horizons, told, together)


def _told(pool: _Pool, view: View, decided: Decided, down: Sequence[Down], known: Sequence[Taking]) -> PoolForecast:
    window = min(WINDOW_HOURS, view.hour)
    return PoolForecast(
        pool=pool.key,
        gpus_per_node=pool.nodes[0].gpus,
        total=view.total,
        healthy=view.total - len(down),
        # What is not healthy now can't be promised from now on, however soon it returns.
        promised=min(view.total - decided.promise.buffer, view.total - len(down)),
        method=decided.method.name,
        candidates=decided.candidates,
        why=decided.promise.why,
        down=down,
        planned=known,
        reserve=decided.reserve,
        expected=decided.expected,
        past=pool.history.healthy_least[view.hour - window : view.hour],
        is_capped=decided.promise.buffer < len(down),
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
        left = planned_left(planned_lasting, age) if planned else lasting.left(age + TOUCHED_HOURS, 0.5)
        guess = start + timedelta(hours=min(max(left, 1.0), LEFT_HOURS_MAX))
        is_since_told = history.began[place] < span.hour_count or node.since is not None
        since = from_microseconds(span.start + round(float(history.began[place]) * HOUR)) if is_since_told else None
        returns = told.get(number, guess)
        found.append(Down(node.id, node.service, since, node.reason, planned, returns, number in told))
    return sorted(found, key=lambda down: (down.since is None, down.since or down.returns, down.node))


def _under_way(down: Sequence[Down], start: datetime) -> tuple[Taking, ...]:
    """Planned work that has begun, as known takings."""
    return together(_hours(start, each.returns) for each in down if each.is_planned)


def _announced(pool: _Pool, health: Health, down: Sequence[Down], start: datetime, horizon: int) -> tuple[Taking, ...]:
    """Work ahead that begins within the horizon, as known takings; no hour of a node is taken twice.

    A node that is out until a known end is taken from there on only. One that is out for a fault of unknown length is
    taken in full: whether it is back by then is left to the random part, and the sum of both errs to the safe side.
    """
    if not health.ahead_of:
        return ()
    out_until = {each.node: each.returns for each in down if each.is_planned or each.is_told}
    counts: Counter[tuple[float, float]] = Counter()
    for node in pool.nodes:
        works = health.ahead_of.get(node.id)
        if works is None or node.service is Service.RETIRED:
            continue
        free = max(start, out_until.get(node.id, start))
        for starts, ends in stretches(works, free):
            counts[_hours(start, max(starts, free)), _hours(start, ends)] += 1
    return tuple(Taking(begin, end, count) for (begin, end), count in sorted(counts.items()) if begin < horizon)
