"""An open page and somebody who is in the middle of something, in Chromium: what they fill in, read or are asked stays
as it is and where it is, all else follows, and nothing that waited is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Route

from tests.support.browser import Chromium, Window, chromium
from tests.support.served import Served, make_people, serving, small_book
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("chromium")

OPERATOR = "operator@example.org"
WAITS = "Live, but what stands around a form that you are filling in waits"
LOOK_AWAY = """(is_away) => {
  Object.defineProperty(document, "hidden", { value: is_away, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn)) as served, chromium(served) as found:
        yield found


def _hold(served: Served, node: str) -> None:
    """One node goes out of service under a hold that is called by it."""
    sent = {"targets": [node], "id": f"hold-{node}", "reason": "a test"}
    reply = served.post("/holds", sent, who="operator")
    assert reply.status == 200, reply.body


def _row(window: Window, node: str) -> Locator:
    return window.page.locator("[data-live='holds'] tbody tr").filter(has_text=f"hold-{node}")


def test_what_stands_around_a_form_waits_until_somebody_is_done_and_all_else_follows(browser: Chromium) -> None:
    _hold(browser.served, "t10")
    with browser.window(OPERATOR) as window:
        window.go("/health")
        healthy = window.number("gpus")
        _row(window, "t10").locator("summary").click()
        why = _row(window, "t10").get_by_label("Why", exact=True)
        why.fill("new cables")
        # Also when the keyboard is elsewhere: what was typed is not lost.
        why.blur()
        _hold(browser.served, "t11")
        window.wait_number("gpus", healthy - 8)
        window.wait_live("waits", WAITS)
        assert _row(window, "t11").count() == 0
        assert why.input_value() == "new cables"

        # A second change while the first one waits: the last of them comes, once it is as it was.
        _hold(browser.served, "t12")
        window.wait_number("gpus", healthy - 16)
        why.fill("")
        assert _row(window, "t11").count() == 0
        why.blur()
        for node in ("t11", "t12"):
            _row(window, node).wait_for()
        window.wait_live("on", "Live: the page follows")
        assert _row(window, "t10").locator("details").evaluate("(details) => details.open")


def test_a_click_out_of_a_field_reaches_its_button(browser: Chromium) -> None:
    _hold(browser.served, "t10")
    with browser.window(OPERATOR) as window:
        window.go("/health")
        _row(window, "t10").locator("summary").click()
        _row(window, "t10").get_by_label("Why", exact=True).click()
        _hold(browser.served, "t11")
        window.wait_live("waits", WAITS)
        button = _row(window, "t10").get_by_role("button", name="What would happen?")
        box = button.bounding_box()
        assert box is not None
        window.page.mouse.move(box["x"] + 5, box["y"] + 5)
        window.page.mouse.down()
        window.page.wait_for_timeout(100)  # as a hand does: what is pressed stays until it is let go
        window.page.mouse.up()
        _row(window, "t10").get_by_role("button", name="Release it", exact=True).wait_for()
        assert _row(window, "t11").count() == 0


def test_what_waits_comes_no_sooner_than_the_pause_ends(browser: Chromium) -> None:
    _hold(browser.served, "t10")
    with browser.window(OPERATOR) as window:
        window.go("/health")
        _row(window, "t10").locator("summary").click()
        why = _row(window, "t10").get_by_label("Why", exact=True)
        why.fill("new cables")
        _hold(browser.served, "t11")
        window.wait_live("waits", WAITS)
        window.page.locator(".stamp summary").click()
        window.page.get_by_role("button", name="Pause", exact=True).click()
        window.wait_live("paused", "Paused")
        why.fill("")
        why.blur()
        window.page.wait_for_timeout(100)
        assert _row(window, "t11").count() == 0
        window.page.get_by_role("button", name="Go on").click()
        _row(window, "t11").wait_for()


def test_a_part_that_is_refused_for_good_says_so(browser: Chromium) -> None:
    with browser.window(OPERATOR) as window:
        window.page.route("**/health/levels*", lambda route: route.fulfill(status=403, body="no"))
        window.go("/health")
        window.see(".levels-place", "This can't be shown.")
        assert window.page.locator(".levels-place[aria-busy]").count() == 0
        window.forgive("/health/levels", "Failed to load resource")


def test_what_is_offered_stays_until_it_is_done_or_left(browser: Chromium) -> None:
    _hold(browser.served, "t10")
    with browser.window(OPERATOR) as window:
        window.go("/health")
        healthy = window.number("gpus")
        for leaving in (True, False):
            _row(window, "t10").locator("summary").click()
            form = _row(window, "t10").locator("form")
            window.act(form, "What would happen?")
            node = "t11" if leaving else "t12"
            _hold(browser.served, node)
            healthy -= 8
            window.wait_number("gpus", healthy)
            window.wait_live("waits", WAITS)
            assert _row(window, node).count() == 0
            form.get_by_role("button", name="Leave it" if leaving else "Release it", exact=True).click()
            _row(window, node).wait_for()
            if leaving:
                assert form.locator("[data-answer]").count() == 0
                _row(window, "t10").locator("summary").click()
            else:
                _row(window, "t10").wait_for(state="detached")


def test_what_was_refused_is_read_until_it_is_left(browser: Chromium) -> None:
    _hold(browser.served, "t10")
    with browser.window(OPERATOR) as window:
        window.go("/health")
        _row(window, "t10").locator("summary").click()
        form = _row(window, "t10").locator("form")
        form.get_by_role("button", name="What would happen?").click()
        confirm = form.get_by_role("button", name="Release it", exact=True)
        confirm.wait_for()
        # Somebody else is quicker.
        assert browser.served.post("/holds/hold-t10/release", who="operator").status == 200
        window.wait_live("waits", WAITS)
        confirm.click()
        form.locator(".bad-text").wait_for()
        assert confirm.count() == 0
        form.get_by_role("button", name="Leave it").click()
        form.wait_for(state="detached")
        window.see("[data-live='holds']", "Nothing is held")
        window.forgive("/api/v1/holds/hold-t10/release", "Failed to load resource")


def test_the_keyboard_and_what_is_open_stay_on_the_same_thing_when_rows_move(browser: Chromium) -> None:
    _hold(browser.served, "t10")
    with browser.window(OPERATOR) as window:
        window.go("/health")
        summary = _row(window, "t10").locator("summary")
        summary.focus()
        window.page.keyboard.press("Enter")
        _hold(browser.served, "t11")
        _row(window, "t11").wait_for()
        rows = window.page.locator("[data-live='holds'] tbody tr")
        assert "hold-t11" in rows.nth(0).inner_text()
        assert "hold-t10" in rows.nth(1).inner_text()
        assert summary.evaluate("(summary) => summary === document.activeElement")
        is_open = [row.locator("details").evaluate("(details) => details.open") for row in rows.all()]
        assert is_open == [False, True]

        # What the keyboard was on is no more: it stays in the same part, and goes on from there.
        assert browser.served.post("/holds/hold-t10/release", {}, who="operator").status == 200
        _row(window, "t10").wait_for(state="detached")
        assert window.page.evaluate("document.activeElement.dataset.live") == "holds"
        window.page.keyboard.press("Tab")
        assert window.page.evaluate("document.activeElement.closest('[data-live]').dataset.live") == "holds"


def test_what_is_offered_is_what_was_asked_even_if_the_form_is_changed_meanwhile(browser: Chromium) -> None:
    asked: list[Route] = []
    with browser.window(OPERATOR) as window:
        window.go("/health")
        healthy = window.number("gpus")
        window.see("summary", "Hold…").click()
        form = window.page.locator("details[data-name='do-hold'] form")
        form.get_by_label("Nodes").fill("t11")
        form.get_by_label("Name of the hold").fill("recabling")
        form.get_by_label("Why", exact=True).fill("new cables")
        window.page.route("**/api/v1/holds", lambda route: asked.append(route) if not asked else route.continue_())
        form.get_by_role("button", name="What would happen?").click()
        for _ in range(500):
            if asked:
                break
            window.page.wait_for_timeout(20)
        form.get_by_label("Nodes").fill("t11, t12")
        asked[0].continue_()
        window.see("details[data-name='do-hold'] .bad-text", "The form was changed meanwhile: ask again.")
        assert form.get_by_role("button", name="Hold them").count() == 0
        window.act(form, "What would happen?", "Hold them")
        window.wait_number("gpus", healthy - 16)


def test_a_tab_that_nobody_looks_at_listens_to_nothing_and_has_missed_nothing(browser: Chromium) -> None:
    watcher = browser.served.house.watcher
    with browser.window(OPERATOR) as window:
        window.go("/health")
        window.wait_live("on", "Live")
        healthy = window.number("gpus")
        wait_until(lambda: len(watcher.listeners) == 1, what="the page that has signed in listens no more")
        window.page.evaluate(LOOK_AWAY, True)
        wait_until(lambda: not watcher.listeners, what="the stream ends")
        _hold(browser.served, "t10")
        window.page.wait_for_timeout(300)
        assert window.number("gpus") == healthy
        window.page.evaluate(LOOK_AWAY, False)
        window.wait_number("gpus", healthy - 8)


def _cancel(served: Served, workload: str) -> None:
    """Somebody else ends it."""
    reply = served.post(f"/workloads/{workload}/cancel", {"reason": "a wrong file"}, who="operator")
    assert reply.status == 200, reply.body


def test_a_workload_that_is_cancelled_elsewhere_is_offered_no_more_and_says_so_everywhere(browser: Chromium) -> None:
    with browser.window(OPERATOR) as window:
        window.go("/workloads/run-1")
        assert window.text("[data-live='state']") == "running runs as flex"
        assert window.page.locator("form[data-act]").count() == 1
        _cancel(browser.served, "run-1")
        window.see("[data-live='why']", "was cancelled by operator@example.org")
        assert window.text("[data-live='state']") == "over"
        assert window.page.locator("form[data-act]").count() == 0


def test_who_is_filling_in_a_form_of_a_workload_keeps_it_when_that_is_cancelled(browser: Chromium) -> None:
    with browser.window(OPERATOR) as window:
        window.go("/workloads/run-1")
        why = window.page.locator("[data-live='acts']").get_by_label("Why", exact=True)
        why.fill("it is stuck")
        _cancel(browser.served, "run-1")
        window.see("[data-live='state'] .badge", "over")
        window.wait_live("waits", WAITS)
        assert why.input_value() == "it is stuck"
        why.fill("")
        why.blur()
        why.wait_for(state="detached")
        assert window.page.locator("form[data-act]").count() == 0
