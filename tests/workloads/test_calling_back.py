"""Preemption and its time of grace, with hand-worked answers: who leaves, when, and who is spared.

Nodes have 8 GPUs; x and y are guaranteed 16 of tiger's 32 each unless it says otherwise.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from plimsoll.fleet.model import Service
from plimsoll.quota.changes import PoolAligned
from plimsoll.quota.model import Tier
from plimsoll.workloads.desk import scale
from plimsoll.workloads.model import Because, RunsAs
from tests.support.scenes import Act, Scene, cancel, judge, later, lose, play, submit
from tests.support.yard import Yard, elastic, gang, spec

LOW, HIGH, CRITICAL = Tier.LOW, Tier.HIGH, Tier.CRITICAL
FOUR = {"tiger": {"a": 4}}
EVEN = {"tiger": {"x": 16, "y": 16}}


def align(**promised: int) -> Act:
    def act(yard: Yard) -> None:
        yard.do(PoolAligned("tiger", "H200", 32, "fixed:0", promised))
        yard.round()

    return act


AT_ONCE = {
    "the fewest GPUs leave: the gang of one node and not the gang of two": Scene(
        FOUR,
        {"tiger": {"x": 8, "y": 8}},
        (
            submit(spec("x0", "x", gang(8))),
            submit(spec("two", "x", gang(16)), spec("one", "x", gang(8))),
            submit(spec("own", "y", gang(8))),
        ),
        {"x0": {"a": 8}, "two": {"a": 16}, "own": {"a": 8}},
        {"one": "over_guarantee"},
    ),
    "one gang of two nodes leaves, and not one of two and one of one": Scene(
        {"tiger": {"a": 5}},
        {"tiger": {"x": 16, "y": 16}},
        (
            submit(spec("x0", "x", gang(16))),
            submit(spec("two", "x", gang(16)), spec("one", "x", gang(8))),
            submit(spec("own", "y", gang(16))),
        ),
        {"x0": {"a": 16}, "one": {"a": 8}, "own": {"a": 16}},
        {"two": "over_guarantee"},
    ),
    "elastic work shrinks before anything stops": Scene(
        FOUR,
        {"tiger": {"x": 8, "y": 16}},
        (
            submit(spec("e", "x", elastic(1, 3, tier=CRITICAL))),
            submit(spec("g", "x", gang(8, tier=LOW))),
            submit(spec("own", "y", gang(16))),
        ),
        # e is inside with one replica and flex with two; g is flex. Two replicas go, and g stays.
        {"e": {"a": 8}, "g": {"a": 8}, "own": {"a": 16}},
    ),
    "elastic work gives up no more replicas than are needed": Scene(
        FOUR,
        {"tiger": {"x": 8, "y": 8}},
        (submit(spec("e", "x", elastic(1, 4))), submit(spec("own", "y", gang(8)))),
        {"e": {"a": 24}, "own": {"a": 8}},
    ),
    "elastic work that would have less than its least stops whole": Scene(
        FOUR,
        {"tiger": {"y": 16}},
        (submit(spec("e", "x", elastic(4, 4))), submit(spec("own", "y", gang(8)))),
        {"own": {"a": 8}},
        {"e": "no_guarantee"},
    ),
    "a victim goes to another island if there is room": Scene(
        {"tiger": {"a": 2, "b": 2}},
        {"tiger": {"x": 8, "y": 16}},
        (
            submit(spec("f", "x", gang(16))),
            submit(spec("y1", "y", gang(8)), spec("y2", "y", gang(8))),
            cancel("y1"),
            submit(spec("y3", "y", gang(8))),
        ),
        # f is flex in a (or b), y's take the other island: nobody needs to leave.
        {"f": {"a": 16}, "y2": {"b": 8}, "y3": {"b": 8}},
    ),
    "the island that hurts least is chosen": Scene(
        {"tiger": {"a": 2, "b": 3}},
        {"tiger": {"y": 16}},
        (submit(spec("big", "x", gang(24))), submit(spec("small", "x", gang(16))), submit(spec("own", "y", gang(16)))),
        {"big": {"b": 24}, "own": {"a": 16}},
        {"small": "no_guarantee"},
    ),
    "a spare goes before any work": Scene(
        FOUR,
        {"tiger": {"x": 16, "y": 8}},
        (
            submit(spec("g", "x", gang(16, spare_nodes=1))),
            submit(spec("f", "x", gang(8))),
            submit(spec("own", "y", gang(8))),
        ),
        # g fills the guarantee, so that its spare is flex, as f is. The spare goes.
        {"g": {"a": 16}, "f": {"a": 8}, "own": {"a": 8}},
    ),
    "two gangs of one workload count each for itself": Scene(
        FOUR,
        {"tiger": {"y": 16}},
        (submit(spec("w", "x", gang(16, "p", rank=1), gang(16, "q", rank=2))), submit(spec("own", "y", gang(16)))),
        {"w": {"a": 16}, "own": {"a": 16}},
        {"w": "no_guarantee"},
    ),
}


GRACE = {
    "with a time of grace nothing leaves at once": Scene(
        FOUR,
        EVEN,
        (submit(spec("flex", "x", gang(32))), submit(spec("own", "y", gang(16)))),
        {"flex": {"a": 32}},
        {"own": "booked"},
        grace=30,
    ),
    "a minute before it is over nothing has left": Scene(
        FOUR,
        EVEN,
        (submit(spec("flex", "x", gang(32))), submit(spec("own", "y", gang(16))), later(minutes=29)),
        {"flex": {"a": 32}},
        {"own": "booked"},
        grace=30,
    ),
    "when it is over the victim leaves and who booked starts": Scene(
        FOUR,
        EVEN,
        (submit(spec("flex", "x", gang(32))), submit(spec("own", "y", gang(16))), later(minutes=30)),
        {"own": {"a": 16}},
        {"flex": "over_guarantee"},
        grace=30,
    ),
    "it starts sooner where others leave, and the victim is spared": Scene(
        FOUR,
        {"tiger": {"x": 8, "y": 16, "z": 8}},
        (
            submit(spec("flex", "x", gang(16))),
            submit(spec("z1", "z", gang(8))),
            submit(spec("own", "y", gang(16))),  # 8 are free: all of flex is called back
            cancel("z1"),
        ),
        {"flex": {"a": 16}, "own": {"a": 16}},
        grace=30,
    ),
    "the victim is cancelled meanwhile: who booked starts at once": Scene(
        FOUR,
        EVEN,
        (submit(spec("flex", "x", gang(32))), submit(spec("own", "y", gang(16))), later(minutes=5), cancel("flex")),
        {"own": {"a": 16}},
        grace=30,
    ),
    "who booked is cancelled: the victim stays": Scene(
        FOUR,
        EVEN,
        (submit(spec("flex", "x", gang(32))), submit(spec("own", "y", gang(16))), cancel("own"), later(minutes=60)),
        {"flex": {"a": 32}},
        grace=30,
    ),
    "one of two victims is cancelled: what it leaves is kept for who booked": Scene(
        FOUR,
        {"tiger": {"y": 32}},
        (
            submit(spec("f1", "x", gang(16)), spec("f2", "x", gang(16))),
            submit(spec("own", "y", gang(32))),
            cancel("f1"),
            submit(spec("thief", "z", gang(8))),
        ),
        {"f2": {"a": 16}},
        {"own": "booked", "thief": "no_guarantee"},
        grace=30,
    ),
    "and it starts when the other is due": Scene(
        FOUR,
        {"tiger": {"y": 32}},
        (
            submit(spec("f1", "x", gang(16)), spec("f2", "x", gang(16))),
            submit(spec("own", "y", gang(32))),
            cancel("f1"),
            submit(spec("thief", "z", gang(8))),
            later(minutes=30),
        ),
        {"own": {"a": 32}},
        {"f2": "no_guarantee", "thief": "no_guarantee"},
        grace=30,
    ),
    "only as many leave as are needed when the time comes": Scene(
        {"tiger": {"a": 4}},
        {"tiger": {"y": 16, "z": 16}},
        (
            submit(spec("z1", "z", gang(8))),
            submit(spec("f1", "x", gang(8)), spec("f2", "x", gang(8)), spec("f3", "x", gang(8))),
            submit(spec("own", "y", gang(16))),  # two of the three are called back
            cancel("z1"),  # 8 more: one of them would do
            later(minutes=30),
        ),
        {"own": {"a": 16}, "f1": {"a": 8}, "f2": {"a": 8}},
        {"f3": "no_guarantee"},
        grace=30,
    ),
    "a victim that lies inside a guarantee by then stays": Scene(
        FOUR,
        EVEN,
        (
            submit(spec("flex", "x", gang(32))),
            submit(spec("own", "y", gang(16))),
            align(x=32),
            later(minutes=30),
        ),
        {"flex": {"a": 32}},
        {"own": "no_guarantee"},
        grace=30,
    ),
    "a node is lost while the victim has its time: another offer is looked for": Scene(
        {"tiger": {"a": 4, "b": 4}},
        {"tiger": {"x": 16, "y": 32}},
        (
            submit(spec("flex", "x", gang(32))),
            submit(spec("f2", "x", gang(8))),
            submit(spec("own", "y", gang(32))),  # in the island of f2, as that hurts 8 and not 32
            lose("tiger-b-4"),
            later(minutes=60),
        ),
        # b has three nodes left and 32 are needed: flex is called back in a.
        {"own": {"a": 32}, "f2": {"b": 8}},
        {"flex": "over_guarantee"},
        grace=30,
    ),
    "elastic growth inside a guarantee has to wait for the grace as well": Scene(
        FOUR,
        EVEN,
        (submit(spec("flex", "x", gang(24))), submit(spec("e", "y", elastic(1, 2)))),
        {"flex": {"a": 24}, "e": {"a": 8}},
        {"e": "booked"},
        grace=30,
    ),
    "and is there when it is over": Scene(
        FOUR,
        EVEN,
        (submit(spec("flex", "x", gang(24))), submit(spec("e", "y", elastic(1, 2))), later(minutes=30)),
        {"e": {"a": 16}},
        {"flex": "over_guarantee"},
        grace=30,
    ),
    "who is scaled down meanwhile gets no more than it wants by then": Scene(
        FOUR,
        EVEN,
        (
            submit(spec("flex", "x", gang(24))),
            submit(spec("e", "y", elastic(1, 2))),
            lambda yard: scale(yard.turn(), "e", "", least=1, most=1, grace=yard.grace),
            later(minutes=30),
        ),
        {"flex": {"a": 24}, "e": {"a": 8}},
        grace=30,
    ),
}


@pytest.mark.parametrize("sentence", AT_ONCE)
def test_who_leaves_at_once(sentence: str) -> None:
    judge(AT_ONCE[sentence])


@pytest.mark.parametrize("sentence", GRACE)
def test_time_of_grace(sentence: str) -> None:
    judge(GRACE[sentence])


def test_a_node_is_lost_in_the_instant_in_which_the_booking_is_due() -> None:
    """Of four nodes one dies under the victim, a gang of all four, at the very moment at which it has to leave: it
    stops for either, and 16 of the 24 GPUs that are left are y's.
    """
    yard = play(
        Scene(FOUR, EVEN, (submit(spec("flex", "x", gang(32))), submit(spec("own", "y", gang(16)))), {}, grace=30)
    )
    yard.set_service(["tiger-a-1"], Service.QUARANTINED, "xid 79")
    yard.wait(minutes=30)
    assert yard.islands("own") == {"a": 16}
    assert "tiger-a-1" not in yard.nodes("own")
    assert yard.islands("flex") == {}
    assert len(yard.work.interruptions["flex"]) == 1


def test_preempted_work_waits_with_its_reason_and_knows_who_came_first() -> None:
    yard = play(Scene(FOUR, EVEN, (submit(spec("flex", "x", gang(32))), submit(spec("own", "y", gang(16)))), {}))
    (told,) = yard.work.interruptions["flex"]
    assert (told.because, told.by) == (Because.PREEMPTED, "own")
    wait = yard.work.waits["flex"]
    assert (wait.reason.cause, wait.reason.gpus, wait.reason.missing) == ("over_guarantee", 32, 16)


def test_a_gang_that_only_lost_its_spare_was_not_interrupted() -> None:
    acts = (
        submit(spec("g", "x", gang(16, spare_nodes=1))),
        submit(spec("f", "x", gang(8))),
        submit(spec("own", "y", gang(8))),
    )
    yard = play(Scene(FOUR, {"tiger": {"x": 16, "y": 8}}, acts, {}))
    assert yard.work.workloads["g"].spares("train") is None
    assert yard.work.accounts["g", "train"].interruptions == 0


def test_work_on_nodes_that_drain_is_called_back_only_for_what_it_frees() -> None:
    """Elastic flex of two replicas, one of them on a node that drains and can't leave it: for 8 GPUs the other goes."""
    yard = play(Scene({"tiger": {"a": 2}}, {"tiger": {"y": 8}}, (submit(spec("e", "x", elastic(1, 2))),), {}))
    yard.set_service(["tiger-a-1"], Service.DRAINING)
    yard.round()
    yard.submit(spec("own", "y", gang(8)))
    assert yard.nodes("own") == {"tiger-a-2"}
    assert yard.nodes("e") == {"tiger-a-1"}


def test_what_was_called_back_for_growth_is_not_called_back_from_others_before_it_is_due() -> None:
    yard = Yard({"tiger": {"a": 5}}, {"tiger": {"x": 8, "y": 24}}, grace=timedelta(minutes=10))
    yard.submit(*(spec(f"x{number}", "x", gang(8), runs_as=RunsAs.FLEX) for number in range(1, 5)))
    yard.submit(spec("e", "y", elastic(1, 3)))
    told = yard.work.bookings["e"]
    assert {victim.workload for victim in told.victims} == {"x3", "x4"}
    for _ in range(2):
        yard.wait(minutes=4)
        assert yard.work.bookings["e"] == told
    yard.wait(minutes=2)
    assert yard.islands("e") == {"a": 24}
    assert sorted(yard.work.queued) == ["x3", "x4"]
