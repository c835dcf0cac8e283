"""The tables and how a database gets from one version to the next: always in one transaction, so a crash at any
moment leaves either the old version or the new one.

Statements are written for SQLite; `{blob}` and `{bigint}` are the two types that PostgreSQL calls otherwise.
"""

from __future__ import annotations

Migration = tuple[str, ...]

MIGRATIONS: tuple[Migration, ...] = (
    (
        """CREATE TABLE events (
            revision {bigint} PRIMARY KEY,
            recorded_at TEXT NOT NULL,
            effective_at TEXT NOT NULL,
            actor TEXT NOT NULL,
            kind TEXT NOT NULL,
            subject TEXT NOT NULL,
            reason TEXT NOT NULL,
            payload TEXT NOT NULL,
            prev_hash TEXT NOT NULL,
            hash TEXT NOT NULL
        )""",
        # One row: the end of the chain, and who leads. Every writer takes it first, so it is also the lock.
        """CREATE TABLE ledger_head (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            revision {bigint} NOT NULL,
            hash TEXT NOT NULL,
            recorded_at TEXT NOT NULL,
            epoch {bigint} NOT NULL,
            leader TEXT NOT NULL
        )""",
        "INSERT INTO ledger_head VALUES (1, 0, '" + "0" * 64 + "', '', 0, '')",
        """CREATE TABLE snapshots (
            revision {bigint} PRIMARY KEY,
            fold_version TEXT NOT NULL,
            hash TEXT NOT NULL,
            body {blob} NOT NULL
        )""",
    ),
    # How far something outside was read, and what it said last: raw samples are no events.
    (
        """CREATE TABLE cursors (
            scope TEXT NOT NULL,
            name TEXT NOT NULL,
            value TEXT NOT NULL,
            PRIMARY KEY (scope, name)
        )""",
    ),
    # Who leads in what. Epochs are counted over all of them, so that a number alone tells whose time it was.
    (
        """CREATE TABLE leaders (
            role TEXT PRIMARY KEY,
            epoch {bigint} NOT NULL,
            leader TEXT NOT NULL
        )""",
        "INSERT INTO leaders SELECT '', epoch, leader FROM ledger_head WHERE epoch > 0",
    ),
    # What is short-lived and personal (hashes of tokens, sessions, links, receipts of requests): no events either.
    (
        """CREATE TABLE papers (
            kind TEXT NOT NULL,
            id TEXT NOT NULL,
            expires_at TEXT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (kind, id)
        )""",
        "CREATE INDEX papers_expire ON papers (expires_at)",
    ),
)

VERSION_TABLE = "plimsoll_schema"
