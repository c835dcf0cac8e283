"""What a forecast rests on: the past of a group of nodes (a cluster or a pool) as arrays. Pure.

Time is counted in hours from `start`; an hour is the unit in which a promise is checked. Only what somebody told
counts: a mark whose moment is merely that of an import (`Mark.is_assumed`) is no time of the past.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.health.fold import Health
from plimsoll.health.model import EMPTY_TIMELINE, is_planned, to_microseconds

HOUR = 3_600_000_000
"""Microseconds."""
STILL_OUT = np.inf
"""The end of an outage that has not ended."""
STORM_HOURS = 1 / 6
"""A node that was back for less than this had not been repaired: both are one outage when rates are fitted."""
BURST_GAP_HOURS = 0.25
"""Nodes lost within so short a time of each other may have one cause."""

QUIET_HOURS_MAX = 30 * 24
"""A history does not open with more than this without a transition."""
OPENING_HOUR = 0.0
"""What is out when the history opens did not begin then: it is no failure of that hour, and no burst."""

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_IN_SERVICE, _OUT, _RETIRED = 0, 1, 2


@dataclass(frozen=True)
class Span:
    """From the earliest to the latest time that is told, in microseconds since 1970."""

    start: int
    end: int

    @property
    def hour_count(self) -> int:
        return max(0, (self.end - self.start) // HOUR)

    @property
    def days(self) -> float:
        return (self.end - self.start) / HOUR / 24


@dataclass(frozen=True)
class History:
    """The past of a group of nodes. Outages are in the order in which they began; `ended` is `STILL_OUT` where open."""

    name: str
    span: Span
    node_count: int
    node: IntArray
    began: FloatArray
    ended: FloatArray
    is_planned: BoolArray
    left_at: FloatArray = field(repr=False)
    """When a node was retired, or (next array) came back from there; both in hours, ascending."""
    left_sign: IntArray = field(repr=False)

    @cached_property
    def _steps(self) -> tuple[FloatArray, IntArray, IntArray]:
        """Moments of change, and after each of them how many nodes are out and how many there are."""
        moments = np.concatenate([self.began, self.ended, self.left_at])
        out = np.concatenate([np.ones(len(self.began)), -np.ones(len(self.ended)), np.zeros(len(self.left_at))])
        total = np.concatenate([np.zeros(2 * len(self.began)), self.left_sign])
        is_past = moments < STILL_OUT
        distinct, place = np.unique(moments[is_past], return_inverse=True)
        outs = np.cumsum(np.bincount(place, out[is_past], len(distinct)).round()).astype(np.int64)
        totals = np.cumsum(np.bincount(place, total[is_past], len(distinct)).round()).astype(np.int64)
        return distinct, outs, totals + self.node_count

    @cached_property
    def out_most(self) -> IntArray:
        """The most nodes out at one instant of each hour."""
        moments, outs, _ = self._steps
        return _hourly(moments, outs, 0, self.span.hour_count, np.maximum)

    @cached_property
    def healthy_least(self) -> IntArray:
        """The fewest healthy nodes at one instant of each hour."""
        moments, outs, totals = self._steps
        return _hourly(moments, totals - outs, self.node_count, self.span.hour_count, np.minimum)

    def total_at(self, hour: float) -> int:
        """How many nodes there are, retired ones left out."""
        return self.node_count + int(self.left_sign[self.left_at <= hour].sum())

    def out_at(self, hour: float) -> int:
        moments, outs, _ = self._steps
        place = int(np.searchsorted(moments, hour, side="right"))
        return int(outs[place - 1]) if place else 0

    @cached_property
    def storm(self) -> IntArray:
        """For each outage the number of the storm it belongs to. Storms are numbered by their first outage.

        Whether an outage continues the one before it depends on nothing later, so a cut history has the same storms.
        """
        order = np.lexsort((self.began, self.node))
        node, began, ended = self.node[order], self.began[order], self.ended[order]
        is_first = np.ones(len(node), bool)
        is_first[1:] = (node[1:] != node[:-1]) | (began[1:] - ended[:-1] >= STORM_HOURS)
        first = order[np.maximum.accumulate(np.where(is_first, np.arange(len(node)), 0))]
        firsts = np.empty(len(node), np.int64)
        firsts[order] = first
        _, numbers = np.unique(firsts, return_inverse=True)
        return numbers.astype(np.int64)

    @cached_property
    def storm_began(self) -> FloatArray:
        _, first = np.unique(self.storm, return_index=True)
        return self.began[first]

    @cached_property
    def storm_burst(self) -> IntArray:
        """For each storm the number of its burst: storms that began close to one another, one after the other."""
        if not len(self.storm_began):
            return np.zeros(0, np.int64)
        return np.concatenate([[0], np.cumsum(np.diff(self.storm_began) > BURST_GAP_HOURS)]).astype(np.int64)

    def unplanned(self) -> History:
        """The same without planned work."""
        keep = ~self.is_planned
        return History(
            self.name, self.span, self.node_count, self.node[keep], self.began[keep], self.ended[keep],
            self.is_planned[keep], self.left_at, self.left_sign,
        )  # fmt: skip

    def with_present(self, is_out: BoolArray, planned: BoolArray) -> History:
        """The same, ending with these nodes out, by their number: what is so now was observed, whatever was told."""
        hour = float(self.span.hour_count)
        closed = np.isinf(self.ended) & ~is_out[self.node]
        is_known = np.zeros(len(is_out), bool)
        is_known[self.node[np.isinf(self.ended)]] = True
        new = np.flatnonzero(is_out & ~is_known)
        return History(
            self.name,
            self.span,
            self.node_count,
            np.concatenate([self.node, new]),
            np.concatenate([self.began, np.full(len(new), hour)]),
            np.concatenate([np.where(closed, np.maximum(hour, self.began), self.ended), np.full(len(new), STILL_OUT)]),
            np.concatenate([self.is_planned, planned[new]]),
            self.left_at,
            self.left_sign,
        )

    def cut(self, hour: int) -> History:
        """What was known at that hour."""
        keep, left = self.began <= hour, self.left_at <= hour
        ended = np.where(self.ended[keep] <= hour, self.ended[keep], STILL_OUT)
        span = Span(self.span.start, self.span.start + hour * HOUR)
        return History(
            self.name, span, self.node_count, self.node[keep], self.began[keep], ended, self.is_planned[keep],
            self.left_at[left], self.left_sign[left],
        )  # fmt: skip


def _hourly(moments: FloatArray, after: IntArray, before: int, hours: int, extreme: np.ufunc) -> IntArray:
    """The extreme of a step function over each hour: its value as the hour opens, and at every step inside it."""
    opening = np.searchsorted(moments, np.arange(hours), side="right")
    values = np.concatenate([[before], after])[opening].astype(np.int64)
    inside = (moments >= 0) & (moments < hours)
    extreme.at(values, moments[inside].astype(np.int64), after[inside])
    return values


class Marks:
    """The marks of a state as arrays by their number."""

    def __init__(self, health: Health) -> None:
        marks = [health.marks[number] for number in range(len(health.marks))]
        codes = {Service.IN_SERVICE: _IN_SERVICE, Service.RETIRED: _RETIRED}
        self.code = np.array([codes.get(mark.service, _OUT) for mark in marks], np.int64)
        self.is_planned = np.array([is_planned(mark) for mark in marks], bool)
        self.is_told = np.array([not mark.is_assumed for mark in marks], bool)


def told_span(fleet: Fleet, health: Health, marks: Marks) -> Span | None:
    """From the earliest to the latest time that somebody told, in any cluster; None where nobody told a transition.

    `since` of a node in service may be the day on which it was installed, years before anybody wrote down what happened
    to it. So it opens the history only if it is not long before the first transition.
    """
    entries = _entries([timeline.packed for timeline in health.timelines.values()])
    told = entries[marks.is_told[entries[:, 1]], 0] if len(entries) else entries[:, 0]
    if not len(told):
        return None
    first, last = int(told.min()), int(told.max())
    since = {to_microseconds(moment) for moment in {node.since for node in fleet.nodes.values()} if moment is not None}
    near = [moment for moment in since if moment >= first - QUIET_HOURS_MAX * HOUR]
    return Span(min([first, *near]), max([last, *near]))


def _entries(packed: Sequence[bytes]) -> IntArray:
    return np.frombuffer(b"".join(packed), np.int64).reshape(-1, 2)


def history_of(name: str, nodes: Sequence[Node], health: Health, marks: Marks, span: Span) -> History:
    """The past of these nodes. Before its first transition a node is in service, whatever it is now.

    So one that is retired now, nobody said since when, is counted throughout: leaving it out would be a look ahead.
    """
    packed = [health.timelines.get(node.id, EMPTY_TIMELINE).packed for node in nodes]
    lengths = np.array([len(each) // 16 for each in packed], np.int64)
    entries = _entries(packed)
    number, moment, mark = np.repeat(np.arange(len(nodes)), lengths), entries[:, 0], entries[:, 1]
    told = marks.is_told[mark] if len(mark) else np.zeros(0, bool)
    number, moment, mark = number[told], moment[told], mark[told]
    keep = np.ones(len(number), bool)
    # Of several marks of one instant the last says where the node came to.
    keep[:-1] &= (number[1:] != number[:-1]) | (moment[1:] != moment[:-1])
    number, moment, mark = number[keep], moment[keep], mark[keep]
    code = marks.code[mark]
    is_first = np.ones(len(number), bool)
    is_first[1:] = number[1:] != number[:-1]
    before = np.where(is_first, _IN_SERVICE, np.concatenate([[_IN_SERVICE], code[:-1]]) if len(code) else code)
    moved = code != before
    number, moment, mark, code, before = number[moved], moment[moved], mark[moved], code[moved], before[moved]
    hour = (moment - span.start) / HOUR
    until = np.full(len(hour), STILL_OUT)
    until[:-1] = np.where(number[1:] == number[:-1], hour[1:], STILL_OUT)
    outs = np.flatnonzero(code == _OUT)
    outs = outs[np.argsort(hour[outs], kind="stable")]
    left = np.flatnonzero((code == _RETIRED) | (before == _RETIRED))
    left = left[np.argsort(hour[left], kind="stable")]
    return History(
        name, span, len(nodes), number[outs], hour[outs], until[outs], marks.is_planned[mark[outs]],
        hour[left], np.where(code[left] == _RETIRED, -1, 1).astype(np.int64),
    )  # fmt: skip


def without_the_untold(nodes: Sequence[Node], health: Health, marks: Marks) -> list[Node]:
    """The nodes less those that are retired now, nobody said since when: for an answer about now."""

    def is_told(node: Node) -> bool:
        entries = _entries([health.timelines.get(node.id, EMPTY_TIMELINE).packed])[:, 1]
        return bool((marks.is_told[entries] & (marks.code[entries] == _RETIRED)).any()) if len(entries) else False

    return [node for node in nodes if node.service is not Service.RETIRED or is_told(node)]
