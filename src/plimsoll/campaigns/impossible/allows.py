"""Whether a campaign file allows a plan at all: the question that explaining the impossible asks again and again. Pure.

Yes only with a plan that the checker accepts, no only with a proof; where the search runs out of time it is not known.
Units are made once for questions that do not change them: making them asks the whole fleet.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.campaigns.check.plan import check_plan
from plimsoll.campaigns.days import Days, make_days
from plimsoll.campaigns.model import Batch, Campaign
from plimsoll.campaigns.solve.feasible import is_feasible
from plimsoll.campaigns.solve.greedy import in_order
from plimsoll.campaigns.solve.make import make_problem
from plimsoll.campaigns.solve.problem import Ints, PlanProblem, starts_of
from plimsoll.campaigns.units import Roll, make_units
from plimsoll.fleet.fold import Fleet

SECONDS_DEFAULT = 5.0
ROLLS_MAX = 8
_NOTHING: Mapping[int, float] = {}


class Allows:
    """Asked with a file: True, False, or None where that is not found out in time."""

    def __init__(
        self, fleet: Fleet, *, elsewhere: Mapping[int, float] = _NOTHING, seconds: float = SECONDS_DEFAULT
    ) -> None:
        self._fleet, self._elsewhere, self._seconds = fleet, elsewhere, seconds
        self._rolls: dict[object, Roll] = {}

    def __call__(self, campaign: Campaign) -> bool | None:
        roll, days = self._roll(campaign), make_days(campaign)
        problem = make_problem(campaign, self._fleet, roll, days, elsewhere=self._elsewhere)
        order = None if problem.impossible else in_order(problem, roll.units)
        found = is_feasible(problem, seconds=self._seconds, order=order)
        if not found.answer:
            return found.answer
        assert found.columns is not None, "a yes comes with a plan"
        batches = _batches(roll, days, problem, found.columns)
        checked = check_plan(campaign, self._fleet, batches, elsewhere=self._elsewhere)
        assert checked.is_valid, f"a plan that the checker refuses: {checked.problems[0].text}"
        return True

    def _roll(self, campaign: Campaign) -> Roll:
        """The units. Of the keys that change between questions they depend on these alone."""
        key = (campaign.changes, campaign.work, campaign.no_fly, campaign.canary, campaign.order)
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
