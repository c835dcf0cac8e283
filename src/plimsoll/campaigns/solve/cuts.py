"""The best that patterns say about the imbalance of each day, as cuts for the model. Pure; slow to import.

A linear model mixes options, and for each day patterns that agree with them; patterns are added where the prices of the
model make one worth it (column generation). At any time the prices give a bound that holds for every plan, and a cut
for each day that makes the plain model as strong as that bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from plimsoll.campaigns.solve.engine import Ended, Warm
from plimsoll.campaigns.solve.mip import Cut, Rows, make_model
from plimsoll.campaigns.solve.patterns import Items, Patterns, can_list, make_items
from plimsoll.campaigns.solve.problem import Flags, Floats, PlanProblem, sums_by

ROUNDS_MAX = 150
CLOSE_ENOUGH = 3e-4
"""Rounds end when the bound is so close to what the model says, relative to it."""
SLACK_PRICE = 2.0
SETS_KEPT = 1
LEAST_GAIN = 1e-9


class Strength(NamedTuple):
    """How far the cuts are: a bound on every plan, and the cuts."""

    bound: float
    cuts: tuple[Cut, ...]


class _Master:
    """The model that mixes options and patterns. A link is a row: an item is in the patterns of a day as much as its
    options are taken; what is missing has a price."""

    def __init__(self, problem: PlanProblem, items: Items, patterns: Patterns) -> None:
        self.items, self.patterns = items, patterns
        shares, count = problem.shares, len(items.value)
        column = np.repeat(np.arange(problem.columns), np.diff(shares.first))
        keys, link = np.unique(shares.day * count + items.of_entry, return_inverse=True)
        self.days = np.unique(keys // count)
        rows = Rows(
            np.concatenate([link, len(keys) + np.arange(len(self.days))]),
            np.concatenate([column, np.full(len(self.days), -1)]),
            np.concatenate([np.zeros(len(keys)), np.ones(len(self.days))]),
        )
        plain = make_model(problem, is_whole=False, is_spread=False, more=rows)
        self.first = len(plain.proto.linear_constraints.ids) - len(rows.equal)
        self.ones = self.first + len(keys) + np.arange(len(self.days))
        self.links = np.full((len(self.days), count), -1, dtype=np.int64)
        self.links[np.searchsorted(self.days, keys // count), keys % count] = self.first + np.arange(len(keys))
        self.warm = Warm(plain.proto)
        self.known: set[tuple[int, bytes]] = set()
        nothing = np.zeros(count, dtype=bool)
        self.add([(place, nothing) for place in range(len(self.days))])
        prices = np.repeat(SLACK_PRICE * patterns.weight * items.share[keys % count], 2)
        self.warm.add(
            prices,
            [np.array([self.first + place // 2]) for place in range(2 * len(keys))],
            [np.array([1.0 - 2.0 * (place % 2)]) for place in range(2 * len(keys))],
        )

    def add(self, patterns: list[tuple[int, Flags]]) -> bool:
        """Patterns, each for the day at a place; whether any is new."""
        costs, rows, values = [], [], []
        for place, taken in patterns:
            if (place, taken.tobytes()) in self.known:
                continue
            self.known.add((place, taken.tobytes()))
            mine = self.links[place][taken & (self.links[place] >= 0)]
            costs.append(self.patterns.imbalance(taken))
            rows.append(np.append(mine, self.ones[place]))
            values.append(np.append(np.full(len(mine), -1.0), 1.0))
        if costs:
            self.warm.add(np.array(costs), rows, values)
        return bool(costs)

    def prices(self, duals: Floats, place: int) -> Floats:
        """What an item earns on a day. One that can't begin then must not be in the pattern."""
        never = -4.0 * self.patterns.weight * float(self.items.share.sum())
        mine = self.links[place]
        return np.where(mine >= 0, -duals[np.maximum(mine, 0)], never)


def strengthen(problem: PlanProblem, *, should_stop: Callable[[], bool]) -> Iterator[Strength]:
    """Better and better cuts. None where patterns can't be listed, or there is nothing to spread."""
    if not problem.imbalance or problem.shares.values < 2 or not len(problem.shares.day):
        return
    items = make_items(problem)
    if not can_list(items, problem.shares.values):
        return
    patterns = Patterns(items, values=problem.shares.values, weight=problem.imbalance)
    master = _Master(replace(problem, peak=0.0), items, patterns)  # the peak makes the model twice as large for little
    bound = -np.inf
    kept: list[tuple[Cut, ...]] = []
    for _ in range(ROUNDS_MAX):
        answer = master.warm.solve()
        if answer.ended is not Ended.OPTIMAL or should_stop():
            return
        lower, cuts, worth = answer.bound, [], []
        for place, day in enumerate(master.days.tolist()):
            prices = master.prices(answer.duals, place)
            earned, taken = patterns.best(prices)
            cuts.append(_cut(problem, items, day, prices, earned))
            reduced = -earned - float(answer.duals[master.ones[place]])
            lower += min(0.0, reduced)
            if reduced < -LEAST_GAIN * max(1.0, abs(answer.bound)):
                worth.append((place, taken))
        if lower > bound:
            bound = lower
            kept = [tuple(cuts), *kept][:SETS_KEPT]
            yield Strength(bound, tuple(cut for each in kept for cut in each))
        if not master.add(worth) or answer.bound - bound < CLOSE_ENOUGH * abs(answer.bound):
            return


def _cut(problem: PlanProblem, items: Items, day: int, prices: Floats, earned: float) -> Cut:
    """No pattern earns more than the best one: the imbalance is at least what its items earn, less that."""
    shares = problem.shares
    places = np.nonzero(shares.day == day)[0]
    columns = np.searchsorted(shares.first, places, side="right") - 1
    amounts = prices[items.of_entry[places]]
    taken, number = np.unique(columns, return_inverse=True)
    return Cut(day, taken, sums_by(number, amounts, len(taken)), -earned)
