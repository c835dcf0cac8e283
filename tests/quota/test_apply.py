"""Applying a plan, on both databases: what is done at once, what waits for whom, and two people at the same time.

Numbers are nodes of 8 GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from plimsoll.errors import Stale
from plimsoll.ledger.verify import verify
from plimsoll.quota.apply import Held, Wait
from plimsoll.quota.changes import NoticeGiven, QuotaAssigned
from plimsoll.quota.model import Answer, Haircut, Kind, Notice, Quota, QuotaKey
from plimsoll.quota.plan import Plan, Trim
from plimsoll.quota.service import apply_plan
from plimsoll.rooms import open_keeper
from plimsoll.state.state import State
from tests.support.harbour import DAY, SIZE, TIGER, Harbour, Work, policy_text

BOTH = {"a": 60, "b": 40}
ALL_RUN = (Work("a", 60), Work("b", 40))


@pytest.fixture
def harbour(dsn: str) -> Iterator[Harbour]:
    """100 nodes, all of them assigned and in use, nothing guaranteed."""
    with Harbour(100, BOTH, ALL_RUN, dsn=dsn) as harbour:
        yield harbour


def test_the_first_alignment_takes_no_notice_as_nothing_was_guaranteed(harbour: Harbour) -> None:
    applied, events = harbour.apply(word="fixed:0.1")
    assert [event.kind for event in events] == ["quota.aligned"]
    assert (applied.held, len(applied.changed)) == ([], 1)
    assert (harbour.guaranteed, harbour.line_in_force) == ({"a": 54, "b": 36}, 90)


def test_applying_again_changes_nothing(harbour: Harbour) -> None:
    harbour.apply(word="fixed:0.1")
    head = harbour.state.revision
    applied, events = harbour.apply(word="fixed:0.1")
    assert (applied.changed, applied.held, events) == ([], [], [])
    assert harbour.state.revision == head


def test_a_dry_run_changes_nothing(harbour: Harbour) -> None:
    head = harbour.state.revision
    applied, events = harbour.apply(is_dry_run=True)
    assert (len(applied.changed), events, harbour.state.revision) == (1, [], head)


def test_taking_running_capacity_that_is_guaranteed_waits_for_notice_and_agreement(harbour: Harbour) -> None:
    harbour.apply()
    given_at = harbour.now
    applied, events = harbour.apply(word="fixed:0.1")
    assert applied.held == [Held(TIGER, Wait.NOTICE_GIVEN, ["a", "b"], given_at + 3 * DAY)]
    assert [event.kind for event in events] == ["quota.notice_given"] * 2
    assert (harbour.guaranteed, harbour.told) == (BOTH, {"a": 54, "b": 36})

    applied, events = harbour.apply(word="fixed:0.1")
    assert applied.held == [Held(TIGER, Wait.ANNOUNCED, ["a", "b"], given_at + 3 * DAY)]
    assert events == [], "nobody is told twice"

    harbour.agree("a")
    harbour.agree("b", Answer.OBJECTED)
    harbour.wait(3 * DAY)
    applied, events = harbour.apply(word="fixed:0.1")
    assert applied.held == [Held(TIGER, Wait.NEEDS_AGREEMENT, ["b"], given_at + 3 * DAY)]
    assert (events, harbour.guaranteed) == ([], BOTH)

    harbour.agree("b")
    harbour.apply(word="fixed:0.1")
    assert (harbour.guaranteed, harbour.told, harbour.line_in_force) == ({"a": 54, "b": 36}, {}, 90)


def test_who_was_told_of_less_is_told_anew(harbour: Harbour) -> None:
    harbour.apply()
    harbour.apply(word="fixed:0.1")
    harbour.agree("a")
    harbour.agree("b")
    harbour.wait(3 * DAY)
    applied, _ = harbour.apply(word="fixed:0.2")
    assert applied.held == [Held(TIGER, Wait.NOTICE_GIVEN, ["a", "b"], harbour.now + 3 * DAY)]
    assert (harbour.guaranteed, harbour.told) == (BOTH, {"a": 48, "b": 32})


def test_what_nothing_runs_on_and_what_is_idle_go_at_once(dsn: str) -> None:
    with Harbour(100, BOTH, (Work("a", 60, idle=5), Work("b", 35)), dsn=dsn) as harbour:
        harbour.apply()
        applied, _ = harbour.apply(word="fixed:0.1")
        assert applied.held == []
        assert harbour.guaranteed == {"a": 55, "b": 35}


def test_one_idle_node_of_a_gang_is_under_running_work(dsn: str) -> None:
    with Harbour(50, {"a": 50}, (Work("a", 50, idle=5, kind=Kind.GANG),), dsn=dsn) as harbour:
        harbour.apply()
        applied, _ = harbour.apply(word="fixed:0.1")
        assert [held.wait for held in applied.held] == [Wait.NOTICE_GIVEN]
        notice = harbour.notice("a")
        assert notice is not None
        assert notice.haircut == Haircut(running=5 * SIZE)


def _announce(harbour: Harbour, team: str, was: int, guaranteed: int, haircut: Haircut) -> None:
    due = harbour.now + 10 * DAY
    notice = Notice(f"{team}/tiger/H200", team, *TIGER, was * SIZE, guaranteed * SIZE, haircut, harbour.now, due)
    harbour.commit(NoticeGiven(notice))


def test_a_pool_that_was_announced_is_not_aligned_before_its_day(dsn: str) -> None:
    with Harbour(100, {"a": 60, "b": 50}, (Work("a", 60),), dsn=dsn) as harbour:
        _announce(harbour, "b", 50, 40, Haircut(unscheduled=10 * SIZE))
        harbour.wait(10 * DAY - timedelta(seconds=1))
        applied, events = harbour.apply()
        assert [(held.wait, held.teams) for held in applied.held] == [(Wait.ANNOUNCED, ["b"])]
        assert (events, harbour.guaranteed) == ([], {})
        harbour.wait(timedelta(seconds=1))
        harbour.apply()
        assert (harbour.guaranteed, harbour.told) == ({"a": 60, "b": 40}, {}), "it needs nobody's agreement"


def test_a_first_alignment_that_was_announced_to_running_work_needs_agreement(harbour: Harbour) -> None:
    _announce(harbour, "a", 60, 54, Haircut(running=6 * SIZE))
    harbour.wait(10 * DAY)
    applied, _ = harbour.apply(word="fixed:0.1")
    assert [(held.wait, held.teams) for held in applied.held] == [(Wait.NEEDS_AGREEMENT, ["a"])]
    harbour.agree("a")
    harbour.apply(word="fixed:0.1")
    assert harbour.guaranteed == {"a": 54, "b": 36}


def test_an_announcement_holds_nothing_up_that_takes_nothing(harbour: Harbour) -> None:
    """The team was told that it would fall to 54; by the plan of today it loses nothing."""
    _announce(harbour, "a", 60, 54, Haircut(running=6 * SIZE))
    applied, _ = harbour.apply()
    assert applied.held == []
    assert (harbour.guaranteed, harbour.told) == (BOTH, {})


def test_without_notice_everything_is_done_at_once(harbour: Harbour) -> None:
    harbour.apply()
    harbour.apply(word="fixed:0.1")
    applied, events = harbour.apply(word="fixed:0.1", needs_notice=False)
    assert applied.held == []
    assert (harbour.guaranteed, harbour.told) == ({"a": 54, "b": 36}, {})
    assert {event.reason for event in events} == {"why"}


TRIMS = {
    "nothing: 26 of 35 unscheduled nodes are over, the book stays": (Trim.NOTHING, 345, 319, 0),
    "unscheduled: the book falls by 35, and 9 stand as flex": (Trim.UNSCHEDULED, 310, 310, 9),
    "idle as well: 10 more": (Trim.IDLE, 300, 300, 19),
}


@pytest.mark.parametrize("sentence", TRIMS)
def test_the_worked_case_with_a_trimmed_book(sentence: str, dsn: str) -> None:
    """361 installed, 319 healthy, 345 assigned, 310 allocated, of which 10 idle; buffer 0."""
    trim, want_assigned, want_guaranteed, want_flex = TRIMS[sentence]
    quotas = {"a": 200, "b": 145}
    with Harbour(361, quotas, (Work("a", 180, idle=10), Work("b", 130)), dsn=dsn) as harbour:
        harbour.work_only(319)
        harbour.apply(trim=trim)
        hull = harbour.hull()
        assert [hull.assigned // SIZE, hull.guaranteed // SIZE, hull.flex_standing // SIZE] == [
            want_assigned,
            want_guaranteed,
            want_flex,
        ]


def test_a_trimmed_entry_keeps_its_labels(dsn: str) -> None:
    with Harbour(10, {}, (Work("a", 5),), dsn=dsn) as harbour:
        harbour.commit(QuotaAssigned(Quota("a", *TIGER, 20 * SIZE, {"ticket": "Q-1"})))
        harbour.apply(trim=Trim.UNSCHEDULED)
        assert harbour.book.quotas[QuotaKey("a", *TIGER)] == Quota("a", *TIGER, 5 * SIZE, {"ticket": "Q-1"})


# Two people at once.


def test_of_two_who_apply_at_once_one_wins_and_the_other_is_told_by_whom(harbour: Harbour) -> None:
    """Bob's plan is made; before it is applied, ada's is."""

    def slowly(state: State) -> Plan:
        plan = harbour.plan(state, word="fixed:0.2")
        with open_keeper(harbour.dsn, clock=lambda: harbour.now) as other:
            apply_plan(other, lambda then: harbour.plan(then, word="fixed:0.1"), actor="ada", reason="agreed")
        return plan

    read_at = harbour.state.revision
    with pytest.raises(Stale) as caught:
        apply_plan(harbour.keeper, slowly, actor="bob")
    error = caught.value
    assert error.code == "stale"
    assert error.message == (
        f"nothing was applied: since revision {read_at} ada changed pool/tiger/H200"
        f" (quota.aligned, revision {read_at + 1})"
    )
    assert error.next_step == "plimsoll quota plan"
    assert harbour.guaranteed == {"a": 54, "b": 36}, "ada's"


def test_a_plan_that_was_looked_at_before_somebody_applied_is_refused(harbour: Harbour) -> None:
    planned_at = harbour.state.revision
    harbour.apply(word="fixed:0.1", actor="ada")
    with pytest.raises(Stale, match=r"ada changed pool/tiger/H200 \(quota.aligned, revision \d+\)$"):
        harbour.apply(word="fixed:0.2", actor="bob", planned_at=planned_at)


def test_a_plan_that_was_looked_at_under_another_policy_is_refused(harbour: Harbour) -> None:
    planned_at = harbour.state.revision
    harbour.rule(policy_text(buffer="0.5"))
    with pytest.raises(Stale, match="rpm changed policy/quota"):
        harbour.apply(planned_at=planned_at)
    assert harbour.guaranteed == {}


def test_a_plan_whose_line_moved_with_health_since_is_refused(harbour: Harbour) -> None:
    planned_at = harbour.state.revision
    harbour.work_only(90)
    with pytest.raises(Stale) as caught:
        harbour.apply(planned_at=planned_at)
    assert caught.value.message == (
        f"nothing was applied: since revision {planned_at} the plan is another one for tiger H200"
        " (a line of 800 GPUs then, 720 now)"
    )


def test_a_plan_that_would_be_the_same_now_is_applied(harbour: Harbour) -> None:
    """Two nodes blinked since; with a buffer of 10 % that moves nothing, and nobody has to look again."""
    planned_at = harbour.state.revision
    harbour.work_only(98)
    harbour.work_only(100)
    harbour.apply(word="fixed:0.1", planned_at=planned_at)
    assert harbour.guaranteed == {"a": 54, "b": 36}


def test_an_answer_that_comes_in_between_is_named(harbour: Harbour) -> None:
    harbour.apply()
    harbour.apply(word="fixed:0.1")
    harbour.wait(3 * DAY)
    harbour.agree("a")
    planned_at = harbour.state.revision
    harbour.agree("b")
    with pytest.raises(Stale, match=r"since revision \d+ b changed notice/b/tiger/H200 \(quota.notice_answered"):
        harbour.apply(word="fixed:0.1", planned_at=planned_at)


def test_many_at_once_leave_one_promise_under_one_line(harbour: Harbour) -> None:
    words = ["fixed:0.1", "fixed:0.2", "fixed:0.3", "fixed:0.4"]

    def apply(word: str) -> str:
        with open_keeper(harbour.dsn, clock=lambda: harbour.now) as keeper:
            try:
                apply_plan(keeper, lambda state: harbour.plan(state, word=word), actor=word, needs_notice=False)
            except Stale as stale:
                return stale.message
            return "applied"

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(apply, words * 3))
    assert "applied" in outcomes
    assert all(each == "applied" or each.startswith("nothing was applied: since revision ") for each in outcomes)
    (line,) = {each.gpus for each in harbour.book.lines.values()}
    assert line // SIZE in (90, 80, 70, 60)
    assert sum(harbour.guaranteed.values()) == line // SIZE
    assert verify(harbour.keeper.ledger.store).is_whole
