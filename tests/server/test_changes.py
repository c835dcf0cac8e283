"""The stream of changes: what happens is told, what was missed is caught up with, nobody holds the server up."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from plimsoll.ledger.model import Event
from plimsoll.server import changes
from plimsoll.server.changes import NAMED_MAX, Listener, change_of
from tests.support.served import Served

HEAR_SECONDS_MAX = 10.0
"""Less than a sign of life takes to come: who hears nothing until then was told nothing."""


class Ear:
    """Somebody who listens, and does not wait for ever."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.id = ""

    def _lines(self) -> Iterator[str]:
        """Line by line, as long as they come in time."""
        end = time.monotonic() + HEAR_SECONDS_MAX
        while time.monotonic() < end:
            try:
                line = self._response.readline()
            except TimeoutError:
                break
            if not line:
                pytest.fail("the stream ended before it was told")
            yield line.decode().rstrip("\n")
        pytest.fail(f"nothing was told within {HEAR_SECONDS_MAX:g} s")

    def next(self) -> Any:
        """The data of the next message; comments and the greeting are passed over."""
        data = None
        for line in self._lines():
            if line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "))
            elif line.startswith("id: "):
                self.id = line.removeprefix("id: ")
            elif not line and data is not None:
                break
        return data

    def greeting(self) -> str:
        for line in self._lines():
            if not line:
                break
            if line.startswith("id: "):
                self.id = line.removeprefix("id: ")
        return self.id

    def comment(self) -> str:
        """The next line that is for nobody: it says that the stream lives."""
        return next(line for line in self._lines() if line.startswith(":"))


@contextmanager
def listening(served: Served, path: str = "/api/v1/changes", **headers: str) -> Iterator[Ear]:
    parts = urlsplit(served.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=HEAR_SECONDS_MAX)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET", path, headers={"Authorization": f"Bearer {served.tokens['viewer']}", **named})
    response = connection.getresponse()
    assert response.status == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    try:
        yield Ear(response)
    finally:
        connection.close()


def test_a_change_is_told_with_its_revision(served: Served) -> None:
    with listening(served) as ear:
        ear.greeting()
        served.post("/incidents", {"title": "told", "id": "told"})
        told = ear.next()
        assert told["revision"] == int(ear.id) == served.house.api.head
        assert "incident/told" in told["subjects"]
        assert told["is_cut"] is False


def test_what_was_missed_is_told_to_who_comes_back(served: Served) -> None:
    before = served.house.api.head
    served.post("/incidents", {"title": "missed", "id": "missed"})
    for headers, path in (
        ({"Last_Event_ID": str(before)}, "/api/v1/changes"),
        ({}, f"/api/v1/changes?after={before}"),
    ):
        with listening(served, path, **headers) as ear:
            told = ear.next()
            assert told["revision"] > before
            assert "incident/missed" in told["subjects"]


@pytest.mark.parametrize("after", ["x", "-1", "9" * 19])
def test_a_place_that_is_none_is_refused(served: Served, after: str) -> None:
    assert served.api(f"/changes?after={after}").error["code"] == "bad_parameter"


def test_a_stream_in_which_nothing_happens_says_that_it_lives(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever sits between takes it for dead; as a comment, it is told to nobody who listens."""
    assert changes.HEARTBEAT_SECONDS < 30, "proxies close what is silent for longer"
    monkeypatch.setattr(changes, "HEARTBEAT_SECONDS", 0.05)
    with listening(served) as ear:
        ear.greeting()
        assert [len(ear.comment()) > 1 for _ in range(2)] == [True, True]
        served.post("/incidents", {"title": "alive", "id": "alive"})
        assert "incident/alive" in ear.next()["subjects"]


@pytest.mark.parametrize("is_told", [True, False])
def test_a_sign_of_life_is_a_comment_and_a_whole_message(is_told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "HEARTBEAT_SECONDS", 0.01)

    async def listen() -> bytes | None:
        ear = Listener()
        if is_told:
            ear.hear(change_of([event(1)]), b"told")
        return await ear.next()

    message = asyncio.run(listen())
    assert message is not None
    assert message == b"told" if is_told else (message[:1], message[-2:]) == (b":", b"\n\n")


def test_strangers_do_not_listen(served: Served) -> None:
    assert served.ask("/api/v1/changes").status == 401


def test_a_listener_that_sees_planned_work_is_told_of_nothing_else() -> None:
    """What a real server tells the provider is in test_partner."""

    async def listen() -> bytes | None:
        told = Listener(0, "campaign/")
        told.hear(change_of([event(1, "incident/x"), event(2, "workload/y")]), b"x")
        told.hear(change_of([event(3, "campaign/nic"), event(4, "workload/y")]), b"x")
        return await told.next()

    message = asyncio.run(listen())
    assert message is not None
    told = json.loads(message.decode().partition("data: ")[2])
    assert (told["subjects"], told["kinds"]) == (["campaign/nic"], [])


def test_where_not_all_is_named_one_of_theirs_may_be_among_it() -> None:
    """A campaign that happened after 60 incidents of the same moment."""

    async def listen() -> bytes | None:
        told = Listener(0, "campaign/")
        incidents = [event(number, f"incident/{number}") for number in range(1, 61)]
        told.hear(change_of([*incidents, event(61, "campaign/nic")]), b"x")
        return await told.next()

    message = asyncio.run(listen())
    assert message is not None
    told = json.loads(message.decode().partition("data: ")[2])
    assert (told["revision"], told["subjects"], told["kinds"], told["is_cut"]) == (61, [], [], True)


def event(revision: int, subject: str = "node/x") -> Event:
    return Event(revision, "2026-01-05T11:00:00.000000Z", "", "", "node.moved", subject, "", "{}", "", "")


def test_a_message_has_a_bound() -> None:
    told = change_of([event(number, f"node/{number}") for number in range(1, 1000)])
    assert (told.revision, len(told.subjects), told.is_cut) == (999, NAMED_MAX, True)


def test_who_is_slow_gets_one_message_for_all_of_it() -> None:
    async def listen() -> list[Any]:
        ear = Listener()
        for number in range(1, 101):
            ear.hear(change_of([event(number, f"node/{number % 3}")]), b"")
        message = await ear.next()
        assert message is not None
        ear.end()
        return [json.loads(message.decode().partition("data: ")[2]), await ear.next()]

    told, end = asyncio.run(listen())
    assert (told["revision"], sorted(told["subjects"]), end) == (100, ["node/0", "node/1", "node/2"], None)


def test_a_listener_that_goes_leaves_nothing_behind(served: Served) -> None:
    with listening(served) as ear:
        ear.greeting()
        assert served.house.watcher.listening >= 1
    for number in range(100):
        served.post("/incidents", {"title": "gone", "id": f"gone-{number}"}) if number < 2 else None
        if not served.house.watcher.listening:
            break
        asyncio.run(asyncio.sleep(0.1))
    assert served.house.watcher.listening == 0
