"""Signals to facts: a sweep of a whole fleet, and one signal, beside a bare insert of as many rows."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from bench.figures import Figure, Times, alternate
from plimsoll.fleet.demo import demo_fleet
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.fleet.sheet import MemorySheet
from plimsoll.health.service import observe, sweep_now
from plimsoll.health.signals import Signal, SignalKind
from plimsoll.rooms import SHEETS, open_keeper
from plimsoll.state.keeper import Keeper

NODES = 18_500
RUNS = 3
SINGLES = 50
SWEEP_SECONDS_MAX, SIGNAL_SECONDS_MAX = 2.0, 0.020


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder) / "first.db"
        _load(first)
        return [*_sweeps(first, Path(folder)), _single(first, Path(folder))]


def _load(path: Path) -> None:
    rows = demo_fleet(seed=1, until=datetime(2026, 1, 5, tzinfo=UTC))
    sheets = {sheet: MemorySheet(sheet, cells) for sheet, cells in rows.items()}
    with open_keeper(f"sqlite:///{path}", create=True) as keeper:
        import_fleet(keeper, Source("bench", "", sheets), SHEETS, actor="bench")


def _copy(first: Path, folder: Path, number: int) -> Keeper:
    path = folder / f"copy-{number}.db"
    shutil.copy(first, path)
    return open_keeper(f"sqlite:///{path}")


def _bare(folder: Path, number: int, rows: int) -> None:
    """What it takes to keep as many rows of text durably, and nothing more."""
    connection = sqlite3.connect(folder / f"bare-{number}.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, payload TEXT)")
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT INTO rows VALUES (?, ?)", ((row, "x" * 300) for row in range(rows)))
    connection.execute("COMMIT")
    connection.close()


def _sweeps(first: Path, folder: Path) -> list[Figure]:
    """Every node has something to say: all fall ill mildly, all fall ill badly, all are well."""
    numbers = count()
    keepers = [_copy(first, folder, number) for number in range(RUNS)]
    states = [keeper.state().of(Fleet).nodes.values() for keeper in keepers]
    names = [[node.id for node in nodes if node.service is Service.IN_SERVICE][:NODES] for nodes in states]
    turns = {kind: iter(range(RUNS)) for kind in ("degraded", "quarantined", "well", "time")}

    def sweep(kind: str, signal: SignalKind, name: str, value: float | None, minutes: int) -> None:
        turn = next(turns[kind])
        at = keepers[turn].ledger.clock() + timedelta(minutes=minutes)
        signals = [Signal(node, signal, at, name, value=value) for node in names[turn]]
        observe(keepers[turn], signals, feed="bench", actor="bench", swept=names[turn], at=at)

    times = alternate(
        RUNS,
        lambda: sweep("degraded", SignalKind.ECC, "other", 3.0, -3),
        lambda: sweep("quarantined", SignalKind.XID, "79", None, -2),
        lambda: sweep("well", SignalKind.ECC, "other", 0.0, -1),
        lambda: sweep_now(keepers[next(turns["time"])], actor="bench"),
        lambda: _bare(folder, next(numbers), 2 * NODES),
    )
    for keeper in keepers:
        keeper.close()
    size = f"{len(names[0]):,} nodes, a signal each"
    said = ("all become degraded", "all ask for quarantine, breakers trip", "all are well again", "a sweep of time")
    return [
        _figure(f"sweep: {what}", size, ours, times[-1], SWEEP_SECONDS_MAX)
        for what, ours in zip(said, times[:-1], strict=True)
    ]


def _single(first: Path, folder: Path) -> Figure:
    keeper = _copy(first, folder, RUNS)
    nodes = iter([node.id for node in keeper.state().of(Fleet).nodes.values() if node.service is Service.IN_SERVICE])
    numbers = count(1_000)

    def one() -> None:
        observe(
            keeper,
            [Signal(next(nodes), SignalKind.ECC, keeper.ledger.clock(), "other", value=1.0)],
            feed="one",
            actor="bench",
        )

    ours, bare = alternate(SINGLES, one, lambda: _bare(folder, next(numbers), 2))
    keeper.close()
    return _figure("one signal to its committed consequence", "demo fleet, SQLite", ours, bare, SIGNAL_SECONDS_MAX)


def _figure(name: str, size: str, ours: Times, bare: Times, limit: float) -> Figure:
    ratio = f"{ours.median / bare.median:.1f}x"
    return Figure(name, size, str(ours), f"bare insert {bare}", ratio, f"under {limit:g} s", ours.median < limit)
