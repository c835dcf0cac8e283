"""One XLSX workbook is a fleet folder: it brings the same, is written back, and whatever is wrong with it is said."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import openpyxl
import pytest

import plimsoll.fleet.workbook
from plimsoll.errors import Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.sheet import Problems
from plimsoll.fleet.workbook import read_workbook, write_workbook
from tests.support.fleets import HEADERS, nodes, row
from tests.support.imports import Importer, full_fleet

Sheets = dict[str, list[list[Any]]]


def rows_of(sheet: str, *rows: dict[str, Any]) -> list[list[Any]]:
    """A header and rows, as cells."""
    header = [*HEADERS[sheet], *dict.fromkeys(name for each in rows for name in each if name not in HEADERS[sheet])]
    return [list(header), *([each.get(name) for name in header] for each in rows)]


def write_book(path: Path, **sheets: list[list[Any]]) -> Path:
    """A workbook as a spreadsheet program would write it; clusters and nodes where not said otherwise."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    default: Sheets = {"clusters": rows_of("clusters", row("clusters")), "nodes": rows_of("nodes", *nodes(4))}
    for name, rows in (default | sheets).items():
        sheet = book.create_sheet(name)
        for cells in rows:
            sheet.append(cells)
    book.save(path)
    return path


def test_a_workbook_brings_what_its_folder_brings(tmp_path: Path) -> None:
    folder = full_fleet(
        tmp_path / "fleet",
        nodes=[*nodes(3, rack="=1+1"), row("nodes", node="n4", service="repair", since="2026-01-05T11:00:00Z")],
        history=[row("history", reason="_x0041_ & <b>"), row("history", time="2026-01-06T00:00:00.25Z", ticket="0012")],
    )
    by_folder, by_book = Importer(), Importer()
    by_folder.bring(folder)
    book = by_folder.export(tmp_path / "fleet.xlsx")
    by_book.bring(book)
    assert by_book.sheets() == by_folder.sheets()
    assert not by_folder.bring(book).is_change
    assert not by_book.bring(folder).is_change


CELLS: dict[str, tuple[str, Any, str, object]] = {
    "GPUs are a float": ("gpus", 8.0, "gpus", 8),
    "GPUs are a number": ("gpus", 8, "gpus", 8),
    "a name is a number": ("island", 12, "island", "12"),
    "a name is a float": ("island", 1.5, "island", "1.5"),
    "a reason is a truth": ("reason", True, "reason", "true"),
    "a since is a date": ("since", date(2026, 1, 5), "since", datetime(2026, 1, 5, tzinfo=UTC)),
    "a since is a date with a time, in no zone": (
        "since",
        datetime(2026, 1, 5, 11, 30),  # noqa: DTZ001
        "since",
        datetime(2026, 1, 5, 11, 30, tzinfo=UTC),
    ),
    "a since is text": ("since", "2026-01-05T11:30+01:00", "since", datetime(2026, 1, 5, 10, 30, tzinfo=UTC)),
    "a since is empty": ("since", None, "since", None),
}


@pytest.mark.parametrize("sentence", CELLS)
def test_cells_are_what_a_csv_would_have(sentence: str, tmp_path: Path) -> None:
    column, value, field, want = CELLS[sentence]
    book = write_book(tmp_path / "fleet.xlsx", nodes=rows_of("nodes", row("nodes") | {column: value}))
    importer = Importer()
    importer.bring(book)
    assert getattr(importer.node("n1"), field) == want


BAD: dict[str, tuple[str, Any, str, str]] = {
    "GPUs are a fraction": ("gpus", 8.5, "8.5", "a whole number from 1 to 1024"),
    "GPUs are an error of the spreadsheet": ("gpus", "#N/A", "#N/A", "a whole number from 1 to 1024"),
    "a since is a time without a day": ("since", time(11, 30), "11:30:00", "a time such as 2026-01-05T11:00:00Z"),
    "a since is far ahead": (
        "since",
        date(2099, 1, 1),
        "2099-01-01T00:00:00Z",
        "a time that is not in the future (now is 2026-01-20T12:00:00Z)",
    ),
    "a formula was never computed": ("gpus", "=4+4", "", "a whole number from 1 to 1024"),
}


@pytest.mark.parametrize("sentence", BAD)
def test_a_bad_cell_is_named_with_its_sheet(sentence: str, tmp_path: Path) -> None:
    column, value, want_value, want_expected = BAD[sentence]
    book = write_book(
        tmp_path / "fleet.xlsx", nodes=rows_of("nodes", row("nodes"), row("nodes", node="n2") | {column: value})
    )
    assert Importer().problems(book) == [
        {
            "source": "fleet.xlsx[nodes]",
            "row": 3,
            "column": column,
            "value": want_value,
            "expected": want_expected,
        }
    ]


def test_empty_columns_and_rows_around_the_table_are_nothing(tmp_path: Path) -> None:
    rows = rows_of("nodes", *nodes(2))
    padded = [[*rows[0], None, "  "], [*rows[1], None, None, ""], [], [None] * 12, [*rows[2]], [None]]
    importer = Importer()
    importer.bring(write_book(tmp_path / "plain.xlsx", nodes=rows))
    assert not importer.bring(write_book(tmp_path / "padded.xlsx", nodes=padded)).is_change


def test_a_row_may_end_before_its_empty_cells(tmp_path: Path) -> None:
    rows = rows_of("nodes", row("nodes"))
    importer = Importer()
    importer.bring(write_book(tmp_path / "fleet.xlsx", nodes=[rows[0], rows[1][:6]]))
    assert importer.node("n1").reason == ""


@pytest.mark.parametrize("claim", [b"A1:B2", b"A1:ZZ900000"])
def test_what_a_sheet_says_of_its_own_size_does_not_matter(claim: bytes, tmp_path: Path) -> None:
    book = write_book(tmp_path / "fleet.xlsx")
    importer = Importer()
    importer.bring(book)

    def lie(xml: bytes) -> bytes:
        assert b'<dimension ref="A1:H5"' in xml
        return xml.replace(b"A1:H5", claim)

    rewrite_nodes(book, lie)
    assert importer.bring(book).counts()["nodes"] == {"added": 0, "changed": 0, "removed": 0, "same": 4}


def test_text_beside_the_table_is_refused(tmp_path: Path) -> None:
    rows = rows_of("nodes", row("nodes"))
    book = write_book(tmp_path / "fleet.xlsx", nodes=[rows[0], [*rows[1], None, None, "see ann"]])
    found = [(each["row"], each["expected"]) for each in Importer().problems(book)]
    assert found == [(2, "expected 8 cells as in the header, found 11")]


@pytest.mark.parametrize("name", ["clusters", "nodes"])
def test_a_workbook_without_a_needed_sheet_is_refused(name: str, tmp_path: Path) -> None:
    book = write_book(tmp_path / "fleet.xlsx", quotas=rows_of("quotas", row("quotas")))
    opened = openpyxl.load_workbook(book)
    opened[name].title = name.title()
    opened.save(book)
    found = [each["expected"] for each in Importer().problems(book)]
    assert found == [f"{name}.csv (in a workbook: the sheet {name}) is missing; a fleet needs it"]


def test_sheets_that_are_not_ours_are_passed_over(tmp_path: Path) -> None:
    plan = Importer().bring(write_book(tmp_path / "fleet.xlsx", notes=[["call", "ann"]]))
    assert sorted(plan.counts()) == ["clusters", "nodes"]


def test_no_file_stays_open_behind_a_workbook_whose_rows_nobody_reads(tmp_path: Path) -> None:
    book = write_book(tmp_path / "fleet.xlsx")
    sheets = read_workbook(book, ["clusters", "nodes"])
    assert str(book) not in {os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()}
    # And what is imported is what was looked at, whatever becomes of the file.
    write_book(book, nodes=rows_of("nodes", *nodes(1)))
    assert len(list(sheets["nodes"].rows(Problems()))) == 4


def not_a_zip(path: Path) -> None:
    path.write_bytes(b"node,cluster\n")


def another_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "hello")


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:2000])


def rewrite_nodes(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the XML of the second sheet."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["xl/worksheets/sheet2.xml"] = change(members["xl/worksheets/sheet2.xml"])
    with zipfile.ZipFile(path, "w") as archive:
        for member, body in members.items():
            archive.writestr(member, body)


def broken_sheet(path: Path) -> None:
    """A zip that is whole around XML that is not."""
    rewrite_nodes(path, lambda xml: xml[: len(xml) // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def without_header(path: Path) -> None:
    write_book(path, nodes=[[None, None]])


SPOILT: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "it is a CSV file under another name": (not_a_zip, "not_a_workbook", "fleet.xlsx is not a whole XLSX workbook ("),
    "it is a zip of something else": (another_zip, "not_a_workbook", "fleet.xlsx is not a whole XLSX workbook ("),
    "it is cut off": (cut_off, "not_a_workbook", "fleet.xlsx is not a whole XLSX workbook ("),
    "its inside is broken": (broken_sheet, "not_a_workbook", "fleet.xlsx is not a whole XLSX workbook ("),
    "it is empty": (empty, "not_a_workbook", "fleet.xlsx is not a whole XLSX workbook ("),
    "a sheet has no header": (without_header, "empty_file", "fleet.xlsx[nodes] is empty, expected a header in row 1"),
}


@pytest.mark.parametrize("sentence", SPOILT)
def test_what_is_no_workbook_is_refused(sentence: str, tmp_path: Path) -> None:
    spoil, want_code, want = SPOILT[sentence]
    book = write_book(tmp_path / "fleet.xlsx", nodes=rows_of("nodes", *nodes(500)))
    spoil(book)
    error = Importer().refused(book)
    assert error.code == want_code
    assert error.message.startswith(want)
    assert error.message.endswith("; nothing was imported")
    assert error.next_step


def test_a_workbook_that_unpacks_to_the_moon_is_refused_before_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = write_book(tmp_path / "fleet.xlsx")
    with zipfile.ZipFile(book, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/media/moon.bin", b"\0" * 3_000_000)
    assert book.stat().st_size < 20_000
    monkeypatch.setattr(plimsoll.fleet.workbook, "UNPACKED_BYTES_MAX", 3_000_000)
    error = Importer().refused(book)
    assert error.code == "too_big"
    assert error.message.startswith("fleet.xlsx unpacks to 3,0")
    assert error.message.endswith(" bytes, at most 3,000,000 are read; nothing was imported")


def test_a_sheet_of_more_rows_than_a_workbook_holds_is_refused_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = write_book(tmp_path / "fleet.xlsx", nodes=rows_of("nodes", *nodes(30)))
    monkeypatch.setattr(plimsoll.fleet.workbook, "XLSX_ROWS_MAX", 20)
    found = [(each["row"], each["expected"]) for each in Importer().problems(book)]
    assert found == [(21, "over 20 rows")]
    with pytest.raises(Refused) as caught:
        write_workbook(tmp_path / "out.xlsx", {"nodes": [["node"]] * 21})
    assert caught.value.code == "too_many_rows"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fleet.xlsx"]


def test_a_workbook_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(full_fleet(tmp_path / "fleet"))
    place = tmp_path / "fleet.xlsx"
    place.mkdir()
    with pytest.raises(Refused) as caught:
        importer.export(place)
    assert caught.value.message == f"{place} could not be written: Is a directory"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fleet", "fleet.xlsx"]


def test_text_that_looks_like_a_formula_stays_text(tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(full_fleet(tmp_path / "fleet", nodes=[row("nodes", reason="=1+1"), *nodes(4)[1:]]))
    book = openpyxl.load_workbook(importer.export(tmp_path / "fleet.xlsx"))
    cell = book["nodes"]["H2"]
    assert (cell.value, cell.data_type) == ("=1+1", "s")
    again = Importer()
    again.bring(tmp_path / "fleet.xlsx")
    assert again.of(Fleet).nodes["n1"].reason == "=1+1"
