"""`plimsoll quota show` says what has died with its machines apart from what still runs on nodes that drain."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.fleets import nodes, row, write_fleet
from tests.support.inside import plimsoll


class Case(NamedTuple):
    """Of four nodes of 8 GPUs, all in use, two are out: the services they are in, and what is said of the 16 GPUs."""

    services: tuple[str, str]
    want: list[str]


GONE = "{} GPUs of running work were lost with their machines"
GOES = "{} GPUs of running work are lost when the nodes that drain go: until then it runs on"

CASES = {
    "both broke": Case(("repair", "repair"), [GONE.format(16)]),
    "both drain": Case(("draining", "draining"), [GOES.format(16)]),
    "one broke and one drains": Case(("repair", "draining"), [GONE.format(8), GOES.format(8)]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_lost_and_what_goes_with_the_nodes_that_drain(case: Case, tmp_path: Path) -> None:
    first, second = (nodes(1, prefix=name, service=service) for name, service in zip("ab", case.services, strict=True))
    folder = write_fleet(
        tmp_path / "fleet",
        nodes=[*nodes(2), *first, *second],
        quotas=[row("quotas", gpus="32")],
        workloads=[row("workloads", gpus="32", kind="elastic")],
    )
    db = f"sqlite:///{tmp_path}/plimsoll.db"
    assert plimsoll("fleet", "import", folder, db=db).code == 0
    said = plimsoll("quota", "show", "tiger", db=db)
    assert [line for line in said.out.splitlines() if "of running work" in line] == case.want
    document = plimsoll("quota", "show", "tiger", "-o", "json", db=db).json()
    assert sum(loss["gpus"] for loss in document["losses"]) == 16, "whatever is said of them, so many are lost"
