"""A push: three-way, in order, cut anywhere and completed, one at a time, with drift shown, put back or adopted."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from plimsoll.errors import NotFound, Refused, Stale, Unavailable
from plimsoll.ledger.model import Draft
from plimsoll.quota.changes import QuotaAssigned, TeamRenamed
from plimsoll.quota.model import Quota
from plimsoll.quota.outlets.model import Cause, Step
from plimsoll.quota.outlets.push import OnDrift, Result, push
from plimsoll.quota.outlets.turn import TURN_SECONDS
from plimsoll.rooms import open_keeper
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import Importer
from tests.support.promises import (
    Cut,
    FakeScheduler,
    align,
    aligned_fleet,
    assigned,
    guaranteed,
    pushes,
    tell,
)

TEAMS = {"evals": 16, "vision": 48}
QUOTAS = [row("quotas", team=team, gpus=str(gpus)) for team, gpus in TEAMS.items()]


@pytest.fixture
def scheduler() -> FakeScheduler:
    return FakeScheduler()


@pytest.fixture
def importer(tmp_path: Path) -> Importer:
    return aligned_fleet(tmp_path, TEAMS)


def test_a_push_sets_everything_and_a_second_changes_nothing(importer: Importer, scheduler: FakeScheduler) -> None:
    first = tell(importer, scheduler)
    assert scheduler.settings == {
        "flags": "limits,preemption",
        "limit/evals": "16",
        "limit/vision": "48",
        "team/evals": "here",
        "team/vision": "here",
    }
    assert first.is_complete
    assert {each.step.cause for each in first.outcomes} == {Cause.MISSING}
    (event,) = pushes(importer)
    assert msgspec.json.decode(event.payload)["changed"] == sorted(scheduler.settings)
    head, writes = importer.head, list(scheduler.writes)
    second = tell(importer, scheduler)
    assert second.is_complete
    assert second.same == 5
    assert not second.outcomes
    assert scheduler.writes == writes
    assert importer.head == head


def test_a_dry_run_says_what_a_push_would_do_and_does_nothing(importer: Importer, scheduler: FakeScheduler) -> None:
    head = importer.head
    pushed = tell(importer, scheduler, is_dry_run=True)
    assert [each.result for each in pushed.outcomes] == [Result.WOULD_BE_DONE] * 5
    assert not scheduler.writes
    assert importer.head == head
    assert not importer.keeper.ledger.store.cursor_scopes()


def test_only_what_moved_is_written_and_lower_limits_first(importer: Importer, scheduler: FakeScheduler) -> None:
    tell(importer, scheduler)
    scheduler.writes.clear()
    align(importer, {"evals": 48, "vision": 16})
    pushed = tell(importer, scheduler)
    assert scheduler.writes == ["limit/vision", "limit/evals"]
    assert {each.step.cause for each in pushed.outcomes} == {Cause.BEHIND}
    assert scheduler.most == 64  # never 96


def test_a_team_that_is_gone_is_taken_away_and_strangers_stay(importer: Importer, scheduler: FakeScheduler) -> None:
    tell(importer, scheduler)
    scheduler.settings["limit/stranger"] = "8"
    importer.keeper.commit([Draft(QuotaAssigned(Quota("evals", "tiger", "H200", 0)))], actor="tester", read_at=None)
    tell(importer, scheduler)
    assert sorted(scheduler.settings) == ["flags", "limit/stranger", "limit/vision", "team/vision"]


def test_a_team_with_nothing_guaranteed_is_told_0_so_that_it_may_use_flex(
    tmp_path: Path, scheduler: FakeScheduler
) -> None:
    importer = aligned_fleet(tmp_path, {"vision": 48}, assigned={"vision": 48, "evals": 16})
    tell(importer, scheduler)
    assert scheduler.settings["limit/evals"] == "0"


def test_a_renamed_team_keeps_its_limit_under_its_new_name(importer: Importer, scheduler: FakeScheduler) -> None:
    tell(importer, scheduler)
    importer.keeper.commit([Draft(TeamRenamed("vision", "sight"))], actor="tester", read_at=None)
    assert tell(importer, scheduler).is_complete
    assert scheduler.settings["limit/sight"] == "48"
    assert "limit/vision" not in scheduler.settings
    assert scheduler.most == 64  # the old one goes first


def test_health_at_zero_takes_no_promise_back(tmp_path: Path, scheduler: FakeScheduler) -> None:
    """A shortfall is not a push's business: limits change by the stability rules, not because machines are down."""
    importer = aligned_fleet(tmp_path, TEAMS)
    tell(importer, scheduler)
    importer.bring(write_fleet(tmp_path / "down", nodes=nodes(10, service="repair"), quotas=QUOTAS))
    assert tell(importer, scheduler).is_complete
    assert scheduler.settings["limit/vision"] == "48"


def test_a_cluster_without_a_line_in_force_is_not_pushed(tmp_path: Path, scheduler: FakeScheduler) -> None:
    importer = Importer()
    importer.bring(write_fleet(tmp_path, quotas=[row("quotas")]))
    for is_dry_run in (False, True):
        with pytest.raises(Refused) as caught:
            tell(importer, scheduler, is_dry_run=is_dry_run)
        assert caught.value.code == "not_aligned"
        assert "plimsoll quota apply" in caught.value.next_step
    assert not scheduler.writes


def test_one_pool_without_a_line_keeps_the_whole_cluster_back(tmp_path: Path, scheduler: FakeScheduler) -> None:
    importer = Importer()
    both = [*nodes(2), *nodes(2, prefix="m", sku="H100")]
    importer.bring(write_fleet(tmp_path, nodes=both, quotas=[row("quotas")]))
    align(importer, {"evals": 16}, line=16)
    with pytest.raises(Refused) as caught:
        tell(importer, scheduler)
    assert caught.value.fields["sku"] == "H100"


def test_an_unknown_cluster_is_not_found(importer: Importer, scheduler: FakeScheduler) -> None:
    with pytest.raises(NotFound):
        push(importer.keeper, scheduler, "lion", actor="tester")


# Drift.


def test_drift_is_shown_and_left_while_the_rest_is_done(importer: Importer, scheduler: FakeScheduler) -> None:
    tell(importer, scheduler)
    scheduler.settings["limit/vision"] = "80"
    align(importer, {"evals": 24, "vision": 48})
    pushed = tell(importer, scheduler)
    assert not pushed.is_complete
    (left,) = pushed.with_result(Result.LEFT)
    assert left.step == Step("limit/vision", "80", "48", Cause.DRIFT)
    assert scheduler.settings["limit/vision"] == "80"
    assert scheduler.settings["limit/evals"] == "24"


def test_drift_is_put_back_when_told_so(importer: Importer, scheduler: FakeScheduler) -> None:
    tell(importer, scheduler)
    scheduler.settings["limit/vision"] = "80"
    del scheduler.settings["team/evals"]
    pushed = tell(importer, scheduler, on_drift=OnDrift.PUT_BACK)
    assert pushed.is_complete
    assert scheduler.settings["limit/vision"] == "48"
    assert scheduler.settings["team/evals"] == "here"
    assert not tell(importer, scheduler).outcomes


def test_a_lower_limit_is_adopted_into_the_book(importer: Importer, scheduler: FakeScheduler) -> None:
    tell(importer, scheduler)
    scheduler.settings["limit/vision"] = "40"
    pushed = tell(importer, scheduler, on_drift=OnDrift.ADOPT)
    assert pushed.is_complete
    assert guaranteed(importer) == {"evals": 16, "vision": 40}
    assert assigned(importer, "vision") == 40
    (event,) = importer.keeper.ledger.store.last_events(1)
    assert event.kind == "quota.assigned"
    assert event.reason == "set by hand in fake and adopted"
    again = tell(importer, scheduler)
    assert again.is_complete
    assert not again.outcomes


def test_a_higher_limit_is_adopted_where_the_line_carries_it(importer: Importer, scheduler: FakeScheduler) -> None:
    tell(importer, scheduler)
    scheduler.settings["limit/vision"] = "64"  # 16 + 64 = 80, the line
    assert tell(importer, scheduler, on_drift=OnDrift.ADOPT).is_complete
    assert guaranteed(importer) == {"evals": 16, "vision": 64}
    assert assigned(importer, "vision") == 64


REFUSED = {
    "it does not fit under the line": (
        "72",
        "72 GPUs do not fit under the line in force: it is 80, others are guaranteed 16",
    ),
    "it is not whole nodes": ("44", "44 GPUs are not whole nodes of 8"),
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_what_is_not_legal_is_not_adopted(case: str, importer: Importer, scheduler: FakeScheduler) -> None:
    value, want_words = REFUSED[case]
    tell(importer, scheduler)
    scheduler.settings["limit/vision"] = value
    head = importer.head
    pushed = tell(importer, scheduler, on_drift=OnDrift.ADOPT)
    assert not pushed.is_complete
    (adoption,) = pushed.adoptions
    assert adoption.problem.startswith(want_words)
    assert guaranteed(importer) == TEAMS
    assert importer.head == head
    assert scheduler.settings["limit/vision"] == value


def test_what_one_team_gave_up_another_may_have_by_adoption(importer: Importer, scheduler: FakeScheduler) -> None:
    align(importer, {"evals": 24, "vision": 56})
    importer.keeper.commit([Draft(QuotaAssigned(Quota("evals", "tiger", "H200", 24)))], actor="tester", read_at=None)
    tell(importer, scheduler)
    scheduler.settings |= {"limit/evals": "64", "limit/vision": "16"}  # only together they fit under the line
    assert tell(importer, scheduler, on_drift=OnDrift.ADOPT).is_complete
    assert guaranteed(importer) == {"evals": 64, "vision": 16}


def test_adopting_leaves_alone_what_is_no_limit(importer: Importer, scheduler: FakeScheduler) -> None:
    tell(importer, scheduler)
    scheduler.settings["flags"] = "none"
    pushed = tell(importer, scheduler, on_drift=OnDrift.ADOPT)
    assert not pushed.is_complete
    assert [each.step.name for each in pushed.with_result(Result.LEFT)] == ["flags"]


def test_a_dry_run_of_adopting_changes_no_book(importer: Importer, scheduler: FakeScheduler) -> None:
    tell(importer, scheduler)
    scheduler.settings["limit/vision"] = "40"
    head = importer.head
    pushed = tell(importer, scheduler, on_drift=OnDrift.ADOPT, is_dry_run=True)
    assert [each.found for each in pushed.adoptions] == [40]
    assert not pushed.outcomes
    assert importer.head == head


def test_a_field_that_somebody_holds_is_drift_with_its_owner(importer: Importer, scheduler: FakeScheduler) -> None:
    tell(importer, scheduler)
    scheduler.taken["limit/vision"] = "argocd"
    align(importer, {"evals": 24, "vision": 40})
    pushed = tell(importer, scheduler)
    (left,) = pushed.with_result(Result.LEFT)
    assert (left.step.name, left.step.cause, left.owner) == ("limit/vision", Cause.DRIFT, "argocd")
    assert scheduler.settings["limit/evals"] == "24"
    assert tell(importer, scheduler, on_drift=OnDrift.PUT_BACK).is_complete
    assert scheduler.settings["limit/vision"] == "40"


def test_what_the_scheduler_refuses_holds_nobody_else_up(importer: Importer, scheduler: FakeScheduler) -> None:
    def refuse(step: Step) -> None:
        if step.name == "team/evals":
            raise Refused("kubernetes_no_namespace", "there is no namespace 'evals'", next_step="make it")

    scheduler.before_write = refuse
    pushed = tell(importer, scheduler)
    (refused,) = pushed.with_result(Result.REFUSED)
    assert refused.problem == "there is no namespace 'evals'; next: make it"
    assert len(scheduler.writes) == 4
    scheduler.before_write = lambda _step: None
    assert tell(importer, scheduler).is_complete


# Cut in the middle.


def kill(importer: Importer, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on nothing of the process reaches the database: whatever it still tries to tidy up is not done."""
    monkeypatch.setattr(importer.keeper.ledger.store, "update_cursors", _die)
    monkeypatch.setattr(importer.keeper, "commit", _die)


@pytest.mark.parametrize("is_after", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("number", range(5))
def test_a_push_cut_anywhere_is_completed_by_the_next(
    number: int, is_after: bool, importer: Importer, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def cut(step: Step) -> None:
        steps.append(step.name)
        if len(steps) == number + 1:
            kill(importer, monkeypatch)
            raise Cut

    scheduler.before_write, scheduler.after_write = (lambda _step: None, cut) if is_after else (cut, lambda _step: None)
    with pytest.raises(Cut):
        tell(importer, scheduler)
    monkeypatch.undo()
    assert len(scheduler.writes) == number + is_after
    scheduler.before_write = scheduler.after_write = lambda _step: None
    importer.now += timedelta(seconds=TURN_SECONDS + 1)  # the dead one's turn is over
    align(importer, {"evals": 8, "vision": 24})  # the promise moves before anybody comes back
    pushed = tell(importer, scheduler)
    assert pushed.is_complete, pushed.outcomes  # nobody is blamed for what the cut push had set
    assert (scheduler.settings["limit/evals"], scheduler.settings["limit/vision"]) == ("8", "24")
    (event,) = pushes(importer)
    assert msgspec.json.decode(event.payload)["changed"] == sorted(scheduler.settings)
    head = importer.head
    assert not tell(importer, scheduler).outcomes
    assert importer.head == head


def test_a_push_cut_twice_with_other_numbers_each_time_is_still_ours(
    importer: Importer, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(importer, scheduler)
    for guaranteed_to_vision, is_after in ((40, True), (32, False), (24, True)):
        align(importer, {"evals": 16, "vision": guaranteed_to_vision})

        def cut(_step: Step) -> None:
            kill(importer, monkeypatch)
            raise Cut

        scheduler.before_write = scheduler.after_write = lambda _step: None
        setattr(scheduler, "after_write" if is_after else "before_write", cut)
        with pytest.raises(Cut):
            tell(importer, scheduler)
        monkeypatch.undo()
        importer.now += timedelta(seconds=TURN_SECONDS + 1)
    scheduler.before_write = scheduler.after_write = lambda _step: None
    align(importer, {"evals": 16, "vision": 8})
    pushed = tell(importer, scheduler)
    assert pushed.is_complete, pushed.outcomes
    assert scheduler.settings["limit/vision"] == "8"


def test_the_turn_of_one_who_stands_still_is_taken_over_and_he_is_told(
    tmp_path: Path, scheduler: FakeScheduler
) -> None:
    importer = aligned_fleet(tmp_path, TEAMS)
    quick = FakeScheduler()
    quick.settings = scheduler.settings

    def stand_still(_step: Step) -> None:
        scheduler.before_write = lambda _step: None
        importer.now += timedelta(seconds=TURN_SECONDS + 1)
        assert tell(importer, quick).is_complete

    scheduler.before_write = stand_still
    with pytest.raises(Stale) as caught:
        tell(importer, scheduler)
    assert caught.value.code == "push_taken_over"
    assert len(scheduler.writes) == 1  # it stops at once


def test_a_turn_that_is_held_is_waited_for_and_then_refused(
    importer: Importer, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plimsoll.quota.outlets.turn.WAIT_SECONDS_MAX", 0.3)
    other = FakeScheduler()

    def push_inside(_step: Step) -> None:
        with pytest.raises(Refused) as caught:
            tell(importer, other)
        assert caught.value.code == "push_running"
        assert "tester" in caught.value.message

    scheduler.before_write = push_inside
    assert tell(importer, scheduler).is_complete
    assert not other.writes


def test_what_a_cut_push_had_set_is_on_record_once(
    importer: Importer, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the last write and before its event: the next push finds everything in place and says so."""
    with monkeypatch.context() as patch:
        patch.setattr(importer.keeper, "commit", _die)
        with pytest.raises(Cut):
            tell(importer, scheduler)
    assert not pushes(importer)
    writes = list(scheduler.writes)
    tell(importer, scheduler)
    assert scheduler.writes == writes
    tell(importer, scheduler)
    (event,) = pushes(importer)
    assert msgspec.json.decode(event.payload)["changed"] == sorted(scheduler.settings)


def _die(*_arguments: object, **_options: object) -> None:
    raise Cut


def test_a_scheduler_that_goes_down_in_the_middle_is_told_the_rest_later(
    importer: Importer, scheduler: FakeScheduler
) -> None:
    def fail(step: Step) -> None:
        if step.name == "limit/vision":
            raise Unavailable("slurm_unavailable", "slurmdbd does not answer")

    scheduler.before_write = fail
    with pytest.raises(Unavailable):
        tell(importer, scheduler)
    (event,) = pushes(importer)
    assert msgspec.json.decode(event.payload)["changed"] == ["flags", "limit/evals"]
    scheduler.before_write = lambda _step: None
    assert tell(importer, scheduler).is_complete
    changed = [msgspec.json.decode(event.payload)["changed"] for event in pushes(importer)]
    assert changed[1] == ["limit/vision", "team/evals", "team/vision"]


def test_a_hand_that_comes_after_a_cut_push_is_still_drift(importer: Importer, scheduler: FakeScheduler) -> None:
    tell(importer, scheduler)
    align(importer, {"evals": 16, "vision": 40})
    scheduler.after_write = _die
    with pytest.raises(Cut):
        tell(importer, scheduler)
    scheduler.after_write = lambda _step: None
    scheduler.settings["limit/vision"] = "64"
    assert not tell(importer, scheduler).is_complete


# One at a time.


def test_two_pushes_at_once_end_with_what_the_book_says(tmp_path: Path, scheduler: FakeScheduler) -> None:
    """The slow one began first, with older numbers; the quick one waits for its turn and has the last word."""
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    importer = aligned_fleet(tmp_path, TEAMS, dsn=dsn)
    has_begun, may_go_on = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def wait(_step: Step) -> None:
        has_begun.set()
        assert may_go_on.wait(20)

    scheduler.before_write = wait
    quick = FakeScheduler()
    quick.settings = scheduler.settings  # one scheduler, two who tell it

    def push_slowly() -> None:
        with open_keeper(dsn) as keeper:
            push(keeper, scheduler, "tiger", actor="slow")

    def push_quickly() -> None:
        try:
            with open_keeper(dsn) as keeper:
                push(keeper, quick, "tiger", actor="quick")
        except BaseException as error:
            errors.append(error)

    first = threading.Thread(target=push_slowly)
    first.start()
    assert has_begun.wait(20)
    align(importer, {"evals": 8, "vision": 72})
    second = threading.Thread(target=push_quickly)
    second.start()
    assert not quick.writes
    may_go_on.set()
    first.join(20)
    second.join(20)
    assert not errors
    assert (scheduler.settings["limit/evals"], scheduler.settings["limit/vision"]) == ("8", "72")


def test_a_book_that_moves_during_a_push_is_said(importer: Importer, scheduler: FakeScheduler) -> None:
    def move(step: Step) -> None:
        if step.name == "team/vision":
            align(importer, {"evals": 8, "vision": 48})

    scheduler.before_write = move
    pushed = tell(importer, scheduler)
    assert pushed.has_moved
    assert not pushed.is_complete
    scheduler.before_write = lambda _step: None
    assert tell(importer, scheduler).is_complete
    assert scheduler.settings["limit/evals"] == "8"
