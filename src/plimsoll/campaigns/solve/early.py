"""Of plans that are equally good, the one that people expect: each block as early in its day as it can. Pure.

Nothing else changes: days, cost, shares and peak stay what they are, and no limit is broken that was not.
"""

from __future__ import annotations

import numpy as np

from plimsoll.campaigns.solve.problem import LAST_BITS, Floats, Ints, PlanProblem, used

SAME = 1e-9


def as_early_as_can_be(problem: PlanProblem, columns: Ints) -> Ints:
    """The same plan with every block moved to the first start of its day at which nothing is lost; in order of time."""
    chosen = columns.copy()
    left = problem.ceilings + LAST_BITS * np.maximum(1.0, np.abs(problem.ceilings)) - used(problem, chosen)
    out = np.zeros(problem.moments)
    for column in chosen:
        mine = problem.out.of(column)
        out[problem.out.row[mine]] += problem.out.value[mine]
    peak = out.max(initial=0.0)
    for block in sorted(range(len(problem.blocks)), key=lambda each: (problem.begins[chosen[each]], each)):
        now = int(chosen[block])
        _add(problem, now, left, out, sign=-1)
        best = now
        for column in _earlier(problem, block, now):
            if _fits(problem, column, left, out, peak) and _keeps_order(problem, chosen, block, column):
                best = column
                break
        _add(problem, best, left, out, sign=1)
        chosen[block] = best
    return chosen


def _earlier(problem: PlanProblem, block: int, now: int) -> list[int]:
    """Starts of a block before this one that cost the same on the same days, the earliest first."""
    mine = _shares(problem, now)
    found = [
        column
        for column in problem.columns_of(block)
        if problem.begins[column] < problem.begins[now]
        and abs(problem.cost[column] - problem.cost[now]) <= SAME * max(1.0, abs(problem.cost[now]))
        and _shares(problem, column) == mine
    ]
    return sorted(found, key=lambda column: (problem.begins[column], column))


def _shares(problem: PlanProblem, column: int) -> list[tuple[int, int, float]]:
    shares = problem.shares
    span = slice(shares.first[column], shares.first[column + 1])
    listed = zip(shares.day[span], shares.value[span], shares.amount[span], strict=True)
    return sorted((int(day), int(value), float(amount)) for day, value, amount in listed)


def _add(problem: PlanProblem, column: int, left: Floats, out: Floats, *, sign: int) -> None:
    rows, moments = problem.rows.of(column), problem.out.of(column)
    left[problem.rows.row[rows]] -= sign * problem.rows.value[rows]
    out[problem.out.row[moments]] += sign * problem.out.value[moments]


def _fits(problem: PlanProblem, column: int, left: Floats, out: Floats, peak: float) -> bool:
    rows, moments = problem.rows.of(column), problem.out.of(column)
    if (problem.rows.value[rows] > left[problem.rows.row[rows]]).any():
        return False
    return bool((out[problem.out.row[moments]] + problem.out.value[moments] <= peak + SAME).all())


def _keeps_order(problem: PlanProblem, chosen: Ints, block: int, column: int) -> bool:
    """Whether a block that begins earlier still comes after all that it must wait for."""
    begins = problem.begins[column]
    return all(
        begins >= problem.ends[chosen[list(order.before)]].max() + order.lag
        for order in problem.orders
        if block in order.after and order.before
    )
