"""What the fleet is to a campaign is worked out once in a pass, and anew when it has changed."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from plimsoll.campaigns.run.census import Census
from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded, SkuWeighed
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Cluster, Node, Phase, Service
from plimsoll.ledger.model import Change
from tests.support.dock import FILE, Dock, with_lines

AUTOMATIC = with_lines(FILE, "run: {grace_minutes: 0, work: [update]}", "limits: [{kind: out_at_once, at_most: 99}]")


def _node(**changes: object) -> Callable[[Node, Cluster], Change]:
    return lambda node, _cluster: NodeRecorded(msgspec.structs.replace(node, **changes), was={"service": "in_service"})


CASES: dict[str, tuple[Callable[[Node, Cluster], Change], bool]] = {
    "a node breaks": (_node(service=Service.REPAIR), True),
    "a node is retired": (_node(service=Service.RETIRED), False),
    "a node gets a label": (_node(labels={"serves": "api"}), False),
    "a node is of another kind": (_node(sku="H100"), False),
    "a node joins": (lambda node, _: NodeRecorded(msgspec.structs.replace(node, id="tiger-9")), False),
    "a cluster leaves production": (
        lambda _, cluster: ClusterRecorded(msgspec.structs.replace(cluster, phase=Phase.RETIRED)),
        False,
    ),
    "a SKU weighs more": (lambda _node, _cluster: SkuWeighed("H200", 4.0), False),
}


@pytest.mark.parametrize("name", CASES)
def test_it_holds_until_something_that_counts_has_changed(name: str) -> None:
    make, want = CASES[name]
    dock = Dock({"tiger": 2})
    dock.plan(tiger="05T11:00")
    fleet = dock.state.of(Fleet)
    census = Census(dock.run.campaign, fleet)
    assert census.holds_for(dock.run.campaign, fleet)
    dock.commit(make(fleet.nodes["tiger-1"], fleet.clusters["tiger"]))
    assert census.holds_for(dock.run.campaign, dock.state.of(Fleet)) is want


def test_a_pass_makes_it_once_however_many_batches_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made for each batch, a pass at 720 clusters took five minutes."""
    made: list[Census] = []
    real = Census.__init__

    def counted(census: Census, *arguments: object) -> None:
        made.append(census)
        real(census, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Census, "__init__", counted)
    dock = Dock({"tiger": 2, "whale": 2, "bear": 2}, AUTOMATIC)
    dock.plan(tiger="05T11:00", whale="05T11:00", bear="05T11:00")
    dock.start()
    dock.go("05T11:00")
    assert {dock.step(f"{name}#1") for name in ("tiger", "whale", "bear")} == {"working"}
    assert len(made) == 1
