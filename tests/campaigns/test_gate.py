"""The gate: for each reason why a batch may not begin, the sentence, the code, and the numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import NamedTuple

import msgspec
import pytest

from plimsoll.campaigns.changes import CampaignPaused
from plimsoll.campaigns.file import parse_campaign
from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.model import Batch, Plan, Score, Status
from plimsoll.campaigns.run.desk import record_plan, start
from plimsoll.campaigns.run.gate import Gatekeeper, No
from plimsoll.campaigns.run.outside import Outside
from plimsoll.campaigns.service import run_pass, say
from plimsoll.campaigns.units import make_units
from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Purpose, Service
from plimsoll.health.acts import place_hold
from plimsoll.health.facts import Hold
from plimsoll.health.service import act
from plimsoll.incidents.changes import IncidentClosed, IncidentOpened
from tests.support.dock import ACTOR, FILE, Dock, with_lines

MANUAL = with_lines(FILE, "run: {grace_minutes: 0}")
NOON = {"tiger": "05T11:00", "whale": "05T11:00", "otter": "05T11:00"}


def _dock(*lines: str, file: str = MANUAL, **sizes: int) -> Dock:
    """Clusters of 4 nodes, of 8 GPUs each, that are all due at 11:00 on the fifth, where not said otherwise."""
    dock = Dock(sizes or {"tiger": 4, "whale": 4}, with_lines(file, *lines))
    dock.plan(**{name: NOON[name] for name in sizes or ("tiger", "whale")})
    dock.start()
    return dock.at("05T11:00")


def _begin(dock: Dock, batch: str) -> None:
    """Let one batch begin by itself, whatever else is due."""
    others = {each.unit for each in dock.run.plan.batches} - {batch.partition("#")[0]}
    if others:
        dock.commit(IncidentOpened("elsewhere", "", clusters=tuple(sorted(others))))
    dock.go()
    if others:
        dock.commit(IncidentClosed("elsewhere"))
    assert dock.run.step_of(batch).is_under_way


def _set(dock: Dock, *names: str, service: Service = Service.REPAIR) -> None:
    """Somebody else's fault: the nodes are out, and no campaign knows of it."""
    nodes = dock.state.of(Fleet).nodes
    dock.commit(*(NodeRecorded(msgspec.structs.replace(nodes[name], service=service)) for name in names))


def _ask(dock: Dock, batch: str, number: int | None = None) -> list[No]:
    found = next(each for each in dock.run.plan.batches if each.id == batch)
    return Gatekeeper(dock.state, dock.run, dock.now).ask(found, number)


def _only(nos: list[No]) -> tuple[str, str]:
    assert len(nos) == 1, nos
    return str(nos[0].code), nos[0].text


class Full(NamedTuple):
    """`whale` asks while `tiger` is out: what it is told."""

    limit: str
    want: str
    """Empty: it may begin."""
    before: Callable[[Dock], None] = lambda _dock: None


LIMITS: Mapping[str, Full] = {
    "4 out and 4 more are 8 of 8": Full("{kind: out_at_once, at_most: 8}", ""),
    "4 out and 4 more are over 7": Full(
        "{kind: out_at_once, at_most: 7}", "limits[0]: 4 nodes out at once, 4 more would be over 7"
    ),
    "32 GPUs out and 32 more are over 63": Full(
        "{kind: out_at_once, unit: gpus, at_most: 63}", "limits[0]: 32 gpus out at once, 32 more would be over 63"
    ),
    "32 GPUs of 3.2 A100e each are 102.4, twice that is 204.8": Full(
        "{kind: out_at_once, unit: a100e, at_most: 204.8}", ""
    ),
    "102.4 A100e out and as much again is over 204": Full(
        "{kind: out_at_once, unit: a100e, at_most: 204}", "limits[0]: 102 a100e out at once, 102 more would be over 204"
    ),
    "half of the fleet is 4 of 8 nodes": Full(
        "{kind: out_at_once, at_most_share: 0.5, of: fleet}", "limits[0]: 4 nodes out at once, 4 more would be over 4"
    ),
    "all of the scope is 4 nodes of whale, none of which is out": Full(
        "{kind: out_at_once, at_most_share: 1, of: scope, scope: {cluster: [whale]}}", ""
    ),
    "half of the scope is 2 nodes of whale": Full(
        "{kind: out_at_once, at_most_share: 0.5, of: scope, scope: {cluster: [whale]}}",
        "limits[0]: 0 nodes out at once of {cluster: whale}, 4 more would be over 2",
    ),
    "a limit on others does not count here": Full("{kind: out_at_once, at_most: 0, scope: {cluster: [tiger]}}", ""),
    "a limit that held until yesterday": Full("{kind: out_at_once, at_most: 0, until: 2026-01-04}", ""),
    "a limit that holds from tomorrow": Full("{kind: out_at_once, at_most: 0, from: 2026-01-06}", ""),
    "a limit on Tuesdays does not hold on a Monday": Full("{kind: out_at_once, at_most: 0, days: [tue]}", ""),
    "a fault elsewhere is not planned work": Full(
        "{kind: out_at_once, at_most: 8}", "", lambda dock: _set(dock, "otter-1")
    ),
    "a fault elsewhere counts where all do": Full(
        "{kind: out_at_once, at_most: 8, counts: all}",
        "limits[0]: 5 nodes out at once, 4 more would be over 8",
        lambda dock: _set(dock, "otter-1"),
    ),
    "a node of the batch that is out already is not counted twice": Full(
        "{kind: out_at_once, at_most: 8, counts: all}", "", lambda dock: _set(dock, "whale-1")
    ),
    "a faulty node that is out for a batch as well is counted once": Full(
        "{kind: out_at_once, at_most: 8, counts: all}", "", lambda dock: _set(dock, "tiger-1")
    ),
    "a retired node is nowhere": Full(
        "{kind: out_at_once, at_most: 8, counts: all}", "", lambda dock: _set(dock, "otter-1", service=Service.RETIRED)
    ),
    "8 taken out in a day are over 7": Full(
        "{kind: out_per_day, at_most: 7}", "limits[0]: 4 nodes taken out today, 4 more would be over 7"
    ),
    "8 taken out in a day are 8": Full("{kind: out_per_day, at_most: 8}", ""),
    "64 GPUs taken out in a day are over 60": Full(
        "{kind: out_per_day, unit: gpus, at_most: 60}", "limits[0]: 32 gpus taken out today, 32 more would be over 60"
    ),
    "one start a day": Full(
        "{kind: starts_per_day, at_most: 1}", "limits[0]: 1 clusters begun today, 1 more would be over 1"
    ),
    "one start a day of others": Full("{kind: starts_per_day, at_most: 1, scope: {cluster: [whale]}}", ""),
    "one crew": Full("{kind: crews, at_most: 1}", "limits[0]: 1 clusters worked on at once, 1 more would be over 1"),
    "two crews": Full("{kind: crews, at_most: 2}", ""),
    "a crew of its own": Full("{kind: crews, at_most: 1, scope: {cluster: [whale, otter]}}", ""),
    "what lies on average is the plan's to keep": Full("{kind: average_loss, at_most_share: 0, of: fleet}", ""),
}


@pytest.mark.parametrize("case", LIMITS)
def test_limits_count_what_is_really_out(case: str) -> None:
    limit, want, before = LIMITS[case]
    file = MANUAL.replace("scope: {}\nstart", "scope: {cluster: [tiger, whale]}\nstart")
    dock = Dock({"tiger": 4, "whale": 4, "otter": 1}, with_lines(file, f"limits: [{limit}]"))
    if "of: fleet" in limit:
        _set(dock, "otter-1", service=Service.RETIRED)
    dock.plan(tiger="05T11:00", whale="05T12:00")
    dock.start()
    dock.go("05T11:00")
    before(dock)
    dock.at("05T12:00")
    nos = _ask(dock, "whale#1")
    if want:
        assert _only(nos) == ("limit", want)
    else:
        assert nos == []


def test_nodes_that_validate_are_out_still() -> None:
    dock = _dock("limits: [{kind: out_at_once, at_most: 7}]")
    _begin(dock, "tiger#1")
    dock.tick("tiger")
    assert dock.services("tiger") == {"validating"}
    assert _only(_ask(dock, "whale#1")) == ("limit", "limits[0]: 4 nodes out at once, 4 more would be over 7")
    dock.accept("tiger-1")
    dock.at("05T11:11").sweep()
    assert dock.service("tiger-1") == "in_service"
    assert _ask(dock, "whale#1") == [], "3 validate still, and 4 more are 7"


def test_only_the_first_batch_of_a_rolling_cluster_is_a_start() -> None:
    dock = _dock("limits: [{kind: starts_per_day, at_most: 0, from: 2026-01-06}]", whale=8)
    _begin(dock, "whale#1")
    dock.tick("whale", is_validated=True)
    dock.go()
    dock.at("06T11:00")
    assert _ask(dock, "whale#2") == []


def test_a_limit_counts_the_nodes_of_its_sku_alone() -> None:
    dock = Dock({"tiger": 2}, with_lines(MANUAL, "limits: [{kind: out_at_once, at_most: 1, scope: {sku: [GB200]}}]"))
    for number in (3, 4):
        dock.commit(NodeRecorded(Node(f"tiger-{number}", "tiger", "tiger-b", "GB200", 4, Service.IN_SERVICE)))
    dock.plan(tiger="05T11:00")
    dock.start()
    want = "limits[0]: 0 nodes out at once of {sku: GB200}, 2 more would be over 1"
    assert _only(_ask(dock.at("05T11:00"), "tiger#1")) == ("limit", want)


def test_a_sku_that_nobody_weighed_is_not_let_through() -> None:
    dock = _dock("limits: [{kind: out_at_once, unit: a100e, at_most: 1000000}]")
    node = dock.state.of(Fleet).nodes["tiger-1"]
    dock.commit(NodeRecorded(msgspec.structs.replace(node, id="tiger-9", sku="X9", island="tiger-x")))
    run = msgspec.structs.replace(dock.run, names={**dock.run.names, "tiger#1": ("tiger-9",)})
    batch = run.plan.batches[0]
    nos = Gatekeeper(dock.state, run, dock.now).ask(batch)
    assert [str(no.code) for no in nos] == ["limit"]
    assert "X9" in nos[0].text


STRICT = """\
order:
  - {scope: {cluster: [tiger]}, weight: 2}
  - {scope: {cluster: [whale]}, weight: 1, strict: true}
"""


def test_a_strict_group_waits_for_every_group_before_it() -> None:
    dock = _dock(STRICT, tiger=4, whale=4, otter=4)
    assert _only(_ask(dock, "whale#1")) == ("strict_order", "1 cluster of earlier groups not done: tiger")
    assert _ask(dock, "otter#1") == [], "it is in no group"
    _begin(dock, "tiger#1")
    assert _only(_ask(dock, "whale#1"))[0] == "strict_order"
    dock.tick("tiger", is_validated=True)
    dock.go()
    assert _ask(dock, "whale#1") == []


def test_others_wait_for_the_canary_and_its_soak() -> None:
    dock = _dock("canary: {clusters: [tiger], soak_hours: 2}")
    assert _only(_ask(dock, "whale#1")) == ("canary", "canary tiger has not ended")
    assert _ask(dock, "tiger#1") == []
    _begin(dock, "tiger#1")
    dock.at("05T12:00").tick("tiger", is_validated=True)
    dock.go()
    code, text = _only(_ask(dock, "whale#1"))
    assert (code, text) == ("canary", "the canary ended at 2026-01-05T12:00:00Z and soaks for 2 hours")
    assert _ask(dock.at("05T13:59"), "whale#1")[0].until == dock.at("05T14:00").now
    assert _ask(dock.at("05T14:00"), "whale#1") == []


def test_a_canary_that_loses_too_many_stops_the_rest() -> None:
    dock = _dock("canary: {clusters: [tiger], soak_hours: 0}")
    _begin(dock, "tiger#1")
    dock.tick("tiger", lost=["tiger-1", "tiger-2"], is_validated=True)
    dock.go()
    want = "2 of the canary's 4 nodes did not come back; 0 were expected"
    assert _only(_ask(dock, "whale#1")) == ("canary", want)


def test_two_campaigns_share_the_cap_and_never_a_node() -> None:
    dock = _dock("limits: [{kind: out_at_once, at_most: 7}]")
    _begin(dock, "tiger#1")
    text = with_lines(dock.file.replace("campaign: nic", "campaign: bios"))
    campaign = parse_campaign(text, source="bios.yaml")
    roll = make_units(campaign, dock.state.of(Fleet))
    ends = dock.now + timedelta(hours=4)
    batches = tuple(Batch(unit.name, unit.mode, 1, 4, dock.now, ends) for unit in roll.units)
    plan = Plan("bios", 1, Status.FEASIBLE, Score(0.0, 0.0, 0.0, 0.0), 0.0, batches)
    say(dock.keeper, lambda state, _now: (None, record_plan(state, campaign, text, plan, roll)), actor=ACTOR)
    say(dock.keeper, lambda state, now: (None, start(state, "bios", now=now)), actor=ACTOR)
    run_pass(dock.keeper, "bios", actor=ACTOR, outside=Outside(dock.errands))
    run = dock.state.of(Campaigns).runs["bios"]
    assert not run.progress, "4 of nic are out, and 4 more would be over 7"
    gate = Gatekeeper(dock.state, run, dock.now)
    asked = {batch.id: [(str(no.code), no.text) for no in gate.ask(batch)] for batch in batches}
    full = ("limit", "limits[0]: 4 nodes out at once, 4 more would be over 7")
    assert asked["whale#1"] == [full]
    assert asked["tiger#1"] == [("node_leased", "tiger-1 is in batch tiger#1 of nic, which is working")]
    dock.tick("tiger")
    gate = Gatekeeper(dock.state, run, dock.now)
    want = ("node_leased", "tiger-1 is in batch tiger#1 of nic, which is validating")
    assert [(str(no.code), no.text) for no in gate.ask(batches[0])] == [want]


def _lease(dock: Dock, node: str, *, until: str, is_exclusive: bool = True) -> None:
    hold = Hold(
        "rma-7",
        "dana",
        Service.REPAIR,
        "new board",
        dock.now,
        is_exclusive=is_exclusive,
        expires_at=dock.at(until).now,
    )
    dock.at("05T10:00")
    nodes = [dock.state.of(Fleet).nodes[node]]
    act(
        dock.keeper,
        lambda state, acting: place_hold(state, nodes, hold, acting),
        actor="dana",
        reason="new board",
        names=[node],
    )


def test_somebody_who_works_on_a_node_is_not_disturbed() -> None:
    dock = _dock()
    _lease(dock.at("05T10:00"), "tiger-2", until="05T12:00")
    no = _ask(dock.at("05T11:00"), "tiger#1")[0]
    assert (str(no.code), no.text, no.move) == ("node_leased", "dana works on tiger-2: new board", "ask dana")
    assert no.until == dock.at("05T12:00").now
    assert _ask(dock, "tiger#1") == [], "the lease has expired"


def test_a_hold_without_a_lease_is_no_reason() -> None:
    dock = _dock()
    _lease(dock.at("05T10:00"), "tiger-2", until="05T20:00", is_exclusive=False)
    assert _ask(dock.at("05T11:00"), "tiger#1") == []


def test_a_newer_plan_and_a_pause_are_said_first() -> None:
    dock = _dock()
    assert _only(_ask(dock, "tiger#1", 7)) == ("newer_plan", "plan 1 is in force, not 7")
    dock.commit(CampaignPaused("nic"))
    no = _ask(dock.at("05T10:00"), "tiger#1")
    assert [str(each.code) for each in no] == ["not_running", "not_due"]
    assert no[0].text == "the campaign is paused: test"
    assert no[0].move == "plimsoll campaign resume nic"
    assert no[1].until == dock.at("05T11:00").now


def test_nodes_that_went_and_a_fleet_that_the_file_does_not_fit_any_more() -> None:
    dock = _dock()
    dock.retire("tiger-1")
    dock.retire("tiger-4")
    assert _only(_ask(dock, "tiger#1")) == ("nodes_gone", "2 of its 4 nodes are gone from scope (tiger-1, tiger-4)")
    assert _ask(dock, "whale#1") == []
    dock.retire("tiger-2")
    dock.retire("tiger-3")
    dock.go()
    assert dock.step("whale#1") == "working", "others go on"


def test_a_canary_that_is_gone_holds_back_what_has_not_begun_and_nothing_else() -> None:
    dock = _dock("canary: {clusters: [tiger], soak_hours: 0}", tiger=4, whale=8)
    _begin(dock, "tiger#1")
    dock.tick("tiger", is_validated=True)
    dock.go()
    assert dock.step("whale#1") == "working"
    for number in range(1, 5):
        dock.retire(f"tiger-{number}")
    dock.at("06T11:00")
    code, text = _only(_ask(dock, "whale#2"))
    assert code == "nodes_gone"
    assert "tiger" in text
    dock.tick("whale#1", is_validated=True)
    dock.go()
    assert dock.step("whale#1") == "returned", "what was under way is finished"


def test_a_cluster_that_left_the_scope_waits_for_a_new_plan() -> None:
    file = MANUAL.replace("scope: {}\nstart", "scope: {purpose: [research]}\nstart")
    dock = _dock(file=file)
    cluster = dock.state.of(Fleet).clusters["tiger"]
    dock.commit(ClusterRecorded(msgspec.structs.replace(cluster, purpose=Purpose.APPLIED)))
    want = "the fleet is another one now: tiger is not in scope any more"
    assert _only(_ask(dock, "tiger#1")) == ("nodes_gone", want)


def test_a_no_fly_zone_closes_the_day() -> None:
    zone = "no_fly: [{scope: {cluster: [tiger]}, from: 2026-01-05, to: 2026-01-06, why: training run}]"
    dock = _dock(zone)
    assert _only(_ask(dock, "tiger#1")) == ("no_fly", "no-fly zone from 2026-01-05 to 2026-01-06: training run")
    assert _ask(dock, "whale#1") == []


def test_a_batch_begins_so_that_it_ends_in_its_window() -> None:
    dock = _dock()
    assert _ask(dock.at("05T16:10"), "tiger#1") == [], "it ends at 20:10, and a pass comes a little late"
    code, text = _only(_ask(dock.at("05T16:11"), "tiger#1"))
    assert (code, text) == (
        "too_late_today",
        "it would end at 2026-01-05T20:11:00Z, and its window closes at 2026-01-05T20:00:00Z",
    )
    assert _only(_ask(dock.at("06T11:00"), "tiger#1"))[0] == "too_late_today"
