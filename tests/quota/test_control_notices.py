"""The controller over time: notices and their answers, clocks that jump, modes, and what was approved for later.

All numbers are nodes of 8 GPUs, worked out by hand. The line is nine tenths of what is healthy.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from plimsoll.errors import Stale, UsageError
from plimsoll.quota.changes import GrantOpened, NoticeGiven, QuotaGranted, QuotaRequested, RequestAnswered
from plimsoll.quota.control import Verdict
from plimsoll.quota.model import Answer, Approved, Grant, Haircut, Mode, Notice, Request, RequestState
from plimsoll.quota.service import answer_notices
from tests.support.harbour import DAY, SIZE, TIGER, Harbour, Work, policy_text

BOTH = {"a": 60, "b": 40}
ALL_RUN = (Work("a", 60), Work("b", 40))
OF_HEALTHY = policy_text(buffer="0.1", of="healthy")


@pytest.fixture
def harbour() -> Iterator[Harbour]:
    """100 nodes are promised and used; the line fell to 90 a week after, and both teams were told: 54 and 36."""
    with Harbour(112, BOTH, ALL_RUN, policy=OF_HEALTHY) as harbour:
        harbour.apply()
        harbour.mode()
        harbour.wait(8 * DAY)
        harbour.work_only(100)
        assert harbour.control().verdict is Verdict.NOTICE
        assert harbour.told == {"a": 54, "b": 36}
        yield harbour


def test_a_notice_says_what_goes_and_when(harbour: Harbour) -> None:
    notice = harbour.notice("a")
    assert notice is not None
    assert (notice.was, notice.guaranteed, notice.haircut) == (60 * SIZE, 54 * SIZE, Haircut(running=6 * SIZE))
    assert (notice.given_at, notice.due) == (harbour.now, harbour.now + 3 * DAY)


def test_silence_is_no_agreement(harbour: Harbour) -> None:
    harbour.wait(30 * DAY)
    step = harbour.control()
    assert step.verdict is Verdict.NEEDS_AGREEMENT
    assert step.why == "a, b did not agree; 80 running GPUs wait for their owners"
    assert harbour.guaranteed == BOTH
    assert harbour.told == {"a": 54, "b": 36}, "nobody is told twice"


def test_what_was_agreed_to_is_taken_on_its_day_and_not_before(harbour: Harbour) -> None:
    harbour.agree("a")
    harbour.wait(3 * DAY - timedelta(seconds=1))
    assert harbour.control().verdict is Verdict.NOTICE
    assert harbour.guaranteed == BOTH
    harbour.wait(timedelta(seconds=1))
    assert harbour.control().verdict is Verdict.CUT
    assert harbour.guaranteed == {"a": 54, "b": 40}
    assert harbour.line_in_force == 94, "what is still promised, above the line now of 90"
    assert harbour.told == {"b": 36}, "a's notice is done"


def test_who_agreed_and_gave_does_not_give_again_for_who_objected(harbour: Harbour) -> None:
    harbour.agree("a")
    harbour.agree("b", Answer.OBJECTED)
    harbour.wait(3 * DAY)
    harbour.control()
    assert harbour.guaranteed == {"a": 54, "b": 40}
    harbour.wait(30 * DAY)
    step = harbour.control()
    assert (step.verdict, step.why) == (
        Verdict.NEEDS_AGREEMENT,
        "b did not agree; 32 running GPUs wait for their owners",
    )
    assert harbour.told == {"b": 36}
    harbour.run(Work("a", 51))
    assert harbour.control().verdict is Verdict.CUT
    assert harbour.guaranteed == {"a": 51, "b": 40}, "what a does not use any more goes before what b runs"


def test_an_objection_is_waited_for_and_may_turn_into_agreement(harbour: Harbour) -> None:
    harbour.agree("a", Answer.OBJECTED)
    harbour.agree("b")
    harbour.wait(3 * DAY)
    harbour.control()
    assert harbour.guaranteed == {"a": 60, "b": 36}
    harbour.agree("a")
    harbour.wait(7 * DAY)
    harbour.control()
    assert harbour.guaranteed["a"] < 60


def test_notices_end_when_health_returns_even_while_nodes_settle(harbour: Harbour) -> None:
    harbour.agree("a")
    harbour.work_only(112)
    assert harbour.control().verdict is Verdict.STEADY
    assert harbour.told == {}
    assert harbour.guaranteed == BOTH


@pytest.mark.parametrize(
    ("low", "ago", "want"),
    [(94, 2 * DAY, Verdict.CHANGED_LATELY), (90, timedelta(hours=1), Verdict.SETTLING)],
    ids=["changed lately", "settling"],
)
def test_notices_end_also_where_growth_has_to_wait(low: int, ago: timedelta, want: Verdict) -> None:
    """10 nodes that nothing ran on were cut, 6 running ones were told of; then some health returned."""
    with Harbour(112, BOTH, (Work("a", 50), Work("b", 40)), policy=OF_HEALTHY) as harbour:
        harbour.apply()
        harbour.mode()
        harbour.wait(8 * DAY)
        harbour.work_only(94)
        harbour.control()
        assert harbour.guaranteed == {"a": 50, "b": 40}
        assert sum(harbour.told.values()) == 84
        harbour.wait(3 * DAY)
        harbour.work_only(low)
        harbour.work_only(108, since=harbour.now - ago)
        assert harbour.control().verdict is want
        assert harbour.told == {}


def test_what_was_agreed_to_is_not_taken_before_its_day_even_when_the_promise_breaks(harbour: Harbour) -> None:
    """5 nodes die, 3 under a and 2 under b: these go at once, the 6 that a agreed to on their day."""
    harbour.agree("a")
    harbour.work_only(95)
    assert harbour.control().verdict is Verdict.CUT
    assert harbour.guaranteed == {"a": 57, "b": 38}


def test_who_is_told_anew_is_not_told_an_earlier_day() -> None:
    """A roll-out told b of 14 days; then the controller needs more of it."""
    with Harbour(112, BOTH, ALL_RUN, policy=OF_HEALTHY) as harbour:
        harbour.apply()
        harbour.mode()
        harbour.wait(8 * DAY)
        due = harbour.now + 14 * DAY
        harbour.commit(NoticeGiven(Notice("b/tiger/H200", "b", *TIGER, 320, 312, Haircut(running=8), harbour.now, due)))
        harbour.work_only(100)
        assert harbour.control().verdict is Verdict.NOTICE
        notices = [harbour.notice(team) for team in ("a", "b")]
        assert [notice and notice.due for notice in notices] == [harbour.now + 3 * DAY, due]
        assert harbour.told == {"a": 54, "b": 36}


def test_who_was_told_of_less_is_told_anew_and_gives_what_it_agreed_to(harbour: Harbour) -> None:
    """9 nodes die, and the line falls on to 81: 19 of 100 are over.

    Of the 72 GPUs that died a had 43 and b 29, so that 5 and 3 whole nodes are unscheduled; 11 nodes of 437 and 291
    running GPUs are left to take, 6.6 and 4.4. What a agreed to goes now, what b has not unscheduled waits.
    """
    harbour.agree("a")
    harbour.wait(3 * DAY)
    harbour.work_only(91)
    assert harbour.control().verdict is Verdict.CUT
    assert harbour.guaranteed == {"a": 54, "b": 37}
    assert harbour.told == {"a": 48, "b": 33}
    notice = harbour.notice("a")
    assert notice is not None
    assert (notice.was, notice.answer, notice.due) == (54 * SIZE, Answer.NONE, harbour.now + 3 * DAY)


def test_a_day_that_people_were_told_is_kept_unless_the_promise_breaks() -> None:
    """A roll-out told b of its day; what b has not scheduled is over the line before."""
    with Harbour(112, BOTH, (Work("a", 60),), policy=OF_HEALTHY) as harbour:
        harbour.apply()
        harbour.mode()
        harbour.wait(8 * DAY)
        cut = Haircut(unscheduled=10 * SIZE)
        told = Notice(
            "b/tiger/H200",
            "b",
            *TIGER,
            40 * SIZE,
            30 * SIZE,
            cut,
            harbour.now,
            harbour.now + 14 * DAY,
            is_announced=True,
        )
        harbour.commit(NoticeGiven(told))
        assert harbour.control().verdict is Verdict.STEADY
        assert harbour.told == {"b": 30}, "the controller does not end what others announced"
        harbour.work_only(100)
        assert harbour.control().verdict is Verdict.NOTICE
        assert harbour.guaranteed == BOTH
        harbour.work_only(95)
        assert harbour.control().verdict is Verdict.CUT
        assert harbour.guaranteed == {"a": 60, "b": 25}
        assert harbour.told == {}, "applied"


def test_an_announcement_that_nobody_applied_ends_a_week_after_its_day() -> None:
    with Harbour(100, {"a": 60}) as harbour:
        harbour.apply()
        harbour.mode()
        due = harbour.now + 14 * DAY
        harbour.commit(
            NoticeGiven(
                Notice("a/tiger/H200", "a", *TIGER, 480, 400, Haircut(running=80), harbour.now, due, is_announced=True)
            )
        )
        harbour.wait(20 * DAY)
        harbour.control()
        assert harbour.told == {"a": 50}
        harbour.wait(DAY)
        harbour.control()
        assert harbour.told == {}, "else an old agreement would be taken up months later"


def test_nobody_agrees_to_what_was_told_only_meanwhile(harbour: Harbour, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between reading and answering, the controller tells a of more."""
    commit, once = harbour.keeper.commit, iter([True])

    def slow(*arguments: Any, **options: Any) -> Any:
        if next(once, False):
            notice = harbour.notice("a")
            assert notice is not None
            worse = Notice(notice.id, "a", *TIGER, 480, 80, Haircut(running=400), harbour.now, notice.due)
            harbour.commit(NoticeGiven(worse))
        return commit(*arguments, **options)

    monkeypatch.setattr(harbour.keeper, "commit", slow)
    with pytest.raises(Stale) as caught:
        answer_notices(harbour.keeper, "a", Answer.AGREED, comment="", actor="ada")
    assert caught.value.code == "notice_changed"
    assert caught.value.message == "a was told anew meanwhile: 80 GPUs, not 432"
    answer = harbour.notice("a")
    assert answer is not None
    assert answer.answer is Answer.NONE


@pytest.mark.parametrize("comment", ["", "  "])
def test_an_objection_without_a_reason_is_not_taken(harbour: Harbour, comment: str) -> None:
    with pytest.raises(UsageError) as caught:
        answer_notices(harbour.keeper, "a", Answer.OBJECTED, comment=comment, actor="ada")
    assert caught.value.next_step == "plimsoll quota object a --reason WHY"


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.PROPOSE])
def test_only_enforce_acts(mode: Mode) -> None:
    with Harbour(100, BOTH) as harbour:
        harbour.apply()
        harbour.mode(Mode.ENFORCE)
        harbour.mode(mode)
        harbour.work_only(50)
        head = harbour.state.revision
        step = harbour.control()
        assert (step.verdict, sum(step.guaranteed.values())) == (Verdict.CUT, 50 * SIZE)
        assert harbour.state.revision == head
        assert harbour.guaranteed == BOTH


JUMPS = {
    "back by an hour: the change is still of today": (-timedelta(hours=1), Verdict.CHANGED_LATELY),
    "back by three days: it still counts as of this week": (-3 * DAY, Verdict.CHANGED_LATELY),
    "back by a year: it holds up nothing": (-365 * DAY, Verdict.GROW),
    "ahead by a year: it was long ago": (365 * DAY, Verdict.GROW),
}


@pytest.mark.parametrize("sentence", JUMPS)
def test_a_clock_that_jumps_after_a_change(sentence: str) -> None:
    jump, want = JUMPS[sentence]
    with Harbour(100, BOTH) as harbour:
        harbour.work_only(80, since=harbour.now - 400 * DAY)
        harbour.apply()
        harbour.mode()
        harbour.work_only(100, since=harbour.now - 399 * DAY)
        harbour.now += jump
        assert harbour.control().verdict is want


def test_nodes_dated_ahead_of_the_clock_do_not_settle_for_ever() -> None:
    with Harbour(100, BOTH) as harbour:
        harbour.work_only(80)
        harbour.apply()
        harbour.mode()
        harbour.wait(8 * DAY)
        harbour.work_only(100, since=harbour.now + 365 * DAY)
        assert harbour.control().verdict is Verdict.GROW


def test_what_was_approved_for_later_is_not_given_back_to_others() -> None:
    """100 healthy, 80 promised, 15 approved from next month on: 5 of the 20 that were cut come back, 3 and 2."""
    with Harbour(100, BOTH) as harbour:
        harbour.work_only(80, since=harbour.now - 9 * DAY)
        harbour.apply()
        harbour.mode()
        request = Request("r1", "c", "H200", 15 * SIZE, harbour.now, harbour.now + 90 * DAY)
        later = Approved("later", *TIGER, 15 * SIZE, harbour.now + 60 * DAY)
        harbour.commit(QuotaRequested(request), RequestAnswered("r1", RequestState.WAITING, approved=later))
        harbour.wait(8 * DAY)
        harbour.work_only(100, since=harbour.now - 2 * DAY)
        assert harbour.control().verdict is Verdict.GROW
        assert harbour.guaranteed == {"a": 51, "b": 34}


def test_who_takes_the_right_to_act_away_comes_before_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its look and its act somebody sets the mode to observe: it looks again, and leaves the pool alone."""
    with Harbour(100, BOTH) as harbour:
        harbour.apply()
        harbour.mode()
        harbour.work_only(50)
        commit, drafts = harbour.keeper.commit, list[int]()

        def slow(*arguments: Any, **options: Any) -> Any:
            if options["actor"] == "controller" and arguments[0]:
                drafts.append(len(arguments[0]))
                if len(drafts) == 1:
                    harbour.mode(Mode.OBSERVE)
            return commit(*arguments, **options)

        monkeypatch.setattr(harbour.keeper, "commit", slow)
        assert harbour.control().verdict is Verdict.CUT
        assert drafts == [1], "the first try was refused, and there was no second"
        assert harbour.guaranteed == BOTH


def test_a_round_lets_temporary_grants_end_whatever_the_mode() -> None:
    with Harbour(100, {"a": 60}) as harbour:
        harbour.apply()
        grant = Grant("g1", "c", *TIGER, 8 * SIZE, harbour.now + DAY)
        harbour.commit(QuotaGranted(*TIGER, "c", 8 * SIZE), GrantOpened(grant))
        harbour.control()
        assert harbour.guaranteed == {"a": 60, "c": 8}
        harbour.wait(DAY)
        harbour.control()
        assert harbour.guaranteed == {"a": 60}


def test_a_cut_does_not_make_work_look_dead_and_so_bring_the_next_cut() -> None:
    """2 of 5 nodes are left of which 2 are pinned; of 24 dead GPUs a had 10 and b 14, so b may still run on 10."""
    with Harbour(5, {"a": 2, "b": 3}, policy=policy_text(pins={"a": 2})) as harbour:
        harbour.apply()
        harbour.mode()
        harbour.run(Work("a", 2), Work("b", 3))
        harbour.work_only(2)
        harbour.control()
        assert (harbour.guaranteed, harbour.told) == ({"a": 2, "b": 2}, {"b": 0})
        head = harbour.state.revision
        assert harbour.control().verdict is Verdict.NOTICE
        assert harbour.state.revision == head
