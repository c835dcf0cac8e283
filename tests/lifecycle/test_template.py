"""Fields in the words of a recipe."""

from __future__ import annotations

import pytest

from plimsoll.fleet.model import Area, Purpose
from plimsoll.lifecycle.model import Spec
from plimsoll.lifecycle.template import FIELDS, filled, spec_values, unknown_names

SPEC = Spec("lynx", "eastus", Area.US, "b1", "azure", Purpose.RESEARCH, "sub-a", "H200", 8, 2, labels={"rack": "r 7"})
TEXTS = {
    "a field": ("x-{cluster}-y", "x-lynx-y"),
    "the same twice": ("{sku}{sku}", "H200H200"),
    "numbers": ("{nodes}/{islands}", "8/2"),
    "a label": ("{labels.rack}", "r 7"),
    "a label that it does not have": ("{labels.row}", "{labels.row}"),
    "what a shell fills in": ("${HOME} $1", "${HOME} $1"),
    "what is in the value is not filled again": ("{owner}", ""),
    "JSON": ('{"a": 1}', '{"a": 1}'),
    "given beside the spec": ("{attempt}", "3"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_fields_are_filled_in(case: str) -> None:
    text, want = TEXTS[case]
    assert filled(text, spec_values(SPEC, attempt="3")) == want


def test_a_value_with_braces_is_not_filled_again() -> None:
    values = {"owner": "{subscription}", "subscription": "secret"}
    assert filled("{owner}", values) == "{subscription}"


UNKNOWN = {
    "{cluster} {labels.rack}": [],
    "{clutser}": ["clutser"],
    "{cluster.name}": ["cluster.name"],
    "{labels}": ["labels"],
    "{Cluster}": ["Cluster"],
    "{ sku }": [" sku "],
    "{labels.}": ["labels."],
    "${CLUSTER} ${cluster}": [],
    "{print $1} {} {0}": [],
}


@pytest.mark.parametrize("text", UNKNOWN)
def test_fields_that_no_spec_has_are_found(text: str) -> None:
    assert unknown_names(text) == UNKNOWN[text]


def test_every_field_has_a_value() -> None:
    more = {"python": "p", "step": "s", "operation": "o", "attempt": "1"}
    assert set(spec_values(SPEC, **more)) == {*FIELDS, "labels.rack"}
