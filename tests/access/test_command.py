"""`plimsoll access`: what is printed, what is kept, what is refused."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from plimsoll.access import service
from plimsoll.access.model import Kind, Permission
from plimsoll.cli import serve
from plimsoll.rooms import open_keeper
from plimsoll.server.settings import Settings
from plimsoll.times import utc_now
from tests.support.inside import Said, called


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty database, and somebody who acts."""
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    open_keeper(dsn, create=True).close()
    monkeypatch.setenv("PLIMSOLL_DB", dsn)
    monkeypatch.setenv("PLIMSOLL_ACTOR", "root")
    return dsn


def access(*words: object) -> Said:
    return called("access", *words)


def test_a_role_is_given_listed_checked_and_taken(db: str) -> None:
    assert "next: plimsoll access grant YOU admin" in access("list").out
    given = access("grant", "Alice@Example.org", "rpm", "--team", "alpha", "--reason", "new here", "-o", "json").json()
    assert given == {
        "who": "alice@example.org",
        "role": "rpm",
        "team": "alpha",
        "did": "alice@example.org is rpm of alpha",
        "dry_run": False,
        "revision": 1,
    }
    assert "no team 'alpha' holds or uses anything yet" in access("grant", "bob", "member", "--team", "alpha").out
    assert access("grant", "bob", "member", "--team", "alpha").out.startswith("bob is member of alpha already")
    (alice, _) = access("list", "-o", "json").json()["grants"]
    assert {name: alice[name] for name in ("who", "role", "team", "by", "why")} == {
        "who": "alice@example.org",
        "role": "rpm",
        "team": "alpha",
        "by": "root",
        "why": "new here",
    }
    assert len(access("list", "bob", "-o", "json").json()["grants"]) == 1
    assert access("list", "--team", "beta", "-o", "json").json() == {"grants": []}
    yes = access("check", "alice@example.org", "decide_quota", "--team", "alpha")
    assert (yes.code, yes.out.split(":")[0]) == (0, "yes")
    no = access("check", "bob", "decide_quota", "--team", "alpha", "-o", "json")
    assert (no.code, no.json()["allowed"], no.json()["needs"]) == (1, False, ["rpm", "admin"])
    assert access("revoke", "bob", "member", "--team", "alpha").out == "bob is not member of alpha any more\n"
    assert access("revoke", "bob", "member", "--team", "alpha", "-o", "json").error["code"] == "no_such_grant"
    assert len(access("list", "--as-of", 2, "-o", "json").json()["grants"]) == 2


def test_a_dry_run_keeps_nothing(db: str) -> None:
    for words in (["grant", "bob", "admin"], ["token", "issue", "bob", "--scope", "see"]):
        said = access(*words, "--dry-run")
        assert (said.code, said.out.strip().endswith("dry run: nothing was kept")) == (0, True)
        assert "plim_" not in said.out
    access("grant", "bob", "viewer")
    access("revoke", "bob", "viewer", "--dry-run")
    assert len(access("list", "-o", "json").json()["grants"]) == 1
    with open_keeper(db) as keeper:
        assert (keeper.ledger.head().revision, keeper.ledger.store.papers("token")) == (1, [])


def test_a_token_is_shown_once_works_and_ends(db: str) -> None:
    access("grant", "service:prom", "operator")
    words = ["token", "issue", "service:prom", "--scope", "signal", "--scope", "see", "--for", "30d"]
    made = access(*words, "-o", "json").json()
    assert (made["owner"], made["scopes"], made["team"]) == ("service:prom", ["see", "signal"], "")
    listed = access("token", "list")
    assert made["id"] in listed.out
    assert made["secret"] not in listed.out + str(access("token", "list", "-o", "json").json())
    assert made["secret"] not in called("audit", "log", "-o", "json").out
    with open_keeper(db) as keeper:
        store, state = keeper.ledger.store, keeper.state()
        found = service.find_token(store, state, made["secret"], utc_now())
        assert found is not None
        assert (found.label, found.scopes) == ("service:prom", frozenset({Permission.SEE, Permission.SIGNAL}))
    assert access("token", "revoke", made["id"], "--dry-run").code == 0
    assert access("token", "revoke", made["id"], "--reason", "done").code == 0
    assert access("token", "list", "-o", "json").json() == {"tokens": []}
    with open_keeper(db) as keeper:
        assert service.find_token(keeper.ledger.store, keeper.state(), made["secret"], utc_now()) is None
    assert "has no role of its own yet" in access("token", "issue", "carol").out
    assert access("token", "list", "service:prom", "-o", "csv").out.strip().count("\n") == 0


def test_a_link_signs_in_once(db: str) -> None:
    made = access("link", "Alice@example.org", "--url", "http://127.0.0.1:8080/", "-o", "json").json()
    place, _, secret = made["link"].rpartition("/")
    assert (place, made["who"]) == ("http://127.0.0.1:8080/signin/once", "alice@example.org")
    assert secret not in called("audit", "log", "-o", "json").out
    with open_keeper(db) as keeper:
        assert service.redeem_link(keeper.ledger.store, secret, utc_now()) == "alice@example.org"


def test_a_server_that_prints_a_link_writes_it_down(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def served(_settings: Settings, listener: socket.socket, *, told: Callable[[object], None]) -> None:
        listener.close()
        told(None)

    monkeypatch.setattr(serve, "serve", served)
    said = called("serve", "--port", 0, "--sign-in", "Alice@example.org")
    assert said.code == 0, said.err
    secret = said.out.split("/signin/once/")[1].split()[0]
    with open_keeper(db) as keeper:
        (event,) = keeper.ledger.store.events()
        assert (event.subject, event.actor, event.reason) == ("access/alice@example.org", "root", "serve --sign-in")
        assert service.redeem_link(keeper.ledger.store, secret, utc_now()) == "alice@example.org"


@pytest.mark.parametrize("words", [["--log", "xml"], ["--session-hours", "0"], ["--sign-in", "group:x"]])
def test_a_server_that_is_told_nonsense_is_wrong_usage(db: str, words: list[str]) -> None:
    assert called("serve", "--port", 0, *words).code == 2


def test_who_is_acting(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIMSOLL_ACTOR", "Alice@example.org")
    with open_keeper(db) as keeper:
        service.open_session(keeper.ledger.store, "alice@example.org", Kind.PERSON, ("rpms",), utc_now(), 1)
    access("grant", "alice@example.org", "member", "--team", "alpha")
    access("grant", "group:rpms", "rpm", "--team", "beta")
    said = access("whoami", "-o", "json").json()
    assert (said["who"], said["kind"], said["by"], said["scopes"]) == ("alice@example.org", "person", "terminal", None)
    assert said["roles"] == [{"role": "member", "team": "alpha"}, {"role": "rpm", "team": "beta"}]
    where = {each["permission"]: each["where"] for each in said["may"]}
    assert (where["use"], where["decide_quota"], where["see"], where["operate"]) == (
        "alpha, beta",
        "beta",
        "fleet (member)",
        "",
    )
    monkeypatch.setenv("PLIMSOLL_OIDC_GROUPS", "rpms=operator")
    assert access("check", "alice@example.org", "operate").code == 0, "the settings' groups count"
    assert access("check", "group:rpms", "operate").code == 0
    monkeypatch.setenv("PLIMSOLL_ACTOR", "somebody with blanks")
    assert access("whoami").out.startswith("somebody with blanks: no role")


REFUSED = {
    "a role that is not there": (["grant", "bob", "king"], 2, "bad_usage"),
    "a team for a role of the fleet": (["grant", "bob", "admin", "--team", "a"], 2, "role_of_the_fleet"),
    "a name that nobody has": (["grant", "a b", "admin"], 2, "bad_name"),
    "a token of a group": (["token", "issue", "group:x"], 2, "bad_owner"),
    "a token for no time": (["token", "issue", "bob", "--for", "0d"], 2, "bad_lifetime"),
    "a token for a word": (["token", "issue", "bob", "--for", "long"], 2, "bad_lifetime"),
    "a token for what is open": (["token", "issue", "bob", "--scope", "open"], 2, "bad_usage"),
    "asking for what is open": (["check", "bob", "open"], 2, "bad_usage"),
    "a token that is not there": (["token", "revoke", "abc"], 1, "no_such_token"),
    "a link for too long": (["link", "bob", "--for", "2d"], 2, "bad_lifetime"),
    "a link for a service": (["link", "service:x"], 2, "bad_name"),
    "the last admin": (["revoke", "root", "admin"], 1, "last_admin"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(db: str, name: str) -> None:
    words, want_code, want_error = REFUSED[name]
    access("grant", "root", "admin")
    said = access(*words, "-o", "json")
    assert (said.code, said.error["code"]) == (want_code, want_error)
    assert said.error["next_step"]
    assert len(access("list", "-o", "json").json()["grants"]) == 1


def test_the_last_admin_goes_if_that_is_meant(db: str) -> None:
    access("grant", "root", "admin")
    assert access("revoke", "root", "admin", "--anyway").code == 0
    assert access("list", "-o", "json").json() == {"grants": []}
