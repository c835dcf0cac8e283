"""What no plan can beat: better and better lower bounds on the objective, by exact solvers. Pure; slow to import.

First the linear model, then cuts on the imbalance of days, then branching with those cuts and the best plan known. A
bound is given a little lower than the solver says, for the last bits that solvers do not promise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from plimsoll.campaigns.solve.cuts import Strength, strengthen
from plimsoll.campaigns.solve.engine import Effort, Ended, Engine, solve_model
from plimsoll.campaigns.solve.mip import chosen_by, hint_of, make_model
from plimsoll.campaigns.solve.problem import Flags, Ints, PlanProblem, Table, alone, safe

BRANCHED_ENTRIES_MAX = 3_000_000
"""Larger models are not branched: they need more memory than that is worth."""
SOLVED_ENTRIES_MAX = 12_000_000
"""Still larger ones are not even solved in parts."""
THIN_ENTRIES, MOMENTS_LEAST = 600_000, 60
"""A model that is larger is first solved with fewer moments; a limit with fewer rows than that keeps them all."""
DUAL_FIELD = -4
"""Of a line of SCIP's log: the bound; the last fields are bound, best, gap, completed."""
FIELDS_LEAST = 10


class Proof(NamedTuple):
    """What was proved in the end. `best`: a plan that nothing can beat, where one was found."""

    is_impossible: bool
    best: Ints | None


def prove(
    problem: PlanProblem,
    *,
    on_bound: Callable[[float], None],
    known: Callable[[], Ints | None],
    should_stop: Callable[[], bool],
    seed: int = 0,
    seconds: float = 0.0,
) -> Proof:
    """Tell bounds as they get better. `known`: the best plan so far, asked for once before branching."""
    on_bound(safe(alone(problem)))
    entries = len(problem.rows.row) + len(problem.out.row)
    for share in (THIN_ENTRIES / max(1, entries), 1.0):
        if share > 1.0 or entries * share > SOLVED_ENTRIES_MAX or should_stop():
            continue
        plain = make_model(thinned(problem, share), is_whole=False)
        answer = solve_model(Engine.GLOP, plain.proto, effort=Effort(seconds=seconds))
        if answer.ended is Ended.INFEASIBLE:
            return Proof(is_impossible=True, best=None)
        if answer.ended is Ended.OPTIMAL:
            on_bound(safe(answer.bound))
    strength = Strength(-np.inf, ())
    for strength in strengthen(problem, should_stop=should_stop):
        on_bound(safe(strength.bound))
    if should_stop() or entries > BRANCHED_ENTRIES_MAX:
        return Proof(is_impossible=False, best=None)
    plan = known()
    effort = Effort(seed=seed, seconds=seconds, has_ideas=plan is None)  # the search has the better ones
    return branch(problem, strength, on_bound=on_bound, known=plan, effort=effort)


def thinned(problem: PlanProblem, share: float) -> PlanProblem:
    """The problem with about a share of its moments only: too kind, and much smaller. Limits by day are kept."""
    step = int(np.ceil(1.0 / share))
    if step < 2:
        return problem
    counts = np.bincount(problem.limits, minlength=1)
    rank = np.arange(len(problem.limits)) - np.searchsorted(problem.limits, problem.limits)
    is_kept = (counts[problem.limits] < MOMENTS_LEAST) | (rank % step == step // 2)
    places = np.nonzero(is_kept)[0]
    return replace(
        problem,
        rows=_only(problem.rows, is_kept, np.cumsum(is_kept) - 1),
        ceilings=problem.ceilings[places],
        limits=problem.limits[places],
        is_sum=problem.is_sum[places],
        out=_only(problem.out, np.arange(problem.moments) % step == step // 2, np.arange(problem.moments)),
    )


def _only(table: Table, is_kept: Flags, numbers: Ints) -> Table:
    kept = is_kept[table.row]
    sums = np.concatenate([[0], np.cumsum(kept)])
    return Table(sums[table.first], numbers[table.row[kept]], table.value[kept])


def branch(
    problem: PlanProblem,
    strength: Strength,
    *,
    on_bound: Callable[[float], None],
    known: Ints | None,
    effort: Effort,
) -> Proof:
    """Branch until nothing better is left, or the effort is spent."""
    model = make_model(problem, cuts=strength.cuts)
    hint = hint_of(problem, model, known) if known is not None else None

    def listen(lines: list[str]) -> None:
        for line in lines:
            bound = bound_in(line)
            if bound is not None:
                on_bound(safe(bound))

    answer = solve_model(Engine.SCIP, model.proto, effort=effort, hint=hint, on_line=listen)
    if answer.ended is Ended.INFEASIBLE:
        return Proof(is_impossible=True, best=None)
    if np.isfinite(answer.bound):
        on_bound(safe(answer.bound))
    return Proof(is_impossible=False, best=chosen_by(problem, model, answer.values))


def bound_in(line: str) -> float | None:
    """The bound that a line of SCIP's log tells."""
    fields = line.split("|")
    if len(fields) < FIELDS_LEAST:
        return None
    try:
        found = float(fields[DUAL_FIELD])
    except ValueError:
        return None  # the head of the table, or no bound yet
    return found if np.isfinite(found) else None
