"""The owner of running work is told when a node under it goes bad: what was done about it, and what is left. Once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import pytest

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.changes import BreakerTripped
from plimsoll.incidents.changes import OwnerTold
from plimsoll.incidents.fold import Incidents
from plimsoll.incidents.owners import decide_notices
from tests.support.chance import new_chance
from tests.support.yard import Yard, elastic, gang, spec


def tell(yard: Yard) -> list[OwnerTold]:
    """One pass; a second one has nothing more to tell."""
    _, drafts = decide_notices(yard.state, yard.now)
    told = [draft.change for draft in drafts if isinstance(draft.change, OwnerTold)]
    assert len(told) == len(drafts)
    yard.do(*told)
    assert decide_notices(yard.state, yard.now) == ([], [])
    return told


def owned(name: str = "run", *, spares: int = 0, gpus: int = 16) -> Callable[[Yard], None]:
    part = gang(gpus, spare_nodes=spares)
    return lambda yard: yard.submit(spec(name, "red", part, owner="ada", checkpoint_minutes=30))


class Case(NamedTuple):
    islands: dict[str, int]
    submit: Callable[[Yard], None]
    lose: tuple[str, ...]
    want_what: str
    want_done: str
    want_left: str
    how: Service = Service.QUARANTINED


CASES = {
    "its spare steps in": Case(
        {"a": 3},
        owned(spares=1),
        ("first",),
        "node_lost",
        "train goes on with spare",
        "nothing; 20 min of work since its last checkpoint are lost; the next node that goes bad is not replaced by a"
        " spare",
    ),
    "only its spare died": Case(
        {"a": 3},
        owned(spares=1),
        ("spare",),
        "spare_lost",
        "train runs on; 0 of 1 spare left",
        "the next node that goes bad is not replaced by a spare",
    ),
    "a free node of its island": Case(
        {"a": 3},
        owned(),
        ("first",),
        "node_lost",
        "train goes on with a free node",
        "nothing; 20 min of work since its last checkpoint are lost",
    ),
    "another island": Case(
        {"a": 2, "b": 4},
        owned(),
        ("first",),
        "node_lost",
        "train runs again in tiger-b",
        "nothing; 20 min of work since its last checkpoint are lost",
    ),
    "nowhere": Case(
        {"a": 2},
        owned(),
        ("first",),
        "node_lost",
        "train has stopped and waits: nodes_unhealthy, 8 GPUs are missing",
        "the move is hardware's; plimsoll why run",
    ),
    "planned work took it": Case(
        {"a": 3},
        owned(),
        ("first",),
        "planned_work",
        "train goes on with a free node",
        "nothing; 20 min of work since its last checkpoint are lost",
        Service.MAINTENANCE,
    ),
    "elastic work runs on with less": Case(
        {"a": 3},
        lambda yard: yard.submit(spec("run", "red", elastic(1, 3), owner="ada")),
        ("first",),
        "node_lost",
        "graders runs on with 2 of 3 replicas",
        "the rest comes by itself when there is room",
    ),
    "a node drains under it": Case(
        {"a": 2},
        owned(),
        ("first",),
        "drains",
        "nothing yet: it runs on until the node goes",
        "save a checkpoint; when the node goes, its spare or another node takes over",
        Service.DRAINING,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_an_owner_is_told(case: Case) -> None:
    gpus = 8 * sum(case.islands.values())
    yard = Yard({"tiger": case.islands}, {"tiger": {"red": gpus}})
    case.submit(yard)
    assert tell(yard) == [], "a start is no loss"
    yard.now += timedelta(minutes=20)
    names = {"first": sorted(_running(yard))[0], "spare": "".join(sorted(_spares(yard))[:1])}
    yard.set_service([names[each] for each in case.lose], case.how, "xid 79")
    yard.round()
    (told,) = tell(yard)
    assert (told.workload, told.team, told.owner, str(told.what)) == ("run", "red", "ada", case.want_what)
    assert told.by == names[case.lose[0]]
    assert told.by in told.happened
    assert (told.done, told.left) == (case.want_done, case.want_left)
    yard.wait(minutes=5)
    assert tell(yard) == []


def _running(yard: Yard) -> set[str]:
    return {
        node
        for part in yard.work.workloads["run"].parts
        if not part.is_spare
        for block in part.blocks
        for node, _ in block.nodes
    }


def _spares(yard: Yard) -> set[str]:
    return yard.nodes("run") - _running(yard)


def test_a_bad_node_that_a_breaker_keeps_in_service_is_told() -> None:
    yard = Yard({"tiger": {"a": 2}}, {"tiger": {"red": 16}})
    owned()(yard)
    yard.do(BreakerTripped("cluster/tiger", 1, 3600.0, 1, ["tiger-a-1"]))
    (told,) = tell(yard)
    assert (str(told.what), told.by) == ("held_back", "tiger-a-1")
    assert told.done == "nothing: the breaker of cluster/tiger holds automation back"


def test_each_loss_is_told_once_however_nodes_come_and_go() -> None:
    chance = new_chance()
    yard = Yard({"tiger": {"a": 4, "b": 4}}, {"tiger": {"red": 64}})
    for number in range(3):
        owned(f"run-{number}", spares=number % 2)(yard)
    want = told = 0
    for _ in range(60):
        yard.now += timedelta(minutes=1)
        nodes = [f"tiger-{island}-{number}" for island in "ab" for number in range(1, 5)]
        under = {node: name for name in yard.work.workloads for node in yard.nodes(name)}
        node = chance.choice(nodes)
        service = yard.state.of(Fleet).nodes[node].service
        if service is Service.IN_SERVICE:
            want += node in under
            yard.lose(node)
        else:
            yard.bring_back(node)
        if chance.random() < 0.5:
            told += len(tell(yard))
    told += len(tell(yard))
    assert told == want
    assert want > 5, "the seed brought losses about"
    assert not yard.state.of(Incidents).losses


def test_two_parts_on_one_node_are_told_in_one_notice() -> None:
    yard = Yard({"tiger": {"a": 3}}, {"tiger": {"red": 24}})
    parts = gang(4, "one"), gang(4, "two", rank=2)
    yard.submit(spec("run", "red", *parts, owner="ada"))
    (node,) = yard.nodes("run")
    yard.lose(node)
    (told,) = tell(yard)
    assert told.done == "one goes on with a free node; two goes on with a free node"
    assert told.happened == f"a node under one, two went bad: {node} quarantined: xid 79"


def test_what_is_long_past_is_no_news() -> None:
    yard = Yard({"tiger": {"a": 3}}, {"tiger": {"red": 24}})
    owned()(yard)
    yard.lose(sorted(_running(yard))[0])
    yard.now += timedelta(hours=25)
    assert decide_notices(yard.state, yard.now) == ([], [])


def test_a_run_on_many_nodes_that_drain_is_told_of_in_one_notice() -> None:
    """Of 34 nodes; more than are kept of notices of one workload."""
    yard = Yard({"tiger": {"a": 40}}, {"tiger": {"red": 320}})
    owned(gpus=272)(yard)
    first, second, *rest = sorted(_running(yard))
    assert len(rest) == 32
    yard.set_service(rest, Service.DRAINING, "rack work")
    (told,) = tell(yard)
    assert told.happened == f"32 nodes ({', '.join(rest[:3])} and 29 more) drain under train: rack work"
    yard.now += timedelta(minutes=1)
    yard.set_service([first], Service.DRAINING, "a fan")
    (told,) = tell(yard)
    assert told.happened == f"{first} drains under train: a fan"
    yard.now += timedelta(minutes=1)
    yard.bring_back(first)
    assert tell(yard) == [], "a node that works again is no loss"
    yard.now += timedelta(minutes=1)
    yard.set_service([first, second], Service.DRAINING, "a fan")
    (told,) = tell(yard)
    assert told.happened == f"2 nodes ({first}, {second}) drain under train: a fan"


def test_nodes_that_drain_one_after_the_other_are_each_told_once() -> None:
    """More of them than notices are kept."""
    yard = Yard({"tiger": {"a": 30}}, {"tiger": {"red": 240}})
    owned(gpus=240)(yard)
    for node in sorted(_running(yard)):
        yard.now += timedelta(minutes=1)
        yard.set_service([node], Service.DRAINING, "rack work")
        assert [told.by for told in tell(yard)] == [node]


def test_many_bad_nodes_that_a_breaker_keeps_in_service_are_told_of_in_one_notice() -> None:
    yard = Yard({"tiger": {"a": 30}}, {"tiger": {"red": 240}})
    owned(gpus=240)(yard)
    nodes = sorted(_running(yard))
    yard.do(BreakerTripped("cluster/tiger", 1, 3600.0, 1, nodes[1:]))
    (told,) = tell(yard)
    assert told.happened == f"29 nodes ({', '.join(nodes[1:4])} and 26 more) under train are bad"
    yard.do(BreakerTripped("cluster/tiger", 1, 3600.0, 1, nodes))
    (told,) = tell(yard)
    assert told.happened == f"{nodes[0]} under train is bad"
