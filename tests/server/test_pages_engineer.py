"""The engineer's and on-call's pages: the API's numbers, acts only for who may, and whatever was typed stays text."""

from __future__ import annotations

import asyncio
import csv
import html
import io
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

import pytest

from plimsoll.errors import PlimsollError, Refused, Unavailable
from plimsoll.health.attention import Need
from plimsoll.incidents.changes import OwnerTold
from plimsoll.incidents.reasons import Kind, What
from plimsoll.incidents.service import run_pass
from plimsoll.ledger.model import Draft
from plimsoll.rooms import FINDERS, open_keeper
from plimsoll.server.pages import audit
from plimsoll.server.pages.audit import subject_href
from plimsoll.server.pages.health import NEEDS, hold_groups, interruptions_spec, with_words
from plimsoll.server.pages.incidents import WORDS, incidents, once, told_calmly, verdict, words_of
from plimsoll.server.pages.lifecycle import board, quota_rows
from plimsoll.server.pages.node import quiet_until, settable
from plimsoll.server.visit import Visit
from plimsoll.times import utc_now
from tests.support.pages import Page
from tests.support.served import Reply, Served, make_people, serving, small_book

HOSTILE = '<img src=x onerror="alert(1)">'
SIGNALS_TO_TRIP = 6
"""Of 12 nodes four may be taken out in an hour."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of its own, in trouble: a breaker has tripped, two incidents are open, a cluster waits."""
    dsn = small_book(tmp_path_factory.mktemp("site"))
    with serving(dsn, make_people(dsn)) as server:
        names = [row["node"] for row in server.api("/nodes?filter=cluster%3Dtiger").document["nodes"]]
        for name in names[:SIGNALS_TO_TRIP]:
            sent = {"node": name, "kind": "xid", "name": "79", "feed": "dcgm"}
            assert server.post("/health/signal", sent).status == 200
        for title, identity in (("cooling fails", "cooling"), (HOSTILE, "hostile")):
            sent = {"title": title, "id": identity, "cluster": ["tiger"], "on_call": ["noor"]}
            assert server.post("/incidents", sent, who="operator").status == 200
        assert server.post("/incidents/hostile/note", {"note": f"found {HOSTILE}"}, who="operator").status == 200
        heron = {"name": "heron", "region": "us-canyon", "subscription": "sub-a", "sku": "H200", "nodes": 6}
        assert server.post("/clusters", {**heron, "owner": HOSTILE, "reason": HOSTILE}, who="operator").status == 200
        hold = {"targets": [names[-1]], "id": HOSTILE, "reason": "recabling"}
        assert server.post("/holds", hold, who="operator").status == 200
        yield server


def page(server: Served, path: str, who: str = "viewer") -> str:
    reply: Reply = server.ask(path, who=who, Accept="text/html")
    assert reply.status == 200, reply.body
    return reply.body.decode()


def after(reply: Reply) -> str:
    """So that a page is no older than what was just done."""
    assert reply.status == 200, reply.body
    return f"at_least={reply.headers['plimsoll-revision']}"


def number(text: str, key: str) -> str:
    """What stands where a number is that follows the ledger."""
    found = re.search(rf'data-number="{key}"[^>]*>(.*?)</', text)
    assert found, key
    return html.unescape(found[1])


PAGES = ("/lifecycle", "/lifecycle/heron", "/health", "/health/levels", "/health/lemons", "/incidents", "/on-call",
         "/incidents/cooling", "/audit", "/nodes/t1", "/nodes/t9")  # fmt: skip
"""Automation holds t1, and somebody t9."""


@pytest.mark.parametrize("path", PAGES)
def test_who_may_see_does_and_only_who_may_act_has_forms(site: Served, path: str) -> None:
    seen = {who: page(site, path, who) for who in ("viewer", "member", "fleet_rpm", "operator", "admin")}
    assert site.ask(path, who="partner", Accept="text/html").status == 403
    acts = {who: set(re.findall(r'data-act="(\S+ \S+)"', text)) for who, text in seen.items()}
    assert not acts["viewer"] | acts["member"] | acts["fleet_rpm"]
    assert bool(acts["operator"]) is (
        path.startswith("/nodes")
        or path in ("/lifecycle", "/lifecycle/heron", "/health", "/incidents", "/incidents/cooling")
    )
    for text in seen.values():
        assert "<img src=x" not in text
        assert not re.search(r"\bstyle=|<script(?! type=)|\son[a-z]+=[\"']", text), "the CSP would refuse it"


def test_health_has_the_numbers_of_the_api_and_asks_for_the_breaker(site: Served) -> None:
    present = site.api("/health").document["present"]
    text = page(site, "/health", "operator")
    assert number(text, "unplanned") == str(present["unplanned"])
    assert number(text, "share") == f"{present['in_service'] / present['nodes']:.1%}".replace(
        "%", "\N{NARROW NO-BREAK SPACE}%"
    )
    assert number(text, "breakers") == "1"
    tripped = next(need for need in present["attention"] if need["need"] == "breaker_tripped")
    assert tripped["about"] == "cluster/tiger"
    for field in ("go_on", "dismiss"):
        said = rf'<input type="hidden" name="{field}" value="yes" data-type="flag">'
        assert re.search(rf'name="scope" value="cluster/tiger">{said}', text)
    assert "plimsoll health breaker cluster/tiger" in page(site, "/health"), "who may not act is told what to type"
    assert html.escape(HOSTILE, quote=False) in text.replace("&#34;", '"'), "the hold is named"


def test_a_breaker_says_when_it_tripped_as_every_time_on_a_page(site: Served) -> None:
    tripped = next(n for n in site.api("/health").document["present"]["attention"] if n["need"] == "breaker_tripped")
    assert re.search(r"since \d{4}-\d\d-\d\dT", tripped["message"]), "for machines it is exact"
    said = re.search(r"<span>(cluster/tiger: automation took .*?)</span>", page(site, "/health"))
    assert said is not None
    assert re.search(r'since <time datetime="[^"]*Z" title="[^"]*">\d+ \w+ \d\d:\d\d</time>$', said[1])


def test_a_hold_is_released_on_the_nodes_that_one_names(site: Served) -> None:
    text = page(site, "/health", "operator")
    held = [row["node"] for row in site.api("/holds").document["holds"] if row["hold"]["id"] == "plimsoll:xid 79"]
    assert len(held) == 4
    form = text[text.index('data-name="release-plimsoll:xid 79') :].partition("</form>")[0]
    assert 'value="plimsoll:xid 79"' in form
    assert re.search(r'<input id="release-\d+-nodes" name="targets" type="text" maxlength="\d+" data-type="list"', form)
    assert "empty: on all 4" in form
    assert "although it is plimsoll’s" in form
    sent = {"targets": held[:1], "force": True, "reason": "fine", "dry_run": True}
    would = site.post("/holds/plimsoll:xid 79/release".replace(" ", "%20"), sent, who="operator")
    assert [moved["node"] for moved in would.document["outcome"]["moved"]] == held[:1]


def test_a_node_has_its_holds_by_name_and_what_can_be_done_to_it(site: Served) -> None:
    text = page(site, "/nodes/t1", "operator")
    shown = Page(text)
    assert shown.rows("Holds")["plimsoll"][3] == "plimsoll:xid 79"
    acts = set(re.findall(r'data-act="POST (\S+)"', text))
    assert acts == {"/api/v1/holds/{hold_id}/release", "/api/v1/holds", "/api/v1/health/set"}
    assert text.count('<input type="hidden" name="targets" value="t1" data-type="list">') == 2, (
        "to hold, and to release"
    )
    assert '<input type="hidden" name="targets" value="t1">' in text, "to set it"
    assert re.search(r"<li>xid 79 <span class=\"quiet\"></span></li>", text), "a problem is told once"
    assert "release" not in page(site, "/nodes/t4", "operator").partition('id="timeline"')[0].lower()


QUIET = [{"check": "quiet", "what": "quiet for 55 more minutes"}]
ACCEPTED = {"check": "accepted", "what": "not answered yet"}
WAITS: dict[str, tuple[list[dict[str, str]], str]] = {
    "it waits for nothing": ([], ""),
    "it waits for quiet: to the next five minutes": (QUIET, "11:00"),
    "twice, the longer counts": ([*QUIET, {"check": "calm", "what": "quiet for 65 more minutes"}], "11:10"),
    "it waits for somebody as well": ([*QUIET, ACCEPTED], ""),
    "a check has failed": ([{"check": "burn-in", "what": "failed at 2026-03-01T10:00:00Z: it burns"}], ""),
}


@pytest.mark.parametrize("name", WAITS)
def test_until_when_a_node_only_waits(name: str) -> None:
    waits_for, want = WAITS[name]
    until = quiet_until(waits_for, datetime(2026, 3, 1, 10, 3, 20, tzinfo=UTC))
    assert (f"{until:%H:%M}" if until else "") == want


def test_a_node_that_only_waits_for_quiet_is_nobodys_move(site: Served) -> None:
    sent = {"targets": ["t10"], "force": True, "reason": "looked at it"}
    after(site.post("/holds/plimsoll:xid%2079/release", sent, who="operator"))
    tick = {"check": "accepted", "targets": ["t10"], "reason": "seen"}
    now = after(site.post("/health/tick", tick, who="operator"))
    assert [each["check"] for each in site.api(f"/nodes/t10?{now}").document["waits_for"]] == ["quiet"]
    shown = Page(page(site, f"/nodes/t10?{now}", "operator"))
    assert re.search(r"Waits until about \d+ \w+ \d\d:\d\d : quiet\.", shown.text)
    assert "half of such faults" not in shown.text
    assert "Whose move" not in shown.text


SETTABLE: dict[str, tuple[str, list[str]]] = {
    "in service": ("in_service", ["quarantined", "draining", "maintenance", "repair", "retired"]),
    "held": ("repair", ["quarantined", "draining", "maintenance", "validating", "retired"]),
    "validating": ("validating", ["quarantined", "draining", "maintenance", "repair", "in_service", "retired"]),
}


@pytest.mark.parametrize("name", SETTABLE)
def test_where_a_node_may_be_sent(name: str) -> None:
    service, want = SETTABLE[name]
    assert settable(service) == want


def test_levels_are_those_of_the_api(site: Served) -> None:
    total = site.api("/health/levels?from=7d").document["total"]
    text = page(site, "/health/levels?days=7")
    assert f"{total['in_service_share'] * 100:.1f}" in text
    assert f"{total['unplanned_per_day']:.1f}" in text
    assert "data-part" in text
    assert "Service levels of 30 days" in page(site, "/health/levels?days=9999"), "there is a tab for it, or it is 30"


def test_a_planned_cluster_waits_on_the_board_until_somebody_checks_it_in(site: Served) -> None:
    row = next(each for each in site.api("/clusters").document["clusters"] if each["cluster"] == "heron")
    assert (row["phase"], row["checked_in"], row["leaving"], row["region"]) == ("planned", False, False, "us-canyon")
    text = page(site, "/lifecycle", "operator")
    assert row["message"] in text
    assert 'data-act="POST /api/v1/clusters/{name}/checkin"' in text
    owed = site.api("/clusters/quota").document["quota"]
    assert number(text, "owed") == f"{sum(each['owed'] for each in owed):,}"
    now = after(site.post("/clusters/heron/checkin", {"reason": "go"}, who="operator"))
    assert "/checkin" not in page(site, f"/lifecycle?{now}", "operator")
    shown = page(site, f"/lifecycle/heron?{now}", "operator")
    assert "by operator@example.org" in shown
    assert "/checkin" not in shown
    assert "was imported, not made here" in page(site, "/lifecycle/tiger")


def test_the_log_of_a_step_is_for_operators(site: Served) -> None:
    assert "It has printed nothing" in page(site, "/lifecycle/heron/log/checkin", "operator")
    assert site.ask("/lifecycle/heron/log/checkin", who="viewer", Accept="text/html").status == 403


def test_an_incident_moves_from_open_to_closed_with_its_numbers(site: Served) -> None:
    sent = {"title": "the lift is stuck", "id": "lift", "cluster": ["lion"]}
    before = page(site, f"/incidents?{after(site.post('/incidents', sent, who='operator'))}", "operator")
    assert before.index("the lift is stuck") < before.index('id="closed"')
    assert "holds campaigns back" in before
    assert 'href="/incidents/lift"' in before
    now = after(site.post("/incidents/lift/close", {"reason": "mended"}, who="operator"))
    closed = page(site, f"/incidents?{now}", "operator")
    assert closed.index("the lift is stuck") > closed.index('id="closed"')
    shown = page(site, f"/incidents/lift?{now}", "operator")
    assert "closed" in shown
    assert "data-act" not in shown


@pytest.mark.parametrize("has_chat", [False, True])
def test_what_no_chat_takes_does_not_wait_for_ever(
    site: Served, monkeypatch: pytest.MonkeyPatch, *, has_chat: bool
) -> None:
    monkeypatch.setenv("PLIMSOLL_WEBHOOK", "https://chat.example/x" if has_chat else "")
    shown = Page(page(site, "/incidents/cooling"))
    posted = shown.text[shown.text.index("Posted to the chat") :]
    assert ("No chat is set for this server ( PLIMSOLL_WEBHOOK ): it posts nothing." in posted) is not has_chat
    assert f"opened {'waiting' if has_chat else 'not posted'}" in posted


class Known(NamedTuple):
    """A visit of a page of which we make up the answers."""

    answers: dict[str, Any]

    async def ask(self, words: str, **_values: object) -> Any:
        return self.answers[words]

    def may(self, _permission: str) -> bool:
        return False


def test_no_cluster_is_left_out_however_many_open_incidents_name() -> None:
    """A campaign runs on 77 clusters, each with five nodes out for it and a broken one; the last is short as well."""
    names = [f"c{number:02}" for number in range(77)]
    known = {"opened_at": "2026-03-01T10:00:00Z", "closed_at": None, "is_on": True, "unit": "", "about": "",
             "numbers": {"seconds": 0, "teams": []}}  # fmt: skip
    wave = {**known, "id": "nic-1", "kind": "person", "campaign": "nic", "clusters": names}
    short = {**known, "id": "short", "kind": "broken_promise", "campaign": "", "clusters": ["c76"]}
    present = {"clusters": [{"cluster": name, "planned": 5, "unplanned": 1} for name in names]}
    answers = {"incident list": [wave, short], "incident notices": [], "health show": {"present": present}}
    found = asyncio.run(incidents(cast("Visit", Known(answers))))
    told = {each["id"]: each for each in cast("list[dict[str, Any]]", found["open"])}
    assert (told["nic-1"]["planned"], told["nic-1"]["unplanned"]) == (385, 77)
    assert (told["short"]["planned"], told["short"]["unplanned"]) == (5, 1)
    assert told["short"]["verdict"] == ("planned work and faults", "warn")


def test_on_call_sees_what_changed_in_a_day(site: Served) -> None:
    text = page(site, "/on-call")
    assert "breaker tripped" in text
    assert "incident opened" in text
    lost = site.api("/health/levels?from=24h").document["total"]["interruptions_unplanned"]
    assert re.search(rf"<b[^>]*>{lost}</b> nodes lost", text)


def test_the_log_is_read_page_by_page_and_nothing_is_left_out(site: Served) -> None:
    head = site.api("/audit/head").document
    found: list[int] = []
    query = f"at_least={head['revision']}"  # somebody else's page may be a moment old
    for _ in range(20):
        text = page(site, f"/audit?{query}")
        found += map(int, re.findall(r'id="r(\d+)"', text))
        older = re.search(r'rel="next" href="\?(.*?)"', text)
        if older is None:
            break
        query = html.unescape(older[1])
    assert found == list(range(found[0], 0, -1))
    assert found[0] >= head["revision"]
    newest = f"at_least={found[0]}"  # and so may be what the head was called at first
    assert site.api(f"/audit/head?{newest}").document["head"] in page(site, f"/audit?{newest}")


SEARCHES: dict[str, tuple[str, str, str]] = {
    "by subject": ("subject=incident/cooling", 'href="/incidents/cooling"', "node.moved"),
    "by kind": ("kind=breaker.*", "breaker.tripped", "node.moved"),
    "by who": ("actor=operator@example.org", "incident.opened", "quota.assigned"),
    "what nobody did": ("actor=nobody", "No event is like that", "incident.opened"),
    "a time that is none": ("from=tomorrowish", "tomorrowish", "incident.opened"),
    "a hostile subject": ('subject="><script>alert(1)</script>', "No event is like that", "><script>alert"),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_the_log_is_searched(site: Served, name: str) -> None:
    query, want, want_not = SEARCHES[name]
    text = page(site, f"/audit?{query.replace('<', '%3C').replace('>', '%3E').replace(chr(34), '%22')}")
    listed = text[text.index('id="events"') :]
    assert want in listed
    assert want_not not in listed.replace('<option value="', "")


@pytest.mark.parametrize("path", ["/incidents/none", "/lifecycle/none", f"/incidents/{'%3Cb%3E'}", "/lifecycle/%22%3E"])
def test_what_is_not_there_has_a_page_that_says_so(site: Served, path: str) -> None:
    reply = site.ask(path, who="operator", Accept="text/html")
    text = reply.body.decode()
    assert reply.status == 404
    assert 'class="error-page"' in text
    assert "<b>" not in text[text.index('class="error-page"') :]


FAILURES: dict[str, tuple[PlimsollError, bool]] = {
    "what is too much right now": (Unavailable("busy", "all lanes are taken"), True),
    "what will never be": (Refused("no", "that is not possible"), False),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_may_go_well_a_moment_later_can_be_tried_again(
    site: Served, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, want_retry = FAILURES[name]

    async def fails(_visit: object) -> dict[str, object]:
        raise error

    monkeypatch.setattr(audit, "audit", fails)
    reply = site.ask("/audit?kind=a", who="viewer", Accept="text/html")
    assert reply.status == error.status
    assert error.message in reply.body.decode()
    assert ('<a class="button main" href="?kind=a">Try again</a>' in reply.body.decode()) is want_retry


VERDICTS: dict[str, tuple[tuple[str, str, int, int], str]] = {
    "more out than the cap is planned work": (("cap", "", 0, 9), "planned work"),
    "a breaker is a fault": (("breaker", "", 9, 0), "a fault"),
    "a promise that faults broke": (("broken_promise", "", 0, 3), "a fault"),
    "one that planned work broke": (("broken_promise", "", 3, 0), "planned work"),
    "one that both broke": (("broken_promise", "", 3, 3), "planned work and faults"),
    "a campaign's own is planned work": (("person", "nic-firmware", 0, 3), "planned work"),
    "what a person saw may be anything": (("person", "", 0, 3), ""),
    "where nothing is out nobody knows": (("broken_promise", "", 0, 0), ""),
}


def test_every_need_and_every_kind_has_words_and_a_new_one_is_told_by_its_code() -> None:
    assert {str(need) for need in Need} == set(NEEDS)
    assert {str(kind) for kind in Kind} == set(WORDS)
    assert with_words({"need": "door_open"})["title"] == "door open"
    assert words_of("door_open") == ("door open", "")


def test_faults_are_red_and_come_first_and_planned_work_is_told_calmly() -> None:
    def incident(title: str, kind: str, campaign: str = "", closed_at: str | None = None) -> dict[str, Any]:
        return {"title": title, "kind": kind, "campaign": campaign, "closed_at": closed_at}

    found = told_calmly(
        [
            incident("nic-firmware: 40 nodes go out of service", "person", "nic-firmware"),
            incident("cooling fails", "person"),
            incident("mended", "person", closed_at="2026-01-05T11:00:00Z"),
            incident("more is out than the cap", "cap", "nic-firmware"),
        ]
    )
    assert [(each["tone"], each["title"]) for each in found] == [
        ("bad", "cooling fails"),
        ("bad", "more is out than the cap"),
        ("info", "Planned work: nic-firmware: 40 nodes go out of service"),
    ]


@pytest.mark.parametrize("name", VERDICTS)
def test_planned_work_or_a_fault(name: str) -> None:
    (kind, campaign, planned, unplanned), want = VERDICTS[name]
    found = verdict(kind, campaign, planned, unplanned)
    assert (found[0] if found else "") == want


def test_a_cluster_stands_in_one_column() -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)

    def row(name: str, phase: str, days: int = 0, *, leaving: bool = False) -> dict[str, Any]:
        return {"cluster": name, "phase": phase, "since": (now - timedelta(days=days)).isoformat(), "leaving": leaving}

    rows = [
        row("a", "planned"),
        row("b", "production", 3),
        row("c", "production", 40),
        row("d", "production", leaving=True),
    ]
    columns = board(rows, now)
    assert {column["key"]: [card["cluster"] for card in column["cards"]] for column in columns} == {
        "planned": ["a"], "provisioning": [], "provisioned": [], "production": ["b"], "leaving": ["d"],
    }  # fmt: skip
    assert [column["older"] for column in columns if column["key"] == "production"] == [1]


def test_small_decisions_of_the_pages() -> None:
    owed = {"subscription": "s", "region": "r", "family": "f", "limit": 100, "used": 40, "promised": 30, "wanted": 80,
            "owed": 50, "waiting": ["x"], "promised_to": {"y": 30}, "read_at": None}  # fmt: skip
    shown = quota_rows([owed])[0]
    assert [bar["x"] for bar in shown["bars"]] == [0, 100 * 40 / 150, 100 * 70 / 150]
    assert shown["free"] == 30
    holds = [{"node": name, "hold": {"id": "h", "owner": "noor", "service": "repair", "placed_at": f"2026-01-0{day}"}}
             for name, day in (("n2", 2), ("n1", 1))]  # fmt: skip
    other = {"node": "n3", "hold": {**holds[0]["hold"], "reason": "fan"}}  # type: ignore[dict-item]
    groups = hold_groups([*holds, other])
    assert [(group["nodes"], group["placed_at"], group["is_all"]) for group in groups] == [
        (["n3"], "2026-01-02", False),
        (["n2", "n1"], "2026-01-01", False),
    ]
    acts = [{"words": "breaker tripped", "actor": "a", "where": "", "revision": number} for number in (3, 2)]
    acts.append({"words": "incident opened", "actor": "a", "where": "x", "revision": 1})
    assert [(act["revision"], act["times"]) for act in once(acts)] == [(3, 2), (1, 1)]
    assert subject_href("pool/tiger/H200") == "/clusters/tiger"
    assert subject_href("node/a b") == "/nodes/a%20b"
    assert subject_href("fleet/import") == ""
    series = [{"from": "2026-01-01T00:00:00Z", "to": "2026-01-03T00:00:00Z", "interruptions_planned": 4,
               "interruptions_unplanned": 1}]  # fmt: skip
    assert [value["a_day"] for value in interruptions_spec(series)["data"]["values"]] == [0.5, 2.0]


# What others have written to the same database.


def test_an_incident_names_what_its_owners_were_told_and_no_others(site: Served) -> None:
    """Two clusters, one incident about each; the page and its CSV file have the same rows."""
    sent = {"title": "a pipe leaks", "id": "leak", "cluster": ["lion"]}
    after(site.post("/incidents", sent, who="operator"))
    with open_keeper(site.house.settings.dsn) as keeper:
        told = [
            OwnerTold("run-1", "posttraining", "ada", utc_now(), What.NODE_LOST, by, f"{by} leaks", "", "mop it up")
            for by in ("t3", "l1", "l2")
        ]
        newest = keeper.commit([Draft(each) for each in told], actor="x", read_at=None)[-1].revision
    text = page(site, f"/incidents/leak?at_least={newest}")
    table = Page(text).tables["What owners of running work were told"]
    assert sorted(row[2] for row in table[1:]) == ["l1 leaks", "l2 leaks"]
    assert {row[4] for row in table[1:]} == {"left to do: mop it up"}
    assert "small-out" not in text[text.index('id="told"') :], "the advice is there on a phone, too"
    link = re.search(r'href="(/api/v1/notices\?[^"]*)"', text)
    assert link is not None
    file = site.ask(html.unescape(link[1]), who="viewer").body.decode()
    assert sorted(row["happened"] for row in csv.DictReader(io.StringIO(file))) == ["l1 leaks", "l2 leaks"]
    site.post("/incidents/leak/close", {"reason": "mended"}, who="operator")


def test_whose_answer_a_breaker_got_and_that_it_is_nobodys_move_then(site: Served) -> None:
    with open_keeper(site.house.settings.dsn) as keeper:
        run_pass(keeper, FINDERS, utc_now(), "plimsoll")
        at_least = f"at_least={keeper.state().revision}"
        name = next(each["id"] for each in site.api(f"/incidents?{at_least}").document if each["kind"] == "breaker")
        before = Page(page(site, f"/incidents/{name}?{at_least}")).text
        assert "whose move on-call: look at the nodes held back, then reset the breaker next plimsoll health" in before
        sent = {"scope": "cluster/tiger", "dismiss": True, "reason": "a false alarm"}
        after(site.post("/health/breaker", sent, who="operator"))
        run_pass(keeper, FINDERS, utc_now(), "plimsoll")
        shown = Page(page(site, f"/incidents/{name}?at_least={keeper.state().revision}")).text
    assert "let what was held back be: a false alarm" in shown
    assert re.search(r"a false alarm [^,]* UTC, operator@example.org", shown)
    assert "whose move nobody’s, while the trouble is gone see it" in shown
