"""The search against every plan there is: on small cases it finds the best one, and its bound is never above it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings

from plimsoll.campaigns.bound import safe
from plimsoll.campaigns.check import check_plan
from plimsoll.campaigns.cuts import strengthen
from plimsoll.campaigns.days import Days, make_days
from plimsoll.campaigns.feasible import is_feasible
from plimsoll.campaigns.greedy import first_fit, in_order
from plimsoll.campaigns.make import make_problem
from plimsoll.campaigns.model import Batch, Campaign, Status
from plimsoll.campaigns.problem import PlanProblem, is_valid, totals
from plimsoll.campaigns.race import Solved, solve
from plimsoll.campaigns.search import Search
from plimsoll.campaigns.units import Roll, make_units
from plimsoll.errors import PlimsollError
from plimsoll.fleet.fold import Fleet
from tests.support.plans import TooMany, best_plan, first_plan
from tests.support.random_campaigns import Scene, scenes

MANY = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def problem_of(campaign: Campaign, fleet: Fleet) -> tuple[PlanProblem, Roll, Days]:
    roll, days = make_units(campaign, fleet), make_days(campaign)
    return make_problem(campaign, fleet, roll, days), roll, days


def batches_of(solved: Solved, roll: Roll, days: Days) -> list[Batch]:
    assert solved.starts is not None
    return [
        Batch(
            unit.name, unit.mode, number + 1, len(unit.batches[number]), days.moment(at), days.moment(at + unit.minutes)
        )
        for unit in roll.units
        for number, at in enumerate(solved.starts[unit.name])
    ]


def scene_or_skip(scene: Scene) -> tuple[PlanProblem, Roll, Days]:
    try:
        return problem_of(scene.campaign, scene.fleet)
    except PlimsollError:
        assume(condition=False)
        raise


@MANY
@given(scenes())
def test_never_worse_than_the_best_of_all_plans(scene: Scene) -> None:
    problem, roll, days = scene_or_skip(scene)
    try:
        want = best_plan(scene.campaign, scene.fleet)
    except TooMany:
        assume(condition=False)
        raise
    solved = solve(problem, seconds=20.0, is_alone=True)
    if want is None:
        assert solved.status is Status.INFEASIBLE
        return
    assert solved.status is Status.OPTIMAL
    checked = check_plan(scene.campaign, scene.fleet, batches_of(solved, roll, days))
    assert checked.problems == ()
    assert checked.score.total == pytest.approx(want.score.total, abs=1e-6)
    assert solved.totals is not None
    assert solved.totals.total == pytest.approx(checked.score.total, abs=1e-6)
    assert solved.bound is not None
    assert solved.bound <= want.score.total + 1e-6


@MANY
@given(scenes())
def test_never_a_wrong_answer_whether_there_is_a_plan(scene: Scene) -> None:
    problem, _, _ = scene_or_skip(scene)
    try:
        want = first_plan(scene.campaign, scene.fleet) is not None
    except TooMany:
        assume(condition=False)
        raise
    assume(problem.blocks)
    found = is_feasible(problem, seconds=10.0)
    assert found.answer is want
    assert (found.columns is not None) is want
    assert found.columns is None or is_valid(problem, found.columns)


@MANY
@given(scenes())
def test_cuts_never_cut_off_a_plan(scene: Scene) -> None:
    problem, _, _ = scene_or_skip(scene)
    assume(problem.imbalance > 0 and problem.shares.values > 1 and not problem.impossible)
    try:
        want = best_plan(scene.campaign, scene.fleet)
    except TooMany:
        assume(condition=False)
        raise
    assume(want is not None)
    assert want is not None
    found = [strength.bound for strength in strengthen(problem, should_stop=lambda: False)]
    assert found == sorted(found)
    assert all(safe(bound) <= want.score.total for bound in found)


@MANY
@given(scenes())
def test_the_search_never_offers_a_plan_that_breaks_a_rule(scene: Scene) -> None:
    problem, roll, _ = scene_or_skip(scene)
    assume(problem.blocks and not problem.impossible)
    search = Search(problem, seed=3)
    search.anneal(200)
    if search.best is not None:
        assert is_valid(problem, search.best)
        assert totals(problem, search.best).total == pytest.approx(search.best_total)
    first = first_fit(problem, in_order(problem, roll.units))
    assert first is None or is_valid(problem, first)
