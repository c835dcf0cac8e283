"""The past on every page: nothing is offered to be done, and what is shown leads to the same past."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from plimsoll.commands.catalog import command
from plimsoll.server.pages import registry
from plimsoll.server.pages.past import keep_past
from plimsoll.server.pages.registry import PAGES, Page
from tests.support.served import TEAM, Served, make_people, serving, small_book

WORK = """
workload: big
team: posttraining
where: {cluster: tiger, sku: H200}
owner: ada
parts:
  - {name: train, kind: gang, gpus: 80, tier: critical, rank: 1}
  - {name: graders, kind: elastic, replicas: {min: 1, max: 2, gpus: 8}, tier: high, rank: 2}
"""
NAMES = {"cluster": "tiger", "team": TEAM, "workload": "big", "request_id": "q1", "campaign": "fix", "step": "checkin",
         "node": "t1", "incident": "cooling"}  # fmt: skip
ACTING = {"/teams/{team}", "/workloads/{workload}", "/quota", "/requests/{request_id}", "/campaigns/{campaign}",
          "/lifecycle/{cluster}", "/health", "/incidents", "/incidents/{incident}", "/campaigns", "/lifecycle",
          "/workloads"}  # fmt: skip
"""Pages on which an admin can do something now."""
NO_PAST = {
    "audit head": "it says that it is of now",
    "workload example": "a file to begin with",
    "campaign example": "as well",
}
"""What pages of the past ask that knows no past."""
LINKS = re.compile(r'<[a-z]+ ([^>]*)(?:href|data-href|data-include)="([/?][^"]*)"')


class Site(NamedTuple):
    server: Served
    then: int
    """A revision of the past at which all of it was there."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Something to decide on every page; since then the controller may do more, and a request was made."""
    dsn = small_book(tmp_path_factory.mktemp("past"))
    with serving(dsn, make_people(dsn)) as server:
        plan = server.api("/campaigns/example?name=fix").body.decode()
        acts = [
            ("/quota/rollout", {"announce": True, "reason": "we tell first"}),
            ("/workloads", {"files": WORK}),
            ("/requests", {"team": TEAM, "gpus": "8", "sku": "H200", "reason": "more"}),
            ("/quota/modes/tiger", {"mode": "propose", "reason": "a try"}),
            ("/incidents", {"title": "cooling fails", "id": "cooling", "cluster": ["tiger"]}),
            ("/clusters", {"name": "heron", "region": "us", "subscription": "sub-a", "sku": "H200", "nodes": 6}),
            ("/holds", {"targets": ["t12"], "id": "cables", "reason": "recabling"}),
            ("/campaigns/plan", {"file": plan, "seconds": 1}),
        ]
        for path, sent in acts:
            reply = server.post(path, sent)
            assert reply.status == 200, (path, reply.body[:500])
        then = server.api("/audit/head").document["revision"]
        assert server.post("/quota/modes/tiger", {"mode": "enforce", "reason": "it did well"}).status == 200
        later = server.post("/requests", {"team": TEAM, "gpus": "16", "sku": "H200", "reason": "much more"})
        assert later.status == 200
        yield Site(server, then)


def address(page: Page) -> str:
    names = NAMES | ({"cluster": "heron"} if page.path.startswith("/lifecycle") else {})
    return page.path.format_map(names) + ("?submit=1" if page.path == "/workloads" else "")


def at(path: str, as_of: object) -> str:
    return f"{path}{'&' if '?' in path else '?'}as_of={as_of}"


def html_of(site: Site, path: str) -> str:
    reply = site.server.ask(path, who="admin", Accept="text/html")
    assert reply.status == 200, (path, reply.body[:500])
    return reply.body.decode()


@pytest.mark.parametrize("path", [page.path for page in PAGES if not page.is_now])
def test_in_the_past_nothing_can_be_done(site: Site, path: str) -> None:
    page = next(each for each in PAGES if each.path == path)
    if path in ACTING:
        assert "data-act=" in html_of(site, address(page)), "now there is something to do"
    then = html_of(site, at(address(page), site.then))
    assert "The past: as it was known at" in then
    assert "data-act=" not in then
    assert not re.search(r'href="[^"]*#(ask|act|submit)"', then), "a link to what can't be done"


@pytest.mark.parametrize("path", [page.path for page in PAGES if not page.is_now])
def test_in_the_past_every_link_stays_there(site: Site, path: str) -> None:
    page = next(each for each in PAGES if each.path == path)
    html = html_of(site, at(address(page), site.then))
    links = [(unescape(target), "data-now" in before) for before, target in LINKS.findall(html)]
    left = [target for target, is_out in links if not is_out and not _is_of(target, site.then)]
    assert left == []
    assert [_as_of(target) for target, is_out in links if is_out] == [[], []], "two ways back to now"
    assert {f"/{name}" for name in ("teams", "quota", "health", "audit")} <= {urlsplit(link).path for link, _ in links}
    for form in re.findall(r'<form[^>]*method="get".*?</form>', html, re.DOTALL):
        assert 'name="as_of"' in form or 'action="/api/' in form, form


def _as_of(target: str) -> list[str]:
    return parse_qs(urlsplit(target).query).get("as_of", [])


def _is_of(target: str, then: int) -> bool:
    """Of the same moment; or of none at all, or of one that the page itself names (an event of the log)."""
    if target.startswith(("/api/", "/static/", "/account", "/signin", "/?as_of=")):
        return True
    return _as_of(target) == [str(then)]


@pytest.mark.parametrize("path", [page.path for page in PAGES if page.is_now])
def test_what_is_only_of_now_never_looks_like_the_past(site: Site, path: str) -> None:
    page = next(each for each in PAGES if each.path == path)
    reply = site.server.ask(at(f"{address(page)}?left=1", site.then), who="admin", Accept="text/html")
    assert (reply.status, reply.headers["location"]) == (303, f"{address(page)}?left=1")


def test_the_modes_of_the_controller_are_those_of_then(site: Site) -> None:
    now, then = html_of(site, "/quota"), html_of(site, at("/quota", site.then))
    count = r'data-number="{}">(\d+)<'
    assert [re.findall(count.format(mode), now)[0] for mode in ("enforce", "propose")] == ["1", "0"]
    assert [re.findall(count.format(mode), then)[0] for mode in ("enforce", "propose")] == ["0", "1"]
    modes = site.server.api(at("/quota/modes", site.then)).document["modes"]
    assert {row["cluster"]: row["mode"] for row in modes}["tiger"] == "propose"


def test_nobody_changes_the_past(site: Site) -> None:
    for path, sent in (("/quota/modes/tiger", {"mode": "observe"}), ("/quota/rollout", {"announce": True})):
        reply = site.server.post(path, {**sent, "as_of": str(site.then), "reason": "never"})
        assert (reply.status, reply.error["code"]) == (400, "unknown_parameter")


def test_whoever_walks_stays_in_the_past(site: Site) -> None:
    """From the quota page by its own links to the request that was open then; the one since is not there."""
    quota = html_of(site, at("/quota", site.then))
    assert "/requests/q2" not in quota
    link = re.search(r'href="(/requests/q1[^"]*)"', quota)
    assert link, "the request"
    request = html_of(site, unescape(link[1]))
    back = re.search(rf'href="(/teams/{TEAM}[^"]*)"', request)
    assert back, "its team"
    assert "The past: as it was known at" in html_of(site, unescape(back[1]))


ERRORS = {
    "what was not there yet": ("/requests/q2?as_of={then}", 404, "{then}"),
    "what is wrong": ("/quota?policy=none&as_of={then}", 400, "{then}"),
    "a time that is none": ("/teams?as_of=yesteryear", 400, ""),
    "a revision that is still to come": ("/teams?as_of=99999", 404, ""),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_keeps_the_moment_if_there_is_such_a_one(site: Site, case: str) -> None:
    """Nobody is kept in a past that there is not."""
    path, want_status, want = (str(each).format(then=site.then) for each in ERRORS[case])
    reply = site.server.ask(path, who="admin", Accept="text/html")
    assert reply.status == int(want_status)
    link = re.search(r'href="(/teams[^"]*)"', reply.body.decode())
    assert link, "the navigation"
    assert _as_of(unescape(link[1])) == ([want] if want else [])


def test_pages_ask_nothing_that_has_no_past() -> None:
    """What takes no `as_of` would show today under the words "the past"."""
    folder = Path(registry.__file__).parent
    of_now = {page.gather for page in PAGES if page.is_now}
    found = set()
    for file in folder.glob("*.py"):
        name, text = file.stem, file.read_text(encoding="utf-8")
        for piece in re.split(r"\n(?=async def |def )", text):
            if f"{name}:{piece.split('(')[0].rpartition(' ')[2]}" not in of_now:
                found |= set(re.findall(r'\.ask(?:_whole|_text)?\(\s*"([^"]+)"', piece))
    assert len(found) > len(PAGES) / 2
    assert {words for words in found if not command(words).takes("as_of")} == set(NO_PAST)


LINKED = {
    "a path": ('<a href="/teams">', '<a href="/teams?as_of=7">'),
    "a query is kept": ('<a href="/why?q=a&amp;x=1">', '<a href="/why?q=a&amp;x=1&amp;as_of=7">'),
    "a place on the page comes last": ('<a href="/quota#notices">', '<a href="/quota?as_of=7#notices">'),
    "a query alone": ('<a href="?sort=x">', '<a href="?sort=x&amp;as_of=7">'),
    "an empty query": ('<a href="?">', '<a href="?as_of=7">'),
    "a place here": ('<a href="#ask">', '<a href="#ask">'),
    "elsewhere": ('<a href="https://example.org/x">', '<a href="https://example.org/x">'),
    "the API": ('<a href="/api/v1/quota">', '<a href="/api/v1/quota">'),
    "out of the past": ('<a data-now href="?">', '<a data-now href="?">'),
    "another moment": ('<a href="/?as_of=3">', '<a href="/?as_of=3">'),
    "a part": ('<div data-include="/on-call">', '<div data-include="/on-call?as_of=7">'),
    "text that looks like a link": ("<p>href=&#34;/x&#34;</p>", "<p>href=&#34;/x&#34;</p>"),
    "a search": ('<form method="get"><b>x</b></form>',
                 '<form method="get"><input type="hidden" name="as_of" value="7"><b>x</b></form>'),
    "a search that says when": ('<form method="get"><input name="as_of"></form>',
                                '<form method="get"><input name="as_of"></form>'),
}  # fmt: skip


@pytest.mark.parametrize("case", LINKED)
def test_a_link_keeps_the_moment(case: str) -> None:
    html, want = LINKED[case]
    assert keep_past(html, "7") == want


def test_a_moment_is_never_taken_for_html() -> None:
    kept = keep_past('<a href="/x"><form method="get"></form>', '"><script>')
    assert "<script>" not in kept
    assert kept.count('"') == 10
