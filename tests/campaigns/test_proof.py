"""What a plan says of itself: a bound that is always there and never above the total, and limits that others fill."""

from __future__ import annotations

from datetime import date

import msgspec
import pytest

from plimsoll.campaigns.days import make_days
from plimsoll.campaigns.file import parse_campaign
from plimsoll.campaigns.impossible.explain import explain
from plimsoll.campaigns.model import Campaign, Status
from plimsoll.campaigns.planning import Search, plan_campaign
from plimsoll.campaigns.solve.greedy import first_fit, in_order
from plimsoll.campaigns.solve.make import make_problem
from plimsoll.campaigns.solve.race import solve
from plimsoll.campaigns.units import make_units
from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from tests.support.dock import FILE, Dock, with_lines
from tests.support.plans import campaign_of, fleet_of

ONE_A_DAY = "limits: [{kind: starts_per_day, at_most: 1}]"
TENTHS = """\
order:
  - {scope: {cluster: ant}, weight: 0.1}
  - {scope: {cluster: bee}, weight: 0.7}
  - {scope: {cluster: cat}, weight: 0.7}"""


def test_the_bound_is_never_above_the_total() -> None:
    """0.7 + 0.2 + 1.4 + … is another number summed up in another order."""
    dock = Dock({"ant": 1, "bee": 1, "cat": 1, "dog": 1}, with_lines(FILE, ONE_A_DAY, TENTHS))
    campaign = parse_campaign(dock.file, source="nic.yaml")
    plan = plan_campaign(dock.state, campaign, number=1, search=Search(seconds=5, gap=0.0)).plan
    assert plan.status is Status.OPTIMAL
    assert plan.score is not None
    assert plan.bound is not None
    assert plan.bound <= plan.score.total == pytest.approx(2.4)
    assert plan.gap == pytest.approx(0, abs=1e-12)
    assert plan.gap is not None
    assert plan.gap >= 0


def test_a_plan_that_had_no_time_still_has_a_bound() -> None:
    """Two nodes a day: what each would cost on its own is known without any search."""
    campaign = campaign_of(
        limits=[{"kind": "starts_per_day", "at_most": 1}],
        no_fly=[{"scope": {"cluster": "ant"}, "from": "2026-01-05", "to": "2026-01-05"}],
    )
    fleet = fleet_of(ant=4, bee=6)
    roll, days = make_units(campaign, fleet), make_days(campaign)
    problem = make_problem(campaign, fleet, roll, days)
    late = first_fit(problem, in_order(problem, roll.units))
    solved = solve(problem, start=late, seconds=0.0, should_stop=lambda: True)
    assert solved.bound == pytest.approx(4, abs=1e-5)
    assert solved.gap is not None


def found_with(campaign: Campaign, fleet: Fleet, *, others: float) -> Status:
    roll, days = make_units(campaign, fleet), make_days(campaign)
    return solve(make_problem(campaign, fleet, roll, days, elsewhere={0: others}), seconds=5.0).status


FILLED = {
    "where nothing is planned": ({"scope": {"area": "uk"}}, Status.OPTIMAL),
    "on days on which nothing need be planned": ({"from": "2026-01-06"}, Status.OPTIMAL),
    "where something is planned": ({}, Status.INFEASIBLE),
}


@pytest.mark.parametrize(("where", "want"), FILLED.values(), ids=FILLED.keys())
def test_a_limit_that_others_overfill_forbids_only_what_it_counts(where: dict[str, object], want: Status) -> None:
    campaign = campaign_of(limits=[{"kind": "out_at_once", "at_most": 3, "counts": "all", **where}])
    assert found_with(campaign, fleet_of(ant=4, bee=6), others=5) is want


def test_a_limit_is_relaxed_by_what_others_take_as_well() -> None:
    """Three are allowed and five are out: six more fit under eleven, though only six are in the campaign."""
    campaign = campaign_of(
        deadline="2026-01-05",
        window={"hours": [10, 12], "tz": "UTC"},
        limits=[{"kind": "out_at_once", "at_most": 3, "counts": "all"}],
    )
    assert campaign.deadline == date(2026, 1, 5)
    found = explain(campaign, fleet_of(ant=6), elsewhere={0: 5})
    relaxed = {each.limit: (each.after, each.possible) for each in found.relaxations}
    assert relaxed["limits[0]"] == (11, True)


def test_a_node_that_is_out_already_is_not_counted_twice() -> None:
    """Two of six nodes are in repair, one in each batch of three: with either batch four are out, not five."""
    text = with_lines(FILE, "limits: [{kind: out_at_once, at_most: 4, counts: all}]")
    dock = Dock({"tiger": 6}, text)
    campaign = parse_campaign(dock.file, source="nic.yaml")
    names = make_units(campaign, dock.state.of(Fleet)).units[0].batches
    assert [len(batch) for batch in names] == [3, 3]

    def status(*out: str) -> Status:
        for name in out:
            node = dock.state.of(Fleet).nodes[name]
            dock.commit(NodeRecorded(msgspec.structs.replace(node, service=Service.REPAIR)))
        return plan_campaign(dock.state, campaign, number=1, search=Search(seconds=5), explains=False).plan.status

    assert status(names[0][0], names[1][0]) is Status.OPTIMAL
    assert status(names[0][1]) is Status.INFEASIBLE, "with the second batch five are out"
