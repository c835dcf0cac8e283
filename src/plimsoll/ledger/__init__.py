"""The memory: events, SQLite and PostgreSQL, snapshots, audit chain. It knows no capability."""

from __future__ import annotations

from plimsoll.errors import UsageError
from plimsoll.ledger.ledger import Ledger
from plimsoll.ledger.store import Store
from plimsoll.times import Clock, utc_now

__all__ = ["Ledger", "open_ledger", "open_store"]


def open_ledger(dsn: str, *, create: bool = False, clock: Clock = utc_now) -> Ledger:
    """Open the ledger that a URL names; `create` makes a missing one."""
    return Ledger(open_store(dsn, create=create), clock)


def open_store(dsn: str, *, create: bool = False) -> Store:
    """`sqlite:///PATH`, a bare PATH, or `postgresql://…`. Each driver is imported only when it is wanted."""
    scheme, separator, rest = dsn.partition("://")
    if scheme in ("postgresql", "postgres") and separator:
        from plimsoll.ledger.postgres import PostgresStore

        return PostgresStore(dsn, create=create)
    path = dsn if not separator else rest.removeprefix("/") if scheme == "sqlite" else ""
    if not path:
        shown = f"{scheme}://…" if separator else dsn  # the rest may hold a password
        raise UsageError(
            "bad_database_url",
            f"{shown!r} names no database that Plimsoll knows",
            next_step="--db sqlite:///plimsoll.db (a file) or --db postgresql://user@host/name",
            value=shown,
        )
    from plimsoll.ledger.sqlite import SqliteStore

    return SqliteStore(path, create=create)
