"""Fleet folders on disk: CSV files, read as text and written back. (Workbooks are `workbook.py`'s.)

Nothing here knows what a cell means. Whatever a file can do to a reader (wrong encoding, an endless line, a quote that
is never closed, a pipe nobody writes to) ends in a clear problem and a bounded amount of work.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from plimsoll.errors import NotFound, Refused
from plimsoll.fleet.disk import check_file, not_written, reading
from plimsoll.fleet.sheet import Problem, Problems, RawSheet
from plimsoll.fleet.workbook import COLUMNS_MAX, read_workbook

ROWS_MAX = 5_000_000
LINE_CHARACTERS_MAX = 1 << 20
SMALL_FILE_BYTES = 64 << 20
UNREAD_TOLD_MAX = 10

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_CSV_ERRORS = {
    "unexpected end of data": "a quote that is opened in this row is never closed",
    "field larger than field limit (131072)": "a cell of over 131,072 characters; is a quote not closed?",
    "',' expected after '\"'": "text after a closing quote; a quote inside a quoted cell is written twice",
}


class CsvSheet:
    """One CSV file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = path.name
        with reading(path):
            check_file(path)
            self.header = self._read_header()

    def _read_header(self) -> list[str]:
        with self.path.open("rb") as file:
            first = file.read(2)
        if first in _UTF16_MARKS:
            raise Refused(
                "wrong_encoding",
                f"{self.source} row 1: the file is UTF-16, expected UTF-8; nothing was imported",
                next_step="save it as UTF-8 (in a spreadsheet: CSV UTF-8)",
                source=self.source,
            )
        problems = Problems()
        for _, cells in self._records(problems):
            return [cell.strip() for cell in cells]
        if problems.count:
            raise Refused("unreadable", f"{problems.listed[0]}; nothing was imported", next_step="save it as UTF-8 CSV")
        raise Refused(
            "empty_file",
            f"{self.source} is empty, expected a header in row 1; nothing was imported",
            next_step="write the header, or leave an optional file out",
            source=self.source,
        )

    def rows(self, problems: Problems) -> Iterator[tuple[int, Sequence[str]]]:
        records = self._records(problems)
        next(records, None)
        return records

    def _records(self, problems: Problems) -> Iterator[tuple[int, Sequence[str]]]:
        """Rows with the line on which each begins; empty lines are passed over."""
        count, start = 0, 1
        with reading(self.path), self.path.open(encoding="utf-8-sig", newline="") as file:
            is_small = self.path.stat().st_size < SMALL_FILE_BYTES
            reader = csv.reader(_bounded_lines(file, is_small=is_small), strict=True)
            try:
                for cells in reader:
                    if cells:
                        count += 1
                        if count > ROWS_MAX:
                            problems.add(Problem(self.source, start, "", "", f"over {ROWS_MAX:,} rows"))
                            return
                        yield start, cells
                    start = reader.line_num + 1
            except csv.Error as error:
                what = _CSV_ERRORS.get(str(error), str(error))
                problems.add(Problem(self.source, start, "", "", f"not CSV: {what}"))
            except UnicodeDecodeError:
                row, shown = self._first_bad_line()
                problems.add(Problem(self.source, row, "", "", f"not UTF-8 near {shown!r}; save the file as UTF-8"))

    def _first_bad_line(self) -> tuple[int, str]:
        with self.path.open("rb") as file:
            number = 1
            while line := file.readline(LINE_CHARACTERS_MAX):
                try:
                    line.decode()
                except UnicodeDecodeError as error:
                    return number, line[max(0, error.start - 20) : error.start + 20].decode("latin-1")
                number += line.endswith(b"\n")
        return 1, ""


def _bounded_lines(file: TextIO, *, is_small: bool) -> Iterator[str]:
    """The lines of a file, none of them endless. A small file's are looked at when read, which is quicker."""
    lines = iter(file) if is_small else iter(lambda: file.readline(LINE_CHARACTERS_MAX), "")
    for line in lines:
        if len(line) >= LINE_CHARACTERS_MAX:
            raise csv.Error(f"a line of over {LINE_CHARACTERS_MAX:,} characters")
        yield line


def is_workbook(path: Path) -> bool:
    """Whether a path means a workbook rather than a folder."""
    return path.suffix.lower() in (".xlsx", ".xlsm")


def read_folder(path: Path, names: Sequence[str]) -> Mapping[str, RawSheet]:
    """The sheets that are there, of those that are wanted."""
    with reading(path):
        sheets = _read_sheets(path, names)
    for sheet in sheets.values():
        if len(sheet.header) > COLUMNS_MAX:
            raise Refused(
                "too_many_columns",
                f"{sheet.source} has {len(sheet.header):,} columns, at most {COLUMNS_MAX} are read;"
                " nothing was imported",
                next_step="leave out columns that nobody filters by",
            )
    return sheets


def _read_sheets(path: Path, names: Sequence[str]) -> Mapping[str, RawSheet]:
    if not path.exists():
        raise NotFound("no_such_folder", f"there is no {path}", next_step="give a fleet folder or an .xlsx workbook")
    if path.is_dir():
        return {name: CsvSheet(file) for name in names if _is_there(file := path / f"{name}.csv")}
    if not is_workbook(path):
        raise Refused(
            "not_a_folder",
            f"{path} is not a folder; nothing was imported",
            next_step="give the folder that holds clusters.csv and nodes.csv, or an .xlsx workbook",
        )
    check_file(path)
    return read_workbook(path, names)


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def unread_files(path: Path, names: Sequence[str]) -> list[str]:
    """A warning for each CSV file of a folder that is none of ours: it may be ours with a slip in its name."""
    others = sorted(file.stem for file in path.glob("*.csv") if file.stem not in names) if path.is_dir() else []
    warnings = []
    for other in others[:UNREAD_TOLD_MAX]:
        near = difflib.get_close_matches(other.lower(), names, n=1)
        warnings.append(f"{other}.csv was not read" + (f"; did you mean {near[0]}.csv?" if near else ""))
    return warnings


def folder_digest(path: Path, names: Sequence[str]) -> str:
    """One hash over all the files, to say later which ones were imported."""
    digest = hashlib.sha256()
    with reading(path):
        files = [path] if path.is_file() else [path / f"{name}.csv" for name in sorted(names)]
        for file in files:
            if file.is_file():
                digest.update(f"{file.name}\n".encode(errors="surrogateescape"))
                with file.open("rb") as content:
                    while block := content.read(1 << 20):
                        digest.update(block)
    return digest.hexdigest()


SheetRows = Iterable[Sequence[str]]


def write_folder(path: Path, sheets: Mapping[str, SheetRows]) -> None:
    """CSV files, each whole or not at all: written beside, then moved into place."""
    try:
        if path.exists() and not path.is_dir():
            raise Refused(
                "not_a_folder",
                f"{path} is a file, not a folder; nothing was written",
                next_step="give a folder, or a name that ends in .xlsx",
            )
        path.mkdir(parents=True, exist_ok=True)
        for name, rows in sheets.items():
            descriptor, temporary = tempfile.mkstemp(prefix=f".{name}-", suffix=".csv", dir=path)
            try:
                with open(descriptor, "w", encoding="utf-8", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerows(rows)
                os.chmod(temporary, 0o644)  # mkstemp makes it 0600; an export is to be passed on
                os.replace(temporary, path / f"{name}.csv")
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
    except OSError as error:
        raise not_written(path, error) from error
