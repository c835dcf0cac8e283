"""The books on which commands are called: a part of the demo, and a fleet of a few nodes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from plimsoll.fleet.demo import demo_fleet
from plimsoll.fleet.demo.names import PLANNED, PROVISIONING
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.fleet.sheet import MemorySheet
from plimsoll.lifecycle.demo import demo_lives
from plimsoll.lifecycle.service import say
from plimsoll.rooms import SHEETS, open_keeper
from plimsoll.times import utc_now
from tests.server.shapes.voyage import Voyage
from tests.support.fleets import nodes, row, write_fleet

CLUSTERS = ("lemur", "barnacle", "tapir", PLANNED, PROVISIONING)
"""The part of the demo that is quick to load: one pool each of GB200, H200 and H100, and the two being made."""


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the demo, whose history ends an hour ago. Tests copy it."""
    path = tmp_path_factory.mktemp("book") / "plimsoll.db"
    keeper = open_keeper(f"sqlite:///{path}", create=True)
    rows = demo_fleet(seed=1, until=utc_now() - timedelta(hours=1))
    kept = {each[0] for each in rows["nodes"] if each[1] in CLUSTERS}
    sheets = {}
    for name, (head, *body) in rows.items():
        place = head.index("cluster") if "cluster" in head else head.index("node")
        sheets[name] = MemorySheet(name, [head, *(each for each in body if each[place] in kept.union(CLUSTERS))])
    import_fleet(keeper, Source("demo", "0" * 64, sheets), SHEETS, actor="tester")
    say(keeper, lambda state, now: (None, demo_lives(state, now)), actor="tester")
    keeper.close()
    return path


@pytest.fixture
def voyage(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Voyage]:
    """A copy of it, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(book, tmp_path / "plimsoll.db")
    with open_keeper(f"sqlite:///{tmp_path}/plimsoll.db") as keeper:
        yield Voyage(keeper)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Voyage]:
    """Two clusters of a few nodes, with work on one of them, and a clock that can be set forward."""
    monkeypatch.chdir(tmp_path)
    folder = write_fleet(
        tmp_path / "fleet",
        clusters=[row("clusters"), row("clusters", cluster="lion", area="eu", colo="colo-2")],
        nodes=[*nodes(8, prefix="t"), *nodes(2, prefix="l", cluster="lion", island="lion-a")],
        quotas=[row("quotas", team="cod", gpus="48")],
    )
    moment = [utc_now()]
    with open_keeper(f"sqlite:///{tmp_path}/plimsoll.db", create=True, clock=lambda: moment[0]) as keeper:
        voyage = Voyage(keeper)
        voyage.ask("fleet import", path=folder)
        voyage.clock = moment
        yield voyage
