"""An act whose answer is lost, in Chromium: however often somebody presses the button, it is done once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Route

from tests.support.browser import Chromium, chromium
from tests.support.served import make_people, serving, small_book

pytestmark = pytest.mark.xdist_group("chromium")

UNDER_WAY = {"error": {"code": "under_way", "message": "it is under way", "next_step": "try again", "fields": {}}}
TROUBLES = {
    "the first is under way still": (409, UNDER_WAY),
    "too much is asked for": (429, UNDER_WAY),
    "the server is not there": (503, UNDER_WAY),
    "a proxy has its own words": (502, "Bad Gateway"),
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    dsn = small_book(Path(tmp_path_factory.mktemp("retry")))
    with serving(dsn, make_people(dsn)) as served, chromium(served) as found:
        yield found


@pytest.mark.parametrize("name", TROUBLES)
def test_an_act_whose_answer_is_lost_is_done_once(browser: Chromium, name: str) -> None:
    """It is done, but the answer never comes; then there is trouble; then all is well again."""
    status, said = TROUBLES[name]
    keys: list[str] = []

    def meddle(route: Route) -> None:
        keys.append(route.request.headers.get("idempotency-key", ""))
        if len(keys) == 1:
            assert route.fetch().status == 200
            route.abort()
        elif len(keys) == 2 and isinstance(said, str):
            route.fulfill(status=status, body=said)
        elif len(keys) == 2:
            route.fulfill(status=status, json=said)
        else:
            route.continue_()

    with browser.window("operator@example.org") as window:
        window.go("/incidents")
        window.page.route("**/api/v1/incidents", meddle)
        form = window.page.locator("form[data-act='POST /api/v1/incidents']")
        form.get_by_label("What is going on").fill(name)
        for want in ("did not answer", "under way" if status != 502 else "answered 502"):
            form.get_by_role("button", name="Open it").click()
            window.see("[data-answer]", want)
        form.get_by_role("button", name="Open it").click()
        window.page.wait_for_url("**/incidents/*")
        window.settle()
        window.forgive("/api/v1/incidents", "Failed to load resource")
    opened = [
        each
        for each in browser.served.api(f"/incidents?at_least={browser.served.house.api.head}").document
        if each["title"] == name
    ]
    assert len(opened) == 1
    assert len(keys) == 3
    assert keys[0]
    assert len(set(keys)) == 1
