"""What a real Slurm with slurmdbd and 32 nodes of 8 GPUs does with what we tell it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from plimsoll.connect.slurm_accounts import SlurmAccounts
from plimsoll.errors import Refused, Unavailable
from plimsoll.quota.model import Tier
from plimsoll.quota.outlets.model import Cause, Limit, Step
from plimsoll.quota.outlets.slurm import Target
from plimsoll.quota.outlets.slurm_names import guaranteed_account, submit_options
from plimsoll.quota.outlets.slurm_outlet import SlurmOutlet
from plimsoll.quota.outlets.slurm_render import config_lines, partition_words, render
from tests.support.slurm import private_slurm
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
    """Three teams with what PROMISE says; a test may leave jobs and nodes as it likes."""
    yield pushed
    pushed.cancel_all()


@pytest.fixture
def moving(teams: Teams) -> Iterator[Teams]:
    """The same, for a test that leaves other settings behind."""
    yield teams
    teams.push(PROMISE)


def test_a_team_can_run_exactly_its_guarantee(teams: Teams) -> None:
    first, second = teams.submit("vision", 64), teams.submit("vision", 64)
    teams.wait_running(first, second)
    one_more = teams.submit("vision", 1)
    teams.wait_reason(one_more, "AssocGrpGRES")
    count = teams.count(guaranteed_account("vision"))
    assert (count.limits, count.used["gres/gpu"]) == ({"gres/gpu": "128"}, 128)
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


def test_a_limit_follows_the_guarantee(moving: Teams) -> None:
    first, second, third = (moving.submit("audio", 8) for _ in range(3))
    moving.wait_running(first, second, third)
    (step,) = moving.push(promise({"vision": 128, "speech": 96, "audio": 16}))[:1]
    assert (step.name, step.found, step.wanted) == ("team/tiger/plimsoll_audio GrpTRES gres/gpu", "24", "16")
    assert step.cause is Cause.BEHIND
    assert all(job.is_running for job in moving.jobs().values()), "a lower limit stops nothing"
    above = next(finding for finding in moving.outlet.findings() if finding.code == "above_guarantee")
    assert "1 teams run more GPUs than they are guaranteed now" in above.what
    assert above.what.endswith("plimsoll_audio 24 of 16")
    moving.cancel(first)
    fourth = moving.submit("audio", 8)
    moving.wait_reason(fourth, "AssocGrpGRES")
    moving.push(PROMISE)
    moving.wait_running(fourth)
    moving.push(promise({"vision": 128, "speech": 96, "audio": 0}))
    flex = moving.submit_flex("audio", 8)
    moving.wait_running(flex)
    moving.wait_reason(moving.submit("audio", 8), "AssocGrpGRES")


def test_what_is_not_promised_any_more_is_closed_and_opens_again_with_its_users(moving: Teams) -> None:
    running = moving.submit("audio", 8)
    moving.wait_running(running)
    steps = moving.push(promise({"vision": 128, "speech": 96}))
    assert {step.cause for step in steps} == {Cause.LEFT_OVER}
    assert moving.steps(promise({"vision": 128, "speech": 96})) == []
    for account in ("plimsoll_audio", "plimsoll_audio.flex"):
        assert "AssocGrpSubmitJobsLimit" in moving.try_submit("audio", 8, f"--account={account}")
    assert moving.jobs()[running].is_running
    assert {step.cause for step in moving.push(PROMISE)} == {Cause.MISSING}
    moving.wait_running(moving.submit("audio", 8), moving.submit_flex("audio", 8))


def test_what_was_changed_by_hand_is_drift_and_is_put_back(moving: Teams) -> None:
    by_hand = [
        "account where Name=plimsoll_vision Cluster=tiger set GrpTRES=gres/gpu=200 GrpJobs=9",
        "account where Name=plimsoll_speech.flex Cluster=tiger set Fairshare=7000 GrpTRES=gres/gpu=8",
        "account where Name=plimsoll_audio Cluster=tiger set Parent=root",
        "user where Name=mail Account=plimsoll_audio.flex set QOS+=plimsoll_critical",
        "qos where Name=plimsoll_high set Preempt+=plimsoll_low",
    ]
    for words in by_hand:
        moving.cluster.run("sacctmgr", "-i", "modify", *words.split())
    inside = "Parent=plimsoll QOS=plimsoll_critical,plimsoll_high,plimsoll_low,plimsoll_mid DefaultQOS=plimsoll_mid"
    beyond = "Parent=plimsoll.flex QOS=plimsoll_flex DefaultQOS=plimsoll_flex"
    want_found = {
        "qos/inside plimsoll_high": "Priority=800000 Preempt=plimsoll_flex,plimsoll_low MinTRES=gres/gpu=1",
        "team/tiger/plimsoll_audio access": inside.replace("Parent=plimsoll ", "Parent=root "),
        "team/tiger/plimsoll_audio.flex access": f"{beyond} user:mail=plimsoll_critical,plimsoll_flex",
        "team/tiger/plimsoll_speech.flex Fairshare": "7000",
        "team/tiger/plimsoll_speech.flex access": f"{beyond} GrpTRES=gres/gpu=8",
        "team/tiger/plimsoll_vision GrpTRES gres/gpu": "200",
        "team/tiger/plimsoll_vision access": f"{inside} GrpJobs=9",
    }
    steps = moving.steps(PROMISE)
    assert {step.name: step.found for step in steps} == want_found
    assert {step.cause for step in steps} == {Cause.DRIFT}
    lowered = steps[0]
    assert moving.outlet.limit(lowered.name, lowered.found or "") == Limit(sku="H100", team="vision", gpus=200)
    for step in steps:
        moving.do(step)
    assert moving.steps(PROMISE) == []
    assert moving.limit_in_force("plimsoll_vision") == "128"
    assert "Invalid qos" in moving.try_submit("audio", 8, "--account=plimsoll_audio.flex", "--qos=plimsoll_critical")
    moving.wait_running(moving.submit_flex("audio", 8))


def test_pushing_twice_changes_nothing_even_if_we_forgot_that_we_did(teams: Teams) -> None:
    other = Teams(teams.cluster, list(teams.user_by_team))
    assert other.push(PROMISE) == []


def test_a_push_that_was_cut_anywhere_is_completed_by_the_next(moving: Teams) -> None:
    more = promise({"vision": 96, "speech": 96, "audio": 24, "robots": 32})
    steps = moving.steps(more)
    assert [step.name for step in steps] == [
        "team/tiger/plimsoll_vision GrpTRES gres/gpu",  # what is lowered comes first
        "team/tiger/plimsoll_robots GrpTRES gres/gpu",
        "team/tiger/plimsoll_robots access",
        "team/tiger/plimsoll_robots.flex Fairshare",
        "team/tiger/plimsoll_robots.flex access",
        "team/tiger/plimsoll_vision.flex Fairshare",
    ]
    for count in (1, 2, 4):
        unknowing = moving.new_outlet()  # one that was not told all that is wanted makes an account closed
        if count > 1:
            unknowing.write(steps[count - 1])
        else:
            moving.do(steps[0])
        left = moving.steps(more)
        assert {step.name for step in left} == {step.name for step in steps[1:]}, "closed counts as not there"
        assert {step.cause for step in left[:-1]} == {Cause.MISSING}
    moving.push(more)
    assert moving.steps(more) == []
    assert moving.limit_in_force("plimsoll_robots") == "32"


def test_a_slurmdbd_that_dies_in_the_middle_is_said_and_the_next_push_completes(moving: Teams) -> None:
    less = promise({"vision": 120, "speech": 88, "audio": 24})
    first, *others = moving.steps(less)
    moving.do(first)
    moving.cluster.kill_accounting()
    try:
        with pytest.raises(Unavailable) as caught:
            moving.do(others[0])
        assert caught.value.code == "slurm_unavailable"
        assert "Connection refused" in str(caught.value)
        assert "slurmdbd" in caught.value.next_step
        with pytest.raises(Unavailable):
            moving.outlet.read()
    finally:
        moving.cluster.start_accounting()
    assert [step.name for step in moving.push(less)] == [step.name for step in others]
    wait_until(lambda: moving.limit_in_force("plimsoll_speech") == "88", what="the controller has heard of it")


def test_other_clusters_and_foreign_accounts_are_left_alone(moving: Teams) -> None:
    run = moving.cluster.run
    run("sacctmgr", "-i", "add", "cluster", "lion")
    run("sacctmgr", "-i", "add", "qos", "urgent", "Priority=5", "Preempt=plimsoll_low")
    run("sacctmgr", "-i", "add", "account", "physics", "Cluster=tiger", "GrpTRES=gres/gpu=4")
    before = run("sacctmgr", "-nP", "show", "assoc", "Cluster=tiger")
    lion = moving.new_outlet(Target("lion"))
    for name, value in lion.wanted([promise({"vision": 8})]).items():
        if not name.startswith("qos/"):  # which all clusters share, and are there
            lion.write(Step(name, None, value, Cause.MISSING))
    assert run("sacctmgr", "-nP", "show", "assoc", "Cluster=tiger") == before
    rows = run(
        "sacctmgr", "-nP", "show", "assoc", "Cluster=lion", "Account=plimsoll_vision", "format=GrpTRES,ParentName"
    )
    assert rows.split() == ["gres/gpu=8|plimsoll"]
    with pytest.raises(Refused) as caught:
        lion.read()
    assert "this is the Slurm of cluster 'tiger' and not of 'lion'" in str(caught.value)
    assert [finding.code for finding in moving.outlet.findings()] == ["preempts_guarantees", "partition_open"]
    run("sacctmgr", "-i", "delete", "qos", "urgent")


def test_a_slurm_without_accounting_is_refused_with_all_that_is_missing() -> None:
    with private_slurm(node_count=1) as cluster:
        outlet = SlurmOutlet(SlurmAccounts(config=str(cluster.config)), Target("tiger"))
        with pytest.raises(Refused) as caught:
            outlet.read()
    assert caught.value.code == "slurm_half_configured"
    assert "6 things keep Slurm cluster tiger from keeping a promise, and nothing was changed" in str(caught.value)
    assert "AccountingStorageType is accounting_storage/none" in str(caught.value)
    assert "PreemptType=preempt/qos in slurm.conf" in caught.value.next_step


def test_several_skus_have_their_own_limits_and_the_rendered_script_sets_them() -> None:
    promises = [promise({"vision": 8}, healthy=16), promise({"vision": 8}, healthy=16, sku="H200")]
    with accounted_slurm(
        config_lines=config_lines(["h100", "h200"]), node_count=4, gpu_types=("h100", "h200")
    ) as cluster:
        teams = Teams(cluster, ["vision"])
        script = cluster.folder / "render.sh"
        script.write_text(render(promises, Target("tiger")))
        cluster.run("sh", str(script))
        teams.add_users()
        assert teams.steps(*promises) == []
        for kind, nodes in (("h100", "n001,n003"), ("h200", "n002,n004")):
            words = [f"PartitionName={kind}", f"Nodes={nodes}", *partition_words(kind)]
            cluster.run("scontrol", "create", *(word.replace('"', "") for word in words))
        inside = [*submit_options("vision"), "--partition=h200"]
        first, second = (int(teams.try_submit("vision", 0, *inside, "--gres=gpu:h200:8")) for _ in range(2))
        untyped = int(teams.try_submit("vision", 0, *inside, "--gres=gpu:8"))
        teams.wait_running(first)
        teams.wait_reason(second, "AssocGrpGRES")
        teams.wait_reason(untyped, "QOSMinGRES")
        assert [finding.code for finding in teams.outlet.findings()] == ["partition_open", "partition_untyped"]


@pytest.mark.soak
def test_flex_may_go_on_for_its_grace_time(moving: Teams) -> None:
    """Slurm looks only every half a minute whether it is over."""
    moving.outlet = moving.new_outlet(Target("tiger", flex_grace_seconds=3))
    (step,) = moving.push(PROMISE)
    assert (step.name, step.wanted) == (
        "qos/beyond plimsoll_flex",
        "Priority=200000 PreemptMode=requeue GraceTime=3",
    )
    flex = moving.submit_flex("vision", 256)
    moving.wait_running(flex)
    began = time.monotonic()
    inside = moving.submit("audio", 24)
    moving.wait_running(inside)
    assert time.monotonic() - began > 2.5
    assert moving.jobs()[flex].restarts == 1
    moving.outlet = moving.new_outlet()


def test_without_rights_nothing_is_changed_and_slurms_words_are_passed_on(teams: Teams) -> None:
    prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    outlet = SlurmOutlet(SlurmAccounts(config=str(teams.cluster.config), command_prefix=prefix), Target("tiger"))
    outlet.wanted([PROMISE])
    settings = outlet.read()
    for name in ("team/tiger/plimsoll_audio GrpTRES gres/gpu", "team/tiger/plimsoll_new GrpTRES gres/gpu"):
        with pytest.raises(Refused) as caught:
            outlet.write(Step(name, settings.get(name), "8", Cause.BEHIND))
        assert caught.value.code == "slurm_not_done"
        assert "ermission denied" in str(caught.value)
    assert outlet.read() == settings


def test_daemons_that_sleep_are_given_up(teams: Teams) -> None:
    outlet = SlurmOutlet(SlurmAccounts(config=str(teams.cluster.config), timeout_seconds=0.5), Target("tiger"))
    outlet.wanted([PROMISE])
    for daemon, command in (("slurmctld", "scontrol"), ("slurmdbd", "sacctmgr")):
        with teams.cluster.asleep(daemon), pytest.raises(Unavailable) as caught:
            outlet.read()
        assert f"{command} with" in str(caught.value)
        assert "did not end within 0.5 s and was killed" in str(caught.value)
    assert outlet.read() == teams.outlet.read()


@pytest.mark.soak
def test_who_has_least_flex_for_its_guarantee_goes_first_and_who_has_most_loses_first(teams: Teams) -> None:
    """By fair share, which Slurm counts once a minute."""
    audio = [teams.submit_flex("audio", 8) for _ in range(16)]  # 128 for a guarantee of 24
    speech = [teams.submit_flex("speech", 8) for _ in range(16)]  # 128 for a guarantee of 96
    teams.wait_running(*audio, *speech)
    waiting = [teams.submit_flex("audio", 8), teams.submit_flex("speech", 8)]
    said = ["squeue", "--noheader", "--format=%Q", f"--jobs={waiting[0]},{waiting[1]}", "--sort=i"]

    def is_weighed() -> bool:
        first, second = map(int, teams.cluster.run(*said).split())
        return first < second

    wait_until(is_weighed, what="fair share is counted", seconds_max=150)
    teams.cancel(speech[0])
    teams.wait_running(waiting[1])
    assert not teams.jobs()[waiting[0]].is_running
    inside = teams.submit("vision", 32)
    teams.wait_running(inside)
    jobs = teams.jobs()
    assert sum(jobs[number].restarts for number in audio) == 4
    assert sum(jobs[number].restarts for number in speech[1:]) == 0
