"""Where work is put, with hand-worked answers: big islands stay whole, fragments are filled, spares do not block."""

from __future__ import annotations

from datetime import timedelta

import pytest

from plimsoll.health.ahead import announce
from plimsoll.health.model import Ahead
from plimsoll.quota.model import Tier
from tests.support.scenes import Act, Scene, bring_back, cancel, judge, later, lose, play, submit
from tests.support.yard import Yard, elastic, gang, spec

LOW, HIGH, CRITICAL = Tier.LOW, Tier.HIGH, Tier.CRITICAL
SMALL_AND_LARGE = {"tiger": {"a": 4, "b": 2, "c": 1}}
ALL = {"tiger": {"x": 56}}


def plan_work(*nodes: str, begins: float, lasts: float = 4) -> Act:
    """Planned work on nodes, so many hours from now."""

    def act(yard: Yard) -> None:
        starts = yard.now + timedelta(hours=begins)
        work = Ahead("firmware", "ada", nodes, starts, starts + timedelta(hours=lasts), "firmware")
        _, drafts = announce(yard.state, work, now=yard.now)
        yard.do(*(draft.change for draft in drafts))
        yard.round()

    return act


SCENES = {
    "a gang goes into the tightest island that takes it": Scene(
        SMALL_AND_LARGE, ALL, (submit(spec("g", "x", gang(16))),), {"g": {"b": 16}}
    ),
    "the large island stays whole for the large gang": Scene(
        SMALL_AND_LARGE,
        ALL,
        (
            submit(spec("s1", "x", gang(8))),
            submit(spec("s2", "x", gang(8))),
            submit(spec("s3", "x", gang(8))),
            submit(spec("big", "x", gang(32))),
        ),
        {"s1": {"c": 8}, "s2": {"b": 8}, "s3": {"b": 8}, "big": {"a": 32}},
    ),
    "of parts submitted together the largest chooses first": Scene(
        SMALL_AND_LARGE,
        ALL,
        (submit(spec("w", "x", gang(8, "small", rank=1), gang(32, "large", rank=2), elastic(2, 2, rank=3))),),
        {"w": {"a": 32, "c": 8, "b": 16}},
    ),
    "elastic replicas fill the fragments first": Scene(
        SMALL_AND_LARGE, ALL, (submit(spec("e", "x", elastic(3, 3))),), {"e": {"c": 8, "b": 16}}
    ),
    "elastic replicas start with the least and take what is free up to the most": Scene(
        SMALL_AND_LARGE,
        ALL,
        (submit(spec("g", "x", gang(32)), spec("e", "x", elastic(1, 9))),),
        {"g": {"a": 32}, "e": {"b": 16, "c": 8}},
    ),
    "an elastic part that may be nothing waits as long as there is nothing": Scene(
        {"tiger": {"a": 1}},
        {"tiger": {"x": 8}},
        (submit(spec("g", "x", gang(8))), submit(spec("e", "x", elastic(0, 2)))),
        {"g": {"a": 8}},
        {"e": "over_guarantee"},
    ),
    "it grows when room comes": Scene(
        {"tiger": {"a": 2}},
        {"tiger": {"x": 16}},
        (submit(spec("g", "x", gang(8)), spec("e", "x", elastic(1, 2))), cancel("g")),
        {"e": {"a": 16}},
    ),
    "a gang of part of a node leaves the rest to others": Scene(
        {"tiger": {"a": 1}},
        {"tiger": {"x": 8}},
        (submit(spec("g", "x", gang(5))), submit(spec("h", "x", gang(3)))),
        {"g": {"a": 5}, "h": {"a": 3}},
    ),
    "a gang never spans islands, though there is room in all together": Scene(
        {"tiger": {"a": 4, "b": 2}},
        {"tiger": {"x": 48}},
        (submit(spec("s", "x", gang(8), hours=0)), submit(spec("t", "x", gang(16))), submit(spec("g", "x", gang(32)))),
        # 8 in b (16 free), 16 in a (b has 8 left): a has 16, b has 8, and 32 are wanted in one island.
        {"s": {"b": 8}, "t": {"a": 16}},
        {"g": "over_guarantee"},
    ),
    "all parts of a workload go to one cluster, the one that takes all of it": Scene(
        {"tiger": {"a": 2}, "lion": {"a": 4}},
        {"tiger": {"x": 16}, "lion": {"x": 32}},
        (submit(spec("w", "x", gang(16, "one", rank=1), gang(16, "two", rank=2))),),
        {"w": {"a": 32}},
    ),
    "parts that fit only over two clusters wait": Scene(
        {"tiger": {"a": 4}, "lion": {"a": 4}},
        {"tiger": {"x": 32}, "lion": {"x": 32}},
        (
            submit(spec("s", "x", gang(16), cluster="lion"), spec("t", "x", gang(16), cluster="tiger")),
            submit(spec("w", "x", gang(16, "p"), gang(16, "q", rank=2))),
        ),
        {"s": {"a": 16}, "t": {"a": 16}},
        {"w": "over_guarantee"},
    ),
    "a missing spare does not block a start": Scene(
        {"tiger": {"a": 2}}, {"tiger": {"x": 16}}, (submit(spec("g", "x", gang(16, spare_nodes=1))),), {"g": {"a": 16}}
    ),
    "an island with room for the spare is better than a tighter one without": Scene(
        {"tiger": {"a": 3, "b": 2}},
        {"tiger": {"x": 40}},
        (submit(spec("g", "x", gang(16, spare_nodes=1))),),
        {"g": {"a": 16}},
    ),
    "a spare counts against the guarantee: what comes after it is flex": Scene(
        {"tiger": {"a": 4}},
        {"tiger": {"x": 24, "y": 8}},
        (
            submit(spec("g", "x", gang(16, spare_nodes=1))),
            submit(spec("h", "x", gang(8))),
            submit(spec("own", "y", gang(8))),
        ),
        # 16 and a spare of 8 fill x's 24; h is flex and leaves for y.
        {"g": {"a": 16}, "own": {"a": 8}},
        {"h": "over_guarantee"},
    ),
    "a gang with an expected time is not put where planned work begins before it ends": Scene(
        {"tiger": {"a": 2, "b": 4}},
        {"tiger": {"x": 48}},
        (plan_work("tiger-a-1", begins=3), submit(spec("g", "x", gang(16), hours=4))),
        {"g": {"b": 16}},
    ),
    "a gang that ends before the planned work begins may": Scene(
        {"tiger": {"a": 2, "b": 4}},
        {"tiger": {"x": 48}},
        (plan_work("tiger-a-1", begins=3), submit(spec("g", "x", gang(16), hours=2))),
        {"g": {"a": 16}},
    ),
    "a gang that does not say how long it runs may": Scene(
        {"tiger": {"a": 2, "b": 4}},
        {"tiger": {"x": 48}},
        (plan_work("tiger-a-1", begins=3), submit(spec("g", "x", gang(16)))),
        {"g": {"a": 16}},
    ),
    "where only planned work is in the way, it says so": Scene(
        {"tiger": {"a": 2}},
        {"tiger": {"x": 16}},
        (plan_work("tiger-a-1", begins=3), submit(spec("g", "x", gang(16), hours=4))),
        {},
        {"g": "planned_ahead"},
    ),
    "and starts once the planned work is over": Scene(
        {"tiger": {"a": 2}},
        {"tiger": {"x": 16}},
        (plan_work("tiger-a-1", begins=3), submit(spec("g", "x", gang(16), hours=4)), later(hours=7)),
        {"g": {"a": 16}},
    ),
    "planned work on a node that is out already takes nothing more away": Scene(
        {"tiger": {"a": 3}},
        {"tiger": {"x": 24}},
        (lose("tiger-a-1"), plan_work("tiger-a-1", begins=1), submit(spec("g", "x", gang(16), hours=4))),
        {"g": {"a": 16}},
    ),
    "a node that is out of service takes nothing new": Scene(
        {"tiger": {"a": 2}},
        {"tiger": {"x": 16}},
        (lose("tiger-a-1"), submit(spec("g", "x", gang(16)))),
        {},
        {"g": "nodes_unhealthy"},
    ),
    "and takes it when it is back": Scene(
        {"tiger": {"a": 2}},
        {"tiger": {"x": 16}},
        (lose("tiger-a-1"), submit(spec("g", "x", gang(16))), bring_back("tiger-a-1")),
        {"g": {"a": 16}},
    ),
}


@pytest.mark.parametrize("sentence", SCENES)
def test_where_it_is_put(sentence: str) -> None:
    judge(SCENES[sentence])


def test_a_spare_is_held_beside_its_gang() -> None:
    yard = play(
        Scene({"tiger": {"a": 4}}, {"tiger": {"x": 32}}, (submit(spec("g", "x", gang(16, spare_nodes=1))),), {})
    )
    spares = yard.work.workloads["g"].spares("train")
    assert spares is not None
    assert (spares.gpus, yard.islands("g"), yard.free("tiger", "a")) == (8, {"a": 16}, 8)


# Reservation and backfill.


def flex_stream(count: int) -> tuple[Yard, int]:
    """Nothing is guaranteed to x and z. x's gang of 4 nodes waits behind two of z's; z's small ones keep coming, an
    hour each. How many of them started before the gang did.
    """
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"y": 8}}, assigned={"tiger": {"x": 8, "y": 8, "z": 8}})
    yard.submit(spec("z-a", "z", gang(16), hours=1), spec("z-b", "z", gang(8), hours=2))
    yard.now += timedelta(minutes=1)
    yard.submit(spec("big", "x", gang(32)))
    ends = {"z-a": yard.now + timedelta(hours=1), "z-b": yard.now + timedelta(hours=2)}
    for number in range(count):
        yard.now += timedelta(minutes=10)
        yard.submit(spec(f"s{number}", "z", gang(8), hours=1))
        for name in sorted(yard.work.workloads):
            ends.setdefault(name, yard.now + timedelta(hours=1))
            if name != "big" and ends[name] <= yard.now:
                yard.cancel(name)
        if "big" in yard.work.workloads:
            return yard, number
    return yard, count


def test_a_stream_of_small_jobs_never_delays_a_big_gang_for_ever() -> None:
    """The gang needs the whole island, which is free after two hours: z-b ends then. Small ones of an hour may pass as
    long as they are gone by then, which is so until the first hour is over.
    """
    yard, number = flex_stream(40)
    assert "big" in yard.work.workloads
    assert number == 11, "the twelfth ten minutes end two hours after the start"
    passed = [name for name in yard.work.past if name.startswith("s")]
    assert passed == ["s0", "s1", "s2", "s3", "s4", "s5"][: len(passed)]
    assert passed


def test_a_reservation_is_for_an_island_that_is_large_enough() -> None:
    """The small island is free and the large one is not: who needs 32 waits for the large one, and keeps that."""
    scene = Scene(
        {"tiger": {"a": 4, "b": 2}},
        {"tiger": {"y": 8}},
        (submit(spec("z1", "z", gang(32), hours=1)), submit(spec("big", "x", gang(32)))),
        {},
    )
    wait = play(scene).work.waits["big"]
    assert (wait.reason.island, wait.holds_island) == ("tiger-a", True)
