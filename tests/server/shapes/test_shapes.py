"""What is read has the shape that the API tells of it: now, in the past, before anything; and shapes are strict."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cli.main import NOUNS, OF_A_TERMINAL
from plimsoll.commands.catalog import command, commands_of
from plimsoll.fleet.view import By
from plimsoll.health.levels.measure import LevelsBy
from plimsoll.rooms import open_keeper
from plimsoll.server.shapes import ERROR, SHAPES, components
from tests.server.shapes.voyage import Voyage, check_schema, problems, problems_of

PROJECT = Path(__file__).parents[3]
WITHOUT = {
    "prints a text or a file": {
        "workload example",
        "campaign example",
        "campaign feed",
        "quota report",
        "quota render",
        "cluster render",
        "cluster recipe show",
        "simulate generate",
    },
    "listens until it is stopped": {"health listen"},
}

READS: dict[str, tuple[str, dict[str, Any]]] = {
    "the fleet by area and SKU": ("fleet show", {}),
    "the fleet by cluster": ("fleet show", {"by": By.CLUSTER}),
    "the fleet by a filter": ("fleet show", {"filters": ["sku=H200", "service!=in_service"]}),
    "all nodes": ("fleet nodes", {}),
    "a few nodes": ("fleet nodes", {"filters": ["cluster=lemur"], "limit": 2}),
    "clusters": ("fleet clusters", {}),
    "the fleet as a map": ("fleet map", {}),
    "what works": ("health show", {}),
    "what works in one cluster": ("health show", {"filters": ["cluster=lemur"]}),
    "service levels by cluster": ("health slo", {}),
    "service levels by node": ("health slo", {"by": LevelsBy.NODE, "limit": 3, "filters": ["cluster=lemur"]}),
    "outages": ("health outages", {}),
    "unplanned outages": ("health outages", {"planned": False, "limit": 2}),
    "holds": ("health holds", {}),
    "work ahead": ("health announced", {}),
    "the policy of health": ("health policy show", {}),
    "quotas": ("quota show", {}),
    "a plan": ("quota plan", {}),
    "a plan by another policy": ("quota plan", {"policy": "fixed:0.3", "stage": 2}),
    "notices": ("quota notices", {}),
    "flex": ("quota flex", {}),
    "flex of so many": ("quota flex", {"gpus": "64", "days": 7}),
    "promises kept": ("quota promise", {}),
    "what was healthy and promised": ("quota history", {"days": 30}),
    "requests": ("quota requests", {}),
    "all requests": ("quota requests", {"is_all": True}),
    "grants": ("quota grants", {}),
    "the policy of quota": ("quota policy show", {}),
    "workloads": ("workload list", {}),
    "waiting workloads": ("workload list", {"waiting": True}),
    "quota that teams keep": ("workload holds", {}),
    "uptime": ("workload uptime", {}),
    "what the fleet lost": ("why", {"is_fleet": True}),
    "campaigns": ("campaign list", {}),
    "combinations": ("campaign combinations", {}),
    "untested combinations": ("campaign combinations", {"untested": True}),
    "what no-fly zones block": ("campaign blocked", {}),
    "what is behind": ("campaign behind", {}),
    "incidents of campaigns": ("campaign incident list", {}),
    "versions": ("campaign versions show", {}),
    "clusters being made": ("cluster list", {}),
    "all clusters that ever were": ("cluster list", {"every": True}),
    "quota owed": ("cluster quota", {}),
    "how long steps take": ("cluster times", {}),
    "recipes": ("cluster recipe list", {}),
    "the log": ("audit log", {"limit": 20}),
}


@pytest.mark.parametrize("what", READS)
def test_what_is_read_has_its_shape_now_and_then_and_before_anything(voyage: Voyage, what: str) -> None:
    words, given = READS[what]
    voyage.ask(words, **given)
    if command(words).takes("as-of"):
        voyage.ask(words, **given, as_of="3")
    with open_keeper("sqlite:///:memory:", create=True) as empty:
        Voyage(empty).ask(words, **given)


# The shapes themselves.


def schemas(shape: Any) -> Iterator[dict[str, Any]]:
    """A schema and all inside it."""
    if isinstance(shape, list):
        for each in shape:
            yield from schemas(each)
    elif isinstance(shape, dict):
        yield shape
        for name in ("items", "additionalProperties", "prefixItems", "anyOf", "oneOf"):
            yield from schemas(shape.get(name))
        for each in shape.get("properties", {}).values():
            yield from schemas(each)


EVERYTHING = {**SHAPES, **components()}


def test_every_command_has_a_shape_or_a_reason_for_none() -> None:
    commands = {words for noun in NOUNS if noun not in OF_A_TERMINAL for words in commands_of(noun)}
    without = set().union(*WITHOUT.values())
    assert commands - set(SHAPES) == without
    assert set(SHAPES) <= commands, "shapes of commands that are not there"


@pytest.mark.parametrize("name", EVERYTHING)
def test_a_shape_is_closed_and_says_a_type_for_everything(name: str) -> None:
    check_schema(EVERYTHING[name])
    for schema in schemas(EVERYTHING[name]):
        if "properties" in schema:
            assert schema["additionalProperties"] is False
            assert set(schema["required"]) <= set(schema["properties"])
        if "$ref" in schema:
            assert schema["$ref"].removeprefix("#/components/schemas/") in components()
        kinds = {"type", "$ref", "anyOf", "oneOf", "enum", "const"} & set(schema)
        assert kinds or schema.keys() <= {"description"}


def test_every_field_is_in_the_written_contract() -> None:
    page = (PROJECT / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
    fields = {name for shape in EVERYTHING.values() for each in schemas(shape) for name in each.get("properties", ())}
    assert {name for name in fields if f'"{name}"' not in page and f"`{name}`" not in page} == set()


WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "a node that is not there": ("health show", {"filters": ["nobody"]}),
    "a cluster that is not there": ("quota show", {"clusters": ["tigre"]}),
    "a filter that is none": ("fleet nodes", {"filters": ["colour=red"]}),
    "a revision that is not there": ("audit log", {"as_of": "999999"}),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_error_has_its_shape(voyage: Voyage, what: str) -> None:
    words, given = WRONG[what]
    error = voyage.refused(words, **given)
    told = {"code": error.code, "message": error.message, "next_step": error.next_step, "fields": error.fields}
    assert not problems_of(ERROR, {"error": told})
    assert problems_of(ERROR, {"error": told | {"more": 1}})


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where objects are in a document; of a list only its first entry."""
    if isinstance(document, dict):
        yield path
        for name, each in document.items():
            yield from places(each, (*path, name))
    elif isinstance(document, list):
        for each in document[:1]:
            yield from places(each, (*path, 0))


STRICT: dict[str, dict[str, Any]] = {
    "fleet show": {},
    "health show": {},
    "quota show": {"clusters": ["lemur"]},
    "why": {"is_fleet": True},
    "cluster list": {},
}


@pytest.mark.parametrize("words", STRICT)
def test_an_undocumented_field_is_noticed_wherever_it_is(voyage: Voyage, words: str) -> None:
    document = voyage.ask(words, **STRICT[words])
    for path in places(document):
        changed = deepcopy(document)
        place = changed
        for name in path:
            place = place[name]
        place["undocumented"] = [[]]
        assert problems(words, changed), f"a field more at {path}"


@pytest.mark.parametrize("words", STRICT)
def test_a_missing_field_is_noticed(voyage: Voyage, words: str) -> None:
    document = voyage.ask(words, **STRICT[words])
    for name in document:
        assert problems(words, {key: value for key, value in document.items() if key != name})
