"""Two controllers of clusters on one database: one acts, whatever becomes of it, and nothing is done twice."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from plimsoll.ledger.store import Leadership
from plimsoll.lifecycle.service import ROLE
from tests.support.children import Child
from tests.support.ledgers import raw
from tests.support.lifecycle_judge import Judge
from tests.support.postgres import PrivatePostgres
from tests.support.shipyard import Shipyard
from tests.support.waiting import wait_until

QUIET_SECONDS = 3.0
MOMENTS = ["after find", "before command"]
if os.environ.get("PLIMSOLL_SOAK"):
    MOMENTS += ["after commit", "before find", "after create"]
RATE = 60.0
"""How many seconds of the clock pass in one, where controllers go round by themselves."""


def test_a_second_controller_of_a_file_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    with Shipyard.build(tmp_path / "yard") as yard:
        judge = Judge(yard)
        yard.add("lynx")
        with yard.child("cluster", "run", "--every", "1s", rate=RATE, stop_at="after commit") as first:
            assert first.hear() == "before commit"
            assert first.hear() == "after commit"
            points = yard.go(may_exit=True)  # the first one is frozen, and leads still
            assert points == ["exit 1"]
            with yard.child("cluster", "run", "--every", "1s", rate=RATE) as second:
                first.kill()
                assert second.hear().startswith("before"), "the one that stood by goes on"
                _watch(yard, judge, "production")
        judge.end("production")


def test_whoever_stands_by_takes_over_from_a_leader_that_is_killed(postgres: PrivatePostgres, tmp_path: Path) -> None:
    with Shipyard.build(tmp_path / "yard", dsn=postgres.new_database()) as yard:
        judge = Judge(yard)
        yard.add("lynx", "moth")
        leader = yard.child("cluster", "run", "--every", "1s", rate=RATE)
        for moment in ("after create", "before its process", "after commit", "before poll", "after commit"):
            with leader:
                _hear_until(leader, moment)
                following = yard.child("cluster", "run", "--every", "1s", rate=RATE)
                leader.kill()
            yard.kills += 1
            leader = following
            yard.tick()
            judge.look()
        with leader:
            _watch(yard, judge, "production")
        judge.end("production")


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_leader_that_was_frozen_does_nothing_when_it_wakes_up(
    moment: str, postgres: PrivatePostgres, tmp_path: Path
) -> None:
    with Shipyard.build(tmp_path / "yard", dsn=postgres.new_database()) as yard:
        judge = Judge(yard)
        yard.add("lynx")
        with yard.child("cluster", "run", "--every", "1s", rate=RATE, stop_at=moment) as old, ExitStack() as stack:
            old.hear()  # it leads

            def is_frozen() -> bool:
                yard.tick()
                return _is_frozen(old)

            wait_until(is_frozen, what=f"it came to {moment}")
            stack.enter_context(yard.child("cluster", "run", "--every", "1s", rate=RATE))
            _cut_off_leader(yard)
            _watch(yard, judge, "production")
            os.kill(old.pid, signal.SIGCONT)
            _hear_out(old)
            old.kill()
        judge.end("production")


def test_the_commit_of_a_leader_whose_lead_is_over_is_refused(postgres: PrivatePostgres, tmp_path: Path) -> None:
    with Shipyard.build(tmp_path / "yard", dsn=postgres.new_database()) as yard, yard.keeper() as keeper:
        yard.add("lynx")
        before = keeper.ledger.head().revision
        with yard.child("cluster", "run", "--every", "1s", rate=RATE, stop_at="before commit") as old:
            wait_until(lambda: _is_frozen(old), what="it is about to commit")
            _cut_off_leader(yard)
            leads: list[Leadership] = []

            def is_taken() -> bool:
                lead = keeper.ledger.store.lead("another one", ROLE)
                leads.extend([lead] if lead else [])
                return bool(leads)

            wait_until(is_taken, what="another one leads")
            os.kill(old.pid, signal.SIGCONT)
            _hear_out(old)
            old.kill()
            leads[0].resign()
        assert keeper.ledger.head().revision == before, "nothing of what it decided was kept"
        assert not yard.buildkite.requests


def _cut_off_leader(yard: Shipyard) -> None:
    """Its host is cut off: the server gives the lead away."""
    with raw(yard.dsn) as run:
        run("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")


def _hear_until(child: Child, moment: str) -> None:
    while child.hear() != moment:
        pass


def _hear_out(child: Child) -> None:
    """Let one that woke up do what it still does, until it stands by."""
    with suppress(EOFError):
        while child.says_more(QUIET_SECONDS):
            child.hear()


def _is_frozen(child: Child) -> bool:
    return Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _watch(yard: Shipyard, judge: Judge, phase: str) -> None:
    """Time passes outside while controllers go round."""

    def is_there() -> bool:
        yard.tick()
        judge.look()
        time.sleep(0.05)
        return yard.are(phase)

    wait_until(is_there, what=f"all are in {phase}", seconds_max=60)
