"""The state is the fold of the events: the same events give the same state, whichever way they come."""

from __future__ import annotations

import pytest

from plimsoll.errors import Tampered, Unavailable
from plimsoll.ledger import open_ledger
from plimsoll.ledger.chain import seal
from plimsoll.ledger.model import EMPTY_HEAD, Draft, Event
from plimsoll.state.state import Kinds, State
from tests.support.ledgers import KINDS, MONDAY, Notes, fold_of, keeper_of, note, notes_room, raw, tear

DRAFTS = [note("a", "1"), note("b", "2"), tear("a"), note("a", "3"), tear("c"), note("b", "4")]
WANT_PAGES = {"a": ("3",), "b": ("2", "4")}
WANT_TORN = {"a": 1, "c": 1}


def _events(drafts: list[Draft] = DRAFTS) -> list[Event]:
    return seal(drafts, head=EMPTY_HEAD, actor="tester", reason="", recorded_at="2026-01-05T09:00:00.000000Z")


def _assert_folded(state: State) -> None:
    assert state.of(Notes).pages == WANT_PAGES
    assert state.of(Notes).torn == WANT_TORN
    assert (state.revision, state.recorded_at) == (6, "2026-01-05T09:00:00.000000Z")


def test_stored_events_are_folded_in_order() -> None:
    _assert_folded(fold_of(_events()))


def test_events_just_committed_give_the_same_state_without_reading_them_back() -> None:
    state = State(KINDS)
    events = _events()
    state.apply_committed(DRAFTS[:2], events[:2])
    state.apply_committed(DRAFTS[2:], events[2:])
    _assert_folded(state)


def test_assumed_changes_give_the_same_state() -> None:
    state = State(KINDS)
    state.assume(DRAFTS, recorded_at="2026-01-05T09:00:00.000000Z")
    _assert_folded(state)


def test_a_state_that_was_saved_and_loaded_goes_on_as_before() -> None:
    events = _events()
    loaded = State(KINDS)
    loaded.load(fold_of(events[:4]).dump())
    assert loaded.dump() == fold_of(events[:4]).dump()
    loaded.apply_all(events[4:])
    _assert_folded(loaded)


def test_a_what_if_sees_its_changes_and_leaves_none() -> None:
    state = fold_of(_events())
    before = state.dump()
    with state.what_if() as tried:
        tried.assume([note("new", "x"), tear("b")], recorded_at="2027-01-01T00:00:00.000000Z")
        assert (set(tried.of(Notes).pages), tried.revision) == ({"a", "new"}, 8)
        assert tried.recorded_at == "2027-01-01T00:00:00.000000Z"
    assert state.dump() == before
    _assert_folded(state)


def test_a_what_if_that_fails_leaves_nothing_either() -> None:
    state = fold_of(_events())
    with pytest.raises(ZeroDivisionError), state.what_if():
        state.assume([tear("a"), tear("b"), *DRAFTS[: 1 // 0]], recorded_at="")
    _assert_folded(state)


def test_after_a_what_if_changes_last_again() -> None:
    state = fold_of(_events()[:5])
    with state.what_if():
        state.assume([tear("b")], recorded_at="")
    state.apply(_events()[5])
    _assert_folded(state)


def test_a_fork_and_its_origin_do_not_know_of_each_other() -> None:
    state = fold_of(_events()[:5])
    with state.what_if():
        state.assume([note("tried", "x")], recorded_at="")
        fork = state.fork()
    assert set(fork.of(Notes).pages) == {"a", "b", "tried"}, "it is what its origin was when it was made"
    fork.assume([tear("a")], recorded_at="")
    state.apply(_events()[5])
    _assert_folded(state)
    assert fork.of(Notes).pages == {"b": ("2",), "tried": ("x",)}


def test_events_that_come_out_of_order_are_refused() -> None:
    state = fold_of(_events()[:2])
    for wrong in (_events()[1], _events()[3]):
        with pytest.raises(Tampered):
            state.apply(wrong)
    assert state.revision == 2


def test_when_and_by_whom_comes_to_the_fold_with_the_change() -> None:
    room = notes_room()
    seen: list[tuple[str, str, str]] = []

    def remember(_state: State, _change: object, event: Event) -> None:
        seen.append((event.actor, event.reason, event.effective_at))

    kinds = Kinds((room,))
    kinds.folds["page.noted"] = (remember,)
    draft = note("a", reason="because", effective_at=MONDAY)
    State(kinds).apply_committed([draft], _events([draft]))
    State(kinds).apply_all(_events([draft]))
    State(kinds).assume([draft], recorded_at="2026-01-06T00:00:00.000000Z")
    want = ("because", "2026-01-05T09:00:00.000000Z")
    assert seen == [("tester", *want), ("tester", *want), ("what-if", *want)]


UNREADABLE = {
    "a kind of a newer version": ("kind = 'page.folded.2'", "unknown_kind", "revision 2 is of kind 'page.folded.2'"),
    "a payload that is no JSON": ("payload = '{'", "unreadable_event", "revision 2 (page.noted) can't be read"),
    "a payload of another shape": ("payload = '{}'", "unreadable_event", "revision 2 (page.noted) can't be read"),
    "a payload that is no text": ("payload = CAST(x'ff' AS TEXT)", "unreadable_event", "revision 2 (page.noted)"),
}


@pytest.mark.parametrize(("change", "want_code", "want_text"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_event_that_can_not_be_read_is_named(sqlite_dsn: str, change: str, want_code: str, want_text: str) -> None:
    with open_ledger(sqlite_dsn, create=True) as ledger:
        ledger.commit([note("a"), note("b")], actor="tester", read_at=None)
    with raw(sqlite_dsn) as run:
        run(f"UPDATE events SET {change} WHERE revision = 2")
    with pytest.raises(Unavailable) as refused:
        keeper_of(sqlite_dsn)
    assert refused.value.code == want_code
    assert want_text in refused.value.message
