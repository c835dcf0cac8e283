"""A campaign that is carried out: each step, what holds it back, what goes wrong, and how it is given back."""

from __future__ import annotations

import pytest

from plimsoll.campaigns.run.outside import Outside
from plimsoll.campaigns.service import run_pass
from plimsoll.campaigns.versions.fold import Versions
from plimsoll.connect.errands import Going, Result
from plimsoll.errors import Fenced, PlimsollError
from plimsoll.fleet.fold import Fleet
from plimsoll.health.fold import Health
from plimsoll.incidents.changes import IncidentClosed, IncidentOpened
from plimsoll.incidents.desk import next_incident_id
from plimsoll.incidents.fold import Incidents
from tests.support.dock import FILE, Dock, FakeErrands, with_lines

MANUAL = with_lines(FILE, "run: {grace_minutes: 30}")
AUTOMATIC = with_lines(FILE, "run: {grace_minutes: 0, work: [update], validate: [check]}")


def test_a_batch_goes_all_the_way_by_hand() -> None:
    dock = Dock({"tiger": 4}, MANUAL)
    dock.plan(tiger="05T11:00")
    dock.start()
    dock.go("05T10:59")
    assert dock.step("tiger#1") == "planned"
    assert dock.nos("tiger#1") == ["not_due"]
    dock.go("05T11:00")
    assert dock.step("tiger#1") == "working", "nothing ran there, so there was nothing to wait for"
    assert dock.services("tiger") == {"maintenance"}
    dock.at("05T13:00").tick("tiger")
    assert dock.services("tiger") == {"validating"}
    dock.accept(*(f"tiger-{number}" for number in range(1, 5)))
    dock.at("05T13:30").sweep()
    assert dock.services("tiger") == {"in_service"}
    dock.go()
    assert dock.step("tiger#1") == "returned"
    assert str(dock.run.phase) == "done"
    assert all(not dock.holds(f"tiger-{number}") for number in range(1, 5))
    assert not dock.state.of(Health).ahead


def test_commands_do_the_work_and_the_validation() -> None:
    dock = Dock({"tiger": 4, "whale": 8}, AUTOMATIC)
    dock.plan(tiger="05T11:00", whale="06T11:00")
    dock.start()
    dock.go("05T11:00")
    dock.go("05T11:01")
    dock.go("05T11:02")
    assert dock.step("tiger#1") == "returned"
    assert dock.services("tiger") == {"in_service"}
    assert dock.services("whale") == {"in_service"}
    for day in ("06", "07"):
        for minute in range(4):
            dock.go(f"{day}T11:0{minute}")
    assert str(dock.run.phase) == "done"
    assert len(dock.errands.begun) == 6, "three batches, each worked on and validated once"


def test_nodes_that_fail_are_held_and_charged_until_they_are_repaired() -> None:
    failing = FakeErrands(
        lambda what, _names: Result(0, '{"node": "tiger-2", "ok": false}\n' if what == "update" else "", "")
    )
    limits = "limits: [{kind: out_at_once, at_most: 4}]"
    dock = Dock({"tiger": 4, "whale": 4}, with_lines(AUTOMATIC, limits), errands=failing)
    dock.plan(tiger="05T11:00", whale="05T16:00")
    dock.start()
    for minute in range(4):
        dock.go(f"05T11:0{minute}")
    assert dock.step("tiger#1") == "returned"
    assert dock.service("tiger-2") == "repair"
    assert dock.progress("tiger#1").lost == ("tiger-2",)
    dock.at("05T16:00")
    assert dock.nos("whale#1") == ["limit"], "1 lost and 4 more are over 4"
    dock.returned("tiger-2")
    assert dock.service("tiger-2") == "validating"
    assert dock.nos("whale#1") == []


def test_a_command_that_fails_is_tried_again_and_then_a_person_is_asked() -> None:
    broken = FakeErrands(lambda _what, _names: Result(3, "", "no route to host"))
    dock = Dock({"tiger": 4}, AUTOMATIC, errands=broken)
    dock.plan(tiger="05T11:00")
    dock.start()
    for minute in range(0, 50, 3):
        dock.go(f"05T11:{minute:02}")
    assert len(broken.begun) == 3
    assert dock.step("tiger#1") == "working"
    assert "no route to host" in dock.progress("tiger#1").detail
    dock.tick("tiger", is_validated=True)
    assert dock.services("tiger") == {"in_service"}


GATES = {
    "an incident on the cluster": (IncidentOpened("i", "fire", clusters=("tiger",)), ["incident"]),
    "an incident everywhere": (IncidentOpened("i", "fire"), ["incident"]),
    "an incident elsewhere does not matter": (IncidentOpened("i", "fire", clusters=("whale",)), []),
}


@pytest.mark.parametrize("name", GATES)
def test_an_open_incident_holds_batches_back(name: str) -> None:
    change, want_codes = GATES[name]
    dock = Dock({"tiger": 4, "whale": 4})
    dock.plan(tiger="05T11:00", whale="05T11:00")
    dock.start()
    dock.at("05T11:00").commit(change)
    assert dock.nos("tiger#1") == want_codes
    dock.commit(IncidentClosed("i"))
    assert dock.nos("tiger#1") == []


def test_an_incident_never_takes_the_id_of_another() -> None:
    dock = Dock({"tiger": 4})
    dock.plan(tiger="05T11:00")
    dock.commit(IncidentOpened("nic-1", "smoke"), IncidentOpened("incident-3", "fire"))
    dock.start()
    incidents = dock.state.of(Incidents).incidents
    assert incidents["nic-1"].title == "smoke"
    assert incidents[dock.run.incident].campaign == "nic"
    dock.commit(IncidentOpened("incident-4", "flood"), IncidentOpened("incident-5", "frost"))
    assert next_incident_id(dock.state) not in incidents
    dock.commit(IncidentOpened("incident-7", "fog"))
    assert next_incident_id(dock.state) not in incidents


def test_the_canary_soaks_from_when_it_really_ended() -> None:
    dock = Dock({"tiger": 4, "whale": 4}, with_lines(AUTOMATIC, "canary: {clusters: [tiger], soak_hours: 20}"))
    dock.plan(tiger="05T11:00", whale="06T11:00")
    dock.start()
    assert dock.at("05T11:00").nos("whale#1") == ["canary", "not_due"]
    for minute in range(4):
        dock.go(f"05T16:0{minute}")  # it began late
    assert dock.step("tiger#1") == "returned"
    assert dock.at("06T11:00").nos("whale#1") == ["canary"]
    assert dock.at("06T12:05").nos("whale#1") == []


def test_a_batch_that_is_too_late_for_its_window_waits_for_a_new_plan() -> None:
    dock = Dock({"tiger": 4})
    dock.plan(tiger="05T16:00")
    dock.start()
    assert dock.at("05T19:30").nos("tiger#1") == ["too_late_today"]


def test_nodes_that_are_gone_hold_a_batch_back() -> None:
    dock = Dock({"tiger": 4})
    dock.plan(tiger="05T11:00")
    dock.start()
    dock.at("05T11:00").retire("tiger-3")
    assert dock.nos("tiger#1") == ["nodes_gone"]


def test_crews_and_starts_are_counted_live() -> None:
    limits = "limits: [{kind: crews, at_most: 1}, {kind: starts_per_day, at_most: 1}]"
    dock = Dock({"tiger": 4, "whale": 4}, with_lines(MANUAL, limits))
    dock.plan(tiger="05T11:00", whale="05T16:00")
    dock.start()
    dock.go("05T11:00")
    dock.at("05T16:00")
    assert dock.nos("whale#1") == ["limit", "limit"]
    dock.tick("tiger", is_validated=True)
    dock.go()
    assert dock.nos("whale#1") == ["limit"], "the crew is free; one start a day was allowed"


def test_the_provider_who_never_ticks_is_told_of_once() -> None:
    dock = Dock({"tiger": 4}, MANUAL)
    dock.plan(tiger="05T11:00")
    dock.start()
    dock.go("05T11:00")
    dock.go("05T16:59")
    assert dock.progress("tiger#1").late_told is None
    dock.go("05T17:00")
    told = dock.progress("tiger#1").late_told
    assert told == dock.now, "four hours of work, and two of patience"
    dock.go("05T18:00")
    assert dock.progress("tiger#1").late_told == told
    assert dock.step("tiger#1") == "working"


def test_cancelling_restores_what_nobody_worked_on_and_finishes_the_rest() -> None:
    dock = Dock({"tiger": 4, "whale": 4}, MANUAL)
    dock.plan(tiger="05T11:00", whale="05T15:00")
    dock.start()
    dock.go("05T11:00")
    assert dock.step("tiger#1") == "working"
    dock.move("cancel")
    dock.go("05T11:05")
    assert str(dock.run.phase) == "cancelling"
    assert not dock.state.of(Health).ahead, "what was announced is taken back"
    dock.tick("tiger", is_validated=True)
    dock.go("05T15:00")
    assert dock.step("whale#1") == "planned"
    assert str(dock.run.phase) == "cancelled"
    assert dock.services("tiger") == {"in_service"}


def test_two_people_can_not_start_one_campaign() -> None:
    dock = Dock({"tiger": 4})
    dock.plan(tiger="05T11:00")
    dock.start()
    with pytest.raises(PlimsollError) as refused:
        dock.start()
    assert refused.value.code == "campaign_started"
    assert "alice" in refused.value.message


def test_a_plan_in_the_past_is_not_started() -> None:
    dock = Dock({"tiger": 4})
    dock.plan(tiger="05T11:00")
    dock.at("06T08:00")
    with pytest.raises(PlimsollError) as refused:
        dock.start()
    assert refused.value.code == "plan_in_the_past"


def test_what_is_planned_is_announced_and_stands_in_the_nodes_future() -> None:
    dock = Dock({"tiger": 4, "whale": 8})
    dock.plan(tiger="05T11:00", whale="06T11:00")
    dock.start()
    ahead = dock.state.of(Health).ahead
    assert sorted(ahead) == ["nic:tiger#1", "nic:whale#1", "nic:whale#2"]
    assert len(ahead["nic:whale#2"].nodes) == 4


IMPACTLESS = FILE.replace('version: "28.43"', 'version: "28.43", impact: impactless')


def versions_of(dock: Dock) -> set[tuple[tuple[str, str], ...]]:
    return {dock.state.of(Versions).combination_of(name) for name in dock.state.of(Fleet).nodes}


def test_what_came_back_has_the_new_versions_and_what_did_not_has_not() -> None:
    dock = Dock({"tiger": 2}, MANUAL)
    dock.plan(tiger="05T11:00")
    dock.start()
    dock.go("05T11:00")
    dock.tick("tiger", lost=["tiger-2"], is_validated=True)
    found = dock.state.of(Versions)
    assert found.combination_of("tiger-1") == (("nic-firmware", "28.43"),)
    assert found.combination_of("tiger-2") == ()


def test_what_takes_nothing_out_of_service_is_recorded_when_it_starts() -> None:
    dock = Dock({"tiger": 2}, IMPACTLESS)
    dock.plan()
    dock.start()
    assert versions_of(dock) == {(("nic-firmware", "28.43"),)}
    assert not dock.run.incident, "nothing is disrupted"
    dock.go()
    assert str(dock.run.phase) == "done"
    assert dock.services("tiger") == {"in_service"}


def test_a_command_changes_what_takes_nothing_out_of_service_once() -> None:
    failing = FakeErrands(lambda _what, _names: Result(0, '{"node": "tiger-2", "ok": false}\n', ""))
    dock = Dock({"tiger": 2}, with_lines(IMPACTLESS, "run: {work: [update]}"), errands=failing)
    dock.plan()
    dock.start()
    for _ in range(3):
        dock.go()
    assert len(failing.begun) == 1
    assert versions_of(dock) == {(("nic-firmware", "28.43"),), ()}
    assert str(dock.run.phase) == "running", "one node is still old, and that is not hidden"


def test_a_node_that_does_not_come_through_validation_is_held_and_never_let_in() -> None:
    dock = Dock({"tiger": 4}, MANUAL)
    dock.plan(tiger="05T11:00")
    dock.start()
    dock.go("05T11:00")
    dock.at("05T12:00").tick("tiger", lost=["tiger-1"])
    dock.tick("tiger", lost=["tiger-2"])
    assert dock.holds("tiger-2") == dock.holds("tiger-1") != []
    dock.tick("tiger", lost=["tiger-3"], is_validated=True)
    dock.go("05T12:01")
    assert dock.step("tiger#1") == "returned"
    assert dock.run.progress["tiger#1"].lost == ("tiger-1", "tiger-2", "tiger-3")
    nodes = dock.state.of(Fleet).nodes
    assert [str(nodes[f"tiger-{number}"].service) for number in range(1, 5)] == ["repair"] * 3 + ["in_service"]


def test_whoever_does_not_lead_any_more_begins_no_command_that_takes_nothing_out() -> None:
    dock = Dock({"tiger": 2}, with_lines(IMPACTLESS, "run: {work: [update]}"))
    dock.plan()
    dock.start()
    store = dock.keeper.ledger.store
    old = store.next_epoch("the old one")
    store.next_epoch("the new one")
    with pytest.raises(Fenced):
        run_pass(dock.keeper, "nic", actor="alice", outside=Outside(dock.errands), epoch=old)
    assert not dock.errands.begun


def test_a_batch_whose_command_runs_is_not_ticked_off() -> None:
    busy = FakeErrands()
    busy.look = lambda name: (Going.RUNNING if name in busy.begun else Going.NOT_BEGUN, None)  # type: ignore[method-assign]
    dock = Dock({"tiger": 2}, AUTOMATIC, errands=busy)
    dock.plan(tiger="05T11:00")
    dock.start()
    dock.go("05T11:00")
    with pytest.raises(PlimsollError) as refused:
        dock.tick("tiger")
    assert refused.value.code == "command_runs"
    assert dock.services("tiger") == {"maintenance"}


def test_a_validation_that_fails_as_a_whole_is_tried_again_and_says_nothing_of_the_nodes() -> None:
    answers = iter([Result(127, "", "not found"), Result(0, "", "")])
    errands = FakeErrands(lambda what, _names: Result(0, "", "") if what == "update" else next(answers))
    dock = Dock({"tiger": 2}, AUTOMATIC, errands=errands)
    dock.plan(tiger="05T11:00")
    dock.start()
    for minute in range(8):
        dock.go(f"05T11:0{minute}")
    assert dock.step("tiger#1") == "returned"
    assert dock.progress("tiger#1").lost == ()
    assert dock.services("tiger") == {"in_service"}
