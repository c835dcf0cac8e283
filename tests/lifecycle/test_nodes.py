"""How machines become nodes: they join, they are checked, they enter service; nobody's node is taken."""

from __future__ import annotations

import pytest

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase, Service
from plimsoll.lifecycle.model import Going
from plimsoll.lifecycle.nodes import counts_by_set
from plimsoll.lifecycle.outside import NodeFound, set_wishes
from tests.support.slipway import BARE, Slip, life


def services(slip: Slip, name: str = "lynx") -> dict[str, str]:
    nodes = slip.state.of(Fleet).nodes.values()
    return {node.id: str(node.service) for node in nodes if node.cluster == name}


def until_machines(slip: Slip, *, nodes: int = 3, islands: int = 2) -> None:
    slip.begin(nodes=nodes, islands=islands)
    slip.finish("checkin", "bootstrap")


SPREAD = {
    "evenly": (4, 2, [(2, 1), (2, 3)]),
    "larger ones first": (7, 3, [(3, 1), (2, 4), (2, 6)]),
    "one island": (5, 1, [(5, 1)]),
    "as many as nodes": (2, 2, [(1, 1), (1, 2)]),
}


@pytest.mark.parametrize("told", SPREAD)
def test_nodes_are_dealt_over_islands(told: str) -> None:
    nodes, islands, want = SPREAD[told]
    wishes = set_wishes(life(nodes=nodes, islands=islands))
    assert [(wish.nodes, wish.first) for wish in wishes] == want
    assert [wish.name for wish in wishes] == [f"lynx-{number}" for number in range(1, islands + 1)]


def test_machines_are_counted_by_set_whatever_they_call_it() -> None:
    some = life(nodes=4, islands=2)
    found = [NodeFound("a", "lynx-1"), NodeFound("b", "lynx-i1"), NodeFound("c", "lynx-i2"), NodeFound("d", "")]
    assert counts_by_set(some, found) == {"lynx-1": 2, "lynx-2": 1}
    assert counts_by_set(life(nodes=4), [NodeFound("a"), NodeFound("b", "lynx-i1")]) == {"lynx-1": 2}


def test_machines_join_as_they_come_and_wait_for_their_checks() -> None:
    with Slip() as slip:
        until_machines(slip)
        slip.cloud.fill("lynx", 2)
        slip.run(minutes=1)
        assert services(slip) == {"lynx-01": "joining", "lynx-02": "joining"}
        slip.finish("scale-sets")
        assert services(slip) == dict.fromkeys(("lynx-01", "lynx-02", "lynx-03"), "joining")
        assert [slip.node(f"lynx-0{number}").island for number in (1, 2, 3)] == ["lynx-i1", "lynx-i1", "lynx-i2"]
        slip.finish("services")
        assert set(services(slip).values()) == {"validating"}
        slip.finish("burn-in")
        assert set(services(slip).values()) == {"in_service"}
        assert slip.node("lynx-01").gpus == 8


def test_a_node_that_fails_its_checks_is_held_and_the_others_enter() -> None:
    with Slip() as slip:
        slip.cloud.bad_nodes = {"lynx-02"}
        slip.build()
        want = {"lynx-01": "in_service", "lynx-02": "quarantined", "lynx-03": "in_service", "lynx-04": "in_service"}
        assert services(slip) == want
        assert "burn-in failed, ecc" in slip.node("lynx-02").reason
        slip.run(minutes=11)
        assert slip.phase() is Phase.PRODUCTION, "three of four are enough by this recipe"


def test_without_checks_of_its_own_nodes_validate_when_they_are_there() -> None:
    with Slip() as slip:
        slip.apply(BARE)
        slip.begin(recipe="bare")
        slip.finish("scale-sets")
        assert set(services(slip).values()) == {"validating"}


def test_a_node_of_another_cluster_is_not_taken() -> None:
    with Slip() as slip:
        slip.begin("puma", nodes=1)
        slip.finish("checkin", "bootstrap", "scale-sets", name="puma")
        slip.cloud.names["lynx-02"] = "puma-01"
        until_machines(slip)
        slip.finish("scale-sets")
        assert slip.node("puma-01").cluster == "puma"
        assert slip.life().works["scale-sets"].going is Going.STUCK
        slip.cloud.names.clear()
        slip.retry(step="scale-sets")
        slip.run()
        slip.finish("scale-sets")
        assert slip.life().is_done("scale-sets")
        assert set(services(slip)) == {"lynx-01", "lynx-02", "lynx-03"}


def test_the_name_of_a_node_that_was_retired_is_free_again() -> None:
    """The machine was puma's, and left with it; no mark of that keeps it out."""
    with Slip() as slip:
        slip.produce("puma", nodes=1)
        slip.retire("puma")
        slip.run()
        slip.finish("destroy", name="puma")
        assert slip.phase("puma") is Phase.RETIRED
        slip.cloud.names["lynx-01"] = "puma-01"
        slip.produce(nodes=1)
        assert (slip.node("puma-01").cluster, slip.node("puma-01").service) == ("lynx", Service.IN_SERVICE)


def test_seeing_a_machine_again_changes_nothing() -> None:
    with Slip() as slip:
        slip.build()
        slip.set_service(["lynx-01"], Service.REPAIR)
        slip.run(minutes=1)
        assert services(slip)["lynx-01"] == "repair"
        assert not slip.idle()
