"""Faults of a SQLite file: each is a clear error, nothing half done is kept, and the ledger goes on afterwards."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import plimsoll.ledger.sqlite
from plimsoll.errors import NotFound, PlimsollError, Refused, Unavailable, UsageError
from plimsoll.ledger import open_ledger, open_store
from plimsoll.ledger.verify import verify
from tests.support.children import Child
from tests.support.disks import public_folder, small_disk
from tests.support.ledgers import events_of, filled, note, raw, write
from tests.support.parts import missing_part
from tests.support.writers import as_nobody, follow, read_then_write, write_in_little_room


def _make_text(path: Path) -> None:
    path.write_text("this is not a database, whatever its name may say, and it is long enough\n" * 20)


def _cut_in_half(path: Path) -> None:
    filled(f"sqlite:///{path}", 50).close()
    os.truncate(path, path.stat().st_size // 2)


BAD_FILES: dict[str, tuple[Callable[[Path], object], type[PlimsollError], str]] = {
    "a directory": (Path.mkdir, Refused, "not_a_file"),
    "text": (_make_text, Unavailable, "not_a_database"),
    "half a database": (_cut_in_half, Unavailable, "database_corrupt"),
    "missing": (lambda _: None, NotFound, "no_database"),
    "an empty file": (Path.touch, NotFound, "no_database"),
}


@pytest.mark.parametrize(("make", "want_error", "want_code"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_file_that_is_no_ledger_is_named(
    tmp_path: Path, make: Callable[[Path], object], want_error: type[PlimsollError], want_code: str
) -> None:
    path = tmp_path / "some.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(want_error) as refused, open_ledger(f"sqlite:///{path}") as ledger:
        verify(ledger.store)
    assert refused.value.code == want_code
    assert str(path) in refused.value.message
    assert refused.value.next_step
    assert (path.read_bytes() if path.is_file() else None) == before, "looking at it left it as it was"


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as refused:
        open_store(f"sqlite:///{tmp_path}/no/such/folder/x.db", create=True)
    assert (refused.value.code, refused.value.next_step) == ("no_directory", f"mkdir -p {tmp_path}/no/such/folder")


@pytest.mark.parametrize(
    "url", ["", "mysql://me:secret@host/name", "postgresql+psycopg://me:secret@host/name", "sqlite:///"]
)
def test_a_url_of_nothing_we_know_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        open_store(url)
    error = refused.value
    assert error.code == "bad_database_url"
    assert "secret" not in f"{error.message} {error.next_step} {error.fields}"


@pytest.mark.parametrize("name", ["with blank.db", "100%.db", "a?b#c.db", "größe.db", "'quoted'.db"])
def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    for _ in range(2):
        with open_ledger(f"sqlite:///{tmp_path}/{name}", create=True) as ledger:
            write(ledger, "a")
    assert (tmp_path / name).is_file()
    with open_ledger(str(tmp_path / name)) as ledger:
        assert ledger.head().revision == 2


def test_somebody_elses_database_is_not_changed_in_any_way(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("CREATE TABLE customers (name TEXT)")
    before = path.read_bytes()
    for create in (False, True):
        with pytest.raises(Refused):
            open_store(f"sqlite:///{path}", create=create)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["theirs.db"]


def test_every_commit_is_on_disk_before_it_is_acknowledged(sqlite_dsn: str) -> None:
    with filled(sqlite_dsn, 1) as ledger:
        assert ledger.store.run("PRAGMA journal_mode") == [("wal",)]
        assert ledger.store.run("PRAGMA synchronous") == [(2,)], "2 is FULL"


def test_a_ledger_that_stays_locked_is_busy_and_then_goes_on(sqlite_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(sqlite_dsn, 2).close()
    monkeypatch.setattr(plimsoll.ledger.sqlite, "BUSY_SECONDS_MAX", 0.1)
    with open_ledger(sqlite_dsn) as ledger, raw(sqlite_dsn) as run:
        run("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable) as refused:
            write(ledger, "a")
        assert refused.value.code == "database_busy"
        assert ledger.head().revision == 2, "reading goes on"
        run("ROLLBACK")
        write(ledger, "a")
        assert verify(ledger.store).events == 3


def test_a_lead_whose_file_was_removed_is_lost(sqlite_dsn: str) -> None:
    with open_ledger(sqlite_dsn, create=True) as ledger:
        leadership = ledger.store.lead("one")
        assert leadership is not None
        Path(f"{sqlite_dsn.removeprefix('sqlite:///')}.leader").unlink()
        assert not leadership.is_held()
        successor = ledger.store.lead("two")
        assert successor is not None
        assert (successor.epoch, successor.is_held()) == (2, True)
        leadership.resign()
        assert successor.is_held()
        successor.resign()


def test_a_lead_in_memory_is_one_at_a_time_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_ledger("sqlite:///:memory:", create=True) as ledger:
        first, other = ledger.store.lead("one", "server"), ledger.store.lead("one", "lifecycle")
        assert first is not None
        assert other is not None
        assert (first.is_held(), ledger.store.lead("two", "server")) == (True, None)
        first.resign()
        second = ledger.store.lead("two", "server")
        first.resign()
        assert second is not None
        assert (first.is_held(), second.is_held(), second.epoch > first.epoch) == (False, True, True)
        assert ledger.store.lead("three", "server") is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_folder_open", [False, True], ids=["in a folder that is read-only", "in a folder of ours"])
def test_a_read_only_file_can_be_read_and_not_written(is_folder_open: bool) -> None:
    with public_folder() as folder:
        dsn = f"sqlite:///{folder}/x.db"
        filled(dsn, 3).close()
        (folder / "x.db").chmod(0o444)
        folder.chmod(0o777 if is_folder_open else 0o555)
        with Child(as_nobody, read_then_write, dsn) as child:
            assert [child.hear(), child.hear()] == [3, "database_read_only"]
            assert child.hear() == "database_read_only"
            child.finish()
        with open_ledger(dsn) as ledger:
            assert (ledger.head().revision, ledger.store.leader()) == (3, (0, ""))


def test_a_read_only_file_that_is_being_written_to_can_be_read() -> None:
    with public_folder() as folder:
        dsn = f"sqlite:///{folder}/x.db"
        with filled(dsn, 3) as ledger, Child(as_nobody, read_then_write, dsn) as child:
            assert [child.hear(), child.hear()] == [3, "database_read_only"]
            write(ledger, "a")
            assert ledger.head().revision == 4


def test_a_follower_without_the_right_to_write_sees_what_is_written_later() -> None:
    """It opened the file when nobody had it open for writing; then somebody wrote, ended, and another wrote."""
    with public_folder() as folder:
        dsn = f"sqlite:///{folder}/x.db"
        with filled(dsn, 2) as ledger:
            want = [(event.revision, event.hash) for event in events_of(ledger)]
        with Child(as_nobody, follow, dsn, 4) as child:
            assert [child.hear() for _ in range(3)] == ["ready", *want]
            for page in ("a", "b"):
                with open_ledger(dsn) as ledger:
                    (event,) = write(ledger, page)
                assert child.hear() == (event.revision, event.hash)
            child.finish()


def test_a_full_disk_keeps_nothing_of_the_commit_and_goes_on_when_there_is_room() -> None:
    with small_disk(megabytes=1) as disk:
        if disk is None:
            missing_part("the right to mount a small disk")
        with open_ledger(f"sqlite:///{disk.folder}/x.db", create=True) as ledger:
            write(ledger, "a")
            with pytest.raises(Unavailable) as refused:
                ledger.commit([note("a", "x" * 50_000) for _ in range(100)], actor="tester", read_at=None)
            assert refused.value.code == "disk_full"
            assert "free some disk" in refused.value.next_step
            assert ledger.head().revision == 1
            with pytest.raises(Unavailable):
                ledger.commit([note("a", "x" * 1_100_000)], actor="tester", read_at=None)
            assert verify(ledger.store).is_whole
            disk.grow(32)
            ledger.commit([note("a", "x" * 50_000) for _ in range(100)], actor="tester", read_at=None)
            assert (verify(ledger.store).is_whole, ledger.head().revision) == (True, 101)


def test_a_file_that_may_not_grow_keeps_nothing_of_the_commit_and_goes_on_when_it_may(sqlite_dsn: str) -> None:
    filled(sqlite_dsn, 2).close()
    with Child(write_in_little_room, sqlite_dsn, 300_000) as child:
        code, revision = child.hear()
        assert code in ("disk_full", "disk_error")
        assert revision > 2, "there was room for some"
        assert child.hear() == revision + 1
        child.finish()
    with open_ledger(sqlite_dsn) as ledger:
        verdict = verify(ledger.store)
        assert (verdict.is_whole, verdict.head.revision) == (True, revision + 1)


def test_no_room_to_make_a_ledger_in_is_said_and_can_be_mended() -> None:
    with small_disk(megabytes=1) as disk:
        if disk is None:
            missing_part("the right to mount a small disk")
        filler = disk.folder / "filler"
        with filler.open("wb") as file, pytest.raises(OSError, match="No space left"):
            file.write(b"x" * 2_000_000)
        with pytest.raises(Unavailable) as refused:
            open_store(f"sqlite:///{disk.folder}/x.db", create=True)
        assert refused.value.code in ("disk_full", "disk_error")
        filler.unlink()
        with open_ledger(f"sqlite:///{disk.folder}/x.db", create=True) as ledger:
            write(ledger, "a")
            assert verify(ledger.store).is_whole
