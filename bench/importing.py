"""Importing the demo fleet with its history, against parsing the same files with `csv` and inserting the same rows."""

from __future__ import annotations

import csv
import sqlite3
import tempfile
from itertools import count
from pathlib import Path

from bench.append import COLUMNS
from bench.figures import Figure, alternate, compare
from plimsoll.fleet.demo import demo_fleet
from plimsoll.fleet.folder import write_folder
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.ledger.model import Event
from plimsoll.rooms import SHEETS, open_keeper
from plimsoll.times import parse_time

RUNS = 7


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as name:
        folder = Path(name)
        rows = demo_fleet(seed=1, until=parse_time("2026-01-05T00:00:00Z"))
        write_folder(folder / "fleet", rows)
        numbers = count()

        def ours() -> None:
            with open_keeper(f"sqlite:///{folder}/ours-{next(numbers)}.db", create=True) as keeper:
                import_fleet(keeper, Source.of_path(folder / "fleet", SHEETS), SHEETS, actor="bench")

        ours()
        with open_keeper(f"sqlite:///{folder}/ours-0.db") as keeper:
            events = [tuple(event) for event in keeper.ledger.store.events()]

        def baseline() -> None:
            for path in sorted((folder / "fleet").glob("*.csv")):
                with path.open(encoding="utf-8", newline="") as file:
                    for _ in csv.reader(file):
                        pass
            _insert(folder / f"bare-{next(numbers)}.db", events)

        times, bare = alternate(RUNS, ours, baseline)
        size = f"{sum(map(len, rows.values())):,} rows, {len(events):,} events"
        return [compare("import of the demo fleet", f"{size}, against csv + bare insert", times, bare, at_most=4)]


def _insert(path: Path, events: list[tuple[object, ...]]) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"CREATE TABLE events ({COLUMNS.format(bigint='INTEGER')})")
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(f"INSERT INTO events VALUES ({', '.join('?' * len(Event._fields))})", events)
    connection.execute("COMMIT")
    connection.close()
