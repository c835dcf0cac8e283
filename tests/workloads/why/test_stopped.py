"""Why work stopped: node and signal, preemptor and right, planned work, person, or no cause of ours."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from plimsoll.commands.why_past import answer_stopped
from plimsoll.errors import NotFound
from plimsoll.fleet.model import Service
from plimsoll.quota.model import Tier
from plimsoll.workloads.changes import WorkloadEnded
from plimsoll.workloads.model import Right, RunsAs
from plimsoll.workloads.reasons import Cause, Move
from plimsoll.workloads.why.past_text import stopped_text
from plimsoll.workloads.why.stopped import Ending, Standing, StoppedBy, StoppedWhy, explain_stopped
from plimsoll.workloads.why.stops import Became
from tests.support.yard import START, Yard, elastic, gang, spec

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def why(yard: Yard, name: str = "run", ending: Ending | None = None) -> StoppedWhy:
    return explain_stopped(yard.state, name, now=yard.now, ending=ending)


def says(yard: Yard, name: str = "run", ending: Ending | None = None) -> str:
    return "\n".join(stopped_text(why(yard, name, ending), now=yard.now))


def four(**teams: int) -> Yard:
    return Yard({"tiger": {"a": 4}}, {"tiger": teams or {"vision": 32}})


def runs_on(yard: Yard) -> None:
    yard.submit(spec("run", "vision", gang(32)))


def never_started(yard: Yard) -> None:
    yard.observe("other", "vision", "tiger", "a", 32)
    yard.submit(spec("run", "vision", gang(32, tier=Tier.LOW)))


def loses_a_node(yard: Yard) -> None:
    runs_on(yard)
    yard.now += HOUR
    yard.lose("tiger-a-2")


def planned_work(yard: Yard) -> None:
    runs_on(yard)
    yard.now += HOUR
    yard.set_service(["tiger-a-2"], Service.MAINTENANCE, "planned: firmware")
    yard.round()


def repaired(yard: Yard) -> None:
    yard.submit(spec("run", "vision", gang(16)))
    yard.now += HOUR
    yard.lose(min(yard.nodes("run")))


def cancelled(yard: Yard) -> None:
    runs_on(yard)
    yard.now += HOUR
    yard.cancel("run")


def cancelled_before_it_ran(yard: Yard) -> None:
    never_started(yard)
    yard.cancel("run")


def cancelled_while_it_waited(yard: Yard) -> None:
    loses_a_node(yard)
    yard.now += HOUR
    yard.cancel("run")


def end(yard: Yard, how: str) -> None:
    yard.do(WorkloadEnded("run", how))


def finished(yard: Yard) -> None:
    runs_on(yard)
    yard.now += HOUR
    end(yard, "finished")


def failed_long_after_a_repair(yard: Yard) -> None:
    repaired(yard)
    yard.now += HOUR
    end(yard, "failed")


def failed_soon_after_a_repair(yard: Yard) -> None:
    repaired(yard)
    yard.now += 10 * MINUTE
    end(yard, "failed")


def elastic_without_a_replica(yard: Yard) -> None:
    yard.submit(spec("run", "vision", elastic(4, 4)))
    yard.now += HOUR
    yard.lose("tiger-a-1", "tiger-a-2", "tiger-a-3", "tiger-a-4")


CASES: dict[str, tuple[Callable[[Yard], None], Standing, StoppedBy, Move]] = {
    "it runs": (runs_on, Standing.RUNNING, StoppedBy.NOT_STOPPED, Move.WAIT),
    "it waits since it was submitted": (never_started, Standing.WAITING, StoppedBy.NEVER_STARTED, Move.WAIT),
    "a node died under it": (loses_a_node, Standing.WAITING, StoppedBy.NODE_LOST, Move.HARDWARE),
    "planned work took a node": (planned_work, Standing.WAITING, StoppedBy.PLANNED_WORK, Move.PLANNED_WORK),
    "it was repaired at once": (repaired, Standing.RUNNING, StoppedBy.NODE_LOST, Move.HARDWARE),
    "somebody cancelled it": (cancelled, Standing.ENDED, StoppedBy.CANCELLED, Move.OWNER),
    "somebody cancelled it before it ran": (cancelled_before_it_ran, Standing.ENDED, StoppedBy.CANCELLED, Move.OWNER),
    "somebody gave up waiting for a node": (
        cancelled_while_it_waited,
        Standing.ENDED,
        StoppedBy.NODE_LOST,
        Move.HARDWARE,
    ),
    "it finished": (finished, Standing.ENDED, StoppedBy.NO_INFRASTRUCTURE_CAUSE, Move.OWNER),
    "it failed an hour after a repair": (
        failed_long_after_a_repair,
        Standing.ENDED,
        StoppedBy.NO_INFRASTRUCTURE_CAUSE,
        Move.OWNER,
    ),
    "it failed 10 minutes after a repair": (
        failed_soon_after_a_repair,
        Standing.ENDED,
        StoppedBy.NODE_LOST,
        Move.HARDWARE,
    ),
    "an elastic part has no replica left": (
        elastic_without_a_replica,
        Standing.WAITING,
        StoppedBy.NODE_LOST,
        Move.HARDWARE,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_why_it_stopped(case: str) -> None:
    act, want_standing, want_because, want_move = CASES[case]
    yard = four()
    act(yard)
    found = why(yard)
    assert (found.standing, found.because, found.move) == (want_standing, want_because, want_move)
    assert says(yard)


def test_the_node_its_signal_and_what_is_missing_are_named() -> None:
    yard = four()
    loses_a_node(yard)
    yard.now += 2 * HOUR
    (stop,) = why(yard).stops
    assert [(loss.node, loss.service, loss.reason) for loss in stop.nodes] == [("tiger-a-2", "quarantined", "xid 79")]
    assert (stop.outcome.became, why(yard).waits_for) == (Became.BLOCKED, Cause.NODES_UNHEALTHY)
    text = says(yard)
    assert text.startswith(
        "run of vision stopped at 2026-03-02 10:00 UTC, 2 hours ago, and waits: a node was lost.\n"
        "At 2026-03-02 10:00 UTC train lost 1 node: tiger-a-2 (quarantined, xid 79).\n"
        "What became of it: it waits: nodes_unhealthy, 8 of 32 GPUs are missing in tiger-a.\n"
        "The move is the hardware engineers' (hardware).\n"
    )


def test_one_that_waits_behind_another_of_its_shape_has_a_reason_as_well() -> None:
    yard = four()
    yard.lose("tiger-a-1")
    yard.submit(*(spec(name, "vision", gang(32)) for name in ("run-0", "run-1")))
    assert why(yard, "run-0").waits_for is Cause.NODES_UNHEALTHY
    assert (why(yard, "run-1").because, why(yard, "run-1").waits_for is None) == (StoppedBy.NEVER_STARTED, False)


def test_several_nodes_lost_at_once_are_named_as_far_as_they_were_told_and_all_counted() -> None:
    yard = four()
    runs_on(yard)
    yard.lose("tiger-a-1", "tiger-a-2", "tiger-a-3", "tiger-a-4")
    (stop,) = why(yard).stops
    assert [(loss.node, loss.reason) for loss in stop.nodes] == [(f"tiger-a-{n}", "xid 79") for n in (1, 2, 3)]
    assert stop.nodes_more == 1
    assert (
        "train lost 4 nodes: tiger-a-1 (quarantined, xid 79); tiger-a-2 (quarantined, xid 79);"
        " tiger-a-3 (quarantined, xid 79) and 1 more."
    ) in says(yard)


def test_a_reason_that_ends_like_a_count_of_nodes_is_a_reason() -> None:
    yard = four()
    runs_on(yard)
    yard.lose("tiger-a-2", reason="xid 79 and 2 more")
    (stop,) = why(yard).stops
    assert ([(loss.node, loss.reason) for loss in stop.nodes], stop.nodes_more) == (
        [("tiger-a-2", "xid 79 and 2 more")],
        0,
    )


def guaranteed_first(yard: Yard) -> str:
    """Flex of voice gives way to the guarantee of vision."""
    yard.submit(spec("run", "voice", gang(32), runs_as=RunsAs.FLEX))
    yard.now += HOUR
    yard.submit(spec("first", "vision", gang(16)))
    return "first"


def fair_share(yard: Yard) -> str:
    """Both are flex: voice holds 32 for its 8, vision would hold 8 for its 16."""
    yard.submit(spec("run", "voice", gang(32), runs_as=RunsAs.FLEX))
    yard.now += HOUR
    yard.submit(spec("first", "vision", gang(8), runs_as=RunsAs.FLEX))
    return "first"


def team_order(yard: Yard) -> str:
    yard.submit(spec("run", "vision", gang(32, tier=Tier.LOW), runs_as=RunsAs.FLEX))
    yard.now += HOUR
    yard.submit(spec("first", "vision", gang(16, tier=Tier.CRITICAL)))
    return "first"


RIGHTS: dict[str, tuple[Callable[[Yard], str], str, Right]] = {
    "a guarantee calls flex back": (guaranteed_first, "vision", Right.GUARANTEE),
    "less flex for its guarantee": (fair_share, "vision", Right.FAIR_SHARE),
    "its own team's order": (team_order, "vision", Right.TEAM_ORDER),
}


@pytest.mark.parametrize("case", RIGHTS)
def test_the_preemptor_and_its_right(case: str) -> None:
    act, want_team, want_right = RIGHTS[case]
    yard = four(vision=16, voice=8)
    preemptor = act(yard)
    found = why(yard)
    assert (found.because, found.standing) == (StoppedBy.PREEMPTED, Standing.WAITING)
    assert (found.stops[0].preemptor, found.stops[0].preemptor_team, found.stops[0].right) == (
        preemptor,
        want_team,
        want_right,
    )
    assert found.stops[0].nodes == []
    assert f"train made room for first of {want_team} (" in says(yard)


def test_the_right_of_a_preemptor_that_is_gone_is_remembered() -> None:
    yard = four(vision=16, voice=8)
    guaranteed_first(yard)
    yard.cancel("first")
    (stop,) = why(yard).stops
    assert (stop.preemptor_team, stop.right) == ("vision", Right.GUARANTEE)
    assert stop.outcome.became is Became.MOVED, "it started again when the other was gone"


NEAR: dict[str, tuple[float, bool, StoppedBy]] = {
    "its node went 10 minutes before": (-10, True, StoppedBy.NODE_LOST),
    "its node was found out 10 minutes after": (10, True, StoppedBy.NODE_LOST),
    "its node went 20 minutes after": (20, True, StoppedBy.NO_INFRASTRUCTURE_CAUSE),
    "another node of the pool went": (10, False, StoppedBy.NO_INFRASTRUCTURE_CAUSE),
}


@pytest.mark.parametrize("case", NEAR)
def test_a_node_that_went_near_the_end(case: str) -> None:
    minutes, is_its_own, want = NEAR[case]
    yard = four()
    yard.submit(spec("run", "vision", gang(16)))
    mine = min(yard.nodes("run"))
    other = min({f"tiger-a-{number}" for number in range(1, 5)} - yard.nodes("run"))
    nodes = tuple(yard.nodes("run"))
    yard.now += HOUR
    ended = yard.now
    for at, what in sorted([(0.0, "end"), (minutes, "node")]):
        yard.now = ended + at * MINUTE
        if what == "end":
            end(yard, "failed")
        else:
            yard.set_service([mine if is_its_own else other], Service.QUARANTINED, "xid 79")
    yard.now = ended + HOUR
    found = why(yard, ending=Ending(nodes))
    assert found.because is want
    assert [near.node for near in found.near] == ([mine] if want is StoppedBy.NODE_LOST else [])


def test_where_its_nodes_were_not_recorded_those_of_the_pool_are_only_hints() -> None:
    yard = four()
    finished(yard)
    yard.now += 5 * MINUTE
    yard.set_service(["tiger-a-3"], Service.QUARANTINED, "xid 79")
    yard.now += HOUR
    found = why(yard, ending=Ending())
    assert found.because is StoppedBy.NO_INFRASTRUCTURE_CAUSE
    assert [(near.node, near.minutes, near.is_certain) for near in found.near] == [("tiger-a-3", 5.0, False)]
    assert why(yard).because is StoppedBy.NODE_LOST, "its nodes are recorded, and it was one of them"


def test_planned_work_near_the_end_is_told_as_such() -> None:
    yard = four()
    finished(yard)
    yard.set_service(["tiger-a-3"], Service.MAINTENANCE, "planned: firmware")
    assert why(yard, ending=Ending(("tiger-a-3",))).because is StoppedBy.PLANNED_WORK


def test_a_node_that_was_out_already_is_no_cause() -> None:
    yard = four()
    yard.submit(spec("run", "vision", gang(16)))
    idle = max({f"tiger-a-{number}" for number in range(1, 5)} - yard.nodes("run"))
    yard.set_service([idle], Service.QUARANTINED, "xid 79")
    yard.now += HOUR
    yard.set_service([idle], Service.REPAIR, "gpu swap")
    end(yard, "failed")
    assert why(yard).near == []


def test_who_cancelled_it_is_told_where_that_is_known() -> None:
    yard = four()
    cancelled(yard)
    assert says(yard, ending=Ending(by="ann", reason="wrong dataset")).startswith(
        "run of vision was cancelled by ann at 2026-03-02 10:00 UTC (wrong dataset)."
    )


def test_what_it_cost() -> None:
    """1 hour up, stopped 20 minutes after its last checkpoint, 2 hours down, 1 hour up again."""
    yard = four()
    yard.submit(spec("run", "vision", gang(32), checkpoint_minutes=40, restart_minutes=6))
    yard.now += HOUR
    yard.lose("tiger-a-2")
    yard.now += 2 * HOUR
    yard.bring_back("tiger-a-2")
    yard.now += HOUR
    told = why(yard).uptime
    assert (told.hours, told.running_hours, told.down_hours) == (4.0, 2.0, 2.0)
    assert (round(told.lost_hours * 60), round(told.restart_hours * 60), told.interruptions) == (20, 6, 1)
    assert (why(yard).standing, why(yard).stops[0].outcome.became) == (Standing.RUNNING, Became.RESTARTED)
    assert says(yard).endswith(
        "Since its first start: up 50.0% of 4 hours (goodput 39.2%), 1 interruption, down 2 hours,"
        " 20 minutes of work lost since checkpoints (one every 40 minutes), 14 GPU-hours for nothing."
    )


def test_interruptions_are_listed_the_newest_first() -> None:
    yard = four()
    yard.submit(spec("run", "vision", gang(16)))
    for _ in range(2):
        yard.now += HOUR
        yard.lose(min(yard.nodes("run")))
    found = why(yard)
    assert [stop.at for stop in found.stops] == [START + 2 * HOUR, START + HOUR]
    assert "1 earlier interruption below." in says(yard)
    assert [row[0] for row in answer_stopped(yard.state, "run", yard.now).tables[0].rows] == [
        START + 2 * HOUR,
        START + HOUR,
    ]


def test_observed_work_that_runs_has_not_stopped() -> None:
    yard = four()
    yard.observe("seen", "vision", "tiger", "a", 8)
    assert why(yard, "seen").because is StoppedBy.NOT_STOPPED


def test_an_unknown_name_is_refused() -> None:
    yard = four()
    runs_on(yard)
    with pytest.raises(NotFound) as error:
        why(yard, "rum")
    assert error.value.code == "no_such_workload"
    assert "did you mean run?" in error.value.message
