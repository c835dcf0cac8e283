"""A team is told of planned work on its pools beforehand."""

from __future__ import annotations

from datetime import timedelta

from plimsoll.health.changes import WorkAnnounced
from plimsoll.health.model import Ahead
from plimsoll.workloads.why.team import explain_team
from tests.support.yard import NO_GRACE, START, Yard

DAY = timedelta(days=1)


def test_announced_work_on_a_teams_pool_is_told_with_its_numbers() -> None:
    yard = Yard({"tiger": {"a": 4}, "whale": {"a": 2}}, {"tiger": {"blue": 32}, "whale": {"red": 16}})
    for name, nodes in {"fw": ("tiger-a-1", "tiger-a-2", "whale-a-1"), "far": ("tiger-a-3",)}.items():
        starts = START + (DAY if name == "fw" else 60 * DAY)
        yard.do(WorkAnnounced(Ahead(name, "ops", nodes, starts, starts + DAY / 6, "planned: firmware")))
    blue = explain_team(yard.state, "blue", now=START, grace=NO_GRACE)
    assert [(each.cluster, each.gpus, each.installed) for each in blue.planned] == [("tiger", 16, 32)]
    assert "16 of 32 H200 of tiger will be out from 2026-03-03T09:00:00Z" in blue.planned[0].text
    over = explain_team(yard.state, "blue", now=START + 2 * DAY, grace=NO_GRACE)
    assert over.planned == ()
