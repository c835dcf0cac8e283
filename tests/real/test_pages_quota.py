"""What RPMs and teams do with the quota, in Chromium, each as the person who does it: look at policies, tell the teams,
answer, apply, lend and deny. The numbers are worked out by hand in `book`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Route

from plimsoll.access.model import Binding, Role
from plimsoll.access.service import grant
from plimsoll.commands.catalog import command
from plimsoll.commands.desk import Desk, at
from plimsoll.rooms import open_keeper
from tests.support.browser import Chromium, Window, chromium
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import Importer
from tests.support.served import OTHER, TEAM, Served, make_people, serving

pytestmark = pytest.mark.xdist_group("chromium")

ADA, BERT, INES = "ada@example.org", "bert@example.org", "ines@example.org"
PEOPLE = {ADA: Binding(Role.MEMBER, TEAM), BERT: Binding(Role.MEMBER, TEAM), INES: Binding(Role.RPM)}


class Port(NamedTuple):
    """A server with a small fleet, and a browser."""

    served: Served
    browser: Chromium


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> str:
    """GPUs, by whole nodes of 8; the line is the smaller one of what is healthy and of what the buffer leaves.

    | cluster | installed | healthy | assigned | running | line at 0 % | 15 % | 30 % |
    |---------|-----------|---------|----------|---------|-------------|------|------|
    | tiger   | 128       | 112     | 48 + 72  | 16 + 64 | 112         | 104  | 88   |
    | lion    | 32        | 32      | 32       | 32      | 32          | 24   | 16   |
    | lynx    | 64        | 64      | 8 + 16   | 0       | 64          | 48   | 40   |

    lynx is guaranteed what is assigned already: 8 and 16.
    """
    folder = tmp_path_factory.mktemp("acts")
    dsn = f"sqlite:///{folder}/plimsoll.db"
    fleet = write_fleet(
        folder / "fleet",
        clusters=[row("clusters"), *(row("clusters", cluster=name, area="eu") for name in ("lion", "lynx"))],
        nodes=[
            *nodes(14, prefix="t"),
            *nodes(2, prefix="r", service="repair", since="2026-01-05T11:00:00Z", reason="xid 79"),
            *nodes(4, prefix="l", cluster="lion", island="lion-a"),
            *nodes(8, prefix="x", cluster="lynx", island="lynx-a"),
        ],
        quotas=[
            row("quotas", team=TEAM, gpus="48"),
            row("quotas", team=OTHER, gpus="72"),
            row("quotas", team=TEAM, cluster="lion", gpus="32"),
            row("quotas", team=TEAM, cluster="lynx", gpus="8"),
            row("quotas", team=OTHER, cluster="lynx", gpus="16"),
        ],
        workloads=[
            row("workloads", workload="run-1", team=TEAM, gpus="16"),
            row("workloads", workload="run-2", team=OTHER, gpus="64"),
            row("workloads", workload="run-3", team=TEAM, cluster="lion", island="lion-a", gpus="32"),
        ],
    )
    importer = Importer(dsn)
    importer.bring(fleet)
    importer.keeper.close()
    with open_keeper(dsn) as keeper:
        for name, binding in PEOPLE.items():
            grant(keeper, name, binding, actor="tester", reason="a test")
        with at(Desk(keeper, "tester")):
            command("quota apply").done(clusters=["lynx"], reason="the first line")
    return dsn


@pytest.fixture(scope="module")
def port(book: str) -> Iterator[Port]:
    with serving(book, make_people(book)) as served, chromium(served) as browser:
        yield Port(served, browser)


# The slider.

NUMBERS = ("over", "never", "to_flex", "running", "guaranteed", "line", "flex")
BY_BUFFER = {
    # tiger 8 over and never there; all else fits.
    0: (8, 8, 0, 0, 112 + 32 + 24, 112 + 32 + 64, 40),
    # tiger 16 over, lion 8 over and under running work; what nobody is guaranteed is flex.
    15: (16 + 8, 8, 8 + 8, 8, 104 + 24 + 24, 104 + 24 + 48, 8 + 8 + 40),
    30: (32 + 16, 8, 24 + 16, 16, 88 + 16 + 24, 88 + 16 + 40, 24 + 16 + 40),
}


def _shown(window: Window) -> tuple[int, ...]:
    return tuple(window.number(key) for key in NUMBERS)


def _wait_policy(window: Window, policy: str) -> None:
    """The numbers of this policy stand there."""
    window.page.wait_for_selector(f"[data-shown-policy='{policy}']", state="attached")
    window.settle()


def _slide(window: Window, percent: int) -> None:
    """As somebody drags it: it passes all that lies between."""
    window.page.locator("#buffer").fill(str(percent))
    assert window.text("output.policy-says") == f"{percent} %"
    _wait_policy(window, f"fixed:{percent / 100:g}")


def test_the_slider_shows_the_numbers_of_its_policy_and_the_address_leads_there_again(port: Port) -> None:
    with port.browser.window(INES) as window:
        window.go("/teams").go("/quota")
        assert _shown(window) == BY_BUFFER[15]
        _slide(window, 0)
        assert _shown(window) == BY_BUFFER[0]
        _slide(window, 30)
        assert _shown(window) == BY_BUFFER[30]
        assert parse_qs(urlsplit(window.page.url).query) == {"policy": ["fixed:0.3"]}
        # All that leads on from the page means the same: what is applied, what is told, the files.
        for select in ("#apply-policy", "#tell-policy"):
            assert window.page.locator(select).input_value() == "fixed:0.3"
        for words in ("rollout", "plan"):
            href = window.page.locator(f"a.csv[href^='/api/v1/quota/{words}']").get_attribute("href") or ""
            assert parse_qs(urlsplit(href).query).get("policy") == ["fixed:0.3"], words

        window.page.reload()
        window.settle()
        assert _shown(window) == BY_BUFFER[30]
        assert window.page.locator("#buffer").input_value() == "30"

        window.page.locator("nav[data-live='policies']").get_by_role("link", name="0 %", exact=True).click()
        _wait_policy(window, "fixed:0")
        assert _shown(window) == BY_BUFFER[0]
        assert window.page.locator("#buffer").input_value() == "0"
        window.page.go_back()
        _wait_policy(window, "fixed:0.3")
        assert _shown(window) == BY_BUFFER[30]
        assert window.page.locator("#buffer").input_value() == "30"
        assert window.page.locator("#apply-policy").input_value() == "fixed:0.3"
        window.page.go_back()
        window.page.wait_for_url("**/teams")
        window.page.go_forward()
        _wait_policy(window, "fixed:0.3")
        assert _shown(window) == BY_BUFFER[30]


def test_a_busy_server_is_not_asked_faster_for_the_slider(port: Port) -> None:
    asked: list[float] = []

    def refuse(route: Route) -> None:
        asked.append(time.monotonic())
        if len(asked) > 1:
            return route.continue_()
        return route.fulfill(status=503, headers={"Retry-After": "1"}, body="busy")

    with port.browser.window(INES) as window:
        window.go("/quota?policy=fixed:0.3")
        window.wait_live("on", "Live")
        window.page.route(lambda url: "at_least=" in url, refuse)
        _slide(window, 15)
        window.wait_live("on", "Live")
        assert len(asked) == 2
        assert asked[1] - asked[0] >= 1
        window.forgive("answered 503", "Failed to load resource")


# Notices and their answers.


def test_teams_are_told_and_what_they_answer_reaches_the_rpm(port: Port) -> None:
    with port.browser.window(INES) as rpm, port.browser.window(ADA) as window:
        window.go(f"/teams/{TEAM}")
        rpm.go("/quota?policy=fixed:0.15")
        rpm.see("summary", "Tell the teams").click()
        form = rpm.page.locator("form[data-act='POST /api/v1/quota/rollout']")
        form.get_by_label("Reason").fill("the correction")
        rpm.act(form, "Give notice")
        rpm.see("[data-live='notices'] .badge", "2 not answered")

        # The team's page is open all the while, and had no notices.
        notice = window.see("[data-live='notices'] article", "tiger")
        assert "Now 48, then 32 guaranteed" in " ".join(notice.inner_text().split())
        window.act(notice.locator("form[data-act$='/agree']"), "Agree")
        window.see("[data-live='notices'] .badge", "agreed")
        with port.browser.window(BERT) as window:
            window.go(f"/teams/{TEAM}")
            notice = window.see("[data-live='notices'] article", "lion")
            assert "8 under running work" in " ".join(notice.inner_text().split())
            notice.get_by_text("Object", exact=True).first.click()
            form = notice.locator("form[data-act$='/object']")
            form.get_by_label("Why").fill("run-3 needs them until Friday")
            window.act(form, "Object")
            window.see("[data-live='notices'] .badge", "objected")

        rpm.see("[data-live='notices'] .badge", "1 objected")
        rpm.see("[data-live='notices'] .badge", "0 not answered")
        rpm.see("[data-live='notices'] tr", "“run-3 needs them until Friday” bert@example.org")


# Apply: what was seen, or nothing.


def _guaranteed(served: Served, cluster: str) -> dict[str, int]:
    rows = served.api(f"/quota?at_least={served.house.api.head}").document["teams"]
    return {each["team"]: each["guaranteed"] for each in rows if each["cluster"] == cluster}


def test_a_plan_is_applied_as_it_was_seen_or_not_at_all(port: Port) -> None:
    nothing = {TEAM: 0, OTHER: 0}
    with port.browser.window(INES) as window:
        window.go("/quota?policy=fixed:0.3")
        window.see("summary", "Apply stages").click()
        form = window.page.locator("form[data-act='POST /api/v1/quota/apply']")
        form.get_by_label("Up to stage").select_option("2")
        form.get_by_label("Only in these clusters").fill("tiger")
        form.get_by_label("Reason").fill("the correction")
        form.get_by_label("without notice").check()
        form.get_by_role("button", name="What would happen?").click()
        confirm = form.get_by_role("button", name="Apply exactly this")
        confirm.wait_for()
        assert _guaranteed(port.served, "tiger") == nothing
        # A node leaves service between the look and the click, and the line moves with it.
        form.get_by_label("By the policy").select_option("fixed:0")
        form.get_by_role("button", name="What would happen?").click()
        confirm.wait_for()
        _set(port.served, "t14", "quarantined")
        confirm.click()
        said = window.see("form[data-act='POST /api/v1/quota/apply'] .bad-text").inner_text()
        assert "tiger H200 (a line of 112 GPUs then, 104 now)" in said
        assert confirm.count() == 0
        assert _guaranteed(port.served, "tiger") == nothing
        window.forgive("/api/v1/quota/apply answered 409", "Failed to load resource")

        # Looked at once more, it is the plan of now: 120 on a line of 104, and 16 that nobody uses go. It is done, but
        # the answer never comes.
        window.page.route("**/api/v1/quota/apply", _lose_the_answer)
        form.get_by_role("button", name="What would happen?").click()
        confirm.click()
        window.see("form[data-act='POST /api/v1/quota/apply'] .bad-text", "The server did not answer.")
        window.page.unroute("**/api/v1/quota/apply")
        window.forgive("/api/v1/quota/apply", "Failed to load resource")
        assert _guaranteed(port.served, "tiger") == {TEAM: 32, OTHER: 72}
        window.see("[data-live='stages'] .badge", "in force")
        # A third look tells that all is so already, and there is nothing to press.
        form.get_by_role("button", name="What would happen?").click()
        form.get_by_text("nothing to change").wait_for()
        assert confirm.count() == 0
        _set(port.served, "t14", "validating")


def _lose_the_answer(route: Route) -> None:
    """Of what is done; what would be done is told."""
    if "dry_run" in (route.request.post_data or ""):
        return route.continue_()
    assert route.fetch().status == 200
    return route.abort()


def _set(served: Served, node: str, service: str) -> None:
    reply = served.post("/health/set", {"words": [node, service], "reason": "a test"})
    assert reply.status == 200, reply.body


# Transfers, grants and requests.


def test_quota_is_lent_and_taken_back_and_a_request_is_denied_with_its_reason(port: Port) -> None:
    asked = {"team": TEAM, "gpus": "16", "sku": "H200", "cluster": "lynx", "reason": "the next run"}
    request = port.served.post("/requests", asked, who="member").document["request"]["id"]
    with port.browser.window(ADA) as window, port.browser.window(INES) as rpm:
        window.go(f"/requests/{request}")
        rpm.go("/quota")
        form = rpm.page.locator("form[data-act='POST /api/v1/transfers']")
        form.get_by_label("From team").fill(OTHER)
        form.get_by_label("To team").fill(TEAM)
        form.get_by_label("GPUs").fill("24")
        form.get_by_label("Cluster").fill("lynx")
        form.get_by_label("For how long").select_option("7d")
        form.get_by_label("Reason").fill("lent")
        form.get_by_role("button", name="What would happen?").click()
        rpm.see("form[data-act='POST /api/v1/transfers'] .bad-text", "16")
        rpm.forgive("/api/v1/transfers answered 4", "Failed to load resource")
        form.get_by_label("GPUs").fill("8")
        rpm.act(form, "What would happen?", "Move it")
        assert _guaranteed(port.served, "lynx") == {TEAM: 16, OTHER: 8}
        lent = rpm.see("[data-live='grants'] tr", TEAM)
        assert OTHER in lent.inner_text()
        rpm.act(lent.locator("form"), "end it now", "End it now")
        rpm.see("[data-live='grants']", "No quota is lent for a time.")
        assert _guaranteed(port.served, "lynx") == {TEAM: 8, OTHER: 16}

        form = rpm.page.locator(f"#request-{request} form[data-act$='/deny']")
        form.get_by_label("Why not").fill("lynx is kept for the evals")
        rpm.act(form, "Deny")
        rpm.page.locator(f"#request-{request}").wait_for(state="detached")
        window.see("[data-live='answered'] td", "lynx is kept for the evals")
        assert window.text("[data-live='state']") == "denied"
        assert window.page.locator("form[data-act]").count() == 0
