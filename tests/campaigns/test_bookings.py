"""What schedulers are told of a batch before it begins and after it has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.campaigns.marks.model import Marker
from plimsoll.campaigns.run.outside import Did, Outside
from plimsoll.campaigns.service import run_pass
from plimsoll.connect.errands import Result
from plimsoll.errors import Fenced, UsageError
from tests.support.dock import FILE, Dock, FakeErrands, with_lines
from tests.support.wreck import FileMarks

AUTOMATIC = with_lines(FILE, "run: {grace_minutes: 0, work: [update], validate: [check]}")


def failing(node: str) -> FakeErrands:
    """The work fails on one node."""
    line = f'{{"node": "{node}", "ok": false}}\n'
    return FakeErrands(lambda what, _names: Result(0, line if what == "update" else "", ""))


class Port:
    """A campaign whose schedulers are a folder."""

    def __init__(self, dock: Dock, folder: Path) -> None:
        self.dock, self.folder, self.deaf = dock, folder, set[str]()
        (folder / "marks").mkdir()

    def marker(self, _campaign: str, cluster: str) -> Marker:
        if cluster in self.deaf:
            raise UsageError("kubernetes_bad_setting", f"nothing says where the Kubernetes of {cluster} is")
        return FileMarks(self.folder, cluster)

    def go(self, text: str, *, epoch: int | None = None) -> list[Did]:
        self.dock.at(text)
        return run_pass(
            self.dock.keeper, "nic", actor="alice", outside=Outside(self.dock.errands, self.marker), epoch=epoch
        )

    @property
    def marks(self) -> list[str]:
        return sorted(file.name for file in (self.folder / "marks").iterdir())


def test_a_node_that_did_not_come_back_stays_closed_in_its_scheduler(tmp_path: Path) -> None:
    port = Port(Dock({"tiger": 3}, AUTOMATIC, errands=failing("tiger-2")), tmp_path)
    dock = port.dock
    dock.plan(tiger="05T11:00")
    dock.start()
    port.go("05T10:00")
    assert port.marks == ["booked tiger#1"]
    for minute in range(8):
        port.go(f"05T11:0{minute}")
    assert dock.step("tiger#1") == "returned"
    assert dock.service("tiger-2") == "repair"
    assert port.marks == ["tiger-2"]
    assert str(dock.run.phase) == "done"
    assert not dock.run.booked
    dock.returned("tiger-2")
    dock.accept("tiger-2")
    dock.at("05T12:30").sweep()
    port.go("05T12:31")
    assert port.marks == []


def test_a_scheduler_that_nobody_can_find_does_not_hold_up_the_others(tmp_path: Path) -> None:
    port = Port(Dock({"tiger": 2, "whale": 2}, AUTOMATIC), tmp_path)
    port.dock.plan(tiger="05T11:00", whale="05T11:00")
    port.dock.start()
    port.deaf.add("tiger")
    did = port.go("05T10:00")
    assert [(each.batch, each.is_failed) for each in did if each.act == "book"] == [
        ("tiger#1", True),
        ("whale#1", False),
    ]
    assert port.marks == ["booked whale#1"]


def test_whoever_does_not_lead_any_more_tells_schedulers_nothing(tmp_path: Path) -> None:
    port = Port(Dock({"tiger": 2}, AUTOMATIC), tmp_path)
    port.dock.plan(tiger="05T11:00")
    port.dock.start()
    store = port.dock.keeper.ledger.store
    old = store.next_epoch("the old one")
    port.go("05T10:00", epoch=old)
    assert port.marks == ["booked tiger#1"]
    port.dock.move("pause")
    port.dock.at("05T15:01").sweep()  # its time has passed, and it never began
    store.next_epoch("the new one")
    with pytest.raises(Fenced):
        port.go("05T15:01", epoch=old)
    assert port.marks == ["booked tiger#1"], "the new one takes it back"
