"""What sacctmgr prints and does, also when it misbehaves. The real one is in tests/real/test_quota_slurm.py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from plimsoll.connect.slurm_accounts import SlurmAccounts
from plimsoll.connect.slurm_limits import (
    SlurmAssociation,
    SlurmCount,
    SlurmPartition,
    SlurmQos,
    parse_config,
    parse_counts,
    parse_partitions,
)
from plimsoll.errors import PlimsollError, Refused, Unavailable

CONFIG = """\
Configuration data as of 2026-11-16T06:49:15
AccountingStorageEnforce = associations,limits,qos
AccountingStorageUser   = N/A
ClusterName             = tiger
PowerPlugin             = 
SchedulerParameters     = bf_interval=1,sched_interval=1
SlurmctldHost[0]        = vm(127.0.0.1)
AuthAltTypes            = (null)

Slurmctld(primary) at vm is UP
"""  # noqa: W291

PARTITIONS = """\
PartitionName=all AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=NONE
PartitionName=h200 AllowGroups=ALL AllowAccounts=ALL AllowQos=plimsoll_flex,plimsoll_mid QoS=plimsoll_only_h200 State=UP
"""

COUNTS = """\
Current Association Manager state
Association Records
ClusterName=tiger Account=plimsoll_vision UserName= Partition= GrpTRES=cpu=N(16),gres/gpu=64(128) GrpTRESMins=cpu=N(1)
ClusterName=tiger Account=plimsoll_vision UserName=games(5) GrpTRES=cpu=N(16),gres/gpu=1(128) GrpTRESMins=cpu=N(1)
ClusterName=tiger Account=root UserName= Partition= Priority=0 GrpTRES=cpu=N(16),gres/gpu=N(0) GrpTRESMins=cpu=N(1)
"""


def test_the_configuration_is_read_with_what_is_not_set_as_empty() -> None:
    assert parse_config(CONFIG) == {
        "AccountingStorageEnforce": "associations,limits,qos",
        "AccountingStorageUser": "",
        "ClusterName": "tiger",
        "PowerPlugin": "",
        "SchedulerParameters": "bf_interval=1,sched_interval=1",
        "SlurmctldHost": "vm(127.0.0.1)",
        "AuthAltTypes": "",
    }


def test_partitions_are_read() -> None:
    assert parse_partitions(PARTITIONS) == [
        SlurmPartition("all"),
        SlurmPartition("h200", qos="plimsoll_only_h200", allow_qos=("plimsoll_flex", "plimsoll_mid")),
    ]


def test_what_the_controller_enforces_and_counts_is_read_for_accounts_only() -> None:
    assert parse_counts(COUNTS) == {
        "plimsoll_vision": SlurmCount({"gres/gpu": "64"}, {"cpu": 16, "gres/gpu": 128}),
        "root": SlurmCount({}, {"cpu": 16}),
    }


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmAccounts:
    """Commands that print what a test says, first on the path."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return SlurmAccounts()


def fake(tmp_path: Path, script: str) -> None:
    path = tmp_path / "sacctmgr"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_rows_are_read_by_the_columns_that_were_asked_for(slurm: SlurmAccounts, tmp_path: Path) -> None:
    fake(
        tmp_path,
        'case "$3" in\n'
        "qos) echo 'urgent|7|b,a|REQUEUE|1-00:01:05|gres/gpu=1,cpu=2|';;\n"
        "assoc) echo 'plimsoll_vision|||plimsoll|parent|5||gres/gpu:h100=8,mem=4G||b,a|a'\n"
        "echo 'x|bob|all||1|||||n|';;\n"
        "tres) printf 'cpu|\\ngres|gpu\\n';;\n"
        "cluster) printf 'tiger|10.0.0.1\\nlion|\\n';;\n"
        "esac",
    )
    assert slurm.qos() == [
        SlurmQos("urgent", 7, ("a", "b"), "requeue", 86_465, {"cpu": "2", "gres/gpu": "1"}, {}),
    ]
    assert slurm.associations("tiger") == [
        SlurmAssociation(
            "plimsoll_vision",
            parent="plimsoll",
            fairshare="parent",
            grp_jobs=5,
            grp_tres={"gres/gpu:h100": "8", "mem": "4G"},
            qos=("a", "b"),
            default_qos="a",
        ),
        SlurmAssociation("x", user="bob", partition="all", qos=("n",)),
    ]
    assert slurm.tres() == {"cpu", "gres/gpu"}
    assert slurm.clusters() == {"tiger": "10.0.0.1", "lion": ""}


class Said(NamedTuple):
    script: str
    want: type[PlimsollError] | bool
    want_text: str = ""


SAID = {
    "done": Said("echo ' Modified qos...'", True),
    "nothing to modify": Said("echo ' Nothing modified'; exit 1", False),
    "nothing to add": Said("echo ' Nothing new added.'; exit 1", False),
    "no rights": Said("echo ' Error with request: Access/permission denied' >&2; exit 1", Refused, "permission denied"),
    "slurmdbd is away": Said(
        "echo 'sacctmgr: error: Sending PersistInit msg: Connection refused' >&2; exit 1", Unavailable, "refused"
    ),
    "munge is away": Said("echo 'error: Protocol authentication error' >&2; exit 1", Unavailable, "authentication"),
    "it says nothing at all": Said("exit 1", Unavailable, "failed with exit code 1"),
    "it is killed": Said("kill -9 $$", Unavailable, "failed with exit code -9"),
}


@pytest.mark.parametrize("case", SAID.values(), ids=SAID.keys())
def test_what_became_of_a_change(case: Said, slurm: SlurmAccounts, tmp_path: Path) -> None:
    fake(tmp_path, case.script)
    if isinstance(case.want, bool):
        assert slurm.change("modify", "qos") is case.want
        return
    with pytest.raises(case.want) as caught:
        slurm.change("modify", "qos")
    assert case.want_text in str(caught.value)
    assert caught.value.next_step


ANSWERS = {
    "a line too short": ("echo 'tiger'", "has 1 columns and not 7"),
    "a number that is none": ("echo 'x|many||cluster|00:00:00||'", "has a number that is none"),
    "a duration that is none": ("echo 'x|1||cluster|soon||'", "has a number that is none"),
}


@pytest.mark.parametrize(("script", "want"), ANSWERS.values(), ids=ANSWERS.keys())
def test_an_answer_that_can_not_be_read_is_an_error(
    script: str, want: str, slurm: SlurmAccounts, tmp_path: Path
) -> None:
    fake(tmp_path, script)
    with pytest.raises(Unavailable) as caught:
        slurm.qos()
    assert caught.value.code == "slurm_bad_answer"
    assert want in str(caught.value)
    assert caught.value.next_step == "run sacctmgr show qos by hand, and look at the first lines"
