"""`kill -9` of `plimsoll campaign run` and `cancel` at every moment: before and after each commit and outside call.

Whoever comes next finishes: every node is worked on once, unless another attempt was recorded first, and is back in
service; no hold, announcement or mark of the campaign is left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from pickle import UnpicklingError
from typing import NamedTuple

import pytest

from tests.support.children import Child
from tests.support.wreck import AFTER_ONE_CHANGE, MONDAY_NOON, Wreck, run_mortal

NODES = ["tiger-1", "tiger-2", *(f"whale-{number}" for number in range(1, 7))]
RUN = ("campaign", "run", "nic")
CANCEL = ("campaign", "cancel", "nic")
AT_ONCE = 3
LATER = timedelta(minutes=40)
"""When the grace of a batch that began at noon has passed."""


class Port(NamedTuple):
    """A campaign as it was before a pass that a process makes, and the moments at which that process could die."""

    wreck: Wreck
    now: datetime
    words: tuple[str, ...]
    points: list[str]


def _go(wreck: Wreck, now: datetime, kill_at: int, words: tuple[str, ...]) -> list[str]:
    """A process to its end, which is a kill unless `kill_at` is 0; the moments that it came to."""
    said: list[str] = []
    with Child(run_mortal, wreck.folder, now, kill_at, *words) as child:
        with suppress(EOFError, OSError, UnpicklingError):
            while True:
                said.append(child.hear())
        if not kill_at:
            child.finish()
    return said


def _deaths(points: list[str]) -> list[int]:
    """The moments to die at, counted from 1. Between two changes nothing on the disk moves: to die after one is to die
    before the next, and only a soak tries both.
    """
    if os.environ.get("PLIMSOLL_SOAK"):
        return list(range(1, len(points) + 1))
    kept = [point.startswith("after") and point != "after its process" for point in points]
    return [n for n, point in enumerate(points, start=1) if kept[n - 1] or n == 1 or point == "before its process"]


def _sail(start: Wreck, folder: Path) -> Iterator[Port]:
    """A campaign from its start to its end, pass by pass, with a copy of how it was before each."""
    wreck = start
    for number, now in enumerate(start.moments()):
        if wreck.is_done_with(now):
            continue
        wreck.wait_for_commands()
        before = wreck
        wreck = before.copy(folder / f"pass-{number}")
        yield Port(before, now, RUN, _go(wreck, now, 0, RUN))
    wreck.check(want_phase="done", want_worked=NODES)


def test_a_runner_that_is_killed_anywhere_is_made_up_for_by_the_next(tmp_path: Path) -> None:
    start = Wreck.build(tmp_path / "start")
    ports = list(_sail(start, tmp_path))
    points = [point for port in ports for point in port.points]
    for what in ("commit", "booking", "mark", "unmark", "command", "its process"):
        assert {f"before {what}", f"after {what}"} <= set(points)

    def kill(port: Port, number: int) -> None:
        wreck = port.wreck.copy(tmp_path / f"kill-{port.wreck.folder.name}-{number}")
        assert _go(wreck, port.now, number, RUN) == port.points[:number]
        wreck.finish()
        wreck.check(want_phase="done", want_worked=NODES)

    kills = [(port, number) for port in ports for number in _deaths(port.points)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda each: kill(*each), kills))
    assert len(kills) >= 30


def test_a_runner_that_is_killed_at_every_change_still_gets_there(tmp_path: Path) -> None:
    """Each process makes one change, and dies."""
    wreck = Wreck.build(tmp_path / "start")
    kills = 0
    for now in wreck.moments():
        for second in range(60):
            if wreck.is_done_with(now):
                break
            wreck.wait_for_commands()
            said = _go(wreck, now + timedelta(seconds=second), AFTER_ONE_CHANGE, RUN)
            if not said:
                break  # nothing to do now
            kills += 1
    wreck.check(want_phase="done", want_worked=NODES)
    assert kills >= 30


@pytest.fixture
def half_way(tmp_path: Path) -> Wreck:
    """`tiger` is being worked on, the first batch of `whale` drains still, the second has not begun."""
    wreck = Wreck.build(tmp_path / "start")
    (wreck.folder / "busy").touch()
    wreck.run_pass(MONDAY_NOON)
    wreck.wait_for_commands()
    steps = {name: str(each.step) for name, each in wreck.run.progress.items()}
    assert steps == {"tiger#1": "working", "whale#1": "draining"}
    return wreck


def test_a_cancel_that_is_killed_anywhere_is_made_up_for_by_the_next(half_way: Wreck, tmp_path: Path) -> None:
    now = MONDAY_NOON + timedelta(minutes=3)
    points = _go(half_way.copy(tmp_path / "whole"), now, 0, CANCEL)
    assert len(points) >= 10

    def kill(number: int) -> None:
        wreck = half_way.copy(tmp_path / f"kill-{number}")
        _go(wreck, now, number, CANCEL)
        if str(wreck.run.phase) == "running":
            _go(wreck, now, 0, CANCEL)  # nothing was said: whoever wanted it says it again
        for minutes in range(6, 24, 3):
            wreck.wait_for_commands()
            wreck.run_pass(MONDAY_NOON + timedelta(minutes=minutes))
        wreck.check(want_phase="cancelled", want_worked=["tiger-1", "tiger-2"])
        assert str(wreck.run.step_of("whale#1")) == "cancelled"
        assert str(wreck.run.step_of("whale#2")) == "planned"

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(kill, _deaths(points)))


def test_the_grace_of_a_batch_ends_although_its_runner_was_dead_meanwhile(half_way: Wreck) -> None:
    (half_way.folder / "busy").unlink()
    half_way.run_pass(MONDAY_NOON + LATER)
    assert str(half_way.run.step_of("whale#1")) == "working"
    half_way.finish()
    half_way.check(want_phase="done", want_worked=NODES)
