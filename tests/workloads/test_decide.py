"""Where observed work stands: elastic work without an island, and work whose island shrank under it."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from plimsoll.fleet.model import IslandKey
from plimsoll.quota.model import Kind, Tier
from plimsoll.workloads.decide import assume_blocks, shed
from plimsoll.workloads.model import Block, Part, Workload


class Assume(NamedTuple):
    """Elastic work of so many GPUs, what is free, and where it is taken to be."""

    gpus: int
    free: dict[str, int]
    want: tuple[Block, ...] | None
    idle: int = 0


ASSUME = {
    "the only island takes it": Assume(8, {"a": 8}, (Block("a", 8),)),
    "the tightest island takes it, so that the big one stays whole": Assume(
        8, {"a": 64, "b": 16, "c": 9, "d": 4}, (Block("c", 8),)
    ),
    "of two that fit alike the first by name takes it": Assume(8, {"b": 16, "a": 16}, (Block("a", 8),)),
    "an exact fit is the tightest": Assume(8, {"a": 9, "b": 8}, (Block("b", 8),)),
    "none takes all of it, so it is spread, the largest first": Assume(
        20, {"a": 4, "b": 10, "c": 8}, (Block("b", 10), Block("c", 8), Block("a", 2))
    ),
    "spread over islands alike it goes by name": Assume(12, {"b": 8, "a": 8}, (Block("a", 8), Block("b", 4))),
    "all of it together is just enough": Assume(12, {"a": 4, "b": 8}, (Block("b", 8), Block("a", 4))),
    "it is too big for all together": Assume(13, {"a": 4, "b": 8}, None),
    "there is no island": Assume(1, {}, None),
    "islands that are full or more than full take nothing": Assume(4, {"a": 0, "b": -8}, None),
    "an island that is more than full does not eat up another's": Assume(4, {"a": -8, "b": 4}, (Block("b", 4),)),
    "what is idle is with the work": Assume(8, {"a": 8}, (Block("a", 8, 3),), idle=3),
    "what is idle is split with the work": Assume(12, {"a": 8, "b": 6}, (Block("a", 8, 8), Block("b", 4, 2)), idle=10),
    "all of it is idle": Assume(12, {"a": 8, "b": 6}, (Block("a", 8, 8), Block("b", 4, 4)), idle=12),
}


@pytest.mark.parametrize("sentence", ASSUME)
def test_elastic_work_is_assumed_where_it_stands_least_in_the_way(sentence: str) -> None:
    case = ASSUME[sentence]
    assert assume_blocks(case.gpus, case.idle, case.free) == case.want


def part(kind: Kind, gpus: int, *, tier: Tier = Tier.HIGH, rank: int = 1, island: str = "a", idle: int = 0) -> Part:
    return Part(kind, tier, rank, "H200", (Block(island, gpus, idle),))


def workloads(**parts: Part | tuple[Part, ...]) -> dict[str, Workload]:
    return {
        name: Workload(name, "evals", "tiger", each if isinstance(each, tuple) else (each,))
        for name, each in parts.items()
    }


GANG, ELASTIC = Kind.GANG, Kind.ELASTIC


class Shed(NamedTuple):
    """Work, how much is left in island `a` (`b` has 8), and the GPUs that each changed workload holds afterwards."""

    work: dict[str, Workload]
    left: int
    want: dict[str, int]


SHED = {
    "all of it still fits": Shed(workloads(x=part(GANG, 8), y=part(ELASTIC, 8)), 16, {}),
    "elastic work gives up just what is missing": Shed(workloads(x=part(GANG, 8), y=part(ELASTIC, 8)), 13, {"y": 5}),
    "elastic work gives up everything before a gang does": Shed(
        workloads(x=part(GANG, 8, tier=Tier.LOW), y=part(ELASTIC, 8, tier=Tier.CRITICAL)), 8, {"y": 0}
    ),
    "a gang stops whole": Shed(workloads(x=part(GANG, 16)), 15, {"x": 0}),
    "of two gangs the lower tier stops": Shed(
        workloads(x=part(GANG, 8, tier=Tier.MID), y=part(GANG, 8, tier=Tier.HIGH)), 8, {"x": 0}
    ),
    "of two gangs in a tier the later rank stops": Shed(
        workloads(x=part(GANG, 8, rank=1), y=part(GANG, 8, rank=2)), 8, {"y": 0}
    ),
    "a second gang stops only if the first was not enough": Shed(
        workloads(x=part(GANG, 8, rank=3), y=part(GANG, 8, rank=2), z=part(GANG, 8, rank=1)), 8, {"x": 0, "y": 0}
    ),
    "a workload keeps its other parts": Shed(workloads(x=(part(GANG, 8), part(ELASTIC, 8, rank=2))), 8, {"x": 8}),
    "what is in another island is left alone": Shed(
        workloads(x=part(GANG, 8), y=part(ELASTIC, 8, island="b")), 0, {"x": 0}
    ),
}


@pytest.mark.parametrize("sentence", SHED)
def test_gpus_that_are_gone_are_in_no_allocation(sentence: str) -> None:
    work, left, want = SHED[sentence]
    after = shed(work, {IslandKey("a", "H200"): left, IslandKey("b", "H200"): 8})
    assert {name: sum(p.gpus for p in each.parts) if each else 0 for name, each in after.items()} == want


def test_idle_gpus_are_the_first_to_be_given_up() -> None:
    work = workloads(x=part(ELASTIC, 8, idle=3))
    after = shed(work, {IslandKey("a", "H200"): 6})
    assert after["x"] == Workload("x", "evals", "tiger", (part(ELASTIC, 6, idle=1),))
