"""The course of each pool over the last days: how many GPUs were healthy, and what was promised of them. Pure.

Short enough to draw: each point is the fewest healthy GPUs at any instant of some hours, so no dip is lost.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import msgspec
import numpy as np

from plimsoll.fleet.model import PoolKey
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.history.past import Hours, PoolPast, last_hours, pool_pasts
from plimsoll.state.state import State

POINTS_MAX = 240
"""A picture shows no more."""


class PromisedThen(msgspec.Struct, frozen=True):
    """The line and the sum of what was guaranteed, from a moment on."""

    since: datetime
    line: int
    guaranteed: int


class PoolCourse(msgspec.Struct, frozen=True):
    """One pool, in GPUs. `then` is as the period began; `points` are the fewest of each step."""

    cluster: str
    sku: str
    total: int
    total_then: int
    healthy: int
    healthy_then: int
    healthy_fewest: int
    points: list[int]
    promised: list[PromisedThen]


class Course(msgspec.Struct, frozen=True):
    """All pools over one period. Without any history there are no steps."""

    begins: datetime
    ends: datetime
    step_hours: int
    pools: list[PoolCourse]


def course(state: State, pools: Collection[PoolKey], *, days: int, now: datetime) -> Course:
    """These pools over the last whole hours, up to now."""
    hours = last_hours(state, days=days, now=now)
    step = max(1, -(-hours.count // POINTS_MAX))
    pasts = pool_pasts(state, pools, until=now) if hours.count else {}
    book = state.of(QuotaBook)
    found = [_one(past, hours, step, _promised(book, key, hours)) for key, past in pasts.items()]
    return Course(hours.starts, hours.ends, step, found)


def _one(past: PoolPast, hours: Hours, step: int, promised: list[PromisedThen]) -> PoolCourse:
    fewest = past.fewest_by_hour(hours.begin, hours.count)
    points = np.minimum.reduceat(fewest, np.arange(0, hours.count, step))
    then = past.place(hours.begin)
    return PoolCourse(
        cluster=past.key.cluster,
        sku=past.key.sku,
        total=int(past.total[-1]),
        total_then=int(past.total[then]),
        healthy=int(past.healthy[-1]),
        healthy_then=int(past.healthy[then]),
        healthy_fewest=int(fewest.min()),
        points=points.tolist(),
        promised=promised,
    )


def _promised(book: QuotaBook, key: PoolKey, hours: Hours) -> list[PromisedThen]:
    """What was in force within the period: the last one before it, and all inside."""
    found = [PromisedThen(each.since, each.line, each.gpus) for each in book.promised.get(key, ())]
    before = [each for each in found if each.since <= hours.starts]
    return [*before[-1:], *(each for each in found if each.since > hours.starts)]
