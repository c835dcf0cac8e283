"""GPU-hours promised but unusable: the parts always add up, whatever happened.

An independent checker walks through the period minute by minute: all that happens here happens at whole minutes.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.fleet.model import PoolKey, Service
from plimsoll.health.levels.outages import ALWAYS, FOREVER, MINUTE, Period
from plimsoll.health.model import to_microseconds
from plimsoll.workloads.why.fleet import LostTo, bases_of, explain_fleet, pool_times, sum_times
from plimsoll.workloads.why.unusable import Basis, Step, Times, Wait
from tests.support.yard import START, Yard

MINUTES = 60
NODES = 4
ISLANDS = {"tiger": {"a": NODES}, "lion": {"a": NODES}}
OUT = {
    "fault": (Service.QUARANTINED, "xid 79"),
    "planned": (Service.MAINTENANCE, "planned: firmware"),
}
POOLS = [PoolKey(cluster, "H200") for cluster in ISLANDS]

moves = st.lists(
    st.tuples(
        st.integers(1, MINUTES - 1),
        st.sampled_from(sorted(ISLANDS)),
        st.integers(1, NODES),
        st.sampled_from(["fault", "planned", "in", "retired"]),
    ),
    max_size=14,
)
gpus = st.integers(0, 12 * NODES)
later = st.lists(st.tuples(st.integers(1, MINUTES - 1), gpus), max_size=3, unique_by=lambda each: each[0]).map(sorted)


class Story:
    """What happened in an hour: which node was what from which minute on, and the rest as steps and waits."""

    def __init__(self, moved: list[tuple[int, str, int, str]], draw: st.DataObject) -> None:
        self.yard = Yard(ISLANDS)
        self.what: dict[tuple[str, int], dict[int, str]] = {}
        for minute, cluster, number, what in sorted(moved):
            mine = self.what.setdefault((cluster, number), {0: "in"})
            if minute in mine or "retired" in mine.values():
                continue  # two at one moment have an order of their own, and what left for good does not move
            mine[minute] = what
            self.yard.now = START + timedelta(minutes=minute)
            service, reason = OUT.get(what, (Service.RETIRED if what == "retired" else Service.IN_SERVICE, ""))
            self.yard.set_service([f"{cluster}-a-{number}"], service, reason)
        self.bases = {pool: self._basis(draw) for pool in POOLS}

    def _basis(self, draw: st.DataObject) -> Basis:
        def steps(first: int) -> list[Step]:
            return [(ALWAYS, first), *((moment(minute), value) for minute, value in draw.draw(later))]

        spans = draw.draw(st.lists(st.tuples(st.integers(-9, 70), st.integers(-9, 70), gpus), max_size=3))
        waits = [Wait(moment(min(a, b)), moment(max(a, b)), size) for a, b, size in spans]
        line = draw.draw(st.one_of(st.just(FOREVER), gpus))
        return Basis(steps(draw.draw(gpus)), steps(line), draw.draw(gpus), steps(draw.draw(gpus)), waits)

    def times(self, begin: int = 0, end: int = MINUTES) -> dict[PoolKey, Times]:
        return pool_times(self.yard.state, self.bases, Period(moment(begin), moment(end)))

    def nodes_at(self, pool: PoolKey, minute: int) -> Counter[str]:
        found = Counter[str]()
        for number in range(1, NODES + 1):
            mine = self.what.get((pool.cluster, number), {0: "in"})
            found[mine[max(each for each in mine if each <= minute)]] += 1
        return found


def moment(minute: int) -> int:
    return to_microseconds(START) + minute * MINUTE


def value_at(steps: list[Step], minute: int) -> int:
    return next(value for since, value in reversed(steps) if since <= moment(minute))


@settings(max_examples=120)
@given(moves, st.data())
def test_every_minute_comes_to_the_same_as_the_whole(
    moved: list[tuple[int, str, int, str]], draw: st.DataObject
) -> None:
    story = Story(moved, draw)
    for pool, found in story.times().items():
        basis = story.bases[pool]
        missing = usable = over = 0
        for minute in range(MINUTES):
            nodes = story.nodes_at(pool, minute)
            promised = value_at(list(basis.promised), minute)
            healthy = 8 * nodes["in"]
            waiting = sum(w.gpus for w in basis.waits if w.begin <= moment(minute) < w.end)
            there = min(promised, healthy)
            missing += promised - there
            usable += max(0, there - waiting - value_at(list(basis.idle), minute))
            most = min(value_at(list(basis.line_in_force), minute), 8 * (NODES - nodes["retired"]))
            over += min(promised - there, max(0, promised - most))
        assert found.over_promise == over * MINUTE
        assert found.over_promise + found.faults + found.planned_work == missing * MINUTE
        assert found.promised - found.unusable == usable * MINUTE


@settings(max_examples=120)
@given(moves, st.data())
def test_no_part_is_ever_negative_or_more_than_was_promised(
    moved: list[tuple[int, str, int, str]], draw: st.DataObject
) -> None:
    story = Story(moved, draw)
    for pool, found in story.times().items():
        assert min(found) >= 0
        assert found.unusable <= found.promised
        assert found.less_by_alignment <= found.over_promise
        assert found.less_by_repair <= found.faults
        assert found.less_by_shorter_work <= found.planned_work
        kinds = {what for (cluster, _), mine in story.what.items() if cluster == pool.cluster for what in mine.values()}
        assert found.faults == 0 or "fault" in kinds, "nothing was lost to faults where none was"
        assert found.planned_work == 0 or "planned" in kinds


@settings(max_examples=120)
@given(moves, st.data(), st.lists(st.integers(1, MINUTES - 1), min_size=1, max_size=3, unique=True))
def test_a_period_in_pieces_comes_to_the_same(
    moved: list[tuple[int, str, int, str]], draw: st.DataObject, cuts: list[int]
) -> None:
    story = Story(moved, draw)
    whole = story.times()
    pieces = [story.times(begin, end) for begin, end in pairwise([0, *sorted(cuts), MINUTES])]
    for pool, found in whole.items():
        assert sum_times(piece[pool] for piece in pieces) == found


@settings(max_examples=60)
@given(moves, st.data())
def test_what_is_told_adds_up_to_the_last_digit(moved: list[tuple[int, str, int, str]], draw: st.DataObject) -> None:
    story = Story(moved, draw)
    end = START + timedelta(minutes=MINUTES)
    told = explain_fleet(
        story.yard.state, since=START, until=end, now=end, bases=draw.draw(st.sampled_from([None, story.bases]))
    )
    for part in (told.fleet, *told.clusters, *told.pools):
        assert Decimal(str(part.unusable)) == sum(Decimal(str(each)) for each in part.by_cause.values())
    for parts in (told.clusters, told.pools):
        assert Decimal(str(told.fleet.unusable)) == sum(Decimal(str(each.unusable)) for each in parts)
        assert Decimal(str(told.fleet.promised)) == sum(Decimal(str(each.promised)) for each in parts)
        for cause in LostTo:
            mine = sum(Decimal(str(each.by_cause[cause])) for each in parts)
            assert Decimal(str(told.fleet.by_cause[cause])) == mine


def test_the_state_gives_a_basis_for_every_pool() -> None:
    assert sorted(bases_of(Yard(ISLANDS).state, now=START)) == sorted(POOLS)
