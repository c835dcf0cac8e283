"""One suite for both databases: papers, which are no events; of several who want the same one exactly one gets it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any

import pytest

from plimsoll.ledger import Ledger, open_ledger, open_store
from plimsoll.ledger.model import Paper
from plimsoll.ledger.schema import MIGRATIONS
from plimsoll.ledger.store import Store
from plimsoll.ledger.verify import verify
from plimsoll.times import format_time
from tests.support.access import race_for_papers
from tests.support.children import Child
from tests.support.ledgers import MONDAY, events_of, open_with, raw, write

TAKERS = 3
ROUNDS = 30


def paper(id: str = "a", kind: str = "session", *, hours: float | None = 1, body: str = "x") -> Paper:  # noqa: A002
    """A paper that ends so many hours after Monday morning, or never."""
    return Paper(kind, id, "" if hours is None else format_time(MONDAY + timedelta(hours=hours)), body)


@pytest.fixture
def store(dsn: str) -> Any:
    with closing(open_store(dsn, create=True)) as each:
        yield each


def test_what_was_kept_is_found_by_kind_and_id(dsn: str) -> None:
    want = [paper("a", body="Größe ✓ '; --"), paper("b", hours=None, body="")]
    with closing(open_store(dsn, create=True)) as store:
        for each in (*want, paper("a", kind="link")):
            store.keep_paper(each)
        assert store.paper("session", "a") == want[0]
        assert store.paper("session", "none") is None
        assert store.papers("session") == want
        assert store.papers("none") == []
    with closing(open_store(dsn)) as store:
        assert store.papers("session") == want, "and later too"


def test_keeping_replaces_and_adding_does_not(store: Store) -> None:
    assert store.add_paper(paper(body="1")) is True
    assert store.add_paper(paper(body="2")) is False
    assert store.paper("session", "a") == paper(body="1")
    store.keep_paper(paper(body="3", hours=2))
    assert store.papers("session") == [paper(body="3", hours=2)]
    assert store.add_paper(paper(kind="link")) is True, "another kind is another name"


def test_taking_and_dropping_work_once(store: Store) -> None:
    store.keep_paper(paper())
    store.keep_paper(paper("b"))
    assert store.take_paper("session", "a") == paper()
    assert store.take_paper("session", "a") is None
    assert store.drop_paper("session", "b") is True
    assert store.drop_paper("session", "b") is False
    assert store.papers("session") == []


def test_what_is_over_is_dropped_and_the_rest_stays(store: Store) -> None:
    for each in (
        paper("early", hours=1),
        paper("late", hours=3),
        paper("ever", hours=None),
        paper("x", "link", hours=2),
    ):
        store.keep_paper(each)
    assert store.drop_expired(MONDAY) == 0
    assert store.drop_expired(MONDAY + timedelta(hours=2)) == 2, "the very moment is over"
    assert [each.id for each in store.papers("session")] == ["ever", "late"]
    assert store.papers("link") == []
    assert (paper(hours=None).is_over(MONDAY), paper(hours=0).is_over(MONDAY)) == (False, True)


def test_papers_are_no_events(dsn: str) -> None:
    with open_ledger(dsn, create=True) as ledger:
        write(ledger, "a")
        ledger.store.keep_paper(paper())
        assert (ledger.head().revision, verify(ledger.store).is_whole) == (1, True)


def test_a_database_of_version_3_gets_the_table_and_keeps_its_events(dsn: str) -> None:
    with closing(open_with(dsn, MIGRATIONS[:3])) as old:
        write(Ledger(old), "a", "b")
        before, version = list(old.events()), old.schema_version()
        assert (version, old.has_table("papers")) == (3, False)
    with open_ledger(dsn) as ledger:
        assert ledger.store.schema_version() == len(MIGRATIONS)
        assert events_of(ledger) == before
        assert ledger.store.add_paper(paper())
        assert verify(ledger.store).is_whole


def test_a_migration_to_papers_that_fails_leaves_version_3(dsn: str) -> None:
    open_with(dsn, MIGRATIONS[:3]).close()
    with raw(dsn) as run:
        run("CREATE TABLE papers (other TEXT)")
    with pytest.raises(Exception, match="papers"):
        open_store(dsn)
    with raw(dsn) as run:
        assert run("SELECT max(version) FROM plimsoll_schema") == [(3,)]
        run("DROP TABLE papers")
    with closing(open_store(dsn)) as store:
        assert store.add_paper(paper())


def test_threads_that_race_get_each_paper_once(store: Store) -> None:
    for number in range(10):
        barrier, added, taken = Barrier(TAKERS), [], []

        def race(name: str, number: int = number, barrier: Barrier = barrier) -> None:
            barrier.wait()
            added.append(store.add_paper(paper(f"p{number}", body=name)))  # noqa: B023
            barrier.wait()
            taken.append(store.take_paper("session", f"p{number}"))  # noqa: B023

        threads = [Thread(target=race, args=(f"t{each}",)) for each in range(TAKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(added) == [False] * (TAKERS - 1) + [True]
        assert len([each for each in taken if each is not None]) == 1


def test_processes_that_race_get_each_paper_once(new_dsn: Callable[[], str]) -> None:
    dsn = new_dsn()
    open_store(dsn, create=True).close()
    for is_adding, want in ((True, "each was added by one of them"), (False, "and taken by one of them")):
        with ExitStack() as stack:
            racers = [
                stack.enter_context(Child(race_for_papers, dsn, f"w{n}", ROUNDS, is_adding)) for n in range(TAKERS)
            ]
            assert {child.hear() for child in racers} == {"ready"}
            won = [number for child in racers for number in child.hear()]
            for child in racers:
                child.finish()
        assert sorted(won) == list(range(ROUNDS)), want
