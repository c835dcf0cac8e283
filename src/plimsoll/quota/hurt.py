"""What a cut of guarantees in force hurts, and how far it can go without hurting anything that runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from plimsoll.quota.align import Stake, haircut_of, idle_inside
from plimsoll.quota.fill import gang_end
from plimsoll.quota.hull import Pool
from plimsoll.quota.model import Haircut
from plimsoll.quota.plan import PoolPlan


def taken(pool: Pool, guaranteed: Mapping[str, int]) -> dict[str, Haircut]:
    """What teams lose of what they are guaranteed now, by what it hurts."""
    found = {}
    for stake in held_stakes(pool):
        if haircut := loss_of(stake, guaranteed.get(stake.team, 0)):
            found[stake.team] = haircut
    return found


def lost_by(each: PoolPlan) -> Mapping[str, Haircut]:
    """What teams would lose by a plan: of what is guaranteed where something is, else of what they were assigned."""
    if each.pool.is_aligned:
        return taken(each.pool, each.alignment.guaranteed)
    return {team.team: team.haircut for team in each.hull.teams if team.haircut.gpus}


def held_stakes(pool: Pool) -> list[Stake]:
    """The stakes with what is guaranteed in the place of what is assigned."""
    return [msgspec.structs.replace(stake, assigned=pool.guaranteed.get(stake.team, 0)) for stake in pool.stakes]


def loss_of(held: Stake, guaranteed: int) -> Haircut | None:
    """What a cut hurts. Where it breaks a gang, idle GPUs of that gang are under running work."""
    haircut = haircut_of(held, guaranteed)
    if haircut is None or guaranteed >= gang_end(held.claims, held.assigned):
        return haircut
    return Haircut(haircut.unscheduled, 0, haircut.idle + haircut.running)


def harmless(held: Stake, size: int) -> int:
    """The smallest guarantee that takes no running capacity: what is used, and every gang whole."""
    used = min(held.assigned, held.allocated) - idle_inside(held)
    return min(held.assigned, whole_nodes(max(used, gang_end(held.claims, held.assigned)), size))


def whole_nodes(gpus: int, size: int) -> int:
    """As many GPUs, up to whole nodes."""
    return -(-gpus // size) * size
