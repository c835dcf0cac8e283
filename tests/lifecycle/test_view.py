"""A stuck cluster explained in one sentence: who waits for what, since when, and whose move it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import pytest

from plimsoll.fleet.model import Phase, Service
from plimsoll.lifecycle.model import ConditionType, Move
from plimsoll.lifecycle.outside import Found
from plimsoll.lifecycle.view import in_board_order, row_of, sentence
from tests.support.slipway import BARE, H200, START, Slip, life


class Case(NamedTuple):
    do: Callable[[Slip], None]
    want: str


def _short(slip: Slip) -> None:
    slip.cloud.limits = dict.fromkeys(slip.cloud.limits, 300)
    slip.add()
    slip.run()
    slip.clock.go(hours=3, minutes=10)


def _no_check_in(slip: Slip) -> None:
    slip.add()
    slip.run()
    slip.clock.go(days=2, hours=4)


def _cancelled(slip: Slip) -> None:
    slip.begin()
    slip.finish("checkin")
    slip.cloud.set("lynx", "bootstrap", Found.CANCELLED, "", "cancelled by grace")
    slip.run(minutes=19)


def _stays_short(slip: Slip) -> None:
    slip.begin(nodes=100)
    slip.finish("checkin", "bootstrap")
    slip.cloud.fill("lynx", 97)
    slip.run(minutes=1)
    slip.cloud.finish("lynx", "dependencies")
    slip.run(hours=5)


def _unhealthy(slip: Slip) -> None:
    slip.build()
    slip.set_service(["lynx-01", "lynx-02"], Service.REPAIR)
    slip.run(minutes=30)


def _earlier(slip: Slip) -> None:
    slip.cloud.limits = dict.fromkeys(slip.cloud.limits, 500)
    slip.add("puma", nodes=8, wanted=START)
    slip.add()
    slip.run(seconds=40)


def _production(slip: Slip) -> None:
    slip.produce()
    slip.clock.go(hours=1)


def _no_quota_and_no_checks(slip: Slip) -> None:
    slip.apply(BARE.replace("source: none", "source: azure"))
    slip.cloud.limits.clear()
    slip.add(recipe="bare")
    slip.run(hours=1)


CASES = {
    "quota is short": Case(
        _short,
        f"lynx has been planned for 3 h 10 min: 84 of 384 cores of {H200} are missing in eastus of sub-a"
        " (limit 300, 0 used) (the provider's move).",
    ),
    "nobody has checked it in": Case(
        _no_check_in,
        "lynx has been provisioning for 2 days 4 h: somebody has to check it in: from then on terraform projects and"
        " other clusters know of it (a person's move: plimsoll cluster checkin lynx).",
    ),
    "a build was cancelled": Case(
        _cancelled,
        "lynx has been provisioning for 20 min: bootstrap failed (attempt 1): cancelled by grace;"
        " the yard: look at it, then try again (a person's move: plimsoll cluster retry lynx bootstrap).",
    ),
    "a scale set stays at 97 of 100": Case(
        _stays_short,
        "lynx has been provisioning for 5 h 3 min: 97 of 100 machines are there (97.0%); scale-sets has been going"
        " since 2026-03-02T09:02:00Z, longer than it may (running); the yard should look (the provider's move).",
    ),
    "nodes are in repair": Case(
        _unhealthy,
        "lynx has been provisioned and being validated for 32 min: 2 of 4 nodes are in service (2 repair)"
        " (a person's move: plimsoll fleet nodes cluster=lynx service!=in_service).",
    ),
    "another one comes first": Case(
        _earlier,
        f"lynx has been planned for 40 s: there is enough {H200}, but puma comes first and waits for more of it"
        " (another cluster comes first).",
    ),
    "quota is short, and no step would check its nodes": Case(
        _no_quota_and_no_checks,
        f"lynx has been planned for 1 h: 384 of 384 cores of {H200} are missing in eastus of sub-a (limit 0, 0 used)"
        " (the provider's move).",
    ),
    "it is in production": Case(_production, "lynx has been in production for 1 h."),
}


@pytest.mark.parametrize("told", CASES)
def test_one_sentence(told: str) -> None:
    with Slip() as slip:
        CASES[told].do(slip)
        assert sentence(slip.life(), slip.clock()) == CASES[told].want


def test_a_cluster_that_nobody_has_looked_at() -> None:
    row = row_of(life())
    assert (row.phase, row.move, row.message, row.next_step) == (
        Phase.PLANNED,
        Move.CONTROLLER,
        "not looked at yet",
        "plimsoll cluster run",
    )


def test_one_that_leaves_tells_that_and_nothing_else() -> None:
    with Slip() as slip:
        slip.begin()
        slip.retire()
        slip.run(minutes=5)
        row = row_of(slip.life())
        assert (row.waits_for, row.message) == (ConditionType.AVAILABLE, "it leaves: checkin runs")


def test_those_that_need_somebody_stand_first() -> None:
    with Slip() as slip:
        slip.produce("ant")
        slip.add("bee")
        slip.begin("cat")
        slip.cloud.set("cat", "checkin", Found.CANCELLED)
        slip.add("dog", nodes=9_999, islands=10)
        slip.add("eel")
        slip.retire("eel")
        slip.run(minutes=1)
        order = [each.name for each in in_board_order(slip.lives.lives.values())]
        assert order == ["cat", "bee", "dog", "ant", "eel"], "bee waits for its check-in, dog for quota"
        assert row_of(slip.life("ant")).since == START + timedelta(minutes=21)
