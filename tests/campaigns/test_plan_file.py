"""A plan as JSON: the shape that others rely on, there and back, and what is said of a file that is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plimsoll.campaigns.model import Plan, Score, Status
from plimsoll.campaigns.plan_file import BadPlan, plan_json, read_plan
from tests.support.plans import batch

SCORE = Score(total=24.0, exposure=20.0, imbalance=0.5, peak=4.0)
PLAN = Plan(
    campaign="fix",
    number=3,
    status=Status.FEASIBLE,
    score=SCORE,
    bound=18.0,
    batches=(batch("ant/chat", "05 10:00", nodes=4), batch("bee", "06 11:00", nodes=6, mode="rolling", number=2)),
    greedy=Score(total=36.0, exposure=30.0, imbalance=0.6, peak=6.0),
)
BATCH: dict[str, Any] = {
    "cluster": "ant",
    "mode": "whole",
    "batch": 1,
    "nodes": 4,
    "start": "2026-01-05T10:00:00+00:00",
    "end": "2026-01-05T12:00:00+00:00",
}


def test_the_shape() -> None:
    conflict, relaxations = [{"limit": "deadline", "text": "…"}], [{"limit": "deadline", "change": "deadline + 1 day"}]
    found = plan_json(PLAN, 1.23456, conflict, relaxations, zone="Europe/Stockholm", seed=7, notes=["a note"])
    assert list(found)[:10] == [
        "campaign", "number", "status", "objective", "bound", "gap", "seconds", "batches", "conflict", "relaxations",
    ]  # fmt: skip
    assert found["objective"] == {"total": 24.0, "exposure": 20.0, "imbalance": 0.5, "peak": 4.0}
    assert (found["status"], found["number"], found["bound"], found["gap"]) == ("feasible", 3, 18.0, 0.25)
    assert found["seconds"] == 1.235
    assert found["batches"][0] == {  # type: ignore[index]
        "cluster": "ant/chat",
        "mode": "whole",
        "batch": 1,
        "nodes": 4,
        "start": "2026-01-05T11:00:00+01:00",
        "end": "2026-01-05T13:00:00+01:00",
    }
    assert (found["conflict"], found["relaxations"]) == (conflict, relaxations)
    assert found["greedy"] == {"total": 36.0, "exposure": 30.0, "imbalance": 0.6, "peak": 6.0, "gap": 0.5}
    assert (found["seed"], found["notes"], found["impactless"]) == (7, ["a note"], {})
    json.dumps(found)


def test_a_plan_that_does_not_exist() -> None:
    found = plan_json(Plan("fix", 1, Status.INFEASIBLE, None, None, ()), 2)
    assert (found["objective"], found["bound"], found["gap"], found["batches"]) == (None, None, None, [])
    assert read_plan(json.dumps(found), "p.json") == Plan("fix", 1, Status.INFEASIBLE, None, None, ())


def test_there_and_back() -> None:
    assert read_plan(json.dumps(plan_json(PLAN, 1, zone="Asia/Kolkata")), "p.json") == PLAN


def test_batches_are_enough() -> None:
    found = read_plan(json.dumps({"campaign": "fix", "batches": [BATCH]}), "p.json")
    assert (found.number, found.status, found.score, len(found.batches)) == (0, Status.UNKNOWN, None, 1)


def bad(**changes: Any) -> str:
    return json.dumps({"campaign": "fix", "batches": [{**BATCH, **changes}]})


MISTAKES = {
    "no JSON": ('{"campaign": "fix",\n "batches": [}', "line 2, column 14: not JSON"),
    "a list": ("[]", "the file: expected an object, found []"),
    "no batches": ('{"campaign": "fix"}', "'batches' is missing"),
    "no campaign": ('{"batches": []}', "'campaign' is missing"),
    "batches that are none": ('{"campaign": "fix", "batches": {}}', "batches: expected a list, found {}"),
    "a batch that is none": ('{"campaign": "fix", "batches": [3]}', "batches[0]: expected an object, found 3"),
    "a batch without nodes": (
        json.dumps({"campaign": "fix", "batches": [{key: BATCH[key] for key in BATCH if key != "nodes"}]}),
        "batches[0]: 'nodes' is missing",
    ),
    "nodes in words": (bad(nodes="four"), 'batches[0].nodes: expected a whole number from 0, found "four"'),
    "nodes that are true": (bad(nodes=True), "batches[0].nodes: expected a whole number from 0, found true"),
    "batch number 0": (bad(batch=0), "batches[0].batch: expected a whole number from 1, found 0"),
    "another mode": (bad(mode="half"), 'batches[0].mode: expected one of whole, rolling, found "half"'),
    "a time that is none": (bad(start="noon"), "batches[0].start: expected a time such as"),
    "a time without an offset": (bad(start="2026-01-05T10:00:00"), "batches[0].start: expected a time with its offset"),
    "a time beyond the calendar": (bad(start="0001-01-01T00:00:00+14:00"), "batches[0]"),
    "an end before the start": (
        bad(end="2026-01-05T09:00:00+00:00"),
        "batches[0]: ends 2026-01-05T09:00:00+00:00, not",
    ),
    "an end at the start": (bad(end=BATCH["start"]), "batches[0]: ends 2026-01-05T10:00:00+00:00, not"),
    "a cluster without a name": (bad(cluster=" "), "batches[0].cluster: expected a text"),
    "another status": ('{"campaign": "fix", "batches": [], "status": "good"}', "status: expected one of optimal"),
    "a number in words": ('{"campaign": "fix", "batches": [], "number": "3"}', "number: expected a whole number"),
    "a bound that is no number": ('{"campaign": "fix", "batches": [], "bound": NaN}', "bound: expected a number"),
    "an objective without peak": (
        '{"campaign": "fix", "batches": [], "objective": {"total": 1, "exposure": 1, "imbalance": 0}}',
        "objective: 'peak' is missing",
    ),
    "nested too deep": ("[" * 100_000, "p.json: "),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(name: str) -> None:
    text, want = MISTAKES[name]
    with pytest.raises(BadPlan) as caught:
        read_plan(text, "p.json")
    assert caught.value.message.startswith("p.json: ")
    assert want in caught.value.message
    assert (caught.value.code, caught.value.exit_code) == ("bad_plan", 2)
