"""The search against every plan there is: on small cases it finds the best one, and its bound is never above it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from plimsoll.campaigns.check.plan import check_plan
from plimsoll.campaigns.days import Days, make_days
from plimsoll.campaigns.model import Batch, Campaign, Status
from plimsoll.campaigns.solve.bound import bound_in, prove, thinned
from plimsoll.campaigns.solve.cuts import strengthen
from plimsoll.campaigns.solve.feasible import is_feasible
from plimsoll.campaigns.solve.greedy import first_fit, in_order, near_fit
from plimsoll.campaigns.solve.improve import improve
from plimsoll.campaigns.solve.make import make_problem
from plimsoll.campaigns.solve.problem import Ints, PlanProblem, alone, is_valid, safe, starts_of, totals
from plimsoll.campaigns.solve.race import Progress, Solved, solve
from plimsoll.campaigns.solve.search import Search
from plimsoll.campaigns.units import Roll, Unit, make_units
from plimsoll.errors import PlimsollError
from plimsoll.fleet.fold import Fleet
from tests.support.plans import Ship, TooMany, best_plan, campaign_of, first_plan, fleet_of
from tests.support.random_campaigns import Scene, scenes
from tests.support.waiting import wait_until

MANY = settings(
    max_examples=settings().max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

LOOKS_MAX = 600


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


FLEET = dict(zip("abcdefghijkl", [40, 37, 31, 29, 23, 19, 17, 13, 11, 7, 5, 3], strict=True))
"""Large enough for a race: a fleet whose best plan is not found at once."""


def large() -> tuple[PlanProblem, Roll, Days]:
    areas = ("us", "eu", "uk")
    ships = {name: Ship({"H100": nodes}, area=areas[place % 3]) for place, (name, nodes) in enumerate(FLEET.items())}
    campaign = campaign_of(
        deadline="2026-01-12",
        window={"hours": [8, 18], "tz": "UTC"},
        slot_minutes=30,
        limits=[
            {"kind": "out_at_once", "unit": "nodes", "at_most": 60},
            {"kind": "out_per_day", "unit": "nodes", "at_most": 70},
            {"kind": "crews", "at_most": 3},
        ],
        expect={"non_return_share": 0.1, "repair_days": 2},
        spread={"scope": {}, "over": "area"},
        objective={"exposure": 1, "imbalance": 100, "peak": 1},
    )
    return problem_of(campaign, fleet_of(**ships))


def test_the_same_seed_finds_the_same_plan() -> None:
    problem, roll, _ = large()
    start = first_fit(problem, in_order(problem, roll.units))
    found = [improved(problem, start, seed=seed) for seed in (5, 5, 6)]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2]), "the seed matters, else this shows nothing"


def improved(problem: PlanProblem, start: Ints | None, *, seed: int) -> Ints:
    found = improve(problem, start, seed=seed, work=0.2, on_plan=lambda _: None, should_stop=lambda: False)
    assert found is not None
    return found


def test_two_processes_find_a_valid_plan_and_are_gone_afterwards() -> None:
    problem, roll, _ = large()
    start = first_fit(problem, in_order(problem, roll.units))
    assert start is not None
    seen: list[Progress] = []
    solved = solve(problem, start=start, seconds=6.0, gap_target=0.0, on_progress=seen.append)
    assert solved.status in (Status.OPTIMAL, Status.FEASIBLE)
    assert solved.columns is not None
    assert is_valid(problem, solved.columns)
    assert solved.totals is not None
    assert solved.totals.total < totals(problem, start).total
    assert [each.best for each in seen if each.best] == sorted((each.best for each in seen if each.best), reverse=True)
    assert [each.bound for each in seen if each.bound] == sorted(each.bound for each in seen if each.bound)
    assert solved.bound is not None
    assert solved.bound <= solved.totals.total
    wait_until(lambda: workers_of(os.getpid()) == [], what="the workers are gone")


def test_whoever_stops_a_search_gets_the_best_so_far() -> None:
    problem, roll, _ = large()
    start = first_fit(problem, in_order(problem, roll.units))
    solved = solve(problem, start=start, seconds=600.0, gap_target=0.0, should_stop=lambda: True)
    assert solved.status is Status.FEASIBLE
    assert start is not None
    assert solved.columns is not None
    assert np.array_equal(solved.columns, start)
    wait_until(lambda: workers_of(os.getpid()) == [], what="the workers are gone")


def test_workers_do_not_outlive_a_parent_that_is_killed() -> None:
    code = "from tests.campaigns.test_solve import large, solve; solve(large()[0], seconds=120.0, gap_target=0.0)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        workers = wait_for(lambda: workers_of(parent.pid), lambda found: len(found) == 2)
        assert len(workers) == 2
        parent.kill()
        parent.wait()
        assert wait_for(lambda: [each for each in workers if is_alive(each)], lambda found: not found) == []


def test_what_is_frozen_stays_and_what_moves_costs() -> None:
    fleet = fleet_of(ant=4, bee=3, cat=2)
    campaign = campaign_of(limits=[{"kind": "crews", "at_most": 1}, {"kind": "starts_per_day", "at_most": 1}])
    roll, days = make_units(campaign, fleet), make_days(campaign)
    free = solve(make_problem(campaign, fleet, roll, days), seconds=5.0, is_alone=True)
    assert free.starts is not None
    assert free.starts["ant"][0] < 1440, "the largest goes first"

    def cost(unit: Unit, start: int) -> float:
        return 1000.0 if unit.name == "bee" and start // 1440 != 2 else 0.0

    problem = make_problem(campaign, fleet, roll, days, frozen={"cat": (11 * 60,)}, move_cost=cost)
    kept = solve(problem, seconds=5.0, is_alone=True)
    assert kept.starts is not None
    assert kept.starts["cat"] == (11 * 60,), "off the slots, but frozen"
    assert {unit: starts[0] // 1440 for unit, starts in kept.starts.items()} == {"cat": 0, "ant": 1, "bee": 2}


def test_near_an_older_plan_only_what_must_move_moves() -> None:
    fleet = fleet_of(ant=4, bee=3, cat=2)
    campaign = campaign_of(limits=[{"kind": "crews", "at_most": 1}])
    roll, days = make_units(campaign, fleet), make_days(campaign)
    problem = make_problem(campaign, fleet, roll, days)
    wanted = {"ant": 3 * 1440 - 600, "bee": 1440 + 600, "cat": 1440 + 600}  # bee and cat collide
    found = near_fit(problem, in_order(problem, roll.units), wanted)
    assert found is not None
    starts = {unit: minutes[0] for unit, minutes in starts_of(problem, found).items()}
    assert starts["ant"] == wanted["ant"]
    assert starts["bee"] == wanted["bee"], "the larger stays"
    assert starts["cat"] == 600, "and the other goes where it is cheapest"


def test_a_limit_that_frozen_work_breaks_holds_nothing_else_up() -> None:
    fleet = fleet_of(ant=4, bee=3)
    campaign = campaign_of(limits=[{"kind": "out_at_once", "unit": "nodes", "at_most": 3}])
    roll, days = make_units(campaign, fleet), make_days(campaign)
    problem = make_problem(campaign, fleet, roll, days, frozen={"ant": (10 * 60,)})
    solved = solve(problem, seconds=5.0, is_alone=True)
    assert solved.starts == {"ant": (600,), "bee": (720,)}, "beside it nothing is added, after it all is well"


RULES: dict[str, tuple[dict[str, Any], float, int]] = {
    "what stays out after ant leaves no room for bee before noon of the next day": (
        {
            "limits": [{"kind": "out_at_once", "unit": "nodes", "at_most": 4}],
            "expect": {"non_return_share": 0.5, "repair_days": 1},
        },
        3.0,
        24 * 60,
    ),
    "ant waits a day after the end of the canary": ({"canary": {"clusters": ["bee"], "soak_hours": 24}}, 4.0, 26 * 60),
    "ant waits for the end of bee": (
        {
            "order": [
                {"scope": {"cluster": "bee"}, "weight": 1},
                {"scope": {"cluster": "ant"}, "weight": 1, "strict": True},
            ]
        },
        0.0,
        2 * 60,
    ),
    "one crew does one after the other": ({"limits": [{"kind": "crews", "at_most": 1}]}, 0.0, 2 * 60),
    "one start a day": ({"limits": [{"kind": "starts_per_day", "at_most": 1}]}, 3.0, 20 * 60),
    "together": ({"together": "colo", "limits": [{"kind": "out_per_day", "unit": "nodes", "at_most": 7}]}, 0.0, 0),
}
"""What a file adds, the total of the best plan for 4 nodes of ant and 3 of bee, and the least minutes between both."""


@pytest.mark.parametrize(("added", "want_total", "want_apart"), RULES.values(), ids=RULES.keys())
def test_rules_worked_out_by_hand(added: dict[str, Any], want_total: float, want_apart: int) -> None:
    fleet = fleet_of(ant=Ship({"H100": 4}, colo="quay"), bee=Ship({"H100": 3}, colo="quay"))
    problem, _, _ = problem_of(campaign_of(**added), fleet)
    solved = solve(problem, seconds=20.0)
    assert solved.status is Status.OPTIMAL
    assert solved.totals is not None
    assert solved.starts is not None
    assert solved.totals.total == want_total
    apart = abs(solved.starts["ant"][0] - solved.starts["bee"][0])
    assert apart >= want_apart
    assert want_apart > 0 or apart == 0


CASES = {
    "a line of the table": (
        " 21.3s|   500 |   192 |131519 | 248.1 | 128M | 40 | 3.016e+05 | 3.068e+05 | 1.7%| 2%",
        301600.0,
    ),
    "the head": ("  time | node  | left  |LP iter|LP it/n|mem/heur|mdpt | dualbound | primalbound | gap |compl.", None),
    "no bound yet": (
        "  0.1s|     1 |     0 |     0 |     - |    10M |   0 |   --   | 4.2e+05 |    Inf | unknown",
        None,
    ),
    "something else": ("presolving (3 rounds)", None),
}


@pytest.mark.parametrize(("line", "want"), CASES.values(), ids=CASES.keys())
def test_a_bound_is_read_from_the_log(line: str, want: float | None) -> None:
    assert bound_in(line) == want


def workers_of(parent: int) -> list[int]:
    """The searching processes that a process has started and that still run, by /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rsplit(")", 1)[1].split()
            is_worker = b"campaigns.solve.worker" in (path.parent / "cmdline").read_bytes()
            if int(fields[1]) == parent and fields[0] != "Z" and is_worker:
                found.append(int(path.parent.name))
    return found


def is_alive(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def wait_for(look: Callable[[], list[int]], is_enough: Callable[[list[int]], bool]) -> list[int]:
    """What is seen once it is enough, or at last."""
    for _ in range(LOOKS_MAX):
        found = look()
        if is_enough(found):
            return found
        time.sleep(0.05)
    return look()


@MANY
@given(scenes())
def test_never_worse_than_the_best_of_all_plans(scene: Scene) -> None:
    problem, roll, days = scene_or_skip(scene)
    try:
        want = best_plan(scene.campaign, scene.fleet)
    except TooMany:
        assume(condition=False)
        raise
    solved = solve(problem, seconds=20.0)
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


@settings(parent=MANY, max_examples=8)
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


@settings(parent=MANY, max_examples=15)
@given(scenes())
def test_bounds_are_never_above_the_best_of_all_plans(scene: Scene) -> None:
    problem, _, _ = scene_or_skip(scene)
    assume(problem.blocks and not problem.impossible)
    try:
        want = best_plan(scene.campaign, scene.fleet)
    except TooMany:
        assume(condition=False)
        raise
    assume(want is not None)
    assert want is not None
    told = [safe(alone(problem))]
    for share in (0.2, 0.5, 1.0):
        proof = prove(
            thinned(problem, share), on_bound=told.append, known=lambda: None, should_stop=lambda: False, seconds=10.0
        )
        assert not proof.is_impossible
    assert max(told) <= want.score.total


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
