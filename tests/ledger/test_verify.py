"""Whatever is done to the rows behind the ledger's back, an audit finds it and says where."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from plimsoll.errors import Tampered, UsageError
from plimsoll.ledger import open_ledger
from plimsoll.ledger.model import EventFilter
from plimsoll.ledger.verify import Verdict, parse_head, verify
from plimsoll.state.keeper import Keeper
from tests.ledger.test_chain import hash_by_hand
from tests.support.ledgers import KINDS, filled, note, raw
from tests.support.postgres import PrivatePostgres

ROWS = 6
Found = list[tuple[str, int]]

CHANGED_3: Found = [("changed", 3)]
_COLUMNS = "recorded_at, effective_at, actor, kind, subject, reason, payload, prev_hash, hash"


def _shift(first: int, *, by: int) -> list[str]:
    """Renumber the rows from `first` on. (By way of numbers that are free: a row at a time would collide.)"""
    return [
        f"UPDATE events SET revision = revision + {1000 + by} WHERE revision >= {first}",
        "UPDATE events SET revision = revision - 1000 WHERE revision >= 1000",
    ]


CASES: dict[str, tuple[list[str], Found]] = {
    "nothing": ([], []),
    # A row changed, column by column.
    "its recorded time, a little": (
        ["UPDATE events SET recorded_at = '2026-01-05T11:00:00.000001Z' WHERE revision = 3"],
        CHANGED_3,
    ),
    "its recorded time, to before the row it follows": (
        ["UPDATE events SET recorded_at = '2026-01-05T08:00:00.000000Z' WHERE revision = 3"],
        [("changed", 3), ("backwards", 3)],
    ),
    "its effective time": (["UPDATE events SET effective_at = recorded_at || ' ' WHERE revision = 3"], CHANGED_3),
    "its actor": (["UPDATE events SET actor = 'mallory' WHERE revision = 3"], CHANGED_3),
    "its kind": (["UPDATE events SET kind = 'page.torn' WHERE revision = 3"], CHANGED_3),
    "its subject": (["UPDATE events SET subject = 'page/other' WHERE revision = 3"], CHANGED_3),
    "its reason": (["UPDATE events SET reason = '' WHERE revision = 3"], CHANGED_3),
    "its payload": (['UPDATE events SET payload = \'{"page":"p3"}\' WHERE revision = 3'], CHANGED_3),
    "its payload, by a blank that means nothing": (
        ["UPDATE events SET payload = payload || ' ' WHERE revision = 3"],
        CHANGED_3,
    ),
    "its hash": (["UPDATE events SET hash = prev_hash WHERE revision = 3"], [("changed", 3), ("unlinked", 4)]),
    "its link": (
        [f"UPDATE events SET prev_hash = '{'0' * 64}' WHERE revision = 3"],
        [("unlinked", 3), ("changed", 3)],
    ),
    "the first row": (["UPDATE events SET actor = 'mallory' WHERE revision = 1"], [("changed", 1)]),
    "the last row": (["UPDATE events SET actor = 'mallory' WHERE revision = 6"], [("changed", 6)]),
    "the last row's hash": (
        ["UPDATE events SET hash = prev_hash WHERE revision = 6"],
        [("changed", 6), ("changed", 6)],
    ),
    "two rows": (
        ["UPDATE events SET actor = 'mallory' WHERE revision IN (2, 5)"],
        [("changed", 2), ("changed", 5)],
    ),
    "text moved over the border of two fields": (
        ["UPDATE events SET kind = kind || '/', subject = 'p3' WHERE revision = 3"],
        CHANGED_3,
    ),
    "fields moved by one with the separator in the text": (
        [
            "UPDATE events SET actor = actor || '\x1f' || kind, kind = subject, subject = reason, reason = payload,"
            " payload = '' WHERE revision = 3"
        ],
        CHANGED_3,
    ),
    # Rows removed.
    "a row deleted": (["DELETE FROM events WHERE revision = 3"], [("missing", 3)]),
    "the first row deleted": (["DELETE FROM events WHERE revision = 1"], [("missing", 1)]),
    "neighbours deleted": (["DELETE FROM events WHERE revision IN (3, 4)"], [("missing", 3)]),
    "rows here and there deleted": (
        ["DELETE FROM events WHERE revision IN (2, 4)"],
        [("missing", 2), ("missing", 4)],
    ),
    "a row deleted and the gap closed": (
        ["DELETE FROM events WHERE revision = 4", *_shift(5, by=-1)],
        [("unlinked", 4), ("changed", 4), ("changed", 5), ("cut_off", 5)],
    ),
    "the last row deleted": (["DELETE FROM events WHERE revision = 6"], [("cut_off", 5)]),
    "all rows deleted": (["DELETE FROM events"], [("cut_off", 0)]),
    # Rows added.
    "a row put in between": (
        [*_shift(4, by=1), f"INSERT INTO events SELECT 4, {_COLUMNS} FROM events WHERE revision = 2"],
        [
            ("unlinked", 4),
            ("changed", 4),
            ("backwards", 4),
            ("unlinked", 5),
            ("changed", 5),
            ("changed", 6),
            ("changed", 7),
            ("unlinked", 7),
        ],
    ),
    "a row put at the end": (
        [f"INSERT INTO events SELECT 7, {_COLUMNS} FROM events WHERE revision = 6"],
        [("unlinked", 7), ("changed", 7), ("unlinked", 7)],
    ),
    "a row put far behind the end": (
        [f"INSERT INTO events SELECT 9, {_COLUMNS} FROM events WHERE revision = 6"],
        [("missing", 7), ("changed", 9), ("unlinked", 9)],
    ),
    "rows put before the first": (
        [f"INSERT INTO events SELECT revision - 5, {_COLUMNS} FROM events WHERE revision IN (1, 5)"],
        [("unlinked", -4), ("unlinked", 0)],
    ),
    # Rows moved.
    "neighbours swapped": (
        [
            "UPDATE events SET revision = 1000 WHERE revision = 3",
            "UPDATE events SET revision = 3 WHERE revision = 4",
            "UPDATE events SET revision = 4 WHERE revision = 1000",
        ],
        [
            ("unlinked", 3),
            ("changed", 3),
            ("unlinked", 4),
            ("changed", 4),
            ("backwards", 4),
            ("unlinked", 5),
        ],
    ),
    # The head.
    "the recorded head moved back": (["UPDATE ledger_head SET revision = 5"], [("unlinked", 6)]),
    "the recorded head moved on": (["UPDATE ledger_head SET revision = 7"], [("cut_off", 6)]),
    "the recorded head's hash": ([f"UPDATE ledger_head SET hash = '{'0' * 64}'"], [("changed", 6)]),
    "the recorded head's time, which new events must not precede": (
        ["UPDATE ledger_head SET recorded_at = '2099-01-01T00:00:00.000000Z'"],
        [("changed", 6)],
    ),
    # Snapshots.
    "a snapshot of another chain": (
        [f"INSERT INTO snapshots SELECT 3, 'notes.1', '{'f' * 64}', {{blob}} FROM ledger_head"],
        [("snapshot", 3)],
    ),
    "a snapshot of no revision": (
        [f"INSERT INTO snapshots SELECT 99, 'notes.1', '{'f' * 64}', {{blob}} FROM ledger_head"],
        [("snapshot", 99)],
    ),
}

SQLITE_CASES: dict[str, tuple[list[str], Found]] = {
    "a text made a blob": (["UPDATE events SET actor = CAST(actor AS BLOB) WHERE revision = 3"], CHANGED_3),
    "the recorded time made a blob": (
        ["UPDATE events SET recorded_at = CAST(recorded_at AS BLOB) WHERE revision = 3"],
        CHANGED_3,
    ),
    "every time made a blob": (
        ["UPDATE events SET recorded_at = CAST(recorded_at AS BLOB) WHERE revision > 4"],
        [("changed", 5), ("changed", 6), ("changed", 6)],
    ),
    "bytes that are no text": (["UPDATE events SET reason = CAST(x'61ff' AS TEXT) WHERE revision = 3"], CHANGED_3),
    "a NUL behind the text": (["UPDATE events SET reason = reason || char(0) WHERE revision = 3"], CHANGED_3),
}

POSTGRES_CASES = (
    "its recorded time, to before the row it follows",
    "its payload, by a blank that means nothing",
    "neighbours deleted",
    "a row put in between",
    "rows put before the first",
    "neighbours swapped",
    "a snapshot of another chain",
)


def _found(verdict: Verdict) -> Found:
    return [(str(finding.what), finding.revision) for finding in verdict.findings]


def _audit_after(dsn: str, statements: Sequence[str], *, blob: str) -> Verdict:
    filled(dsn, ROWS).close()
    with raw(dsn) as run:
        for statement in statements:
            run(statement.replace("{blob}", blob))
    with open_ledger(dsn) as ledger:
        return verify(ledger.store)


@pytest.mark.parametrize(("statements", "want"), [*CASES.values(), *SQLITE_CASES.values()], ids=[*CASES, *SQLITE_CASES])
def test_tampering_is_found_where_it_was_done(sqlite_dsn: str, statements: list[str], want: Found) -> None:
    verdict = _audit_after(sqlite_dsn, statements, blob="x''")
    assert _found(verdict) == want
    assert verdict.is_whole == (not want)


@pytest.mark.parametrize("name", POSTGRES_CASES)
def test_tampering_is_found_in_postgresql_too(postgres: PrivatePostgres, name: str) -> None:
    statements, want = CASES[name]
    assert _found(_audit_after(postgres.new_database(), statements, blob="''")) == want


def _rewrite_from(dsn: str, first: int, *, actor: str) -> None:
    """What somebody does who knows the format and may write everything: a whole new chain from a row on."""
    with raw(dsn) as run:
        rows = run(f"SELECT revision, {_COLUMNS} FROM events WHERE revision >= ? ORDER BY revision", first)
        ((before,),) = run("SELECT hash FROM events WHERE revision = ?", first - 1)
        for row in rows:
            forged = (*row[:3], actor, *row[4:8], before)
            before = hash_by_hand(forged)
            run(
                "UPDATE events SET actor = ?, prev_hash = ?, hash = ? WHERE revision = ?",
                actor,
                *forged[8:],
                before,
                row[0],
            )
        run("UPDATE ledger_head SET hash = ?", before)


def _cut_after(dsn: str, last: int) -> None:
    with raw(dsn) as run:
        run("DELETE FROM events WHERE revision > ?", last)
        ((digest, recorded_at),) = run("SELECT hash, recorded_at FROM events WHERE revision = ?", last)
        run("UPDATE ledger_head SET revision = ?, hash = ?, recorded_at = ?", last, digest, recorded_at)


def _heads(dsn: str) -> dict[int, str]:
    with raw(dsn) as run:
        return dict(run("SELECT revision, hash FROM events"))


PUBLISHED: dict[str, tuple[list[int], Found]] = {
    "no head was published": ([], []),
    "one of before the rewriting": ([2], []),
    "one of the first row rewritten": ([3], [("rewritten", 3)]),
    "the last": ([6], [("rewritten", 6)]),
    "several": ([1, 4, 6], [("rewritten", 4), ("rewritten", 6)]),
}


@pytest.mark.parametrize(("revisions", "want"), PUBLISHED.values(), ids=PUBLISHED.keys())
def test_a_chain_rewritten_from_a_row_on_is_found_by_a_published_head_only(
    sqlite_dsn: str, revisions: list[int], want: Found
) -> None:
    filled(sqlite_dsn, ROWS).close()
    heads = _heads(sqlite_dsn)
    _rewrite_from(sqlite_dsn, 3, actor="mallory")
    with open_ledger(sqlite_dsn) as ledger:
        verdict = verify(ledger.store, published=[(revision, heads[revision]) for revision in revisions])
        assert [event.revision for event in ledger.store.events(where=EventFilter(actor="mallory"))] == [3, 4, 5, 6]
    assert _found(verdict) == want


@pytest.mark.parametrize(
    ("revisions", "want"),
    [
        pytest.param([], [], id="no head was published"),
        pytest.param([4], [], id="one of what is left"),
        pytest.param([6], [("cut_off", 4)], id="the last"),
        pytest.param([5, 6], [("cut_off", 4), ("cut_off", 4)], id="two that are gone"),
    ],
)
def test_a_tail_cut_off_with_its_head_is_found_by_a_published_head_only(
    sqlite_dsn: str, revisions: list[int], want: Found
) -> None:
    filled(sqlite_dsn, ROWS).close()
    heads = _heads(sqlite_dsn)
    _cut_after(sqlite_dsn, 4)
    with open_ledger(sqlite_dsn) as ledger:
        assert _found(verify(ledger.store, published=[(revision, heads[revision]) for revision in revisions])) == want


def test_two_heads_published_for_one_revision_can_not_both_be_true(sqlite_dsn: str) -> None:
    with filled(sqlite_dsn, ROWS) as ledger:
        true, false = (3, _heads(sqlite_dsn)[3]), (3, "f" * 64)
        for published in ([true, false], [false, true]):
            assert _found(verify(ledger.store, published=published)) == [("rewritten", 3)]


def test_one_changed_row_among_many_is_one_finding(sqlite_dsn: str) -> None:
    filled(sqlite_dsn, 300).close()
    with raw(sqlite_dsn) as run:
        run("UPDATE events SET payload = '{}' WHERE revision = 5")
    with open_ledger(sqlite_dsn) as ledger:
        verdict = verify(ledger.store)
    assert (_found(verdict), verdict.events) == ([("changed", 5)], 300)
    assert "page/p5" in verdict.findings[0].message


def test_many_changed_rows_are_a_bounded_number_of_findings_and_the_end_is_still_checked(sqlite_dsn: str) -> None:
    filled(sqlite_dsn, 300).close()
    with raw(sqlite_dsn) as run:
        run("UPDATE events SET payload = '{}'")
        run("DELETE FROM events WHERE revision = 300")
    with open_ledger(sqlite_dsn) as ledger:
        found = _found(verify(ledger.store, published=[(400, "f" * 64)]))
    assert found == [*(("changed", revision) for revision in range(1, 101)), ("cut_off", 299), ("cut_off", 299)]


def test_a_finding_can_be_shown_whatever_was_written_into_the_row(sqlite_dsn: str) -> None:
    filled(sqlite_dsn, 3).close()
    with raw(sqlite_dsn) as run:
        run("UPDATE events SET subject = ?, kind = CAST(x'ff' AS TEXT) WHERE revision = 2", "\x1b[2J\n")
    with open_ledger(sqlite_dsn) as ledger:
        (finding,) = verify(ledger.store).findings
    assert finding.message.isprintable()
    assert "revision 2 " in finding.message


def test_a_lost_head_is_said_to_be_lost(sqlite_dsn: str) -> None:
    filled(sqlite_dsn, 3).close()
    with raw(sqlite_dsn) as run:
        run("DELETE FROM ledger_head")
    with open_ledger(sqlite_dsn) as ledger, pytest.raises(Tampered) as refused:
        verify(ledger.store)
    assert refused.value.code == "no_head"


def test_a_state_is_not_folded_over_a_gap(sqlite_dsn: str) -> None:
    filled(sqlite_dsn, ROWS).close()
    with raw(sqlite_dsn) as run:
        run("DELETE FROM events WHERE revision IN (3, 4)")
    with open_ledger(sqlite_dsn) as ledger, pytest.raises(Tampered, match="revision 5 follows revision 2") as refused:
        Keeper(ledger, KINDS)
    assert (refused.value.code, refused.value.next_step) == ("revision_missing", "plimsoll audit verify")


def test_progress_is_told_every_ten_thousand_rows(sqlite_dsn: str) -> None:
    with filled(sqlite_dsn, 1) as ledger:
        ledger.commit([note()] * 25_000, actor="tester", read_at=None)
        told: list[int] = []
        verify(ledger.store, progress=told.append)
    assert told == [10_000, 20_000]


HEADS = {
    "as it is printed": ("12:" + "a" * 64, (12, "a" * 64)),
    "with blanks around it": (f"  0:{'0' * 64}\n", (0, "0" * 64)),
    "a hash that is too short": ("12:" + "a" * 63, None),
    "a hash in capitals": ("12:" + "A" * 64, None),
    "no revision": (":" + "a" * 64, None),
    "a negative revision": ("-1:" + "a" * 64, None),
    "digits of another script": ("١:" + "a" * 64, None),
    "no colon": ("a" * 64, None),
    "nothing": ("", None),
}


@pytest.mark.parametrize(("text", "want"), HEADS.values(), ids=HEADS.keys())
def test_a_published_head_is_read_back(text: str, want: tuple[int, str] | None) -> None:
    if want is not None:
        assert parse_head(text) == want
        return
    with pytest.raises(UsageError) as refused:
        parse_head(text)
    assert refused.value.code == "bad_head"


def test_the_head_that_is_published_is_the_one_that_is_read_back(sqlite_dsn: str) -> None:
    with filled(sqlite_dsn, ROWS) as ledger:
        published = parse_head(str(ledger.head()))
        assert published == (6, _heads(sqlite_dsn)[6])
        assert verify(ledger.store, published=[published]).is_whole


def test_many_changed_rows_are_counted_and_never_hide_a_published_head(sqlite_dsn: str) -> None:
    with filled(sqlite_dsn, 150) as ledger:
        with raw(sqlite_dsn) as run:
            run("UPDATE events SET actor = 'mallory'")
        verdict = verify(ledger.store, published=[(149, "a" * 64)])
    assert verdict.unlisted == 50
    assert [str(finding.what) for finding in verdict.findings].count("changed") == 100
    assert [finding.revision for finding in verdict.findings if str(finding.what) == "rewritten"] == [149]


def test_a_head_before_the_first_event_has_one_hash_only() -> None:
    assert parse_head("0:" + "0" * 64) == (0, "0" * 64)
    with pytest.raises(UsageError) as refused:
        parse_head("0:" + "a" * 64)
    assert refused.value.code == "bad_head"


def test_a_head_that_is_no_number_is_tampering(sqlite_dsn: str) -> None:
    with filled(sqlite_dsn, 2) as ledger:
        with raw(sqlite_dsn) as run:
            run("UPDATE ledger_head SET revision = 'abc'")
        with pytest.raises(Tampered) as refused:
            verify(ledger.store)
    assert refused.value.code == "no_head"


@pytest.mark.parametrize("table", ["events", "ledger_head", "plimsoll_schema"])
def test_a_table_that_is_gone_is_tampering(table: str, sqlite_dsn: str) -> None:
    filled(sqlite_dsn, 2).close()
    with raw(sqlite_dsn) as run:
        run(f"DROP TABLE {table}")
    with pytest.raises(Tampered) as refused, open_ledger(sqlite_dsn) as ledger:
        verify(ledger.store)
    assert refused.value.code == "table_missing"
    assert "restore a copy" in refused.value.next_step
