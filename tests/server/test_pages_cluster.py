"""A cluster's page: what is true of one that is being made, by name, as its page of the lifecycle tells it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.commands.catalog import command
from plimsoll.commands.desk import Desk, at
from plimsoll.rooms import open_keeper
from tests.support.fleets import nodes, row, write_fleet
from tests.support.served import TEAM, Served, make_people, serving, small_book

ROW = re.compile(r'<tr><th scope="row">([A-Z]\w+)</th><td><span class="badge([^"]*)">(\w+)</span>')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`heron` is being made, and was looked at once."""
    dsn = small_book(tmp_path_factory.mktemp("cluster-page"))
    with serving(dsn, make_people(dsn)) as server:
        heron = {"name": "heron", "region": "us", "subscription": "sub-a", "sku": "H200", "nodes": 6}
        assert server.post("/clusters", heron).status == 200
        with open_keeper(dsn) as keeper, at(Desk(keeper, "tester", dsn)):
            command("cluster run").done(names=["heron"])
        yield server


def html_of(site: Served, path: str) -> str:
    revision = site.api("/audit/head").document["revision"]
    reply = site.ask(f"{path}?at_least={revision}", who="viewer", Accept="text/html")
    assert reply.status == 200, reply.body[:500]
    return reply.body.decode()


def test_a_cluster_that_is_being_made_shows_its_conditions_by_name(site: Served) -> None:
    shown = site.api("/clusters/heron").document
    want = [(each["type"], each["status"]) for each in shown["conditions"]]
    assert ("SpecValid", "True") in want
    for path in ("/clusters/heron", "/lifecycle/heron"):
        rows = ROW.findall(html_of(site, path))
        assert [(name, status) for name, _, status in rows] == want, path
        tones = {status: tone.strip() for _, tone, status in rows}
        assert tones["True"] == "good", path


def test_a_cluster_in_production_shows_its_conditions_by_name(site: Served, tmp_path: Path) -> None:
    want = [(each["type"], each["status"]) for each in site.api("/clusters/heron").document["conditions"]]
    assert ROW.findall(html_of(site, "/clusters/heron"))
    fleet = write_fleet(
        tmp_path / "fleet",
        clusters=[row("clusters", cluster="heron")],
        nodes=nodes(2, prefix="h", cluster="heron", island="heron-a"),
        quotas=[row("quotas", team=TEAM, cluster="heron", gpus="8")],
    )
    sent = {file.name: file.read_text(encoding="utf-8") for file in fleet.iterdir()}
    assert site.post("/fleet/import", {"files": sent, "partial": True}).status == 200
    html = html_of(site, "/clusters/heron")
    assert "The hull" in html, "it has nodes now"
    rows = ROW.findall(html)
    assert [(name, status) for name, _, status in rows] == want
    assert rows[0][1].strip() == "good"
