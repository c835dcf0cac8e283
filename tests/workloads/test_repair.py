"""When nodes die under work, rung by rung, with hand-worked answers; and what it cost, by hand.

Nodes have 8 GPUs. Island `a` of tiger has 4 nodes unless it says otherwise; `tiger-a-4` is taken first.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.model import to_microseconds
from plimsoll.quota.model import Tier
from plimsoll.workloads.account import uptime_of
from plimsoll.workloads.model import Because, RunsAs
from tests.support.scenes import Act, Scene, bring_back, cancel, judge, later, lose, play, submit
from tests.support.workload_checker import check_settled, check_state
from tests.support.yard import Yard, elastic, gang, spec

LOW, HIGH, CRITICAL = Tier.LOW, Tier.HIGH, Tier.CRITICAL
FOUR = {"tiger": {"a": 4}}
TWO = {"tiger": {"a": 4, "b": 4}}
ALL_NODES = [f"tiger-a-{number}" for number in range(1, 5)]


def lose_one_of(name: str, *, part: str = "", count: int = 1, is_spare: bool = False) -> Act:
    """Nodes die under a part, whichever they are: the first of them by name."""

    def act(yard: Yard) -> None:
        workload = yard.work.workloads[name]
        nodes = sorted(
            node
            for each in workload.parts
            if part in ("", each.name) and each.is_spare is is_spare
            for block in each.blocks
            for node, _ in block.nodes
        )
        yard.lose(*nodes[:count])

    return act


LADDER = {
    "its spare steps in": Scene(
        FOUR,
        {"tiger": {"x": 32}},
        (submit(spec("g", "x", gang(16, spare_nodes=1)), spec("h", "x", gang(8))), lose_one_of("g", part="train")),
        {"g": {"a": 16}, "h": {"a": 8}},
    ),
    "a free node of the island": Scene(
        FOUR, {"tiger": {"x": 32}}, (submit(spec("g", "x", gang(24))), lose_one_of("g")), {"g": {"a": 24}}
    ),
    "a flex victim of the island": Scene(
        FOUR,
        {"tiger": {"x": 24, "y": 8}},
        (submit(spec("g", "x", gang(24))), submit(spec("f", "z", gang(8))), lose_one_of("g")),
        {"g": {"a": 24}},
        {"f": "no_guarantee"},
    ),
    "a flex victim, though the gang fills its guarantee to the last GPU and the other shouts": Scene(
        FOUR,
        {"tiger": {"x": 24}},
        (submit(spec("g", "x", gang(24, tier=LOW))), submit(spec("f", "y", gang(8, tier=CRITICAL))), lose_one_of("g")),
        {"g": {"a": 24}},
        {"f": "no_guarantee"},
    ),
    "the team's own work of a later rank": Scene(
        FOUR,
        {"tiger": {"x": 32}},
        (submit(spec("g", "x", gang(24, rank=1)), spec("h", "x", gang(8, rank=2))), lose_one_of("g")),
        {"g": {"a": 24}},
        {"h": "nodes_unhealthy"},
    ),
    "a replica inside another's guarantee moves away": Scene(
        {"tiger": {"a": 4, "b": 1}},
        {"tiger": {"x": 24, "y": 8}},
        (
            submit(spec("blocks-b", "z", gang(8))),
            submit(spec("g", "x", gang(24))),
            submit(spec("e", "y", elastic(1, 1))),
            cancel("blocks-b"),
            lose_one_of("g"),
        ),
        {"g": {"a": 24}, "e": {"b": 8}},
    ),
    "the whole gang to another island": Scene(
        TWO,
        {"tiger": {"x": 32, "y": 32}},
        (submit(spec("g", "x", gang(32))), lose_one_of("g")),
        {"g": {"b": 32}},
    ),
    "blocked, with the number": Scene(
        FOUR, {"tiger": {"x": 32}}, (submit(spec("g", "x", gang(32))), lose("tiger-a-1")), {}, {"g": "nodes_unhealthy"}
    ),
    "never by another team's work inside its guarantee": Scene(
        FOUR,
        {"tiger": {"x": 24, "y": 8}},
        (submit(spec("g", "x", gang(24, tier=CRITICAL))), submit(spec("h", "y", gang(8, tier=LOW))), lose_one_of("g")),
        {"h": {"a": 8}},
        {"g": "nodes_unhealthy"},
    ),
    "work without known nodes holds more than works: that is missing as well": Scene(
        FOUR,
        {"tiger": {"x": 16}},
        (
            submit(spec("g", "x", gang(16))),
            submit(spec("f", "z", gang(8))),
            lambda yard: yard.observe("seen", "z", "tiger", "a", 8),
            lambda yard: yard.lose(min(set(ALL_NODES) - yard.nodes("g") - yard.nodes("f")), min(yard.nodes("g"))),
        ),
        # Two nodes are left, one of g's and f's; 8 more are held by nobody knows which. Both of z's must go.
        {"g": {"a": 16}},
        {"f": "no_guarantee", "seen": "no_guarantee"},
    ),
    "it goes on when the node is back": Scene(
        FOUR,
        {"tiger": {"x": 32}},
        (submit(spec("g", "x", gang(32))), lose("tiger-a-1"), later(hours=1), bring_back("tiger-a-1")),
        {"g": {"a": 32}},
    ),
    "several nodes at once: a spare, a free node, and a victim": Scene(
        {"tiger": {"a": 6}},
        {"tiger": {"x": 32, "y": 16}},
        (submit(spec("g", "x", gang(24, spare_nodes=1))), submit(spec("f", "z", gang(8))), lose_one_of("g", count=3)),
        # 3 of 6 nodes are gone; the spare, the free node and f's are left, and are just enough.
        {"g": {"a": 24}},
        {"f": "no_guarantee"},
    ),
    "several gangs hit at once: the more important one gets the free node": Scene(
        {"tiger": {"a": 5}},
        {"tiger": {"x": 40}},
        (
            submit(spec("low", "x", gang(16, tier=LOW)), spec("top", "x", gang(16, tier=CRITICAL))),
            lambda yard: yard.lose(min(yard.nodes("low")), min(yard.nodes("top"))),
        ),
        {"top": {"a": 16}},
        {"low": "nodes_unhealthy"},
    ),
    "a whole island is lost: its gang goes to the other": Scene(
        {"tiger": {"a": 2, "b": 3}},
        {"tiger": {"x": 40}},
        (submit(spec("g", "x", gang(16))), lose("tiger-a-1", "tiger-a-2")),
        {"g": {"b": 16}},
    ),
    "a whole island is lost with a gang that fits no other": Scene(
        {"tiger": {"a": 4, "b": 2}},
        {"tiger": {"x": 48}},
        (submit(spec("g", "x", gang(32))), lose("tiger-a-1", "tiger-a-2", "tiger-a-3", "tiger-a-4")),
        {},
        {"g": "nodes_unhealthy"},
    ),
    "a second node is lost while it goes on with a free one": Scene(
        {"tiger": {"a": 5}},
        {"tiger": {"x": 40}},
        (submit(spec("g", "x", gang(24))), lose_one_of("g"), lose_one_of("g")),
        {"g": {"a": 24}},
    ),
    "only the spare is lost": Scene(
        FOUR,
        {"tiger": {"x": 32}},
        (submit(spec("g", "x", gang(24, spare_nodes=1))), lose_one_of("g", is_spare=True)),
        {"g": {"a": 24}},
    ),
    "elastic work runs on with less": Scene(
        FOUR, {"tiger": {"x": 32}}, (submit(spec("e", "x", elastic(2, 4))), lose("tiger-a-1")), {"e": {"a": 24}}
    ),
    "elastic work below its least runs on, and waits for the rest": Scene(
        FOUR,
        {"tiger": {"x": 32}},
        (submit(spec("e", "x", elastic(4, 4))), lose("tiger-a-1")),
        {"e": {"a": 24}},
        {"e": "nodes_unhealthy"},
    ),
    "and gets just the rest when the node is back": Scene(
        FOUR,
        {"tiger": {"x": 32}},
        (submit(spec("e", "x", elastic(4, 4))), lose("tiger-a-1"), bring_back("tiger-a-1")),
        {"e": {"a": 32}},
    ),
    "the other parts of a workload run on": Scene(
        FOUR,
        {"tiger": {"x": 32}},
        (submit(spec("w", "x", gang(24), elastic(1, 1))), lose_one_of("w", part="train")),
        {"w": {"a": 8}},
        {"w": "nodes_unhealthy"},
    ),
    "a victim is called back with its time of grace: the gang is booked for": Scene(
        FOUR,
        {"tiger": {"x": 24}},
        (submit(spec("g", "x", gang(24))), submit(spec("f", "y", gang(8))), lose_one_of("g")),
        {"f": {"a": 8}},
        {"g": "booked"},
        grace=30,
    ),
    "and goes on when it is over": Scene(
        FOUR,
        {"tiger": {"x": 24}},
        (submit(spec("g", "x", gang(24))), submit(spec("f", "y", gang(8))), lose_one_of("g"), later(minutes=30)),
        {"g": {"a": 24}},
        {"f": "no_guarantee"},
        grace=30,
    ),
    "a node is lost during that time: it is blocked, and the victim stays": Scene(
        FOUR,
        {"tiger": {"x": 24}},
        (
            submit(spec("g", "x", gang(24))),
            submit(spec("f", "y", gang(8))),
            lose_one_of("g"),
            lambda yard: yard.lose(min(set(ALL_NODES) - yard.nodes("f") - out(yard))),
            later(minutes=30),
        ),
        {"f": {"a": 8}},
        {"g": "nodes_unhealthy"},
        grace=30,
    ),
}


def out(yard: Yard) -> set[str]:
    return {node.id for node in yard.state.of(Fleet).nodes.values() if node.service is not Service.IN_SERVICE}


@pytest.mark.parametrize("sentence", LADDER)
def test_the_ladder(sentence: str) -> None:
    judge(LADDER[sentence])


def test_the_number_of_a_blocked_gang() -> None:
    wait = play(LADDER["blocked, with the number"]).work.waits["g"]
    assert (wait.reason.gpus, wait.reason.missing, wait.reason.island) == (32, 8, "tiger-a")


def test_a_node_that_is_back_before_anybody_looked_has_interrupted_nothing() -> None:
    yard = play(Scene(FOUR, {"tiger": {"x": 32}}, (submit(spec("g", "x", gang(32))),), {}))
    before = yard.work.workloads["g"]
    yard.set_service(["tiger-a-1"], Service.QUARANTINED)
    yard.set_service(["tiger-a-1"], Service.IN_SERVICE)
    yard.round()
    assert yard.work.workloads["g"] == before
    assert yard.work.accounts["g", "train"].interruptions == 0


def test_elastic_work_leaves_a_node_that_drains_and_a_gang_stays() -> None:
    acts = (submit(spec("g", "x", gang(8))), submit(spec("e", "x", elastic(1, 1))))
    yard = play(Scene({"tiger": {"a": 3}}, {"tiger": {"x": 24}}, acts, {}))
    (of_gang,), (of_elastic,) = yard.nodes("g"), yard.nodes("e")
    yard.set_service([of_gang, of_elastic], Service.DRAINING)
    yard.round()
    assert yard.nodes("g") == {of_gang}
    assert yard.nodes("e") == {f"tiger-a-{n}" for n in (1, 2, 3)} - {of_gang, of_elastic}
    check_state(yard.state)
    check_settled(yard.state)


def test_planned_work_and_faults_are_told_apart() -> None:
    for service, reason, want in (
        (Service.QUARANTINED, "xid 79", Because.NODE_LOST),
        (Service.MAINTENANCE, "firmware", Because.PLANNED_WORK),
    ):
        yard = play(Scene(FOUR, {"tiger": {"x": 32}}, (submit(spec("g", "x", gang(32))),), {}))
        yard.set_service(["tiger-a-1"], service, reason)
        yard.round()
        (told,) = yard.work.interruptions["g"]
        assert (told.because, told.by) == (want, "tiger-a-1")
        assert reason in told.detail


LOST_TOGETHER = {
    "nothing is left for it": (4, spec("h", "x", gang(16, tier=CRITICAL)), Because.NODE_LOST),
    "flex has its time of grace to leave": (4, spec("f", "y", gang(16), runs_as=RunsAs.FLEX), Because.NODE_LOST),
    "there are free nodes": (5, spec("h", "x", gang(8)), Because.REPAIRED),
}


@pytest.mark.parametrize("sentence", LOST_TOGETHER)
def test_of_nodes_lost_at_once_one_that_broke_is_blamed_and_all_are_told(sentence: str) -> None:
    """The first by name was taken by planned work, the second broke: together that is a fault."""
    nodes, other, want = LOST_TOGETHER[sentence]
    yard = Yard({"tiger": {"a": nodes}}, {"tiger": {"x": 24, "y": 8}}, grace=timedelta(hours=1))
    yard.submit(other)
    yard.submit(spec("g", "x", gang(16)))
    first, second = sorted(yard.nodes("g"))
    yard.set_service([first], Service.MAINTENANCE, "planned: firmware")
    yard.set_service([second], Service.QUARANTINED, "xid 79")
    yard.round()
    (stop,) = yard.work.interruptions["g"]
    assert (stop.because, stop.by) == (want, second)
    assert stop.detail.partition("; goes on")[0] == (
        f"{second} quarantined: xid 79; {first} maintenance: planned: firmware"
    )


def test_the_account_of_a_gang_by_hand() -> None:
    """Checkpoints every 30 minutes, 15 minutes to restart, 32 GPUs.

    09:00 starts. 10:50 loses a node and finds no other: 110 minutes run, 20 of them after the last checkpoint.
    11:50 the node is back: 60 minutes down. 13:35 loses another, which stands still for 25 minutes until 14:00: 105
    minutes run, 15 of them lost. At 16:00 it has run 110 + 105 + 120 = 335 of 420 minutes.
    """
    asked = spec("g", "x", gang(32), checkpoint_minutes=30, restart_minutes=15)
    yard = Yard(FOUR, {"tiger": {"x": 32}})
    yard.submit(asked)
    for minutes, node, is_lost in ((110, "tiger-a-1", True), (60, "tiger-a-1", False), (105, "tiger-a-2", True)):
        yard.now += timedelta(minutes=minutes)
        (yard.lose if is_lost else yard.bring_back)(node)
    yard.now += timedelta(minutes=25)
    yard.bring_back("tiger-a-2")
    yard.now += timedelta(minutes=120)
    account = yard.work.accounts["g", "train"]
    made = uptime_of([(asked.part("train"), account)], now=to_microseconds(yard.now))
    assert made.hours * 60 == pytest.approx(420)
    assert made.running_hours * 60 == pytest.approx(335)
    assert made.down_hours * 60 == pytest.approx(85)
    assert made.lost_hours * 60 == pytest.approx(35)
    assert made.restart_hours * 60 == pytest.approx(30)
    assert made.gpu_hours == pytest.approx(335 / 60 * 32)
    assert made.lost_gpu_hours == pytest.approx(65 / 60 * 32)
    assert made.uptime == pytest.approx(335 / 420)
    assert made.goodput == pytest.approx(270 / 420)
    assert made.interruptions_per_day == pytest.approx(2 / (7 / 24))
    assert made.by_cause == {"node_lost": 2}
    assert [each.down_us / 60e6 for each in yard.work.interruptions["g"]] == [60, 25]


def test_a_repair_in_place_costs_the_work_since_the_checkpoint_and_no_time_down() -> None:
    yard = Yard(FOUR, {"tiger": {"x": 32}})
    yard.submit(spec("g", "x", gang(24), checkpoint_minutes=60, restart_minutes=10))
    yard.now += timedelta(minutes=90)
    yard.lose(min(yard.nodes("g")))
    yard.now += timedelta(minutes=30)
    account = yard.work.accounts["g", "train"]
    assert (account.interruptions, account.lost_us, account.restart_us, account.down_us) == (1, 30 * 60e6, 10 * 60e6, 0)
    assert yard.work.interruptions["g"][0].because is Because.REPAIRED


def test_without_checkpoints_all_is_lost() -> None:
    yard = Yard(FOUR, {"tiger": {"x": 32}})
    yard.submit(spec("g", "x", gang(24)))
    yard.now += timedelta(hours=5)
    yard.lose(min(yard.nodes("g")))
    assert yard.work.accounts["g", "train"].lost_us == 5 * 3600e6
