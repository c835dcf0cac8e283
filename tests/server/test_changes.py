"""The stream of changes: what happens is told, what was missed is caught up with, nobody holds the server up."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from plimsoll.ledger.model import Event
from plimsoll.server.changes import NAMED_MAX, Listener, change_of
from tests.support.served import Served


class Ear:
    """Somebody who listens."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.id = ""

    def next(self) -> Any:
        """The data of the next message; comments and the greeting are passed over."""
        data = None
        while True:
            line = self._response.readline().decode().rstrip("\n")
            if line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "))
            elif line.startswith("id: "):
                self.id = line.removeprefix("id: ")
            elif not line and data is not None:
                return data

    def greeting(self) -> str:
        while self._response.readline().strip():
            pass
        return self.id


@contextmanager
def listening(served: Served, path: str = "/api/v1/changes", **headers: str) -> Iterator[Ear]:
    parts = urlsplit(served.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=30)
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
