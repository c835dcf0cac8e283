"""What people say about clusters: what is taken, and what is refused with what is and what to type."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import msgspec
import pytest

from plimsoll.errors import NotFound, PlimsollError, Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Cluster, Phase, Purpose
from plimsoll.lifecycle import desk
from plimsoll.lifecycle.changes import ClusterRespecified, RecipeMigrated, RecipeRecorded, StepRetried, StepWaived
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.machines import STANDARD, ZERO_BOOTSTRAP
from plimsoll.lifecycle.model import Going, Life, Said, Spec, Work
from plimsoll.lifecycle.recipe_file import read_recipe
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Quota, QuotaKey
from plimsoll.rooms import KINDS
from plimsoll.state.state import State
from plimsoll.times import parse_time

NOON = parse_time("2026-01-05T12:00:00Z")
ANN = Said("ann", NOON)
SPEC = Spec("lynx", "eastus", Area.US, "b1", "azure", Purpose.RESEARCH, "sub-a", "H200", 8, 2)
RECIPE = read_recipe(STANDARD, source="standard")
NEXT = STANDARD.replace("version: 1", "version: 2")


def work(step: str, going: Going) -> Work:
    return Work(step, going, 1, f"lynx-x-{step}-1", NOON, NOON, NOON, ended=NOON if going is Going.DONE else None)


def life(*works: Work, name: str = "lynx", **fields: object) -> Life:
    spec = msgspec.structs.replace(SPEC, name=name)
    usual: dict[str, object] = {"claimed_at": NOON, "checked_in": ANN} if works else {}
    made = Life(spec, f"{name}-x", 1, ANN, works={each.step: each for each in works})
    return msgspec.structs.replace(made, **usual | fields)


def state_of(*lives: Life) -> State:
    state = State(KINDS)
    state.of(Lives).put_recipe(RECIPE)
    for each in lives:
        state.of(Lives).lives.put(each.name, each)
    return state


class No(NamedTuple):
    """An act that is refused: with which code, and what is said."""

    act: Callable[[], object]
    want_code: str
    want: str
    want_next: str = ""


STUCK, RUNNING = work("bootstrap", Going.STUCK), work("bootstrap", Going.RUNNING)
GATE = work("checkin", Going.DONE)
LEAVING = life(leaving=ANN)
REFUSED = {
    "a name that is planned": No(
        lambda: desk.plan(state_of(life()), SPEC, "u", ANN),
        "cluster_exists",
        "lynx is planned already",
        "cluster edit lynx",
    ),
    "a name that is in production": No(
        lambda: desk.plan(state_of(life(available_at=NOON)), SPEC, "u", ANN),
        "cluster_exists",
        "is in production already",
    ),
    "more nodes after it was begun": No(
        lambda: desk.respecify(state_of(), life(GATE), msgspec.structs.replace(SPEC, nodes=9)),
        "already_begun",
        "lynx is provisioning, and what was made can't be edited: nodes is 8, not 9",
        "plimsoll cluster retire lynx",
    ),
    "an edit on the way out": No(
        lambda: desk.respecify(state_of(), LEAVING, msgspec.structs.replace(SPEC, owner="x")),
        "cluster_leaves",
        "lynx is retired, or on its way out",
    ),
    "check-in on the way out": No(lambda: desk.check_in(LEAVING), "cluster_leaves", "on its way out"),
    "pause of what is gone": No(lambda: desk.pause(life(gone_at=NOON)), "cluster_leaves", "lynx is retired"),
    "retry of nothing": No(lambda: desk.retry(life(), RECIPE, ""), "nothing_to_retry", "no step of lynx has failed"),
    "retry of what runs": No(
        lambda: desk.retry(life(GATE, RUNNING), RECIPE, "bootstrap"),
        "step_runs",
        "bootstrap of lynx is running (attempt 1); a second beside it could do harm",
        "retry lynx bootstrap --lost",
    ),
    "retry of what is done": No(
        lambda: desk.retry(life(GATE), RECIPE, "checkin"), "step_done", "checkin of lynx is done"
    ),
    "retry of what was not begun": No(
        lambda: desk.retry(life(GATE), RECIPE, "services"), "not_begun", "begins by itself"
    ),
    "a step that there is not": No(
        lambda: desk.retry(life(GATE), RECIPE, "service"),
        "no_such_step",
        "has no step 'service'; did you mean services?",
    ),
    "waive of what runs": No(
        lambda: desk.waive(life(GATE, RUNNING), RECIPE, "bootstrap"), "step_runs", "it says itself when it is done"
    ),
    "waive of what is done": No(lambda: desk.waive(life(GATE), RECIPE, "checkin"), "step_done", "is done"),
    "waive while it is planned": No(
        lambda: desk.waive(life(checked_in=ANN), RECIPE, "services"), "not_begun", "lynx is planned and checked in"
    ),
    "waive of a check-in that nobody said": No(
        lambda: desk.waive(life(claimed_at=NOON), RECIPE, "checkin"),
        "not_begun",
        "provisioning and not checked in",
        "plimsoll cluster checkin lynx",
    ),
    "another recipe without the step that runs": No(
        lambda: desk.migrate(state_of(), life(GATE, RUNNING), "zero-bootstrap", None),
        "step_runs",
        "bootstrap of lynx runs, and recipe zero-bootstrap version 1 has no such step",
        "wait until it has ended",
    ),
    "a version that there is not": No(
        lambda: desk.migrate(state_of(), life(), "", 9), "no_such_recipe", "there is no version 9 of recipe standard"
    ),
    "a recipe that there is not": No(
        lambda: desk.find_recipe(state_of(), "standrd"), "no_such_recipe", "did you mean standard?"
    ),
    "a version that was not raised": No(
        lambda: desk.apply_recipe(state_of(), read_recipe(STANDARD.replace("12h", "13h"), source="r")),
        "old_version",
        "recipe standard has version 1 already, and versions do not change; this file says 1",
        "write version: 2",
    ),
    "a version of ours that nobody used yet": No(
        lambda: desk.apply_recipe(State(KINDS), read_recipe(STANDARD.replace("12h", "13h"), source="r")),
        "old_version",
        "has version 1 already",
        "write version: 2",
    ),
    "a cluster that nobody knows": No(
        lambda: desk.find_life(state_of(life()), "lnyx"),
        "no_such_cluster",
        "did you mean lynx?",
        "plimsoll cluster list",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_can_not_be_meant_is_refused(case: No) -> None:
    with pytest.raises(PlimsollError) as caught:
        case.act()
    assert isinstance(caught.value, Refused | NotFound)
    assert caught.value.code == case.want_code
    assert case.want in caught.value.message
    assert case.want_next in caught.value.next_step


def test_a_cluster_of_the_fleet_that_we_did_not_make_says_so() -> None:
    state = State(KINDS)
    tiger = Cluster("tiger", "us-north", Area.US, "c", "acme", Purpose.RESEARCH, Phase.PRODUCTION)
    state.of(Fleet).clusters.put("tiger", tiger)
    with pytest.raises(NotFound, match="tiger is in production, and was not made by Plimsoll"):
        desk.find_life(state, "tiger")
    with pytest.raises(Refused, match="the fleet has a cluster tiger that is in production"):
        desk.plan(state, msgspec.structs.replace(SPEC, name="tiger"), "u", ANN)


def test_what_changes_nothing_is_no_event() -> None:
    state, lynx = state_of(life()), life()
    assert desk.respecify(state, lynx, SPEC) == ({}, [])
    assert desk.check_in(life(GATE)) == []
    assert desk.pause(life(paused=ANN)) == []
    assert desk.resume(lynx) == []
    assert desk.leave(state, LEAVING, is_anyway=False) == []
    assert desk.migrate(state, lynx, "", None) == (RECIPE, [])
    assert desk.apply_recipe(state, RECIPE) == ([], [])
    assert desk.apply_recipe(State(KINDS), RECIPE) == ([], [])


def test_what_nothing_depends_on_may_change_after_it_was_begun() -> None:
    changed = msgspec.structs.replace(SPEC, owner="bob", colo="b2", purpose=Purpose.APPLIED, labels={"a": "b"})
    was, drafts = desk.respecify(state_of(life(GATE)), life(GATE), changed)
    assert set(was) == {"owner", "colo", "purpose", "labels.a"}
    assert was["colo"] == "b1"
    assert isinstance(drafts[0].change, ClusterRespecified)


def test_a_recipe_is_recorded_when_it_is_first_used() -> None:
    drafts = desk.plan(State(KINDS), SPEC, "u", ANN)
    assert isinstance(drafts[0].change, RecipeRecorded)
    assert not any(isinstance(draft.change, RecipeRecorded) for draft in desk.plan(state_of(), SPEC, "u", ANN))


def test_a_new_version_moves_what_was_not_begun() -> None:
    state = state_of(life(), life(GATE, name="moth"), life(name="newt", gone_at=NOON))
    moved, drafts = desk.apply_recipe(state, read_recipe(NEXT, source="r"))
    assert moved == ["lynx"]
    assert [type(draft.change) for draft in drafts] == [RecipeRecorded, RecipeMigrated]


def test_a_migration_keeps_what_is_done_and_takes_the_recipe() -> None:
    found, drafts = desk.migrate(state_of(), life(GATE, work("bootstrap", Going.DONE)), "zero-bootstrap", None)
    assert found.text == ZERO_BOOTSTRAP
    assert [type(draft.change) for draft in drafts] == [RecipeRecorded, RecipeMigrated]


def test_retry_and_waive_mean_the_step_that_waits_for_somebody() -> None:
    lynx = life(GATE, STUCK, work("dependencies", Going.RETRYING))
    assert desk.retry(lynx, RECIPE, "")[0] == "bootstrap"
    assert isinstance(desk.retry(lynx, RECIPE, "")[1][0].change, StepRetried)
    assert isinstance(desk.waive(lynx, RECIPE, "")[1][0].change, StepWaived)
    assert desk.retry(life(GATE, RUNNING), RECIPE, "bootstrap", is_lost=True)[0] == "bootstrap"


TELL: dict[str, tuple[Life, str]] = {
    "the one that failed": (life(GATE, STUCK, work("dependencies", Going.RUNNING)), "bootstrap"),
    "else what runs": (life(GATE, RUNNING), "bootstrap"),
    "else what ended last": (
        life(GATE, msgspec.structs.replace(work("bootstrap", Going.DONE), since=NOON + timedelta(hours=1))),
        "bootstrap",
    ),
    "else the first": (life(), "checkin"),
}


@pytest.mark.parametrize("case", TELL)
def test_the_log_is_that_of_the_step_that_matters(case: str) -> None:
    lynx, want = TELL[case]
    assert desk.step_to_tell(RECIPE, lynx, "").name == want
    assert desk.step_to_tell(RECIPE, lynx, "services").name == "services"


def test_what_is_held_is_the_larger_of_book_and_promise() -> None:
    lynx = life(available_at=NOON)
    state = state_of(lynx)
    assert len(desk.leave(state, lynx, is_anyway=False)) == 1
    book, moon, sun = state.of(QuotaBook), QuotaKey("moon", "lynx", "H200"), QuotaKey("sun", "lynx", "H200")
    book.quotas.put(moon, Quota("moon", "lynx", "H200", 8))
    book.guaranteed.put(moon, 16)
    book.guaranteed.put(sun, 8)
    book.guaranteed.put(QuotaKey("moon", "moth", "H200"), 64)
    assert desk.quota_held(state, "lynx") == {"moon": 16, "sun": 8}
    with pytest.raises(Refused, match=r"2 teams hold quota for 24 GPUs of lynx, most of it moon \(16\)"):
        desk.leave(state, lynx, is_anyway=False)
    assert len(desk.leave(state, lynx, is_anyway=True)) == 1
