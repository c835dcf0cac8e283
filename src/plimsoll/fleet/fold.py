"""How the fleet's events change the state. Counts per pool and island are kept up to date with every node."""

from __future__ import annotations

import msgspec

from plimsoll.fleet.changes import ClusterRecorded, FleetImported, NodeRecorded, SkuWeighed
from plimsoll.fleet.model import A100E_DEFAULT, Cluster, Count, IslandKey, Node, PoolKey, Service, Sku
from plimsoll.ledger.model import Event
from plimsoll.state.state import Room, State, Tables
from plimsoll.state.table import Journal, Table

_NOTHING = Count()
_RETIRED, _IN_SERVICE = Service.RETIRED, Service.IN_SERVICE  # looked up once: every node is counted, twice


class _Dump(msgspec.Struct):
    clusters: list[Cluster]
    nodes: list[Node]
    skus: list[Sku]


class Fleet(Tables):
    """What exists. A node that left is kept as retired, so that nothing of its past is lost."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.clusters: Table[str, Cluster] = Table(journal)
        self.nodes: Table[str, Node] = Table(journal)
        self.skus: Table[str, Sku] = Table(journal)
        # Derived from the nodes that are not retired: a retired one holds no place.
        self.pools: Table[PoolKey, Count] = Table(journal)
        self.islands: Table[IslandKey, Count] = Table(journal)
        self.island_cluster: Table[str, str] = Table(journal)
        self.island_nodes: Table[str, int] = Table(journal)
        self._keys: dict[tuple[str, str, str], tuple[PoolKey, IslandKey]] = {}

    def a100e(self, sku: str) -> float | None:
        """The weight of one GPU, None where nobody has said it."""
        known = self.skus.get(sku)
        return A100E_DEFAULT.get(sku) if known is None else known.a100e

    def put_node(self, node: Node) -> None:
        """Replace a node and move the counts with it."""
        before = self.nodes.get(node.id)
        if before is not None:
            self._count(before, -1)
        self.nodes.put(node.id, node)
        self._count(node, +1)

    def _count(self, node: Node, sign: int) -> None:
        if node.service is _RETIRED:
            return
        in_service = sign if node.service is _IN_SERVICE else 0
        pool, island = self._keys_of(node.cluster, node.island, node.sku)
        _put_count(self.pools, pool, self.pools.get(pool, _NOTHING).plus(node.gpus, sign, in_service))
        _put_count(self.islands, island, self.islands.get(island, _NOTHING).plus(node.gpus, sign, in_service))
        if left := self.island_nodes.get(node.island, 0) + sign:
            self.island_nodes.put(node.island, left)
            if sign > 0 and self.island_cluster.get(node.island) != node.cluster:
                self.island_cluster.put(node.island, node.cluster)
        else:
            self.island_nodes.drop(node.island)
            self.island_cluster.drop(node.island)

    def _keys_of(self, cluster: str, island: str, sku: str) -> tuple[PoolKey, IslandKey]:
        """The keys that all nodes of one SKU in an island share, made once."""
        keys = self._keys.get((cluster, island, sku))
        if keys is None:
            keys = self._keys[cluster, island, sku] = PoolKey(cluster, sku), IslandKey(island, sku)
        return keys

    def dump(self) -> bytes:
        clusters = sorted(self.clusters.values(), key=lambda cluster: cluster.id)
        nodes = sorted(self.nodes.values(), key=lambda node: node.id)
        return msgspec.msgpack.encode(_Dump(clusters, nodes, [sku for _, sku in sorted(self.skus.items())]))

    def load(self, body: bytes) -> None:
        dump = msgspec.msgpack.decode(body, type=_Dump)
        for cluster in dump.clusters:
            self.clusters.put(cluster.id, cluster)
        for node in dump.nodes:
            self.put_node(node)
        for sku in dump.skus:
            self.skus.put(sku.id, sku)


def _put_count(table: Table[PoolKey, Count] | Table[IslandKey, Count], key: PoolKey | IslandKey, count: Count) -> None:
    if count.nodes:
        table.put(key, count)  # type: ignore[arg-type]
    elif key in table:
        table.drop(key)  # type: ignore[arg-type]


ROOM = Room("fleet", version=1, tables=Fleet)


@ROOM.folds_change(ClusterRecorded)
def _fold_cluster(state: State, change: ClusterRecorded, _event: Event) -> None:
    state.of(Fleet).clusters.put(change.cluster.id, change.cluster)


@ROOM.folds_change(NodeRecorded)
def _fold_node(state: State, change: NodeRecorded, _event: Event) -> None:
    state.of(Fleet).put_node(change.node)


@ROOM.folds_change(SkuWeighed)
def _fold_sku(state: State, change: SkuWeighed, _event: Event) -> None:
    state.of(Fleet).skus.put(change.sku, Sku(change.sku, change.a100e, change.labels))


@ROOM.folds_change(FleetImported)
def _fold_imported(_state: State, _change: FleetImported, _event: Event) -> None:
    """Nothing: each row that it brought is an event of its own; this one says who brought them together."""
