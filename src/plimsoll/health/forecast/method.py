"""The interface of all methods: what is known at one moment, what is asked, what is promised. Pure.

A method sees a `View` and nothing else. The view holds only what was known at its hour, so no method can look ahead.
"""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from plimsoll.health.forecast.history import OPENING_HOUR, BoolArray, FloatArray, History, IntArray

BURST_NODES_MIN = 3
"""Groups of so many nodes lost together are put in as such; smaller ones as failures that come alone.

Whether a group is a coincidence matters little here, as it is put in either way: a size that depends on the chance of
that was measured and was no better. Where a burst is named as one with a common cause, `reserve.py` is stricter.
"""
TOUCHED_HOURS = 1.0
"""An outage spoils every hour that it touches: on average this much more than it lasts."""

SHARE_UNIT = 1 / 128
"""Bursts of other clusters are remembered to this share of a cluster."""


@dataclass(frozen=True)
class Taking:
    """Known planned work: so many nodes are out from one hour until another, counted from the moment of the view."""

    begin: float
    end: float
    node_count: int


def hourly_takings(takings: Sequence[Taking], hours: int) -> IntArray:
    """How many nodes planned work takes in each hour ahead."""
    hour, taken = np.arange(hours), np.zeros(hours, np.int64)
    for taking in takings:
        taken += np.where((hour + 1 > taking.begin) & (hour < taking.end), taking.node_count, 0)
    return taken


def planned_most(takings: Sequence[Taking], hours: int) -> int:
    """The most nodes that planned work takes at once: work that follows other work adds nothing to it."""
    return int(hourly_takings(takings, hours).max(initial=0))


@dataclass(frozen=True)
class Present:
    """What is known of now beyond the history: how many hours ago that ended, and which nodes have a told return.

    `due` holds by the number of a node the hours until it is back.
    """

    quiet_hours: float = 0.0
    due: Mapping[int, float] = field(default_factory=dict)

    @cached_property
    def takings(self) -> tuple[Taking, ...]:
        return together(self.due.values())


def together(ends: Iterable[float]) -> tuple[Taking, ...]:
    """Nodes that are out now until these hours, those of one end in one."""
    return tuple(Taking(0.0, end, count) for end, count in sorted(Counter(ends).items()))


@dataclass(frozen=True)
class Ask:
    """What is asked: over how many hours, with which probability, and what is known of the time ahead."""

    horizon: int
    target: float
    takings: Sequence[Taking] = ()

    @property
    def risk(self) -> float:
        """The share of hours in which the promise may be broken."""
        return 1.0 - self.target


@dataclass(frozen=True)
class Bursts:
    """Losses of several nodes at once. `sizes` says how many nodes each took.

    Its nodes return one after the other, so a burst is a staircase: one step per node, saying how many are out from one
    hour of the burst until another. `seen_hours` is how long was looked for them.
    """

    sizes: FloatArray
    step_nodes: FloatArray
    step_begin: FloatArray
    step_end: FloatArray
    seen_hours: float

    def presence(self, hours: FloatArray, *, seen_hours: float = 0.0) -> Presence:
        """What is to be expected so many hours from now, if bursts come as often as they did."""
        stays = np.minimum(hours[:, None], self.step_end) - np.minimum(hours[:, None], self.step_begin)
        return Presence(self.step_nodes, stays / max(seen_hours or self.seen_hours, 1.0))


@dataclass(frozen=True)
class Presence:
    """How many bursts with so many nodes out (columns) are expected to be there at some times (rows)."""

    nodes: FloatArray
    expected: FloatArray

    def gathered(self, unit: float) -> Presence:
        """The same with sizes rounded to whole units, at least one, and equal ones taken together."""
        if not len(self.nodes):
            return self
        sizes = np.maximum(np.round(self.nodes / unit), 1.0)
        order = np.argsort(sizes)
        distinct, first = np.unique(sizes[order], return_index=True)
        expected: FloatArray = np.add.reduceat(self.expected[:, order], first, axis=1)
        return Presence(distinct * unit, expected)

    def with_more(self, other: Presence) -> Presence:
        return Presence(
            np.concatenate([self.nodes, other.nodes]), np.concatenate([self.expected, other.expected], axis=1)
        )

    def times(self, size: float, rate: float) -> Presence:
        """For a cluster of another size, and so many times as often."""
        return Presence(self.nodes * size, self.expected * rate)


@dataclass
class Record:
    """How a method's promises turned out so far. Credit is counted in horizons: 0.01 of it is one hour in a hundred of
    one horizon that was allowed to be broken and was not; debt is negative.
    """

    horizons: int = 0
    violated: float = 0.0

    def add(self, violated_share: float) -> None:
        self.horizons += 1
        self.violated += violated_share

    def credit(self, allowed: float) -> float:
        return self.horizons * allowed - self.violated


@dataclass(frozen=True)
class Records:
    """The record of one method for one cluster, and for the fleet on average."""

    own: Record = field(default_factory=Record)
    fleet: Record = field(default_factory=Record)
    cluster_count: int = 1

    def credit(self, allowed: float, *, fleet_weight: float) -> float:
        """Credit per cluster, partly one's own and partly that of the fleet."""
        shared = self.fleet.credit(allowed) / self.cluster_count
        return (1 - fleet_weight) * self.own.credit(allowed) + fleet_weight * shared


class View:
    """What is known of a group of nodes at one hour of its history."""

    def __init__(
        self, history: History, hour: int, window: int, fleet: FleetView | None = None, present: Present | None = None
    ) -> None:
        self.name, self.hour, self.fleet = history.name, hour, fleet
        self.present = present or Present()
        self.window = min(window, hour)
        self.total = history.total_at(hour)
        self.out = history.out_at(hour)
        self.recent: IntArray = history.out_most[hour - self.window : hour]
        """The most nodes out in each hour of the window."""
        self.memo: dict[object, Any] = {}
        """For methods that share a long computation."""
        self._history = history

    @property
    def healthy(self) -> int:
        return self.total - self.out

    @cached_property
    def _storms(self) -> tuple[FloatArray, FloatArray, BoolArray, IntArray]:
        """Of each storm when it began, how long it has lasted, whether it still does, and its burst."""
        known = int(np.searchsorted(self._history.began, self.hour, side="right"))
        number = self._history.storm[:known]
        count = int(number.max()) + 1 if known else 0
        ended = np.empty(count)
        # Outages come in the order in which they began, so the last one that is written ends the storm.
        ended[number] = self._history.ended[:known]
        began = self._history.storm_began[:count]
        is_open = ended > self.hour
        return began, np.minimum(ended, self.hour) - began, is_open, self._history.storm_burst[:count]

    @cached_property
    def _is_burst(self) -> BoolArray:
        began, _, _, burst = self._storms
        if not len(burst):
            return np.zeros(0, bool)
        is_burst: BoolArray = (np.bincount(burst)[burst] >= BURST_NODES_MIN) & (began > OPENING_HOUR)
        return is_burst

    @cached_property
    def _is_due(self) -> BoolArray:
        """For each storm whether its node has a told return."""
        count = len(self._storms[0])
        _, first = np.unique(self._history.storm, return_index=True)
        return np.isin(self._history.node[first[:count]], list(self.present.due))

    def open_ages(self, *, in_bursts: bool) -> FloatArray:
        """How long each node that is out has been so, touched hours included; lost in a burst, or alone.

        Nodes whose return is told are left out: nothing is to be guessed there.
        """
        _, lasted, is_open, _ = self._storms
        mine = is_open & (self._is_burst == in_bursts)
        if self.present.due:
            mine &= ~self._is_due
        ages: FloatArray = lasted[mine] + TOUCHED_HOURS + self.present.quiet_hours
        return ages

    def burst_outages(self) -> tuple[FloatArray, BoolArray]:
        """How long each node that was ever lost in a burst was out, and whether it still is."""
        _, lasted, is_open, _ = self._storms
        return lasted[self._is_burst] + TOUCHED_HOURS, is_open[self._is_burst]

    def singles(self, window: int) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Outages of the last hours that came alone: when they began, how long they lasted, whether they still do."""
        began, lasted, is_open, _ = self._storms
        first = int(np.searchsorted(began, max(self.hour - window, OPENING_HOUR), side="right"))
        alone = ~self._is_burst[first:]
        return began[first:][alone], lasted[first:][alone] + TOUCHED_HOURS, is_open[first:][alone]

    @cached_property
    def bursts(self) -> Bursts:
        """All bursts of the past: they are too rare for a window."""
        mine = self._is_burst
        if not mine.any():
            none = np.zeros(0)
            return Bursts(none, none, none, none, float(self.hour))
        lasted, burst = self._storms[1][mine] + TOUCHED_HOURS, self._storms[3][mine]
        order = np.lexsort((lasted, burst))
        lasted, burst = lasted[order], burst[order]
        _, first, sizes = np.unique(burst, return_index=True, return_counts=True)
        rank = np.arange(len(burst)) - np.repeat(first, sizes)
        begin = np.where(rank > 0, np.concatenate([[0.0], lasted[:-1]]), 0.0)
        steps = np.repeat(sizes, sizes) - rank
        return Bursts(sizes.astype(float), steps.astype(float), begin, lasted, float(self.hour))


class FleetView:
    """What is known of all clusters at one hour: what a method may borrow where a cluster's own past is thin."""

    def __init__(
        self, histories: Sequence[History], hour: int, window: int, presents: Mapping[str, Present] | None = None
    ) -> None:
        self.views = [View(history, hour, window, self, (presents or {}).get(history.name)) for history in histories]
        self.memo: dict[object, Any] = {}
        """For what a method finds out for all clusters at once."""

    def presence(self, hours: FloatArray) -> Presence:
        """The bursts to be expected of an average cluster, their size as a share of it. Asked for by every cluster."""
        key = ("presence", hours.tobytes())
        if key not in self.memo:
            parts = [(view.bursts, max(view.total, 1)) for view in self.views]
            seen = sum(bursts.seen_hours for bursts, _ in parts)
            presence = Presence(np.zeros(0), np.zeros((len(hours), 0)))
            for bursts, total in parts:
                mine = bursts.presence(hours, seen_hours=seen).times(1 / total, 1.0).gathered(SHARE_UNIT)
                presence = presence.with_more(mine)
            self.memo[key] = presence.gathered(SHARE_UNIT)
        found: Presence = self.memo[key]
        return found

    def lasted(self, window: int) -> tuple[FloatArray, BoolArray]:
        """How long single outages of the whole fleet lasted, and which still do."""
        key = ("lasted", window)
        if key not in self.memo:
            parts = [view.singles(window) for view in self.views]
            self.memo[key] = tuple(np.concatenate([part[place] for part in parts]) for place in (1, 2))
        lasted, is_open = self.memo[key]
        return lasted, is_open


@dataclass(frozen=True)
class Promise:
    """How many nodes to hold back so that the rest is there; and why, in numbers."""

    buffer: int
    why: Mapping[str, float]


class Method(abc.ABC):
    """One way to decide the buffer."""

    name: ClassVar[str]
    says: ClassVar[str]
    """What it does, for people."""
    may_be_recommended: ClassVar[bool] = True
    sees_present: ClassVar[bool] = False
    """Whether it looks at who is out now and when they return."""
    promises_each: ClassVar[bool] = True
    """Whether the target is meant for each cluster; else for the fleet as a whole."""

    @abc.abstractmethod
    def promise(self, view: View, ask: Ask, records: Records) -> Promise:
        """The buffer, 0 to all nodes. It must depend on its arguments only."""
