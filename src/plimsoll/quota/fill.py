"""What of a team's running work lies inside its guarantee, and what is lost when more runs than works. Pure.

A team's claims fill its guarantee by tier, rank and submit time; a gang counts whole or is flex, elastic work counts by
replica. The spares of a gang go with it. What the team keeps for somebody is filled first, used or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from plimsoll.quota.model import Claim, Kind

Claims = Sequence[Claim]
"""In the order of service, as the quota book keeps them."""


def fill(claims: Claims, guaranteed: int) -> list[int]:
    """For each claim the GPUs of it that lie inside the guarantee."""
    left, inside = guaranteed, []
    outside: tuple[str, str] | None = None
    for claim in claims:
        if claim.is_flex or claim.reserve or (claim.is_spare and outside == (claim.work, claim.part)):
            left -= min(left, claim.reserve)
            taken = 0
        elif claim.gpus <= left:
            taken = claim.gpus
        elif claim.kind is Kind.GANG:
            taken, outside = 0, (claim.work, claim.part)
        else:
            taken = left - left % claim.unit
        left -= taken
        inside.append(taken)
    return inside


def inside(claims: Claims, guaranteed: int) -> int:
    """GPUs of running work inside a guarantee."""
    return sum(fill(claims, guaranteed))


def gang_end(claims: Claims, guaranteed: int) -> int:
    """The smallest guarantee that still holds every gang that this one holds."""
    level = end = 0
    for claim, taken in zip(claims, fill(claims, guaranteed), strict=True):
        level += taken
        if claim.kind is Kind.GANG and taken:
            end = level
    return end


class Loss(msgspec.Struct, frozen=True):
    """GPUs that a part has lost because fewer work than are used."""

    team: str
    work: str
    gpus: int
    is_flex: bool


def survive(
    by_team: Mapping[str, Claims], guaranteed: Mapping[str, int], healthy: int
) -> tuple[dict[str, Claims], list[Loss]]:
    """What still runs on so many healthy GPUs, and what was lost.

    As long as all of it fits, what died is refilled from standing, then lent flex, and nothing is lost. After that
    flex goes first, from the team with the most flex for its guarantee; then work inside guarantees, elastic before
    gangs, the lowest tier and the last rank first. No team loses first because of its name.
    """
    missing = sum(claim.gpus for claims in by_team.values() for claim in claims) - healthy
    if missing <= 0:
        return dict(by_team), []
    left = {team: [claim.gpus for claim in claims] for team, claims in by_team.items()}
    losses: list[Loss] = []
    missing = _lose_flex(by_team, guaranteed, left, missing, losses)
    _lose_inside(by_team, left, missing, losses)
    return {team: _shrunk(claims, left[team]) for team, claims in by_team.items()}, losses


def _lose_flex(
    by_team: Mapping[str, Claims],
    guaranteed: Mapping[str, int],
    left: dict[str, list[int]],
    missing: int,
    losses: list[Loss],
) -> int:
    """Take flex until nothing is missing; returns what still is."""
    flex: dict[str, list[tuple[int, int]]] = {}
    for team, claims in by_team.items():
        taken = fill(claims, guaranteed.get(team, 0))
        # The last of the list goes first: elastic before gangs, then the lowest of the team's own order.
        places = sorted(range(len(claims)), key=[(claim.kind is not Kind.GANG) for claim in claims].__getitem__)
        flex[team] = [
            (place, claims[place].gpus - taken[place]) for place in places if claims[place].gpus > taken[place]
        ]
    ranks = {team: flex_rank(sum(gpus for _, gpus in mine), guaranteed, team) for team, mine in flex.items() if mine}
    while missing > 0 and ranks:
        team = max(ranks, key=ranks.__getitem__)
        place, gpus = flex[team].pop()
        claim = by_team[team][place]
        lost = gpus if claim.kind is Kind.GANG else min(gpus, missing)
        left[team][place] -= lost
        missing -= lost
        losses.append(Loss(team, claim.work, lost, is_flex=True))
        if flex[team]:
            ranks[team] = flex_rank(ranks[team][1] - gpus, guaranteed, team)
        else:
            del ranks[team]
    return missing


def flex_rank(held: int, guaranteed: Mapping[str, int], team: str) -> tuple[float, int, str]:
    """Who gives flex back first: the most flex for its guarantee; a team without a guarantee before all others."""
    weight = guaranteed.get(team, 0)
    return (held / weight if weight else float("inf"), held, team)


def _lose_inside(by_team: Mapping[str, Claims], left: dict[str, list[int]], missing: int, losses: list[Loss]) -> None:
    """Elastic before gangs, the lowest tier and the last rank first; teams that are alike in that bear it together."""
    levels: dict[tuple[bool, int, int], list[tuple[str, int]]] = {}
    for team, claims in by_team.items():
        for place in reversed(range(len(claims))):
            if left[team][place]:
                claim = claims[place]
                level = claim.kind is Kind.GANG, -claim.tier.place, -claim.rank
                levels.setdefault(level, []).append((team, place))
    for level in sorted(levels):
        if missing <= 0:
            return
        places = {each: left[each[0]][each[1]] for each in levels[level]}
        for (team, place), lost in (_gangs_lost if level[0] else _elastic_lost)(places, missing).items():
            left[team][place] -= lost
            missing -= lost
            losses.append(Loss(team, by_team[team][place].work, lost, is_flex=False))


def _elastic_lost(places: Mapping[tuple[str, int], int], missing: int) -> dict[tuple[str, int], int]:
    """In proportion to what each team has there, largest remainder; of one team's parts the last goes first."""
    held: dict[str, int] = {}
    for (team, _), gpus in places.items():
        held[team] = held.get(team, 0) + gpus
    total = sum(held.values())
    wanted = min(missing, total)
    due = {team: wanted * gpus // total for team, gpus in held.items()}
    by_remainder = sorted(held, key=lambda team: (-(wanted * held[team] % total), -held[team], team))
    for team in by_remainder[: wanted - sum(due.values())]:
        due[team] += 1
    lost = {}
    for (team, place), gpus in places.items():
        if taken := min(gpus, due[team]):
            lost[team, place] = taken
            due[team] -= taken
    return lost


def _gangs_lost(places: Mapping[tuple[str, int], int], missing: int) -> dict[tuple[str, int], int]:
    """As few as can be: the smallest that is enough, else the largest."""
    standing, lost = dict(places), dict[tuple[str, int], int]()
    while missing > 0 and standing:
        enough = [each for each, gpus in standing.items() if gpus >= missing]
        gone = min(enough or standing, key=lambda each: (standing[each] if enough else -standing[each], each))
        lost[gone] = standing.pop(gone)
        missing -= lost[gone]
    return lost


def _shrunk(claims: Claims, left: Sequence[int]) -> Claims:
    """What is idle is given up first: nothing was done with it."""
    return tuple(
        claim
        if gpus == claim.gpus
        else msgspec.structs.replace(claim, gpus=gpus, idle_gpus=max(0, claim.idle_gpus - (claim.gpus - gpus)))
        for claim, gpus in zip(claims, left, strict=True)
        if gpus or claim.reserve
    )
