"""Whether a cluster can be made as it is wanted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plimsoll.fleet.model import Area, Purpose
from plimsoll.lifecycle.machines import STANDARD
from plimsoll.lifecycle.model import Spec
from plimsoll.lifecycle.recipe_file import read_recipe
from plimsoll.lifecycle.spec_check import spec_problems

SPEC = Spec("lynx", "eastus", Area.US, "", "", Purpose.RESEARCH, "sub-a", "H200", 8, 2)
RECIPE = read_recipe(STANDARD, source="standard")

CASES: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "as it should be": ({}, []),
    "the longest name": ({"name": "a" * 40}, []),
    "the most nodes in the fewest islands": ({"nodes": 20_000, "islands": 20}, []),
    "one node": ({"nodes": 1, "islands": 1}, []),
    "a name with a large letter": (
        {"name": "Lynx"},
        [("cluster", "a name of 2 to 40 small letters, digits and '-' that begins with a letter")],
    ),
    "a name that ends in a dash": ({"name": "lynx-"}, [("cluster", "begins with a letter")]),
    "a name of 41 letters": ({"name": "a" * 41}, [("cluster", "2 to 40")]),
    "a SKU that nobody knows": (
        {"sku": "H300"},
        [("sku", "a SKU whose machines recipe standard knows: A100, GB200, H100, H200")],
    ),
    "no SKU": ({"sku": ""}, [("sku", "a name, found nothing")]),
    "no nodes": ({"nodes": 0}, [("nodes", "a whole number from 1 to 20,000")]),
    "fewer than none, and islands": ({"nodes": -1, "islands": 5}, [("nodes", "a whole number from 1 to 20,000")]),
    "more than there can be": ({"nodes": 20_001}, [("nodes", "a whole number from 1 to 20,000")]),
    "more islands than nodes": ({"islands": 9}, [("islands", "a whole number from 1 to the 8 nodes")]),
    "no islands": ({"islands": 0}, [("islands", "from 1 to the 8 nodes")]),
    "islands that no scale set can be": ({"nodes": 2_001, "islands": 2}, [("islands", "at least 3: ")]),
    "nowhere": ({"region": ""}, [("region", "a name, found nothing")]),
    "a tab in the subscription": ({"subscription": "sub\ta"}, [("subscription", "printable characters")]),
    "blanks around the region": ({"region": " eastus"}, [("region", "no blanks around it")]),
    "an owner of two lines": ({"owner": "a\nb"}, [("owner", "one line of printable text")]),
    "two mistakes": ({"region": "", "nodes": 0}, [("region", "a name"), ("nodes", "a whole number")]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_can_not_be_made_is_told_field_by_field(case: str) -> None:
    changes, want = CASES[case]
    problems = spec_problems(msgspec.structs.replace(SPEC, **changes), RECIPE)
    assert [field for field, _ in problems] == [field for field, _ in want]
    for (_, expected), (_, part) in zip(problems, want, strict=True):
        assert part in expected


def test_a_label_that_the_recipe_names_must_be_there() -> None:
    recipe = read_recipe(STANDARD.replace("rehearsal, destroy]", 'rehearsal, destroy, "{labels.rack}"]'), source="r")
    assert spec_problems(SPEC, recipe) == [("rack", "a label: recipe standard uses {labels.rack}")]
    assert spec_problems(msgspec.structs.replace(SPEC, labels={"rack": "7"}), recipe) == []
