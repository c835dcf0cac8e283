"""Where there is room: the free GPUs of a pool's islands as one workload may use them, and what fits into them. Pure.

A gang goes into the tightest island that takes it, so that big islands stay whole; elastic replicas fill the smallest
rests, where no gang could go. An island that is kept for a gang which waits is open to others only as far as that does
not delay it; nodes on which planned work begins before a workload ends are not for its gangs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from math import inf

from plimsoll.fleet.model import IslandKey, PoolKey, Service
from plimsoll.health.ahead import starts_ahead
from plimsoll.health.fold import Health
from plimsoll.quota.model import QuotaKey
from plimsoll.workloads.changes import WorkloadWaits
from plimsoll.workloads.fold_floor import Picker
from plimsoll.workloads.model import Asked, PartSpec, Place
from plimsoll.workloads.rights import flex_held
from plimsoll.workloads.turn import Turn

Rooms = Sequence[tuple[int, str]]
"""Free GPUs and island, the tightest first."""


def rooms_for(turn: Turn, asked: Asked, pool: PoolKey, *, is_guaranteed: bool) -> Rooms:
    """The islands of a pool with what of them a workload may use now."""
    rooms: Rooms = turn.floor.by_pool.of(pool)
    kept = [turn.work.waits[name] for name in turn.work.reservations.get(pool, ()) if name != asked.spec.name]
    if kept:
        rooms = _beside(rooms, [each for each in kept if not _may_ignore(turn, asked, each, is_guaranteed)])
    if asked.spec.hours and (barred := barred_nodes(turn, asked, pool)):
        rooms = sorted((free - barred.get(island, 0), island) for free, island in rooms)
    return rooms


def _may_ignore(turn: Turn, asked: Asked, kept: WorkloadWaits, is_guaranteed: bool) -> bool:
    """Whether work needs not heed what is kept for another: it comes first, or can be called back for it."""
    other = turn.work.asked[kept.workload]
    if is_guaranteed is not kept.is_guaranteed:
        return True  # a guarantee comes before flex, and calls flex back whenever it can start
    if asked.spec.hours and kept.starts is not None and turn.now + timedelta(hours=asked.spec.hours) <= kept.starts:
        return True
    if asked.spec.team != other.spec.team:
        return not is_guaranteed and _flex_then(turn, asked, kept) < _flex_then(turn, other, kept)
    return _order(asked) < _order(other)


def _flex_then(turn: Turn, asked: Asked, kept: WorkloadWaits) -> float:
    """The flex that a team would hold for its guarantee, with this."""
    key = QuotaKey(asked.spec.team, kept.reason.cluster, kept.reason.sku)
    guaranteed = turn.book.guaranteed.get(key, 0)
    return (flex_held(turn, key) + asked.spec.gpus_least) / guaranteed if guaranteed else inf


def _order(asked: Asked) -> tuple[int, int, int, str]:
    tier, rank = min((part.tier.place, part.rank) for part in asked.spec.parts)
    return tier, rank, asked.submitted, asked.spec.name


def _beside(rooms: Rooms, kept: Iterable[WorkloadWaits]) -> Rooms:
    """What is left beside what is kept for others."""
    away: dict[str, int] = {}
    for each in kept:
        away[each.reason.island] = away.get(each.reason.island, 0) + each.reason.gpus
    return sorted((free - away.get(island, 0), island) for free, island in rooms) if away else rooms


def barred_nodes(turn: Turn, asked: Asked, pool: PoolKey) -> dict[str, int]:
    """By island the free GPUs on nodes where planned work begins before the workload is expected to end."""
    health = turn.state.of(Health)
    until = turn.now + timedelta(hours=asked.spec.hours)
    found: dict[str, int] = {}
    for node in barred_among(health, until, turn.now):
        spot = turn.floor.spots.get(node)
        if spot is not None and spot.service is Service.IN_SERVICE and (spot.cluster, spot.key.sku) == pool:
            free = spot.gpus - turn.floor.used.get(node, 0)
            found[spot.key.island] = found.get(spot.key.island, 0) + free
    return found


def barred_for(turn: Turn, asked: Asked) -> set[str]:
    """Nodes that are not for a workload's gangs: planned work begins there before they are expected to end."""
    health = turn.state.of(Health)
    if not asked.spec.hours or not health.ahead:
        return set()
    return barred_among(health, turn.now + timedelta(hours=asked.spec.hours), turn.now)


def barred_among(health: Health, until: datetime, now: datetime) -> set[str]:
    """Nodes on which announced work begins before a moment."""
    return {
        node for ahead in health.ahead.values() if ahead.ends > now and ahead.starts < until for node in ahead.nodes
    }


class Plan:
    """Places in a pool while its islands fill up."""

    def __init__(self, rooms: Rooms, node_gpus: int) -> None:
        self._rooms = list(rooms)
        self._node_gpus = node_gpus
        self.places: list[Place] = []
        self.leftover = 0
        """What the tightest fit of the gangs leaves of their islands: the less, the more whole islands stay."""

    @property
    def rooms(self) -> Rooms:
        return self._rooms

    def fit(self, part: PartSpec) -> int:
        """A part as far as it must be: a whole gang, or the least replicas. How many of these found no place."""
        return 1 - self._put_gang(part) if part.is_gang else part.least - self.put_replicas(part, part.least)

    def _put_gang(self, part: PartSpec) -> bool:
        rooms = self._rooms
        spare = part.spare_nodes * self._node_gpus
        place = bisect_left(rooms, (part.gpus + spare,))
        if place == len(rooms) and spare:
            place = bisect_left(rooms, (part.gpus,))
        if place == len(rooms):
            return False
        free, island = rooms[place]
        self.put_at(part, island, part.gpus)
        left = free - part.gpus
        if spare and left >= self._node_gpus:
            spares = min(spare, left // self._node_gpus * self._node_gpus)
            self.take(island, spares)
            self.places.append(Place(part.name, island, spares, is_spare=True))
        self.leftover += left
        return True

    def put_at(self, part: PartSpec, island: str, gpus: int) -> None:
        self.take(island, gpus)
        self.places.append(Place(part.name, island, gpus))

    def put_replicas(self, part: PartSpec, count: int) -> int:
        """Up to so many replicas, into the smallest rests; how many found a place."""
        left = count
        start = bisect_left(self._rooms, (part.gpus,))
        found: list[tuple[str, int]] = []
        for free, island in self._rooms[start:]:
            if not left:
                break
            taken = min(left, free // part.gpus)
            found.append((island, taken * part.gpus))
            left -= taken
        for island, gpus in found:
            self.put_at(part, island, gpus)
        return count - left

    def take(self, island: str, gpus: int) -> None:
        """Fewer are free from now on; more where negative."""
        place = next(place for place, (_, name) in enumerate(self._rooms) if name == island)
        free, _ = self._rooms.pop(place)
        insort(self._rooms, (free - gpus, island))


def choose_nodes(
    turn: Turn, asked: Asked, pool: PoolKey, places: Sequence[Place]
) -> list[tuple[Place, tuple[tuple[str, int], ...]]]:
    """Nodes for places that fit, no GPU twice. Each replica is chosen for itself, so that it stays on few nodes."""
    barred = barred_for(turn, asked)
    pickers: dict[str, Picker] = {}
    chosen = []
    for place in places:
        picker = pickers.get(place.island)
        if picker is None:
            picker = pickers[place.island] = turn.floor.pick(IslandKey(place.island, pool.sku))
        part = asked.spec.part(place.part)
        if part.is_gang:
            nodes = picker.take(place.gpus, () if place.is_spare else barred)
        else:
            rather_not = _ahead_in(turn, place.island, pool)
            replicas = [picker.take_rather(part.gpus, rather_not) for _ in range(place.gpus // part.gpus)]
            nodes = _together(node for replica in replicas for node in replica)
        assert sum(gpus for _, gpus in nodes) == place.gpus, f"{place} of {asked.spec.name} got {nodes}"
        chosen.append((place, nodes))
    return chosen


def _ahead_in(turn: Turn, island: str, pool: PoolKey) -> set[str]:
    """The free nodes of an island that have planned work ahead: a replica put there would have to move once more."""
    health = turn.state.of(Health)
    if not health.ahead:
        return set()
    nodes = turn.floor.nodes.of(IslandKey(island, pool.sku))
    return {node for _, node in nodes if starts_ahead(health, node, turn.now) is not None}


def rooms_without_work_ahead(turn: Turn, pool: PoolKey) -> Rooms:
    """What is free of a pool's islands on nodes that no planned work is ahead of, such as those it is over on."""
    found = []
    for free, island in turn.floor.by_pool.of(pool):
        ahead = _ahead_in(turn, island, pool)
        nodes = turn.floor.nodes.of(IslandKey(island, pool.sku))
        found.append((min(free, sum(gpus for gpus, node in nodes if node not in ahead)), island))
    return sorted(found)


def _together(nodes: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    found: dict[str, int] = {}
    for node, gpus in nodes:
        found[node] = found.get(node, 0) + gpus
    return tuple(found.items())
