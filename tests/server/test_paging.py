"""How much of a list comes at once: never more than the most, whatever is asked for, and all of it in the end."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.server import paging
from plimsoll.server.forms import PAGE_MAX
from tests.support.served import Reply, Served

MOST = 5
NODES = [*(f"l{number}" for number in range(1, 5)), *(f"t{number}" for number in range(1, 13))]
"""Those of the small book, as they are listed."""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PAGE_MAX <= 20_000, "what a page holds is made in one go"
    monkeypatch.setattr(paging, "PAGE_MAX", MOST)


def names(reply: Reply) -> list[str]:
    document: Any = reply.document
    assert reply.status == 200, reply
    return sorted(each["node"] for each in document["nodes"])


def next_of(reply: Reply) -> str:
    """Where the next page is; empty where there is none."""
    link = reply.headers.get("link", "")
    return link.partition("<")[2].partition(">")[0].removeprefix("/api/v1")


LIMITS: dict[str, tuple[str, int]] = {
    "fewer than the most": ("limit=3", 3),
    "the most": ("limit=5", 5),
    "one more": ("limit=6", 5),
    "very many": ("limit=999999999", 5),
    "none at all is one": ("limit=0", 1),
    "a place to go on from, and no number": ("cursor=HEAD.2", 5),
    "a place to go on from, and very many": ("cursor=HEAD.2&limit=999999999", 5),
}


@pytest.mark.parametrize("case", LIMITS)
def test_a_page_has_at_most_so_many(served: Served, case: str) -> None:
    query, want = LIMITS[case]
    head = served.api("/nodes").headers["plimsoll-revision"]
    assert len(names(served.api(f"/nodes?{query.replace('HEAD', head)}"))) == want


def test_all_pages_together_are_the_list(served: Served) -> None:
    """Sixteen nodes, five at once."""
    sizes, found, path = [], [], "/nodes?limit=1000"
    while path:
        reply = served.api(path)
        sizes.append(len(names(reply)))
        found += names(reply)
        path = next_of(reply)
    assert sizes == [5, 5, 5, 1]
    assert sorted(found) == sorted(NODES)


def test_without_a_limit_a_list_comes_whole(served: Served) -> None:
    assert names(served.api("/nodes")) == sorted(NODES)
    assert "link" not in served.api("/nodes").headers


def test_more_of_a_log_than_its_bound_is_refused(served: Served) -> None:
    assert served.api("/events?limit=1001").error["code"] == "bad_parameter"
    assert served.api("/events?limit=1000").status == 200
