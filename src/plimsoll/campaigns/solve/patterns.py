"""What a day's imbalance costs for every set of blocks that can begin on it, and cuts from that. Pure.

The plain model takes a tenth of a block on each of ten days and so finds every day even. No plan can: on each day a
block begins or it does not. A *pattern* is the set of blocks that begin on a day, an *item* is one block's part in it.
With the prices of all items the cheapest pattern can be found at once where the sets of each value of the spread can be
listed: the largest value's sets are sorted by their share, and for each combination of the others the best one of them
is looked up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from plimsoll.campaigns.solve.problem import Flags, Floats, Ints, PlanProblem

ITEMS_MAX = 16
"""Of the value with the most items: its sets are listed."""
REST_MAX = 13
"""Items of all other values together: their combinations are listed."""


class Items(NamedTuple):
    """What can begin on a day: by item the value of the spread that it adds to, and its share; by entry the item."""

    value: Ints
    share: Floats
    of_entry: Ints


def make_items(problem: PlanProblem) -> Items:
    """A block's part in a day. A smaller last batch is an item of its own."""
    shares = problem.shares
    column = np.repeat(np.arange(problem.columns), np.diff(shares.first))
    keys = np.stack([problem.block[column].astype(float), shares.value.astype(float), shares.amount], axis=1)
    found, item = np.unique(keys, axis=0, return_inverse=True) if len(keys) else (keys, np.zeros(0, dtype=np.int64))
    return Items(found[:, 1].astype(np.int64), found[:, 2], item.ravel())


def can_list(items: Items, values: int) -> bool:
    """Whether all patterns can be looked through."""
    counts = np.sort(np.bincount(items.value, minlength=values))
    return len(items.value) > 0 and int(counts[-1]) <= ITEMS_MAX and int(counts[:-1].sum()) <= REST_MAX


class Patterns:
    """All sets of items, made ready for looking up the cheapest at some prices."""

    def __init__(self, items: Items, *, values: int, weight: float) -> None:
        self.items, self.weight, self.values = items, weight, values
        counts = np.bincount(items.value, minlength=values)
        main = int(np.argmax(counts))
        self.main = np.nonzero(items.value == main)[0]
        sets = _sets(len(self.main))
        share = sets @ items.share[self.main]
        order = np.argsort(share, kind="stable")
        self.sets, self.share = sets[order], share[order]
        self.rest, self.combined, self.low, self.high = self._combine([v for v in range(values) if v != main])
        self.below = np.searchsorted(self.share, self.low, side="left")
        self.upto = np.searchsorted(self.share, self.high, side="right")

    def _combine(self, values: list[int]) -> tuple[Ints, Floats, Floats, Floats]:
        """All combinations of the sets of some values, with their lowest and highest share."""
        combined, low, high = np.zeros((1, 0)), np.array([np.inf]), np.array([-np.inf])
        places: list[int] = []
        for value in values:
            mine = np.nonzero(self.items.value == value)[0]
            sets = _sets(len(mine))
            share = sets @ self.items.share[mine]
            combined = np.hstack([np.repeat(combined, len(sets), axis=0), np.tile(sets, (len(low), 1))])
            low = np.minimum(np.repeat(low, len(sets)), np.tile(share, len(low)))
            high = np.maximum(np.repeat(high, len(sets)), np.tile(share, len(high)))
            places += mine.tolist()
        return np.array(places, dtype=np.int64), combined, low, high

    def imbalance(self, taken: Flags) -> float:
        """What a pattern costs."""
        sums = np.bincount(self.items.value[taken], self.items.share[taken], minlength=self.values)
        return self.weight * float(sums.max() - sums.min())

    def best(self, prices: Floats) -> tuple[float, Flags]:
        """The most that a pattern can earn at these prices less what it costs, and the pattern."""
        rest, main, count = self.combined @ prices[self.rest], self.sets @ prices[self.main], len(self.share)
        weight = self.weight
        rising, falling = main + weight * self.share, main - weight * self.share
        under = np.maximum.accumulate(rising)[np.maximum(self.below - 1, 0)]
        over = np.maximum.accumulate(falling[::-1])[::-1][np.minimum(self.upto, count - 1)]
        options = np.stack(
            [
                np.where(self.below > 0, rest - weight * self.high + under, -np.inf),
                rest - weight * (self.high - self.low) + _range_maxima(main, self.below, self.upto),
                np.where(self.upto < count, rest + weight * self.low + over, -np.inf),
            ]
        )
        case, place = np.unravel_index(int(np.argmax(options)), options.shape)
        below, upto = int(self.below[place]), int(self.upto[place])
        chosen = (
            int(np.argmax(rising[:below])) if case == 0
            else below + int(np.argmax(main[below:upto])) if case == 1
            else upto + int(np.argmax(falling[upto:]))
        )  # fmt: skip
        taken = np.zeros(len(self.items.value), dtype=bool)
        taken[self.rest] = self.combined[place] > 0
        taken[self.main] = self.sets[chosen] > 0
        return float(options[case, place]), taken


def _sets(count: int) -> Floats:
    """All sets of so many items, a line for each."""
    return ((np.arange(2**count)[:, None] >> np.arange(count)) & 1).astype(np.float64)


def _range_maxima(values: Floats, begin: Ints, end: Ints) -> Floats:
    """The largest of the values at begin..end, for each pair; below everything where there is none."""
    found = np.full(len(begin), -np.inf)
    length = end - begin
    width, maxima = 1, values
    while width <= len(values):
        mine = np.nonzero((length >= width) & (length < 2 * width))[0]
        found[mine] = np.maximum(maxima[begin[mine]], maxima[end[mine] - width])
        if 2 * width > len(values):
            break
        maxima = np.maximum(maxima[:-width], maxima[width:])
        width *= 2
    return found
