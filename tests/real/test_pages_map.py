"""The map of nodes while things happen, in Chromium: what it says follows, and the keyboard, what is open and the node
that is looked at stay where they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Route

from tests.support.browser import Chromium, Window, chromium
from tests.support.served import Served, make_people, serving, small_book

pytestmark = pytest.mark.xdist_group("chromium")

OPERATOR = "operator@example.org"
LINKS = ".nodemap details.behind tbody a"
KEEP = "(element) => { element.focus(); window.kept = element; }"
IS_KEPT = "window.kept.isConnected && window.kept === document.activeElement"
TEXT_OF_FOCUS = "document.activeElement.textContent"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn)) as served, chromium(served) as found:
        yield found


SPANS = {"nodemap.js": ("RELOAD_MS = 5000", "RELOAD_MS = 200"), "live.js": ("LEAST_MS = 2000", "LEAST_MS = 100")}
"""How long the scripts wait until they ask again, and how long here: nobody looks on."""


@contextmanager
def _opened(browser: Chromium) -> Iterator[Window]:
    """A window of the operator's in which nothing waits for long."""
    with browser.window(OPERATOR) as window:
        for script, span in SPANS.items():
            window.page.route(f"**/{script}*", partial(_shortened, span))
        yield window


def _shortened(span: tuple[str, str], route: Route) -> None:
    answer = route.fetch()
    assert span[0] in answer.text()
    route.fulfill(response=answer, body=answer.text().replace(*span))


def _hold(served: Served, node: str) -> None:
    sent = {"targets": [node], "id": f"hold-{node}", "reason": "a test"}
    assert served.post("/holds", sent, who="operator").status == 200


def _say_something(window: Window, served: Served, title: str) -> None:
    """Something is recorded that is on no map; the map is fetched all the same."""
    with window.page.expect_response("**/api/v1/fleet/map*"):
        reply = served.post("/incidents", {"title": title, "cluster": ["lion"]}, who="operator")
        assert reply.status == 200, reply.body
    window.settle()


def test_the_keyboard_stays_on_the_same_thing_while_the_map_is_fetched_anew(browser: Chromium) -> None:
    for node in ("t10", "t11"):
        _hold(browser.served, node)
    with _opened(browser) as window:
        window.go("/clusters/tiger").scroll_through()
        summary = window.see(".nodemap details.behind summary", "2 nodes out of service")
        kind = window.page.locator(".nodemap-kind").first
        assert kind.inner_text() == "in service 10"

        # Of what says the same, nothing is put anew.
        summary.click()
        link = window.page.locator(LINKS).nth(1)
        assert link.inner_text() == "t11"
        for at, place in enumerate((link, summary, kind)):
            place.evaluate(KEEP)
            _say_something(window, browser.served, f"a leak {at}")
            assert window.page.evaluate(IS_KEPT)

        # What differs comes; its like keeps the keyboard, and the table stays open.
        link.focus()
        _hold(browser.served, "t1")
        window.see(".nodemap details.behind summary", "3 nodes out of service")
        assert window.page.locator(LINKS).all_inner_texts() == ["t1", "t10", "t11"]
        assert window.page.evaluate(TEXT_OF_FOCUS) == "t11"
        kind.focus()
        _hold(browser.served, "t2")
        window.see(".nodemap-kind", "in service 8")
        assert window.page.evaluate(TEXT_OF_FOCUS) == "in service 8"


def test_the_keyboard_stays_on_the_way_back_and_then_on_the_map(browser: Chromium) -> None:
    with _opened(browser) as window:
        window.go("/map").scroll_through()
        window.page.locator(".nodemap-top").press("ArrowRight")
        window.page.keyboard.press("z")
        back = window.see(".nodemap-back", "← all")
        back.focus()
        _hold(browser.served, "l1")
        window.see(".nodemap-kind", "in service 3")
        assert window.page.evaluate(TEXT_OF_FOCUS) == "← all"
        window.page.keyboard.press("Enter")
        window.see(".nodemap-summary", "16 nodes in 2 islands")
        assert window.page.evaluate("document.activeElement.className") == "nodemap-top"


def test_the_node_that_is_looked_at_is_the_same_when_others_are_gone(browser: Chromium) -> None:
    """The first one of all is no more: every other stands one place before."""

    def without_the_first(route: Route) -> None:
        answer = route.fetch()
        found = answer.json()
        assert found["nodes"]["node"][0] == "l1"
        for column in found["nodes"].values():
            del column[0]
        route.fulfill(response=answer, json=found)

    with _opened(browser) as window:
        window.go("/map").scroll_through()
        window.page.locator(".nodemap-top").press("ArrowRight")
        assert window.text(".nodemap-tip a") == "l2"
        window.page.route("**/api/v1/fleet/map*", without_the_first)
        _hold(browser.served, "l2")
        # What is told of it follows.
        window.see(".nodemap-tip.pinned", "quarantined")
        assert window.text(".nodemap-summary").startswith("15 nodes")
        assert window.text(".nodemap-tip a") == "l2"
        window.page.keyboard.press("ArrowRight")
        assert window.text(".nodemap-tip a") == "l3"
        _say_something(window, browser.served, "a leak")
        window.page.keyboard.press("Enter")
        window.page.wait_for_url("**/nodes/l3")
        window.settle()


def test_what_is_picked_out_can_be_let_go_when_there_is_none_of_it(browser: Chromium) -> None:
    _hold(browser.served, "t10")
    with _opened(browser) as window:
        window.go("/map").scroll_through()
        window.page.locator(".nodemap-kind").filter(has_text="quarantined 1").click()
        window.see(".nodemap details.behind summary", "1 nodes quarantined")
        assert browser.served.post("/holds/hold-t10/release", who="operator").status == 200
        picked = window.see(".nodemap-kind[aria-pressed='true']", "quarantined 0")
        picked.click()
        window.see(".nodemap details.behind summary", "1 nodes out of service")
