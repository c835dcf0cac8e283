"""Fleet folders and workbooks on disk: CSV files or one XLSX with the same sheets, read as text and written back.

Nothing here knows what a cell means. Whatever a file can do to a reader (wrong encoding, an endless line, a zip that
unpacks to the moon, a pipe nobody writes to) ends in a clear problem and a bounded amount of work.
"""

from __future__ import annotations

import csv
import hashlib
import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any

from plimsoll.errors import NotFound, Refused
from plimsoll.fleet.sheet import Problem, Problems, RawSheet
from plimsoll.times import as_moment, show_time

ROWS_MAX = 5_000_000
FILE_BYTES_MAX = 2 << 30
UNPACKED_BYTES_MAX = 4 << 30
COLUMNS_MAX = 200
XLSX_ROWS_MAX = 1_048_576
"""What a sheet of a workbook can hold."""

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class CsvSheet:
    """One CSV file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = path.name
        _check_file(path)
        self.header = self._read_header()

    def _read_header(self) -> list[str]:
        with self.path.open("rb") as file:
            first = file.read(2)
        if first in _UTF16_MARKS:
            raise Refused(
                "wrong_encoding",
                f"{self.source} is UTF-16, expected UTF-8; nothing was imported",
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
        count = 0
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            try:
                for cells in reader:
                    if not cells:
                        continue
                    count += 1
                    if count > ROWS_MAX:
                        problems.add(Problem(self.source, reader.line_num, "", "", f"over {ROWS_MAX:,} rows"))
                        return
                    yield reader.line_num, cells
            except csv.Error as error:
                problems.add(Problem(self.source, reader.line_num, "", "", f"not CSV: {error}"))
            except UnicodeDecodeError:
                row, shown = self._first_bad_line()
                problems.add(Problem(self.source, row, "", "", f"not UTF-8 near {shown!r}; save the file as UTF-8"))

    def _first_bad_line(self) -> tuple[int, str]:
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    line.decode()
                except UnicodeDecodeError as error:
                    return number, line[max(0, error.start - 20) : error.start + 20].decode("latin-1")
        return 1, ""


class XlsxSheet:
    """One sheet of a workbook. Dates become ISO text and whole floats whole numbers, as a CSV would have them."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self.source = f"{path.name}[{name}]"
        problems = Problems()
        self.header = [cell.strip() for cell in next(self._records(problems), (0, ()))[1]]
        while self.header and not self.header[-1]:
            self.header.pop()
        if not self.header:
            raise Refused(
                "empty_file",
                f"{self.source} is empty, expected a header in row 1; nothing was imported",
                next_step="write the header, or leave an optional sheet out",
                source=self.source,
            )

    def rows(self, problems: Problems) -> Iterator[tuple[int, Sequence[str]]]:
        records = self._records(problems)
        next(records, None)
        width = len(self.header)
        for number, cells in records:
            # A spreadsheet pads rows at will: empty cells past the header are nothing, missing ones are empty.
            if any(cells):
                used = len(cells)
                while used > width and not cells[used - 1]:
                    used -= 1
                yield number, [*cells[:used], *[""] * (width - used)]

    def _records(self, problems: Problems) -> Iterator[tuple[int, Sequence[str]]]:
        with closing(_workbook(self.path)) as book:
            for number, values in enumerate(book[self.name].iter_rows(values_only=True, max_col=COLUMNS_MAX), 1):
                if number > XLSX_ROWS_MAX:
                    problems.add(Problem(self.source, number, "", "", f"over {XLSX_ROWS_MAX:,} rows"))
                    return
                yield number, [_cell_text(value) for value in values]


def _cell_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date | datetime):
        return show_time(as_moment(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _workbook(path: Path) -> Any:
    """The workbook, opened to be read row by row, after a look at how much its zip unpacks to."""
    import openpyxl

    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > UNPACKED_BYTES_MAX:
            raise Refused(
                "too_big", f"{path.name} unpacks to {unpacked:,} bytes, at most {UNPACKED_BYTES_MAX:,} are read"
            )
        return openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
        raise Refused(
            "not_a_workbook",
            f"{path.name} is not an XLSX workbook ({error}); nothing was imported",
            next_step="save it as .xlsx, or give a folder of CSV files",
        ) from error


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise Refused("not_a_file", f"{path.name} is not a regular file; nothing was imported", next_step="give a file")
    if (size := path.stat().st_size) > FILE_BYTES_MAX:
        raise Refused("too_big", f"{path.name} has {size:,} bytes, at most {FILE_BYTES_MAX:,} are read")
    if not os.access(path, os.R_OK):
        raise Refused("not_readable", f"{path.name} can't be read; nothing was imported", next_step=f"chmod +r {path}")


def is_workbook(path: Path) -> bool:
    """Whether a path means a workbook rather than a folder."""
    return path.suffix.lower() in (".xlsx", ".xlsm")


def read_folder(path: Path, names: Sequence[str]) -> Mapping[str, RawSheet]:
    """The sheets that are there, of those that are wanted."""
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
    _check_file(path)
    with closing(_workbook(path)) as book:
        present = set(book.sheetnames)
    return {name: XlsxSheet(path, name) for name in names if name in present}


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def folder_digest(path: Path, names: Sequence[str]) -> str:
    """One hash over all the files, to say later which ones were imported."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else [path / f"{name}.csv" for name in sorted(names)]
    for file in files:
        if file.is_file():
            digest.update(f"{file.name}\n".encode())
            with file.open("rb") as content:
                while block := content.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()


SheetRows = Iterable[Sequence[str]]


def write_folder(path: Path, sheets: Mapping[str, SheetRows]) -> None:
    """CSV files, each whole or not at all: written beside, then moved into place."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name, rows in sheets.items():
            descriptor, temporary = tempfile.mkstemp(prefix=f".{name}-", suffix=".csv", dir=path)
            try:
                with open(descriptor, "w", encoding="utf-8", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerows(rows)
                os.chmod(temporary, 0o644)  # noqa: S103: mkstemp makes it 0600; an export is to be passed on
                os.replace(temporary, path / f"{name}.csv")
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
    except OSError as error:
        raise _not_written(path, error) from error


def write_workbook(path: Path, sheets: Mapping[str, SheetRows]) -> None:
    """One XLSX workbook. Text stays text: a cell that begins with `=` is not a formula."""
    import openpyxl
    from openpyxl.cell import WriteOnlyCell

    book = openpyxl.Workbook(write_only=True)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for count, row in enumerate(rows, 1):
            if count > XLSX_ROWS_MAX:
                raise Refused(
                    "too_many_rows",
                    f"{name} has over {XLSX_ROWS_MAX:,} rows, more than a workbook's sheet can hold",
                    next_step="export to a folder of CSV files instead",
                )
            cells = []
            for text in row:
                cell = WriteOnlyCell(sheet, value=text)
                if text.startswith("="):
                    cell.data_type = "s"
                cells.append(cell)
            sheet.append(cells)
    temporary = path.with_name(f".{path.name}.part")
    try:
        book.save(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise _not_written(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _not_written(path: Path, error: OSError) -> Refused:
    return Refused(
        "not_written",
        f"{path} could not be written: {error.strerror or error}",
        next_step="give a place that you may write to and that has room",
    )
