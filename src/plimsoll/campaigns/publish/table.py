"""A plan as a table: one row for each batch. Pure."""

from __future__ import annotations

import csv
from datetime import datetime

from plimsoll.campaigns.model import Batch
from plimsoll.campaigns.publish.changes import BatchChange, Changes
from plimsoll.campaigns.publish.model import Published
from plimsoll.times import show_time

COLUMNS = (
    "campaign",
    "plan",
    "batch_id",
    "unit",
    "cluster",
    "area",
    "region",
    "colo",
    "purpose",
    "mode",
    "batch",
    "batches",
    "nodes",
    "gpus",
    "skus",
    "start",
    "end",
    "tz",
    "local_start",
    "local_end",
    "expected_not_to_return",
    "state",
    "change",
    "start_before",
    "nodes_before",
    "teams",
)


class _Lines:
    """What the writer takes for a file."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, line: str) -> None:
        self.written.append(line)


def table(published: Published, found: Changes) -> str:
    """The plan as CSV, in the order of time; then what the plan before had and this one has not."""
    lines = _Lines()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(COLUMNS)
    changed = {change.id: change for change in found.changes}
    for batch in published.batches:
        state = "done" if batch.id in published.done else "planned"
        writer.writerow(_row(published, batch, state, changed.get(batch.id)))
    for change in found.changes:
        if change.after is None and change.before is not None:
            writer.writerow(_row(published, change.before, "cancelled", change))
    return "".join(lines.written)


def _row(published: Published, batch: Batch, state: str, change: BatchChange | None) -> list[object]:
    unit = published.unit_by_name.get(batch.unit)
    cluster = unit.cluster if unit else None
    lots = published.lots_of(batch)
    before = change.before if change else None
    return [
        published.name,
        published.number,
        batch.id,
        batch.unit,
        published.cluster_of(batch.unit),
        cluster.area if cluster else "",
        cluster.region if cluster else "",
        cluster.colo if cluster else "",
        cluster.purpose if cluster else "",
        batch.mode,
        batch.number,
        published.batch_counts.get(batch.unit, batch.number),
        batch.nodes,
        sum(lot.nodes * lot.gpus_per_node for lot in lots) if lots else "",
        " ".join(lot.sku for lot in lots),
        show_time(batch.start),
        show_time(batch.end),
        published.campaign.window.tz,
        _local(published, batch.start),
        _local(published, batch.end),
        published.stays_of(batch),
        state,
        change.kind if change else "",
        show_time(before.start) if before else "",
        before.nodes if before else "",
        " ".join(published.teams_of(batch.unit)),
    ]


def _local(published: Published, moment: datetime) -> str:
    return published.local(moment).strftime("%Y-%m-%d %H:%M")
