"""What people learn about themselves over HTTP, and what of their own they may do: as they were let in, and no more."""

from __future__ import annotations

import pytest

from plimsoll.access import service
from plimsoll.access.decide import read_mapping
from plimsoll.access.model import Kind, Permission
from plimsoll.rooms import open_keeper
from tests.support.inside import called
from tests.support.served import TEAM, Reply, Served, session

ALL = ["see", "see_waves", "tick_waves", "use", "decide_quota", "operate", "signal", "administer"]


def may(reply: Reply) -> list[str]:
    return [each["permission"] for each in reply.document["may"] if each["allowed"]]


def test_whoami_is_open_to_all_and_says_nobody_for_nobody(served: Served) -> None:
    reply = served.api("/whoami", who="")
    want: dict[str, object] = {"who": None, "kind": None, "by": None, "scopes": None, "roles": []}
    assert (reply.status, {name: reply.document[name] for name in want}, may(reply)) == (200, want, [])
    assert served.ask("/api/v1/whoami", Authorization="Bearer plim_x_y").status == 401, "a wrong token is told"


def test_whoami_counts_the_scopes_of_the_token(served: Served) -> None:
    """An admin's token to see is told so, one after the other, whatever was said to the same person before."""
    wide, narrow, again = (served.api("/whoami", who=who) for who in ("admin", "narrow", "admin"))
    assert (may(wide), may(narrow), may(again)) == (ALL, ["see"], ALL)
    assert (narrow.document["who"], narrow.document["by"]) == ("admin@example.org", "token")
    assert (narrow.document["scopes"], wide.document["scopes"]) == (["see"], None)
    assert may(served.api("/whoami", who="partner")) == ["see_waves", "tick_waves"]
    signed_in = served.api("/whoami", who="", **session(served, "admin@example.org"))
    assert (may(signed_in), signed_in.document["by"]) == (ALL, "session")


def test_a_terminal_asks_the_server_who_it_is(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIMSOLL_TOKEN", served.tokens["narrow"])
    said = called("access", "whoami", "--server", served.url)
    assert said.out.startswith("admin@example.org: admin of the fleet\n")
    assert "this token is for see only" in said.out
    monkeypatch.delenv("PLIMSOLL_TOKEN")
    assert called("access", "whoami", "--server", served.url).out.startswith("nobody is signed in\n")


CHECKS = {
    "oneself, as the token is": ("narrow", "admin@example.org", "administer", "out_of_scope"),
    "oneself, by another token": ("admin", "admin@example.org", "administer", "allowed"),
    "somebody else, as they are": ("narrow", "operator@example.org", "operate", "allowed"),
    "somebody by the groups that the settings map": ("narrow", "grouped@example.org", "operate", "allowed"),
    "a group that the settings map": ("narrow", "group:hands", "operate", "allowed"),
    "somebody in no group": ("narrow", "viewer@example.org", "operate", "role_too_small"),
}


@pytest.mark.parametrize("case", CHECKS)
def test_a_check_says_the_truth(served: Served, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served.house.guard, "mapping", read_mapping("hands=operator"))
    session(served, "grouped@example.org", "hands")
    asker, who, permission, want_code = CHECKS[case]
    reply = served.api(f"/access/check?who={who}&permission={permission}", who=asker)
    assert (reply.status, reply.document["code"]) == (200, want_code)


OWN = {
    "their own, signed in": ("session", "Member@Example.org", 200, ""),
    "their own, by a token of theirs": ("token", "member@example.org", 403, "token_by_token"),
    "somebody else's": ("session", "viewer@example.org", 403, "role_too_small"),
    "of a service that has their name": ("session", "service:member@example.org", 403, "role_too_small"),
}


@pytest.mark.parametrize("case", OWN)
def test_people_make_tokens_for_themselves_and_tokens_make_none(served: Served, case: str) -> None:
    by, owner, want_status, want_code = OWN[case]
    body = {"owner": owner, "scope": ["see"], "team": TEAM, "dry_run": True}
    headers = session(served, "member@example.org") if by == "session" else {}
    reply = served.post("/access/tokens", body, who="member" if by == "token" else "", **headers)
    assert reply.status == want_status, reply
    assert want_status == 200 or reply.error["code"] == want_code


def test_people_see_and_revoke_their_own_tokens_only(served: Served) -> None:
    with open_keeper(served.house.settings.dsn) as keeper:
        made = [
            service.issue_token(
                keeper, f"{who}@example.org", kind=Kind.PERSON, scopes=[Permission.SEE], expires=None, actor="tester"
            )[1].id
            for who in ("member", "rpm")
        ]
    headers = session(served, "member@example.org")
    assert served.api("/access/tokens?owner=member@example.org", who="", **headers).status == 200
    for query in ("", "?owner=rpm@example.org"):
        assert served.api(f"/access/tokens{query}", who="", **headers).status == 403
    own, others = (served.post(f"/access/tokens/{token}/revoke", who="", **headers).status for token in made)
    assert (own, others, served.post("/access/tokens/none/revoke", who="", **headers).status) == (200, 403, 403)


def test_an_admin_signs_somebody_out_and_everybody_themselves(served: Served) -> None:
    def who(headers: dict[str, str]) -> object:
        return served.api("/whoami", who="", **headers).document["who"]

    mine, theirs = session(served, "member@example.org"), session(served, "rpm@example.org")
    assert (who(mine), who(theirs)) == ("member@example.org", "rpm@example.org")
    body = {"who": "rpm@example.org"}
    assert served.post("/access/sessions/end", body, who="", **mine).status == 403
    assert served.post("/access/sessions/end", body, who="operator").status == 403
    assert who(theirs) == "rpm@example.org"
    assert served.post("/access/sessions/end", body, who="admin").document["sessions"] == 1
    assert who(theirs) is None
    own = served.post("/access/sessions/end", {"who": "member@example.org"}, who="", **mine)
    assert (own.status, who(mine)) == (200, None)


def test_a_list_of_scopes_that_came_out_empty_makes_no_token(served: Served) -> None:
    """It would be the widest of all."""
    body = {"owner": "member@example.org", "dry_run": True}
    for more, want in (({"scope": []}, (400, "no_scope")), ({"scope": ["see"]}, (200, "")), ({}, (200, ""))):
        reply = served.post("/access/tokens", body | more)
        assert (reply.status, "" if reply.status == 200 else reply.error["code"]) == want
