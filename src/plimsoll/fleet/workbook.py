"""One XLSX workbook with the sheets of a fleet folder, read row by row as text and written back.

A workbook is a zip of XML that anybody may have made: how much it unpacks to is looked at first, and whatever its
reader stumbles over is one clear refusal.
"""

from __future__ import annotations

import io
import os
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any

from plimsoll.errors import PlimsollError, Refused
from plimsoll.fleet.disk import not_written
from plimsoll.fleet.sheet import Problem, Problems
from plimsoll.times import as_moment, show_time

UNPACKED_BYTES_MAX = 1 << 30
COLUMNS_MAX = 200
XLSX_ROWS_MAX = 1_048_576
"""What a sheet of a workbook can hold."""


def read_workbook(path: Path, names: Sequence[str]) -> dict[str, XlsxSheet]:
    """The sheets that are there, of those that are wanted. They share the open workbook, and its table of texts."""
    book = _opened(path)
    present = set(book.sheetnames)
    return {name: XlsxSheet(book, path, name) for name in names if name in present}


def sheet_names(path: Path) -> list[str]:
    """The sheets of a workbook, in their order."""
    return list(_opened(path).sheetnames)


class XlsxSheet:
    """One sheet of a workbook. Dates become ISO text and whole floats whole numbers, as a CSV would have them."""

    def __init__(self, book: Any, path: Path, name: str) -> None:
        self._book, self.path, self.name = book, path, name
        self.source = f"{path.name}[{name}]"
        first = next(self._records(Problems()), (1, ()))[1]
        self.header = [cell.strip() for cell in first]
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
        try:
            sheet = self._book[self.name]
            sheet.reset_dimensions()  # what the file says of its own size may be wrong
            for number, values in enumerate(sheet.iter_rows(values_only=True), 1):
                if number > XLSX_ROWS_MAX:
                    problems.add(Problem(self.source, number, "", "", f"over {XLSX_ROWS_MAX:,} rows"))
                    return
                yield number, [_cell_text(value) for value in values]
        except Exception as error:
            raise _not_a_workbook(self.path, error) from error


def _cell_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date | datetime):
        return show_time(as_moment(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _opened(path: Path) -> Any:
    """The workbook, to be read row by row, after a look at how much its zip unpacks to."""
    import openpyxl

    # What it does not know of (a drop-down list, a picture) it only warns of, and we read none of that.
    warnings.filterwarnings("ignore", module="openpyxl")
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > UNPACKED_BYTES_MAX:
            raise Refused(
                "too_big",
                f"{path.name} unpacks to {unpacked:,} bytes, at most {UNPACKED_BYTES_MAX:,} are read;"
                " nothing was imported",
                next_step="give a folder of CSV files instead",
            )
        # Sheets are read as they are asked for: from memory, so that no file stays open behind whoever asks no more.
        return openpyxl.load_workbook(io.BytesIO(path.read_bytes()), read_only=True, data_only=True)
    except PlimsollError:
        raise
    except Exception as error:
        raise _not_a_workbook(path, error) from error


def _not_a_workbook(path: Path, error: Exception) -> Refused:
    return Refused(
        "not_a_workbook",
        f"{path.name} is not a whole XLSX workbook ({str(error)[:200] or type(error).__name__}); nothing was imported",
        next_step="save it as .xlsx again, or give a folder of CSV files",
    )


def write_workbook(path: Path, sheets: Mapping[str, Iterable[Sequence[str]]]) -> None:
    """One XLSX workbook, whole or not at all."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.write_bytes(b"")  # a place that can't be written is known before the work is done
        temporary.write_bytes(_workbook_bytes(sheets))
        os.replace(temporary, path)
    except OSError as error:
        raise not_written(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _workbook_bytes(sheets: Mapping[str, Iterable[Sequence[str]]]) -> bytes:
    """Text stays text: a cell that begins with `=` is not a formula."""
    import openpyxl
    from openpyxl.cell import WriteOnlyCell

    book = openpyxl.Workbook(write_only=True)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        with closing(sheet):
            for count, row in enumerate(rows, 1):
                if count > XLSX_ROWS_MAX:
                    raise Refused(
                        "too_many_rows",
                        f"{name} has over {XLSX_ROWS_MAX:,} rows, more than a workbook's sheet can hold",
                        next_step="export to a folder of CSV files instead",
                    )
                cells: list[Any] = list(row)
                for place, text in enumerate(row):
                    if text.startswith("="):
                        cells[place] = WriteOnlyCell(sheet, value=text)
                        cells[place].data_type = "s"
                sheet.append(cells)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()
