"""The forms of an answer: JSON, CSV, YAML, and the whole answer for a terminal elsewhere.

Decides which form is meant (`format` in the query, else `Accept`), with which `-o` its command is asked, and makes its
bytes; pages of a list are cut here.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from plimsoll.answers import Answer, Table, csv_text
from plimsoll.errors import UsageError
from plimsoll.server.call import Said
from plimsoll.words import near

ANSWER_TYPE = "application/vnd.plimsoll.answer+json"
_PRINTED_AS = re.compile(rf"{re.escape(ANSWER_TYPE)} *; *output=(\w{{1,10}})")
PICTURES = ("png", "svg")
PAGE_MAX = 20_000
_encoder = msgspec.json.Encoder()


class Form(enum.StrEnum):
    """What can be asked for."""

    JSON = "json"
    CSV = "csv"
    YAML = "yaml"
    ANSWER = "answer"

    @property
    def content_type(self) -> str:
        return _TYPES[self]


_TYPES = {
    Form.JSON: "application/json",
    Form.CSV: "text/csv; charset=utf-8",
    Form.YAML: "application/yaml",
    Form.ANSWER: ANSWER_TYPE,
}
TEXT_TYPE = "text/plain; charset=utf-8"


class Cut(NamedTuple):
    """Which part of a list is meant; none means all."""

    begin: int = 0
    most: int | None = None

    def of(self, items: Sequence[Any]) -> Sequence[Any]:
        return items if self == WHOLE else items[self.begin : None if self.most is None else self.begin + self.most]


WHOLE = Cut()


def number_meant(text: str | None, name: str) -> int:
    """A whole number of the query; 0 where it says none."""
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise UsageError("bad_parameter", f"{name}: {text[:50]!r} is not a whole number", parameter=name)
    return int(text)


def form_meant(format_word: str | None, accept: str) -> Form:
    """`format` wins; an `Accept` that names none of ours means JSON."""
    if format_word is not None:
        if format_word in Form.__members__.values():
            return Form(format_word)
        known = [str(form) for form in Form]
        raise UsageError(
            "bad_format",
            f"format {format_word[:50]!r} is none of {', '.join(known)}{near(format_word, known)}",
            next_step="leave it out for JSON",
            parameter="format",
        )
    if "json" not in accept or ANSWER_TYPE in accept:
        for form in (Form.ANSWER, Form.CSV, Form.YAML):
            if form.content_type.partition(";")[0] in accept:
                return form
    return Form.JSON


def printed_as(form: Form, accept: str) -> str:
    """As what a terminal prints the whole answer, which it says in `Accept` (`…answer+json; output=csv`); "" where it
    does not say."""
    found = _PRINTED_AS.search(accept) if form is Form.ANSWER else None
    if found is not None and found[1] in PICTURES:
        raise UsageError("bad_format", "pictures are made at a database", next_step="ask for another output")
    return found[1] if found is not None else ""


def body_of(said: Said, form: Form, *, items: str = "", cut: Cut = WHOLE, table: str = "") -> bytes:
    """The bytes of one form; `table` names the one that CSV is of, where it is not the first."""
    answer = said.answer or Answer(None)
    if form is Form.ANSWER:
        return _encoder.encode(
            {
                "document": _document(said, items, cut, with_files=False),
                "tables": [
                    {
                        "columns": each.columns,
                        "rows": [
                            [_cell(value) for value in row] for row in (each.rows if place else cut.of(each.rows))
                        ],
                        "title": each.title,
                        "name": each.name,
                        "shown": each.shown,
                    }
                    for place, each in enumerate(answer.tables)
                ],
                "heading": answer.heading,
                "notes": answer.notes,
                "text": said.text,
                "files": said.files,
                "exit_code": said.exit_code,
                "revision": said.revision,
            }
        )
    if said.text is not None and said.answer is None:
        return said.text.encode()
    if form is Form.CSV:
        meant = table_meant(answer, table)
        return (csv_text([meant.columns, *cut.of(meant.rows)], is_for_sheets=True) + "\n").encode()
    document = _document(said, items, cut)
    if form is Form.YAML:
        import yaml

        plain = msgspec.to_builtins(document, builtin_types=())
        return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).encode()
    return _encoder.encode(document)


def _cell(value: object) -> object:
    """What is printed elsewhere is printed as here: a span of time is `1:00:00`, in a table as in a file."""
    return value if isinstance(value, str | int | float | datetime | None) else str(value)


def table_meant(answer: Answer, name: str) -> Table:
    """The table of an answer that is meant: by its name, or by its place where it has none; the first by default."""
    if not name:
        return answer.tables[0] if answer.tables else _figures(answer.document)
    named = {table.name or str(place): table for place, table in enumerate(answer.tables, 1)}
    if (found := named.get(name)) is not None:
        return found
    known = ", ".join(named)
    raise UsageError(
        "no_such_table",
        f"there is no table {name[:50]!r} in this answer{near(name, list(named))}",
        next_step=f"it has {known}" if known else "leave it out: this answer has none",
        parameter="table",
        tables=list(named),
    )


def _figures(document: Any) -> Table:
    """An answer without a table has its figures as one row, so that no CSV is empty."""
    plain = document if isinstance(document, dict) else {}
    figures = {key: value for key, value in plain.items() if not isinstance(value, list | dict)}
    return Table(tuple(figures), [tuple(figures.values())])


def _document(said: Said, items: str, cut: Cut, *, with_files: bool = True) -> Any:
    document: Any = said.answer.document if said.answer is not None else None
    if items and cut != WHOLE:
        document = {**document, items: cut.of(document[items])} if isinstance(document, dict) else cut.of(document)
    if said.files is not None and with_files and isinstance(document, dict):
        document = {**document, "files": said.files}
    return document


def count_of(said: Said, items: str, form: Form, table: str) -> int:
    """How many there are of what is given page by page: rows of the list, of the table, or the more of both."""
    answer = said.answer or Answer(None)
    if form is Form.CSV:
        return len(table_meant(answer, table).rows)
    document: Any = answer.document
    listed = len((document.get(items, ()) if isinstance(document, dict) else document) or ())
    rows = len(answer.tables[0].rows) if answer.tables else 0
    return max(listed, rows) if form is Form.ANSWER else listed
