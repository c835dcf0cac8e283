"""What a stream of changes owes to one who comes back: nothing falls between what was missed and what comes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from plimsoll.errors import Unavailable
from plimsoll.ledger.model import Event, Head
from plimsoll.ledger.store import Store
from plimsoll.server import changes, specials
from plimsoll.server.changes import Change, Watcher, change_of
from tests.support.served import Served, make_people, serving, small_book
from tests.support.servers import STOP_SECONDS_MAX, Ear, is_error
from tests.support.waiting import wait_until


def change(revision: int) -> Change:
    return change_of([Event(revision, "", "", "", "node.moved", f"node/{revision}", "", "{}", "", "")])


async def told(stream: AsyncIterator[bytes], count: int) -> list[Any]:
    """The revisions of the next messages, after the greeting."""
    await anext(stream)
    messages = [await asyncio.wait_for(anext(stream), 5) for _ in range(count)]
    return [json.loads(each.decode().partition("data: ")[2])["revision"] for each in messages]


TOLD: dict[str, tuple[int | None, list[int], int, list[int], list[int]]] = {
    # after, told while what was missed is read, what was missed goes up to, told later, what comes out
    "nothing was missed": (10, [], 0, [11, 12], [12]),
    "a change comes while it is looked what was missed": (10, [11], 0, [], [11]),
    "what was missed holds it already": (10, [11], 12, [13], [12, 13]),
    "and something newer": (10, [11, 13], 12, [], [12, 13]),
    "one who knows more than this server does": (20, [18], 0, [19, 21], [21]),
    "one who is new hears all that comes": (None, [9], 0, [], [9]),
}


@pytest.mark.parametrize("case", TOLD)
def test_nothing_falls_in_between_and_nothing_is_told_twice(case: str) -> None:
    after, early, missed, late, want = TOLD[case]

    async def main() -> list[Any]:
        watcher = Watcher(lambda: cast(Store, None))
        listener = watcher.join(after)
        for revision in early:
            listener.hear(change(revision), changes._message(change(revision)))
        stream = watcher.listen(listener, change(missed) if missed else None)
        reading = asyncio.create_task(told(stream, len(want)))
        for _ in range(3):
            await asyncio.sleep(0)
        for revision in late:
            listener.hear(change(revision), changes._message(change(revision)))
        return await reading

    assert asyncio.run(main()) == want


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Served]:
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn)) as server:
        yield server


def test_too_many_listeners_are_told_before_anything_is_sent(own: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "LISTENERS_MAX", 1)
    ear = Ear(own)
    reply = own.api("/changes")
    assert (reply.status, reply.error["code"]) == (429, "too_many_listeners")
    ear.close()
    wait_until(lambda: own.house.watcher.listening == 0, what="its place is free")
    Ear(own).close()


def test_nobody_takes_all_the_places_of_those_who_listen(own: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert changes.LISTENERS_OF_ONE_MAX <= changes.LISTENERS_MAX // 4
    monkeypatch.setattr(changes, "LISTENERS_OF_ONE_MAX", 2)
    ears = [Ear(own, who="partner"), Ear(own, who="partner")]
    reply = own.api("/changes", who="partner")
    assert (reply.status, reply.error["code"]) == (429, "too_many_listeners")
    ears.append(Ear(own, who="viewer"))
    for ear in ears:
        ear.close()


def test_what_is_too_much_to_be_named_says_so(own: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    before = own.house.api.head
    for number in range(3):
        own.post("/incidents", {"title": "missed", "id": f"missed-{number}"})
    monkeypatch.setattr(specials, "CATCH_UP_MAX", 2)
    with own.house.open_keeper() as keeper:
        part = specials._missed(keeper.ledger.store, before)
        whole = specials._missed(keeper.ledger.store, before + 1)
        assert specials._missed(keeper.ledger.store, before + 3) is None
    assert part is not None
    assert whole is not None
    assert (part.is_cut, whole.is_cut) == (True, False), "one before these was not looked at"


def test_one_who_can_not_be_told_what_was_missed_leaves_nothing_behind(
    own: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Unavailable("connection_lost", "did not answer")

    monkeypatch.setattr(specials, "_missed", away)
    assert is_error(own.api("/changes?after=1"), 503)
    assert own.house.watcher.listening == 0


def test_one_who_heard_of_more_than_there_is_hears_on(own: Served) -> None:
    """The ledger was put back to an older copy, or the address belongs to another one now."""
    head = own.house.api.head
    ear = Ear(own, after=head + 1_000)
    wait_until(lambda: ear.revisions == [head], what="it is told how far this one goes")
    assert ear.told[0]["is_cut"]
    own.post("/incidents", {"title": "heard", "id": "heard"})
    ear.wait_for("incident/heard")
    ear.close()


def test_one_who_asks_for_all_goes_on_there_where_it_breaks_off_at_once(own: Served) -> None:
    async def main() -> bytes:
        watcher = Watcher(lambda: cast(Store, None))
        watcher.head = 7
        greetings = [await anext(watcher.listen(watcher.join(after), change(7))) for after in (0, 3, None)]
        return b"".join(greetings)

    assert re.findall(rb"id: (\d+)", asyncio.run(main())) == [b"0", b"3", b"7"]


def test_the_head_of_a_stream_is_no_stream(own: Served) -> None:
    reply = own.api("/changes", method="HEAD")
    assert (reply.status, reply.headers["content-type"], reply.body) == (200, "text/event-stream; charset=utf-8", b"")
    assert own.house.watcher.listening == 0


def test_one_who_knows_all_costs_no_look(own: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands come back at once after a restart, and most of them have missed nothing."""
    monkeypatch.setattr(specials, "_missed", None)
    ear = Ear(own, after=own.house.api.head)
    own.post("/incidents", {"title": "news", "id": "news"})
    ear.wait_for("incident/news")
    ear.close()


def test_a_watcher_outlives_a_database_that_is_away_when_it_starts() -> None:
    class Away:
        """Can't be opened twice, then fails once, then works."""

        def __init__(self) -> None:
            self.opened, self.asked = 0, 0

        def open(self) -> Store:
            self.opened += 1
            if self.opened < 3:
                raise Unavailable("database_unreachable", "no connection")
            return cast(Store, self)

        def wait_for_change(self, after: int, *, seconds_max: float) -> bool:
            self.asked += 1
            if self.asked == 1:
                raise Unavailable("connection_lost", "did not answer")
            return after < 7

        def event_at(self, revision: int) -> None:
            return None

        def head(self) -> Head:
            return Head(7, "", "")

        def events(self, *, after: int) -> list[Event]:
            return [Event(7, "", "", "", "node.moved", "node/7", "", "{}", "", "")]

        def close(self) -> None:
            self.asked = 0

    async def main() -> tuple[list[Any], str, object]:
        away = Away()
        watcher = Watcher(away.open)
        watcher.start(6)
        listener = watcher.join(6)
        await asyncio.sleep(0.05)
        trouble = watcher.trouble.code if watcher.trouble is not None else ""
        heard = await told(watcher.listen(listener, None), 1)
        last = watcher.trouble
        await asyncio.to_thread(watcher.stop)
        return heard, trouble, last

    assert asyncio.run(main()) == ([7], "database_unreachable", None)


def test_one_who_comes_while_it_is_being_stopped_is_told_to_come_back(own: Served) -> None:
    own.house.watcher.end_streams()
    assert is_error(own.api("/changes"), 503)


def test_a_stream_ends_after_its_time_whatever_happens(own: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert changes.STREAM_SECONDS_MAX <= 900
    monkeypatch.setattr(changes, "HEARTBEAT_SECONDS", 0.1)
    kept = Ear(own)
    monkeypatch.setattr(changes, "STREAM_SECONDS_MAX", 0.5)
    ear = Ear(own)
    ear.wait_for_end(STOP_SECONDS_MAX)
    assert not kept.is_over
    kept.close()
    again = Ear(own)
    again.wait_for_end(STOP_SECONDS_MAX)
    wait_until(lambda: own.house.watcher.listening == 0, what="its place is free")
