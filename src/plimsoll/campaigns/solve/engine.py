"""The solvers of OR-Tools, asked with arrays and answered with arrays. Slow to import.

MathOpt's Python classes make an object of every variable of every answer, which takes longer than many of our solves;
this speaks to the same core with its messages.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from ortools.math_opt import (  # type: ignore[import-untyped]
    callback_pb2,
    model_parameters_pb2,
    model_pb2,
    model_update_pb2,
    parameters_pb2,
    result_pb2,
)
from ortools.math_opt.core.python import solver  # type: ignore[import-untyped]

from plimsoll.campaigns.solve.problem import Floats, Ints


class Engine(enum.Enum):
    """Which solver: SCIP for whole numbers, GLOP for parts."""

    SCIP = parameters_pb2.SOLVER_TYPE_GSCIP
    GLOP = parameters_pb2.SOLVER_TYPE_GLOP


class Ended(enum.Enum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    STOPPED = "stopped"


class Answer(NamedTuple):
    """What a solver says. `values` is None where it has no solution; `duals` are by row, of linear models."""

    ended: Ended
    value: float
    bound: float
    values: Floats | None
    duals: Floats
    iterations: int
    nodes: int


class Effort(NamedTuple):
    """How hard a solver may try. `is_plain`: branch only, without cuts; `has_ideas`: look for solutions besides."""

    nodes: int = 0
    seconds: float = 0.0
    seed: int = 0
    is_plain: bool = False
    has_ideas: bool = True
    solutions: int = 0


def solve_model(
    engine: Engine,
    model: model_pb2.ModelProto,
    *,
    effort: Effort,
    hint: Floats | None = None,
    on_line: Callable[[list[str]], None] | None = None,
) -> Answer:
    """One solve. `hint`: the values of a solution that is known; `on_line` gets the solver's log."""
    asked = model_parameters_pb2.ModelSolveParametersProto()
    if hint is not None:
        values = asked.solution_hints.add().variable_values
        values.ids.extend(range(len(hint)))
        values.values.extend(hint.tolist())
    try:
        found = solver.solve(
            model,
            engine.value,
            parameters_pb2.SolverInitializerProto(),
            _parameters(engine, effort),
            asked,
            on_line,
            callback_pb2.CallbackRegistrationProto(),
            None,
            None,
        )
    except Exception as error:  # the core raises a type of its own that can't be named without importing its parts
        if type(error).__name__ != "StatusNotOk":
            raise
        return _NO_ANSWER
    return _answer(found, len(model.variables.ids), len(model.linear_constraints.ids))


class Warm:
    """A linear model that grows by columns, each solve beginning where the last one ended."""

    def __init__(self, model: model_pb2.ModelProto) -> None:
        self.columns, self.rows = len(model.variables.ids), len(model.linear_constraints.ids)
        self._solver = solver.new(Engine.GLOP.value, model, parameters_pb2.SolverInitializerProto())

    def add(self, costs: Floats, rows: list[Ints], values: list[Floats]) -> None:
        """New columns from nothing to any amount: what each costs, and its entries by row."""
        update = model_update_pb2.ModelUpdateProto()
        ids = range(self.columns, self.columns + len(costs))
        update.new_variables.ids.extend(ids)
        update.new_variables.lower_bounds.extend([0.0] * len(costs))
        update.new_variables.upper_bounds.extend([np.inf] * len(costs))
        update.new_variables.integers.extend([False] * len(costs))
        priced = np.nonzero(costs)[0]
        update.objective_updates.linear_coefficients.ids.extend((self.columns + priced).tolist())
        update.objective_updates.linear_coefficients.values.extend(costs[priced].tolist())
        row = np.concatenate(rows)
        column = np.repeat(np.arange(len(rows)), [len(each) for each in rows]) + self.columns
        order = np.lexsort((column, row))
        matrix = update.linear_constraint_matrix_updates
        matrix.row_ids.extend(row[order].tolist())
        matrix.column_ids.extend(column[order].tolist())
        matrix.coefficients.extend(np.concatenate(values)[order].tolist())
        assert self._solver.update(update), "GLOP takes new columns"
        self.columns += len(costs)

    def solve(self) -> Answer:
        parameters = _parameters(Engine.GLOP, Effort())
        nothing = model_parameters_pb2.ModelSolveParametersProto()
        nothing.variable_values_filter.filter_by_ids = True
        nothing.reduced_costs_filter.filter_by_ids = True
        registration = callback_pb2.CallbackRegistrationProto()
        return _answer(self._solver.solve(parameters, nothing, None, registration, None, None), 0, self.rows)


_NO_ANSWER = Answer(Ended.STOPPED, np.inf, -np.inf, None, np.zeros(0), 0, 0)


def _parameters(engine: Engine, effort: Effort) -> parameters_pb2.SolveParametersProto:
    found = parameters_pb2.SolveParametersProto()
    if effort.nodes:
        found.node_limit = effort.nodes
    if effort.seconds:
        found.time_limit.FromNanoseconds(int(effort.seconds * 1e9))
    if effort.solutions:
        found.solution_limit = effort.solutions
    if engine is Engine.SCIP:
        found.threads = 1
        found.random_seed = effort.seed
    if effort.is_plain:
        found.cuts = parameters_pb2.EMPHASIS_OFF
    if effort.is_plain or not effort.has_ideas:
        found.heuristics = parameters_pb2.EMPHASIS_OFF
    found.enable_output = False
    return found


def _answer(found: result_pb2.SolveResultProto, columns: int, rows: int) -> Answer:
    reason = found.termination.reason
    ended = (
        Ended.OPTIMAL if reason == result_pb2.TERMINATION_REASON_OPTIMAL
        else Ended.INFEASIBLE if reason == result_pb2.TERMINATION_REASON_INFEASIBLE
        else Ended.STOPPED
    )  # fmt: skip
    values: Floats | None = None
    duals = np.zeros(rows)
    value = np.inf
    if found.solutions and found.solutions[0].HasField("primal_solution"):
        primal = found.solutions[0].primal_solution
        if primal.feasibility_status == FEASIBLE:
            values, value = _dense(primal.variable_values, columns), primal.objective_value
    if found.solutions and found.solutions[0].HasField("dual_solution"):
        duals = _dense(found.solutions[0].dual_solution.dual_values, rows)
    stats = found.solve_stats
    bound = found.termination.objective_bounds.dual_bound
    return Answer(ended, value, bound, values, duals, stats.simplex_iterations, stats.node_count)


FEASIBLE = 2
"""SOLUTION_STATUS_FEASIBLE of MathOpt."""


def _dense(sparse: Any, count: int) -> Floats:
    found = np.zeros(count)
    if count:
        found[np.array(sparse.ids, dtype=np.int64)] = np.array(sparse.values)
    return found
