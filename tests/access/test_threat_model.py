"""The threat model is true as far as a test can see: each row names tests that are there, look at it, and judge."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
JUDGES = re.compile(r"\bassert\b|\braises\(")


def rows() -> list[str]:
    """The lines of the tables of threats."""
    threats = (PROJECT / "THREAT_MODEL.md").read_text(encoding="utf-8").partition("\n## Threats\n")[2]
    lines = [line for line in threats.splitlines() if line[:1] == "|"]
    return [line for line in lines if not line.startswith(("| threat |", "|---"))]


ROWS = {row.split("|")[1].strip(): row for row in rows()}


def named_in(row: str) -> list[tuple[str, str]]:
    """The tests that a row names: file and name."""
    found, file = [], ""
    for word in re.findall(r"`(tests/[\w/]+\.py|test_\w+)`", row.rstrip(" |").rpartition(" | ")[2]):
        if word.endswith(".py"):
            file = word
        else:
            found.append((file, word))
    return found


@cache
def pieces(file: str) -> dict[str, str]:
    """What stands at the top of a file by its name: functions, classes, tables."""
    text = (PROJECT / file).read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for node in ast.parse(text).body:
        source = ast.get_source_segment(text, node) or ""
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            marks = [ast.get_source_segment(text, each) or "" for each in node.decorator_list]
            found[node.name] = "\n".join([*marks, source])
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id: source for each in targets if isinstance(each, ast.Name)}
    return found


def source_of(file: str, test: str) -> str:
    """A test with all of its file that it uses."""
    known, seen, ahead = pieces(file), set[str](), [test]
    while ahead:
        name = ahead.pop()
        if name in known and name not in seen:
            seen.add(name)
            ahead += re.findall(r"\w+", known[name])
    return "\n".join(known[name] for name in sorted(seen))


def plain(text: str) -> str:
    return text.lower().replace("-", "_")


@pytest.mark.parametrize("threat", ROWS)
def test_every_threat_names_tests_that_exist_and_judge(threat: str) -> None:
    named = named_in(ROWS[threat])
    assert named, "nothing shows this"
    for file, test in named:
        assert test in pieces(file), (file, test)
        assert JUDGES.search(source_of(file, test)), f"{test} judges nothing"


@pytest.mark.parametrize("threat", ROWS)
def test_what_a_row_says_to_the_letter_is_looked_at_by_a_test_that_it_names(threat: str) -> None:
    """Names of headers, claims and roles: where the row has them, so has one of its tests."""
    looked_at = plain("\n".join(source_of(file, test) for file, test in named_in(ROWS[threat])))
    said = re.findall(r"`(\w[\w-]*)`", ROWS[threat].rstrip(" |").rpartition(" | ")[0])
    assert [word for word in said if plain(word) not in looked_at] == []


def test_there_are_threats_and_none_stands_twice() -> None:
    assert len(ROWS) == len(rows()) > 25
