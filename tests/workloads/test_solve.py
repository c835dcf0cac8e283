"""Opening a block: hand-worked cases, a brute force on small random pools, and what a plan must never do."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import pytest

from plimsoll.workloads import open_block as counts
from plimsoll.workloads.open_block import Spot
from plimsoll.workloads.solve import Cost, Impossible, Movable, Opened, Room, open_block

SEEDS = 1_000
SEEDS_A_TEST = 100


def rooms(**free: int) -> list[Room]:
    return [Room(island, gpus) for island, gpus in free.items()]


def things(*ids: str, at: str, gpus: int = 8, can_stop: bool = False) -> list[Movable]:
    return [Movable(name, at, gpus, can_stop) for name in ids]


class Case(NamedTuple):
    """A pool, what is wanted of it, and the plan: `thing>island` in their order, `thing>` for a stop."""

    rooms: list[Room]
    movables: list[Movable]
    gpus: int
    want_island: str
    want_free: int
    want: list[str]
    want_disturbed: int
    want_stops: int = 0


CASES = {
    "an island has the room already: the tightest one, and nothing moves": Case(
        rooms(a=64, b=40, c=48), things("g1", at="b"), 40, "b", 40, [], 0
    ),
    "340 are free and 352 are needed: two grader replicas stand in the way": Case(
        rooms(a=40, b=340, c=16), things("g1", "g2", "g3", at="b"), 352, "b", 356, ["g1>c", "g2>c"], 16
    ),
    "one large replica goes rather than two small ones": Case(
        rooms(a=20, b=30), things("g1", "g2", at="b") + things("g3", at="b", gpus=16), 44, "b", 46, ["g3>a"], 16
    ),
    "of two that free enough alone the smaller one goes": Case(
        rooms(a=64, b=100), things("big", at="b", gpus=32) + things("small", at="b", gpus=16), 110, "b", 116,
        ["small>a"], 16,
    ),
    "of two islands alike the first by name is opened": Case(
        rooms(b=24, a=24), things("x", at="b") + things("y", at="a"), 32, "a", 32, ["y>b"], 8
    ),
    "fewer moves in a later island win over its name": Case(
        rooms(a=16, b=24, c=8), things("x1", "x2", at="a") + things("y", at="b"), 32, "b", 32, ["y>c"], 8
    ),
    "things alike go by name, whatever order they come in": Case(
        rooms(b=8, a=24), things("g3", "g1", "g2", at="a"), 32, "a", 32, ["g1>b"], 8
    ),
    "what is in the way of the one that leaves moves aside first": Case(
        rooms(a=8, b=8, c=8), things("x", at="a", gpus=16) + things("y", at="b"), 24, "a", 24, ["y>c", "x>b"], 24
    ),
    "it moves into the island that is being opened if that is the only place": Case(
        rooms(a=9, b=8), things("x", at="a", gpus=16) + things("y", at="b"), 17, "a", 17, ["y>a", "x>b"], 24
    ),
    "two that could only swap at once are not swapped: a stop is better than no order": Case(
        rooms(a=0, b=8), things("x", at="a", gpus=16, can_stop=True) + things("y", at="b"), 16, "a", 16, ["x>"], 16, 1
    ),
    "a plan of more moves is better than a stop": Case(
        rooms(a=8, b=8, c=8),
        things("s", at="a", gpus=16, can_stop=True) + things("y", at="b"),
        24, "a", 24, ["y>c", "s>b"], 24,
    ),
    "a stop is the last resort, and it is what may stop that stops": Case(
        rooms(a=8, b=8),
        things("a1", at="a") + things("a2", at="a", can_stop=True),
        24, "a", 24, ["a2>", "a1>b"], 16, 1,
    ),
    "what may be stopped is elsewhere, so it makes room there": Case(
        rooms(a=8, b=0), things("x", at="a") + things("y", at="b", can_stop=True), 16, "a", 16, ["y>", "x>b"], 16, 1
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", CASES)
def test_the_cheapest_plan(sentence: str) -> None:
    case = CASES[sentence]
    opened = open_block(case.rooms, case.movables, case.gpus)
    assert isinstance(opened, Opened)
    assert [f"{move.id}>{move.to_island or ''}" for move in opened.moves] == case.want
    assert (opened.island, opened.gpus_free_after) == (case.want_island, case.want_free)
    assert (opened.gpus_disturbed, opened.stops) == (case.want_disturbed, case.want_stops)
    assert opened.is_proven
    assert opened.bound == Cost(case.want_stops, len(case.want), case.want_disturbed)


class No(NamedTuple):
    rooms: list[Room]
    movables: list[Movable]
    gpus: int
    want_largest: int
    want_island: str
    want_elsewhere: int = 0


IMPOSSIBLE = {
    "there is no island": No([], [], 8, 0, ""),
    "nothing can move": No(rooms(a=8, b=16), [], 24, 16, "b", 8),
    "all is free that can be, and it is too little": No(rooms(a=8, b=16), things("x", at="b"), 32, 24, "b", 8),
    "there is enough in all, but in crumbs that take no replica": No(
        rooms(a=16, b=7, c=7), things("x", at="a"), 24, 16, "a", 14
    ),
    "two that could only swap at once are stuck": No(
        rooms(a=0, b=8), things("x", at="a", gpus=16) + things("y", at="b"), 9, 8, "b"
    ),
    "of two islands that come as far the first by name is named": No(
        rooms(b=8, a=8), things("x", at="b") + things("y", at="a"), 24, 16, "a", 8
    ),
    "even with all stopped that may be": No(
        rooms(a=0, b=0), things("x", "y", at="a") + things("z", at="b", can_stop=True), 24, 8, "a"
    ),
}


@pytest.mark.parametrize("sentence", IMPOSSIBLE)
def test_the_largest_block_where_there_is_no_plan(sentence: str) -> None:
    case = IMPOSSIBLE[sentence]
    found = open_block(case.rooms, case.movables, case.gpus)
    assert isinstance(found, Impossible)
    assert (found.gpus, found.largest, found.island) == (case.gpus, case.want_largest, case.want_island)
    assert found.free_elsewhere == case.want_elsewhere
    assert (found.is_proven, found.bound) == (True, case.want_largest)


class Brute(NamedTuple):
    """What all reachable states say: the least cost with the first island that has it, and the largest block."""

    cost: Cost | None
    island: str
    largest: int
    largest_island: str


def brute_force(pool: list[Room], movables: list[Movable], gpus: int) -> Brute:
    """Try every order of every set of moves; a thing moves once."""
    islands = sorted(room.island for room in pool)
    free_at_start = {room.island: room.free for room in pool}
    start: tuple[str | None, ...] = tuple(movable.island for movable in movables)
    seen, edge = {start}, [start]
    plans: list[tuple[Cost, str]] = []
    blocks: list[tuple[int, str]] = []
    while edge:
        places = edge.pop()
        free = dict(free_at_start)
        moved = [(thing, place) for thing, place in zip(movables, places, strict=True) if place != thing.island]
        for thing, place in moved:
            free[thing.island] += thing.gpus
            if place is not None:
                free[place] -= thing.gpus
        cost = Cost(sum(place is None for _, place in moved), len(moved), sum(thing.gpus for thing, _ in moved))
        plans += ((cost, island) for island in islands if free[island] >= gpus)
        blocks += ((-free[island], island) for island in islands)
        for number, thing in enumerate(movables):
            if places[number] != thing.island:
                continue
            ends: list[str | None] = [end for end in islands if end != thing.island and free[end] >= thing.gpus]
            for end in ends + [None] * thing.can_stop:
                after = (*places[:number], end, *places[number + 1 :])
                if after not in seen:
                    seen.add(after)
                    edge.append(after)
    cost_found, island = min(plans, default=(None, ""))
    room, largest_island = min(blocks)
    return Brute(cost_found, island, -room, largest_island)


def random_pool(seed: int) -> tuple[list[Room], list[Movable], int]:
    """A tight pool, so that moving aside, swaps without an order, and stops are common."""
    dice = random.Random(seed)
    islands = "abcd"[: dice.choice([2, 3, 3, 4])]
    sizes = dice.choice([[8], [8, 16], [8, 16, 24], [1, 2, 3], [2, 3], [3, 5, 7]])
    stop_share = dice.choice([0.0, 0.0, 0.3, 0.6])
    count = dice.randint(1, 6 if len(islands) < 4 else 5)
    movables = [
        Movable(f"t{number}", dice.choice(islands), dice.choice(sizes), dice.random() < stop_share)
        for number in range(count)
    ]
    pool = [Room(island, dice.randint(0, max(sizes) + 1)) for island in islands]
    dice.shuffle(movables)
    dice.shuffle(pool)
    free = [room.free for room in pool]
    return pool, movables, dice.randint(max(free) + 1, max(sum(free), max(free) + 1))


def check(pool: Iterable[Room], movables: Iterable[Movable], gpus: int, opened: Opened) -> None:
    """Do the moves one by one."""
    free = {room.island: room.free for room in pool}
    left = {movable.id: movable for movable in movables}
    for move in opened.moves:
        assert move.id in left, f"{move.id} moves twice or does not exist"
        thing = left.pop(move.id)
        assert (move.from_island, move.gpus) == (thing.island, thing.gpus)
        assert move.to_island != move.from_island
        free[move.from_island] += move.gpus
        if move.to_island is None:
            assert thing.can_stop
        else:
            free[move.to_island] -= move.gpus
            assert free[move.to_island] >= 0, f"{move} over-fills its island"
    assert free[opened.island] == opened.gpus_free_after >= gpus
    assert opened.gpus_disturbed == sum(move.gpus for move in opened.moves)
    assert opened.stops == sum(move.to_island is None for move in opened.moves)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_never_worse_than_brute_force(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        print(f"seed {seed}")  # noqa: T201
        pool, movables, gpus = random_pool(seed)
        want = brute_force(pool, movables, gpus)
        found = open_block(pool, movables, gpus)
        assert found.is_proven
        if isinstance(found, Impossible):
            assert want.cost is None
            assert (found.largest, found.island) == (want.largest, want.largest_island)
            assert found.bound == want.largest
        else:
            check(pool, movables, gpus, found)
            assert Cost(found.stops, len(found.moves), found.gpus_disturbed) == want.cost == found.bound
            assert found.island == want.island or not found.moves


def mixed_pool(seed: int) -> tuple[list[Room], list[Movable]]:
    dice = random.Random(seed)
    islands = [f"i{number:02}" for number in range(12)]
    movables = [
        Movable(f"t{number:03}", dice.choice(islands), dice.choices([8, 16, 64], [80, 15, 5])[0])
        for number in range(300)
    ]
    return [Room(island, 8 * dice.randint(0, 6)) for island in islands], movables


def test_the_answer_does_not_depend_on_the_order_of_what_is_given() -> None:
    pool, movables = mixed_pool(1)
    first = open_block(pool, movables, 160)
    assert isinstance(first, Opened)
    check(pool, movables, 160, first)
    assert open_block(pool[::-1], movables[::-1], 160) == first


def test_without_time_a_plan_is_never_called_proven() -> None:
    pool, movables = mixed_pool(1)
    proven, hasty = open_block(pool, movables, 160), open_block(pool, movables, 160, seconds_max=0)
    assert isinstance(proven, Opened)
    assert isinstance(hasty, Opened)
    check(pool, movables, 160, hasty)
    assert proven.is_proven
    assert not hasty.is_proven
    assert hasty.bound <= proven.bound <= Cost(hasty.stops, len(hasty.moves), hasty.gpus_disturbed)


def test_without_time_no_block_is_called_the_largest() -> None:
    case = CASES["what is in the way of the one that leaves moves aside first"]
    found = open_block(case.rooms, case.movables, case.gpus, seconds_max=0)
    assert isinstance(found, Impossible)
    assert (found.largest, found.is_proven, found.bound) == (16, False, 24)


def test_counting_alone_never_loads_the_solver() -> None:
    program = """
import sys
from plimsoll.workloads.solve import Movable, Room, open_block
rooms = [Room(f"i{n:02}", 8 * (n % 5)) for n in range(40)]
movables = [Movable(f"t{n:04}", f"i{n % 40:02}", 8, n % 3 == 0) for n in range(2000)]
for gpus in (8, 32, 40, 352, 100_000):
    assert open_block(rooms, movables, gpus).is_proven
assert "ortools" not in sys.modules
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


class Trip(NamedTuple):
    """Free GPUs by island, what leaves and what enters, as {(island, gpus): count}."""

    free: list[int]
    leave: dict[tuple[int, int], int]
    enter: dict[tuple[int, int], int]
    want: list[tuple[int, int, int]] | None


ORDERS = {
    "what makes room goes first": Trip(
        [0, 8, 8], {(0, 16): 1, (1, 8): 1}, {(1, 16): 1, (2, 8): 1}, [(8, 1, 2), (16, 0, 1)]
    ),
    "two that wait for each other have no order": Trip([0, 8], {(0, 16): 1, (1, 8): 1}, {(1, 16): 1, (0, 8): 1}, None),
    "a ring has an order if one island has room to begin": Trip(
        [3, 1, 0],
        {(0, 3): 1, (1, 2): 1, (2, 4): 1},
        {(0, 2): 1, (1, 3): 1, (0, 4): 1},
        [(2, 1, 0), (3, 0, 1), (4, 2, 0)],
    ),
    "nothing moves": Trip([0], {}, {}, []),
}


@pytest.mark.parametrize("sentence", ORDERS)
def test_the_order_of_moves(sentence: str) -> None:
    trip = ORDERS[sentence]
    leave = Counter({Spot(*spot): count for spot, count in trip.leave.items() if count})
    enter = Counter({Spot(*spot): count for spot, count in trip.enter.items() if count})
    assert counts.order(trip.free, counts.Shift(leave, enter, Counter())) == trip.want
