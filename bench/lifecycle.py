"""Clusters on their way into production, hundreds in one process: a pass over those about which nothing changes, the
whole way from planned to production, and a change outside until every condition tells it. Beside them a bare scan of
the same conditions, and bare inserts of the same rows in the same transactions, one statement each.

The outside is scripted and answers at once: what is measured is deciding, recording and folding. A transition is an
event about a cluster; those of its nodes are inserted and timed as well, and not counted.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path

import msgspec

from bench.append import COLUMNS
from bench.figures import Figure, Times, alternate, timed
from plimsoll.fleet.model import Area, Phase, Purpose
from plimsoll.ledger.model import Draft, Event
from plimsoll.lifecycle import desk
from plimsoll.lifecycle.changes import RecipeRecorded
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import Condition, ConditionType, Life, QuotaKey, Said, Spec, Truth
from plimsoll.lifecycle.outside import Found, Look, Looks, NodeFound, Order, Outside, SetFound, UsageRead
from plimsoll.lifecycle.phases import phase_of
from plimsoll.lifecycle.recipe import Recipe
from plimsoll.lifecycle.service import run_pass, say
from plimsoll.rooms import open_keeper
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State

CLUSTERS = 500
MANY_CLUSTERS = 5_000
NODES = 8
RUNS = 3
IDLE_RUNS = 5
PASSES_MAX = 20
BETWEEN_PASSES = timedelta(minutes=2)
IDLE_FOR = timedelta(hours=1)
IDLE_SECONDS_MAX = 1.0
TRANSITIONS_PER_SECOND_MIN = 1_000
FAMILY = "standardNDISRH200V5Family"
ACTOR = "bench"


def measure() -> list[Figure]:
    figures = [_idle(phase) for phase in (Phase.PLANNED, Phase.PROVISIONING, Phase.PRODUCTION)]
    return [*figures, *_way(CLUSTERS, RUNS), _change(CLUSTERS, RUNS), *_way(MANY_CLUSTERS, 1)]


# The outside.


class Script:
    """A provider that begins everything at once. Steps in `held` go on running; all others are done when looked at."""

    settle_seconds = 0.0
    place = "bench"

    def __init__(self) -> None:
        self.held: set[str] = set()

    def look(self, orders: Sequence[Order]) -> Looks:
        return {order.key: self._look(order) for order in orders}

    def begin(self, order: Order) -> Look:
        return Look(Found.RUNNING)

    def _look(self, order: Order) -> Look:
        if order.step.name in self.held:
            return Look(Found.RUNNING)
        numbers = {wish: range(wish.first, wish.first + wish.nodes) for wish in order.sets}
        if order.step.name == "scale-sets":
            sets = tuple(SetFound(wish.name, wish.nodes) for wish in order.sets)
            nodes = [NodeFound(_node(order.life, n), wish.island) for wish, all_ in numbers.items() for n in all_]
            return Look(Found.DONE, sets=sets, nodes=tuple(nodes))
        if order.step.name == "burn-in":
            checked = [NodeFound(_node(order.life, n), is_ok=True) for all_ in numbers.values() for n in all_]
            return Look(Found.DONE, nodes=tuple(checked))
        return Look(Found.DONE)


def _node(life: Life, number: int) -> str:
    return f"{life.name}-{number:04d}"


class Cores:
    """As much quota as there is said to be."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def usages(self, recipe: Recipe, subscription: str, region: str) -> Sequence[UsageRead]:
        return [UsageRead(QuotaKey(subscription, region, FAMILY), self._limit, 0)]


# The clusters.


class Yard:
    """Clusters that were planned and checked in, and a clock that goes when it is told to."""

    def __init__(self, folder: Path, count: int, *, has_quota: bool = True) -> None:
        self.now = datetime(2026, 1, 5, tzinfo=UTC)
        self.script = Script()
        self.outside = Outside({"run": self.script}, Cores(10**8 if has_quota else 0))
        self.keeper: Keeper = open_keeper(f"sqlite:///{folder}/bench.db", create=True, clock=self._tick)
        say(self.keeper, lambda state, now: (None, _planned(state, now, count)), actor=ACTOR)
        say(self.keeper, lambda state, _: (None, _checked_in(state)), actor=ACTOR)

    def _tick(self) -> datetime:
        """No two commits are recorded at the same time, so that they can be told apart."""
        self.now += timedelta(microseconds=1)
        return self.now

    @property
    def lives(self) -> list[Life]:
        return list(self.keeper.state().of(Lives).lives.values())

    def go(self) -> None:
        """One pass, a while after the last."""
        self.now += BETWEEN_PASSES
        run_pass(self.keeper, self.outside)

    def go_until(self, phase: Phase) -> float:
        """The seconds of all passes until every cluster is in a phase."""
        seconds = 0.0
        for _ in range(PASSES_MAX):
            if all(phase_of(life) is phase for life in self.lives):
                return seconds
            seconds += timed(self.go)
        raise AssertionError(f"{PASSES_MAX} passes bring every cluster to {phase}")

    def settle(self) -> None:
        """Passes until there is nothing to tell."""
        for _ in range(PASSES_MAX):
            before = self.keeper.state().revision
            self.go()
            if self.keeper.state().revision == before:
                return
        raise AssertionError(f"nothing changes any more after {PASSES_MAX} passes")


@contextmanager
def yard(count: int, *, has_quota: bool = True) -> Iterator[Yard]:
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as folder:
        made = Yard(Path(folder), count, has_quota=has_quota)
        with made.keeper:
            yield made


def _planned(state: State, now: datetime, count: int) -> list[Draft]:
    drafts: list[Draft] = []
    for number in range(count):
        spec = Spec(f"c-{number:05d}", "eastus", Area.US, "", "", Purpose.RESEARCH, "bench", "H200", NODES)
        found = desk.plan(state, spec, f"{spec.name}-bench", Said(ACTOR, now))
        drafts += found if not drafts else [each for each in found if not isinstance(each.change, RecipeRecorded)]
    return drafts


def _checked_in(state: State) -> list[Draft]:
    return [draft for life in state.of(Lives).lives.values() for draft in desk.check_in(life)]


# What is measured.


def _idle(phase: Phase) -> Figure:
    """A pass over clusters about which nothing changes: waiting for quota, with a step that runs, or in production."""
    with yard(CLUSTERS, has_quota=phase is not Phase.PLANNED) as made:
        if phase is Phase.PROVISIONING:
            made.script.held = {"bootstrap"}
        made.settle()
        assert all(phase_of(life) is phase for life in made.lives)
        return _idle_of(made, phase, runs=IDLE_RUNS)


def _idle_of(made: Yard, phase: Phase, *, runs: int) -> Figure:
    made.now += IDLE_FOR  # what is told some time later is told, such as quota that shows as used by now
    made.settle()
    lives = made.lives
    copies = [{kind: msgspec.structs.replace(each) for kind, each in life.conditions.items()} for life in lives]
    before = made.keeper.state().revision
    ours, bare = alternate(runs, made.go, lambda: _scan(made.lives, copies))
    assert made.keeper.state().revision == before, "nothing was to be told"
    is_limited = len(lives) == CLUSTERS
    return Figure(
        f"an idle pass: {phase}", f"{len(lives):,} clusters", str(ours), f"a scan of their conditions {bare}",
        f"{ours.median / bare.median:.1f}x",
        f"under {IDLE_SECONDS_MAX:g} s" if is_limited else "",
        ours.median < IDLE_SECONDS_MAX if is_limited else None,
    )  # fmt: skip


def _scan(lives: Sequence[Life], copies: Sequence[dict[str, Condition]]) -> None:
    """The least that anybody does who looks whether a condition has changed."""
    for life, copy in zip(lives, copies, strict=True):
        assert all(life.conditions[kind] == copy[kind] for kind in ConditionType)


def _way(count: int, runs: int) -> list[Figure]:
    """From planned to production; and an idle pass over what the last run left, where that was not measured yet."""
    ours, bare, transitions, commits, idle = [], [], 0, 0, []
    for _ in range(runs):
        with yard(count) as made:
            begin = made.keeper.state().revision
            ours.append(made.go_until(Phase.PRODUCTION))
            events = list(made.keeper.ledger.store.events(after=begin))
            if count != CLUSTERS:
                idle = [_idle_of(made, Phase.PRODUCTION, runs=runs)]
        seconds, commits = _insert(events)
        bare.append(seconds)
        transitions = sum(event.subject.startswith("cluster/") for event in events)
    rate = transitions / Times(tuple(ours)).median
    is_limited = count == CLUSTERS
    figure = Figure(
        "planned to production", f"{count:,} clusters, {transitions:,} transitions in {commits} commits",
        f"{Times(tuple(ours))}, {rate:,.0f} transitions/s", f"bare inserts {Times(tuple(bare))}",
        f"{Times(tuple(ours)).median / Times(tuple(bare)).median:.1f}x",
        f"at least {TRANSITIONS_PER_SECOND_MIN:,}/s" if is_limited else "",
        rate >= TRANSITIONS_PER_SECOND_MIN if is_limited else None,
    )  # fmt: skip
    return [figure, *idle]


def _change(count: int, runs: int) -> Figure:
    """A running step of every cluster ends at once; the next pass tells all of it, and begins what comes after."""
    ours, bare, told, rows = [], [], 0, 0
    for _ in range(runs):
        with yard(count) as made:
            made.script.held = {"bootstrap"}
            made.settle()
            begin = made.keeper.state().revision
            made.script.held = {"scale-sets", "dependencies"}
            ours.append(timed(made.go))
            events = list(made.keeper.ledger.store.events(after=begin))
            statuses = [life.conditions[ConditionType.INFRASTRUCTURE_APPLIED].status for life in made.lives]
        told, rows = statuses.count(Truth.TRUE), len(events)
        bare.append(_insert(events)[0])
    return Figure(
        "a change outside reaches the conditions", f"{count:,} steps end at once, {rows:,} events",
        f"{Times(tuple(ours))}", f"bare inserts {Times(tuple(bare))}",
        f"{Times(tuple(ours)).median / Times(tuple(bare)).median:.1f}x",
        f"all {count:,} in one pass", told == count,
    )  # fmt: skip


def _insert(events: Sequence[Event]) -> tuple[float, int]:
    """The seconds that the same rows take in the same transactions through the bare driver, and how many those are."""
    commits = [list(group) for _, group in groupby(events, key=lambda event: event.recorded_at)]
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as folder:
        connection = sqlite3.connect(f"{folder}/bare.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"CREATE TABLE bare ({COLUMNS.format(bigint='INTEGER')})")
        sql = f"INSERT INTO bare VALUES ({', '.join('?' * 10)})"

        def insert() -> None:
            for rows in commits:
                connection.execute("BEGIN IMMEDIATE")
                for row in rows:
                    connection.execute(sql, tuple(row))
                connection.execute("COMMIT")

        seconds = timed(insert)
        connection.close()
    return seconds, len(commits)
