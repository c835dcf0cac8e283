"""How many GPUs of each pool were healthy at every moment of the past, and who was out. Pure.

Exact to the instant, and from the same outages that the service levels count. What nobody told is not guessed: before
the first transition that is known there is no past.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import PoolKey
from plimsoll.health.fold import Health
from plimsoll.health.levels.outages import ALWAYS, HOUR, Past, Whole, history_begin, read_past
from plimsoll.health.model import from_microseconds, to_microseconds
from plimsoll.state.state import State


@dataclass(frozen=True)
class Out:
    """A node that was out of service at a moment."""

    node: str
    gpus: int
    reason: str
    is_planned: bool


@dataclass(frozen=True)
class PoolPast:
    """A pool over time. From each of `moments` on (microseconds) so many GPUs were healthy, of so many in all."""

    key: PoolKey
    moments: Whole
    healthy: Whole
    total: Whole
    _past: Past = field(repr=False)
    _stretches: Whole = field(repr=False)

    def place(self, moment: int) -> int:
        """Where in `moments` this one lies."""
        return int(np.searchsorted(self.moments, moment, side="right")) - 1

    def fewest_by_hour(self, begin: int, hours: int) -> Whole:
        """The fewest healthy GPUs at any instant of each hour from `begin` on."""
        return by_hour(self.moments, self.healthy, begin, hours, np.minimum)

    def out_at(self, moment: int) -> list[Out]:
        """Who was out of service then, by name."""
        stretches = self._past.stretches
        mine = self._stretches
        there = mine[(stretches.begin[mine] <= moment) & (stretches.end[mine] > moment)]
        found = [
            Out(
                (node := self._past.nodes[stretches.node[place]]).id,
                node.gpus,
                self._past.reasons[stretches.reason[place]],
                bool(stretches.is_planned[place]),
            )
            for place in there.tolist()
        ]
        return sorted(found, key=lambda out: out.node)


def by_hour(moments: Whole, values: Whole, begin: int, hours: int, extreme: np.ufunc) -> Whole:
    """The extreme of a step function over each hour: its value as the hour opens, and at every step inside it."""
    opening = begin + HOUR * np.arange(hours)
    found: Whole = values[np.searchsorted(moments, opening, side="right") - 1].astype(np.int64)
    is_inside = (moments > begin) & (moments < begin + HOUR * hours)
    extreme.at(found, (moments[is_inside] - begin) // HOUR, values[is_inside])
    return found


def pool_pasts(state: State, pools: Collection[PoolKey], *, until: datetime) -> dict[PoolKey, PoolPast]:
    """The past of these pools up to a moment."""
    wanted = set(pools)
    nodes = sorted(
        (node for node in state.of(Fleet).nodes.values() if PoolKey(node.cluster, node.sku) in wanted),
        key=lambda node: node.id,
    )
    past = read_past(state.of(Health), nodes, until=to_microseconds(until))
    numbers = {pool: number for number, pool in enumerate(sorted(wanted))}
    pool_of = np.array([numbers[PoolKey(node.cluster, node.sku)] for node in nodes], np.int64)
    counted = _by_number(pool_of[past.counted.node], len(numbers))
    out = _by_number(pool_of[past.stretches.node], len(numbers))
    return {pool: _one(pool, past, counted[number], out[number]) for pool, number in numbers.items()}


def _by_number(numbers: Whole, count: int) -> list[Whole]:
    """For each number the places where it stands, in order: all pools are told apart in one pass."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.searchsorted(numbers[order], np.arange(1, count)))


def _one(key: PoolKey, past: Past, counted: Whole, out: Whole) -> PoolPast:
    rows = [
        (past.counted.begin[counted], past.gpus[past.counted.node[counted]], 1, 1),
        (past.counted.end[counted], past.gpus[past.counted.node[counted]], -1, -1),
        (past.stretches.begin[out], past.gpus[past.stretches.node[out]], -1, 0),
        (past.stretches.end[out], past.gpus[past.stretches.node[out]], 1, 0),
    ]
    moment = np.concatenate([[ALWAYS], *(row[0] for row in rows)]).astype(np.int64)
    healthy = np.concatenate([[0], *(sign * gpus for _, gpus, sign, _ in rows)]).astype(np.int64)
    total = np.concatenate([[0], *(sign * gpus for _, gpus, _, sign in rows)]).astype(np.int64)
    # An outage that is open has, so far, the end of what we look at: it did not end then.
    is_known = moment < past.until
    moments, place = np.unique(moment[is_known], return_inverse=True)
    return PoolPast(
        key,
        moments,
        np.cumsum(np.bincount(place, healthy[is_known], len(moments)).round()).astype(np.int64),
        np.cumsum(np.bincount(place, total[is_known], len(moments)).round()).astype(np.int64),
        past,
        out,
    )


@dataclass(frozen=True)
class Hours:
    """Whole hours by the clock, in UTC."""

    begin: int
    count: int

    @property
    def end(self) -> int:
        return self.begin + self.count * HOUR

    @property
    def starts(self) -> datetime:
        return from_microseconds(self.begin)

    @property
    def ends(self) -> datetime:
        return from_microseconds(self.end)


def last_hours(state: State, *, days: int, now: datetime) -> Hours:
    """The last whole hours, as far back as anybody told what happened; none where nobody did."""
    end = to_microseconds(now) // HOUR * HOUR
    first = history_begin(state.of(Health))
    begin = end if first is None else max(end - days * 24 * HOUR, -(-first // HOUR) * HOUR)
    return Hours(min(begin, end), max(0, (end - begin) // HOUR))
