"""Of plans that are equally good people get the one with early starts, and nothing of it is worse."""

from __future__ import annotations

from hypothesis import given, settings

from plimsoll.campaigns.days import make_days
from plimsoll.campaigns.file import parse_campaign
from plimsoll.campaigns.planning import Search, plan_campaign
from plimsoll.campaigns.solve.early import as_early_as_can_be
from plimsoll.campaigns.solve.greedy import first_fit, in_order
from plimsoll.campaigns.solve.make import make_problem
from plimsoll.campaigns.solve.problem import is_valid, totals
from plimsoll.campaigns.units import make_units
from plimsoll.errors import PlimsollError
from tests.support.dock import FILE, Dock, with_lines
from tests.support.random_campaigns import Scene, scenes


def test_a_batch_that_could_be_at_any_hour_is_at_the_first() -> None:
    dock = Dock({"tiger": 4, "whale": 4}, with_lines(FILE, "limits: [{kind: out_at_once, at_most: 4}]"))
    campaign = parse_campaign(dock.file, source="nic.yaml")
    plan = plan_campaign(dock.state, campaign, number=1, search=Search(seconds=2, gap=0.0)).plan
    assert sorted(f"{batch.start:%dT%H:%M}" for batch in plan.batches) == ["05T11:00", "05T15:00"]


@settings(max_examples=40, deadline=None)
@given(scenes())
def test_moving_to_earlier_hours_never_makes_a_plan_worse_or_wrong(scene: Scene) -> None:
    campaign, fleet = scene.campaign, scene.fleet
    try:
        roll = make_units(campaign, fleet)
    except PlimsollError:
        return  # the file does not fit its fleet
    if not roll.units:
        return
    days = make_days(campaign)
    problem = make_problem(campaign, fleet, roll, days)
    found = first_fit(problem, in_order(problem, roll.units)[::-1])
    if found is None:
        return
    early = as_early_as_can_be(problem, found)
    assert is_valid(problem, early)
    assert totals(problem, early).total <= totals(problem, found).total + 1e-6
    assert (problem.begins[early] <= problem.begins[found]).all()
