"""`kill -9` of `plimsoll cluster run` at every moment: before and after each commit and each call outside.

Whoever comes next finishes: every cluster gets into production, or out of it; each build, command and scale set is made
once; and no condition that was ever written was a lie (`tests/support/lifecycle_judge.py`).
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.support.buildkite import Fault
from tests.support.chance import new_chance
from tests.support.disks import small_disk
from tests.support.lifecycle_judge import Judge
from tests.support.parts import missing_part
from tests.support.shipyard import AFTER_ONE_CHANGE, Cloud, Shipyard
from tests.support.waiting import wait_until

AT_ONCE = 3
SOAK_CLUSTERS = int(os.environ.get("PLIMSOLL_SOAK_CLUSTERS") or 50)
SOAK_KILLS = 20 * SOAK_CLUSTERS
IN_KILLS, OUT_KILLS, CHAIN_KILLS = 20, 5, 18


class Port(NamedTuple):
    """Clusters as they were before a pass, and the moments at which the process that makes it could die."""

    yard: Shipyard
    points: list[str]


def _sail(yard: Shipyard, folder: Path, phase: str) -> list[Port]:
    """From where it is to the end, pass by pass, with a copy of how it was before each that did something."""
    ports: list[Port] = []
    for number in range(30):
        yard.tick()
        if yard.are(phase):
            return ports
        before = yard.copy(folder / f"pass-{phase}-{number}")
        before.buildkite.stop()
        if points := yard.go():
            ports.append(Port(before, points))
        yard.later(90)
    raise AssertionError(yard.told())


def _deaths(points: list[str]) -> list[int]:
    """The moments to die at, counted from 1. To die after something is to die before the next, and only a soak tries
    both; but what a look outside found is lost either way.
    """
    if os.environ.get("PLIMSOLL_SOAK"):
        return list(range(1, len(points) + 1))
    changes = ("after commit", "after create", "after command", "before its process", "after find", "after apply")
    return [n for n, point in enumerate(points, start=1) if n == 1 or point in changes]


def _kill_everywhere(ports: list[Port], folder: Path, phase: str) -> int:
    def kill(port: Port, number: int) -> None:
        with port.yard.copy(folder / f"kill-{port.yard.folder.name}-{number}") as yard:
            judge = Judge(yard)
            assert yard.go(kill_at=number) == port.points[:number]
            judge.look()
            # A moment later nothing has settled; much later everything has.
            yard.later(1)
            judge.run_pass()
            yard.drive(lambda: yard.are(phase), go=judge.run_pass)
            judge.end(phase)

    kills = [(port, number) for port in ports for number in _deaths(port.points)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda each: kill(*each), kills))
    return len(kills)


def test_a_controller_that_is_killed_anywhere_is_made_up_for_by_the_next(tmp_path: Path) -> None:
    with Shipyard.build(tmp_path / "start") as yard:
        yard.add("lynx")
        ports = _sail(yard, tmp_path, "production")
        Judge(yard).end("production")
        yard.said("cluster", "retire", "lynx")
        out = _sail(yard, tmp_path, "retired")
        Judge(yard).end("retired")
    points = {point for port in ports + out for point in port.points}
    for what in ("commit", "find", "create", "poll", "command", "its process"):
        assert {f"before {what}", f"after {what}"} <= points
    assert _kill_everywhere(ports, tmp_path, "production") >= IN_KILLS
    assert _kill_everywhere(out, tmp_path, "retired") >= OUT_KILLS


def test_a_controller_that_is_killed_at_every_change_still_gets_there(tmp_path: Path) -> None:
    """Each process makes one change or two, and dies: a cluster of the cloud and one of commands, in and out again."""
    with Shipyard.build(tmp_path / "yard", cloud=Cloud()) as yard:
        judge = Judge(yard)
        yard.add("lynx", islands=2)
        yard.add("moth", recipe="cloud", islands=2)

        changes = itertools.cycle((AFTER_ONE_CHANGE, -2, -2))

        def go() -> None:
            # Who always dies right after a commit begins nothing: what is begun is written down first.
            yard.go(kill_at=next(changes))
            judge.look()

        yard.drive(lambda: yard.are("production"), go=go)
        judge.end("production")
        for name in ("lynx", "moth"):
            yard.said("cluster", "retire", name)
        yard.drive(lambda: yard.are("retired"), go=go)
        judge.end("retired")
        assert yard.kills >= CHAIN_KILLS


# What goes wrong outside, and a controller that is killed on top of it.


def _lose_answers(yard: Shipyard) -> None:
    for fault in (Fault.LOSE, Fault.RESET, Fault.HALF, Fault.GARBAGE, Fault.ERROR_AFTER, Fault.DROP):
        yard.buildkite.fail(fault, method="POST")


def _fail_server(yard: Shipyard) -> None:
    yard.buildkite.fail(Fault.ERROR, times=12)


def _be_slow(yard: Shipyard) -> None:
    yard.buildkite.fail(Fault.SLOW, method="POST", seconds=0.8)
    yard.buildkite.fail(Fault.SLOW, method="GET", seconds=0.8, times=2)


def _fail_steps(yard: Shipyard) -> None:
    yard.fails = Counter({"lynx bootstrap": 2, "moth services": 1})
    yard.wish("lynx.fail=fill:NoCapacity moth.fail=burn-in:StepFailed")


TROUBLES: dict[str, Callable[[Shipyard], None]] = {
    "builds are created, and their answers lost": _lose_answers,
    "the server fails for a while": _fail_server,
    "answers take longer than anybody waits": _be_slow,
    "builds and commands fail at first": _fail_steps,
}


@pytest.mark.parametrize("what", TROUBLES)
def test_a_controller_that_is_killed_at_every_change_gets_through(what: str, tmp_path: Path) -> None:
    with Shipyard.build(tmp_path / "yard") as yard:
        judge = Judge(yard)
        yard.add("lynx", "moth")
        TROUBLES[what](yard)
        goes = itertools.count(1)

        def go() -> None:
            number = next(goes)
            if number % 3:
                yard.go(kill_at=AFTER_ONE_CHANGE)
                judge.look()
            else:
                judge.run_pass()
            if number > 12:
                yard.wish("")

        yard.drive(lambda: yard.are("production"), go=go)
        judge.end("production")
        assert yard.kills >= 6


@pytest.mark.parametrize("days", [0, -2])
def test_builds_that_are_not_in_the_lists_at_once_are_not_made_again(days: int, tmp_path: Path) -> None:
    """Who made one was killed before it heard so, and those who come next do not find it at first."""
    with Shipyard.build(tmp_path / "yard") as yard:
        judge = Judge(yard)
        yard.add("lynx")
        yard.go(kill_at=AFTER_ONE_CHANGE)
        assert not yard.buildkite.builds, "only the intent was written"
        yard.later(150)
        with yard.copy(tmp_path / "copy") as copy:
            place = copy.go().index("after create") + 1
        yard.buildkite.list_delay = 5
        yard.go(kill_at=place)
        assert len(yard.buildkite.builds) == 1, "it was made, and nobody heard so"
        yard.later(days * 86_400)
        for _ in range(3):
            yard.later(5)
            yard.go()
            judge.look()
        yard.drive(lambda: yard.are("production"))
        judge.end("production")


def test_too_many_requests_are_waited_out(tmp_path: Path) -> None:
    with Shipyard.build(tmp_path / "yard") as yard:
        judge = Judge(yard)
        yard.add("lynx")
        yard.buildkite.limit = 1
        for kill_at in (AFTER_ONE_CHANGE, 3, 4, 0):
            yard.buildkite.ask_as_others(5)
            yard.go(kill_at=kill_at)
            judge.look()
            yard.later(70)
        assert yard.buildkite.refused
        assert not yard.buildkite.builds
        yard.buildkite.limit = None
        yard.drive(lambda: yard.are("production"), go=judge.run_pass)
        judge.end("production")


def test_a_person_blocks_and_cancels_builds_between_the_kills(tmp_path: Path) -> None:
    with Shipyard.build(tmp_path / "yard") as yard:
        judge = Judge(yard)
        yard.add("lynx", "moth")
        yard.go(kill_at=AFTER_ONE_CHANGE)
        yard.later(70)
        judge.run_pass()
        numbers = {each["meta_data"]["cluster"]: each["number"] for each in yard.buildkite.builds}
        yard.buildkite.block(numbers["lynx"], pipeline="bootstrap")
        yard.buildkite.cancel_by_person(numbers["moth"], pipeline="bootstrap")
        for _ in range(3):
            yard.go(kill_at=AFTER_ONE_CHANGE)
            judge.look()
            yard.later(70)
        judge.run_pass()
        assert judge.records["lynx"].going["bootstrap"] == "blocked"
        assert judge.records["moth"].going["bootstrap"] == "stuck"
        assert len(yard.buildkite.builds) == 2, "nobody builds what a person has stopped"
        yard.buildkite.unblock(numbers["lynx"], pipeline="bootstrap")
        points = yard.copy(tmp_path / "copy").said("cluster", "retry", "moth", "bootstrap")
        for number in range(1, len(points) + 1):
            yard.said("cluster", "retry", "moth", "bootstrap", kill_at=number)
            judge.look()
            if judge.records["moth"].going["bootstrap"] == "retrying":
                break
        yard.drive(lambda: yard.are("production"), go=judge.run_pass)
        judge.end("production")
        assert judge.records["moth"].attempts["bootstrap"] == 2


def test_quota_that_shrinks_and_grows_is_never_promised_twice(tmp_path: Path) -> None:
    with Shipyard.build(tmp_path / "yard") as yard:
        judge = Judge(yard)
        yard.add("lynx", "moth", "wren")
        (row,) = yard.quota.values()
        one = row[0] // 3
        for limit in (0, one, 2 * one - 1, one, 2 * one, one // 2):
            row[0] = limit
            yard.write_quota()
            yard.go(kill_at=AFTER_ONE_CHANGE)
            judge.look()
            yard.later(30)
            judge.run_pass()
            yard.tick()
            yard.later(30)
        assert {each.phase for each in judge.records.values()} >= {"planned"}, "not all of them could be promised"
        row[0] = 6 * one  # a set that is full counts twice for a while
        yard.write_quota()
        yard.drive(lambda: yard.are("production"), go=judge.run_pass)
        judge.end("production")


# Kills that nobody planned.


def test_kills_at_moments_that_nobody_chose(tmp_path: Path) -> None:
    chance = new_chance()
    with Shipyard.build(tmp_path / "yard") as yard:
        judge = Judge(yard)
        yard.add("lynx", "moth")

        def go() -> None:
            _kill_by_timer(yard, chance)
            judge.look()

        yard.drive(lambda: yard.are("production"), go=go, seconds=(30, 150))
        judge.end("production")
        assert yard.kills >= 5


def _kill_by_timer(yard: Shipyard, chance: Random) -> None:
    """A controller that goes round, killed from outside a moment after it came to something."""
    with yard.child("cluster", "run", "--every", "1s", rate=10) as child:
        with suppress(EOFError):
            child.hear()
        time.sleep(chance.uniform(0, 0.1))
        child.kill()
    yard.kills += 1


def test_the_process_of_a_command_that_is_killed_is_known_to_be_lost(tmp_path: Path) -> None:
    with Shipyard.build(tmp_path / "yard") as yard:
        judge = Judge(yard)
        yard.add("lynx")
        yard.go()
        yard.tick()
        yard.wish("lynx.seconds=30")
        yard.later(70)
        yard.go()
        wait_until(lambda: bool(judge.begun()), what="the machines are on their way")
        killed = _kill_errands(yard)
        assert killed >= 2, "who runs it, and the command"
        yard.wish("")
        yard.drive(lambda: yard.are("production"), go=judge.run_pass)
        judge.end("production")
        assert judge.records["lynx"].attempts["scale-sets"] == 2


def _kill_errands(yard: Shipyard) -> int:
    """SIGKILL to all processes that were begun in this folder; how many there were."""
    found = []
    for place in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            words = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
            if place.name.isdigit() and str(yard.errands).encode() in words and int(place.name) != os.getpid():
                found.append(int(place.name))
    for process in found:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    yard.kills += len(found)
    return len(found)


SHEET = "cluster,region,area,colo,provider,purpose,subscription,sku,nodes,recipe\n" + "".join(
    f"{name},eastus,us,,azure,research,sub-a,H200,2,yard\n" for name in ("lynx", "moth")
)


def test_what_people_say_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    with Shipyard.build(tmp_path / "yard") as yard:
        judge = Judge(yard)
        yard.add("wren")
        (yard.folder / "planned.csv").write_text(SHEET)
        said: dict[tuple[str, ...], Callable[[], bool]] = {
            ("import", "planned.csv"): lambda: len(judge.records) == 3,
            ("checkin", "lynx"): lambda: judge.records["lynx"].is_checked_in,
            ("checkin", "moth"): lambda: judge.records["moth"].is_checked_in,
        }
        for words, is_said in said.items():
            for number in (1, 2):
                assert not is_said()
                yard.said("cluster", *words, kill_at=number)
                judge.look()
                assert len(judge.records) in (1, 3)
            assert is_said(), "it was killed after its commit"
            yard.said("cluster", *words)  # said again, nothing changes
        for row in yard.quota.values():
            row[0] *= 3
        yard.write_quota()
        yard.drive(lambda: yard.are("production"), go=judge.run_pass)
        judge.end("production")
        for number in (1, 2):
            yard.said("cluster", "retire", "moth", kill_at=number)
            judge.look()
        yard.drive(lambda: yard.are("retired", "moth"), go=judge.run_pass)
        judge.end("retired", "moth")


# Commands that can't be begun, or can't be seen.


def _to_machines(yard: Shipyard) -> None:
    """As far as the step whose commands run here, which is the next."""
    yard.go()
    yard.tick()
    yard.later(70)


def test_a_full_disk_stops_a_step_and_nothing_is_taken_for_begun(tmp_path: Path) -> None:
    with Shipyard.build(tmp_path / "yard") as yard, small_disk(1) as disk:
        if disk is None:
            missing_part("the right to mount a disk")
        judge = Judge(yard)
        yard.errands = disk.folder / "errands"
        yard.add("lynx")
        _to_machines(yard)
        filler = disk.folder / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        for _ in range(3):
            judge.run_pass()
            yard.later(400)
        assert judge.records["lynx"].going["scale-sets"] == "intended"
        assert not judge.begun()
        filler.unlink()
        (yard.folder / "log").touch()
        yard.later(60)
        yard.run_pass()
        yard.wait_for_commands()
        judge.look()


def test_commands_in_another_folder_are_not_begun_again_by_themselves(tmp_path: Path) -> None:
    with Shipyard.build(tmp_path / "yard") as yard:
        judge = Judge(yard)
        yard.add("lynx")
        _to_machines(yard)
        yard.wish("lynx.seconds=1")
        yard.go(kill_at=yard.copy(tmp_path / "copy").go().index("after command") + 1)
        here, yard.errands = yard.errands, yard.folder / "ledger.db.elsewhere"
        for _ in range(3):
            judge.run_pass()
            yard.later(100)
        assert judge.records["lynx"].attempts["scale-sets"] == 1
        assert judge.records["lynx"].conditions["ScaleSetsReady"] == "Unknown"
        yard.errands = here
        yard.drive(lambda: yard.are("production"), go=judge.run_pass)
        judge.end("production")
        assert judge.records["lynx"].attempts["scale-sets"] == 1


def test_a_folder_of_commands_that_is_gone_waits_for_a_person(tmp_path: Path) -> None:
    with Shipyard.build(tmp_path / "yard") as yard:
        judge = Judge(yard)
        yard.add("lynx")
        _to_machines(yard)
        yard.go()
        yard.wait_for_commands()
        shutil.rmtree(yard.errands)
        for _ in range(2):
            judge.run_pass()
            yard.later(100)
        assert judge.records["lynx"].conditions["ScaleSetsReady"] == "Unknown"
        yard.said("cluster", "retry", "lynx", "scale-sets", "--lost")
        yard.drive(lambda: yard.are("production"), go=judge.run_pass)
        assert judge.records["lynx"].attempts["scale-sets"] == 2
        assert set(judge.begun().values()) == {1}


# Clocks.


@pytest.mark.parametrize("days", [-2, 2])
def test_a_clock_that_jumps_begins_nothing_twice_and_nothing_waits_for_ever(days: int, tmp_path: Path) -> None:
    with Shipyard.build(tmp_path / "start") as start:
        start.add("lynx")
        ports = _sail(start, tmp_path, "production")

    def jump(port: Port, number: int) -> None:
        with port.yard.copy(tmp_path / f"jump-{port.yard.folder.name}-{number}") as yard:
            judge = Judge(yard)
            yard.go(kill_at=number)
            yard.later(days * 86_400)
            yard.drive(lambda: yard.are("production"), go=judge.run_pass)
            judge.end("production")
            assert yard.now - port.yard.now < timedelta(days=days, hours=1), "it waited for the clock"

    deaths = [(port, number) for port in ports for number in _deaths(port.points)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda each: jump(*each), deaths[::4]))


# A soak: kills at random, and everything that goes wrong outside at random, too.


@pytest.mark.soak
def test_a_thousand_kills_over_fifty_clusters(tmp_path: Path) -> None:
    chance = new_chance()
    with Shipyard.build(tmp_path / "yard", cloud=Cloud()) as yard:
        judge = Judge(yard)
        drives = itertools.count(1)

        def go() -> None:
            if chance.random() < 0.2:
                yard.buildkite.fail(chance.choice(list(Fault)), method=chance.choice(["POST", "GET", ""]), seconds=0.7)
            if next(drives) % SOAK_CLUSTERS == 0:
                yard.wish("")
            if chance.random() < 0.1:
                _kill_by_timer(yard, chance)
            elif chance.random() < 0.05:
                _kill_errands(yard)
            else:
                yard.go(kill_at=chance.choice([AFTER_ONE_CHANGE, -2, -3, 1, 2, 3, 5]))
            judge.look()
            for name, record in judge.records.items():  # a person, where one is asked for
                if "stuck" in record.going.values():
                    yard.said("cluster", "retry", name)

        for generation in itertools.count(1):
            if yard.kills >= SOAK_KILLS:
                break
            names = [f"c{generation}-{number:02d}" for number in range(SOAK_CLUSTERS)]
            yard.add(*names[::2])
            yard.add(*names[1::2], recipe="cloud")
            steps = [chance.choice(["fill", "burn-in", "checkin"]) for _ in names]
            yard.wish(" ".join(f"{name}.fail={step}:NoCapacity" for name, step in zip(names, steps, strict=True)))
            for phase in ("production", "retired"):
                yard.drive(partial(yard.are, phase, *names), go=go, drives_max=50 * SOAK_KILLS)
                judge.end(phase, *names)
                for name in names if phase == "production" else ():
                    yard.said("cluster", "retire", name)
        print(f"{yard.kills} kills, {judge.count} events judged")  # noqa: T201
