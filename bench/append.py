"""Appending events, validated and chained, against a bare insert of the very same rows into the same database."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from tests.support.postgres import PrivatePostgres, find_binaries

from bench.figures import Figure, Times, alternate, compare
from plimsoll.fleet.model import Service
from plimsoll.health.changes import NodeHistory
from plimsoll.ledger import Ledger, open_ledger
from plimsoll.ledger.model import Draft
from plimsoll.ledger.postgres import PostgresStore
from plimsoll.ledger.sqlite import SqliteStore

BULK_EVENTS = 100_000
SINGLE_COMMITS = 500
RUNS = 5
COLUMNS = (
    "revision {bigint} PRIMARY KEY, recorded_at TEXT NOT NULL, effective_at TEXT NOT NULL, actor TEXT NOT NULL,"
    " kind TEXT NOT NULL, subject TEXT NOT NULL, reason TEXT NOT NULL, payload TEXT NOT NULL,"
    " prev_hash TEXT NOT NULL, hash TEXT NOT NULL"
)


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as folder, databases(Path(folder)) as dsns:
        return [figure for name, dsn in dsns.items() for figure in _measure(name, dsn)]


@contextmanager
def databases(folder: Path) -> Iterator[dict[str, str]]:
    """A SQLite file, and a private PostgreSQL where it is installed."""
    dsns = {"SQLite": f"sqlite:///{folder}/bench.db"}
    if (binaries := find_binaries()) is None:
        yield dsns
        return
    server = PrivatePostgres(binaries)
    try:
        server.start()
        yield dsns | {"PostgreSQL": server.new_database()}
    finally:
        server.stop()


def drafts(number: int) -> list[Draft]:
    """Transitions of nodes, as an import of history brings them."""
    moment = datetime(2026, 1, 5, tzinfo=UTC)
    return [Draft(NodeHistory(f"tiger-{i % 18_500:05d}", Service.REPAIR, "xid 79"), "", moment) for i in range(number)]


def _measure(name: str, dsn: str) -> list[Figure]:
    with open_ledger(dsn, create=True) as ledger:
        tables = (f"bare_{number}" for number in count())
        bulk, one = drafts(BULK_EVENTS), drafts(1)
        rows = [tuple(event) for event in ledger.commit(bulk, actor="bench", reason="bench", read_at=None)]
        single_table = _bare_table(ledger, next(tables))

        def commit_bulk() -> None:
            ledger.commit(bulk, actor="bench", reason="bench", read_at=None)

        def commit_singly() -> None:
            for _ in range(SINGLE_COMMITS):
                ledger.commit(one, actor="bench", reason="bench", read_at=ledger.head().revision)

        def insert_bulk() -> None:
            _insert(ledger, bare.pop(), rows)

        bare = [_bare_table(ledger, next(tables)) for _ in range(RUNS)]
        ours, baseline = alternate(RUNS, commit_bulk, insert_bulk)
        figures = [compare(f"{name}: bulk append", f"{BULK_EVENTS:,} events", ours, baseline, at_most=5)]
        numbers = count(1)
        ours, baseline = alternate(RUNS, commit_singly, lambda: _insert_singly(ledger, single_table, rows, numbers))
        per = [Times(tuple(run / SINGLE_COMMITS for run in times.runs)) for times in (ours, baseline)]
        figures.append(compare(f"{name}: single commit", f"{SINGLE_COMMITS} commits", per[0], per[1], at_most=2))
        return figures


def _bare_table(ledger: Ledger, name: str) -> str:
    ledger.store.run(f"CREATE TABLE {name} ({COLUMNS.format(**ledger.store.types)})")
    return name


def _insert(ledger: Ledger, table: str, rows: Sequence[tuple[object, ...]]) -> None:
    """A bare `executemany` through the driver, in one transaction."""
    store = ledger.store
    with store.transaction():
        if isinstance(store, SqliteStore):
            store._connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * 10)})", rows)
        elif isinstance(store, PostgresStore):
            sql: Callable[[], str] = lambda: f"INSERT INTO {table} VALUES ({', '.join(['%s'] * 10)})"  # noqa: E731
            store._connection.cursor().executemany(sql().encode(), rows)


def _insert_singly(ledger: Ledger, table: str, rows: Sequence[tuple[object, ...]], numbers: Iterator[int]) -> None:
    store = ledger.store
    sql = f"INSERT INTO {table} VALUES ({', '.join('?' * 10)})"
    for row in rows[:SINGLE_COMMITS]:
        store.begin()
        store.run(sql, (next(numbers), *row[1:]))
        store.commit()
