"""Random fleets that are valid: clusters, islands, SKUs, labels, quotas, work and history, as rows of a folder."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from plimsoll.times import show_time
from tests.support.fleets import HEADERS, write_csv
from tests.support.imports import NOW, SKUS

Row = dict[str, str]
Sheets = dict[str, list[Row]]
Draw = Callable[[st.SearchStrategy[Any]], Any]

SERVICES = ["in_service", "draining", "quarantined", "maintenance", "repair", "validating", "joining", "retired"]
LETTERS = st.characters(min_codepoint=32, max_codepoint=0x2FFF).filter(str.isprintable)
TEXT = st.text(LETTERS, max_size=12).map(str.strip)
NAME = TEXT.filter(bool)
PLAIN_NAME = NAME.filter(lambda name: "/" not in name)
MOMENT = st.integers(1, 10**12).map(lambda microseconds: show_time(NOW - timedelta(microseconds=microseconds)))
MAYBE_MOMENT = st.sampled_from(["", "", "2026-01-05T11:00:00Z"]) | MOMENT
GPUS = st.sampled_from([1, 4, 8])


@st.composite
def fleets(draw: Draw) -> Sheets:
    """The sheets of a small fleet. Labels are named `x…`, so that they are never a column of their sheet."""
    names = draw(st.lists(PLAIN_NAME, min_size=1, max_size=3, unique=True))
    skus = draw(st.lists(NAME, min_size=1, max_size=3, unique=True))
    clusters = [
        {
            "cluster": name,
            "region": draw(NAME),
            "area": draw(st.sampled_from(["us", "eu", "uk", "other"])),
            "colo": draw(TEXT),
            "provider": draw(TEXT),
            "purpose": draw(st.sampled_from(["research", "applied"])),
            "phase": draw(st.sampled_from(["planned", "provisioning", "provisioned", "production", "retired"])),
        }
        for name in names
    ]
    nodes = draw(node_rows(names, skus))
    sheets = {
        "clusters": clusters,
        "nodes": nodes,
        "quotas": draw(quota_rows(nodes)),
        "workloads": draw(workload_rows(nodes)),
        "history": draw(history_rows(nodes)),
        "skus": [{"sku": sku, "a100e": str(draw(st.integers(1, 10**6)) / 1000)} for sku in draw(some_of(skus))],
    }
    for sheet in ("clusters", "nodes", "quotas", "skus"):
        for row in sheets[sheet]:
            row |= draw(labels())
    return sheets


def some_of(values: list[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), unique=True) if values else st.just([])


def labels() -> st.SearchStrategy[Row]:
    return st.dictionaries(st.sampled_from(["x rack", "xüber", "x,y"]), TEXT, max_size=2)


@st.composite
def node_rows(draw: Draw, clusters: list[str], skus: list[str]) -> list[Row]:
    """Islands belong to one cluster, and the nodes of a pool are alike."""
    islands = draw(st.lists(NAME, min_size=1, max_size=4, unique=True))
    home = {island: draw(st.sampled_from(clusters)) for island in islands}
    gpus = {(cluster, sku): draw(GPUS) for cluster in clusters for sku in skus}
    rows = []
    for name in draw(st.lists(PLAIN_NAME, max_size=8, unique=True)):
        island, sku = draw(st.sampled_from(islands)), draw(st.sampled_from(skus))
        rows.append(
            {
                "node": name,
                "cluster": home[island],
                "island": island,
                "sku": sku,
                "gpus": str(gpus[home[island], sku]),
                "service": draw(st.sampled_from(SERVICES)),
                "since": draw(MAYBE_MOMENT),
                "reason": draw(TEXT),
            }
        )
    return rows


@st.composite
def quota_rows(draw: Draw, nodes: list[Row]) -> list[Row]:
    pools = sorted({(row["cluster"], row["sku"], row["gpus"]) for row in nodes})
    keys = draw(st.lists(st.tuples(NAME, st.sampled_from(pools)), max_size=4, unique=True)) if pools else []
    return [
        {"team": team, "cluster": cluster, "sku": sku, "gpus": str(int(gpus) * draw(st.integers(1, 40)))}
        for team, (cluster, sku, gpus) in keys
    ]


@st.composite
def workload_rows(draw: Draw, nodes: list[Row]) -> list[Row]:
    """Work that fits: each row takes a part of what its island has left; the last may leave its island open."""
    left: dict[tuple[str, str, str], int] = {}
    for row in nodes:
        if row["service"] != "retired":
            key = row["cluster"], row["island"], row["sku"]
            left[key] = left.get(key, 0) + int(row["gpus"])
    rows: list[Row] = []
    for number in range(draw(st.integers(0, 5))):
        room = sorted(key for key, gpus in left.items() if gpus)
        if not room:
            break
        cluster, island, sku = key = draw(st.sampled_from(room))
        gpus = draw(st.integers(1, left[key]))
        left[key] -= gpus
        kind = draw(st.sampled_from(["gang", "elastic", "anywhere"]))
        rows.append(
            {
                "workload": f"run {number}",
                "team": draw(NAME),
                "cluster": cluster,
                "island": "" if kind == "anywhere" else island,
                "sku": sku,
                "gpus": str(gpus),
                "kind": "gang" if kind == "gang" else "elastic",
                "tier": draw(st.sampled_from(["critical", "high", "mid", "low"])),
                "rank": str(draw(st.integers(1, 3))),
                "idle_gpus": str(draw(st.integers(0, gpus))),
            }
            | draw(labels())
        )
    return rows


@st.composite
def history_rows(draw: Draw, nodes: list[Row]) -> list[Row]:
    """Transitions in any order; some at the very moment that a node names itself."""
    rows = [
        {
            "time": node["since"] or draw(MOMENT) if draw(st.booleans()) else draw(MOMENT),
            "node": node["node"],
            "service": draw(st.sampled_from([*SERVICES, node["service"]])),
            "reason": draw(st.sampled_from(["", node["reason"]]) | TEXT),
        }
        for node in (draw(st.lists(st.sampled_from(nodes), max_size=8)) if nodes else [])
    ]
    once = {(row["time"], row["node"], row["service"], row["reason"]): row for row in rows}
    return [row | draw(labels()) for row in once.values()]


def write_sheets(folder: Path, sheets: Sheets) -> Path:
    """As CSV files; labels are columns after the sheet's own."""
    folder.mkdir(parents=True)
    for name, rows in sheets.items():
        header = HEADERS.get(name, SKUS)
        extra = sorted({column for row in rows for column in row} - {*header})
        write_csv(folder / f"{name}.csv", [*header, *extra], rows)
    return folder
