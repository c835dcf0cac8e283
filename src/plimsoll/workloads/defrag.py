"""Defragmentation: the fewest moves that open a block of a size in one island, as events. Pure, within a turn.

Elastic replicas run on in another island of their pool, and flex gangs move whole. Nothing stops for it: what stopped
would come back into the block that it opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from plimsoll.errors import Refused
from plimsoll.fleet.model import IslandKey, PoolKey
from plimsoll.quota.model import Kind
from plimsoll.workloads.act import evict, place
from plimsoll.workloads.model import Because, Place, Victim
from plimsoll.workloads.queue import run_round
from plimsoll.workloads.rights import Held, held_in, part_spec, stuck_in
from plimsoll.workloads.rooms import barred_for
from plimsoll.workloads.solve import Impossible, Movable, Move, Opened, Room, open_block
from plimsoll.workloads.turn import Turn


class Step(msgspec.Struct, frozen=True):
    """One thing that moves to another island."""

    team: str
    workload: str
    part: str
    kind: Kind
    gpus: int
    from_island: str
    to_island: str


class Opening(msgspec.Struct, frozen=True):
    """How a block can be opened in a pool: the steps in an order that works."""

    pool: PoolKey
    gpus: int
    island: str
    free_after: int
    steps: tuple[Step, ...]
    gpus_disturbed: int
    is_proven: bool
    bound_moves: int


class NoOpening(msgspec.Struct, frozen=True):
    """The most that could be opened in a pool, whatever moves."""

    pool: PoolKey
    largest: int
    island: str
    is_proven: bool


def find_opening(turn: Turn, pools: Sequence[PoolKey], gpus: int) -> tuple[Opening | None, list[NoOpening]]:
    """The cheapest way over these pools (fewest moves, then GPUs), and what the others could have at most."""
    best: Opening | None = None
    none: list[NoOpening] = []
    for pool in pools:
        found = _in_pool(turn, pool, gpus)
        if isinstance(found, NoOpening):
            none.append(found)
        elif best is None or _price(found) < _price(best):
            best = found
        if best is not None and not best.steps:
            break  # nothing has to move at all
    return best, none


def _price(opening: Opening) -> tuple[int, int, PoolKey]:
    return len(opening.steps), opening.gpus_disturbed, opening.pool


def _in_pool(turn: Turn, pool: PoolKey, gpus: int) -> Opening | NoOpening:
    rooms = [Room(island, max(0, free)) for free, island in turn.floor.by_pool.of(pool)]
    known: dict[str, tuple[Held, str]] = {}
    movables: list[Movable] = []
    full = {island for free, island in turn.floor.by_pool.of(pool) if free < 0}
    for held in held_in(turn, pool):
        if held.is_spare or held.work in turn.work.leaving:
            continue
        for thing in _things(turn, held):
            if thing.island not in full:
                known[thing.id] = held, thing.island
                movables.append(thing)
    found = open_block(rooms, movables, gpus)
    if isinstance(found, Impossible):
        return NoOpening(pool, found.largest, found.island, found.is_proven)
    return _opening(pool, gpus, found, known)


def _things(turn: Turn, held: Held) -> list[Movable]:
    """What of a part can move by itself: replicas one by one, a gang only as flex and whole. What is on nodes that are
    out or drain would open nothing; a gang that planned work bars from nodes stays.
    """
    if held.kind is Kind.GANG:
        [(island, gpus)] = held.islands.items()
        if not held.flex or stuck_in(turn, held, island):
            return []
        asked = turn.work.asked.get(held.work)
        if asked is not None and barred_for(turn, asked):
            return []
        return [Movable(f"{held.work}/{held.part}", island, gpus)]
    unit = part_spec(turn, held).gpus
    return [
        Movable(f"{held.work}/{held.part}/{island}/{number}", island, unit)
        for island, gpus in sorted(held.islands.items())
        for number in range((gpus - stuck_in(turn, held, island)) // unit)
    ]


def _opening(pool: PoolKey, gpus: int, found: Opened, known: dict[str, tuple[Held, str]]) -> Opening:
    steps = tuple(_step(move, known[move.id][0]) for move in found.moves)
    return Opening(
        pool,
        gpus,
        found.island,
        found.gpus_free_after,
        steps,
        found.gpus_disturbed,
        found.is_proven,
        found.bound.moves,
    )


def _step(move: Move, held: Held) -> Step:
    assert move.to_island is not None, f"{move.id} may not stop"
    return Step(held.team, held.work, held.part, held.kind, move.gpus, move.from_island, move.to_island)


def carry_out(turn: Turn, opening: Opening, *, grace: timedelta) -> None:
    """Make the moves, in their order."""
    for step in opening.steps:
        is_whole = step.kind is Kind.GANG
        victim = Victim(step.workload, step.part, step.from_island, step.gpus, is_whole, step.team)
        told = f"opens {opening.gpus:,} in {opening.island}"
        evict(turn, [victim], by="defrag", because=Because.MOVED, detail=told)
        asked = turn.work.asked[step.workload]
        where = [Place(step.part, step.to_island, step.gpus)]
        place(turn, asked, opening.pool, where, Because.MOVED, by="defrag")
    free = turn.floor.free.get(IslandKey(opening.island, opening.pool.sku), 0)
    assert free >= opening.gpus, f"{opening.island} has {free} free, not {opening.gpus}"
    run_round(turn, grace=grace)


def no_way(pools: Sequence[NoOpening], gpus: int, sku: str) -> Refused:
    """Nothing that moves opens a block of this size."""
    best = max(pools, key=lambda each: (each.largest, each.pool))
    sure = "" if best.is_proven else " (as far as was searched)"
    return Refused(
        "no_opening",
        f"no moves open {gpus:,} {sku} in one island; the largest block that could be opened is {best.largest:,}:"
        f" {best.island} of {best.pool.cluster}{sure}",
        next_step=f"plimsoll why --if gpus={gpus} sku={sku} island",
        gpus=gpus,
        largest=best.largest,
        cluster=best.pool.cluster,
        island=best.island,
    )
