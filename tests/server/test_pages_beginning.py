"""A past in which nothing was recorded yet: a page says that it is one and leads back to now; errors do the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest

from plimsoll.server.pages.registry import PAGES
from tests.support.pages import Page
from tests.support.served import Served, make_people, serving, small_book

THEN = "2020-01-01"
"""Years before the first event."""
BEFORE = "The past: before anything was recorded. Back to now"
CASES = {
    "what was not there": ("admin", "/clusters/tiger", 404, BEFORE),
    "what is wrong": ("admin", "/quota?policy=none", 400, BEFORE),
    "what is another's": ("partner", "/quota", 403, f"The past: as of {THEN}. Back to now"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    dsn = small_book(tmp_path_factory.mktemp("beginning"))
    with serving(dsn, make_people(dsn)) as served:
        yield served


def _read(site: Served, path: str, *, who: str, want_status: int) -> Page:
    reply = site.ask(f"{path}{'&' if '?' in path else '?'}as_of={THEN}", who=who, Accept="text/html")
    assert reply.status == want_status, (path, reply.body[:500])
    return Page(reply.body.decode())


def _ways_back(page: Page) -> list[str]:
    """Where the links lead that leave the past."""
    return [unescape(link) for link in re.findall(r'data-now href="([^"]*)"', page.html)]


@pytest.mark.parametrize("path", [page.path for page in PAGES if not page.is_now and "{" not in page.path])
def test_a_page_of_before_the_first_event_says_so_and_leads_back(site: Served, path: str) -> None:
    page = _read(site, path, who="admin", want_status=200)
    assert BEFORE in page.text
    assert "as of the beginning" in page.text
    assert len(_ways_back(page)) == 2
    assert all("as_of" not in parse_qs(urlsplit(link).query) for link in _ways_back(page))


@pytest.mark.parametrize("case", CASES)
def test_an_error_in_the_past_leads_back_to_now(site: Served, case: str) -> None:
    who, path, want_status, want = CASES[case]
    page = _read(site, path, who=who, want_status=want_status)
    assert want in page.text
    back = _ways_back(page)
    assert back
    assert all("as_of" not in parse_qs(urlsplit(link).query) for link in back)


def test_a_moment_that_is_none_is_no_past(site: Served) -> None:
    reply = site.ask("/teams?as_of=yesteryear", who="admin", Accept="text/html")
    assert reply.status == 400
    assert "The past" not in Page(reply.body.decode()).text


def test_an_error_leads_whoever_it_is_to_where_they_begin(site: Served) -> None:
    for who, path, want_status in (("viewer", "/nothing-here", 404), ("partner", "/quota", 403)):
        reply = site.ask(path, who=who, Accept="text/html")
        assert reply.status == want_status
        assert '<a class="button" href="/">To the start</a>' in reply.body.decode()
