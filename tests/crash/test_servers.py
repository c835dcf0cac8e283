"""Servers under failure: killed while they lead, without a database, and told to stop with everybody still there."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from plimsoll.ledger import sqlite as sqlite_module
from plimsoll.server import house as house_module
from plimsoll.server.front import Front
from tests.support.command import plimsoll
from tests.support.ledgers import sqlite_path
from tests.support.postgres import PrivatePostgres, private_postgres
from tests.support.power import cut_power
from tests.support.served import Served, make_people, serving, small_book
from tests.support.servers import (
    STOP_SECONDS_MAX,
    Ear,
    Load,
    RealServer,
    Sent,
    counts_of,
    is_error,
    let_receipts_age,
    paused,
)
from tests.support.waiting import wait_until

TAKE_OVER_SECONDS_MAX = 10.0
LOAD_CHANGES = 60
SOAK_KILLS = 40
LISTENERS = 50


@pytest.fixture(scope="module")
def server() -> Iterator[PrivatePostgres]:
    """A server of its own, because it does not survive."""
    with private_postgres() as server:
        yield server


# One of two is killed.


def _kill_the_leader(servers: list[RealServer]) -> tuple[Load, list[RealServer]]:
    """Load on both, a kill of the one that leads, and what must hold of the other; the one that lives is returned."""
    load = Load()
    for each, who in ((servers[0], "admin"), (servers[1], "operator"), (servers[1], "admin"), (servers[0], "operator")):
        load.write(each, who)
    for each in servers:
        load.read(each)
    wait_until(lambda: len(load.done()) >= LOAD_CHANGES // 2, what="changes come through")
    leader, other = sorted(servers, key=lambda each: sum(each.loops().values()), reverse=True)
    load.expect_death(leader)
    leader.kill()
    killed_at = time.monotonic()
    reads = load.reads.get(other.url, 0)
    wait_until(lambda: all(other.loops().values()), what="it leads all", seconds_max=TAKE_OVER_SECONDS_MAX)
    assert time.monotonic() - killed_at < TAKE_OVER_SECONDS_MAX
    for one in [each for each in list(load.sent) if each.is_open]:
        one.send(other)
    wait_until(lambda: load.reads.get(other.url, 0) > reads + 3, what="readers go on")
    load.end()
    return load, [other]


def _wait_for_a_leader(servers: list[RealServer]) -> None:
    wait_until(lambda: any(any(each.loops().values()) for each in servers), what="one leads")


def _settle(load: Load, dsn: str, other: Served) -> None:
    """What nobody could say at once is sent again later, and then it is sure."""
    assert load.wrong == []
    early = counts_of(dsn, [each.word for each in load.sent])
    for one in load.sent:
        want = {1} if one.is_done else {0, 1} if one.is_open else {0}
        assert early[one.word] in want, f"{one.path} {one.status} {one.code}"
    let_receipts_age(dsn)
    still_open = [each for each in load.sent if each.is_open]
    for one in still_open:
        one.send(other)
        assert one.is_done or one.code in ("answer_lost", "no_such_incident"), (one.status, one.code)
    counts = counts_of(dsn, [each.word for each in load.sent])
    for one in load.sent:
        want_count = int("nobody-knows" not in one.path)
        assert counts[one.word] == want_count, f"{one.path} {one.status} {one.code}"


def test_a_leader_killed_under_load_loses_nothing_and_repeats_nothing(server: PrivatePostgres, tmp_path: Path) -> None:
    dsn = small_book(tmp_path, server.new_database())
    tokens = make_people(dsn)
    with ExitStack() as stack:
        servers = [RealServer(dsn, tokens), RealServer(dsn, tokens)]
        for each in servers:
            stack.enter_context(each)
        assert servers[0].post("/incidents", {"title": "for all", "id": "common"}).status == 200
        _wait_for_a_leader(servers)
        load, (other,) = _kill_the_leader(servers)
        _settle(load, dsn, other)
        assert len(load.done()) >= LOAD_CHANGES // 2
        assert other.stop()[0] == 0
    assert plimsoll("audit", "verify", db=dsn).code == 0


@pytest.mark.soak
def test_many_leaders_killed_one_after_the_other(server: PrivatePostgres, tmp_path: Path) -> None:
    dsn = small_book(tmp_path, server.new_database())
    tokens = make_people(dsn)
    with ExitStack() as stack:
        servers = [stack.enter_context(RealServer(dsn, tokens)) for _ in range(2)]
        assert servers[0].post("/incidents", {"title": "for all", "id": "common"}).status == 200
        for _ in range(SOAK_KILLS):
            _wait_for_a_leader(servers)
            load, servers = _kill_the_leader(servers)
            _settle(load, dsn, servers[0])
            servers.append(stack.enter_context(RealServer(dsn, tokens)))
    assert plimsoll("audit", "verify", db=dsn).code == 0


# The database goes away.


def test_without_its_database_a_server_says_so_and_comes_back_by_itself(
    server: PrivatePostgres, tmp_path: Path
) -> None:
    dsn = small_book(tmp_path, server.new_database())
    with serving(dsn, make_people(dsn), is_leading=True) as own:
        ear = Ear(own)
        assert own.post("/incidents", {"title": "before", "id": "before"}).status == 200
        ear.wait_for("incident/before")
        head = own.house.api.head
        assert own.api("/fleet", who="admin").status == 200
        cut_power(server)
        wait_until(lambda: own.ask("/readyz").status == 503, what="it is not ready", seconds_max=5)
        sent = Sent("/incidents", {"title": "WORD"}, "operator")
        assert sent.send(own).status == 503
        wait_until(lambda: own.api("/fleet", who="admin").status == 503, what="no old answer is given", seconds_max=5)
        for path in ("/quota/plan", "/nodes?filter=cluster%3Dlion", "/quota/compare", "/changes?after=1"):
            assert is_error(own.api(path, who="fleet_rpm"), 503), path
        assert own.ask("/healthz", who="member").document == {"status": "ok"}
        assert own.ask("/static/app.css", who="rpm").status == 200, "an error page needs it"
        assert own.ask("/", who="rpm", Accept="text/html").status == 503
        assert own.ask("/readyz").document["trouble"] == "database_unreachable"
        server.start()
        wait_until(lambda: own.ask("/readyz").status == 200, what="it is ready again", seconds_max=10)
        assert sent.send(own).status == 200
        assert own.post("/incidents", {"title": "after", "id": "after"}).status == 200
        ear.wait_for("incident/after")
        back = Ear(own, after=head)
        back.wait_for("incident/after")
        assert len({each for each in back.subjects if each.startswith("incident/")}) >= 2
        assert counts_of(dsn, [sent.word]) == {sent.word: 1}
        ear.close()
        back.close()
        assert own.house.mistakes == 0


def test_a_database_that_hangs_keeps_nobody_waiting_for_ever(
    server: PrivatePostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house_module, "STALE_SECONDS_MAX", 1.0)
    dsn = small_book(tmp_path, server.new_database())
    with serving(dsn, make_people(dsn)) as own, ThreadPoolExecutor(4) as pool:
        own.house.quick._seconds_max = 0.5
        assert own.api("/fleet", who="viewer").status == 200
        with paused(server):
            in_hand = pool.submit(own.post, "/incidents", {"title": "in hand", "id": "in-hand"})
            wait_until(lambda: own.house.quick.busy_since is not None, what="one is in hand")
            others = [pool.submit(own.api, path) for path in ("/nodes", "/quota", "/health")]
            assert all(is_error(each.result(10), 503) for each in others)
            wait_until(lambda: own.ask("/readyz").status == 503, what="it is not ready", seconds_max=5)
            assert own.ask("/healthz", who="operator").status == 200
        assert in_hand.result(10).status == 200, "what was begun is answered, however late"
        wait_until(lambda: own.ask("/readyz").status == 200, what="it is ready again", seconds_max=5)
        assert own.api(f"/incidents/in-hand?at_least={own.house.api.head}").status == 200
        assert own.house.mistakes == 0


@pytest.mark.parametrize("seconds", [0.3, 30.0])
def test_a_file_that_somebody_else_writes_is_waited_for_or_told(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "BUSY_SECONDS_MAX", seconds)
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn)) as own, ThreadPoolExecutor(1) as pool:
        with closing(sqlite3.connect(sqlite_path(dsn), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert own.api("/quota").status == 200, "readers are not held up"
            sent = Sent("/incidents", {"title": "WORD"}, "admin")
            sending = pool.submit(sent.send, own)
            if seconds < 1:
                assert sending.result(10).code == "database_busy"
                assert is_error(own.post("/incidents", {"title": "again"}), 503)
            else:
                time.sleep(0.7)
                assert not sending.done(), "it waits"
            other.execute("ROLLBACK")
        sending.result(10)
        assert sent.is_done or sent.send(own).is_done
        assert counts_of(dsn, [sent.word]) == {sent.word: 1}
        assert own.house.mistakes == 0


# It is told to stop.


def test_a_server_that_is_told_to_stop_answers_what_it_has_in_hand_and_lets_listeners_go(tmp_path: Path) -> None:
    dsn = small_book(tmp_path)
    tokens = make_people(dsn)
    with RealServer(dsn, tokens) as first, ThreadPoolExecutor(4) as pool:
        port = first.port
        ears = [Ear(first) for _ in range(LISTENERS)]
        wait_until(lambda: first.api("/status").document["listeners"] == LISTENERS, what="all listen")
        with closing(sqlite3.connect(sqlite_path(dsn), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            sent = [Sent("/incidents", {"title": "WORD"}, who) for who in ("admin", "operator")]
            sending = [pool.submit(each.send, first) for each in sent]
            time.sleep(0.3)  # they are in hand: the file is locked
            began = time.monotonic()
            stopping = pool.submit(first.stop)
            for ear in ears:
                ear.wait_for_end(5)
            other.execute("ROLLBACK")
        for each in sending:
            assert each.result(10).is_done, "it was in hand"
        code, complaints = stopping.result(STOP_SECONDS_MAX)
        assert (code, complaints) == (0, "")
        assert time.monotonic() - began < STOP_SECONDS_MAX
        assert counts_of(dsn, [each.word for each in sent]) == {each.word: 1 for each in sent}
    with RealServer(dsn, tokens, port=port) as second:
        assert second.port == port
        assert second.ask("/readyz").status == 200
        assert second.stop()[0] == 0


def test_what_the_end_does_not_wait_for_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end cancels what takes too long: whoever asked hears why, in the one shape."""
    dsn = small_book(tmp_path)
    began, go = threading.Event(), threading.Event()

    def slow(*_: object) -> None:
        began.set()
        assert go.wait(10)

    async def main(own: Served) -> tuple[int, str]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            await asyncio.Event().wait()

        headers = {"host": urlsplit(own.url).netloc, "authorization": f"Bearer {own.tokens['viewer']}"}
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/api/v1/quota/report",
            "raw_path": b"/api/v1/quota/report",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        task = asyncio.create_task(Front(own.house)(scope, receive, send))
        assert await asyncio.to_thread(began.wait, 10)
        task.cancel()
        await task
        return sent[0]["status"], json.loads(sent[1]["body"])["error"]["code"]

    with serving(dsn, make_people(dsn)) as own:
        operation = next(each for each in own.house.api.operations if each.route.path == "/quota/report")
        monkeypatch.setattr(operation, "call", slow)
        assert asyncio.run(main(own)) == (503, "stopping")
        go.set()


def test_threads_end_with_the_server(tmp_path: Path) -> None:
    dsn = small_book(tmp_path)
    before = {thread.name for thread in threading.enumerate()}
    with serving(dsn, make_people(dsn), is_leading=True) as own:
        assert own.api("/fleet").status == 200
    left = {thread.name for thread in threading.enumerate() if thread.name.startswith(("lane", "watcher", "plimsoll "))}
    assert left <= before
