"""What a real Slurm with slurmdbd and 32 nodes of 8 GPUs does with what we tell it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from plimsoll.quota.model import Tier
from plimsoll.quota.outlets.model import Cause
from plimsoll.quota.outlets.slurm_names import guaranteed_account
from plimsoll.quota.outlets.slurm_render import config_lines
from tests.support.slurm_accounting import AccountedSlurm, accounted_slurm
from tests.support.slurm_teams import Teams, promise
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("slurm-accounting")

PROMISE = promise({"vision": 128, "speech": 96, "audio": 24})
"""31 of 32 nodes are guaranteed, one is standing flex."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[AccountedSlurm]:
    with accounted_slurm(config_lines=config_lines()) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def pushed(cluster: AccountedSlurm) -> Teams:
    teams = Teams(cluster, ["vision", "speech", "audio"])
    teams.push(PROMISE)
    teams.add_users()
    return teams


@pytest.fixture
def teams(pushed: Teams) -> Iterator[Teams]:
    """Three teams with what PROMISE says; a test may leave jobs and settings as it likes."""
    yield pushed
    pushed.cancel_all()
    pushed.push(PROMISE)


def test_a_team_can_run_exactly_its_guarantee(teams: Teams) -> None:
    first, second = teams.submit("vision", 64), teams.submit("vision", 64)
    teams.wait_running(first, second)
    one_more = teams.submit("vision", 1)
    teams.wait_reason(one_more, "AssocGrpGRES")
    assert teams.gpus_in_use(guaranteed_account("vision")) == 128
    teams.cancel(second)
    teams.wait_running(one_more)


def test_more_than_the_guarantee_runs_only_as_flex(teams: Teams) -> None:
    inside = teams.submit("audio", 24)
    beyond = teams.submit("audio", 8)
    flex = teams.submit_flex("audio", 64)
    teams.wait_running(inside, flex)
    teams.wait_reason(beyond, "AssocGrpGRES")
    as_critical = ["--account=plimsoll_audio.flex", "--qos=plimsoll_critical"]
    assert "Invalid qos" in teams.try_submit("audio", 8, *as_critical)
    assert "Invalid qos" in teams.try_submit("audio", 8, "--account=plimsoll_audio", "--qos=normal")
    assert "Invalid account" in teams.try_submit("audio", 8, "--account=plimsoll_vision")


def test_work_without_gpus_can_not_hold_a_node_inside_a_guarantee(teams: Teams) -> None:
    number = int(teams.try_submit("audio", 0, "--account=plimsoll_audio"))
    teams.wait_reason(number, "QOSMinGRES")
    whole = int(teams.try_submit("audio", 0, "--account=plimsoll_audio", "--nodes=4", "--exclusive"))
    teams.wait_reason(whole, "AssocGrpGRES", "QOSMinGRES")


def test_a_guarantee_calls_back_flex_by_requeue_and_no_more_than_it_needs(teams: Teams) -> None:
    flex = [teams.submit_flex("vision", 32) for _ in range(8)]
    teams.wait_running(*flex)
    low = teams.submit("audio", 24, tier=Tier.LOW)
    teams.wait_running(low)
    jobs = teams.jobs()
    requeued = [number for number in flex if jobs[number].restarts == 1]
    assert len(requeued) == 1
    assert jobs[requeued[0]].state == "PENDING"
    assert all(jobs[number].is_running for number in flex if number not in requeued)


def test_a_critical_of_another_team_never_stops_work_inside_a_guarantee(teams: Teams) -> None:
    """Not even in a shortfall: 12 nodes are away, and speech's critical lacks 7 of its 12."""
    teams.cluster.run("scontrol", "update", "NodeName=n[021-032]", "State=DRAIN", "Reason=a shortfall")
    low = [teams.submit("vision", 64, tier=Tier.LOW), teams.submit("audio", 24, tier=Tier.LOW)]
    teams.wait_running(*low)
    critical = teams.submit("speech", 96, tier=Tier.CRITICAL)
    teams.wait_reason(critical, "Resources", "Priority")
    time.sleep(3)  # several turns of the scheduler, which looks every second
    jobs = teams.jobs()
    assert all(jobs[number].is_running and jobs[number].restarts == 0 for number in low)
    assert not jobs[critical].is_running


def test_tier_then_rank_then_time_order_a_teams_own_jobs(teams: Teams) -> None:
    first = teams.submit("audio", 24)
    teams.wait_running(first)
    by_name = {
        "low 1": teams.submit("audio", 24, tier=Tier.LOW, rank=1),
        "high 2": teams.submit("audio", 24, tier=Tier.HIGH, rank=2),
        "high 1": teams.submit("audio", 24, tier=Tier.HIGH, rank=1),
        "high 1 later": teams.submit("audio", 24, tier=Tier.HIGH, rank=1),
        "critical 7": teams.submit("audio", 24, tier=Tier.CRITICAL, rank=7),
    }
    want = ["critical 7", "high 1", "high 1 later", "high 2", "low 1"]
    running = first
    for name in want:
        teams.cancel(running)
        wait_until(lambda: any(job.is_running for job in teams.jobs().values()), what="the next one runs")
        (running,) = [number for number, job in teams.jobs().items() if job.is_running]
        assert name == next(key for key, number in by_name.items() if number == running)


def test_a_limit_follows_the_guarantee(teams: Teams) -> None:
    first, second, third = (teams.submit("audio", 8) for _ in range(3))
    teams.wait_running(first, second, third)
    (step,) = teams.push(promise({"vision": 128, "speech": 96, "audio": 16}))[:1]
    assert (step.name, step.found, step.wanted) == ("team/tiger/plimsoll_audio GrpTRES gres/gpu", "24", "16")
    assert step.cause is Cause.BEHIND
    assert all(job.is_running for job in teams.jobs().values()), "a lower limit stops nothing"
    teams.cancel(first)
    fourth = teams.submit("audio", 8)
    teams.wait_reason(fourth, "AssocGrpGRES")
    teams.push(PROMISE)
    teams.wait_running(fourth)


def test_pushing_twice_changes_nothing(teams: Teams) -> None:
    assert teams.push(PROMISE) == []
    teams.last.clear()
    assert teams.push(PROMISE) == []
