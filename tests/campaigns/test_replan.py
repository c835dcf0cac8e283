"""New plans from what has happened: what is over, under way or near stays, and only what must move moves."""

from __future__ import annotations

from datetime import timedelta

from plimsoll.campaigns.changes import CampaignPlanned
from plimsoll.campaigns.file import parse_campaign
from plimsoll.campaigns.model import Status
from plimsoll.campaigns.planning import Planned, Search, replan_campaign
from plimsoll.campaigns.run.progress import hold_id
from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.health.fold import Health
from tests.support.dock import FILE, MONDAY, Dock, with_lines

AUTOMATIC = with_lines(FILE, "run: {grace_minutes: 0, work: [update], validate: [check]}", "replan: {freeze_hours: 12}")
MANUAL = with_lines(FILE, "run: {grace_minutes: 30}", "replan: {freeze_hours: 12}")


def replan(dock: Dock, file: str = "", *, is_recorded: bool = True) -> Planned:
    campaign = parse_campaign(file or dock.file, source="nic.yaml")
    search = Search(seconds=5.0, gap=0.0)
    planned = replan_campaign(dock.state, dock.run, campaign, search=search, now=dock.now)
    if is_recorded and planned.plan.score is not None:
        dock.commit(CampaignPlanned("nic", campaign, file or dock.file, planned.plan, dict(planned.names)))
    return planned


def starts(planned: Planned) -> dict[str, str]:
    return {batch.id: f"{batch.start:%dT%H:%M}" for batch in planned.plan.batches}


def test_without_news_nothing_moves() -> None:
    dock = Dock({"tiger": 4, "whale": 4, "zebra": 8}, MANUAL)
    dock.plan(tiger="06T11:00", whale="07T15:00", zebra="08T11:00")
    dock.start()
    planned = replan(dock)
    assert planned.moved == []
    assert planned.plan.number == 2
    assert starts(planned) == {
        "tiger#1": "06T11:00",
        "whale#1": "07T15:00",
        "zebra#1": "08T11:00",
        "zebra#2": "09T11:00",
    }


def test_after_one_slip_only_what_slipped_moves() -> None:
    dock = Dock({"tiger": 4, "whale": 4, "zebra": 4}, MANUAL)
    dock.plan(tiger="05T11:00", whale="07T15:00", zebra="08T11:00")
    dock.start()
    dock.at("05T19:00")  # nobody ran it
    planned = replan(dock)
    assert planned.moved == ["tiger#1"]
    assert planned.why == {"tiger": "it was to begin at 2026-01-05 11:00 UTC and has not"}
    assert starts(planned) == {"tiger#1": "06T11:00", "whale#1": "07T15:00", "zebra#1": "08T11:00"}


def test_what_is_over_or_under_way_stays_and_keeps_its_progress() -> None:
    dock = Dock({"tiger": 4, "whale": 4}, MANUAL)
    dock.plan(tiger="05T11:00", whale="06T15:00")
    dock.start()
    dock.go("05T11:00")
    planned = replan(dock)
    assert planned.moved == []
    assert dock.step("tiger#1") == "working"
    assert dock.holds("tiger-1") == [hold_id("nic", "tiger#1")]
    dock.tick("tiger", is_validated=True)
    dock.go("05T15:00")
    assert dock.step("tiger#1") == "returned"
    assert replan(dock).moved == []


def test_a_rolling_cluster_that_missed_a_day_goes_on_later() -> None:
    dock = Dock({"zebra": 12}, AUTOMATIC.replace("share_per_day: 0.5", "share_per_day: 0.25"))
    dock.plan(zebra="05T11:00")
    dock.start()
    for minute in range(4):
        dock.go(f"05T11:0{minute}")
    assert dock.step("zebra#1") == "returned"
    dock.at("06T19:00")  # the second day was missed
    planned = replan(dock)
    assert starts(planned) == {
        "zebra#1": "05T11:00",
        "zebra#2": "07T11:00",
        "zebra#3": "08T11:00",
        "zebra#4": "09T11:00",
    }
    assert planned.moved == ["zebra#2", "zebra#3", "zebra#4"]
    assert dock.run.names["zebra#2"] == ("zebra-12", "zebra-2", "zebra-3")
    for day in ("07", "08", "09"):
        for minute in range(4):
            dock.go(f"{day}T11:0{minute}")
    assert str(dock.run.phase) == "done"


def test_a_new_no_fly_zone_moves_what_it_hits() -> None:
    dock = Dock({"tiger": 4, "whale": 4}, MANUAL)
    dock.plan(tiger="07T11:00", whale="07T15:00")
    dock.start()
    zone = "no_fly: [{scope: {cluster: [tiger]}, from: 2026-01-07, to: 2026-01-08, why: launch}]"
    planned = replan(dock, with_lines(MANUAL, zone))
    assert planned.moved == ["tiger#1"]
    assert planned.why == {"tiger": "no-fly zone from 2026-01-07 to 2026-01-08: launch"}
    assert starts(planned)["tiger#1"] == "06T11:00"


def test_a_lowered_cap_moves_as_few_as_it_can() -> None:
    dock = Dock({"tiger": 4, "whale": 4, "zebra": 4}, MANUAL)
    dock.plan(tiger="07T11:00", whale="07T11:00", zebra="07T15:00")
    dock.start()
    planned = replan(dock, with_lines(MANUAL, "limits: [{kind: out_at_once, at_most: 4}]"))
    assert len(planned.moved) == 1
    assert planned.moved[0] in ("tiger#1", "whale#1")


def test_what_begins_within_the_freeze_horizon_does_not_move() -> None:
    dock = Dock({"tiger": 4, "whale": 4}, MANUAL)
    dock.plan(tiger="05T11:00", whale="05T15:00")
    dock.start()
    assert dock.now == MONDAY
    planned = replan(dock, with_lines(MANUAL, "limits: [{kind: starts_per_day, at_most: 1}]"))
    assert planned.moved == [], "both are nearer than twelve hours, though together they are over the new limit"


def test_a_cluster_that_joined_is_planned_and_a_node_that_left_is_left_out() -> None:
    dock = Dock({"tiger": 4, "whale": 4}, MANUAL)
    dock.plan(tiger="07T11:00", whale="07T15:00")
    dock.start()
    dock.retire("whale-4")
    known = dock.state.of(Fleet).nodes["tiger-1"]
    dock.commit(
        *(NodeRecorded(Node(f"tiger-{n}", "tiger", known.island, "H200", 8, Service.IN_SERVICE)) for n in (5,)),
    )
    planned = replan(dock)
    assert {batch.id: batch.nodes for batch in planned.plan.batches} == {"tiger#1": 5, "whale#1": 3}
    assert dock.run.names["tiger#1"] == ("tiger-1", "tiger-2", "tiger-3", "tiger-4", "tiger-5")


def test_where_nothing_can_be_kept_it_says_that_there_is_no_plan() -> None:
    dock = Dock({"tiger": 4, "whale": 4}, MANUAL)
    dock.plan(tiger="08T11:00", whale="09T11:00")
    dock.start()
    dock.at("09T08:00")
    planned = replan(dock, with_lines(MANUAL, "limits: [{kind: starts_per_day, at_most: 0, from: 2026-01-09}]"))
    assert planned.plan.status is Status.INFEASIBLE
    assert dock.run.plan.number == 1


def test_the_new_plan_is_announced_in_place_of_the_old() -> None:
    dock = Dock({"tiger": 4, "whale": 4}, MANUAL)
    dock.plan(tiger="05T11:00", whale="07T15:00")
    dock.start()
    dock.at("05T19:00")
    replan(dock)
    dock.go()
    ahead = dock.state.of(Health).ahead
    assert {name: work.starts for name, work in ahead.items()} == {
        "nic:tiger#1": MONDAY + timedelta(days=1, hours=3),
        "nic:whale#1": MONDAY + timedelta(days=2, hours=7),
    }


def test_how_many_days_more_would_help_is_said() -> None:
    dock = Dock({"tiger": 4, "whale": 4}, MANUAL)
    dock.plan(tiger="08T11:00", whale="09T11:00")
    dock.start()
    dock.at("09T10:00")  # tiger was missed, and nothing can be planned before the next day
    planned = replan(dock)
    assert planned.plan.status is Status.INFEASIBLE
    assert planned.help_text == "with 1 day more (deadline: 2026-01-10) a plan exists"


def test_the_proof_is_about_the_total_with_what_moves_weigh() -> None:
    dock = Dock({"tiger": 4, "whale": 4}, MANUAL)
    dock.plan(tiger="05T11:00", whale="07T15:00")
    dock.start()
    dock.at("05T19:00")
    planned = replan(dock)
    assert planned.plan.bound is None
    assert planned.proof is not None
    assert planned.plan.score is not None
    assert planned.proof.total == planned.plan.score.total + 100_000, "one batch moved"
    assert planned.proof.bound is not None
    assert planned.proof.bound <= planned.proof.total


def test_what_slipped_is_planned_from_the_very_end_of_the_freeze_horizon() -> None:
    dock = Dock({"tiger": 4}, MANUAL.replace("freeze_hours: 12", "freeze_hours: 24"))
    dock.plan(tiger="05T11:00")
    dock.start()
    dock.at("05T12:30")
    assert starts(replan(dock)) == {"tiger#1": "06T13:00"}, "half of the next day's window is still free"
