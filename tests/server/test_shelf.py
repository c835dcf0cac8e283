"""The shelf: many get one answer, never one that is too old for them, and it never grows without bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import Refused
from plimsoll.server import shelf as shelf_module
from plimsoll.server.call import Said
from plimsoll.server.shelf import BEHIND_SECONDS_MAX, SAME_SECONDS_MAX, Entry, Shelf


def said(revision: int) -> Said:
    return Said(None, f"of {revision}", None, {}, 0, revision, shown_revision=revision, weight=2_000)


class Ledger:
    """A head that moves, a clock that is moved, and how often an answer was made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.head, self.now, self.made = 1, 1_000.0, 0
        self.takes = 0.02
        """What it takes to make an answer, in seconds: enough for it to be given as long as may be."""
        self.shelf = Shelf()
        self.turn: asyncio.Event | None = None
        self.gate: asyncio.Event | None = None
        monkeypatch.setattr(shelf_module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(shelf_module, "MEANWHILE_TIMES", 0)  # its own tests are below

    async def make(self, begin: Callable[[], None]) -> Said:
        """As a lane does: it has its turn, the state is read, and then it takes its time."""
        if self.turn is not None:
            await self.turn.wait()
        self.made += 1
        begin()
        revision = self.head
        self.now += self.takes
        if self.gate is not None:
            await self.gate.wait()
        return said(revision)

    async def ask(self, key: str = "quota", **more: Any) -> Entry:
        return await self.shelf.get(key, self.make, head=self.head, **more)


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    return Ledger(monkeypatch)


# How old an answer may be. Times are between one ask and the next; the head moves before the second.

AGES: dict[str, tuple[float, int, bool, bool]] = {
    "at once": (0.0, 0, True, True),
    "nothing changed for a while": (SAME_SECONDS_MAX - 0.1, 0, True, True),
    "nothing changed, and ages are shown": (SAME_SECONDS_MAX + 0.1, 0, True, False),
    "a change, a moment ago": (BEHIND_SECONDS_MAX - 0.1, 1, True, True),
    "a change, and it is older than may be": (BEHIND_SECONDS_MAX + 0.1, 1, True, False),
    "nobody can say whether something changed": (BEHIND_SECONDS_MAX - 0.1, 0, False, True),
    "nobody can say for longer than may be": (BEHIND_SECONDS_MAX + 0.1, 0, False, False),
}


@pytest.mark.parametrize("case", AGES)
def test_an_answer_is_given_again_for_so_long(case: str, ledger: Ledger) -> None:
    seconds, changes, is_sure, want_again = AGES[case]

    async def main() -> None:
        await ledger.ask()
        ledger.now += seconds
        ledger.head += changes
        await ledger.ask(is_sure=is_sure)

    asyncio.run(main())
    assert ledger.made == (1 if want_again else 2)


COSTS: dict[str, tuple[float, float, bool]] = {
    "cheap, a moment ago": (0.001, 0.04, True),
    "cheap, a little later": (0.001, 0.06, False),
    "dear, a little later": (0.01, 0.4, True),
    "dear, and older than fifty times that": (0.01, 0.6, False),
    "very dear, and older than anything may be": (5.0, BEHIND_SECONDS_MAX + 0.1, False),
}


@pytest.mark.parametrize("case", COSTS)
def test_what_is_cheap_is_new_and_what_is_dear_is_not_made_all_the_time(case: str, ledger: Ledger) -> None:
    ledger.takes, seconds, want_again = COSTS[case]

    async def main() -> None:
        begun = ledger.now
        await ledger.ask()
        ledger.now, ledger.head = begun + seconds, 2
        await ledger.ask()

    asyncio.run(main())
    assert ledger.made == (1 if want_again else 2)


def test_the_age_counts_from_when_it_was_begun(ledger: Ledger) -> None:
    """What changes while an answer is made is not in it."""

    async def main() -> list[int]:
        ledger.gate = asyncio.Event()
        first = asyncio.create_task(ledger.ask())
        await asyncio.sleep(0)
        ledger.now += BEHIND_SECONDS_MAX + 0.5
        ledger.head += 1
        ledger.gate.set()
        return [(await first).said.revision, (await ledger.ask()).said.revision]

    assert asyncio.run(main()) == [1, 2]


def test_one_who_comes_long_after_a_change_does_not_wait_for_what_was_begun_before(ledger: Ledger) -> None:
    async def main() -> tuple[int, int, int]:
        ledger.gate = asyncio.Event()
        first = asyncio.create_task(ledger.ask())
        await asyncio.sleep(0)
        ledger.head += 1
        ledger.now += BEHIND_SECONDS_MAX - 0.1
        soon = asyncio.create_task(ledger.ask())
        await asyncio.sleep(0)
        ledger.now += 0.2
        late = asyncio.create_task(ledger.ask())
        await asyncio.sleep(0)
        ledger.gate.set()
        found = [await task for task in (first, soon, late)]
        return found[0].said.revision, found[1].said.revision, found[2].said.revision

    assert asyncio.run(main()) == (1, 1, 2)
    assert ledger.made == 2


def test_nobody_gets_less_than_they_ask_for(ledger: Ledger) -> None:
    async def main() -> list[int]:
        await ledger.ask()
        ledger.head = 5
        got = [(await ledger.ask(at_least=5)).said.revision]
        ledger.gate = asyncio.Event()
        ledger.now += BEHIND_SECONDS_MAX * 2
        ledger.head = 6
        making = asyncio.create_task(ledger.ask())
        await asyncio.sleep(0)
        ledger.head = 7
        tasks = [asyncio.create_task(ledger.ask(at_least=number)) for number in (6, 7)]
        await asyncio.sleep(0)
        ledger.gate.set()
        return [*got, *[(await task).said.revision for task in (making, *tasks)]]

    assert asyncio.run(main()) == [5, 6, 6, 7]
    assert ledger.made == 4, "who asks for what is being made waits for it"


def test_one_that_waits_for_its_turn_is_waited_for_by_all_who_come_meanwhile(ledger: Ledger) -> None:
    """However many follow what changes all the time: one is made, and one more waits at most."""

    async def main() -> list[int]:
        ledger.turn, ledger.gate = asyncio.Event(), asyncio.Event()
        tasks = []
        for _ in range(20):
            ledger.head += 1
            ledger.now += BEHIND_SECONDS_MAX
            tasks.append(asyncio.create_task(ledger.ask(at_least=ledger.head)))
            await asyncio.sleep(0)
        ledger.turn.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ledger.head += 1
        late = asyncio.create_task(ledger.ask(at_least=ledger.head))
        await asyncio.sleep(0)
        ledger.gate.set()
        return [(await task).said.revision for task in (*tasks, late)]

    assert asyncio.run(main()) == [21] * 20 + [22]
    assert ledger.made == 2


def test_a_slow_old_answer_does_not_replace_a_newer_one(ledger: Ledger) -> None:
    async def main() -> int:
        slow = ledger.gate = asyncio.Event()
        first = asyncio.create_task(ledger.ask())
        await asyncio.sleep(0)
        ledger.gate, ledger.head = None, 2
        await ledger.ask(at_least=2)
        slow.set()
        await first
        return (await ledger.ask()).said.revision

    assert asyncio.run(main()) == 2
    assert ledger.made == 2


def test_those_who_ask_for_the_same_at_once_share_it(ledger: Ledger) -> None:
    async def main() -> set[int]:
        entries = await asyncio.gather(*(ledger.ask(at_least=number % 2) for number in range(100)))
        return {id(entry) for entry in entries}

    assert len(asyncio.run(main())) == 1
    assert (ledger.made, ledger.shelf.counts.misses) == (1, 1)


def test_an_error_is_told_to_all_who_wait_and_is_not_kept(ledger: Ledger) -> None:
    async def broken(begin: Callable[[], None]) -> Said:
        ledger.made += 1
        await asyncio.sleep(0)
        raise Refused("no_room", "no room")

    async def main() -> list[Any]:
        asked = [ledger.shelf.get("k", broken, head=1) for _ in range(5)]
        errors = await asyncio.gather(*asked, return_exceptions=True)
        return [*errors, await ledger.ask("k")]

    *errors, entry = asyncio.run(main())
    assert [type(each) for each in errors] == [Refused] * 5
    assert (ledger.made, entry.said.revision) == (2, 1)


def test_one_who_goes_away_takes_the_answer_from_nobody(ledger: Ledger) -> None:
    async def main() -> list[Any]:
        ledger.gate = asyncio.Event()
        tasks = [asyncio.create_task(ledger.ask()) for _ in range(4)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[2].cancel()
        await asyncio.sleep(0)
        ledger.gate.set()
        async with asyncio.timeout(5):
            return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(main())
    assert [type(each) for each in found] == [asyncio.CancelledError, Entry, asyncio.CancelledError, Entry]
    assert ledger.made == 2


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 4), st.integers(0, 2), st.booleans()), max_size=40))
def test_never_older_than_may_be_and_never_below_what_is_asked(steps: list[tuple[int, float, int, bool]]) -> None:
    """Against a list of when each revision came: whatever is given, what came longer ago is in it."""
    with pytest.MonkeyPatch.context() as patch:
        ledger = Ledger(patch)
        came = {1: ledger.now}

        async def main() -> None:
            for key, seconds, changes, is_newest in steps:
                ledger.now += seconds
                for _ in range(changes):
                    ledger.head += 1
                    came[ledger.head] = ledger.now
                ledger.now += seconds / 3
                at_least = ledger.head if is_newest else 0
                got = (await ledger.ask(f"k{key}", at_least=at_least)).said.revision
                assert got >= at_least
                missing = [number for number in came if number > got]
                assert all(ledger.now - came[number] <= BEHIND_SECONDS_MAX for number in missing)

        asyncio.run(main())


# How much is kept.


def test_the_shelf_keeps_so_many_answers(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "KEPT_MAX", 10)

    async def main() -> int:
        for number in range(50):
            ledger.shelf.keep_exactly(f"k{number}", await ledger.ask(f"k{number}"))
        ledger.made = 0
        for number in range(50):
            await ledger.ask(f"k{number}")
        return ledger.made

    assert asyncio.run(main()) == 50, "all had to be made again"
    assert (len(ledger.shelf._entries), len(ledger.shelf._pages)) == (10, 10)


def test_an_answer_is_kept_for_its_next_pages_while_they_are_asked_for(ledger: Ledger) -> None:
    async def main() -> list[bool]:
        first = await ledger.ask()
        ledger.shelf.keep_exactly("k", first)
        found = []
        for seconds in (29, 29, 29, 31):  # of 30
            ledger.now += seconds
            ledger.head += 1
            ledger.shelf.keep_exactly("another", await ledger.ask("another"))
            found.append(ledger.shelf.find_exactly("k", 1) is first)
        return found

    assert asyncio.run(main()) == [True, True, True, False]


def test_of_what_is_read_page_by_page_so_many_bytes_are_kept(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes 8,000 bytes."""
    monkeypatch.setattr(shelf_module, "PAGES_BYTES_MAX", 30_000)

    async def main() -> None:
        for number in range(20):
            ledger.shelf.keep_exactly(f"k{number}", await ledger.ask(f"k{number}"))

    asyncio.run(main())
    assert len(ledger.shelf._pages) == 3


def _bytes(size: int) -> Callable[[Said], bytes]:
    return lambda _said: b"x" * size


def test_the_shelf_keeps_so_many_bytes_also_of_what_no_form_was_made_of(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages use an answer as it is: of 2,000 bytes it takes 8,000."""
    monkeypatch.setattr(shelf_module, "BYTES_MAX", 100_000)

    async def main() -> None:
        for number in range(100):
            await ledger.ask(f"k{number}")

    asyncio.run(main())
    assert len(ledger.shelf._entries) == 12


def test_the_shelf_keeps_so_many_bytes_also_of_forms_that_are_made_later(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The objects that a form is made of take four times its room: a fifth is left for the forms."""
    monkeypatch.setattr(shelf_module, "BYTES_MAX", 100_000)

    async def main() -> None:
        for number in range(100):
            entry = await ledger.ask(f"k{number}")
            assert entry.body("json", _bytes(2_000))[0] == b"x" * 2_000
        held = {id(each): each for each in ledger.shelf._entries.values()}.values()
        assert 0 < sum(len(body) for each in held for body, _ in each.bodies.values()) <= 100_000 / 5
        big = await ledger.ask("big")
        assert len(big.body("json", _bytes(200_000))[0]) == 200_000, "it is given, and not kept"
        assert ledger.shelf.find("big", head=1) is None

    asyncio.run(main())


def test_one_answer_is_kept_in_so_many_forms(ledger: Ledger) -> None:
    async def main() -> Entry:
        entry = await ledger.ask()
        for begin in range(10_000):
            entry.body(f"json:{begin}:1", _bytes(10))
        return entry

    entry = asyncio.run(main())
    assert len(entry.bodies) == shelf_module.FORMS_MAX
    assert entry.size == 4 * 2_000 + 10 * shelf_module.FORMS_MAX


def test_a_form_is_made_once_and_its_tag_says_what_it_is(ledger: Ledger) -> None:
    async def main() -> list[str]:
        entry = await ledger.ask()
        tags = [entry.body("json", _bytes(3))[1], entry.body("json", _bytes(99))[1], entry.body("csv", _bytes(4))[1]]
        return [*tags, (await ledger.ask("other")).body("json", _bytes(3))[1]]

    first, again, other, same = asyncio.run(main())
    assert first == again == same != other


# While a newer one is made.


def test_the_one_before_is_given_while_a_newer_one_is_made(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "MEANWHILE_TIMES", 3)

    async def main() -> list[int]:
        await ledger.ask()
        ledger.gate, ledger.head = asyncio.Event(), 2
        ledger.now += BEHIND_SECONDS_MAX + 0.1
        got = [(await ledger.ask()).said.revision for _ in range(3)]
        await asyncio.sleep(0)
        ledger.gate.set()
        for _ in range(3):
            await asyncio.sleep(0)
        return [*got, (await ledger.ask()).said.revision]

    assert asyncio.run(main()) == [1, 1, 1, 2]
    assert ledger.made == 2, "made once beside those who get the one before"


MEANWHILE: dict[str, tuple[float, int, int]] = {
    "a little too old": (1.5, 0, 1),
    "much too old": (3.1, 0, 2),
    "a little too old, and somebody must see more": (1.5, 2, 2),
}


@pytest.mark.parametrize("case", MEANWHILE)
def test_nobody_gets_what_is_much_too_old_or_lacks_their_change(
    case: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf_module, "MEANWHILE_TIMES", 3)
    seconds, at_least, want = MEANWHILE[case]

    async def main() -> int:
        await ledger.ask()
        ledger.head, ledger.now = 2, ledger.now + seconds
        return (await ledger.ask(at_least=at_least)).said.revision

    assert asyncio.run(main()) == want
