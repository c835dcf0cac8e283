"""Builders of fleet folders: the defaults are valid, so that a test says only what it is about."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

CLUSTERS = ["cluster", "region", "area", "colo", "provider", "purpose", "phase"]
NODES = ["node", "cluster", "island", "sku", "gpus", "service", "since", "reason"]
QUOTAS = ["team", "cluster", "sku", "gpus"]
WORKLOADS = ["workload", "team", "cluster", "island", "sku", "gpus", "kind", "tier", "rank", "idle_gpus"]
HISTORY = ["time", "node", "service", "reason"]
HEADERS = {"clusters": CLUSTERS, "nodes": NODES, "quotas": QUOTAS, "workloads": WORKLOADS, "history": HISTORY}

_DEFAULTS: dict[str, dict[str, str]] = {
    "clusters": {
        "cluster": "tiger",
        "region": "us-north",
        "area": "us",
        "colo": "colo-1",
        "provider": "acme",
        "purpose": "research",
        "phase": "production",
    },
    "nodes": {
        "node": "n1",
        "cluster": "tiger",
        "island": "tiger-a",
        "sku": "H200",
        "gpus": "8",
        "service": "in_service",
        "since": "",
        "reason": "",
    },
    "quotas": {"team": "evals", "cluster": "tiger", "sku": "H200", "gpus": "16"},
    "workloads": {
        "workload": "run-1",
        "team": "evals",
        "cluster": "tiger",
        "island": "tiger-a",
        "sku": "H200",
        "gpus": "8",
        "kind": "gang",
        "tier": "high",
        "rank": "1",
        "idle_gpus": "0",
    },
    "history": {"time": "2026-01-05T11:00:00Z", "node": "n1", "service": "repair", "reason": "xid 79"},
}

Rows = Iterable[Mapping[str, str]]


def row(sheet: str, **cells: str) -> dict[str, str]:
    """A valid row of a sheet, with these cells changed."""
    return _DEFAULTS[sheet] | cells


def nodes(count: int, *, prefix: str = "n", **cells: str) -> list[dict[str, str]]:
    """Nodes `n1`, `n2`, … that are alike."""
    return [row("nodes", node=f"{prefix}{number}", **cells) for number in range(1, count + 1)]


def write_fleet(folder: Path, **sheets: Rows) -> Path:
    """Write the given sheets as CSV; `clusters` and `nodes` default to one cluster with four nodes."""
    folder.mkdir(parents=True, exist_ok=True)
    sheets = {"clusters": [row("clusters")], "nodes": nodes(4)} | sheets
    for name, rows in sheets.items():
        listed = list(rows)
        extra = [column for cells in listed for column in cells if column not in HEADERS[name]]
        write_csv(folder / f"{name}.csv", [*HEADERS[name], *dict.fromkeys(extra)], listed)
    return folder


def write_csv(path: Path, header: Sequence[str], rows: Rows) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, header, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
