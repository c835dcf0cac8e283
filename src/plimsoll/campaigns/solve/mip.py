"""The problem as a linear model with whole numbers, for the solvers of OR-Tools. Pure; slow to import.

One variable for each option, one for the peak, and for each day the largest and the smallest share of the spread. A
model may be of some blocks only, the others standing where they stand. What must end before what begins is asked at
some moments only where asking at all of them would be too much: the model is then too kind, never too strict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from ortools.math_opt import model_pb2  # type: ignore[import-untyped]

from plimsoll.campaigns.solve.problem import (
    LAST_BITS,
    Flags,
    Floats,
    Ints,
    Order,
    PlanProblem,
    entries_of,
    shares_of,
    sums_by,
    used,
)

ORDER_ENTRIES_MAX = 200_000


class Cut(NamedTuple):
    """What is known of a day's imbalance: weighted, it is at least `least` and so much more for each option chosen."""

    day: int
    columns: Ints
    amounts: Floats
    least: float


class Matrix:
    """Rows of a model as they are made."""

    def __init__(self) -> None:
        self.rows: list[Ints] = []
        self.columns: list[Ints] = []
        self.values: list[Floats] = []
        self.least: list[Floats] = []
        self.most: list[Floats] = []
        self.count = 0

    def add(self, least: Floats, most: Floats) -> int:
        """New rows; the number of the first."""
        first = self.count
        self.least.append(np.asarray(least, dtype=float))
        self.most.append(np.asarray(most, dtype=float))
        self.count += len(self.least[-1])
        return first

    def fill(self, rows: Ints, columns: Ints, values: Floats) -> None:
        self.rows.append(rows)
        self.columns.append(columns)
        self.values.append(values)


class Gate(NamedTuple):
    """Whether all that comes before has ended, at some moments: variables from number `at` on."""

    order: Order
    moments: Ints
    at: int
    is_exact: bool


class Rows(NamedTuple):
    """More rows, each with what its sum must be: entries of one, by row and column (-1: none)."""

    row: Ints
    column: Ints
    equal: Floats


class Model(NamedTuple):
    """A model, and where its variables are: `columns` first, then the peak, the largest and the smallest shares."""

    proto: model_pb2.ModelProto
    columns: Ints
    days: Ints
    fixed: Ints
    """The choice, with -1 for blocks that are free."""
    gates: tuple[Gate, ...]
    size: int

    @property
    def is_exact(self) -> bool:
        """Whether all that the model allows is a valid plan."""
        return all(gate.is_exact for gate in self.gates)


def make_model(
    problem: PlanProblem,
    *,
    free: Sequence[int] | None = None,
    chosen: Ints | None = None,
    cuts: Sequence[Cut] = (),
    is_whole: bool = True,
    is_goal: bool = True,
    is_spread: bool = True,
    more: Rows | None = None,
) -> Model:
    """A model of all blocks, or of those in `free` beside what is `chosen` for the others.

    `is_whole`: options are taken whole; else in parts, which gives a bound. Without `is_goal` any valid plan will do;
    without `is_spread` the imbalance is left to the `more` rows, which come last.
    """
    fixed = np.full(len(problem.blocks), -1, dtype=np.int64)
    if free is not None:
        assert chosen is not None, "the other blocks stand somewhere"
        fixed = chosen.copy()
        fixed[list(free)] = -1
    standing = fixed[fixed >= 0]
    left = problem.ceilings + LAST_BITS * np.maximum(1.0, np.abs(problem.ceilings)) - used(problem, standing)
    columns = _usable(problem, fixed, left)
    matrix = Matrix()
    blocks = np.nonzero(fixed < 0)[0]
    _choose_one(problem, matrix, blocks, columns)
    _limits(problem, matrix, columns, left)
    days, lower, upper, peak_least = np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0), 0.0
    if is_goal:
        peak_least = _peak(problem, matrix, columns, standing)
        if is_spread:
            days, lower, upper = _spread(problem, matrix, columns, standing)
        _cuts(problem, matrix, columns, days, cuts)
    count = len(columns)
    gates = _orders(problem, matrix, columns, fixed, count + 1 + 2 * len(days))
    gated = sum(len(gate.moments) for gate in gates)
    if more is not None:
        first, real = matrix.add(more.equal, more.equal), more.column >= 0
        matrix.fill(first + more.row[real], more.column[real], np.ones(int(real.sum())))
    goal = np.concatenate(
        [
            problem.cost[columns] * is_goal,
            [problem.peak * is_goal],
            np.full(len(days), problem.imbalance),
            np.full(len(days), -problem.imbalance),
            np.zeros(gated),
        ]
    )
    offset = _standing_goal(problem, standing, days) if is_goal else 0.0
    least = np.concatenate([np.zeros(count), [peak_least], lower, np.zeros(len(days) + gated)])
    most = np.concatenate([np.ones(count), [np.inf], np.full(len(days), 2.0), upper, np.ones(gated)])
    whole = np.arange(len(goal)) < count if is_whole else np.zeros(len(goal), dtype=bool)
    proto = _proto(matrix, goal, offset, least, most, whole)
    return Model(proto, columns, days, fixed, tuple(gates), len(goal))


def _usable(problem: PlanProblem, fixed: Ints, left: Floats) -> Ints:
    """The options of free blocks that fit beside what stands."""
    is_free = fixed[problem.block] < 0
    if (fixed >= 0).any():
        column = np.repeat(np.arange(problem.columns), np.diff(problem.rows.first))
        is_free[column[problem.rows.value > left[problem.rows.row]]] = False
        for order in problem.orders:
            before = [fixed[block] for block in order.before if fixed[block] >= 0]
            after = [fixed[block] for block in order.after if fixed[block] >= 0]
            if before:
                soonest = problem.ends[before].max() + order.lag
                is_free &= ~(np.isin(problem.block, order.after) & (problem.begins < soonest))
            if after:
                latest = problem.begins[after].min() - order.lag
                is_free &= ~(np.isin(problem.block, order.before) & (problem.ends > latest))
    return np.nonzero(is_free)[0]


def _choose_one(problem: PlanProblem, matrix: Matrix, blocks: Ints, columns: Ints) -> None:
    first = matrix.add(np.ones(len(blocks)), np.ones(len(blocks)))
    rows = first + np.searchsorted(blocks, problem.block[columns])
    matrix.fill(rows, np.arange(len(columns)), np.ones(len(columns)))


def _limits(problem: PlanProblem, matrix: Matrix, columns: Ints, left: Floats) -> None:
    """The limits that the free blocks could break."""
    places = entries_of(problem.rows.first, columns)
    owner = np.repeat(np.arange(len(columns)), problem.rows.first[columns + 1] - problem.rows.first[columns])
    row, value = problem.rows.row[places], problem.rows.value[places]
    binds = _most(row, problem.block[columns][owner], value, len(left), len(problem.blocks)) > left
    numbers = np.cumsum(binds) - 1
    first = matrix.add(np.full(int(binds.sum()), -np.inf), left[binds])
    kept = binds[row]
    matrix.fill(first + numbers[row[kept]], owner[kept], value[kept])


def _most(row: Ints, block: Ints, value: Floats, rows: int, blocks: int) -> Floats:
    """The most that blocks can add to each row together."""
    if not len(row):
        return np.zeros(rows)
    key = row * blocks + block
    order = np.argsort(key, kind="stable")
    key = key[order]
    places = np.nonzero(np.concatenate([[True], np.diff(key) != 0]))[0]
    return sums_by(key[places] // blocks, np.maximum.reduceat(value[order], places), rows)


def _peak(problem: PlanProblem, matrix: Matrix, columns: Ints, standing: Ints) -> float:
    """The peak is at least what is out at each moment. Returns what it is at least anyway."""
    if not problem.peak:
        return 0.0
    stands = entries_of(problem.out.first, standing)
    base = sums_by(problem.out.row[stands], problem.out.value[stands], problem.moments)
    own = np.zeros(problem.columns)
    filled = np.diff(problem.out.first) > 0
    if filled.any():
        own[filled] = np.maximum.reduceat(problem.out.value, problem.out.first[:-1][filled])
    lowest = np.full(len(problem.blocks), np.inf)
    np.minimum.at(lowest, problem.block[columns], own[columns])
    least = max(float(base.max(initial=0.0)), float(lowest[np.isfinite(lowest)].max(initial=0.0)))
    places = entries_of(problem.out.first, columns)
    owner = np.repeat(np.arange(len(columns)), problem.out.first[columns + 1] - problem.out.first[columns])
    row, value = problem.out.row[places], problem.out.value[places]
    matters = base + _most(row, problem.block[columns][owner], value, problem.moments, len(problem.blocks)) > least
    numbers = np.cumsum(matters) - 1
    count = int(matters.sum())
    first = matrix.add(np.full(count, -np.inf), -base[matters])
    kept = matters[row]
    matrix.fill(first + numbers[row[kept]], owner[kept], value[kept])
    matrix.fill(first + np.arange(count), np.full(count, len(columns)), -np.ones(count))
    return least


def _spread(problem: PlanProblem, matrix: Matrix, columns: Ints, standing: Ints) -> tuple[Ints, Floats, Floats]:
    """For each day on which a share may change: the largest is at least each of them, the smallest at most.

    Returns those days, what the largest is at least and the smallest at most for shares that can't change.
    """
    shares = problem.shares
    places = entries_of(shares.first, columns)
    if not problem.imbalance or not len(places):
        none = np.zeros(0, dtype=np.int64)
        return none, np.zeros(0), np.zeros(0)
    owner = np.repeat(np.arange(len(columns)), shares.first[columns + 1] - shares.first[columns])
    days, number = np.unique(shares.day[places], return_inverse=True)
    base = shares_of(problem, standing)[days]
    changes = np.zeros(base.shape, dtype=bool)
    changes[number, shares.value[places]] = True
    rows = np.cumsum(changes.ravel()) - 1
    count, row = int(changes.sum()), rows[number * shares.values + shares.value[places]]
    day = np.nonzero(changes)[0]
    for offset, least, most in (
        (0, np.full(count, -np.inf), -base[changes]),
        (len(days), -base[changes], np.full(count, np.inf)),
    ):
        first = matrix.add(least, most)
        matrix.fill(first + row, owner, shares.amount[places])
        matrix.fill(first + np.arange(count), len(columns) + 1 + offset + day, -np.ones(count))
    lower = np.where(changes, 0.0, base).max(axis=1)
    upper = np.where(changes, np.inf, base).min(axis=1)
    return days, lower, np.minimum(upper, 2.0)


def _standing_goal(problem: PlanProblem, standing: Ints, days: Ints) -> float:
    """What stands costs, and the imbalance of the days that can't change."""
    found = float(problem.cost[standing].sum())
    if problem.shares.values > 1 and problem.imbalance:
        shares = np.delete(shares_of(problem, standing), days, axis=0)
        found += problem.imbalance * float((shares.max(axis=1) - shares.min(axis=1)).sum())
    return found


def _cuts(problem: PlanProblem, matrix: Matrix, columns: Ints, days: Ints, cuts: Sequence[Cut]) -> None:
    number = {int(day): place for place, day in enumerate(days)}
    for cut in cuts:
        if cut.day not in number:
            continue
        row = matrix.add(np.array([cut.least]), np.array([np.inf]))
        place = np.clip(np.searchsorted(columns, cut.columns), 0, len(columns) - 1)
        kept = (columns[place] == cut.columns) & (np.abs(cut.amounts) > LAST_BITS)
        matrix.fill(np.full(int(kept.sum()), row), place[kept], -cut.amounts[kept])
        at = len(columns) + 1 + number[cut.day]
        ends = np.array([at, at + len(days)], dtype=np.int64)
        matrix.fill(np.array([row, row]), ends, np.array([problem.imbalance, -problem.imbalance]))


def _orders(problem: PlanProblem, matrix: Matrix, columns: Ints, fixed: Ints, at: int) -> list[Gate]:
    """No block of `after` has begun by a moment unless all of `before` have ended by then, less the lag.

    Whether they have is a variable of its own for each moment, from number `at` on.
    """
    gates = []
    block = problem.block[columns]
    for order in problem.orders:
        before = [each for each in order.before if fixed[each] < 0]
        after = [each for each in order.after if fixed[each] < 0]
        if not before or not after:
            continue
        moments = np.unique(problem.begins[columns[np.isin(block, after)]])
        entries = int(np.isin(block, (*before, *after)).sum()) * len(moments) / 2
        step = max(1, int(np.ceil(entries / ORDER_ENTRIES_MAX)))
        gates.append(Gate(order, moments[::-1][::step][::-1], at, is_exact=step == 1))
        at += len(gates[-1].moments)
        for each in before:
            mine = np.nonzero(block == each)[0]
            _gate(matrix, gates[-1], mine, problem.ends[columns[mine]] + order.lag, is_before=True)
        for each in after:
            mine = np.nonzero(block == each)[0]
            _gate(matrix, gates[-1], mine, problem.begins[columns[mine]], is_before=False)
    return gates


def _gate(matrix: Matrix, gate: Gate, mine: Ints, minutes: Ints, *, is_before: bool) -> None:
    """For each moment: the gate is open only if the block has ended, or the block has begun only if it is open."""
    count, sign = len(gate.moments), -1.0 if is_before else 1.0
    first = matrix.add(np.full(count, -np.inf), np.zeros(count))
    moment, option = np.nonzero(minutes[None, :] <= gate.moments[:, None])
    matrix.fill(first + moment, mine[option], np.full(len(moment), sign))
    matrix.fill(first + np.arange(count), gate.at + np.arange(count), np.full(count, -sign))


def _proto(
    matrix: Matrix, goal: Floats, offset: float, least: Floats, most: Floats, whole: Flags
) -> model_pb2.ModelProto:
    model = model_pb2.ModelProto()
    variables = model.variables
    variables.ids.extend(range(len(goal)))
    variables.lower_bounds.extend(least.tolist())
    variables.upper_bounds.extend(most.tolist())
    variables.integers.extend(whole.tolist())
    counts = np.nonzero(goal)[0]
    model.objective.linear_coefficients.ids.extend(counts.tolist())
    model.objective.linear_coefficients.values.extend(goal[counts].tolist())
    model.objective.offset = offset
    model.linear_constraints.ids.extend(range(matrix.count))
    model.linear_constraints.lower_bounds.extend(np.concatenate(matrix.least).tolist())
    model.linear_constraints.upper_bounds.extend(np.concatenate(matrix.most).tolist())
    row, column, value = np.concatenate(matrix.rows), np.concatenate(matrix.columns), np.concatenate(matrix.values)
    order = np.lexsort((column, row))
    model.linear_constraint_matrix.row_ids.extend(row[order].tolist())
    model.linear_constraint_matrix.column_ids.extend(column[order].tolist())
    model.linear_constraint_matrix.coefficients.extend(value[order].tolist())
    return model


# From a plan to the values of a model's variables, and back.


def hint_of(problem: PlanProblem, model: Model, chosen: Ints) -> Floats | None:
    """The values of a model's variables for a plan; None where the model has no such plan."""
    columns = np.where(model.fixed >= 0, model.fixed, chosen)
    mine = chosen[model.fixed < 0]
    places = np.clip(np.searchsorted(model.columns, mine), 0, max(0, len(model.columns) - 1))
    if not len(model.columns) or (model.columns[places] != mine).any():
        return None
    values = np.zeros(model.size)
    values[places] = 1.0
    at = len(model.columns)
    out = entries_of(problem.out.first, columns)
    if problem.peak:
        values[at] = sums_by(problem.out.row[out], problem.out.value[out], 1).max()
    if len(model.days):
        shares = shares_of(problem, columns)[model.days]
        values[at + 1 : at + 1 + len(model.days)] = shares.max(axis=1)
        values[at + 1 + len(model.days) : at + 1 + 2 * len(model.days)] = shares.min(axis=1)
    for gate in model.gates:
        ended = problem.ends[columns[list(gate.order.before)]].max() + gate.order.lag
        values[gate.at : gate.at + len(gate.moments)] = gate.moments >= ended
    return values


def chosen_by(problem: PlanProblem, model: Model, values: Floats | None) -> Ints | None:
    """The plan that a solver found."""
    if values is None:
        return None
    taken = model.columns[values[: len(model.columns)] > 0.5]
    chosen = model.fixed.copy()
    chosen[problem.block[taken]] = taken
    return chosen if (chosen >= 0).all() and len(taken) == int((model.fixed < 0).sum()) else None
