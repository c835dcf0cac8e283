"""One filter grammar for the command line, the API and the pages.

    cluster=tiger service!=in_service sku=H100,H200 node=tiger-00* since<7d gpus>=8

Terms are ANDed; a comma ORs values; `*` matches any text; `field=` matches an empty one. `<`, `<=`, `>`, `>=` compare
numbers, or times where the field is one (`since<7d`: earlier than seven days ago). A value may be put in double quotes.
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
from plimsoll.times import parse_moment

TERMS_MAX = 50
TEXT_MAX = 10_000

Get = Callable[[str], object]
"""A field's value in the thing that is looked at; None where it has none."""

_OPERATOR = r"(?:!=|<=|>=|=|<|>)"
_TERM = re.compile(
    rf'\s*(?P<field>[\w.\-]+)\s*(?P<operator>{_OPERATOR})\s*(?P<value>"[^"]*"|.*?)'
    rf"(?=\s+[\w.\-]+\s*{_OPERATOR}|\s*$)"
)
_COMPARE: dict[str, Callable[[float | datetime, float | datetime], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Term(msgspec.Struct, frozen=True):
    """One condition: a field, an operator, a text."""

    field: str
    operator: str
    value: str


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
        terms += _terms(text)
    if len(terms) > TERMS_MAX:
        raise UsageError("bad_filter", f"the filter has {len(terms)} terms, at most {TERMS_MAX} are taken")
    return Filter(terms, now=now)


def _terms(text: str) -> list[Term]:
    if len(text) > TEXT_MAX:
        raise UsageError("bad_filter", f"the filter has {len(text)} characters, at most {TEXT_MAX} are taken")
    terms, place = [], 0
    while text[place:].strip():
        match = _TERM.match(text, place)
        if match is None:
            raise UsageError(
                "bad_filter",
                f"{text[place:].strip()!r} is not a filter term",
                next_step="write FIELD=VALUE, such as cluster=tiger service!=in_service sku=H100,H200",
                value=text,
            )
        value = match["value"]
        if len(value) > 1 and value.startswith('"') and value.endswith('"'):
            value = value[1:-1]
        terms.append(Term(match["field"], match["operator"], value))
        place = match.end()
    return terms


def _test(term: Term, now: datetime) -> Callable[[object], bool]:
    if term.operator in _COMPARE:
        return _comparison(term, now)
    exact = {value for value in term.value.split(",") if "*" not in value}
    globs = [re.compile(translate(_glob(value))) for value in term.value.split(",") if "*" in value]
    is_wanted = term.operator == "="

    def test(value: object) -> bool:
        text = "" if value is None else str(value)
        return (text in exact or any(glob.match(text) for glob in globs)) is is_wanted

    return test


def _glob(value: str) -> str:
    """Only `*` is special: `[` and `?` are themselves."""
    return re.sub(r"([\[?])", r"[\1]", value)


def _comparison(term: Term, now: datetime) -> Callable[[object], bool]:
    compare = _COMPARE[term.operator]
    try:
        number: float | None = float(term.value)
    except ValueError:
        number = None
    moment = None
    if number is None:
        moment = parse_moment(term.value, now=now)

    def test(value: object) -> bool:
        if isinstance(value, datetime):
            return moment is not None and compare(value, moment)
        if number is None or value is None:
            return False
        try:
            return compare(float(str(value)), number)
        except ValueError:
            return False

    return test
