"""What a policy would have promised in the past, week by week, and how often that would have been broken. Pure.

Each decision is made with what was known at its hour; the book is today's. An hour is broken for every team with a
guarantee in a pool if at any instant of it fewer GPUs were healthy than were guaranteed. It must never look ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import PoolKey
from plimsoll.health.fold import Health
from plimsoll.health.forecast.history import HOUR, BoolArray, IntArray, Marks, Span
from plimsoll.health.forecast.live import live_span
from plimsoll.health.forecast.method import Ask
from plimsoll.health.forecast.present import days_text
from plimsoll.health.forecast.rewind import PastPool, Rewind, Then, first_hour, past_pools
from plimsoll.health.model import from_microseconds, to_microseconds
from plimsoll.quota.align import Unpinned, align
from plimsoll.quota.hull import Pool, look
from plimsoll.quota.lines import fixed_nodes, share_before, tier_buffer
from plimsoll.quota.policy import LineBy, Policy, Rule, day_of
from plimsoll.state.state import State

DECIDE_HOURS = 7 * 24
"""The stability rule allows one change a week."""
DAY_HOURS = 24


class Unjudged(Exception):
    """There is too little history to judge a policy by. `code` is public."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code, self.why = code, why


@dataclass(frozen=True)
class Past:
    """The health of all pools in production, hour by hour, up to now. Nothing was told in the last `quiet_hours`."""

    pools: Sequence[PastPool]
    quiet_hours: float = 0.0

    @property
    def span(self) -> Span:
        return self.pools[0].history.span if self.pools else Span(0, 0)

    @property
    def hours(self) -> int:
        return self.span.hour_count

    def moment(self, hour: int) -> datetime:
        return from_microseconds(self.span.start) + timedelta(hours=hour)


@dataclass(frozen=True)
class Window:
    """The hours of the past that are judged, and how often something is decided in them."""

    first: int
    end: int
    every: int = DECIDE_HOURS

    @property
    def moments(self) -> range:
        return range(self.first, self.end, self.every)

    @property
    def days(self) -> float:
        return (self.end - self.first) / DAY_HOURS


@dataclass
class TeamRecord:
    """A team's hours in a pool, or in several: with a guarantee, and of these with all of it usable."""

    hours: int = 0
    kept_hours: int = 0
    guaranteed_hours: int = 0
    """GPU-hours that were guaranteed."""

    @property
    def kept_share(self) -> float | None:
        return self.kept_hours / self.hours if self.hours else None

    def add(self, other: TeamRecord) -> None:
        self.hours += other.hours
        self.kept_hours += other.kept_hours
        self.guaranteed_hours += other.guaranteed_hours


@dataclass
class PoolRecord:
    """What became of a pool's promises. `lines` and `promised` hold GPUs by decision; flex is in GPU-hours.

    `planned_hours` are broken hours that planned work alone made so: they were known before.
    """

    key: PoolKey
    hours: int = 0
    broken_hours: int = 0
    planned_hours: int = 0
    flex_gpu_hours: int = 0
    flex_hours: int = 0
    lines: list[int] = field(default_factory=list)
    promised: list[int] = field(default_factory=list)
    teams: dict[str, TeamRecord] = field(default_factory=dict)

    @property
    def kept_share(self) -> float | None:
        return kept_share(self.teams.values())

    @property
    def flex_mean(self) -> float:
        return self.flex_gpu_hours / self.hours if self.hours else 0.0

    @property
    def flex_share(self) -> float:
        return self.flex_hours / self.hours if self.hours else 0.0


def kept_share(records: Iterable[TeamRecord]) -> float | None:
    """The share of team-hours in which a team could use all it was guaranteed; None where nothing was."""
    total = TeamRecord()
    for record in records:
        total.add(record)
    return total.kept_share


def read_past(state: State, *, now: datetime) -> Past:
    """The past of a state, up to now."""
    fleet, health, end = state.of(Fleet), state.of(Health), to_microseconds(now)
    told = live_span(fleet, health, Marks(health))
    quiet_hours = max(0, end - told.end) / HOUR if told is not None else 0.0
    return Past(past_pools(fleet, health, end=end), quiet_hours)


def first_hour_of(policy: Policy) -> int:
    """The first hour of a history at which a policy can decide."""
    horizons = [rule.horizon // timedelta(hours=1) for rule in policy.rules if rule.by is LineBy.FORECAST]
    return first_hour(max(horizons)) if horizons else 0


def common_window(past: Past, policies: Sequence[Policy], *, days: int) -> Window:
    """The last days of the past, from where on all policies that can be judged can decide.

    So all are judged by the same hours; one that is `Unjudged` does not make them fewer.
    """
    first = max(0, past.hours - days * DAY_HOURS)
    firsts = [first_hour_of(policy) for policy in policies]
    return Window(max([first, *(each for each in firsts if each + DECIDE_HOURS <= past.hours)]), past.hours)


def check_judged(past: Past, policy: Policy) -> None:
    """Whether there is enough history to judge a policy by."""
    if past.hours < DAY_HOURS:
        raise Unjudged("no_history", f"{past.hours} hours of history are too few to judge anything by")
    needed = first_hour_of(policy)
    if needed and past.hours < needed + DECIDE_HOURS:
        raise Unjudged(
            "history_too_short",
            f"a forecast needs {days_text(needed)} of history before its first week, and there are"
            f" {past.hours / DAY_HOURS:.1f} days",
        )


class Replay:
    """Replays policies over a window of the past, with today's book."""

    def __init__(self, state: State, past: Past, window: Window, *, now: datetime) -> None:
        self._fleet, self._past, self._window, self._day = state.of(Fleet), past, window, day_of(now)
        self._state = state
        self._rewind = Rewind(past.pools)
        self._forecasts: dict[tuple[int, Ask], dict[PoolKey, Then]] = {}
        self._shares: dict[tuple[PoolKey, timedelta, int], float | None] = {}

    def records(self, policies: Sequence[Policy | None]) -> list[dict[PoolKey, PoolRecord]]:
        """For each policy what became of each pool's promises; None promises all that is assigned, whatever works."""
        for hour in self._window.moments:
            # In the order of time, so that a forecast may use what the one before it has found out.
            for policy in policies:
                for ask in _asks(policy):
                    if (hour, ask) not in self._forecasts:
                        self._forecasts[hour, ask] = self._rewind.at(hour, ask)
        return [self._one(policy) for policy in policies]

    def _one(self, policy: Policy | None) -> dict[PoolKey, PoolRecord]:
        keys = [pool.key for pool in self._past.pools]
        books = look(self._state, keys, policy or Policy("", ()), self._day)
        found = {}
        for pool, book in zip(self._past.pools, books, strict=True):
            if policy is None:
                lines = [book.assigned for _ in self._window.moments]
            else:
                rules = policy.rules_for(self._fleet.clusters[pool.key.cluster], pool.key.sku, self._day)
                lines = [self._line(pool, rules, hour) for hour in self._window.moments]
            found[pool.key] = judge(pool, book, lines, self._window)
        return found

    def _line(self, pool: PastPool, rules: Sequence[Rule], hour: int) -> int:
        """In GPUs. Where several rules match, the lowest counts, as it does for the line now."""
        return min(self._nodes(pool, rule, hour) for rule in rules) * pool.gpus_per_node

    def _nodes(self, pool: PastPool, rule: Rule, hour: int) -> int:
        total, healthy = pool.history.total_at(hour), pool.healthy_at(hour)
        if rule.by is LineBy.FORECAST:
            return min(healthy, self._forecasts[hour, _ask(rule)][pool.key].line)
        if rule.by is LineBy.FIXED:
            buffer = rule.buffer
        else:
            share = self._share(pool, rule.window, hour)
            buffer = rule.tiers[-1].buffer if share is None else tier_buffer(rule, share)
        return fixed_nodes(total=total, healthy=healthy, buffer=buffer, is_of_healthy=rule.is_of_healthy)

    def _share(self, pool: PastPool, window: timedelta, hour: int) -> float | None:
        """The share of the node-hours of the window before an hour that were in service."""
        key = (pool.key, window, hour)
        if key not in self._shares:
            self._shares[key] = share_before(pool.history, hour, window)
        return self._shares[key]


def _ask(rule: Rule) -> Ask:
    return Ask(rule.horizon // timedelta(hours=1), float(rule.target))


def _asks(policy: Policy | None) -> list[Ask]:
    """What a policy needs to have forecast, each once."""
    rules = policy.rules if policy is not None else ()
    return list(dict.fromkeys(_ask(rule) for rule in rules if rule.by is LineBy.FORECAST))


def judge(pool: PastPool, book: Pool, lines: Sequence[int], window: Window) -> PoolRecord:
    """What became of the guarantees under these lines, one for each moment of the window."""
    record, size = PoolRecord(pool.key), pool.gpus_per_node
    least, unplanned = pool.history.healthy_least * size, pool.unplanned.healthy_least * size
    guaranteed: Mapping[str, int] = {}
    for start, line in zip(window.moments, lines, strict=True):
        guaranteed = _guaranteed(book, line, guaranteed)
        hours = slice(start, min(start + window.every, window.end))
        _count(record, guaranteed, least[hours], unplanned[hours])
        record.lines.append(line)
    return record


def _guaranteed(book: Pool, line: int, before: Mapping[str, int]) -> Mapping[str, int]:
    """Today's book under a line of the past. Where pins forbid it the plan is refused, and all stays as it was."""
    try:
        aligned = align(book.stakes, line, book.size).guaranteed
    except Unpinned:
        return before
    return {team: gpus for team, gpus in aligned.items() if gpus}


def _count(record: PoolRecord, guaranteed: Mapping[str, int], least: IntArray, unplanned: IntArray) -> None:
    promised, hours = sum(guaranteed.values()), len(least)
    is_broken: BoolArray = least < promised
    broken = int(is_broken.sum())
    record.promised.append(promised)
    record.hours += hours
    record.broken_hours += broken
    record.planned_hours += int((is_broken & (unplanned >= promised)).sum())
    flex = np.maximum(least - promised, 0)
    record.flex_gpu_hours += int(flex.sum())
    record.flex_hours += int((flex > 0).sum())
    for team, gpus in guaranteed.items():
        record.teams.setdefault(team, TeamRecord()).add(TeamRecord(hours, hours - broken, gpus * hours))
