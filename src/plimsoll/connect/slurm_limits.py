"""What `sacctmgr -nP show …` and `scontrol show config|partition` say, as nouns.

Decides what a row means. Must never guess: a number that is none is a ValueError. The columns are named when asking, so
that their order is ours and not a version's; no column that people write freely is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

QOS_COLUMNS = ("Name", "Priority", "Preempt", "PreemptMode", "GraceTime", "MinTRES", "GrpTRES")
ASSOCIATION_COLUMNS = (
    "Account", "User", "Partition", "ParentName", "Share", "GrpJobs", "GrpSubmit", "GrpTRES", "MaxTRES", "QOS",
    "DefaultQOS",
)  # fmt: skip

_CONFIG_LINE = re.compile(r"(\w+)(?:\[\d+\])?\s*= ?(.*)")
_PARTITION_FIELD = re.compile(r"(?:^| )(PartitionName|AllowQos|QoS|State|TRES)=(\S*)")
_IN_FORCE = re.compile(r"^ClusterName=\S+ Account=(\S+) UserName= .*? GrpTRES=(\S*) ")
_COUNTED = re.compile(r"([\w/:.-]+)=(\d+|N)\((\d+)\)")
_DURATION = re.compile(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)")


class SlurmQos(msgspec.Struct, frozen=True):
    """A QOS, which all clusters of a slurmdbd share."""

    name: str
    priority: int = 0
    preempt: tuple[str, ...] = ()
    preempt_mode: str = "cluster"
    grace_seconds: int = 0
    min_tres: Mapping[str, str] = {}
    grp_tres: Mapping[str, str] = {}


class SlurmAssociation(msgspec.Struct, frozen=True):
    """An account in a cluster, or with `user` a user's place in it. No limit is None, or not in the mapping."""

    account: str
    user: str = ""
    partition: str = ""
    parent: str = ""
    fairshare: str = "1"
    grp_jobs: int | None = None
    grp_submit: int | None = None
    grp_tres: Mapping[str, str] = {}
    max_tres: Mapping[str, str] = {}
    qos: tuple[str, ...] = ()
    default_qos: str = ""


class SlurmPartition(msgspec.Struct, frozen=True):
    """A partition, as far as limits are concerned. `allow_qos` is empty where all QOS are allowed."""

    name: str
    qos: str = ""
    allow_qos: tuple[str, ...] = ()


class SlurmCount(msgspec.Struct, frozen=True):
    """An account in the controller: its GrpTRES in force, and what its running jobs use of them."""

    limits: Mapping[str, str] = {}
    used: Mapping[str, int] = {}


def parse_config(text: str) -> dict[str, str]:
    """slurm.conf as the controller has it in force; a value that is not set is empty."""
    found = (_CONFIG_LINE.fullmatch(line.strip()) for line in text.splitlines())
    return {line[1]: "" if line[2] in ("(null)", "N/A") else line[2].strip() for line in found if line}


def parse_partitions(text: str) -> list[SlurmPartition]:
    """What `scontrol --oneliner show partition` printed."""
    found = []
    for line in text.splitlines():
        fields = dict(_PARTITION_FIELD.findall(line))
        if name := fields.get("PartitionName"):
            allowed, qos = fields.get("AllowQos", "ALL"), fields.get("QoS", "N/A")
            found.append(SlurmPartition(name, "" if qos == "N/A" else qos, () if allowed == "ALL" else _names(allowed)))
    return found


def parse_counts(text: str) -> dict[str, SlurmCount]:
    """What `scontrol --oneliner show assoc_mgr` printed of the accounts, without their users."""
    rows = (_IN_FORCE.match(line) for line in text.splitlines())
    counted = {row[1]: _COUNTED.findall(row[2]) for row in rows if row}
    return {
        account: SlurmCount(
            limits={name: limit for name, limit, _ in found if limit != "N"},
            used={name: int(used) for name, _, used in found if used != "0"},
        )
        for account, found in counted.items()
    }


def parse_qos(row: list[str]) -> SlurmQos:
    name, priority, preempt, mode, grace, minimum, group = row
    return SlurmQos(
        name=name,
        priority=_number(priority) or 0,
        preempt=_names(preempt),
        preempt_mode=mode.lower(),
        grace_seconds=_seconds(grace),
        min_tres=_tres(minimum),
        grp_tres=_tres(group),
    )


def parse_association(row: list[str]) -> SlurmAssociation:
    account, user, partition, parent, share, jobs, submit, group, maximum, qos, default = row
    return SlurmAssociation(
        account=account,
        user=user,
        partition=partition,
        parent=parent,
        fairshare=share,
        grp_jobs=_number(jobs),
        grp_submit=_number(submit),
        grp_tres=_tres(group),
        max_tres=_tres(maximum),
        qos=_names(qos),
        default_qos=default,
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(sorted(name for name in text.split(",") if name))


def _tres(text: str) -> dict[str, str]:
    pairs = (part.rpartition("=") for part in text.split(",") if part)
    return {name: value for name, _, value in sorted(pairs)}


def _number(text: str) -> int | None:
    return int(text) if text else None


def _seconds(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if not found:
        return int(text or 0)
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
