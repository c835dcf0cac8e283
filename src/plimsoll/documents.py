"""YAML files that people write: read with the line of every value, so that a mistake can be named where it stands.

`read_document` parses; a `Field` is a value with its place. What a capability expects it asks for (`mapping`, `items`,
`text`, `number`, …), and whatever is not as asked, misspelt or left over becomes one `BadDocument` with file, line,
what was found and what is allowed. Nothing is guessed and nothing is ignored.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import yaml

from plimsoll.errors import UsageError

DOCUMENT_BYTES_MAX = 1_000_000
SHOWN_MAX = 60
DEPTH_MAX = 20
QUICK_FROM = 100_000
"""Characters from which on it matters how quickly a text is read."""
QUICK_ONLY_FROM = 1_000_000
"""Characters from which on only the quick parser reads: the other one takes some seconds for as many."""
QUICK_DEPTH_MAX = 20
_BRACKET = re.compile(r"[\[\]{}]")
_FAR_IN = re.compile(r"^(?: {40}| *(?:[-?:]\s+){10})", re.MULTILINE)
"""A line that is indented far, or opens many lists: what nests so deep was made to break something."""
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)")
_SPAN_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class BadDocument(UsageError):
    """A file that can't be taken as it stands; nothing of it was used."""

    def __init__(self, source: str, line: int, message: str) -> None:
        super().__init__(
            "bad_document",
            f"{source}, line {line}: {message}",
            next_step=f"correct line {line} of {source} and try again",
            source=source,
            line=line,
        )


class Field:
    """A value and where it stands. `path` reads as a person would say it: `signals[2].after.count`."""

    def __init__(self, source: str, node: yaml.Node, path: str) -> None:
        self._source, self._node, self.path = source, node, path
        self._taken: set[str] = set()

    @property
    def line(self) -> int:
        return int(self._node.start_mark.line) + 1

    def bad(self, message: str) -> BadDocument:
        """The mistake that stands here."""
        return BadDocument(self._source, self.line, f"{self.path}: {message}" if self.path else message)

    def expected(self, what: str) -> BadDocument:
        return self.bad(f"expected {what}, found {self._found()}")

    def _found(self) -> str:
        if isinstance(self._node, yaml.MappingNode):
            return "a mapping"
        if isinstance(self._node, yaml.SequenceNode):
            return "a list"
        text = str(self._node.value)
        return "nothing" if self.is_null else repr(text[:SHOWN_MAX] + ("…" if len(text) > SHOWN_MAX else ""))

    @property
    def is_null(self) -> bool:
        return bool(self._node.tag == "tag:yaml.org,2002:null")

    @property
    def is_mapping(self) -> bool:
        return isinstance(self._node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        return isinstance(self._node, yaml.SequenceNode)

    # Mappings.

    def keys(self) -> list[str]:
        return [key for key, _ in self._pairs()]

    def _pairs(self) -> Iterator[tuple[str, yaml.Node]]:
        if not isinstance(self._node, yaml.MappingNode):
            raise self.expected("a mapping (name: value)")
        for key, value in self._node.value:
            yield str(key.value), value

    def pairs(self) -> Iterator[tuple[str, Field]]:
        """All entries of a mapping whose names are the writer's own."""
        for key, value in self._pairs():
            self._taken.add(key)
            yield key, Field(self._source, value, f"{self.path}.{key}" if self.path else key)

    def get(self, key: str) -> Field | None:
        """An entry that may be missing; `null` counts as missing."""
        self._taken.add(key)
        for name, value in self._pairs():
            if name == key:
                field = Field(self._source, value, f"{self.path}.{key}" if self.path else key)
                return None if field.is_null else field
        return None

    def need(self, key: str) -> Field:
        found = self.get(key)
        if found is None:
            left = [name for name in self.keys() if name not in self._taken]
            if near := difflib.get_close_matches(key, left, n=1):
                raise self._at(near[0]).bad(f"key {near[0]!r} is not known; did you mean {key!r}?")
            raise self.bad(f"{key!r} is missing")
        return found

    def _at(self, key: str) -> Field:
        """The place of a name, for a mistake in the name itself."""
        return next(Field(self._source, name, self.path) for name, _ in self._node.value if name.value == key)

    @contextmanager
    def mapping(self, allowed: Collection[str] = ()) -> Iterator[Field]:
        """Ask for the entries inside; one that nobody asked for is a mistake.

        Where `allowed` is given, a misspelt name is found before what is missing because of it.
        """
        for key in self.keys():
            if allowed and key not in allowed:
                raise self._at(key)._unknown(key, allowed, "key")
        yield self
        for key in self.keys():
            if key not in self._taken:
                raise self._at(key)._unknown(key, self._taken, "key")

    def _unknown(self, name: str, allowed: Collection[str], noun: str) -> BadDocument:
        near = difflib.get_close_matches(name, allowed, n=1)
        hint = f"; did you mean {str(near[0])!r}?" if near else ""
        return self.bad(f"{noun} {name[:SHOWN_MAX]!r} is not known{hint} (allowed: {', '.join(sorted(allowed))})")

    # Lists and single values.

    def items(self) -> list[Field]:
        if not isinstance(self._node, yaml.SequenceNode):
            raise self.expected("a list")
        return [Field(self._source, node, f"{self.path}[{place}]") for place, node in enumerate(self._node.value)]

    def text(self) -> str:
        if not isinstance(self._node, yaml.ScalarNode) or self.is_null:
            raise self.expected("a text")
        text = str(self._node.value)
        if not text.strip() or not text.isprintable():
            raise self.expected("one line of printable text")
        return text

    def one_of(self, allowed: Collection[str] | Mapping[str, Any]) -> str:
        text = self.text()
        if text not in allowed:
            raise self._unknown(text, allowed, "the word")
        return text

    def number(self, *, least: float, most: float) -> float:
        text = self.text()
        try:
            value = float(text)
        except ValueError:
            raise self.expected(f"a number from {_bound(least)} to {_bound(most)}") from None
        if not least <= value <= most:
            raise self.expected(f"a number from {_bound(least)} to {_bound(most)}")
        return value

    def whole_number(self, *, least: int, most: int) -> int:
        value = self.number(least=least, most=most)
        if not value.is_integer():
            raise self.expected(f"a whole number from {_bound(least)} to {_bound(most)}")
        return int(value)

    def yes_or_no(self) -> bool:
        if self._node.tag != "tag:yaml.org,2002:bool":
            raise self.expected("true or false")
        return str(self._node.value).lower() in ("true", "yes", "on")

    def span(self) -> timedelta:
        """A length of time such as `10m`, `36h`, `30d`."""
        match = _SPAN.fullmatch(self.text())
        if match is None:
            raise self.expected("a length of time such as 30s, 10m, 36h or 7d")
        try:
            return timedelta(seconds=float(match[1]) * _SPAN_SECONDS[match[2]])
        except OverflowError:
            raise self.expected("a length of time that fits the calendar") from None


def _bound(value: float) -> str:
    """`0.5`, `100`, `1,000,000`: never as a power of ten."""
    return f"{value:g}" if abs(value) < 1_000_000 else f"{value:,.0f}"


def read_document(text: str, *, source: str) -> Field:
    """The root of a YAML text. Aliases and repeated keys are refused: both hide what is meant."""
    found = read_documents(text, source=source)
    if len(found) > 1:
        raise found[1].bad("a second document begins here; the file may have only one")
    return found[0]


def read_documents(text: str, *, source: str, bytes_max: int = DOCUMENT_BYTES_MAX) -> list[Field]:
    """The roots of a YAML text whose documents are separated by `---`; at least one."""
    if len(text.encode(errors="replace")) > bytes_max:
        raise BadDocument(source, 1, f"the file has over {bytes_max:,} bytes")
    try:
        nodes = _composed(text, source)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadDocument(source, mark.line + 1 if mark else 1, f"not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise BadDocument(source, 1, f"not YAML: {str(error)[:SHOWN_MAX]}") from None
    if not nodes:
        raise BadDocument(source, 1, "the file is empty")
    for node in nodes:
        _check(node, source, depth=0, seen=set())
    return [Field(source, node, "") for node in nodes]


def _composed(text: str, source: str) -> list[yaml.Node]:
    """The documents. A long text is read by the quick parser, where there is one; if it finds a mistake, the other one
    says what it is, and where, unless that would take long. The quick one breaks down on deep nesting, so that must not
    be there.
    """
    quick = getattr(yaml, "CSafeLoader", None)
    is_long = quick is not None and len(text) > QUICK_ONLY_FROM
    if quick is not None and len(text) > QUICK_FROM:
        if not _nests_deep(text):
            try:
                return [node for node in yaml.compose_all(text, Loader=quick) if node is not None]
            except yaml.YAMLError:
                if is_long:
                    raise
        elif is_long:
            raise BadDocument(source, 1, f"over {QUICK_ONLY_FROM:,} characters, and deeply nested: split the file")
    return [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node is not None]


def _nests_deep(text: str) -> bool:
    """Rather too often than not: brackets inside texts count as well."""
    depth = 0
    for found in _BRACKET.finditer(text):
        depth += 1 if found[0] in "[{" else -1
        if depth > QUICK_DEPTH_MAX:
            return True
    return _FAR_IN.search(text) is not None


def _check(node: yaml.Node, source: str, *, depth: int, seen: set[int]) -> None:
    """Refuse what YAML allows and a person does not mean."""
    line = node.start_mark.line + 1
    if id(node) in seen:
        raise BadDocument(source, line, "anchors and aliases (& and *) are not taken; write the value out")
    seen.add(id(node))
    if depth > DEPTH_MAX:
        raise BadDocument(source, line, f"nested deeper than {DEPTH_MAX}")
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check(item, source, depth=depth + 1, seen=seen)
    if isinstance(node, yaml.MappingNode):
        names: dict[str, int] = {}
        for key, value in node.value:
            key_line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise BadDocument(source, key_line, "a name must be a plain text")
            _check(key, source, depth=depth + 1, seen=seen)
            if key.value in names:
                raise BadDocument(
                    source, key_line, f"{key.value!r} stands here twice; first on line {names[key.value]}"
                )
            names[key.value] = key_line
            _check(value, source, depth=depth + 1, seen=seen)
