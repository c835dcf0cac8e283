"""One filter grammar for the command line, the API and the pages.

    cluster=tiger service!=in_service sku=H100,H200 node=tiger-00* since<7d gpus>=8

Terms are ANDed; a comma ORs values; `*` matches any text; `field=` matches an empty one. `<`, `<=`, `>`, `>=` compare
numbers, or times where the field is one (`since<7d`: earlier than seven days ago). Double quotes keep a value together
that holds a comma or looks like a term (`reason="host, maintenance"`), and a field that is not one word.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from fnmatch import translate

import msgspec

from plimsoll.errors import UsageError
from plimsoll.times import TIME_FORMS, parse_moment, show_time

TERMS_MAX = 50
TEXT_MAX = 10_000
VALUE_SHOWN_MAX = 100

Get = Callable[[str], object]
"""A field's value in the thing that is looked at; None where it has none."""

_FIELD = re.compile(r'\s*(?:"(?P<quoted>[^"]+)"|(?P<bare>[\w.\-]+))\s*(?P<operator>!=|<=|>=|=|<|>)')
_QUOTED = re.compile(r'\s*"(?P<value>[^"]*)"\s*(?:(?=,)|\Z|(?<=\s))')
_PIECE = re.compile(r"\s+|[^\s,]+")
_NUMBER = re.compile(r"[+-]?\d{1,18}(?:\.\d{1,18})?", re.ASCII)
_COMPARE: dict[str, Callable[[float | datetime, float | datetime], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Term(msgspec.Struct, frozen=True):
    """One condition: a field, an operator, and the values of which one must match."""

    field: str
    operator: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.field}{self.operator}{','.join(self.values)}"[:VALUE_SHOWN_MAX]


class Filter:
    """A parsed filter. `matches` says whether a thing passes, given how to get its fields."""

    def __init__(self, terms: Iterable[Term], *, now: datetime) -> None:
        self.terms = tuple(terms)
        self._tests = [(term.field, _test(term, now)) for term in self.terms]

    def matches(self, get: Get) -> bool:
        return all(test(get(field)) for field, test in self._tests)

    def check(self, known: Collection[str]) -> None:
        """Refuse a field that nothing here has, and name those that were probably meant."""
        for term in self.terms:
            if term.field not in known:
                near = difflib.get_close_matches(term.field, known, n=1)
                raise UsageError(
                    "unknown_field",
                    f"there is no field {term.field!r} to filter by" + (f"; did you mean {near[0]!r}?" if near else ""),
                    next_step="fields: " + ", ".join(known),
                    field=term.field,
                )


def parse_filter(texts: str | Iterable[str], *, now: datetime) -> Filter:
    """Read one text, or several (as the words of a command line)."""
    terms: list[Term] = []
    for text in [texts] if isinstance(texts, str) else texts:
        if len(text) > TEXT_MAX:
            raise UsageError(
                "bad_filter",
                f"the filter has {len(text):,} characters, at most {TEXT_MAX:,} are taken",
                next_step="write a shorter filter; * stands for many names",
            )
        place = 0
        while text[place:].strip():
            term, place = _next_term(text, place)
            terms.append(term)
            if len(terms) > TERMS_MAX:
                raise UsageError(
                    "bad_filter",
                    f"the filter has over {TERMS_MAX} terms",
                    next_step="put values of one field together with commas: sku=H100,H200",
                )
    return Filter(terms, now=now)


def _next_term(text: str, place: int) -> tuple[Term, int]:
    """The term that begins here, and where it ends."""
    match = _FIELD.match(text, place)
    if match is None:
        raise _not_a_term(text[place:])
    values, end = [], match.end()
    while True:
        value, end = _next_value(text, end)
        values.append(value)
        if not text.startswith(",", end):
            return Term(match["quoted"] or match["bare"], match["operator"], tuple(values)), end
        end += 1


def _next_value(text: str, place: int) -> tuple[str, int]:
    """A value in quotes, or one that lasts until a comma, the next term or the end; it may hold spaces."""
    is_empty = text[place : place + 1].isspace() and _FIELD.match(text, place)
    if not is_empty and text[place:].lstrip().startswith('"'):
        quoted = _QUOTED.match(text, place)
        if quoted is None:
            raise _not_a_term(text[place:], "a quote that is opened must be closed, and end the value")
        return quoted["value"], quoted.end()
    end = place
    while (piece := _PIECE.match(text, end)) is not None:
        if piece[0].isspace() and _FIELD.match(text, end):
            break
        end = piece.end()
    return text[place:end].strip(), end


def _not_a_term(text: str, why: str = "") -> UsageError:
    shown = text.strip()[:VALUE_SHOWN_MAX]
    return UsageError(
        "bad_filter",
        f"{shown!r} is not a filter term" + (f": {why}" if why else ""),
        next_step="write FIELD=VALUE, such as cluster=tiger 'reason=xid 79' sku=H100,H200",
        value=shown,
    )


def _test(term: Term, now: datetime) -> Callable[[object], bool]:
    if term.operator in _COMPARE:
        return _comparison(term, now)
    exact = {value for value in term.values if "*" not in value}
    globs = [re.compile(translate(_glob(value))) for value in term.values if "*" in value]
    is_wanted = term.operator == "="

    def test(value: object) -> bool:
        text = show_time(value) if isinstance(value, datetime) else "" if value is None else str(value)
        return (text in exact or any(glob.match(text) for glob in globs)) is is_wanted

    return test


def _glob(value: str) -> str:
    """Only `*` is special: `[` and `?` are themselves."""
    return re.sub(r"([\[?])", r"[\1]", value)


def _comparison(term: Term, now: datetime) -> Callable[[object], bool]:
    compare = _COMPARE[term.operator]
    number = _number(term.values[0])
    if len(term.values) > 1 or not term.values[0]:
        raise _bad_comparison(term, "one number or one time")
    moment = None if number is not None else _moment(term, now)

    def test(value: object) -> bool:
        if isinstance(value, datetime):
            if moment is None:
                raise _bad_comparison(term, f"a time: {term.field} is one")
            return compare(value, moment)
        if number is None:
            if isinstance(value, int | float):
                raise _bad_comparison(term, f"a number: {term.field} is one")
            return False
        found = None if value is None else _number(str(value))
        return found is not None and compare(found, number)

    return test


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _moment(term: Term, now: datetime) -> datetime:
    try:
        return parse_moment(term.values[0], now=now)
    except UsageError:
        raise _bad_comparison(term, "a number or a time") from None


def _bad_comparison(term: Term, expected: str) -> UsageError:
    return UsageError(
        "bad_filter",
        f"{str(term)!r}: after {term.operator} comes {expected}",
        next_step=f"a number such as gpus{term.operator}8; for a time {TIME_FORMS}",
        value=str(term),
    )
