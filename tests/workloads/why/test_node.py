"""Why a node is as it is: what holds it, when it is back, what it did to work, and who waits for it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from plimsoll.commands.why_past import answer_node
from plimsoll.errors import NotFound
from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.health.changes import BreakerTripped, HoldPlaced, NodeMoved, WorkAnnounced
from plimsoll.health.facts import Facts, HealthFact, Hold, Owner
from plimsoll.health.model import Ahead
from plimsoll.workloads.reasons import Cause, Move
from plimsoll.workloads.why.node import NodeWhy, explain_node
from plimsoll.workloads.why.past_text import node_text
from plimsoll.workloads.why.stops import Became
from tests.support.yard import START, Yard, elastic, gang, spec

HOUR = timedelta(hours=1)


def why(yard: Yard, node: str) -> NodeWhy:
    return explain_node(yard.state, node, now=yard.now)


def says(yard: Yard, node: str) -> str:
    return "\n".join(node_text(why(yard, node), now=yard.now))


def tiger(*, a: int = 4, b: int = 0, **teams: int) -> Yard:
    return Yard({"tiger": {"a": a, **({"b": b} if b else {})}}, {"tiger": teams or {"vision": 32}})


def test_a_healthy_node_and_what_runs_on_it() -> None:
    yard = tiger(vision=16, voice=0)
    yard.submit(spec("run", "vision", gang(16)))
    node = min(yard.nodes("run"))
    found = why(yard, node)
    assert (found.cluster, found.island, found.sku, found.gpus) == ("tiger", "tiger-a", "H200", 8)
    assert (found.service, found.health, found.move, found.back) == (Service.IN_SERVICE, "healthy", None, None)
    assert [(each.workload, each.part, each.gpus, each.inside) for each in found.runs] == [("run", "train", 8, 8)]
    assert "8 of its 8 GPUs are used, 8 of them inside guarantees: run/train of vision (8 GPUs, guaranteed)" in says(
        yard, node
    )


def test_flex_on_a_node_is_told_apart_from_guaranteed_work() -> None:
    yard = tiger(a=1, vision=4)
    yard.submit(spec("mine", "vision", elastic(1, 1, 4)), spec("more", "vision", elastic(1, 1, 4, rank=3)))
    runs = why(yard, "tiger-a-1").runs
    assert [(each.workload, each.gpus, each.inside) for each in runs] == [("mine", 4, 4), ("more", 4, 0)]
    assert "more/graders of vision (4 GPUs, flex)" in says(yard, "tiger-a-1")


def test_a_spare_is_told_as_one() -> None:
    yard = tiger()
    yard.submit(spec("run", "vision", gang(16, spare_nodes=1)))
    spares = [name for name in yard.nodes("run") if any(each.is_spare for each in why(yard, name).runs)]
    assert len(spares) == 1
    assert "spare of run/train of vision" in says(yard, spares[0])


def test_work_whose_nodes_nobody_told_is_counted_by_island() -> None:
    yard = tiger()
    yard.observe("seen", "vision", "tiger", "a", 16)
    assert (why(yard, "tiger-a-1").runs, why(yard, "tiger-a-1").unplaced_gpus) == ([], 16)
    assert "16 GPUs of its island are held by work whose nodes nobody told" in says(yard, "tiger-a-1")


def test_a_lost_node_says_why_since_when_and_whose_move() -> None:
    yard = tiger()
    yard.lose("tiger-a-1")
    yard.now += 3 * HOUR
    found = why(yard, "tiger-a-1")
    assert (found.service, found.health, found.is_planned, found.reason) == (
        "quarantined",
        "unhealthy",
        False,
        "xid 79",
    )
    assert (found.since, found.out_since, found.move) == (START, START, Move.HARDWARE)
    assert says(yard, "tiger-a-1").startswith(
        "tiger-a-1 (8 H200, island tiger-a, cluster tiger) is out of service by a fault (quarantined)"
        " since 2026-03-02 09:00 UTC (3 hours): xid 79."
    )


def spare(yard: Yard) -> str:
    yard.submit(spec("run", "vision", gang(16, spare_nodes=1)))
    first = next(name for name in sorted(yard.nodes("run")) if not any(r.is_spare for r in why(yard, name).runs))
    yard.lose(first)
    return first


def free_node(yard: Yard) -> str:
    yard.submit(spec("run", "vision", gang(16)))
    first = min(yard.nodes("run"))
    yard.lose(first)
    return first


def elsewhere(yard: Yard) -> str:
    yard.submit(spec("run", "vision", gang(16)))
    yard.submit(spec("fill", "vision", gang(16, "hold")))
    first = min(yard.nodes("run"))
    yard.lose(first)
    return first


def nowhere(yard: Yard) -> str:
    yard.submit(spec("run", "vision", gang(32)))
    yard.lose("tiger-a-2")
    return "tiger-a-2"


def later(yard: Yard) -> str:
    nowhere(yard)
    yard.now += 2 * HOUR
    yard.bring_back("tiger-a-2")
    return "tiger-a-2"


def given_up(yard: Yard) -> str:
    nowhere(yard)
    yard.now += 2 * HOUR
    yard.cancel("run")
    return "tiger-a-2"


def twice(yard: Yard) -> str:
    """The second loss is another node's; the first is over by then."""
    later(yard)
    yard.now += HOUR
    yard.lose("tiger-a-3")
    return "tiger-a-2"


HURT: dict[str, tuple[Callable[[Yard], str], Yard, Became, str, float | None]] = {
    "its spare stepped in": (spare, tiger(), Became.REPAIRED, "it went on with spare", 0.0),
    "a free node of the island did": (free_node, tiger(), Became.REPAIRED, "it went on with a free node", 0.0),
    "it went to the other island": (
        elsewhere,
        tiger(a=4, b=4, vision=64),
        Became.MOVED,
        "it started again at once in tiger-b",
        0.0,
    ),
    "there is nowhere to go": (
        nowhere,
        tiger(),
        Became.BLOCKED,
        "it waits: nodes_unhealthy, 8 of 32 GPUs are missing in tiger-a",
        None,
    ),
    "it waited for the node": (later, tiger(), Became.RESTARTED, "it started again in tiger-a after 2 hours", 2.0),
    "its owner gave up": (
        given_up,
        tiger(),
        Became.ENDED,
        "it never ran again: cancelled at 2026-03-02 11:00 UTC",
        2.0,
    ),
    "it was lost once more since": (twice, tiger(), Became.RESTARTED, "it started again after 2 hours", 2.0),
}


@pytest.mark.parametrize("case", HURT)
def test_what_became_of_the_gang_that_lost_the_node(case: str) -> None:
    act, yard, want_became, want_how, want_down = HURT[case]
    node = act(yard)
    (found,) = why(yard, node).hurt
    assert (found.workload, found.team, found.outcome.became) == ("run", "vision", want_became)
    assert (found.outcome.how, found.outcome.down_hours) == (want_how, want_down)
    assert f"It interrupted run/{found.part} of vision at 2026-03-02 09:00 UTC: {want_how}." in says(yard, node)


def test_each_of_several_nodes_lost_together_names_the_gang() -> None:
    yard = tiger()
    yard.submit(spec("run", "vision", gang(32)))
    yard.lose("tiger-a-1", "tiger-a-2", "tiger-a-3")
    assert [why(yard, f"tiger-a-{number}").hurt[0].workload for number in (1, 2, 3)] == ["run"] * 3
    assert why(yard, "tiger-a-4").hurt == []


def test_who_waits_for_the_island_and_whether_this_node_is_enough() -> None:
    yard = tiger()
    nowhere(yard)
    (wait,) = why(yard, "tiger-a-2").waits
    assert (wait.workload, wait.cause, wait.gpus, wait.missing) == ("run", Cause.NODES_UNHEALTHY, 32, 8)
    assert (wait.is_guaranteed, wait.is_enough) == (True, True)
    assert not why(yard, "tiger-a-1").waits[0].is_enough, "a node in service can't come back"
    yard.lose("tiger-a-3")
    assert [each.is_enough for each in why(yard, "tiger-a-2").waits] == [False]


def test_those_who_wait_behind_it_are_counted() -> None:
    yard = tiger()
    nowhere(yard)
    yard.cancel("run")
    yard.submit(*(spec(f"run-{number}", "vision", gang(32)) for number in range(3)))
    (wait,) = why(yard, "tiger-a-2").waits
    assert (wait.workload, wait.behind) == ("run-0", 2)
    assert "2 more workloads like it behind it." in says(yard, "tiger-a-2")


def test_planned_work_is_not_a_fault() -> None:
    yard = tiger()
    yard.set_service(["tiger-a-1"], Service.MAINTENANCE, "planned: firmware")
    found = why(yard, "tiger-a-1")
    assert (found.is_planned, found.move) == (True, Move.PLANNED_WORK)
    assert "out of service for planned work (maintenance)" in says(yard, "tiger-a-1")


def hold(yard: Yard, **fields: object) -> None:
    told = Hold("h1", "plimsoll", Service.REPAIR, "xid 79 on gpu 3", yard.now, signal="xid/79", **fields)  # type: ignore[arg-type]
    facts = Facts(HealthFact.UNHEALTHY, Owner.PROVIDER, "xid 79", "dcgm", told.expected_return)
    yard.do(
        HoldPlaced("tiger-a-1", told),
        NodeMoved("tiger-a-1", Service.REPAIR, facts, {"service": "in_service"}),
    )


def test_a_hold_names_its_signal_its_owner_and_when_the_node_is_back() -> None:
    yard = tiger()
    hold(yard, expected_return=START + 5 * HOUR)
    found = why(yard, "tiger-a-1")
    assert [(each.hold, each.owner, each.signal, each.until) for each in found.holds] == [
        ("h1", "plimsoll", "xid/79", None)
    ]
    assert found.back is not None
    assert (found.back.at, found.back.is_told, found.back.by) == (START + 5 * HOUR, True, "dcgm")
    assert (found.move, found.whose) == (Move.HARDWARE, "the provider")
    assert "Expected back at 2026-03-02 14:00 UTC (in 5 hours), says dcgm." in says(yard, "tiger-a-1")


def test_a_return_that_was_told_and_has_passed_is_overdue() -> None:
    yard = tiger()
    hold(yard, expected_return=START + HOUR)
    yard.now += 2 * HOUR
    back = why(yard, "tiger-a-1").back
    assert back is not None
    assert (back.at, back.is_told, back.overdue_since) == (None, False, START + HOUR)
    assert "It was expected back at 2026-03-02 10:00 UTC, and is overdue." in says(yard, "tiger-a-1")


def test_where_nobody_said_when_repair_history_answers() -> None:
    """The one fault that was seen to end took 10 hours: half of them are over then."""
    yard = tiger()
    yard.set_service(["tiger-a-2"], Service.REPAIR, "ecc")
    yard.now += 10 * HOUR
    yard.bring_back("tiger-a-2")
    yard.now += HOUR
    yard.lose("tiger-a-1")
    back = why(yard, "tiger-a-1").back
    assert back is not None
    assert (back.at, back.is_told, back.by) == (yard.now + 10 * HOUR, False, "repair history")
    assert "half of such faults are repaired by 2026-03-03 06:00 UTC (in 10 hours)" in says(yard, "tiger-a-1")


def test_without_any_history_nothing_is_claimed() -> None:
    yard = tiger()
    yard.lose("tiger-a-1")
    back = why(yard, "tiger-a-1").back
    assert back is not None
    assert back.at is None
    assert "Nobody said when it is back, and there is no repair history to go by." in says(yard, "tiger-a-1")


def test_how_long_repairs_take_says_nothing_of_a_node_that_joins() -> None:
    yard = tiger()
    yard.set_service(["tiger-a-2"], Service.REPAIR, "ecc")
    yard.now += 10 * HOUR
    yard.bring_back("tiger-a-2")
    yard.do(NodeRecorded(Node("tiger-a-9", "tiger", "tiger-a", "H200", 8, Service.JOINING, yard.now, "new"), {}))
    back = why(yard, "tiger-a-9").back
    assert back is not None
    assert back.at is None
    assert "is not in service yet (joining)" in says(yard, "tiger-a-9")


def test_work_that_was_announced_is_told() -> None:
    yard = tiger()
    yard.do(
        WorkAnnounced(Ahead("fw", "dc-ops", ("tiger-a-1",), START + HOUR, START + 2 * HOUR, "firmware")),
        WorkAnnounced(Ahead("old", "dc-ops", ("tiger-a-1",), START - 2 * HOUR, START - HOUR, "cables")),
    )
    assert [(each.work, each.owner) for each in why(yard, "tiger-a-1").ahead] == [("fw", "dc-ops")]
    assert why(yard, "tiger-a-2").ahead == []
    assert "Planned work ahead: fw by dc-ops, 2026-03-02 10:00 UTC to 2026-03-02 11:00 UTC: firmware." in says(
        yard, "tiger-a-1"
    )


def test_a_lemon_is_called_one() -> None:
    yard = tiger()
    for _ in range(4):
        yard.lose("tiger-a-1")
        yard.now += HOUR
        yard.bring_back("tiger-a-1")
        yard.now += HOUR
    assert (why(yard, "tiger-a-1").is_lemon, why(yard, "tiger-a-1").exits) == (True, 4)
    assert not why(yard, "tiger-a-2").is_lemon
    assert "It is a lemon: 4 unplanned exits in 30 days." in says(yard, "tiger-a-1")


def test_a_breaker_that_holds_automation_back_is_told() -> None:
    yard = tiger()
    yard.do(BreakerTripped("fleet", 3, 3600.0, 4, ["tiger-a-1"]))
    found = why(yard, "tiger-a-1")
    assert (found.held_back, found.move) == (["fleet"], Move.HARDWARE)


def test_an_unhealthy_node_in_service_is_somebodys_move() -> None:
    yard = tiger()
    yard.do(
        NodeMoved("tiger-a-1", Service.IN_SERVICE, Facts(HealthFact.UNHEALTHY, why="xid 79"), {"health": "healthy"})
    )
    assert why(yard, "tiger-a-1").move is Move.HARDWARE


def test_a_name_that_is_nearly_right_is_offered() -> None:
    with pytest.raises(NotFound) as error:
        why(tiger(), "tigr-a-1")
    assert (error.value.code, error.value.fields) == ("unknown_node", {"node": "tigr-a-1"})
    assert "did you mean 'tiger-a-1'" in error.value.message


def test_the_table_lists_whom_it_concerns() -> None:
    yard = tiger(vision=40)
    node = nowhere(yard)
    answer = answer_node(yard.state, node, yard.now)
    assert [(row[0], row[1]) for row in answer.tables[0].rows] == [("blocked", "run"), ("waits", "run")]
    assert answer.document["node"] == node
    assert yard.state.of(Fleet).nodes[node].service is Service.QUARANTINED
