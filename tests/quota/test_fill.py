"""What of a team's work lies inside its guarantee, and who loses when more runs than works: by hand, in GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from plimsoll.ledger.model import Draft
from plimsoll.quota.fill import Loss, fill, gang_end, inside, survive
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Claim, Kind, QuotaKey, Tier
from plimsoll.rooms import KINDS
from plimsoll.state.state import State
from plimsoll.workloads.changes import WorkloadObserved
from plimsoll.workloads.model import Block, Part, Workload


def gang(work: str, gpus: int, *, tier: str = "high", rank: int = 1, idle: int = 0) -> Claim:
    return Claim(work, "island", Kind.GANG, Tier(tier), rank, gpus, idle)


def elastic(work: str, gpus: int, *, tier: str = "high", rank: int = 1, idle: int = 0) -> Claim:
    return Claim(work, "island", Kind.ELASTIC, Tier(tier), rank, gpus, idle)


class Filled(NamedTuple):
    """Claims in the order of service and a guarantee; what of each lies inside, and where the last gang ends."""

    claims: Sequence[Claim]
    guaranteed: int
    want: list[int]
    want_end: int


FILLED = {
    "nothing runs": Filled([], 8, [], 0),
    "all of it fits": Filled([gang("a", 8), elastic("b", 4)], 16, [8, 4], 8),
    "elastic work counts by GPU": Filled([elastic("a", 16)], 10, [10], 0),
    "a gang counts whole or not at all": Filled([gang("a", 16)], 15, [0], 0),
    "a gang that is exactly as large": Filled([gang("a", 16)], 16, [16], 16),
    "what comes after a gang that does not fit may fit": Filled([gang("a", 16), gang("b", 8)], 12, [0, 8], 8),
    "elastic work before a gang leaves it too little": Filled([elastic("a", 10), gang("b", 8)], 16, [10, 0], 0),
    "elastic work before a gang lies under it": Filled([elastic("a", 10), gang("b", 8)], 24, [10, 8], 18),
    "elastic work after a gang lies above it": Filled([gang("a", 8), elastic("b", 8)], 24, [8, 8], 8),
    "a gang between that does not fit is under nothing": Filled(
        [gang("a", 8), gang("b", 32), gang("c", 4)], 16, [8, 0, 4], 12
    ),
    "nothing is guaranteed": Filled([gang("a", 8), elastic("b", 8)], 0, [0, 0], 0),
}


@pytest.mark.parametrize("sentence", FILLED)
def test_fill(sentence: str) -> None:
    claims, guaranteed, want, want_end = FILLED[sentence]
    assert fill(claims, guaranteed) == want
    assert inside(claims, guaranteed) == sum(want)
    assert gang_end(claims, guaranteed) == want_end


class Loses(NamedTuple):
    """Claims and guarantees by team, and how many GPUs work; what is lost, as (team, work, GPUs, whether flex)."""

    claims: dict[str, Sequence[Claim]]
    guaranteed: dict[str, int]
    healthy: int
    want: list[tuple[str, str, int, bool]]


LOSSES = {
    "as long as all of it fits nothing is lost": Loses({"a": [gang("x", 8)], "b": [elastic("y", 8)]}, {}, 16, []),
    "flex goes before work inside a guarantee": Loses(
        {"a": [elastic("x", 8, tier="low")], "b": [elastic("y", 16, tier="critical")]},
        {"a": 8, "b": 8},
        18,
        [("b", "y", 6, True)],
    ),
    "who has no guarantee gives flex first": Loses(
        {"a": [elastic("x", 16)], "b": [elastic("y", 4)]}, {"a": 8}, 16, [("b", "y", 4, True)]
    ),
    "then who has the most flex for its guarantee, though it has less": Loses(
        {"a": [elastic("x", 80)], "b": [elastic("y", 16)]},
        {"a": 64, "b": 8},
        92,
        [("b", "y", 4, True)],
    ),
    "then who has the most flex for its guarantee, and more": Loses(
        {"a": [elastic("x", 24)], "b": [elastic("y", 16)]},
        {"a": 8, "b": 8},
        36,
        [("a", "x", 4, True)],
    ),
    "of one team's flex elastic work goes before gangs": Loses(
        {"a": [gang("x", 8, rank=1), elastic("y", 8, rank=2), gang("z", 8, rank=3)]},
        {"a": 8},
        20,
        [("a", "y", 4, True)],
    ),
    "a gang that is flex stops whole": Loses({"a": [gang("x", 16)]}, {"a": 8}, 15, [("a", "x", 16, True)]),
    "inside guarantees elastic work goes before gangs, whatever the tier": Loses(
        {"a": [gang("x", 8, tier="low")], "b": [elastic("y", 8, tier="critical")]},
        {"a": 8, "b": 8},
        12,
        [("b", "y", 4, False)],
    ),
    "the lowest tier first": Loses(
        {"a": [elastic("x", 8, tier="mid")], "b": [elastic("y", 8, tier="high")]},
        {"a": 8, "b": 8},
        6,
        [("a", "x", 8, False), ("b", "y", 2, False)],
    ),
    "in one tier the last rank first": Loses(
        {"a": [elastic("x", 8, rank=1), elastic("y", 8, rank=2)]}, {"a": 16}, 10, [("a", "y", 6, False)]
    ),
    "teams that are alike bear it together, whatever their names: 6 of 12 and 24": Loses(
        {"a": [elastic("x", 12)], "b": [elastic("y", 24)]},
        {"a": 12, "b": 24},
        30,
        [("a", "x", 2, False), ("b", "y", 4, False)],
    ),
    "an odd GPU is lost by who has more": Loses(
        {"a": [elastic("x", 8)], "b": [elastic("y", 24)]},
        {"a": 8, "b": 24},
        30,
        [("b", "y", 2, False)],
    ),
    "of gangs that are alike the smallest that is enough stops": Loses(
        {"a": [gang("x", 8)], "b": [gang("y", 16)], "c": [gang("z", 12)]},
        {"a": 8, "b": 16, "c": 12},
        26,
        [("c", "z", 12, False)],
    ),
    "else the largest, and on": Loses(
        {"a": [gang("x", 8)], "b": [gang("y", 16)]},
        {"a": 8, "b": 16},
        4,
        [("b", "y", 16, False), ("a", "x", 8, False)],
    ),
    "where nothing works nothing runs": Loses(
        {"a": [gang("x", 8), elastic("y", 8, rank=2)]}, {"a": 8}, 0, [("a", "y", 8, True), ("a", "x", 8, False)]
    ),
}


@pytest.mark.parametrize("sentence", LOSSES)
def test_who_loses(sentence: str) -> None:
    claims, guaranteed, healthy, want = LOSSES[sentence]
    left, losses = survive(claims, guaranteed, healthy)
    assert losses == [Loss(*each) for each in want]
    lost = sum(gpus for _, _, gpus, _ in want)
    assert sum(claim.gpus for each in left.values() for claim in each) == (
        sum(claim.gpus for each in claims.values() for claim in each) - lost
    )
    assert {*left} == {*claims}


def test_what_is_idle_is_given_up_first() -> None:
    left, _ = survive({"a": [elastic("x", 16, idle=6)]}, {"a": 16}, 12)
    assert [*left["a"]] == [elastic("x", 12, idle=2)]
    left, _ = survive({"a": [elastic("x", 16, idle=6)]}, {"a": 16}, 4)
    assert [*left["a"]] == [elastic("x", 4)]


def test_a_part_with_nothing_placed_claims_nothing_and_is_forgotten() -> None:
    state, key = State(KINDS), QuotaKey("evals", "tiger", "H200")
    for blocks, want in (((), 0), ((Block("a", 8), Block("b", 4)), 12), ((Block("b", 4),), 4), ((), 0)):
        workload = Workload("run", "evals", "tiger", (Part(Kind.ELASTIC, Tier.HIGH, 1, "H200", blocks),))
        state.assume([Draft(WorkloadObserved(workload))], recorded_at="2026-01-05T00:00:00.000000Z")
        book = state.of(QuotaBook)
        assert sum(claim.gpus for claim in book.claims.get(key, ())) == want
        assert bool(book.pool_teams.get(key.pool)) == bool(want)


def test_a_workload_takes_the_place_of_its_own_claims_only_also_after_a_snapshot() -> None:
    """Two of a workload's blocks stand at one place of the order; another workload stands right beside them."""
    at, key = "2026-01-05T00:00:00.000000Z", QuotaKey("evals", "tiger", "H200")

    def seen(work: str, *blocks: Block) -> Draft:
        return Draft(
            WorkloadObserved(Workload(work, "evals", "tiger", (Part(Kind.ELASTIC, Tier.HIGH, 1, "H200", blocks),)))
        )

    live, loaded = State(KINDS), State(KINDS)
    live.assume(
        [seen("b", Block("x", 8), Block("x", 16)), seen("a", Block("x", 4)), seen("c", Block("x", 2))], recorded_at=at
    )
    loaded.load(live.dump())
    for state in (live, loaded):
        state.assume([seen("b", Block("y", 32))], recorded_at=at)
        held = state.of(QuotaBook).claims[key]
        assert [(claim.work, claim.gpus) for claim in held] == [("a", 4), ("b", 32), ("c", 2)]
