"""The past replayed: numbers worked out by hand on ten nodes, and never a look ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.fleet.model import PoolKey
from plimsoll.health.forecast.rewind import PastPool
from plimsoll.quota.history.replay import (
    Past,
    PoolRecord,
    Replay,
    TeamRecord,
    Unjudged,
    Window,
    check_judged,
    common_window,
    read_past,
)
from plimsoll.quota.model import QuotaKey
from plimsoll.quota.policy import DEFAULT_RULE, Floor, Policy, parse_word
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import NOW, Importer

TIGER = PoolKey("tiger", "H200")
DAYS, HOURS = 28, 28 * 24
START = NOW - timedelta(days=DAYS)


class Out(NamedTuple):
    """A node is out from one hour of the history until another."""

    node: int
    begin: float
    end: float
    is_planned: bool = False


def at(hour: float) -> str:
    return (START + timedelta(hours=hour)).isoformat()


def fleet(path: Path, *outs: Out, quotas: Sequence[tuple[str, int]] = (("evals", 40), ("vision", 40))) -> Importer:
    """Ten nodes of 8 GPUs, all in service now, with 28 days of history."""
    rows = [row("history", time=at(0), node="n10", service="in_service", reason="checked"),
            row("history", time=at(HOURS), node="n10", service="in_service", reason="checked")]  # fmt: skip
    for out in outs:
        what = ("maintenance", "planned: firmware") if out.is_planned else ("repair", "xid 79")
        rows += [
            row("history", time=at(out.begin), node=f"n{out.node}", service=what[0], reason=what[1]),
            row("history", time=at(out.end), node=f"n{out.node}", service="in_service", reason=""),
        ]
    importer = Importer()
    book = [row("quotas", team=team, gpus=str(gpus)) for team, gpus in quotas]
    importer.bring(write_fleet(path / "fleet", nodes=nodes(10), quotas=book, history=rows))
    return importer


def replayed(
    importer: Importer, *words: str | Policy | None, window: Window | None = None, now: datetime = NOW
) -> list[PoolRecord]:
    policies = [parse_word(word) if isinstance(word, str) else word for word in words]
    past = read_past(importer.state, now=now)
    assert past.hours == HOURS
    replay = Replay(importer.state, past, window or Window(0, HOURS), now=now)
    return [records[TIGER] for records in replay.records(policies)]


def test_an_outage_breaks_a_promise_without_a_buffer_and_not_one_with(tmp_path: Path) -> None:
    importer = fleet(tmp_path, Out(1, 432, 456))
    none, tenth = replayed(importer, "fixed:0", "fixed:0.1")
    # 80 GPUs are promised and 72 work for 24 of 672 hours, for both teams.
    assert (none.hours, none.broken_hours, none.planned_hours) == (672, 24, 0)
    assert none.teams == {team: TeamRecord(672, 648, 40 * 672) for team in ("evals", "vision")}
    assert none.kept_share == pytest.approx(648 / 672)
    assert (none.flex_gpu_hours, none.flex_hours) == (0, 0)
    # 72 of 80 are promised: all there is during the outage, and a node more before and after it.
    assert (tenth.broken_hours, tenth.kept_share) == (0, 1.0)
    assert tenth.lines == [72] * 4
    assert (tenth.flex_gpu_hours, tenth.flex_hours) == (8 * 648, 648)
    assert tenth.flex_mean == pytest.approx(8 * 648 / 672)
    assert tenth.flex_share == pytest.approx(648 / 672)


def test_the_fewest_of_an_hour_count(tmp_path: Path) -> None:
    # Six minutes over the turn of an hour spoil two hours.
    (record,) = replayed(fleet(tmp_path, Out(1, 99.95, 100.05)), "fixed:0")
    assert record.broken_hours == 2


def test_planned_work_is_told_apart(tmp_path: Path) -> None:
    # Hours 30 to 35 break by planned work alone; in 50 to 54 a fault would have broken the promise anyway.
    outs = (Out(1, 30, 36, is_planned=True), Out(2, 50, 55), Out(3, 50, 55, is_planned=True))
    (record,) = replayed(fleet(tmp_path, *outs), "fixed:0")
    assert (record.broken_hours, record.planned_hours) == (11, 6)


def test_a_decision_knows_who_is_out_then_and_holds_for_a_week(tmp_path: Path) -> None:
    # Out from 500 to 510; decisions are at 0, 168, 336 and 504.
    (record,) = replayed(fleet(tmp_path, Out(1, 500, 510)), "fixed:0")
    assert record.lines == [80, 80, 80, 72]
    assert record.promised == [80, 80, 80, 72]
    assert record.broken_hours == 4
    # From 510 to 672 a node is back and nobody was promised it.
    assert (record.flex_gpu_hours, record.flex_hours) == (8 * 162, 162)
    assert record.teams["vision"].guaranteed_hours + record.teams["evals"].guaranteed_hours == 80 * 504 + 72 * 168


def test_tiered_looks_at_the_window_before_each_decision(tmp_path: Path) -> None:
    # At 0 there is no past: 15 %, 8 nodes. At 168 all was well: 5 %, 9 nodes. At 336 3 of 10 nodes were out for the
    # week before: in service 1 - 504/3360 = 85 %, 15 %. At 504 1 - 504/5040 = 90 %: 15 %.
    outs = [Out(number, 168, 336) for number in (1, 2, 3)]
    (record,) = replayed(fleet(tmp_path, *outs), "tiered")
    # They are out at 168 as well, so no more than 7 nodes can be promised there.
    assert record.lines == [64, 56, 64, 64]


def test_of_healthy_counts_from_what_works(tmp_path: Path) -> None:
    # 8 of 10 work at the first decision: 90 % of 8 is 7 nodes.
    outs = [Out(number, 0, 20) for number in (1, 2)]
    (record,) = replayed(fleet(tmp_path, *outs), "fixed-healthy:0.1")
    assert record.lines[0] == 56


def test_as_assigned_promises_the_book_whatever_works(tmp_path: Path) -> None:
    quotas = (("evals", 40), ("vision", 48))
    (record,) = replayed(fleet(tmp_path, quotas=quotas), None)
    assert (record.promised, record.kept_share) == ([88] * 4, 0.0)


def test_a_team_without_a_guarantee_does_not_count(tmp_path: Path) -> None:
    # All but one node are out at every decision and back for the rest: one team has the node, the other nothing.
    outs = [Out(number, week, week + 1) for number in range(1, 10) for week in (0.0, 168.0, 336.0, 504.0)]
    (record,) = replayed(fleet(tmp_path, *outs, quotas=(("evals", 8), ("vision", 8))), "fixed:0")
    assert record.promised == [8] * 4
    # Ties go by name: evals is cut.
    assert record.teams == {"vision": TeamRecord(672, 672, 8 * 672)}


def test_a_pin_above_the_line_of_the_past_leaves_what_was_promised(tmp_path: Path) -> None:
    # From 160 to 170 one node works; 16 GPUs are pinned, so the plan of 168 is refused and 80 stay promised.
    importer = fleet(tmp_path, *[Out(number, 160, 170) for number in range(2, 11)])
    pin = Floor(QuotaKey("evals", *TIGER), 16, "launch")
    policy = Policy("pinned", parse_word("fixed:0").rules, pins=(pin,))
    (record,) = replayed(importer, policy)
    assert record.lines == [80, 8, 80, 80]
    assert record.promised == [80, 80, 80, 80]
    assert record.broken_hours == 10


def test_forecast_keeps_its_promise_where_the_past_repeats(tmp_path: Path) -> None:
    # One node a day is out for twelve hours, all the time: whoever holds back a node keeps the promise.
    outs = [Out(day % 10 + 1, 24 * day + 3, 24 * day + 15) for day in range(DAYS)]
    (record,) = replayed(fleet(tmp_path, *outs), "forecast:0.99", window=Window(336, HOURS))
    assert record.broken_hours == 0
    assert all(48 <= line <= 72 for line in record.lines)


class Short(NamedTuple):
    """So many days of history, and what a window of 90 days makes of it with these policies."""

    days: float
    words: Sequence[str]
    want_first: int | None


WINDOWS = {
    "fixed may be judged from the first hour": Short(28, ("fixed:0", "tiered"), 0),
    "a forecast starts after two horizons, and so do all": Short(28, ("fixed:0", "forecast"), 336),
    "a forecast without a week to judge does not shorten the others": Short(20, ("fixed:0", "forecast"), 0),
}


@pytest.mark.parametrize("case", WINDOWS.values(), ids=WINDOWS)
def test_windows(case: Short, tmp_path: Path) -> None:
    now = NOW
    importer = Importer()
    first = (now - timedelta(days=case.days)).isoformat()
    history = [row("history", time=first, node="n1", service="in_service", reason="checked")]
    importer.bring(write_fleet(tmp_path / "fleet", history=history))
    past = read_past(importer.state, now=now)
    window = common_window(past, [parse_word(word) for word in case.words], days=90)
    assert (window.first, window.end) == (case.want_first, round(case.days * 24))


def test_days_limit_the_window(tmp_path: Path) -> None:
    past = read_past(fleet(tmp_path).state, now=NOW)
    window = common_window(past, [parse_word("fixed:0")], days=10)
    assert (window.first, window.end, list(window.moments)) == (HOURS - 240, HOURS, [HOURS - 240, HOURS - 72])
    assert window.days == 10


def test_too_short_is_said_with_numbers(tmp_path: Path) -> None:
    past = read_past(fleet(tmp_path).state, now=NOW)
    check_judged(past, parse_word("forecast"))
    with pytest.raises(Unjudged, match=r"14 days of history before its first week, and there are 20\.0 days") as caught:
        check_judged(_cut(past, 480), parse_word("forecast"))
    assert caught.value.code == "history_too_short"
    with pytest.raises(Unjudged) as caught:
        check_judged(Past([]), parse_word("fixed:0"))
    assert caught.value.code == "no_history"


def _cut(past: Past, hour: int) -> Past:
    def cut(pool: PastPool) -> PastPool:
        return replace(pool, history=pool.history.cut(hour), unplanned=pool.unplanned.cut(hour))

    return Past([cut(pool) for pool in past.pools])


outages = st.lists(
    st.builds(
        lambda node, begin, length, planned: Out(node, begin, min(begin + length, HOURS), planned),
        st.integers(1, 9),
        st.integers(1, HOURS - 2).map(float),
        st.sampled_from([0.25, 5.0, 30.0, 200.0]),
        st.booleans(),
    ),
    max_size=12,
    unique_by=lambda out: out.node,
)


@settings(max_examples=15, deadline=None)
@given(outages, st.integers(337, HOURS))
def test_never_a_look_ahead(tmp_path_factory: pytest.TempPathFactory, outs: list[Out], known: int) -> None:
    importer = fleet(tmp_path_factory.mktemp("fleet"), *outs)
    past = read_past(importer.state, now=NOW)
    words = ("fixed:0", "fixed-healthy:0.1", "tiered", "forecast")
    policies = [parse_word(word) for word in words]
    whole = Replay(importer.state, past, Window(336, HOURS), now=NOW).records(policies)
    cut = Replay(importer.state, _cut(past, known), Window(336, known), now=NOW).records(policies)
    for full, short in zip(whole, cut, strict=True):
        made = len(short[TIGER].lines)
        assert made
        assert short[TIGER].lines == full[TIGER].lines[:made]
        assert short[TIGER].promised == full[TIGER].promised[:made]


@settings(max_examples=25, deadline=None)
@given(outages, st.sampled_from([0, 10, 20, 35]))
def test_every_hour_is_what_counting_by_hand_says(
    tmp_path_factory: pytest.TempPathFactory, outs: list[Out], percent: int
) -> None:
    (record,) = replayed(fleet(tmp_path_factory.mktemp("fleet"), *outs), f"fixed:{percent / 100}")
    broken = flex = promised = 0
    for hour in range(HOURS):
        if hour % 168 == 0:
            works = 10 - sum(out.begin <= hour < out.end for out in outs)
            promised = 8 * min(works, (100 - percent) * 10 // 100)
        # Every outage starts on a full hour, so the worst of an hour is all that touch it.
        least = 80 - 8 * sum(out.begin < hour + 1 and out.end > hour for out in outs)
        broken += least < promised
        flex += max(0, least - promised)
    assert (record.broken_hours, record.flex_gpu_hours) == (broken, flex)


def test_the_default_rule_counts_where_a_policy_has_none_for_a_pool(tmp_path: Path) -> None:
    (record,) = replayed(fleet(tmp_path), Policy("empty", ()))
    assert DEFAULT_RULE.buffer * 100 == 15
    assert record.lines == [64] * 4
