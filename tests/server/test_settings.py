"""Where a server may listen and what it is called: no stranger is served without TLS, and cookies are bound to it."""

from __future__ import annotations

import http.cookies
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from plimsoll.access.service import make_link
from plimsoll.errors import PlimsollError, UsageError
from plimsoll.rooms import open_keeper
from plimsoll.server.run import bind, serve
from plimsoll.server.settings import Settings, check
from tests.support.command import PLIMSOLL
from tests.support.issuer import issuer
from tests.support.served import Reply, Served, make_people, serving, small_book

PUBLIC = "https://plimsoll.example.org"
ANY = "0.0.0.0"  # noqa: S104  # what is refused


class Case(NamedTuple):
    host: str
    public_url: str = ""
    want: str = ""
    """The code of the refusal; empty where it is served."""


CASES: dict[str, Case] = {
    "this machine alone": Case("127.0.0.1"),
    "this machine alone, by IPv6": Case("::1"),
    "this machine alone, by name": Case("localhost"),
    "behind a proxy on this machine": Case("127.0.0.1", PUBLIC),
    "everybody, behind a proxy with TLS": Case(ANY, PUBLIC),
    "everybody, without TLS": Case(ANY, want="not_secret"),
    "everybody by IPv6, without TLS": Case("::", want="not_secret"),
    "one network, without TLS": Case("10.1.2.3", want="not_secret"),
    "a name that may be anybody's": Case("plimsoll.example.org", want="not_secret"),
    "a public address without TLS": Case(ANY, "http://plimsoll.example.org", "not_secret"),
    "an address that begins like this machine's": Case("127.0.0.1.example.org", want="not_secret"),
    "a public address that is a folder": Case("127.0.0.1", f"{PUBLIC}/plimsoll", "bad_public_url"),
    "a public address of another kind": Case("127.0.0.1", "ftp://plimsoll.example.org", "bad_public_url"),
    "a public address without a name": Case("127.0.0.1", "https://", "bad_public_url"),
}


@pytest.mark.parametrize("name", CASES)
def test_nobody_else_is_served_without_tls(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    settings = Settings(dsn=f"sqlite:///{tmp_path}/none.db", host=case.host, public_url=case.public_url, port=0)
    if not case.want:
        assert check(settings) == settings
        return
    with pytest.raises(PlimsollError) as caught:
        check(settings)
    assert (caught.value.code, bool(caught.value.next_step)) == (case.want, True)


def test_a_server_looks_at_its_settings_before_it_serves(tmp_path: Path) -> None:
    listener = bind(Settings(dsn="", port=0))
    with listener, pytest.raises(PlimsollError) as caught:
        serve(Settings(dsn=f"sqlite:///{tmp_path}/none.db", host=ANY), listener)
    assert caught.value.code == "not_secret"


def test_a_chat_that_is_none_is_told_before_anything_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIMSOLL_WEBHOOK", "hooks.example.org/T0/B0/s3cr3t")
    dsn = f"sqlite:///{tmp_path}/some.db"
    open_keeper(dsn, create=True).close()
    with pytest.raises(PlimsollError) as caught:
        check(Settings(dsn=dsn, is_leading=True))
    assert caught.value.code == "webhook_bad_setting"
    assert "s3cr3t" not in caught.value.message
    check(Settings(dsn=dsn, is_leading=False))


@pytest.mark.parametrize("public_url", ["", PUBLIC])
@pytest.mark.parametrize("host", [ANY, "::", "10.1.2.3"])
def test_no_stranger_is_let_into_a_demo(host: str, public_url: str) -> None:
    """Whoever opens a demo may do everything: TLS does not help."""
    with pytest.raises(PlimsollError) as caught:
        check(Settings(dsn="", host=host, is_demo=True, public_url=public_url))
    assert caught.value.code == "demo_for_strangers"
    check(Settings(dsn="", host="127.0.0.1", is_demo=True))


def test_the_command_refuses_to_serve_others_without_tls(tmp_path: Path) -> None:
    command = [str(PLIMSOLL), "--db", f"sqlite:///{tmp_path}/none.db", "serve", "--host", ANY, "--port", "0"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "--public-url https://" in ran.stderr


def test_an_address_that_is_taken_is_said(tmp_path: Path) -> None:
    with bind(Settings(dsn="", port=0)) as listener, pytest.raises(UsageError) as caught:
        bind(Settings(dsn="", port=listener.getsockname()[1]))
    assert caught.value.code == "bad_address"


# Behind a proxy with TLS.


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Served]:
    """As a proxy with TLS reaches it: by this machine's address, and called as people call it."""
    dsn = small_book(tmp_path)
    with issuer() as one:
        known = one.settings()
        words = {"issuer": one.url, "client_id": known.client_id, "client_secret": known.client_secret}
        with serving(dsn, make_people(dsn), public_url=PUBLIC, oidc=words) as server:
            server.url = f"http://127.0.0.1:{server.house.settings.port}"
            yield server


def through(server: Served, path: str, **more: Any) -> Reply:
    """What the proxy sends on."""
    return server.ask(path, Host=urlsplit(PUBLIC).netloc, **more)


def cookie_of(reply: Reply) -> tuple[str, http.cookies.Morsel[str]]:
    ((name, morsel),) = http.cookies.SimpleCookie(reply.headers["set-cookie"]).items()
    return name, morsel


def sign_in(server: Served) -> Reply:
    with open_keeper(server.house.settings.dsn) as keeper:
        secret, _ = make_link(keeper, "admin@example.org", 5.0, actor="tester")
    return through(server, f"/signin/once/{secret}", method="POST")


def test_a_session_behind_tls_is_bound_to_this_host_and_to_tls(secure: Served) -> None:
    name, morsel = cookie_of(sign_in(secure))
    assert name == "__Host-plimsoll"
    assert (morsel["secure"], morsel["httponly"], morsel["path"], morsel["domain"]) == (True, True, "/", "")
    assert morsel["samesite"].lower() == "lax"
    known = through(secure, "/api/v1/whoami", Cookie=f"{name}={morsel.value}")
    assert known.document["who"] == "admin@example.org"
    loose = through(secure, "/api/v1/whoami", Cookie=f"plimsoll={morsel.value}")
    assert loose.document["who"] is None, "a cookie that another host can set is not looked at"
    out = through(secure, "/signout", method="POST", Cookie=f"{name}={morsel.value}", Sec_Fetch_Site="same-origin")
    gone_name, gone = cookie_of(out)
    assert (gone_name, gone["max-age"], gone["secure"]) == (name, "0", True)


def test_a_sign_in_under_way_behind_tls_is_bound_to_it_too(secure: Served) -> None:
    away = through(secure, "/signin/oidc")
    name, morsel = cookie_of(away)
    assert (name, morsel["secure"], morsel["path"], morsel["domain"]) == ("__Host-plimsoll-way", True, "/", "")
    assert "redirect_uri=https%3A%2F%2Fplimsoll.example.org%2Fsignin%2Fcallback" in away.headers["location"]


def test_a_browser_is_told_to_come_by_tls_only(secure: Served, served: Served) -> None:
    for path in ("/healthz", "/signin", "/api/v1/fleet", "/nope"):
        seconds = through(secure, path).headers["strict-transport-security"].removeprefix("max-age=")
        assert int(seconds) >= 180 * 24 * 3600, path
        assert "strict-transport-security" not in served.ask(path).headers, "there is none on this machine"


ORIGINS = {PUBLIC: 200, "http://plimsoll.example.org": 403, f"{PUBLIC}:8443": 403, "https://example.org": 403}


@pytest.mark.parametrize("origin", ORIGINS)
def test_behind_tls_only_pages_that_came_by_it_act(secure: Served, origin: str) -> None:
    name, morsel = cookie_of(sign_in(secure))
    reply = through(
        secure,
        "/api/v1/quota/settle",
        method="POST",
        send={"dry_run": True},
        Cookie=f"{name}={morsel.value}",
        Origin=origin,
    )
    assert reply.status == ORIGINS[origin]


def test_another_name_is_not_answered_behind_a_proxy_either(secure: Served) -> None:
    assert secure.ask("/signin", Host="evil.example").error["code"] == "unknown_host"
    assert secure.ask("/signin", Host="plimsoll.example.org.evil.example").error["code"] == "unknown_host"
