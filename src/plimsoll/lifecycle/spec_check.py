"""Whether a cluster can be made as it is wanted, by the recipe that it names. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from plimsoll.fleet.sheet import Parser, parse_name, parse_text
from plimsoll.lifecycle.model import NODES_MAX, SET_NODES_MAX, Spec
from plimsoll.lifecycle.recipe import Recipe

NAME = re.compile(r"[a-z][a-z0-9-]{0,38}[a-z0-9]")
"""Names go into host names, scale sets and build variables: what all of them allow."""
_TEXTS: dict[str, Parser] = {
    "region": parse_name,
    "subscription": parse_name,
    "sku": parse_name,
    "colo": parse_text,
    "provider": parse_text,
    "owner": parse_text,
}
"""What a row of the sheet is asked for, whoever wrote it."""


def spec_problems(spec: Spec, recipe: Recipe) -> list[tuple[str, str]]:
    """Each field that is wrong, and what was expected."""
    problems = [*_bad_texts(spec)]
    is_named = not any(field == "sku" for field, _ in problems)
    if not NAME.fullmatch(spec.name):
        problems.append(("cluster", "a name of 2 to 40 small letters, digits and '-' that begins with a letter"))
    if is_named and spec.sku not in recipe.machines:
        known = ", ".join(sorted(recipe.machines))
        problems.append(("sku", f"a SKU whose machines recipe {recipe.name} knows: {known}"))
    if not 1 <= spec.nodes <= NODES_MAX:
        problems.append(("nodes", f"a whole number from 1 to {NODES_MAX:,}"))
    elif not 1 <= spec.islands <= max(1, spec.nodes):
        problems.append(("islands", f"a whole number from 1 to the {spec.nodes:,} nodes"))
    elif -(-spec.nodes // spec.islands) > SET_NODES_MAX:
        least = -(-spec.nodes // SET_NODES_MAX)
        problems.append(("islands", f"at least {least:,}: one is a scale set of at most {SET_NODES_MAX:,} nodes"))
    missing = [label for label in recipe.labels if label not in spec.labels]
    return problems + [(label, f"a label: recipe {recipe.name} uses {{labels.{label}}}") for label in missing]


def _bad_texts(spec: Spec) -> Iterator[tuple[str, str]]:
    for field, parse in _TEXTS.items():
        text = getattr(spec, field)
        try:
            parse(text)
            if text != text.strip():
                raise ValueError("no blanks around it")
        except ValueError as error:
            yield field, str(error)
