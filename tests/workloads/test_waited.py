"""A promise that work waits for is broken; where it only waits for one island to have it all, that is told apart."""

from __future__ import annotations

from datetime import timedelta

from plimsoll.quota.changes import PoolAligned, TeamRenamed
from plimsoll.quota.history.promise import Broken, promise_kept
from plimsoll.workloads.waited import fragmented_gpu_hours, guaranteed_waits, waited_breaches
from tests.support.workload_checker import check_rebuild
from tests.support.yard import START, Yard, gang, spec

GRACE = timedelta(minutes=15)


def test_work_inside_its_guarantee_that_waits_for_broken_nodes_breaks_the_promise() -> None:
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 32}})
    yard.lose("tiger-a-1")
    yard.submit(spec("r1", "red", gang(32)))
    yard.now += timedelta(hours=5)
    [breach] = waited_breaches(yard.state, now=yard.now)
    assert (breach.cluster, breach.teams, breach.missing, breach.cause) == ("tiger", ["red"], 32, Broken.WAITED)
    assert (breach.begin, breach.end) == (START + GRACE, START + timedelta(hours=5))
    yard.bring_back("tiger-a-1")
    assert yard.islands("r1") == {"a": 32}
    yard.now += timedelta(hours=5)
    assert waited_breaches(yard.state, now=yard.now) == [breach], "it is remembered when it is over"
    kept = promise_kept(yard.state, days=1, now=yard.now, breaches=[breach])
    assert {str(spell.cause) for spell in kept.spells} >= {"waited"}


def test_work_that_waits_only_for_one_island_is_told_apart() -> None:
    yard = Yard({"tiger": {"a": 2, "b": 2}}, {"tiger": {"red": 16, "blue": 16}})
    yard.observe("b1", "blue", "tiger", "a", 8)
    yard.observe("b2", "blue", "tiger", "b", 8)
    yard.submit(spec("r1", "red", gang(16)))
    yard.now += timedelta(hours=2)
    assert yard.cause("r1") == "island_fragmented"
    assert fragmented_gpu_hours(yard.state, days=1, now=yard.now) == 16 * 1.75, "from the end of its grace on"
    assert waited_breaches(yard.state, now=yard.now) == []


def test_flex_that_waits_breaks_no_promise() -> None:
    yard = Yard({"tiger": {"a": 2}}, {"tiger": {"red": 8, "blue": 8}})
    yard.submit(spec("r1", "red", gang(8)), spec("b1", "blue", gang(8)), spec("b2", "blue", gang(8)))
    yard.now += timedelta(hours=2)
    assert yard.cause("b2") == "over_guarantee"
    assert guaranteed_waits(yard.state, now=yard.now) == []


def test_a_wait_within_the_time_of_grace_breaks_nothing() -> None:
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 32}})
    yard.lose("tiger-a-1")
    yard.submit(spec("r1", "red", gang(32)))
    yard.now += timedelta(minutes=10)
    assert waited_breaches(yard.state, now=yard.now) == []


def test_a_wait_that_is_over_goes_with_the_team_when_it_gets_another_name() -> None:
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 32}})
    yard.lose("tiger-a-1")
    yard.submit(spec("r1", "red", gang(32)))
    yard.now += timedelta(hours=5)
    yard.bring_back("tiger-a-1")
    yard.do(TeamRenamed("red", "crimson"))
    [breach] = waited_breaches(yard.state, now=yard.now)
    assert breach.teams == ["crimson"]
    check_rebuild(yard.state)


def test_only_the_time_in_which_it_had_a_right_to_it_breaks_the_promise() -> None:
    # Ten hours beyond the guarantee, then one hour inside a larger one, always for the node that is broken.
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 24}}, assigned={"tiger": {"red": 32}})
    yard.lose("tiger-a-1")
    yard.submit(spec("r1", "red", gang(32)))
    yard.wait(hours=10)
    yard.do(PoolAligned("tiger", "H200", 32, "fixed:0", {"red": 32}))
    yard.wait(hours=0)
    yard.wait(hours=1)
    [breach] = waited_breaches(yard.state, now=yard.now)
    assert (breach.begin, breach.end) == (START + timedelta(hours=10) + GRACE, START + timedelta(hours=11))
    yard.bring_back("tiger-a-1")
    assert waited_breaches(yard.state, now=yard.now) == [breach]
    check_rebuild(yard.state)
