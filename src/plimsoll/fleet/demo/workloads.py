"""What runs now: how much of its quota each team uses, cut into gangs and elastic parts, each in its place.

A gang always fits into the healthy nodes of one island, and all work of a pool into its healthy nodes. Nearly every
part is marked `critical` or `high`, because that is what people do when marks decide who is evicted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from plimsoll.fleet.demo import names, worked_case
from plimsoll.fleet.demo.deal import deal
from plimsoll.fleet.demo.pools import Pool
from plimsoll.fleet.demo.quotas import Assigned

ALLOCATED_SHARE = (0.83, 0.96)
TIGER_ALLOCATED_SHARE = 0.91
USED_SHARE = (0.8, 1.0)
FLEX_CHANCE = 0.12
FLEX_SHARE = (1.1, 1.6)
GANG_SHARE = {"research": (0.6, 0.85), "applied": (0.0, 0.35)}

# Sizes of gangs in GPUs, with how often they are drawn.
GANG_GPUS = {8: 8, 16: 10, 32: 14, 64: 18, 128: 20, 256: 16, 352: 5, 512: 8, 1024: 3}
WAITING_GANG_GPUS = 352
ELASTIC_NODES = (1, 12)
ELASTIC_ANYWHERE = 0.2
ELASTIC_PART_NODE = 0.08
IDLE_CHANCE = 0.11
IDLE_WHOLE_CHANCE = 0.3
IDLE_SHARE = (0.2, 0.8)
PAIR_CHANCE = 0.4
TIERS = {"critical": 62, "high": 25, "mid": 9, "low": 4}
OWNERS_PER_TEAM = 4


@dataclass(frozen=True)
class Part:
    """One row of running work."""

    workload: str
    team: str
    island: str
    gpus: int
    kind: str
    tier: str
    rank: int
    idle_gpus: int
    owner: str


def draw_workloads(seed: int, pool: Pool, assigned: Assigned) -> list[Part]:
    """The running work of a pool, sorted by team, workload and rank."""
    rng = random.Random(f"{seed}/workloads/{pool.cluster}/{pool.sku}")
    is_worked_case = pool.cluster == worked_case.CLUSTER
    used = _worked_case_use(assigned) if is_worked_case else _draw_use(rng, pool, assigned)
    free = dict(pool.in_service_by_island)
    parts = list(_draw_gangs(rng, pool, used, free))
    parts += _draw_elastic(rng, pool, used, free, whole_nodes_only=is_worked_case)
    parts = _name(seed, rng, pool, parts)
    if rng.random() < PAIR_CHANCE:
        parts = _pair(parts)
    if is_worked_case:
        largest = max(range(len(parts)), key=lambda index: parts[index].gpus)
        parts[largest] = replace(parts[largest], idle_gpus=worked_case.IDLE_MIN * pool.gpus_per_node)
    return sorted(parts, key=lambda part: (part.team, part.workload, part.rank))


def _worked_case_use(assigned: Assigned) -> Assigned:
    """Each team leaves its share of the unscheduled nodes, and none is above what it is assigned."""
    unscheduled = deal(worked_case.ASSIGNED - worked_case.ALLOCATED, list(assigned.values()), list(assigned.values()))
    return {team: nodes - left for (team, nodes), left in zip(assigned.items(), unscheduled, strict=True)}


def _draw_use(rng: random.Random, pool: Pool, assigned: Assigned) -> Assigned:
    """The nodes each team uses: inside its quota, but for the few that took more as flex."""
    wishes, caps = [], []
    for team, nodes in assigned.items():
        if (pool.cluster, team) == (names.TIGER, names.POSTTRAINING):
            # The quota is there, and yet the next big gang waits: the question most often asked.
            wishes.append(float(nodes))
            caps.append(nodes - WAITING_GANG_GPUS // pool.gpus_per_node)
            continue
        is_flex = rng.random() < FLEX_CHANCE
        wishes.append(nodes * rng.uniform(*(FLEX_SHARE if is_flex else USED_SHARE)))
        caps.append(round(nodes * FLEX_SHARE[1]) if is_flex else nodes)
    share = TIGER_ALLOCATED_SHARE if pool.cluster == names.TIGER else rng.uniform(*ALLOCATED_SHARE)
    total = int(pool.healthy_node_count * share)
    return dict(zip(assigned, deal(total, wishes, caps), strict=True))


def _draw_gangs(rng: random.Random, pool: Pool, used: Assigned, free: dict[str, int]) -> Iterator[Part]:
    """Cut gangs out of what the teams use, and place them, big ones first. Takes from `used` and `free`.

    Today's placement leaves free nodes scattered over the islands: that is what makes the next gang wait.
    """
    wanted = []
    sizes = {
        gpus // pool.gpus_per_node: weight
        for gpus, weight in GANG_GPUS.items()
        if gpus <= max(free.values()) * pool.gpus_per_node
    }
    for team, nodes in used.items():
        left = round(nodes * rng.uniform(*GANG_SHARE[pool.purpose]))
        while fitting := [size for size in sizes if size <= left]:
            size = rng.choices(fitting, weights=[sizes[size] for size in fitting])[0]
            wanted.append((size, team))
            left -= size
    for size, team in sorted(wanted, reverse=True):
        islands = [island for island, nodes in free.items() if nodes >= size]
        if not islands:
            continue
        island = rng.choices(islands, weights=[free[name] for name in islands])[0]
        free[island] -= size
        used[team] -= size
        yield _part(rng, pool, team, island, size, kind="gang")


def _draw_elastic(
    rng: random.Random, pool: Pool, used: Assigned, free: dict[str, int], *, whole_nodes_only: bool
) -> Iterator[Part]:
    """Cut the rest into elastic parts, spread evenly; some name no island. Takes from `used` and `free`.

    On `tiger` all of them name one, so that what is free in each of its islands doesn't depend on who reads the rows.
    """
    for team in used:
        while used[team]:
            size = min(used[team], rng.randint(*ELASTIC_NODES))
            island = ""
            if pool.cluster != names.TIGER and rng.random() < ELASTIC_ANYWHERE:
                for _ in range(size):
                    free[_freest(free)] -= 1
            else:
                island = _freest(free)
                size = min(size, free[island])
                free[island] -= size
            used[team] -= size
            part = _part(rng, pool, team, island, size, kind="elastic")
            if not whole_nodes_only and not part.idle_gpus and rng.random() < ELASTIC_PART_NODE:
                part = replace(part, gpus=part.gpus - pool.gpus_per_node // 2)
            yield part


def _freest(free: dict[str, int]) -> str:
    """The island with the most free nodes; there always is one, as no more is used than is in service."""
    island = max(free, key=lambda name: (free[name], name))
    assert free[island] > 0
    return island


def _part(rng: random.Random, pool: Pool, team: str, island: str, nodes: int, *, kind: str) -> Part:
    """A part without a name yet; now and then some of it does nothing."""
    idle = 0
    if rng.random() < IDLE_CHANCE:
        idle = nodes if rng.random() < IDLE_WHOLE_CHANCE else round(nodes * rng.uniform(*IDLE_SHARE))
    return Part(
        workload="",
        team=team,
        island=island,
        gpus=nodes * pool.gpus_per_node,
        kind=kind,
        tier=rng.choices(list(TIERS), weights=list(TIERS.values()))[0],
        rank=min(rng.randint(1, 4), rng.randint(1, 4)),
        idle_gpus=idle * pool.gpus_per_node,
        owner="",
    )


def _name(seed: int, rng: random.Random, pool: Pool, parts: list[Part]) -> list[Part]:
    """Names are unique in the fleet: topic, cluster, SKU, number."""
    elastic_topics = names.SERVING_TOPICS if pool.purpose == "applied" else names.ELASTIC_TOPICS
    named = []
    for number, part in enumerate(parts, start=1):
        topic = rng.choice(names.GANG_TOPICS if part.kind == "gang" else elastic_topics)
        name = f"{topic}-{pool.cluster}-{pool.sku.lower()}-{number}"
        named.append(replace(part, workload=name, owner=rng.choice(_owners(seed, part.team))))
    return named


def _owners(seed: int, team: str) -> list[str]:
    """The handles of a team's people, the same in all clusters."""
    rng = random.Random(f"{seed}/owners/{team}")
    return rng.sample(names.OWNERS, OWNERS_PER_TEAM)


def _pair(parts: list[Part]) -> list[Part]:
    """Join a team's first gang and its first elastic part into one workload: training with its graders."""
    for gang_index, gang in enumerate(parts):
        for index, part in enumerate(parts):
            if gang.kind == "gang" and part.kind == "elastic" and part.team == gang.team:
                joined = list(parts)
                joined[gang_index] = replace(gang, rank=1)
                joined[index] = replace(part, workload=gang.workload, tier=gang.tier, rank=2, owner=gang.owner)
                return joined
    return parts
