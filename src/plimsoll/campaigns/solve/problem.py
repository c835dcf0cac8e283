"""A campaign as numbers, for those who search for a plan: what may be chosen, what it costs, and what it uses up. Pure.

A *block* is what starts as one: a unit, or all units of a colo where the file wants them together. An *option* is a way
to start a block; it has a column in every table here, and the columns of a block lie side by side. Each limit is a set
of rows with a ceiling: one for each moment at which it may be broken, each day, or the whole campaign. What matters of
the clock is in the options, so that nothing here knows of zones, windows or dates.

`options.py` finds the options, `rows.py` the rows; `make_problem` in `make.py` puts them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

LAST_BITS = 1e-9
"""What a sum of floats may be above a ceiling and still mean it, relative to the ceiling."""
PROMISE = 1e-6
"""What solvers may be wrong by, relative to the bound."""


class Table(NamedTuple):
    """Numbers by column: those of column `c` are at `first[c]` to `first[c + 1]`, each in a row."""

    first: Ints
    row: Ints
    value: Floats

    def of(self, column: int) -> slice:
        return slice(self.first[column], self.first[column + 1])


class Order(NamedTuple):
    """The blocks of `after` begin no earlier than `lag` minutes after all blocks of `before` have ended."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    lag: int


class Shares(NamedTuple):
    """What options add to the shares that are to be even: on a day, to the share of a value of the spread's key."""

    first: Ints
    day: Ints
    value: Ints
    amount: Floats
    days: int
    values: int


@dataclass(frozen=True)
class PlanProblem:
    """`cost` is the exposure of each option, weighted, and what a move costs; `out` are the nodes out at each moment.

    `ceilings` and `limits` are by row: the most allowed, the place in the file of the limit that says so,
    and whether it sums up the whole campaign.
    `impossible` says why there is no plan where that is plain without a search.
    """

    names: tuple[str, ...]
    blocks: tuple[tuple[int, ...], ...]
    first: Ints
    block: Ints
    starts: tuple[npt.NDArray[np.int64], ...]
    batches: tuple[int, ...]
    begins: Ints
    ends: Ints
    cost: Floats
    rows: Table
    ceilings: Floats
    limits: Ints
    is_sum: Flags
    out: Table
    moments: int
    shares: Shares
    orders: tuple[Order, ...]
    imbalance: float
    peak: float
    impossible: str = ""

    @property
    def columns(self) -> int:
        return len(self.cost)

    def columns_of(self, block: int) -> range:
        return range(int(self.first[block]), int(self.first[block + 1]))


class Totals(NamedTuple):
    """What a choice costs: the weighted total with the costs of moves, and its parts unweighted."""

    total: float
    cost: float
    imbalance: float
    peak: float


def entries_of(first: Ints, columns: Ints) -> Ints:
    """The places of all entries of some columns, one after the other."""
    counts = first[columns + 1] - first[columns]
    return spans(first[columns], counts)[1]


def spans(begin: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """For spans of places: which span each belongs to, and the place."""
    owner = np.repeat(np.arange(len(counts)), counts)
    offset = np.cumsum(counts) - counts
    return owner, np.arange(len(owner)) - (offset - begin)[owner]


def sums_by(place: Ints, value: Floats, count: int) -> Floats:
    """The sum of the values at each place."""
    return np.bincount(place, value, minlength=count).astype(np.float64)


def used(problem: PlanProblem, columns: Ints) -> Floats:
    """How much of each row a choice uses."""
    places = entries_of(problem.rows.first, columns)
    weights = problem.rows.value[places]
    return sums_by(problem.rows.row[places], weights, len(problem.ceilings))


def shares_of(problem: PlanProblem, columns: Ints) -> Floats:
    """By day and value: the share of its nodes that begin that day."""
    shares = problem.shares
    places = entries_of(shares.first, columns)
    keys = shares.day[places] * shares.values + shares.value[places]
    found = sums_by(keys, shares.amount[places], shares.days * shares.values)
    return found.reshape(shares.days, shares.values)


def totals(problem: PlanProblem, columns: Ints) -> Totals:
    """What a choice of one column for each block costs."""
    places = entries_of(problem.out.first, columns)
    out = np.bincount(problem.out.row[places], problem.out.value[places], minlength=1)
    peak = float(out.max())
    cost = float(problem.cost[columns].sum())
    imbalance = 0.0
    if problem.shares.values > 1 and problem.shares.days:
        found = shares_of(problem, columns)
        imbalance = float((found.max(axis=1) - found.min(axis=1)).sum())
    return Totals(cost + problem.imbalance * imbalance + problem.peak * peak, cost, imbalance, peak)


def safe(bound: float) -> float:
    """A bound a little lower than it was found, for the last bits that solvers do not promise."""
    return bound - PROMISE * max(1.0, abs(bound))


def alone(problem: PlanProblem) -> float:
    """What all blocks cost if each goes where it is cheapest, as if it were alone."""
    return float(np.minimum.reduceat(problem.cost, problem.first[:-1]).sum())


def is_valid(problem: PlanProblem, columns: Ints) -> bool:
    """Whether a choice keeps every limit and order."""
    if (used(problem, columns) > problem.ceilings + LAST_BITS * np.maximum(1.0, np.abs(problem.ceilings))).any():
        return False
    begins, ends = problem.begins[columns], problem.ends[columns]
    return all(
        begins[list(order.after)].min() >= ends[list(order.before)].max() + order.lag for order in problem.orders
    )


def starts_of(problem: PlanProblem, columns: Ints) -> dict[str, tuple[int, ...]]:
    """When each batch of each unit starts, in minutes."""
    found = {}
    for block, members in enumerate(problem.blocks):
        row, at = problem.starts[block][columns[block] - problem.first[block]], 0
        for unit in members:
            found[problem.names[unit]] = tuple(int(minute) for minute in row[at : at + problem.batches[unit]])
            at += problem.batches[unit]
    return found
