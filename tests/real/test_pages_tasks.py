"""What people do with the pages, in Chromium, at a server whose controllers run: each as the person who does it.

The server's clock can be set forward, so that a batch of tomorrow is due now.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

import pytest

from plimsoll.access.model import Binding, Role
from plimsoll.access.service import grant
from plimsoll.commands.catalog import command
from plimsoll.commands.desk import Desk, at
from plimsoll.lifecycle.machines import ZERO_BOOTSTRAP
from plimsoll.rooms import open_keeper
from plimsoll.server import house, loops_passes
from plimsoll.server.demo import ROLES
from plimsoll.times import utc_now
from tests.support.browser import Chromium, Window, chromium
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import Importer
from tests.support.served import OTHER, TEAM, Served, make_people, serving

pytestmark = pytest.mark.xdist_group("chromium")

ADA, INES, OMAR = "ada@example.org", "ines@example.org", "omar@example.org"
PIA, VERA = "pia@example.com", "vera@example.org"
QUICKLY = {"campaigns": 0.3, "lifecycle": 0.3, "health": 1.0}
"""How often the loops that somebody waits for go round here, in seconds."""


class Port(NamedTuple):
    """A server with a small fleet, a browser, and the server's clock."""

    served: Served
    browser: Chromium
    ahead: list[timedelta]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> str:
    """tiger: 16 nodes of 8, 88 assigned of a line of 104. lion: 8 nodes, 16 assigned; nothing runs there."""
    folder = tmp_path_factory.mktemp("tasks")
    dsn = f"sqlite:///{folder}/plimsoll.db"
    fleet = write_fleet(
        folder / "fleet",
        clusters=[row("clusters"), row("clusters", cluster="lion", area="eu")],
        nodes=[*nodes(16, prefix="t"), *nodes(8, prefix="l", cluster="lion", island="lion-a")],
        quotas=[
            row("quotas", team=TEAM, gpus="32"),
            row("quotas", team=OTHER, gpus="56"),
            row("quotas", team=TEAM, cluster="lion", gpus="16"),
        ],
        workloads=[row("workloads", workload="run-1", team=TEAM, gpus="16")],
    )
    importer = Importer(dsn)
    importer.bring(fleet)
    importer.keeper.close()
    (folder / "quota.csv").write_text(
        "subscription,region,family,limit,used\nresearch-7,eastus,standardNDISRH200V5Family,1000,0\n", encoding="utf-8"
    )
    (folder / "quick.yaml").write_text(_quick_recipe(), encoding="utf-8")
    with open_keeper(dsn) as keeper:
        for name, bindings in (ROLES | {VERA: (Binding(Role.VIEWER),)}).items():
            for binding in bindings:
                grant(keeper, name, binding, actor="tester", reason="a test")
        with at(Desk(keeper, "tester")):
            command("quota apply").done(reason="the first line")
            command("cluster recipe apply").done(path=folder / "quick.yaml")
    return dsn


def _quick_recipe() -> str:
    """The shortest recipe there is, that does not wait long to see whether a cluster stays healthy."""
    text = ZERO_BOOTSTRAP
    return re.sub(r"recipe: \S+", "recipe: quick", text, count=1).replace("steady_for: 5s", "steady_for: 1s")


@pytest.fixture(scope="module")
def port(book: str) -> Iterator[Port]:
    ahead = [timedelta()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(house, "open_keeper", partial(open_keeper, clock=lambda: utc_now() + ahead[0]))
        patch.setattr(loops_passes, "EVERY_SECONDS", {**loops_passes.EVERY_SECONDS, **QUICKLY})
        patch.setenv("PLIMSOLL_REHEARSAL", "seconds=0.1")
        with serving(book, make_people(book), is_leading=True) as served, chromium(served) as browser:
            yield Port(served, browser, ahead)


# Request, approve, transfer, why.


def test_a_request_is_approved_and_more_is_moved_and_why_tells_of_it(port: Port) -> None:
    with port.browser.window(ADA) as window:
        window.go(f"/teams/{TEAM}")
        assert (window.number("assigned"), window.number("guaranteed")) == (48, 48)
        form = window.page.locator("form[data-act='POST /api/v1/requests']")
        form.get_by_label("GPUs").fill("16")
        form.get_by_label("Cluster").select_option("tiger")
        form.get_by_label("For").fill("14d")
        form.get_by_label("Why").fill("the next long run")
        window.act(form, "What would the answer be?", "Ask for it")
        window.see("[data-live='requests'] .badge", "open")
        request = window.text("[data-live='requests'] a[href^='/requests/']")

    with port.browser.window(INES) as window:
        window.go("/quota")
        form = window.page.locator(f"#request-{request} form[data-act$='/approve']")
        assert "16" in form.get_by_label("Give it as").inner_text()
        window.act(form, "What would it do?", "Approve it")
        window.see("[data-live='grants'] tr", TEAM)
        form = window.page.locator("form[data-act='POST /api/v1/transfers']")
        for label, text in {
            "From team": OTHER,
            "To team": TEAM,
            "GPUs": "8",
            "Cluster": "tiger",
            "Reason": "lent",
        }.items():
            form.get_by_label(label).fill(text)
        window.act(form, "What would happen?", "Move it")

    with port.browser.window(ADA) as window:
        window.go(f"/teams/{TEAM}")
        # 32 + 16 in lion, and now 16 approved and 8 moved. What others have just done may come a moment later.
        for number in ("assigned", "guaranteed"):
            window.wait_number(number, 72)
        window.page.keyboard.press("/")
        window.page.keyboard.type(TEAM)
        window.page.keyboard.press("Enter")
        window.page.wait_for_url("**/why?q=*")
        window.settle()
        assert re.search(r"\b72\b", window.text("main"))
        window.page.goto(f"{window.url}/requests/{request}")
        window.see(".badge", "approved")


# Plan, publish, start, tick, return.


def _campaign(now: datetime) -> tuple[str, datetime]:
    """A campaign of one batch, in a zone of time in which the day begins with the next hour; and that hour."""
    begin = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    west = begin.hour if begin.hour <= 12 else begin.hour - 24
    zone = f"Etc/GMT{west:+d}" if west else "Etc/GMT"
    day = (begin - timedelta(hours=west)).date()
    text = f"""\
campaign: nic
changes: [{{component: nic-firmware, version: "28.43", impact: disruptive}}]
scope: {{cluster: lion}}
start: {day}
deadline: {day + timedelta(days=1)}
window: {{hours: [0, 24], tz: {zone}}}
slot_minutes: 60
work: [{{scope: {{}}, mode: whole, hours: 2}}]
run: {{grace_minutes: 0}}
roster: [on-call]
"""
    return text, begin


def test_a_campaign_is_planned_and_started_and_the_provider_ticks_it_off(port: Port) -> None:
    text, begin = _campaign(datetime.now(UTC) + port.ahead[0])
    with port.browser.window(OMAR) as window:
        window.go("/campaigns")
        form = window.page.locator("form[data-act='POST /api/v1/campaigns/plan']")
        assert "campaign: " in form.get_by_label("Campaign file").input_value()
        form.get_by_label("Campaign file").fill(text)
        form.get_by_label("Search for at most").select_option("10")
        window.act(form, "Plan it")
        form.get_by_role("link", name="Open plan 1 of nic").click()
        window.page.wait_for_url("**/campaigns/nic")
        window.settle()
        window.see(".notice", "Nothing goes out yet")
        window.page.get_by_text("Publish plan 1").click()
        window.act(window.page.locator("form[data-act$='/publish']"), "What would be told?", "Publish it")
        window.act(window.page.locator("form[data-act$='/start']"), "What would start?", "Start it")
        window.see("[data-live='phase'] .badge", "running")
        port.ahead[0] = begin + timedelta(minutes=1) - datetime.now(UTC)
        window.wait_number("out", 8)

        _the_provider_ticks(port, window)


def _the_provider_ticks(port: Port, operators: Window) -> None:
    """She sees the days and nodes of the work and nothing else, and says what was done; the operator's page follows."""
    with port.browser.window(PIA) as window:
        window.go("/campaigns/nic")
        assert [link.inner_text() for link in window.page.locator(".nav a").all()] == ["Campaigns"]
        assert window.page.locator("a[href^='/clusters/'], a[href^='/teams/']").count() == 0
        window.see("summary", "The work is done").click()
        form = window.page.locator("form[data-act*='/tick/']")
        form.get_by_label("Nodes that did not come back").fill("l3")
        form.get_by_label("the nodes were checked as well").check()
        form.get_by_role("button", name=re.compile("^Tick ")).click()
        for each in (window, operators):
            each.wait_number("lost", 1)
            each.wait_number("done", 7)

        window.see("summary", "Some are back").click()
        form = window.page.locator("form[data-act$='/returned']")
        form.get_by_label("Nodes that are repaired").fill("l3")
        form.get_by_label("they have the new versions as well").check()
        window.act(form, "They are back")
        for each in (window, operators):
            each.wait_number("lost", 0)
            each.wait_number("done", 8)


# Add, check in, production.


def test_a_cluster_is_added_and_checked_in_and_its_page_follows_it_into_production(port: Port) -> None:
    with port.browser.window(OMAR) as window:
        window.go("/lifecycle")
        form = window.page.locator("form[data-act='POST /api/v1/clusters']")
        texts = {"Name": "marlin", "GPU model": "H200", "Nodes": "4", "Region": "eastus", "Subscription": "research-7"}
        for label, text in texts.items():
            form.get_by_label(label, exact=True).fill(text)
        form.get_by_label("Recipe").select_option("quick")
        form.get_by_role("button", name="What would happen?").click()
        form.get_by_role("button", name="Plan it", exact=True).click()
        window.page.wait_for_url("**/lifecycle/marlin")
        window.settle()
        window.see("[data-number='checkin']", "not yet")
        window.see("summary", "Check in").click()
        window.act(window.page.locator("form[data-act$='/checkin']"), "What would happen?", "Check marlin in")
        window.see("[data-number='phase']", "production", seconds=40)
        assert window.text("[data-number='holding']") == "9"

        window.go("/clusters/marlin")
        assert "32" in window.text("main .stats")


# A page that is open follows what is recorded.


def _drain(served: Served, node: str, service: str) -> None:
    """A node leaves service, or comes back; 8 GPUs more or less are healthy."""
    reply = served.post("/health/set", {"words": [node, service], "reason": "a test"})
    assert reply.status == 200, reply.body


def test_an_open_page_follows_unless_it_is_paused_and_the_past_stays(port: Port) -> None:
    with port.browser.window(VERA) as window, port.browser.window(VERA) as past:
        window.go("/")
        healthy = window.number("healthy")
        past.go(f"/?as_of={port.served.house.api.head}")
        assert past.page.locator(".past").count() == 1
        _drain(port.served, "t9", "quarantined")
        window.wait_number("healthy", healthy - 8)

        window.page.keyboard.press("p")
        _drain(port.served, "t10", "quarantined")
        window.wait_live("paused", "Paused. Something has changed since.")
        assert window.number("healthy") == healthy - 8
        window.page.keyboard.press("p")
        window.wait_number("healthy", healthy - 16)

        assert past.number("healthy") == healthy
        assert past.page.locator("[data-live-pause]").count() == 0


def test_a_page_says_that_its_connection_is_lost_and_goes_on_when_it_is_back(port: Port, book: str) -> None:
    with serving(book, port.served.tokens) as served:
        context = Chromium(port.browser.browser, served).context(VERA)
        window = Window(context.new_page(), served.url).go("/teams")
        window.wait_live("on", "Live")
        served.house.watcher.stop()  # as a server that is being stopped does
    window.wait_live("off", "The connection is lost")
    with serving(book, port.served.tokens, port=int(served.url.rpartition(":")[2])) as served:
        window.wait_live("on", "Live")
        context.close()
        served.house.watcher.stop()
    window.forgive("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE", "answered 503")
    window.check()


# By keyboard.


def test_keys_lead_everywhere(port: Port) -> None:
    with port.browser.window(OMAR) as window:
        keyboard = window.go("/").page.keyboard
        keyboard.press("/")
        assert window.page.evaluate("document.activeElement.id") == "why-box"
        keyboard.type("gq?")  # in a box letters are letters
        assert window.page.input_value("#why-box") == "gq?"
        keyboard.press("Escape")
        keyboard.press("?")
        assert window.page.locator("#keys").is_visible()
        keyboard.press("Escape")
        assert not window.page.locator("#keys").is_visible()

        window.go("/teams")
        here = "document.querySelector('tr.here')?.innerText.split('\\t')[0].trim()"
        keyboard.press("j")
        first = window.page.evaluate(here)
        keyboard.press("j")
        second = window.page.evaluate(here)
        keyboard.press("k")
        assert len({first, second, None}) == 3
        assert window.page.evaluate(here) == first
        keyboard.press("Enter")
        window.page.wait_for_url("**/teams/*")
        window.settle()
        keyboard.press("g")
        keyboard.press("q")
        window.page.wait_for_url("**/quota")
        window.settle()


def test_the_map_of_nodes_is_walked_with_the_arrows(port: Port) -> None:
    with port.browser.window(OMAR) as window:
        window.go("/map").scroll_through()
        count = len(port.served.api("/fleet/map").document["nodes"]["node"])
        assert window.text(".nodemap-summary").startswith(f"{count} nodes in ")
        window.page.locator(".nodemap-top").press("ArrowRight")
        told = ".nodemap [aria-live]"
        first = window.page.text_content(told) or ""
        window.page.keyboard.press("ArrowRight")
        second = window.page.text_content(told) or ""
        assert first.partition(":")[0] != second.partition(":")[0]
        assert "8 × H200, lion-a, lion" in second
        window.page.keyboard.press("z")
        assert window.page.get_by_role("button", name="← all").is_visible()
        window.page.keyboard.press("Escape")
        window.page.keyboard.press("ArrowDown")
        node = (window.page.text_content(told) or "").partition(":")[0]
        window.page.keyboard.press("Enter")
        window.page.wait_for_url(f"**/nodes/{node}")
        window.settle()
        assert node in window.text("h1")


# Who may not.


def test_a_viewer_is_offered_nothing_to_do(port: Port) -> None:
    with port.browser.window(VERA) as window:
        for path in ("/", "/quota", f"/teams/{TEAM}", "/campaigns", "/lifecycle", "/health", "/nodes/t1"):
            window.go(path)
            assert window.page.locator("form[data-act]").count() == 0, path


def test_the_provider_is_told_kindly_what_is_not_hers(port: Port) -> None:
    with port.browser.window(PIA) as window:
        for path in ("/quota", f"/teams/{TEAM}", "/health"):
            window.go(path, want_status=403)
            assert window.page.locator(".error-page h1").count() == 1
            assert window.page.locator("form[data-act]").count() == 0
            # What is hers begins at planned work.
            window.see(".error-page a", "To the start").click()
            window.page.wait_for_url("**/campaigns")
            window.settle()


def test_signing_out_is_for_good(port: Port) -> None:
    browser = Chromium(port.browser.browser, port.served)
    with browser.window(VERA) as window:
        window.go("/teams")
        window.page.locator("details.who summary").click()
        window.page.get_by_role("button", name="Sign out").click()
        window.page.wait_for_url("**/signin")
        window.page.goto(f"{window.url}/teams")
        assert window.page.url == f"{window.url}/signin?next=%2Fteams"


def test_a_page_that_stays_open_after_its_session_says_so(port: Port) -> None:
    browser = Chromium(port.browser.browser, port.served)
    with browser.window(VERA) as window:
        window.go("/teams")
        window.wait_live("on", "Live")
        other = window.page.context.new_page()
        other.goto(f"{window.url}/health")
        other.locator("details.who summary").click()
        other.get_by_role("button", name="Sign out").click()
        other.wait_for_url("**/signin")
        _drain(port.served, "t11", "quarantined")
        window.wait_live("off", "You are signed out")
        window.forgive("/api/v1/changes", "answered 401", "status of 401")
