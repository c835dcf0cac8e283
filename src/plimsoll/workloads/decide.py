"""Where observed elastic work that names no island is taken to run. Deterministic, and marked as assumed."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.workloads.model import Block


def assume_blocks(gpus: int, idle_gpus: int, free: Mapping[str, int]) -> tuple[Block, ...] | None:
    """Blocks for elastic work: the tightest island that takes all of it, so that big islands stay whole; if none
    does, the largest first. None when all islands together have too little. `free` is GPUs by island.
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
