"""What each event makes of a life, one at a time, and that a life written down and read again is the same."""

from __future__ import annotations

from datetime import timedelta

import pytest

from plimsoll.lifecycle.changes import (
    ClusterGone,
    ClusterLeaving,
    ClusterPaused,
    ClusterPlanned,
    ClusterRespecified,
    ConditionsChanged,
    QuotaClaimed,
    QuotaReleased,
    RecipeMigrated,
    SetsSeen,
    StepIntended,
    StepRetried,
    StepSeen,
    StepWaived,
)
from plimsoll.lifecycle.grow import FLIPS_MAX, GROWING, grown
from plimsoll.lifecycle.model import Condition, ConditionType, Going, Life, Move, Said, SetSeen, Severity, Truth
from plimsoll.lifecycle.timeline import happened
from tests.support.slipway import H200, START, Slip, life, spec, work

LATER = START + timedelta(hours=1)
SAID = Said("ada", LATER, "because")


def health(status: Truth) -> ConditionsChanged:
    kind = ConditionType.HEALTH_GREEN
    return ConditionsChanged(
        "lynx", (Condition(kind, status, "Green", "it is", Severity.INFO, Move.NOBODY, 1, START, START),)
    )


def test_a_life_begins_with_its_plan() -> None:
    assert grown(None, ClusterPlanned("lynx", spec(), "u-lynx", 1), SAID) == life(planned=SAID)


def test_an_attempt_keeps_what_was_known_of_the_step() -> None:
    first = work("bootstrap", Going.RETRYING, handle="7", reason="StepFailed", detail="exit 1", log="boom", failures=2)
    after = grown(life(works=[first]), StepIntended("lynx", "bootstrap", 2, "u-2", "here"), SAID).works["bootstrap"]
    assert (after.going, after.attempt, after.operation, after.place) == (Going.INTENDED, 2, "u-2", "here")
    assert (after.begun, after.tried, after.since) == (START, LATER, LATER)
    assert (after.failures, after.log, after.handle, after.next_attempt_at) == (2, "boom", "", None)


FAILS = {
    "a first failure counts": (Going.RUNNING, 0, Going.RETRYING, 1),
    "one that a person is asked about counts": (Going.INTENDED, 5, Going.STUCK, 6),
    "being told the same again does not": (Going.STUCK, 6, Going.STUCK, 6),
    "progress does not": (Going.INTENDED, 3, Going.RUNNING, 3),
}


@pytest.mark.parametrize("told", FAILS)
def test_failures_are_counted_once(told: str) -> None:
    before, known, seen, want = FAILS[told]
    some = life(works=[work("bootstrap", before, failures=known)])
    assert grown(some, StepSeen("lynx", "bootstrap", 1, seen), SAID).works["bootstrap"].failures == want


def test_how_a_step_is_keeps_its_moment_while_nothing_changes() -> None:
    some = life(works=[work("bootstrap", handle="7 https://b/7")])
    same = grown(some, StepSeen("lynx", "bootstrap", 1, Going.RUNNING, detail="3 of 9"), SAID).works["bootstrap"]
    assert (same.since, same.seen, same.detail, same.handle) == (START, LATER, "3 of 9", "7 https://b/7")
    done = grown(some, StepSeen("lynx", "bootstrap", 1, Going.DONE), SAID).works["bootstrap"]
    assert (done.since, done.ended) == (LATER, LATER)


def test_a_person_who_retries_starts_the_count_afresh() -> None:
    some = life(works=[work("bootstrap", Going.STUCK, failures=3)])
    again = grown(some, StepRetried("lynx", "bootstrap"), SAID).works["bootstrap"]
    assert (again.going, again.failures, again.next_attempt_at) == (Going.RETRYING, 0, LATER)


def test_a_step_that_is_waived_says_by_whom() -> None:
    done = grown(life(), StepWaived("lynx", "bootstrap"), SAID).works["bootstrap"]
    assert (done.going, done.attempt, done.detail) == (Going.DONE, 0, "waived by ada: because")


def test_only_losing_the_green_is_a_flip() -> None:
    some = life()
    for status in (Truth.FALSE, Truth.TRUE, Truth.TRUE, Truth.UNKNOWN, Truth.FALSE, Truth.TRUE, Truth.FALSE):
        some = grown(some, health(status), SAID)
    assert some.flips == (LATER, LATER)
    for _ in range(FLIPS_MAX):
        some = grown(grown(some, health(Truth.TRUE), SAID), health(Truth.FALSE), SAID)
    assert len(some.flips) == FLIPS_MAX


def test_a_set_is_steady_since_its_number_changed_last() -> None:
    def seen(some: Life, there: int, minutes: int) -> Life:
        said = Said("c", START + timedelta(minutes=minutes))
        return grown(some, SetsSeen("lynx", (SetSeen("lynx-1", "i", 4, there),)), said)

    some = seen(life(), 3, 1)
    assert some.sets["lynx-1"].steady_since == START + timedelta(minutes=1)
    some = seen(seen(some, 4, 2), 4, 3)
    assert some.sets["lynx-1"].steady_since == START + timedelta(minutes=2)
    assert seen(some, 3, 4).sets["lynx-1"].steady_since == START + timedelta(minutes=4)


def test_a_promise_comes_and_goes() -> None:
    some = grown(life(), QuotaClaimed("lynx", {H200: 384}), SAID)
    assert (some.claim, some.claimed_at) == ({H200: 384}, LATER)
    gone = grown(some, QuotaReleased("lynx"), SAID)
    assert (gone.claim, gone.claimed_at) == ({}, None)


WISHES = {
    "more nodes": (ClusterRespecified("lynx", spec(nodes=5), 1), False),
    "another SKU": (ClusterRespecified("lynx", spec(sku="H100"), 1), False),
    "another subscription": (ClusterRespecified("lynx", spec(subscription="sub-b"), 1), False),
    "another region": (ClusterRespecified("lynx", spec(region="westus"), 1), False),
    "another recipe": (ClusterRespecified("lynx", spec(recipe="bare"), 1), False),
    "another version of its recipe": (RecipeMigrated("lynx", "slip", 2, 1), False),
    "another owner": (ClusterRespecified("lynx", spec(owner="grace"), 1), True),
    "another day": (ClusterRespecified("lynx", spec(wanted=LATER), 1), True),
}


@pytest.mark.parametrize("told", WISHES)
def test_a_promise_is_for_what_was_wanted_then(told: str) -> None:
    change, want = WISHES[told]
    claimed = life(claim={H200: 384}, claimed_at=START)
    after = grown(claimed, change, SAID)
    assert (after.claimed_at is not None, bool(after.claim), after.generation) == (want, want, 2)
    begun = life(claim={H200: 384}, claimed_at=START, works=[work("checkin")])
    assert grown(begun, change, SAID).claimed_at == START, "what was begun keeps what was promised for it"


def test_whoever_leaves_is_not_paused_any_more_and_holds_nothing_when_gone() -> None:
    some = grown(life(claim={H200: 384}, claimed_at=START, available_at=START), ClusterPaused("lynx"), SAID)
    some = grown(some, ClusterLeaving("lynx"), SAID)
    assert (some.paused, some.leaving) == (None, SAID)
    gone = grown(some, ClusterGone("lynx"), SAID)
    assert (gone.claim, gone.claimed_at, gone.available_at, gone.gone_at) == ({}, None, None, LATER)


def test_a_whole_life_is_the_same_after_it_was_read_again_and_every_event_has_words() -> None:
    with Slip() as slip:
        slip.produce()
        slip.pause()
        slip.resume()
        slip.retire()
        slip.run()
        slip.finish("destroy")
        before = slip.lives.dump()
        slip.restart()
        assert slip.lives.dump() == before
        told = {type(change): happened(change, event.effective_time) for event, change in slip.changes()}
        assert all(told[kind] for kind in told if kind in GROWING), told
