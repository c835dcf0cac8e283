"""Who was promised what: the teams of each cluster and the nodes they are assigned.

About half of the clusters are over-promised: their quotas add up to more than their healthy nodes. The others leave
some unallocated. Which ones is drawn once for the fleet, the unhealthier the likelier. Counted in nodes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from plimsoll.fleet.demo import names, worked_case
from plimsoll.fleet.demo.deal import deal
from plimsoll.fleet.demo.layout import Cluster
from plimsoll.fleet.demo.pools import Pool

OVER_PROMISED_SHARE = (0.46, 0.54)
OVER = (0.02, 0.12)
OVER_MODE = 0.05
FAR_OVER = (0.12, 0.18)
FAR_OVER_CHANCE = 0.08
UNALLOCATED = (0.01, 0.12)
TEAMS_PER_RESEARCH_CLUSTER = (2, 8)
TEAMS_PER_APPLIED_CLUSTER = (1, 3)
WEIGHT_SIGMA = 0.7
LUCK = 0.06
TIGER_WEIGHT = 3.0

Assigned = dict[str, int]
"""Nodes by team, of one pool."""


def over_promised(seed: int, clusters: Sequence[Cluster]) -> set[str]:
    """The names of the clusters whose quotas exceed their healthy nodes."""
    rng = random.Random(f"{seed}/over-promised")
    likelihood = {c.name: c.out_node_count / len(c.nodes) + rng.uniform(0, LUCK) for c in clusters}
    for pinned in (names.TIGER, worked_case.CLUSTER):
        likelihood[pinned] = 1.0
    count = round(len(clusters) * rng.uniform(*OVER_PROMISED_SHARE))
    return set(sorted(likelihood, key=lambda name: likelihood[name], reverse=True)[:count])


def draw_quotas(seed: int, pools: Sequence[Pool], *, is_over: bool) -> list[Assigned]:
    """What each pool of one cluster is promised to the teams of that cluster."""
    cluster, purpose = pools[0].cluster, pools[0].purpose
    rng = random.Random(f"{seed}/quotas/{cluster}")
    teams = _teams(rng, cluster, purpose, nodes=min(pool.healthy_node_count for pool in pools))
    quotas = []
    for pool in pools:
        weights = [rng.lognormvariate(0, WEIGHT_SIGMA) for _ in teams]
        if cluster == names.TIGER:
            weights[teams.index(names.POSTTRAINING)] = TIGER_WEIGHT
        if cluster == worked_case.CLUSTER:
            total = worked_case.ASSIGNED
        else:
            total = _promised(rng, pool.healthy_node_count, is_over=is_over)
        # Every team holds at least a node; the rest goes by weight.
        shares = deal(total - len(teams), weights)
        quotas.append({team: 1 + share for team, share in zip(teams, shares, strict=True)})
    return quotas


def _teams(rng: random.Random, cluster: str, purpose: str, *, nodes: int) -> list[str]:
    """The teams of a cluster, fewer on a small one."""
    if cluster == worked_case.CLUSTER:
        return sorted(rng.sample(names.RESEARCH_TEAMS, worked_case.TEAM_COUNT))
    if purpose == "applied":
        return sorted(rng.sample(names.APPLIED_TEAMS, rng.randint(*TEAMS_PER_APPLIED_CLUSTER)))
    low, high = TEAMS_PER_RESEARCH_CLUSTER
    teams = rng.sample(names.RESEARCH_TEAMS, rng.randint(low, min(high, max(low, nodes // 12))))
    if cluster == names.TIGER and names.POSTTRAINING not in teams:
        teams[0] = names.POSTTRAINING
    return sorted(teams)


def _promised(rng: random.Random, healthy: int, *, is_over: bool) -> int:
    """The nodes of a pool that were promised in all."""
    if is_over:
        over = rng.uniform(*FAR_OVER) if rng.random() < FAR_OVER_CHANCE else rng.triangular(*OVER, OVER_MODE)
        return healthy + max(1, round(healthy * over))
    return healthy - max(1, round(healthy * rng.uniform(*UNALLOCATED)))
