"""A server of an empty database: every page is there, says that there is nothing yet, and what to do first."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from plimsoll.rooms import open_keeper
from plimsoll.server.pages.registry import PAGES, Page
from tests.server.test_permissions import WANT_PAGES
from tests.support.pages import see
from tests.support.served import Served, make_people, serving

ASKERS = ("viewer", "operator", "admin", "partner")
WORDS = {
    "/": "The fleet is empty Nothing is installed",
    "/map": "There are no nodes",
    "/teams": "No team holds anything",
    "/workloads": "Nothing runs",
    "/quota": "There is nothing to promise",
    "/campaigns": "Nothing is planned",
    "/lifecycle": "No cluster is being made",
    "/health": "No node is in production",
    "/incidents": "Nothing is wrong",
}
"""What a page says of nothing."""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    dsn = f"sqlite:///{tmp_path_factory.mktemp('empty')}/plimsoll.db"
    open_keeper(dsn, create=True).close()
    with serving(dsn, make_people(dsn)) as served:
        yield served


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_a_page_of_nothing_is_there_and_one_of_something_is_not(empty: Served, page: Page) -> None:
    path = re.sub(r"\{\w+\}", "none", page.path)
    for who in ASKERS:
        reply = empty.ask(path, who=who, Accept="text/html")
        if (path, who) == ("/", "partner"):
            assert (reply.status, reply.headers["location"]) == (303, "/campaigns")
            continue
        want = (200, 404) if who in WANT_PAGES[page.path] else (403,)
        assert reply.status in want, (who, reply.status)
        assert "{" in page.path or reply.status != 404
        assert b"<h1" in reply.body


@pytest.mark.parametrize("path", WORDS)
def test_a_page_says_that_there_is_nothing_and_what_to_do(empty: Served, path: str) -> None:
    for who in ("viewer", "admin"):
        found = see(empty, path, who)
        assert WORDS[path] in found.text, found.text[:1500]
        assert "Next:" in found.text or path == "/incidents" or who == "viewer"
