"""`why TEAM`: the steps from assigned to what can be started now, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import pytest

from plimsoll.errors import NotFound
from plimsoll.fleet.model import Service
from plimsoll.health.changes import HoldPlaced
from plimsoll.health.facts import Hold
from plimsoll.quota.changes import QuotaAssigned
from plimsoll.quota.model import Kind, Quota
from plimsoll.workloads.changes import TeamHoldPlaced
from plimsoll.workloads.model import RunsAs, TeamHold
from plimsoll.workloads.why.model import PoolWhy
from plimsoll.workloads.why.team import explain_team
from tests.support.yard import Yard, elastic, gang, spec

GRACE = timedelta(minutes=15)


def steps_of(pool: PoolWhy) -> dict[str, int]:
    return {each.cause.value: each.gpus for each in pool.steps}


def only(yard: Yard, team: str) -> PoolWhy:
    [pool] = explain_team(yard.state, team, now=yard.now, grace=yard.grace).pools
    assert pool.assigned - sum(each.gpus for each in pool.steps if each.after == "assigned") == pool.guaranteed
    assert pool.guaranteed - sum(each.gpus for each in pool.steps if each.after == "guaranteed") == pool.startable
    return pool


def whole() -> Yard:
    """Nothing wrong: 6 nodes, red is guaranteed 32 and uses 16 of them."""
    yard = Yard({"tiger": {"a": 4, "b": 2}}, {"tiger": {"red": 32, "blue": 8}})
    yard.submit(spec("r1", "red", gang(16)))
    return yard


def in_repair() -> Yard:
    """Quota is whole, but 4 of 6 nodes are in repair: 16 work, 40 are promised, nobody runs anything."""
    yard = Yard({"tiger": {"a": 4, "b": 2}}, {"tiger": {"red": 32, "blue": 8}})
    yard.set_service([f"tiger-a-{number}" for number in range(1, 5)], Service.REPAIR, "xid 79")
    return yard


def some_in_repair() -> Yard:
    """One of 6 nodes is out: 40 work, and 40 are promised. It costs flex."""
    yard = whole()
    yard.set_service(["tiger-a-4"], Service.REPAIR, "xid 79")
    return yard


def planned_and_broken() -> Yard:
    """24 of 48 work and 40 are promised; 8 are broken and 16 in maintenance. Red can't have 8 of its 32."""
    yard = Yard({"tiger": {"a": 4, "b": 2}}, {"tiger": {"red": 32, "blue": 8}})
    yard.set_service(["tiger-a-1"], Service.REPAIR, "xid 79")
    yard.set_service(["tiger-a-2", "tiger-a-3"], Service.MAINTENANCE, "planned: nic firmware")
    return yard


def cut() -> Yard:
    """72 assigned and 48 work: red has 48 and blue 24 of it; the line is 40, red gets 24 of it and blue 16.

    32 were cut: 24 never backed, 8 to flex. Red's cut is 24 of 32: 18 of the 24, and 6 of the 8.
    """
    return Yard(
        {"tiger": {"a": 4, "b": 2}},
        {"tiger": {"red": 24, "blue": 16}},
        assigned={"tiger": {"red": 48, "blue": 24}},
    )


def held() -> Yard:
    """Red keeps 16 of its 32 for ana; 8 are in use."""
    yard = Yard({"tiger": {"a": 4, "b": 2}}, {"tiger": {"red": 32, "blue": 8}})
    yard.submit(spec("r1", "red", gang(8)))
    until = yard.now + timedelta(days=2)
    yard.do(TeamHoldPlaced(TeamHold("h1", "red", "tiger", "H200", 16, "ana", until)))
    return yard


def flex_lent() -> Yard:
    """Blue runs 40 as flex on what red does not use: red can start all 32, calling it back."""
    yard = Yard({"tiger": {"a": 4, "b": 2}}, {"tiger": {"red": 32, "blue": 8}}, grace=GRACE)
    yard.submit(spec("b1", "blue", elastic(0, 5), runs_as=RunsAs.FLEX))
    return yard


def draining() -> Yard:
    """As before, and red's gang of 32 has called it back: 8 are free there and 24 must leave first."""
    yard = flex_lent()
    yard.submit(spec("r1", "red", gang(32)))
    return yard


def over_use() -> Yard:
    """Red runs 40: 32 inside, 8 as flex."""
    yard = Yard({"tiger": {"a": 4, "b": 2}}, {"tiger": {"red": 32, "blue": 8}})
    yard.submit(spec("r1", "red", gang(32)), spec("r2", "red", elastic(1, 1)))
    return yard


def own_flex_booked() -> Yard:
    """Red's gang of 32 is larger than its guarantee: as flex it has called back blue's 32 in b. That is no use of the
    guarantee of 24; but of it only the 8 in a and the 8 in b are to be had before they have left.
    """
    yard = Yard(
        {"tiger": {"a": 1, "b": 5}},
        {"tiger": {"red": 24, "green": 24}},
        assigned={"tiger": {"red": 24, "green": 24, "blue": 8}},
        grace=GRACE,
    )
    yard.submit(spec("b1", "blue", gang(32)))
    yard.submit(spec("r1", "red", gang(32)))
    return yard


def unaligned() -> Yard:
    """Nothing was aligned: 48 are assigned and none are guaranteed."""
    yard = Yard({"tiger": {"a": 4, "b": 2}})
    yard.do(QuotaAssigned(Quota("red", "tiger", "H200", 48)))
    return yard


def lowered() -> Yard:
    """The book was lowered to 24 after the alignment, and the guarantee with it."""
    yard = whole()
    yard.do(QuotaAssigned(Quota("red", "tiger", "H200", 24)))
    return yard


def observed_dies() -> Yard:
    """Red's 32 fill island a, where 2 of 4 nodes die; blue has 8 in b. 32 work and 40 are used: 8 died, shared out
    as 6.4 and 1.6, as `quota show` counts them, as nobody told on which nodes observed work is.
    """
    yard = Yard({"tiger": {"a": 4, "b": 2}}, {"tiger": {"red": 32, "blue": 8}})
    yard.observe("old", "red", "tiger", "a", 32, kind=Kind.ELASTIC)
    yard.observe("bold", "blue", "tiger", "b", 8, kind=Kind.ELASTIC)
    yard.set_service(["tiger-a-1", "tiger-a-2"], Service.REPAIR, "xid 79")
    return yard


def observed_drains() -> Yard:
    """The same, but the two nodes drain for planned work: until they go all of it is in use."""
    yard = observed_dies()
    yard.set_service(["tiger-a-1", "tiger-a-2"], Service.DRAINING, "planned: firmware")
    return yard


class Case(NamedTuple):
    make: Callable[[], Yard]
    want: dict[str, int]
    want_startable: int
    want_block: int
    want_note: str = ""


CASES = {
    "nothing is wrong": Case(whole, {"in_use": 16}, 16, 16),
    "quota is whole but machines are in repair": Case(in_repair, {"nodes_unhealthy": 16}, 16, 16),
    "a broken node that costs flex and no promise": Case(
        some_in_repair, {"in_use": 16}, 16, 16, "costs flex, not the guarantee; 40 GPUs work and 40 are guaranteed"
    ),
    "faults and planned work share the blame by what each has out": Case(
        planned_and_broken, {"nodes_unhealthy": 3, "planned_work": 5}, 24, 16, "scattered"
    ),
    "guaranteed is less than assigned": Case(cut, {"never_backed": 18, "to_flex": 6}, 24, 24),
    "a teammate's hold": Case(held, {"in_use": 8, "team_held": 16}, 8, 8),
    "flex is taken, and can be called back": Case(flex_lent, {}, 32, 32, "flex is called back first"),
    "lent flex is still draining": Case(draining, {"lent_draining": 32}, 0, 0),
    "flex of its own is booked, which is no use of the guarantee": Case(
        own_flex_booked, {"lent_draining": 8}, 16, 8, "scattered"
    ),
    "a team uses more than it is guaranteed": Case(over_use, {"in_use": 32}, 0, 0, "8 GPUs run beyond the guarantee"),
    "nothing was aligned yet": Case(unaligned, {"not_aligned": 48}, 0, 0),
    "the book was lowered below the guarantee": Case(lowered, {"in_use": 16}, 8, 8),
    "observed work stands on nodes that died": Case(observed_dies, {"in_use": 26, "node_lost": 6}, 0, 0),
    "observed work runs on nodes that drain": Case(observed_drains, {"in_use": 32}, 0, 0),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_steps(case: Case) -> None:
    pool = only(case.make(), "red")
    assert steps_of(pool) == case.want
    assert (pool.startable, pool.largest_block) == (case.want_startable, case.want_block)
    assert case.want_note in " ".join(pool.notes)


def test_the_teams_shares_of_a_cut_add_up_to_the_pools() -> None:
    yard = cut()
    found = [steps_of(only(yard, team)) for team in ("red", "blue")]
    assert [sum(each[cause] for each in found) for cause in ("never_backed", "to_flex")] == [24, 8]


def test_what_of_an_unbacked_gap_is_broken_is_said() -> None:
    """48 are assigned and installed, one node was out when 40 were aligned: 8 have no working machine."""
    yard = Yard(
        {"tiger": {"a": 4, "b": 2}}, {"tiger": {"red": 40}}, assigned={"tiger": {"red": 48}}
    )  # fmt: skip
    yard.set_service(["tiger-a-1"], Service.REPAIR, "xid 79")
    [step] = only(yard, "red").steps
    assert (step.cause, step.gpus) == ("never_backed", 8)
    assert "8 of the gap are on nodes that are out" in step.says
    assert "nodes that are out" not in only(cut(), "red").steps[0].says


def test_the_lasting_reason_comes_first() -> None:
    yard = held()
    yard.set_service([f"tiger-a-{number}" for number in range(2, 5)], Service.REPAIR, "xid 79")
    places = [each.cause.place for each in only(yard, "red").steps]
    assert places == sorted(places)


def test_a_told_return_is_when_it_is_over() -> None:
    """8 of red's are missing: the first of the four nodes to return makes them good."""
    yard = Yard({"tiger": {"a": 4, "b": 2}}, {"tiger": {"red": 24}})
    nodes = [f"tiger-a-{number}" for number in range(1, 5)]
    yard.set_service(nodes, Service.REPAIR, "xid 79")
    for place, node in enumerate(nodes):
        back = yard.now + timedelta(hours=5 - place)
        hold = Hold("h", "crew", Service.REPAIR, "xid 79", yard.now, expected_return=back)
        yard.do(HoldPlaced(node, hold))
    [lost] = only(yard, "red").steps
    assert (lost.cause, lost.gpus, lost.until, lost.is_told) == (
        "nodes_unhealthy",
        8,
        yard.now + timedelta(hours=2),
        True,
    )
    assert lost.of[0].name == "xid 79"
    assert lost.of[0].gpus == 32


def test_the_first_sentence_is_the_answer() -> None:
    def first(yard: Yard) -> str:
        return explain_team(yard.state, "red", now=yard.now, grace=GRACE).answer[0]

    assert first(whole()) == (
        "red can start 16 GPUs more inside its guarantee now: nothing is wrong; 16 of 32 guaranteed GPUs are in use."
    )
    assert first(in_repair()) == (
        "red can start 16 GPUs more inside its guarantee now: of 32 assigned 32 are guaranteed, 0 of those are in use,"
        " and 16 can't be had."
    )


def test_an_unknown_team_is_named_with_the_one_that_was_meant() -> None:
    yard = whole()
    with pytest.raises(NotFound, match="did you mean blue"):
        explain_team(yard.state, "blu", now=yard.now, grace=GRACE)
