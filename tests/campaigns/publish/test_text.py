"""What is told of how good a plan is: neither more nor less than was proved."""

from __future__ import annotations

import msgspec
import pytest

from plimsoll.campaigns.model import Plan, Score, Status
from plimsoll.campaigns.publish.text import proof_text

SCORE = Score(200.0, 200.0, 0.0, 0.0)
PLAN = Plan("nic", 1, Status.FEASIBLE, SCORE, 196.0, ())
"""Of a total of 200 nothing below 196 is possible: at most 2 % better."""

CASES: dict[str, tuple[dict[str, object], str]] = {
    "a plan with a bound": ({}, "no plan can be more than 2.0% better: proved"),
    "the best one": ({"status": Status.OPTIMAL, "bound": 200.0}, "no plan can be better: proved"),
    "a replan that is the best with what its moves weigh": (
        {"status": Status.OPTIMAL, "bound": None},
        "no plan can be better, with what its moves weigh: proved",
    ),
    "a replan that may not be the best": (
        {"bound": None},
        "how much better a plan could be is not known; of a replan, not without what its moves weigh",
    ),
    "none": ({"status": Status.INFEASIBLE, "score": None, "bound": None}, "there is no plan"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_how_good_a_plan_is(case: tuple[dict[str, object], str]) -> None:
    fields, want = case
    assert proof_text(msgspec.structs.replace(PLAN, **fields)) == want
