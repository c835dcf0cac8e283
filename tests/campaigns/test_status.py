"""How a campaign stands: the burn-down, the outage budget, the people, and how long it really takes, by hand."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import msgspec
import pytest

from plimsoll.campaigns.changes import CampaignPlanned
from plimsoll.campaigns.run.budget import Budget
from plimsoll.campaigns.run.desk import returned
from plimsoll.campaigns.run.status import DayView, Estimate, View, look
from plimsoll.campaigns.service import say
from plimsoll.connect.errands import Result
from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.acts import Acting
from plimsoll.incidents.fold import Incidents
from plimsoll.ledger.model import Draft
from plimsoll.state.state import State
from tests.support.dock import FILE, Dock, FakeErrands, with_lines

MANUAL = with_lines(FILE, "run: {grace_minutes: 0}")
FIFTH, SIXTH, SEVENTH = date(2026, 1, 5), date(2026, 1, 6), date(2026, 1, 7)


def _look(dock: Dock) -> View:
    run = dock.run
    return look(dock.state, run, dock.state.of(Incidents).incidents.get(run.incident), now=dock.now)


def _dock(*lines: str) -> Dock:
    """tiger (4 nodes) whole on the fifth, whale (8) in two batches on the sixth and seventh; 4 hours each."""
    dock = Dock({"tiger": 4, "whale": 8}, with_lines(MANUAL, *lines))
    dock.plan(tiger="05T11:00", whale="06T11:00")
    dock.start()
    return dock


def _done(dock: Dock, batch: str, began: str, ended: str, *lost: str) -> None:
    dock.go(began)
    dock.at(ended).tick(batch, lost=lost, is_validated=True)
    dock.go()
    assert dock.step(batch) == "returned"


def test_the_burn_down_is_the_plan_beside_what_happened() -> None:
    dock = _dock("expect: {non_return_share: 0.25, repair_days: 1}")
    assert _look(dock).days == (
        DayView(FIFTH, planned=4, left_planned=8, left=12, clusters=1, to_repair=1),
        DayView(SIXTH, planned=4, left_planned=4, left=None, clusters=1, to_repair=1),
        DayView(SEVENTH, planned=4, left_planned=0, left=None, clusters=1, to_repair=1),
    )
    _done(dock, "tiger#1", "05T11:00", "05T14:00", "tiger-3")
    view = _look(dock)
    assert [day.left for day in view.days] == [9, None, None], "three of four are on the new version"
    assert (view.nodes, view.done, view.lost) == (12, 3, ("tiger-3",))
    _done(dock, "whale#1", "06T11:00", "06T15:00")
    assert [day.left for day in _look(dock).days] == [9, 5, None]


def test_the_burn_down_goes_on_until_today_when_it_is_late() -> None:
    dock = _dock()
    dock.at("09T09:00")
    days = _look(dock).days
    assert [(each.day.day, each.left_planned, each.left) for each in days] == [
        (5, 8, 12),
        (6, 4, 12),
        (7, 0, 12),
        (8, 0, 12),
        (9, 0, 12),
    ]


def test_people_are_counted_by_the_clusters_at_work_at_one_moment() -> None:
    dock = Dock({"tiger": 4, "whale": 4, "otter": 4}, MANUAL)
    dock.plan(tiger="05T11:00", whale="05T14:00", otter="05T15:00")
    dock.start()
    assert [day.clusters for day in _look(dock).days] == [2], "tiger is back at 15:00, when otter begins"


BUDGETS = {
    # 12 nodes, 5 days of 24 hours: 1,440 node-hours; three batches of 4 nodes and 4 hours are planned.
    "all nodes": ("{kind: average_loss, at_most_share: 0.1, of: fleet}", Budget("limits[0]", "nodes", 0, 48, 144)),
    "GPUs": (
        "{kind: average_loss, unit: gpus, at_most_share: 0.1, of: fleet}",
        Budget("limits[0]", "gpus", 0, 384, 1152),
    ),
    "A100e, 3.2 for each GPU": (
        "{kind: average_loss, unit: a100e, at_most_share: 0.1, of: fleet}",
        Budget("limits[0]", "a100e", 0, 1228.8, 3686.4),
    ),
    "one cluster's nodes, of that cluster": (
        "{kind: average_loss, at_most_share: 0.5, of: scope, scope: {cluster: [whale]}}",
        Budget("limits[0]", "nodes", 0, 32, 480),
    ),
    "from the seventh on: 3 days, and one batch": (
        "{kind: average_loss, at_most_share: 0.1, of: fleet, from: 2026-01-07}",
        Budget("limits[0]", "nodes", 0, 16, 86.4),
    ),
    "on Mondays: a day, and one batch": (
        "{kind: average_loss, at_most_share: 0.1, of: fleet, days: [mon]}",
        Budget("limits[0]", "nodes", 0, 16, 28.8),
    ),
}


@pytest.mark.parametrize("case", BUDGETS)
def test_the_outage_budget_is_in_hours_of_what_the_limit_counts(case: str) -> None:
    limit, want = BUDGETS[case]
    (found,) = _look(_dock(f"limits: [{limit}]")).budgets
    assert (found.limit, found.unit) == (want.limit, want.unit)
    assert [found.used, found.planned, found.allowed] == pytest.approx([want.used, want.planned, want.allowed])


def test_expected_stays_are_planned_and_real_ones_are_used_until_they_are_back() -> None:
    dock = _dock(
        "limits: [{kind: average_loss, at_most_share: 0.1, of: fleet}]",
        "expect: {non_return_share: 0.25, repair_days: 1}",
    )
    node = dock.state.of(Fleet).nodes["tiger-3"]
    for hour, service in ((9, Service.REPAIR), (10, Service.IN_SERVICE)):  # a fault of before is none of its business
        dock.at(f"05T{hour:02}:00").commit(NodeRecorded(msgspec.structs.replace(node, service=service)))
    assert _look(dock).budgets[0].planned == 48 + 3 * 24, "one node of each batch for a day"
    dock.go("05T11:00")
    dock.at("05T12:30")
    assert _look(dock).budgets[0].used == 6, "4 nodes for one and a half hours"
    _done(dock, "tiger#1", "05T12:30", "05T14:00", "tiger-3")
    assert _look(dock).budgets[0].used == 12
    dock.at("05T20:00")
    assert _look(dock).budgets[0].used == 12 + 6, "one of them is out still"
    dock.returned("tiger-3")
    dock.accept("tiger-3")
    dock.at("05T22:00").sweep()
    assert dock.service("tiger-3") == "in_service"
    assert _look(dock.at("06T08:00")).budgets[0].used == 12 + 8, "until 22:00"


def test_durations_are_estimated_from_the_batches_that_ended() -> None:
    dock = _dock()
    assert _look(dock).estimates == ()
    _done(dock, "tiger#1", "05T11:00", "05T13:00")
    _done(dock, "whale#1", "06T11:00", "06T16:00")
    _done(dock, "whale#2", "07T11:00", "07T18:00")
    assert _look(dock).estimates == (
        Estimate("rolling", planned_hours=4, mean_hours=6, longest_hours=7, ended=2),
        Estimate("whole", planned_hours=4, mean_hours=2, longest_hours=2, ended=1),
    )


def test_every_batch_says_what_it_waits_for() -> None:
    dock = _dock("canary: {clusters: [tiger], soak_hours: 1}")
    waits = {each.batch: (each.waits_for, each.codes) for each in _look(dock.at("05T11:00")).batches}
    assert waits["tiger#1"] == ("the next pass, to begin: plimsoll campaign run nic", ())
    assert _look(dock).batches[0].waits == "the next pass, to begin"
    assert waits["whale#1"] == ("canary tiger has not ended", ("canary", "not_due"))
    dock.go()
    view = next(each for each in _look(dock).batches if each.batch == "tiger#1")
    assert view.waits_for == "provider to say that it is done: plimsoll campaign tick nic 'tiger#1'"
    assert view.waits == "provider to say that it is done"
    assert view.until == dock.now + timedelta(hours=4)


def test_work_that_failed_three_times_waits_for_a_person() -> None:
    broken = FakeErrands(lambda _what, _names: Result(3, "", "no route to host"))
    dock = Dock({"tiger": 4}, with_lines(FILE, "run: {grace_minutes: 0, work: [update]}"), errands=broken)
    dock.plan(tiger="05T11:00")
    dock.start()
    dock.go("05T11:00")
    dock.go("05T11:01")
    (batch,) = _look(dock).batches
    assert (batch.waits_for, batch.until) == ("attempt 2 (attempt 1 failed: no route to host)", dock.at("05T11:06").now)
    for minute in range(10, 40, 3):
        dock.go(f"05T11:{minute}")
    (batch,) = _look(dock).batches
    want = "a person, after 3 attempts (attempt 3 failed: no route to host): when it is done,"
    assert batch.waits_for == f"{want} plimsoll campaign tick nic 'tiger#1'"
    assert batch.waits == "a person, after 3 attempts (attempt 3 failed: no route to host)"


def test_a_batch_that_a_new_plan_dropped_is_brought_to_its_end_and_shown() -> None:
    dock = _dock()
    dock.go("05T11:00")
    run = dock.run
    left = tuple(batch for batch in run.plan.batches if batch.unit == "whale")
    plan = msgspec.structs.replace(run.plan, number=2, batches=left)
    names = {batch.id: run.names[batch.id] for batch in left}
    dock.commit(CampaignPlanned("nic", run.campaign, run.text, plan, names))
    shown = {each.batch: each.step for each in _look(dock).batches}
    assert shown == {"whale#1": "planned", "whale#2": "planned", "tiger#1": "working"}
    dock.tick("tiger#1", is_validated=True)
    dock.go()
    assert dock.step("tiger#1") == "returned"
    assert [(day.planned, day.left) for day in _look(dock).days][:1] == [(0, 8)]


def test_a_fleet_that_the_file_does_not_fit_any_more_is_shown_all_the_same() -> None:
    dock = _dock("canary: {clusters: [tiger], soak_hours: 0}")
    for number in range(1, 5):
        dock.retire(f"tiger-{number}")
    view = _look(dock)
    assert view.gone == ("tiger-1", "tiger-2", "tiger-3", "tiger-4")
    assert {each.codes[0] for each in view.batches} == {"nodes_gone"}


def test_nodes_that_joined_are_named() -> None:
    dock = _dock()
    node = dock.state.of(Fleet).nodes["tiger-1"]
    dock.commit(NodeRecorded(msgspec.structs.replace(node, id="tiger-5")))
    assert (_look(dock).gone, _look(dock).joined) == ((), ("tiger-5",))


def test_a_node_that_was_updated_after_all_is_old_no_more() -> None:
    dock = Dock({"tiger": 4}, with_lines(FILE, "run: {grace_minutes: 0}"))
    dock.plan(tiger="05T11:00")
    dock.start()
    dock.go("05T11:00")
    dock.tick("tiger", lost=["tiger-2"], is_validated=True)
    dock.go()
    assert look(dock.state, dock.run, None, now=dock.now).done == 3

    def repaired(state: State, now: datetime) -> tuple[None, list[Draft]]:
        return None, returned(state, "nic", (), Acting("alice", now, "repaired", {}), is_updated=True)

    say(dock.keeper, repaired, actor="alice")
    view = look(dock.state, dock.run, None, now=dock.now)
    assert view.done == 4
    assert view.days[0].left == 0
