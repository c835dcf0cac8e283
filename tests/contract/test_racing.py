"""One suite for both databases: several writers and readers at once, in processes and in threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from plimsoll.errors import Stale
from plimsoll.ledger import Ledger, open_ledger
from plimsoll.ledger.model import EventFilter
from plimsoll.ledger.verify import Finding, verify
from tests.support.children import Child
from tests.support.ledgers import Notes, events_of, keeper_of, note, tear, write
from tests.support.writers import count_up, follow

WRITERS = 3
ROUNDS = 40
SHARED = EventFilter(subject="page/shared")


def _hear_until_done(child: Child) -> list[Any]:
    heard = []
    while (said := child.hear()) != "done":
        heard.append(said)
    return heard


def _assert_counted(ledger: Ledger, total: int) -> None:
    """No number given twice, none left out: nobody wrote over what they had not read."""
    numbers = [event.reason for event in ledger.store.events(where=SHARED)]
    assert numbers == [str(number) for number in range(1, total + 1)]


def test_processes_that_race_never_fork_the_chain_and_followers_see_no_gap(dsn: str) -> None:
    last = 2 * WRITERS * ROUNDS
    open_ledger(dsn, create=True).close()
    with ExitStack() as stack:
        followers = [stack.enter_context(Child(follow, dsn, last)) for _ in range(2)]
        writers = [stack.enter_context(Child(count_up, dsn, f"writer-{n}", ROUNDS)) for n in range(WRITERS)]
        assert {child.hear() for child in [*followers, *writers]} == {"ready"}
        acknowledged = [pair for child in writers for pairs in _hear_until_done(child) for pair in pairs]
        seen = [[child.hear() for _ in range(last)] for child in followers]
        for child in [*followers, *writers]:
            child.finish()
    with open_ledger(dsn) as ledger:
        chain = [(event.revision, event.hash) for event in events_of(ledger)]
        assert [revision for revision, _ in chain] == list(range(1, last + 1))
        assert sorted(acknowledged) == chain
        assert seen == [chain, chain]
        assert verify(ledger.store).is_whole
        _assert_counted(ledger, WRITERS * ROUNDS)


def test_threads_may_share_a_ledger(dsn: str) -> None:
    def count(name: str) -> None:
        for _ in range(ROUNDS):
            while True:
                read_at = ledger.head().revision
                last = ledger.store.last_events(1, until=read_at, where=SHARED)
                number = int(last[0].reason) + 1 if last else 1
                try:
                    ledger.commit([note("shared", reason=str(number))], actor=name, read_at=read_at)
                    break
                except Stale:
                    continue

    with open_ledger(dsn, create=True) as ledger, ThreadPoolExecutor(4) as pool:
        list(pool.map(count, ["one", "two", "three", "four"]))
        _assert_counted(ledger, 4 * ROUNDS)
        assert verify(ledger.store).is_whole


def test_threads_may_share_a_keeper(dsn: str) -> None:
    """Each thread adds a line to a page only if it knows all that stand there; one keeper, another one beside it."""
    with keeper_of(dsn) as keeper, keeper_of(dsn) as other, ThreadPoolExecutor(4) as pool:

        def add_lines(name: str) -> None:
            mine = keeper if name in ("one", "two") else other
            for _ in range(ROUNDS // 4):
                while True:
                    try:
                        mine.decide_and_commit(
                            lambda state: (None, [note("a", str(len(state.of(Notes).pages.get("a", ()))))]), actor=name
                        )
                        break
                    except Stale:
                        continue

        list(pool.map(add_lines, ["one", "two", "three", "four"]))
        want = tuple(str(number) for number in range(ROUNDS // 4 * 4))
        assert keeper.state().of(Notes).pages["a"] == want
        assert other.state().dump() == keeper.state().dump()
        assert keeper.state().revision == len(want)


def test_an_audit_of_a_ledger_that_is_being_written_to_finds_nothing(dsn: str) -> None:
    last = 2 * 3 * ROUNDS
    findings: list[Finding] = []
    with open_ledger(dsn, create=True) as ledger, Child(count_up, dsn, "writer", last // 2) as child:
        while ledger.head().revision < last:
            findings += verify(ledger.store).findings
        child.finish()
        assert findings == []
        assert ledger.head().revision == last


def test_a_reader_in_the_middle_of_a_long_read_does_not_disturb_writers(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plimsoll.ledger.store.READ_PAGE_ROWS", 2)
    with open_ledger(dsn, create=True) as ledger, open_ledger(dsn) as other:
        write(ledger, *"abcde")
        reading = ledger.store.events()
        read = [next(reading).revision]
        write(other, "f")
        ledger.commit([tear("a")], actor="tester", read_at=6)
        read += [event.revision for event in reading]
        assert read == [1, 2, 3, 4, 5, 6, 7]
