"""The chain's format is public: whoever has the rows and these lines can recompute it without us."""

from __future__ import annotations

import hashlib

from plimsoll.ledger.chain import event_hash
from plimsoll.ledger.model import Event
from tests.support.ledgers import events_of, filled, note


def hash_by_hand(row: tuple[object, ...]) -> str:
    """As the format says: nine fields, the hash of the row before first, joined by U+001F, UTF-8, SHA-256."""
    revision, recorded_at, effective_at, actor, kind, subject, reason, payload, prev_hash = row[:9]
    digest = hashlib.sha256()
    for number, field in enumerate(
        [prev_hash, revision, recorded_at, effective_at, actor, kind, subject, reason, payload]
    ):
        digest.update(b"\x1f" if number else b"")
        digest.update(str(field).encode("utf-8"))
    return digest.hexdigest()


def test_a_hash_worked_out_once_with_sha256sum_never_changes() -> None:
    # printf '%s\x1f1\x1f2026-01-05T09:00:00.000000Z\x1f2026-01-04T09:00:00.000000Z\x1fana\x1fpage.noted\x1fpage/a\x1f'\
    # 'Größe\x1f{"page":"a"}' $(printf '0%.0s' $(seq 64)) | sha256sum
    event = Event(
        1,
        "2026-01-05T09:00:00.000000Z",
        "2026-01-04T09:00:00.000000Z",
        "ana",
        "page.noted",
        "page/a",
        "Größe",
        '{"page":"a"}',
        "0" * 64,
        "",
    )
    assert event_hash(event) == "9d5c2132e1827df23f0f8f32a8b263a9453269fe7478f861bb6fb6845fe37c7f"


def test_stored_rows_agree_with_the_format(sqlite_dsn: str) -> None:
    with filled(sqlite_dsn, 3) as ledger:
        ledger.commit([note(f"日本-{n}", "🚢") for n in range(30)], actor="ana", reason="Größe", read_at=None)
        rows = events_of(ledger)
    assert [row.hash for row in rows] == [hash_by_hand(row) for row in rows]
    assert [row.prev_hash for row in rows] == ["0" * 64, *(row.hash for row in rows[:-1])]
