"""The distribution of the count of nodes out, against cases that can be worked out and against a simulation."""

from __future__ import annotations

import random

import numpy as np
import pytest

from plimsoll.health.forecast.arrivals import Outlook, outlook
from plimsoll.health.forecast.counts import quantile
from plimsoll.health.forecast.guarded import Pooled
from plimsoll.health.forecast.method import Ask, FleetView, Records, Taking
from plimsoll.health.forecast.methods import METHODS
from tests.health.forecast.pasts import OPEN, past, view_of

WEEK = 168
HOURS = 90 * 24
BY_NAME = {method.name: method for method in METHODS}


def _outlook(*arguments: object, takings: tuple[Taking, ...] = (), **options: object) -> Outlook:
    view = view_of(past(*arguments, hours=HOURS, **options), HOURS)  # type: ignore[arg-type]
    return outlook(view, Ask(WEEK, 0.99, takings), view.bursts.presence)


def test_a_quiet_past_is_not_proof_that_nothing_fails() -> None:
    # Half a failure in 90 days and a day of repair: about 0.0055 nodes are out at any time.
    expected = _outlook([])
    assert quantile(expected.cumulated, 0.99) == 0
    assert 1 - expected.cumulated[0] == pytest.approx(0.0055, rel=0.1)


def test_known_work_shifts_the_count_for_as_long_as_it_lasts() -> None:
    half = _outlook([], takings=(Taking(0, 84, 5),))
    assert half.cumulated[4] == pytest.approx(0.5, abs=0.05)
    assert quantile(half.cumulated, 0.99) == 5
    short = _outlook([], takings=(Taking(100, 101, 5),))
    assert 1 - short.cumulated[4] == pytest.approx(1 / WEEK, rel=0.05), "one hour of the week"


def test_a_burst_comes_again_as_often_as_it_did() -> None:
    # Once in 90 days, for 23 hours and the one it touches: in a hundredth of all hours.
    burst = [(node, 1000.0, 1023.0) for node in range(6)]
    expected = _outlook(burst, nodes=20)
    chance = 24 / HOURS * (1 - 12 / WEEK)  # averaged over a week that begins without it
    assert 1 - expected.cumulated[5] == pytest.approx(chance, rel=0.05)
    assert 1 - expected.cumulated[6] < 1e-3


def test_who_is_out_now_returns_as_repairs_of_that_age_do() -> None:
    repaired = [(n % 5, 24.0 * n + 1, 24.0 * n + 11) for n in range(40)]
    fresh = _outlook([*repaired, (7, HOURS - 1.0, OPEN)])
    stuck = _outlook([*repaired, (7, HOURS - 500.0, OPEN)])
    assert fresh.why["out_at_end"] == pytest.approx(0.0, abs=0.01)
    assert stuck.why["out_at_end"] > 0.7, "no repair ever took so long, so it stays"


def test_the_distribution_is_that_of_a_simulation() -> None:
    """An independent way to the same number: play the failures of the week many times."""
    dice = random.Random(20260105)
    outages = []
    for node in range(200):
        hour = dice.expovariate(0.004 / 24)
        while hour < HOURS:
            end = hour + dice.lognormvariate(3.0, 1.0)
            outages.append((node, hour, end if end < HOURS else OPEN))
            hour = end + dice.expovariate(0.004 / 24)
    view = view_of(past(outages, nodes=200, hours=HOURS), HOURS)
    expected = outlook(view, Ask(WEEK, 0.99), view.bursts.presence)
    lasted = [end - begin + 1 for _, begin, end in outages if end < OPEN]
    ages = [HOURS - begin + 1 for _, begin, end in outages if end == OPEN]
    rate = len(outages) / HOURS
    counts = np.zeros(200)
    for _ in range(400):
        ends = [dice.choice([each for each in lasted if each > age] or [2 * age]) - age for age in ages]
        spans = [(0.0, end) for end in ends]
        hour = dice.expovariate(rate)
        while hour < WEEK:
            spans.append((hour, hour + dice.choice(lasted)))
            hour += dice.expovariate(rate)
        out = np.zeros(WEEK, int)
        for begin, end in spans:
            out[int(np.ceil(begin)) : int(np.ceil(end))] += 1
        counts += np.bincount(out, minlength=200)
    simulated = np.cumsum(counts) / counts.sum()
    for level in (0.5, 0.9, 0.99):
        assert abs(quantile(expected.cumulated, level) - quantile(simulated, level)) <= 1, level


def test_a_cluster_that_never_saw_a_burst_borrows_the_fleets() -> None:
    hit = [past([(n, 100.0 + 200 * k, 130.0 + 200 * k) for n in range(5) for k in range(9)], nodes=10, hours=HOURS)]
    calm = past([], nodes=40, hours=HOURS, name="calm")
    alone = Pooled().promise(FleetView([calm], HOURS, HOURS).views[0], Ask(WEEK, 0.99), Records())
    beside = Pooled().promise(FleetView([*hit, calm], HOURS, HOURS).views[1], Ask(WEEK, 0.99), Records())
    assert alone.buffer == 0
    assert beside.buffer == 20, "half of the cluster, as it was there"


def test_a_method_without_times_takes_what_planned_work_needs_at_once() -> None:
    view = view_of(past([], nodes=20, hours=HOURS), HOURS)
    together, brief = [Taking(0, 24, 3), Taking(12, 36, 4)], [Taking(0, 1, 9)]
    worst = BY_NAME["worst"]
    assert worst.promise(view, Ask(WEEK, 0.99, together), Records()).buffer == 7
    assert worst.promise(view, Ask(WEEK, 0.99, brief), Records()).buffer == 0, "one hour of 168 may be violated"


@pytest.mark.parametrize("name", BY_NAME)
def test_every_method_answers_for_an_empty_past(name: str) -> None:
    promise = BY_NAME[name].promise(view_of(past([], nodes=3, hours=10), 5), Ask(WEEK, 0.99), Records())
    assert 0 <= promise.buffer <= 3


def test_risk_is_spent_where_a_buffer_costs_most() -> None:
    # In one cluster a whole island of 40 nodes is lost now and then; the other ones lose a node at a time.
    lost = [(node, 100.0 + 400 * k, 104.0 + 400 * k) for node in range(40) for k in range(5)]
    dear = past(lost, nodes=100, hours=HOURS, name="dear")
    cheap = [
        past([(n % 50, 7.0 * n + 1, 7.0 * n + 9) for n in range(300)], nodes=100, hours=HOURS, name=f"cheap-{i}")
        for i in range(3)
    ]
    ask = Ask(WEEK, 0.99)
    fleet = FleetView([dear, *cheap], HOURS, HOURS)
    pooled, thrifty = (
        [BY_NAME[name].promise(view, ask, Records(cluster_count=4)).buffer for view in fleet.views]
        for name in ("pooled", "thrifty")
    )
    assert thrifty[0] < pooled[0]
    assert all(mine >= theirs for mine, theirs in zip(thrifty[1:], pooled[1:], strict=True))
    assert sum(thrifty) < sum(pooled)


def test_thrift_alone_is_the_pooled_promise_or_more() -> None:
    """A fleet of one has nothing to spread."""
    one = past([(n % 50, 7.0 * n + 1, 7.0 * n + 9) for n in range(300)], nodes=100, hours=HOURS)
    view = view_of(one, HOURS)
    risk = BY_NAME["thrifty"].promise(view, Ask(WEEK, 0.99), Records()).why["level"]
    assert risk >= 0.99
