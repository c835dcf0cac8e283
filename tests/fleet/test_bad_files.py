"""Whatever a file can do to its reader ends in a clear refusal, soon, and nothing is kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import plimsoll.fleet.disk
import plimsoll.fleet.folder
from plimsoll.errors import PlimsollError
from tests.support.fleets import HEADERS, nodes, row, write_csv, write_fleet
from tests.support.imports import Importer, full_fleet, patch

NODES_HEADER = "node,cluster,island,sku,gpus,service,since,reason"
NODE = "n1,tiger,tiger-a,H200,8,in_service,,"


def text_of_nodes(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "nodes.csv").write_bytes(text.encode())


class Header(NamedTuple):
    """A first line of `nodes.csv`, and what is said of it."""

    header: str
    want: list[tuple[int, str, str]]


NEEDED = "this column; the header needs node,cluster,island,sku,gpus,service,since,reason"
HEADERS_WRONG = {
    "a column is missing": Header("node,cluster,island,sku,gpus,service,since", [(1, "reason", NEEDED)]),
    "two columns are missing": Header(
        "node,cluster,island,gpus,service,since", [(1, "sku", NEEDED), (1, "reason", NEEDED)]
    ),
    "a column is there in capitals": Header(
        NODES_HEADER.replace("sku", "SKU"),
        [(1, "sku", NEEDED)],
    ),
    "a column is there twice": Header(f"{NODES_HEADER},sku", [(1, "sku", "each column once")]),
    "a label is there twice": Header(f"{NODES_HEADER},rack,rack", [(1, "rack", "each column once")]),
    "a column has no name": Header(f"{NODES_HEADER},,rack", [(1, "#9", "a name for this column")]),
    "a column's name is not printable": Header(
        f"{NODES_HEADER},ra\tck", [(1, "#9", "a printable name for this column")]
    ),
    "columns are separated by semicolons": Header(
        NODES_HEADER.replace(",", ";"), [(1, "", "expected columns separated by commas, found ';'")]
    ),
    "columns are separated by tabs": Header(
        NODES_HEADER.replace(",", "\t"), [(1, "", r"expected columns separated by commas, found '\t'")]
    ),
    "the header is a row of data": Header(NODE, []),
}


@pytest.mark.parametrize("sentence", HEADERS_WRONG)
def test_a_wrong_header_is_named_and_makes_nothing_else_bad(sentence: str, tmp_path: Path) -> None:
    header, want = HEADERS_WRONG[sentence]
    folder = full_fleet(tmp_path)
    patch(folder / "nodes.csv", NODES_HEADER, header)
    found = Importer().problems(folder)
    assert {each["source"] for each in found} == {"nodes.csv"}
    if want:
        assert [(each["row"], each["column"], each["expected"]) for each in found] == want
    else:
        assert {(each["row"], each["expected"]) for each in found} >= {(1, NEEDED)}


def test_a_wrong_header_of_the_clusters_makes_no_node_bad(tmp_path: Path) -> None:
    folder = full_fleet(tmp_path)
    patch(folder / "clusters.csv", "region", "land")
    found = [(each["source"], each["column"]) for each in Importer().problems(folder)]
    assert found == [("clusters.csv", "region")]


class Broken(NamedTuple):
    """What stands in `nodes.csv` after the header, and the one problem it makes."""

    rows: str
    want_row: int
    want: str


ROWS_BROKEN = {
    "a row has too few cells": Broken(f"{NODE}\nn2,tiger\n", 3, "expected 8 cells as in the header, found 2"),
    "a row has too many cells": Broken(f"{NODE}\n{NODE},x,y\n", 3, "expected 8 cells as in the header, found 10"),
    "a row after empty lines has too few cells": Broken(
        f"\n\n{NODE}\n\nn2\n", 6, "expected 8 cells as in the header, found 1"
    ),
    "a quote is never closed": Broken(
        f'{NODE}\nn2,tiger,tiger-a,H200,8,in_service,,"xid\n{NODE}\n',
        3,
        "not CSV: a quote that is opened in this row is never closed",
    ),
    "text goes on after a quote": Broken(
        f'{NODE}\n"n2"x,tiger,tiger-a,H200,8,in_service,,\n',
        3,
        "not CSV: text after a closing quote; a quote inside a quoted cell is written twice",
    ),
    "a cell has no end": Broken(
        f'{NODE}\nn2,tiger,tiger-a,H200,8,in_service,,"{"x" * 140_000}"\n',
        3,
        "not CSV: a cell of over 131,072 characters; is a quote not closed?",
    ),
    "a quote swallows the rest of a long file": Broken(
        f'{NODE}\nn2,tiger,tiger-a,H200,8,in_service,,"xid\n' + f"{NODE}\n" * 5_000,
        3,
        "not CSV: a cell of over 131,072 characters; is a quote not closed?",
    ),
    "a line has no end": Broken(f"{NODE}\n{'x,' * 600_000}\n", 3, "not CSV: a line of over 1,048,576 characters"),
}


@pytest.mark.parametrize("sentence", ROWS_BROKEN)
def test_rows_that_are_none_are_named_by_their_line(sentence: str, tmp_path: Path) -> None:
    rows, want_row, want = ROWS_BROKEN[sentence]
    folder = full_fleet(tmp_path)
    (folder / "nodes.csv").write_text(f"{NODES_HEADER}\n{rows}", encoding="utf-8")
    found = Importer().problems(folder)
    assert [(each["source"], each["row"], each["expected"]) for each in found] == [("nodes.csv", want_row, want)]


def test_a_cluster_row_with_too_few_cells_makes_no_node_bad(tmp_path: Path) -> None:
    folder = full_fleet(tmp_path)
    patch(folder / "clusters.csv", ",research,production", "")
    found = [(each["source"], each["row"]) for each in Importer().problems(folder)]
    assert found == [("clusters.csv", 2)]


def test_a_file_in_another_encoding_is_named_with_its_row(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path, nodes=[*nodes(3000), row("nodes", node="z", reason="Lüfter")])
    path = folder / "nodes.csv"
    path.write_bytes(path.read_text(encoding="utf-8").encode("latin-1"))
    found = Importer().problems(folder)
    assert [(each["row"], each["column"]) for each in found] == [(3002, "")]
    assert found[0]["expected"] == "not UTF-8 near 'H200,8,in_service,,Lüfter\\n'; save the file as UTF-8"


class Refusal(NamedTuple):
    """What is done to a good folder, and what is said then."""

    spoil: Callable[[Path], object]
    want_code: str
    want: str


def replace_nodes(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def spoil(folder: Path) -> None:
        (folder / "nodes.csv").unlink()
        make(folder / "nodes.csv")

    return spoil


def utf16(folder: Path) -> None:
    path = folder / "nodes.csv"
    path.write_bytes(path.read_text(encoding="utf-8").encode("utf-16"))


def huge_and_empty(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate((2 << 30) + 1)


SPOILT = {
    "nodes.csv is a folder": Refusal(replace_nodes(Path.mkdir), "not_a_file", "{}/nodes.csv is not a regular file"),
    "nodes.csv is a pipe nobody writes to": Refusal(
        replace_nodes(os.mkfifo), "not_a_file", "{}/nodes.csv is not a regular file"
    ),
    "nodes.csv leads to zeros without end": Refusal(
        replace_nodes(lambda path: path.symlink_to("/dev/zero")), "not_a_file", "{}/nodes.csv is not a regular file"
    ),
    "nodes.csv leads nowhere": Refusal(
        replace_nodes(lambda path: path.symlink_to("gone.csv")), "not_a_file", "{}/nodes.csv is not a regular file"
    ),
    "quotas.csv is a folder": Refusal(
        lambda folder: (folder / "quotas.csv").mkdir(), "not_a_file", "{}/quotas.csv is not a regular file"
    ),
    "nodes.csv is larger than what is read": Refusal(
        replace_nodes(huge_and_empty), "too_big", "nodes.csv has 2,147,483,649 bytes, at most 2,147,483,648 are read"
    ),
    "nodes.csv is one line of zeros without end": Refusal(
        replace_nodes(lambda path: path.write_bytes(b"\0" * (4 << 20))),
        "unreadable",
        "nodes.csv row 1: not CSV: a line of over 1,048,576 characters",
    ),
    "nodes.csv is UTF-16": Refusal(utf16, "wrong_encoding", "nodes.csv row 1: the file is UTF-16, expected UTF-8"),
    "the header is Latin-1": Refusal(
        lambda folder: (folder / "nodes.csv").write_bytes(NODES_HEADER.encode() + b",B\xfcro\n"),
        "unreadable",
        "nodes.csv row 1: not UTF-8 near 'rvice,since,reason,Büro\\n'; save the file as UTF-8",
    ),
    "nodes.csv is empty": Refusal(text_of_nodes(""), "empty_file", "nodes.csv is empty, expected a header in row 1"),
    "nodes.csv is empty but for its mark": Refusal(
        text_of_nodes("\ufeff\r\n"), "empty_file", "nodes.csv is empty, expected a header in row 1"
    ),
    "nodes.csv has more columns than are read": Refusal(
        lambda folder: patch(folder / "nodes.csv", NODES_HEADER, ",".join([NODES_HEADER, *map(str, range(193))])),
        "too_many_columns",
        "nodes.csv has 201 columns, at most 200 are read",
    ),
}


@pytest.mark.parametrize("sentence", SPOILT)
def test_a_file_that_can_not_be_read_is_refused(sentence: str, tmp_path: Path) -> None:
    spoil, want_code, want = SPOILT[sentence]
    folder = write_fleet(tmp_path)
    spoil(folder)
    error = Importer().refused(folder)
    assert error.code == want_code
    assert error.message == f"{want.format(folder)}; nothing was imported"
    assert error.next_step


NOT_FOLDERS: dict[str, tuple[Callable[[Path], Path], str, str]] = {
    "nothing is there": (lambda place: place / "gone", "no_such_folder", "there is no {}/gone"),
    "a file is given for the folder": (
        lambda place: write_fleet(place) / "nodes.csv",
        "not_a_folder",
        "{}/nodes.csv is not a folder; nothing was imported",
    ),
    "a device is given": (
        lambda _: Path("/dev/zero"),
        "not_a_folder",
        "/dev/zero is not a folder; nothing was imported",
    ),
    "a name is longer than a name can be": (
        lambda place: place / ("x" * 300),
        "not_readable",
        "{}/" + "x" * 300,
    ),
}


@pytest.mark.parametrize("sentence", NOT_FOLDERS)
def test_what_is_no_folder_is_refused(sentence: str, tmp_path: Path) -> None:
    make, want_code, want = NOT_FOLDERS[sentence]
    error = Importer().refused(make(tmp_path))
    assert error.code == want_code
    assert error.message.startswith(want.format(tmp_path)[:200])
    assert error.next_step


@pytest.mark.parametrize("name", ["clusters", "nodes"])
def test_a_folder_without_a_needed_file_is_refused_once(name: str, tmp_path: Path) -> None:
    folder = full_fleet(tmp_path / "fleet")
    (folder / f"{name}.csv").unlink()
    found = Importer().refused(folder)
    assert found.message == (
        "fleet has 1 problem; nothing was imported\n"
        f"  fleet: {name}.csv (in a workbook: the sheet {name}) is missing; a fleet needs it"
    )


def test_an_empty_folder_misses_both_files(tmp_path: Path) -> None:
    assert len(Importer().problems(tmp_path)) == 2


def test_more_rows_than_are_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plimsoll.fleet.folder, "ROWS_MAX", 100)
    folder = write_fleet(tmp_path, nodes=nodes(99))
    importer = Importer()
    importer.bring(folder)
    write_fleet(tmp_path, nodes=nodes(100))
    found = importer.problems(folder)
    assert [(each["row"], each["expected"]) for each in found] == [(101, "over 100 rows")]


def test_a_file_that_goes_away_between_two_looks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check_and_remove(path: Path) -> None:
        if path.name == "nodes.csv":
            path.unlink()

    monkeypatch.setattr(plimsoll.fleet.folder, "check_file", check_and_remove)
    error = Importer().refused(write_fleet(tmp_path))
    assert error.code == "not_readable"
    assert error.message == f"{tmp_path}/nodes.csv can't be read: No such file or directory; nothing was imported"


def test_a_refused_import_is_no_fault_of_ours_and_names_the_next_step(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path)
    write_csv(folder / "nodes.csv", HEADERS["nodes"], [row("nodes", gpus="x")])
    error: PlimsollError = Importer().refused(folder)
    assert (error.exit_code, error.status, error.next_step) == (1, 422, "correct the rows and import again")
