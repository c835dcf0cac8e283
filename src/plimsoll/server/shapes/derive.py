"""Shapes taken from the classes that answers are made of, so that they can't drift from them.

Decides how msgspec writes a class as JSON: every field is there, but those that a class leaves out at their default.
It must never guess: a type that it does not know is an error of ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import inspect

from plimsoll.server.shapes import model
from plimsoll.server.shapes.model import Shape

_SIMPLE: dict[type[inspect.Type], Shape] = {
    inspect.BoolType: model.FLAG,
    inspect.IntType: model.INTEGER,
    inspect.FloatType: model.NUMBER,
    inspect.StrType: model.TEXT,
    inspect.DateTimeType: model.TIME,
    inspect.DateType: model.DAY,
    inspect.NoneType: {"type": "null"},
    inspect.AnyType: model.ANYTHING,
    inspect.TimeDeltaType: {"type": "string", "format": "duration"},
}
_NOUNS = {
    "fleet": "Fleet",
    "health": "Health",
    "quota": "Quota",
    "workloads": "Workload",
    "campaigns": "Campaign",
    "lifecycle": "Cluster",
    "incidents": "Incident",
    "access": "Access",
    "ledger": "Audit",
}
_NAMES = {
    "commands.quota.tell.Told": "QuotaTold",
    "incidents.model.Incident": "Incident",
    "quota.history.compare.Kept": "QuotaKeptInPast",
    "quota.history.promise.Loss": "QuotaOutForReason",
    "workloads.defrag.Step": "WorkloadMove",
}
"""Of two that are called the same in one room, one has a name of its own here."""
_KNOWN: dict[type[Any], Shape] = {}
_NONE = re.compile(r"\bNone\b")
_LISTS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)


class Field(NamedTuple):
    """A field of a class: its name in JSON, its shape, and whether it is left out at times."""

    name: str
    shape: Shape
    is_left_out_at_times: bool


def part_of(kind: type[Any], **notes: str) -> Shape:
    """A class as a shared part, named after its capability and itself; `notes` describe fields.

    Whoever describes fields does so before the class is found as a field of another.
    """
    if kind in _KNOWN and not notes:
        return _KNOWN[kind]
    _KNOWN[kind] = model.named(_name(kind), _described(kind, object_of(kind, **notes)))
    return _KNOWN[kind]


def object_of(kind: type[Any], **notes: str) -> Shape:
    """The object itself, to be joined with more."""
    return _object(_fields(kind, is_full=False), notes)


def full_object_of(kind: type[Any], **notes: str) -> Shape:
    """The same, written with all fields, whatever the class leaves out by itself."""
    return _object(_fields(kind, is_full=True), notes)


def _object(found: Sequence[Field], notes: Mapping[str, str]) -> Shape:
    unknown = set(notes) - {field.name for field in found}
    assert not unknown, f"no such fields: {sorted(unknown)}"
    fields = {}
    for field in found:
        shape = model.noted(field.shape, notes[field.name]) if field.name in notes else field.shape
        fields[field.name] = model.at_times(shape) if field.is_left_out_at_times else shape
    return model.obj(**fields)


def _described(kind: type[Any], shape: Shape) -> Shape:
    """With the first paragraph of what the class says of itself, in the words of JSON."""
    first = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    if not first or first.startswith(f"{kind.__name__}("):  # what Python itself writes
        return shape
    return model.noted(shape, _NONE.sub("null", first))


def _name(kind: type[Any]) -> str:
    """`plimsoll.health.facts.Hold` is `HealthHold`: the same word means different things in different rooms."""
    place = f"{kind.__module__}.{kind.__name__}".removeprefix("plimsoll.")
    return _NAMES.get(place) or f"{_NOUNS[place.split('.')[0]]}{kind.__name__}"


def _fields(kind: type[Any], *, is_full: bool) -> list[Field]:
    found = inspect.type_info(kind)
    if isinstance(found, inspect.StructType):
        omits = found.cls.__struct_config__.omit_defaults and not is_full
        tag = [Field(str(found.tag_field), model.always(found.tag), False)] if found.tag_field else []
        return tag + [Field(each.encode_name, _shape(each.type), omits and not each.required) for each in found.fields]
    assert isinstance(found, inspect.NamedTupleType | inspect.DataclassType), kind
    return [Field(each.encode_name, _shape(each.type), False) for each in found.fields]


def _shape(found: inspect.Type) -> Shape:
    if isinstance(found, inspect.Metadata):
        return _shape(found.type)
    if type(found) in _SIMPLE:
        return _SIMPLE[type(found)]
    if isinstance(found, inspect.EnumType):
        return model.choice(found.cls)
    if isinstance(found, inspect.LiteralType):
        return {"enum": list(found.values)}
    if isinstance(found, _LISTS):
        return model.many(_shape(found.item_type))
    if isinstance(found, inspect.DictType):
        return model.maps(_shape(found.value_type))
    if isinstance(found, inspect.TupleType):
        return model.row(*map(_shape, found.item_types))
    if isinstance(found, inspect.NamedTupleType):
        return model.row(*(_shape(each.type) for each in found.fields))
    if isinstance(found, inspect.StructType | inspect.DataclassType):
        return _struct(found)
    if isinstance(found, inspect.CustomType) and found.cls is object:
        return model.ANYTHING
    assert isinstance(found, inspect.UnionType), found
    return _union(found)


def _struct(found: inspect.StructType | inspect.DataclassType) -> Shape:
    if isinstance(found, inspect.StructType) and found.array_like:
        return model.row(*(_shape(each.type) for each in found.fields))
    return part_of(found.cls)


def _union(found: inspect.UnionType) -> Shape:
    kinds = [_shape(each) for each in found.types if not isinstance(each, inspect.NoneType)]
    shape = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return model.maybe(shape) if len(kinds) < len(found.types) else shape
