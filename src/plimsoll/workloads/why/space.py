"""What of a pool's working GPUs a team's guarantee can have: now, without what others booked, and ever. Pure.

A guarantee may have whatever is free, and call back flex, whoever's it is. It can't have what others run inside their
guarantees, what is being vacated for somebody else, nor an island kept for a gang that waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from plimsoll.fleet.model import PoolKey, Service
from plimsoll.fleet.selector import Scope
from plimsoll.quota.fill import fill
from plimsoll.quota.model import Kind, QuotaKey
from plimsoll.workloads.model import Booking, RunsAs
from plimsoll.workloads.turn import Turn


class Booked(NamedTuple):
    """GPUs of an island that were called back for a team's work and will lie inside its guarantee."""

    workload: str
    island: str
    gpus: int


class Space(NamedTuple):
    """GPUs of a pool for one team's guarantee. `free` without calling anything back; `open` with that; `unbooked` if no
    island were kept for anybody; `ever` if nobody else had called anything back either.
    """

    free: int
    open: int
    unbooked: int
    ever: int
    islands: dict[str, int]
    """What of `open` is in which island."""
    bookers: tuple[str, ...]
    keepers: tuple[str, ...]

    def largest(self, most: int) -> tuple[int, str]:
        """The largest block in one island, as far as it may be used."""
        gpus, island = max(((gpus, island) for island, gpus in self.islands.items()), default=(0, ""))
        return (min(gpus, most), island) if min(gpus, most) > 0 else (0, "")


def space_in(turn: Turn, pool: PoolKey, team: str, counted: Sequence[Booked] = ()) -> Space:
    """What a team's guarantee can have of a pool, beside the bookings that were counted as its use already. An island
    that is kept for the team's own work is not taken from it.
    """
    if pool not in turn.floor.pools_in(only(pool)):
        return Space(0, 0, 0, 0, {}, (), ())
    flex, leaving = flex_by_island(turn, pool)
    bookings = [each for each in turn.work.bookings.values() if each.pool == pool]
    others = {each.workload for each in bookings} - {each.workload for each in counted}
    booked = _of_free(bookings)
    taken: dict[str, int] = {}
    for each in counted:
        taken[each.island] = taken.get(each.island, 0) + each.gpus
    waits = [turn.work.waits[name] for name in turn.work.reservations.get(pool, ())]
    waits = [each for each in waits if each.is_guaranteed and turn.work.asked[each.workload].spec.team != team]
    kept: dict[str, int] = {}
    for wait in waits:
        kept[wait.reason.island] = kept.get(wait.reason.island, 0) + wait.reason.gpus
    free = unbooked = ever = 0
    islands: dict[str, int] = {}
    for gpus, island in turn.floor.by_pool.of(pool):
        now = gpus + flex.get(island, 0)
        then = now + booked.get(island, 0) + leaving.get(island, 0) - taken.get(island, 0)
        unbooked += max(0, now)
        ever += max(0, now, then)
        islands[island] = max(0, now - kept.get(island, 0))
        free += max(0, gpus - kept.get(island, 0))
    return Space(
        free,
        sum(islands.values()),
        unbooked,
        ever,
        islands,
        tuple(sorted(others or {each.workload for each in bookings})),
        tuple(sorted(wait.workload for wait in waits)),
    )


def only(pool: PoolKey) -> Scope:
    """A scope that means this pool alone."""
    return Scope((("cluster", (pool.cluster,)), ("sku", (pool.sku,))))


def flex_by_island(turn: Turn, pool: PoolKey) -> tuple[dict[str, int], dict[str, int]]:
    """Flex on working nodes by island: what can be called back, and what is leaving already."""
    dead = _dead(turn)
    found: dict[str, int] = {}
    leaving: dict[str, int] = {}
    for team in turn.book.pool_teams.get(pool, ()):
        key = QuotaKey(team, *pool)
        claims = turn.book.claims.get(key, ())
        for claim, inside in zip(claims, fill(claims, turn.book.guaranteed.get(key, 0)), strict=True):
            flex = claim.gpus - inside
            if flex:
                flex = max(0, flex - dead.get((claim.work, claim.part, claim.island), 0))
                table = leaving if claim.work in turn.work.leaving else found
                table[claim.island] = table.get(claim.island, 0) + flex
    return found, leaving


def _dead(turn: Turn) -> dict[tuple[str, str, str], int]:
    """GPUs that parts hold on nodes that are not in service."""
    found: dict[tuple[str, str, str], int] = {}
    for name, part_name in {*turn.floor.lost, *turn.floor.drains}:
        for part in turn.work.workloads[name].parts:
            if part.name == part_name:
                for block in part.blocks:
                    gone = sum(gpus for node, gpus in block.nodes if _is_out(turn, node))
                    who = name, part_name, block.island
                    found[who] = found.get(who, 0) + gone
    return found


def _is_out(turn: Turn, node: str) -> bool:
    spot = turn.floor.spots.get(node)
    return spot is None or spot.service is not Service.IN_SERVICE


def _of_free(bookings: Iterable[Booking]) -> dict[str, int]:
    """What bookings keep of the GPUs that are free already, by island."""
    found: dict[str, int] = {}
    for booking in bookings:
        wanted: dict[str, int] = {}
        for place in booking.places:
            wanted[place.island] = wanted.get(place.island, 0) + place.gpus
        for victim in booking.victims:
            wanted[victim.island] = wanted.get(victim.island, 0) - victim.gpus
        for island, gpus in wanted.items():
            found[island] = found.get(island, 0) + max(0, gpus)
    return found


def booked_inside(turn: Turn, key: QuotaKey, left: int) -> list[Booked]:
    """What a team's bookings in a pool will take of the rest of its guarantee: gangs whole or not at all."""
    found: list[Booked] = []
    for name, booking in sorted(turn.work.bookings.items(), key=lambda each: (each[1].due, each[0])):
        spec = turn.work.asked[name].spec
        if booking.pool != key.pool or spec.team != key.team or spec.runs_as is RunsAs.FLEX:
            continue
        for place in booking.places:
            is_whole = spec.part(place.part).kind is Kind.GANG and not place.is_spare
            taken = min(left, place.gpus)
            if taken < place.gpus and is_whole:
                taken = 0
            left -= taken
            if taken:
                found.append(Booked(name, place.island, taken))
    return found
