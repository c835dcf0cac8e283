"""Elastic work counts by replica, spares go with their gang and are filled up again, and a file stays what it was."""

from __future__ import annotations

import pytest

from plimsoll.quota.fill import fill
from plimsoll.quota.model import Claim, Kind, Tier
from plimsoll.workloads import desk
from plimsoll.workloads.desk import Outcome
from tests.support.yard import Yard, elastic, gang, spec


def claim(kind: Kind, gpus: int, *, rank: int, unit: int = 1, is_spare: bool = False, work: str = "w") -> Claim:
    return Claim(work, "a", kind, Tier.HIGH, rank, gpus, part="p", unit=unit, is_spare=is_spare)


FILLED = {
    "half a replica is none, and leaves its room to the next": (
        24, [claim(Kind.ELASTIC, 32, rank=1, unit=16), claim(Kind.GANG, 8, rank=2, work="x")], [16, 8],
    ),
    "observed work counts by GPU": (24, [claim(Kind.ELASTIC, 32, rank=1)], [24]),
    "the spare of a gang that is flex is flex": (
        16, [claim(Kind.GANG, 24, rank=1), claim(Kind.ELASTIC, 8, rank=1, is_spare=True)], [0, 0],
    ),
    "the spare of a gang inside is inside as far as there is room": (
        32, [claim(Kind.GANG, 24, rank=1), claim(Kind.ELASTIC, 8, rank=1, is_spare=True)], [24, 8],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FILLED)
def test_what_lies_inside(case: str) -> None:
    guaranteed, claims, want = FILLED[case]
    assert fill(claims, guaranteed) == want


def test_a_spare_that_was_used_is_replaced_and_nobody_is_interrupted_for_it() -> None:
    yard = Yard({"tiger": {"a": 6}}, {"tiger": {"red": 48}})
    yard.submit(spec("r1", "red", gang(24, spare_nodes=1)))
    first = max(yard.nodes("r1"))
    yard.lose(first)
    workload = yard.work.workloads["r1"]
    spares = workload.spares("train")
    assert spares is not None
    assert (workload.gpus, spares.gpus) == (32, 8)
    assert first not in yard.nodes("r1")
    assert yard.work.accounts["r1", "train"].interruptions == 1


def test_a_gang_that_started_without_a_spare_gets_one_when_a_node_comes_free() -> None:
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 32}})
    yard.submit(spec("r0", "red", gang(8)), spec("r1", "red", gang(24, spare_nodes=1)))
    assert yard.work.workloads["r1"].spares("train") is None
    yard.cancel("r0")
    spares = yard.work.workloads["r1"].spares("train")
    assert spares is not None
    assert spares.gpus == 8


def test_the_file_that_was_submitted_is_the_same_after_its_work_was_scaled() -> None:
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 32}})
    file = spec("r1", "red", elastic(1, 2))
    yard.submit(file)
    desk.scale(yard.turn(), "r1", "graders", least=None, most=3, grace=yard.grace)
    assert yard.islands("r1") == {"a": 24}
    assert desk.submit(yard.turn(), [file], grace=yard.grace) == {"r1": Outcome.SAME}
    assert yard.islands("r1") == {"a": 24}
