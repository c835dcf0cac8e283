"""Whether a campaign file allows a plan at all, whatever it costs. Pure.

Yes only with a plan that the checker accepts, no only with a proof: a unit that has no start, parts of plans that can't
be put together either (a linear relaxation), or a search to the end. Where the search runs out of time it is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from plimsoll.campaigns.check import check_plan
from plimsoll.campaigns.days import Days, make_days
from plimsoll.campaigns.greedy import first_fit, in_order
from plimsoll.campaigns.make import make_problem
from plimsoll.campaigns.model import Batch, Campaign
from plimsoll.campaigns.problem import Ints, PlanProblem, is_valid, starts_of
from plimsoll.campaigns.units import Roll, make_units
from plimsoll.fleet.fold import Fleet

SECONDS_DEFAULT = 5.0
ROLLS_MAX = 8
_NOTHING: Mapping[int, float] = {}


class Feasible:
    """Asked with a file: True, False, or None where that is not found out in time. Remembers units in between."""

    def __init__(
        self, fleet: Fleet, *, elsewhere: Mapping[int, float] = _NOTHING, seconds: float = SECONDS_DEFAULT
    ) -> None:
        self._fleet, self._elsewhere, self._seconds = fleet, elsewhere, seconds
        self._rolls: dict[object, Roll] = {}

    def __call__(self, campaign: Campaign) -> bool | None:
        roll, days = self._roll(campaign), make_days(campaign)
        problem = make_problem(campaign, self._fleet, roll, days, elsewhere=self._elsewhere)
        if problem.impossible:
            return False
        chosen = first_fit(problem, in_order(problem, roll.units))
        if chosen is None:
            found, chosen = _search(problem, self._seconds)
            if chosen is None:
                return found
        batches = _batches(roll, days, problem, chosen)
        checked = check_plan(campaign, self._fleet, batches, elsewhere=self._elsewhere)
        assert checked.is_valid, f"a plan that the checker refuses: {checked.problems[0].text}"
        return True

    def _roll(self, campaign: Campaign) -> Roll:
        """The units: they depend on few keys of the file, and making them asks the whole fleet."""
        key = (campaign.changes, campaign.work, campaign.no_fly, campaign.canary, campaign.order, campaign.scope)
        if key not in self._rolls:
            if len(self._rolls) >= ROLLS_MAX:
                self._rolls.pop(next(iter(self._rolls)))
            self._rolls[key] = make_units(campaign, self._fleet)
        return self._rolls[key]


def _batches(roll: Roll, days: Days, problem: PlanProblem, chosen: Ints) -> list[Batch]:
    starts, found = starts_of(problem, chosen), []
    for unit in roll.units:
        for number, minute in enumerate(starts[unit.name], 1):
            nodes = len(unit.batches[number - 1])
            span = days.moment(minute), days.moment(minute + unit.minutes)
            found.append(Batch(unit.name, unit.mode, number, nodes, *span))
    return found


def _search(problem: PlanProblem, seconds: float) -> tuple[bool | None, Ints | None]:
    """Any choice that keeps all limits; else whether it is proved that there is none."""
    from ortools.math_opt.python import mathopt  # type: ignore[import-untyped]  # slow to import, and seldom needed

    from plimsoll.campaigns.mip import chosen_by, make_model

    limit = mathopt.SolveParameters(time_limit=timedelta(seconds=seconds))
    for solver, is_whole in ((mathopt.SolverType.GLOP, False), (mathopt.SolverType.GSCIP, True)):
        model = make_model(problem, is_whole=is_whole, is_goal=False)
        result = mathopt.solve(model.model, solver, params=limit)
        if result.termination.reason == mathopt.TerminationReason.INFEASIBLE:
            return False, None
    chosen = chosen_by(problem, model, result)
    if chosen is None or not is_valid(problem, chosen):
        return None, None
    return True, chosen
