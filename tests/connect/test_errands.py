"""What a long command prints is seen while it runs, what it is given, and how it is forgotten. With real processes; how
errands begin, end and are lost is tested with the campaigns, which had them first.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plimsoll.connect.commands import End, run_command
from plimsoll.connect.errands import Errands, Going, Result
from tests.support.waiting import wait_until

WAIT = 'while [ ! -e "{go}" ]; do sleep 0.02; done'


@pytest.fixture
def errands(tmp_path: Path) -> Errands:
    return Errands(tmp_path / "errands")


def _begin(errands: Errands, script: str, name: str = "e", *, files: Mapping[str, str] | None = None) -> bool:
    return errands.begin(name, ("/bin/sh", "-c", script), environment={}, lines=["n1"], files=files)


def _ended(errands: Errands, name: str = "e") -> Result:
    wait_until(lambda: errands.look(name)[0] is Going.ENDED, what="the command ended")
    result = errands.look(name)[1]
    assert result is not None
    return result


def _printed(errands: Errands, text: str, name: str = "e") -> None:
    wait_until(lambda: errands.peek(name) == text, what=f"it printed {text!r}")


def _place(errands: Errands, name: str = "e") -> Path:
    return next(errands.folder.glob(f"{name}-*"))


# What it prints.


def test_what_a_command_prints_is_seen_while_it_runs_and_after_the_end(errands: Errands, tmp_path: Path) -> None:
    go = tmp_path / "go"
    assert errands.peek("e") == "", "not begun"
    assert _begin(errands, f"echo one; echo hidden >&2; {WAIT.format(go=go)}; echo two")
    _printed(errands, "one\n")
    assert errands.look("e") == (Going.RUNNING, None)
    go.touch()
    assert _ended(errands) == Result(0, "one\ntwo\n", "hidden")
    assert errands.peek("e") == "one\ntwo\n"
    assert (_place(errands) / "out").read_text() == "one\ntwo\n"


def test_what_was_printed_stays_when_the_keeper_alone_is_killed(errands: Errands, tmp_path: Path) -> None:
    go = tmp_path / "go"
    assert _begin(errands, f"echo $PPID; {WAIT.format(go=go)}")
    wait_until(lambda: errands.peek("e").endswith("\n"), what="it printed its keeper")
    printed = errands.peek("e")
    os.kill(int(printed), signal.SIGKILL)
    assert errands.peek("e") == printed
    go.touch()
    wait_until(lambda: errands.look("e")[0] is Going.LOST, what="the command ended")
    assert errands.peek("e") == printed


def test_what_was_printed_stays_when_a_command_is_too_slow(errands: Errands) -> None:
    words = ("/bin/sh", "-c", "echo one; while true; do sleep 0.02; done")
    assert errands.begin("e", words, environment={}, lines=[], seconds_max=0.5)
    assert _ended(errands) == Result(-1, "", "too_slow")
    assert errands.peek("e") == "one\n"


def test_a_command_that_prints_too_much_is_ended_and_what_is_kept_is_bounded(errands: Errands) -> None:
    words = ("/bin/sh", "-c", "while true; do echo 123456789; done")
    assert errands.begin("e", words, environment={}, lines=[], out_bytes_max=1_004)
    assert _ended(errands).last_words == "too_much"
    assert errands.peek("e") == "123456789\n" * 100 + "1234"


PEEKS = {
    "all of it, where it is shorter": (100, "first\nsécond\nthird"),
    "all of it, where it is as long": (19, "first\nsécond\nthird"),
    "whole lines of the end": (15, "sécond\nthird"),
    "no half letter": (11, "third"),
    "the end of a line that is longer": (3, "ird"),
}


@pytest.mark.parametrize("case", PEEKS)
def test_a_peek_is_bounded(errands: Errands, case: str) -> None:
    bytes_max, want = PEEKS[case]
    assert _begin(errands, "printf 'first\\nsécond\\nthird'")
    _ended(errands)
    assert errands.peek("e", bytes_max) == want


def test_bytes_that_are_no_text_can_be_peeked_at(errands: Errands) -> None:
    assert _begin(errands, r"printf 'a\377\n'")
    _ended(errands)
    assert errands.peek("e") == "a\ufffd\n"


def test_a_copy_that_can_not_be_written_does_not_stop_the_command(tmp_path: Path) -> None:
    ran = run_command(
        ("/bin/sh", "-c", "echo one; echo two"),
        environment={},
        timeout_seconds=10,
        out_bytes_max=100,
        out_file=tmp_path / "no" / "such" / "folder",
    )
    assert (ran.end, ran.code, ran.out) == (End.EXITED, 0, b"one\ntwo\n")


def test_a_full_disk_does_not_stop_the_command() -> None:
    ran = run_command(
        ("/bin/sh", "-c", "echo one; sleep 0.1; echo two"),
        environment={},
        timeout_seconds=10,
        out_bytes_max=100,
        out_file=Path("/dev/full"),
    )
    assert (ran.end, ran.code, ran.out) == (End.EXITED, 0, b"one\ntwo\n")


# What it is given.


def test_files_are_given_by_their_absolute_paths(
    errands: Errands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    relative = Errands(Path("errands"))
    script = 'cd /; cat "$PLIMSOLL_SETS_FILE" "$PLIMSOLL_OLD_NODES_FILE"; echo "$PLIMSOLL_SETS_FILE"'
    assert _begin(relative, script, files={"sets": "é 1\n", "old_nodes": "n7\n"})
    lines = _ended(relative).out.splitlines()
    assert lines[:2] == ["é 1", "n7"]
    assert Path(lines[2]).is_relative_to(tmp_path / "errands")


def test_files_do_not_touch_what_an_errand_is_made_of(errands: Errands) -> None:
    names = ("lock", "begun", "asked", "result", "out", "id")
    script = "cat " + " ".join(f'"$PLIMSOLL_{name.upper()}_FILE"' for name in names) + ' "$PLIMSOLL_NODES_FILE"'
    assert _begin(errands, script, files={name: f"<{name}>" for name in names})
    assert _ended(errands) == Result(0, "<lock><begun><asked><result><out><id>n1\n", "")


def test_an_errand_that_was_begun_keeps_its_files(errands: Errands, tmp_path: Path) -> None:
    go = tmp_path / "go"
    assert _begin(errands, f'{WAIT.format(go=go)}; cat "$PLIMSOLL_SETS_FILE"', files={"sets": "first"})
    assert not _begin(errands, "true", files={"sets": "second"})
    go.touch()
    assert _ended(errands).out == "first"
    assert not _begin(errands, "true", files={"sets": "third"})
    assert (_place(errands) / "sets.given").read_text() == "first"


@pytest.mark.parametrize("name", ["nodes", "Sets", "a-b", "../a", "", "a=b", "a" * 41])
def test_a_name_that_can_not_be_given_is_our_own_mistake(errands: Errands, name: str) -> None:
    with pytest.raises(AssertionError):
        _begin(errands, "true", files={name: ""})
    assert not errands.folder.exists()


# Forgetting.


def test_an_errand_that_ended_is_forgotten_and_can_be_begun_again(errands: Errands) -> None:
    assert not errands.forget("e"), "not begun"
    for number in range(5):
        assert _begin(errands, f"echo {number}")
        assert _begin(errands, "true", "other") == (number == 0)
        assert _ended(errands) == Result(0, f"{number}\n", "")
        assert errands.forget("e"), "at once, while its process is still ending"
        assert errands.look("e") == (Going.NOT_BEGUN, None)
        assert errands.peek("e") == ""
        assert not errands.forget("e")
    _ended(errands, "other")
    assert [place.name.partition("-")[0] for place in errands.folder.iterdir()] == ["other"]


def test_an_errand_that_runs_is_not_forgotten(errands: Errands, tmp_path: Path) -> None:
    go = tmp_path / "go"
    assert _begin(errands, f"echo $PPID; {WAIT.format(go=go)}; echo two")
    wait_until(lambda: errands.peek("e").endswith("\n"), what="it runs")
    assert not errands.forget("e")
    assert errands.look("e") == (Going.RUNNING, None)
    go.touch()
    assert _ended(errands).out.endswith("two\n")


def test_a_command_that_runs_without_its_keeper_is_not_forgotten_until_it_ends(
    errands: Errands, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    assert _begin(errands, f"echo $PPID; {WAIT.format(go=go)}")
    wait_until(lambda: errands.peek("e").endswith("\n"), what="it runs")
    os.kill(keeper := int(errands.peek("e")), signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{keeper}/exe").exists(), what="its keeper is dead")
    assert not errands.forget("e")
    assert errands.look("e") == (Going.RUNNING, None)
    go.touch()
    wait_until(lambda: errands.look("e")[0] is Going.LOST, what="the command ended")
    assert errands.forget("e")
    assert list(errands.folder.iterdir()) == []


def test_a_daemon_that_a_command_left_behind_does_not_keep_it_from_being_forgotten(
    errands: Errands, tmp_path: Path
) -> None:
    log, go = tmp_path / "log", tmp_path / "go"
    daemon = f"echo $$ > {log}; while [ ! -e {go} ]; do sleep 0.02; done; rm {log}"
    assert _begin(errands, f"setsid /bin/sh -c '{daemon}' > /dev/null 2>&1 & while [ ! -s {log} ]; do sleep 0.02; done")
    _ended(errands)
    assert errands.forget("e")
    go.touch()
    wait_until(lambda: not log.exists(), what="the daemon ended")


def test_what_a_crash_left_of_a_forgotten_one_goes_with_the_next(errands: Errands) -> None:
    assert _begin(errands, "true")
    _ended(errands)
    (errands.folder / "~forgotten-0").mkdir()
    (errands.folder / "~forgotten-0" / "out").touch()
    assert errands.forget("e")
    assert list(errands.folder.iterdir()) == []


def test_whoever_waited_for_the_lock_of_a_forgotten_one_does_not_begin_in_its_remains(
    errands: Errands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had opened the lock before the folder was moved away, and gets it after."""
    assert _begin(errands, "echo one")
    _ended(errands)
    flock = fcntl.flock
    has_forgotten: list[bool] = []

    def slow(lock: int, how: int) -> None:
        if not has_forgotten:
            has_forgotten.append(True)
            assert Errands(errands.folder).forget("e")
        flock(lock, how)

    monkeypatch.setattr("plimsoll.connect.errands.fcntl.flock", slow)
    assert not _begin(errands, "echo two")
    assert has_forgotten == [True]
    monkeypatch.undo()
    assert errands.look("e") == (Going.NOT_BEGUN, None)
    assert _begin(errands, "echo three")
    assert _ended(errands).out == "three\n"


def test_of_many_who_begin_and_forget_none_runs_beside_another(errands: Errands, tmp_path: Path) -> None:
    """A command that runs makes a folder that may not be there, and removes it at its end."""
    alone, log = tmp_path / "alone", tmp_path / "log"
    script = f"mkdir {alone} && echo begun >> {log} && rmdir {alone}"
    deadline = time.monotonic() + 1.5

    def turn(_number: int) -> int:
        mine, begun = Errands(errands.folder), 0
        while time.monotonic() < deadline:
            begun += _begin(mine, script)
            going, result = mine.look("e")
            if going is Going.ENDED:
                assert result is not None
                assert (result.code, result.last_words) == (0, "")
                mine.forget("e")
        return begun

    with ThreadPoolExecutor(3) as pool:
        begun = sum(pool.map(turn, range(3)))
    wait_until(lambda: errands.look("e")[0] in (Going.ENDED, Going.NOT_BEGUN), what="the last one ended")
    assert begun == len(log.read_text().split()) > 2
