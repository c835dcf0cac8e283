"""The ledger in one SQLite file: WAL, `synchronous=FULL`, and BEGIN IMMEDIATE for every write.

(A transaction that reads first and then writes fails at once under WAL when another wrote in between; so no write
transaction here begins any other way.)
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from plimsoll.errors import NotFound, PlimsollError, Refused, Unavailable
from plimsoll.ledger.model import Event
from plimsoll.ledger.schema import MIGRATIONS, Migration
from plimsoll.ledger.store import Leadership, Row, Store

BUSY_SECONDS_MAX = 30.0
CACHE_KIB = 65_536
"""So that an import's pages are written once and not spilled again and again."""
INSERT_EVENT = f"INSERT INTO events VALUES ({', '.join('?' * len(Event._fields))})"


class SqliteStore(Store):
    """A SQLite file as a store."""

    types = {"bigint": "INTEGER", "blob": "BLOB"}

    def __init__(self, path: str, *, create: bool, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self.path = Path(path)
        try:
            self._connection = _open(self.path, create=create)
            super().__init__(f"sqlite:///{path}", migrations)
        except sqlite3.Error as error:
            raise _translate(error, path) from error

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        with self.lock:
            try:
                return self._connection.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise _translate(error, str(self.path)) from error

    def begin(self) -> None:
        self.run("BEGIN IMMEDIATE")

    def commit(self) -> None:
        try:
            self.run("COMMIT")
        except PlimsollError:
            self.rollback()
            raise

    def rollback(self) -> None:
        # After a full disk or an I/O error SQLite has rolled back already.
        if self._connection.in_transaction:
            with suppress(PlimsollError):
                self.run("ROLLBACK")

    def insert_events(self, events: Sequence[Event]) -> None:
        with self.lock:
            try:
                self._connection.executemany(INSERT_EVENT, events)
            except sqlite3.Error as error:
                raise _translate(error, str(self.path)) from error

    def has_table(self, name: str) -> bool:
        return bool(self.run("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)))

    def is_empty(self) -> bool:
        return not self.run("SELECT 1 FROM sqlite_master LIMIT 1")

    def lock_schema(self) -> None:
        """BEGIN IMMEDIATE has locked it."""

    def lead(self, name: str) -> Leadership | None:
        descriptor = os.open(f"{self.path}.leader", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return _FileLeadership(descriptor, self.next_epoch(name))

    def close(self) -> None:
        with self.lock:
            self._connection.close()


class _FileLeadership(Leadership):
    """A lock on a file beside the database: the system frees it when the process ends, however it ends."""

    def __init__(self, descriptor: int, epoch: int) -> None:
        self._descriptor: int | None = descriptor
        self.epoch = epoch

    def is_held(self) -> bool:
        return self._descriptor is not None

    def resign(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _open(path: Path, *, create: bool) -> sqlite3.Connection:
    if path.is_dir():
        raise Refused("not_a_file", f"{path} is a directory, not a database file", next_step=f"--db {path}/plimsoll.db")
    if not path.exists():
        if not create:
            raise NotFound(
                "no_database",
                f"there is no database at {path}",
                next_step="plimsoll demo (the demo fleet), plimsoll fleet import DIR (yours), or another --db URL",
                path=str(path),
            )
        if not path.parent.is_dir():
            raise NotFound(
                "no_directory",
                f"there is no directory {path.parent} to make {path.name} in",
                next_step=f"mkdir -p {path.parent}",
            )
    elif not os.access(path, os.W_OK):
        return _open_readonly(path)
    connection = _connect(f"file:{quote(str(path))}")
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    return connection


def _open_readonly(path: Path) -> sqlite3.Connection:
    """A file we may not write: read it. Without a log beside it nobody writes it, and it needs no lock files."""
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size:
        return _connect(f"file:{quote(str(path))}?mode=ro")
    return _connect(f"file:{quote(str(path))}?mode=ro&immutable=1")


def _connect(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS_MAX, isolation_level=None, check_same_thread=False)
    connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    return connection


_MEANING = {
    "SQLITE_READONLY": ("database_read_only", "can't be written", "give yourself the right to write it and its folder"),
    "SQLITE_FULL": ("disk_full", "has no room left to grow", "free some disk; nothing of this change was kept"),
    "SQLITE_IOERR": ("disk_error", "can't be read or written", "look at the disk; nothing of this change was kept"),
    "SQLITE_CANTOPEN": ("database_not_opened", "can't be opened", "look at the rights of the file and its folder"),
    "SQLITE_PERM": ("database_not_opened", "can't be opened", "look at the rights of the file and its folder"),
    "SQLITE_NOTADB": ("not_a_database", "is not a SQLite database", "give another file with --db"),
    "SQLITE_CORRUPT": ("database_corrupt", "is damaged", "restore a copy, then: plimsoll audit verify --head REV:HASH"),
    "SQLITE_BUSY": ("database_busy", f"stayed locked for {BUSY_SECONDS_MAX:.0f} s", "try again"),
}


def _translate(error: sqlite3.Error, path: str) -> PlimsollError:
    name = getattr(error, "sqlite_errorname", "")
    for known, (code, what, next_step) in _MEANING.items():
        if name == known or name.startswith(f"{known}_"):
            return Unavailable(code, f"{path} {what} ({error})", next_step=next_step, path=path)
    return Unavailable("database_error", f"{path}: {error}", next_step="plimsoll audit verify")
