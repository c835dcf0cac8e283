"""The ledger in PostgreSQL: for production, with several processes of which one leads.

A writer locks the one row of `ledger_head` first, so revisions are given in the order of the commits and a reader can
never see a gap. The lead is an advisory lock of a connection of its own: it ends when that connection does.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import conninfo, errors

from plimsoll.errors import PlimsollError, Unavailable, UsageError
from plimsoll.ledger.model import Event
from plimsoll.ledger.schema import MIGRATIONS, Migration
from plimsoll.ledger.store import EVENT_COLUMNS, Leadership, Row, Store, table_missing

CONNECTION_DEFAULTS = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""So that a server that vanished is noticed in seconds; the URL may say otherwise."""
HUNG_SECONDS_MAX = 120
"""How long a writer may do nothing in the middle of a commit before the server ends it: it keeps others waiting."""
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
        super().__init__(_without_password(dsn), create=create, migrations=migrations)

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        with self.lock:
            try:
                return self._run_once(sql, parameters)
            except psycopg.Error as error:
                if self._in_transaction or not self._connection.closed:
                    raise _translate(error, self.dsn) from error
            # The connection died while idle and nothing was begun, so nothing can be done twice: ask on a new one.
            try:
                return self._run_once(sql, parameters)
            except psycopg.Error as error:
                raise _translate(error, self.dsn) from error

    def _run_once(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        cursor = self._live_connection().execute(_with_percent(sql), parameters)
        return cursor.fetchall() if cursor.description else []

    def _live_connection(self) -> Connection:
        """The connection, made anew after a loss, but never in the middle of a transaction."""
        if self._connection.closed and not self._in_transaction:
            self._connection = _connect(self._dsn_with_password)
            self.connections += 1
        return self._connection

    def begin(self) -> None:
        self.run("BEGIN ISOLATION LEVEL READ COMMITTED")
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
        except PlimsollError:
            # What went wrong first is what the caller must hear; a connection that is gone has rolled back.
            self._connection.close()
        finally:
            self._in_transaction = False

    def insert_events(self, events: Sequence[Event]) -> None:
        if len(events) < COPY_ROWS_MIN:
            values = ", ".join(["?"] * len(Event._fields))
            for event in events:
                self.run(f"INSERT INTO events ({EVENT_COLUMNS}) VALUES ({values})", event)
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

    def lead(self, name: str, role: str = "") -> Leadership | None:
        connection = _connect(self._dsn_with_password)
        sql = "SELECT pg_try_advisory_lock(%s, hashtext(current_schema() || %s))"
        try:
            row = connection.execute(sql, (LOCK_KEY, f"/{role}" if role else "")).fetchone()
            if row is not None and row[0]:
                return _ConnectionLeadership(connection, self.next_epoch(name, role))
        except psycopg.Error as error:
            connection.close()
            raise _translate(error, self.dsn) from error
        except BaseException:
            connection.close()
            raise
        connection.close()
        return None

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
        """Free at once: the server notices only a while later that a connection has gone."""
        with suppress(psycopg.Error):
            self._connection.execute("SELECT pg_advisory_unlock_all()")
        self._connection.close()


def _connect(dsn: str) -> Connection:
    options = {**CONNECTION_DEFAULTS, **_parts(dsn), "application_name": "plimsoll"}
    try:
        connection = psycopg.connect(conninfo.make_conninfo(**options), autocommit=True)
        try:
            _set_up(connection)
        except BaseException:
            connection.close()
            raise
        return connection
    except psycopg.Error as error:
        raise Unavailable(
            "database_unreachable",
            f"no connection to {_without_password(dsn)}: {_first_line(error)}",
            next_step="is the server up, and are host, port, user and database of --db right?",
        ) from error


def _set_up(connection: Connection) -> None:
    """What must hold whatever the server's settings say.

    A client that vanished or hangs is noticed, so that neither the lead nor the head stays locked for ever; and a
    commit that was acknowledged is on disk.
    """
    settings = {
        "tcp_keepalives_idle": "5",
        "tcp_keepalives_interval": "2",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": "15000",
        "idle_in_transaction_session_timeout": f"{HUNG_SECONDS_MAX * 1000}",
    }
    row = connection.execute("SHOW synchronous_commit").fetchone()
    if row is not None and row[0] == "off":
        settings["synchronous_commit"] = "on"
    calls = ", ".join(["set_config(%s, %s, false)"] * len(settings))
    connection.execute(f"SELECT {calls}".encode(), [text for pair in settings.items() for text in pair])


def _parts(dsn: str) -> dict[str, Any]:
    """What a URL says. Of one that can't be read nothing is shown: a password that is not escaped could be anywhere."""
    try:
        parts = conninfo.conninfo_to_dict(dsn)
    except psycopg.Error:
        parts = {"host": "@"}
    ports = str(parts.get("port") or "0").split(",")
    if "@" in f"{parts.get('host')}{parts.get('dbname')}" or not all(port.isdigit() or not port for port in ports):
        raise UsageError(
            "bad_database_url",
            "the postgresql:// URL can't be read",
            next_step="--db postgresql://user:password@host:port/name; in a password write %40 for @, %2F for /, "
            "%3A for :, %3F for ?, %23 for #, %25 for %",
        )
    return parts


def _without_password(dsn: str) -> str:
    parts = _parts(dsn)
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
    if isinstance(error, errors.UndefinedTable):
        return table_missing(dsn, _first_line(error))
    for kind, code, what, next_step in _MEANING:
        if isinstance(error, kind):
            return Unavailable(code, f"{dsn} {what} ({_first_line(error)})", next_step=next_step)
    return Unavailable("database_error", f"{dsn}: {_first_line(error)}", next_step="plimsoll audit verify")
