"""Why no plan exists: sums are proofs, conflicts can't be made smaller, and every change that is offered works."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, assume, given, settings

from plimsoll.campaigns.impossible.allows import Allows
from plimsoll.campaigns.impossible.arithmetic import find_shortfalls
from plimsoll.campaigns.impossible.explain import Court, explain, find_conflict, find_relaxations
from plimsoll.campaigns.impossible.ground import Ground
from plimsoll.campaigns.impossible.ladders import ladders_of, nice_step
from plimsoll.campaigns.impossible.rules import rules_of, without
from plimsoll.campaigns.model import Campaign
from plimsoll.campaigns.units import make_units
from plimsoll.errors import PlimsollError
from plimsoll.fleet.fold import Fleet
from tests.support.plans import Ship, TooMany, campaign_of, first_plan, fleet_of
from tests.support.random_campaigns import Scene, scenes

PATIENT = settings(
    max_examples=settings().max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
ROLLING = [{"scope": {}, "mode": "rolling", "share_per_day": 0.25, "hours": 2}]
STAYS = {"non_return_share": 0.5, "repair_days": 1}


class Brute:
    """Decides by trying every plan, and counts how often it was asked."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.asked = fleet, 0

    def __call__(self, campaign: Campaign) -> bool | None:
        self.asked += 1
        try:
            return first_plan(campaign, self.fleet) is not None
        except TooMany:
            return None


class Case(NamedTuple):
    """A file that allows no plan: the rules that collide, and the cheapest change of each; None where none helps."""

    file: dict[str, Any]
    want: dict[str, str | None]
    want_sum: tuple[str, float, float] | None = None
    ships: dict[str, Ship | int] = {"ant": 4, "bee": 6}


WHOLE = "allow rolling for everything, 0.5 a day"
ONE_DAY = {"deadline": "2026-01-05"}
CASES = {
    # Three slots a day: 10, 12 and 14 o'clock.
    "more rolling batches than days": Case(
        {"work": ROLLING},
        {"deadline": "deadline + 1 day", "work[0]": "share a day 0.25 -> 0.34 for everything"},
        ("too_few_days", 4, 3),
        {"ant": 4},
    ),
    "a cluster is larger than the cap": Case(
        {"limits": [{"kind": "out_at_once", "at_most": 5}]},
        {"limits[0]": "cap 5 -> 6", "work[0]": WHOLE},
        ("batch_too_big", 6, 5),
    ),
    "more nodes than go out on all days": Case(
        {"limits": [{"kind": "out_per_day", "at_most": 6}], **ONE_DAY},
        {"limits[0]": "nodes a day 6 -> 10", "deadline": "deadline + 1 day", "work[0]": None},
        ("out_per_day_sum", 10, 6),
    ),
    "more units than begin on all days": Case(
        {"limits": [{"kind": "starts_per_day", "at_most": 1}], **ONE_DAY},
        {"limits[0]": "starts a day 1 -> 2", "deadline": "deadline + 1 day", "work[0]": None},
        ("starts_per_day_sum", 2, 1),
    ),
    "more work than crews have time for": Case(
        # Four units of four hours; from 10 to 16 there is time for one each.
        {
            "limits": [{"kind": "crews", "at_most": 2}],
            "work": [{"scope": {}, "mode": "whole", "hours": 4}],
            **ONE_DAY,
        },
        # Two more hours leave time for two in a row, and slots are two hours apart.
        {"limits[0]": "crews 2 -> 4", "window.hours": "window + 2 h", "deadline": "deadline + 1 day", "work[0]": None},
        ("crews_sum", 4, 2),
        {"ant": 1, "bee": 1, "cat": 1, "dog": 1},
    ),
    "more nodes than the cap lets out one after the other": Case(
        # Three batches of two hours in a row, three nodes at most: of four clusters three fit.
        {"limits": [{"kind": "out_at_once", "at_most": 3}], **ONE_DAY},
        {"limits[0]": "cap 3 -> 6", "window.hours": "window + 2 h", "deadline": "deadline + 1 day", "work[0]": None},
        ("out_at_once_sum", 12, 9),
        {"ant": 3, "bee": 3, "cat": 3, "dog": 3},
    ),
    "an average loss that no plan keeps": Case(
        # 10 nodes for 2 hours, over 10 nodes and 72 hours: 1/36.
        {"limits": [{"kind": "average_loss", "at_most_share": 0.02}]},
        {"limits[0]": "average loss 0.02 -> 0.028", "deadline": "deadline + 2 days", "work[0]": None},
        ("average_loss", 20, 14.4),
    ),
    "what stays out is lost as well": Case(
        # 2 hours of all and 24 hours of half: 14 of 72, and in 144 hours a tenth is enough. Smaller batches round up.
        {"limits": [{"kind": "average_loss", "at_most_share": 0.1}], "expect": STAYS},
        {"limits[0]": "average loss 0.1 -> 0.195", "deadline": "deadline + 3 days", "work[0]": None},
        ("average_loss", 140, 72),
    ),
    "a no-fly zone on every day": Case(
        {"no_fly": [{"scope": {"cluster": "bee"}, "from": "2026-01-05", "to": "2026-01-07"}]},
        {"no_fly[0]": "no_fly[0] ends 1 d earlier", "deadline": "deadline + 1 day", "work[0]": None},
        ("too_few_days", 1, 0),
    ),
    "a canary that soaks beyond the deadline": Case(
        # It ends at 12:00 on the 5th; 54 hours later it is 18:00 on the 7th, 36 hours later midnight before.
        {"canary": {"clusters": ["ant"], "soak_hours": 72}},
        {"canary": "canary soak 72 h -> 36 h", "deadline": "deadline + 1 day", "work[0]": None},
        ("canary_too_late", 84, 72),
    ),
    "a strict order that takes too long": Case(
        # Three batches of ant until 12:00 on the 7th, then two of bee. With a third each they are two and one.
        {"order": [{"scope": {"cluster": "ant"}}, {"scope": {"cluster": "bee"}, "strict": True}], "work": ROLLING},
        {
            "order[1]": "order[1]: strict: false",
            "deadline": "deadline + 1 day",
            "work[0]": "share a day 0.25 -> 0.34 for everything",
        },
        ("order_too_late", 60, 72),
        {"ant": 3, "bee": 2},
    ),
    "together, and never together": Case(
        {
            "together": "colo",
            "no_fly": [
                {"scope": {"cluster": "ant"}, "from": "2026-01-05", "to": "2026-01-05"},
                {"scope": {"cluster": "bee"}, "from": "2026-01-06", "to": "2026-01-07"},
            ],
        },
        {
            "together": "together: null",
            "no_fly[0]": "no no_fly[0]",
            "no_fly[1]": "no_fly[1] ends 1 d earlier",
            "deadline": "deadline + 1 day",
            "work[0]": None,
        },
        ("no_common_start", 1, 2),
        {"ant": Ship({"H100": 1}, colo="x"), "bee": Ship({"H100": 1}, colo="x")},
    ),
    "a canary with others in its colo": Case(
        # Dropping the rule of work leaves nothing to do; no change of it helps.
        {"together": "colo", "canary": {"clusters": ["ant"], "soak_hours": 0}},
        {"canary": "no canary", "together": "together: null", "work[0]": None},
        ("together_and_after", 1, 0),
        {"ant": Ship({"H100": 1}, colo="x"), "bee": Ship({"H100": 1}, colo="x")},
    ),
    "only on weekends": Case(
        {"window": {"hours": [10, 16], "days": ["sat", "sun"]}},
        {"window.days": "work on Monday as well", "deadline": "deadline + 3 days", "work[0]": None},
        ("too_few_days", 1, 0),
    ),
    "a limit until a day and another from then on": Case(
        {
            "limits": [
                {"kind": "starts_per_day", "at_most": 0, "until": "2026-01-06"},
                {"kind": "starts_per_day", "at_most": 1, "from": "2026-01-07"},
            ]
        },
        {
            "limits[0]": "starts a day 0 -> 1",
            "limits[1]": "starts a day 1 -> 2",
            "deadline": "deadline + 1 day",
            "work[0]": None,
        },
        ("starts_per_day_sum", 2, 1),
    ),
    "no sum says it, and no plan exists": Case(
        # Half of what went out first stays out for a day: 2 + 6, or 3 + 4.
        {"limits": [{"kind": "out_at_once", "at_most": 6}], "expect": STAYS, **ONE_DAY},
        {"limits[0]": "cap 6 -> 7", "deadline": "deadline + 1 day", "work[0]": None},
    ),
}


def case_of(name: str) -> tuple[Case, Court, Brute]:
    case = CASES[name]
    campaign, fleet = campaign_of(**case.file), fleet_of(**case.ships)
    brute = Brute(fleet)
    assert brute(campaign) is False
    return case, Court(campaign, fleet, brute, make_units(campaign, fleet)), brute


@pytest.mark.parametrize("name", CASES)
def test_sums(name: str) -> None:
    case, court, _ = case_of(name)
    if case.want_sum is None:
        assert court.shortfalls == []
        return
    want_code, want_needed, want_available = case.want_sum
    first = court.shortfalls[0]
    assert first.code == want_code, first.text
    assert first.needed == pytest.approx(want_needed), first.text
    assert first.available == pytest.approx(want_available), first.text


@pytest.mark.parametrize("name", CASES)
def test_what_collides_and_what_helps(name: str) -> None:
    case, court, _ = case_of(name)
    conflict = find_conflict(court)
    assert {each.limit for each in conflict.rules} == set(case.want)
    assert conflict.is_irreducible
    found = {each.limit: each for each in find_relaxations(court, conflict)}
    assert {name: each.change or None for name, each in found.items()} == case.want
    assert {name: each.possible for name, each in found.items()} == {
        name: change is not None for name, change in case.want.items()
    }


def test_what_is_not_decided_is_said() -> None:
    campaign, fleet = campaign_of(**CASES["no sum says it, and no plan exists"].file), fleet_of(ant=4, bee=6)
    found = explain(campaign, fleet, lambda _campaign: None)
    assert not found.is_irreducible
    assert {each.limit for each in found.conflict} == {
        each.name for each in rules_of(campaign, make_units(campaign, fleet))
    }
    assert {each.possible for each in found.relaxations} == {None, False}  # sums rule out what they can
    stopped = explain(campaign, fleet, Brute(fleet), is_cancelled=lambda: True)
    assert {each.possible for each in stopped.relaxations} == {None, False}


def test_json_has_the_shape_that_others_rely_on() -> None:
    _, court, _ = case_of("more rolling batches than days")
    found = explain(court.campaign, court.fleet, Brute(court.fleet))
    assert found.conflict_json()[0] == {
        "limit": "deadline",
        "text": "everything is done by 2026-01-07, 3 days from 2026-01-05",
    }
    assert found.relaxations_json()[0] == {
        "limit": "deadline",
        "change": "deadline + 1 day",
        "from": "2026-01-07",
        "to": "2026-01-08",
        "possible": True,
        "text": "deadline + 1 day: a plan exists",
    }


def test_other_outages_take_of_a_limit_that_counts_all() -> None:
    fleet = fleet_of(ant=4, bee=6)
    campaign = campaign_of(limits=[{"kind": "out_at_once", "at_most": 7, "counts": "all"}])
    assert explain(campaign, fleet, elsewhere={0: 2}).arithmetic[0].needed == 6
    assert explain(campaign, fleet, elsewhere={0: 2}).relaxations[0].change == "cap 7 -> 8"


@pytest.mark.parametrize(
    ("value", "want"), [(1800, 100), (700, 20), (3000, 100), (8, 1), (2, 1), (0, 1), (200_000, 10_000)]
)
def test_steps_are_round(value: float, want: float) -> None:
    assert nice_step(value, is_whole=True) == want


def test_the_last_step_of_a_limit_can_not_be_in_the_way() -> None:
    campaign, fleet = campaign_of(limits=[{"kind": "out_at_once", "at_most": 3}]), fleet_of(ant=4, bee=6)
    ground = Ground(campaign, fleet, make_units(campaign, fleet))
    steps = ladders_of("limits[0]", ground)[0].steps
    assert [step.after for step in steps] == [4, 5, 6, 7, 8, 9, 10]


POSSIBLE: dict[str, dict[str, Any]] = {
    "rolling units begin on different days": {
        "work": [{"scope": {}, "mode": "rolling", "share_per_day": 0.5, "hours": 2}],
        "limits": [{"kind": "starts_per_day", "at_most": 1}],
    },
    "one unit has a single day, the other has more": {
        "no_fly": [{"scope": {"cluster": "bee"}, "from": "2026-01-06", "to": "2026-01-07"}],
        "limits": [{"kind": "out_per_day", "at_most": 6}],
    },
    "a dated limit that can be avoided": {"limits": [{"kind": "starts_per_day", "at_most": 0, "until": "2026-01-06"}]},
    "a loss that counts on one day alone": {
        "limits": [{"kind": "average_loss", "at_most_share": 0.001, "days": ["mon"]}]
    },
}


@pytest.mark.parametrize("name", POSSIBLE)
def test_sums_that_come_out_say_nothing(name: str) -> None:
    campaign, fleet = campaign_of(**POSSIBLE[name]), fleet_of(ant=4, bee=6)
    assert first_plan(campaign, fleet) is not None
    assert find_shortfalls(Ground(campaign, fleet, make_units(campaign, fleet))) == []


def test_a_file_without_rules_keeps_its_slots() -> None:
    campaign, fleet = campaign_of(window={"hours": [9.75, 16], "days": ["mon"]}, slot_minutes=60), fleet_of(ant=4)
    found = without(campaign, make_units(campaign, fleet), ["window.hours", "window.days"]).window
    assert (found.opens, found.closes, found.days) == (45, 24 * 60, (0, 1, 2, 3, 4, 5, 6))


def test_without_a_rule_of_work_its_units_are_not_done() -> None:
    """Whatever the impacts say, and whether a rule of them matches or not; who is no canary any more is none."""
    impact = [{"scope": {"cluster": "bee"}, "impact": "impactless"}]
    campaign = campaign_of(
        changes=[{"component": "nic", "version": "2", "impact": impact}],
        work=[{"scope": {"cluster": "ant"}, "mode": "whole", "hours": 2}, {"scope": {}, "mode": "whole", "hours": 2}],
        canary={"clusters": ["ant"], "soak_hours": 1},
    )
    fleet = fleet_of(ant=4, bee=6, cat=1)
    roll = make_units(campaign, fleet)
    assert [unit.name for unit in roll.units] == ["ant", "cat"]
    left = without(campaign, roll, ["work[0]"])
    assert [unit.name for unit in make_units(left, fleet).units] == ["cat"]
    assert left.canary is None
    left = without(campaign, roll, ["work[1]"])
    assert [unit.name for unit in make_units(left, fleet).units] == ["ant"]
    assert left.canary == campaign.canary


def test_a_window_that_closes_at_midnight_opens_earlier() -> None:
    campaign, fleet = campaign_of(window={"hours": [20.5, 23]}, slot_minutes=90), fleet_of(ant=4)
    steps = ladders_of("window.hours", Ground(campaign, fleet, make_units(campaign, fleet)))[0].steps
    assert [step.after for step in steps[:3]] == ["20:30-24:00", "19:00-24:00", "17:30-24:00"]


# Random scenes.


def court_of(scene: Scene) -> Court:
    try:
        roll = make_units(scene.campaign, scene.fleet)
    except PlimsollError:
        assume(False)
        raise
    assume(roll.units)
    return Court(scene.campaign, scene.fleet, Brute(scene.fleet), roll)


@PATIENT
@given(scenes(clusters_max=2, nodes_max=4))
def test_a_shortfall_is_never_wrong(scene: Scene) -> None:
    court = court_of(scene)
    found = Brute(scene.fleet)(scene.campaign)
    if found:
        assert find_shortfalls(Ground(scene.campaign, scene.fleet, court.roll)) == []


@PATIENT
@given(scenes(clusters_max=2, nodes_max=4))
def test_whoever_searches_agrees_with_trying_everything(scene: Scene) -> None:
    court_of(scene)
    want = Brute(scene.fleet)(scene.campaign)
    assume(want is not None)
    assert Allows(scene.fleet)(scene.campaign) is want


@settings(PATIENT, max_examples=12)
@given(scenes(clusters_max=2, nodes_max=3))
def test_a_conflict_is_one_and_can_not_be_smaller(scene: Scene) -> None:
    court = court_of(scene)
    decide = Allows(scene.fleet)
    assume(decide(scene.campaign) is False)
    found = explain(scene.campaign, scene.fleet, decide, roll=court.roll)
    names = [each.limit for each in found.conflict]
    others = [rule.name for rule in court.rules if rule.name not in names]
    brute = Brute(scene.fleet)
    assert not brute(without(scene.campaign, court.roll, others))
    if not found.is_irreducible:
        return
    for name in names:
        left = without(scene.campaign, court.roll, [*others, name])
        assert not make_units(left, scene.fleet).units or brute(left) in (True, None)
