"""The owner of running work is told when a node under it goes bad: what was done about it, and what is left. Once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import pytest

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.changes import BreakerTripped, WorkAnnounced
from plimsoll.health.model import Ahead
from plimsoll.incidents.changes import OwnerTold
from plimsoll.incidents.fold import Incidents
from plimsoll.incidents.owners import decide_notices
from plimsoll.quota.model import Kind
from plimsoll.workloads.model import RunsAs
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


class Together(NamedTuple):
    """Nodes that go at once under work in an island of 5: what each goes to, and why."""

    submit: Callable[[Yard], None]
    out: dict[str, tuple[Service, str]]
    want_what: str
    want_happened: str
    grace_minutes: int = 0


BROKEN = Service.QUARANTINED, "xid 79"
FIRMWARE = Service.MAINTENANCE, "planned: firmware"


def graders(count: int) -> Callable[[Yard], None]:
    return lambda yard: yard.submit(spec("run", "red", elastic(1, count), owner="ada"))


def among_flex(yard: Yard) -> None:
    """A gang of 16, and flex in all the rest of the island."""
    owned()(yard)
    yard.submit(spec("flex", "blue", elastic(0, 3), runs_as=RunsAs.FLEX))
    assert yard.nodes("run") == {"tiger-a-4", "tiger-a-5"}


TOGETHER = {
    "a gang that waits for flex to leave is told of each node": Together(
        among_flex,
        {"tiger-a-4": BROKEN, "tiger-a-5": BROKEN},
        "node_lost",
        "2 nodes under train went bad: tiger-a-4 quarantined: xid 79; tiger-a-5 quarantined: xid 79",
        grace_minutes=15,
    ),
    "so is one that goes on at once": Together(
        owned(gpus=24),
        {"tiger-a-4": BROKEN, "tiger-a-5": BROKEN},
        "node_lost",
        "2 nodes under train went bad: tiger-a-4 quarantined: xid 79; tiger-a-5 quarantined: xid 79",
    ),
    "one was planned and the other broke: it is a fault, and what broke comes first": Together(
        among_flex,
        {"tiger-a-4": FIRMWARE, "tiger-a-5": BROKEN},
        "node_lost",
        "2 nodes under train went bad: tiger-a-5 quarantined: xid 79; tiger-a-4 maintenance: planned: firmware",
        grace_minutes=15,
    ),
    "the same where it goes on at once": Together(
        owned(gpus=24),
        {"tiger-a-4": FIRMWARE, "tiger-a-5": BROKEN},
        "node_lost",
        "2 nodes under train went bad: tiger-a-5 quarantined: xid 79; tiger-a-4 maintenance: planned: firmware",
    ),
    "both were planned": Together(
        among_flex,
        {"tiger-a-4": FIRMWARE, "tiger-a-5": FIRMWARE},
        "planned_work",
        "2 nodes under train were taken out by planned work: tiger-a-4 maintenance: planned: firmware;"
        " tiger-a-5 maintenance: planned: firmware",
        grace_minutes=15,
    ),
    "more than are named are counted": Together(
        graders(5),
        {f"tiger-a-{number}": BROKEN for number in (1, 2, 3, 4)},
        "node_lost",
        "4 nodes under graders went bad: tiger-a-1 quarantined: xid 79; tiger-a-2 quarantined: xid 79;"
        " tiger-a-3 quarantined: xid 79 and 1 more",
    ),
    "a reason that ends like a count is none": Together(
        graders(5),
        {"tiger-a-1": (Service.QUARANTINED, "xid 79 and 2 more")},
        "node_lost",
        "a node under graders went bad: tiger-a-1 quarantined: xid 79 and 2 more",
    ),
    "two spares": Together(
        lambda yard: owned(spares=2)(yard),
        {"tiger-a-2": BROKEN, "tiger-a-3": BROKEN},
        "spare_lost",
        "2 spares of train are gone: tiger-a-2 quarantined: xid 79; tiger-a-3 quarantined: xid 79",
    ),
    "replicas leave two nodes that drain": Together(
        graders(2),
        {"tiger-a-4": (Service.DRAINING, "a fan"), "tiger-a-5": (Service.DRAINING, "a fan")},
        "moved_off",
        "2 nodes under graders drain: tiger-a-4 draining: a fan; tiger-a-5 draining: a fan",
    ),
}


@pytest.mark.parametrize("case", TOGETHER.values(), ids=TOGETHER)
def test_nodes_that_go_at_once_are_all_told_of(case: Together) -> None:
    grace = timedelta(minutes=case.grace_minutes)
    yard = Yard({"tiger": {"a": 5}}, {"tiger": {"red": 32, "blue": 8}}, grace=grace)
    case.submit(yard)
    for node, (service, reason) in case.out.items():
        yard.set_service([node], service, reason)
    yard.round()
    (told,) = [each for each in tell(yard) if each.workload == "run"]
    assert (str(told.what), told.happened) == (case.want_what, case.want_happened)


class Seen(NamedTuple):
    """Observed work of red (16 of its 16, a gang) and of blue (24 as flex) in an island of 5: what is out of it."""

    out: dict[str, tuple[Service, str]]
    want_happened: str
    want_done: str
    want_left: str
    is_announced: bool = False


DRAINS = Service.DRAINING, "planned: nic-firmware, tiger batch 1"
RUNS_ON = "nothing: this work is not placed by Plimsoll, and runs on until the nodes go"
NOT_OURS = "nothing: this work is not placed by Plimsoll"
ALL = [f"tiger-a-{number}" for number in range(1, 6)]

SEEN = {
    "all nodes drain for planned work of which somebody told the end": Seen(
        dict.fromkeys(ALL, DRAINS),
        "nodes of tiger drain, and the others can't carry all that runs there; by the order of loss it gives up 16 of"
        " its 16; planned work (planned: nic-firmware, tiger batch 1, until 2026-03-02T13:00:00Z) has 40 of the 40 GPUs"
        " that are not in service there",
        RUNS_ON,
        "planned: nic-firmware, tiger batch 1, until 2026-03-02T13:00:00Z; save a checkpoint",
        is_announced=True,
    ),
    "nobody told the end": Seen(
        dict.fromkeys(ALL, DRAINS),
        "nodes of tiger drain, and the others can't carry all that runs there; by the order of loss it gives up 16 of"
        " its 16; planned work (planned: nic-firmware, tiger batch 1) has 40 of the 40 GPUs that are not in service"
        " there",
        RUNS_ON,
        "planned: nic-firmware, tiger batch 1; save a checkpoint",
    ),
    "they are gone for it": Seen(
        dict.fromkeys(ALL, FIRMWARE),
        "fewer GPUs of tiger work than run work; by the order of loss it gives up 16 of its 16; planned work (planned:"
        " firmware) has 40 of the 40 GPUs that are not in service there",
        NOT_OURS,
        "planned: firmware; look at it in its own scheduler",
    ),
    "some drain and one broke: what is left of it is on nodes that drain": Seen(
        {"tiger-a-1": BROKEN} | dict.fromkeys(ALL[1:], DRAINS),
        "nodes of tiger drain, and the others can't carry all that runs there; by the order of loss it gives up 16 of"
        " its 16; planned work (planned: nic-firmware, tiger batch 1) has 32 of the 40 GPUs that are not in service"
        " there",
        RUNS_ON,
        "planned: nic-firmware, tiger batch 1; save a checkpoint",
    ),
    "they broke": Seen(
        dict.fromkeys(ALL, BROKEN),
        "fewer GPUs of tiger work than run work; by the order of loss it gives up 16 of its 16; none of the 40 GPUs"
        " that are not in service there is planned work",
        NOT_OURS,
        "look at it in its own scheduler",
    ),
}


@pytest.mark.parametrize("case", SEEN.values(), ids=SEEN)
def test_what_the_owner_of_observed_work_is_told_of_planned_work(case: Seen) -> None:
    yard = Yard({"tiger": {"a": 5}}, {"tiger": {"red": 16}})
    yard.observe("run", "red", "tiger", "a", 16)
    yard.observe("flex", "blue", "tiger", "a", 24, kind=Kind.ELASTIC)
    for node, (service, reason) in case.out.items():
        yard.set_service([node], service, reason)
    if case.is_announced:
        until = yard.now + timedelta(hours=4)
        yard.do(WorkAnnounced(Ahead("fw", "campaign:nic-firmware", tuple(ALL), yard.now, until, "nic-firmware")))
    (told,) = [each for each in tell(yard) if each.workload == "run"]
    assert (str(told.what), told.gpus) == ("gpus_lost", 16)
    assert (told.happened, told.done, told.left) == (case.want_happened, case.want_done, case.want_left)


def test_who_has_lost_something_and_loses_more_with_the_nodes_that_drain_is_told_both() -> None:
    """3 of 5 nodes are in service, of those 1 drains: 24 GPUs work under 40, then 16. Red's elastic 40 loses 16, 8."""
    yard = Yard({"tiger": {"a": 5}}, {"tiger": {"red": 40}})
    yard.observe("run", "red", "tiger", "a", 40, kind=Kind.ELASTIC)
    yard.set_service(["tiger-a-1", "tiger-a-2"], *BROKEN)
    yard.set_service(["tiger-a-3"], *DRAINS)
    (told,) = tell(yard)
    assert told.happened == (
        "fewer GPUs of tiger work than run work; by the order of loss it gives up 24 of its 40; planned work (planned:"
        " nic-firmware, tiger batch 1) has 8 of the 24 GPUs that are not in service there"
    )
    assert told.done == RUNS_ON
    assert told.left == "planned: nic-firmware, tiger batch 1; save a checkpoint; look at it in its own scheduler"
