"""Quantiles, unions and times, on values worked out by hand."""

from __future__ import annotations

import pytest

from plimsoll.quota.model import Tier
from plimsoll.simulate.failures import Failures
from plimsoll.simulate.generate import Wanted, make_trace
from plimsoll.simulate.measures import SHORTFALL, WAITING, Meter, Promises, waits_by, waits_of
from plimsoll.simulate.model import DAY_US, HOUR_US, size_class
from tests.support.yard import START


def test_waits_of_a_hundred() -> None:
    found = waits_of([float(each) for each in range(1, 101)])
    assert (found.jobs, found.mean, found.median, found.p99, found.most) == (100, 50.5, 50.0, 99.0, 100.0)


def test_no_waits_are_zeros() -> None:
    assert waits_of([]).jobs == 0


def test_waits_are_told_by_size_and_tier() -> None:
    sizes, tiers = waits_by({(1, Tier.LOW): [1.0], (8, Tier.LOW): [3.0], (600, Tier.CRITICAL): [9.0]})
    assert {name: found.mean for name, found in sizes.items()} == {"1": 1.0, "2-8": 3.0, "513+": 9.0}
    assert {name: found.mean for name, found in tiers.items()} == {"critical": 9.0, "low": 2.0}


@pytest.mark.parametrize(
    ("gpus", "want"), [(1, "1"), (2, "2-8"), (8, "2-8"), (9, "9-64"), (512, "65-512"), (513, "513+")]
)
def test_classes_of_size(gpus: int, want: str) -> None:
    assert size_class(gpus) == want


def test_amounts_over_time_end_with_the_last_submit() -> None:
    meter = Meter(0, 10, works=16, block=16, island=16)
    meter.advance(4)
    meter.held, meter.block = 12, 2
    meter.advance(8)
    meter.held, meter.block = 0, 16
    meter.advance(1000)
    assert (meter.held_us, meter.works_us, meter.block_us) == (48, 160, 64 + 8 + 32)
    assert meter.possible_us == 64 + 16 + 32, "of 4 free GPUs a block of 4 could be made"
    assert meter.block_least == 2


def test_broken_hours_of_a_team_count_once_and_only_beyond_the_grace_time() -> None:
    promises = Promises(HOUR_US)
    promises.waits("one", "cod", 0, WAITING)
    promises.waits("two", "cod", HOUR_US, WAITING)
    promises.waits("short", "eel", 0, WAITING)
    promises.runs("short", HOUR_US)
    promises.runs("one", 4 * HOUR_US)
    promises.runs("two", 5 * HOUR_US)
    assert promises.team_hours(WAITING) == {"cod": 4.0}, "from 1 to 4 and from 2 to 5"


def test_who_loses_its_right_no_longer_counts() -> None:
    promises = Promises(0)
    promises.waits("one", "cod", 0, WAITING)
    promises.waits("one", "cod", HOUR_US, "")
    promises.close(9 * HOUR_US)
    assert promises.team_hours(WAITING) == {"cod": 1.0}


def test_a_shortfall_hits_every_team_of_the_pool_until_it_is_over() -> None:
    promises = Promises(0)
    promises.shortfall("tiger", ["cod", "eel"], 0, is_short=True)
    promises.shortfall("tiger", ["cod", "eel"], HOUR_US, is_short=True)
    promises.shortfall("tiger", ["cod", "eel"], 2 * HOUR_US, is_short=False)
    assert promises.team_hours(WAITING, SHORTFALL) == {"cod": 2.0, "eel": 2.0}


def test_failures_come_at_the_rate_that_was_asked_for() -> None:
    nodes = [f"n{number}" for number in range(1000)]
    failures = Failures(nodes, per_1000_node_days=6.5, repair_hours=24.0, seed=1)
    at, count = 0, 0
    while (after := failures.next_at(at)) is not None and after < 1000 * DAY_US:
        at, count = after, count + 1
    assert count == pytest.approx(6500, rel=0.05)
    repairs = [failures.repair_us() / HOUR_US for _ in range(20_000)]
    assert sum(repairs) / len(repairs) == pytest.approx(24.0, rel=0.05)
    assert Failures(nodes, per_1000_node_days=0.0, repair_hours=0.0, seed=1).next_at(0) is None


def test_a_made_up_trace_is_the_same_for_a_seed_and_as_busy_as_asked() -> None:
    wanted = Wanted(2000, 7.0, seed=3, gangs=(256, 352), gang_share=0.05, busy_gpus=4000)
    header, *rows = make_trace(wanted, begin=START)
    assert [header, *rows] == list(make_trace(wanted, begin=START))
    assert header == ("time", "duration", "gpus", "team", "tier", "rank", "kind", "min_gpus")
    assert len(rows) == 2000
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)  # type: ignore[type-var]
    gangs = [row for row in rows if row[2] in (256, 352)]
    assert len(gangs) == pytest.approx(100, abs=40)
    busy = sum(row[1] * row[2] for row in rows) / (7 * 86_400)  # type: ignore[operator]
    assert busy == pytest.approx(4000, rel=0.01)
    assert {row[6] for row in rows} == {"gang", "elastic"}
