"""What the provider's engineers see of a real server: planned work, and not who works there nor what else happens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from plimsoll.access import service
from plimsoll.access.model import Kind, Permission
from tests.support.served import OTHER, TEAM, Served, make_people, serving, small_book
from tests.support.servers import Ear
from tests.support.waiting import wait_until

CAMPAIGN = "fix"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Served]:
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn)) as server:
        yield server


def _plan_and_publish(server: Served) -> int:
    """Commits of more than campaigns: what they take is announced, too. Up to which revision that came."""
    text = server.api(f"/campaigns/example?name={CAMPAIGN}").body.decode()
    assert server.post("/campaigns/plan", {"file": text, "seconds": 1}).status == 200
    published = server.post(f"/campaigns/{CAMPAIGN}/publish")
    assert published.status == 200
    return int(published.headers["plimsoll-revision"])


def test_the_provider_hears_of_campaigns_and_of_nothing_else(own: Served) -> None:
    before = own.api("/audit/head").document["revision"]
    partner, insider = Ear(own, who="partner"), Ear(own)
    own.post("/incidents", {"title": "unheard", "id": "unheard"})
    insider.wait_for("incident/unheard")  # by now the provider has been told, if it is told at all
    until = _plan_and_publish(own)
    own.post("/incidents/unheard/close", {"reason": "mended"})
    _check_told(partner, until)
    insider.wait_for("work/fix:tiger#1")
    assert {"incident/unheard", f"campaign/{CAMPAIGN}"} <= insider.subjects
    assert any(told["kinds"] for told in insider.told)
    _check_told(Ear(own, who="partner", after=before), until)
    insider.close()


def _check_told(ear: Ear, until: int) -> None:
    wait_until(lambda: max(ear.revisions, default=0) >= until, what="the campaign was told")
    ear.close()
    assert ear.subjects == {f"campaign/{CAMPAIGN}"}
    assert all(told["kinds"] == [] for told in ear.told), "the kinds are those of all that happened"
    assert all(told["subjects"] for told in ear.told), "an incident alone is not even mentioned"


def test_the_providers_calendar_names_no_team(own: Served) -> None:
    _plan_and_publish(own)
    insider, partner = (_unfolded(own, who) for who in ("viewer", "partner"))
    assert f"Teams with quota there: {TEAM}\\, {OTHER}" in insider
    assert partner.count("BEGIN:VEVENT") == insider.count("BEGIN:VEVENT") > 1
    assert TEAM not in partner
    assert OTHER not in partner
    asked = own.api("/calendar?without_teams=false", who="partner")
    assert TEAM.encode() not in asked.body, "and it can't be asked for"


def test_the_provider_can_not_ask_where_a_team_is(own: Served) -> None:
    """A feed of one team's clusters would tell who guesses a team's name where it has quota."""
    _plan_and_publish(own)
    for team in (TEAM, "nobody"):
        reply = own.api(f"/calendar?team={team}", who="partner")
        assert (reply.status, reply.error["code"]) == (403, "role_too_small"), team
    assert own.api("/calendar?cluster=lion", who="partner").body.count(b"BEGIN:VEVENT") == 1
    with own.house.open_keeper() as keeper:
        narrow, _ = service.issue_token(
            keeper,
            "member@example.org",
            kind=Kind.PERSON,
            scopes=[Permission.SEE_WAVES],
            expires=None,
            actor="tester",
        )
    found = own.ask(f"/api/v1/calendar?team={TEAM}&token={narrow}")
    assert (found.status, found.body.count(b"BEGIN:VEVENT")) == (200, 2), "somebody inside may, also by a narrow token"


def _unfolded(server: Served, who: str) -> str:
    """A calendar's lines as they were before they were folded."""
    reply = server.api("/calendar", who=who)
    assert (reply.status, reply.headers["content-type"].partition(";")[0]) == (200, "text/calendar")
    return re.sub(r"\r?\n[ \t]", "", reply.body.decode())


INTERNAL = f"ask {TEAM} to let go of its run"


def test_the_provider_reads_nothing_that_was_noted_of_a_campaigns_incident(own: Served) -> None:
    _plan_and_publish(own)
    assert own.post(f"/campaigns/{CAMPAIGN}/start", {"anyway": True}).status == 200
    incident = own.api(f"/campaigns/{CAMPAIGN}").document["incident"]
    assert own.post(f"/incidents/{incident['id']}/note", {"note": INTERNAL}).status == 200
    now = f"?at_least={own.house.api.head}"
    for words in ("", "&format=yaml", "&format=answer", "&without_notes=false"):
        insider, partner = (own.api(f"/campaigns/{CAMPAIGN}{now}{words}", who=who) for who in ("viewer", "partner"))
        assert (partner.status, INTERNAL.encode() in insider.body) == (200, True), words
        assert INTERNAL.encode() not in partner.body, words
    seen = own.api(f"/campaigns/{CAMPAIGN}{now}", who="partner").document["incident"]
    assert (seen["id"], seen["notes"], seen["opened_by"]) == (incident["id"], [], "")
    assert own.api(f"/incidents/{incident['id']}", who="partner").status == 403


def test_the_provider_begins_at_planned_work(own: Served) -> None:
    """The fleet's page would only say no; everybody else begins there."""
    for who, want in (("partner", (303, "/campaigns")), ("viewer", (200, None))):
        reply = own.ask("/", who=who, accept="text/html")
        assert (reply.status, reply.headers.get("location")) == want
    assert own.ask("/teams", who="partner", accept="text/html").status == 403


def test_the_provider_is_not_told_what_people_wrote_of_other_incidents(own: Served) -> None:
    """That one is open is why a batch does not begin; what it is about is another matter."""
    _plan_and_publish(own)
    assert own.post(f"/campaigns/{CAMPAIGN}/start", {"anyway": True}).status == 200
    assert own.post("/incidents", {"title": INTERNAL, "id": "leak"}).status == 200
    now = f"at_least={own.house.api.head}"
    batch = own.api(f"/campaigns/{CAMPAIGN}?{now}").document["batches"][0]["batch"]
    paths = (f"/campaigns/{CAMPAIGN}/gate/{quote(batch, safe='')}", f"/campaigns/{CAMPAIGN}")
    for path in paths:
        for form in ("json", "yaml", "answer"):
            insider, partner = (own.api(f"{path}?{now}&format={form}", who=who) for who in ("viewer", "partner"))
            assert (insider.status, partner.status) == (200, 200), path
            assert INTERNAL.encode() not in partner.body, (path, form)
            assert b"leak" not in partner.body, (path, form)
    assert INTERNAL in own.api(f"{paths[0]}?{now}").body.decode()
    nos = own.api(f"{paths[0]}?{now}", who="partner").document["reasons"]
    assert ("incident", "an incident is open", "the operators'") in [(no["code"], no["text"], no["move"]) for no in nos]
    page = own.ask(f"/campaigns/{CAMPAIGN}/gates", who="partner", accept="text/html").body.decode()
    assert "an incident is open" in page
    assert INTERNAL not in page
