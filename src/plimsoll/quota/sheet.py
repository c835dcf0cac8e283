"""`quotas.csv`: what teams were assigned. Quota is for a pool that exists, in whole nodes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase
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
        for row in self.read(raw, context, problems):
            if row.is_bad:
                continue
            quota = Quota(*row.fields)
            name = " ".join(quota.key)
            if not unique(ids, quota.key, row, raw, "team", problems):
                continue
            if not _is_in_pool(quota, row, raw, fleet, context, problems):
                continue
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
        return plan

    def export(self, state: State) -> ExportRows:
        return [
            ([q.team, q.cluster, q.sku, str(q.gpus)], q.labels) for _, q in sorted(state.of(QuotaBook).quotas.items())
        ]


def _is_in_pool(
    quota: Quota, row: Row, raw: RawSheet, fleet: Fleet, context: ImportContext, problems: Problems
) -> bool:
    def refuse(column: str, value: str, expected: str) -> bool:
        problems.add(Problem(raw.source, row.number, column, value, expected))
        return False

    cluster = fleet.clusters.get(quota.cluster)
    if cluster is None:
        is_known = quota.cluster in context.seen.get("clusters", ())
        return is_known or refuse("cluster", quota.cluster, "a cluster of the clusters sheet")
    if cluster.phase is Phase.RETIRED and quota.gpus:
        return refuse("cluster", quota.cluster, "a cluster that is not retired")
    if not context.is_capacity_known:
        return True
    count = fleet.pools.get(quota.key.pool)
    if count is None:
        return refuse("sku", quota.sku, f"a SKU that cluster {quota.cluster} has nodes of")
    if quota.gpus % count.gpus_per_node:
        expected = f"whole nodes: a multiple of {count.gpus_per_node} GPUs"
        return refuse("gpus", str(quota.gpus), expected)
    return True


def _strike_missing(book: QuotaBook, ids: Mapping[QuotaKey, int], plan: SheetPlan, context: ImportContext) -> None:
    for key, quota in book.quotas.items():
        if key not in ids:
            struck = msgspec.structs.replace(quota, gpus=0)
            was = changed_fields(quota, struck)
            plan.add(What.REMOVED, " ".join(key), Draft(QuotaAssigned(struck, was), f"not in {context.source}"), was)
