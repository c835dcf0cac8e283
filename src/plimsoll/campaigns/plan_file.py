"""A plan as JSON: what `campaign plan -o json` prints and `campaign check` and `campaign compare` read. Pure.

`plan_json` writes the shape that others rely on, `read_plan` takes it back and says what is wrong
with it, and where. A plan that others made needs no more than its campaign and its batches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from plimsoll.campaigns.model import Batch, Mode, Plan, Score, Status
from plimsoll.errors import UsageError
from plimsoll.words import counted

PLAN_CHARACTERS_MAX = 100_000_000
BATCHES_MAX = 1_000_000
SHOWN_MAX = 60
YEAR_LEAST, YEAR_MOST = 1970, 9000
_PARTS = ("total", "exposure", "imbalance", "peak")


class BadPlan(UsageError):
    """A file that is no plan; nothing of it was used."""

    def __init__(self, source: str, message: str) -> None:
        next_step = "plimsoll campaign plan FILE -o json writes a plan as it must be"
        super().__init__("bad_plan", f"{source}: {message}", next_step=next_step, source=source)


def plan_json(
    plan: Plan,
    seconds: float,
    conflict: Sequence[Mapping[str, object]] = (),
    relaxations: Sequence[Mapping[str, object]] = (),
    *,
    zone: str | None = None,
    seed: int | None = None,
    impactless: Mapping[str, int] | None = None,
    notes: Sequence[str] = (),
) -> dict[str, object]:
    """A plan in the shape that others rely on; what is ours alone comes last. Times are shown in `zone`."""
    tz = None if zone is None else ZoneInfo(zone)
    found: dict[str, object] = {
        "campaign": plan.campaign,
        "number": plan.number,
        "status": str(plan.status),
        "objective": _score_json(plan.score),
        "bound": plan.bound,
        "gap": plan.gap,
        "seconds": round(seconds, 3),
        "batches": [_batch_json(batch, tz) for batch in plan.batches],
        "conflict": [dict(each) for each in conflict],
        "relaxations": [dict(each) for each in relaxations],
    }
    if plan.greedy is not None:
        found["greedy"] = {**(_score_json(plan.greedy) or {}), "gap": _gap(plan.greedy, plan.bound)}
    return found | {"impactless": dict(impactless or {}), "notes": list(notes), "seed": seed}


def _score_json(score: Score | None) -> dict[str, float] | None:
    return None if score is None else {part: getattr(score, part) for part in _PARTS}


def _gap(score: Score, bound: float | None) -> float | None:
    return None if bound is None else (score.total - bound) / max(1.0, score.total)


def _batch_json(batch: Batch, zone: ZoneInfo | None) -> dict[str, object]:
    start, end = (each if zone is None else each.astimezone(zone) for each in (batch.start, batch.end))
    return {
        "cluster": batch.unit,
        "mode": str(batch.mode),
        "batch": batch.number,
        "nodes": batch.nodes,
        "start": start.isoformat(),
        "end": end.isoformat(),
    }


def read_plan(text: str, source: str) -> Plan:
    """The plan that a text holds."""
    if len(text) > PLAN_CHARACTERS_MAX:
        raise BadPlan(source, f"has over {PLAN_CHARACTERS_MAX:,} characters")
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadPlan(source, f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise BadPlan(source, "nested too deep to be a plan") from None
    reader = _Reader(source)
    top = reader.mapping(found, "")
    batches = reader.need(top, "", "batches")
    if not isinstance(batches, list):
        raise reader.expected("batches", "a list", batches)
    if len(batches) > BATCHES_MAX:
        raise BadPlan(source, f"batches: has {counted(len(batches), 'entry')}; at most {BATCHES_MAX:,} are read")
    objective, bound = top.get("objective"), top.get("bound")
    return Plan(
        campaign=reader.text(reader.need(top, "", "campaign"), "campaign"),
        number=reader.whole(top.get("number") or 0, "number", least=0),
        status=Status(reader.one_of(top.get("status", Status.UNKNOWN), "status", list(Status))),
        score=None if objective is None else reader.score(objective, "objective"),
        bound=None if bound is None else reader.number(bound, "bound"),
        batches=tuple(reader.batch(each, f"batches[{place}]") for place, each in enumerate(batches)),
        greedy=None if top.get("greedy") is None else reader.score(top["greedy"], "greedy"),
    )


class _Reader:
    """Takes values as they must be, and says where one is not."""

    def __init__(self, source: str) -> None:
        self._source = source

    def expected(self, path: str, what: str, value: object) -> BadPlan:
        shown = json.dumps(value, ensure_ascii=False)
        shown = shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}…"
        return BadPlan(self._source, f"{path or 'the file'}: expected {what}, found {shown}")

    def mapping(self, value: object, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.expected(path, "an object", value)
        return value

    def need(self, found: Mapping[str, Any], path: str, key: str) -> Any:
        if key not in found:
            raise BadPlan(self._source, f"{path or 'the file'}: {key!r} is missing")
        return found[key]

    def text(self, value: object, path: str) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self.expected(path, "a text", value)
        return value

    def one_of(self, value: object, path: str, allowed: Sequence[str]) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise self.expected(path, f"one of {', '.join(allowed)}", value)
        return value

    def number(self, value: object, path: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
            raise self.expected(path, "a number", value)
        return float(value)

    def whole(self, value: object, path: str, *, least: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.expected(path, f"a whole number from {least}", value)
        return value

    def moment(self, value: object, path: str) -> datetime:
        text = self.text(value, path)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise self.expected(path, "a time such as 2026-01-05T11:00:00+00:00", value) from None
        if not YEAR_LEAST <= moment.year <= YEAR_MOST:  # no zone takes it out of the calendar
            raise self.expected(path, f"a time from {YEAR_LEAST} to {YEAR_MOST}", value)
        if moment.tzinfo is None:
            raise self.expected(path, "a time with its offset, such as 2026-01-05T11:00:00+00:00", value)
        return moment

    def score(self, value: object, path: str) -> Score:
        found = self.mapping(value, path)
        return Score(**{part: self.number(self.need(found, path, part), f"{path}.{part}") for part in _PARTS})

    def batch(self, value: object, path: str) -> Batch:
        found = self.mapping(value, path)
        parts = {key: self.need(found, path, key) for key in ("cluster", "mode", "batch", "nodes", "start", "end")}
        start, end = self.moment(parts["start"], f"{path}.start"), self.moment(parts["end"], f"{path}.end")
        if end <= start:
            raise BadPlan(self._source, f"{path}: ends {parts['end']}, not after its start, {parts['start']}")
        return Batch(
            unit=self.text(parts["cluster"], f"{path}.cluster"),
            mode=Mode(self.one_of(parts["mode"], f"{path}.mode", list(Mode))),
            number=self.whole(parts["batch"], f"{path}.batch", least=1),
            nodes=self.whole(parts["nodes"], f"{path}.nodes", least=0),
            start=start,
            end=end,
        )
