"""Who is let in, for how long, and how much of them: what was recognised is forgotten soon, and nobody takes all."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from plimsoll.access import service
from plimsoll.access.model import Kind, Permission
from plimsoll.server import bodies, guard
from plimsoll.times import utc_now
from tests.support.served import Served, make_people, serving, small_book
from tests.support.waiting import wait_until

VIEWER = "viewer@example.org"
SOON = 20.0


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Served]:
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn)) as server:
        yield server


def token_of(server: Served, who: str, *scopes: Permission) -> str:
    with server.house.open_keeper() as keeper:
        expires = utc_now() + timedelta(days=1)
        secret, _ = service.issue_token(
            keeper, who, kind=Kind.PERSON, scopes=scopes or None, expires=expires, actor="tester"
        )
    return secret


# What was recognised.


def who_is(server: Served, session: str) -> Any:
    return server.ask("/api/v1/whoami", Cookie=f"plimsoll={session}").document["who"]


def test_those_whom_we_know_are_looked_up_however_many_share_an_address(
    own: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "KNOWN_SECONDS_MAX", 0.0)
    monkeypatch.setattr(own.house.guard, "unknown", guard.Buckets(0.001, burst_seconds=2_000))
    assert [own.api("/whoami", who=who).status for who in ("viewer", "rpm") * 5] == [200] * 10
    assert own.api("/whoami", who="member").status == 429, "two strangers a while, and no third"


def test_a_session_that_was_ended_elsewhere_is_forgotten_soon(own: Served) -> None:
    """No event tells of it: only that nobody is known for long without being looked up."""
    assert guard.KNOWN_SECONDS_MAX <= 2.0
    with own.house.open_keeper() as keeper:
        session = service.open_session(keeper.ledger.store, VIEWER, Kind.PERSON, (), keeper.ledger.clock(), 1.0)
        assert who_is(own, session) == VIEWER
        assert service.end_session(keeper.ledger.store, session)
    wait_until(lambda: who_is(own, session) is None, what="nobody is known by it", seconds_max=SOON)


def test_a_token_that_was_revoked_elsewhere_is_gone_soon(own: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger tells of it, and then nobody is taken for who they were, however lately they were looked up."""
    monkeypatch.setattr(guard, "KNOWN_SECONDS_MAX", 3_600.0)
    assert own.api("/fleet", who="viewer").status == 200
    with own.house.open_keeper() as keeper:
        token = next(each for each in service.tokens(keeper.state()) if each.owner == VIEWER)
        service.revoke_token(keeper, token.id, actor="tester")
    wait_until(lambda: own.api("/fleet", who="viewer").status == 401, what="it is refused", seconds_max=SOON)


def test_who_was_looked_up_before_a_change_is_not_remembered_after_it(
    own: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "KNOWN_SECONDS_MAX", 3_600.0)
    look_up = own.house.guard._look_up
    began, go = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        found = look_up(*arguments)
        if arguments[2] == own.tokens["viewer"]:
            began.set()
            assert go.wait(10)
        return found

    monkeypatch.setattr(own.house.guard, "_look_up", slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(own.api, "/whoami", who="viewer")
        assert began.wait(10)
        before = own.house.watcher.head
        with own.house.open_keeper() as keeper:
            token = next(each for each in service.tokens(keeper.state()) if each.owner == VIEWER)
            service.revoke_token(keeper, token.id, actor="tester")
        wait_until(lambda: own.house.watcher.head > before, what="the server heard of it")
        go.set()
        assert first.result(10).status == 200, "it was asked before"
    assert own.api("/whoami", who="viewer").status == 401


# A token in an address.


def test_a_calendar_is_opened_by_a_token_in_its_address_that_opens_nothing_else(own: Served) -> None:
    narrow = token_of(own, VIEWER, Permission.SEE_WAVES)
    found = own.ask(f"/api/v1/calendar?token={narrow}")
    assert (found.status, found.body[:15]) == (200, b"BEGIN:VCALENDAR")
    for path in ("/api/v1/campaigns", "/api/v1/calendar/x", "/api/v1/changes", "/api/v1/whoami?x=1"):
        sign = "&" if "?" in path else "?"
        reply = own.ask(f"{path}{sign}token={narrow}")
        assert reply.status in (400, 401, 404), path
    assert own.ask(f"/calendar?token={narrow}", Accept="text/html").status in (303, 404)


WIDE: dict[str, tuple[Permission, ...]] = {
    "all that its owner may": (),
    "see": (Permission.SEE,),
    "see, and see planned work": (Permission.SEE, Permission.SEE_WAVES),
    "see planned work, and tick it off": (Permission.SEE_WAVES, Permission.TICK_WAVES),
}


@pytest.mark.parametrize("case", WIDE)
def test_a_token_that_may_more_is_refused_in_an_address(own: Served, case: str) -> None:
    wide = token_of(own, "operator@example.org", *WIDE[case])
    for headers in ({}, {"Authorization": ""}):
        reply = own.ask(f"/api/v1/calendar?token={wide}", **headers)
        assert (reply.status, reply.error["code"]) == (403, "wide_token"), headers
        assert wide.encode() not in reply.body
    if not case.startswith("see"):
        assert own.ask("/api/v1/calendar", Authorization=f"Bearer {wide}").status == 200


def test_a_token_in_an_address_that_is_none_is_refused(own: Served) -> None:
    reply = own.ask(f"/api/v1/calendar?token={quote('plim_0_wrong')}")
    assert (reply.status, reply.error["code"]) == (401, "bad_token")
    assert b"plim_0_wrong" not in reply.body


# How much.


def test_one_who_changes_too_much_waits_and_may_read_meanwhile(tmp_path: Path) -> None:
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn), writes_per_second=0.5) as server:  # two at once, then one in two seconds
        replies = [server.post("/quota/settle", {"dry_run": True}) for _ in range(8)]
        statuses = [reply.status for reply in replies]
        assert statuses[:2] == [200, 200]
        refused = [reply for reply in replies if reply.status == 429]
        assert len(refused) >= 2, statuses
        assert {reply.error["code"] for reply in refused} == {"too_many_requests"}
        assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
        assert server.api("/fleet").status == 200, "reading is counted apart"
        assert server.post("/quota/settle", {"dry_run": True}, who="fleet_rpm").status == 200, "others are not held up"


def test_a_body_that_drips_is_refused_after_its_time(own: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bodies.SENDER_SECONDS_MAX <= 60
    monkeypatch.setattr(bodies, "SENDER_SECONDS_MAX", 0.5)
    is_over = threading.Event()
    head = (
        "POST /api/v1/incidents HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{own.house.settings.port}\r\n"
        f"Authorization: Bearer {own.tokens['admin']}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", own.house.settings.port), timeout=30) as line:
        line.sendall(head.encode())

        def drip() -> None:
            while not is_over.wait(0.05):
                try:
                    line.sendall(b" ")
                except OSError:
                    return

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        response = http.client.HTTPResponse(line)
        response.begin()
        said = json.loads(response.read())
        is_over.set()
        thread.join(10)
    assert (response.status, said["error"]["code"]) == (408, "too_slow")
    assert own.post("/quota/settle", {"dry_run": True}).status == 200
