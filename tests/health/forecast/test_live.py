"""The forecast of a fleet as it is now: chosen methods, who is out, planned work, and what can't be answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from plimsoll.errors import PlimsollError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import PoolKey, Service
from plimsoll.health.facts import Facts, Hold
from plimsoll.health.fold import Health
from plimsoll.health.forecast.counts import quantile
from plimsoll.health.forecast.history import Marks
from plimsoll.health.forecast.live import Forecast, PoolForecast, forecast, live_span
from plimsoll.health.forecast.method import Ask, Taking
from plimsoll.health.forecast.methods import METHODS
from plimsoll.health.forecast.picture import pool_picture
from plimsoll.health.forecast.present import checked_ask, forecast_state
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import NOW, Importer

WEEK = 168
BLIND = {"independent", "trailing", "negative_binomial", "worst"}
"""They do not look at who is out now."""
TIGER = PoolKey("tiger", "H200")


def _at(days_ago: float) -> datetime:
    return NOW - timedelta(days=days_ago)


def _repairs(count: int, *, hours: float = 12.0, reason: str = "xid 79", days: float = 60.0) -> list[dict[str, str]]:
    """One node after another is out, evenly over the last days; the last is back as the history ends."""
    rows = []
    for number in range(count):
        begin = _at(days * (count - number) / count)
        node = f"n{number % 20 + 1}"
        rows.append(row("history", time=begin.isoformat(), node=node, service="repair", reason=reason))
        end = (begin + timedelta(hours=hours)).isoformat()
        rows.append(row("history", time=end, node=node, service="in_service", reason=""))
    return [*rows, row("history", time=NOW.isoformat(), node="n20", service="in_service", reason="checked")]


def _fleet(
    tmp_path: Path, history: Sequence[Mapping[str, str]], *special: Mapping[str, str], count: int = 20
) -> Importer:
    names = {each["node"] for each in special}
    members = [each for each in nodes(count) if each["node"] not in names]
    importer = Importer()
    importer.bring(write_fleet(tmp_path / "fleet", nodes=[*members, *special], history=history))
    return importer


def _forecast(importer: Importer, **options: object) -> Forecast:
    options = {"now": NOW} | options
    return forecast_state(importer.state, Ask(WEEK, 0.99), **options)  # type: ignore[arg-type]


def _pool(importer: Importer, **options: object) -> PoolForecast:
    (pool,) = _forecast(importer, **options).pools
    return pool


def test_the_number_why_and_who_is_out(tmp_path: Path) -> None:
    out = row("nodes", node="n7", service="repair", since=_at(0.25).isoformat(), reason="xid 79")
    found = _forecast(_fleet(tmp_path, _repairs(60), out))
    (pool,) = found.pools
    assert (found.start, pool.total, pool.healthy, pool.gpus_per_node) == (NOW, 20, 19, 8)
    assert 15 <= pool.promised <= 19
    # 60 failures of 20 nodes in 60 days, and the one that is open.
    why = pool.expected.why
    assert why["failures_per_1000_node_days"] == pytest.approx(50, rel=0.05)
    assert why["repair_hours_median"] == pytest.approx(13, abs=0.1)
    (down,) = pool.down
    assert (down.node, down.since, down.is_planned) == ("n7", _at(0.25), False)
    # It is out for 6 hours and repairs take 12.
    assert timedelta(hours=5) <= down.returns - NOW <= timedelta(hours=7)
    assert found.is_short


def test_a_node_that_is_out_since_nobody_knows_when_counts_as_out(tmp_path: Path) -> None:
    pool = _pool(_fleet(tmp_path, _repairs(60), row("nodes", node="n7", service="quarantined", reason="no heartbeat")))
    assert pool.healthy == 19
    assert [(down.node, down.since) for down in pool.down] == [("n7", None)]


def test_no_more_is_promised_than_is_healthy(tmp_path: Path) -> None:
    history = _repairs(6)
    special = [row("nodes", node=f"n{n}", service="repair", since=_at(0.01).isoformat()) for n in range(8, 16)]
    pool = _pool(_fleet(tmp_path, history, *special))
    assert pool.healthy == 12
    assert pool.promised <= 12


def test_planned_work_of_the_past_is_no_failure(tmp_path: Path) -> None:
    faulty = _pool(_fleet(tmp_path / "a", _repairs(60)))
    planned = _pool(_fleet(tmp_path / "b", _repairs(60, reason="planned: driver")))
    assert faulty.expected.why["failures_per_1000_node_days"] > 40
    assert planned.expected.why["failures_per_1000_node_days"] < 1
    assert planned.promised > faulty.promised


def test_work_under_way_is_known(tmp_path: Path) -> None:
    history = _repairs(60, reason="provider: host maintenance", hours=24)
    special = row("nodes", node="n7", service="maintenance", since=_at(0.25).isoformat(), reason="provider: host")
    pool = _pool(_fleet(tmp_path, history, special))
    (taking,) = pool.planned
    assert (taking.begin, taking.node_count) == (0.0, 1)
    # All the work so far took a day, and this one is 6 hours old.
    assert taking.end == pytest.approx(18, abs=0.1)
    assert pool.down[0].is_planned


def _hold(hold_id: str = "h1", *, expires_at: datetime | None = None, expected_return: datetime | None = None) -> Hold:
    reason = "planned: rebuild"
    return Hold(
        hold_id, "ada", Service.MAINTENANCE, reason, _at(0.25), expires_at=expires_at, expected_return=expected_return
    )


DAYS_30, DAYS_2 = NOW + timedelta(days=30), NOW + timedelta(days=2)
RETURNS: dict[str, tuple[list[Hold], Facts | None, datetime | None]] = {
    "nobody told": ([_hold()], None, None),
    "the hold ends": ([_hold(expires_at=DAYS_30)], None, DAYS_30),
    "the hold is expected to end": ([_hold(expected_return=DAYS_2)], None, DAYS_2),
    "of two holds the later": ([_hold(expires_at=DAYS_2), _hold("h2", expires_at=DAYS_30)], None, DAYS_30),
    "the facts say so": ([], Facts(expected_return=DAYS_2), DAYS_2),
    "the later of facts and holds": ([_hold(expires_at=DAYS_2)], Facts(expected_return=DAYS_30), DAYS_30),
    "a time that is over says nothing": ([_hold(expires_at=_at(0.1))], None, None),
}


@pytest.mark.parametrize("service", ["maintenance", "repair"])
@pytest.mark.parametrize("case", RETURNS)
def test_who_is_told_to_be_back_then_is_out_until_then(case: str, service: str, tmp_path: Path) -> None:
    holds, facts, want_return = RETURNS[case]
    out = [row("nodes", node=f"n{n}", service=service, since=_at(0.25).isoformat(), reason="") for n in (7, 8, 9)]
    importer = _fleet(tmp_path, _repairs(20), *out)
    health = importer.of(Health)
    for name in ("n7", "n8", "n9"):
        if holds:
            health.holds.put(name, tuple(holds))
        if facts:
            health.facts.put(name, facts)
    pool = _pool(importer)
    assert [down.returns if down.is_told else None for down in pool.down] == [want_return] * 3
    assert [taking.node_count for taking in pool.planned] == ([3] if service == "maintenance" else [])
    if want_return == DAYS_30:
        # All three are out over the whole week, and 20 nodes that fail 20 times in 60 days need a margin beyond them.
        assert pool.expected.cumulated[2] == pytest.approx(0.0, abs=1e-9)
        assert pool.promised < 17
    elif want_return == DAYS_2:
        assert pool.expected.cumulated[2] > 0.6, "five days of seven without them"


@pytest.mark.parametrize("method", sorted(BLIND))
def test_a_method_that_looks_at_the_window_only_is_held_to_who_is_out_now(method: str, tmp_path: Path) -> None:
    """The window was quiet, then five nodes broke that stay out for long: their loss alone is no promise."""
    out = [
        row("nodes", node=f"n{n}", service="repair", since=_at(0.25).isoformat(), reason="fan") for n in range(7, 12)
    ]
    importer = _fleet(tmp_path, _repairs(60, hours=1.5), *out)
    for name in range(7, 12):
        importer.of(Health).facts.put(f"n{name}", Facts(expected_return=DAYS_30))
    pool = _pool(importer, method=method)
    least = _pool(importer, method="pooled").expected
    want_buffer = quantile(least.cumulated, 0.99)
    assert want_buffer > 5, "who is out, and who will be"
    assert pool.promised <= 20 - want_buffer
    assert pool.why["floor_nodes"] == want_buffer
    assert "out_at_end" in pool.why
    assert pool.why["method_nodes"] < want_buffer


def test_why_holds_no_number_that_nothing_rests_on(tmp_path: Path) -> None:
    once = [
        row("history", time=_at(days).isoformat(), node=f"n{n}", service=service, reason="power")
        for n in range(8)
        for days, service in ((30, "repair"), (29.9, "in_service"))
        if n
    ]
    pool = _pool(_fleet(tmp_path, [*_repairs(10), *once]), method="worst")
    assert pool.why["method_nodes"] >= pool.why["floor_nodes"]
    assert set(pool.why) == {"hours", "method_nodes", "floor_nodes"}


def test_it_starts_now_and_silence_is_no_health(tmp_path: Path) -> None:
    """Ten days after the last transition what was out is still out, only older; rates are those of before."""
    importer = _fleet(tmp_path, _repairs(60), row("nodes", node="n7", service="repair", since=_at(0.25).isoformat()))
    now = NOW + timedelta(days=10)
    later, then = _forecast(importer, now=now), _forecast(importer)
    assert (later.start, later.history_end, later.quiet_hours) == (now, NOW, 240)
    assert (then.start, then.quiet_hours) == (NOW, 0)
    mine, before = later.pools[0], then.pools[0]
    assert mine.down[0].returns > now + timedelta(days=9), "older than any repair: as long again"
    assert before.down[0].returns < NOW + timedelta(days=1)
    key = "failures_per_1000_node_days"
    assert mine.expected.why[key] == before.expected.why[key]


def test_a_node_that_left_nobody_knows_when_is_not_there_now(tmp_path: Path) -> None:
    pool = _pool(_fleet(tmp_path, _repairs(20), row("nodes", node="n7", service="retired", reason="")))
    assert (pool.total, pool.healthy) == (19, 19)


@pytest.mark.parametrize("target", [0.5, 0.9, 0.99, 0.999])
def test_the_picture_never_contradicts_its_promise(target: float, tmp_path: Path) -> None:
    """The promise is below the band, or the picture says why not."""
    out = [
        row("nodes", node=f"n{n}", service="repair", since=_at(0.25).isoformat(), reason="fan") for n in range(7, 12)
    ]
    importer = _fleet(tmp_path, _repairs(60), *out)
    for method in METHODS:
        found = forecast_state(importer.state, Ask(WEEK, target), now=NOW, method=method.name)
        (pool,) = found.pools
        spec = pool_picture(found, pool)
        low = min(point["low"] for point in spec["layer"][3]["data"]["values"])
        text = " ".join(spec["title"]["subtitle"])
        assert "dashed: the middle" in text
        assert (low < pool.promised * 8) == ("may be broken" in text), method.name


def test_work_ahead_is_put_in_as_known(tmp_path: Path) -> None:
    importer = _fleet(tmp_path, _repairs(20))
    fleet, health = importer.of(Fleet), importer.of(Health)
    span = live_span(fleet, health, Marks(health))
    assert span is not None

    def promised(*takings: Taking) -> int:
        found = forecast(fleet, health, span, Ask(WEEK, 0.99), method="arrivals", takings={TIGER: takings})
        return found.pools[0].promised

    assert promised(Taking(24, 48, 6)) == promised() - 6 or promised(Taking(24, 48, 6)) == promised() - 5
    assert promised(Taking(24, 25, 6)) >= promised() - 1, "one hour of 168 is within what may be violated"
    assert promised(Taking(500, 600, 6)) == promised(), "after the horizon"


def test_each_pool_of_a_cluster_is_counted_in_its_own_gpus(tmp_path: Path) -> None:
    others = [row("nodes", node=f"g{n}", sku="GB200", gpus="4", island="tiger-g") for n in range(5)]
    found = _forecast(_fleet(tmp_path, _repairs(30), *others))
    assert [(pool.pool.sku, pool.total, pool.gpus_per_node) for pool in found.pools] == [
        ("GB200", 5, 4),
        ("H200", 20, 8),
    ]


def test_the_method_is_chosen_by_the_past_or_by_the_asker(tmp_path: Path) -> None:
    importer = _fleet(tmp_path, _repairs(60))
    chosen = _pool(importer)
    kept = [each for each in chosen.candidates if each.violation_rate <= 0.01 and each.method != "independent"]
    assert chosen.method == min(kept, key=lambda each: (each.buffer, each.method in BLIND, each.violation_rate)).method
    assert _pool(importer, method="worst").method == "worst"
    assert _pool(importer, method="independent").method == "independent"


REFUSED = {
    "an unknown cluster": ({"cluster": "tigr"}, "no_such_cluster", "did you mean tiger?"),
    "a cluster that is not in production": ({"cluster": "lion"}, "nothing_to_forecast", "phase provisioned"),
    "an unknown method": ({"method": "arivals"}, "bad_method", "did you mean arrivals?"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, tmp_path: Path) -> None:
    options, want_code, want_text = REFUSED[case]
    importer = Importer()
    clusters = [row("clusters"), row("clusters", cluster="lion", phase="provisioned")]
    importer.bring(write_fleet(tmp_path / "fleet", clusters=clusters, nodes=nodes(20), history=_repairs(10)))
    with pytest.raises(PlimsollError) as caught:
        _forecast(importer, **options)
    assert caught.value.code == want_code
    assert want_text in caught.value.message
    assert caught.value.next_step


def test_a_history_that_is_too_short_says_how_long_it_is(tmp_path: Path) -> None:
    with pytest.raises(PlimsollError) as caught:
        _forecast(_fleet(tmp_path, _repairs(5, days=10)))
    assert caught.value.code == "history_too_short"
    assert "10.0 days, and two horizons of 7 days take 14 days" in caught.value.message


def test_an_empty_fleet_and_one_without_history(tmp_path: Path) -> None:
    with pytest.raises(PlimsollError) as caught:
        forecast_state(Importer().state, Ask(WEEK, 0.99), now=NOW)
    assert (caught.value.code, caught.value.next_step) == (
        "nothing_to_forecast",
        "plimsoll demo, or plimsoll fleet import DIR",
    )
    with pytest.raises(PlimsollError) as caught:
        _forecast(_fleet(tmp_path, []))
    assert "0.0 days" in caught.value.message


@pytest.mark.parametrize("target", [0.0, 1.0, -1.0, 99.0, float("nan")])
def test_a_target_that_is_no_probability(target: float) -> None:
    with pytest.raises(PlimsollError) as caught:
        checked_ask(horizon=WEEK, target=target)
    assert caught.value.code == "bad_target"
