"""One suite for both databases: how a ledger comes into being, is refused, and gets from one version to the next."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing

import pytest

from plimsoll.errors import NotFound, PlimsollError, Refused, Unavailable
from plimsoll.ledger import Ledger, open_ledger, open_store
from plimsoll.ledger.postgres import PostgresStore
from plimsoll.ledger.schema import MIGRATIONS, Migration
from plimsoll.ledger.sqlite import SqliteStore
from plimsoll.ledger.store import Store
from plimsoll.ledger.verify import verify
from tests.support.chance import new_chance
from tests.support.children import Child
from tests.support.ledgers import events_of, filled, open_with, raw, wait_until_alone, write
from tests.support.writers import create_at, migrate

PADDING_ROWS = 4_000
NEXT: Migration = (
    "CREATE TABLE padding (number {bigint}, stuff {blob})",
    "ALTER TABLE snapshots ADD COLUMN note TEXT NOT NULL DEFAULT ''",
    *[
        f"INSERT INTO padding (number) WITH RECURSIVE numbers(number) AS (SELECT {first} UNION ALL "
        f"SELECT number + 1 FROM numbers WHERE number < {first + 499}) SELECT number FROM numbers"
        for first in range(1, PADDING_ROWS, 500)
    ],
)
BROKEN: Migration = (*NEXT, "INSERT INTO no_such_table VALUES (1)")
NEXT_TOO = (*MIGRATIONS, NEXT)
NOW = len(MIGRATIONS)


def test_a_database_without_a_ledger_is_not_found_and_not_made(dsn: str) -> None:
    for _ in range(2):
        with pytest.raises(NotFound) as refused:
            open_store(dsn)
        assert refused.value.code == "no_database"
        assert "plimsoll demo" in refused.value.next_step


def test_making_a_ledger_twice_keeps_the_first(dsn: str) -> None:
    with open_ledger(dsn, create=True) as ledger:
        write(ledger, "a")
    with open_ledger(dsn, create=True) as ledger:
        assert ledger.head().revision == 1


def test_a_database_of_a_newer_version_is_refused_and_left_alone(dsn: str) -> None:
    filled(dsn, 3).close()
    with raw(dsn) as run:
        run("INSERT INTO plimsoll_schema VALUES (99)")
    for create in (False, True):
        with pytest.raises(Unavailable, match=f"version 99, this program knows up to {NOW}") as refused:
            open_store(dsn, create=create)
        assert refused.value.code == "database_too_new"
        assert refused.value.fields == {"found": 99, "known": NOW}
    with raw(dsn) as run:
        run("DELETE FROM plimsoll_schema WHERE version = 99")
    with open_ledger(dsn) as ledger:
        assert verify(ledger.store).events == 3


def test_a_database_with_other_tables_is_refused_and_left_alone(dsn: str) -> None:
    with raw(dsn) as run:
        run("CREATE TABLE customers (name TEXT)")
    for create in (False, True):
        with pytest.raises(Refused) as refused:
            open_store(dsn, create=create)
        assert refused.value.code == "not_a_ledger"
    with raw(dsn) as run:
        run("DROP TABLE customers")
    with open_ledger(dsn, create=True) as ledger:
        assert ledger.head().revision == 0


def test_a_version_table_without_a_version_is_not_a_ledger(dsn: str) -> None:
    with raw(dsn) as run:
        run("CREATE TABLE plimsoll_schema (version INTEGER PRIMARY KEY)")
    with pytest.raises(Refused) as refused:
        open_store(dsn, create=True)
    assert refused.value.code == "not_a_ledger"


def test_processes_that_make_a_ledger_at_once_all_get_it(new_dsn: Callable[[], str]) -> None:
    for _ in range(6):
        dsn, moment = new_dsn(), time.monotonic() + 0.2
        with ExitStack() as stack:
            children = [stack.enter_context(Child(create_at, dsn, moment)) for _ in range(4)]
            assert [child.hear() for child in children] == ["ready"] * 4
            assert [child.hear() for child in children] == [NOW] * 4
        with open_ledger(dsn) as ledger:
            write(ledger, "a")
            assert verify(ledger.store).is_whole


@pytest.mark.parametrize("look", ["schema_version", "is_empty"])
def test_a_ledger_that_another_makes_between_two_looks_is_taken_as_it_is(
    dsn: str, look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race of the test before, with the other process always at the worst moment: right after a look."""
    store_class: type[Store] = SqliteStore if dsn.startswith("sqlite") else PostgresStore
    looks = iter([True])

    def look_and_be_overtaken(store: Store) -> object:
        found = original(store)
        if next(looks, False):
            filled(dsn, 1).close()
        return found

    original = getattr(store_class, look)
    monkeypatch.setattr(store_class, look, look_and_be_overtaken)
    with open_ledger(dsn, create=True) as ledger:
        assert ledger.head().revision == 1


def _assert_is_old(dsn: str, count: int) -> None:
    """Everything works as before the migration that did not come to its end."""
    with open_ledger(dsn) as ledger:
        assert ledger.store.schema_version() == NOW
        assert not ledger.store.has_table("padding")
        write(ledger, "one more")
        assert (verify(ledger.store).is_whole, ledger.head().revision) == (True, count + 1)


def _assert_is_new(dsn: str, count: int) -> None:
    with closing(open_with(dsn, NEXT_TOO)) as store:
        assert store.schema_version() == NOW + 1
        assert store.run("SELECT count(*), max(number) FROM padding") == [(PADDING_ROWS, PADDING_ROWS)]
        write(Ledger(store), "one more")
        assert (verify(store).is_whole, store.head().revision) == (True, count + 1)


def test_an_old_database_is_migrated_and_its_events_survive(dsn: str) -> None:
    with filled(dsn, 5) as ledger:
        before = events_of(ledger)
    open_with(dsn, NEXT_TOO).close()
    with closing(open_with(dsn, NEXT_TOO, create=False)) as store:
        assert list(store.events()) == before
    _assert_is_new(dsn, 5)
    with pytest.raises(Unavailable) as refused:
        open_ledger(dsn)
    assert refused.value.code == "database_too_new"


def test_a_new_database_gets_all_migrations_at_once(dsn: str) -> None:
    open_with(dsn, NEXT_TOO).close()
    _assert_is_new(dsn, 0)


def test_a_migration_that_fails_half_way_leaves_the_old_version_working(dsn: str) -> None:
    filled(dsn, 5).close()
    with pytest.raises(PlimsollError, match="no_such_table"):
        open_with(dsn, (*MIGRATIONS, BROKEN))
    _assert_is_old(dsn, 5)
    open_with(dsn, NEXT_TOO).close()
    _assert_is_new(dsn, 6)


def test_a_first_migration_that_fails_leaves_an_empty_database(dsn: str) -> None:
    with pytest.raises(PlimsollError, match="no_such_table"):
        open_with(dsn, (*MIGRATIONS, BROKEN))
    with pytest.raises(NotFound):
        open_store(dsn)
    filled(dsn, 1).close()
    _assert_is_old(dsn, 1)


def test_a_migration_that_is_killed_leaves_the_old_version_or_the_new_one(new_dsn: Callable[[], str]) -> None:
    chance, started = new_chance(), time.monotonic()
    open_with(new_dsn(), NEXT_TOO).close()
    seconds = time.monotonic() - started
    dsn, count = "", 0
    for _ in range(12):
        if not dsn:
            dsn, count = new_dsn(), 3
            filled(dsn, count).close()
        with Child(migrate, dsn, NEXT_TOO) as child:
            child.hear()
            time.sleep(chance.uniform(0, seconds))
            child.kill()
        wait_until_alone(dsn)
        with raw(dsn) as run:
            ((version,),) = run("SELECT max(version) FROM plimsoll_schema")
        if version == NOW:
            _assert_is_old(dsn, count)
            count += 1
        else:
            _assert_is_new(dsn, count)
            dsn = ""
