"""Shapes of the answers of `plimsoll fleet`."""

from __future__ import annotations

from plimsoll.fleet.model import Service
from plimsoll.fleet.view import By, ClusterRow, Group
from plimsoll.server.shapes.derive import object_of, part_of
from plimsoll.server.shapes.model import (
    DRY_RUN,
    INTEGER,
    REVISION,
    STAMP,
    TEXT,
    TIME,
    Shape,
    at_times,
    choice,
    joined,
    many,
    maps,
    maybe,
    named,
    noted,
    obj,
)
from plimsoll.workloads.map import FleetMap

GROUP = part_of(
    Group,
    healthy_share="Of the GPUs in production; null where there are none.",
    not_in_production="GPUs of clusters in any other phase.",
)
COUNTS = named("RowCounts", obj(added=INTEGER, changed=INTEGER, removed=INTEGER, same=INTEGER), "Rows of a sheet.")

NODE = named(
    "FleetNode",
    obj(
        node=TEXT,
        cluster=TEXT,
        island=TEXT,
        sku=TEXT,
        gpus=INTEGER,
        service=choice(Service),
        since=maybe(TIME, "When that service began; null where nobody said."),
        reason=TEXT,
        labels=maps(TEXT, "Extra columns of nodes.csv."),
    ),
)
DIFFERENCE = obj(
    sheet=TEXT,
    what=choice("added", "changed", "removed"),
    key=TEXT,
    was=maps(maybe(TEXT), "The old value of each field that changes."),
)

OVERVIEW = joined(
    STAMP,
    obj(
        totals=GROUP,
        groups=noted(
            obj(**{by.value: at_times(many(GROUP)) for by in By}), "By area and SKU; with `by` only that one."
        ),
        clusters_without_nodes=many(TEXT),
    ),
)

SHAPES: dict[str, Shape] = {
    "fleet show": OVERVIEW,
    "fleet nodes": joined(STAMP, obj(count=noted(INTEGER, "Of all that match."), nodes=many(NODE))),
    "fleet clusters": joined(STAMP, obj(clusters=many(part_of(ClusterRow)))),
    "fleet map": joined(STAMP, object_of(FleetMap)),
    "fleet import": obj(
        source=TEXT,
        digest=noted(TEXT, "SHA-256 over the files."),
        dry_run=DRY_RUN,
        revision=REVISION,
        counts=maps(COUNTS, "By sheet."),
        differences=many(DIFFERENCE, "Rows of history are counted, not listed."),
        warnings=many(TEXT),
    ),
    "fleet export": obj(path=TEXT, revision=REVISION, rows=maps(INTEGER, "By sheet.")),
}
