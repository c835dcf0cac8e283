"""Sets the scene of a replay: the fleet's guarantees, and which team asks for what of a trace. Pure but for its dice,
which are seeded.

A trace knows nothing of our teams, tiers and SKUs. What has to be assumed is said in words, and is the same for a seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from plimsoll.errors import Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase, PoolKey
from plimsoll.fleet.selector import Scope
from plimsoll.ledger.model import Draft
from plimsoll.quota.changes import QuotaAssigned
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Kind, Quota, Tier
from plimsoll.quota.plan import make_plan, policy_in_force
from plimsoll.quota.policy import Policy, parse_word
from plimsoll.simulate.model import HOUR_US, Cast, Job, Planned, Refusals, Settings, Trace, Where
from plimsoll.state.state import State
from plimsoll.times import format_time
from plimsoll.words import counted
from plimsoll.workloads.model import PartSpec, Spec

TIER_SHARES = ((Tier.CRITICAL, 0.10), (Tier.HIGH, 0.25), (Tier.MID, 0.40), (Tier.LOW, 0.25))
"""How tiers are dealt to jobs of a trace that names none."""
GROUPS_MADE = 12
"""Teams of a trace that names no groups, on a fleet without quotas."""
ELASTIC_LEAST_PARTS = 4
"""An elastic job of which nobody said the least can do with a quarter."""
PART = "job"


def set_scene(state: State, trace: Trace, settings: Settings, *, policy: Policy | None, now: datetime) -> Cast:
    """Align the pools, and deal the jobs of a trace to teams."""
    dice = random.Random(settings.seed)  # noqa: S311
    assumed: list[str] = list(trace.notes)
    _production(state)
    groups = _groups(trace, dice, assumed)
    hours: dict[str, float] = {}
    for job, group in zip(trace.jobs, groups, strict=True):
        hours[group] = hours.get(group, 0.0) + job.gpus * job.run_us / HOUR_US
    if state.of(QuotaBook).quotas:
        policy = policy or policy_in_force(state)
        team_of = _onto_teams(state, hours, dice, assumed)
    else:
        policy = policy or parse_word("fixed:0")
        team_of = _make_teams(state, hours, now, assumed)
    _align(state, policy, now, assumed)
    fleet = state.of(Fleet)
    if out := sum(fleet.pools[pool].nodes - fleet.pools[pool].nodes_in_service for pool in _production(state)):
        assumed.append(f"{counted(out, 'node')} that the folder has out of service: so they stay")
    return _cast(state, trace, settings, [team_of[group] for group in groups], dice, assumed)


def _production(state: State) -> list[PoolKey]:
    fleet = state.of(Fleet)
    pools = [pool for pool in sorted(fleet.pools) if fleet.clusters[pool.cluster].phase is Phase.PRODUCTION]
    if not any(fleet.pools[pool].gpus_in_service for pool in pools):
        raise Refused(
            "no_capacity",
            f"the fleet has {counted(len(pools), 'pool')} in production and 0 healthy GPUs: nothing could run",
            next_step="give a fleet folder with clusters in phase production and nodes in service",
        )
    return pools


def _groups(trace: Trace, dice: random.Random, assumed: list[str]) -> list[str]:
    """The group of every job; made up where the trace names none."""
    if trace.has_groups:
        return [job.group or "nobody" for job in trace.jobs]
    assumed.append(f"the trace names no teams: its jobs are dealt to {GROUPS_MADE} groups by the seed")
    return [f"group-{dice.randrange(GROUPS_MADE) + 1:02d}" for _ in trace.jobs]


def _onto_teams(state: State, hours: Mapping[str, float], dice: random.Random, assumed: list[str]) -> dict[str, str]:
    """Each group becomes a team of the fleet: its own name if there is such a team, else the one with the most quota
    for what it got so far.
    """
    quota: dict[str, int] = {}
    for key, entry in state.of(QuotaBook).quotas.items():
        quota[key.team] = quota.get(key.team, 0) + entry.gpus
    teams = sorted(quota)
    dice.shuffle(teams)  # by chance who is first among equals, and the same for a seed
    found = {group: group for group in hours if group in quota}
    got = {team: hours.get(team, 0.0) for team in teams}
    for group in sorted(hours, key=lambda each: (-hours[each], each)):
        if group not in found:
            team = min(teams, key=lambda each: (got[each] + hours[group]) / quota[each])
            found[group] = team
            got[team] += hours[group]
    others = [group for group, team in found.items() if group != team]
    if others:
        users = len({found[group] for group in others})
        assumed.append(f"{counted(len(others), 'group')} of the trace became {users} of the fleet's {len(teams)} teams")
    return found


def _make_teams(state: State, hours: Mapping[str, float], now: datetime, assumed: list[str]) -> dict[str, str]:
    """The fleet has no quotas: its healthy GPUs are shared out to the groups by their GPU time, in whole nodes."""
    fleet = state.of(Fleet)
    teams = sorted(hours)
    drafts = []
    for pool in _production(state):
        count = fleet.pools[pool]
        shares = largest_remainder(count.nodes_in_service, [hours[team] for team in teams])
        drafts += [
            Draft(QuotaAssigned(Quota(team, *pool, nodes * count.gpus_per_node)))
            for team, nodes in zip(teams, shares, strict=True)
            if nodes
        ]
    state.assume(drafts, recorded_at=format_time(now))
    assumed.append(
        f"the fleet has no quotas: {counted(len(teams), 'team')} made of the trace's groups hold its healthy nodes in"
        " proportion to their GPU time"
    )
    return {team: team for team in teams}


def largest_remainder(whole: int, weights: Sequence[float]) -> list[int]:
    """A whole number shared out by weight; ties go to who comes first."""
    total = sum(weights)
    if not total:
        return [0 for _ in weights]
    exact = [whole * weight / total for weight in weights]
    shares = [int(each) for each in exact]
    order = sorted(range(len(weights)), key=lambda place: (shares[place] - exact[place], place))
    for place in order[: whole - sum(shares)]:
        shares[place] += 1
    return shares


def _align(state: State, policy: Policy, now: datetime, assumed: list[str]) -> None:
    book = state.of(QuotaBook)
    missing = [pool for pool in _production(state) if pool not in book.lines]
    if not missing:
        return
    plan = make_plan(state, policy, now=now, pools=missing)
    drafts = [draft for each in plan.pools for draft in each.drafts(f"policy {policy.name}")]
    state.assume(drafts, recorded_at=format_time(now))
    guaranteed = sum(book.guaranteed.values())
    assumed.append(f"{counted(len(missing), 'pool')} aligned by {policy.name}: {guaranteed:,} GPUs are guaranteed")


def _places(state: State) -> list[Where]:
    """The SKUs that jobs can ask for."""
    fleet = state.of(Fleet)
    gpus: dict[str, int] = {}
    largest: dict[str, int] = {}
    largest_pool: dict[str, int] = {}
    pools = set(_production(state))
    for pool in pools:
        works = fleet.pools[pool].gpus_in_service
        gpus[pool.sku] = gpus.get(pool.sku, 0) + works
        largest_pool[pool.sku] = max(largest_pool.get(pool.sku, 0), works)
    for key, count in fleet.islands.items():
        if PoolKey(fleet.island_cluster[key.island], key.sku) in pools:
            largest[key.sku] = max(largest.get(key.sku, 0), count.gpus_in_service)
    return [Where(Scope((("sku", (sku,)),)), sku, gpus[sku], largest[sku], largest_pool[sku]) for sku in sorted(gpus)]


def _weights(state: State, teams: Iterable[str], places: Sequence[Where]) -> dict[str, list[float]]:
    """By team how much it would use of each SKU: what it is guaranteed, else what works."""
    held: dict[tuple[str, str], int] = {}
    for key, gpus in state.of(QuotaBook).guaranteed.items():
        held[key.team, key.sku] = held.get((key.team, key.sku), 0) + gpus
    found = {}
    for team in teams:
        mine = [float(held.get((team, place.sku), 0)) for place in places]
        found[team] = mine if any(mine) else [float(place.gpus) for place in places]
    return found


def _cast(
    state: State,
    trace: Trace,
    settings: Settings,
    teams: Sequence[str],
    dice: random.Random,
    assumed: list[str],
) -> Cast:
    places = _places(state)
    by_team = _weights(state, sorted(set(teams)), places)
    if len(places) > 1:
        assumed.append("each job asks for one SKU, dealt in proportion to what its team is guaranteed of each")
    if any(job.tier is None for job in trace.jobs):
        shares = ", ".join(f"{tier} {share:.0%}" for tier, share in TIER_SHARES)
        assumed.append(f"jobs without a tier got one by the seed: {shares}")
    tiers, chances = [tier for tier, _ in TIER_SHARES], [share for _, share in TIER_SHARES]
    parts: dict[Job, PartSpec] = {}
    planned: list[Planned] = []
    refused = Refusals()
    width = len(str(len(trace.jobs)))
    for number, (job, team) in enumerate(zip(trace.jobs, teams, strict=True), 1):
        tier = job.tier or dice.choices(tiers, chances)[0]
        part = _part(parts, job, tier)
        place = _place(places, by_team[team], part, dice)
        if place is None:
            refused.count += 1
            refused.gpus_most = max(refused.gpus_most, job.gpus)
            refused.gpu_hours += job.gpus * job.run_us / HOUR_US
            continue
        spec = Spec(
            f"job-{number:0{width}d}",
            team,
            place.scope,
            (part,),
            hours=job.hours,
            checkpoint_minutes=settings.checkpoint_minutes,
            restart_minutes=settings.restart_minutes,
        )
        planned.append(Planned(job.at, job.run_us, part.gpus * part.most, spec))
    if not planned:
        largest = max(place.largest for place in places)
        raise Refused(
            "nothing_fits",
            f"none of the {len(trace.jobs):,} jobs fits into an island: the largest has {largest:,} GPUs",
            next_step="give a fleet folder with larger islands",
            largest=largest,
        )
    return Cast(planned, sorted(set(teams)), refused, assumed)


def _part(parts: dict[Job, PartSpec], job: Job, tier: Tier) -> PartSpec:
    """The part that a job is; one object for all that are alike."""
    alike = Job(0, 0, job.gpus, "", tier, job.rank, job.kind, job.gpus_min, job.is_spread)
    known = parts.get(alike)
    if known is None:
        known = parts[alike] = _new_part(job, tier)
    return known


def _new_part(job: Job, tier: Tier) -> PartSpec:
    if job.kind is Kind.GANG and not job.is_spread:
        return PartSpec(PART, Kind.GANG, tier, job.rank, job.gpus)
    unit = next(size for size in (8, 4, 2, 1) if job.gpus % size == 0)
    most = job.gpus // unit
    if job.is_spread:
        return PartSpec(PART, Kind.ELASTIC, tier, job.rank, unit, least=most, most=most)
    least = -(-(job.gpus_min or -(-job.gpus // ELASTIC_LEAST_PARTS)) // unit)
    return PartSpec(PART, Kind.ELASTIC, tier, job.rank, unit, least=least, most=most)


def _place(places: Sequence[Where], weights: Sequence[float], part: PartSpec, dice: random.Random) -> Where | None:
    """A SKU with an island, and a pool, that are large enough; None where there is none."""
    fitting = [
        (place, weight)
        for place, weight in zip(places, weights, strict=True)
        if place.largest >= part.gpus and place.largest_pool >= part.gpus_least
    ]
    if not fitting:
        return None
    if len(fitting) == 1:
        return fitting[0][0]
    chances = [weight for _, weight in fitting]
    if not any(chances):
        chances = [float(place.gpus) for place, _ in fitting]
    return dice.choices([place for place, _ in fitting], chances)[0]
