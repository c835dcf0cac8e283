"""A search for better plans by larger steps: some blocks are taken out together and put back in the best way. Pure.

Which blocks go together is drawn by chance, in several manners: any, those of some days, those of the spread. How many,
by how hard the last ones were. An exact solver puts them back, up to a number of nodes and never by the clock, so that
the same seed finds the same plan.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from plimsoll.campaigns.solve.engine import Effort, Ended, Engine, solve_model
from plimsoll.campaigns.solve.mip import chosen_by, hint_of, make_model
from plimsoll.campaigns.solve.problem import Ints, PlanProblem
from plimsoll.campaigns.solve.search import MINUTES_A_DAY, Search

SIZE_FIRST, SIZE_LEAST, SIZE_MOST = 16.0, 5.0, 60.0
NODES_MAX = 150
HARD_ITERATIONS, EASY_ITERATIONS = 12_000, 3_000
MANNERS = 4
SEEDS = 1000


class Step(NamedTuple):
    """What a step took, in numbers that do not depend on the machine."""

    iterations: int
    entries: int
    is_better: bool


class Rework:
    """Larger steps from the best plan of a search."""

    def __init__(self, search: Search, seed: int) -> None:
        assert search.best is not None, "there is a plan to rework"
        self.search, self.problem = search, search.problem
        self.chance = np.random.default_rng([seed, 1])
        self.sizes = [SIZE_FIRST] * MANNERS
        self.with_shares = _with_shares(self.problem)
        self.in_vain = 0

    def step(self) -> Step:
        """Take some blocks out and put them back. What is better becomes the search's best."""
        assert self.search.best is not None, "there is a plan to rework"
        manner = int(self.chance.integers(MANNERS))
        free = self._draw(manner, self.search.best)
        if len(free) < 2:
            return Step(0, 0, is_better=False)
        model = make_model(self.problem, free=free.tolist(), chosen=self.search.best)
        hint = hint_of(self.problem, model, self.search.best)
        # A dozen blocks are branched through sooner than cut.
        effort = Effort(nodes=NODES_MAX, seed=int(self.chance.integers(SEEDS)), is_plain=True)
        answer = solve_model(Engine.SCIP, model.proto, effort=effort, hint=hint)
        found = chosen_by(self.problem, model, answer.values)
        is_better = found is not None and self.search.offer(found)
        self.in_vain = 0 if is_better else self.in_vain + 1
        iterations = answer.iterations
        is_hard = iterations > HARD_ITERATIONS or answer.ended is not Ended.OPTIMAL
        factor = 0.85 if is_hard else 1.06 if iterations < EASY_ITERATIONS and not is_better else 1.0
        self.sizes[manner] = min(SIZE_MOST, max(SIZE_LEAST, self.sizes[manner] * factor))
        return Step(iterations, len(model.proto.linear_constraint_matrix.coefficients), is_better)

    def _draw(self, manner: int, chosen: Ints) -> Ints:
        """The blocks to take out."""
        movable, size = self.search.movable, int(self.sizes[manner])
        day = self.problem.begins[chosen] // MINUTES_A_DAY
        if manner == 1:
            first = int(self.chance.choice(day[movable]))
            meant = movable[(day[movable] >= first) & (day[movable] <= first + 1)]
        elif manner == 2 and len(self.with_shares) > 1:
            meant = self.with_shares
        elif manner == 3:
            days = self.chance.choice(day[movable], size=2)
            meant = movable[np.isin(day[movable], days)]
        else:
            meant = movable
        return np.sort(self.chance.permutation(meant)[:size])


def _with_shares(problem: PlanProblem) -> Ints:
    """The blocks that the spread counts, and that can move."""
    first = problem.shares.first
    return np.array(
        [
            block
            for block in range(len(problem.blocks))
            if len(problem.columns_of(block)) > 1 and first[problem.first[block + 1]] > first[problem.first[block]]
        ],
        dtype=np.int64,
    )
