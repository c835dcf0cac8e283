"""The numbers of `why` never fail to add up, whatever happened before: to a team's quota, and to an island."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import IslandKey, PoolKey, Service
from plimsoll.health.changes import WorkAnnounced
from plimsoll.health.model import Ahead
from plimsoll.quota.changes import PoolAligned, QuotaAssigned
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Kind, Quota, QuotaKey, Tier
from plimsoll.quota.plan import policy_in_force
from plimsoll.workloads.changes import TeamHoldPlaced
from plimsoll.workloads.model import RunsAs, TeamHold
from plimsoll.workloads.why.model import PoolWhy, WorkWhy
from plimsoll.workloads.why.team import cut_shares, explain_team
from plimsoll.workloads.why.workload import explain_workload
from tests.support.yard import Yard, elastic, gang, spec

SEEDS = range(150)
TEAMS = ("red", "blue", "green")
TIERS = list(Tier)


def random_yard(seed: int) -> Yard:
    """Two clusters, one of them perhaps never aligned; work, faults, holds, bookings, observed work, in any order."""
    chance = random.Random(seed)
    islands = {
        cluster: {island: chance.randint(1, 5) for island in "abc"[: chance.randint(1, 3)]}
        for cluster in ("tiger", "lion")
    }
    guaranteed, assigned = {}, {}
    for cluster, mine in islands.items():
        total = sum(mine.values())
        nodes = {team: chance.randint(0, max(1, total // 2)) for team in TEAMS}
        assigned[cluster] = {team: 8 * (count + chance.randint(0, 2)) for team, count in nodes.items()}
        if chance.random() < 0.8:
            guaranteed[cluster] = {team: 8 * count for team, count in nodes.items() if count}
    grace = timedelta(minutes=chance.choice((0, 15)))
    yard = Yard(islands, guaranteed, assigned=assigned, grace=grace)
    for team in TEAMS:  # so that everybody is known
        yard.do(QuotaAssigned(Quota(team, "tiger", "H200", max(8, assigned["tiger"][team]))))
    for number in range(chance.randint(3, 12)):
        _happen(yard, chance, number, islands)
    return yard


def _happen(yard: Yard, chance: random.Random, number: int, islands: dict[str, dict[str, int]]) -> None:
    cluster = chance.choice(sorted(islands))
    island = chance.choice(sorted(islands[cluster]))
    team, kind = chance.choice(TEAMS), chance.randint(0, 8)
    nodes = [node.id for node in yard.state.of(Fleet).nodes.values() if node.cluster == cluster]
    pool = PoolKey(cluster, "H200")
    if kind <= 2:
        where = cluster if chance.random() < 0.7 else ""
        tier, largest = chance.choice(TIERS), 8 * max(islands[cluster].values())
        part = (
            gang(chance.choice([size for size in (4, 8, 12, 16, 24, 32) if size <= largest]), tier=tier)
            if chance.random() < 0.5
            else elastic(chance.randint(0, 1), chance.randint(2, 4), chance.choice((2, 4, 8)), tier=tier)
        )
        installed = 8 * sum(islands[cluster].values())
        second = elastic(1, 2, 4, name="helpers", tier=tier, rank=3)
        parts = (part, second) if chance.random() < 0.3 and part.gpus_least + 4 <= installed else (part,)
        runs_as = chance.choice((RunsAs.ANY, RunsAs.ANY, RunsAs.FLEX, RunsAs.GUARANTEED))
        hours = chance.choice((0.0, 0.0, 48.0))
        yard.submit(
            spec(
                f"w{number}",
                team,
                *parts,
                cluster=where,
                runs_as=runs_as,
                owner=chance.choice(("ana", "bo")),
                hours=hours,
            )
        )
    elif kind == 3:
        room = yard.free(cluster, island)
        if room > 0:
            work_kind = chance.choice((Kind.GANG, Kind.ELASTIC))
            yard.observe(f"o{number}", team, cluster, island, chance.randint(1, room), kind=work_kind)
    elif kind in (4, 5):
        some = chance.sample(nodes, min(len(nodes), chance.randint(1, 3)))
        service = chance.choice((Service.QUARANTINED, Service.MAINTENANCE, Service.DRAINING, Service.REPAIR))
        yard.set_service(some, service, chance.choice(("", "xid 79", "planned: firmware")))
        if chance.random() < 0.6:
            yard.round()
    elif kind == 6:
        most = yard.state.of(QuotaBook).guaranteed.get(QuotaKey(team, *pool), 0)
        if most and not yard.work.team_holds.get(QuotaKey(team, *pool)):
            until = yard.now + timedelta(days=1)
            yard.do(TeamHoldPlaced(TeamHold(f"h{number}", team, *pool, chance.randint(1, most), "ana", until)))
    elif kind == 7:
        book = yard.state.of(QuotaBook)
        if pool in book.lines:
            mine = {each: book.guaranteed.get(QuotaKey(each, *pool), 0) // 16 * 8 for each in TEAMS}
            yard.do(
                PoolAligned(*pool, sum(mine.values()), "fixed:0", {each: gpus for each, gpus in mine.items() if gpus})
            )
        else:
            yard.do(QuotaAssigned(Quota(team, *pool, 8 * chance.randint(1, 4))))
    else:
        starts = yard.now + timedelta(hours=chance.randint(1, 24))
        both = tuple(sorted(chance.sample(nodes, min(len(nodes), 2))))
        yard.do(WorkAnnounced(Ahead(f"a{number}", "crew", both, starts, starts + timedelta(hours=4), "firmware")))
        yard.wait(minutes=chance.choice((0, 5, 20)))


def check_pool(yard: Yard, team: str, pool: PoolWhy) -> None:
    book, key = yard.state.of(QuotaBook), QuotaKey(team, pool.cluster, pool.sku)
    assert pool.assigned == (book.quotas[key].gpus if key in book.quotas else 0)
    assert pool.guaranteed == book.guaranteed.get(key, 0)
    for gap, after in (
        (pool.assigned - pool.guaranteed, "assigned"),
        (pool.guaranteed - pool.startable, "guaranteed"),
    ):
        assert sum(each.gpus for each in pool.steps if each.after == after) == gap
    assert all(each.gpus > 0 for each in pool.steps)
    assert 0 <= pool.largest_block <= pool.startable
    assert 0 <= pool.free <= pool.startable
    for each in pool.steps:
        if each.cause in ("in_use", "team_held", "lent_draining") and each.of:
            assert sum(named.gpus for named in each.of) == each.gpus, each


def check_island(yard: Yard, why: WorkWhy) -> None:
    fleet = yard.state.of(Fleet)
    for near in why.near:
        islands = [near.island] if near.island else [
            key.island for key in fleet.islands if fleet.island_cluster[key.island] == near.cluster
        ]  # fmt: skip
        if not near.missing:
            continue
        installed = sum(fleet.islands[IslandKey(island, near.sku)].gpus for island in islands)
        assert near.installed == installed
        assert installed - sum(each.gpus for each in near.steps) == near.free + near.callable
        assert all(each.gpus > 0 for each in near.steps)
        assert near.missing > 0
        for each in near.steps:
            if each.cause in ("in_use", "in_use_by_others") and each.of:
                assert sum(named.gpus for named in each.of) == each.gpus, each


@pytest.mark.parametrize("seed", SEEDS)
def test_why_never_loses_a_gpu_and_never_changes_anything(seed: int) -> None:
    yard = random_yard(seed)
    before = yard.state.dump()
    for team in TEAMS:
        why = explain_team(yard.state, team, now=yard.now, grace=yard.grace)
        for pool in why.pools:
            check_pool(yard, team, pool)
    policy = policy_in_force(yard.state)
    for name in sorted({*yard.work.asked, *yard.work.workloads}):
        found = explain_workload(yard.state, name, now=yard.now, grace=yard.grace, policy=policy)
        check_island(yard, found)
        assert found.answer
        assert all(action.checked for action in found.actions)
    assert yard.state.dump() == before


@pytest.mark.parametrize("seed", SEEDS)
def test_a_whole_promise_is_never_blamed_on_hardware(seed: int) -> None:
    """Where as many GPUs work as are guaranteed, no broken node takes anything from anybody's guarantee."""
    yard = random_yard(seed)
    fleet, book = yard.state.of(Fleet), yard.state.of(QuotaBook)
    for team in TEAMS:
        for pool in explain_team(yard.state, team, now=yard.now, grace=yard.grace).pools:
            key = PoolKey(pool.cluster, pool.sku)
            if fleet.pools[key].gpus_in_service >= sum(book.guaranteed_in(key).values()):
                causes = {each.cause.value for each in pool.steps}
                assert not causes & {"nodes_unhealthy", "planned_work", "over_promised"}, pool


@pytest.mark.parametrize("seed", SEEDS)
def test_the_teams_shares_of_a_cut_never_differ_from_the_pools(seed: int) -> None:
    yard = random_yard(seed)
    book, fleet = yard.state.of(QuotaBook), yard.state.of(Fleet)
    for pool, line in book.lines.items():
        shares = cut_shares(yard.turn(), pool)
        cut = book.assigned.get(pool, 0) - sum(book.guaranteed_in(pool).values())
        over = min(cut, max(0, book.assigned.get(pool, 0) - line.gpus))
        never = min(over, max(0, book.assigned.get(pool, 0) - fleet.pools[pool].gpus_in_service))
        assert tuple(sum(each[place] for each in shares.values()) for place in range(3)) == (
            never,
            over - never,
            cut - over,
        )
        assert all(part >= 0 for each in shares.values() for part in each)
