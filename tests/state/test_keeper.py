"""A keeper keeps abreast of its ledger, and decides anew when the state moved under a decision."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from plimsoll.errors import Fenced, Stale
from plimsoll.ledger.model import Draft
from plimsoll.state.keeper import ATTEMPTS_MAX
from plimsoll.state.state import State
from tests.support.ledgers import Notes, fold_of, keeper_of, note, write


def test_two_keepers_of_one_ledger_see_each_others_events_in_order(sqlite_dsn: str) -> None:
    with keeper_of(sqlite_dsn) as one, keeper_of(sqlite_dsn) as two:
        for number in range(3):
            one.commit([note("a", f"one {number}")], actor="one", read_at=None)
            two.commit([note("a", f"two {number}")], actor="two", read_at=None)
        want = ("one 0", "two 0", "one 1", "two 1", "one 2", "two 2")
        assert one.state().of(Notes).pages["a"] == two.state().of(Notes).pages["a"] == want
        assert one.state().dump() == fold_of(one.ledger.store.events()).dump()


def test_an_empty_commit_changes_nothing(sqlite_dsn: str) -> None:
    with keeper_of(sqlite_dsn) as keeper:
        assert keeper.commit([], actor="tester", read_at=0) == []
        assert keeper.decide_and_commit(lambda state: (state.revision, []), actor="tester") == (0, [])
        assert keeper.state().revision == 0


def test_a_refused_commit_does_not_advance_the_state(sqlite_dsn: str) -> None:
    with keeper_of(sqlite_dsn) as keeper:
        keeper.commit([note("a", "1")], actor="tester", read_at=0)
        with pytest.raises(Stale):
            keeper.commit([note("a", "2")], actor="tester", read_at=0)
        assert keeper.state().of(Notes).pages == {"a": ("1",)}


class Meddler:
    """Somebody else who writes page `a` while others think, so many times."""

    def __init__(self, dsn: str, times: int, page: str = "a") -> None:
        self._keeper = keeper_of(dsn)
        self._times_left = times
        self._page = page
        self.decided_on: list[int] = []

    def decide(self, state: State) -> tuple[int, Sequence[Draft]]:
        """How many lines the page has; one more is written."""
        lines = len(state.of(Notes).pages.get("a", ()))
        self.decided_on.append(lines)
        if self._times_left:
            self._times_left -= 1
            write(self._keeper.ledger, self._page)
        return lines, [note("a", f"after {lines}")]

    def close(self) -> None:
        self._keeper.close()


@pytest.mark.parametrize("times", [0, 1, ATTEMPTS_MAX - 1])
def test_a_stale_decision_is_made_anew_on_what_is_true_now(sqlite_dsn: str, times: int) -> None:
    meddler = Meddler(sqlite_dsn, times)
    with keeper_of(sqlite_dsn) as keeper:
        decision, events = keeper.decide_and_commit(meddler.decide, actor="tester")
        assert meddler.decided_on == list(range(times + 1))
        assert decision == times
        assert [event.revision for event in events] == [times + 1]
        assert keeper.state().of(Notes).pages["a"][-1] == f"after {times}"
    meddler.close()


def test_a_decision_that_is_always_stale_is_given_up(sqlite_dsn: str) -> None:
    meddler = Meddler(sqlite_dsn, times=1000)
    with keeper_of(sqlite_dsn) as keeper:
        with pytest.raises(Stale) as refused:
            keeper.decide_and_commit(meddler.decide, actor="tester")
        assert refused.value.code == "stale"
        assert meddler.decided_on == [0, 1, 2, 3, 4, 5, 6, 7], "eight times, no more"
        assert keeper.state().of(Notes).pages["a"] == ("",) * 8, "only the other one's lines"
    meddler.close()


def test_a_decision_is_not_disturbed_by_a_stream_it_did_not_read(sqlite_dsn: str) -> None:
    meddler = Meddler(sqlite_dsn, times=1000, page="b")
    with keeper_of(sqlite_dsn) as keeper:
        keeper.decide_and_commit(meddler.decide, actor="tester")
        assert meddler.decided_on == [0]
        with pytest.raises(Stale):
            keeper.decide_and_commit(meddler.decide, actor="tester", reads=["page/b"])
    meddler.close()


def test_a_leader_of_the_past_does_not_try_again(sqlite_dsn: str) -> None:
    meddler = Meddler(sqlite_dsn, times=0)
    with keeper_of(sqlite_dsn) as keeper:
        with pytest.raises(Fenced):
            keeper.decide_and_commit(meddler.decide, actor="tester", epoch=7)
        assert meddler.decided_on == [0]
    meddler.close()
