"""What the ledger asks of a database, with the SQL that both have in common.

A store is safe to share between threads: one connection, one lock, and long reads go page by page. Statements are
written with `?`; the PostgreSQL store translates. Nothing here decides anything about events.
"""

from __future__ import annotations

import abc
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from plimsoll.errors import NotFound, Refused, Tampered, Unavailable
from plimsoll.ledger.model import Event, EventFilter, Head, Paper, Snapshot
from plimsoll.ledger.schema import MIGRATIONS, VERSION_TABLE, Migration
from plimsoll.times import format_time

Row = tuple[Any, ...]

EVENT_COLUMNS = ", ".join(Event._fields)
PAPER_COLUMNS = ", ".join(Paper._fields)
READ_PAGE_ROWS = 5_000
POLL_SECONDS = 0.2
CURSORS_PER_STATEMENT = 400

CursorChange = Callable[[dict[tuple[str, str], str]], Mapping[tuple[str, str], str | None]]
"""From the cursors that were found to those that are to be written."""


class Store(abc.ABC):
    """One database. Subclasses say how to connect, begin, insert many rows, and what a driver's error means."""

    types: dict[str, str]
    connections = 1
    """How many there were, one after the other: on a new one another copy of the database may answer."""

    def __init__(self, dsn: str, *, create: bool, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self.dsn = dsn
        self.lock = threading.RLock()
        self._migrations = migrations
        try:
            self._migrate_if_needed(create=create)
        except BaseException:
            self.close()
            raise

    # What differs between databases.

    @abc.abstractmethod
    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run one statement on the one connection and return its rows; driver errors come out as ours."""

    @abc.abstractmethod
    def begin(self) -> None:
        """Begin a write transaction that no other writer can enter."""

    @abc.abstractmethod
    def commit(self) -> None: ...

    @abc.abstractmethod
    def rollback(self) -> None: ...

    @abc.abstractmethod
    def insert_events(self, events: Sequence[Event]) -> None: ...

    @abc.abstractmethod
    def has_table(self, name: str) -> bool: ...

    @abc.abstractmethod
    def is_empty(self) -> bool:
        """Whether the database holds no table at all: only then may we move in."""

    @abc.abstractmethod
    def lock_schema(self) -> None:
        """Keep two processes from migrating at once; called inside the transaction."""

    @abc.abstractmethod
    def lead(self, name: str, role: str = "") -> Leadership | None:
        """Take the lead in a role if nobody has it. The lead ends with the process, however it ends."""

    @abc.abstractmethod
    def close(self) -> None: ...

    # Transactions.

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One write transaction: kept whole or not at all."""
        with self.lock:
            self.begin()
            try:
                yield
            except BaseException:
                self.rollback()
                raise
            self.commit()

    # The schema.

    def schema_version(self) -> int:
        """0 for an empty database."""
        if not self.has_table(VERSION_TABLE):
            return 0
        return int(self.run(f"SELECT coalesce(max(version), 0) FROM {VERSION_TABLE}")[0][0])

    def _usable_version(self) -> int:
        """The schema's version, if it is one that we may use or migrate."""
        # Asked before the version: another process may be making the ledger right now, tables and version at once.
        is_empty = self.is_empty()
        newest, found = len(self._migrations), self.schema_version()
        if found > newest:
            raise Unavailable(
                "database_too_new",
                f"the database has schema version {found}, this program knows up to {newest}",
                next_step="upgrade plimsoll, or open another database with --db",
                found=found,
                known=newest,
            )
        if found == 0 and not is_empty and self.has_table("ledger_head"):
            raise table_missing(self.dsn, VERSION_TABLE)
        if found == 0 and not is_empty:
            raise Refused(
                "not_a_ledger",
                f"{self.dsn} holds other tables and no ledger",
                next_step="give an empty database or a new file with --db",
            )
        return found

    def _migrate_if_needed(self, *, create: bool) -> None:
        newest, found = len(self._migrations), self._usable_version()
        if found == newest:
            return
        if found == 0 and not create:
            raise NotFound(
                "no_database",
                f"there is no ledger in {self.dsn}",
                next_step="plimsoll demo (the demo fleet), plimsoll fleet import DIR (yours), or another --db URL",
            )
        with self.transaction():
            self.lock_schema()
            for version in range(self._usable_version(), newest):
                if version == 0:
                    self.run(f"CREATE TABLE {VERSION_TABLE} (version INTEGER PRIMARY KEY)")
                for statement in self._migrations[version]:
                    self.run(statement.format(**self.types))
                self.run(f"INSERT INTO {VERSION_TABLE} VALUES (?)", (version + 1,))

    # The head and the lead.

    def head(self) -> Head:
        revision, digest, recorded_at = self._head_row("SELECT revision, hash, recorded_at FROM ledger_head")
        return Head(revision, digest, recorded_at)

    def _head_row(self, sql: str) -> Row:
        rows = self.run(sql)
        if rows and isinstance(rows[0][0], int):
            return rows[0]
        raise Tampered(
            "no_head",
            f"{self.dsn} has no row any more that says where its chain ends",
            next_step="restore a copy, then: plimsoll audit verify --head REV:HASH",
        )

    def locked_head(self) -> tuple[Head, int]:
        """The head and the leader's epoch, inside a transaction that holds both still."""
        revision, digest, recorded_at, epoch = self._head_row(self.locked_head_sql)
        return Head(revision, digest, recorded_at), epoch

    locked_head_sql = "SELECT revision, hash, recorded_at, epoch FROM ledger_head"

    def set_head(self, head: Head) -> None:
        self.run("UPDATE ledger_head SET revision = ?, hash = ?, recorded_at = ?", head)

    def next_epoch(self, leader: str, role: str = "") -> int:
        """Begin a new leader's time: every commit of the one before in that role is refused from here on."""
        with self.transaction():
            _, epoch = self.locked_head()
            self.run("UPDATE ledger_head SET epoch = ?, leader = ?", (epoch + 1, leader))
            self.run("DELETE FROM leaders WHERE role = ?", (role,))
            self.run("INSERT INTO leaders VALUES (?, ?, ?)", (role, epoch + 1, leader))
        return epoch + 1

    def leader(self, role: str = "") -> tuple[int, str]:
        """The newest epoch of a role and who has or had it."""
        rows = self.run("SELECT epoch, leader FROM leaders WHERE role = ?", (role,))
        return (rows[0][0], rows[0][1]) if rows else (0, "")

    def is_current(self, epoch: int) -> bool:
        """Whether an epoch is the newest of its role."""
        return bool(self.run("SELECT 1 FROM leaders WHERE epoch = ?", (epoch,)))

    # Events.

    def wait_for_change(self, after: int, *, seconds_max: float) -> bool:
        """Sleep until the head is past a revision, or the time is over; say which."""
        deadline = time.monotonic() + seconds_max
        while self.head().revision <= after:
            if (left := deadline - time.monotonic()) <= 0:
                return False
            time.sleep(min(POLL_SECONDS, left))
        return True

    def events(self, *, after: int = 0, until: int | None = None, where: EventFilter | None = None) -> Iterator[Event]:
        """Events in order, revision > after and <= until, read page by page."""
        conditions, values = _conditions(where or EventFilter())
        if until is not None:
            conditions.append("revision <= ?")
            values.append(until)
        sql = (
            f"SELECT {EVENT_COLUMNS} FROM events WHERE {' AND '.join(['revision > ?', *conditions])}"
            f" ORDER BY revision LIMIT {READ_PAGE_ROWS}"
        )
        while True:
            page = self.run(sql, (after, *values))
            yield from map(Event._make, page)
            if len(page) < READ_PAGE_ROWS:
                return
            after = page[-1][0]

    def last_events(self, count: int, *, until: int | None = None, where: EventFilter | None = None) -> list[Event]:
        """The newest matching events, oldest first."""
        conditions, values = _conditions(where or EventFilter())
        if until is not None:
            conditions.append("revision <= ?")
            values.append(until)
        sql = f"SELECT {EVENT_COLUMNS} FROM events"
        if conditions:
            sql += f" WHERE {' AND '.join(conditions)}"
        rows = self.run(f"{sql} ORDER BY revision DESC LIMIT ?", (*values, count))
        return [Event._make(row) for row in reversed(rows)]

    def event_count(self) -> int:
        return int(self.run("SELECT count(*) FROM events")[0][0])

    def event_at(self, revision: int) -> Event | None:
        rows = self.run(f"SELECT {EVENT_COLUMNS} FROM events WHERE revision = ?", (revision,))
        return Event._make(rows[0]) if rows else None

    def subjects_after(self, revision: int) -> list[tuple[str, int]]:
        """The streams that moved after a revision, each with its newest revision."""
        sql = "SELECT subject, max(revision) FROM events WHERE revision > ? GROUP BY subject"
        return [(subject, newest) for subject, newest in self.run(sql, (revision,))]

    # Snapshots.

    def snapshot_revisions(self, fold_version: str) -> list[int]:
        sql = "SELECT revision FROM snapshots WHERE fold_version = ? ORDER BY revision"
        return [revision for (revision,) in self.run(sql, (fold_version,))]

    def snapshot_anchors(self) -> list[tuple[int, str]]:
        """Each snapshot's revision and the chain's hash it was taken at."""
        return [(revision, digest) for revision, digest in self.run("SELECT revision, hash FROM snapshots")]

    def snapshot_at(self, revision: int) -> Snapshot | None:
        rows = self.run("SELECT revision, fold_version, hash, body FROM snapshots WHERE revision = ?", (revision,))
        return Snapshot._make(rows[0]) if rows else None

    def save_snapshot(self, snapshot: Snapshot, *, keep: Callable[[list[int]], set[int]]) -> None:
        """Save one, and drop those of other fold versions and those that `keep` leaves out."""
        with self.transaction():
            self.run("DELETE FROM snapshots WHERE revision = ?", (snapshot.revision,))
            self.run("INSERT INTO snapshots VALUES (?, ?, ?, ?)", snapshot)
            self.run("DELETE FROM snapshots WHERE fold_version <> ?", (snapshot.fold_version,))
            revisions = self.snapshot_revisions(snapshot.fold_version)
            kept = keep(revisions)
            for revision in revisions:
                if revision not in kept:
                    self.run("DELETE FROM snapshots WHERE revision = ?", (revision,))

    # Cursors.

    def cursors(self, scopes: Sequence[str]) -> dict[tuple[str, str], str]:
        """All cursors of these scopes, by scope and name."""
        found: dict[tuple[str, str], str] = {}
        for start in range(0, len(scopes), CURSORS_PER_STATEMENT):
            some = scopes[start : start + CURSORS_PER_STATEMENT]
            marks = ", ".join("?" * len(some))
            rows = self.run(f"SELECT scope, name, value FROM cursors WHERE scope IN ({marks})", some)
            found.update(((scope, name), value) for scope, name, value in rows)
        return found

    def cursor_scopes(self) -> list[str]:
        """Every scope that has a cursor."""
        return [scope for (scope,) in self.run("SELECT DISTINCT scope FROM cursors ORDER BY scope")]

    def update_cursors(self, scopes: Sequence[str], change: CursorChange) -> None:
        """Read the cursors of these scopes and write what `change` makes of them; None drops one.

        No other writer comes in between: it holds the one lock that all of them take.
        """
        with self.transaction():
            self.locked_head()
            values = sorted(change(self.cursors(scopes)).items())
            kept = [(scope, name, value) for (scope, name), value in values if value is not None]
            for start in range(0, len(kept), CURSORS_PER_STATEMENT):
                some = kept[start : start + CURSORS_PER_STATEMENT]
                self.run(
                    f"INSERT INTO cursors VALUES {', '.join(['(?, ?, ?)'] * len(some))}"
                    " ON CONFLICT (scope, name) DO UPDATE SET value = excluded.value",
                    [text for row in some for text in row],
                )
            for key, value in values:
                if value is None:
                    self.run("DELETE FROM cursors WHERE scope = ? AND name = ?", key)

    # Papers. Each act is one transaction, so that of several who want the same one exactly one gets it.

    def keep_paper(self, paper: Paper) -> None:
        """Write one, in place of the one that has its name."""
        with self.transaction():
            self.run(
                "INSERT INTO papers VALUES (?, ?, ?, ?) ON CONFLICT (kind, id)"
                " DO UPDATE SET expires_at = excluded.expires_at, body = excluded.body",
                paper,
            )

    def add_paper(self, paper: Paper, *, now: datetime | None = None) -> bool:
        """Write one unless there is one with its name; say whether it was written.

        One that is over is in the way too, unless it is said what time it is: then it is replaced.
        """
        what, more = "NOTHING", tuple[str, ...]()
        if now is not None:
            what = "UPDATE SET expires_at = excluded.expires_at, body = excluded.body"
            what += " WHERE papers.expires_at <> '' AND papers.expires_at <= ?"
            more = (format_time(now),)
        with self.transaction():
            sql = f"INSERT INTO papers VALUES (?, ?, ?, ?) ON CONFLICT (kind, id) DO {what} RETURNING 1"
            return bool(self.run(sql, (*paper, *more)))

    def swap_paper(self, old: Paper, new: Paper | None) -> bool:
        """Inside a transaction: write one in place of exactly this one, or drop it; say whether it was still there."""
        where, which = "kind = ? AND id = ? AND body = ?", (old.kind, old.id, old.body)
        if new is None:
            return bool(self.run(f"DELETE FROM papers WHERE {where} RETURNING 1", which))
        sql = f"UPDATE papers SET expires_at = ?, body = ? WHERE {where} RETURNING 1"
        return bool(self.run(sql, (new.expires_at, new.body, *which)))

    def paper(self, kind: str, id: str) -> Paper | None:  # noqa: A002
        """The one with this name, also when it is over."""
        rows = self.run(f"SELECT {PAPER_COLUMNS} FROM papers WHERE kind = ? AND id = ?", (kind, id))
        return Paper._make(rows[0]) if rows else None

    def take_paper(self, kind: str, id: str) -> Paper | None:  # noqa: A002
        """Read one and drop it: of several who take it at once one gets it."""
        with self.transaction():
            rows = self.run(f"DELETE FROM papers WHERE kind = ? AND id = ? RETURNING {PAPER_COLUMNS}", (kind, id))
        return Paper._make(rows[0]) if rows else None

    def drop_paper(self, kind: str, id: str) -> bool:  # noqa: A002
        """Drop one; say whether it was there."""
        return self.take_paper(kind, id) is not None

    def papers(self, kind: str) -> list[Paper]:
        """All of a kind, also those that are over, by id."""
        sql = f"SELECT {PAPER_COLUMNS} FROM papers WHERE kind = ?"
        return sorted(Paper._make(row) for row in self.run(sql, (kind,)))

    def drop_expired(self, now: datetime) -> int:
        """Drop all papers whose time is over; say how many. They must not work before this either."""
        with self.transaction():
            sql = "DELETE FROM papers WHERE expires_at <> '' AND expires_at <= ? RETURNING 1"
            return len(self.run(sql, (format_time(now),)))


class Leadership(abc.ABC):
    """The lead, held by this process. `epoch` goes with every commit and outside call made as the leader."""

    epoch: int

    @abc.abstractmethod
    def is_held(self) -> bool:
        """Whether the lead is still ours, asked of the one who gives it."""

    @abc.abstractmethod
    def resign(self) -> None: ...


def table_missing(where: str, what: str) -> Tampered:
    """One of our own tables is gone: we never drop one."""
    return Tampered(
        "table_missing",
        f"{where} has lost a table ({what})",
        next_step="restore a copy, then: plimsoll audit verify --head REV:HASH",
    )


def _conditions(where: EventFilter) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    for column in ("subject", "actor", "kind"):
        wanted: str = getattr(where, column)
        if wanted.endswith("*"):
            prefix = wanted[:-1]
            # `starts with` that is exact in both databases, whatever the collation and whatever `%` and `_` mean.
            conditions.append(f"substr({column}, 1, {len(prefix)}) = ?")
            values.append(prefix)
        elif wanted:
            conditions.append(f"{column} = ?")
            values.append(wanted)
    if where.recorded_from:
        conditions.append("recorded_at >= ?")
        values.append(where.recorded_from)
    if where.recorded_until:
        conditions.append("recorded_at <= ?")
        values.append(where.recorded_until)
    return conditions, values
