"""Signing in and out: by a link, at an issuer whose keys change, and what forged requests can't do."""

from __future__ import annotations

import http.cookies
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from plimsoll.access import service
from plimsoll.access.model import Binding, Kind, Role
from plimsoll.access.service import make_link
from plimsoll.connect import oidc
from plimsoll.ledger import open_store
from plimsoll.rooms import open_keeper
from tests.support.issuer import Issuer, issuer, visit
from tests.support.served import Reply, Served, make_people, serving, small_book


class Browser:
    """Keeps cookies and goes nowhere by itself."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.cookies: dict[str, str] = {}
        self.flags: dict[str, Any] = {}

    def go(self, path: str, *, method: str = "GET", **headers: str) -> Reply:
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        headers.setdefault("Sec_Fetch_Mode", "navigate")
        reply = self.served.ask(path, method=method, Accept="text/html", **headers)
        found = http.cookies.SimpleCookie(reply.headers.get("set-cookie", ""))
        for name, morsel in found.items():
            self.flags[name] = dict(morsel)
            if morsel["max-age"] == "0":
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = morsel.value
        return reply

    @property
    def who(self) -> str | None:
        who: str | None = self.go("/api/v1/whoami").document["who"]
        return who


def link(served: Served, who: str = "viewer@example.org", minutes: float = 5.0) -> str:
    with open_keeper(served.house.settings.dsn) as keeper:
        secret, _ = make_link(keeper, who, minutes, actor="tester")
    return f"/signin/once/{secret}"


def head(served: Served) -> int:
    """The newest revision that there is, asked of the database."""
    with closing(open_store(served.house.settings.dsn)) as store:
        return store.head().revision


def test_a_link_signs_in_once(served: Served) -> None:
    once, browser = link(served), Browser(served)
    reply = browser.go(f"{once}?next=/quota")
    assert (reply.status, reply.headers["location"]) == (303, "/quota")
    assert browser.who == "viewer@example.org"
    flags = browser.flags["plimsoll"]
    assert (flags["httponly"], flags["samesite"].lower(), flags["path"]) == (True, "lax", "/")
    second = Browser(served)
    assert (second.go(once).status, second.who) == (303, None)
    assert served.ask(once, method="POST").status == 401


LOOKS: dict[str, dict[str, str]] = {
    "the preview of a chat": {},
    "a browser that fetches ahead": {"Sec_Fetch_Mode": "navigate", "Sec_Purpose": "prefetch"},
    "a script of some page": {"Sec_Fetch_Mode": "no-cors"},
}


def test_what_only_looks_at_a_link_does_not_use_it_up(served: Served) -> None:
    once = link(served)
    for case, headers in LOOKS.items():
        for method in ("GET", "HEAD"):
            looked = served.ask(once, method=method, **headers)
            assert (looked.status, looked.headers.get("set-cookie")) == (200, None), case
    pressed = served.ask(once, method="POST")
    assert (pressed.status, pressed.headers["location"]) == (303, "/")
    assert "plimsoll=" in pressed.headers["set-cookie"]


def test_a_link_takes_no_right_from_a_token_that_the_issuer_gave_groups(served: Served) -> None:
    with open_keeper(served.house.settings.dsn) as keeper:
        now = keeper.ledger.clock()
        service.grant(keeper, "group:ops", Binding(Role.OPERATOR), actor="tester")
        service.open_session(keeper.ledger.store, "gwen@example.org", Kind.PERSON, ("ops",), now, 1)
        secret, _ = service.issue_token(
            keeper, "gwen@example.org", kind=Kind.PERSON, scopes=None, expires=None, actor="tester"
        )
    browser = Browser(served)
    browser.go(link(served, "gwen@example.org"))
    assert browser.who == "gwen@example.org"
    found = served.ask("/api/v1/whoami", Authorization=f"Bearer {secret}").document
    assert found["roles"] == [{"role": "operator", "team": ""}]


def test_signing_out_ends_the_session_everywhere(served: Served) -> None:
    browser = Browser(served)
    browser.go(link(served))
    stolen = dict(browser.cookies)
    reply = browser.go("/signout", method="POST", Sec_Fetch_Site="same-origin")
    assert (reply.status, browser.cookies) == (303, {})
    browser.cookies = stolen
    assert browser.who is None


ELSEWHERE = ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/\r\nX: y"]


@pytest.mark.parametrize("target", ELSEWHERE)
def test_nobody_is_sent_elsewhere(served: Served, target: str) -> None:
    reply = Browser(served).go(f"{link(served)}?next={quote(target, safe='')}")
    assert reply.headers["location"] == "/"


FORGED = {
    "a form on another page": {"Sec_Fetch_Site": "cross-site", "Origin": "https://evil.example"},
    "another host of ours": {"Sec_Fetch_Site": "same-site"},
    "an old browser elsewhere": {"Origin": "https://evil.example"},
    "no word of where it comes from": {},
    "a lie in one of the two": {"Sec_Fetch_Site": "same-origin", "Origin": "https://evil.example"},
    "a page without an origin": {"Origin": "null"},
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_request_never_acts(served: Served, case: str) -> None:
    browser = Browser(served)
    browser.go(link(served, "admin@example.org"))
    before = head(served)
    reply = served.post(
        "/incidents",
        {"title": "forged"},
        who="",
        Cookie=f"plimsoll={browser.cookies['plimsoll']}",
        **FORGED[case],
    )
    assert (reply.status, reply.error["code"]) == (403, "foreign_page")
    assert head(served) == before


@pytest.mark.parametrize("headers", [{"Sec_Fetch_Site": "same-origin"}, {"Origin": "OWN"}])
def test_our_own_pages_act(served: Served, headers: dict[str, str]) -> None:
    browser = Browser(served)
    browser.go(link(served, "admin@example.org"))
    named = {name: served.url if value == "OWN" else value for name, value in headers.items()}
    cookie = f"plimsoll={browser.cookies['plimsoll']}"
    assert served.post("/quota/settle", {"dry_run": True}, who="", Cookie=cookie, **named).status == 200


def test_nobody_becomes_somebody_else_where_it_is_no_demo(served: Served) -> None:
    browser = Browser(served)
    browser.go(link(served))
    reply = browser.go("/signin/as", method="POST", Sec_Fetch_Site="same-origin")
    assert (reply.status, browser.who) == (422, "viewer@example.org")


def test_links_can_not_be_guessed_for_ever(tmp_path: Any) -> None:
    dsn = small_book(tmp_path)
    with serving(dsn) as server:
        replies = [server.ask(f"/signin/once/{number}", method="POST").status for number in range(25)]
    assert set(replies) == {401, 429}


def test_an_address_that_somebody_names_is_not_believed(tmp_path: Any) -> None:
    dsn = small_book(tmp_path)
    with serving(dsn) as server:
        replies = [
            server.ask(f"/signin/once/{n}", method="POST", X_Forwarded_For=f"10.1.1.{n}").status for n in range(25)
        ]
    assert set(replies) == {401, 429}
    with serving(dsn, trusted_proxy="127.0.0.1") as server:
        replies = [
            server.ask(f"/signin/once/{n}", method="POST", X_Forwarded_For=f"10.1.1.{n}").status for n in range(25)
        ]
    assert set(replies) == {401}, "behind the proxy everybody is somebody"


# At an issuer.


@pytest.fixture
def house(tmp_path: Any) -> Iterator[tuple[Served, Issuer]]:
    dsn = small_book(tmp_path)
    with issuer() as one:
        known = one.settings()
        words = {"issuer": one.url, "client_id": known.client_id, "client_secret": known.client_secret}
        with serving(dsn, make_people(dsn), oidc=words) as server:
            yield server, one


def sign_in(browser: Browser, target: str = "/") -> Reply:
    away = browser.go(f"/signin/oidc?next={quote(target)}")
    assert away.status == 303, away
    back = visit(away.headers["location"])
    return browser.go(f"/signin/callback?code={quote(back['code'])}&state={quote(back['state'])}")


def test_the_issuer_says_who_it_is(house: tuple[Served, Issuer]) -> None:
    served, one = house
    one.person |= {"email": "Viewer@Example.org", "email_verified": True}
    browser = Browser(served)
    reply = sign_in(browser, "/campaigns")
    assert (reply.status, reply.headers["location"]) == (303, "/campaigns")
    assert browser.who == "viewer@example.org"


def test_keys_that_change_are_fetched(house: tuple[Served, Issuer], monkeypatch: pytest.MonkeyPatch) -> None:
    served, one = house
    monkeypatch.setattr(
        oidc, "AGAIN_SECONDS", 0.0
    )  # else somebody who signs in just then tries again half a minute later
    one.person |= {"email": "viewer@example.org", "email_verified": True}
    sign_in(Browser(served))
    one.rotate()
    browser = Browser(served)
    sign_in(browser)
    assert browser.who == "viewer@example.org"


def test_a_sign_in_ends_in_the_browser_where_it_began(house: tuple[Served, Issuer]) -> None:
    """Else somebody could have a victim signed in as the attacker, and read what they enter."""
    served, _ = house
    away = Browser(served).go("/signin/oidc")
    back = visit(away.headers["location"])
    victim = Browser(served)
    reply = victim.go(f"/signin/callback?code={back['code']}&state={back['state']}")
    assert victim.who is None
    assert urlsplit(reply.headers["location"]).path == "/signin"


def test_an_answer_of_the_issuer_works_once(house: tuple[Served, Issuer]) -> None:
    served, one = house
    one.person |= {"email": "viewer@example.org", "email_verified": True}
    browser = Browser(served)
    away = browser.go("/signin/oidc")
    back = visit(away.headers["location"])
    path = f"/signin/callback?code={back['code']}&state={back['state']}"
    assert browser.go(path).headers["location"] == "/"
    browser.go("/signout", method="POST", Sec_Fetch_Site="same-origin")
    assert urlsplit(browser.go(path).headers["location"]).path == "/signin"
    assert browser.who is None


def test_somebody_without_a_role_sees_nothing(house: tuple[Served, Issuer]) -> None:
    served, one = house
    one.person |= {"email": "stranger@example.org", "email_verified": True}
    browser = Browser(served)
    sign_in(browser)
    assert browser.who == "stranger@example.org"
    reply = browser.go("/api/v1/fleet")
    assert (reply.status, reply.error["code"]) == (403, "no_role")
