"""One suite for both databases: how events are found again, and the past asked for."""

from __future__ import annotations

from datetime import timedelta

import pytest

import plimsoll.ledger.store
from plimsoll.errors import NotFound
from plimsoll.ledger import Ledger, open_ledger
from plimsoll.ledger.model import Draft, EventFilter
from plimsoll.state.keeper import Keeper
from plimsoll.times import format_time
from tests.support.ledgers import KINDS, MONDAY, Notes, fold_of, note, tear, ticking


def _diary(dsn: str) -> Ledger:
    """Six commits, an hour apart from nine o'clock; the fourth has two events."""
    ledger = open_ledger(dsn, create=True, clock=ticking())
    steps: list[tuple[str, list[Draft]]] = [
        ("ana", [note("tiger-1")]),
        ("bob", [note("tiger-2")]),
        ("ana", [note("tiger_2")]),
        ("bob%", [tear("tiger-1"), note("tiger-1")]),
        ("ana", [note("lion")]),
        ("Ana", [note("Tiger-1")]),
    ]
    for actor, drafts in steps:
        ledger.commit(drafts, actor=actor, read_at=None)
    return ledger


def _hour(hours: float) -> str:
    return format_time(MONDAY + timedelta(hours=hours))


FILTERS = {
    "no filter": (EventFilter(), [1, 2, 3, 4, 5, 6, 7]),
    "one subject": (EventFilter(subject="page/tiger-1"), [1, 4, 5]),
    "a subject that nobody has": (EventFilter(subject="page/tiger"), []),
    "subjects that begin alike": (EventFilter(subject="page/tiger-*"), [1, 2, 4, 5]),
    "an underscore means itself": (EventFilter(subject="page/tiger_*"), [3]),
    "a percent sign means itself": (EventFilter(actor="bob%*"), [4, 5]),
    "a star alone": (EventFilter(subject="*"), [1, 2, 3, 4, 5, 6, 7]),
    "an actor, case counts": (EventFilter(actor="ana"), [1, 3, 6]),
    "actors that begin alike": (EventFilter(actor="bo*"), [2, 4, 5]),
    "one kind": (EventFilter(kind="page.torn"), [4]),
    "kinds that begin alike": (EventFilter(kind="page.*"), [1, 2, 3, 4, 5, 6, 7]),
    "from a moment on, itself included": (EventFilter(recorded_from=_hour(3)), [4, 5, 6, 7]),
    "until a moment, itself included": (EventFilter(recorded_until=_hour(3)), [1, 2, 3, 4, 5]),
    "a span": (EventFilter(recorded_from=_hour(0.5), recorded_until=_hour(2.5)), [2, 3]),
    "everything at once": (EventFilter("page/tiger*", "ana", "page.noted", _hour(1), _hour(9)), [3]),
    "a quote": (EventFilter(subject="' OR 1=1 --"), []),
}


@pytest.mark.parametrize(("where", "want"), FILTERS.values(), ids=FILTERS.keys())
def test_a_filter_finds_what_it_says(dsn: str, where: EventFilter, want: list[int]) -> None:
    with _diary(dsn) as ledger:
        store = ledger.store
        assert [event.revision for event in store.events(where=where)] == want
        assert [event.revision for event in store.last_events(2, where=where)] == want[-2:]
        between = [revision for revision in want if 2 < revision <= 5]
        assert [event.revision for event in store.events(after=2, until=5, where=where)] == between
        assert [event.revision for event in store.last_events(9, until=5, where=where)] == [r for r in want if r <= 5]


@pytest.mark.parametrize("page_rows", [1, 2, 3, 6, 7, 8])
def test_reading_page_by_page_leaves_nothing_out(dsn: str, page_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plimsoll.ledger.store, "READ_PAGE_ROWS", page_rows)
    with _diary(dsn) as ledger:
        assert [event.revision for event in ledger.store.events()] == [1, 2, 3, 4, 5, 6, 7]
        where = EventFilter(subject="page/tiger-*")
        assert [event.revision for event in ledger.store.events(after=1, where=where)] == [2, 4, 5]


MOMENTS = {
    "long before": (-1000, 0),
    "just before the first": (-0.001, 0),
    "at the first": (0, 1),
    "between the first and the second": (0.5, 1),
    "at a commit of two events": (3, 5),
    "just before it": (2.999, 3),
    "at the last": (5, 7),
    "long after": (1000, 7),
}


@pytest.mark.parametrize(("hours", "want"), MOMENTS.values(), ids=MOMENTS.keys())
def test_a_moment_is_answered_with_what_was_known_then(dsn: str, hours: float, want: int) -> None:
    with _diary(dsn) as ledger:
        assert ledger.revision_at(_hour(hours)) == want
        keeper = Keeper(ledger, KINDS)
        then = keeper.as_of(MONDAY + timedelta(hours=hours))
        assert then.revision == want
        assert then.dump() == fold_of(ledger.store.events(until=want)).dump()


def test_a_moment_in_an_empty_ledger_is_revision_zero(dsn: str) -> None:
    with open_ledger(dsn, create=True) as ledger:
        assert ledger.revision_at(_hour(0)) == 0
        assert Keeper(ledger, KINDS).as_of(MONDAY).revision == 0


def test_a_revision_is_answered_with_the_state_after_it(dsn: str) -> None:
    with _diary(dsn) as ledger:
        keeper = Keeper(ledger, KINDS)
        assert [len(keeper.as_of(revision).of(Notes).pages) for revision in range(8)] == [0, 1, 2, 3, 2, 3, 4, 5]
        keeper.as_of(3).of(Notes).pages.drop("tiger-1")
        assert "tiger-1" in keeper.as_of(3).of(Notes).pages, "the past is everybody's own copy"
        assert keeper.state().revision == 7


@pytest.mark.parametrize("revision", [8, 10**12, -1])
def test_a_revision_past_the_head_is_not_found(dsn: str, revision: int) -> None:
    with _diary(dsn) as ledger, pytest.raises(NotFound, match="ends at revision 7") as refused:
        Keeper(ledger, KINDS).as_of(revision)
    assert refused.value.code == "no_such_revision"
    assert refused.value.fields == {"revision": revision, "head": 7}


def test_the_head_of_every_revision_can_be_asked_for(dsn: str) -> None:
    with _diary(dsn) as ledger:
        want = [(event.revision, event.hash, event.recorded_at) for event in ledger.store.events()]
        assert [ledger.head_at(revision) for revision in range(8)] == [(0, "0" * 64, ""), *want]
        assert ledger.head_at(7) == ledger.head()


def test_following_ends_at_its_time_and_starts_where_it_is_told(dsn: str) -> None:
    with _diary(dsn) as ledger:
        assert [event.revision for event in ledger.follow(4, seconds_max=0)] == [5, 6, 7]
        assert list(ledger.follow(7, seconds_max=0.05)) == []


def test_a_follower_gets_what_is_committed_while_it_waits(dsn: str) -> None:
    with _diary(dsn) as ledger, open_ledger(dsn) as other:
        following = ledger.follow(6, seconds_max=30)
        assert next(following).revision == 7
        other.commit([note(), note()], actor="tester", read_at=None)
        assert [next(following).revision, next(following).revision] == [8, 9]
        assert other.store.wait_for_change(8, seconds_max=5)
        assert not other.store.wait_for_change(9, seconds_max=0.01)
