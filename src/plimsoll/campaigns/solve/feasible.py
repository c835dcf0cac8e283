"""Whether there is any plan at all, whatever it costs: asked often, while the impossible is explained. Pure.

Cheap answers first: what is plain, first fit, the linear model without a goal. Then a search and a solver that stops at
the first plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from plimsoll.campaigns.solve.greedy import first_fit
from plimsoll.campaigns.solve.problem import Ints, PlanProblem, is_valid
from plimsoll.campaigns.solve.search import Search

STEPS_A_BLOCK = 40


class Feasible(NamedTuple):
    """`answer` is None where it could not be decided. `columns`: a plan, where there is one; `reason`: why there is
    none, where that is plain."""

    answer: bool | None
    columns: Ints | None = None
    reason: str = ""


def is_feasible(problem: PlanProblem, *, seconds: float, order: Sequence[int] | None = None, seed: int = 0) -> Feasible:
    """Whether a plan exists. `order`: in which first fit tries the blocks; else those with the least choice first."""
    if problem.impossible:
        return Feasible(answer=False, reason=problem.impossible)
    if order is None:
        order = np.argsort(np.diff(problem.first), kind="stable").tolist()
    found = first_fit(problem, order)
    if found is not None:
        return Feasible(answer=True, columns=found)
    from plimsoll.campaigns.solve.engine import Effort, Ended, Engine, solve_model
    from plimsoll.campaigns.solve.mip import chosen_by, make_model

    parts = make_model(problem, is_whole=False, is_goal=False)
    if solve_model(Engine.GLOP, parts.proto, effort=Effort(seconds=seconds)).ended is Ended.INFEASIBLE:
        return Feasible(answer=False, reason="the limits leave less room than the work needs")
    search = Search(replace(problem, cost=np.zeros(problem.columns), imbalance=0.0, peak=0.0), seed)
    search.anneal(STEPS_A_BLOCK * len(problem.blocks))
    if search.best is not None:
        return Feasible(answer=True, columns=search.best)
    whole = make_model(problem, is_goal=False)
    answer = solve_model(Engine.SCIP, whole.proto, effort=Effort(seconds=seconds, seed=seed, solutions=1))
    if answer.ended is Ended.INFEASIBLE:
        return Feasible(answer=False)
    found = chosen_by(problem, whole, answer.values)
    is_found = found is not None and is_valid(problem, found)
    return Feasible(answer=True if is_found else None, columns=found if is_found else None)
