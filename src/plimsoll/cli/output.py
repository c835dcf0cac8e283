"""How answers look: a table for people, JSON, CSV and YAML for machines. Errors go to stderr.

Tables are plain text without truncation, the same on a terminal and in a pipe.
"""

from __future__ import annotations

import csv
import enum
import io
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from typing import Any

import msgspec
import typer

from plimsoll.errors import PlimsollError
from plimsoll.times import show_time

PROGRESS_AFTER_SECONDS = 0.7
PROGRESS_EVERY_SECONDS = 0.1


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


class Answer(msgspec.Struct, frozen=True):
    """One answer in every form: `document` for JSON and YAML, the first table for CSV, all tables for people,
    `notes` (what to do next) for people only.
    """

    document: Any
    tables: Sequence[Table] = ()
    heading: str = ""
    notes: Sequence[str] = ()


def show(answer: Answer, output: Output) -> None:
    """Print an answer to stdout."""
    if output is Output.JSON:
        _print(msgspec.json.format(msgspec.json.encode(answer.document), indent=2).decode())
    elif output is Output.YAML:
        import yaml

        plain = msgspec.to_builtins(answer.document, builtin_types=())
        _print(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip())
    elif output is Output.CSV:
        _print(csv_text([answer.tables[0].columns, *answer.tables[0].rows]) if answer.tables else "")
    else:
        _print(table_text(answer))


def _print(text: str) -> None:
    typer.echo(text)


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV, without the last line break."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([_csv_cell(value) for value in row] for row in rows)
    return buffer.getvalue().rstrip("\n")


def _csv_cell(value: object) -> object:
    if isinstance(value, datetime):
        return show_time(value)
    return "" if value is None else value


def table_text(answer: Answer) -> str:
    """The answer for people."""
    pieces = [answer.heading] if answer.heading else []
    pieces += [_one_table(table) for table in answer.tables]
    if answer.notes:
        pieces.append("\n".join(answer.notes))
    return "\n\n".join(pieces)


def _one_table(table: Table) -> str:
    head = [column.replace("_", " ") for column in table.columns]
    cells = [[_cell(value, column) for value, column in zip(row, table.columns, strict=True)] for row in table.rows]
    widths = [max(len(head[i]), *(len(row[i]) for row in cells)) if cells else len(head[i]) for i in range(len(head))]
    is_number = [
        all(isinstance(row[i], int | float | None) for row in table.rows) and bool(table.rows) for i in range(len(head))
    ]

    def line(texts: Sequence[str]) -> str:
        padded = [
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(texts, widths, is_number, strict=True)
        ]
        return "  ".join(padded).rstrip()

    lines = [_bold(line(head)), *(line(row) for row in cells)]
    if not cells:
        lines.append("(none)")
    return "\n".join([_bold(table.title), *lines] if table.title else lines)


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


def _bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if is_terminal(sys.stdout) and not os.environ.get("NO_COLOR") else text


def is_terminal(stream: Any) -> bool:
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"


def show_error(error: PlimsollError, arguments: Sequence[str]) -> None:
    """What happened, the number, the next thing to type; as JSON where JSON was asked for."""
    words = list(arguments)
    wants_json = any(word == "-ojson" or word == "--output=json" for word in words) or any(
        flag in ("-o", "--output") and value == "json" for flag, value in pairwise(words)
    )
    if wants_json:
        document = {
            "error": {
                "code": error.code,
                "message": error.message,
                "next_step": error.next_step,
                "fields": error.fields,
            }
        }
        typer.echo(msgspec.json.encode(document).decode(), err=True)
        return
    typer.echo(f"plimsoll: {error.message}", err=True)
    if error.next_step:
        typer.echo(f"  next: {error.next_step}", err=True)


class Progress:
    """A line on stderr while something takes long; nothing at all when stderr is no terminal.

    A thread draws it, so that it moves also while a step that can't say how far it is goes on.
    """

    def __init__(self, label: str, total: int | None = None) -> None:
        self._label, self._total = label, total
        self._done: int | None = None
        self._began = time.monotonic()
        self._is_drawn = False
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._draw_on, daemon=True)
        if is_terminal(sys.stderr):
            self._thread.start()

    def __call__(self, done: int, label: str = "") -> None:
        self._done, self._label = done, label or self._label

    def _draw_on(self) -> None:
        wait = PROGRESS_AFTER_SECONDS
        while not self._is_over.wait(wait):
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write("\r" + self._text()[:width].ljust(width))
            sys.stderr.flush()
            self._is_drawn, wait = True, PROGRESS_EVERY_SECONDS

    def _text(self) -> str:
        seconds = f"{time.monotonic() - self._began:.0f} s"
        if self._total and self._done is not None:
            share = min(1.0, self._done / self._total)
            bar = ("█" * round(24 * share)).ljust(24, "░")
            return f"{self._label} {bar} {share:4.0%} of {self._total:,}, {seconds}"
        return f"{self._label} {seconds}" if self._done is None else f"{self._label} {self._done:,}, {seconds}"

    def clear(self) -> None:
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._is_drawn:
            sys.stderr.write("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r")
            sys.stderr.flush()


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Progress]:
    """A progress line that is gone afterwards."""
    line = Progress(label, total)
    try:
        yield line
    finally:
        line.clear()
