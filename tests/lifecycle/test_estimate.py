"""When a cluster should be done: the longest way through what is left, with numbers worked out by hand."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

import pytest

from plimsoll.lifecycle.estimate import StepTime, estimate, quantile, step_time
from plimsoll.lifecycle.fold import Took
from plimsoll.lifecycle.model import Going, Life, Work
from tests.support.slipway import START, Slip, life, recipe, work

RECIPE = recipe()
NOW = START + timedelta(hours=10)
MINUTES = {"checkin": 2, "bootstrap": 30, "scale-sets": 60, "services": 20, "dependencies": 100, "burn-in": 40}
"""The usual way: 2 + 30, then the longer of 60 + 20 + 40 = 120 and 100; in all 152, and 10 of steadiness."""
TOOK = {("slip", step): [Took("ant", 60.0 * span, 1)] for step, span in MINUTES.items()}


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def done(*steps: str) -> list[Work]:
    return [work(step, Going.DONE, at=ago(500)) for step in steps]


class Case(NamedTuple):
    """`want` is minutes from now."""

    life: Life
    want: float
    unknown: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


CASES = {
    "nothing was begun": Case(life(), 2 + 30 + 120 + 10),
    "check-in is done": Case(life(works=done("checkin")), 30 + 120 + 10),
    "bootstrap has run for 10 of its 30 minutes": Case(
        life(works=[*done("checkin"), work("bootstrap", at=ago(10))]), 20 + 120 + 10
    ),
    "bootstrap has run for longer than usual: it could end now": Case(
        life(works=[*done("checkin"), work("bootstrap", at=ago(90))]), 0 + 120 + 10
    ),
    "the other branch is the longer one": Case(
        life(works=[*done("checkin", "bootstrap", "scale-sets", "services"), work("burn-in", at=ago(1))]), 100 + 10
    ),
    "a second attempt: what the first one took is part of it": Case(
        life(
            works=[
                *done("checkin", "bootstrap", "dependencies"),
                work("scale-sets", Going.RETRYING, at=ago(45), attempt=2, tried=ago(5)),
            ]
        ),
        15 + 20 + 40 + 10,
    ),
    "all steps are done": Case(life(works=done(*MINUTES)), 10),
    "nobody has ever done burn-in: it counts with the 12 hours that it may take": Case(
        life(works=done("checkin", "bootstrap", "dependencies", "scale-sets", "services")),
        720 + 10,
        ("burn-in",),
        ("burn-in",),
    ),
    "what nobody has done and is done here is not unknown any more": Case(
        life(works=done("checkin", "bootstrap", "dependencies", "scale-sets", "services")),
        40 + 10,
        (),
        ("bootstrap",),
    ),
}


@pytest.mark.parametrize("told", CASES)
def test_estimate(told: str) -> None:
    case = CASES[told]
    took = {pair: each for pair, each in TOOK.items() if pair[1] not in case.left_out}
    found = estimate(case.life, RECIPE, took, NOW)
    assert (found.usual - NOW) / timedelta(minutes=1) == pytest.approx(case.want)
    assert found.late == found.usual, "one cluster says the same of all"
    assert found.unknown == case.unknown


def test_the_late_estimate_takes_what_nine_of_ten_needed() -> None:
    """Eleven clusters took 10, 20 … 110 minutes for burn-in: the median is 60, nine of ten took at most 100."""
    took = {**TOOK, ("slip", "burn-in"): [Took(f"c{number}", 600.0 * number, 1) for number in range(1, 12)]}
    ready = life(works=done("checkin", "bootstrap", "dependencies", "scale-sets", "services"))
    found = estimate(ready, RECIPE, took, NOW)
    assert found.usual == NOW + timedelta(minutes=60 + 10)
    assert found.late == NOW + timedelta(minutes=100 + 10)


def test_step_time() -> None:
    took = [
        Took(name, seconds, attempts) for name, seconds, attempts in (("a", 30.0, 1), ("b", 10.0, 3), ("c", 20.0, 2))
    ]
    assert step_time("slip", "x", took) == StepTime("slip", "x", 3, 20.0, 28.0, 30.0, 2.0)
    assert step_time("slip", "x", []) == StepTime("slip", "x", 0, None, None, None, None)


def test_quantile() -> None:
    assert quantile([7.0], 0.9) == 7.0
    assert quantile([0.0, 10.0], 0.25) == 2.5
    assert quantile([1.0, 2.0, 4.0], 1.0) == 4.0


def test_durations_are_learnt_from_first_attempt_to_end() -> None:
    with Slip() as slip:
        slip.begin()
        slip.clock.go(minutes=4)
        slip.finish("checkin")
        assert slip.lives.took["slip", "checkin"] == (Took("lynx", 300.0, 1),)


def test_a_clock_that_was_set_back_makes_no_step_take_less_than_nothing() -> None:
    with Slip() as slip:
        slip.begin()
        slip.clock.go(days=-2)
        slip.finish("checkin")
        assert slip.lives.took["slip", "checkin"] == (Took("lynx", 0.0, 1),)


def test_a_step_that_was_waived_teaches_nothing() -> None:
    with Slip() as slip:
        slip.begin()
        slip.waive(step="bootstrap")
        assert ("slip", "bootstrap") not in slip.lives.took
