"""What Slurm is told, worked out by hand. The real Slurm is in tests/real/test_quota_slurm.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.connect.slurm_limits import SlurmAssociation, SlurmCount, SlurmPartition, SlurmQos
from plimsoll.errors import Refused
from plimsoll.fleet.model import PoolKey
from plimsoll.quota.model import PoolPromise, Tier
from plimsoll.quota.outlets.model import Cause, Limit, Step
from plimsoll.quota.outlets.slurm import Target, change_of, found, limit, wanted
from plimsoll.quota.outlets.slurm_check import (
    Finding,
    check_access,
    check_clusters,
    check_config,
    check_counts,
    check_order,
    check_partitions,
)
from plimsoll.quota.outlets.slurm_names import (
    flex_account,
    guaranteed_account,
    is_flex,
    slurm_cluster,
    submit_options,
    team_of,
)
from plimsoll.quota.outlets.slurm_render import config_lines, render

TIGER = Target("tiger")
TIERS = "plimsoll_critical,plimsoll_high,plimsoll_low,plimsoll_mid"
INSIDE = f"Parent=plimsoll QOS={TIERS} DefaultQOS=plimsoll_mid"
BEYOND = "Parent=plimsoll.flex QOS=plimsoll_flex DefaultQOS=plimsoll_flex"

BASE = {
    "parent/tiger/plimsoll": "Parent=root",
    "parent/tiger/plimsoll.flex": "Parent=root",
    "qos/beyond plimsoll_flex": "Priority=200000 PreemptMode=requeue",
    "qos/inside plimsoll_critical": "Priority=1000000 Preempt=plimsoll_flex MinTRES=gres/gpu=1",
    "qos/inside plimsoll_high": "Priority=800000 Preempt=plimsoll_flex MinTRES=gres/gpu=1",
    "qos/inside plimsoll_low": "Priority=400000 Preempt=plimsoll_flex MinTRES=gres/gpu=1",
    "qos/inside plimsoll_mid": "Priority=600000 Preempt=plimsoll_flex MinTRES=gres/gpu=1",
}


def promise(guaranteed: Mapping[str, int], *, sku: str = "H100", cluster: str = "tiger") -> PoolPromise:
    return PoolPromise(PoolKey(cluster, sku), 8, 256, 248, guaranteed)


class Wanted(NamedTuple):
    promises: list[PoolPromise]
    want: dict[str, str]
    target: Target = TIGER


WANTED = {
    "nothing is promised: only what all teams share": Wanted([promise({})], {}),
    "a team has two accounts, and its guarantee is the limit of the first and the weight of the second": Wanted(
        [promise({"vision": 128})],
        {
            "team/tiger/plimsoll_vision GrpTRES gres/gpu": "128",
            "team/tiger/plimsoll_vision access": INSIDE,
            "team/tiger/plimsoll_vision.flex Fairshare": "128",
            "team/tiger/plimsoll_vision.flex access": BEYOND,
        },
    ),
    "a guarantee of nothing is a limit of nothing, and flex after everybody else": Wanted(
        [promise({"vision": 0})],
        {
            "team/tiger/plimsoll_vision GrpTRES gres/gpu": "0",
            "team/tiger/plimsoll_vision access": INSIDE,
            "team/tiger/plimsoll_vision.flex Fairshare": "0",
            "team/tiger/plimsoll_vision.flex access": BEYOND,
        },
    ),
    "two SKUs are told apart by type, also for a team that has none of one": Wanted(
        [promise({"vision": 128}), promise({"vision": 16, "speech": 8}, sku="H200")],
        {
            "qos/only plimsoll_only_h100": "MinTRES=gres/gpu:h100=1",
            "qos/only plimsoll_only_hopper_141": "MinTRES=gres/gpu:hopper_141=1",
            "team/tiger/plimsoll_speech GrpTRES gres/gpu": "8",
            "team/tiger/plimsoll_speech GrpTRES gres/gpu:h100": "0",
            "team/tiger/plimsoll_speech GrpTRES gres/gpu:hopper_141": "8",
            "team/tiger/plimsoll_speech access": INSIDE,
            "team/tiger/plimsoll_speech.flex Fairshare": "8",
            "team/tiger/plimsoll_speech.flex access": BEYOND,
            "team/tiger/plimsoll_vision GrpTRES gres/gpu": "144",
            "team/tiger/plimsoll_vision GrpTRES gres/gpu:h100": "128",
            "team/tiger/plimsoll_vision GrpTRES gres/gpu:hopper_141": "16",
            "team/tiger/plimsoll_vision access": INSIDE,
            "team/tiger/plimsoll_vision.flex Fairshare": "144",
            "team/tiger/plimsoll_vision.flex access": BEYOND,
        },
        Target("tiger", gpu_type_by_sku={"H200": "hopper_141"}),
    ),
    "a grace time is the flex QOS's": Wanted(
        [promise({})],
        {"qos/beyond plimsoll_flex": "Priority=200000 PreemptMode=requeue GraceTime=90"},
        Target("tiger", flex_grace_seconds=90),
    ),
}


@pytest.mark.parametrize("case", WANTED.values(), ids=WANTED.keys())
def test_what_is_wanted(case: Wanted) -> None:
    assert wanted(case.promises, case.target) == {**BASE, **case.want}


def test_names_sort_as_they_have_to_be_set() -> None:
    names = sorted(wanted([promise({"vision": 8}), promise({"vision": 8}, sku="H200")], TIGER))
    place = {name: index for index, name in enumerate(names)}
    assert place["qos/beyond plimsoll_flex"] < place["qos/inside plimsoll_critical"], "a QOS before those that name it"
    assert max(place[name] for name in names if name.startswith("qos/")) < place["team/tiger/plimsoll_vision access"]
    limits = [place[name] for name in names if "GrpTRES" in name]
    assert max(limits) < place["team/tiger/plimsoll_vision access"], "an account is opened after its limits are set"


NAMES = {
    "plain": ("vision", "plimsoll_vision"),
    "all that Slurm takes": ("post-training_2", "plimsoll_post-training_2"),
    "capitals would be lost": ("Vision", "plimsoll_.56ision"),
    "spaces and dots": ("a b.c", "plimsoll_a.20b.2ec"),
    "other scripts": ("é", "plimsoll_.c3.a9"),
    "what looks like a flex account": ("vision.flex", "plimsoll_vision.2eflex"),
    "what would be a second word or a list": ("a=1,b", "plimsoll_a.3d1.2cb"),
}


@pytest.mark.parametrize(("team", "want"), NAMES.values(), ids=NAMES.keys())
def test_a_team_is_named_so_that_slurm_takes_it(team: str, want: str) -> None:
    assert guaranteed_account(team) == want
    assert flex_account(team) == f"{want}.flex"


@given(st.text(min_size=1, max_size=30).filter(lambda text: text.isprintable()))
def test_a_team_is_read_back_from_both_its_accounts(team: str) -> None:
    for account in (guaranteed_account(team), flex_account(team)):
        assert team_of(account) == team
        assert account == account.lower()
        assert not set(account) & set(" ,=|'\"\\/:+")
    assert not is_flex(guaranteed_account(team))


@given(st.lists(st.text("aA_.fF-l e2x", min_size=1, max_size=8), min_size=2, max_size=2, unique=True))
def test_two_teams_never_share_an_account(teams: list[str]) -> None:
    first, second = teams
    accounts = {guaranteed_account(first), flex_account(first), guaranteed_account(second), flex_account(second)}
    assert len(accounts) == 4


@pytest.mark.parametrize(
    "account", ["plimsoll", "plimsoll.flex", "physics", "plimsoll_.5", "plimsoll_A", "plimsoll_.ff"]
)
def test_what_is_not_a_teams_account_is_nobodys(account: str) -> None:
    assert team_of(account) is None


def test_what_slurm_can_not_take_is_refused_clearly() -> None:
    with pytest.raises(Refused) as caught:
        guaranteed_account("x" * 201)
    assert "needs an account name of 201 characters, not 1 to 200" in str(caught.value)
    with pytest.raises(Refused) as caught:
        slurm_cluster("a cluster")
    assert caught.value.code == "slurm_bad_cluster"
    with pytest.raises(Refused) as caught:
        wanted([promise({}), promise({}, sku="H 200")], TIGER)
    assert caught.value.code == "slurm_bad_gpu_type"
    with pytest.raises(Refused) as caught:
        wanted([promise({}), promise({}, sku="h100")], TIGER)
    assert "the 2 SKUs H100, h100 of one cluster have only 1 types in Slurm" in str(caught.value)
    with pytest.raises(Refused):
        wanted([promise({})], Target("two words"))
    assert Target("Tiger").cluster == "tiger"


def test_a_job_says_tier_and_rank_so() -> None:
    want = ("--account=plimsoll_vision", "--qos=plimsoll_critical", "--nice=2000")
    assert submit_options("vision", tier=Tier.CRITICAL, rank=3) == want
    want_flex = ("--account=plimsoll_vision.flex", "--qos=plimsoll_flex", "--requeue", "--nice=0")
    assert submit_options("vision", as_flex=True) == want_flex
    with pytest.raises(Refused):
        submit_options("vision", rank=0)


def account(name: str, **fields: object) -> SlurmAssociation:
    beyond = is_flex(name)
    defaults = {
        "parent": "plimsoll.flex" if beyond else "plimsoll",
        "fairshare": "8",
        "grp_tres": {} if beyond else {"gres/gpu": "128"},
        "qos": ("plimsoll_flex",) if beyond else tuple(TIERS.split(",")),
        "default_qos": "plimsoll_flex" if beyond else "plimsoll_mid",
    }
    return SlurmAssociation(name, **{**defaults, **fields})  # type: ignore[arg-type]


class Found(NamedTuple):
    rows: list[SlurmAssociation]
    want: dict[str, str]


LIMIT = "team/tiger/plimsoll_vision GrpTRES gres/gpu"
ACCESS = "team/tiger/plimsoll_vision access"
FOUND = {
    "an account as we made it": Found([account("plimsoll_vision")], {LIMIT: "128", ACCESS: INSIDE}),
    "a limit that was taken away": Found(
        [account("plimsoll_vision", grp_tres={})], {LIMIT: "unlimited", ACCESS: INSIDE}
    ),
    "other limits are the site's": Found(
        [account("plimsoll_vision", grp_tres={"cpu": "4", "gres/gpu": "8"})], {LIMIT: "8", ACCESS: INSIDE}
    ),
    "a limit on jobs or on a job's GPUs is seen": Found(
        [account("plimsoll_vision", grp_jobs=3, max_tres={"gres/gpu": "2", "cpu": "1"})],
        {LIMIT: "128", ACCESS: f"{INSIDE} GrpJobs=3 MaxTRES=gres/gpu=2"},
    ),
    "a limit by type": Found(
        [account("plimsoll_vision", grp_tres={"gres/gpu": "16", "gres/gpu:h100": "8"})],
        {LIMIT: "16", f"{LIMIT}:h100": "8", ACCESS: INSIDE},
    ),
    "a user with a QOS that the account has not": Found(
        [
            account("plimsoll_vision"),
            account("plimsoll_vision", user="intern", qos=("plimsoll_low",)),  # less is the site's to give
            account("plimsoll_vision", user="mallory", qos=("normal",)),
        ],
        {LIMIT: "128", ACCESS: f"{INSIDE} user:mallory=normal"},
    ),
    "users with what the account has are not our matter": Found(
        [account("plimsoll_vision"), account("plimsoll_vision", user="alice", grp_jobs=1)],
        {LIMIT: "128", ACCESS: INSIDE},
    ),
    "a closed account counts as not there": Found([account("plimsoll_vision", grp_jobs=0, grp_submit=0)], {}),
    "flex has a weight and no limit": Found(
        [account("plimsoll_vision.flex")],
        {"team/tiger/plimsoll_vision.flex Fairshare": "8", "team/tiger/plimsoll_vision.flex access": BEYOND},
    ),
    "the account above the teams must not be limited either": Found(
        [account("plimsoll", parent="root", grp_tres={"gres/gpu": "4"})],
        {"parent/tiger/plimsoll": "Parent=root GrpTRES=gres/gpu=4"},
    ),
    "foreign accounts are not read": Found([account("physics"), account("plimsoll_.zz"), account("root")], {}),
}


@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND.keys())
def test_what_is_found(case: Found) -> None:
    assert found([], case.rows, "tiger") == case.want


def test_qos_are_read_as_what_differs_from_a_new_one() -> None:
    rows = [
        SlurmQos("normal", priority=5),
        SlurmQos("plimsoll_mine"),
        SlurmQos("plimsoll_only_h100"),
        SlurmQos("plimsoll_flex", preempt=("x",), preempt_mode="cancel", grace_seconds=5, grp_tres={"gres/gpu": "4"}),
    ]
    text = "Preempt=x PreemptMode=cancel GraceTime=5 GrpTRES=gres/gpu=4"
    assert found(rows, [], "tiger") == {"qos/beyond plimsoll_flex": text}


class Changed(NamedTuple):
    name: str
    found: str | None
    wanted: str | None
    want: str


CHANGES = {
    "a limit": Changed(LIMIT, "8", "128", "GrpTRES=gres/gpu=128"),
    "a weight": Changed("team/tiger/plimsoll_vision.flex Fairshare", "1", "0", "Fairshare=0"),
    "an account that lost its promise is closed": Changed(
        LIMIT, "8", None, "GrpJobs=0 GrpSubmitJobs=0 GrpTRES=gres/gpu=0"
    ),
    "a type that is not told apart any more": Changed(f"{LIMIT}:h100", "8", None, "GrpTRES=gres/gpu:h100=-1"),
    "who may do what, and what stood in the way": Changed(
        ACCESS,
        f"{INSIDE} GrpJobs=3 MaxTRES=gres/gpu=2,gres/gpu:h100=1",
        INSIDE,
        f"QOS={TIERS} DefaultQOS=plimsoll_mid GrpJobs=-1 GrpSubmitJobs=-1 MaxTRES=gres/gpu=-1,gres/gpu:h100=-1",
    ),
    "flex has no limit": Changed(
        "team/tiger/plimsoll_vision.flex access",
        None,
        BEYOND,
        "QOS=plimsoll_flex DefaultQOS=plimsoll_flex GrpJobs=-1 GrpSubmitJobs=-1 GrpTRES=gres/gpu=-1",
    ),
    "a QOS, with what somebody added": Changed(
        "qos/beyond plimsoll_flex",
        "Priority=5 Preempt=x,y MinTRES=cpu=1 GrpTRES=gres/gpu=4",
        "Priority=200000 PreemptMode=requeue",
        "Priority=200000 PreemptMode=requeue GraceTime=0 MinTRESPerJob=cpu=-1 GrpTRES=gres/gpu=-1 Preempt-=x,y",
    ),
}


@pytest.mark.parametrize("case", CHANGES.values(), ids=CHANGES.keys())
def test_how_a_setting_is_changed(case: Changed) -> None:
    change = change_of(Step(case.name, case.found, case.wanted, Cause.BEHIND))
    assert " ".join(change.change) == case.want


def test_a_new_account_is_closed_until_all_of_it_is_set() -> None:
    for name in sorted(wanted([promise({"vision": 8})], TIGER)):
        if name.startswith("team/"):
            change = change_of(Step(name, None, "8", Cause.MISSING))
            assert change.create[-3:] == ("GrpJobs=0", "GrpSubmitJobs=0", "GrpTRES=gres/gpu=0")


def test_a_setting_that_is_a_guarantee_can_be_adopted() -> None:
    one, two = promise({"vision": 128}), promise({"vision": 16}, sku="H200")
    assert limit(LIMIT, "200", [one], TIGER) == Limit(sku="H100", team="vision", gpus=200)
    assert limit(LIMIT, "unlimited", [one], TIGER) is None
    assert limit(LIMIT, "200", [one, two], TIGER) is None, "a total over two SKUs says nothing of either"
    assert limit(f"{LIMIT}:h200", "24", [one, two], TIGER) == Limit(sku="H200", team="vision", gpus=24)
    assert limit("team/tiger/plimsoll_vision.flex Fairshare", "8", [one], TIGER) is None
    assert limit("qos/beyond plimsoll_flex", "8", [one], TIGER) is None


def test_the_script_is_one_line_an_object_and_the_same_every_time() -> None:
    promises = [promise({"vision": 128, "Vision 2": 0})]
    text = render(promises, TIGER)
    assert text == render([promise({"Vision 2": 0, "vision": 128})], TIGER)
    lines = text.splitlines()
    open_words = "GrpJobs=-1 GrpSubmitJobs=-1"
    assert lines[lines.index("# vision") : lines.index("# vision") + 3] == [
        "# vision",
        f"account plimsoll_vision plimsoll GrpTRES=gres/gpu=128 QOS={TIERS} DefaultQOS=plimsoll_mid {open_words}",
        "account plimsoll_vision.flex plimsoll.flex Fairshare=128 QOS=plimsoll_flex DefaultQOS=plimsoll_flex "
        f"{open_words} GrpTRES=gres/gpu=-1",
    ]
    assert "# Vision 2" in lines
    assert lines.index("qos plimsoll_flex Priority=200000 PreemptMode=requeue GraceTime=0") < lines.index(
        "qos plimsoll_critical Priority=1000000 Preempt=plimsoll_flex PreemptMode=cluster GraceTime=0 "
        "MinTRESPerJob=gres/gpu=1"
    )
    assert "#   AccountingStorageTRES=gres/gpu" in lines


def test_a_script_for_two_types_counts_both() -> None:
    text = render([promise({"vision": 128}), promise({"vision": 16}, sku="H200")], TIGER)
    assert "#   AccountingStorageTRES=gres/gpu,gres/gpu:h100,gres/gpu:h200" in text
    assert "account plimsoll_vision plimsoll GrpTRES=gres/gpu=144,gres/gpu:h100=128,gres/gpu:h200=16 QOS=" in text
    assert text.count("QOS=plimsoll_only_") == 2


GOOD = {"ClusterName": "tiger", **dict(line.split("=", 1) for line in config_lines())}
GOOD["PriorityWeightFairShare"] = GOOD.pop("PriorityWeightFairshare")  # as scontrol spells it
CONFIGS = {
    "another cluster": ({"ClusterName": "lion"}, "this is the Slurm of cluster 'lion' and not of 'tiger'"),
    "no slurmdbd": ({"AccountingStorageType": ""}, "AccountingStorageType is not set"),
    "limits are not enforced": (
        {"AccountingStorageEnforce": "associations,qos"},
        "AccountingStorageEnforce is associations,qos and misses limits",
    ),
    "GPUs are not counted": (
        {"AccountingStorageTRES": "cpu,mem"},
        "AccountingStorageTRES is cpu,mem and misses gres/gpu",
    ),
    "no preemption": ({"PreemptType": "preempt/none"}, "PreemptType is preempt/none"),
    "preempted work is not requeued": ({"PreemptMode": "GANG,SUSPEND"}, "PreemptMode is GANG,SUSPEND"),
    "jobs are not requeued by default": ({"JobRequeue": "0"}, "JobRequeue is 0"),
    "no priorities": ({"PriorityType": "priority/basic"}, "PriorityType is priority/basic"),
    "a team at its limit would stop the others": (
        {"SchedulerParameters": "bf_interval=1,assoc_limit_stop"},
        "SchedulerParameters has assoc_limit_stop: a team at its limit would stop all others",
    ),
}


@pytest.mark.parametrize(("change", "want"), CONFIGS.values(), ids=CONFIGS.keys())
def test_what_stands_in_the_way_is_named(change: dict[str, str], want: str) -> None:
    assert check_config(GOOD, TIGER, []) == []
    (finding,) = check_config({**GOOD, **change}, TIGER, [])
    assert (finding.what, finding.is_blocking) == (want, True)
    assert finding.next_step


def test_types_that_are_told_apart_have_to_be_counted() -> None:
    (finding,) = check_config(GOOD, TIGER, ["h100", "h200"])
    assert "misses gres/gpu:h100,gres/gpu:h200" in finding.what


def test_a_cluster_has_to_be_known_and_connected() -> None:
    assert check_clusters({"tiger": "10.0.0.1"}, TIGER) == []
    assert [finding.code for finding in check_clusters({"tiger": ""}, TIGER)] == ["not_connected"]
    (finding,) = check_clusters({"lion": "10.0.0.1"}, TIGER)
    assert finding.what == "slurmdbd does not know a cluster tiger; it knows 1: lion"


def order(*qos: SlurmQos, **config: str) -> list[Finding]:
    return check_order({**GOOD, **config}, qos)


def test_what_bends_the_order_is_told_and_does_not_block() -> None:
    assert order() == []
    (age,) = order(PriorityWeightAge="1000", PriorityWeightTRES="CPU=100,Mem=50")
    assert age.what.startswith("all weights but that of the QOS come to 2,050, and a rank to 1,000")
    (top,) = order(SlurmQos("urgent", priority=4_000_000_000))
    assert top.what == "two tiers are 50,000 apart, and 100 ranks need 100,000"
    (thief,) = order(SlurmQos("urgent", preempt=("plimsoll_low", "x")))
    assert thief.code == "preempts_guarantees"
    (exempt,) = order(PreemptExemptTime="01:00:00")
    assert exempt.code == "flex_exempt"
    (hasty,) = order(CompleteWait="0 sec")
    assert hasty.code == "complete_wait"
    assert not any(finding.is_blocking for finding in (age, top, thief, exempt, hasty))


def test_limits_that_the_controller_has_not_heard_of_are_told() -> None:
    user = account("plimsoll_vision", user="alice", grp_tres={"gres/gpu": "1"})
    rows = [account("plimsoll_vision"), user, account("x")]
    heard = SlurmCount({"gres/gpu": "128", "cpu": "4"}, {"gres/gpu": 128})
    assert check_counts(rows, {"plimsoll_vision": heard}) == []
    (finding,) = check_counts(rows, {"plimsoll_vision": SlurmCount({"gres/gpu": "64"})})
    assert finding.what == (
        "the controller has not heard of 1 limits that slurmdbd has: "
        "plimsoll_vision has gres/gpu=128 and the controller enforces gres/gpu=64"
    )
    (finding,) = check_counts(rows, {})
    assert "the controller enforces no limit" in finding.what


def test_what_runs_above_a_guarantee_that_fell_is_told() -> None:
    counts = {
        "plimsoll_vision": SlurmCount({"gres/gpu": "128"}, {"gres/gpu": 136}),
        "plimsoll_vision.flex": SlurmCount({}, {"gres/gpu": 64}),
    }
    (finding,) = check_counts([account("plimsoll_vision"), account("plimsoll_vision.flex")], counts)
    assert (finding.code, finding.is_blocking) == ("above_guarantee", False)
    assert finding.what.endswith("plimsoll_vision 136 of 128")


def test_a_tier_that_can_be_used_without_a_limit_is_told() -> None:
    tiers = tuple(TIERS.split(","))
    good = [
        account("plimsoll_vision"),
        account("plimsoll_vision", user="alice"),
        account("project-x", parent="plimsoll_vision", qos=tiers),
        account("plimsoll_vision.flex"),
        account("plimsoll_vision.flex", user="mallory", qos=("plimsoll_critical",)),  # seen as drift
        account("physics", parent="root", qos=("normal",)),
    ]
    assert check_access(good) == []
    bad = [
        account("sweeps", parent="plimsoll_vision.flex", qos=("plimsoll_flex", "plimsoll_high")),
        account("physics", user="bob", qos=("normal", "plimsoll_critical")),
    ]
    (finding,) = check_access([*good, *bad])
    assert finding.what == (
        "2 accounts or users outside all guarantees may use our tiers without a limit: sweeps, physics (bob)"
    )


def test_partitions_that_let_in_uncounted_work_are_told() -> None:
    closed = SlurmPartition("gpu", qos="plimsoll_only_h100", allow_qos=("plimsoll_flex",))
    assert check_partitions([closed], ["h100", "h200"]) == []
    found_codes = [finding.code for finding in check_partitions([SlurmPartition("all")], ["h100", "h200"])]
    assert found_codes == ["partition_open", "partition_untyped"]
    assert [finding.code for finding in check_partitions([SlurmPartition("all")], [])] == ["partition_open"]
