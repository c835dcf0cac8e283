"""The fleet as it is counted and listed: the numbers are worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from plimsoll.errors import UsageError
from plimsoll.filter import parse_filter
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.view import By, count_all, count_cells, count_groups, find_nodes, node_fields
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import NOW, Importer, write_skus


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """tiger: 3 H200 nodes in two islands, one in repair, one more retired, and 2 GB200. lion: 2 B300, not in
    production yet. owl: nothing but its name.
    """
    folder: Path = write_fleet(
        tmp_path_factory.mktemp("fleet"),
        clusters=[
            row("clusters", serves="api"),
            row("clusters", cluster="lion", area="eu", region="eu-west", phase="provisioned", purpose="applied"),
            row("clusters", cluster="owl", area="uk", phase="planned"),
        ],
        nodes=[
            row("nodes", node="t1", rack="r1", since="2026-01-01T00:00:00Z"),
            row("nodes", node="t2", island="tiger-b", since="2026-01-15T00:00:00Z"),
            row("nodes", node="t3", service="repair", since="2026-01-19T00:00:00Z", reason="xid 79"),
            row("nodes", node="t4", service="retired"),
            *nodes(2, prefix="g", sku="GB200", gpus="4", island="tiger-c"),
            *nodes(2, prefix="l", cluster="lion", island="lion-a", sku="B300", rack="r1"),
        ],
    )
    importer = Importer()
    importer.bring(write_skus(folder, [{"sku": "B300", "a100e": "14"}]))
    return importer.state.fork().of(Fleet)


class Want(NamedTuple):
    """One group, as counted by hand. A100e: H200 3.2, GB200 8."""

    clusters: int
    islands: int
    nodes: int
    nodes_in_service: int
    total: int
    healthy: int
    healthy_share: float | None
    total_a100e: float
    healthy_a100e: float
    not_in_production: int


TIGER = Want(1, 3, 5, 4, 32, 24, 0.75, 140.8, 115.2, 0)
LION = Want(1, 1, 2, 2, 0, 0, None, 0.0, 0.0, 16)
H200 = Want(1, 2, 3, 2, 24, 16, 0.6667, 76.8, 51.2, 0)
GB200 = Want(1, 1, 2, 2, 8, 8, 1.0, 64.0, 64.0, 0)
GROUPS: dict[By, dict[str, Want]] = {
    By.CLUSTER: {"lion": LION, "tiger": TIGER},
    By.AREA: {"eu": LION, "us": TIGER},
    By.REGION: {"eu-west": LION, "us-north": TIGER},
    By.PURPOSE: {"applied": LION, "research": TIGER},
    By.PHASE: {"production": TIGER, "provisioned": LION},
    By.SKU: {"B300": LION, "GB200": GB200, "H200": H200},
    By.ISLAND: {
        "lion-a": LION,
        "tiger-a": Want(1, 1, 2, 1, 16, 8, 0.5, 51.2, 25.6, 0),
        "tiger-b": Want(1, 1, 1, 1, 8, 8, 1.0, 25.6, 25.6, 0),
        "tiger-c": GB200,
    },
    By.SERVICE: {
        "in_service": Want(2, 4, 6, 6, 24, 24, 1.0, 115.2, 115.2, 16),
        "repair": Want(1, 1, 1, 0, 8, 0, 0.0, 25.6, 0.0, 0),
    },
}


@pytest.mark.parametrize("by", GROUPS)
def test_the_fleet_is_counted_by_anything(by: By, fleet: Fleet) -> None:
    found = count_groups(fleet, count_cells(find_nodes(fleet, parse_filter("", now=NOW))), by)
    assert {group.name: Want(*[getattr(group, name) for name in Want._fields]) for group in found} == GROUPS[by]


def test_the_whole_fleet_is_counted_once(fleet: Fleet) -> None:
    total = count_all(fleet, count_cells(find_nodes(fleet, parse_filter("", now=NOW))))
    assert (total.clusters, total.islands, total.nodes) == (2, 4, 7)
    assert (total.total, total.healthy, total.total_a100e, total.not_in_production) == (32, 24, 140.8, 16)


FOUND = {
    "": "g1 g2 l1 l2 t1 t2 t3",
    "cluster=tiger": "g1 g2 t1 t2 t3",
    "service=retired": "t4",
    "service!=in_service": "t3 t4",
    "sku=H200 service=in_service": "t1 t2",
    "sku=GB200,B300": "g1 g2 l1 l2",
    "rack=r1": "l1 l2 t1",
    "rack=": "g1 g2 t2 t3",
    "serves=api rack=r1": "t1",
    "area=eu": "l1 l2",
    "phase!=production purpose=applied": "l1 l2",
    "gpus<8": "g1 g2",
    "since<7d": "t1",
    "since>=7d since<36h": "t2",
    "since>2026-01-15T00:00:00Z": "t3",
    "since=2026-01-15*": "t2",
    "reason=xid 79": "t3",
    "node=t*,l2 island!=tiger-b": "l2 t1 t3",
}


@pytest.mark.parametrize("text", FOUND)
def test_nodes_are_found_by_their_own_fields_their_clusters_and_labels(text: str, fleet: Fleet) -> None:
    found = find_nodes(fleet, parse_filter(text, now=NOW))
    assert " ".join(node.id for node in found) == FOUND[text]


def test_a_field_that_nothing_has_is_refused_with_those_there_are(fleet: Fleet) -> None:
    with pytest.raises(UsageError) as caught:
        list(find_nodes(fleet, parse_filter("isle=a", now=NOW)))
    assert caught.value.code == "unknown_field"
    assert caught.value.message == "there is no field 'isle' to filter by; did you mean 'island'?"
    assert caught.value.next_step == (
        "fields: node, cluster, island, sku, gpus, service, since, reason,"
        " region, area, colo, provider, purpose, phase, rack, serves"
    )
    assert "a100e" not in node_fields(fleet)
