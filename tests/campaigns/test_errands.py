"""Commands that outlive us, with real processes: begun once, found again, lost and known to be lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from plimsoll.connect.errands import Errands, Going, Result
from plimsoll.errors import Unavailable
from tests.support.children import Child
from tests.support.waiting import wait_until

ONCE = 'echo "$$ $PLIMSOLL_BATCH $(paste -sd, "$PLIMSOLL_NODES_FILE")" >> "{log}"'
UNTIL_TOLD = ONCE + '; while [ ! -e "{go}" ]; do sleep 0.02; done; echo done'


@pytest.fixture
def errands(tmp_path: Path) -> Errands:
    return Errands(tmp_path / "errands")


def _begin(errands: Errands, script: str, name: str = "e", **texts: Path) -> bool:
    words = ("/bin/sh", "-c", script.format(**texts))
    return errands.begin(name, words, environment={"PLIMSOLL_BATCH": "tiger#1"}, lines=["n1", "n2"])


def _result(errands: Errands, name: str = "e") -> Result:
    wait_until(lambda: errands.look(name)[0] is Going.ENDED, what="the command ended")
    result = errands.look(name)[1]
    assert result is not None
    return result


def _lines(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def _command(file: Path) -> int:
    """The process of the command, when it runs."""
    wait_until(lambda: bool(_lines(file)), what="the command runs")
    return int(_lines(file)[0][0])


RESULTS = {
    "it went well": ("echo good", Result(0, "good\n", "")),
    "it failed and said why": ("echo some; echo no route >&2; exit 3", Result(3, "some\n", "no route")),
    "it was killed": ("kill -9 $$", Result(-9, "", "")),
    "it printed bytes that are no text": (r"printf 'a\377'", Result(0, "a\ufffd", "")),
}


@pytest.mark.parametrize("case", RESULTS)
def test_the_end_of_a_command_is_found(errands: Errands, case: str) -> None:
    script, want = RESULTS[case]
    assert errands.look("e") == (Going.NOT_BEGUN, None)
    assert _begin(errands, script)
    assert _result(errands) == want


def test_a_program_that_is_not_there_is_a_result(errands: Errands) -> None:
    assert errands.begin("e", ["/no/such/program"], environment={}, lines=[])
    result = _result(errands)
    assert result.code == -1
    assert "No such file" in result.last_words


def test_a_command_that_takes_too_long_ends_and_leaves_nothing(errands: Errands, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = UNTIL_TOLD.format(log=log, go=tmp_path / "go")
    assert errands.begin("e", ["/bin/sh", "-c", script], environment={}, lines=[], seconds_max=0.3)
    assert _result(errands) == Result(-1, "", "too_slow")
    assert not Path(f"/proc/{_command(log)}").exists()


def test_the_same_errand_is_begun_once(errands: Errands, tmp_path: Path) -> None:
    log, go = tmp_path / "log", tmp_path / "go"
    assert _begin(errands, UNTIL_TOLD, log=log, go=go)
    assert not _begin(errands, UNTIL_TOLD, log=log, go=go), "while it runs"
    _command(log)
    go.touch()
    assert _result(errands) == Result(0, "done\n", "")
    assert not _begin(errands, UNTIL_TOLD, log=log, go=go), "after it ended"
    assert [line[1:] for line in _lines(log)] == [["tiger#1", "n1,n2"]]


def test_of_many_who_begin_it_at_the_same_moment_one_does(errands: Errands, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def begin(_number: int) -> bool:
        return _begin(Errands(errands.folder), ONCE, log=log)

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(begin, range(16))) == [False] * 15 + [True]
    assert _result(errands).code == 0
    assert len(_lines(log)) == 1


def _begin_and_say(tell: Callable[[Any], None], folder: Path, script: str) -> None:
    tell(_begin(Errands(folder), script))
    while True:
        signal.pause()


def test_a_command_goes_on_when_who_began_it_is_killed_and_others_find_it(errands: Errands, tmp_path: Path) -> None:
    log, go = tmp_path / "log", tmp_path / "go"
    with Child(_begin_and_say, errands.folder, UNTIL_TOLD.format(log=log, go=go)) as child:
        assert child.hear() is True
        command = _command(log)
        child.kill()
    assert errands.look("e") == (Going.RUNNING, None)
    assert not _begin(errands, ONCE, log=log)
    os.kill(command, 0)
    go.touch()
    assert _result(errands) == Result(0, "done\n", "")
    assert len(_lines(log)) == 1


def test_a_command_whose_keeper_alone_is_killed_still_runs_and_is_lost_only_when_it_ends(
    errands: Errands, tmp_path: Path
) -> None:
    log, go = tmp_path / "log", tmp_path / "go"
    assert _begin(errands, UNTIL_TOLD, log=log, go=go)
    command = _command(log)
    keeper = int(Path(f"/proc/{command}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{keeper}/exe").exists(), what="its keeper is dead")
    assert errands.look("e") == (Going.RUNNING, None), "another attempt now would be two at once"
    go.touch()
    wait_until(lambda: errands.look("e")[0] is not Going.RUNNING, what="the command ended")
    assert errands.look("e") == (Going.LOST, None), "nobody knows how it ended"


def test_an_errand_whose_command_never_came_to_run_is_lost(errands: Errands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its beginner died after it had said so, and before there was a process."""

    def die(_place: Path, _lock: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("plimsoll.connect.errands._start", die)
    with pytest.raises(KeyboardInterrupt):
        _begin(errands, "true")
    monkeypatch.undo()
    assert errands.look("e") == (Going.LOST, None)
    assert not _begin(errands, "true")


def test_a_result_that_a_power_cut_left_empty_is_no_result(errands: Errands) -> None:
    assert _begin(errands, "true")
    _result(errands)
    next(errands.folder.glob("e-*/result")).write_bytes(b"")
    wait_until(lambda: errands.look("e")[0] is not Going.RUNNING, what="its process ended")
    assert errands.look("e") == (Going.LOST, None)


def test_a_daemon_that_a_command_leaves_behind_does_not_keep_it_from_ending(errands: Errands, tmp_path: Path) -> None:
    log, go = tmp_path / "log", tmp_path / "go"
    waits = f"echo $$ > {log}; while [ ! -e {go} ]; do sleep 0.02; done"
    assert _begin(errands, f"setsid /bin/sh -c '{waits}' > /dev/null 2>&1 & while [ ! -s {log} ]; do sleep 0.02; done")
    assert _result(errands).code == 0
    go.touch()


def test_a_folder_knows_itself_from_others(tmp_path: Path) -> None:
    one, two = Errands(tmp_path / "one"), Errands(tmp_path / "two")
    assert one.where == Errands(tmp_path / "one").where != two.where
    assert len(one.where) == 32
    assert [file.name for file in (tmp_path / "one").iterdir()] == ["id"]


def test_a_folder_that_can_not_be_made_is_refused_with_another_to_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable) as refused:
        _begin(Errands(tmp_path / "file"), "true")
    assert refused.value.code == "errand_unwritable"
    assert "--errands" in refused.value.next_step
