"""Timelines become pasts: hour by hour, without what nobody told."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from plimsoll.fleet.fold import Fleet
from plimsoll.health.fold import Health
from plimsoll.health.forecast.history import HOUR, History, Marks, Span, history_of, told_span
from plimsoll.health.model import from_microseconds
from tests.health.forecast.pasts import OPEN, past
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import NOW, Importer


def test_an_outage_spoils_every_hour_that_it_touches() -> None:
    history = past([(0, 2.5, 4.25), (1, 4.5, 5.0), (2, 7.0, 8.0)], nodes=10, hours=10)
    # Node 1 is back at 5 sharp, so hour 5 is whole; node 2 leaves at 7 sharp and is back at 8 sharp.
    assert history.healthy_least.tolist() == [10, 10, 9, 9, 9, 10, 10, 9, 10, 10]
    assert history.out_most.tolist() == [0, 0, 1, 1, 1, 0, 0, 1, 0, 0]


def test_one_leaves_at_the_instant_another_returns() -> None:
    history = past([(0, 1.0, 2.5), (1, 2.5, 3.0)], nodes=5, hours=4)
    assert history.healthy_least.tolist() == [5, 4, 4, 5]


def test_an_open_outage_lasts_to_the_end_and_a_retired_node_leaves_the_total() -> None:
    history = past([(0, 1.5, OPEN), (1, 2.0, 3.5)], nodes=4, hours=6, left=[(3.5, -1)])
    assert history.healthy_least.tolist() == [4, 3, 2, 2, 2, 2]
    assert [history.total_at(hour) for hour in (0, 3, 4)] == [4, 4, 3]
    assert [history.out_at(hour) for hour in (0, 2, 4)] == [0, 2, 1]


def test_a_node_that_is_back_for_minutes_was_in_one_storm() -> None:
    history = past([(0, 1.0, 2.0), (1, 2.0, 3.0), (0, 2.1, 4.0), (0, 6.0, 7.0)])
    assert history.storm.tolist() == [0, 1, 0, 2]
    assert history.storm_began.tolist() == [1.0, 2.0, 6.0]


def test_what_is_so_now_was_observed() -> None:
    history = past([(0, 1.0, OPEN), (1, 2.0, OPEN)], nodes=3, hours=5)
    is_out, nobody = np.array([False, True, True]), np.zeros(3, bool)
    present = history.with_present(is_out, nobody)
    assert present.out_at(5) == 2
    assert sorted(zip(present.node.tolist(), present.began.tolist(), present.ended.tolist(), strict=True)) == [
        (0, 1.0, 5.0),
        (1, 2.0, OPEN),
        (2, 5.0, OPEN),
    ]


def _read(importer: Importer) -> tuple[Span | None, History]:
    fleet, health = importer.of(Fleet), importer.of(Health)
    marks = Marks(health)
    span = told_span(fleet, health, marks)
    members = sorted(fleet.nodes.values(), key=lambda node: node.id)
    return span, history_of("tiger", members, health, marks, span or Span(0, 0))


def test_history_runs_over_the_times_of_the_folder(tmp_path: Path) -> None:
    start = NOW - timedelta(hours=10)
    folder = write_fleet(
        tmp_path / "fleet",
        nodes=[
            *nodes(2),
            row("nodes", node="n3", service="repair", since=(NOW - timedelta(hours=2)).isoformat()),
            row("nodes", node="n4", service="repair"),  # since when nobody said: no time of the folder
            row("nodes", node="n5", service="retired"),  # and this one left nobody knows when: it was there
        ],
        history=[
            row("history", time=start.isoformat(), node="n1", service="repair"),
            row("history", time=(start + timedelta(minutes=90)).isoformat(), node="n1", service="validating"),
            row("history", time=(start + timedelta(minutes=150)).isoformat(), node="n1", service="in_service"),
        ],
    )
    importer = Importer()
    importer.bring(folder)
    span, history = _read(importer)
    assert span is not None
    assert (from_microseconds(span.start), span.hour_count) == (start, 8)
    assert history.total_at(0) == 5
    assert history.healthy_least.tolist() == [4, 4, 4, 5, 5, 5, 5, 5]
    assert history.out_at(8) == 1


OPENINGS = {
    "the first transition opens the history": ("", 3.0),
    "a node that came in a little before it does": ("2026-01-14T12:00:00Z", 6.0),
    "a node that was installed long ago does not": ("2024-01-01T00:00:00Z", 3.0),
}


@pytest.mark.parametrize("case", OPENINGS)
def test_what_opens_the_history(case: str, tmp_path: Path) -> None:
    since, want_days = OPENINGS[case]
    folder = write_fleet(
        tmp_path / "fleet",
        nodes=[row("nodes", since=since), row("nodes", node="n2", since=NOW.isoformat())],
        history=[row("history", time=(NOW - timedelta(days=3)).isoformat(), node="n2", service="repair")],
    )
    importer = Importer()
    importer.bring(folder)
    span, _ = _read(importer)
    assert span is not None
    assert span.days == want_days
    assert from_microseconds(span.end) == NOW


def test_a_fleet_without_times_has_no_history(tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(write_fleet(tmp_path / "fleet"))
    span, history = _read(importer)
    assert span is None
    assert history.node_count == 4


def test_planned_work_is_told_apart_and_can_be_left_out(tmp_path: Path) -> None:
    times = [(NOW - timedelta(hours=back)).isoformat() for back in (20, 18, 16, 14, 12)]
    cells = [
        ("n1", "draining", "planned: driver"),
        ("n1", "in_service", ""),
        ("n2", "quarantined", "xid 79"),
        ("n2", "in_service", ""),
        ("n3", "maintenance", ""),
    ]
    told = [
        row("history", time=time, node=node, service=service, reason=reason)
        for time, (node, service, reason) in zip(times, cells, strict=True)
    ]
    importer = Importer()
    importer.bring(write_fleet(tmp_path / "fleet", history=told))
    _, history = _read(importer)
    assert history.is_planned.tolist() == [True, False, True]
    assert history.unplanned().began.tolist() == [4.0]
    assert history.span.start == history.unplanned().span.start
    assert HOUR * history.span.hour_count == 8 * HOUR
