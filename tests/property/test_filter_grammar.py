"""The filter grammar, sentence by sentence."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from plimsoll.errors import UsageError
from plimsoll.filter import Term, parse_filter
from tests.support.effort import effort

NOW = datetime(2026, 1, 20, 12, 0, tzinfo=UTC)
THING = {
    "cluster": "tiger",
    "sku": "H200",
    "gpus": 8,
    "since": datetime(2026, 1, 13, 12, 0, tzinfo=UTC),
    "reason": 'host "a", maintenance',
    "rack": None,
    "row": "12",
    "kind": "a=b",
    "marks": "[x]?",
    "rack row": "seven",
}


def terms(*texts: str) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(term.field, term.operator, term.values) for term in parse_filter(texts, now=NOW).terms]


PARSED: dict[str, tuple[str, list[tuple[str, str, tuple[str, ...]]]]] = {
    "nothing": ("", []),
    "only spaces": (" \t\n", []),
    "one term": ("cluster=tiger", [("cluster", "=", ("tiger",))]),
    "several terms in one text": (
        "cluster=tiger service!=in_service",
        [("cluster", "=", ("tiger",)), ("service", "!=", ("in_service",))],
    ),
    "values with commas": ("sku=H100,H200", [("sku", "=", ("H100", "H200"))]),
    "spaces after commas": ("sku=H100, H200 cluster=a", [("sku", "=", ("H100", "H200")), ("cluster", "=", ("a",))]),
    "spaces around the operator": (
        "cluster = tiger  gpus >= 8",
        [("cluster", "=", ("tiger",)), ("gpus", ">=", ("8",))],
    ),
    "a value with spaces": ("reason=xid 79 node=n1", [("reason", "=", ("xid 79",)), ("node", "=", ("n1",))]),
    "an empty value": ("rack=", [("rack", "=", ("",))]),
    "an empty value before another term": ("rack= cluster=tiger", [("rack", "=", ("",)), ("cluster", "=", ("tiger",))]),
    "an empty value among others": ("rack=,r1", [("rack", "=", ("", "r1"))]),
    "a value in quotes": ('reason="a, b"', [("reason", "=", ("a, b",))]),
    "quotes hold what looks like a term": ('reason="a b=c" sku=x', [("reason", "=", ("a b=c",)), ("sku", "=", ("x",))]),
    "several values in quotes": ('reason="a, b" , "c"', [("reason", "=", ("a, b", "c"))]),
    "quotes and none": ('reason="a,b",c d', [("reason", "=", ("a,b", "c d"))]),
    "quotes around nothing": ('reason=""', [("reason", "=", ("",))]),
    "a quote inside a value": ('reason=5" disk', [("reason", "=", ('5" disk',))]),
    "an operator inside a value": ("kind=a=b", [("kind", "=", ("a=b",))]),
    "a field in quotes": ('"rack row"=7', [("rack row", "=", ("7",))]),
    "a field in quotes after an empty value": ('rack= "rack row"=7', [("rack", "=", ("",)), ("rack row", "=", ("7",))]),
    "a field with dots and dashes": ("a.b-c_d=1", [("a.b-c_d", "=", ("1",))]),
    "a field of another alphabet": ("полка=7", [("полка", "=", ("7",))]),
    "the longer operator wins": ("gpus<=8", [("gpus", "<=", ("8",))]),
    "each comparison": (
        "a<1 a<=1 a>1 a>=1",
        [("a", "<", ("1",)), ("a", "<=", ("1",)), ("a", ">", ("1",)), ("a", ">=", ("1",))],
    ),
}


@pytest.mark.parametrize("sentence", PARSED)
def test_a_text_is_read_as_terms(sentence: str) -> None:
    text, want = PARSED[sentence]
    assert terms(text) == want


def test_words_of_a_command_line_are_one_filter() -> None:
    assert terms("cluster=tiger gpus=8", "reason=xid 79") == [
        ("cluster", "=", ("tiger",)),
        ("gpus", "=", ("8",)),
        ("reason", "=", ("xid 79",)),
    ]


MATCHES = {
    "cluster=tiger": True,
    "cluster=lion": False,
    "cluster!=lion": True,
    "cluster!=tiger": False,
    "cluster=lion,tiger": True,
    "cluster!=lion,tiger": False,
    "cluster=TIGER": False,
    "cluster=tig": False,
    "cluster=tig*": True,
    "cluster=*ger": True,
    "cluster=*g*": True,
    "cluster=*": True,
    "cluster!=l*,o*": True,
    "cluster=t?ger": False,
    "marks=[x]?": True,
    "marks=[x]*": True,
    "marks=[xy]?*": False,
    "cluster=tiger sku=H200": True,
    "cluster=tiger sku=H100": False,
    "rack=": True,
    "rack=*": True,
    "rack!=": False,
    "cluster!=": True,
    "gpus=8": True,
    "gpus=8.0": False,
    "gpus>=8 gpus<=8": True,
    "gpus>8": False,
    "gpus<8.5": True,
    "gpus>-1": True,
    "row>9": True,
    "row<9": False,
    "cluster>5": False,
    "rack>0": False,
    "reason=host*": True,
    'reason="*, maintenance"': True,
    "kind=a=b": True,
    '"rack row"=seven': True,
    "since=2026-01-13T12:00:00Z": True,
    "since=2026-01-13*": True,
    "since!=2026-01-13*": False,
    "since<=7d": True,
    "since<7d": False,
    "since<167h": True,
    "since>8d": True,
    "since>2026-01-13": True,
    "since<2026-01-13T12:00:00+01:00": False,
    "since<today": True,
    "since<now": True,
    "rack<7d": False,
    "cluster<7d": False,
}


@pytest.mark.parametrize("text", MATCHES)
def test_a_thing_passes_or_does_not(text: str) -> None:
    assert parse_filter(text, now=NOW).matches(THING.get) is MATCHES[text]


class Broken(NamedTuple):
    """A text, and what is said to it."""

    text: str
    want: str
    want_code: str = "bad_filter"


NOT_CLOSED = "a quote that is opened must be closed, and end the value"
BROKEN = {
    "a word": Broken("tiger", "'tiger' is not a filter term"),
    "a word after a term that had its quotes": Broken('a="b" c', "'c' is not a filter term"),
    "an operator without a field": Broken("=tiger", "'=tiger' is not a filter term"),
    "an operator that is none": Broken("cluster~tiger", "'cluster~tiger' is not a filter term"),
    "a comma first": Broken(",a=b", "',a=b' is not a filter term"),
    "a quote that is not closed": Broken('reason="xid', f"'\"xid' is not a filter term: {NOT_CLOSED}"),
    "text after a quote": Broken('reason="a"b', f"'\"a\"b' is not a filter term: {NOT_CLOSED}"),
    "an empty field in quotes": Broken('""=a', "'\"\"=a' is not a filter term"),
    "a comparison with a word": Broken("gpus>many", "'gpus>many': after > comes a number or a time"),
    "a comparison with nothing": Broken("gpus<=", "'gpus<=': after <= comes one number or one time"),
    "a comparison with two numbers": Broken("gpus>8,9", "'gpus>8,9': after > comes one number or one time"),
    "a comparison with no number": Broken("gpus>nan", "'gpus>nan': after > comes a number or a time"),
    "a comparison with an endless number": Broken("gpus<inf", "'gpus<inf': after < comes a number or a time"),
    "a span longer than time": Broken(
        "since<99999999999999w", "'since<99999999999999w': after < comes a number or a time"
    ),
    "a span of more digits than a number may have": Broken(
        f"since<{'9' * 5000}d", f"'since<{'9' * 94}': after < comes a number or a time"
    ),
    "a time outside the calendar": Broken(
        "since<0001-01-01T00:00+14:00", "'since<0001-01-01T00:00+14:00': after < comes a number or a time"
    ),
    "more text than is taken": Broken("a" * 10_001, "the filter has 10,001 characters, at most 10,000 are taken"),
    "more terms than are taken": Broken("a=b " * 51, "the filter has over 50 terms"),
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_a_broken_filter_is_refused_with_words(sentence: str) -> None:
    text, want, want_code = BROKEN[sentence]
    with pytest.raises(UsageError) as caught:
        parse_filter(text, now=NOW)
    assert (caught.value.code, caught.value.message) == (want_code, want)
    assert caught.value.next_step
    assert caught.value.exit_code == 2


UNLIKE = {
    "since>5": "'since>5': after > comes a time: since is one",
    "since<2026": "'since<2026': after < comes a time: since is one",
    "gpus<7d": "'gpus<7d': after < comes a number: gpus is one",
}


@pytest.mark.parametrize("text", UNLIKE)
def test_a_comparison_of_unlike_things_is_refused_and_not_just_empty(text: str) -> None:
    parsed = parse_filter(text, now=NOW)
    with pytest.raises(UsageError) as caught:
        parsed.matches(THING.get)
    assert caught.value.message == UNLIKE[text]


FIELDS = {
    "clustr=a": "there is no field 'clustr' to filter by; did you mean 'cluster'?",
    "gpu>8": "there is no field 'gpu' to filter by; did you mean 'gpus'?",
    "zzz=1": "there is no field 'zzz' to filter by",
}


@pytest.mark.parametrize("text", FIELDS)
def test_an_unknown_field_is_refused_with_what_was_probably_meant(text: str) -> None:
    parsed = parse_filter(text, now=NOW)
    with pytest.raises(UsageError) as caught:
        parsed.check(["cluster", "gpus"])
    assert (caught.value.code, caught.value.message) == ("unknown_field", FIELDS[text])
    assert caught.value.next_step == "fields: cluster, gpus"


def test_fifty_terms_and_ten_thousand_characters_are_taken() -> None:
    assert len(parse_filter("a=b " * 50, now=NOW).terms) == 50
    assert parse_filter(f"a={'b' * 9_998}", now=NOW).terms == (Term("a", "=", ("b" * 9_998,)),)


SLOW = {
    "spaces": "a=" + " " * 9_990 + "!",
    "words": "a=" + "b " * 4_990,
    "almost terms": "a=" + "b !" * 3_330,
    "commas": "a=" + "," * 9_990,
    "quotes": "a=x" + ' "' * 4_990,
    "stars": "a=" + "*b" * 4_990,
}


@pytest.mark.parametrize("sentence", SLOW)
def test_no_text_takes_long(sentence: str) -> None:
    with effort() as took:
        parsed = parse_filter(SLOW[sentence], now=NOW)
        parsed.matches(lambda _field: "b" * 2_000)
    assert took.seconds < 2.0
