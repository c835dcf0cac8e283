"""Answers in every form: a document for machines, tables and words for people.

Tables are plain text without truncation, the same on a terminal and in a pipe.
"""

from __future__ import annotations

import csv
import enum
import io
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from plimsoll.times import show_time
from plimsoll.words import counted

_FORMULA = re.compile(r"(?s)[=+\-@\t\n].")
"""How a cell begins that a sheet carries out; a dash alone is none."""
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?%?")


class Output(enum.StrEnum):
    """What `-o` takes."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    YAML = "yaml"


class Table(msgspec.Struct, frozen=True):
    """Columns and rows of raw values; how a value looks depends on its type and its column's name."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    name: str = ""
    """What it is called when it alone is asked for."""
    shown: int | None = None
    """How many of its rows are printed for people, with 0 none of it; a file has them all."""


class Answer(msgspec.Struct, frozen=True):
    """One answer in every form: `document` for JSON and YAML, the first table for CSV if no other is named, all tables
    for people, `notes` (what to do next) for people only.
    """

    document: Any
    tables: Sequence[Table] = ()
    heading: str = ""
    notes: Sequence[str] = ()


def csv_text(rows: Iterable[Sequence[object]], *, is_for_sheets: bool = False) -> str:
    """Rows as CSV, without the last line break. A sheet would carry out a text that begins as a formula does, whoever
    wrote it: for sheets such a cell gets an apostrophe in front, and is a text there."""
    made = _sheet_cell if is_for_sheets else _csv_cell
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([made(value) for value in row] for row in rows)
    return buffer.getvalue().rstrip("\n")


def _csv_cell(value: object) -> object:
    if isinstance(value, datetime):
        return show_time(value)
    return "" if value is None else value


def _sheet_cell(value: object) -> object:
    cell = _csv_cell(value)
    if not isinstance(cell, str):
        return cell
    lines = cell.replace("\r\n", "\n").replace("\r", "\n")  # a bare return is not quoted, and would begin a row
    return f"'{lines}" if _FORMULA.match(lines) and not _NUMBER.fullmatch(lines) else lines


def table_text(answer: Answer, bold: Callable[[str], str] = str) -> str:
    """The answer for people; `bold` marks heads and titles."""
    pieces = [answer.heading] if answer.heading else []
    pieces += [_one_table(table, bold) for table in answer.tables if table.shown != 0]
    if answer.notes:
        pieces.append("\n".join(answer.notes))
    return "\n\n".join(pieces)


def _one_table(table: Table, bold: Callable[[str], str]) -> str:
    head = [column.replace("_", " ") for column in table.columns]
    rows = table.rows if table.shown is None else table.rows[: table.shown]
    cells = [[_cell(value, column) for value, column in zip(row, table.columns, strict=True)] for row in rows]
    widths = [max(len(head[i]), *(len(row[i]) for row in cells)) if cells else len(head[i]) for i in range(len(head))]
    is_number = [all(isinstance(row[i], int | float | None) for row in rows) and bool(rows) for i in range(len(head))]

    def line(texts: Sequence[str]) -> str:
        padded = [
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(texts, widths, is_number, strict=True)
        ]
        return "  ".join(padded).rstrip()

    lines = [bold(line(head)), *(line(row) for row in cells)]
    if not cells:
        lines.append("(none)")
    if len(rows) < len(table.rows):
        lines.append(f"… and {counted(len(table.rows) - len(rows), 'more row')}")
    return "\n".join([bold(table.title), *lines] if table.title else lines)


def _cell(value: object, column: str) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1%}" if column.endswith("share") else f"{value:,.1f}"
    if isinstance(value, int):
        return str(value) if column == "revision" else f"{value:,}"
    if isinstance(value, datetime):
        return show_time(value)
    return str(value)
