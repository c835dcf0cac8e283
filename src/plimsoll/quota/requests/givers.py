"""Who could give quota to another team without losing running work: unscheduled before idle, the largest first. Pure.

Pins and blocks stay whole, and what a team has only borrowed is not its to give.
"""

from __future__ import annotations

import msgspec

from plimsoll.quota.align import Stake, haircut_of
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import Pool
from plimsoll.quota.hurt import harmless
from plimsoll.quota.model import QuotaKey
from plimsoll.state.state import State

GIVERS_MAX = 5
"""A transfer that needs more givers than this is nobody's idea of one."""


class Giver(msgspec.Struct, frozen=True):
    """What a team could give, in GPUs: unscheduled, then idle."""

    team: str
    unscheduled: int
    idle: int

    @property
    def gpus(self) -> int:
        return self.unscheduled + self.idle


def find_givers(state: State, pool: Pool, gpus: int, *, taker: str) -> list[Giver]:
    """Who could give so many GPUs: unscheduled before idle, the largest first; pins and blocks stay whole."""
    stakes = [stake for stake in pool.stakes if stake.team != taker]
    most = {stake.team: givable(state, pool, stake) for stake in stakes}
    nodes: dict[str, int] = {}
    for kind in ("unscheduled", "all"):
        rooms = sorted(
            ((most[stake.team].unscheduled if kind == "unscheduled" else most[stake.team].gpus), stake.team)
            for stake in stakes
        )
        for room, team in sorted(rooms, key=lambda pair: (-pair[0], pair[1])):
            left = gpus - sum(nodes.values())
            more = min(left, room // pool.size * pool.size - nodes.get(team, 0))
            if more > 0 and (team in nodes or len(nodes) < GIVERS_MAX):
                nodes[team] = nodes.get(team, 0) + more
    found = [_giver(stake, pool, nodes[stake.team]) for stake in stakes if stake.team in nodes]
    return sorted(found, key=lambda giver: (-giver.gpus, giver.team))


def _giver(stake: Stake, pool: Pool, gpus: int) -> Giver:
    guaranteed = pool.guaranteed.get(stake.team, 0)
    held = msgspec.structs.replace(stake, assigned=guaranteed)
    haircut = haircut_of(held, guaranteed - gpus)
    assert haircut is not None, f"{stake.team} would give nothing"
    assert not haircut.running, f"{stake.team} would give running work"
    return Giver(stake.team, haircut.unscheduled, haircut.idle)


def givable(state: State, pool: Pool, stake: Stake) -> Giver:
    """What a team is guaranteed and does not need now, in whole nodes: at most what pins, blocks and loans leave."""
    guaranteed = pool.guaranteed.get(stake.team, 0)
    borrowed = borrowed_by(state, QuotaKey(stake.team, *pool.key))
    block = stake.block if stake.block <= guaranteed else 0
    most = max(0, guaranteed - max(stake.pin, block, borrowed))
    held = msgspec.structs.replace(stake, assigned=guaranteed)
    whole = haircut_of(held, 0)
    if whole is None:
        return Giver(stake.team, 0, 0)
    size = pool.size
    unscheduled = min(most, whole.unscheduled) // size * size
    # What a gang holds idle is not free: without it the gang would no longer fit, and all of it would be flex.
    both = min(most, guaranteed - harmless(held, size)) // size * size
    return Giver(stake.team, unscheduled, max(0, both - unscheduled))


def borrowed_by(state: State, key: QuotaKey) -> int:
    """GPUs of a team's quota that go back at some time: they can't be given on."""
    return sum(grant.gpus for grant in state.of(QuotaBook).grants.values() if grant.key == key)
