"""The words in which the shape of an answer is written down: JSON Schema 2020-12, as OpenAPI 3.1 has it.

Decides what a shape looks like: objects are closed and have all their fields, unless a field is said to be left out at
times; parts that several answers share stand once, under `#/components/schemas/`. It must never look at an answer: what
is written here is what others may rely on, and the tests hold the answers against it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

Shape = dict[str, Any]

COMPONENTS = "#/components/schemas/"
_OFTEN_MISSING = "x-left-out-at-times"
_PARTS: dict[str, Shape] = {}

TEXT: Shape = {"type": "string"}
INTEGER: Shape = {"type": "integer"}
NUMBER: Shape = {"type": "number"}
FLAG: Shape = {"type": "boolean"}
TIME: Shape = {"type": "string", "format": "date-time"}
DAY: Shape = {"type": "string", "format": "date"}
ANYTHING: Shape = {}


def noted(shape: Shape, description: str) -> Shape:
    """The same, with a few words for whoever reads it."""
    return shape | {"description": description}


def maybe(shape: Shape, description: str = "") -> Shape:
    """This, or null."""
    if isinstance(shape.get("type"), str) and "enum" not in shape and "const" not in shape:
        found = shape | {"type": [shape["type"], "null"]}
    else:
        found = {"anyOf": [shape, {"type": "null"}]}
    return noted(found, description) if description else found


def many(shape: Shape, description: str = "") -> Shape:
    """A list of such."""
    found: Shape = {"type": "array", "items": shape}
    return noted(found, description) if description else found


def row(*shapes: Shape) -> Shape:
    """A list of fixed length, each place with its own shape."""
    return {"type": "array", "prefixItems": list(shapes), "minItems": len(shapes), "maxItems": len(shapes)}


def maps(shape: Shape, description: str = "") -> Shape:
    """An object whose names are data, such as those of clusters."""
    found: Shape = {"type": "object", "additionalProperties": shape}
    return noted(found, description) if description else found


def choice(*values: str | type[enum.Enum]) -> Shape:
    """One of these words, or of those of an enum."""
    words: list[Any] = []
    for value in values:
        words += [value] if isinstance(value, str) else [each.value for each in value]
    return {"type": "string", "enum": words}


def always(value: object) -> Shape:
    """This value and no other."""
    return {"const": value}


def at_times(shape: Shape) -> Shape:
    """A field that is left out where there is nothing to say."""
    return shape | {_OFTEN_MISSING: True}


def obj(**fields: Shape) -> Shape:
    """A closed object. A name that Python keeps for itself is written with `_` at its end: `from_`."""
    named = {name.removesuffix("_"): shape for name, shape in fields.items()}
    return _closed(named)


def _closed(fields: Mapping[str, Shape]) -> Shape:
    required = [name for name, shape in fields.items() if _OFTEN_MISSING not in shape]
    plain = {
        name: {key: value for key, value in shape.items() if key != _OFTEN_MISSING} for name, shape in fields.items()
    }
    return {"type": "object", "properties": plain, "required": required, "additionalProperties": False}


def joined(*shapes: Shape) -> Shape:
    """One closed object with the fields of several; of two of the same name the later one counts."""
    fields: dict[str, Shape] = {}
    for shape in shapes:
        for name, field in whole(shape)["properties"].items():
            fields[name] = field if name in whole(shape)["required"] else at_times(field)
    return _closed(fields)


def without(shape: Shape, *names: str) -> Shape:
    """The same object without some of its fields."""
    known = whole(shape)
    missing = set(names) - set(known["properties"])
    assert not missing, f"no such fields: {sorted(missing)}"
    kept = {name: field for name, field in known["properties"].items() if name not in names}
    return known | {"properties": kept, "required": [name for name in known["required"] if name in kept]}


def one_of(*shapes: Shape) -> Shape:
    """Exactly one of these."""
    return {"oneOf": list(shapes)}


def named(name: str, shape: Shape, description: str = "") -> Shape:
    """Put a part that is shared under its name, and refer to it."""
    shape = noted(shape, description) if description else shape
    assert _PARTS.setdefault(name, shape) == shape, f"two different parts are called {name}"
    return {"$ref": f"{COMPONENTS}{name}"}


def whole(shape: Shape) -> Shape:
    """What a reference stands for; any other shape as it is."""
    return _PARTS[shape["$ref"].removeprefix(COMPONENTS)] if "$ref" in shape else shape


def refers_to(shape: Shape) -> set[str]:
    """The names of the shared parts that a shape itself refers to."""
    found: set[str] = set()
    ahead: list[Any] = [shape]
    while ahead:
        each = ahead.pop()
        if isinstance(each, dict):
            found |= {each["$ref"].removeprefix(COMPONENTS)} if isinstance(each.get("$ref"), str) else set()
            ahead += each.values()
        elif isinstance(each, list):
            ahead += each
    return found


def parts() -> dict[str, Shape]:
    """All shared parts by name, in the order of the alphabet."""
    return dict(sorted(_PARTS.items()))


# What most answers begin with.

AS_OF = maybe(TIME, "When the newest event that the answer rests on was recorded; null on an empty ledger.")
REVISION = noted(INTEGER, "The number of the newest event that the answer rests on.")
STAMP = obj(as_of=AS_OF, revision=REVISION)
DRY_RUN = noted(FLAG, "True where nothing was kept.")
WRITTEN = obj(dry_run=DRY_RUN, revision=noted(INTEGER, "The ledger's revision afterwards."))
SHARE = noted(NUMBER, "From 0 to 1.")
TIME_OR_EMPTY = noted({"anyOf": [TIME, always("")]}, "Empty where there is none.")
