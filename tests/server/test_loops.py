"""One process leads what can be led: its loops do what the commands do, fail alone, and are taken over from."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from plimsoll.connect.errands import Errands, Going
from plimsoll.errors import Fenced, PlimsollError, Refused, Unavailable
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.acts import Acting, place_hold
from plimsoll.health.facts import Hold
from plimsoll.health.service import act
from plimsoll.ledger import open_store
from plimsoll.ledger.model import Paper
from plimsoll.lifecycle.outside import Found
from plimsoll.lifecycle.service import operations_over
from plimsoll.rooms import open_keeper
from plimsoll.server.loops import Controllers
from plimsoll.server.loops_passes import Checks, settings_of
from plimsoll.server.loops_role import Loop, LoopStatus, Turn
from plimsoll.state.keeper import Keeper
from plimsoll.times import format_time
from tests.support.children import Child
from tests.support.command import plimsoll
from tests.support.dock import FILE, MONDAY, Dock, with_lines
from tests.support.health import POLICY, Ward
from tests.support.imports import IN_MEMORY
from tests.support.postgres import PrivatePostgres
from tests.support.slipway import Slip
from tests.support.waiting import wait_until

NAMES = ("health", "quota", "workloads", "checks", "campaigns", "lifecycle", "incidents", "papers", "errands")
OFTEN = dict.fromkeys(NAMES, 0.05)
TAKE_OVER_SECONDS_MAX = 10.0
BY_COMMANDS = with_lines(FILE, 'run: {grace_minutes: 0, work: ["true"], validate: ["true"]}')


class Counting:
    """A pass that counts how often it was made, and may fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.count, self.error = 0, error

    def run(self, _turn: Turn) -> PlimsollError | None:
        self.count += 1
        if self.error is not None:
            raise self.error
        return None

    def loop(self, name: str, role: str = "a", every_seconds: float = 0.02) -> Loop:
        return Loop(name, role, every_seconds, self.run)


@contextmanager
def _running(
    dsn: str, *loops: Loop, make: Callable[[], Keeper] | None = None, **settings: Any
) -> Iterator[Controllers]:
    with open_keeper(dsn, create=True):
        pass
    with Controllers(
        make or (lambda: open_keeper(dsn)), settings_of(dsn, environment={}, **settings), loops=loops or None
    ) as controllers:
        yield controllers


def _status(controllers: Controllers, name: str) -> LoopStatus:
    return next(each for each in controllers.status() if each.name == name)


# A loop of its own.

FAILURES: dict[str, tuple[Exception, str]] = {
    "a refusal is told with its code": (Refused("no_room", "no room for 8"), "no_room: no room for 8"),
    "what nobody has foreseen is told as that": (ValueError("oh"), "unexpected: ValueError: oh"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_loop_that_fails_stops_no_other_never_spins_and_says_why(case: str, sqlite_dsn: str) -> None:
    error, want_told = FAILURES[case]
    bad, beside, apart = Counting(error), Counting(), Counting()
    loops = bad.loop("bad"), beside.loop("beside"), apart.loop("apart", "b")
    with _running(sqlite_dsn, *loops) as controllers:
        time.sleep(0.8)
        status = _status(controllers, "bad")
        assert f"{status.error_code}: {status.error_message}" == want_told
        assert status.failures == bad.count
        assert status.lag_seconds > 0.5, "no good pass was made yet"
        assert 3 <= bad.count <= 6, "0.02 s doubles after each: 0.04, 0.08, 0.16, 0.32, 0.64"
        for good, name in ((beside, "beside"), (apart, "apart")):
            assert good.count > 5 * bad.count / 2
            assert _status(controllers, name).error_code == ""
            assert _status(controllers, name).lag_seconds < status.lag_seconds
        bad.error = None
        wait_until(lambda: _status(controllers, "bad").error_code == "", what="it is well again", seconds_max=3)


def test_a_part_that_failed_is_told_and_the_next_pass_is_not_put_off(sqlite_dsn: str) -> None:
    count = [0]

    def run(_turn: Turn) -> PlimsollError | None:
        count[0] += 1
        return Unavailable("scheduler_not_told", "tiger: no answer")

    with _running(sqlite_dsn, Loop("partly", "a", 0.02, run)) as controllers:
        wait_until(lambda: count[0] > 10, what="it goes on at its pace", seconds_max=3)
        assert _status(controllers, "partly").error_code == "scheduler_not_told"


def test_a_database_that_is_away_at_first_is_waited_for(sqlite_dsn: str) -> None:
    attempts = [0]

    def make() -> Keeper:
        attempts[0] += 1
        if attempts[0] < 2:
            raise Unavailable("database_unreachable", "no connection")
        return open_keeper(sqlite_dsn)

    passing = Counting()
    with _running(sqlite_dsn, passing.loop("one"), make=make) as controllers:
        wait_until(lambda: _status(controllers, "one").error_code != "", what="the error is told", seconds_max=2)
        assert _status(controllers, "one").error_code == "database_unreachable"
        wait_until(lambda: passing.count > 0, what="it began", seconds_max=5)
        wait_until(lambda: _status(controllers, "one").error_code == "", what="it is well", seconds_max=2)


def test_a_pass_that_was_fenced_lets_the_lead_go(sqlite_dsn: str) -> None:
    fenced = Counting(Fenced("fenced", "another leads"))
    with _running(sqlite_dsn, fenced.loop("one")) as controllers, closing(open_store(sqlite_dsn)) as store:
        wait_until(lambda: fenced.count > 0, what="a pass was made")
        wait_until(lambda: not _status(controllers, "one").is_leading, what="it stands by", seconds_max=2)
        lead = store.lead("another", "a")
        assert lead is not None, "anybody may lead now"
        lead.resign()


def test_the_loop_of_checks_begins_none_for_who_leads_no_more(tmp_path: Path) -> None:
    """The pass is made in the thread that led; what a check does outside is not done twice."""
    marks, check = tmp_path / "marks", 'run: [sh, -c, "echo x >> MARKS"]'.replace("MARKS", str(tmp_path / "marks"))
    policy = POLICY.partition("validation:\n")[0] + f"validation:\n  - {{check: diag, {check}, timeout: 10s}}\n"
    with Ward(1, policy=policy) as ward:
        ward.set("quarantined", "n1")
        ward.set("validating", "n1")
        passing = Checks(settings_of(IN_MEMORY))
        old = ward.keeper.ledger.store.lead("old", "checks")
        assert old is not None
        old.resign()
        new = ward.keeper.ledger.store.lead("new", "checks")
        assert new is not None
        with pytest.raises(Fenced):
            passing.run(Turn(ward.keeper, old, ward.now))
        assert not marks.exists()
        assert passing.run(Turn(ward.keeper, new, ward.now)) is None
        assert marks.read_text() == "x\n"


def test_the_end_waits_for_the_pass_in_hand_and_leaves_the_lead_to_the_next(sqlite_dsn: str) -> None:
    begun, may_end, is_ended = threading.Event(), threading.Event(), threading.Event()

    def run(_turn: Turn) -> None:
        begun.set()
        assert may_end.wait(10)
        is_ended.set()

    with _running(sqlite_dsn, Loop("long", "a", 60.0, run)) as controllers:
        assert begun.wait(10)
        assert not controllers.stop(seconds_max=0.05), "the pass goes on"
        with closing(open_store(sqlite_dsn)) as store:
            assert store.lead("another", "a") is None, "it leads until its pass is over"
            may_end.set()
            began = time.monotonic()
            assert controllers.stop()
            assert is_ended.is_set()
            assert time.monotonic() - began < 10, "it does not wait for the next pass"
            lead = store.lead("another", "a")
            assert lead is not None
            lead.resign()


# The real ones.


def _settled(controllers: Controllers) -> bool:
    return all(each.passes > 1 for each in controllers.status())


def test_all_loops_make_their_passes_on_both_databases(dsn: str, tmp_path: Path) -> None:
    dock = Dock({"lynx": 2, "moth": 1}, BY_COMMANDS, dsn=dsn)
    dock.plan(lynx="05T11:00", moth="08T11:00")
    dock.start()
    store = dock.keeper.ledger.store
    hold = Hold("h1", "alice", Service.MAINTENANCE, "cable", MONDAY, expires_at=MONDAY + timedelta(hours=1))

    def decide(state: Any, acting: Acting) -> Any:
        return place_hold(state, [state.of(Fleet).nodes["moth-1"]], hold, acting)

    act(dock.keeper, decide, actor="alice", reason="cable", names=["moth-1"])
    store.keep_paper(Paper("link", "old", format_time(MONDAY), "{}"))
    store.keep_paper(Paper("link", "new", format_time(MONDAY + timedelta(days=9)), "{}"))
    dock.at("05T11:00")
    errands = tmp_path / "errands"
    with _running(
        dsn,
        make=lambda: open_keeper(dsn, clock=lambda: dock.now),
        every=OFTEN,
        errands=errands,
        errands_kept=timedelta(0),
    ) as controllers:
        wait_until(lambda: _settled(controllers), what="every loop went round")
        wait_until(lambda: not dock.holds("moth-1"), what="the hold has expired", seconds_max=5)
        assert [paper.id for paper in store.papers("link")] == ["new"]
        wait_until(lambda: dock.step("lynx#1") == "validating", what="the batch was worked on", seconds_max=20)
        dock.at("05T12:00")
        wait_until(lambda: dock.step("lynx#1") == "returned", what="the batch came back", seconds_max=20)
        wait_until(lambda: not list(errands.glob("nic*")), what="what its commands left is cleaned up")
        statuses = controllers.status()
    assert [each.error_message for each in statuses] == [""] * len(OFTEN)
    assert [each.name for each in statuses if each.is_leading] == list(NAMES)
    dock.keeper.close()


def test_only_commands_that_are_over_long_ago_and_known_are_forgotten(tmp_path: Path) -> None:
    errands = Errands(tmp_path)
    for name in ("over", "over yesterday", "of somebody else"):
        errands.begin(name, ["true"], environment={}, lines=[])
    runs = tmp_path / "runs"
    errands.begin("runs", ["sh", "-c", f"while [ ! -e {runs} ]; do sleep 0.02; done"], environment={}, lines=[])
    for name in ("over", "over yesterday", "of somebody else"):
        wait_until(lambda name=name: errands.look(name)[0] is Going.ENDED, what=f"{name} ended")  # type: ignore[misc]
    now = time.time()
    for folder in tmp_path.glob("*-*"):
        days = 1 if folder.name.startswith("over-yesterday") else 30
        os.utime(folder, (now - days * 86_400,) * 2)
    known = ["over", "over yesterday", "runs", "never begun"]
    assert errands.forget_old(known, before=now - 14 * 86_400) == 1
    want = {"over": Going.NOT_BEGUN, "over yesterday": Going.ENDED, "of somebody else": Going.ENDED}
    assert {name: errands.look(name)[0] for name in want} == want
    assert errands.look("runs")[0] is Going.RUNNING
    runs.touch()
    wait_until(lambda: errands.look("runs")[0] is Going.ENDED, what="it ended")


def test_an_attempt_is_over_when_its_end_is_recorded_and_nobody_looks_at_it_any_more() -> None:
    with Slip() as slip:
        slip.begin()
        slip.finish("checkin")
        slip.cloud.set("lynx", "bootstrap", Found.FAILED, "", "exit 1")
        slip.run(minutes=1)
        slip.run(hours=1)
        assert slip.life().works["bootstrap"].attempt == 2, "the second one runs"
        assert sorted(operations_over(slip.state)) == ["u1-lynx-bootstrap-1", "u1-lynx-checkin-1"]
        slip.finish("bootstrap", "dependencies", "scale-sets")
        over = operations_over(slip.state)
        assert "u1-lynx-bootstrap-2" in over
        assert "u1-lynx-scale-sets-1" not in over, "whether its machines are still there is looked at for ever"


def test_a_command_hears_that_the_server_carries_campaigns_out(sqlite_dsn: str) -> None:
    with _running(sqlite_dsn) as controllers:
        wait_until(lambda: _status(controllers, "campaigns").is_leading, what="it leads")
        ran = plimsoll("campaign", "run", db=sqlite_dsn)
        assert ran.code == 1
        assert f"serve {os.uname().nodename} {os.getpid()}" in ran.err


# Two processes.


def serve_for_ever(tell: Callable[[Any], None], dsn: str) -> None:
    """In a process of its own: say the status again and again."""
    with Controllers(lambda: open_keeper(dsn), settings_of(dsn, environment={})) as controllers:
        while True:
            wait_until(lambda: all(each.leader for each in controllers.status()), what="a leader is known")
            tell([(each.name, each.is_leading, each.leader) for each in controllers.status()])
            time.sleep(0.05)


def test_of_two_processes_one_leads_and_the_other_takes_over_when_it_is_killed(postgres: PrivatePostgres) -> None:
    dsn = postgres.new_database()
    with open_keeper(dsn, create=True), Child(serve_for_ever, dsn) as first:
        first.hear()
        wait_until(lambda: all(leads for _, leads, _ in first.hear()), what="the first leads all")
        with _running(dsn) as second:
            wait_until(lambda: all(each.leader for each in second.status()), what="the second looked")
            assert not any(each.is_leading for each in second.status()), "one leads each role"
            assert {each.leader for each in second.status()} == {leader for _, _, leader in first.hear()}
            first.kill()
            killed = time.monotonic()
            wait_until(lambda: all(each.is_leading for each in second.status()), what="the second took over")
            assert time.monotonic() - killed < TAKE_OVER_SECONDS_MAX
            wait_until(lambda: all(each.passes for each in second.status()), what="and goes on")


STARTS_AT_ONCE = """
import sys
from plimsoll.lifecycle.outside import Found
from plimsoll.lifecycle.service import operations_over
from plimsoll.rooms import open_keeper
from plimsoll.server.loops import Controllers
from plimsoll.server.loops_role import Loop
from plimsoll.server.loops_passes import settings_of
dsn = sys.argv[1]
loops = [Loop(str(number), str(number), 60.0, lambda turn: None) for number in range(12)]
controllers = Controllers(lambda: open_keeper(dsn), settings_of(dsn, environment={}), loops=loops)
sys.setswitchinterval(1e-6)
with controllers:
    while not all(each.passes for each in controllers.status()):
        pass
"""


def test_many_threads_that_read_their_first_snapshot_at_once_do_not_crash(sqlite_dsn: str) -> None:
    with Dock({"lynx": 3}, dsn=sqlite_dsn).keeper as keeper:
        keeper.snapshot()
    ran = subprocess.run(
        [sys.executable, "-c", STARTS_AT_ONCE, sqlite_dsn], capture_output=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr.decode()) == (0, "")
