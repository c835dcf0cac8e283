"""What operators do with campaigns, incidents and nodes, what everybody does with the log and their account, and what a
page does when the server is busy or the window is a phone's: in Chromium, each as the person who does it.

The server's clock can be set forward, so that hours go by.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Locator, Route

from plimsoll.rooms import open_keeper
from plimsoll.server import house, loops_passes
from plimsoll.times import utc_now
from tests.support.browser import PHONE, Chromium, Window, chromium
from tests.support.served import TEAM, Served, make_people, serving, small_book

pytestmark = pytest.mark.xdist_group("chromium")

MEMBER, OPERATOR = "member@example.org", "operator@example.org"
QUICKLY = {"campaigns": 0.3, "health": 600.0}
"""How often loops go round here, in seconds; nodes are swept by hand."""


class Port(NamedTuple):
    """A server with a small fleet, a browser, and the server's clock."""

    served: Served
    browser: Chromium
    ahead: list[timedelta]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    dsn = small_book(Path(tmp_path_factory.mktemp("acts")))
    ahead = [timedelta()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(house, "open_keeper", partial(open_keeper, clock=lambda: utc_now() + ahead[0]))
        patch.setattr(loops_passes, "EVERY_SECONDS", {**loops_passes.EVERY_SECONDS, **QUICKLY})
        with serving(dsn, make_people(dsn), is_leading=True) as served, chromium(served) as browser:
            yield Port(served, browser, ahead)


# The proof of the log.


def test_the_log_is_proved_and_a_head_that_is_not_of_it_is_told(port: Port) -> None:
    with port.browser.window(OPERATOR) as window:
        window.go("/audit")
        head = window.text("[data-live='head'] code")
        count = window.number("head")
        other = head[:-1] + ("0" if head[-1] != "0" else "1")
        for kept, tone, want in (
            ("", "good", f"Whole: {count:,} events"),
            (head, "good", "it continues the head that you gave"),
            (other, "bad", f"it breaks at revision {count}"),
            ("no head", "warn", "'no head' is not a published head"),
        ):
            window.page.get_by_label("A head that you kept").fill(kept)
            window.page.get_by_role("button", name="Verify").click()
            window.see(f"[data-verdict] .notice.{tone}", want)
        window.forgive("/api/v1/audit/verify", "Failed to load resource")


# Campaigns and incidents.

CAMPAIGN = """\
campaign: nic
changes: [{{component: nic-firmware, version: "28.43", impact: disruptive}}]
scope: {{cluster: lion}}
start: {day}
deadline: {deadline}
window: {{hours: [9, 17], tz: UTC}}
slot_minutes: 60
work: [{{scope: {{}}, mode: whole, hours: 2}}]
roster: [on-call]
"""


def test_a_campaign_is_paused_goes_on_and_is_planned_anew(port: Port) -> None:
    day = (datetime.now(UTC) + timedelta(days=2)).date()
    text = CAMPAIGN.format(day=day, deadline=day + timedelta(days=7))
    assert port.served.post("/campaigns/plan", {"file": text, "seconds": 2}, who="operator").status == 200
    with port.browser.window(OPERATOR) as window:
        window.go("/campaigns/nic")
        window.act(window.page.locator("form[data-act$='/start']"), "What would start?", "Start it")
        window.see("[data-live='phase'] .badge", "running")
        window.see("summary", "Pause it").click()
        form = window.page.locator("form[data-act$='/pause']")
        form.get_by_label("Reason").fill("the vendor recalls a version")
        form.get_by_role("button", name="Pause it").click()
        window.see("[data-live='phase'] .badge", "paused")
        window.see("[data-live='warnings']", "the vendor recalls a version")
        window.see("form[data-act$='/resume'] button", "Go on").click()
        window.see("[data-live='phase'] .badge", "running")
        window.see("summary", "Replan").click()
        form = window.page.locator("form[data-act$='/replan']")
        form.get_by_label("Search for at most").select_option("10")
        form.get_by_role("button", name="What would move?").click()
        form.get_by_role("button", name="Search again and keep it").click(timeout=60_000)
        window.see("[data-live='phase'] .badge", "plan 2")
        window.see("summary", "Publish plan 2")
        assert window.page.locator("form[data-act$='/start']").count() == 0
        _is_cancelled_after_a_look(port, window)


def _is_cancelled_after_a_look(port: Port, window: Window) -> None:
    """First it is told what becomes of every batch, and nothing is done."""
    window.see("summary", "Cancel it").click()
    form = window.page.locator("form[data-act$='/cancel']")
    form.get_by_label("Reason").fill("the wrong fix")
    window.act(form, "Cancel: what would happen?")
    assert "nic would be cancelled: 1 batch would never begin" in form.locator("[data-answer]").inner_text()
    assert port.served.api("/campaigns/nic").document["phase"] == "running"
    form.get_by_role("button", name="Cancel the campaign", exact=True).click()
    window.see("[data-live='phase'] .badge", "cancelled")


def test_an_incident_is_opened_told_of_and_closed(port: Port) -> None:
    with port.browser.window(OPERATOR) as window, port.browser.window(MEMBER) as reader:
        window.go("/incidents")
        form = window.page.locator("form[data-act='POST /api/v1/incidents']")
        form.get_by_label("What is going on").fill("cooling fails")
        form.get_by_label("Clusters").fill("lion, tiger")
        form.get_by_role("button", name="Open it").click()
        window.page.wait_for_url("**/incidents/*")
        window.settle()
        path = window.page.url.removeprefix(window.url)
        reader.go(path)
        form = window.page.locator("form[data-act$='/note']")
        form.get_by_label("What was found or done").fill("pump 3 is out")
        window.act(form, "Add a note")
        reader.see("[data-live='timeline']", "pump 3 is out")
        # Two hours go by.
        port.ahead[0] += timedelta(hours=2)
        window.see("summary", "Close it").click()
        form = window.page.locator("form[data-act$='/close']")
        form.get_by_label("How it ended").fill("a new pump")
        window.act(form, "What would happen?")
        told = form.locator("[data-answer]").inner_text()
        assert "campaigns would begin on lion, tiger again" in told
        assert "cooling fails" in told
        reader.see("[data-live='state'] .badge", "open")
        form.get_by_role("button", name="Close it", exact=True).click()
        for each in (window, reader):
            each.see("[data-live='state'] .badge", "closed")
            each.see("[data-live='timeline']", f"closed by {OPERATOR}")
            assert each.text("[data-number='lasted']") == "2.0 h"
            assert each.page.locator("form[data-act]").filter(visible=True).count() == 0
        reader.go("/incidents")
        row = reader.see("[data-live='closed'] tr", "cooling fails")
        assert "2.0 h" in row.inner_text()


# Nodes.


def test_a_node_is_held_released_and_checked_back_into_service(port: Port) -> None:
    with port.browser.window(OPERATOR) as window:
        window.go("/health")
        healthy = window.number("gpus")
        window.see("summary", "Hold…").click()
        form = window.page.locator("details[data-name='do-hold'] form")
        form.get_by_label("Nodes").fill("t11, t12")
        form.get_by_label("Name of the hold").fill("recabling")
        form.get_by_label("Why", exact=True).fill("new cables")
        window.act(form, "What would happen?", "Hold them")
        window.wait_number("gpus", healthy - 16)

        window.see("[data-live='holds'] tr", "recabling").get_by_text("Release…").click()
        form = window.page.locator("[data-live='holds'] form")
        window.act(form, "What would happen?", "Release it")
        window.see("[data-live='holds']", "Nothing is held")

        # They validate: somebody must say that they passed, and they must be quiet for ten minutes.
        window.see("[data-live='attention'] summary", "It passed…").click()
        form = window.page.locator("details[data-name='tick-accepted'] form")
        form.get_by_label("Nodes").fill("t11, t12")
        window.act(form, "What would happen?", "Let them back")
        assert window.number("gpus") == healthy - 16
        port.ahead[0] += timedelta(minutes=11)
        window.see("summary", "Sweep…").click()
        window.act(window.page.locator("details[data-name='do-sweep'] form"), "What would happen?", "Sweep")
        window.wait_number("gpus", healthy)


# One's own account.


def test_a_token_works_until_it_is_ended(port: Port) -> None:
    with port.browser.window(MEMBER) as window:
        window.go("/account")
        form = window.page.locator("form[data-act='POST /api/v1/access/tokens'][data-reset]")
        form.get_by_label("May").select_option("see")
        form.get_by_label("What for").fill("a script of mine")
        secret = re.search(r"plim_\S+", window.act(form, "Make it"))
        assert secret
        bearer = {"Authorization": f"Bearer {secret[0]}"}
        said = port.served.ask("/api/v1/whoami", **bearer).document
        assert (said["who"], said["scopes"]) == (MEMBER, ["see"])
        row = window.see("[data-live='tokens'] tr", "a script of mine")
        window.act(row.locator("form"), "End it")
        row.wait_for(state="detached")
        assert port.served.ask("/api/v1/whoami", **bearer).status == 401


# A server that is busy.


def test_a_page_that_cannot_be_had_says_so_and_is_asked_for_until_it_can(port: Port) -> None:
    """The stream goes on all the while: it is only the page that is refused, as by lanes that are full."""
    refusals = [(503, {"Retry-After": "1"}), (429, {})]
    asked: list[float] = []

    def refuse(route: Route) -> None:
        asked.append(time.monotonic())
        if len(asked) > len(refusals):
            return route.continue_()
        status, headers = refusals[len(asked) - 1]
        return route.fulfill(status=status, headers=headers, body="busy")

    with port.browser.window(OPERATOR) as window:
        window.go("/health")
        window.wait_live("on", "Live")
        healthy = window.number("gpus")
        window.page.route(lambda url: "/health?at_least=" in url, refuse)
        sent = {"words": ["t10", "quarantined"], "reason": "a test"}
        assert port.served.post("/health/set", sent).status == 200
        window.wait_live("off", "The server can't show this page right now; trying again. What you see may be old.")
        assert window.number("gpus") == healthy
        window.wait_number("gpus", healthy - 8)
        window.wait_live("on", "Live")
        assert len(asked) == 3
        # Never sooner than was asked for, and later each time: 1 second, then 2.
        assert asked[1] - asked[0] >= 1
        assert asked[2] - asked[1] >= 2

        # What stands in a page and is fetched by itself does the same.
        asked[:] = [0.0]
        window.page.route("**/health/levels*", refuse)
        window.go("/health")
        window.see(".levels-place", "trying again")
        window.see(".levels-place", "MTTR")
        assert len(asked) == 3
        asked[:] = [0.0]
        window.page.route("**/api/v1/fleet/map*", refuse)
        window.go("/map")
        window.see("[data-nodemap]", "trying again")
        window.see(".nodemap-summary", "16 nodes in 2 islands")
        window.forgive("answered 503", "answered 429", "Failed to load resource")


# On a phone.


def _swipe(window: Window, place: Locator) -> None:
    """A finger on it goes 160 pixels to the left."""
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    finger = window.page.context.new_cdp_session(window.page)
    at, height = box["x"] + box["width"] / 2, box["y"] + min(20, box["height"] / 2)
    finger.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": at, "y": height}]})
    for step in range(1, 9):
        moved = [{"x": at - 20 * step, "y": height}]
        finger.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": moved})
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_a_phone_is_enough(port: Port) -> None:
    with port.browser.window(OPERATOR, size=PHONE) as window:
        window.go("/")
        nav = window.page.locator(".nav")
        # Not all of it fits: a finger brings the rest.
        last = nav.get_by_role("link", name="Audit")
        place = last.bounding_box()
        assert place is not None
        assert place["x"] > PHONE[0]
        for _ in range(2):
            _swipe(window, nav)
        last.tap()
        window.page.wait_for_url("**/audit")

        window.page.locator("#why-box").tap()
        window.page.keyboard.type(TEAM)
        window.page.keyboard.press("Enter")
        window.page.wait_for_url(f"**/why?q={TEAM}")
        window.settle()
        assert TEAM in window.text("main h1")
        assert window.wider() == []

        window.go(f"/teams/{TEAM}")
        wide = window.page.locator("[data-live='pools'] .table-wrap")
        assert wide.evaluate("(wrap) => wrap.scrollWidth > wrap.clientWidth")
        _swipe(window, wide)
        window.page.wait_for_function("(wrap) => wrap.scrollLeft > 0", arg=wide.element_handle())
        assert window.page.evaluate("scrollX") == 0
        assert window.wider() == []
        window.page.locator("details.who summary").tap()
        window.see("details.who a", "Your account and tokens").tap()
        window.page.wait_for_url("**/account")
        window.settle()
