"""How long each step took for clusters before, and when this one should be done by that. Pure.

The estimate is the longest way through the steps that are left, each with the median of what it took; the late one
takes what nine of ten clusters needed at most. A step that nobody has done yet counts with the time that it may take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from plimsoll.lifecycle.fold import StepKey, Took
from plimsoll.lifecycle.model import Going, Life
from plimsoll.lifecycle.recipe import Recipe, Step

LATE_SHARE = 0.9


class StepTime(msgspec.Struct, frozen=True):
    """How long a step took. Seconds are None where nobody has done it yet."""

    recipe: str
    step: str
    clusters: int
    median: float | None
    late: float | None
    longest: float | None
    attempts: float | None


class Estimate(msgspec.Struct, frozen=True):
    """When a cluster should be in production, and by when nine of ten are. `unknown`: steps that nobody has done."""

    usual: datetime
    late: datetime
    unknown: tuple[str, ...]


def step_time(recipe: str, step: str, took: Sequence[Took]) -> StepTime:
    """The durations of one step, in seconds."""
    if not took:
        return StepTime(recipe, step, 0, None, None, None, None)
    seconds = sorted(each.seconds for each in took)
    attempts = sum(each.attempts for each in took) / len(took)
    return StepTime(
        recipe, step, len(took), quantile(seconds, 0.5), quantile(seconds, LATE_SHARE), seconds[-1], attempts
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of the sorted values lies, between neighbours in proportion."""
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def estimate(life: Life, recipe: Recipe, took: Mapping[StepKey, Sequence[Took]], now: datetime) -> Estimate:
    """When everything that is left should be done, if nothing more is to be waited for than its steps."""
    unknown: list[str] = []
    spans: dict[str, tuple[float, float]] = {}
    for step in recipe.steps:
        times = step_time(recipe.name, step.name, took.get((recipe.name, step.name), ()))
        if times.median is None or times.late is None:
            unknown.append(step.name)
            spans[step.name] = step.within_seconds, step.within_seconds
        else:
            spans[step.name] = times.median, times.late
    usual = _way(life, recipe.steps, {name: span[0] for name, span in spans.items()}, now)
    late = _way(life, recipe.steps, {name: span[1] for name, span in spans.items()}, now)
    steady = timedelta(seconds=recipe.validation.steady_seconds)
    left = {step.name for step in recipe.steps if not life.is_done(step.name)}
    return Estimate(usual + steady, late + steady, tuple(name for name in unknown if name in left))


def _way(life: Life, steps: Sequence[Step], spans: Mapping[str, float], now: datetime) -> datetime:
    """When the last step ends, each beginning when all that it needs have ended."""
    ends: dict[str, datetime] = {}
    left = list(steps)
    while left:
        ready = [step for step in left if all(need in ends for need in step.needs)]
        assert ready, "a recipe has no circles"
        for step in ready:
            begin = max((ends[need] for need in step.needs), default=now)
            ends[step.name] = _end(life, step, spans[step.name], begin, now)
            left.remove(step)
    return max(ends.values(), default=now)


def _end(life: Life, step: Step, seconds: float, begin: datetime, now: datetime) -> datetime:
    work = life.work(step.name)
    if work is not None and work.going is Going.DONE:
        return now
    if work is not None:  # under way: what it has taken so far is part of what it takes
        return max(now, work.begun + timedelta(seconds=seconds))
    return max(begin, now) + timedelta(seconds=seconds)
