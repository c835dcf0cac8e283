"""What stands beside a table as CSV is that table: the same things, no others, also where the page is filtered."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest

from plimsoll.times import utc_now
from tests.support.served import OTHER, TEAM, Served, make_people, serving, small_book


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """tiger (us) has 12 nodes and is over the line, lion (eu) has 4; a node of tiger is out, one request is open."""
    dsn = small_book(tmp_path_factory.mktemp("csv"))
    with serving(dsn, make_people(dsn)) as server:
        for path, sent in (
            ("/health/set", {"words": ["t12", "repair"], "reason": "it smokes"}),
            ("/requests", {"team": TEAM, "gpus": "8", "sku": "H200", "reason": "more"}),
        ):
            reply = server.post(path, sent)
            assert reply.status == 200, reply.body[:300]
        yield server


def tables_of(site: Served, path: str) -> list[list[dict[str, str]]]:
    """The rows of every file that a page has a link to, in the order of the page."""
    html = site.ask(path, who="admin", Accept="text/html").body.decode()
    found = []
    for link in re.findall(r'href="(/api/v1/[^"]*format=csv[^"]*)"', html):
        reply = site.ask(unescape(link), who="admin")
        assert (reply.status, reply.headers["content-type"].split(";")[0]) == (200, "text/csv"), link
        found.append(list(csv.DictReader(io.StringIO(reply.body.decode()))))
    return found


BESIDE = {
    "what a correction takes from each team": ("/quota", "team", {TEAM, OTHER}),
    "every team": ("/teams", "team", {TEAM, OTHER}),
    "clusters by share in service": ("/health", "in_service_share", {"0.9167", "1.0"}),
    "reasons that nodes are out": ("/health", "reason", {"it smokes"}),
    "service levels of every cluster": ("/health/levels", "cluster", {"tiger", "lion"}),
    "clusters that are shown": ("/?area=eu", "cluster", {"lion"}),
    "clusters that are found": ("/?find=tig&over=yes", "cluster", {"tiger"}),
    "nodes of an area": ("/map?area=eu", "node", {f"l{number}" for number in range(1, 5)}),
    "nodes of a cluster": ("/clusters/lion", "node", {f"l{number}" for number in range(1, 5)}),
    "teams of a cluster": ("/clusters/tiger", "team", {TEAM, OTHER}),
    "options of a request": ("/requests/q1", "option", {"1", "2", ""}),
    "what happened to a node": ("/nodes/t12", "service", {"repair"}),
    "flex as a team sees it": (f"/teams/{TEAM}/flex", "cluster", {"tiger", "lion"}),
}
"""Of a page: a column of one of its files, and what stands there."""


@pytest.mark.parametrize("case", BESIDE)
def test_the_file_beside_a_table_is_that_table(site: Served, case: str) -> None:
    path, column, want = BESIDE[case]
    found = [{row[column] for row in rows} for rows in tables_of(site, path) if rows and column in rows[0]]
    assert want in found, [list(rows[0]) for rows in tables_of(site, path) if rows]


def test_what_a_correction_takes_is_in_the_file_as_on_the_page(site: Served) -> None:
    """Tiger has 11 nodes of 8 in service: 15 % of 12 kept back leave 10, and 112 GPUs are assigned: 32 are over. Of
    what nothing runs on the one has 32 and the other 64, so they lose one node and three. In lion all fit: 4 x 8 x
    0.85 is 24 in whole nodes, and 16 are assigned."""
    rows = next(rows for rows in tables_of(site, "/quota") if rows and "clusters_cut" in rows[0])
    assert [(row["team"], row["cut"], row["assigned"], row["guaranteed"], row["clusters_cut"]) for row in rows] == [
        (OTHER, "24", "64", "40", "1"),
        (TEAM, "8", "64", "56", "1"),
    ]


def test_a_node_that_is_held_says_who_holds_it_and_until_when(site: Served) -> None:
    hold = {"targets": ["t11"], "id": "cables", "reason": "new cables", "until": "2h", "service": "repair"}
    assert site.post("/holds", hold).status == 200
    assert site.post("/health/signal", {"node": "t11", "kind": "xid", "name": "79", "feed": "dcgm"}).status == 200
    revision = site.api("/audit/head").document["revision"]
    reply = site.ask(f"/nodes/t11?at_least={revision}", who="viewer", Accept="text/html")
    assert reply.status == 200
    html = reply.body.decode()
    assert re.search(r"admin@example.org</th><td>repair</td><td><time[^>]*>[^<]+</time></td><td><time", html)
    assert "new cables" in html
    assert "xid" in html[html.index("Problems") :]


ROLLING = """\
campaign: nic
changes: [{component: nic, version: "2"}]
scope: {cluster: tiger}
start: 2099-01-01
deadline: 2099-01-30
window: {hours: [0, 24], tz: Etc/UTC}
work: [{mode: rolling, share_per_day: 0.05, hours: 4}]
"""
"""A node a day: twelve days for the twelve of tiger."""


def test_a_file_has_a_line_for_what_is_a_line_on_the_page(tmp_path: Path) -> None:
    """Where a terminal puts more into a file: every batch of a campaign, not only the next ten; every hour of a pool,
    not what it came to; every node of a hold. Four of twelve nodes of tiger are out: eight have 64 GPUs."""
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn)) as server:
        for path, sent in (
            ("/campaigns/plan", {"file": ROLLING, "seconds": 1}),
            ("/health/set", {"words": ["t12", "repair"], "reason": "it smokes"}),
            ("/holds", {"targets": ["t10", "t11"], "id": "cables", "reason": "new cables", "until": "2h"}),
        ):
            assert server.post(path, sent).status == 200
        files = server.api("/fleet/export").document["files"]
        files["history.csv"] = f"time,node,service,reason\n{utc_now() - timedelta(days=2):%Y-%m-%d},t1,repair,a fan\n"
        assert server.post("/fleet/import", {"files": files}).status == 200
        ticks, batches = (rows for rows in tables_of(server, "/campaigns/nic") if rows and "waits_for" in rows[0])
        assert (len(ticks), len(batches)) == (10, 12)
        (moved,) = (rows for rows in tables_of(server, "/changes") if rows and "fewest" in rows[0])
        assert [(row["cluster"], row["healthy"]) for row in moved] == [("tiger", "64"), ("lion", "32")]
        (held,) = (rows for rows in tables_of(server, "/health") if rows and "hold" in rows[0])
        assert [(row["nodes"], row["reason"]) for row in held] == [("1", "it smokes"), ("2", "new cables")]
