"""Opening a block: what may move, and that a plan that is carried out opens what it said.

Nodes have 8 GPUs; tiger has islands `a` of 4 nodes and `b` of 2. `f` is flex on two nodes of `a`, and `b` is empty.
"""

from __future__ import annotations

from datetime import timedelta

from plimsoll.fleet.model import Service
from plimsoll.health.changes import WorkAnnounced
from plimsoll.health.model import Ahead
from plimsoll.workloads.defrag import Opening, carry_out, find_opening
from plimsoll.workloads.model import RunsAs
from tests.support.workload_checker import check_state
from tests.support.yard import NO_GRACE, Yard, gang, spec


def yard_with(hours: float = 0.0) -> Yard:
    yard = Yard({"tiger": {"a": 4, "b": 2}}, {"tiger": {"x": 8, "z": 8}})
    first = spec("first", "x", gang(16))
    yard.submit(first, spec("f", "z", gang(16), runs_as=RunsAs.FLEX, hours=hours))
    assert (yard.islands("first"), yard.islands("f")) == ({"b": 16}, {"a": 16})
    yard.cancel("first")
    return yard


def opened(yard: Yard) -> Opening | None:
    """What was found for 32 GPUs, carried out."""
    turn = yard.turn()
    opening, _ = find_opening(turn, [yard.pool("tiger")], 32)
    if opening is not None:
        carry_out(turn, opening, grace=NO_GRACE)
        check_state(yard.state)
    return opening


def test_a_flex_gang_moves_to_another_island_and_the_block_is_open() -> None:
    yard = yard_with()
    opening = opened(yard)
    assert opening is not None
    assert (opening.island, opening.gpus_disturbed) == ("tiger-a", 16)
    assert yard.islands("f") == {"b": 16}
    assert yard.free("tiger", "a") == 32


def test_a_node_that_drains_opens_nothing() -> None:
    yard = yard_with()
    yard.set_service([min(yard.nodes("f"))], Service.DRAINING)
    assert opened(yard) is None
    assert yard.islands("f") == {"a": 16}


def test_a_gang_is_not_moved_onto_nodes_that_planned_work_takes_before_it_ends() -> None:
    yard = yard_with(hours=24)
    starts = yard.now + timedelta(hours=1)
    yard.do(WorkAnnounced(Ahead("work", "ada", ("tiger-b-1",), starts, starts + timedelta(hours=1), "firmware")))
    assert opened(yard) is None
    assert yard.islands("f") == {"a": 16}
