"""Preemption against brute force: the least that is enough, on 1,000 random islands; and best fit against first fit.

The price is what is stopped, then all that is hurt: the fewest GPUs, and elastic work shrinks before anything stops.
Randomness is a seed that is printed.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import pytest

from plimsoll.workloads.model import PartSpec
from plimsoll.workloads.rooms import Plan
from plimsoll.workloads.victims import Option, fewest
from tests.support.yard import gang

CASES = 1_000
SEED = 20260302


class Case(NamedTuple):
    options: list[Option]
    need: int


def random_case(chance: random.Random) -> Case:
    """Up to seven parts of an island: gangs, elastic work that may shrink, and some that may stop and holds more."""
    options: list[Option] = []
    for number in range(chance.randint(1, 7)):
        who, here = f"w{number}", 8 * chance.randint(1, 5)
        elsewhere = 8 * chance.choice([0, 0, 0, 1, 3])
        match chance.choice(["gang", "elastic", "both"]):
            case "gang":
                options.append(Option(who, here, here, True))
            case "elastic":
                unit = chance.choice([4, 8])
                options.append(Option(who, unit, unit, False, here // unit))
            case _:
                times = chance.randint(0, here // 8 - 1) if here > 8 else 0
                if times:
                    options.append(Option(who, 8, 8, False, times))
                options.append(Option(who, here, here + elsewhere, True))
    most = sum(option.gpus * option.times for option in options)
    return Case(options, chance.randint(1, max(1, most)))


def all_ways(options: Sequence[Option]) -> Iterator[dict[int, int]]:
    """Every choice; who stops does not shrink as well."""
    for counts in product(*(range(option.times + 1) for option in options)):
        chosen = {place: times for place, times in enumerate(counts) if times}
        stopped = [options[place].who for place in chosen if options[place].stops]
        if not any(options[place].who in stopped for place in chosen if not options[place].stops):
            yield chosen


def price(options: Sequence[Option], chosen: dict[int, int]) -> tuple[int, int]:
    stopped = sum(options[place].cost for place in chosen if options[place].stops)
    return stopped, sum(options[place].cost * times for place, times in chosen.items())


def freed(options: Sequence[Option], chosen: dict[int, int]) -> int:
    return sum(options[place].gpus * times for place, times in chosen.items())


def test_the_search_agrees_with_brute_force() -> None:
    """In at least 95 of 100 cases, the issue asks. An answer always frees enough, and is missing only where there is
    none.
    """
    chance = random.Random(SEED)
    agreed, worse = 0, []
    for _ in range(CASES):
        options, need = random_case(chance)
        ways = [way for way in all_ways(options) if freed(options, way) >= need]
        best = min((price(options, way) for way in ways), default=None)
        taken = fewest(options, need)
        assert (taken is None) == (best is None), (options, need)
        if taken is None or best is None:
            agreed += 1
            continue
        chosen = dict(taken.chosen)
        assert freed(options, chosen) == taken.freed >= need
        assert price(options, chosen) == taken.price >= best
        stops = {options[place].who for place in chosen if options[place].stops}
        assert not any(options[place].who in stops for place in chosen if not options[place].stops)
        assert all(1 <= times <= options[place].times for place, times in chosen.items())
        agreed += taken.price == best
        if taken.price != best:
            worse.append((taken.price, best))
    told = f"seed {SEED}: {agreed:,} of {CASES:,} as brute force; the others {worse}"
    sys.stdout.write(f"{told}\n")
    assert agreed >= 0.95 * CASES, told
    assert all(found[0] == best[0] for found, best in worse), "never more is stopped; only the shrinking may differ"


def test_never_more_than_needed() -> None:
    """Nothing of an answer can be left out."""
    chance = random.Random(SEED + 1)
    for _ in range(CASES):
        options, need = random_case(chance)
        taken = fewest(options, need)
        if taken is None:
            continue
        for place, _times in taken.chosen:
            assert taken.freed - options[place].gpus < need, (options, need, taken)


BY_HAND = {
    "nothing is needed": (([Option("a", 8, 8, True)]), 0, {}),
    "all together are not enough": ([Option("a", 8, 8, True)], 16, None),
    "the gang that fits and not the larger one": ([Option("a", 16, 16, True), Option("b", 8, 8, True)], 8, {1: 1}),
    "replicas before a gang, though they come later": (
        [Option("a", 8, 8, True), Option("b", 8, 8, False, 3)],
        16,
        {1: 2},
    ),
    "a gang, and replicas for the rest": ([Option("a", 16, 16, True), Option("b", 8, 8, False, 1)], 24, {0: 1, 1: 1}),
    "of gangs alike the first in order": ([Option("a", 8, 8, True), Option("b", 8, 8, True)], 8, {0: 1}),
    "a gang that is all here and not a part that holds more elsewhere": (
        [Option("a", 16, 40, True), Option("b", 16, 16, True)],
        16,
        {1: 1},
    ),
    "two small ones are cheaper than a large one": (
        [Option("a", 32, 32, True), Option("b", 8, 8, True), Option("c", 8, 8, True)],
        16,
        {1: 1, 2: 1},
    ),
    "who stops does not shrink as well": (
        [Option("a", 8, 8, False, 1), Option("a", 24, 24, True)],
        24,
        {1: 1},
    ),
}


@pytest.mark.parametrize("sentence", BY_HAND)
def test_by_hand(sentence: str) -> None:
    options, need, want = BY_HAND[sentence]
    taken = fewest(options, need)
    assert (None if taken is None else dict(taken.chosen)) == want


# Placement quality: how large a gang still fits, after random gangs have come and gone.


def first_fit(rooms: dict[str, int], gpus: int) -> str | None:
    return next((island for island in sorted(rooms) if rooms[island] >= gpus), None)


def best_fit(rooms: dict[str, int], gpus: int) -> str | None:
    """By the real code."""
    plan = Plan(sorted((free, island) for island, free in rooms.items()), 8)
    part: PartSpec = gang(gpus)
    return plan.places[0].island if not plan.fit(part) else None


def largest_by_oracle(sizes: Sequence[int], running: Sequence[int]) -> int:
    """The most that could be free in one island if the running gangs stood best: all ways to put them are tried."""
    best = 0
    for places in product(range(len(sizes)), repeat=len(running)):
        free = list(sizes)
        for gpus, place in zip(running, places, strict=True):
            free[place] -= gpus
        if min(free) >= 0:
            best = max(best, *free)
    return best


def test_best_fit_keeps_larger_blocks_than_first_fit() -> None:
    chance = random.Random(SEED + 2)
    totals = {"best": 0, "first": 0, "oracle": 0}
    refused = {"best": 0, "first": 0}
    for _ in range(60):
        sizes = [8 * chance.randint(2, 8) for _ in range(4)]
        script = [(chance.random() < 0.6, 8 * chance.choice([1, 1, 2, 3, 5]), chance.random()) for _ in range(24)]
        for name, choose in (("best", best_fit), ("first", first_fit)):
            rooms = {f"i{number}": size for number, size in enumerate(sizes)}
            running: list[tuple[str, int]] = []
            for is_start, gpus, pick in script:
                if is_start and len(running) < 6:
                    island = choose(rooms, gpus)
                    refused[name] += island is None
                    if island is not None:
                        rooms[island] -= gpus
                        running.append((island, gpus))
                elif running:
                    island, gone = running.pop(int(pick * len(running)))
                    rooms[island] += gone
                totals[name] += max(rooms.values())
                if name == "best":
                    totals["oracle"] += largest_by_oracle(sizes, [gpus for _, gpus in running])
    sys.stdout.write(
        f"seed {SEED + 2}: largest block, summed over 1,440 moments: best fit {totals['best']:,}, first fit"
        f" {totals['first']:,}, at best possible for best fit's work {totals['oracle']:,}; refused {refused}\n"
    )
    assert totals["best"] >= totals["first"]
    assert refused["best"] <= refused["first"]
    assert totals["best"] >= 0.9 * totals["oracle"]
