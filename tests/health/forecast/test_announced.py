"""Announced work in the forecast: which hours of which nodes it takes, by hand, and what is left to promise."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from plimsoll.fleet.model import Service
from plimsoll.health.facts import Facts, Hold
from plimsoll.health.fold import Health
from plimsoll.health.forecast.live import PoolForecast
from plimsoll.health.forecast.method import Ask, Taking, planned_most
from plimsoll.health.forecast.picture import pool_picture
from plimsoll.health.forecast.present import forecast_state
from plimsoll.health.model import Ahead
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import NOW, Importer

WEEK = 168
HOUR = timedelta(hours=1)
Work = tuple[float, float, Sequence[str]]
"""From and until which hour from now, and on which nodes."""


def _quiet_fleet(tmp_path: Path, *special: dict[str, str]) -> Importer:
    """Twenty nodes of one pool (and `g1` of another) that were out for planned work only, so that none ever failed."""
    history = []
    for number in range(10):
        begin = NOW - timedelta(days=60 - 6 * number)
        for moment, service in ((begin, "maintenance"), (begin + 12 * HOUR, "in_service")):
            reason = "planned: driver" if service == "maintenance" else ""
            history.append(
                row("history", time=moment.isoformat(), node=f"n{number + 1}", service=service, reason=reason)
            )
    history.append(row("history", time=NOW.isoformat(), node="n20", service="in_service", reason="checked"))
    named = {each["node"] for each in special}
    members = [each for each in nodes(20) if each["node"] not in named]
    other = row("nodes", node="g1", sku="GB200", gpus="4", island="tiger-g")
    importer = Importer()
    importer.bring(write_fleet(tmp_path / "fleet", nodes=[*members, *special, other], history=history))
    return importer


def _pool(importer: Importer, *works: Work, **options: Any) -> PoolForecast:
    """The forecast of the twenty with this work announced."""
    health = importer.of(Health)
    for number, (starts, ends, names) in enumerate(works):
        health.add_ahead(Ahead(f"w{number}", "ada", tuple(names), NOW + starts * HOUR, NOW + ends * HOUR, "planned"))
    found = forecast_state(importer.state, Ask(WEEK, 0.99), now=NOW, **options)
    return next(pool for pool in found.pools if pool.pool.sku == "H200")


SIX = ["n1", "n2", "n3", "n4", "n5", "n6"]


class Case(NamedTuple):
    """What is announced, and what that takes."""

    works: Sequence[Work]
    want: Sequence[Taking]


TAKINGS = {
    "nothing": Case([], []),
    "six nodes for a day": Case([(24, 48, SIX)], [Taking(24, 48, 6)]),
    "a node of another pool takes nothing here": Case([(24, 48, ["n1", "g1"])], [Taking(24, 48, 1)]),
    "two works at different times": Case(
        [(24, 48, ["n1", "n2"]), (72, 80, ["n2", "n3"])], [Taking(24, 48, 2), Taking(72, 80, 2)]
    ),
    "two works that overlap take a node once": Case(
        [(24, 48, ["n1", "n2"]), (40, 60, ["n2", "n3"])], [Taking(24, 48, 1), Taking(24, 60, 1), Taking(40, 60, 1)]
    ),
    "work that should have begun takes its nodes from now on": Case([(-5, 10, ["n1"])], [Taking(0, 10, 1)]),
    "work that is over takes nothing": Case([(-5, 0, ["n1"])], []),
    "work after the horizon takes nothing": Case([(168, 200, ["n1"])], []),
    "work that begins in the last hour does": Case([(167, 200, ["n1"])], [Taking(167, 200, 1)]),
}


@pytest.mark.parametrize("sentence", TAKINGS)
def test_what_is_taken(sentence: str, tmp_path: Path) -> None:
    case = TAKINGS[sentence]
    assert _pool(_quiet_fleet(tmp_path), *case.works).planned == case.want


PROMISED: dict[str, tuple[Sequence[Work], range]] = {
    "nothing is announced": ([], range(20, 21)),
    "six nodes for a day are not there": ([(24, 48, SIX)], range(14, 15)),
    "two hours of 168 are more than the 1 % that may be broken": ([(24, 26, SIX)], range(14, 15)),
    "one hour of 168 is within it": ([(24, 25, SIX)], range(19, 21)),
    "six and then six others are six at once": (
        [(24, 48, SIX), (48, 72, [f"n{n}" for n in range(7, 13)])], range(14, 15)
    ),
    "six and six others at once are twelve": (
        [(24, 48, SIX), (30, 48, [f"n{n}" for n in range(7, 13)])], range(8, 9)
    ),
    "twice the same six are six": ([(24, 48, SIX), (30, 40, SIX)], range(14, 15)),
    "work after the horizon does not matter": ([(500, 600, SIX)], range(20, 21)),
}  # fmt: skip


@pytest.mark.parametrize("method", ["", "worst", "trailing", "arrivals", "pooled"])
@pytest.mark.parametrize("sentence", PROMISED)
def test_what_is_left_to_promise_of_twenty_nodes_that_never_fail(sentence: str, method: str, tmp_path: Path) -> None:
    works, want = PROMISED[sentence]
    assert _pool(_quiet_fleet(tmp_path), *works, method=method).promised in want


def _out(service: str) -> dict[str, str]:
    return row("nodes", node="n7", service=service, since=(NOW - 6 * HOUR).isoformat(), reason="")


class Out(NamedTuple):
    """Where n7 is, until which hour it is told to be out; work on it is announced from hour 24 to 60."""

    service: str
    told: float | None
    want: Sequence[Taking]


OUT = {
    "in maintenance until after the work began": Out("maintenance", 48, [Taking(0, 48, 1), Taking(48, 60, 1)]),
    "in maintenance until before the work": Out("maintenance", 20, [Taking(0, 20, 1), Taking(24, 60, 1)]),
    "in maintenance for longer than the work": Out("maintenance", 70, [Taking(0, 70, 1)]),
    "in repair until after the work began": Out("repair", 48, [Taking(48, 60, 1)]),
    "in repair for longer than the work": Out("repair", 60, []),
    "in repair, and nobody knows until when": Out("repair", None, [Taking(24, 60, 1)]),
    "retired": Out("retired", None, []),
}


@pytest.mark.parametrize("sentence", OUT)
def test_no_hour_of_a_node_that_is_out_already_is_taken_twice(sentence: str, tmp_path: Path) -> None:
    case = OUT[sentence]
    importer = _quiet_fleet(tmp_path, _out(case.service))
    if case.told is not None:
        back = NOW + case.told * HOUR
        importer.of(Health).facts.put("n7", Facts(expected_return=back))
        importer.of(Health).holds.put("n7", (Hold("h", "ada", Service(case.service), "", NOW, expires_at=back),))
    assert _pool(importer, (24, 60, ["n7"])).planned == case.want


def test_the_most_at_once_is_what_people_are_told(tmp_path: Path) -> None:
    assert planned_most([], WEEK) == 0
    assert planned_most([Taking(0, 10, 3), Taking(10, 20, 4), Taking(19, 30, 2)], WEEK) == 6
    importer = _quiet_fleet(tmp_path)
    pool = _pool(importer, (24, 48, SIX), (72, 96, SIX))
    found = forecast_state(importer.state, Ask(WEEK, 0.99), now=NOW)
    assert "planned work is in it: 6 nodes, until Jan 24" in " ".join(pool_picture(found, pool)["title"]["subtitle"])
