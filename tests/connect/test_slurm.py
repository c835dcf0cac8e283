"""What scontrol prints and does, also when it misbehaves. The real Slurm is in tests/real."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.connect import slurm
from plimsoll.connect.slurm import Slurm
from plimsoll.connect.slurm_nodes import (
    Availability,
    SlurmNode,
    availability,
    count_gpus,
    parse_nodes,
    parse_reason,
    parse_states,
)
from plimsoll.errors import PlimsollError, Refused, Unavailable, UsageError
from tests.support.waiting import wait_until

HEAD = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=4 CPUTot=4 CPULoad=0.30 "
    "AvailableFeatures=(null) ActiveFeatures=(null) Gres={gres} NodeAddr=10.0.0.7 NodeHostName=vm Port=23983 "
    "Version=22.05.8 OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=1 AllocMem=0 FreeMem=23071 Sockets=4 "
    "Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=all,small  "
    "BootTime=2026-11-16T00:37:26 SlurmdStartTime=2026-11-16T03:40:31 LastBusyTime=2026-11-16T03:40:32 "
    "CfgTRES=cpu=4,mem=1M,billing=4 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s "
    "ExtSensorsWatts=0 ExtSensorsTemp=n/s"
)
"""As Slurm 22.05.8 printed it; what follows it is Reason, Comment and Extra, each only if there is one."""

STAMP = " [root@2026-01-05T11:00:00]"
WHEN = datetime(2026, 1, 5, 11, tzinfo=UTC)


def line(name: str = "n001", *, state: str = "IDLE", gres: str = "gpu:8", tail: str = "") -> str:
    return HEAD.format(name=name, state=state, gres=gres) + tail


def node(state: str) -> SlurmNode:
    return parse_nodes(line(state=state))[0]


def test_a_line_is_read_whole() -> None:
    (found,) = parse_nodes(line(state="MIXED+DRAIN", tail=f" Reason=fan = slow; $(id){STAMP} Comment=x Extra=y") + "\n")
    assert found == SlurmNode(
        name="n001",
        address="10.0.0.7",
        states=frozenset({"MIXED", "DRAIN"}),
        reason="fan = slow; $(id)",
        reason_by="root",
        reason_at=WHEN,
        gpus=8,
        partitions=("all", "small"),
    )
    assert found.has_work


TAILS = {
    "no reason": ("", ("", "", None)),
    "only a comment that quotes a reason": (f" Comment=was Reason=bad{STAMP}", ("", "", None)),
    "a comment that ends like a reason": (f" Reason=a{STAMP} Comment=b [x@2026-02-02T00:00:00]", ("a", "root", WHEN)),
    "a reason that quotes a stamp": (f" Reason=a {STAMP}{STAMP}", (f"a {STAMP}", "root", WHEN)),
    "a reason that quotes a key": (f" Reason=State=DOWN Comment=no{STAMP}", ("State=DOWN Comment=no", "root", WHEN)),
    "a reason of several lines": (f" Reason=one{STAMP}        two        3 Extra=e", ("one\ntwo\n3", "root", WHEN)),
    "a reason without a time": (" Reason=old and tired Comment=c", ("old and tired", "", None)),
    "an unknown time": (" Reason=a [root@Unknown]", ("a", "root", None)),
    "a day that is not in the calendar": (" Reason=a [root@2026-02-31T00:00:00]", ("a", "root", None)),
    "a user with a domain": (" Reason=a [me@corp.example@2026-01-05T11:00:00]", ("a", "me@corp.example", WHEN)),
    "spaces around it": (f" Reason=  a  {STAMP}", ("  a  ", "root", WHEN)),
    "what later versions add": (f" Reason=a{STAMP} InstanceId=i InstanceType=p ReservationName=m", ("a", "root", WHEN)),
}  # fmt: skip


@pytest.mark.parametrize(("tail", "want"), TAILS.values(), ids=TAILS.keys())
def test_the_reason_is_found_behind_free_text(tail: str, want: tuple[str, str, datetime | None]) -> None:
    (found,) = parse_nodes(line(state="IDLE+DRAIN", tail=tail))
    assert (found.reason, found.reason_by, found.reason_at) == want
    assert found.states == {"IDLE", "DRAIN"}


PRINTABLE = st.text(st.characters(codec="utf-8").filter(str.isprintable), min_size=1, max_size=250)


def is_writable(reason: str) -> bool:
    try:
        slurm._check_reason(reason)
    except UsageError:
        return False
    return True


@given(PRINTABLE.filter(is_writable), st.sampled_from(["", " Comment=c d", " Comment=c Extra=e=f"]))
def test_every_reason_we_may_write_is_read_back_exactly(reason: str, after: str) -> None:
    assert parse_reason(f"{reason}{STAMP}{after}") == (reason, "root", WHEN)
    nodes = parse_nodes("\n".join(line(f"n{number}", tail=f" Reason={reason}{STAMP}{after}") for number in range(3)))
    assert {found.reason for found in nodes} == {reason}


@given(PRINTABLE)
def test_hardly_any_printable_reason_is_refused(reason: str) -> None:
    assert is_writable(reason) or not reason.strip() or "]" in reason


@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from([line(), "NodeName=a", " Reason=", STAMP, "\n", "State=", "+"])).map("".join)
)
def test_no_output_makes_anything_but_nodes_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert all(found.name and found.states for found in parse_nodes(text))


STATES = {
    "IDLE": Availability.UP,
    "MIXED": Availability.UP,
    "ALLOCATED+RESERVED": Availability.UP,
    "IDLE+COMPLETING": Availability.UP,
    "IDLE+PLANNED": Availability.UP,
    "IDLE+CLOUD": Availability.UP,
    "IDLE+DYNAMIC_NORM": Availability.UP,
    "IDLE+REBOOT_REQUESTED": Availability.UP,
    "IDLE+DRAIN": Availability.DRAINED,
    "IDLE+COMPLETING+DRAIN": Availability.DRAINING,
    "MIXED+DRAIN": Availability.DRAINING,
    "ALLOCATED+DRAIN+NOT_RESPONDING": Availability.DRAINING,
    "IDLE+DRAIN+NOT_RESPONDING": Availability.DRAINED,
    "IDLE+FAIL": Availability.DRAINED,
    "ALLOCATED+FAIL": Availability.DRAINING,
    "DOWN": Availability.DOWN,
    "DOWN+DRAIN+NOT_RESPONDING": Availability.DOWN,
    "DOWN*+DRAIN": Availability.DOWN,
    "IDLE+INVALID_REG": Availability.DOWN,
    "ERROR": Availability.DOWN,
    "IDLE+NOT_RESPONDING": Availability.NOT_RESPONDING,
    "IDLE*": Availability.NOT_RESPONDING,
    "IDLE+MAINTENANCE+RESERVED": Availability.MAINTENANCE,
    "MAINT": Availability.MAINTENANCE,
    "IDLE$": Availability.MAINTENANCE,
    "DOWN+MAINTENANCE+RESERVED": Availability.MAINTENANCE,
    "DOWN+REBOOT_ISSUED": Availability.MAINTENANCE,
    "IDLE+CLOUD+POWERED_DOWN": Availability.POWERED_DOWN,
    "IDLE~": Availability.POWERED_DOWN,
    "UNKNOWN": Availability.UNKNOWN,
    "FUTURE": Availability.UNKNOWN,
    "SOMETHING_NEW": Availability.UNKNOWN,
}


@pytest.mark.parametrize(("state", "want"), STATES.items(), ids=STATES.keys())
def test_what_states_come_to(state: str, want: Availability) -> None:
    assert availability(node(state)) is want


def test_signs_and_flags_are_one_set_of_names() -> None:
    assert parse_states("DOWN*+DRAIN") == {"DOWN", "NOT_RESPONDING", "DRAIN"}
    assert parse_states("idle*~") == {"IDLE", "NOT_RESPONDING", "POWERED_DOWN"}
    assert parse_states("IDLE+MAINT") == parse_states("IDLE+MAINTENANCE")


def test_gpus_are_counted_over_models_and_sockets() -> None:
    cases = {
        "(null)": 0, "": 0, "gpu": 1, "gpu:8": 8, "gpu:h100:8(S:0-1)": 8, "gpu:h100": 1, "nic:4": 0, "gpuish:9": 0,
        "gpu:h100:6(S:0,2),gpu:a100:2(S:1),nic:4": 8,
    }  # fmt: skip
    assert {gres: count_gpus(gres) for gres in cases} == cases


class Bad(NamedTuple):
    output: str
    want_words: str


BAD = {
    "rubbish": Bad("hello\nworld", "line 1 is not a node's"),
    "a page": Bad(f"{line()}\n<html>\x1b[31m", "line 2 is not a node's (NodeName=… State=…): <html>?[31m"),
    "a line without a state": Bad("NodeName=n001 Arch=x86_64", "line 1"),
    "a node twice": Bad(f"{line()}\n{line()}", "names a node twice"),
}


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first on PATH, for a `scontrol` of our own."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path / "bin"


def write_scontrol(folder: Path, script: str) -> None:
    path = folder / "scontrol"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def failure_of(client: Slurm) -> PlimsollError:
    with pytest.raises(PlimsollError) as caught:
        client.nodes()
    assert caught.value.next_step
    assert str(caught.value).isprintable()
    return caught.value


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_output_that_is_not_slurms_is_refused_with_its_line(case: Bad, fakes: Path) -> None:
    (fakes / "out").write_text(case.output)
    write_scontrol(fakes, f"cat {fakes}/out")
    error = failure_of(Slurm())
    assert (error.code, case.want_words in str(error)) == ("slurm_bad_answer", True), error


def test_a_cluster_without_nodes_is_empty(fakes: Path) -> None:
    write_scontrol(fakes, "echo No nodes in the system")
    assert Slurm().nodes() == []


def test_a_hanging_scontrol_is_killed_with_its_children(fakes: Path) -> None:
    write_scontrol(fakes, f"echo 'retrying in 1sec' >&2; sleep 600 & echo $! > {fakes}/child; sleep 600")
    began = time.monotonic()
    error = failure_of(Slurm(timeout_seconds=0.5))
    assert time.monotonic() - began < 3
    assert error.code == "slurm_unavailable"
    assert "did not end within 0.5 s and was killed: retrying in 1sec" in str(error)
    child = int((fakes / "child").read_text())
    wait_until(lambda: is_gone(child), what="the child of scontrol is killed")


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1].startswith("Z")
    except FileNotFoundError:
        return True


def test_a_child_that_keeps_the_output_open_does_not_hold_us(fakes: Path) -> None:
    (fakes / "out").write_text(line())
    write_scontrol(fakes, f"sleep 600 & cat {fakes}/out")
    began = time.monotonic()
    assert [found.name for found in Slurm(timeout_seconds=20).nodes()] == ["n001"]
    assert time.monotonic() - began < 5


def test_endless_output_is_given_up_at_the_bound(fakes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "OUTPUT_BYTES_MAX", 1_000_000)
    write_scontrol(fakes, "yes")
    error = failure_of(Slurm(timeout_seconds=20))
    assert "printed more than 1,000,000 bytes" in str(error)


def test_endless_complaints_keep_only_the_last(fakes: Path) -> None:
    write_scontrol(fakes, "yes complaint | head -c 3000000 >&2; echo the end >&2; exit 3")
    error = failure_of(Slurm(timeout_seconds=20))
    assert "failed with exit code 3" in str(error)
    assert str(error).endswith("complaint; the end")
    assert len(str(error)) < 600


def test_a_missing_scontrol_is_named(monkeypatch: pytest.MonkeyPatch, fakes: Path) -> None:
    (fakes / "env").symlink_to("/usr/bin/env")
    monkeypatch.setenv("PATH", str(fakes))
    error = failure_of(Slurm())
    assert error.code == "slurm_unavailable"
    assert "scontrol can't be started: env: " in str(error)
    assert "slurm-client" in error.next_step
    error = failure_of(Slurm(command_prefix=["no-such-command"]))
    assert "no-such-command scontrol can't be started: no-such-command: No such file" in str(error)
    error = failure_of(Slurm(command_prefix=["no-such-command", "--token=s3cr3t"]))
    assert str(error).startswith("no-such-command … scontrol can't be started")
    assert "s3cr3t" not in f"{error}{error.fields}"


def test_a_missing_configuration_is_named_at_once(fakes: Path) -> None:
    write_scontrol(fakes, "sleep 600")
    error = failure_of(Slurm(config=f"{fakes}/slurm.conf"))
    assert f"{fakes}/slurm.conf is not there" in str(error)


def test_the_words_go_through_a_prefix_unchanged(fakes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CLUSTERS", "another")
    (fakes / "prefix").write_text('#!/bin/sh\nshift\nexec "$@"\n')
    (fakes / "prefix").chmod(0o755)
    (fakes / "out").write_text(line(state="IDLE"))
    write_scontrol(
        fakes,
        f'if [ "$1" = update ]; then for word in "$@"; do printf "<%s>\\n" "$word"; done > {fakes}/words\n'
        f"echo $TZ $SLURM_CONF $SLURM_CLUSTERS >> {fakes}/words; else cat {fakes}/out; fi",
    )
    client = Slurm(config="there/slurm.conf", command_prefix=[f"{fakes}/prefix", "--in=it"])
    with pytest.raises(Refused) as caught:
        client.drain(["n001"], reason='it\'s "so" $HOME `id` * \\n = ; |')
    assert (fakes / "words").read_text() == (
        "<update>\n<NodeName=n001>\n<State=DRAIN>\n"
        '<Reason="it\'s "so" $HOME `id` * \\n = ; |">\nUTC0 there/slurm.conf\n'
    )
    # This scontrol said yes and did nothing: reading back tells.
    assert caught.value.code == "slurm_not_done"
    assert "1 of 1 nodes were not drained: n001 is IDLE" in str(caught.value)
    assert caught.value.fields["not_done"] == {"n001": "is IDLE"}


def test_many_names_go_in_parts_that_fit(fakes: Path) -> None:
    names = [f"a-rather-long-name-of-a-node-{number:05}" for number in range(3_000)]
    (fakes / "out").write_text("\n".join(line(name, state="IDLE+DRAIN", tail=f" Reason=x{STAMP}") for name in names))
    write_scontrol(fakes, f'if [ "$1" = update ]; then echo "$2" >> {fakes}/words; else cat {fakes}/out; fi')
    found = Slurm().drain([*names, names[0]], reason="x", overwrites_reason=True)
    assert [each.name for each in found] == names
    written = (fakes / "words").read_text().splitlines()
    assert [len(words) <= slurm.HOSTLIST_BYTES_MAX + len("NodeName=") for words in written] == [True] * 4
    assert ",".join(words.removeprefix("NodeName=") for words in written) == ",".join(names)


def test_a_write_that_hangs_halfway_says_what_was_asked(fakes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "HOSTLIST_BYTES_MAX", 6)
    (fakes / "out").write_text("\n".join(line(f"n{number}") for number in range(6)))
    write_scontrol(fakes, f'case "$*" in *n2*) sleep 600;; update*) ;; *) cat {fakes}/out;; esac')
    with pytest.raises(Unavailable) as caught:
        Slurm(timeout_seconds=0.5).drain([f"n{number}" for number in range(6)], reason="x")
    fields = caught.value.fields
    assert fields["asked"] == ["n0", "n1"]
    assert fields["unknown"] == ["n2", "n3"]
    assert fields["not_asked"] == ["n4", "n5"]


@pytest.mark.parametrize("name", ["", "ALL", "all", "n[1-9]", "n1,n2", "-n", "n 1", "n1\n", "n" * 255, "ü"])
def test_a_name_is_one_node(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        Slurm().drain([name], reason="x")
    assert caught.value.code == "slurm_bad_name"


@pytest.mark.parametrize(
    "reason", ["", "  ", "a\nb", "a\tb", "a\x00b", "\x1b[31m", "x" * 251, f"a{STAMP} Comment=b", f"a{STAMP}        b"]
)
def test_a_reason_is_one_printable_line(reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        Slurm().drain(["n1"], reason=reason)
    assert caught.value.code == "slurm_bad_reason"


def test_settings_are_checked_and_nothing_to_do_is_nothing() -> None:
    for seconds in (0, -1, 601, float("nan")):
        with pytest.raises(UsageError) as caught:
            Slurm(timeout_seconds=seconds)
        assert caught.value.code == "slurm_bad_setting"
    client = Slurm(command_prefix=["no-such-command"])
    assert client.drain([], reason="x") == []
    assert client.resume([]) == []
