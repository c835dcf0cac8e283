"""One suite for both databases: snapshots make a start quick, and never change an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import plimsoll.state.keeper
from plimsoll.ledger import open_ledger
from plimsoll.ledger.verify import Break, verify
from plimsoll.state.keeper import Keeper, verify_snapshots
from plimsoll.state.state import Kinds, State
from tests.support.ledgers import KINDS, Notes, events_of, fold_of, keeper_of, note, notes_room, raw

COUNT = 10
Run = Callable[..., list[Any]]


@pytest.fixture
def written(dsn: str) -> str:
    """Ten events, a snapshot of a made-up past at revision 8, and one of the true past at revision 4.

    Whoever starts from the newest snapshot can be told by what they believe.
    """
    with keeper_of(dsn) as keeper:
        for number in range(1, COUNT + 1):
            keeper.commit([note("a", str(number))], actor="tester", read_at=None)
            if number in (4, 8):
                keeper.snapshot()
    with raw(dsn) as run:
        run("UPDATE snapshots SET body = ? WHERE revision = 8", _made_up_body())
    return dsn


def _made_up_body() -> bytes:
    state = State(KINDS)
    state.of(Notes).pages.put("a", ("made up",))
    state.revision, state.recorded_at = 8, "2026-01-05T09:00:00.000000Z"
    return state.dump()


def _pages(dsn: str, kinds: Kinds = KINDS) -> tuple[str, ...]:
    with keeper_of(dsn, kinds) as keeper:
        return keeper.state().of(Notes).pages["a"]


TRUE_PAGES = tuple(str(number) for number in range(1, COUNT + 1))


def test_a_start_reads_the_newest_snapshot_and_the_events_after_it(written: str) -> None:
    assert _pages(written) == ("made up", "9", "10")


def test_the_past_is_answered_from_the_snapshot_before_it(written: str) -> None:
    with keeper_of(written) as keeper:
        pages = {revision: keeper.as_of(revision).of(Notes).pages["a"] for revision in (3, 4, 7, 8, 9)}
    assert pages == {
        3: ("1", "2", "3"),
        4: ("1", "2", "3", "4"),
        7: ("1", "2", "3", "4", "5", "6", "7"),
        8: ("made up",),
        9: ("made up", "9"),
    }


def test_an_audit_folds_anew_and_names_the_snapshot_that_is_made_up(written: str) -> None:
    with open_ledger(written) as ledger:
        assert verify(ledger.store).is_whole, "the rows are"
        findings = list(verify_snapshots(ledger, KINDS))
    assert [(finding.what, finding.revision) for finding in findings] == [(Break.SNAPSHOT, 8)]


DAMAGES: dict[str, Callable[[Run], object]] = {
    "its body is cut off": lambda run: run("UPDATE snapshots SET body = ? WHERE revision = 8", _made_up_body()[:-3]),
    "its body is empty": lambda run: run("UPDATE snapshots SET body = ? WHERE revision = 8", b""),
    "its body is noise": lambda run: run("UPDATE snapshots SET body = ? WHERE revision = 8", b"\x78\x01noise"),
    "its body is that of another revision": lambda run: run(
        "UPDATE snapshots SET body = (SELECT body FROM snapshots WHERE revision = 4) WHERE revision = 8"
    ),
    "it is of another chain": lambda run: run("UPDATE snapshots SET hash = ? WHERE revision = 8", "f" * 64),
    "its anchor is another event's": lambda run: run(
        "UPDATE snapshots SET hash = (SELECT hash FROM events WHERE revision = 7) WHERE revision = 8"
    ),
    "it is of another fold": lambda run: run("UPDATE snapshots SET fold_version = 'notes.0' WHERE revision = 8"),
    "it is past the end": lambda run: run("UPDATE snapshots SET revision = 99 WHERE revision = 8"),
    "it is gone": lambda run: run("DELETE FROM snapshots"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_snapshot_that_can_not_be_trusted_is_passed_over(written: str, damage: Callable[[Run], object]) -> None:
    with raw(written) as run:
        damage(run)
    assert _pages(written) == TRUE_PAGES
    with keeper_of(written) as keeper:
        assert keeper.as_of(9).of(Notes).pages["a"] == TRUE_PAGES[:9]


def test_a_new_fold_ignores_the_old_snapshots_and_replaces_them(written: str) -> None:
    newer = Kinds((notes_room(version=2),))
    assert _pages(written, newer) == TRUE_PAGES
    with keeper_of(written, newer) as keeper:
        assert keeper.snapshot() == 10
        assert keeper.ledger.store.snapshot_revisions("notes.2") == [10]
        assert keeper.ledger.store.snapshot_revisions("notes.1") == []


def test_nothing_is_saved_of_an_empty_ledger(dsn: str) -> None:
    with keeper_of(dsn) as keeper:
        assert keeper.snapshot() == 0
        assert keeper.ledger.store.snapshot_anchors() == []
        assert verify(keeper.ledger.store).is_whole


def test_a_snapshot_taken_twice_is_kept_once(dsn: str) -> None:
    with keeper_of(dsn) as keeper:
        keeper.commit([note()], actor="tester", read_at=None)
        assert [keeper.snapshot(), keeper.snapshot()] == [1, 1]
        assert keeper.ledger.store.snapshot_revisions(KINDS.fold_version) == [1]


def test_snapshots_come_by_themselves_and_thin_out(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plimsoll.state.keeper, "SNAPSHOT_EVENTS", 5)
    with keeper_of(dsn) as keeper:
        for _ in range(200):
            keeper.commit([note("a"), note("b")], actor="tester", read_at=None)
        revisions = keeper.ledger.store.snapshot_revisions(KINDS.fold_version)
        # Every third commit of two events takes one, so without thinning there would be 66.
        assert revisions[-8:] == [354, 360, 366, 372, 378, 384, 390, 396]
        assert 12 <= len(revisions) <= 30
        assert revisions[0] <= 100, "the oldest quarter can be asked for without reading it from the start"
        assert list(verify_snapshots(keeper.ledger, KINDS)) == []
        want = {revision: fold_of(keeper.ledger.store.events(until=revision)).dump() for revision in range(0, 401, 7)}
        assert {revision: keeper.as_of(revision).dump() for revision in want} == want


def test_a_start_after_many_events_saves_a_snapshot_for_the_next(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plimsoll.state.keeper, "SNAPSHOT_EVENTS", 10)
    with open_ledger(dsn, create=True) as ledger:
        ledger.commit([note("a", str(number)) for number in range(25)], actor="tester", read_at=None)
        Keeper(ledger, KINDS)
        assert ledger.store.snapshot_revisions(KINDS.fold_version) == [25]
        assert fold_of(events_of(ledger)).dump() == Keeper(ledger, KINDS).state().dump()
