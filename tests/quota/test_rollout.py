"""The correction as a roll-out: stages with their days, who is told what, and the notice as its team reads it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

import msgspec
import pytest

from plimsoll.quota.changes import TeamRenamed
from plimsoll.quota.model import Answer, Haircut, Notice
from plimsoll.quota.plan import Plan
from plimsoll.quota.rollout import announce, notice_text, roll_out
from plimsoll.quota.service import give_notices
from plimsoll.state.state import State
from tests.support.harbour import DAY, SIZE, TIGER, WEEK, Harbour, Work

MONDAY = date(2026, 2, 2)


class Case(NamedTuple):
    """A pool of 100 nodes under a line of 90, and the stage that its correction belongs to."""

    quotas: dict[str, int]
    work: tuple[Work, ...]
    want_stage: int
    want_day: str
    want_cut: tuple[int, int, int]


STAGES = {
    "all fit: nobody loses anything": Case({"a": 50, "b": 40}, (Work("a", 50),), 1, "2026-02-02", (0, 0, 0)),
    "only what nothing runs on": Case({"a": 60, "b": 40}, (Work("a", 60),), 2, "2026-02-09", (10, 0, 0)),
    "what is idle as well": Case(
        {"a": 60, "b": 40}, (Work("a", 56, idle=20), Work("b", 40)), 3, "2026-02-16", (4, 6, 0)
    ),
    "running work": Case({"a": 60, "b": 40}, (Work("a", 59, idle=1), Work("b", 40)), 4, "2026-02-23", (1, 1, 8)),
}


@pytest.mark.parametrize("sentence", STAGES)
def test_a_pool_has_the_stage_of_what_it_hurts_most_and_its_day(sentence: str) -> None:
    case = STAGES[sentence]
    with Harbour(100, case.quotas, case.work) as harbour:
        stages = roll_out(harbour.plan(word="fixed:0.1"), start=MONDAY, every=WEEK)
    assert [str(stage.day) for stage in stages] == ["2026-02-02", "2026-02-09", "2026-02-16", "2026-02-23"]
    (mine,) = [stage for stage in stages if stage.pools]
    assert (mine.stage, str(mine.day)) == (case.want_stage, case.want_day)
    cut = mine.haircut
    assert (cut.unscheduled // SIZE, cut.idle // SIZE, cut.running // SIZE) == case.want_cut
    assert [stage.haircut.gpus for stage in stages if stage is not mine] == [0, 0, 0]
    assert mine.clusters == ["tiger"]
    assert bool(mine.teams) is bool(cut.gpus)


@pytest.fixture
def harbour() -> Iterator[Harbour]:
    """100 nodes; a has 60 of which 59 run, b 40 that all run; under a line of 90 that is stage 4."""
    with Harbour(100, {"a": 60, "b": 40}, (Work("a", 59, idle=1), Work("b", 40))) as harbour:
        yield harbour


def _give(harbour: Harbour, word: str, *, start: date = MONDAY) -> tuple[list[Notice], int]:
    """Announce; returns the notices and how many events that made."""
    notices, events = give_notices(
        harbour.keeper,
        lambda state: harbour.plan(state, word=word),
        start=start,
        every=WEEK,
        actor="rpm",
        reason="",
    )
    return notices, len(events)


def test_every_team_that_loses_is_told_with_the_day_of_its_pools_stage(harbour: Harbour) -> None:
    notices, _ = _give(harbour, "fixed:0.1")
    # Over are 10: a's 1 unscheduled and 1 idle, then 8 of 58 and 40 running, 4.7 and 3.3.
    assert {each.team: (each.was // SIZE, each.guaranteed // SIZE) for each in notices} == {
        "a": (60, 53),
        "b": (40, 37),
    }
    assert {each.due for each in notices} == {datetime(2026, 2, 23, tzinfo=UTC)}
    assert harbour.book.notices == {each.id: each for each in notices}


def test_nobody_is_told_the_same_twice_and_an_answer_stays(harbour: Harbour) -> None:
    _give(harbour, "fixed:0.1")
    harbour.agree("a")
    notices, events = _give(harbour, "fixed:0.1")
    assert events == 0
    assert [each.answer for each in notices if each.team == "a"] == [Answer.AGREED]


def test_a_team_that_was_renamed_is_not_told_the_same_twice(harbour: Harbour) -> None:
    _give(harbour, "fixed:0.1")
    harbour.agree("a")
    harbour.commit(TeamRenamed("a", "alpha"))
    notices, events = _give(harbour, "fixed:0.1")
    assert events == 0
    assert {each.team: each.answer for each in notices} == {"alpha": Answer.AGREED, "b": Answer.NONE}


def test_another_day_or_another_number_is_told_anew(harbour: Harbour) -> None:
    _give(harbour, "fixed:0.1")
    harbour.agree("a")
    _, events = _give(harbour, "fixed:0.1", start=MONDAY + DAY)
    assert events == 2
    assert {each.answer for each in harbour.book.notices.values()} == {Answer.NONE}


def test_who_loses_nothing_by_the_newer_plan_has_no_notice_any_more(harbour: Harbour) -> None:
    _give(harbour, "fixed:0.1")
    notices, events = _give(harbour, "fixed:0")
    assert (notices, events, harbour.told) == ([], 2, {})


def test_nobody_is_told_of_a_cut_that_somebody_made_meanwhile(sqlite_dsn: str) -> None:
    """While the roll-out is announced, somebody else applies the same plan: then nobody loses anything more."""
    with (
        Harbour(100, {"a": 60, "b": 40}, dsn=sqlite_dsn) as harbour,
        Harbour(dsn=sqlite_dsn) as other,
    ):
        made: list[Plan] = []

        def make(state: State) -> Plan:
            made.append(harbour.plan(state, word="fixed:0.1"))
            if len(made) == 1:
                other.apply(word="fixed:0.1")
            return made[-1]

        notices, _ = give_notices(harbour.keeper, make, start=MONDAY, every=WEEK, actor="rpm", reason="")
        assert (notices, harbour.told, len(made)) == ([], {}, 2)


def test_what_was_applied_is_not_announced_again(harbour: Harbour) -> None:
    harbour.apply(word="fixed:0.1")
    notices, drafts = announce(harbour.state, harbour.plan(word="fixed:0.1"), start=MONDAY, every=WEEK, now=harbour.now)
    assert (notices, drafts) == ([], [])


def test_a_second_correction_is_told_from_what_is_guaranteed(harbour: Harbour) -> None:
    """90 of 100 are guaranteed; a line of 80 takes 10 more, all of them under running work."""
    harbour.apply(word="fixed:0.1")
    before = harbour.guaranteed
    notices, _ = _give(harbour, "fixed:0.2")
    assert {each.team: each.was // SIZE for each in notices} == before
    assert sum(each.haircut.gpus for each in notices) == 10 * SIZE


# What a team reads.


def _notice(haircut: Haircut, *, was: int = 480, answer: Answer = Answer.NONE) -> Notice:
    due = datetime(2026, 2, 23, tzinfo=UTC)
    return Notice(
        "a/tiger/H200",
        "a",
        *TIGER,
        was,
        was - haircut.gpus,
        haircut,
        due - timedelta(days=14),
        due,
        answer,
        "ada",
        "fine",
    )


def test_a_team_that_loses_only_paper_reads_that_its_work_is_safe(harbour: Harbour) -> None:
    harbour.work_only(95)
    (hull,) = harbour.plan(word="fixed:0.1").hulls
    assert (
        notice_text(_notice(Haircut(unscheduled=48), was=472), hull)
        == """\
To a: your quota of H200 in tiger changes on 2026-02-23 at 00:00 UTC

What changes: today you hold 472 GPUs on paper. From then on 424 GPUs are guaranteed.
The 48 GPUs that go: 48 that nothing of yours runs on.
Why: teams hold 800 GPUs of H200 in tiger on paper, and 760 work. No working machine stands behind 40 of\
 them: no job can use those. Nodes fail, so the policy promises at most 720: 40 more are shared as flex.
What stays: 40 GPUs of H200 in tiger are healthy and promised to nobody. They are flex: your work beyond the guarantee\
 runs there as long as there is room.
None of your running work is touched. You need not answer. An objection is recorded, and an RPM reads it; by itself it\
 does not move the day.
What you may do:
  agree                    plimsoll quota agree a --cluster tiger --sku H200
  object                   plimsoll quota object a --cluster tiger --sku H200 --reason WHY
  see who could give some  plimsoll quota request a 48 --sku H200 --cluster tiger --dry-run"""
    )


def test_a_team_that_loses_running_capacity_reads_that_nothing_stops_and_that_it_is_asked(harbour: Harbour) -> None:
    text = notice_text(_notice(Haircut(8, 8, 32)), None, is_first=False)
    assert "today you are guaranteed 480 GPUs. From then on 432 GPUs are guaranteed.\n" in text
    assert (
        "8 that nothing of yours runs on, 8 that your work holds and does not use, 32 under your running work." in text
    )
    assert "Nothing that runs is stopped on that day: it goes on as flex" in text
    assert "This needs your agreement. Without it an RPM decides; silence is not taken for agreement.\n" in text
    assert "You need not answer" not in text


def test_a_team_that_loses_idle_gpus_reads_that_the_work_on_them_becomes_flex_and_how_to_avoid_it(
    harbour: Harbour,
) -> None:
    """A gang counts whole or is flex: a job of 64 that holds 8 idle GPUs is touched when those 8 go."""
    (hull,) = harbour.plan(word="fixed:0.1").hulls
    text = notice_text(_notice(Haircut(unscheduled=8, idle=8)), None)
    assert "the work that holds those idle GPUs goes on as flex" in text
    assert "You need not answer. An objection is recorded" in text
    assert "None of your running work is touched" not in text
    assert "stays inside the guarantee" in notice_text(_notice(Haircut(idle=8)), hull)


def test_a_notice_by_another_policy_does_not_give_the_numbers_of_todays_plan(harbour: Harbour) -> None:
    harbour.work_only(95)
    (hull,) = harbour.plan(word="fixed:0.1").hulls
    text = notice_text(_notice(Haircut(unscheduled=24)), hull)
    assert "No working machine stands behind 40 of them: no job can use those.\n" in text
    assert "the policy promises" not in text
    assert "What stays" not in text


def test_what_a_team_may_type_can_be_pasted_whatever_its_name_is() -> None:
    notice = msgspec.structs.replace(_notice(Haircut(unscheduled=48)), team="research; halt")
    text = notice_text(notice, None)
    assert "  agree                    plimsoll quota agree 'research; halt' --cluster tiger --sku H200\n" in text
    assert "plimsoll quota request 'research; halt' 48 --sku H200" in text


def test_a_team_that_loses_all_reads_so() -> None:
    text = notice_text(_notice(Haircut(unscheduled=480)), None)
    assert "From then on none of them is guaranteed.\n" in text


def test_nothing_is_said_of_gpus_that_were_never_there_where_all_were(harbour: Harbour) -> None:
    (hull,) = harbour.plan(word="fixed:0.1").hulls
    text = notice_text(_notice(Haircut(unscheduled=48), was=472), hull)
    assert "No working machine" not in text
    assert "Nodes fail, so the policy promises at most 720: 80 are shared as flex." in text


def test_a_line_of_all_that_works_leaves_no_flex(harbour: Harbour) -> None:
    harbour.work_only(95)
    (hull,) = harbour.plan().hulls
    text = notice_text(_notice(Haircut(unscheduled=48), was=496), hull)
    assert "What stays: no healthy GPU is left over as flex for now.\n" in text
    assert "the policy promises" not in text


def test_an_answer_is_shown_with_who_gave_it() -> None:
    text = notice_text(_notice(Haircut(unscheduled=48), answer=Answer.OBJECTED), None)
    assert text.endswith("\nYour answer: objected, by ada: fine")
