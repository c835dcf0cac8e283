"""`why` about nodes that return: in whichever island the work has room first, however little is missing elsewhere."""

from __future__ import annotations

from datetime import timedelta

from plimsoll.fleet.model import Service
from plimsoll.health.changes import HoldPlaced
from plimsoll.health.facts import Hold
from plimsoll.workloads.model import RunsAs
from plimsoll.workloads.why.outs import nodes_out
from plimsoll.workloads.why.team import explain_team
from tests.support.yard import START, Yard, elastic, gang, spec
from tests.workloads.why.test_workload import why


def breaks(yard: Yard, nodes: list[str], **back: float) -> None:
    """Nodes go, and those who have them say when they are back; nobody does without `back`."""
    yard.set_service(nodes, Service.QUARANTINED, "xid 79")
    for node in nodes if back else ():
        when = yard.now + timedelta(**back, microseconds=7)
        yard.do(HoldPlaced(node, Hold("h", "crew", Service.QUARANTINED, "xid 79", yard.now, expected_return=when)))
    yard.round()


def whole_island() -> Yard:
    """r has 24 of island a, which goes whole for 4 hours; in b blue has 32, of which 16 are flex: 8 short there."""
    yard = Yard({"tiger": {"a": 4, "b": 4}}, {"tiger": {"red": 24, "blue": 16}})
    yard.submit(spec("r", "red", gang(24)))
    yard.submit(spec("fx", "blue", elastic(1, 5, name="p")))
    yard.lose("tiger-a-2")
    assert (yard.islands("r"), yard.islands("fx")) == ({"a": 24}, {"b": 32}), "fx gave its node of a to r"
    yard.now += timedelta(hours=1)
    breaks(yard, [f"tiger-a-{number}" for number in range(1, 5)], hours=4)
    return yard


def test_a_whole_island_that_returns_is_named_though_another_is_closer() -> None:
    found = why(whole_island(), "r")
    assert (found.cause, found.missing) == ("nodes_unhealthy", 8)
    assert (found.earliest, found.is_estimate) == (START + timedelta(hours=5), False)
    assert [(each.island, each.free, each.callable, each.missing) for each in found.near] == [
        ("tiger-b", 0, 16, 8),
        ("tiger-a", 0, 0, 24),
    ]
    text = "\n".join(found.answer)
    assert "Earliest by itself: 2026-03-02T14:00:00Z: when tiger-a-1, tiger-a-2, tiger-a-3 are back in island" in text
    assert "nobody can say" not in text


def test_what_holds_an_island_adds_up_by_name() -> None:
    """fx holds 32 there, 16 of them as flex that leaves: 16 stand in the way, two replicas of 8; one is enough."""
    [near, _] = why(whole_island(), "r").near
    assert [(each.cause, each.gpus) for each in near.steps] == [("in_use_by_others", 16)]
    assert [(each.name, each.gpus) for each in near.steps[0].of] == [("fx/p", 16)]
    assert [(each.workload, each.gpus, each.count) for each in near.in_way] == [("fx", 8, 1)]


def short_in_two() -> Yard:
    """A gang of 24 of red. a: 16 of 40 work, one node is back in 2 days; b: 16 of 32 work, nobody knows when the rest
    are; d has 16 and could never hold it. Blue's flex is everywhere.
    """
    yard = Yard({"tiger": {"a": 5, "b": 4, "d": 2}}, {"tiger": {"red": 32, "blue": 16, "green": 8}})
    breaks(yard, ["tiger-a-2", "tiger-a-3", "tiger-b-1", "tiger-b-2"])
    breaks(yard, ["tiger-a-1"], days=2)
    yard.submit(spec("be", "green", elastic(0, 6, name="p"), runs_as=RunsAs.FLEX))
    yard.submit(spec("r", "red", gang(24)))
    return yard


def test_an_island_that_is_too_small_is_never_the_closest_and_a_known_return_comes_first() -> None:
    found = why(short_in_two(), "r")
    assert [(each.island, each.missing, each.callable) for each in found.near] == [("tiger-a", 8, 16)]
    assert (found.earliest, found.is_estimate) == (START + timedelta(days=2), False)
    [action] = [each for each in found.actions if each.harm == "waiting"]
    assert action.acts[0].says == "wait until tiger-a-1 is back in island tiger-a: 2026-03-04T09:00:00Z, as told"


def test_a_shortfall_is_told_to_every_team_of_the_pool() -> None:
    """48 of 88 work and 56 are guaranteed: each team alone could start all of its own, together they lack 8."""
    yard = short_in_two()
    yard.cancel("r")
    startable = 0
    for team in ("red", "blue", "green"):
        found = explain_team(yard.state, team, now=yard.now, grace=yard.grace)
        [pool] = found.pools
        assert pool.shortfall == 8
        assert "8 GPUs of the promises there have no working machine behind them" in found.answer[0]
        assert "nothing is wrong" not in "\n".join(found.answer)
        assert any(note.startswith("8 GPUs of the promises of this pool") for note in pool.notes)
        startable += pool.startable
    assert startable == 56


def test_no_shortfall_where_as_much_works_as_is_guaranteed() -> None:
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 24}})
    breaks(yard, ["tiger-a-1"])
    found = explain_team(yard.state, "red", now=yard.now, grace=yard.grace)
    assert found.pools[0].shortfall == 0
    assert "nothing is wrong" in found.answer[0]


def with_history(hours: float) -> Yard:
    """The only repair so far took so long; tiger-a-3 went out an hour and 20 minutes after it."""
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 32}})
    yard.set_service(["tiger-a-1"], Service.REPAIR, "xid 79")
    yard.wait(hours=hours)
    yard.set_service(["tiger-a-1"], Service.IN_SERVICE)
    yard.wait(hours=1, minutes=20)
    yard.set_service(["tiger-a-3"], Service.REPAIR, "xid 79")
    return yard


def test_an_estimate_is_told_to_the_hour() -> None:
    """Out since 20:20, and repairs take 10 hours: 06:20 of the next day, told as 07:00."""
    yard = with_history(10)
    yard.now += timedelta(minutes=10)
    [out] = nodes_out(yard.state, [yard.pool("tiger")], now=yard.now)[yard.pool("tiger")]
    assert (out.back, out.is_told) == (START + timedelta(hours=22), False)


def test_nothing_is_claimed_beyond_90_days() -> None:
    """The only repair so far took 200 days: this one is not back within 90, and no date is told."""
    yard = with_history(24 * 200)
    yard.submit(spec("r", "red", gang(32)))
    found = why(yard, "r")
    assert found.earliest is None
    [step] = found.near[0].steps
    assert (step.until, step.says) == (None, "not back within 90 days by repair history")


def test_a_told_time_has_no_microseconds() -> None:
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 32}})
    breaks(yard, ["tiger-a-1"], hours=2)
    yard.submit(spec("r", "red", gang(32)))
    assert why(yard, "r").earliest == START + timedelta(hours=2)


def test_an_island_that_is_too_small_is_not_the_closest_however_free_it_is() -> None:
    """24 are needed. All 16 of d are free, and 8 of the 24 of a: only a can ever hold it."""
    yard = Yard({"tiger": {"a": 3, "d": 2}}, {"tiger": {"red": 24}})
    breaks(yard, ["tiger-a-1", "tiger-a-2"])
    yard.submit(spec("r", "red", gang(24)))
    [near] = why(yard, "r").near
    assert (near.island, near.free, near.missing) == ("tiger-a", 8, 16)


def test_of_work_that_is_partly_flex_only_the_rest_stands_in_the_way() -> None:
    """x has 16, of which 8 are flex, y has 8, and 8 are free: red can have 16 of the 24 it needs."""
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 24, "blue": 8, "green": 8}})
    yard.submit(spec("x", "blue", elastic(1, 2)), spec("y", "green", gang(8)))
    yard.submit(spec("r", "red", gang(24)))
    [near] = why(yard, "r").near
    assert (near.free, near.callable, near.missing) == (8, 8, 8)
    [step] = near.steps
    assert [(each.name, each.gpus) for each in step.of] == [("x/graders", 8), ("y/train", 8)]
