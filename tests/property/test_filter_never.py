"""Whatever is typed: a filter never fails in any way but one, and never passes what a plain reading would not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import UsageError
from plimsoll.filter import parse_filter
from plimsoll.times import show_time

NOW = datetime(2026, 1, 20, 12, 0, tzinfo=UTC)
TRICKY = st.text(st.sampled_from('ab =<>!,*"[]?.-7d\t\n\x00é'), max_size=40)
VALUES = st.none() | st.integers(-20, 20) | st.datetimes(timezones=st.just(UTC)) | TRICKY


@given(text=TRICKY | st.text(max_size=200), value=VALUES)
def test_any_text_is_a_filter_or_refused_with_words(text: str, value: object) -> None:
    with suppress(UsageError):
        parse_filter(text, now=NOW).matches(lambda _field: value)


@given(words=st.lists(TRICKY, max_size=6))
def test_any_words_are_a_filter_or_refused_with_words(words: list[str]) -> None:
    with suppress(UsageError):
        parse_filter(words, now=NOW)


WORD = st.text(st.sampled_from("abx1"), max_size=3)
PIECES = st.lists(WORD | st.just("*"), max_size=4).map("".join)
Condition = tuple[str, str, list[Any]]
TEXTS = st.tuples(
    st.sampled_from(["one", "two"]), st.sampled_from(["=", "!="]), st.lists(PIECES, min_size=1, max_size=3)
)
NUMBERS = st.tuples(
    st.just("count"), st.sampled_from(["<", "<=", ">", ">="]), st.integers(-5, 5).map(lambda number: [number])
)
SPANS = st.tuples(
    st.just("since"), st.sampled_from(["<", "<=", ">", ">="]), st.integers(0, 9).map(lambda days: [timedelta(days)])
)
CONDITIONS = st.lists(TEXTS | NUMBERS | SPANS, max_size=5)
THINGS = st.fixed_dictionaries(
    {
        "one": WORD,
        "two": st.none() | WORD,
        "count": st.none() | st.integers(-5, 5),
        "since": st.none() | st.integers(0, 9).map(lambda days: NOW - timedelta(days)),
    }
)
QUOTE: dict[bool, Callable[[str], str]] = {True: lambda text: f'"{text}"', False: str}


def typed(conditions: list[Condition], spaces: list[int], quotes: list[bool]) -> str:
    """The conditions as a person may type them."""
    text = ""
    for number, (field, operator, values) in enumerate(conditions):
        quote = QUOTE[quotes[number]]
        shown = [f"{each.days}d" if isinstance(each, timedelta) else str(each) for each in values]
        gap = " " * spaces[number]
        text += f" {gap}{field}{gap}{operator}{','.join(map(quote, shown))}"
    return text


def passes(thing: dict[str, Any], condition: Condition) -> bool:
    """Read slowly, letter by letter."""
    field, operator, values = condition
    value = thing[field]
    if operator in ("=", "!="):
        text = show_time(value) if isinstance(value, datetime) else "" if value is None else str(value)
        return any(looks_like(pattern, text) for pattern in values) == (operator == "=")
    if value is None:
        return False
    (bound,) = values
    limit = NOW - bound if isinstance(bound, timedelta) else bound
    return bool({"<": value < limit, "<=": value <= limit, ">": value > limit, ">=": value >= limit}[operator])


def looks_like(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return looks_like(pattern[1:], text) or (bool(text) and looks_like(pattern, text[1:]))
    return bool(text) and text[0] == pattern[0] and looks_like(pattern[1:], text[1:])


@given(
    conditions=CONDITIONS,
    thing=THINGS,
    spaces=st.lists(st.integers(0, 2), min_size=5, max_size=5),
    quotes=st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_a_filter_passes_what_a_plain_reading_passes(
    conditions: list[Condition], thing: dict[str, Any], spaces: list[int], quotes: list[bool]
) -> None:
    text = typed(conditions, spaces, quotes)
    want = all(passes(thing, condition) for condition in conditions)
    assert parse_filter(text, now=NOW).matches(thing.get) is want, text
