"""The map of nodes: every node once, in its island, with what is known of it and who runs there."""

from __future__ import annotations

from plimsoll.filter import parse_filter
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.view import find_nodes
from plimsoll.workloads.map import FleetMap, fleet_map, map_rows
from tests.support.yard import START, Yard, gang, spec


def mapped(yard: Yard, *filters: str) -> FleetMap:
    return fleet_map(yard.state, find_nodes(yard.state.of(Fleet), parse_filter(list(filters), now=START)))


def test_every_node_stands_once_in_its_island() -> None:
    found = mapped(Yard({"tiger": {"a": 3, "b": 1}, "ant": {"a": 2}}))
    assert [(each.cluster, each.island, each.nodes, each.gpus) for each in found.islands] == [
        ("ant", "ant-a", 2, 16),
        ("tiger", "tiger-a", 3, 24),
        ("tiger", "tiger-b", 1, 8),
    ]
    assert found.nodes.node == ["ant-a-1", "ant-a-2", "tiger-a-1", "tiger-a-2", "tiger-a-3", "tiger-b-1"]
    assert found.nodes.island == [0, 0, 1, 1, 1, 2]
    assert {len(getattr(found.nodes, name)) for name in found.nodes.__struct_fields__} == {6}


def test_islands_stand_by_name_however_the_nodes_come() -> None:
    yard = Yard({"tiger": {"a": 1}, "ant": {"b": 1, "a": 1}})
    nodes = [yard.state.of(Fleet).nodes[name] for name in ("tiger-a-1", "ant-b-1", "ant-a-1")]
    found = fleet_map(yard.state, nodes)
    assert [each.island for each in found.islands] == ["ant-a", "ant-b", "tiger-a"]


def test_a_filter_leaves_the_other_islands_out() -> None:
    found = mapped(Yard({"tiger": {"a": 1}, "ant": {"a": 2}}), "cluster=ant")
    assert [each.island for each in found.islands] == ["ant-a"]


def test_a_node_tells_who_runs_on_it_and_an_island_how_much() -> None:
    yard = Yard({"tiger": {"a": 3}}, {"tiger": {"vision": 24}})
    yard.submit(spec("run-1", "vision", gang(16)))
    found = mapped(yard)
    assert [(each.workload, each.team) for each in found.works] == [("run-1", "vision")]
    assert found.islands[0].work == ((0, 16),)
    assert sorted(found.nodes.work) == [(), (0,), (0,)]


def test_a_node_that_is_out_tells_why_and_in_words() -> None:
    yard = Yard({"tiger": {"a": 2}})
    yard.lose("tiger-a-2")
    rows = map_rows(mapped(yard))
    services = {str(row[0]): row[5] for row in rows}
    assert services["tiger-a-1"] == "in_service"
    assert services["tiger-a-2"] != "in_service"
    gone = mapped(yard, "service!=in_service")
    assert gone.nodes.node == ["tiger-a-2"]
    assert gone.reasons == ["", "xid 79"]
    assert (gone.islands[0].nodes, gone.islands[0].gpus_in_service) == (1, 0)
    assert gone.reasons[gone.nodes.reason[0]] == yard.state.of(Fleet).nodes["tiger-a-2"].reason
