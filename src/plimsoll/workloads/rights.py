"""What lies inside guarantees and what is flex, part by part, and who may take whose place (rule 3). Pure.

Work inside a guarantee is nobody else's to take. Flex gives way to every guarantee, to its own team's work that comes
before it, and to another team's flex as long as that team, with it, holds less flex for its guarantee.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

import msgspec

from plimsoll.fleet.model import PoolKey
from plimsoll.quota.fill import fill
from plimsoll.quota.fill import inside as inside_of
from plimsoll.quota.model import Claim, Kind, QuotaKey
from plimsoll.workloads.model import PartSpec, RunsAs, Spec
from plimsoll.workloads.shape import HOLD_PREFIX, adopt, node_size
from plimsoll.workloads.turn import Turn

_order, _gpus = attrgetter("order"), attrgetter("gpus")
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
            unit=1 if part.is_gang else part.gpus,
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
    if len(claims) == 1 and key not in turn.work.team_holds:
        return {claims[0].part: _inside_one(turn, key, claims[0], guaranteed)}
    merged = with_new(turn, key, claims, holder=holder)
    work = claims[0].work
    return {
        claim.part: taken
        for claim, taken in zip(merged, fill(merged, guaranteed), strict=True)
        if claim.work == work and claim.island == NOWHERE
    }


def _inside_one(turn: Turn, key: QuotaKey, claim: Claim, guaranteed: int) -> int:
    """The same for one new claim where the team keeps nothing for anybody: only what comes before it counts."""
    claims = turn.book.claims.get(key, ())
    before = claims[: bisect_left(turn.book.claim_orders.get(key, ()), claim.order)]
    if claim.kind is Kind.GANG and (key, claim.work) in turn.book.work_claims:
        # A gang that looks for another place does not hold its old one besides.
        before = tuple(each for each in before if (each.work, each.part) != (claim.work, claim.part))
    if sum(map(_gpus, before)) + claim.gpus <= guaranteed:
        return claim.gpus  # all that comes before it is inside as well
    left, outside = guaranteed, None
    for each in before:
        gpus = each.gpus
        if each.is_flex or (each.is_spare and outside == (each.work, each.part)):
            continue
        if gpus <= left:
            left -= gpus
            if not left:
                return 0
        elif each.kind is Kind.GANG:
            outside = each.work, each.part
        else:
            left %= each.unit
    if claim.gpus <= left:
        return claim.gpus
    return 0 if claim.kind is Kind.GANG else left - left % claim.unit


def with_new(turn: Turn, key: QuotaKey, claims: Sequence[Claim], *, holder: str = "") -> list[Claim]:
    """A team's claims with new ones among them, in the order of service; what is kept for the holder is theirs."""
    # A gang that looks for another place, because a node died under it, does not hold its old one besides.
    gangs = {(claim.work, claim.part) for claim in claims if claim.kind is Kind.GANG}
    merged = [
        claim
        for claim in turn.book.claims.get(key, ())
        if claim.kind is not Kind.GANG or (claim.work, claim.part) not in gangs
    ]
    for claim in claims:
        kept = _kept_for(turn, key, claim.work, holder)
        held = sum(each.reserve for each in merged if each.work in kept)
        if held and (claim.kind is not Kind.GANG or held >= claim.gpus):
            left = claim.gpus
            for hold in kept:
                for place, each in enumerate(merged):
                    if each.work == hold and left > 0:
                        taken = min(left, each.reserve)
                        left -= taken
                        merged[place] = msgspec.structs.replace(each, reserve=each.reserve - taken)
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


def flex_in(turn: Turn, pool: PoolKey, *, team: str = "", claims: Sequence[Claim] = (), holder: str = "") -> list[Held]:
    """The same for the parts that are flex, at least in part."""
    found: list[Held] = []
    for each in turn.book.pool_teams.get(pool, ()):
        key = QuotaKey(each, *pool)
        if each == team and claims:
            mine = with_new(turn, key, claims, holder=holder)
            found += _held(each, mine, turn.book.guaranteed.get(key, 0), is_flex_only=True)
        else:
            found += _flex_now(turn, key)
    return found


def own_held(turn: Turn, key: QuotaKey, claims: Sequence[Claim], *, holder: str = "") -> list[Held]:
    """A team's own running parts in a pool, once its new claims are there as well."""
    return list(_held(key.team, with_new(turn, key, claims, holder=holder), turn.book.guaranteed.get(key, 0)))


def _flex_now(turn: Turn, key: QuotaKey) -> Sequence[Held]:
    """A team's flex in a pool; looked for anew only where its claims or its guarantee changed."""
    claims, guaranteed = turn.book.claims.get(key, ()), turn.book.guaranteed.get(key, 0)
    memo = turn.floor.memo.get(key)
    if memo is None or memo[0] is not claims or memo[1] != guaranteed:
        flex = tuple(_held(key.team, claims, guaranteed, is_flex_only=True))
        memo = turn.floor.memo[key] = claims, guaranteed, flex
    held: Sequence[Held] = memo[2]
    return held


def flex_held(turn: Turn, key: QuotaKey) -> int:
    """GPUs that a team holds of a pool beyond its guarantee."""
    claims = turn.book.claims.get(key)
    if not claims:
        return 0
    guaranteed = turn.book.guaranteed.get(key, 0)
    memo = turn.floor.flex.get(key)
    if memo is None or memo[0] is not claims or memo[1] != guaranteed:
        flex = sum([claim.gpus for claim in claims]) - inside_of(claims, guaranteed)
        memo = turn.floor.flex[key] = claims, guaranteed, flex
    return memo[2]


def _held(team: str, claims: Sequence[Claim], guaranteed: int, *, is_flex_only: bool = False) -> Iterator[Held]:
    inside = fill(claims, guaranteed)
    wanted: Collection[tuple[str, str, bool]] | None = None
    if is_flex_only:
        outside = (claim for claim, taken in zip(claims, inside, strict=True) if taken < claim.gpus)
        wanted = {(claim.work, claim.part, claim.is_spare) for claim in outside}
        if not wanted:
            return
    parts: dict[tuple[str, str, bool], tuple[Claim, int, dict[str, int]]] = {}
    for claim, taken in zip(claims, inside, strict=True):
        who = claim.work, claim.part, claim.is_spare
        if not claim.gpus or claim.island == NOWHERE or (wanted is not None and who not in wanted):
            continue
        first, flex, islands = parts.get(who, (claim, 0, {}))
        islands[claim.island] = islands.get(claim.island, 0) + claim.gpus
        parts[who] = first, flex + claim.gpus - taken, islands
    for (work, part, is_spare), (first, flex, islands) in parts.items():
        if flex or not is_flex_only:
            yield Held(team, work, part, first.kind, is_spare, first.order, sum(islands.values()), flex, islands)


def stuck_in(turn: Turn, held: Held, island: str, barred: Collection[str] = ()) -> int:
    """GPUs that a part holds of an island on nodes that are out of service, drain, or are `barred` for whoever would
    come after it.
    """
    who = held.work, held.part
    out = {*turn.floor.lost.get(who, ()), *turn.floor.drains.get(who, ()), *barred}
    if not out:
        return 0
    workload = turn.work.workloads[held.work]
    part = workload.spares(held.part) if held.is_spare else workload.running(held.part)
    blocks = part.blocks if part is not None else ()
    return sum(gpus for block in blocks if block.island == island for node, gpus in block.nodes if node in out)


def flex_ratio(held: int, guaranteed: int) -> float | None:
    """Flex held for each GPU guaranteed; None (more than any number) where nothing is guaranteed."""
    return held / guaranteed if guaranteed else None


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
        asked = adopt(workload, node_size(turn.fleet, workload.cluster, workload.parts[0].sku))
    return asked.spec.part(held.part)
