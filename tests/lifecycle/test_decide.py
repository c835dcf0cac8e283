"""What one visit decides: what begins, when it begins again, and what no crash, lost answer or clock can change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.errors import Refused
from plimsoll.fleet.model import Phase, Service
from plimsoll.lifecycle.changes import StepIntended, StepSeen
from plimsoll.lifecycle.decide import backoff_seconds, operation_of
from plimsoll.lifecycle.model import ConditionType, Going
from plimsoll.lifecycle.outside import Found
from plimsoll.lifecycle.recipe import Retry, RetryClass
from tests.support.slipway import SLIP, START, Crash, Slip, life, recipe

LOST = ProviderTrouble("t", "no answer", kind=TroubleKind.UNREACHABLE, may_have_happened=True)
GONE = ProviderTrouble("t", "no route", kind=TroubleKind.UNREACHABLE)
BUSY = ProviderTrouble("t", "slow down", kind=TroubleKind.BUSY, retry_seconds=300)
MORE = SLIP.replace("version: 1", "version: 2")


def begun_attempts(slip: Slip, step: str) -> list[int]:
    """The attempts that were intended, in their order."""
    changes = [change for _, change in slip.changes() if isinstance(change, StepIntended)]
    return [change.attempt for change in changes if change.step == step]


def going(slip: Slip, step: str = "checkin") -> Going:
    work = slip.life().work(step)
    assert work is not None, f"{step} was not begun"
    return work.going


# How long until the next attempt.


def test_backoff_doubles_up_to_the_most_and_spreads_over_the_upper_half() -> None:
    retry = Retry(first_seconds=60, most_seconds=1800)
    want = {1: 60, 2: 120, 3: 240, 4: 480, 5: 960, 6: 1800, 7: 1800, 5_000: 1800}
    for failures, longest in want.items():
        waits = [backoff_seconds(retry, failures, f"u{number}-bootstrap-1") for number in range(200)]
        assert longest / 2 <= min(waits) < longest * 0.55
        assert longest * 0.95 < max(waits) <= longest
        assert waits == [backoff_seconds(retry, failures, f"u{number}-bootstrap-1") for number in range(200)]


def test_an_operation_has_a_name_of_its_own() -> None:
    step = recipe().steps[1]
    assert operation_of(life(uid="u7"), step, 3) == "u7-bootstrap-3"


def test_a_step_that_fails_begins_again_when_it_is_due_and_not_before() -> None:
    with Slip() as slip:
        slip.begin()
        slip.cloud.set("lynx", "checkin", Found.FAILED, "", "exit 1", log="boom")
        slip.run()
        work = slip.life().works["checkin"]
        assert (work.going, work.failures, work.log) == (Going.RETRYING, 1, "boom")
        assert work.next_attempt_at is not None
        assert timedelta(seconds=30) <= work.next_attempt_at - slip.clock() <= timedelta(seconds=60)
        slip.clock.now = work.next_attempt_at - timedelta(microseconds=1)
        slip.run()
        assert begun_attempts(slip, "checkin") == [1]
        slip.run(microseconds=1)
        assert begun_attempts(slip, "checkin") == [1, 2]
        assert slip.cloud.calls == ["u1-lynx-checkin-1", "u1-lynx-checkin-2"]


def test_a_person_is_asked_after_as_many_failures_as_the_recipe_says_and_then_it_starts_afresh() -> None:
    with Slip() as slip:
        slip.begin()
        slip.finish("checkin")
        for failures in (1, 2, 3):
            slip.cloud.set("lynx", "bootstrap", Found.FAILED)
            slip.run()
            assert slip.life().works["bootstrap"].failures == failures
            assert going(slip, "bootstrap") is (Going.STUCK if failures == 3 else Going.RETRYING)
            slip.run(hours=1)
        slip.run(days=3)
        assert begun_attempts(slip, "bootstrap") == [1, 2, 3]
        slip.retry(step="bootstrap")
        slip.run()
        assert begun_attempts(slip, "bootstrap") == [1, 2, 3, 4]
        slip.cloud.set("lynx", "bootstrap", Found.FAILED)
        slip.run()
        assert (going(slip, "bootstrap"), slip.life().works["bootstrap"].failures) == (Going.RETRYING, 1)


def test_what_may_not_be_done_twice_is_never_tried_again_by_itself() -> None:
    with Slip() as slip:
        slip.begin()
        slip.finish("checkin", "bootstrap")
        assert slip.recipe_of("lynx").step("dependencies").retry.kind is RetryClass.PERSON  # type: ignore[union-attr]
        slip.cloud.set("lynx", "dependencies", Found.LOST)
        slip.run(days=1)
        assert going(slip, "dependencies") is Going.STUCK


# Crashes and answers that never come.

FAULTS: dict[str, Callable[[Slip], None]] = {
    "the controller dies before the call": lambda slip: slip.cloud.early.update({("lynx", "checkin"): Crash()}),
    "the controller dies after the call": lambda slip: slip.cloud.late.update({("lynx", "checkin"): Crash()}),
    "the answer is lost, the call was not carried out": lambda slip: slip.cloud.early.update(
        {("lynx", "checkin"): LOST}
    ),
    "the answer is lost, the call was carried out": lambda slip: slip.cloud.late.update({("lynx", "checkin"): LOST}),
    "the provider asks to wait": lambda slip: slip.cloud.early.update({("lynx", "checkin"): BUSY}),
}


@pytest.mark.parametrize("told", FAULTS)
def test_an_attempt_is_begun_once_whatever_becomes_of_the_call(told: str) -> None:
    with Slip() as slip:
        slip.cloud.on_begin = lambda order: _must(slip.has_intent(order.operation))
        FAULTS[told](slip)
        slip.add()
        slip.check_in()
        try:
            slip.run()
        except Crash:
            slip.restart()
        assert going(slip) is Going.INTENDED
        is_there = bool(slip.cloud.operations)
        slip.run()
        assert len(slip.cloud.calls) == 1, "it may still arrive: nobody begins it again at once"
        slip.run(minutes=6)
        assert going(slip) is Going.RUNNING
        assert list(slip.cloud.operations) == ["u1-lynx-checkin-1"]
        assert slip.cloud.calls == ["u1-lynx-checkin-1"] * (1 if is_there else 2)
        assert begun_attempts(slip, "checkin") == [1]


def _must(is_so: bool) -> None:
    assert is_so


def test_a_call_that_could_not_be_made_is_made_again_and_is_no_other_attempt() -> None:
    with Slip() as slip:
        slip.cloud.early["lynx", "checkin"] = GONE
        slip.begin()
        assert (going(slip), slip.life().works["checkin"].reason) == (Going.INTENDED, "Unreachable")
        slip.run(minutes=2)
        assert list(slip.cloud.operations) == ["u1-lynx-checkin-1"]


def test_nothing_is_begun_again_while_nobody_can_see_it() -> None:
    with Slip() as slip:
        slip.begin()
        slip.cloud.blind["lynx", "checkin"] = GONE
        slip.run(days=9)
        assert going(slip) is Going.RUNNING
        assert len(slip.cloud.calls) == 1
        slip.cloud.blind.clear()
        slip.finish("checkin")
        assert going(slip) is Going.DONE


def test_what_runs_on_another_machine_is_begun_again_only_when_a_person_says_so() -> None:
    with Slip() as slip:
        slip.begin()
        slip.place = "there"
        slip.run(days=1)
        assert slip.cloud.calls == ["u1-lynx-checkin-1"]
        with pytest.raises(Refused, match="a second beside it could do harm"):
            slip.retry(step="checkin")
        slip.retry(step="checkin", is_lost=True)
        slip.run()
        assert slip.cloud.calls == ["u1-lynx-checkin-1", "u1-lynx-checkin-2"]
        assert slip.life().works["checkin"].place == "there"


def test_an_answer_that_comes_after_a_person_has_decided_changes_nothing() -> None:
    with Slip() as slip:
        slip.cloud.late["lynx", "checkin"] = Crash()
        slip.add()
        slip.check_in()
        with pytest.raises(Crash):
            slip.run()
        slip.restart()
        slip.retry(step="checkin", is_lost=True)
        slip.waive(step="checkin")
        slip.cloud.set("lynx", "checkin", Found.FAILED)
        slip.run()
        assert going(slip) is Going.DONE


# Clocks.


@pytest.mark.parametrize("days", [-30, -3, 3, 30])
def test_a_clock_that_jumps_delays_nothing_by_days(days: int) -> None:
    """After the jump a step that failed begins again, one whose answer was lost too, and the cluster gets there."""
    with Slip() as slip:
        slip.begin()
        slip.finish("checkin")
        slip.cloud.set("lynx", "bootstrap", Found.FAILED)
        slip.run()
        slip.run(days=days)
        slip.run(minutes=2)
        assert begun_attempts(slip, "bootstrap") == [1, 2]
        slip.cloud.early["lynx", "dependencies"] = LOST
        slip.finish("bootstrap")
        slip.run(days=days)
        slip.run(minutes=2)
        assert going(slip, "dependencies") is Going.RUNNING
        slip.finish("dependencies", "scale-sets", "services", "burn-in")
        slip.run(days=days)
        slip.run(minutes=11)
        assert slip.phase() is Phase.PRODUCTION
        assert not slip.idle()


# News.


def test_progress_is_told_now_and_then_and_everything_else_at_once() -> None:
    with Slip() as slip:
        slip.begin()
        for second in range(1, 100):
            slip.cloud.set("lynx", "checkin", Found.RUNNING, "", f"{second} of 100")
            slip.run(seconds=1)
        seen = [change.detail for _, change in slip.changes() if isinstance(change, StepSeen)]
        assert seen == ["", "60 of 100"]
        slip.cloud.set("lynx", "checkin", Found.BLOCKED, "", "at deploy")
        slip.run(seconds=1)
        assert going(slip) is Going.BLOCKED


def test_what_goes_into_the_ledger_is_bounded() -> None:
    with Slip() as slip:
        slip.begin()
        slip.cloud.set("lynx", "checkin", Found.FAILED, "", "x" * 5_000, log="y" * 50_000 + "end")
        slip.run()
        work = slip.life().works["checkin"]
        assert (len(work.detail), work.detail[-1], len(work.log), work.log[-3:]) == (400, "…", 4_000, "end")


def test_the_log_of_a_step_that_went_well_is_not_kept() -> None:
    with Slip() as slip:
        slip.begin()
        slip.cloud.set("lynx", "checkin", Found.DONE, log="all is well")
        slip.run()
        assert slip.life().works["checkin"].log == ""


# People.


def test_nothing_begins_while_it_is_paused_and_what_runs_goes_on() -> None:
    with Slip() as slip:
        slip.begin()
        slip.pause()
        slip.finish("checkin")
        assert going(slip) is Going.DONE
        assert slip.life().work("bootstrap") is None
        slip.resume()
        slip.run()
        assert going(slip, "bootstrap") is Going.RUNNING


def test_a_step_that_is_waived_opens_no_way_around_the_check_in() -> None:
    with Slip() as slip:
        slip.add()
        slip.run()
        slip.waive(step="bootstrap")
        slip.run()
        assert slip.cloud.calls == []
        assert slip.condition(ConditionType.SCALE_SETS_READY).message == "scale-sets comes after checkin"
        slip.check_in()
        slip.run()
        assert slip.cloud.calls == ["u1-lynx-checkin-1"]
        slip.finish("checkin")
        assert going(slip, "scale-sets") is Going.RUNNING


def test_a_planned_cluster_is_edited_and_looked_at_anew() -> None:
    with Slip(limit=300) as slip:
        slip.add()
        slip.run()
        assert slip.phase() is Phase.PLANNED
        slip.edit(nodes=3)
        slip.run()
        assert slip.phase() is Phase.PROVISIONING
        assert {each.generation for each in slip.life().conditions.values()} == {2}


def test_what_has_begun_keeps_its_recipe_until_somebody_migrates_it() -> None:
    with Slip() as slip:
        slip.begin()
        slip.add("puma")
        slip.apply(MORE.replace("step: bootstrap", "step: strap").replace("[bootstrap]", "[strap]"))
        assert (slip.life().recipe_version, slip.life("puma").recipe_version) == (1, 2)
        slip.finish("checkin")
        assert going(slip, "bootstrap") is Going.RUNNING
        with pytest.raises(Refused, match="bootstrap of lynx runs"):
            slip.migrate()


def test_a_step_that_the_new_recipe_does_not_know_is_forgotten_and_the_rest_goes_on() -> None:
    with Slip() as slip:
        slip.begin()
        slip.finish("checkin", "bootstrap")
        slip.cloud.set("lynx", "dependencies", Found.FAILED)
        slip.run()
        slip.apply(MORE.replace("step: dependencies", "step: links"))
        slip.migrate()
        slip.run()
        assert slip.condition(ConditionType.DEPENDENCIES_APPLIED).message == "links runs"
        slip.finish("links", "scale-sets", "services", "burn-in")
        slip.run(minutes=11)
        assert slip.phase() is Phase.PRODUCTION
        assert going(slip, "dependencies") is Going.STUCK


# Quota that shrinks.


def test_quota_that_shrinks_before_anything_was_begun_is_given_back() -> None:
    with Slip() as slip:
        slip.add()
        slip.run()
        assert slip.phase() is Phase.PROVISIONING
        slip.cloud.limits = dict.fromkeys(slip.cloud.limits, 300)
        slip.run()
        assert (slip.phase(), slip.life().claim, slip.life().claimed_at) == (Phase.PLANNED, {}, None)


def test_quota_that_shrinks_after_something_was_begun_stops_nothing() -> None:
    with Slip() as slip:
        slip.begin()
        slip.cloud.limits = dict.fromkeys(slip.cloud.limits, 300)
        slip.finish("checkin")
        assert slip.phase() is Phase.PROVISIONING
        assert going(slip, "bootstrap") is Going.RUNNING
        slip.cloud.limits = dict.fromkeys(slip.cloud.limits, 400)
        slip.run()
        assert slip.condition(ConditionType.QUOTA_SUFFICIENT).is_true


# Into production.


def test_it_is_let_in_when_it_was_green_for_long_enough_without_a_break() -> None:
    with Slip() as slip:
        slip.build()
        slip.run(minutes=9)
        slip.set_service(["lynx-01", "lynx-02"], Service.QUARANTINED)
        slip.run(seconds=10)
        slip.set_service(["lynx-01", "lynx-02"], Service.IN_SERVICE)
        slip.run(seconds=10)
        slip.run(minutes=9, seconds=59)
        assert slip.phase() is Phase.PROVISIONED
        slip.run(seconds=1)
        assert slip.phase() is Phase.PRODUCTION
        assert slip.life().flips == (START + timedelta(minutes=15, seconds=10),)


def test_a_cluster_stays_in_production_whatever_its_health() -> None:
    with Slip() as slip:
        slip.produce()
        slip.set_service([f"lynx-0{number}" for number in (1, 2, 3, 4)], Service.REPAIR)
        slip.run(days=1)
        assert not slip.condition(ConditionType.HEALTH_GREEN).is_true
        assert slip.condition(ConditionType.AVAILABLE).is_true
        assert slip.phase() is Phase.PRODUCTION
