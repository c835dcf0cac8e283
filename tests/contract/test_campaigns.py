"""One suite for both databases: a campaign is carried out by one at a time, and another goes on where it was."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.marks.model import Acted, NoMarks
from plimsoll.campaigns.run.outside import Outside
from plimsoll.campaigns.run.progress import Run
from plimsoll.campaigns.service import run_pass
from plimsoll.connect.errands import OUT_BYTES_MAX
from plimsoll.errors import Fenced, Unavailable
from plimsoll.fleet.fold import Fleet
from plimsoll.health.fold import Health
from plimsoll.ledger.verify import verify
from plimsoll.rooms import KINDS, open_keeper
from plimsoll.state.keeper import Keeper
from plimsoll.times import parse_time
from tests.support.command import plimsoll
from tests.support.dock import FILE, Dock, FakeErrands, with_lines
from tests.support.ledgers import events_of, fold_of
from tests.support.wreck import FileMarks

NOON = parse_time("2026-01-05T11:00:00Z")
AUTOMATIC = with_lines(FILE, "run: {grace_minutes: 0, work: [update], validate: [check]}")


class SharedErrands(FakeErrands):
    """The same folder of commands for several runners."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def begin(
        self,
        name: str,
        words: Sequence[str],
        *,
        environment: Mapping[str, str],
        lines: Sequence[str],
        seconds_max: float = 0.0,
        files: Mapping[str, str] | None = None,
        out_bytes_max: int = OUT_BYTES_MAX,
    ) -> bool:
        with self._lock:
            return super().begin(name, words, environment=environment, lines=lines, seconds_max=seconds_max)


class ElsewhereErrands(FakeErrands):
    """The folder of another machine: it does not know what was begun on the first."""

    @property
    def where(self) -> str:
        return "elsewhere"


class DeafMarks(NoMarks):
    """A scheduler that can't be reached."""

    def mark(self, batch: str, nodes: Sequence[str], *, starts: datetime, ends: datetime, reason: str) -> Acted:
        assert nodes
        assert starts < ends
        assert reason
        raise Unavailable("scheduler_down", f"no answer about {batch}")


def _build(dsn: str) -> None:
    """tiger whole and whale in two batches, from Monday noon on."""
    dock = Dock({"tiger": 2, "whale": 6}, AUTOMATIC, dsn=dsn)
    dock.plan(tiger="05T11:00", whale="05T11:00")
    dock.start()
    dock.keeper.close()


def _keeper(dsn: str, now: datetime = NOON) -> Keeper:
    return open_keeper(dsn, clock=lambda: now)


def _run(keeper: Keeper) -> Run:
    return keeper.state().of(Campaigns).runs["nic"]


def _check_done(dsn: str) -> None:
    with _keeper(dsn) as keeper:
        state = keeper.state()
        assert str(_run(keeper).phase) == "done"
        assert {str(node.service) for node in state.of(Fleet).nodes.values()} == {"in_service"}
        assert not state.of(Health).holds
        assert not state.of(Health).ahead
        assert verify(keeper.ledger.store).is_whole
        assert fold_of(events_of(keeper.ledger), KINDS).dump() == state.dump()


def _moments() -> list[datetime]:
    return [NOON + timedelta(days=day, minutes=minute) for day in range(2) for minute in range(6)]


def test_a_campaign_is_the_same_on_both(dsn: str) -> None:
    _build(dsn)
    errands = SharedErrands()
    for now in _moments():
        with _keeper(dsn, now) as keeper:
            lead = keeper.ledger.store.lead("runner")
            assert lead is not None
            run_pass(keeper, "nic", actor="runner", outside=Outside(errands), epoch=lead.epoch)
            lead.resign()
    _check_done(dsn)
    assert len(errands.begun) == 6, "three batches, each worked on and validated once"


def test_the_second_runner_is_refused_while_the_first_leads(dsn: str) -> None:
    _build(dsn)
    with _keeper(dsn) as first:
        lead = first.ledger.store.lead("campaign run 7")
        assert lead is not None
        ran = plimsoll("campaign", "run", "nic", "-o", "json", db=dsn)
        assert ran.code != 0
        assert "another_runs" in ran.out + ran.err
        assert "campaign run 7" in ran.out + ran.err
        run_pass(first, "nic", actor="runner", outside=Outside(SharedErrands()), epoch=lead.epoch)
        assert str(_run(first).step_of("tiger#1")) == "working"
        lead.resign()
        second = first.ledger.store.lead("the second, later")
        assert second is not None
        second.resign()


def test_a_runner_that_leads_no_more_touches_nothing_outside(dsn: str, tmp_path: Path) -> None:
    """It slept while another took over: neither a commit of its, nor a mark, nor a command."""
    _build(dsn)
    (tmp_path / "marks").mkdir()
    errands = SharedErrands()
    outside = Outside(errands, lambda _campaign, cluster: FileMarks(tmp_path, cluster))
    with _keeper(dsn) as old, _keeper(dsn) as new:
        first = old.ledger.store.lead("old")
        assert first is not None
        run_pass(old, "nic", actor="old", outside=Outside(errands, lambda *_: DeafMarks()), epoch=first.epoch)
        assert {str(each.step) for each in _run(old).progress.values()} == {"marking"}
        first.resign()
        second = new.ledger.store.lead("new")
        assert second is not None
        head = new.ledger.head()
        with pytest.raises(Fenced):
            run_pass(old, "nic", actor="old", outside=outside, epoch=first.epoch)
        assert new.ledger.head() == head
        assert not list((tmp_path / "marks").iterdir())
        run_pass(new, "nic", actor="new", outside=outside, epoch=second.epoch)
        assert [name.split()[-2:] for name in errands.begun] == [["work", "1"], ["work", "1"]]
        with pytest.raises(Fenced):
            run_pass(old, "nic", actor="old", outside=outside, epoch=first.epoch)
        assert len(errands.begun) == 2, "the work ended, and the old one does not go on with it"
        second.resign()


def test_a_cancel_beside_a_runner_leaves_no_mark_behind(dsn: str, tmp_path: Path) -> None:
    """Somebody cancels while the runner marks: the runner alone acts, and takes its mark back."""
    _build(dsn)
    (tmp_path / "marks").mkdir()
    said: list[str] = []

    class Interrupted(FileMarks):
        def mark(self, batch: str, nodes: Sequence[str], *, starts: datetime, ends: datetime, reason: str) -> Acted:
            if not said:
                said.append(plimsoll("campaign", "cancel", "nic", db=dsn).out)
            return super().mark(batch, nodes, starts=starts, ends=ends, reason=reason)

    outside = Outside(SharedErrands(), lambda _campaign, cluster: Interrupted(tmp_path, cluster))
    with _keeper(dsn) as keeper:
        lead = keeper.ledger.store.lead("campaign run 7")
        assert lead is not None
        for _ in range(2):
            run_pass(keeper, "nic", actor="runner", outside=outside, epoch=lead.epoch)
        assert "campaign run 7" in said[0]
        assert str(_run(keeper).phase) == "cancelled"
        assert not list((tmp_path / "marks").iterdir())
        assert not keeper.state().of(Health).holds
        lead.resign()


def test_two_who_act_at_once_begin_everything_once(dsn: str) -> None:
    """Without the lead, too: commits are judged by what they read."""
    _build(dsn)
    errands = SharedErrands()

    def act(name: str) -> None:
        for now in _moments():
            with _keeper(dsn, now) as keeper:
                run_pass(keeper, "nic", actor=name, outside=Outside(errands))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(act, ["one", "two"]))
    _check_done(dsn)
    assert len(errands.begun) == len(set(errands.begun)) == 6


def test_another_machine_knows_that_it_can_not_know_how_a_command_went(dsn: str) -> None:
    """Its folder is empty, and the ledger says that the command was begun elsewhere: that is another attempt."""
    _build(dsn)
    here, there = SharedErrands(), ElsewhereErrands()
    with _keeper(dsn) as keeper:
        run_pass(keeper, "nic", actor="here", outside=Outside(here))
        assert len(here.begun) == 2
    for minutes in range(1, 5):
        with _keeper(dsn, NOON + timedelta(minutes=minutes)) as keeper:
            run_pass(keeper, "nic", actor="there", outside=Outside(there))
            assert there.begun == [], "not at once: whoever has begun it may still be at it"
            assert {each.attempt for each in _run(keeper).progress.values()} == {2}
    with _keeper(dsn, NOON + timedelta(minutes=6)) as keeper:
        run_pass(keeper, "nic", actor="there", outside=Outside(there))
        assert sorted(name.split()[-2:] for name in there.begun) == [["work", "2"], ["work", "2"]]
