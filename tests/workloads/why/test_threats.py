"""What may happen to work that runs: bad nodes under it, nodes that go, planned work ahead; known nodes or not.

Nodes have 8 GPUs. `NOBODY_TOLD` is an island of 5, of which red's observed gang has 16 and blue 16 as flex.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import pytest

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.changes import BreakerTripped, NodeMoved, WorkAnnounced
from plimsoll.health.facts import Facts, HealthFact
from plimsoll.health.model import Ahead
from plimsoll.incidents.changes import OwnerTold
from plimsoll.incidents.owners import decide_notices
from plimsoll.incidents.reasons import What
from plimsoll.quota.model import Kind
from plimsoll.workloads.reasons import Cause
from tests.support.chance import new_chance
from tests.support.yard import START, Yard, gang, spec
from tests.workloads.why.test_workload import why

DAY = timedelta(days=1)
ALL = tuple(f"tiger-a-{number}" for number in range(1, 6))


def observe_health(yard: Yard, node: str, health: HealthFact, *, reason: str) -> None:
    """Somebody says how it is, and nobody takes it out."""
    service = yard.state.of(Fleet).nodes[node].service
    yard.do(NodeMoved(node, service, Facts(health, why=reason), {"health": "healthy"}))


def announce(yard: Yard, nodes: tuple[str, ...], *, name: str = "fw", begins: timedelta = 4 * DAY) -> None:
    starts = START + begins
    yard.do(WorkAnnounced(Ahead(name, "ops", nodes, starts, starts + DAY / 6, f"planned: {name}")))


def drain(yard: Yard, *nodes: str, reason: str = "planned: nic-firmware") -> None:
    yard.set_service(nodes, Service.DRAINING, reason)


# Where its nodes are known: a gang of 16 on two nodes, and planned work on one of them in four days.


class Known(NamedTuple):
    act: Callable[[Yard, str, str], None]
    want: list[tuple[str, int]]
    want_first: str


def trip(yard: Yard, *nodes: str) -> None:
    yard.do(BreakerTripped("cluster/tiger", 1, 3600.0, 1, list(nodes)))


def held_back(yard: Yard, first: str, _second: str) -> None:
    observe_health(yard, first, HealthFact.UNHEALTHY, reason="xid 79")
    trip(yard, first)


def both_held_back(yard: Yard, first: str, second: str) -> None:
    held_back(yard, first, second)
    held_back(yard, second, first)
    trip(yard, first, second)


def fault_drains(yard: Yard, first: str, _second: str) -> None:
    drain(yard, first, reason="a fan")


def planned_drains(yard: Yard, first: str, second: str) -> None:
    yard.do(WorkAnnounced(Ahead("now", "ops", (first, second), START, START + DAY / 6, "planned: now")))
    drain(yard, first, second, reason="planned: now")


KNOWN = {
    "nothing but planned work": Known(
        lambda _yard, _first, _second: None, [("planned_ahead", 8)], "planned work (planned: fw) takes {0} from"
    ),
    "a bad node that a breaker keeps in service": Known(
        held_back,
        [("nodes_unhealthy", 8), ("planned_ahead", 8)],
        "{0} under it is unhealthy (xid 79), and the breaker of cluster/tiger keeps automation from taking it out",
    ),
    "two of them": Known(
        both_held_back,
        [("nodes_unhealthy", 16), ("planned_ahead", 8)],
        "2 nodes ({0}, …) under it are unhealthy (xid 79), and the breaker of cluster/tiger keeps automation from"
        " taking them out",
    ),
    "one of which nobody said more than that it is bad": Known(
        lambda yard, first, _second: trip(yard, first),
        [("nodes_unhealthy", 8), ("planned_ahead", 8)],
        "{0} under it is bad, and the breaker of cluster/tiger keeps automation from taking it out",
    ),
    "an unhealthy one that nobody takes out": Known(
        lambda yard, first, _second: observe_health(yard, first, HealthFact.UNHEALTHY, reason="xid 79"),
        [("nodes_unhealthy", 8), ("planned_ahead", 8)],
        "{0} under it is unhealthy (xid 79) and still in service",
    ),
    "a degraded one": Known(
        lambda yard, first, _second: observe_health(yard, first, HealthFact.DEGRADED, reason="slow link"),
        [("nodes_unhealthy", 8), ("planned_ahead", 8)],
        "{0} under it is degraded (slow link) and still in service",
    ),
    "a feed that is silent is no threat": Known(
        lambda yard, first, _second: observe_health(yard, first, HealthFact.UNKNOWN, reason="feed x is silent"),
        [("planned_ahead", 8)],
        "planned work",
    ),
    "a node that drains for a fault": Known(
        fault_drains,
        [("nodes_unhealthy", 8), ("planned_ahead", 8)],
        "{0} under it drains (a fan): it must leave it",
    ),
    "nodes that drain for planned work, which is told until when": Known(
        planned_drains,
        [("planned_work", 16), ("planned_ahead", 16)],
        "2 nodes ({0}, …) under it drain (planned: now, until 2026-03-02T13:00:00Z): it must leave them",
    ),
}


@pytest.mark.parametrize("case", KNOWN.values(), ids=KNOWN)
def test_what_threatens_work_on_known_nodes(case: Known) -> None:
    yard = Yard({"tiger": {"a": 2}}, {"tiger": {"red": 16}})
    yard.submit(spec("run", "red", gang(16)))
    first, second = sorted(yard.nodes("run"))
    announce(yard, (first,))
    case.act(yard, first, second)
    found = why(yard, "run")
    assert [(str(each.cause), each.gpus) for each in found.threats] == case.want
    assert found.answer[1].startswith(f"What may happen to it: {case.want_first.format(first, second)}")


# Where nobody told them.


class Untold(NamedTuple):
    """The threats, the notes, and what is said second: after what it runs as."""

    act: Callable[[Yard], None]
    want: list[tuple[str, int, str]]
    want_notes: list[str]
    want_second: str


def by_days(yard: Yard) -> None:
    """Each day another node, and then all of them on each of seven days."""
    for number, node in enumerate(ALL):
        announce(yard, (node,), name=f"roll-{number}", begins=(number + 1) * DAY)
    for number in range(7):
        announce(yard, ALL, name=f"all-{number}", begins=(number + 10) * DAY)


def overlapping(yard: Yard) -> None:
    """3 of 5 nodes, and the other 2 an hour later: each alone leaves 16 GPUs or more, together none."""
    announce(yard, ALL[:3], name="one", begins=DAY)
    announce(yard, ALL[3:], name="two", begins=DAY + DAY / 24)


def out_and_again(yard: Yard) -> None:
    """Until tomorrow by announced work that has begun, and again in four days."""
    announce(yard, ALL)
    yard.do(WorkAnnounced(Ahead("now", "ops", ALL, START, START + DAY, "planned: firmware")))
    yard.set_service(ALL, Service.MAINTENANCE, "planned: firmware")


def drained_and_again(yard: Yard) -> None:
    drain(yard, *ALL)
    announce(yard, ALL[:1])


def half_broken(yard: Yard) -> None:
    """One node in service: 8 GPUs."""
    yard.set_service(ALL[:3], Service.QUARANTINED, "xid 79")
    yard.set_service(ALL[3:4], Service.MAINTENANCE, "planned: firmware")


NOTHING = "Nothing threatens it that anybody knows of."
UNSURE = "By the order of loss nothing takes it; but nobody told on which nodes it runs."
MAY = "it may run on them, as nobody told its nodes; by the order of loss it gives up nothing"

UNTOLD = {
    "nothing": Untold(lambda _yard: None, [], [], NOTHING),
    "all nodes of its pool drain": Untold(
        lambda yard: drain(yard, *ALL),
        [("planned_work", 16, "all 5 H200 nodes of tiger drain (planned: nic-firmware): it gives up 16 of its 16 GPUs"
          " when they go")],
        [],
        "What may happen to it: all 5 H200 nodes of tiger drain (planned: nic-firmware): it gives up 16 of its 16 GPUs"
        " when they go.",
    ),
    "4 of 5 drain: the other carries no gang of 16": Untold(
        lambda yard: drain(yard, *ALL[:4]),
        [("planned_work", 16, "4 of the 5 H200 nodes of tiger drain (planned: nic-firmware); nobody told on which it"
          " runs: by the order of loss it gives up 16 of its 16 GPUs when they go")],
        [],
        "What may happen to it: 4 of the 5 H200 nodes of tiger drain (planned: nic-firmware); nobody told on which it"
        " runs: by the order of loss it gives up 16 of its 16 GPUs when they go.",
    ),
    "3 of 5 drain: flex goes first, and the gang fits into the others": Untold(
        lambda yard: drain(yard, *ALL[:3]),
        [],
        [f"3 of the 5 H200 nodes of tiger drain (planned: nic-firmware): {MAY}"],
        UNSURE,
    ),
    "a fault drains all": Untold(
        lambda yard: drain(yard, *ALL, reason="cooling"),
        [("nodes_unhealthy", 16, "all 5 H200 nodes of tiger drain (cooling): it gives up 16 of its 16 GPUs when they"
          " go")],
        [],
        "What may happen to it: all 5 H200 nodes of tiger drain (cooling): it gives up 16 of its 16 GPUs when they go.",
    ),
    "4 of 5 are gone, most of them broken": Untold(
        half_broken,
        [("nodes_unhealthy", 16, "4 of the 5 H200 nodes of tiger are out (xid 79, planned: firmware): by the order of"
          " loss 16 of its 16 GPUs are lost")],
        [],
        "What may happen to it: 4 of the 5 H200 nodes of tiger are out (xid 79, planned: firmware): by the order of"
        " loss 16 of its 16 GPUs are lost.",
    ),
    "planned work takes its pool in four days": Untold(
        lambda yard: announce(yard, ALL),
        [("planned_ahead", 16, "planned work (planned: fw) takes all 5 H200 nodes of tiger from 2026-03-06T09:00:00Z to"
          " 2026-03-06T13:00:00Z: it gives up 16 of its 16 GPUs")],
        [],
        "What may happen to it: planned work (planned: fw) takes all 5 H200 nodes of tiger from 2026-03-06T09:00:00Z to"
        " 2026-03-06T13:00:00Z: it gives up 16 of its 16 GPUs.",
    ),
    "planned work takes 2 of 5 nodes": Untold(
        lambda yard: announce(yard, ALL[:2]),
        [],
        ["planned work (planned: fw) takes 2 of the 5 H200 nodes of tiger from 2026-03-06T09:00:00Z to"
         f" 2026-03-06T13:00:00Z: {MAY}"],
        UNSURE,
    ),
    "planned work in another island of its pool leaves enough": Untold(
        lambda yard: announce(yard, ("tiger-b-1",)), [], [], NOTHING
    ),
    "all are out for planned work now, and back before more is done": Untold(
        out_and_again,
        [("planned_work", 16, "all 5 H200 nodes of tiger are out (planned: firmware, until 2026-03-03T09:00:00Z): by"
          " the order of loss 16 of its 16 GPUs are lost"),
         ("planned_ahead", 16, "planned work (planned: fw) takes all 5 H200 nodes of tiger from 2026-03-06T09:00:00Z to"
          " 2026-03-06T13:00:00Z: it gives up 16 of its 16 GPUs")],
        [],
        "What may happen to it: all 5 H200 nodes of tiger are out (planned: firmware, until 2026-03-03T09:00:00Z): by"
        " the order of loss 16 of its 16 GPUs are lost.",
    ),
    "all have drained already, and nobody told until when": Untold(
        drained_and_again,
        [("planned_work", 16, "all 5 H200 nodes of tiger drain (planned: nic-firmware): it gives up 16 of its 16 GPUs"
          " when they go")],
        ["planned work (planned: fw) takes 1 of the 5 H200 nodes of tiger from 2026-03-06T09:00:00Z to"
         f" 2026-03-06T13:00:00Z: {MAY} more"],
        "What may happen to it: all 5 H200 nodes of tiger drain",
    ),
    "two that overlap take all together": Untold(
        overlapping,
        [("planned_ahead", 16, "planned work (planned: one) takes 3 of the 5 H200 nodes of tiger from"
          " 2026-03-03T09:00:00Z to 2026-03-03T13:00:00Z; nobody told on which it runs: by the order of loss it gives"
          " up 16 of its 16 GPUs"),
         ("planned_ahead", 16, "planned work (planned: two) takes 2 of the 5 H200 nodes of tiger from"
          " 2026-03-03T10:00:00Z to 2026-03-03T14:00:00Z; nobody told on which it runs: by the order of loss it gives"
          " up 16 of its 16 GPUs")],
        [],
        "What may happen to it: planned work (planned: one)",
    ),
    "a pool in which planned work goes on day by day is told in a few lines": Untold(
        by_days,
        [("planned_ahead", 16, f"planned work (planned: all-{number}) takes all 5 H200 nodes of tiger from"
          f" 2026-03-{number + 12}T09:00:00Z to 2026-03-{number + 12}T13:00:00Z: it gives up 16 of its 16 GPUs")
         for number in range(5)],
        ["planned work takes nodes of its pool 2 times more, the last to 2026-03-18T13:00:00Z",
         "planned work (planned: roll-0) takes 1 of the 5 H200 nodes of tiger from 2026-03-03T09:00:00Z to"
         f" 2026-03-03T13:00:00Z, and other nodes 4 times more until 2026-03-07T13:00:00Z: {MAY}"],
        "What may happen to it: planned work (planned: all-0)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNTOLD.values(), ids=UNTOLD)
def test_what_threatens_work_whose_nodes_nobody_told(case: Untold) -> None:
    has_b = case.want_second == NOTHING
    yard = Yard({"tiger": {"a": 5, "b": 1} if has_b else {"a": 5}}, {"tiger": {"red": 16}})
    yard.observe("run", "red", "tiger", "a", 16)
    yard.observe("other", "blue", "tiger", "a", 16, kind=Kind.ELASTIC)
    case.act(yard)
    found = why(yard, "run")
    assert found.answer[0] == "run runs: 16 GPUs, all guaranteed, in H200 of tiger, island tiger-a."
    assert [(str(each.cause), each.gpus, each.says) for each in found.threats] == case.want
    assert list(found.notes) == case.want_notes
    assert found.answer[1].startswith(case.want_second)


def test_work_whose_nodes_are_known_is_judged_by_them_alone() -> None:
    """What becomes of the other nodes of its pool is nothing to it."""
    yard = Yard({"tiger": {"a": 5}}, {"tiger": {"red": 16}})
    yard.submit(spec("run", "red", gang(16)))
    others = tuple(sorted(set(ALL) - yard.nodes("run")))
    announce(yard, others)
    drain(yard, others[0])
    found = why(yard, "run")
    assert (found.threats, found.notes, found.answer[1]) == ((), (), NOTHING)


def test_never_a_loss_that_an_owner_is_told_of_and_why_does_not_know() -> None:
    """Of work whose nodes nobody told both go by the order of loss, however nodes drain, break and come back."""
    chance, told_count = new_chance(), 0
    yard = Yard({"tiger": {"a": 5, "b": 5}}, {"tiger": {"red": 32, "blue": 24}})
    for number, (team, island, gpus) in enumerate(
        [
            ("red", "a", 16),
            ("red", "b", 16),
            ("blue", "a", 16),
            ("blue", "b", 12),
            ("green", "a", 8),
            ("green", "b", 10),
        ]
    ):
        kind = Kind.GANG if number % 2 else Kind.ELASTIC
        yard.observe(f"run-{number}", team, "tiger", island, gpus, kind=kind)
    nodes = [f"tiger-{island}-{number}" for island in "ab" for number in range(1, 6)]
    for _ in range(200):
        service = chance.choice([Service.DRAINING, Service.QUARANTINED, Service.MAINTENANCE, Service.IN_SERVICE])
        yard.set_service(chance.sample(nodes, 2), service, "" if service is Service.IN_SERVICE else "planned: x")
        _, drafts = decide_notices(yard.state, yard.now)
        for told in (draft.change for draft in drafts):
            assert isinstance(told, OwnerTold)
            if told.what is What.GPUS_LOST:
                known = [each.gpus for each in why(yard, told.workload).threats if each.cause is Cause.PLANNED_WORK]
                assert (sum(known), told.workload) == (told.gpus, told.workload)
                told_count += 1
    assert told_count > 50, "the seed brought losses about"
