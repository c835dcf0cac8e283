"""Builders for ledgers: a made-up change, its room in the state, drafts, and a way past the ledger with plain SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import psycopg

from plimsoll.ledger import Ledger, open_ledger
from plimsoll.ledger.model import Change, Draft, Event
from plimsoll.ledger.postgres import PostgresStore
from plimsoll.ledger.schema import Migration
from plimsoll.ledger.sqlite import SqliteStore
from plimsoll.ledger.store import Store
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import Kinds, Room, State, Tables
from plimsoll.state.table import Journal, Table
from tests.support.waiting import wait_until

MONDAY = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


class Noted(Change, frozen=True):
    """Somebody wrote something on a page."""

    kind: ClassVar[str] = "page.noted"

    page: str
    text: str = ""

    @property
    def subject(self) -> str:
        return f"page/{self.page}"


class Torn(Change, frozen=True):
    """A page was torn out."""

    kind: ClassVar[str] = "page.torn"

    page: str

    @property
    def subject(self) -> str:
        return f"page/{self.page}"


class Notes(Tables):
    """What stands on each page, and how many pages were ever torn out."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.pages: Table[str, tuple[str, ...]] = Table(journal)
        self.torn: Table[str, int] = Table(journal)

    def dump(self) -> bytes:
        return msgspec.msgpack.encode((sorted(self.pages.items()), sorted(self.torn.items())))

    def load(self, body: bytes) -> None:
        pages, torn = msgspec.msgpack.decode(body, type=tuple[list[tuple[str, tuple[str, ...]]], list[tuple[str, int]]])
        for page, lines in pages:
            self.pages.put(page, lines)
        for page, count in torn:
            self.torn.put(page, count)


def notes_room(version: int = 1) -> Room[Notes]:
    """The room of the pages."""
    room = Room("notes", version=version, tables=Notes)

    @room.folds_change(Noted)
    def _fold_noted(state: State, change: Noted, _event: Event) -> None:
        pages = state.of(Notes).pages
        pages.put(change.page, (*pages.get(change.page, ()), change.text))

    @room.folds_change(Torn)
    def _fold_torn(state: State, change: Torn, _event: Event) -> None:
        notes = state.of(Notes)
        if change.page in notes.pages:
            notes.pages.drop(change.page)
        notes.torn.put(change.page, notes.torn.get(change.page, 0) + 1)

    return room


KINDS = Kinds((notes_room(),))


def note(page: str = "a", text: str = "", **fields: Any) -> Draft:
    """A draft of a note; `reason` and `effective_at` where a test is about them."""
    return Draft(Noted(page, text), **fields)


def tear(page: str) -> Draft:
    return Draft(Torn(page))


def write(ledger: Ledger, *pages: str, read_at: int | None = None) -> list[Event]:
    """One commit with a note on each of these pages."""
    return ledger.commit([note(page) for page in pages], actor="tester", read_at=read_at)


def ticking(start: datetime = MONDAY, *, step: timedelta = timedelta(hours=1)) -> Callable[[], datetime]:
    """A clock that starts on a Monday at nine and moves on by an hour each time it is asked."""
    moments = (start + number * step for number in range(1_000_000))
    return lambda: next(moments)


def stopped(moment: datetime) -> Callable[[], datetime]:
    """A clock that stands still."""
    return lambda: moment


def filled(dsn: str, count: int) -> Ledger:
    """A ledger with so many commits of one event, an hour apart, on the pages p1, p2, …"""
    ledger = open_ledger(dsn, create=True, clock=ticking())
    for number in range(1, count + 1):
        ledger.commit([note(f"p{number}", "hello")], actor="tester", reason="a test", read_at=None)
    return ledger


def keeper_of(dsn: str, kinds: Kinds = KINDS) -> Keeper:
    return Keeper(open_ledger(dsn, create=True), kinds)


def fold_of(events: Iterable[Event], kinds: Kinds = KINDS) -> State:
    """The state that these events alone make."""
    state = State(kinds)
    state.apply_all(events)
    return state


def events_of(ledger: Ledger) -> list[Event]:
    return list(ledger.store.events())


def open_with(dsn: str, migrations: Sequence[Migration], *, create: bool = True) -> Store:
    """A store that knows other migrations than today's."""
    if dsn.startswith("sqlite"):
        return SqliteStore(str(sqlite_path(dsn)), create=create, migrations=migrations)
    return PostgresStore(dsn, create=create, migrations=migrations)


def sqlite_path(dsn: str) -> Path:
    return Path(dsn.removeprefix("sqlite:///"))


@contextmanager
def raw(dsn: str) -> Iterator[Callable[..., list[Any]]]:
    """The database without the ledger, as somebody with a SQL prompt has it. `?` stands for a value."""
    if dsn.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_path(dsn), isolation_level=None)) as file:
            yield lambda sql, *values: file.execute(sql, values).fetchall()
        return
    with psycopg.connect(dsn, autocommit=True) as server:

        def run(sql: str, *values: Any) -> list[Any]:
            cursor = server.execute(sql.replace("?", "%s").encode(), values or None)
            return cursor.fetchall() if cursor.description else []

        yield run


def wait_until_alone(dsn: str) -> None:
    """On a server, a killed client's backend may still be at its last statement: what it commits then comes late.

    A file has no backend: there a killed process is gone with all it was doing.
    """
    if dsn.startswith("sqlite"):
        return
    with raw(dsn) as run:
        count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        wait_until(lambda: run(count) == [(0,)], what="the other connections are gone")
