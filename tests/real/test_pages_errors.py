"""Pages of errors in Chromium: what they say is said as it was, down to the first letter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import Chromium, chromium
from tests.support.served import make_people, serving, small_book

pytestmark = pytest.mark.xdist_group("chromium")

FIRST_LETTER = "(title) => getComputedStyle(title, '::first-letter').textTransform"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn)) as served, chromium(served) as found:
        yield found


def test_a_name_that_begins_what_is_said_keeps_its_letters(browser: Chromium) -> None:
    with browser.window("partner@example.org") as window:
        window.go("/quota", want_status=403)
        title = window.page.locator(".error-page h1")
        assert title.inner_text().startswith("partner@example.org ")
        assert title.evaluate(FIRST_LETTER) == "none"


def test_whoever_asks_for_a_day_before_the_first_event_gets_back_to_now(browser: Chromium) -> None:
    with browser.window("viewer@example.org") as window:
        window.go("/quota?as_of=2020-01-01")
        window.see(".past", "The past: before anything was recorded.")
        window.page.locator(".nav").get_by_role("link", name="Teams").click()
        window.page.wait_for_url("**/teams?as_of=2020-01-01")
        window.settle()
        window.see(".past a", "Back to now").click()
        window.page.wait_for_url(f"{window.url}/teams?")
        window.settle()
        assert window.page.locator(".past").count() == 0
        assert "posttraining" in window.text("main")
