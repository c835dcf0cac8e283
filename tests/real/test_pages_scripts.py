"""Scripts that can't be had for a moment, as while a server starts anew, in Chromium: they are asked for again, later
each time, and what needs them comes without the page being loaded anew."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Route

from tests.support.browser import Chromium, chromium
from tests.support.served import make_people, serving, small_book

pytestmark = pytest.mark.xdist_group("chromium")


class Case(NamedTuple):
    page: str
    script: str
    want: str
    """What is there once the script is."""


CASES = {
    "the map of nodes": Case("/map", "nodemap.js", ".nodemap-summary"),
    "what the map is drawn with": Case("/map", "nodemap_layout.js", ".nodemap-summary"),
    "parts of other pages": Case("/health", "include.js", ".levels-place [data-chart]"),
    "charts": Case("/health/levels", "charts.js", ".chart-canvas canvas"),
    "what charts are drawn with": Case("/health/levels", "vega.js", ".chart-canvas canvas"),
    "a form of its own kind": Case("/audit", "verify.js", "[data-verdict] .notice.good"),
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    dsn = small_book(Path(tmp_path_factory.mktemp("scripts")))
    with serving(dsn, make_people(dsn)) as served, chromium(served) as found:
        yield found


@pytest.mark.parametrize("name", CASES)
def test_a_script_that_could_not_be_had_is_asked_for_again(browser: Chromium, name: str) -> None:
    case = CASES[name]
    asked: list[float] = []

    def refuse(route: Route) -> None:
        asked.append(time.monotonic())
        if len(asked) == 1:
            route.abort("connectionrefused")
        elif len(asked) == 2:
            route.fulfill(status=503, body="starting")
        else:
            route.continue_()

    with browser.window("operator@example.org") as window:
        window.page.route(f"**/static/{case.script}*", refuse)
        window.go(case.page)
        place = window.page.locator("[data-started]").first
        place.wait_for(state="attached")
        place.scroll_into_view_if_needed()
        if case.script == "vega.js":
            window.see(".chart-plot", "The picture can't be drawn right now; trying again.")
        if case.script == "verify.js":
            with window.page.expect_response(lambda answer: case.script in answer.url and answer.ok):
                pass
            window.settle()
            window.page.get_by_role("button", name="Verify").click()
        window.see(case.want)
        # Never at once: after 1 second, then after 2.
        assert len(asked) == 3
        assert asked[1] - asked[0] >= 1
        assert asked[2] - asked[1] >= 2
        assert window.page.get_by_text("trying again").filter(visible=True).count() == 0
        window.forgive(
            "Failed to load resource", "Failed to fetch dynamically", "ERR_CONNECTION_REFUSED", "answered 503"
        )
