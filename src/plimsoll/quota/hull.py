"""A pool as a hull: installed, healthy, the line, what is promised, what runs, and what is flex. Pure.

All numbers of a pool come from here, for what is now and for what a plan would make of it, so they can't disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date

import msgspec

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase, PoolKey
from plimsoll.quota.align import Stake, haircut_of
from plimsoll.quota.fill import Loss, fill, survive
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Haircut, QuotaKey
from plimsoll.quota.policy import Policy
from plimsoll.state.state import State

_NO_CUT = Haircut()


class Pool(msgspec.Struct, frozen=True):
    """What a decision about a pool looks at, in GPUs. What died under running work is no longer in the stakes."""

    key: PoolKey
    size: int
    total: int
    healthy: int
    stakes: Sequence[Stake]
    losses: Sequence[Loss]
    guaranteed: Mapping[str, int]
    is_aligned: bool
    line_in_force: int
    labels: Mapping[str, dict[str, str]] = {}
    """Those of the book's entries, by team, where they have any."""

    @property
    def assigned(self) -> int:
        return sum(stake.assigned for stake in self.stakes)


class TeamHull(msgspec.Struct, frozen=True):
    """A team's quota in a pool. `inside` runs within the guarantee, `flex_used` beyond it."""

    team: str
    cluster: str
    sku: str
    assigned: int
    guaranteed: int
    allocated: int
    idle: int
    haircut: Haircut
    stage: int
    inside: int
    flex_used: int

    @property
    def key(self) -> QuotaKey:
        return QuotaKey(self.team, self.cluster, self.sku)


class Hull(msgspec.Struct, frozen=True):
    """A pool in numbers, in GPUs; the words are those of the glossary."""

    cluster: str
    sku: str
    total: int
    healthy: int
    line: int
    line_in_force: int
    assigned: int
    guaranteed: int
    allocated: int
    idle: int
    over: int
    never_backed: int
    to_flex: int
    unallocated: int
    flex_standing: int
    flex_lent: int
    flex_used: int
    shortfall: int
    stage: int
    teams: Sequence[TeamHull]

    @property
    def key(self) -> PoolKey:
        return PoolKey(self.cluster, self.sku)


def pool_keys(state: State) -> list[PoolKey]:
    """Every pool that has capacity in production, or that somebody holds or uses something of."""
    fleet, book = state.of(Fleet), state.of(QuotaBook)
    in_production = {pool for pool in fleet.pools if fleet.clusters[pool.cluster].phase is Phase.PRODUCTION}
    return sorted(in_production | {pool for pool, teams in book.pool_teams.items() if teams})


def look(state: State, keys: Iterable[PoolKey], policy: Policy, day: date) -> list[Pool]:
    """These pools as they are now."""
    pins, blocks = policy.pins_on(day), policy.blocks_on(day)
    return [_look(state, key, pins, blocks) for key in keys]


def _look(state: State, key: PoolKey, pins: Mapping[QuotaKey, int], blocks: Mapping[QuotaKey, int]) -> Pool:
    fleet, book = state.of(Fleet), state.of(QuotaBook)
    count, cluster = fleet.pools.get(key), fleet.clusters.get(key.cluster)
    is_there = count is not None and cluster is not None and cluster.phase is Phase.PRODUCTION
    total, healthy = (count.gpus, count.gpus_in_service) if count is not None and is_there else (0, 0)
    keys = [QuotaKey(team, *key) for team in book.pool_teams.get(key, ())]
    quotas, claims_of = book.quotas, book.claims
    assigned = {each.team: quotas[each].gpus if each in quotas else 0 for each in keys}
    guaranteed = book.guaranteed_in(key)
    is_aligned = key in book.lines
    claims = {each.team: claims_of.get(each, ()) for each in keys}
    # Work in a cluster that is not in production runs all the same, on what is in service there.
    working = count.gpus_in_service if count is not None else 0
    basis = book.loss_basis.get(key, guaranteed if is_aligned else assigned)
    surviving, losses = survive(claims, basis, working)
    return Pool(
        key,
        size=count.gpus_per_node if count is not None else 1,
        total=total,
        healthy=healthy,
        stakes=[
            Stake(each.team, assigned[each.team], surviving[each.team], pins.get(each, 0), blocks.get(each, 0))
            for each in keys
        ],
        losses=losses,
        guaranteed=guaranteed,
        is_aligned=is_aligned,
        line_in_force=book.line_of(key),
        labels={each.team: quotas[each].labels for each in keys if each in quotas and quotas[each].labels},
    )


def hull_now(pool: Pool, *, line: int) -> Hull:
    """The numbers of a pool as it is. Before its first alignment nothing was taken from anybody."""
    hull = hull_of(pool, line=line, line_in_force=pool.line_in_force, guaranteed=pool.guaranteed)
    if pool.is_aligned:
        return hull
    teams = [msgspec.structs.replace(team, haircut=_NO_CUT, stage=1) for team in hull.teams]
    return msgspec.structs.replace(hull, teams=teams, stage=1)


def hull_of(
    pool: Pool,
    *,
    line: int,
    line_in_force: int,
    guaranteed: Mapping[str, int],
    stakes: Sequence[Stake] | None = None,
    haircuts: Mapping[str, Haircut] | None = None,
) -> Hull:
    """The numbers of a pool under a line, with these guarantees; by other stakes or haircuts where they are given."""
    found = pool.stakes if stakes is None else stakes
    teams = [_team(pool.key, stake, guaranteed.get(stake.team, 0), haircuts) for stake in found]
    assigned, promised = sum(team.assigned for team in teams), sum(team.guaranteed for team in teams)
    inside = sum(team.inside for team in teams)
    healthy = pool.healthy
    over, never_backed = max(0, assigned - line), max(0, assigned - healthy)
    standing = max(0, healthy - promised)
    return Hull(
        *pool.key,
        total=pool.total,
        healthy=healthy,
        line=line,
        line_in_force=line_in_force,
        assigned=assigned,
        guaranteed=promised,
        allocated=sum(team.allocated for team in teams),
        idle=sum(team.idle for team in teams),
        over=over,
        never_backed=never_backed,
        to_flex=over - never_backed,
        unallocated=max(0, healthy - assigned),
        flex_standing=standing,
        flex_lent=max(0, min(promised - inside, healthy - inside - standing)),
        flex_used=sum(team.flex_used for team in teams),
        shortfall=max(0, promised - healthy),
        stage=max((team.stage for team in teams), default=1),
        teams=teams,
    )


def _team(pool: PoolKey, stake: Stake, guaranteed: int, haircuts: Mapping[str, Haircut] | None) -> TeamHull:
    allocated, inside = stake.allocated, sum(fill(stake.claims, guaranteed))
    known = haircut_of(stake, guaranteed) if haircuts is None else haircuts.get(stake.team)
    haircut = known or _NO_CUT
    return TeamHull(
        stake.team,
        *pool,
        assigned=stake.assigned,
        guaranteed=guaranteed,
        allocated=allocated,
        idle=stake.idle,
        haircut=haircut,
        stage=haircut.stage,
        inside=inside,
        flex_used=allocated - inside,
    )
