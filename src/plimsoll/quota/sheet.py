"""`quotas.csv`: what teams were assigned. Quota is for a pool that exists, in whole nodes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase, PoolKey
from plimsoll.fleet.sheet import (
    Column,
    ExportRows,
    ImportContext,
    Problem,
    Problems,
    RawSheet,
    Sheet,
    SheetPlan,
    What,
    changed_fields,
    parse_name,
    parse_plain_name,
    unique,
    whole_number,
)
from plimsoll.ledger.model import Draft
from plimsoll.quota.changes import QuotaAssigned
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Quota, QuotaKey
from plimsoll.state.state import State

GPUS_MAX = 10_000_000


class QuotasSheet(Sheet):
    """The quota book."""

    name = "quotas"

    def columns(self, context: ImportContext) -> tuple[Column, ...]:
        return (
            Column("team", parse_name, is_cached=True),
            Column("cluster", parse_plain_name, is_cached=True),
            Column("sku", parse_name, is_cached=True),
            Column("gpus", whole_number(least=0, most=GPUS_MAX)),
        )

    def plan(self, raw: RawSheet, state: State, context: ImportContext, problems: Problems) -> SheetPlan:
        plan = SheetPlan(self.name)
        fleet, book = state.of(Fleet), state.of(QuotaBook)
        ids: dict[QuotaKey, int] = {}
        accepted: list[Quota] = []
        pools_ever = _PoolsEver(fleet)
        for row in self.read(raw, context, problems):
            if row.is_bad:
                continue
            quota = Quota(*row.fields)
            name = " ".join(quota.key)
            if not unique(ids, quota.key, row, raw, "team", problems):
                continue
            if (problem := _pool_problem(quota, fleet, pools_ever, context)) is not None:
                column, value, expected = problem
                problems.add(Problem(raw.source, row.number, column, value, expected))
                continue
            accepted.append(quota)
            before = book.quotas.get(quota.key)
            if before == quota or (before is None and not quota.gpus):
                plan.tally[What.SAME] += 1
            elif before is None:
                plan.add(What.ADDED, name, Draft(QuotaAssigned(quota)))
            else:
                was = changed_fields(before, quota)
                what = What.CHANGED if quota.gpus else What.REMOVED
                plan.add(what, name, Draft(QuotaAssigned(quota, was)), was)
        if not context.is_partial:
            _strike_missing(book, ids, plan, context)
        if context.is_capacity_known:
            kept = book.quotas if context.is_partial else {}
            plan.warnings += _unbacked(kept | {quota.key: quota for quota in accepted}, fleet)
        plan.warnings += _renamed(book, plan) + _lowered(book, plan)
        return plan

    def keep(self, state: State, context: ImportContext, problems: Problems) -> SheetPlan | None:
        """The promises stay as they are; that nothing stands behind one any more is said at once.

        Where the nodes of a pool have another number of GPUs now, a promise may be no whole nodes any more.
        """
        book, fleet = state.of(QuotaBook).quotas, state.of(Fleet)
        _refuse_broken(book, fleet, context, problems)
        warnings = _unbacked(book, fleet) if context.is_capacity_known else []
        return SheetPlan(self.name, warnings=warnings) if warnings else None

    def export(self, state: State) -> ExportRows:
        return [
            ([q.team, q.cluster, q.sku, str(q.gpus)], q.labels) for _, q in sorted(state.of(QuotaBook).quotas.items())
        ]


class _PoolsEver:
    """Which pools there ever were. All nodes are looked at only where a pool has none now, which is rare."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._found: set[PoolKey] | None = None

    def __contains__(self, pool: PoolKey) -> bool:
        if pool in self._fleet.pools:
            return True
        if self._found is None:
            self._found = {PoolKey(node.cluster, node.sku) for node in self._fleet.nodes.values()}
        return pool in self._found


def _pool_problem(
    quota: Quota, fleet: Fleet, pools_ever: _PoolsEver, context: ImportContext
) -> tuple[str, str, str] | None:
    """Quota is for a pool that exists, in whole nodes. One whose nodes were retired is a promise that stays visible."""
    is_known = context.is_partial and quota.cluster in fleet.clusters
    if not is_known and not context.may_name("clusters", quota.cluster):
        return "cluster", quota.cluster, "a cluster of the clusters sheet"
    if not context.is_capacity_known:
        return None
    pool = quota.key.pool
    if pool not in pools_ever:
        return "sku", quota.sku, f"a SKU that cluster {quota.cluster} has nodes of"
    count = fleet.pools.get(pool)
    if count is not None and quota.gpus % count.gpus_per_node:
        return "gpus", str(quota.gpus), f"whole nodes: a multiple of {count.gpus_per_node} GPUs"
    return None


def _refuse_broken(quotas: Mapping[QuotaKey, Quota], fleet: Fleet, context: ImportContext, problems: Problems) -> None:
    """Quotas that stay, in a pool whose nodes have another number of GPUs now, must still be whole nodes."""
    for _, quota in sorted(quotas.items()):
        count = fleet.pools.get(quota.key.pool)
        if count is not None and quota.gpus % count.gpus_per_node:
            what = f"{quota.team} holds {quota.gpus} {quota.sku} in {quota.cluster}, whose nodes have"
            expected = f"{what} {count.gpus_per_node} GPUs now: bring a quotas.csv with whole nodes as well"
            problems.add(Problem(context.source, 0, "", "", expected))


def _unbacked(quotas: Mapping[QuotaKey, Quota], fleet: Fleet) -> list[str]:
    """A warning where quota is for a pool all of whose nodes were retired, or for a retired cluster."""
    unbacked = [
        quota
        for _, quota in sorted(quotas.items())
        if quota.gpus
        and (
            quota.key.pool not in fleet.pools
            or (quota.cluster in fleet.clusters and fleet.clusters[quota.cluster].phase is Phase.RETIRED)
        )
    ]
    if not unbacked:
        return []
    first, gpus = unbacked[0], sum(quota.gpus for quota in unbacked)
    return [
        f"{gpus:,} GPUs of quota are in retired clusters or pools without nodes, such as {first.gpus:,} {first.sku} of"
        f" {first.team} in {first.cluster}: nothing stands behind them; take them out of quotas.csv"
    ]


def _changes(plan: SheetPlan) -> list[Quota]:
    return [draft.change.quota for draft in plan.drafts if isinstance(draft.change, QuotaAssigned)]


def _renamed(book: QuotaBook, plan: SheetPlan) -> list[str]:
    """A hint where one team goes and another comes with the same quotas: a new name alone loses its guarantees."""
    before: dict[str, set[tuple[PoolKey, int]]] = {}
    for key, quota in book.quotas.items():
        before.setdefault(key.team, set()).add((key.pool, quota.gpus))
    gone: dict[str, int] = {}
    come: dict[str, set[tuple[PoolKey, int]]] = {}
    for quota in _changes(plan):
        if not quota.gpus:
            gone[quota.team] = gone.get(quota.team, 0) + 1
        elif quota.team not in before:
            come.setdefault(quota.team, set()).add((quota.key.pool, quota.gpus))
    left = [team for team, count in sorted(gone.items()) if count == len(before[team])]
    return [
        f"{old} goes and {new} comes with the same quotas: if it is the same team, plimsoll quota rename {old} {new}"
        " first keeps what it is guaranteed"
        for old in left
        for new in sorted(come)
        if come[new] == before[old]
    ]


def _lowered(book: QuotaBook, plan: SheetPlan) -> list[str]:
    """A guarantee is never above what the book says: what falls with it is said at once."""
    lost = {
        quota.key: book.guaranteed[quota.key] - quota.gpus
        for quota in _changes(plan)
        if book.guaranteed.get(quota.key, 0) > quota.gpus
    }
    if not lost:
        return []
    key = min(lost, key=lambda key: (-lost[key], key))
    return [
        f"{sum(lost.values()):,} guaranteed GPUs of {len(lost)} quotas fall with the book, most of them"
        f" {lost[key]:,} {key.sku} of {key.team} in {key.cluster}"
    ]


def _strike_missing(book: QuotaBook, ids: Mapping[QuotaKey, int], plan: SheetPlan, context: ImportContext) -> None:
    for key, quota in book.quotas.items():
        if key not in ids:
            struck = msgspec.structs.replace(quota, gpus=0)
            was = changed_fields(quota, struck)
            plan.add(What.REMOVED, " ".join(key), Draft(QuotaAssigned(struck, was), f"not in {context.source}"), was)
