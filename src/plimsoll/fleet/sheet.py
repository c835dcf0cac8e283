"""How the rows of a fleet folder become nouns: columns, bad cells, differences. Pure; files are `folder.py`'s.

Each capability describes its own sheet; this module is what they share. A bad row is never guessed at: it becomes a
`Problem` with file, row, column, value and what was expected, and the import keeps nothing.
"""

from __future__ import annotations

import abc
import enum
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from plimsoll.fleet.model import Phase
from plimsoll.ledger.model import Draft
from plimsoll.state.state import State
from plimsoll.times import CLOCK_SKEW_MAX, parse_time, show_time

NAME_MAX = 200
TEXT_MAX = 2_000
PROBLEMS_LISTED_MAX = 50
CACHE_MAX = 10_000
TELL_ROWS = 1_000

E = TypeVar("E", bound=enum.StrEnum)
K = TypeVar("K")
Parser = Callable[[str], Any]
ExportRows = Sequence[tuple[Sequence[str], Mapping[str, str]]]
"""Cells of a sheet's own columns, and labels."""


class Problem(msgspec.Struct, frozen=True):
    """A cell that can't be taken. `row` is the line in the file, the header being line 1; 0 stands for all of it."""

    source: str
    row: int
    column: str
    value: str
    expected: str

    def __str__(self) -> str:
        where = f"{self.source} row {self.row}" if self.row else self.source
        if not self.column:
            return f"{where}: {self.expected}"
        return f"{where} column {self.column}: {self.value!r}, expected {self.expected}"


class Problems:
    """All that is wrong with an import: the first ones in full, the rest as a number."""

    def __init__(self) -> None:
        self.listed: list[Problem] = []
        self.count = 0

    def add(self, problem: Problem) -> None:
        self.count += 1
        if len(self.listed) < PROBLEMS_LISTED_MAX:
            self.listed.append(problem)


class RawSheet(Protocol):
    """A sheet as text. `rows` may be asked for again: a decision that was stale is made anew."""

    @property
    def source(self) -> str:
        """What to call it in a message."""

    @property
    def header(self) -> Sequence[str]:
        """The names of the columns."""

    def rows(self, problems: Problems) -> Iterator[tuple[int, Sequence[str]]]:
        """Line number and cells; what can't be read as rows at all goes to `problems`."""


class MemorySheet:
    """A sheet that is not in a file."""

    def __init__(self, source: str, rows: Sequence[Sequence[str]]) -> None:
        self.source = source
        self.header = rows[0]
        self._rows = rows

    def rows(self, problems: Problems) -> Iterator[tuple[int, Sequence[str]]]:
        assert problems is not None
        return zip(range(2, len(self._rows) + 1), self._rows[1:], strict=True)


class WatchedSheet:
    """A sheet that says how far its reader is."""

    def __init__(self, raw: RawSheet, tell: Callable[[str, int], None]) -> None:
        self.source, self.header = raw.source, raw.header
        self._raw, self._tell = raw, tell

    def rows(self, problems: Problems) -> Iterator[tuple[int, Sequence[str]]]:
        for count, row in enumerate(self._raw.rows(problems), 1):
            if count % TELL_ROWS == 0:
                self._tell(self.source, count)
            yield row


class Column(NamedTuple):
    """A column that a sheet must have. `is_cached`: the same few texts come again and again."""

    name: str
    parse: Parser
    is_cached: bool = False


class Row(msgspec.Struct, gc=False):
    """A parsed row. In a bad one the cells that could not be parsed are still text."""

    number: int
    values: list[Any]
    labels: dict[str, str]
    is_bad: bool

    @property
    def fields(self) -> list[Any]:
        """The values and, last, the labels: in the order of a noun's fields."""
        return [*self.values, self.labels]


class What(enum.StrEnum):
    """What an import does to a row of the book."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    SAME = "same"


class Difference(msgspec.Struct, frozen=True):
    """One row that an import adds, changes or removes; `was` as far as it changes."""

    what: What
    key: str
    was: Mapping[str, str | None] = {}


class SheetPlan(msgspec.Struct):
    """What one sheet would change, row by row; `tally` counts the rows that are not listed: the same, and history."""

    name: str
    drafts: list[Draft] = []
    differences: list[Difference] = []
    tally: Counter[str] = msgspec.field(default_factory=Counter)
    warnings: list[str] = []

    def add(self, what: What, key: str, draft: Draft, was: Mapping[str, str | None] | None = None) -> None:
        self.drafts.append(draft)
        self.differences.append(Difference(what, key, was or {}))

    def counts(self) -> dict[str, int]:
        """Rows by what happens to them."""
        counted = Counter(difference.what for difference in self.differences) + self.tally
        return {what.value: counted[what] for what in What}


class ImportContext(msgspec.Struct):
    """What the sheets of one import know in common.

    `is_partial`: what is not in the files stays as it is, instead of being retired. `has_local_islands`: island names
    are unique in their cluster only. `phases` are those of clusters whose phase follows from more than a file says:
    they keep it, and are not retired by being left out. `seen` holds the ids a sheet names, those of bad rows too, and
    `unread` the sheets that could not be read to the end of each row, so that one bad row does not make every row that
    refers to it bad.
    """

    now: datetime
    source: str
    is_partial: bool = False
    has_local_islands: bool = False
    phases: Mapping[str, Phase] = {}
    seen: dict[str, set[str]] = {}
    unread: set[str] = set()
    is_capacity_known: bool = True

    def may_name(self, sheet: str, key: str) -> bool:
        """Whether the files name it, or might in what can't be read of them."""
        return key in self.seen.get(sheet, ()) or sheet in self.unread

    def island(self, cluster: str, island: str) -> str:
        """An island's id, which is unique over the fleet. One from an export begins with its cluster already."""
        if not self.has_local_islands or island.startswith(f"{cluster}/"):
            return island
        return f"{cluster}/{island}"


class Sheet(abc.ABC):
    """One file of a fleet folder: how its rows change the state, and how the state becomes rows again."""

    name: str
    is_required = False

    @abc.abstractmethod
    def columns(self, context: ImportContext) -> tuple[Column, ...]: ...

    @abc.abstractmethod
    def plan(self, raw: RawSheet, state: State, context: ImportContext, problems: Problems) -> SheetPlan: ...

    def keep(self, state: State, context: ImportContext, problems: Problems) -> SheetPlan | None:
        """What must follow from the other sheets when this one is not in the import. For most, nothing."""
        return None

    @abc.abstractmethod
    def export(self, state: State) -> ExportRows:
        """Cells of the named columns, and labels, per row, in an order that depends only on the content."""

    def read(self, raw: RawSheet, context: ImportContext, problems: Problems) -> Iterator[Row]:
        """The rows, parsed. Cells are stripped; extra columns become labels, empty ones none."""
        columns = self.columns(context)
        if not (indexes := _places(raw, columns, problems)):
            context.unread.add(self.name)
            return
        parsers = [
            _Memory(column.parse).__getitem__ if column.is_cached else _stripped(column.parse) for column in columns
        ]
        places = list(zip(indexes, parsers, strict=True))
        label_places = [(index, name) for index, name in enumerate(raw.header) if index not in indexes]
        width, unreadable = len(raw.header), Problems()
        for number, cells in raw.rows(unreadable):
            if len(cells) != width:
                expected = f"expected {width} cells as in the header, found {len(cells)}"
                problems.add(Problem(raw.source, number, "", "", expected))
                context.unread.add(self.name)
                continue
            is_bad = False
            try:
                values = [parse(cells[index]) for index, parse in places]
            except ValueError:
                is_bad = True
                values = list(_parse_one_by_one(raw, number, cells, columns, indexes, problems))
            labels = _labels(raw, number, cells, label_places, problems) if label_places else {}
            yield Row(number, values, labels, is_bad)
        for problem in unreadable.listed:
            problems.add(problem)
            context.unread.add(self.name)


class _Memory(dict[str, Any]):
    """The values of texts that were parsed before."""

    def __init__(self, parse: Parser) -> None:
        super().__init__()
        self._parse = parse

    def __missing__(self, text: str) -> Any:
        value = self._parse(text.strip())
        if len(self) < CACHE_MAX:
            self[text] = value
        return value


def _stripped(parse: Parser) -> Parser:
    return lambda text: parse(text.strip())


def _parse_one_by_one(
    raw: RawSheet, number: int, cells: Sequence[str], columns: Sequence[Column], indexes: list[int], problems: Problems
) -> Iterator[Any]:
    """The cells of a bad row: each bad one is a problem and stays text."""
    for column, index in zip(columns, indexes, strict=True):
        text = cells[index].strip()
        try:
            yield column.parse(text)
        except ValueError as error:
            problems.add(Problem(raw.source, number, column.name, text[:100], str(error)))
            yield text


def _places(raw: RawSheet, columns: tuple[Column, ...], problems: Problems) -> list[int]:
    """Where each column is. Nothing, and problems, when one is missing, unnamed or there twice."""
    names = list(raw.header)
    problems_before = problems.count
    if len(names) == 1 and (other := next((mark for mark in ";\t|" if mark in names[0]), "")):
        problems.add(Problem(raw.source, 1, "", "", f"expected columns separated by commas, found {other!r}"))
        return []
    for index, name in enumerate(names):
        if not name:
            problems.add(Problem(raw.source, 1, f"#{index + 1}", "", "a name for this column"))
        elif name in names[:index]:
            problems.add(Problem(raw.source, 1, name, name, "each column once"))
        elif not name.isprintable() or len(name) > NAME_MAX:
            problems.add(Problem(raw.source, 1, f"#{index + 1}", name[:100], "a printable name for this column"))
    for column in columns:
        if column.name not in names:
            wanted = ",".join(each.name for each in columns)
            problems.add(Problem(raw.source, 1, column.name, "", f"this column; the header needs {wanted}"))
    if problems.count > problems_before:
        return []
    return [names.index(column.name) for column in columns]


def _labels(
    raw: RawSheet, number: int, cells: Sequence[str], places: list[tuple[int, str]], problems: Problems
) -> dict[str, str]:
    labels = {}
    for index, name in places:
        if text := cells[index].strip():
            try:
                labels[name] = parse_text(text)
            except ValueError as error:
                problems.add(Problem(raw.source, number, name, text[:100], str(error)))
    return labels


# Parsers of single cells: text in, value out, ValueError with what was expected.


def parse_text(text: str) -> str:
    """Any one line of text, also none."""
    if len(text) > TEXT_MAX:
        raise ValueError(f"at most {TEXT_MAX} characters, found {len(text)}")
    if not text.isprintable():
        raise ValueError("one line of printable text")
    return text


def parse_name(text: str) -> str:
    """A name: some printable text."""
    if not text:
        raise ValueError("a name, found nothing")
    if len(text) > NAME_MAX:
        raise ValueError(f"a name of at most {NAME_MAX} characters, found {len(text)}")
    if not text.isprintable():
        raise ValueError("a name of printable characters")
    return text


def parse_plain_name(text: str) -> str:
    """A name that is also a part of a stream's name, such as `pool/tiger/H200`."""
    if "/" in parse_name(text):
        raise ValueError("a name without '/'")
    return text


def whole_number(*, least: int, most: int) -> Parser:
    """A parser of whole numbers in a range; `8.0` is what spreadsheets make of 8."""

    def parse(text: str) -> int:
        digits = text.removesuffix(".0")
        if digits.isascii() and digits.isdigit() and len(digits) < 19 and least <= int(digits) <= most:
            return int(digits)
        raise ValueError(f"a whole number from {least} to {most}")

    return parse


def one_of(choices: type[E]) -> Parser:
    """A parser of the words of an enum."""

    def parse(text: str) -> E:
        try:
            return choices(text)
        except ValueError:
            raise ValueError("one of " + ", ".join(choices)) from None

    return parse


def past_time(now: datetime, *, is_optional: bool) -> Parser:
    """A parser of moments that are not in the future, but for a little skew of clocks."""
    latest = now + CLOCK_SKEW_MAX

    def parse(text: str) -> datetime | None:
        if not text and is_optional:
            return None
        try:
            moment = parse_time(text)
        except (ValueError, OverflowError):
            raise ValueError("a time such as 2026-01-05T11:00:00Z") from None
        if moment > latest:
            raise ValueError(f"a time that is not in the future (now is {show_time(now)})")
        return moment

    return parse


def changed_fields(before: msgspec.Struct, after: msgspec.Struct) -> dict[str, str | None]:
    """The fields that differ, as they were: `labels.serves` for a label, None for one that was not there."""
    was: dict[str, str | None] = {}
    for name in before.__struct_fields__:
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            was |= {f"{name}.{key}": old.get(key) for key in sorted(old | new) if old.get(key) != new.get(key)}
        else:
            was[name] = show_time(old) or None if isinstance(old, datetime) else None if old is None else str(old)
    return was


def unique(ids: dict[K, int], key: K, row: Row, raw: RawSheet, column: str, problems: Problems) -> bool:
    """Whether a key is named for the first time; a second naming is a problem."""
    first = ids.setdefault(key, row.number)
    if first != row.number:
        shown = key if isinstance(key, str) else " ".join(map(str, key)) if isinstance(key, tuple) else str(key)
        problems.add(Problem(raw.source, row.number, column, shown, f"each only once; row {first} has it already"))
    return first == row.number
