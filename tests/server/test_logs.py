"""The log of a server: a line for each request that says enough, and never anything that opens a door."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from plimsoll.access import service
from plimsoll.access.model import Kind, Permission
from plimsoll.server.logs import Log, plain_path
from tests.support.issuer import issuer, visit
from tests.support.served import Served, make_people, serving, small_book
from tests.support.waiting import wait_until

VIEWER = "viewer@example.org"


class Logged(NamedTuple):
    """A server and all that it has written."""

    server: Served
    stream: io.StringIO

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def line_of(self, request_id: str, event: str = "request") -> dict[str, Any]:
        """The one line of a request; it is written when the answer has been sent."""

        def found() -> list[dict[str, Any]]:
            return [each for each in self.lines() if (each.get("request_id"), each["event"]) == (request_id, event)]

        wait_until(lambda: len(found()) > 0, what=f"a line of {request_id}")
        (line,) = found()
        return line


@pytest.fixture(params=["json", "text"])
def any_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Logged]:
    yield from _logged(tmp_path, request.param)


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[Logged]:
    yield from _logged(tmp_path, "json")


def _logged(folder: Path, form: str) -> Iterator[Logged]:
    dsn, stream = small_book(folder), io.StringIO()
    with issuer() as one:
        one.person |= {"email": VIEWER, "email_verified": True}
        known = one.settings()
        words = {"issuer": one.url, "client_id": known.client_id, "client_secret": known.client_secret}
        with serving(dsn, make_people(dsn), log=Log(form, stream), oidc=words) as server:
            yield Logged(server, stream)


LINES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # the path, how it is asked, what its line says
    "a command that reads": (
        "/api/v1/nodes/t3?at_least=1",
        {"who": "viewer"},
        {"method": "GET", "route": "/api/v1/nodes/{node}", "status": 200, "who": VIEWER},
    ),
    "a change": (
        "/api/v1/incidents",
        {"who": "admin", "method": "POST", "send": {"title": "x"}},
        {"method": "POST", "route": "/api/v1/incidents", "status": 200, "who": "admin@example.org"},
    ),
    "a refusal": (
        "/api/v1/incidents",
        {"who": "viewer", "method": "POST", "send": {"title": "x"}},
        {"method": "POST", "route": "/api/v1/incidents", "status": 403, "who": VIEWER, "code": "role_too_small"},
    ),
    "somebody unknown": (
        "/api/v1/fleet",
        {},
        {"method": "GET", "route": "/api/v1/fleet", "status": 401, "code": "not_signed_in"},
    ),
    "a page": (
        "/nodes/t3",
        {"who": "viewer", "Accept": "text/html"},
        {"method": "GET", "route": "/nodes/{node}", "status": 200, "who": VIEWER},
    ),
    "nothing that there is": (
        "/api/v1/nope",
        {"who": "viewer"},
        {"method": "GET", "route": "/api/v1/nope", "status": 404, "who": VIEWER, "code": "no_such_path"},
    ),
}


def test_every_request_has_a_line_that_says_what_came_of_it(logged: Logged) -> None:
    for number, (path, how, want) in enumerate(LINES.values()):
        request_id = f"request-{number}"
        reply = logged.server.ask(path, X_Request_Id=request_id, **how)
        assert reply.headers["x-request-id"] == request_id
        line = logged.line_of(request_id)
        assert {key: line[key] for key in want} == want
        assert set(line) == {"at", "event", "request_id", "ms", "bytes", *want}
        assert line["bytes"] == len(reply.body)
        assert line["ms"] >= 0
        assert line["at"].endswith("Z")


def test_a_request_without_an_id_gets_one_and_a_wrong_one_is_not_taken(logged: Logged) -> None:
    ids = set()
    for given in ("", "short", "x" * 65, "a b c d e f", 'quote"quote"'):
        reply = logged.server.ask("/api/v1/whoami", **({"X_Request_Id": given} if given else {}))
        ids.add(reply.headers["x-request-id"])
        assert reply.headers["x-request-id"] != given
        assert logged.line_of(reply.headers["x-request-id"])["status"] == 200
    assert len(ids) == 5


def test_health_checks_and_files_are_not_worth_a_line(logged: Logged) -> None:
    for path in ("/healthz", "/readyz", "/static/app.css"):
        assert logged.server.ask(path).status == 200
    assert logged.server.ask("/static/nope.css", X_Request_Id="last-one").status == 404
    logged.line_of("last-one")
    assert [line["route"] for line in logged.lines() if line["event"] == "request"] == ["/static/"]


def test_a_mistake_is_written_with_where_and_not_with_what(logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("what-was-there")

    operation = next(each for each in logged.server.house.api.operations if each.route.path == "/audit/head")
    monkeypatch.setattr(operation, "call", broken)
    assert logged.server.api("/audit/head", X_Request_Id="mistaken").status == 500
    line = logged.line_of("mistaken", "mistake")
    assert line["error"] == "KeyError"
    assert "broken" in line["where"]
    assert (logged.line_of("mistaken")["status"], logged.line_of("mistaken")["code"]) == (500, "unexpected")
    assert "what-was-there" not in logged.stream.getvalue()


# Secrets, sent wherever somebody may send one.


class Secrets:
    """Those that open something, and some that somebody might think do. All of them are noted."""

    def __init__(self, server: Served) -> None:
        self.server = server
        self.known = list(server.tokens.values())
        with server.house.open_keeper() as keeper:
            store, now = keeper.ledger.store, keeper.ledger.clock()
            self.session = self.note(service.open_session(store, VIEWER, Kind.PERSON, (), now, 1.0))
            self.link, self.other_link = (
                self.note(service.make_link(keeper, VIEWER, 5.0, actor="tester")[0]) for _ in range(2)
            )
            waves, _ = service.issue_token(
                keeper, VIEWER, kind=Kind.PERSON, scopes=[Permission.SEE_WAVES], expires=None, actor="tester"
            )
        self.narrow = self.note(waves)
        self.wide = server.tokens["admin"]
        self.wrong = self.note("plim_00_" + "w" * 43)

    def note(self, secret: str) -> str:
        self.known.append(secret)
        return secret


def _headers(secrets: Secrets) -> None:
    ask, wide, wrong = secrets.server.ask, secrets.wide, secrets.wrong
    for value in (f"Bearer {wide}", f"Bearer {wrong}", f"Basic {wrong}", wide, f"bearer  {wide} "):
        for path in ("/api/v1/fleet", "/", "/nope", "/signin"):
            ask(path, Authorization=value)
    for cookie in (f"plimsoll={secrets.session}", f"plimsoll={wrong}", f"plimsoll-way={wrong}", wrong):
        ask("/api/v1/fleet", Cookie=cookie)
        ask("/", Cookie=cookie, Accept="text/html")
    ask("/api/v1/quota/settle", method="POST", send={}, Cookie=f"plimsoll={secrets.session}", Origin=f"https://{wrong}")
    for name in ("Idempotency_Key", "If_None_Match", "Last_Event_ID", "Referer", "Host", "X_Forwarded_For"):
        ask("/api/v1/fleet", Authorization=f"Bearer {wide}", **{name: wrong})


def _queries(secrets: Secrets) -> None:
    ask = secrets.server.ask
    for token in (secrets.narrow, secrets.wide, secrets.wrong):
        for path in ("/api/v1/calendar", "/api/v1/fleet", "/api/v1/changes", "/signin", "/", "/nope", "/metrics"):
            ask(f"{path}?token={token}")
            if path != "/api/v1/changes":  # it would not end
                ask(f"{path}?{token}", Authorization=f"Bearer {secrets.wide}")
    ask(f"/signin?next=/quota?token={quote(secrets.wrong)}")
    ask(f"/signin/callback?code={secrets.wrong}&state={secrets.wrong}")


MISTYPED = (
    "/signin/once/", "/signin//once/", "//signin/once/", "/signin%2Fonce/", "/SignIn/once/", "/signin/once/x/",
    "/signin/once", "/", "/quota/", "/api/v1/", "/api/v1/workloads/",
)  # fmt: skip


def _links(secrets: Secrets) -> None:
    ask = secrets.server.ask
    wrong = secrets.note("L" * 43)
    for secret in (secrets.link, wrong):
        for way in MISTYPED:
            for method in ("GET", "HEAD", "PUT"):
                ask(f"{way}{secret}", method=method)
        ask(f"/signin/once/{secret}?next=/{secret}")
    for _ in range(2):
        ask(f"/signin/once/{secrets.link}", method="POST")
        ask(
            f"/signin/once/{secrets.other_link}",
            Sec_Fetch_Mode="navigate",
            Sec_Fetch_Dest="document",
            Accept="text/html",
        )


def _bodies(secrets: Secrets) -> None:
    server = secrets.server
    made = server.post("/access/tokens", {"owner": VIEWER, "for": "1d"}, Idempotency_Key="a-key-of-mine")
    secrets.note(made.document["secret"])
    server.post("/incidents", {"title": secrets.wrong, "nonsense": secrets.wrong})
    server.post("/incidents", secrets.wrong.encode())
    server.ask("/signin/as", method="POST", send=f"who={secrets.wrong}".encode())
    server.ask("/api/v1/signals", who="operator", method="POST", send=secrets.wrong.encode())
    server.post(f"/access/tokens/{secrets.wrong}/revoke")


def _an_issuer(secrets: Secrets) -> None:
    """A whole sign-in: the state, the code and the session are secrets while they last."""
    away = secrets.server.ask("/signin/oidc")
    way = away.headers["set-cookie"].partition(";")[0]
    back = visit(away.headers["location"])
    for secret in (back["code"], back["state"], way.partition("=")[2]):
        secrets.note(secret)
    done = secrets.server.ask(f"/signin/callback?code={quote(back['code'])}&state={quote(back['state'])}", Cookie=way)
    assert done.status == 303, done
    session = done.headers["set-cookie"].partition(";")[0]
    secrets.note(session.partition("=")[2])
    secrets.server.ask("/signout", method="POST", Cookie=session, Sec_Fetch_Site="same-origin")


def _no_http(secrets: Secrets) -> None:
    port = secrets.server.house.settings.port
    wrong = secrets.wrong
    for said in (f"{wrong}\r\n\r\n", f"GET /{wrong}\x00 HTTP/1.1\r\n\r\n", f"GET / HTTP/1.1\r\n{wrong}\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
            line.sendall(said.encode())
            line.shutdown(socket.SHUT_WR)
            while line.recv(65_536):
                pass


WAYS: tuple[Callable[[Secrets], None], ...] = (_headers, _queries, _links, _bodies, _an_issuer, _no_http)


def test_no_secret_is_ever_in_the_log(any_log: Logged, capfd: pytest.CaptureFixture[str]) -> None:
    server = any_log.server
    secrets = Secrets(server)
    for send in WAYS:
        send(secrets)
    server.ask("/api/v1/whoami", X_Request_Id="the-last-one")
    wait_until(lambda: "the-last-one" in any_log.stream.getvalue(), what="the last line")
    written = [any_log.stream.getvalue(), *capfd.readouterr()]
    assert written[0].count("\n") > 150, "they were all written"
    for secret in {*secrets.known}:
        assert not any(secret in text for text in written), secret[:12]
        assert not any(secret[8:24] in text for text in written), f"a part of {secret[:12]}"


PATHS = {
    "/api/v1/nope": "/api/v1/nope",
    f"/{'s' * 43}": "/…",
    f"/a/{'s' * 43}/b": "/a/…/b",
    f"/signin/once{'s' * 43}": "/signin/…",
    f"/{'a/' * 200}": f"/{'a/' * 200}"[:200],
    f"/{'a/' * 98}{'s' * 43}": f"/{'a/' * 98}…",
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_there_is_not_is_written_without_what_may_be_a_secret(path: str) -> None:
    assert plain_path(path) == PATHS[path]


HOSTILE = {
    "a sequence for a terminal": "\x1b[31mred",
    "another one": "\x9b31mred",
    "a line of its own": "a\nb",
    "from right to left": "\u202eabc",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_no_line_acts_in_a_terminal(case: str) -> None:
    for form in ("text", "json"):
        stream = io.StringIO()
        Log(form, stream)("request", route=HOSTILE[case])
        (line,) = stream.getvalue().splitlines()
        assert line.isprintable() or form == "json", line
        assert "\x1b" not in line
