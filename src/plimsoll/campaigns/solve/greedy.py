"""The plan that people make: sorted by the order of the file, large before small, each at the first time that fits.

What finds no time any more is moved to the front, and all is placed anew. It is the baseline that a plan is held
against, and the first plan of a search. Pure. It may find none where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from plimsoll.campaigns.solve.problem import LAST_BITS, Floats, Ints, PlanProblem, used
from plimsoll.campaigns.units import Unit

RETRIES_MAX = 100


def in_order(problem: PlanProblem, units: Sequence[Unit]) -> list[int]:
    """The blocks as people sort them: frozen ones and canaries, then by group and size. No group comes last."""

    def key(block: int) -> tuple[bool, bool, float, int, str]:
        members = [units[place] for place in problem.blocks[block]]
        options = len(problem.columns_of(block))
        group = min((unit.group for unit in members if unit.group is not None), default=float("inf"))
        is_canary = any(unit.is_canary for unit in members)
        return options != 1, not is_canary, group, -sum(unit.nodes for unit in members), members[0].name

    return sorted(range(len(problem.blocks)), key=key)


def first_fit(problem: PlanProblem, order: Sequence[int]) -> Ints | None:
    """A column for each block, each the first that fits beside those before it. None where that can't be done."""
    if problem.impossible:
        return None
    queue = list(order)
    for _ in range(RETRIES_MAX):
        chosen, stuck = _place(problem, queue)
        if not stuck:
            return chosen
        queue.remove(stuck[0])
        queue.insert(0, stuck[0])
    return None


def near_fit(problem: PlanProblem, order: Sequence[int], wanted: Mapping[str, int]) -> Ints | None:
    """A plan near an older one: units by their name and the minute in which they were to start.

    What still fits where it was stays there; only then the others get the cheapest time that is left. None where that
    can't be done.
    """
    if problem.impossible:
        return None
    old = np.full(len(problem.blocks), -1, dtype=np.int64)
    for block, members in enumerate(problem.blocks):
        minute = wanted.get(problem.names[members[0]], -1)
        same = np.nonzero(problem.starts[block][:, 0] == minute)[0]
        if len(same):
            old[block] = problem.first[block] + same[0]
    settled = [block for block in order if old[block] >= 0]
    chosen, homeless = _place(problem, settled, old)
    queue = [*[block for block in order if block in homeless], *[block for block in order if old[block] < 0]]
    for _ in range(RETRIES_MAX):
        found, stuck = _place(problem, queue, old, chosen)
        if not stuck:
            return found
        if queue[0] == stuck[0]:
            break
        queue.remove(stuck[0])
        queue.insert(0, stuck[0])
    return None


def _place(
    problem: PlanProblem, queue: Sequence[int], old: Ints | None = None, placed: Ints | None = None
) -> tuple[Ints, list[int]]:
    """The columns, and the blocks that do not fit. Without `old` it ends with the first of those.

    With `old` alone a block goes where it was or nowhere; beside what is `placed` it goes where it is cheapest.
    """
    chosen = np.full(len(problem.blocks), -1, dtype=np.int64) if placed is None else placed.copy()
    left = problem.ceilings + LAST_BITS * np.maximum(1.0, np.abs(problem.ceilings))
    left -= used(problem, chosen[chosen >= 0])
    stuck = []
    for block in queue:
        fits = _that_fit(problem, block, left, chosen)
        if old is not None and placed is None:
            fits = fits[fits == old[block]]
        if not len(fits):
            stuck.append(block)
            if old is None or placed is not None:
                break
            continue
        column = int(fits[0] if placed is None else fits[np.argmin(problem.cost[fits])])
        chosen[block] = column
        mine = problem.rows.of(column)
        left[problem.rows.row[mine]] -= problem.rows.value[mine]
    return chosen, stuck


def _that_fit(problem: PlanProblem, block: int, left: Floats, chosen: Ints) -> Ints:
    """The options of a block that fit, earliest first."""
    columns = np.arange(problem.first[block], problem.first[block + 1])
    soonest, latest = window(problem, block, chosen)
    fits = (problem.begins[columns] >= soonest) & (problem.ends[columns] <= latest)
    places = slice(problem.rows.first[columns[0]], problem.rows.first[columns[-1] + 1])
    owner = np.repeat(np.arange(len(columns)), np.diff(problem.rows.first[columns[0] : columns[-1] + 2]))
    fits[owner[problem.rows.value[places] > left[problem.rows.row[places]]]] = False
    return columns[fits]


def window(problem: PlanProblem, block: int, chosen: Ints) -> tuple[float, float]:
    """Between which minutes a block must lie for what is chosen of the others (-1: not yet)."""
    soonest, latest = -np.inf, np.inf
    for order in problem.orders:
        if block in order.after:
            others = [chosen[each] for each in order.before if each != block and chosen[each] >= 0]
            soonest = max(soonest, max((problem.ends[each] + order.lag for each in others), default=-np.inf))
        if block in order.before:
            others = [chosen[each] for each in order.after if each != block and chosen[each] >= 0]
            latest = min(latest, min((problem.begins[each] - order.lag for each in others), default=np.inf))
    return float(soonest), float(latest)
