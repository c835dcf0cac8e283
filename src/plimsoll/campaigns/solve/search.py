"""A search for good plans by small steps: one block after the other is lifted out and put back where it is good. Pure.

Each step looks at all options of a block at once and takes one by chance, the better the likelier; the cooler it gets,
the more the best one wins (a heat bath). Limits and orders may be broken on the way, at a price that rises while they
stay broken, so that blocks can pass each other. Chance comes from a seed: the same seed goes the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from plimsoll.campaigns.solve.problem import (
    LAST_BITS,
    Floats,
    Ints,
    PlanProblem,
    entries_of,
    is_valid,
    shares_of,
    spans,
    sums_by,
    totals,
    used,
)

HOT, COLD, PRICE = 1.5, 0.08, 12.0
"""Temperatures at the start and the end, and the price of breaking a limit by one block: in usual costs of a day."""
PRICE_UP, PRICE_DOWN, PRICE_FLOOR = 1.05, 0.99, 0.3
SWEEPS_A_PRICE = 10
PAIR_PRICE = 1.0
"""The price of a pair of blocks in the wrong order, and as much again for each day between them."""
MINUTES_A_DAY = 1440


class Part(NamedTuple):
    """All that a step needs of one block. The entries of an option begin with one that changes nothing."""

    first: int
    cost: Floats
    row: Ints
    value: Floats
    begin: Ints
    moment: Ints
    out: Floats
    out_begin: Ints
    day: Ints
    share: Floats
    share_begin: Ints
    begins: Ints
    ends: Ints
    waits_for: tuple[tuple[Ints, int], ...]
    """The blocks for which it waits, and how long after their end."""
    awaited_by: tuple[tuple[Ints, int], ...]


class Search:
    """A plan that changes, and the best valid one so far."""

    def __init__(self, problem: PlanProblem, seed: int, should_stop: Callable[[], bool] = lambda: False) -> None:
        self.problem, self.should_stop = problem, should_stop
        self.chance = np.random.default_rng(seed)
        self.parts = [_part(problem, block) for block in range(len(problem.blocks))]
        self.movable = np.array([block for block, part in enumerate(self.parts) if len(part.cost) > 1], dtype=np.int64)
        self.allowed = problem.ceilings + LAST_BITS * np.maximum(1.0, np.abs(problem.ceilings))
        self.scale = usual_cost(problem)
        self.least = np.append(PRICE * self.scale / _usual_entry(problem), 0.0)
        self.price = self.least.copy()
        self.best: Ints | None = None
        self.best_total = np.inf
        self.restart(np.array([part.first for part in self.parts], dtype=np.int64))

    def restart(self, columns: Ints) -> None:
        """Go on from a choice, valid or not."""
        problem = self.problem
        self.columns = columns.copy()
        self.left = np.append(self.allowed - used(problem, columns), np.inf)
        places = entries_of(problem.out.first, columns)
        self.out = sums_by(problem.out.row[places], problem.out.value[places], problem.moments + 1)
        self.shares = shares_of(problem, columns) if problem.shares.values else np.zeros((1, 1))
        self.offer(columns)

    def scatter(self) -> None:
        """Go on from a choice by chance."""
        self.restart(np.array([part.first + self.chance.integers(len(part.cost)) for part in self.parts]))

    def offer(self, columns: Ints) -> bool:
        """Take a choice as the best, if it is valid and better."""
        if not is_valid(self.problem, columns):
            return False
        total = totals(self.problem, columns).total
        if total >= self.best_total - LAST_BITS * max(1.0, abs(total)):
            return False
        self.best, self.best_total = columns.copy(), total
        return True

    def anneal(self, steps: int, *, hot: float = HOT, cold: float = COLD) -> None:
        """So many steps from hot to cold: every other one moves a block, the others let two change places."""
        if not len(self.movable):
            return
        blocks = self.movable[self.chance.integers(len(self.movable), size=(steps, 2))]
        draws = self.chance.random((steps, 2))
        heat, cooling = hot * self.scale, (cold / hot) ** (1.0 / steps)
        self.cost = float(self.problem.cost[self.columns].sum())
        for step in range(steps):
            heat *= cooling
            block, other = int(blocks[step, 0]), int(blocks[step, 1])
            if step % 2 and block != other:
                has_moved = self._change_places(block, other, heat, draws[step])
            else:
                has_moved = self._put_back(block, heat, draws[step, 0])
            if has_moved and self.cost < self.best_total and self.left.min() >= 0.0 and self._is_better():
                self.offer(self.columns)
            if step % (SWEEPS_A_PRICE * len(self.movable)) == 0:
                factor = np.where(self.left < 0.0, PRICE_UP, PRICE_DOWN)
                self.price = np.maximum(PRICE_FLOOR * self.least, self.price * factor)
                if self.should_stop():
                    return

    def _put_back(self, block: int, heat: float, draw: float) -> bool:
        """Lift a block out and put it where chance wants it."""
        part, old = self.parts[block], int(self.columns[block])
        self._move(old, -1.0)
        new = part.first + _drawn(self._look(part), heat, draw)
        self._move(new, 1.0)
        self._note(block, new)
        return new != old

    def _change_places(self, block: int, other: int, heat: float, draws: Floats) -> bool:
        """Put a block where another is, and the other where chance wants it; undo it if that is too bad."""
        part, rest = self.parts[block], self.parts[other]
        old, old_other = int(self.columns[block]), int(self.columns[other])
        place = int(np.searchsorted(part.begins, self.problem.begins[old_other]))
        new = part.first + min(place, len(part.begins) - 1)
        if new == old:
            return False
        self._move(old_other, -1.0)
        before = self._look_without(part, old)
        self._move(new, 1.0)
        self.columns[block] = new
        found = self._look(rest)
        new_other = rest.first + _drawn(found, heat, float(draws[0]))
        after = before[new - part.first] + found[new_other - rest.first]
        self._move(new, -1.0)
        self._move(old, 1.0)
        self.columns[block] = old
        worse = after - before[old - part.first] - self._look(rest)[old_other - rest.first]
        if worse > 0.0 and draws[1] >= np.exp(-worse / heat):
            self._move(old_other, 1.0)
            return False
        self._move(old, -1.0)
        self._move(new, 1.0)
        self._move(new_other, 1.0)
        self._note(block, new)
        self._note(other, new_other)
        return True

    def _look_without(self, part: Part, column: int) -> Floats:
        """What each option of a block costs, once it is lifted out, which it then is."""
        self._move(column, -1.0)
        return self._look(part)

    def _note(self, block: int, column: int) -> None:
        self.cost += float(self.problem.cost[column] - self.problem.cost[self.columns[block]])
        self.columns[block] = column

    def _is_better(self) -> bool:
        """Whether the choice of now may be the best so far."""
        uneven = float((self.shares.max(axis=1) - self.shares.min(axis=1)).sum())
        total = self.cost + self.problem.imbalance * uneven + self.problem.peak * float(self.out.max())
        return total < self.best_total

    def _move(self, column: int, sign: float) -> None:
        problem = self.problem
        mine = problem.rows.of(column)
        self.left[problem.rows.row[mine]] -= sign * problem.rows.value[mine]
        mine = problem.out.of(column)
        self.out[problem.out.row[mine]] += sign * problem.out.value[mine]
        shares = problem.shares
        for place in range(int(shares.first[column]), int(shares.first[column + 1])):
            self.shares[shares.day[place], shares.value[place]] += sign * shares.amount[place]

    def _look(self, part: Part) -> Floats:
        """What each option of a block costs beside all others, limits and orders at their price."""
        over = part.value - self.left[part.row]
        np.maximum(over, 0.0, out=over)
        over *= self.price[part.row]
        found: Floats = np.add.reduceat(over, part.begin)
        found += part.cost
        if self.problem.peak:
            peak = np.maximum.reduceat(self.out[part.moment] + part.out, part.out_begin)
            found += self.problem.peak * np.maximum(peak, self.out.max())
        if len(part.day):
            before = self.shares[part.day]
            after = before + part.share
            change = after.max(axis=1) - after.min(axis=1) - before.max(axis=1) + before.min(axis=1)
            found += self.problem.imbalance * np.add.reduceat(change, part.share_begin)
        for blocks, lag in part.waits_for:
            late = self.problem.ends[self.columns[blocks]][:, None] + lag - part.begins
            found += self._disorder(late)
        for blocks, lag in part.awaited_by:
            late = part.ends + lag - self.problem.begins[self.columns[blocks]][:, None]
            found += self._disorder(late)
        return found

    def _disorder(self, late: Ints) -> Floats:
        is_wrong = late > 0
        price = PAIR_PRICE * self.scale
        found: Floats = price * (is_wrong + np.where(is_wrong, late, 0) / MINUTES_A_DAY).sum(axis=0)
        return found


def _drawn(found: Floats, heat: float, draw: float) -> int:
    """An option by chance, the cheaper the likelier."""
    odds = np.cumsum(np.exp((found.min() - found) / heat))
    return min(int(np.searchsorted(odds, draw * odds[-1])), len(odds) - 1)


def usual_cost(problem: PlanProblem) -> float:
    """About what it costs to do one block a day later, or on another day than the others of its kind."""
    first, last = problem.first[:-1], problem.first[1:] - 1
    days = np.maximum(1.0, (problem.begins[last] - problem.begins[first]) / MINUTES_A_DAY)
    cost = np.abs(problem.cost[last] - problem.cost[first]) / days
    shared = problem.imbalance * float(problem.shares.amount.mean()) if len(problem.shares.amount) else 0.0
    return max(float(cost.mean()), shared / 4, 1e-6)


def _usual_entry(problem: PlanProblem) -> Floats:
    """About what a block uses of each row: the mean, weighted by itself, so that the few that stay out count little."""
    count = len(problem.ceilings)
    sums = sums_by(problem.rows.row, problem.rows.value, count)
    squares = sums_by(problem.rows.row, problem.rows.value**2, count)
    return np.maximum(squares / np.maximum(sums, 1e-9), 1e-9)


def _part(problem: PlanProblem, block: int) -> Part:
    columns = np.arange(problem.first[block], problem.first[block + 1])
    begin, places = _led(problem.rows.first, columns)
    out_begin, out_places = _led(problem.out.first, columns)
    shares = problem.shares
    has_shares = shares.values > 1 and shares.first[columns[-1] + 1] > shares.first[columns[0]]
    share_begin, share_places = _led(shares.first, columns) if has_shares else (np.zeros(0, int), np.zeros(0, int))
    vectors = np.zeros((len(share_places), max(1, shares.values)))
    real = share_places >= 0
    vectors[np.nonzero(real)[0], shares.value[share_places[real]]] = shares.amount[share_places[real]]
    waits = [order for order in problem.orders if block in order.after]
    awaited = [order for order in problem.orders if block in order.before]
    return Part(
        first=int(columns[0]),
        cost=problem.cost[columns],
        row=_taken(problem.rows.row, places, len(problem.ceilings)),
        value=_taken(problem.rows.value, places, 0.0),
        begin=begin,
        moment=_taken(problem.out.row, out_places, problem.moments),
        out=_taken(problem.out.value, out_places, 0.0),
        out_begin=out_begin,
        day=_taken(shares.day, share_places, 0),
        share=vectors,
        share_begin=share_begin,
        begins=problem.begins[columns],
        ends=problem.ends[columns],
        waits_for=tuple((np.array(order.before), order.lag) for order in waits),
        awaited_by=tuple((np.array(order.after), order.lag) for order in awaited),
    )


def _led(first: Ints, columns: Ints) -> tuple[Ints, Ints]:
    """Where the entries of each column begin, and their places, each column led by a place of -1."""
    counts = first[columns + 1] - first[columns] + 1
    begin = np.cumsum(counts) - counts
    owner, place = spans(np.zeros(len(columns), dtype=np.int64), counts)
    return begin, np.where(place == 0, -1, first[columns][owner] + place - 1)


def _taken(values: Ints | Floats, places: Ints, led_by: float) -> Any:
    """The values at places; `led_by` where there is none."""
    found = values[np.maximum(places, 0)] if len(values) else np.zeros(len(places), dtype=values.dtype)
    found[places < 0] = led_by
    return found
