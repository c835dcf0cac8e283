"""One suite for both databases: what the ledger promises."""

from __future__ import annotations

from plimsoll.ledger import open_ledger


def test_an_empty_ledger_ends_at_revision_zero(dsn: str) -> None:
    with open_ledger(dsn, create=True) as ledger:
        assert ledger.head().revision == 0
