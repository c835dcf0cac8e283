"""The ledger in one SQLite file: WAL, `synchronous=FULL`, and BEGIN IMMEDIATE for every write.

(A transaction that reads first and then writes fails at once under WAL when another wrote in between; so no write
transaction here begins any other way.)
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from plimsoll.errors import NotFound, PlimsollError, Refused, Unavailable
from plimsoll.ledger.chain import SEPARATOR
from plimsoll.ledger.model import Event
from plimsoll.ledger.schema import MIGRATIONS, VERSION_TABLE, Migration
from plimsoll.ledger.store import EVENT_COLUMNS, Leadership, Row, Store, table_missing

IN_MEMORY = ":memory:"
BUSY_SECONDS_MAX = 30.0
READONLY_SECONDS_MAX = 3.0
CACHE_KIB = 8_192
"""What each open database keeps of its file: a server has several open, for months."""
CACHE_KIB_OF_MANY = 65_536
"""While very many events are written, so that an import's pages are written once and not spilled again and again."""
MANY_EVENTS = 1_000
Signs = tuple[int, int, int]
INSERT_EVENT = f"INSERT INTO events ({EVENT_COLUMNS}) VALUES ({', '.join('?' * len(Event._fields))})"


class SqliteStore(Store):
    """A SQLite file as a store."""

    types = {"bigint": "INTEGER", "blob": "BLOB"}

    def __init__(self, path: str, *, create: bool, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self.path = Path(path)
        self._frozen_signs: Signs | None = None
        self._is_readonly = self._is_wide = False
        self._led: set[str] = set()
        """The roles that are led in a database in memory: nobody else can see it, and no file must be left for it."""
        try:
            self._connection = self._open(create=create)
            super().__init__(f"sqlite:///{path}", create=create, migrations=migrations)
        except sqlite3.Error as error:
            raise _translate(error, path) from error

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        with self.lock:
            try:
                if self._frozen_signs is not None and self._frozen_signs != _signs(self.path):
                    self._reopen_readonly()
                return _fetch(self._connection, sql, parameters)
            except sqlite3.Error as error:
                if not self._is_readonly:
                    raise _translate(error, str(self.path)) from error
            # The last writer may have ended and taken its log away under us: look at the file anew.
            try:
                self._reopen_readonly()
                return _fetch(self._connection, sql, parameters)
            except sqlite3.Error as error:
                raise _translate(error, str(self.path)) from error

    def _reopen_readonly(self) -> None:
        self._connection.close()
        self._connection = self._open_readonly()

    def _open(self, *, create: bool) -> sqlite3.Connection:
        try:
            _check_path(self.path, create=create)
        except OSError as error:  # a name that is too long, a folder we may not look into
            raise _not_looked_at(self.path, error) from error
        if self.path.exists() and not os.access(self.path, os.W_OK):
            return self._open_readonly()
        connection = _connect(self.path)
        try:
            _set_up(connection, create=create)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_readonly(self) -> sqlite3.Connection:
        """A file we may not write: read it. Without a log beside it nobody writes it, and it needs no lock files.

        Read that way SQLite never looks whether the file changed, so we do, before every statement.
        """
        self._is_readonly = True
        deadline = time.monotonic() + READONLY_SECONDS_MAX
        while True:
            signs = _signs(self.path)
            is_written = signs[-1] > 0
            self._frozen_signs = None if is_written else signs
            try:
                return _connect(self.path, "mode=ro" if is_written else "mode=ro&immutable=1")
            except sqlite3.OperationalError:
                # A writer comes or goes right now: its log is there and its lock file is not, or the other way round.
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.02)

    def begin(self) -> None:
        self.run("BEGIN IMMEDIATE")

    def commit(self) -> None:
        try:
            self.run("COMMIT")
        except PlimsollError:
            self.rollback()
            raise
        self._narrow()

    def rollback(self) -> None:
        # After a full disk or an I/O error SQLite has rolled back already.
        if self._connection.in_transaction:
            with suppress(PlimsollError):
                self.run("ROLLBACK")
        self._narrow()

    def _narrow(self) -> None:
        """After many events were written: their pages are let go of."""
        if self._is_wide:
            with suppress(PlimsollError):
                self.run(f"PRAGMA cache_size = -{CACHE_KIB}")
                self.run("PRAGMA shrink_memory")
                self._is_wide = False

    def insert_events(self, events: Sequence[Event]) -> None:
        if len(events) > MANY_EVENTS and not self._is_wide:
            self.run(f"PRAGMA cache_size = -{CACHE_KIB_OF_MANY}")
            self._is_wide = True
        with self.lock:
            try:
                self._connection.executemany(INSERT_EVENT, map(tuple, events))  # plain tuples are bound faster
            except sqlite3.Error as error:
                raise _translate(error, str(self.path)) from error

    def has_table(self, name: str) -> bool:
        return bool(self.run("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)))

    def is_empty(self) -> bool:
        return not self.run("SELECT 1 FROM sqlite_master LIMIT 1")

    def lock_schema(self) -> None:
        """BEGIN IMMEDIATE has locked it."""

    def lead(self, name: str, role: str = "") -> Leadership | None:
        if str(self.path) == IN_MEMORY:
            if role in self._led:
                return None
            self._led.add(role)
            return _OwnLeadership(self._led, role, self.next_epoch(name, role))
        path = f"{self.path}.{role}.leader" if role else f"{self.path}.leader"
        try:
            leadership = _FileLeadership(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        except OSError as error:
            what, next_step = f"{path} can't be written ({error.strerror})", "look at the rights of the folder"
            raise Unavailable("database_read_only", what, next_step=next_step) from error
        try:
            if leadership.take():
                leadership.epoch = self.next_epoch(name, role)
                return leadership
        except BaseException:
            leadership.resign()
            raise
        leadership.resign()
        return None

    def close(self) -> None:
        with self.lock:
            self._connection.close()


class _OwnLeadership(Leadership):
    """The lead in a database that is in this process alone."""

    def __init__(self, led: set[str], role: str, epoch: int) -> None:
        self._led, self._role, self.epoch = led, role, epoch
        self._is_held = True

    def is_held(self) -> bool:
        return self._is_held

    def resign(self) -> None:
        if self._is_held:
            self._is_held = False
            self._led.discard(self._role)


class _FileLeadership(Leadership):
    """A lock on a file beside the database: the system frees it when the process ends, however it ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def take(self) -> bool:
        """Lock the file, unless somebody has."""
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_held(self) -> bool:
        # A file that was removed locks nobody out any more.
        return self._descriptor is not None and os.fstat(self._descriptor).st_nlink > 0

    def resign(self) -> None:
        if self._descriptor is not None:
            # A child that was forked meanwhile has the file open too: closing alone would leave it locked.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None


def _not_looked_at(path: Path, error: OSError) -> Unavailable:
    return Unavailable(
        "database_not_opened",
        f"{str(path)[:200]} can't be opened ({error.strerror})",
        next_step="look at the rights of the file and its folder, or give another file with --db",
    )


def _check_path(path: Path, *, create: bool) -> None:
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


def _set_up(connection: sqlite3.Connection, *, create: bool) -> None:
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    # The log is a property of the file: somebody else's is left as it is, and a missing one is not half made.
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if VERSION_TABLE in tables or (create and not tables):
        _use_log(connection)


def _use_log(connection: sqlite3.Connection) -> None:
    """Switch to WAL. SQLite does not wait for the lock that this takes, so we do: another may be making the file."""
    deadline = time.monotonic() + BUSY_SECONDS_MAX
    while True:
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _signs(path: Path) -> Signs:
    """By what one sees from outside that a database was written to: its file's time and size, and its log's size."""
    try:
        file, log = path.stat(), Path(f"{path}-wal")
        return file.st_mtime_ns, file.st_size, log.stat().st_size if log.exists() else 0
    except OSError as error:
        raise sqlite3.OperationalError(f"{error.strerror}") from error


def _connect(path: Path, options: str = "") -> sqlite3.Connection:
    uri = f"file:{quote(str(path))}?{options}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS_MAX, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _fetch(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> list[Row]:
    try:
        return connection.execute(sql, parameters).fetchall()
    except sqlite3.OperationalError as error:
        if "decode to UTF-8" not in str(error):
            raise
    # Bytes that are no text, so not ours: an audit must be able to name the row.
    connection.text_factory = _marked_text
    try:
        return connection.execute(sql, parameters).fetchall()
    finally:
        connection.text_factory = str


def _marked_text(stored: bytes) -> str:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        # No field that was sealed holds the separator, so this one is never taken for whole.
        return SEPARATOR + stored.decode("utf-8", "backslashreplace")


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
    if "no such table" in str(error):
        return table_missing(path, str(error))
    for known, (code, what, next_step) in _MEANING.items():
        if name == known or name.startswith(f"{known}_"):
            return Unavailable(code, f"{path} {what} ({error})", next_step=next_step, path=path)
    return Unavailable("database_error", f"{path}: {error}", next_step="plimsoll audit verify")
