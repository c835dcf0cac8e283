"""The way from a first plan to a good one, in steps that are counted and not timed. Pure; slow to import.

Small steps first (`search.py`), twice, then larger ones from the best (`rework.py`); when those are in vain for long,
small ones shake the plan up. What a step takes is reckoned from what it did, so that so much work means the same plan
on every machine.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from plimsoll.campaigns.solve.problem import Ints, PlanProblem
from plimsoll.campaigns.solve.rework import Rework
from plimsoll.campaigns.solve.search import Search

STEPS_A_BLOCK = 400
SHARE_OF_SMALL_STEPS, ROUNDS_OF_SMALL_STEPS = 0.5, 2
STEP_SECONDS, ENTRY_SECONDS = 90e-6, 12e-9
SOLVE_SECONDS, SOLVE_ENTRY_SECONDS, ITERATION_SECONDS = 0.05, 1.2e-6, 4e-9
"""About what steps take on a plain machine: each, for each entry, for each iteration and entry."""
IN_VAIN_MAX = 25
SHAKE_HOT = 0.25
ROUNDS_OF_SHAKING_MAX = 200
STEPS_LEAST = 200
WORTH_TELLING = 1e-3


def improve(
    problem: PlanProblem,
    start: Ints | None,
    *,
    seed: int,
    work: float,
    on_plan: Callable[[Ints], None],
    should_stop: Callable[[], bool],
    is_near: bool = False,
) -> Ints | None:
    """The best plan that so much work finds; `work` is about seconds of a plain machine.

    `is_near`: the first plan is good already: small steps would only lead away from it.
    """
    search = _Telling(problem, seed, on_plan, should_stop)
    if start is not None:
        search.restart(start)
    else:
        search.scatter()
    if not len(search.movable):
        return search.best
    cost = STEP_SECONDS + 2 * ENTRY_SECONDS * len(problem.rows.row) / len(problem.blocks)
    most = SHARE_OF_SMALL_STEPS * work / cost / ROUNDS_OF_SMALL_STEPS
    steps = max(STEPS_LEAST, int(min(STEPS_A_BLOCK * len(search.movable), most)))
    done, rounds = 0.0, 0
    wanted = 0 if is_near and search.best is not None else ROUNDS_OF_SMALL_STEPS
    while rounds < wanted or (search.best is None and done < work):
        if should_stop():
            break
        if start is not None:
            search.restart(start)  # each round from the same plan: one in six ends in a bad corner, seldom two
        search.anneal(steps)
        search.tell()
        done, rounds = done + steps * cost, rounds + 1
    if search.best is None:
        return None
    rework = Rework(search, seed)
    for _ in range(ROUNDS_OF_SHAKING_MAX):
        while rework.in_vain < IN_VAIN_MAX and done < work and not should_stop():
            step = rework.step()
            done += SOLVE_SECONDS + (SOLVE_ENTRY_SECONDS + ITERATION_SECONDS * step.iterations) * step.entries
            search.tell()
        if done >= work or should_stop() or len(search.movable) <= rework.sizes[0]:
            break
        rework.in_vain = 0
        search.restart(search.best)
        search.anneal(max(STEPS_LEAST, steps // 4), hot=SHAKE_HOT)
        search.tell()
        done += max(STEPS_LEAST, steps // 4) * cost
    return search.best


class _Telling(Search):
    """A search that tells of better plans, though not of each."""

    def __init__(
        self,
        problem: PlanProblem,
        seed: int,
        on_plan: Callable[[Ints], None],
        should_stop: Callable[[], bool],
    ) -> None:
        self.told = np.inf
        self.on_plan = on_plan
        super().__init__(problem, seed, should_stop)

    def offer(self, columns: Ints) -> bool:
        is_better = super().offer(columns)
        if is_better and self.best_total < self.told - WORTH_TELLING * abs(self.told):
            self.tell()
        return is_better

    def tell(self) -> None:
        """Tell of the best plan, if that is news."""
        if self.best is not None and self.best_total < self.told:
            self.told = self.best_total
            self.on_plan(self.best)
