"""`why WORKLOAD`: what it needs, where it comes closest, what stands in the way, when it can start."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import pytest

from plimsoll.errors import NotFound, Refused, UsageError
from plimsoll.fleet.model import Service
from plimsoll.health.changes import WorkAnnounced
from plimsoll.health.model import Ahead
from plimsoll.quota.model import Tier
from plimsoll.quota.plan import policy_in_force
from plimsoll.workloads.changes import TeamHoldPlaced
from plimsoll.workloads.model import RunsAs, TeamHold
from plimsoll.workloads.why.ask import explain_if, parse_if, spec_of
from plimsoll.workloads.why.model import WorkWhy
from plimsoll.workloads.why.workload import explain_workload
from tests.support.yard import Yard, elastic, gang, spec

GRACE = timedelta(minutes=15)


def why(yard: Yard, name: str) -> WorkWhy:
    return explain_workload(yard.state, name, now=yard.now, grace=yard.grace, policy=policy_in_force(yard.state))


def why_if(yard: Yard, *words: str) -> WorkWhy:
    found = spec_of(yard.state, parse_if(words))
    return explain_if(yard.state, found, now=yard.now, grace=yard.grace, policy=policy_in_force(yard.state))


def two_graders() -> Yard:
    """The design's example: island b has 45 nodes (360 GPUs), and two grader replicas of 10 are in it."""
    yard = Yard({"tiger": {"a": 20, "b": 45}}, {"tiger": {"red": 352, "blue": 168}})
    yard.submit(spec("filler", "blue", gang(160)))  # fills a, so that the graders go to b
    yard.submit(spec("eval", "blue", elastic(0, 2, gpus=10)))
    yard.cancel("filler")
    yard.submit(spec("posttrain-42", "red", gang(352)))
    return yard


def test_the_example_of_the_design_word_for_word() -> None:
    found = why(two_graders(), "posttrain-42")
    assert (found.standing, found.cause, found.missing) == ("waiting", "island_fragmented", 12)
    assert found.answer[0] == (
        "No: posttrain-42 can't start now. The largest free block is 340 in island tiger-b (H200 of tiger); you need"
        " 352: 12 short; 2 replicas of eval/graders stand in the way."
    )
    assert "move 2 replicas of eval/graders from tiger-b to tiger-a" in found.answer[-1]
    assert not found.is_search_cut
    [near] = found.near
    assert (near.island, near.free, near.callable, near.installed) == ("tiger-b", 340, 0, 360)
    assert [(each.cause, each.gpus) for each in near.steps] == [("in_use_by_others", 20)]
    assert [(each.workload, each.count, each.gpus) for each in near.in_way] == [("eval", 2, 20)]


def test_what_was_not_submitted_gets_the_same_answer() -> None:
    yard = two_graders()
    yard.cancel("posttrain-42")
    before = yard.state.dump()
    found = why_if(yard, "gpus=352", "sku=H200", "island", "team=red")
    assert (found.workload, found.missing, found.near[0].free) == ("", 12, 340)
    assert found.near[0].runs_as == "guaranteed"
    assert found.near[0].in_way == why(two_graders(), "posttrain-42").near[0].in_way
    assert yard.state.dump() == before


def test_without_a_team_it_is_asked_for_capacity_alone() -> None:
    """340 are free in b: 340 could start as flex, 352 could not."""
    yard = two_graders()
    yard.cancel("posttrain-42")
    assert why_if(yard, "gpus=340", "sku=H200", "island").standing == "startable"
    found = why_if(yard, "gpus=352", "sku=H200", "island")
    assert (found.standing, found.near[0].runs_as, found.missing) == ("waiting", "flex", 12)


def test_without_island_it_may_be_spread() -> None:
    """Free are 340 in b, of which 42 nodes' worth of replicas of 8, and 160 in a: 62 replicas, 496 GPUs."""
    yard = two_graders()
    yard.cancel("posttrain-42")
    assert why_if(yard, "gpus=496", "sku=H200").standing == "startable"
    found = why_if(yard, "gpus=504", "sku=H200")
    assert (found.standing, found.missing, found.near[0].free) == ("waiting", 8, 496)


def test_nodes_in_repair_with_their_reason_and_when_they_are_back() -> None:
    """4 of 4 nodes are needed and one is in repair."""
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 32}})
    yard.set_service(["tiger-a-3"], Service.REPAIR, "xid 79")
    yard.submit(spec("r1", "red", gang(32)))
    found = why(yard, "r1")
    assert (found.cause, found.missing, found.earliest) == ("nodes_unhealthy", 8, None)
    [step] = found.near[0].steps
    assert (step.cause, step.gpus, step.of[0].name) == ("nodes_unhealthy", 8, "xid 79")
    assert "tiger-a-3" in step.of[0].says


def test_repair_history_says_when_a_node_is_back() -> None:
    """Every repair so far took 10 hours, and this one has lasted 4: 6 more."""
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 32}})
    for _ in range(3):
        yard.set_service(["tiger-a-1"], Service.REPAIR, "xid 79")
        yard.wait(hours=10)
        yard.set_service(["tiger-a-1"], Service.IN_SERVICE)
        yard.wait(hours=30)
    yard.set_service(["tiger-a-3"], Service.REPAIR, "xid 79")
    yard.wait(hours=4)
    yard.submit(spec("r1", "red", gang(32)))
    found = why(yard, "r1")
    assert (found.earliest, found.is_estimate) == (yard.now + timedelta(hours=6), True)
    [action] = [each for each in found.actions if each.acts[0].kind == "wait_nodes"]
    assert "tiger-a-3" in action.acts[0].says


def test_what_of_the_teams_own_work_comes_before_it() -> None:
    """32 guaranteed: 16 used by a critical run, 8 kept for ana; 8 are left for a gang of 16, and 8 are free in c."""
    yard = Yard({"tiger": {"a": 2, "b": 1, "c": 2}}, {"tiger": {"red": 32, "blue": 8}})
    yard.set_service(["tiger-c-1"], Service.REPAIR, "xid 79")
    yard.submit(spec("first", "red", gang(16, tier=Tier.CRITICAL)))
    until = yard.now + timedelta(days=1)
    yard.do(TeamHoldPlaced(TeamHold("h1", "red", "tiger", "H200", 8, "ana", until)))
    yard.submit(spec("other", "blue", gang(8)))
    yard.submit(spec("mine", "red", gang(16), owner="bo"))
    found = why(yard, "mine")
    position = found.position
    assert position is not None
    assert (position.guaranteed, position.left, position.gpus, position.missing) == (32, 8, 16, 16)
    assert [(each.name, each.gpus) for each in position.before] == [("first/train", 16)]
    assert [(each.name, each.gpus) for each in position.kept] == [("h1", 8)]
    assert found.cause == "team_held"
    assert "8 are left for it and it needs 16" in " ".join(found.answer)


def test_own_work_that_comes_after_it_is_not_before_it() -> None:
    """24 guaranteed: 16 used by a critical run; 8 are left for a gang of 16, whatever a low run of 8 uses of them."""
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 24, "blue": 8}})
    yard.submit(spec("first", "red", gang(16, tier=Tier.CRITICAL)), spec("last", "red", gang(8, tier=Tier.LOW)))
    yard.submit(spec("mine", "red", gang(16, tier=Tier.MID)))
    position = why(yard, "mine").position
    assert position is not None
    assert ([each.name for each in position.before], position.before_gpus) == (["first/train"], 16)
    assert (position.left, position.missing) == (8, 16)


def test_flex_that_would_leave_is_counted_apart() -> None:
    """32 are installed: 8 are out, 8 blue's inside its guarantee, 8 blue's flex, and 8 free. Red needs 24."""
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 24, "blue": 8}})
    yard.submit(spec("b1", "blue", gang(8)))
    yard.submit(spec("b2", "blue", elastic(0, 1), runs_as=RunsAs.FLEX))
    used = yard.nodes("b1") | yard.nodes("b2")
    yard.set_service([min({f"tiger-a-{number}" for number in range(1, 5)} - used)], Service.REPAIR, "xid 79")
    yard.submit(spec("mine", "red", gang(24)))
    [near] = why(yard, "mine").near
    assert (near.free, near.callable, near.missing, near.installed) == (8, 8, 8, 32)
    assert [(each.cause, each.gpus) for each in near.steps] == [("nodes_unhealthy", 8), ("in_use_by_others", 8)]
    assert [each.workload for each in near.in_way] == ["b1"]


def test_the_team_with_the_most_flex_for_its_guarantee_goes_first() -> None:
    """Blue has 8 as flex for a guarantee of 8, red 24 for one of 16."""
    yard = Yard({"tiger": {"a": 8}}, {"tiger": {"blue": 8, "red": 16}})
    yard.submit(spec("b1", "blue", gang(8), runs_as=RunsAs.FLEX), spec("r1", "red", gang(24), runs_as=RunsAs.FLEX))
    assert "it goes first" in why(yard, "r1").threats[0].says
    assert "24 GPUs of other flex go before it" in why(yard, "b1").threats[0].says


def test_planned_work_ahead_is_said_with_its_time() -> None:
    yard = Yard({"tiger": {"a": 2}}, {"tiger": {"red": 16}})
    starts = yard.now + timedelta(hours=5)
    yard.do(WorkAnnounced(Ahead("fw", "crew", ("tiger-a-1",), starts, starts + timedelta(hours=4), "nic firmware")))
    yard.submit(spec("r1", "red", gang(16), hours=24))
    found = why(yard, "r1")
    assert (found.cause, found.missing, found.earliest) == ("planned_ahead", 8, starts + timedelta(hours=4))
    assert not found.is_estimate
    assert [(each.cause, each.gpus) for each in found.near[0].steps] == [("planned_ahead", 8)]
    assert "nic firmware" in " ".join(found.notes)


def test_an_island_kept_for_another_is_named() -> None:
    """Green's gang of 24 waits for island a and keeps it; what comes after it may not take what is free there."""
    yard = Yard({"tiger": {"a": 3}}, {"tiger": {"red": 8, "green": 8, "blue": 8}})
    yard.submit(spec("r1", "red", gang(8)))
    yard.submit(spec("big", "green", gang(24), runs_as=RunsAs.FLEX))
    yard.submit(spec("late", "green", gang(16), runs_as=RunsAs.FLEX))
    found = why(yard, "late")
    assert found.cause == "reserved"
    [step] = [each for each in found.near[0].steps if each.cause == "reserved"]
    assert (step.gpus, step.of[0].name) == (16, "big")


def test_flex_that_is_taken() -> None:
    """Everything is used inside guarantees: a team without one finds nothing."""
    yard = Yard({"tiger": {"a": 2}}, {"tiger": {"red": 16}})
    yard.submit(spec("r1", "red", gang(16)), spec("f1", "red", gang(8), runs_as=RunsAs.FLEX))
    found = why(yard, "f1")
    assert (found.cause, found.missing) == ("flex_taken", 8)
    assert [(each.cause, each.gpus) for each in found.near[0].steps] == [("in_use", 16)]


def test_work_that_was_booked_room_starts_when_it_is_due() -> None:
    yard = Yard({"tiger": {"a": 2}}, {"tiger": {"red": 16, "blue": 0}}, grace=GRACE)
    yard.submit(spec("f1", "red", elastic(1, 2), runs_as=RunsAs.FLEX))
    yard.submit(spec("r1", "red", gang(16)))
    found = why(yard, "r1")
    assert (found.standing, found.cause, found.earliest) == ("starting", "lent_draining", yard.now + GRACE)
    assert "f1" in found.answer[0]
    threats = why(yard, "f1").threats
    assert [(each.cause, each.gpus, each.at) for each in threats if each.cause == "preempted"] == [
        ("preempted", 16, yard.now + GRACE)
    ]


def test_a_booking_that_is_overdue_waits_for_a_round() -> None:
    """It was due 15 minutes after it was booked; nobody ran a round for 20 more."""
    yard = Yard({"tiger": {"a": 2}}, {"tiger": {"red": 16, "blue": 0}}, grace=GRACE)
    yard.submit(spec("f1", "red", elastic(1, 2), runs_as=RunsAs.FLEX))
    yard.submit(spec("r1", "red", gang(16)))
    yard.now += GRACE + timedelta(minutes=20)
    answer = why(yard, "r1").answer
    assert "should have started at 2026-03-02T09:15:00Z in tiger and is 20 minutes overdue" in answer[0]
    assert "plimsoll workload run" in answer[1]


def test_work_that_was_stopped_says_so_after_the_answer() -> None:
    """Blue's gang of 32 is flex, red's of 16 inside its guarantee: what is left is too small for it."""
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 16, "blue": 8}})
    yard.submit(spec("b1", "blue", gang(32), runs_as=RunsAs.FLEX))
    yard.wait(hours=1)
    yard.submit(spec("r1", "red", gang(16)))
    found = why(yard, "b1")
    assert found.answer[1] == (
        "train was stopped at 2026-03-02 10:00 UTC by r1 of red (it lies inside its team's guarantee, and a guarantee"
        " calls flex back)."
    )
    assert len(found.interruptions) == 1


def test_replicas_that_were_called_back_are_told_of_work_that_runs_on() -> None:
    """Of four replicas as flex two make room for a gang of 16."""
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 16, "blue": 8}})
    yard.submit(spec("b1", "blue", elastic(1, 4), runs_as=RunsAs.FLEX))
    yard.wait(hours=1)
    yard.submit(spec("r1", "red", gang(16)))
    [line] = why(yard, "b1").interruptions
    assert line.startswith("2026-03-02 10:00 UTC graders: shrunk by 16 GPUs, made room for r1 of red (")


def test_nodes_that_died_are_told_as_such() -> None:
    yard = Yard({"tiger": {"a": 3}}, {"tiger": {"red": 16}})
    yard.submit(spec("r1", "red", gang(16)))
    node = min(yard.nodes("r1"))
    yard.lose(node)
    [line] = why(yard, "r1").interruptions
    assert line == f"2026-03-02 09:00 UTC train: lost 1 node: {node} (quarantined, xid 79); it went on with a free node"


def test_more_nodes_than_are_named_are_counted() -> None:
    """Four of five graders go at once, and three of their nodes are named."""
    yard = Yard({"tiger": {"a": 5}}, {"tiger": {"red": 40}})
    yard.submit(spec("eval", "red", elastic(1, 5)))
    yard.lose("tiger-a-1", "tiger-a-2", "tiger-a-3", "tiger-a-4")
    [line] = why(yard, "eval").interruptions
    assert line == (
        "2026-03-02 09:00 UTC graders: shrunk by 32 GPUs, lost 4 nodes: tiger-a-1 (quarantined, xid 79);"
        " tiger-a-2 (quarantined, xid 79); tiger-a-3 (quarantined, xid 79) and 1 more"
    )


class Insists(NamedTuple):
    guaranteed: dict[str, int]
    want_cause: str
    want_missing: int
    want_says: str
    want_command: str


INSISTS = {
    "no alignment was applied": Insists(
        {}, "not_aligned", 16, "no alignment was applied to H200 of tiger", "plimsoll quota plan tiger"
    ),
    "nothing is guaranteed to its team": Insists(
        {"blue": 8},
        "no_guarantee",
        16,
        "nothing of H200 of tiger is guaranteed to red",
        "plimsoll quota request red 16 --sku H200 --cluster tiger",
    ),
    "too little is guaranteed": Insists(
        {"red": 8, "blue": 8},
        "over_guarantee",
        8,
        "8 are left for it and it needs 16: 8 GPUs of guarantee short",
        "plimsoll quota request red 8 --sku H200 --cluster tiger",
    ),
}


@pytest.mark.parametrize("case", INSISTS.values(), ids=INSISTS)
def test_work_that_insists_on_a_guarantee_is_told_of_the_guarantee(case: Insists) -> None:
    """All 32 GPUs are free: room is not what it lacks."""
    yard = Yard(
        {"tiger": {"a": 4}},
        {"tiger": case.guaranteed} if case.guaranteed else None,
        assigned={"tiger": {"red": 16, "blue": 8}},
    )
    yard.submit(spec("mine", "red", gang(16), runs_as=RunsAs.GUARANTEED))
    found = why(yard, "mine")
    assert (found.cause, found.missing, found.near) == (case.want_cause, case.want_missing, ())
    assert case.want_says in found.answer[0]
    assert case.want_command in found.answer[1]
    assert "flex" not in found.answer[0]
    assert "0 short" not in " ".join(found.answer)


def test_work_that_insists_comes_closest_where_its_guarantee_is() -> None:
    """Lion is empty, but all of red's guarantee is in tiger, where one of two nodes is out."""
    yard = Yard({"tiger": {"a": 2}, "lion": {"a": 4}}, {"tiger": {"red": 16}, "lion": {"blue": 8}})
    yard.set_service(["tiger-a-1"], Service.REPAIR, "xid 79")
    yard.submit(spec("mine", "red", gang(16), runs_as=RunsAs.GUARANTEED))
    found = why(yard, "mine")
    assert [(each.cluster, each.missing) for each in found.near] == [("tiger", 8)]


def test_what_comes_before_it_is_named_once() -> None:
    """Two replicas in two islands are one part of 16."""
    yard = Yard({"tiger": {"a": 1, "b": 1}}, {"tiger": {"red": 16}})
    yard.submit(spec("first", "red", elastic(2, 2, tier=Tier.CRITICAL)))
    assert yard.islands("first") == {"a": 8, "b": 8}
    yard.submit(spec("mine", "red", gang(8)))
    position = why(yard, "mine").position
    assert position is not None
    assert [(each.name, each.gpus) for each in position.before] == [("first/graders", 16)]


def test_work_that_runs_tells_as_what_and_what_threatens_it() -> None:
    """16 of r1 are guaranteed and 8 are flex; planned work takes one of its nodes tomorrow."""
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 16, "blue": 8}})
    yard.submit(spec("r1", "red", elastic(1, 3)), spec("b1", "blue", elastic(1, 2, gpus=4)))
    node = min(yard.nodes("r1"))
    starts = yard.now + timedelta(days=1)
    yard.do(WorkAnnounced(Ahead("fw", "crew", (node,), starts, starts + timedelta(hours=4), "nic firmware")))
    found = why(yard, "r1")
    assert found.standing == "running"
    assert found.answer[0].startswith("r1 runs: 24 GPUs, 16 guaranteed and 8 as flex, in H200 of tiger")
    assert [(each.cause, each.gpus) for each in found.threats] == [("planned_ahead", 8), ("flex_taken", 8)]
    assert "it goes first" in found.threats[1].says
    assert "nothing threatens" in why(yard, "b1").answer[1].casefold()


def test_interruptions_are_told_the_newest_first() -> None:
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 16}})
    yard.submit(spec("r1", "red", gang(16)))
    for _ in range(2):
        yard.wait(hours=1)
        yard.lose(min(yard.nodes("r1")))
    found = why(yard, "r1").interruptions
    assert len(found) == 2
    assert found[0] > found[1]
    assert "xid 79" in found[0]


def test_a_part_that_finds_no_room_is_blamed_and_not_the_gang_that_does() -> None:
    """Blue has one of 4 nodes. The gang of 16 fits into the others; then two replicas of 8 do not."""
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 24, "blue": 8}})
    yard.submit(spec("b1", "blue", gang(8)))
    yard.submit(spec("r1", "red", gang(16), elastic(2, 2)))
    found = why(yard, "r1")
    assert (found.near[0].part, found.near[0].free, found.missing) == ("graders", 8, 8)
    assert [(each.cause, each.gpus) for each in found.near[0].steps] == [("in_use", 16), ("in_use_by_others", 8)]


BAD_TERMS = {
    "a key that there is not": (("gpus=8", "sku=H200", "teams=red"), UsageError, "did you mean team"),
    "no number of GPUs": (("gpus=many", "sku=H200"), UsageError, "no number"),
    "no GPUs at all": (("gpus=0", "sku=H200"), UsageError, "can't be asked"),
    "an unknown SKU": (("gpus=8", "sku=H20"), NotFound, "did you mean H200"),
    "no SKU": (("gpus=8",), UsageError, "says no sku"),
    "a term twice": (("gpus=8", "gpus=16", "sku=H200"), UsageError, "twice"),
    "cluster and area": (("gpus=8", "sku=H200", "cluster=tiger", "area=us"), UsageError, "exclude"),
    "an unknown team": (("gpus=8", "sku=H200", "team=rod"), NotFound, "did you mean red"),
    "an unknown cluster": (("gpus=8", "sku=H200", "cluster=tigre"), NotFound, "did you mean tiger"),
    "a tier that there is not": (("gpus=8", "sku=H200", "tier=hi"), UsageError, "tier"),
    "no duration": (("gpus=8", "sku=H200", "hours=-1"), UsageError, "no duration"),
    "larger than any island": (("gpus=64", "sku=H200", "island"), Refused, "^it needs 64 GPUs .* the largest has 16"),
    "larger than any cluster": (("gpus=64", "sku=H200"), Refused, "the largest pool has 16"),
}


@pytest.mark.parametrize(("words", "want", "match"), BAD_TERMS.values(), ids=BAD_TERMS)
def test_bad_terms(words: tuple[str, ...], want: type[Exception], match: str) -> None:
    yard = Yard({"tiger": {"a": 2}}, {"tiger": {"red": 16}})
    with pytest.raises(want, match=match):
        why_if(yard, *words)


def test_an_unknown_name_is_refused_with_the_near_one() -> None:
    yard = Yard({"tiger": {"a": 2}}, {"tiger": {"red": 16}})
    yard.submit(spec("posttrain-42", "red", gang(8)))
    for name, want in {"postrain-42": "posttrain-42", "tiger-a-9": "tiger-a-"}.items():
        with pytest.raises(NotFound, match=f"did you mean {want}"):
            why(yard, name)
