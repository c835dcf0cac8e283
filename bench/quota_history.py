"""What the past says of quota: how calm the controller is over a year, and how long a comparison of policies takes.

The year is the demo fleet's with four times the time, drawn by the demo's own rates. The controller is asked after
every hour in which health changed, and once a day; teams agree to what they are told. The baseline aligns anew whenever
health changes. Both are judged by what was promised as an hour began and the fewest GPUs that worked in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from unittest.mock import patch

import msgspec
import numpy as np

from bench.figures import Figure, alternate
from plimsoll.fleet.demo import demo_fleet
from plimsoll.fleet.model import PoolKey
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.fleet.sheet import MemorySheet
from plimsoll.health.forecast.rewind import PastPool
from plimsoll.ledger.model import Draft
from plimsoll.quota.align import Stake, align
from plimsoll.quota.changes import NoticeEnded, NoticeGiven
from plimsoll.quota.control import Verdict, decide_pool
from plimsoll.quota.fill import Claims, survive
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.history.compare import BUFFERS_DEFAULT, compare, parse_policies
from plimsoll.quota.history.replay import Past, read_past
from plimsoll.quota.hull import Pool, look
from plimsoll.quota.lines import LineNow, fixed_nodes
from plimsoll.quota.model import Answer, LineInForce, Notice, QuotaKey
from plimsoll.quota.policy import Policy, parse_word
from plimsoll.rooms import SHEETS, open_keeper
from plimsoll.state.state import State
from plimsoll.times import parse_time

NOW = parse_time("2026-01-05T00:00:00Z")
YEAR_DAYS, DEMO_DAYS = 364, 90
COMPARE_DAYS, COMPARE_SECONDS_MAX = 90, 30.0
CALM_MOST = 1.0
"""A calm controller never makes more changes than one that follows health at once."""
BUFFERS = ("fixed:0.15", "fixed:0.1", "fixed:0.05")
DAY_HOURS = 24


def measure() -> list[Figure]:
    with _year():
        state = _load()
    past = read_past(state, now=NOW)
    figures = [_calm(state, past, parse_word(word)) for word in BUFFERS]
    return [*figures, _compare_time("a year of history", state), _compare_time("the demo's 90 days", _load())]


@contextmanager
def _year() -> Iterator[None]:
    """The demo's generator with a year as its window, and what it counts by window in proportion."""
    times = YEAR_DAYS / DEMO_DAYS
    names = "plimsoll.fleet.demo"
    with (
        patch(f"{names}.WINDOW_DAYS", YEAR_DAYS),
        patch(f"{names}.history.WINDOW_DAYS", YEAR_DAYS),
        patch(f"{names}.history.LEMON_FAULTS", (round(7 * times), round(15 * times))),
        patch(f"{names}.events.BURST_COUNT", round(8 * times)),
    ):
        yield


def _load() -> State:
    rows = demo_fleet(seed=1, until=NOW)
    source = Source("demo", "", {sheet: MemorySheet(sheet, cells) for sheet, cells in rows.items()})
    with open_keeper("sqlite:///:memory:", create=True) as keeper:
        import_fleet(keeper, source, SHEETS, actor="bench")
        return keeper.state()


@dataclass
class Tally:
    """What a year of changes came to. A change is one of one team's guarantee in one pool."""

    changes: int = 0
    gpus_moved: int = 0
    team_hours: int = 0
    kept_hours: int = 0
    promised: float = 0.0
    teams: set[str] = field(default_factory=set)

    def move(self, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        for team in {*before, *after}:
            difference = after.get(team, 0) - before.get(team, 0)
            self.changes += difference != 0
            self.gpus_moved += abs(difference)

    def __str__(self) -> str:
        return (
            f"{self.changes / max(1, len(self.teams)):.1f} changes a team, {self.gpus_moved:,} GPUs moved,"
            f" kept {self.kept_hours / max(1, self.team_hours):.2%}, {self.promised:,.0f} promised on average"
        )


Decide = Callable[["_Sim", int, int], Mapping[str, int]]
"""The guarantees from an hour on, given how many GPUs work and the line."""


class _Sim:
    """One pool over the year, under one way to decide."""

    def __init__(self, pool: PastPool, book: Pool, claims: Mapping[str, Claims], policy: Policy) -> None:
        self.pool, self.book, self.claims, self.policy = pool, book, claims, policy
        self.size = pool.gpus_per_node
        self.guaranteed: Mapping[str, int] = {}
        self.last: LineInForce | None = None
        self.notices: dict[str, Notice] = {}
        history = pool.history
        order = np.argsort(history.ended)
        self.ended, self.ended_node = history.ended[order], history.node[order]

    def run(self, decide: Decide, hours: Sequence[int], tally: Tally) -> None:
        history = self.pool.history
        least = history.healthy_least * self.size
        rule = self.policy.rules[0]
        bounds = [*hours, history.span.hour_count]
        for hour, until in pairwise(bounds):
            healthy, total = self.pool.healthy_at(hour), history.total_at(hour)
            line = fixed_nodes(total=total, healthy=healthy, buffer=rule.buffer) * self.size
            before = self.guaranteed
            after = {team: gpus for team, gpus in decide(self, hour, line).items() if gpus}
            if hour:
                tally.move(before, after)
            self.guaranteed = after
            promised = sum(after.values())
            kept = int((least[hour:until] >= promised).sum())
            tally.team_hours += len(after) * (until - hour)
            tally.kept_hours += len(after) * kept
            tally.promised += promised * (until - hour) / history.span.hour_count
            tally.teams |= set(after)

    def stakes(self, healthy: int) -> list[Stake]:
        claims, _ = survive(self.claims, self.guaranteed, healthy)
        return [msgspec.structs.replace(stake, claims=claims[stake.team]) for stake in self.book.stakes]

    def lately(self, hour: int) -> tuple[int, int, int]:
        """GPUs that came back, GPUs that went out, and those of them that did so for planned work, all not long ago."""
        history, span = self.pool.history, self.policy.stability.grow_after / timedelta(hours=1)
        ridden = self.policy.stability.ride_out / timedelta(hours=1)
        begin, end = np.searchsorted(self.ended, [hour - span, hour], side="right")
        known = int(np.searchsorted(history.began, hour, side="right"))
        is_out = history.ended[:known] > hour
        out = set(history.node[:known][is_out].tolist())
        fresh = history.node[:known][is_out & (history.began[:known] > hour - span)]
        back = set(self.ended_node[begin:end].tolist()) - out
        is_ridden = is_out & (history.began[:known] > hour - ridden) & history.is_planned[:known]
        planned = history.node[:known][is_ridden]
        return len(back) * self.size, len(set(fresh.tolist())) * self.size, len(set(planned.tolist())) * self.size


def _at_once(sim: _Sim, hour: int, line: int) -> Mapping[str, int]:
    """The baseline: aligned anew to every line."""
    return align(sim.stakes(sim.pool.healthy_at(hour) * sim.size), line, sim.size).guaranteed


def _calmly(moment: Callable[[int], datetime]) -> Decide:
    def decide(sim: _Sim, hour: int, line: int) -> Mapping[str, int]:
        now, healthy = moment(hour), sim.pool.healthy_at(hour) * sim.size
        if sim.last is None:
            sim.last = LineInForce(line, sim.policy.name, now)
            return _at_once(sim, hour, line)
        stakes = sim.stakes(healthy)
        total = sim.pool.history.total_at(hour) * sim.size
        pool = Pool(
            sim.pool.key,
            size=sim.size,
            total=total,
            healthy=healthy,
            stakes=stakes,
            losses=(),
            guaranteed=sim.guaranteed,
            is_aligned=True,
            line_in_force=sim.last.gpus,
        )
        back, out, planned = sim.lately(hour)
        step = decide_pool(
            pool,
            LineNow(line, sim.policy.name, ""),
            sim.policy.stability,
            last=sim.last,
            notices=list(sim.notices.values()),
            unsettled=back,
            lately_out=out,
            planned_out=planned,
            now=now,
        )
        _answer(sim.notices, step.drafts)
        if step.verdict in (Verdict.CUT, Verdict.GROW):
            sim.last = LineInForce(line, sim.policy.name, now)
        return step.guaranteed

    return decide


def _answer(notices: dict[str, Notice], drafts: Sequence[Draft]) -> None:
    """Teams agree to what they are told."""
    for draft in drafts:
        if isinstance(draft.change, NoticeGiven):
            notices[draft.change.notice.id] = msgspec.structs.replace(draft.change.notice, answer=Answer.AGREED)
        elif isinstance(draft.change, NoticeEnded):
            notices.pop(draft.change.notice, None)


def _calm(state: State, past: Past, policy: Policy) -> Figure:
    book, keys = state.of(QuotaBook), [pool.key for pool in past.pools]
    books = dict(zip(keys, look(state, keys, policy, NOW.date()), strict=True))
    calm, at_once, changed = Tally(), Tally(), 0
    for pool in past.pools:
        moved = _hours_of_change(pool)
        daily = sorted({*moved, *range(0, past.hours, DAY_HOURS)})
        claims = _claims(book, pool.key)
        _Sim(pool, books[pool.key], claims, policy).run(_calmly(past.moment), daily, calm)
        _Sim(pool, books[pool.key], claims, policy).run(_at_once, moved, at_once)
        changed += len(moved)
    ratio = calm.changes / max(1, at_once.changes)
    return Figure(
        f"changes of quota in a year, {policy.name}",
        f"{len(past.pools)} pools, {past.hours / DAY_HOURS:.0f} days, {changed:,} pool-hours in which health changed",
        f"controller: {calm}",
        f"at every change of health: {at_once}",
        f"{ratio:.2f}x the changes, {calm.gpus_moved / max(1, at_once.gpus_moved):.2f}x the GPUs",
        f"at most {CALM_MOST:g}x",
        ratio <= CALM_MOST,
    )


def _hours_of_change(pool: PastPool) -> list[int]:
    """The first hour, and each that follows one in which a node went out, came back or left."""
    history = pool.history
    moments = np.concatenate([history.began, history.ended, history.left_at])
    moments = moments[(moments >= 0) & (moments < history.span.hour_count - 1)]
    return sorted({0, *(np.floor(moments).astype(int) + 1).tolist()})


def _claims(book: QuotaBook, pool: PoolKey) -> dict[str, Claims]:
    return {team: book.claims.get(QuotaKey(team, *pool), ()) for team in book.pool_teams.get(pool, ())}


def _compare_time(name: str, state: State) -> Figure:
    policies = parse_policies(BUFFERS_DEFAULT)
    plain = parse_policies("15")
    ours, base = alternate(
        1,
        lambda: compare(state, policies, now=NOW, days=COMPARE_DAYS),
        lambda: compare(state, plain, now=NOW, days=COMPARE_DAYS),
    )
    found = compare(state, plain, now=NOW, days=COMPARE_DAYS)
    summary = found.policies[0].summary
    assert summary is not None
    return Figure(
        f"quota compare over {COMPARE_DAYS} days, {name}",
        f"{summary.pools} pools, {summary.total:,} GPUs, {len(policies)} policies",
        str(ours),
        f"one fixed policy {base}",
        f"{ours.median / base.median:.1f}x",
        f"under {COMPARE_SECONDS_MAX:g} s",
        ours.median < COMPARE_SECONDS_MAX,
    )
