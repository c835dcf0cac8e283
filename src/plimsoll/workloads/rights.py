"""What lies inside guarantees and what is flex, part by part, and who may take whose place (rule 3). Pure.

Work inside a guarantee is nobody else's to take. Flex gives way to every guarantee, to its own team's work that comes
before it, and to another team's flex as long as that team, with it, holds less flex for its guarantee.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from operator import attrgetter

import msgspec

from plimsoll.fleet.model import PoolKey
from plimsoll.quota.fill import fill
from plimsoll.quota.model import Claim, Kind, QuotaKey
from plimsoll.workloads.model import PartSpec, RunsAs, Spec
from plimsoll.workloads.shape import HOLD_PREFIX, adopt
from plimsoll.workloads.turn import Turn

_order = attrgetter("order")
NOWHERE = "\U0010ffff"
"""The island of a claim that is only thought of; it comes after all that the same part holds already."""


class Held(msgspec.Struct, frozen=True, eq=False):
    """A running part in a pool: all its claims together. `flex` of its `gpus` lie outside the guarantee."""

    team: str
    work: str
    part: str
    kind: Kind
    is_spare: bool
    order: tuple[object, ...]
    gpus: int
    flex: int
    islands: Mapping[str, int]


def new_claims(spec: Spec, parts: Iterable[PartSpec], *, submitted: int, gpus: Mapping[str, int]) -> list[Claim]:
    """The claims that parts would bring, with so many GPUs each, before it is known in which island."""
    is_flex = spec.runs_as is RunsAs.FLEX
    return [
        Claim(
            spec.name,
            NOWHERE,
            part.kind,
            part.tier,
            part.rank,
            gpus[part.name],
            part=part.name,
            submitted=submitted,
            is_flex=is_flex,
        )
        for part in parts
    ]


def inside_new(turn: Turn, key: QuotaKey, claims: Sequence[Claim], *, holder: str = "") -> dict[str, int]:
    """By part the GPUs of new claims that would lie inside the team's guarantee. `holder`: whose holds they draw on."""
    guaranteed = turn.book.guaranteed.get(key, 0)
    if not guaranteed or claims[0].is_flex:
        return {claim.part: 0 for claim in claims}
    wanted = sum(claim.gpus for claim in claims)
    if turn.book.claimed.get(key, 0) + wanted <= guaranteed:
        return {claim.part: claim.gpus for claim in claims}
    merged = with_new(turn, key, claims, holder=holder)
    work = claims[0].work
    return {
        claim.part: taken
        for claim, taken in zip(merged, fill(merged, guaranteed), strict=True)
        if claim.work == work and claim.island == NOWHERE
    }


def with_new(turn: Turn, key: QuotaKey, claims: Sequence[Claim], *, holder: str = "") -> list[Claim]:
    """A team's claims with new ones among them, in the order of service; what is kept for the holder is theirs."""
    merged = list(turn.book.claims.get(key, ()))
    for claim in claims:
        kept = _kept_for(turn, key, claim.work, holder)
        if kept:
            left = claim.gpus
            for hold in kept:
                for place, each in enumerate(merged):
                    if each.work == hold and left > 0:
                        taken = min(left, each.reserve)
                        left -= taken
                        merged[place] = msgspec.structs.replace(each, reserve=each.reserve - taken)
            if left < claim.gpus:
                claim = msgspec.structs.replace(claim, is_first=True)
        insort(merged, claim, key=_order)
    return merged


def _kept_for(turn: Turn, key: QuotaKey, work: str, owner: str) -> list[str]:
    """The names of the claims by which the team keeps quota for a person or a run."""
    ids = turn.work.team_holds.get(key, ())
    holds = (turn.work.holds[each] for each in ids)
    return [f"{HOLD_PREFIX}{hold.id}" for hold in holds if hold.keeper in (work, owner)]


def held_in(turn: Turn, pool: PoolKey, *, team: str = "", claims: Sequence[Claim] = (), holder: str = "") -> list[Held]:
    """Every running part of a pool with what of it is flex, once a team's new claims are there as well."""
    found: list[Held] = []
    for each in turn.book.pool_teams.get(pool, ()):
        key = QuotaKey(each, *pool)
        mine: Sequence[Claim] = turn.book.claims.get(key, ())
        if each == team and claims:
            mine = with_new(turn, key, claims, holder=holder)
        found += _held(each, mine, turn.book.guaranteed.get(key, 0))
    return found


def _held(team: str, claims: Sequence[Claim], guaranteed: int) -> Iterator[Held]:
    parts: dict[tuple[str, str, bool], tuple[Claim, int, dict[str, int]]] = {}
    for claim, inside in zip(claims, fill(claims, guaranteed), strict=True):
        if not claim.gpus or claim.island == NOWHERE:
            continue
        who = claim.work, claim.part, claim.is_spare
        first, flex, islands = parts.get(who, (claim, 0, {}))
        islands[claim.island] = islands.get(claim.island, 0) + claim.gpus
        parts[who] = first, flex + claim.gpus - inside, islands
    for (work, part, is_spare), (first, flex, islands) in parts.items():
        yield Held(team, work, part, first.kind, is_spare, first.order, sum(islands.values()), flex, islands)


def flex_ratio(held: int, guaranteed: int) -> Fraction | None:
    """Flex held for each GPU guaranteed; None (more than any number) where nothing is guaranteed."""
    return Fraction(held, guaranteed) if guaranteed else None


def flex_by_team(parts: Iterable[Held]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in parts:
        found[part.team] = found.get(part.team, 0) + part.flex
    return found


def part_spec(turn: Turn, held: Held) -> PartSpec:
    """A running part as it was asked for; for observed work, as it would have been."""
    asked = turn.work.asked.get(held.work)
    if asked is None:
        workload = turn.work.workloads[held.work]
        asked = adopt(workload, turn.fleet.pools[PoolKey(workload.cluster, workload.parts[0].sku)].gpus_per_node)
    return asked.spec.part(held.part)
