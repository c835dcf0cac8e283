"""Fields of a cluster's spec inside the words of a recipe: `{cluster}`, `{region}`, `{labels.rack}`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from plimsoll.lifecycle.model import Spec

FIELDS = (
    "cluster",
    "region",
    "area",
    "colo",
    "provider",
    "purpose",
    "subscription",
    "sku",
    "nodes",
    "islands",
    "owner",
    "recipe",
    "python",
    "step",
    "operation",
    "attempt",
)
"""What may stand in braces, beside `labels.NAME`. `python` is the interpreter that runs us."""
_NAMED = re.compile(r"\{([a-z_]+(?:\.[\w-]+)?)\}")
_ALMOST = re.compile(r"(?<!\$)\{\s*([A-Za-z_]+(?:\.[\w-]*)?)\s*\}")
"""What was probably meant as a field, and would stay as it stands: `{Cluster}`, `{ sku }`, `{labels.}`."""


def names_in(text: str) -> Iterator[str]:
    """The fields that a text names."""
    for found in _NAMED.finditer(text):
        yield found[1]


def unknown_names(text: str) -> list[str]:
    """The fields that a text names and no spec has."""
    unknown = [name for name in names_in(text) if name not in FIELDS and not name.startswith("labels.")]
    almost = [found for found in _ALMOST.finditer(text) if not _NAMED.fullmatch(found[0])]
    return unknown + [found[0][1:-1] for found in almost if found[1].lower().partition(".")[0] in (*FIELDS, "labels")]


def spec_values(spec: Spec, **more: str) -> dict[str, str]:
    """The fields of a spec as texts."""
    values = {
        "cluster": spec.name,
        "region": spec.region,
        "area": str(spec.area),
        "colo": spec.colo,
        "provider": spec.provider,
        "purpose": str(spec.purpose),
        "subscription": spec.subscription,
        "sku": spec.sku,
        "nodes": str(spec.nodes),
        "islands": str(spec.islands),
        "owner": spec.owner,
        "recipe": spec.recipe,
    }
    return values | {f"labels.{name}": value for name, value in spec.labels.items()} | more


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with its fields filled in; one that has no value stays as it stands."""
    return _NAMED.sub(lambda found: values.get(found[1], found[0]), text)
