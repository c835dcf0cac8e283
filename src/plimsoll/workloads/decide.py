"""Where observed work stands: elastic work that names no island, and work whose island shrank under it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from plimsoll.fleet.model import IslandKey
from plimsoll.quota.model import Kind, Tier
from plimsoll.workloads.model import Block, Part, Workload


def assume_blocks(gpus: int, idle_gpus: int, free: Mapping[str, int]) -> tuple[Block, ...] | None:
    """Blocks for elastic work that names no island: the tightest one that takes all of it, so that big islands stay
    whole; if none does, the largest first. None when all together have too little. `free` is GPUs by island.
    """
    fitting = sorted((left, island) for island, left in free.items() if left >= gpus)
    if fitting:
        return (Block(fitting[0][1], gpus, idle_gpus),)
    blocks = []
    for left, island in sorted(
        ((left, island) for island, left in free.items() if left > 0), key=lambda x: (-x[0], x[1])
    ):
        taken = min(left, gpus)
        idle_taken = min(taken, idle_gpus)
        blocks.append(Block(island, taken, idle_taken))
        gpus -= taken
        idle_gpus -= idle_taken
        if not gpus:
            return tuple(blocks)
    return None


def shed(workloads: Mapping[str, Workload], installed: Mapping[IslandKey, int]) -> dict[str, Workload | None]:
    """What is left of the workloads that hold more of an island than is installed in it; None where nothing is.

    A GPU that is gone is in no allocation. An elastic part gives up what is missing, a gang stops whole. Elastic work
    goes first, then the lower tier, then the later rank.
    """
    missing: Counter[IslandKey] = Counter()
    claims = []
    for name, workload in workloads.items():
        for part_place, part in enumerate(workload.parts):
            for block_place, block in enumerate(part.blocks):
                key = IslandKey(block.island, part.sku)
                missing[key] += block.gpus
                order = part.kind is Kind.GANG, -list(Tier).index(part.tier), -part.rank
                claims.append((order, name, part_place, block_place, key, block.gpus))
    for key in missing:
        missing[key] -= installed.get(key, 0)
    lost: dict[str, dict[tuple[int, int], int]] = {}
    for (is_gang, *_), name, part_place, block_place, key, gpus in sorted(claims):
        if missing[key] > 0:
            given_up = gpus if is_gang else min(gpus, missing[key])
            missing[key] -= given_up
            lost.setdefault(name, {})[part_place, block_place] = given_up
    return {name: _without(workloads[name], losses) for name, losses in lost.items()}


def _without(workload: Workload, losses: Mapping[tuple[int, int], int]) -> Workload | None:
    parts: list[Part] = []
    for part_place, part in enumerate(workload.parts):
        blocks = []
        for block_place, block in enumerate(part.blocks):
            given_up = losses.get((part_place, block_place), 0)
            if given_up < block.gpus:
                idle = max(0, block.idle_gpus - given_up)
                blocks.append(Block(block.island, block.gpus - given_up, idle))
        if blocks:
            parts.append(msgspec.structs.replace(part, blocks=tuple(blocks)))
    return msgspec.structs.replace(workload, parts=tuple(parts)) if parts else None
