"""Flex: what is there beyond the work inside guarantees, who uses it, who could have more, and who gives it back. Pure.

It never takes anything inside a team's guarantee (rule 3). Between teams only flex held / guaranteed counts: who has
the lowest goes first, who has the highest gives back first; a team without a guarantee comes last and gives first.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

import msgspec
import numpy as np

from plimsoll.errors import Refused
from plimsoll.fleet.model import PoolKey
from plimsoll.health.levels.outages import ALWAYS, Fact, Whole
from plimsoll.health.model import to_microseconds
from plimsoll.ledger.model import Draft
from plimsoll.quota.changes import FlexCalledBack
from plimsoll.quota.fill import Claims, Loss, inside, survive
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.history.past import Hours, PoolPast, by_hour
from plimsoll.quota.hull import Hull, Pool, hull_of, look
from plimsoll.quota.lines import LineNow
from plimsoll.quota.model import Callback
from plimsoll.quota.policy import Policy, day_of
from plimsoll.state.state import State

FAIR_STEPS_MAX = 1_000_000
"""Nodes of flex that are dealt out one by one; far more than a pool has."""


class Victim(msgspec.Struct, frozen=True):
    """GPUs of work that run as flex: what it gives back, or would."""

    team: str
    work: str
    gpus: int


class TeamFlex(msgspec.Struct, frozen=True):
    """A team's flex in a pool, in GPUs. `guaranteed` is its weight; it could have `available` more than it holds now:
    `free` of that nobody uses, `won_back` others hold beyond their fair share.
    """

    team: str
    guaranteed: int
    inside: int
    held: int
    held_per_guaranteed: float | None
    free: int
    won_back: int

    @property
    def available(self) -> int:
        return self.free + self.won_back


class PoolFlex(msgspec.Struct, frozen=True):
    """The flex of a pool now, in GPUs."""

    cluster: str
    sku: str
    is_aligned: bool
    healthy: int
    guaranteed: int
    inside: int
    standing: int
    lent: int
    used: int
    free: int
    teams: Sequence[TeamFlex]
    works: Sequence[Victim]
    """What runs as flex, in the order in which it would be called back; none before the first alignment."""
    callbacks: Sequence[Callback]
    """Called back, and not yet due."""

    @property
    def key(self) -> PoolKey:
        return PoolKey(self.cluster, self.sku)


def flex_now(
    state: State, keys: Collection[PoolKey], policy: Policy, *, now: datetime, teams: Collection[str] = ()
) -> list[PoolFlex]:
    """The flex of these pools, for all teams that are in them and for those that are named."""
    book = state.of(QuotaBook)
    found = []
    for pool in look(state, sorted(keys), policy, day_of(now)):
        hull = hull_of(pool, line=0, line_in_force=pool.line_in_force, guaranteed=pool.guaranteed)
        open_callbacks = [each for each in book.callbacks.get(pool.key, ()) if each.due > now]
        found.append(_pool_flex(pool, hull, open_callbacks, teams))
    return found


def _pool_flex(pool: Pool, hull: Hull, callbacks: Sequence[Callback], named: Collection[str]) -> PoolFlex:
    held = {team.team: team.flex_used for team in hull.teams}
    within = {team.team: team.inside for team in hull.teams}
    weights = dict(pool.guaranteed)
    capacity = max(0, pool.healthy - sum(within.values()))
    teams = [
        _team_flex(team, held, within.get(team, 0), weights, capacity, pool.size) for team in sorted({*held, *named})
    ]
    if not pool.is_aligned:
        # Before the first alignment nobody has a fair share of anything: only what is free can be had.
        teams = [msgspec.structs.replace(each, won_back=0) for each in teams]
    return PoolFlex(
        *pool.key,
        is_aligned=pool.is_aligned,
        healthy=pool.healthy,
        guaranteed=hull.guaranteed,
        inside=sum(within.values()),
        standing=hull.flex_standing,
        lent=hull.flex_lent,
        used=hull.flex_used,
        free=max(0, pool.healthy - hull.allocated),
        teams=teams,
        works=_works(pool, sum(within.values())) if pool.is_aligned else [],
        callbacks=callbacks,
    )


def _works(pool: Pool, inside_all: int) -> list[Victim]:
    """All flex is lost when no more works than is needed inside guarantees: in that order."""
    _, losses = survive({stake.team: stake.claims for stake in pool.stakes}, pool.guaranteed, inside_all)
    return gathered(losses)


def gathered(losses: Sequence[Loss]) -> list[Victim]:
    """The flex that is lost, by work, in the order of the first loss of each."""
    found: dict[tuple[str, str], int] = {}
    for loss in losses:
        if loss.is_flex:
            found[loss.team, loss.work] = found.get((loss.team, loss.work), 0) + loss.gpus
    return [Victim(*who, gpus) for who, gpus in found.items()]


def _team_flex(
    team: str, held: Mapping[str, int], within: int, weights: Mapping[str, int], capacity: int, size: int
) -> TeamFlex:
    """What one team could have if it wanted all it can get, and the others what they have."""
    weight, mine = weights.get(team, 0), held.get(team, 0)
    # Its own guarantee is not flex to it: whatever of that is unused it fills first.
    capacity = max(0, capacity - (weight - within))
    wanted = {**held, team: capacity}
    share = fair_shares(capacity, wanted, weights, step=size)[team]
    more = max(0, share - mine)
    free = min(more, max(0, capacity - sum(held.values())))
    ratio = round(mine / weight, 4) if weight else None
    return TeamFlex(team, weight, within, mine, ratio, free, more - free)


def fair_shares(
    capacity: int, wanted: Mapping[str, int], weights: Mapping[str, int], *, step: int = 1
) -> dict[str, int]:
    """Deal flex out node by node: each goes to the team with the lowest flex held / guaranteed that wants more."""
    assert capacity // step <= FAIR_STEPS_MAX, f"{capacity} GPUs of flex in one pool"
    shares = dict.fromkeys(wanted, 0)

    def rank(team: str) -> tuple[bool, Fraction, str]:
        weight = weights.get(team, 0)
        return weight == 0, Fraction(shares[team], weight or 1), team

    waiting = [rank(team) for team in wanted if wanted[team] > 0]
    heapq.heapify(waiting)
    while capacity > 0 and waiting:
        *_, team = heapq.heappop(waiting)
        taken = min(step, capacity, wanted[team] - shares[team])
        shares[team] += taken
        capacity -= taken
        if shares[team] < wanted[team]:
            heapq.heappush(waiting, rank(team))
    return shares


class Availability(msgspec.Struct, frozen=True):
    """How much of the past at least so many GPUs were there. A spell is a time in which they were without a break."""

    gpus: int
    hours: int
    share: float | None
    spells: int
    spell_hours_median: float | None


@dataclass(frozen=True)
class FlexPast:
    """The flex of a pool in each hour of the past, in GPUs.

    `standing` = the fewest healthy of the hour less the most that was promised in it. `with_lent` counts what owners
    leave unused as well, as they use it today: nobody knows what they used then.
    """

    hours: Hours
    standing: Whole
    with_lent: Whole
    says: str

    def standing_of(self, gpus: int) -> Availability:
        return _availability(self.standing, gpus)

    def with_lent_of(self, gpus: int) -> Availability:
        return _availability(self.with_lent, gpus)

    def level(self, share: float, size: int) -> int | None:
        """The most GPUs, in whole nodes, of which at least so many were standing flex in this share of the hours."""
        if not len(self.standing):
            return None
        ordered = np.sort(self.standing)[::-1]
        place = min(len(ordered), int(np.ceil(share * len(ordered) - 1e-9))) - 1
        return int(ordered[max(0, place)]) // size * size


def _availability(values: Whole, gpus: int) -> Availability:
    if not len(values):
        return Availability(gpus, 0, None, 0, None)
    lengths = spell_lengths(values >= gpus)
    median = float(np.median(lengths)) if len(lengths) else None
    return Availability(gpus, len(values), round(float((values >= gpus).mean()), 4), len(lengths), median)


def spell_lengths(is_there: Fact) -> Whole:
    """How long each run of hours was."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], is_there.astype(np.int8), [0]])))
    lengths: Whole = edges[1::2] - edges[::2]
    return lengths


def flex_past(state: State, pool: Pool, past: PoolPast, line: LineNow, hours: Hours) -> FlexPast:
    """How much flex a pool had, hour by hour."""
    history = state.of(QuotaBook).promised.get(pool.key, ())
    stakes = {stake.team: stake for stake in pool.stakes}
    if pool.is_aligned:
        before = sum(pool.guaranteed.values())
        used = sum(inside(stake.claims, pool.guaranteed.get(team, 0)) for team, stake in stakes.items())
        says = "before the first alignment as if today's guarantees had been in force"
    else:
        before = min(pool.assigned, line.gpus)
        used = min(before, sum(inside(stake.claims, stake.assigned) for stake in stakes.values()))
        says = "nothing is guaranteed yet: as if what is assigned, up to the line, had been"
    moments = np.array([ALWAYS, *(to_microseconds(each.since) for each in history)], np.int64)
    promised = by_hour(
        moments, np.array([before, *(each.gpus for each in history)], np.int64), hours.begin, hours.count, np.maximum
    )
    fewest = past.fewest_by_hour(hours.begin, hours.count)
    return FlexPast(
        hours,
        np.maximum(0, fewest - promised),
        np.maximum(0, fewest - np.minimum(used, promised)),
        f"{says}; work inside guarantees as it is now",
    )


class CalledBack(msgspec.Struct, frozen=True):
    """What calling flex back comes to, in GPUs: `free` nobody uses, `called` others give back, `short` is not there."""

    team: str
    cluster: str
    sku: str
    gpus: int
    guaranteed: int
    inside: int
    free: int
    called: int
    short: int
    due: datetime
    victims: Sequence[Victim]


def call_back(
    state: State, key: PoolKey, team: str, gpus: int, policy: Policy, *, now: datetime
) -> tuple[CalledBack, list[Draft]]:
    """A guarantee wants what is lent to others: which flex work gives how much back, and until when."""
    [pool] = look(state, [key], policy, day_of(now))
    guaranteed = pool.guaranteed
    claims = {stake.team: stake.claims for stake in pool.stakes}
    unused = {name: weight - inside(claims.get(name, ()), weight) for name, weight in guaranteed.items()}
    still = [each for each in state.of(QuotaBook).callbacks.get(key, ()) if each.due > now]
    # Whoever called before gets theirs first; what they have started to use meanwhile is no longer waited for.
    reserved = {
        name: min(unused.get(name, 0), sum(each.gpus for each in still if each.team == name))
        for name in {each.team for each in still}
    }
    left = unused.get(team, 0) - reserved.get(team, 0)
    if gpus > left:
        raise _over_guarantee(pool, team, gpus, left=left, reserved=reserved.get(team, 0))
    running = _without(claims, still)
    taken = sum(claim.gpus for each in running.values() for claim in each) + sum(reserved.values())
    free = min(gpus, max(0, pool.healthy - taken))
    _, losses = survive(running, guaranteed, pool.healthy - sum(reserved.values()) - gpus)
    victims = gathered(losses)
    called = sum(each.gpus for each in victims)
    outcome = CalledBack(
        team=team,
        cluster=key.cluster,
        sku=key.sku,
        gpus=gpus,
        guaranteed=guaranteed.get(team, 0),
        inside=guaranteed.get(team, 0) - unused.get(team, 0),
        free=free,
        called=called,
        short=max(0, gpus - free - called),
        due=now + policy.flex_grace,
        victims=victims,
    )
    if not victims:
        return outcome, []
    named = [(each.team, each.work, each.gpus) for each in outcome.victims]
    return outcome, [Draft(FlexCalledBack(*key, team, gpus, outcome.due, named))]


def _without(claims: Mapping[str, Claims], callbacks: Sequence[Callback]) -> dict[str, Claims]:
    """What runs when everything that was called back is gone; the last of a work's claims go first."""
    owed: dict[tuple[str, str], int] = {}
    for team, work, gpus in (victim for each in callbacks for victim in each.victims):
        owed[team, work] = owed.get((team, work), 0) + gpus
    found: dict[str, Claims] = {}
    for team, mine in claims.items():
        kept = []
        for claim in reversed(mine):
            gone = min(claim.gpus, owed.get((team, claim.work), 0))
            if gone:
                owed[team, claim.work] -= gone
            if claim.gpus > gone:
                idle = min(claim.idle_gpus, claim.gpus - gone)
                kept.append(msgspec.structs.replace(claim, gpus=claim.gpus - gone, idle_gpus=idle))
        found[team] = tuple(reversed(kept))
    return found


def _over_guarantee(pool: Pool, team: str, gpus: int, *, left: int, reserved: int) -> Refused:
    weight = pool.guaranteed.get(team, 0)
    where = f"{pool.key.cluster} {pool.key.sku}"
    if not pool.is_aligned:
        return not_aligned(pool.key)
    called = f" and {reserved} of it called back already" if reserved else ""
    return Refused(
        "over_guarantee",
        f"{team} is guaranteed {weight} GPUs of {where} and has {max(0, left)} of them unused{called};"
        f" it can't call {gpus} back",
        next_step=f"plimsoll quota request {team} {gpus} --sku {pool.key.sku} --cluster {pool.key.cluster}",
        guaranteed=weight,
        unused=max(0, left),
        wanted=gpus,
    )


def not_aligned(key: PoolKey) -> Refused:
    """Nothing of a pool is guaranteed before its first alignment."""
    return Refused(
        "not_aligned",
        f"nothing of {key.cluster} {key.sku} is guaranteed yet: 0 GPUs can be given, granted or called back",
        next_step=f"plimsoll quota plan {key.cluster}, then plimsoll quota apply {key.cluster}",
        cluster=key.cluster,
        sku=key.sku,
    )
