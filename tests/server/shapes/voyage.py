"""Commands called one after the other at a desk, each answer held against the shape that the API tells of it."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import date, datetime
from functools import cache
from typing import Any

import msgspec
import pytest
import typer
from jsonschema import Draft202012Validator, FormatChecker  # type: ignore[import-untyped]

from plimsoll.commands.catalog import command
from plimsoll.commands.desk import Desk, at
from plimsoll.errors import PlimsollError
from plimsoll.server.shapes import SHAPES, components, shape_of
from plimsoll.state.keeper import Keeper

ELSEWHERE = {
    "asks an outside that its own tests have": {"health observe prometheus", "health observe slurm", "quota push"},
}

DATABASE = "plimsoll.db"
"""Where the fixtures put it, from the folder in which a test runs."""

FORMATS = FormatChecker(formats=())


def _is_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


def _is_day(value: object) -> bool:
    return not isinstance(value, str) or bool(date.fromisoformat(value))


FORMATS.checks("date-time", raises=ValueError)(_is_time)
FORMATS.checks("date", raises=ValueError)(_is_day)


def check_schema(shape: dict[str, Any]) -> None:
    """It is a schema at all."""
    Draft202012Validator.check_schema(shape)


def validator(shape: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(shape | {"components": {"schemas": components()}}, format_checker=FORMATS)


@cache
def judge(words: str) -> Draft202012Validator:
    return validator(shape_of(words))


def problems(words: str, document: Any) -> list[str]:
    """Where what a command says is not as its shape has it."""
    return list(_problems(judge(words), document))


def problems_of(shape: dict[str, Any], document: Any) -> list[str]:
    """Where a document is not as a shape has it."""
    return list(_problems(validator(shape), document))


def _problems(judging: Draft202012Validator, document: Any) -> Iterator[str]:
    """Of several shapes that it may have, those of the one that it comes closest to."""
    for error in judging.iter_errors(document):
        branches: dict[Any, list[Any]] = {}
        for each in error.context or ():
            branches.setdefault(each.schema_path[0], []).append(each)
        closest = min(branches.values(), key=len) if branches else [error]
        yield from (f"{each.json_path}: {each.message[:200]}" for each in closest)


class Voyage:
    """A desk at which commands are called one after the other; every answer must have its shape."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper, self.tried, self.rehearsed = keeper, set[str](), set[str]()
        self.clock: list[datetime] = []

    def ask(self, words: str, /, **given: Any) -> Any:
        """The document that a command answers with."""
        call, desk = command(words).call, Desk(self.keeper, "tester")
        if (output := inspect.signature(call).parameters.get("output")) is not None:
            given["output"] = type(output.default)("json")
        if "context" in inspect.signature(call).parameters:
            given["context"] = None
        with at(desk), suppress(typer.Exit):  # then the answer is there, and is a no
            call(**given)
        assert desk.answer is not None, f"{words} says nothing"
        document = msgspec.json.decode(msgspec.json.encode(desk.answer.document))
        self.tried.add(words)
        assert not (wrong := problems(words, document)), f"{words}: {wrong[:5]}"
        return document

    def text(self, words: str, /, **given: Any) -> str:
        desk = Desk(self.keeper, "tester")
        with at(desk):
            command(words).call(context=None, **given)
        assert desk.text is not None
        return desk.text

    def refused(self, words: str, /, **given: Any) -> PlimsollError:
        with pytest.raises(PlimsollError) as caught:
            self.ask(words, **given)
        return caught.value

    def twice(self, words: str, /, **given: Any) -> Any:
        """First tried, which leaves no trace in the database, then done."""
        with closing(sqlite3.connect(DATABASE)) as beside:
            before = beside.execute("PRAGMA data_version").fetchone()
            assert self.ask(words, **given, dry_run=True)["dry_run"] is True
            assert beside.execute("PRAGMA data_version").fetchone() == before, f"{words} --dry-run wrote something"
        self.rehearsed.add(words)
        done = self.ask(words, **given)
        assert done["dry_run"] is False
        return done

    def has_tried_all(self, noun: str) -> None:
        wanted = {words for words in SHAPES if words.split()[0] == noun} - set().union(*ELSEWHERE.values())
        assert wanted - self.tried == set()
        with_dry_run = {words for words in wanted if command(words).takes("dry_run")}
        assert with_dry_run - self.rehearsed == set()
