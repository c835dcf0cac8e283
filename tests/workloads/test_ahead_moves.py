"""Elastic work goes where no planned work is ahead of it, so that it moves once and not twice."""

from __future__ import annotations

from datetime import timedelta

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.changes import WorkAnnounced
from plimsoll.health.model import Ahead
from tests.support.yard import START, Yard, elastic, spec

DAY = timedelta(days=1)


def announce(yard: Yard, *nodes: str) -> None:
    yard.do(WorkAnnounced(Ahead("fw", "ops", nodes, START + DAY, START + 2 * DAY, "planned: firmware")))


def test_a_new_replica_avoids_the_nodes_that_are_still_to_be_updated() -> None:
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"blue": 32}})
    first = sorted(yard.state.of(Fleet).nodes)
    announce(yard, *first[1:])
    yard.submit(spec("serve", "blue", elastic(1, 1)))
    assert yard.nodes("serve") == {first[0]}


def test_it_takes_them_when_nothing_else_is_free() -> None:
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"blue": 32}})
    first = sorted(yard.state.of(Fleet).nodes)
    announce(yard, *first[:3])
    yard.submit(spec("serve", "blue", elastic(1, 3)))
    assert len(yard.nodes("serve")) == 3


def test_what_leaves_a_draining_node_goes_to_an_island_that_is_done() -> None:
    yard = Yard({"tiger": {"a": 2, "b": 2, "c": 3}}, {"tiger": {"blue": 56}})
    nodes = sorted(yard.state.of(Fleet).nodes)
    in_a, in_b = ([node for node in nodes if f"-{island}" in node] for island in "ab")
    yard.submit(spec("serve", "blue", elastic(1, 1)))
    home = yard.nodes("serve")
    assert home <= {*in_a, *in_b}, "the tightest rest"
    others = [node for node in (*in_a, *in_b) if node not in home]
    announce(yard, *others)  # only c is done
    yard.set_service(home, Service.DRAINING)
    yard.round()
    assert all("-c" in node for node in yard.nodes("serve")), yard.nodes("serve")
