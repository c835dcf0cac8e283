"""YAML that people write: a mistake is named with file and line, nothing is guessed, nothing harms us."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from plimsoll import documents
from plimsoll.documents import DEPTH_MAX, DOCUMENT_BYTES_MAX, BadDocument, Field, read_document, read_documents


def _read(text: str) -> Field:
    return read_document(text, source="a.yaml")


class Bad(NamedTuple):
    """A text, and what is said to it."""

    text: str
    want_line: int
    want_message: str


LAUGHS = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n"

BAD_TEXTS = {
    "an empty file": Bad("", 1, "the file is empty"),
    "only a comment": Bad("# nothing\n", 1, "the file is empty"),
    "a bracket that is not closed": Bad("a: 1\nb: [1, 2\nc: 3\n", 3, "not YAML: expected ',' or ']'"),
    "a tab for indentation": Bad("a:\n\tb: 1\n", 2, "not YAML: found character '\\t'"),
    "two documents": Bad("a: 1\n---\nb: 2\n", 3, "a second document begins here; the file may have only one"),
    "a control character": Bad("a: \x00\n", 1, "not YAML"),
    "a key that stands there twice": Bad("a: 1\nb:\n  c: 1\n  c: 2\n", 4, "'c' stands here twice; first on line 3"),
    "a list as a name": Bad("? [a, b]\n: 1\n", 1, "a name must be a plain text"),
    "an alias": Bad("a: &x [1]\nb: *x\n", 1, "anchors and aliases (& and *) are not taken"),
    "an alias as a name": Bad("a: &x b\n*x : 1\n", 1, "anchors and aliases (& and *) are not taken"),
    "an alias that holds itself": Bad("&x [*x]\n", 1, "anchors and aliases (& and *) are not taken"),
    "an alias without an anchor": Bad("a: *nowhere\n", 1, "not YAML: found undefined alias"),
    "a billion laughs": Bad(LAUGHS, 1, "anchors and aliases (& and *) are not taken"),
    "nested too deep": Bad("[" * (DEPTH_MAX + 2) + "]" * (DEPTH_MAX + 2), 1, f"nested deeper than {DEPTH_MAX}"),
    "nested until Python gives up": Bad("[" * 100_000, 1, "not YAML"),
    "a huge file": Bad("a: " + "x" * DOCUMENT_BYTES_MAX, 1, "the file has over 1,000,000 bytes"),
    "a tag that makes objects": Bad("a: !!python/object/apply:os.system [x]\nb: [\n", 3, "not YAML"),
}


@pytest.mark.parametrize("sentence", BAD_TEXTS)
def test_a_text_that_can_not_be_read(sentence: str) -> None:
    text, want_line, want_message = BAD_TEXTS[sentence]
    with pytest.raises(BadDocument) as caught:
        _read(text)
    assert caught.value.message.startswith(f"a.yaml, line {want_line}: {want_message}")
    assert caught.value.fields == {"source": "a.yaml", "line": want_line}
    assert len(caught.value.message) < 300
    assert caught.value.exit_code == 2


def _strict(root: Field, *keys: str) -> None:
    with root.mapping():
        for key in keys:
            root.get(key)


class Asked(NamedTuple):
    """What is asked of a document, and the answer to a wrong one."""

    text: str
    ask: Callable[[Field], object]
    want: str


WRONG = {
    "a key nobody asked for": Asked(
        "name: x\nnmae: y\n",
        lambda root: _strict(root, "name"),
        "line 2: key 'nmae' is not known; did you mean 'name'? (allowed: name)",
    ),
    "a key that is missing": Asked("a: 1\n", lambda root: root.need("name"), "line 1: 'name' is missing"),
    "a key that is null": Asked("name:\n", lambda root: root.need("name"), "line 1: 'name' is missing"),
    "a key that is misspelt": Asked(
        "a: 1\nnmae: 1\n", lambda root: root.need("name"), "line 2: key 'nmae' is not known; did you mean 'name'?"
    ),
    "a list for a mapping": Asked(
        "- a\n", lambda root: root.need("a"), "line 1: expected a mapping (name: value), found a list"
    ),
    "a text for a list": Asked("a: b\n", lambda root: root.need("a").items(), "line 1: a: expected a list, found 'b'"),
    "a mapping for a text": Asked(
        "a: {b: c}\n", lambda root: root.need("a").text(), "line 1: a: expected a text, found a mapping"
    ),
    "several lines for one": Asked(
        "a: |\n  b\n  c\n", lambda root: root.need("a").text(), "line 1: a: expected one line of printable text"
    ),
    "a text for a number": Asked(
        "a:\n  - 1\n  - x\n",
        lambda root: [item.number(least=0, most=9) for item in root.need("a").items()],
        "line 3: a[1]: expected a number from 0 to 9, found 'x'",
    ),
    "a number that is none": Asked(
        "a: .nan\n", lambda root: root.need("a").number(least=0, most=9), "line 1: a: expected a number"
    ),
    "a number out of range": Asked(
        "a: 10\n",
        lambda root: root.need("a").number(least=0, most=9),
        "line 1: a: expected a number from 0 to 9, found '10'",
    ),
    "bounds with many digits": Asked(
        "a: 0\n",
        lambda root: root.need("a").whole_number(least=1, most=1_000_000),
        "line 1: a: expected a number from 1 to 1,000,000, found '0'",
    ),
    "a part of a thing among many": Asked(
        "a: 1.5\n",
        lambda root: root.need("a").whole_number(least=1, most=1_000_000),
        "line 1: a: expected a whole number from 1 to 1,000,000",
    ),
    "a part of a thing": Asked(
        "a: 1.5\n",
        lambda root: root.need("a").whole_number(least=0, most=9),
        "line 1: a: expected a whole number from 0 to 9",
    ),
    "a number for yes or no": Asked(
        "a: 1\n", lambda root: root.need("a").yes_or_no(), "line 1: a: expected true or false, found '1'"
    ),
    "a span without a unit": Asked(
        "a: 10\n", lambda root: root.need("a").span(), "line 1: a: expected a length of time such as 30s"
    ),
    "a span longer than the calendar": Asked(
        "a: 99999999999w\n", lambda root: root.need("a").span(), "line 1: a: expected a length of time that fits"
    ),
    "a word that is not one of them": Asked(
        "a: drian\n",
        lambda root: root.need("a").one_of(["drain", "repair"]),
        "line 1: a: the word 'drian' is not known; did you mean 'drain'? (allowed: drain, repair)",
    ),
    "a very long wrong text": Asked(
        f"a: {'x' * 500}\n", lambda root: root.need("a").span(), "line 1: a: expected a length"
    ),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_what_is_not_as_asked_is_named(sentence: str) -> None:
    text, ask, want = WRONG[sentence]
    with pytest.raises(BadDocument) as caught:
        ask(_read(text))
    assert caught.value.message.startswith(f"a.yaml, {want}")
    assert len(caught.value.message) < 300


def test_values_are_read_as_they_stand() -> None:
    root = _read("text: no\nnumber: 1e3\nyes: on\nspan: 1.5h\nlist: [a, b]\nmap: {x: 1}\nnothing: ~\n")
    with root.mapping():
        assert root.need("text").text() == "no", "a word is a word, not a truth"
        assert root.need("number").whole_number(least=0, most=1000) == 1000
        assert root.need("yes").yes_or_no() is True
        assert root.need("span").span() == timedelta(minutes=90)
        assert [item.text() for item in root.need("list").items()] == ["a", "b"]
        assert [(name, field.text(), field.path) for name, field in root.need("map").pairs()] == [("x", "1", "map.x")]
        assert root.get("nothing") is None
        assert root.get("never") is None
        assert (root.need("map").is_mapping, root.need("list").is_list, root.need("list").line) == (True, True, 5)


@given(st.text(st.characters(codec="utf-8"), max_size=60) | st.text("[]{}:,&*!|>-#? \nab\"'", max_size=60))
def test_never_anything_but_a_document_or_a_named_mistake(text: str) -> None:
    with suppress(BadDocument):
        _strict(_read(text))


LONG = {
    "brackets in one line": "a: " + "[" * 150_000,
    "a bracket on every line": "[\n" * 120_000,
    "lists in lists": "- " * 100_000 + "a",
    "questions in questions": "? " * 100_000 + "a",
    "far in": "\n".join(" " * depth + "a:" for depth in range(600)),
}


@pytest.mark.parametrize("case", LONG)
def test_a_long_text_that_nests_deep_breaks_nothing(case: str) -> None:
    with pytest.raises(BadDocument):
        read_documents(LONG[case] + "\n" * 100_000, source="it.yaml")


def test_a_long_text_is_read_like_a_short_one() -> None:
    text = "a: {b: [1, two, 'three']}\nc: ~\n"
    [short] = read_documents(text, source="it.yaml")
    many = read_documents("---\n".join([text] * 5_000), source="it.yaml")
    assert len(many) == 5_000
    last = many[-1]
    assert (last.keys(), last.need("a").need("b").items()[1].text()) == (short.keys(), "two")
    assert last.line == 4_999 * 3 + 1
    with pytest.raises(BadDocument, match=r"line 15001: .*expected"):
        read_documents("---\n".join([text] * 5_000) + "---\n[1, 2", source="it.yaml")


def test_a_very_long_text_is_read_by_the_quick_parser_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one would take some seconds for as many characters, and others wait meanwhile."""
    monkeypatch.setattr(documents, "QUICK_ONLY_FROM", 200_000)
    monkeypatch.setattr(yaml, "SafeLoader", None)
    long = "a: " + "x" * 60 + "\n"
    assert len(read_documents("---\n".join([long] * 4_000), source="it.yaml")) == 4_000
    with pytest.raises(BadDocument, match=r"line 8002: not YAML"):
        read_documents("---\n".join([long] * 4_000) + "---\n[1, 2", source="it.yaml")
    with pytest.raises(BadDocument, match="200,000 characters, and deeply nested: split the file"):
        read_documents("a: " + "[" * 30 + "]" * 30 + "\n#" + "x" * 200_000, source="it.yaml")
