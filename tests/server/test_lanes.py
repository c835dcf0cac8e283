"""Lanes: one thing after the other, bounded, and nobody hears of what went wrong for another."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest

from plimsoll.errors import PlimsollError, Refused, Unavailable
from plimsoll.server.lanes import Lane
from plimsoll.state.keeper import Keeper

MANY = 50


class Book:
    """In place of a keeper: counts how often it was opened and closed, and by how many at once it is used."""

    def __init__(self) -> None:
        self.opened = self.closed = self.inside = self.most = 0
        self.threads: set[int] = set()
        self.is_away = False

    def open(self) -> Keeper:
        if self.is_away:
            raise Unavailable("database_unreachable", "no connection")
        self.opened += 1
        return cast(Keeper, self)

    def close(self) -> None:
        self.closed += 1

    def use(self, seconds: float = 0.0) -> int:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.threads.add(threading.get_ident())
        time.sleep(seconds)
        self.inside -= 1
        return self.inside


@asynccontextmanager
async def lane_of(book: Book, *, waiting_max: int = 1_000, **more: Any) -> AsyncIterator[Lane]:
    lane = Lane("quick", book.open, waiting_max=waiting_max, **more)
    lane.start()
    try:
        yield lane
    finally:
        await asyncio.to_thread(lane.stop, 5.0)


class Plug:
    """Work that stays in hand until it is let go."""

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()

    def work(self, _keeper: Keeper) -> str:
        self.began.set()
        assert self.go.wait(10)
        return "plug"

    async def put(self, lane: Lane) -> asyncio.Task[str]:
        task = asyncio.create_task(lane.run(self.work))
        await asyncio.to_thread(self.began.wait, 10)
        return task


def _give(number: int, _keeper: Keeper) -> int:
    return number


def _note(done: list[int], number: int, _keeper: Keeper) -> None:
    done.append(number)


def _error(outcome: object) -> str:
    return outcome.code if isinstance(outcome, PlimsollError) else repr(outcome)


def test_one_after_the_other_with_a_keeper_that_is_opened_once() -> None:
    async def main(book: Book) -> list[int]:
        async with lane_of(book) as lane:
            return await asyncio.gather(*(lane.run(lambda _: book.use(0.001)) for _ in range(MANY)))

    book = Book()
    assert asyncio.run(main(book)) == [0] * MANY
    assert (book.opened, book.closed, book.most, len(book.threads)) == (1, 1, 1, 1)
    assert book.threads != {threading.get_ident()}


def test_a_keeper_that_could_not_be_opened_is_opened_when_it_can_be() -> None:
    async def main(book: Book) -> list[object]:
        async with lane_of(book) as lane:
            first = await asyncio.gather(lane.run(lambda _: 1), return_exceptions=True)
            book.is_away = False
            return [_error(first[0]), await lane.run(lambda _: 2)]

    book = Book()
    book.is_away = True
    assert asyncio.run(main(book)) == ["database_unreachable", 2]
    assert book.opened == 1


def test_a_full_lane_says_that_it_is_busy_at_once() -> None:
    async def main() -> tuple[list[str], float, list[object]]:
        book, plug = Book(), Plug()
        async with lane_of(book, waiting_max=3) as lane:
            in_hand = await plug.put(lane)
            waiting = [asyncio.create_task(lane.run(partial(_give, number))) for number in range(3)]
            await asyncio.sleep(0)
            began = time.monotonic()
            refused = await asyncio.gather(*(lane.run(lambda _: 9) for _ in range(5)), return_exceptions=True)
            took = time.monotonic() - began
            plug.go.set()
            return [_error(each) for each in refused], took, [await in_hand, *await asyncio.gather(*waiting)]

    refused, took, answers = asyncio.run(main())
    assert refused == ["busy"] * 5
    assert took < 1
    assert answers == ["plug", 0, 1, 2], "those who were taken are answered"


def test_one_whose_turn_does_not_come_is_told_and_its_work_is_never_done() -> None:
    async def main() -> tuple[str, int, str]:
        plug, done = Plug(), [0]

        def work(_keeper: Keeper) -> None:
            done[0] += 1

        async with lane_of(Book(), seconds_max=0.1) as lane:
            in_hand = await plug.put(lane)
            (late,) = await asyncio.gather(lane.run(work), return_exceptions=True)
            await asyncio.sleep(0.2)
            assert not in_hand.done(), "what was begun is waited for, however long"
            plug.go.set()
            answer = await in_hand
            await lane.run(lambda _: None)
            return _error(late), done[0], answer

    assert asyncio.run(main()) == ("busy", 0, "plug")


def test_the_work_of_one_who_went_away_is_skipped() -> None:
    async def main() -> list[int]:
        plug, done = Plug(), list[int]()
        async with lane_of(Book()) as lane:
            in_hand = await plug.put(lane)
            tasks = [asyncio.create_task(lane.run(partial(_note, done, number))) for number in range(4)]
            await asyncio.sleep(0)
            for number in (1, 2):
                tasks[number].cancel()
            await asyncio.sleep(0)
            plug.go.set()
            await asyncio.gather(in_hand, *tasks, return_exceptions=True)
        return done

    assert asyncio.run(main()) == [0, 3]


def _refuse(_keeper: Keeper) -> None:
    raise Refused("no_room", "no room")


def _break(_keeper: Keeper) -> None:
    raise KeyError("oh")


def _exit(_keeper: Keeper) -> None:
    raise SystemExit(3)


def _run_out(_keeper: Keeper) -> None:
    next(iter(()))


FAILURES: dict[str, tuple[Callable[[Keeper], None], type[Exception]]] = {
    "a refusal": (_refuse, Refused),
    "a mistake of ours": (_break, KeyError),
    "an exit that would end the server": (_exit, RuntimeError),
    "an end of a generator, that no future can tell": (_run_out, RuntimeError),
}


@pytest.mark.parametrize("case", FAILURES)
def test_an_error_reaches_only_who_asked(case: str) -> None:
    work, want = FAILURES[case]

    async def main() -> list[Any]:
        async with lane_of(Book()) as lane:
            asked = lane.run(lambda _: 1), lane.run(work), lane.run(lambda _: 2)
            async with asyncio.timeout(5):
                return list(await asyncio.gather(*asked, return_exceptions=True))

    before, error, after = asyncio.run(main())
    assert (before, type(error), after) == (1, want, 2)


def test_nothing_is_begun_after_the_end_and_nobody_waits_for_it() -> None:
    async def main() -> tuple[list[object], list[str], int]:
        book, plug, done = Book(), Plug(), [0]

        def work(_keeper: Keeper) -> int:
            done[0] += 1
            return done[0]

        async with lane_of(book) as lane:
            in_hand = await plug.put(lane)
            waiting = asyncio.create_task(lane.run(work))
            await asyncio.sleep(0)
            stopping = asyncio.create_task(asyncio.to_thread(lane.stop, 5.0))
            await asyncio.sleep(0.05)
            async with asyncio.timeout(5):
                late = list(await asyncio.gather(lane.run(work), lane.run(work), return_exceptions=True))
                plug.go.set()
                answers = [await in_hand, await waiting]
                await stopping
                late += await asyncio.gather(lane.run(work), return_exceptions=True)
            assert book.closed == 1
            return answers, [_error(each) for each in late], done[0]

    answers, late, done = asyncio.run(main())
    assert answers == ["plug", 1], "what waited was still done"
    assert (late, done) == (["stopping"] * 3, 1)


def test_one_who_comes_in_at_the_very_end_is_told_so() -> None:
    async def main() -> tuple[str, int]:
        plug, done = Plug(), list[int]()
        async with lane_of(Book()) as lane:
            in_hand = await plug.put(lane)
            lane._jobs.put_nowait(None)  # as the end does, right after the other has looked whether it is over
            late = asyncio.create_task(lane.run(partial(_note, done, 1)))
            await asyncio.sleep(0)
            plug.go.set()
            await in_hand
            async with asyncio.timeout(5):
                (outcome,) = await asyncio.gather(late, return_exceptions=True)
        return _error(outcome), len(done)

    assert asyncio.run(main()) == ("stopping", 0)


def test_a_full_lane_ends_too() -> None:
    async def main() -> list[int]:
        plug = Plug()
        async with lane_of(Book(), waiting_max=2) as lane:
            in_hand = await plug.put(lane)
            waiting = [asyncio.create_task(lane.run(partial(_give, number))) for number in range(2)]
            await asyncio.sleep(0)
            stopping = asyncio.create_task(asyncio.to_thread(lane.stop, 5.0))
            await asyncio.sleep(0.05)
            plug.go.set()
            async with asyncio.timeout(5):
                await stopping
                await in_hand
                return await asyncio.gather(*waiting)

    began = time.monotonic()
    assert asyncio.run(main()) == [0, 1]
    assert time.monotonic() - began < 4
