"""The ledger in PostgreSQL: for production, with several processes of which one leads.

A writer locks the one row of `ledger_head` first, so revisions are given in the order of the commits and a reader can
never see a gap. The lead is an advisory lock of a connection of its own: it ends when that connection does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import conninfo, errors

from plimsoll.errors import NotFound, PlimsollError, Unavailable
from plimsoll.ledger.model import Event
from plimsoll.ledger.schema import MIGRATIONS, Migration
from plimsoll.ledger.store import EVENT_COLUMNS, Leadership, Row, Store

CONNECTION_DEFAULTS = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""So that a server that vanished is noticed in seconds; the URL may say otherwise."""
COPY_ROWS_MIN = 20
"""From this many rows on, COPY is faster than INSERT."""
LOCK_KEY = 0x504C494D
"""The first half of our advisory locks' key ("PLIM"); the second is the schema's name."""

Connection = psycopg.Connection[Row]


class PostgresStore(Store):
    """A PostgreSQL database as a store."""

    types = {"bigint": "BIGINT", "blob": "BYTEA"}
    locked_head_sql = "SELECT revision, hash, recorded_at, epoch FROM ledger_head FOR UPDATE"

    def __init__(self, dsn: str, *, create: bool, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self._dsn_with_password = dsn
        self._in_transaction = False
        self._connection = _connect(dsn)
        self._create = create
        super().__init__(_without_password(dsn), migrations)

    def _migrate_if_needed(self) -> None:
        if not self._create and self.schema_version() == 0:
            self.close()
            raise NotFound(
                "no_database",
                f"there is no ledger in {self.dsn}",
                next_step="plimsoll demo (the demo fleet) or plimsoll fleet import DIR (yours)",
            )
        super()._migrate_if_needed()

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        with self.lock:
            connection = self._live_connection()
            try:
                cursor = connection.execute(_with_percent(sql), parameters)
                return cursor.fetchall() if cursor.description else []
            except psycopg.Error as error:
                raise _translate(error, self.dsn) from error

    def _live_connection(self) -> Connection:
        """The connection, made anew after a loss, but never in the middle of a transaction."""
        if self._connection.closed and not self._in_transaction:
            self._connection = _connect(self._dsn_with_password)
        return self._connection

    def begin(self) -> None:
        self.run("BEGIN")
        self._in_transaction = True

    def commit(self) -> None:
        try:
            self.run("COMMIT")
        except PlimsollError as error:
            if self._connection.closed:
                raise Unavailable(
                    "commit_unknown",
                    f"the connection to {self.dsn} broke while committing",
                    next_step="plimsoll audit log shows whether the change is there",
                ) from error
            raise
        finally:
            self._in_transaction = False

    def rollback(self) -> None:
        try:
            if not self._connection.closed:
                self.run("ROLLBACK")
        finally:
            self._in_transaction = False

    def insert_events(self, events: Sequence[Event]) -> None:
        if len(events) < COPY_ROWS_MIN:
            values = ", ".join(["?"] * len(Event._fields))
            for event in events:
                self.run(f"INSERT INTO events VALUES ({values})", event)
            return
        with self.lock:
            try:
                with (
                    self._connection.cursor() as cursor,
                    cursor.copy(f"COPY events ({EVENT_COLUMNS}) FROM STDIN") as copy,
                ):
                    for event in events:
                        copy.write_row(event)
            except psycopg.Error as error:
                raise _translate(error, self.dsn) from error

    def has_table(self, name: str) -> bool:
        return bool(self.run("SELECT to_regclass(quote_ident(?)) IS NOT NULL", (name,))[0][0])

    def is_empty(self) -> bool:
        return not self.run("SELECT 1 FROM pg_tables WHERE schemaname = current_schema() LIMIT 1")

    def lock_schema(self) -> None:
        self.run("SELECT pg_advisory_xact_lock(?, hashtext(current_schema() || '/schema'))", (LOCK_KEY,))

    def lead(self, name: str) -> Leadership | None:
        connection = _connect(self._dsn_with_password)
        sql = "SELECT pg_try_advisory_lock(%s, hashtext(current_schema()))"
        row = connection.execute(sql, (LOCK_KEY,)).fetchone()
        if row is None or not row[0]:
            connection.close()
            return None
        return _ConnectionLeadership(connection, self.next_epoch(name))

    def close(self) -> None:
        with self.lock:
            self._connection.close()


class _ConnectionLeadership(Leadership):
    """An advisory lock: held exactly as long as its connection lives."""

    def __init__(self, connection: Connection, epoch: int) -> None:
        self._connection = connection
        self.epoch = epoch

    def is_held(self) -> bool:
        try:
            self._connection.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def resign(self) -> None:
        self._connection.close()


def _connect(dsn: str) -> Connection:
    try:
        given = conninfo.conninfo_to_dict(dsn)
        options: dict[str, Any] = {**CONNECTION_DEFAULTS, **given, "application_name": "plimsoll"}
        return psycopg.connect(conninfo.make_conninfo(**options), autocommit=True)
    except psycopg.Error as error:
        raise Unavailable(
            "database_unreachable",
            f"no connection to {_without_password(dsn)}: {_first_line(error)}",
            next_step="is the server up, and are host, port, user and database of --db right?",
        ) from error


def _without_password(dsn: str) -> str:
    try:
        parts = conninfo.conninfo_to_dict(dsn)
    except psycopg.Error:
        return "postgresql://…"
    user = f"{parts['user']}@" if parts.get("user") else ""
    return f"postgresql://{user}{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"


def _with_percent(sql: str) -> Any:
    """Our `?` as psycopg's `%s`. (`Any`: psycopg wants literal SQL; these are our own constants, values are bound.)"""
    return sql.replace("%", "%%").replace("?", "%s")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


_MEANING: tuple[tuple[type[psycopg.Error], str, str, str], ...] = (
    (errors.ReadOnlySqlTransaction, "database_read_only", "is read-only (a standby?)", "point --db at the primary"),
    (
        errors.InsufficientPrivilege,
        "database_read_only",
        "refuses this user",
        "grant the user the rights on the tables",
    ),
    (errors.DiskFull, "disk_full", "has no room left to grow", "free some disk; nothing of this change was kept"),
    (errors.OperationalError, "connection_lost", "did not answer", "is the server up? try again"),
)


def _translate(error: psycopg.Error, dsn: str) -> PlimsollError:
    for kind, code, what, next_step in _MEANING:
        if isinstance(error, kind):
            return Unavailable(code, f"{dsn} {what} ({_first_line(error)})", next_step=next_step)
    return Unavailable("database_error", f"{dsn}: {_first_line(error)}", next_step="plimsoll audit verify")
