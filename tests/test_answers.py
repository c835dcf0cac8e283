"""Rows as CSV, as they are and for sheets."""

from __future__ import annotations

import csv
import io

import pytest
from msgspec.structs import replace

from plimsoll.answers import Answer, Table, csv_text, table_text

CELLS: dict[str, tuple[object, str]] = {
    "a formula": ("=1+1", "'=1+1"),
    "one that begins with a sign": ("+1+1", "'+1+1"),
    "one that begins with a minus": ("-2+3+cmd|' /C calc'!A0", "'-2+3+cmd|' /C calc'!A0"),
    "a function of an old sheet": ("@SUM(A1)", "'@SUM(A1)"),
    "one behind a tab": ("\t=1", "'\t=1"),
    "one behind a line": ("\n=1", "'\n=1"),
    "a number": (-3, "-3"),
    "a share": (-0.5, "-0.5"),
    "a number that is a text": ("-3.25", "-3.25"),
    "a dash": ("-", "-"),
    "nothing": (None, ""),
    "a text": ("tiger-a", "tiger-a"),
    "one that has a sign later": ("a=b", "a=b"),
}


@pytest.mark.parametrize("case", CELLS)
def test_no_cell_acts_in_a_sheet(case: str) -> None:
    value, want = CELLS[case]
    assert _read(csv_text([["x", value]], is_for_sheets=True)) == ["x", want]


@pytest.mark.parametrize("case", CELLS)
def test_elsewhere_every_text_is_as_it_was(case: str) -> None:
    """What is exported must come back the same."""
    value, _ = CELLS[case]
    assert _read(csv_text([["x", value]])) == ["x", "" if value is None else str(value)]


def test_a_return_in_a_cell_begins_no_row_in_a_sheet() -> None:
    assert _read(csv_text([["x", "a\r=1"]], is_for_sheets=True)) == ["x", "a\n=1"]


def _read(text: str) -> list[str]:
    (row,) = csv.reader(io.StringIO(text, newline=""))
    return row


LONG = Table(("name", "gpus"), [("tiger", 8), ("lion", 16), ("swan", 24)], "pools")


def test_people_see_the_first_rows_of_a_long_table_and_how_many_more_there_are() -> None:
    text = table_text(Answer(None, [replace(LONG, shown=1)]))
    assert text.splitlines() == ["pools", "name   gpus", "tiger     8", "… and 2 more rows"]


def test_a_table_that_is_only_for_files_is_not_printed() -> None:
    assert table_text(Answer(None, [LONG, replace(LONG, shown=0)])) == table_text(Answer(None, [LONG]))


def test_a_table_that_fits_says_nothing_of_more() -> None:
    assert "more" not in table_text(Answer(None, [replace(LONG, shown=3)]))
