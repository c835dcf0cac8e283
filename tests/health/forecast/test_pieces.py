"""The small parts, against numbers worked out by hand or read elsewhere."""

from __future__ import annotations

import random

import numpy as np
import pytest

from plimsoll.health.forecast.counts import binomial, empirical_quantile, negative_binomial, quantile
from plimsoll.health.forecast.guarded import guarded_risk
from plimsoll.health.forecast.method import Ask, Record, Records
from plimsoll.health.forecast.reserve import Burst, burst_nodes_min, bursts_of, colo_bursts, reserve_for
from plimsoll.health.forecast.survival import Survival
from tests.health.forecast.pasts import OPEN, past, view_of

ASK = Ask(168, 0.99)
INDEPENDENT_AT_99 = {64: 4, 257: 11, 1024: 32}
"""Nodes out of so many that are not exceeded in 99 of 100 cases, each being out with chance 0.02."""


@pytest.mark.parametrize("nodes", INDEPENDENT_AT_99)
def test_independent_nodes_need_the_buffer_that_tables_give(nodes: int) -> None:
    assert quantile(binomial(nodes, 0.02), 0.99) == INDEPENDENT_AT_99[nodes]


def test_a_negative_binomial_with_shape_one_is_geometric() -> None:
    # Mean 3 and variance 12: each more node has chance 3/4, so P(at most k) = 1 - (3/4)^(k+1).
    table = negative_binomial(3.0, 12.0, at_most=100)
    assert table[:3] == pytest.approx([1 / 4, 7 / 16, 37 / 64])
    assert quantile(table, 0.9) == 8


def test_a_quantile_of_hours_is_the_smallest_that_suffices() -> None:
    hours = np.array([5, 0, 0, 1, 0, 2, 0, 0, 0, 0])
    assert [empirical_quantile(hours, level) for level in (0.7, 0.8, 0.81, 0.9, 0.99)] == [0, 1, 2, 2, 5]


def test_an_open_repair_counts_for_as_long_as_it_has_lasted() -> None:
    # At risk: 4, 3, (one open leaves), 1. So 3/4, then 3/4 x 2/3, then 0.
    curve = Survival.of(np.array([2.0, 4.0, 6.0, 10.0]), np.array([False, False, True, False]))
    assert curve.beyond(np.array([0.0, 2.0, 5.0, 6.0, 10.0])) == pytest.approx([1, 0.75, 0.5, 0.5, 0])
    # 2 hours x 1 + 2 hours x 3/4 + 6 hours x 1/2
    assert curve.mean_until(np.array([1.0, 100.0])) == pytest.approx([1, 6.5])
    assert curve.lasts_on(np.array([3.0]), np.array([0.5, 2.0, 8.0]))[0] == pytest.approx([1, 2 / 3, 0])
    assert curve.left(3.0, 0.5) == 7.0


def test_what_is_older_than_all_that_was_seen_lasts_as_long_again() -> None:
    curve = Survival.of(np.array([2.0, 4.0]), np.zeros(2, bool))
    assert curve.lasts_on(np.array([100.0]), np.array([100.0]))[0, 0] == pytest.approx(0.5)
    assert curve.left(100.0, 0.5) == 100.0


def test_a_curve_without_a_repair_is_a_guess_of_a_day() -> None:
    assert Survival.of(np.zeros(0), np.zeros(0, bool)).beyond(np.array([23.0, 24.0])).tolist() == [1, 0]


RISKS = {
    "a new record aims a little below what is allowed": ([], 0.009),
    "a clean half year is spent over the next": ([0.0] * 13, 0.009 + 13 * 0.009 / 26),
    "a long clean record does not make it a gamble": ([0.0] * 200, 0.02),
    "a miss is paid back": ([0.1], 0.009 + (0.009 - 0.1) / 26),
    "a disaster does not make a promise worthless": ([1.0], 0.001),
}


@pytest.mark.parametrize("case", RISKS)
def test_the_guard_keeps_an_account(case: str) -> None:
    shares, want_risk = RISKS[case]
    record = Record()
    for share in shares:
        record.add(share)
    assert guarded_risk(Ask(168, 0.99), Records(record), aim=0.9, fleet_weight=0.0) == pytest.approx(want_risk)


def test_an_account_can_be_shared() -> None:
    own, fleet = Record(2, 0.0), Record(8, 0.4)
    records = Records(own, fleet, cluster_count=4)
    assert records.credit(0.01, fleet_weight=0.0) == pytest.approx(0.02)
    assert records.credit(0.01, fleet_weight=1.0) == pytest.approx((0.08 - 0.4) / 4)
    assert records.credit(0.01, fleet_weight=0.5) == pytest.approx((0.02 - 0.08) / 2)


def test_a_burst_belongs_to_the_island_that_lost_its_nodes() -> None:
    islands = ["a"] * 5 + ["b"] * 5
    history = past(
        [(node, 10.0 + node / 60, 12.0) for node in range(4)]
        + [(node, 50.0, 51.0) for node in (0, 1, 5, 6)]
        + [(node, 90.0, 95.0) for node in (7, 8)],
        hours=100,
    )
    found = bursts_of(history, islands)
    assert [(burst.node_count, burst.island) for burst in found] == [(4, "a"), (4, ""), (2, "b")]


GROUPS = {
    "a small pool that loses a node every two weeks has no pairs by chance": (26, 8760, 2),
    # A failure in five hours: each has a second within 15 minutes in 4.9 % of cases, 86 of 1,752 in a year.
    "a large one that loses five a day has pairs, triples and fours": (1752, 8760, 5),
    "nothing was seen": (0, 8760, 2),
}


@pytest.mark.parametrize("case", GROUPS)
def test_what_may_be_a_coincidence_is_no_burst(case: str) -> None:
    groups, hours, want_nodes = GROUPS[case]
    assert burst_nodes_min(groups, hours) == want_nodes


def test_independent_failures_make_next_to_no_bursts() -> None:
    """Played: in ten years of failures that know nothing of each other about one burst is seen, not hundreds."""
    dice = random.Random(20260112)
    found = 0
    for year in range(10):
        begins = sorted(dice.uniform(1, 8760) for _ in range(1800))
        history = past([(n % 1000, begin, begin + 1.0) for n, begin in enumerate(begins)], nodes=1000, hours=8760)
        found += len(bursts_of(history, ["a"] * 1000))
        assert year or (np.bincount(history.storm_burst) >= 3).sum() > 2, "a constant of three would see some"
    assert found <= 4


def test_what_is_out_when_the_history_opens_is_no_burst() -> None:
    assert bursts_of(past([(node, 0.0, OPEN) for node in range(5)]), ["a"] * 10) == []


def test_the_reserve_is_what_the_buffer_does_not_cover() -> None:
    view = view_of(past(nodes=100, hours=8760), 8760)
    bursts = [Burst("tiger", 10.0, 20, "a"), Burst("tiger", 20.0, 20, "")]
    reserve = reserve_for(view, bursts, [], ASK, buffer=8, expected_out=3.0, island_most=50)
    assert (reserve.node_count, reserve.burst_nodes, reserve.domain) == (15, 20, "island")
    assert reserve.bursts_per_year == pytest.approx(2.0)
    assert reserve_for(view, bursts, [], ASK, buffer=30, expected_out=3.0, island_most=50).node_count == 0


HELD = {
    # Two bursts in 8,760 hours of its own and 2,160 borrowed: 0.0308 a week are to be expected, one alone 0.0154.
    "a week in a hundred: the larger one counts, as far as the reserve goes": (0.99, 24),
    "a week in fifty: the smaller one is enough": (0.98, 15),
    "a week in twenty: bursts are rarer than that": (0.95, 0),
}


@pytest.mark.parametrize("case", HELD.values(), ids=HELD)
def test_a_line_holds_back_what_the_target_asks_for(case: tuple[float, int]) -> None:
    target, want_held = case
    view = view_of(past(nodes=100, hours=8760), 8760)
    bursts = [Burst("tiger", 10.0, 20, "a"), Burst("tiger", 30.0, 30, "a")]
    reserve = reserve_for(view, bursts, [], Ask(168, target), buffer=8, expected_out=3.0, island_most=50)
    # Of 20 and 30 nodes nine in ten are at most 29: 3 + 29 - 8.
    assert reserve.node_count == 24
    assert reserve.held_nodes == want_held


def test_a_pool_without_bursts_borrows_the_fleets() -> None:
    view = view_of(past(nodes=50), 1000)
    reserve = reserve_for(view, [], [0.2, 0.2], ASK, buffer=4, expected_out=1.0, island_most=50)
    assert (reserve.node_count, reserve.held_nodes, reserve.is_borrowed) == (7, 7, True)
    assert reserve_for(view, [], [], ASK, buffer=4, expected_out=1.0, island_most=50).node_count == 0
    assert reserve_for(view, [], [0.2], ASK, buffer=4, expected_out=1.0, island_most=6).burst_nodes == 6, "an island's"


def test_a_pool_that_saw_small_bursts_holds_no_less_than_one_that_saw_none() -> None:
    view = view_of(past(nodes=50), 1000)
    fleet = [0.2] * 9 + [2 / 50]
    none = reserve_for(view, [], fleet, ASK, buffer=4, expected_out=1.0, island_most=50)
    small = reserve_for(view, [Burst("tiger", 10.0, 2, "a")], fleet, ASK, buffer=4, expected_out=1.0, island_most=50)
    large = reserve_for(view, [Burst("tiger", 10.0, 30, "a")], fleet, ASK, buffer=4, expected_out=1.0, island_most=50)
    assert none.node_count == small.node_count == 7
    assert (small.is_borrowed, small.burst_count) == (True, 1)
    assert (large.burst_nodes, large.is_borrowed) == (30, False)


def test_pools_of_a_colo_that_are_hit_together() -> None:
    bursts = [Burst("a", 1.0, 3, ""), Burst("b", 1.1, 3, ""), Burst("c", 1.1, 3, ""), Burst("a", 9.0, 3, "")]
    assert colo_bursts(bursts, {"a": "north", "b": "north", "c": "south"}) == {"north": 1}
