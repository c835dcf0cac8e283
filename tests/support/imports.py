"""Imports without the command line: a database, a clock that stands still, and what an import said."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from plimsoll.errors import PlimsollError
from plimsoll.fleet.decide import ImportPlan
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node
from plimsoll.fleet.service import Source, export_fleet, export_sheets, import_fleet
from plimsoll.fleet.sheet import ImportContext
from plimsoll.ledger.model import Head
from plimsoll.rooms import SHEETS, open_keeper
from plimsoll.state.state import State, Tables
from tests.support.fleets import HEADERS, Rows, row, write_csv, write_fleet

NOW = datetime(2026, 1, 20, 12, 0, tzinfo=UTC)
IN_MEMORY = "sqlite:///:memory:"
SKUS = ["sku", "a100e"]

T = TypeVar("T", bound=Tables)


class Importer:
    """A database (in memory, unless a URL is given) whose clock shows `now`."""

    def __init__(self, dsn: str = IN_MEMORY) -> None:
        self.now = NOW
        self.keeper = open_keeper(dsn, create=True, clock=lambda: self.now)

    def __del__(self) -> None:
        self.keeper.close()

    def bring(self, path: Path, **options: Any) -> ImportPlan:
        """Import a folder or workbook; it must be accepted."""
        plan, _ = import_fleet(self.keeper, Source.of_path(path, SHEETS), SHEETS, actor="tester", **options)
        return plan

    def refused(self, path: Path, **options: Any) -> PlimsollError:
        """What is said to a folder that must not be accepted; nothing of it may be kept."""
        head, state = self.head, self.state.dump()
        with pytest.raises(PlimsollError) as caught:
            self.bring(path, **options)
        assert self.head == head
        assert self.state.dump() == state
        return caught.value

    def problems(self, path: Path, **options: Any) -> list[dict[str, Any]]:
        """The bad cells of a folder that must not be accepted."""
        error = self.refused(path, **options)
        assert error.code == "bad_import", error.message
        found: list[dict[str, Any]] = error.fields["problems"]  # type: ignore[assignment]
        return found

    @property
    def head(self) -> Head:
        return self.keeper.ledger.head()

    @property
    def state(self) -> State:
        return self.keeper.state()

    def of(self, tables: type[T]) -> T:
        return self.state.of(tables)

    def node(self, name: str) -> Node:
        return self.of(Fleet).nodes[name]

    def sheets(self) -> dict[str, list[list[str]]]:
        """What an export would write, as rows."""
        return export_sheets(self.state, SHEETS, ImportContext(now=self.now, source=""))

    def export(self, path: Path) -> Path:
        export_fleet(self.state, path, SHEETS, ImportContext(now=self.now, source=""))
        return path

    def differences(self, path: Path, **options: Any) -> dict[tuple[str, str], tuple[str, dict[str, str | None]]]:
        """Import, and say by sheet and row what happened to it and what it was before."""
        plan = self.bring(path, **options)
        return {
            (sheet.name, each.key): (str(each.what), dict(each.was))
            for sheet in plan.sheets
            for each in sheet.differences
        }


def contents(folder: Path) -> dict[str, str]:
    """The files of a folder, as text."""
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(folder.iterdir())}


def write_skus(folder: Path, rows: Rows, *extra: str) -> Path:
    write_csv(folder / "skus.csv", [*SKUS, *extra], rows)
    return folder


def full_fleet(folder: Path, **sheets: Rows) -> Path:
    """A folder with every sheet and one row in each (four nodes), where not said otherwise."""
    ones: dict[str, Rows] = {name: [row(name)] for name in HEADERS if name != "nodes"}
    write_fleet(folder, **(ones | sheets))
    return folder


def patch(file: Path, old: str, new: str) -> None:
    """Change a file that was written already; the text must be there."""
    text = file.read_text(encoding="utf-8")
    assert old in text, f"{old!r} is not in {file.name}"
    file.write_text(text.replace(old, new), encoding="utf-8")
