"""Lists are given page by page: every one in the table of routes, or it says why not; and its pages are the list."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from plimsoll.commands.catalog import command
from plimsoll.commands.desk import Desk, at
from plimsoll.rooms import open_keeper
from plimsoll.server.call import Operation
from plimsoll.server.routes import API, ROUTES, Route
from plimsoll.server.shapes import SHAPES, shape_of
from plimsoll.server.shapes.model import Shape, whole
from tests.server.shapes.test_voyages import WORK
from tests.support.served import Reply, Served, make_people, serving

READ = [route for route in ROUTES if route.is_read]
PAGED = [route for route in READ if route.items]

AS_A_WHOLE: dict[str, set[str]] = {
    "sums over the fleet, a row for each group that was asked for": {"/fleet"},
    "one picture, in columns that belong together": {"/fleet/map"},
    "what needs a person: each part is as long as the fleet has feeds, holds and reasons": {"/health"},
    "one node": {"/nodes/{node}"},
    "a plan is taken or left as a whole": {"/quota/plan", "/quota/rollout"},
    "one table of policies, and what it rests on": {"/quota/compare"},
    "the same few checks for every cluster": {"/quota/pilot/{cluster}"},
    "one request, with at most a handful of options": {"/requests/{request_id}"},
    "one workload": {"/workloads/{name}"},
    "one team's pools, as one table": {"/teams/{team}/usage"},
    "the fewest moves: half of them open nothing": {"/defrag"},
    "one explanation": {"/why"},
    "one campaign, or the nodes of one batch": {
        "/campaigns/{name}",
        "/campaigns/{name}/calendar",
        "/campaigns/{name}/gate/{batch}",
    },
    "one cluster": {"/clusters/{name}"},
    "one incident": {"/incidents/{name}"},
    "one principal's roles": {"/access/check", "/whoami"},
    "has a bound of its own, and counts the rest": {"/audit/verify"},
}
"""Lists that have no pages, and why."""


def lists_in(shape: Shape) -> set[str]:
    """The lists that a document may have at its top; `` is the document itself."""
    shape = whole(shape)
    found = {""} if _is_list(shape) else set()
    for word in ("oneOf", "anyOf", "allOf"):
        found |= set().union(*(lists_in(each) for each in shape.get(word, ())))
    return found | {name for name, each in shape.get("properties", {}).items() if _is_list(whole(each))}


def _is_list(shape: Shape) -> bool:
    kinds = [whole(each) for each in shape.get("anyOf", ())] or [shape]
    return any("array" in (each.get("type") or ()) and "prefixItems" not in each for each in kinds)


def lists_of(route: Route) -> set[str]:
    words = Operation(route).command.words
    return lists_in(shape_of(words, is_one=route.is_one)) if words in SHAPES else set()


def test_a_list_has_pages_or_says_why_not() -> None:
    without = {path for paths in AS_A_WHOLE.values() for path in paths}
    assert {route.path for route in READ if lists_of(route)} == {route.path for route in PAGED} | without
    assert {route.path for route in PAGED} & without == set()


@pytest.mark.parametrize("route", PAGED, ids=lambda route: route.path)
def test_what_is_given_page_by_page_is_a_list_of_the_document(route: Route) -> None:
    assert lists_of(route) & {route.items, ""}


@pytest.fixture(scope="module")
def site(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server on which everything is there more than once."""
    folder = tmp_path_factory.mktemp("lists")
    shutil.copy(book, folder / "plimsoll.db")
    dsn = f"sqlite:///{folder}/plimsoll.db"
    with serving(dsn, make_people(dsn)) as served:
        _fill(served, dsn)
        yield served


def _fill(served: Served, dsn: str) -> None:
    def do(path: str, **values: Any) -> Any:
        reply = served.post(path, values)
        assert reply.status == 200, (path, reply)
        return reply.document

    do("/quota/rollout", announce=True, reason="a test")
    do("/quota/apply", without_notice=True, reason="a test", clusters=["barnacle", "tapir"])
    held = sorted(served.api("/quota").document["teams"], key=lambda row: row["cluster"] != "barnacle")
    giver, taker = max(held[:2], key=lambda row: row["guaranteed"]), min(held[:2], key=lambda row: row["guaranteed"])
    where = {"cluster": giver["cluster"], "sku": giver["sku"]}
    first, other = served.api("/nodes?filter=service%3Din_service").document["nodes"][:2]
    for number in (1, 2):
        lasts = {"for": f"{number}d"}
        do("/incidents", title=f"smoke {number}", id=f"smoke-{number}")
        do("/health/announced", targets=["cluster=lemur"], id=f"w{number}", reason="dust", until="4d", **{"from": "3d"})
        do("/requests", team=giver["team"], gpus="8", sku=giver["sku"], reason="a run")
        do("/transfers", giver=giver["team"], taker=taker["team"], gpus="8", **where, **lasts, reason="lent")
        do("/workload-holds", team=giver["team"], gpus="8", **where, until="2099-01-01", **{"for": f"p{number}"})
        do("/workloads", files=[WORK.format(name=f"gang-{number}", team=giver["team"], gpus=16)])
        do("/campaigns/plan", file=CAMPAIGN.format(number=number, cap=400), seconds=1)
        new = {"region": "eastus", "subscription": f"sub-{number}", "sku": "H200", "nodes": 8, "area": "us"}
        do("/clusters", name=f"lynx-{number}", **new)
    do("/campaigns/nic-1/replan", file=CAMPAIGN.format(number=1, cap=120), seconds=1)
    do("/campaigns/versions", file=f"node,component,version\n{first['node']},nic,1\n{other['node']},nic,2\n")
    do("/campaigns/want", pairs=["nic=3"], scope=[f"cluster={first['cluster']}"])
    for cluster in ("tapir", "barnacle"):
        do("/holds", targets=[f"cluster={cluster}"], id=f"{cluster}-cables", reason="cables", until="4h")
    do("/workloads/run")
    with open_keeper(dsn) as keeper, at(Desk(keeper, "tester")):
        command("incident run").done()


CAMPAIGN = """\
campaign: nic-{number}
changes: [{{component: nic, version: "2"}}]
scope: {{}}
start: 2099-01-01
deadline: 2099-01-20
window: {{hours: [0, 24], tz: Etc/UTC}}
work: [{{mode: whole, hours: 4}}]
limits: [{{kind: out_at_once, at_most: {cap}}}]
no_fly: [{{from: 2020-01-01, to: 2099-01-02, scope: {{cluster: lemur}}, why: a launch}}]
"""
ASKED: dict[str, str] = {
    "/campaigns/compare": "left=nic-1:1&right=nic-1:2",
    "/campaigns/versions": "by=node",
    "/health/levels": "by=node",
}
FEW = {"/quota/promise": "a promise is broken by the hour", "/clusters/times": "no cluster was made here"}
"""What has less than two rows here, and why."""


def walk(served: Served, path: str, limit: int) -> list[Reply]:
    """All pages, by the links alone."""
    replies, here = [], f"{path}{'&' if '?' in path else '?'}limit={limit}"
    while here:
        replies.append(served.api(here))
        assert replies[-1].status == 200, (here, replies[-1])
        link = replies[-1].headers.get("link", "")
        here = link[1 : link.index(">")].removeprefix(API) if link else ""
        assert len(replies) < 2_000
    return replies


def rows_in(reply: Reply, items: str) -> list[Any]:
    document = reply.document
    return list(document if isinstance(document, list) else document[items])


def csv_in(reply: Reply) -> list[list[str]]:
    return list(csv.reader(io.StringIO(reply.body.decode())))


LISTS = [route for route in PAGED if not route.is_log]


@pytest.mark.parametrize("route", LISTS, ids=lambda route: route.path)
def test_its_pages_are_the_list(site: Served, route: Route) -> None:
    team = site.api("/quota").document["teams"][0]["team"]
    path = f"{route.path.replace('{team}', quote(team))}?{ASKED.get(route.path, '')}"
    want, want_csv = rows_in(site.api(path), route.items), csv_in(site.api(f"{path}&format=csv"))
    assert len(want) >= 2 or route.path in FEW
    limit = len(want) // 3 + 1
    pages = [rows_in(reply, route.items) for reply in walk(site, path, limit)]
    assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1)
    assert [row for page in pages for row in page] == want
    tables = [csv_in(reply) for reply in walk(site, f"{path}&format=csv", limit)]
    assert {tuple(table[0]) for table in tables} == {tuple(want_csv[0])}
    assert [row for table in tables for row in table[1:]] == want_csv[1:]


# The log.


def test_the_whole_log_is_walked_by_its_links(site: Served) -> None:
    """Newest page first, each oldest first: all of it, once, also while more is recorded."""
    with open_keeper(site.house.settings.dsn) as keeper:
        head = keeper.ledger.head().revision
    replies = walk(site, "/events", 300)
    assert len(replies) == -(-head // 300) >= 4
    found = [event["revision"] for reply in reversed(replies) for event in rows_in(reply, "events")]
    assert found == list(range(1, head + 1))
    newest = site.api("/events")
    assert len(rows_in(newest, "events")) == 50
    site.post("/incidents", {"title": "more smoke"})
    link = newest.headers["link"]
    before = site.api(link[1 : link.index(">")].removeprefix(API))
    assert [event["revision"] for event in rows_in(before, "events")] == list(range(head - 99, head - 49))


LOGS: dict[str, str] = {
    "what one did": "actor=admin@example.org",
    "one kind": "kind=quota.*",
    "the past": "kind=quota.*&as_of=1500",
    "after a revision": "after=1400&as_of=1500",
    "nothing at all": "actor=nobody",
}


@pytest.mark.parametrize("what", LOGS)
@pytest.mark.parametrize("form", ["json", "csv"])
def test_what_is_looked_for_in_the_log_is_walked_as_well(site: Served, what: str, form: str) -> None:
    want = [event["revision"] for event in rows_in(site.api(f"/events?{LOGS[what]}&limit=1000"), "events")]
    assert 7 < len(want) < 1_000 or what == "nothing at all"
    found: list[int] = []
    for reply in walk(site, f"/events?{LOGS[what]}&format={form}", 7):
        if form == "json":
            found = [event["revision"] for event in rows_in(reply, "events")] + found
        else:
            found = [int(row[0]) for row in csv_in(reply)[1:]] + found
    assert found == want
