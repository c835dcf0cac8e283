"""The floor: what of each node and island is free, kept in the order in which room is looked for.

It is derived from the fleet and from what runs. It is made when somebody first looks for room, and from then on the
folds keep it up to date, so that a decision among 18,500 nodes touches a handful of them. It decides nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import IslandKey, Node, Phase, PoolKey, Service
from plimsoll.fleet.selector import Scope
from plimsoll.quota.model import QuotaKey
from plimsoll.state.table import Journal, Orders, Table
from plimsoll.workloads.model import Block, Booking, Shape, Workload

_IN_SERVICE, _DRAINING, _RETIRED = Service.IN_SERVICE, Service.DRAINING, Service.RETIRED


FREED_POOLS_MAX = 8
"""In more pools than this what became free is not told apart."""


class Spot(NamedTuple):
    """What the floor knows of a node."""

    key: IslandKey
    cluster: str
    gpus: int
    service: Service


class Floor:
    """Free GPUs by node and island. `free` may be negative: more is held of an island than works in it.

    Observed work is held by the island, as nobody told its nodes. `lost` are the nodes that died under a part and that
    it still holds; `drains` those that it should leave.
    """

    def __init__(self, journal: Journal, fleet: Fleet) -> None:
        self._journal, self._fleet = journal, fleet
        self.spots: Table[str, Spot] = Table(journal)
        self.used: Table[str, int] = Table(journal)
        self.free: Table[IslandKey, int] = Table(journal)
        self.short: Table[IslandKey, int] = Table(journal)
        self.by_pool: Orders[PoolKey, tuple[int, str]] = Orders(journal)
        self.by_sku: Orders[str, tuple[int, str]] = Orders(journal)
        self.nodes: Orders[IslandKey, tuple[int, str]] = Orders(journal)
        self.parts_on: Table[str, tuple[tuple[str, str], ...]] = Table(journal)
        self.lost: Table[tuple[str, str], tuple[str, ...]] = Table(journal)
        self.drains: Table[tuple[str, str], tuple[str, ...]] = Table(journal)
        self._pools: dict[Scope, tuple[PoolKey, ...]] = {}
        # What has ever become free, and what was refused for want of it: hints that cost a try more after an undo.
        self._freed: dict[PoolKey, int] = {}
        self._freed_all = 0
        self.patience: dict[Shape, tuple[int, int, int]] = {}
        # What was last made of a team's claims in a pool; good for as long as they are the very same.
        self.memo: dict[QuotaKey, tuple[object, int, Any]] = {}
        self.flex: dict[QuotaKey, tuple[object, int, int]] = {}
        for node in fleet.nodes.values():
            self.see_node(node)

    # Nodes.

    def see_node(self, node: Node) -> None:
        """A node as it is now."""
        before = self.spots.get(node.id)
        key = before.key if before is not None and before.key == (node.island, node.sku) else None
        now = Spot(key or IslandKey(node.island, node.sku), node.cluster, node.gpus, node.service)
        if before == now:
            return
        used = self.used.get(node.id, 0)
        if before is not None and before.service is _IN_SERVICE:
            self._offer(node.id, before, before.gpus - used, -1)
        if now.service is _IN_SERVICE:
            self._offer(node.id, now, now.gpus - used, +1)
        elif now.key not in self.free:
            self._add_free(now, 0)
        self.spots.put(node.id, now)
        if node.id in self.parts_on:
            self._tell_parts(node.id, now.service)

    def _offer(self, node: str, spot: Spot, free: int, sign: int) -> None:
        if free > 0:
            (self.nodes.add if sign > 0 else self.nodes.remove)(spot.key, (free, node))
        self._add_free(spot, sign * free)

    def _tell_parts(self, node: str, service: Service) -> None:
        for who in self.parts_on[node]:
            for table, is_so in (
                (self.lost, service not in (_IN_SERVICE, _DRAINING)),
                (self.drains, service is _DRAINING),
            ):
                nodes = table.get(who, ())
                if is_so and node not in nodes:
                    table.put(who, (*nodes, node))
                elif not is_so and node in nodes:
                    _put(table, who, tuple(each for each in nodes if each != node))

    def _add_free(self, spot: Spot, gpus: int) -> None:
        self._change(spot.key, spot.cluster, gpus)

    def _change(self, key: IslandKey, cluster: str, gpus: int) -> None:
        """So many more GPUs of an island are free, or fewer."""
        before = self.free.get(key)
        after = (before or 0) + gpus
        if before is None:
            self.forget_pools()
        elif not gpus:
            return
        pool = PoolKey(cluster, key.sku)
        if gpus > 0:
            self._freed[pool] = self._freed.get(pool, 0) + gpus
            self._freed_all += gpus
        if before is not None:
            self.by_pool.remove(pool, (before, key.island))
            self.by_sku.remove(key.sku, (before, key.island))
        self.by_pool.add(pool, (after, key.island))
        self.by_sku.add(key.sku, (after, key.island))
        self.free.put(key, after)
        if after < 0:
            self.short.put(key, -after)
        elif key in self.short:
            self.short.drop(key)

    # Work.

    def hold(self, workload: Workload, *, name: str, block: Block, sku: str, sign: int) -> None:
        """A part holds a block from now on, or no longer does."""
        key = IslandKey(block.island, sku)
        if not block.nodes:
            self._change(key, workload.cluster, -sign * block.gpus)
            return
        freed: dict[IslandKey, int] = {key: 0}
        unknown = block.gpus  # of work that was observed, and grew here, only a part has nodes
        for node, gpus in block.nodes:
            unknown -= gpus
            spot, used = self.spots.get(node), self.used.get(node, 0)
            now = used + sign * gpus
            _put(self.used, node, now)
            if spot is not None and spot.service is _IN_SERVICE:
                was_free, is_free = spot.gpus - used, spot.gpus - now
                if was_free > 0:
                    self.nodes.remove(spot.key, (was_free, node))
                if is_free > 0:
                    self.nodes.add(spot.key, (is_free, node))
                freed[spot.key] = freed.get(spot.key, 0) - sign * gpus  # where the node is now: it may have moved
            self._attach(node, (workload.id, name), sign, spot)
        freed[key] -= sign * unknown
        for where, gpus in freed.items():
            self._change(where, workload.cluster, gpus)

    def _attach(self, node: str, who: tuple[str, str], sign: int, spot: Spot | None) -> None:
        parts = self.parts_on.get(node, ())
        if sign > 0:
            self.parts_on.put(node, (*parts, who))
            if spot is not None and spot.service is not _IN_SERVICE:
                self._tell_parts(node, spot.service)
            return
        place = parts.index(who)
        left = parts[:place] + parts[place + 1 :]
        _put(self.parts_on, node, left)
        if who not in left:
            for table in (self.lost, self.drains):
                if node in table.get(who, ()):
                    _put(table, who, tuple(each for each in table[who] if each != node))

    def book(self, booking: Booking, sign: int) -> None:
        """Room that is free now and that a booking waits to use."""
        wanted: dict[str, int] = {}
        for place in booking.places:
            wanted[place.island] = wanted.get(place.island, 0) + place.gpus
        for victim in booking.victims:
            wanted[victim.island] = wanted.get(victim.island, 0) - victim.gpus
        for island, gpus in wanted.items():
            if gpus > 0:
                self._change(IslandKey(island, booking.sku), booking.cluster, -sign * gpus)

    # Looking for room.

    def pools_in(self, scope: Scope) -> tuple[PoolKey, ...]:
        """The pools in production that a scope matches and that have nodes."""
        found = self._pools.get(scope)
        if found is None:
            clusters = self._fleet.clusters
            found = self._pools[scope] = tuple(
                pool
                for pool in sorted(self._fleet.pools)
                if clusters[pool.cluster].phase is Phase.PRODUCTION and scope.matches(clusters[pool.cluster], pool.sku)
            )
        return found

    def forget_pools(self) -> None:
        """Clusters changed: which pools a scope means is looked up again, and once more when that is undone."""
        if self._journal.is_open:
            self._journal.entries.append((self, None, None))
        self._pools.clear()

    def put_back(self, _key: None, _before: None) -> None:
        self._pools.clear()

    def be_patient(self, shape: Shape, freed: int, missing: int, claimed: int) -> None:
        """Remember what a shape was refused for; not within a what-if, as that is no longer so afterwards."""
        if not self._journal.is_open:
            self.patience[shape] = freed, missing, claimed

    def freed_in(self, pools: Sequence[PoolKey]) -> int:
        """GPUs that became free so far in these pools: never fewer, and in many pools those of all."""
        if len(pools) > FREED_POOLS_MAX:
            return self._freed_all
        return sum(self._freed.get(pool, 0) for pool in pools)

    def tightest(self, pool: PoolKey, gpus: int) -> Sequence[tuple[int, str]]:
        """The islands of a pool that have so many GPUs free, the tightest first."""
        islands = self.by_pool.of(pool)
        return islands[bisect_left(islands, (gpus,)) :]

    def largest(self, pool: PoolKey) -> int:
        """The most GPUs that are free in one island of a pool."""
        islands = self.by_pool.of(pool)
        return max(0, islands[-1][0]) if islands else 0

    def pick(self, key: IslandKey) -> Picker:
        """Nodes of an island, to be chosen one after another."""
        return Picker(list(self.nodes.of(key)))


class Picker:
    """The free nodes of an island while nodes are chosen from them."""

    def __init__(self, nodes: list[tuple[int, str]]) -> None:
        self._nodes = nodes

    def take(self, gpus: int, barred: Collection[str] = ()) -> tuple[tuple[str, int], ...]:
        """Nodes for so many GPUs, which must be free: whole ones first, and what is left over where it fits tightest,
        so that whole nodes stay whole.
        """
        if not barred:
            return self._take(gpus)
        aside = [each for each in self._nodes if each[1] in barred]
        self._nodes = [each for each in self._nodes if each[1] not in barred]
        chosen = self._take(gpus)
        self._nodes = sorted((*self._nodes, *aside))
        return chosen

    def take_rather(self, gpus: int, rather_not: Collection[str]) -> tuple[tuple[str, int], ...]:
        """The same, without some nodes if the others are enough."""
        others = sum(free for free, node in self._nodes if node not in rather_not) if rather_not else 0
        return self.take(gpus, rather_not if others >= gpus else ())

    def _take(self, gpus: int) -> tuple[tuple[str, int], ...]:
        nodes, chosen = self._nodes, list[tuple[str, int]]()
        size = nodes[-1][0] if nodes else 0
        while gpus >= size and nodes and nodes[-1][0] == size:
            free, node = nodes.pop()
            chosen.append((node, free))
            gpus -= free
        while gpus and nodes:
            tight = bisect_left(nodes, (gpus,))  # without a single node that has the rest: the emptiest first
            free, node = nodes.pop(min(tight, len(nodes) - 1))
            taken = min(free, gpus)
            chosen.append((node, taken))
            gpus -= taken
            if free > taken:
                insort(nodes, (free - taken, node))
        return tuple(chosen)


def _put(table: Table, key: object, value: object) -> None:  # type: ignore[type-arg]
    """Keep it, unless it is empty."""
    if value:
        table.put(key, value)
    elif key in table:
        table.drop(key)
