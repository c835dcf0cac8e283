"""`plimsoll audit` as its users type it: the log and its filters, the head, the proof."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.inside import called


def log(book: str, *words: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = called("audit", "log", "--db", book, "-o", "json", *words).json()["events"]
    return events


FILTERS: dict[str, tuple[list[str], list[int]]] = {
    "everything": ([], list(range(1, 15))),
    "one subject": (["--subject", "node/t1"], [4, 14]),
    "subjects that begin alike": (["--subject", "node/l*"], [8, 9]),
    "one kind": (["--kind", "quota.assigned"], [10]),
    "kinds that begin alike": (["--kind", "fleet.*"], [1, 13]),
    "one actor": (["--actor", "tester"], list(range(1, 15))),
    "an actor who did nothing": (["--actor", "nobody"], []),
    "all after a revision": (["--after", "12"], [13, 14]),
    "the newest few": (["--limit", "3"], [12, 13, 14]),
    "the newest few of a kind": (["--kind", "node.recorded", "--limit", "2"], [9, 14]),
    "all of them": (["--limit", "0"], list(range(1, 15))),
    "since a time": (["--from", "2026-01-20T15:00Z"], [13, 14]),
    "until a time": (["--until", "2026-01-20T15:00Z", "--limit", "2"], [11, 12]),
    "as of a revision": (["--as-of", "3"], [1, 2, 3]),
    "as of a time": (["--as-of", "2026-01-20T12:00Z", "--limit", "1"], [12]),
    "several at once": (["--subject", "node/*", "--after", "4", "--until", "2026-01-20T15:00Z"], [5, 6, 7, 8, 9, 12]),
}


@pytest.mark.parametrize("sentence", FILTERS)
def test_the_log_is_filtered(sentence: str, book: str) -> None:
    words, want = FILTERS[sentence]
    assert [event["revision"] for event in log(book, *words)] == want


def test_an_event_says_who_when_why_and_from_what(book: str) -> None:
    (event,) = log(book, "--after", "13")
    assert {name: event[name] for name in event if "hash" not in name} == {
        "revision": 14,
        "recorded_at": "2026-01-20T18:00:00.000000Z",
        "effective_at": "2026-01-20T18:00:00.000000Z",
        "actor": "tester",
        "kind": "node.recorded",
        "subject": "node/t1",
        "reason": "t1 makes noise",
        "payload": {
            "node": {
                "id": "t1",
                "cluster": "tiger",
                "island": "tiger-a",
                "sku": "H200",
                "gpus": 8,
                "service": "draining",
                "labels": {"rack": "r1"},
            },
            "was": {"service": "in_service"},
        },
    }
    assert event["prev_hash"] == log(book, "--as-of", "13", "--limit", "1")[0]["hash"]


def test_a_table_cuts_long_payloads_and_csv_does_not(book: str) -> None:
    words = ["audit", "log", "--db", book, "--after", "13"]
    assert called(*words).out.splitlines()[1].endswith("…")
    assert '""was"":{""service"":""in_service""}' in called(*words, "-o", "csv").out


def test_a_cut_list_says_so(book: str) -> None:
    assert (
        called("audit", "log", "--db", book, "--limit", "2").out.splitlines()[-1] == "the newest 2; --limit 0 for all"
    )
    assert "--limit" not in called("audit", "log", "--db", book, "--limit", "20").out


def test_the_head_is_what_verify_takes(book: str) -> None:
    head = called("audit", "head", "--db", book).out.strip()
    revision, _, digest = head.partition(":")
    assert (revision, len(digest)) == ("14", 64)
    assert called("audit", "head", "--db", book, "-o", "json").json() == {
        "head": head,
        "revision": 14,
        "hash": digest,
        "recorded_at": "2026-01-20T18:00:00.000000Z",
    }
    assert called("audit", "head", "--db", book, "-o", "csv").out == f"revision,hash\n14,{digest}\n"
    said = called("audit", "verify", "--db", book, "--head", head)
    assert said.code == 0
    assert said.out == (
        f"whole: 14 events, each sealed to the one before, and continues 1 published head; head {head}\n"
    )


def test_verify_says_that_all_is_whole_and_what_to_keep(book: str) -> None:
    said = called("audit", "verify", "--db", book)
    assert said.code == 0
    assert said.out.startswith("whole: 14 events, each sealed to the one before; head 14:")
    assert "next: keep this head elsewhere" in said.out
    document = called("audit", "verify", "--db", book, "-o", "json").json()
    assert (document["whole"], document["events"], document["findings"]) == (True, 14, [])


TAMPERED: dict[str, tuple[str, list[tuple[str, int]]]] = {
    "a payload was changed": (
        "UPDATE events SET payload = replace(payload, 'H200', 'H100') WHERE revision = 5",
        [("changed", 5)],
    ),
    "a reason was changed": ("UPDATE events SET reason = 'because' WHERE revision = 14", [("changed", 14)]),
    "an actor was changed": ("UPDATE events SET actor = 'somebody else' WHERE revision = 2", [("changed", 2)]),
    "a row was taken out": ("DELETE FROM events WHERE revision = 6", [("missing", 6)]),
    "the end was cut off": ("DELETE FROM events WHERE revision > 12", [("cut_off", 12)]),
    "a row was put at the end": (
        "INSERT INTO events SELECT 15, recorded_at, effective_at, actor, kind, subject, reason, payload, hash, hash"
        " FROM events WHERE revision = 14",
        [("changed", 15), ("unlinked", 15)],
    ),
}


@pytest.mark.parametrize("sentence", TAMPERED)
def test_a_ledger_that_was_changed_by_hand_is_not_whole(sentence: str, book: str, tmp_path: Path) -> None:
    sql, want = TAMPERED[sentence]
    path = tmp_path / "copy.db"
    shutil.copy(book.removeprefix("sqlite:///"), path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)
    said = called("audit", "verify", "--db", path)
    assert (said.code, said.err) == (1, "")
    noun = "finding" if len(want) == 1 else "findings"
    assert said.out.startswith(f"NOT WHOLE: {len(want)} {noun} in ")
    assert said.out.splitlines()[-1].startswith("next: ")
    document = called("audit", "verify", "--db", path, "-o", "json").json()
    assert not document["whole"]
    assert sorted((finding["what"], finding["revision"]) for finding in document["findings"]) == want


def test_a_published_head_tells_of_a_rewritten_past(book: str, tmp_path: Path) -> None:
    """Cut off and head put back: only who kept the head elsewhere can know."""
    path = tmp_path / "copy.db"
    shutil.copy(book.removeprefix("sqlite:///"), path)
    head = called("audit", "head", "--db", path).out.strip()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM events WHERE revision > 12")
        connection.execute(
            "UPDATE ledger_head SET (revision, hash, recorded_at) ="
            " (SELECT revision, hash, recorded_at FROM events WHERE revision = 12)"
        )
    assert called("audit", "verify", "--db", path).code == 0
    said = called("audit", "verify", "--db", path, "--head", head)
    assert said.code == 1
    assert "revision 14 was published as the head; the ledger ends at 12" in said.out


def test_a_ledger_that_says_what_can_not_be_is_no_traceback(book: str, tmp_path: Path) -> None:
    path = tmp_path / "copy.db"
    shutil.copy(book.removeprefix("sqlite:///"), path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "UPDATE events SET payload = replace(payload, 'tiger', 'gone') WHERE kind = 'cluster.recorded'"
        )
    said = called("fleet", "show", "--db", path)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("plimsoll: unexpected KeyError in view.py:")
    assert "  next: plimsoll audit verify" in said.err
    assert called("audit", "verify", "--db", path).code == 1
