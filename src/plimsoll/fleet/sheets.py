"""The fleet's own sheets: `skus`, `clusters`, `nodes`. What is no longer in them is retired, never forgotten."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded, SkuWeighed
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import A100E_DEFAULT, Area, Cluster, Node, Phase, PoolKey, Purpose, Service, Sku
from plimsoll.fleet.sheet import (
    Column,
    ExportRows,
    ImportContext,
    Problem,
    Problems,
    RawSheet,
    Row,
    Sheet,
    SheetPlan,
    What,
    changed_fields,
    one_of,
    parse_name,
    parse_plain_name,
    parse_text,
    past_time,
    unique,
    whole_number,
)
from plimsoll.ledger.model import Draft
from plimsoll.state.state import State
from plimsoll.times import show_time

GPUS_PER_NODE_MAX = 1_024
A100E_MAX = 10_000.0
_WEIGHT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,30})?(e-?[0-9]{1,2})?")


def _parse_weight(text: str) -> float:
    weight = float(text) if _WEIGHT.fullmatch(text) else 0.0
    if not 0 < weight <= A100E_MAX:
        raise ValueError(f"a weight over 0 and up to {A100E_MAX:,.0f}, such as 3.2")
    return weight


class SkusSheet(Sheet):
    """`skus.csv`: weights that differ from the defaults. Optional, and never removed by leaving them out."""

    name = "skus"

    def columns(self, context: ImportContext) -> tuple[Column, ...]:
        return (Column("sku", parse_name), Column("a100e", _parse_weight))

    def plan(self, raw: RawSheet, state: State, context: ImportContext, problems: Problems) -> SheetPlan:
        plan = SheetPlan(self.name)
        ids: dict[str, int] = {}
        for row in self.read(raw, context, problems):
            if row.is_bad or not unique(ids, row.values[0], row, raw, "sku", problems):
                continue
            sku = Sku(*row.fields)
            before = state.of(Fleet).skus.get(sku.id) or _default_sku(sku.id)
            if before == sku and sku.id in state.of(Fleet).skus:
                plan.tally[What.SAME] += 1
                continue
            was = {} if before is None else changed_fields(before, sku)
            weight_before = None if before is None else before.a100e
            draft = Draft(SkuWeighed(sku.id, sku.a100e, weight_before, sku.labels))
            plan.add(What.CHANGED if was else What.ADDED, sku.id, draft, was)
        return plan

    def export(self, state: State) -> ExportRows:
        return [
            ([sku.id, repr(sku.a100e).removesuffix(".0")], sku.labels)
            for _, sku in sorted(state.of(Fleet).skus.items())
        ]


def _default_sku(name: str) -> Sku | None:
    return Sku(name, A100E_DEFAULT[name]) if name in A100E_DEFAULT else None


class ClustersSheet(Sheet):
    """`clusters.csv`."""

    name = "clusters"
    is_required = True

    def columns(self, context: ImportContext) -> tuple[Column, ...]:
        return (
            Column("cluster", parse_plain_name),
            Column("region", parse_name, is_cached=True),
            Column("area", one_of(Area), is_cached=True),
            Column("colo", parse_text),
            Column("provider", parse_text),
            Column("purpose", one_of(Purpose), is_cached=True),
            Column("phase", one_of(Phase), is_cached=True),
        )

    def plan(self, raw: RawSheet, state: State, context: ImportContext, problems: Problems) -> SheetPlan:
        plan = SheetPlan(self.name)
        fleet = state.of(Fleet)
        ids: dict[str, int] = {}
        for row in self.read(raw, context, problems):
            key = str(row.values[0])
            if not unique(ids, key, row, raw, "cluster", problems) or row.is_bad:
                continue
            cluster = self._with_own_phase(Cluster(*row.fields), plan, context)
            before = fleet.clusters.get(key)
            if before == cluster:
                plan.tally[What.SAME] += 1
            elif before is None:
                plan.add(What.ADDED, key, Draft(ClusterRecorded(cluster)))
            else:
                was = changed_fields(before, cluster)
                plan.add(What.CHANGED, key, Draft(ClusterRecorded(cluster, was)), was)
        context.seen[self.name] = set(ids)
        if not context.is_partial:
            self._retire_missing(fleet, plan, context)
        return plan

    def _with_own_phase(self, cluster: Cluster, plan: SheetPlan, context: ImportContext) -> Cluster:
        phase = context.phases.get(cluster.id, cluster.phase)
        if phase is not cluster.phase:
            plan.warnings.append(
                f"{cluster.id} stays {phase}, although the file says {cluster.phase}: Plimsoll makes it, and its phase"
                f" follows from its conditions (plimsoll cluster show {cluster.id})"
            )
        return msgspec.structs.replace(cluster, phase=phase)

    def _retire_missing(self, fleet: Fleet, plan: SheetPlan, context: ImportContext) -> None:
        for key, cluster in fleet.clusters.items():
            if key in context.phases and key not in context.seen[self.name]:
                plan.warnings.append(
                    f"{key} is not in {context.source} and stays {cluster.phase}: Plimsoll makes it; its way out is"
                    f" plimsoll cluster retire {key}"
                )
            elif key not in context.seen[self.name] and cluster.phase is not Phase.RETIRED:
                was: dict[str, str | None] = {"phase": str(cluster.phase)}
                retired = msgspec.structs.replace(cluster, phase=Phase.RETIRED)
                plan.add(What.REMOVED, key, Draft(ClusterRecorded(retired, was), f"not in {context.source}"), was)

    def export(self, state: State) -> ExportRows:
        return [
            ([c.id, c.region, c.area, c.colo, c.provider, c.purpose, c.phase], c.labels)
            for _, c in sorted(state.of(Fleet).clusters.items())
        ]


class NodesSheet(Sheet):
    """`nodes.csv`: what was observed, so no table of legal moves judges it."""

    name = "nodes"
    is_required = True

    def columns(self, context: ImportContext) -> tuple[Column, ...]:
        return (
            Column("node", parse_plain_name),
            Column("cluster", parse_plain_name, is_cached=True),
            Column("island", parse_name, is_cached=True),
            Column("sku", parse_name, is_cached=True),
            Column("gpus", whole_number(least=1, most=GPUS_PER_NODE_MAX), is_cached=True),
            Column("service", one_of(Service), is_cached=True),
            Column("since", past_time(context.now, is_optional=True), is_cached=True),
            Column("reason", parse_text, is_cached=True),
        )

    def plan(self, raw: RawSheet, state: State, context: ImportContext, problems: Problems) -> SheetPlan:
        plan = SheetPlan(self.name)
        fleet = state.of(Fleet)
        problems_before = problems.count
        check = _NodeCheck(raw, fleet, context, problems)
        leftovers = 0
        for row in self.read(raw, context, problems):
            if not unique(check.ids, str(row.values[0]), row, raw, "node", problems) or row.is_bad:
                continue
            key, cluster, island, *rest = row.fields
            node = Node(key, cluster, context.island(cluster, island), *rest)
            if not check.accepts(node, row):
                continue
            before = fleet.nodes.get(key)
            if before == node:
                plan.tally[What.SAME] += 1
                continue
            if before is None:
                plan.add(What.ADDED, key, Draft(NodeRecorded(node), effective_at=node.since))
                continue
            was = changed_fields(before, node)
            moved_at = _moved_at(before, node)
            leftovers += before.service is not node.service and node.since is not None and moved_at is None
            plan.add(What.CHANGED, key, Draft(NodeRecorded(node, was), effective_at=moved_at), was)
        context.seen[self.name] = set(check.ids)
        context.is_capacity_known = problems.count == problems_before
        if not context.is_partial:
            self._retire_missing(fleet, plan, context)
        plan.warnings += check.warnings()
        if leftovers:
            plan.warnings.append(
                f"{leftovers:,} nodes changed their service and not their `since`, or set it back: taken as of now"
            )
        return plan

    def _retire_missing(self, fleet: Fleet, plan: SheetPlan, context: ImportContext) -> None:
        reason = f"not in {context.source}"
        clusters = context.seen.get("clusters", set())
        kept = {name for name, phase in context.phases.items() if phase is not Phase.PRODUCTION or name not in clusters}
        for key, node in fleet.nodes.items():
            if key not in context.seen[self.name] and node.service is not Service.RETIRED and node.cluster not in kept:
                retired = msgspec.structs.replace(node, service=Service.RETIRED, since=context.now, reason=reason)
                was = changed_fields(node, retired)
                plan.add(What.REMOVED, key, Draft(NodeRecorded(retired, was), reason, context.now), was)

    def export(self, state: State) -> ExportRows:
        return [
            ([n.id, n.cluster, n.island, n.sku, str(n.gpus), n.service, show_time(n.since), n.reason], n.labels)
            for _, n in sorted(state.of(Fleet).nodes.items())
        ]


def _moved_at(before: Node, node: Node) -> datetime | None:
    """When a node's service changed, if its row says so: a `since` no later than the one before is a leftover of it."""
    if before.service is node.service or node.since is None:
        return None
    return node.since if before.since is None or node.since > before.since else None


class _NodeCheck:
    """What must hold between nodes: known clusters, islands inside one cluster, equal nodes in a pool."""

    def __init__(self, raw: RawSheet, fleet: Fleet, context: ImportContext, problems: Problems) -> None:
        self.ids: dict[str, int] = {}
        self._raw, self._problems = raw, problems
        self._fleet, self._context = fleet, context
        self._clusters: set[str] = set(fleet.clusters) if context.is_partial else set()
        self._islands: dict[str, tuple[str, str]] = {}
        self._pools: dict[PoolKey, tuple[int, str]] = {}
        if context.is_partial:
            self._islands = {island: (cluster, "the database") for island, cluster in fleet.island_cluster.items()}
            self._pools = {key: (count.gpus_per_node, "the database") for key, count in fleet.pools.items()}

    def accepts(self, node: Node, row: Row) -> bool:
        if node.cluster not in self._clusters and not self._context.may_name("clusters", node.cluster):
            return self._refuse(row, "cluster", node.cluster, "a cluster of the clusters sheet")
        if node.service is Service.RETIRED:
            return True
        here = f"row {row.number}"
        cluster, where = self._islands.setdefault(node.island, (node.cluster, here))
        if cluster != node.cluster:
            expected = (
                f"an island of cluster {node.cluster}: {where} has it in cluster {cluster}"
                " (--local-islands if names are unique in their cluster only)"
            )
            return self._refuse(row, "island", node.island, expected)
        gpus, where = self._pools.setdefault(PoolKey(node.cluster, node.sku), (node.gpus, here))
        if gpus != node.gpus:
            expected = f"{gpus} as in {where}: all {node.sku} nodes of cluster {node.cluster} have the same number"
            return self._refuse(row, "gpus", str(node.gpus), expected)
        return True

    def _refuse(self, row: Row, column: str, value: str, expected: str) -> bool:
        self._problems.add(Problem(self._raw.source, row.number, column, value, expected))
        return False

    def warnings(self) -> list[str]:
        skus = sorted({key.sku for key in self._pools if self._fleet.a100e(key.sku) is None})
        return [f"no A100e weight is known for SKU {sku}: add it to skus.csv (sku,a100e)" for sku in skus]
