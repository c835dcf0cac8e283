"""One suite for both databases: a cluster goes into production with real commands, and its ledger tells it again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from plimsoll.connect.azure import Azure
from plimsoll.connect.errands import Errands
from plimsoll.errors import Fenced, Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Phase, Purpose
from plimsoll.ledger.model import Draft
from plimsoll.ledger.verify import verify
from plimsoll.lifecycle import desk
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.machines import STANDARD
from plimsoll.lifecycle.model import Life, Said, Spec
from plimsoll.lifecycle.outside import Outside
from plimsoll.lifecycle.phases import phase_of
from plimsoll.lifecycle.providers.commands import Commands
from plimsoll.lifecycle.providers.quota import Quotas
from plimsoll.lifecycle.recipe_file import read_recipe
from plimsoll.lifecycle.service import ROLE, run_pass, say
from plimsoll.lifecycle.sheet import uid_of
from plimsoll.rooms import KINDS, open_keeper
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import parse_time
from tests.support.ledgers import events_of, fold_of
from tests.support.waiting import wait_until

NOON = parse_time("2026-01-05T12:00:00Z")
QUOTA = "subscription,region,family,limit,used\nsub-a,eastus,standardNDISRH200V5Family,384,0\n"
QUICK = STANDARD.replace("version: 1", "version: 2").replace("steady_for: 5s", "steady_for: 0s")
SECONDS_MAX = 60.0


class Yard:
    """A database, a folder of commands, and a clock that moves a second with every pass."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn, self.folder, self.now = dsn, folder, NOON
        self.keeper = open_keeper(dsn, create=True, clock=lambda: self.now)
        (folder / "quota.csv").write_text(QUOTA, encoding="utf-8")
        self.outside = Outside({"run": Commands(Errands(folder / "errands"))}, Quotas(folder, _no_azure))

    def say(self, act: Callable[[State], Sequence[Draft]], *, is_dry_run: bool = False) -> int:
        def decide(state: State, _now: datetime) -> tuple[None, Sequence[Draft]]:
            return None, act(state)

        return len(say(self.keeper, decide, actor="tester", is_dry_run=is_dry_run)[1])

    def plan(self, name: str, *, nodes: int = 4, is_dry_run: bool = False) -> int:
        spec = Spec(name, "eastus", Area.US, "", "", Purpose.RESEARCH, "sub-a", "H200", nodes)
        said = Said("tester", self.now)
        return self.say(lambda state: desk.plan(state, spec, uid_of(name, "seed"), said), is_dry_run=is_dry_run)

    def check_in(self, name: str) -> int:
        return self.say(lambda state: desk.check_in(desk.find_life(state, name)))

    def life(self, name: str) -> Life:
        return self.keeper.state().of(Lives).lives[name]

    def drive(self, until: Callable[[], bool]) -> None:
        """Pass after pass, as one that leads."""
        lead = self.keeper.ledger.store.lead("tester", ROLE)
        assert lead is not None

        def is_there() -> bool:
            self.now += timedelta(seconds=1)
            run_pass(self.keeper, self.outside, lead=lead)
            return until()

        wait_until(is_there, what="the clusters are there", seconds_max=SECONDS_MAX)
        lead.resign()


def _no_azure(_subscription: str) -> Azure:
    raise AssertionError("nobody asks Azure here")


@pytest.fixture
def yard(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    monkeypatch.setenv("PLIMSOLL_REHEARSAL", "seconds=0.01")
    monkeypatch.setenv("PLIMSOLL_REHEARSAL_LOG", str(tmp_path / "log"))
    yard = Yard(dsn, tmp_path)
    yard.say(lambda state: desk.apply_recipe(state, read_recipe(QUICK, source="quick"))[1])
    yield yard
    yard.keeper.close()


def _same_again(keeper: Keeper) -> None:
    """All events folded anew, and a start from a snapshot, give the state that there is."""
    state = keeper.state()
    assert verify(keeper.ledger.store).is_whole
    assert fold_of(events_of(keeper.ledger), KINDS).dump() == state.dump()


def test_a_cluster_goes_into_production_and_each_step_runs_once(yard: Yard) -> None:
    yard.plan("lynx")
    yard.check_in("lynx")
    assert yard.check_in("lynx") == 0
    yard.drive(lambda: phase_of(yard.life("lynx")) is Phase.PRODUCTION)
    begun = (yard.folder / "log").read_text(encoding="utf-8").splitlines()
    assert sorted(line.split()[1] for line in begun) == [
        "bootstrap",
        "burn-in",
        "checkin",
        "dependencies",
        "fill",
        "services",
    ]
    nodes = [node for node in yard.keeper.state().of(Fleet).nodes.values() if node.cluster == "lynx"]
    assert [str(node.service) for node in nodes] == ["in_service"] * 4
    assert yard.keeper.state().of(Fleet).clusters["lynx"].phase is Phase.PRODUCTION
    _same_again(yard.keeper)


def test_a_snapshot_on_the_way_changes_no_answer(yard: Yard) -> None:
    yard.plan("lynx")
    yard.check_in("lynx")
    yard.drive(lambda: "bootstrap" in yard.life("lynx").works)
    yard.keeper.snapshot()
    with open_keeper(yard.dsn) as other:
        assert other.state().dump() == yard.keeper.state().dump()
    yard.drive(lambda: phase_of(yard.life("lynx")) is Phase.PRODUCTION)
    with open_keeper(yard.dsn) as other:
        assert other.state().dump() == yard.keeper.state().dump()
    _same_again(yard.keeper)


def test_the_past_is_as_it_was(yard: Yard) -> None:
    yard.plan("lynx")
    planned = yard.keeper.state().revision
    yard.check_in("lynx")
    yard.drive(lambda: phase_of(yard.life("lynx")) is Phase.PRODUCTION)
    then = yard.keeper.as_of(planned).of(Lives).lives["lynx"]
    assert (then.conditions, then.works, then.checked_in, phase_of(then)) == ({}, {}, None, Phase.PLANNED)
    assert "lynx" not in yard.keeper.as_of(planned - 2).of(Lives).lives


def test_a_dry_run_writes_nothing(yard: Yard) -> None:
    before = yard.keeper.state().revision
    assert yard.plan("lynx", is_dry_run=True) == 0
    assert yard.keeper.ledger.store.head().revision == before


def test_no_two_clusters_are_promised_the_same_quota(yard: Yard) -> None:
    for name in ("lynx", "moth"):  # 384 cores each, and there are 384
        yard.plan(name)
        yard.check_in(name)
    yard.drive(lambda: phase_of(yard.life("lynx")) is Phase.PRODUCTION)
    moth = yard.life("moth")
    assert (phase_of(moth), moth.works) == (Phase.PLANNED, {})
    assert moth.conditions["QuotaSufficient"].status == "False"
    _same_again(yard.keeper)


def test_a_name_that_two_people_plan_at_once_is_planned_once(yard: Yard) -> None:
    with open_keeper(yard.dsn, clock=lambda: yard.now) as other:
        other.state()
        yard.plan("lynx")
        spec = yard.life("lynx").spec

        def decide(state: State, now: datetime) -> tuple[None, Sequence[Draft]]:
            return None, desk.plan(state, spec, "another", Said("bob", now))

        with pytest.raises(Refused, match="lynx is planned already"):
            say(other, decide, actor="bob")
    assert yard.life("lynx").planned.by == "tester"


def test_one_that_does_not_lead_any_more_writes_nothing_and_begins_nothing(yard: Yard) -> None:
    yard.plan("lynx")
    yard.check_in("lynx")
    old = yard.keeper.ledger.store.lead("old", ROLE)
    assert old is not None
    old.resign()
    new = yard.keeper.ledger.store.lead("new", ROLE)
    assert new is not None
    before = yard.keeper.ledger.store.head().revision
    with pytest.raises(Fenced):
        run_pass(yard.keeper, yard.outside, lead=old)
    assert yard.keeper.ledger.store.head().revision == before
    assert not (yard.folder / "log").exists()
    new.resign()


def test_a_second_controller_waits_for_the_first(yard: Yard) -> None:
    first = yard.keeper.ledger.store.lead("first", ROLE)
    assert first is not None
    with open_keeper(yard.dsn) as other:
        assert other.ledger.store.lead("second", ROLE) is None
        first.resign()
        began = time.monotonic()
        second = other.ledger.store.lead("second", ROLE)
        assert second is not None
        assert time.monotonic() - began < SECONDS_MAX
        second.resign()
