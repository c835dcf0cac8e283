"""How much of a pool was promised and could not be used at every moment of a period, by cause. Pure.

All numbers are integrals of step functions in GPU-microseconds, as whole numbers: the parts add up exactly, and two
halves of a period come to the same as the whole. At a moment of which a pool has

    promised   GPUs that teams were promised
    line       the line in force; none before the first alignment
    installed  GPUs of nodes that count, in service or not
    faults     GPUs of nodes out of service by a fault       } with `healthy` they are
    planned    GPUs of nodes out of service by planned work  } what is installed

these were promised and not usable, and no GPU is counted twice:

    over_promise   promised - backed, where backed = min(promised, line, installed); at most promised - healthy
    faults         max(0, backed - (installed - faults)): missing by faults alone
    planned_work   what is missing beside that: max(0, backed - healthy) - faults
    fragmentation  GPUs that work inside its guarantee waits for because they are not in one island,
                   at most what is promised and healthy
    idle           GPUs under running work inside the promise that do nothing, at most what is left then
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from plimsoll.fleet.model import PoolKey
from plimsoll.health.levels.goals import MTTR_GOAL_HOURS
from plimsoll.health.levels.outages import ALWAYS, FOREVER, HOUR, Fact, Past, Period, Whole

PLANNED_GOAL_HOURS = 8.0
"""Planned work on a node should be done in this time: about a working day, and what a whole cluster takes."""

_SECOND = 1_000_000

Step = tuple[int, int]
"""From a moment on (microseconds), so many GPUs."""


class Wait(NamedTuple):
    """Work inside its guarantee that waited for so many GPUs of one island while they lay in several."""

    begin: int
    end: int
    gpus: int


class Basis(NamedTuple):
    """What was promised of a pool, and what became of it beside health. Each list of steps begins with `ALWAYS`."""

    promised: Sequence[Step]
    line_in_force: Sequence[Step]
    """`FOREVER` GPUs where there was none."""
    line_now: int
    """What the policy says on today's health."""
    idle: Sequence[Step]
    waits: Sequence[Wait] = ()


class Times(NamedTuple):
    """GPU-microseconds of a period."""

    promised: int = 0
    over_promise: int = 0
    faults: int = 0
    planned_work: int = 0
    fragmentation: int = 0
    idle: int = 0
    # What each fix, by itself, would have spared; never more than its cause cost.
    less_by_alignment: int = 0
    less_by_repair: int = 0
    less_by_shorter_work: int = 0

    @property
    def unusable(self) -> int:
        return self.over_promise + self.faults + self.planned_work + self.fragmentation + self.idle

    def plus(self, other: Times) -> Times:
        return Times(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class _Spans(NamedTuple):
    """GPUs from a moment until another, by pool, clipped to the period."""

    pool: Whole
    begin: Whole
    end: Whole
    gpus: Whole


def measure_pools(past: Past, bases: Mapping[PoolKey, Basis], period: Period) -> dict[PoolKey, Times]:
    """The times of each pool. `past` must know the nodes of these pools up to the end of the period, and no others."""
    assert past.until >= period.end, "what comes later is not known"
    pools = sorted(bases)
    numbers = {pool: number for number, pool in enumerate(pools)}
    pool_of = np.array([numbers[PoolKey(node.cluster, node.sku)] for node in past.nodes], np.int64)
    stretches, is_planned = past.stretches, past.stretches.is_planned
    late = [_late_begin(past, goal, is_kind) for goal, is_kind in _goals(is_planned)]
    spans = [
        _clipped(pool_of[past.counted.node], past.counted.begin, past.counted.end, past.gpus[past.counted.node], period)
    ]
    out = pool_of[stretches.node], stretches.end, past.gpus[stretches.node]
    for begin, is_kind in (
        (stretches.begin, ~is_planned),
        (stretches.begin, is_planned),
        (late[0], ~is_planned),
        (late[1], is_planned),
    ):
        where, end, gpus = (column[is_kind] for column in out)
        spans.append(_clipped(where, begin[is_kind], end, gpus, period))
    by_pool = [_split(each, len(pools)) for each in spans]
    return {
        pool: _measure([each[number] for each in by_pool], bases[pool], period) for number, pool in enumerate(pools)
    }


def _goals(is_planned: Fact) -> tuple[tuple[float, Fact], tuple[float, Fact]]:
    return (MTTR_GOAL_HOURS, ~is_planned), (PLANNED_GOAL_HOURS, is_planned)


def _late_begin(past: Past, goal_hours: float, is_kind: Fact) -> Whole:
    """From when on each stretch lasts longer than it should: so long after its outage first was of this kind."""
    stretches = past.stretches
    first = np.full(len(past.outages.node), FOREVER, np.int64)
    np.minimum.at(first, stretches.outage[is_kind], stretches.begin[is_kind])
    due = np.where(first == FOREVER, FOREVER, first + round(goal_hours * HOUR))
    late: Whole = np.maximum(stretches.begin, due[stretches.outage])
    return late


def _clipped(pool: Whole, begin: Whole, end: Whole, gpus: Whole, period: Period) -> _Spans:
    begin, end = np.maximum(begin, period.begin), np.minimum(end, period.end)
    there = np.flatnonzero(end > begin)
    order = there[np.argsort(pool[there], kind="stable")]
    return _Spans(pool[order], begin[order], end[order], gpus[order])


def _split(spans: _Spans, count: int) -> list[_Spans]:
    """The spans of each pool."""
    cuts = np.searchsorted(spans.pool, np.arange(count + 1)).tolist()
    return [_Spans(*(column[cuts[at] : cuts[at + 1]] for column in spans)) for at in range(count)]


def _measure(spans: Sequence[_Spans], basis: Basis, period: Period) -> Times:
    waits = [wait for wait in basis.waits if wait.begin < period.end and wait.end > period.begin]
    waiting = _clipped(
        np.zeros(len(waits), np.int64),
        np.array([wait.begin for wait in waits], np.int64),
        np.array([wait.end for wait in waits], np.int64),
        np.array([wait.gpus for wait in waits], np.int64),
        period,
    )
    steps = (basis.promised, basis.line_in_force, basis.idle)
    changes = [since for each in steps for since, _ in each if period.begin < since < period.end]
    cuts = np.unique(
        np.concatenate(
            [[period.begin, period.end], changes, *(column for each in (*spans, waiting) for column in each[1:3])]
        ).astype(np.int64)
    )
    lengths = np.diff(cuts)
    installed, faults, planned, faults_late, planned_late = (_level(each, cuts) for each in spans)
    promised, line, idle_gpus = (_stepped(each, cuts[:-1]) for each in steps)
    backed = np.minimum(np.minimum(promised, line), installed)
    healthy = installed - faults - planned
    missing = np.maximum(0, promised - healthy)
    over = np.minimum(missing, promised - backed)
    by_faults = np.maximum(0, backed - (installed - faults))
    by_planned = np.maximum(0, backed - healthy) - by_faults
    fragmented = np.minimum(_level(waiting, cuts), promised - missing)
    idle = np.minimum(idle_gpus, promised - missing - fragmented)
    aligned = np.maximum(0, np.minimum(promised, basis.line_now) - healthy)
    repaired = np.maximum(0, promised - healthy - faults_late)
    shorter = np.maximum(0, promised - healthy - planned_late)
    values = (promised, over, by_faults, by_planned, fragmented, idle)
    # No fix gives back more than its cause cost: what lay beyond the line was not missing for a fault.
    less = (missing - aligned, over), (missing - repaired, by_faults), (missing - shorter, by_planned)
    fixes = [np.minimum(each, cost) for each, cost in less]
    return Times(*(_integral(each, lengths) for each in (*values, *fixes)))


def _level(spans: _Spans, cuts: Whole) -> Whole:
    """GPUs in each time between two cuts."""
    change = np.zeros(len(cuts), np.int64)
    np.add.at(change, np.searchsorted(cuts, spans.begin), spans.gpus)
    np.subtract.at(change, np.searchsorted(cuts, spans.end), spans.gpus)
    level: Whole = np.cumsum(change)[:-1]
    return level


def _stepped(steps: Sequence[Step], moments: Whole) -> Whole:
    """The value of a step function at each of these moments."""
    assert steps[0][0] == ALWAYS, "a step function has a value at every moment"
    since = np.array([each for each, _ in steps], np.int64)
    values = np.array([gpus for _, gpus in steps], np.int64)
    found: Whole = values[np.searchsorted(since, moments, side="right") - 1]
    return found


def _integral(values: Whole, lengths: Whole) -> int:
    """Exactly: the microseconds of a large pool over years do not fit into 64 bits, its seconds do."""
    seconds, rest = np.divmod(lengths, _SECOND)
    return int((values * seconds).sum()) * _SECOND + int((values * rest).sum())
