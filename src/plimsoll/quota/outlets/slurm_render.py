"""The text of `plimsoll quota render slurm`: a shell script of sacctmgr commands, and what slurm.conf needs. Pure.

The same promises give the same bytes, and one object stands on one line, so that a diff shows what moved.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from plimsoll.quota.model import PoolPromise
from plimsoll.quota.outlets.model import Cause, Step
from plimsoll.quota.outlets.slurm import (
    GPUS,
    PARENTS,
    Target,
    account_words,
    change_of,
    guarantees,
    qos_setting,
    wanted,
    wanted_qos,
)
from plimsoll.quota.outlets.slurm_names import (
    FLEX_QOS,
    RANK_STEP,
    TIER_QOS,
    flex_account,
    guaranteed_account,
    only_qos,
)

FAIRSHARE_WEIGHT = RANK_STEP - 100
QOS_WEIGHT = 1_000_000_000
COMPLETE_WAIT_SECONDS = 32
"""Slurm's KillWait and two. Without it, backfill plans a team's first job for nodes that are just becoming free, and
gives the team's limit to a lower one that can start at once elsewhere."""

_HEAD = """\
#!/bin/sh
# Slurm cluster {cluster} as Plimsoll wants it. Running this again changes nothing.
# It closes no account that lost its promise, and sees no drift: `plimsoll quota push slurm` does.
#
# slurm.conf needs:
{config}
#
# Every partition with GPUs needs:
{partitions}
set -eu
qos() {{
    name=$1; shift
    sacctmgr -i add qos "$name" "$@" || sacctmgr -i modify qos where Name="$name" set "$@"
}}
account() {{
    name=$1 parent=$2; shift 2
    sacctmgr -i add account "$name" Cluster={cluster} Parent="$parent" "$@" || {{
        sacctmgr -i modify account where Name="$name" Cluster={cluster} set Parent="$parent" || : it is there already
        sacctmgr -i modify account where Name="$name" Cluster={cluster} set "$@"
    }}
}}
"""


def config_lines(gpu_types: Sequence[str] = ()) -> list[str]:
    """What slurm.conf needs so that the settings hold."""
    counted = [GPUS, *(f"{GPUS}:{name}" for name in sorted(gpu_types))]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageEnforce=associations,limits,qos",
        f"AccountingStorageTRES={','.join(counted)}",
        "PreemptType=preempt/qos",
        "PreemptMode=REQUEUE",
        "JobRequeue=1",
        "PriorityType=priority/multifactor",
        f"PriorityWeightQOS={QOS_WEIGHT}",
        f"PriorityWeightFairshare={FAIRSHARE_WEIGHT}",
        "PriorityWeightAge=0",
        "PriorityFlags=CALCULATE_RUNNING",
        "PriorityDecayHalfLife=01:00:00",
        "PriorityCalcPeriod=00:01:00",
        f"CompleteWait={COMPLETE_WAIT_SECONDS}",
    ]


def partition_words(gpu_type: str = "") -> list[str]:
    """What the line of a partition with GPUs needs. Where a cluster has several types, each has partitions of its own:
    Slurm does not count a job that names no type against the limit of the type it gets."""
    words = [f"AllowQos={','.join([*TIER_QOS, FLEX_QOS])}", 'TRESBillingWeights="GRES/gpu=1"']
    return [*words, f"QOS={only_qos(gpu_type)}"] if gpu_type else words


def render(promises: Sequence[PoolPromise], target: Target) -> str:
    """Everything that `push` would set in a Slurm that has nothing yet."""
    settings = wanted(promises, target)
    types = sorted(set(target.gpu_types(promises).values()))
    lines = ["", "# QOS, shared by all clusters of this slurmdbd."]
    for name, text in wanted_qos(promises, target).items():
        change = change_of(Step(qos_setting(name), None, text, Cause.MISSING))
        lines.append(_line("qos", name, change.create))
    lines += ["", "# Above the teams."]
    for name in PARENTS:
        change = change_of(Step(f"parent/{target.cluster}/{name}", None, "Parent=root", Cause.MISSING))
        lines.append(_line("account", name, [change.parent, *change.change]))
    for guarantee in guarantees(promises, target):
        lines += ["", f"# {guarantee.team if guarantee.team.isprintable() else ascii(guarantee.team)}"]
        for name in (guaranteed_account(guarantee.team), flex_account(guarantee.team)):
            parent, *words = account_words(name, settings, target.cluster)
            lines.append(_line("account", name, [parent.partition("=")[2], *words]))
    head = _HEAD.format(
        cluster=target.cluster,
        config="\n".join(f"#   {line}" for line in config_lines(types)),
        partitions="\n".join(f"#   {' '.join(partition_words(name))}" for name in types or [""]),
    )
    return head + "\n".join(lines) + "\n"


def _line(function: str, name: str, words: Sequence[str]) -> str:
    return " ".join([function, shlex.quote(name), *(shlex.quote(word) for word in words)])
