"""A campaign whose runner can be killed: all that there is of it lies in one folder, which can be copied.

`ledger.db` is the database, `errands` where its commands run, `marks` what the schedulers were told (a file per node
with its batch in it), `log` what the commands did. A `busy` file means that work still runs on the nodes of `whale`.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from plimsoll import rooms
from plimsoll.campaigns.changes import BatchStepped
from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.marks.model import Acted, Cleared, Drained, Extent, Looked
from plimsoll.campaigns.run.outside import Outside
from plimsoll.campaigns.run.progress import Run
from plimsoll.campaigns.service import run_pass
from plimsoll.commands.campaign import run as run_module
from plimsoll.connect import errands as errands_module
from plimsoll.connect.errands import Errands
from plimsoll.fleet.fold import Fleet
from plimsoll.health.fold import Health
from plimsoll.incidents.fold import Incidents
from plimsoll.ledger.model import EventFilter
from plimsoll.ledger.verify import verify
from plimsoll.rooms import KINDS, open_keeper
from plimsoll.state.keeper import Keeper
from plimsoll.times import parse_time
from tests.support.dock import FILE, Dock, with_lines
from tests.support.ledgers import events_of, fold_of
from tests.support.waiting import wait_until

CLUSTERS = {"tiger": 2, "whale": 6}
MONDAY_NOON = parse_time("2026-01-05T11:00:00Z")
PASS_MINUTES = 3
PASSES_MAX = 14
AFTER_ONE_CHANGE = -1
"""To be killed after the first commit, or the first command that was begun. What may be repeated outside is."""

SCRIPT = """\
#!/bin/sh
# Log each node, and whether it was marked then: `work tiger#1 1 tiger-1 marked`.
place=$(dirname "$PLIMSOLL_NODES_FILE")/../..
while read node; do
    if [ -e "$place/marks/$node" ]; then mark=marked; else mark=open; fi
    echo "$1 $PLIMSOLL_BATCH $PLIMSOLL_ATTEMPT $node $mark" >> "$place/log"
done < "$PLIMSOLL_NODES_FILE"
"""


class FileMarks:
    """A scheduler that is a folder. Every act may be repeated."""

    where = "a folder"

    def __init__(self, folder: Path, cluster: str) -> None:
        self.folder, self.cluster = folder, cluster

    def book(self, batch: str, nodes: Sequence[str], *, starts: datetime, ends: datetime) -> Acted:
        assert starts < ends
        (self.folder / "marks" / f"booked {batch}").write_text(f"{starts} {ends}")
        return Acted(tuple(nodes))

    def mark(self, batch: str, nodes: Sequence[str], *, starts: datetime, ends: datetime, reason: str) -> Acted:
        assert reason
        (self.folder / "marks" / f"booked {batch}").write_text(f"{starts} {ends}")
        for node in nodes:
            (self.folder / "marks" / node).write_text(batch)
        return Acted(tuple(nodes))

    def unmark(self, batch: str, nodes: Collection[str]) -> Acted:
        for node in nodes:
            file = self.folder / "marks" / node
            if file.exists() and file.read_text() == batch:
                file.unlink()
        (self.folder / "marks" / f"booked {batch}").unlink(missing_ok=True)
        return Acted(tuple(nodes))

    def look(self, batch: str, nodes: Collection[str]) -> Looked:
        files = [self.folder / "marks" / node for node in nodes]
        is_marked = any(file.exists() and file.read_text() == batch for file in files)
        return Looked(Extent.MARKED if is_marked else Extent.NOT_MARKED)

    def drained(self, nodes: Collection[str]) -> Drained:
        is_busy = self.cluster == "whale" and (self.folder / "busy").exists()
        return Drained(busy=dict.fromkeys(nodes, ("job",))) if is_busy else Drained(tuple(nodes))

    def clear(self, _nodes: Collection[str]) -> Cleared:
        return Cleared()


class Wreck:
    """Two clusters, one done whole and one in two batches, on the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dsn = f"sqlite:///{folder}/ledger.db"

    @classmethod
    def build(cls, folder: Path) -> Wreck:
        (folder / "marks").mkdir(parents=True)
        script = folder.parent / "script"
        script.write_text(SCRIPT)
        script.chmod(0o755)
        commands = f"run: {{grace_minutes: 30, work: [{script}, work], validate: [{script}, check]}}"
        dock = Dock(CLUSTERS, with_lines(FILE, commands), dsn=f"sqlite:///{folder}/ledger.db")
        dock.plan(tiger="05T11:00", whale="05T11:00")
        dock.start()
        dock.keeper.close()
        return cls(folder)

    def copy(self, folder: Path) -> Wreck:
        shutil.copytree(self.folder, folder)
        return Wreck(folder)

    # Running it.

    def keeper(self, now: datetime = MONDAY_NOON) -> Keeper:
        return open_keeper(self.dsn, clock=lambda: now)

    @property
    def run(self) -> Run:
        with self.keeper() as keeper:
            return keeper.state().of(Campaigns).runs["nic"]

    def run_pass(self, now: datetime) -> None:
        """One pass of a runner that nothing happens to."""
        with self.keeper(now) as keeper:
            lead = keeper.ledger.store.lead("the next runner")
            assert lead is not None, "the lead of a killed process passes on"
            outside = Outside(
                Errands(self.folder / "errands"), lambda _campaign, cluster: FileMarks(self.folder, cluster)
            )
            run_pass(keeper, "nic", actor="tester", outside=outside, epoch=lead.epoch)
            lead.resign()

    def wait_for_commands(self) -> None:
        """Until no command runs any more."""
        folder = self.folder / "errands"
        places = [place for place in folder.iterdir() if place.is_dir()] if folder.exists() else []

        def is_quiet(place: Path) -> bool:
            return (place / "result").exists() or not errands_module._is_locked(place / "lock")

        for place in places:
            wait_until(lambda place=place: is_quiet(place), what=f"{place.name} ended")  # type: ignore[misc]

    def moments(self) -> list[datetime]:
        """When passes are made: on two days, as often as could be needed."""
        return [
            MONDAY_NOON + timedelta(days=day, minutes=PASS_MINUTES * number)
            for day in range(2)
            for number in range(PASSES_MAX)
        ]

    def is_done_with(self, now: datetime) -> bool:
        """Whether nothing is left to do that was to begin by now."""
        run = self.run
        left = [batch for batch in run.plan.batches if not run.step_of(batch.id).is_over]
        return run.phase.is_over or bool(left and all(batch.start > now for batch in left))

    def finish(self) -> None:
        for now in self.moments():
            if not self.is_done_with(now):
                self.wait_for_commands()
                self.run_pass(now)

    # What must hold in the end.

    def log(self) -> list[list[str]]:
        file = self.folder / "log"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def attempts(self) -> set[tuple[str, int]]:
        """The attempts that were recorded before they were made, by batch."""
        with self.keeper() as keeper:
            events = keeper.ledger.store.events(where=EventFilter(kind=BatchStepped.kind))
            steps = [KINDS.read(event) for event in events]
            return {(step.batch, step.attempt) for step in steps if isinstance(step, BatchStepped) and step.attempt}

    def check(self, *, want_phase: str, want_worked: Collection[str]) -> None:
        lines = self.log()
        assert max(Counter(map(tuple, lines)).values(), default=1) == 1, f"done twice: {lines}"
        assert {(batch, int(attempt)) for _, batch, attempt, _, _ in lines} <= self.attempts(), "unknowingly"
        assert {node for what, _, _, node, _ in lines if what == "work"} == set(want_worked)
        assert {mark for *_, mark in lines} <= {"marked"}, "nobody works on a node that is not marked"
        with self.keeper() as keeper:
            state = keeper.state()
            assert str(state.of(Campaigns).runs["nic"].phase) == want_phase
            assert {str(node.service) for node in state.of(Fleet).nodes.values()} == {"in_service"}
            assert not state.of(Health).holds
            assert not state.of(Health).ahead
            assert all(incident.closed_at for incident in state.of(Incidents).incidents.values())
            assert verify(keeper.ledger.store).is_whole
            assert fold_of(events_of(keeper.ledger), KINDS).dump() == state.dump()
        assert not list((self.folder / "marks").iterdir())


# In a process of its own.


class Fate:
    """Counts the moments at which a process could die; at one of them it does."""

    def __init__(self, tell: Callable[[Any], None], kill_at: int) -> None:
        self._tell, self._left, self._is_mortal = tell, kill_at, kill_at != 0

    def pass_by(self, name: str) -> None:
        self._tell(name)
        if self._left == AFTER_ONE_CHANGE and name in ("after commit", "after command"):
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= self._left > 0
        if self._left == 0 and self._is_mortal:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, name: str, change: Callable[..., Any], is_change: Callable[..., bool] | None = None) -> Any:
        def mortal(*arguments: Any, **options: Any) -> Any:
            if is_change is not None and not is_change(*arguments):
                return change(*arguments, **options)
            self.pass_by(f"before {name}")
            result = change(*arguments, **options)
            self.pass_by(f"after {name}")
            return result

        return mortal


def run_mortal(tell: Callable[[Any], None], folder: Path, now: datetime, kill_at: int, *words: str) -> None:
    """`plimsoll campaign …` that dies at the `kill_at`-th moment, or after one change, or never where that is 0. Tells
    each moment that it comes to."""
    wreck, fate = Wreck(folder), Fate(tell, kill_at)
    Keeper.commit = fate.around("commit", Keeper.commit, lambda _keeper, drafts: bool(drafts))  # type: ignore[method-assign]
    Errands.begin = fate.around("command", Errands.begin)  # type: ignore[method-assign]
    errands_module._start = fate.around("its process", errands_module._start)
    FileMarks.mark = fate.around("mark", FileMarks.mark)  # type: ignore[method-assign]
    FileMarks.book = fate.around("booking", FileMarks.book)  # type: ignore[method-assign]
    FileMarks.unmark = fate.around("unmark", FileMarks.unmark)  # type: ignore[method-assign]

    def outside(*_settings: object) -> Outside:
        return Outside(Errands(folder / "errands"), lambda _campaign, cluster: FileMarks(folder, cluster))

    real_open = rooms.open_keeper
    rooms.open_keeper = partial(real_open, clock=lambda: now)
    run_module.outside = outside  # type: ignore[assignment]
    from plimsoll.cli.main import main

    sys.argv = ["plimsoll", "--db", wreck.dsn, *words]
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
