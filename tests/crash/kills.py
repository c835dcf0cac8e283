"""What must hold of a ledger after somebody who wrote to it was killed. The checks read the rows as anybody could."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.ledger import open_ledger
from plimsoll.ledger.model import Event
from plimsoll.ledger.verify import verify
from plimsoll.rooms import open_keeper
from plimsoll.state.keeper import verify_snapshots
from tests.support.fleets import row, write_fleet
from tests.support.ledgers import KINDS, events_of, fold_of, keeper_of

Nodes = dict[str, str]
"""Node ids and their service."""


class _Line(msgspec.Struct):
    page: str
    text: str


def read_acknowledged(path: Path) -> list[tuple[int, str]]:
    """What a child was told to be committed. It wrote each commit's lines at once, so only a last one may be cut."""
    text = path.read_text() if path.exists() else ""
    lines = text.splitlines() if text.endswith("\n") or not text else text.splitlines()[:-1]
    return [(int(revision), digest) for revision, _, digest in (line.partition(" ") for line in lines)]


def assert_nothing_lost(dsn: str, acknowledged: Iterable[tuple[int, str]]) -> list[Event]:
    """The chain is whole, and all that was acknowledged is in it; returns all events."""
    with open_ledger(dsn, create=True) as ledger:
        assert verify(ledger.store).findings == ()
        events = events_of(ledger)
        assert [event.revision for event in events] == list(range(1, len(events) + 1))
    lost = [pair for pair in acknowledged if pair[0] > len(events) or events[pair[0] - 1].hash != pair[1]]
    assert lost == []
    return events


def assert_commits_are_whole(events: Iterable[Event]) -> None:
    """Each writer's commits follow each other without a gap, each is there once, and all of it in one piece."""
    by_writer: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
    for event in events:
        number, part, size = map(int, msgspec.json.decode(event.payload, type=_Line).text.split())
        by_writer[event.actor].append((number, part, size, event.revision))
    for writer, lines in by_writer.items():
        wanted, at = 1, 0
        while at < len(lines):
            _, _, size, first = lines[at]
            want = [(wanted, part, size, first + part - 1) for part in range(1, size + 1)]
            assert lines[at : at + size] == want, f"commit {wanted} of {writer}"
            wanted, at = wanted + 1, at + size


def assert_state_is_the_fold(dsn: str, events: list[Event]) -> None:
    """Whatever snapshots the killed one left, the next start knows what the events say."""
    with keeper_of(dsn) as keeper:
        assert keeper.state().dump() == fold_of(events).dump()
        assert list(verify_snapshots(keeper.ledger, KINDS)) == []


def write_fleets(folder: Path) -> tuple[list[Path], list[Nodes]]:
    """Three fleet folders that differ in many rows, and what each says of the nodes that are not retired."""
    wants: list[Nodes] = []
    folders = []
    for number, services in enumerate((["in_service", "repair"], ["repair", "in_service"], ["maintenance"])):
        want = {f"n{node}": services[node % len(services)] for node in range(1 + 10 * number, 61)}
        rows = [row("nodes", node=name, service=service) for name, service in want.items()]
        folders.append(write_fleet(folder / f"fleet-{number}", nodes=rows))
        wants.append(want)
    return folders, wants


def assert_imports_are_whole(dsn: str, wants: list[Nodes]) -> None:
    """The fleet is one of those that were imported, or there is none yet."""
    with open_keeper(dsn) as keeper:
        nodes = keeper.state().of(Fleet).nodes.values()
        found = {node.id: str(node.service) for node in nodes if node.service is not Service.RETIRED}
    assert found in [{}, *wants]
