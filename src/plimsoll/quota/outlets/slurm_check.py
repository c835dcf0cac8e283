"""Whether a Slurm can keep a promise at all: what stands in the way, and what makes it less exact. Pure.

What stands in the way is refused before anything is changed. The rest is told, since limits are still worth having.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from plimsoll.connect.slurm_limits import SlurmAssociation, SlurmCount, SlurmPartition, SlurmQos
from plimsoll.quota.outlets.slurm import FLEX_PRIORITY, GPUS, TIER_PRIORITY, Target
from plimsoll.quota.outlets.slurm_names import PREFIX, RANK_STEP, TIER_QOS, is_flex, only_qos, team_of
from plimsoll.quota.outlets.slurm_render import COMPLETE_WAIT_SECONDS, FAIRSHARE_WEIGHT, QOS_WEIGHT, config_lines

ENFORCED = {"associations", "limits", "qos"}
RANKS_APART_MIN = 100
"""So many ranks have to fit between two tiers."""
DEPTH_MAX = 100
"""Of accounts below accounts."""

_WEIGHTS = ("Age", "Assoc", "FairShare", "JobSize", "Partition")


class Finding(msgspec.Struct, frozen=True):
    """Something about a Slurm that breaks a promise (`is_blocking`) or bends it, and who can put it right how."""

    code: str
    what: str
    next_step: str
    is_blocking: bool = True


def check_config(config: Mapping[str, str], target: Target, gpu_types: Sequence[str]) -> list[Finding]:
    """What has to be right before slurmdbd is asked at all: lasting things first."""
    found = []
    if config.get("ClusterName") != target.cluster:
        found.append(
            Finding(
                "other_cluster",
                f"this is the Slurm of cluster {config.get('ClusterName')!r} and not of {target.cluster!r}",
                "name the slurm.conf of the cluster",
            )
        )
    lines = dict(line.split("=", 1) for line in config_lines(gpu_types))
    exact = ("AccountingStorageType", "PreemptType", "PriorityType", "JobRequeue")
    found += [_wrong(key, config, lines[key]) for key in exact if config.get(key) != lines[key]]
    enforced = set(config.get("AccountingStorageEnforce", "").split(","))
    if not enforced >= ENFORCED:
        missing = ",".join(sorted(ENFORCED - enforced))
        found.append(_wrong("AccountingStorageEnforce", config, lines["AccountingStorageEnforce"], f"misses {missing}"))
    counted = set(config.get("AccountingStorageTRES", "").lower().split(","))
    needed = [GPUS, *(f"{GPUS}:{name}" for name in gpu_types)]
    if missing := ",".join(name for name in needed if name not in counted):
        found.append(_wrong("AccountingStorageTRES", config, lines["AccountingStorageTRES"], f"misses {missing}"))
    if "REQUEUE" not in config.get("PreemptMode", "").upper().split(","):
        found.append(_wrong("PreemptMode", config, lines["PreemptMode"]))
    if "assoc_limit_stop" in config.get("SchedulerParameters", ""):
        found.append(
            Finding(
                "slurm_conf",
                "SchedulerParameters has assoc_limit_stop: a team at its limit would stop all others",
                "take assoc_limit_stop out of slurm.conf and run scontrol reconfigure",
            )
        )
    return found


def check_clusters(clusters: Mapping[str, str], target: Target) -> list[Finding]:
    """Whether slurmdbd knows the cluster and its controller is connected."""
    if target.cluster not in clusters:
        known = ", ".join(sorted(clusters)[:5]) or "none"
        return [
            Finding(
                "not_registered",
                f"slurmdbd does not know a cluster {target.cluster}; it knows {len(clusters)}: {known}",
                f"sacctmgr -i add cluster {target.cluster}, and restart slurmctld",
            )
        ]
    if not clusters[target.cluster]:
        return [
            Finding(
                "not_connected",
                f"slurmdbd knows cluster {target.cluster}, and 0 controllers of it are connected",
                "look whether slurmctld runs and reaches slurmdbd: sacctmgr show cluster",
            )
        ]
    return []


def check_order(config: Mapping[str, str], all_qos: Sequence[SlurmQos]) -> list[Finding]:
    """Whether tier, then rank, decide which of a team's jobs goes first, and nobody may preempt a guarantee."""
    found = []
    others = sum(_weight(config.get(f"PriorityWeight{name}", "")) for name in _WEIGHTS)
    others += sum(int(number) for number in re.findall(r"=(\d+)", config.get("PriorityWeightTRES", "")))
    if others >= RANK_STEP:
        found.append(
            Finding(
                "weights",
                f"all weights but that of the QOS come to {others:,}, and a rank to {RANK_STEP:,}: ranks may not hold",
                f"PriorityWeightFairshare={FAIRSHARE_WEIGHT} and all others 0",
                is_blocking=False,
            )
        )
    top = max([TIER_PRIORITY_MAX, *(qos.priority for qos in all_qos)])
    apart = _weight(config.get("PriorityWeightQOS", "")) * FLEX_PRIORITY // top
    if apart < RANKS_APART_MIN * RANK_STEP:
        found.append(
            Finding(
                "weights",
                f"two tiers are {apart:,} apart, and {RANKS_APART_MIN} ranks need {RANKS_APART_MIN * RANK_STEP:,}",
                f"PriorityWeightQOS={QOS_WEIGHT}, and no QOS with a Priority above {TIER_PRIORITY_MAX:,}",
                is_blocking=False,
            )
        )
    exempt = config.get("PreemptExemptTime", "")
    if exempt not in ("", "00:00:00", "NONE"):
        found.append(
            Finding(
                "flex_exempt",
                f"PreemptExemptTime is {exempt}: flex is called back only after it has run for so long",
                "PreemptExemptTime=00:00:00 in slurm.conf, and run scontrol reconfigure",
                is_blocking=False,
            )
        )
    if config.get("CompleteWait", "").removesuffix(" sec") in ("", "0"):
        found.append(
            Finding(
                "complete_wait",
                "CompleteWait is 0: where work has just ended, a lower tier may slip in before a higher one",
                f"CompleteWait={COMPLETE_WAIT_SECONDS} (KillWait and 2) in slurm.conf, and run scontrol reconfigure",
                is_blocking=False,
            )
        )
    for qos in all_qos:
        if taken := sorted(set(qos.preempt) & set(TIER_QOS)):
            if qos.name.startswith(f"{PREFIX}_"):
                continue  # drift of our own, which a push puts back
            found.append(
                Finding(
                    "preempts_guarantees",
                    f"QOS {qos.name} is not ours and may preempt {len(taken)} of our tiers: {', '.join(taken)}",
                    f"sacctmgr modify qos {qos.name} set Preempt-={','.join(taken)}",
                    is_blocking=False,
                )
            )
    return found


def check_counts(associations: Sequence[SlurmAssociation], counts: Mapping[str, SlurmCount]) -> list[Finding]:
    """Whether the controller enforces the limits that slurmdbd has, and what runs above them since they fell."""
    deaf, above = [], []
    for row in associations:
        if row.user or team_of(row.account) is None:
            continue
        count = counts.get(row.account, SlurmCount())
        want, have = _gpus(row.grp_tres), _gpus(count.limits)
        if want != have:
            deaf.append(f"{row.account} has {_text(want)} and the controller enforces {_text(have)}")
        used, limit = count.used.get(GPUS, 0), want.get(GPUS, "")
        if limit.isdecimal() and used > int(limit) and not is_flex(row.account):
            above.append(f"{row.account} {used} of {limit}")
    found = []
    if deaf:
        found.append(
            Finding(
                "not_heard",
                f"the controller has not heard of {len(deaf)} limits that slurmdbd has: {deaf[0]}",
                "look whether slurmdbd reaches slurmctld (sacctmgr show cluster), and restart slurmctld",
                is_blocking=False,
            )
        )
    if above:
        found.append(
            Finding(
                "above_guarantee",
                f"{len(above)} teams run more GPUs than they are guaranteed now, and Slurm can't call them back: "
                f"{_some(above)}",
                "let the work end, or after notice scontrol requeue JOB",
                is_blocking=False,
            )
        )
    return found


def check_access(associations: Sequence[SlurmAssociation]) -> list[Finding]:
    """Whether somebody may use a tier without the limit of a guarantee: only accounts below one have it."""
    parents = {row.account: row.parent for row in associations if not row.user}
    free = []
    for row in associations:
        tiers = sorted(set(row.qos) & set(TIER_QOS))
        is_drift = row.user and team_of(row.account) is not None  # of our own account, which a push shows
        if tiers and not is_drift and not _is_limited(row.account, parents):
            free.append(f"{row.account}{f' ({row.user})' if row.user else ''}")
    if not free:
        return []
    return [
        Finding(
            "tier_without_limit",
            f"{len(free)} accounts or users outside all guarantees may use our tiers without a limit: {_some(free)}",
            "take the QOS from them: sacctmgr modify account NAME set QOS-=…",
            is_blocking=False,
        )
    ]


def _is_limited(account: str, parents: Mapping[str, str]) -> bool:
    for _ in range(DEPTH_MAX):
        if team_of(account) is not None:
            return not is_flex(account)
        if not parents.get(account):
            return False
        account = parents[account]
    return False


def check_partitions(partitions: Sequence[SlurmPartition], gpu_types: Sequence[str]) -> list[Finding]:
    """Whether work that Plimsoll does not count can take GPUs, and whether jobs have to name their type of GPU."""
    found = []
    open_to_all = [each.name for each in partitions if not each.allow_qos]
    if open_to_all:
        found.append(
            Finding(
                "partition_open",
                f"{len(open_to_all)} partitions let in work of any QOS, beside all guarantees: {_some(open_to_all)}",
                "where they have GPUs, set AllowQos as plimsoll quota render slurm shows it",
                is_blocking=False,
            )
        )
    named = {only_qos(name) for name in gpu_types}
    untyped = [each.name for each in partitions if gpu_types and each.qos not in named]
    if untyped:
        found.append(
            Finding(
                "partition_untyped",
                f"{len(untyped)} partitions take jobs that name no type of GPU, which no limit by type counts: "
                f"{_some(untyped)}",
                "give each type of GPU partitions of its own, with the QOS that plimsoll quota render slurm shows",
                is_blocking=False,
            )
        )
    return found


TIER_PRIORITY_MAX = max(TIER_PRIORITY.values())


def _wrong(key: str, config: Mapping[str, str], want: str, problem: str = "") -> Finding:
    value = config.get(key, "")
    return Finding(
        "slurm_conf",
        f"{key} is {value or 'not set'}" + (f" and {problem}" if problem else ""),
        f"{key}={want} in slurm.conf, and restart slurmctld",
    )


def _gpus(tres: Mapping[str, str]) -> dict[str, str]:
    return {name: tres[name] for name in sorted(tres) if name == GPUS or name.startswith(f"{GPUS}:")}


def _text(tres: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in tres.items()) or "no limit"


def _weight(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _some(names: Sequence[str]) -> str:
    more = len(names) - 5
    return ", ".join(names[:5]) + (f" and {more} more" if more > 0 else "")
