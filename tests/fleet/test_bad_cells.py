"""A bad cell is refused with file, row, column, value and what was expected; nothing of the import is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.fleets import HEADERS, nodes, row, write_csv, write_fleet
from tests.support.imports import Importer, full_fleet, write_skus

SECOND: dict[str, dict[str, str]] = {
    "clusters": {"cluster": "lion"},
    "nodes": {"node": "n2"},
    "quotas": {"team": "graders"},
    "workloads": {"workload": "run-2"},
    "history": {"time": "2026-01-06T11:00:00Z"},
}
"""What tells the second row of a sheet from the first one, which is good."""

A_TIME = "a time such as 2026-01-05T11:00:00Z"
NOT_FUTURE = "a time that is not in the future (now is 2026-01-20T12:00:00Z)"
SERVICES = "one of in_service, draining, quarantined, maintenance, repair, validating, joining, retired"
GPUS_OF_NODE = "a whole number from 1 to 1024"


class Bad(NamedTuple):
    """A cell of a sheet's second row; `also` are other cells that the case needs."""

    column: str
    value: str
    want_expected: str
    also: dict[str, str] = {}
    want_column: str = ""
    want_value: str | None = None


CLUSTERS = {
    "a cluster has no name": Bad("cluster", "", "a name, found nothing"),
    "a cluster's name holds a slash": Bad("cluster", "lion/a", "a name without '/'"),
    "a cluster's name has 201 characters": Bad(
        "cluster", "x" * 201, "a name of at most 200 characters, found 201", want_value="x" * 100
    ),
    "a cluster's name rings a bell": Bad("cluster", "li\aon", "a name of printable characters"),
    "a cluster's name holds a space that doesn't break": Bad("cluster", "li\u00a0on", "a name of printable characters"),
    "a cluster is there twice": Bad("cluster", "tiger", "each only once; row 2 has it already"),
    "a cluster has no region": Bad("region", " ", "a name, found nothing", want_value=""),
    "an area is unknown": Bad("area", "asia", "one of us, eu, uk, other"),
    "an area is in capitals": Bad("area", "US", "one of us, eu, uk, other"),
    "a colo is two lines": Bad("colo", "hall 1\nhall 2", "one line of printable text"),
    "a provider has 2001 characters": Bad(
        "provider", "p" * 2001, "at most 2000 characters, found 2001", want_value="p" * 100
    ),
    "a purpose is unknown": Bad("purpose", "both", "one of research, applied"),
    "a phase is unknown": Bad("phase", "live", "one of planned, provisioning, provisioned, production, retired"),
}
NODES = {
    "a node has no name": Bad("node", "", "a name, found nothing"),
    "a node's name holds a slash": Bad("node", "rack/2", "a name without '/'"),
    "a node is there twice": Bad("node", "n1", "each only once; row 2 has it already"),
    "a node's cluster is unknown": Bad("cluster", "lion", "a cluster of the clusters sheet"),
    "a node has no cluster": Bad("cluster", "", "a name, found nothing"),
    "a node has no island": Bad("island", "", "a name, found nothing"),
    "a node has no SKU": Bad("sku", "", "a name, found nothing"),
    "a node's GPUs are not said": Bad("gpus", "", GPUS_OF_NODE),
    "a node has no GPU": Bad("gpus", "0", GPUS_OF_NODE),
    "a node has less than no GPU": Bad("gpus", "-8", GPUS_OF_NODE),
    "a node has half a GPU": Bad("gpus", "8.5", GPUS_OF_NODE),
    "a node has too many GPUs": Bad("gpus", "1025", GPUS_OF_NODE),
    "a node's GPUs are a word": Bad("gpus", "eight", GPUS_OF_NODE),
    "a node's GPUs are digits of another script": Bad("gpus", "٨", GPUS_OF_NODE),
    "a node's GPUs are a number of endless digits": Bad("gpus", "9" * 5000, GPUS_OF_NODE, want_value="9" * 100),
    "a node has other GPUs than its pool": Bad(
        "gpus", "4", "8 as in row 2: all H200 nodes of cluster tiger have the same number"
    ),
    "a service is unknown": Bad("service", "down", SERVICES),
    "a service is not said": Bad("service", "", SERVICES),
    "a since is a word": Bad("since", "yesterday", A_TIME),
    "a since has a day that is not": Bad("since", "2026-02-30", A_TIME),
    "a since is before the calendar begins in UTC": Bad("since", "0001-01-01T00:00:00+14:00", A_TIME),
    "a since is six minutes ahead": Bad("since", "2026-01-20T12:06:00Z", NOT_FUTURE),
    "a since is ahead in its own zone": Bad("since", "2026-01-20T12:30:00-05:00", NOT_FUTURE),
    "a reason holds a NUL": Bad("reason", "xid\x0079", "one line of printable text"),
}
QUOTAS = {
    "a team has no name": Bad("team", "", "a name, found nothing"),
    "a quota is there twice": Bad(
        "team", "evals", "each only once; row 2 has it already", want_value="evals tiger H200"
    ),
    "a quota's cluster is unknown": Bad("cluster", "lion", "a cluster of the clusters sheet"),
    "a quota's cluster has no such SKU": Bad("sku", "B300", "a SKU that cluster tiger has nodes of"),
    "a quota is negative": Bad("gpus", "-8", "a whole number from 0 to 10000000"),
    "a quota is not in whole nodes": Bad("gpus", "12", "whole nodes: a multiple of 8 GPUs"),
}
WORKLOADS = {
    "a workload has no name": Bad("workload", "", "a name, found nothing"),
    "a workload's name holds a slash": Bad("workload", "a/b", "a name without '/'"),
    "a workload has no team": Bad("team", "", "a name, found nothing"),
    "a workload's cluster is unknown": Bad("cluster", "lion", "a cluster of the clusters sheet"),
    "a workload's island is unknown": Bad("island", "tiger-z", "an island of cluster tiger"),
    "a workload's island has no such SKU": Bad("sku", "H100", "a SKU that island tiger-a has nodes of"),
    "a workload has no GPU": Bad("gpus", "0", "a whole number from 1 to 10000000"),
    "a gang is larger than what its island has left": Bad(
        "gpus", "32", "at most 24 GPUs: island tiger-a has 32 of H200, 8 are taken by other work"
    ),
    "elastic work is larger than what its cluster has left": Bad(
        "gpus", "25", "at most 24 GPUs: what cluster tiger has left of H200", also={"kind": "elastic", "island": ""}
    ),
    "a kind is unknown": Bad("kind", "batch", "one of gang, elastic"),
    "a tier is unknown": Bad("tier", "urgent", "one of critical, high, mid, low"),
    "a rank is zero": Bad("rank", "0", "a whole number from 1 to 1000000"),
    "more is idle than there is": Bad("idle_gpus", "9", "at most the 8 GPUs of the row"),
    "a gang is nowhere": Bad("island", "", "the island of the gang (only elastic work may leave it empty)"),
    "a part is there twice": Bad(
        "workload", "run-1", "each part once: row 2 has this one already; another rank for another part"
    ),
    "one workload has two teams": Bad(
        "team", "graders", "evals as in row 2: it is the same workload", also={"workload": "run-1", "rank": "2"}
    ),
    "one workload is in two clusters": Bad(
        "cluster", "lion", "tiger as in row 2: it is the same workload", also={"workload": "run-1", "rank": "2"}
    ),
}
HISTORY = {
    "a transition has no time": Bad("time", "", A_TIME),
    "a transition's time is a number": Bad("time", "1767611", A_TIME),
    "a transition is in the future": Bad("time", "2027-01-05T11:00:00Z", NOT_FUTURE),
    "a transition's node is unknown": Bad("node", "n9", "a node of the nodes sheet"),
    "a transition's service is unknown": Bad("service", "broken", SERVICES),
    "a transition's reason is two lines": Bad("reason", "xid\r\n79", "one line of printable text"),
}
CASES = {
    (sheet, sentence): bad
    for sheet, table in {
        "clusters": CLUSTERS,
        "nodes": NODES,
        "quotas": QUOTAS,
        "workloads": WORKLOADS,
        "history": HISTORY,
    }.items()
    for sentence, bad in table.items()
}


def problem(source: str, number: int, column: str, value: str, expected: str) -> dict[str, Any]:
    return {"source": source, "row": number, "column": column, "value": value, "expected": expected}


@pytest.mark.parametrize(("sheet", "sentence"), CASES)
def test_a_bad_cell_is_named_and_nothing_is_kept(sheet: str, sentence: str, tmp_path: Path) -> None:
    bad = CASES[sheet, sentence]
    first = nodes(4) if sheet == "workloads" else [row("nodes")]
    rows = {"nodes": first} | {sheet: [row(sheet), row(sheet, **(SECOND[sheet] | bad.also | {bad.column: bad.value}))]}
    folder = full_fleet(tmp_path / "fleet", **rows)
    importer = Importer()
    importer.bring(write_fleet(tmp_path / "before"))

    error = importer.refused(folder)

    want = problem(
        f"{sheet}.csv",
        3,
        bad.want_column or bad.column,
        bad.value if bad.want_value is None else bad.want_value,
        bad.want_expected,
    )
    assert error.fields["problems"] == [want]
    assert error.message == (
        "fleet has 1 problem; nothing was imported\n"
        f"  {sheet}.csv row 3 column {want['column']}: {want['value']!r}, expected {bad.want_expected}"
    )
    assert error.next_step == "correct the rows and import again"


SKUS = {
    "a SKU has no name": ("", "1", "sku", "a name, found nothing"),
    "a weight is nothing": ("B300", "", "a100e", "a weight over 0 and up to 10,000, such as 3.2"),
    "a weight is zero": ("B300", "0", "a100e", "a weight over 0 and up to 10,000, such as 3.2"),
    "a weight is not a number": ("B300", "nan", "a100e", "a weight over 0 and up to 10,000, such as 3.2"),
    "a weight is endless": ("B300", "inf", "a100e", "a weight over 0 and up to 10,000, such as 3.2"),
    "a weight is written as in a program": ("B300", "1_0", "a100e", "a weight over 0 and up to 10,000, such as 3.2"),
    "a weight is beyond belief": ("B300", "1e9", "a100e", "a weight over 0 and up to 10,000, such as 3.2"),
    "a SKU is there twice": ("GB300", "9", "sku", "each only once; row 2 has it already"),
}


@pytest.mark.parametrize("sentence", SKUS)
def test_a_bad_weight_is_named_and_nothing_is_kept(sentence: str, tmp_path: Path) -> None:
    sku, weight, want_column, want_expected = SKUS[sentence]
    folder = write_skus(write_fleet(tmp_path), [{"sku": "GB300", "a100e": "8.5"}, {"sku": sku, "a100e": weight}])
    want_value = weight if want_column == "a100e" else sku
    assert Importer().problems(folder) == [problem("skus.csv", 3, want_column, want_value, want_expected)]


def test_a_label_that_is_not_one_line_is_named(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path, nodes=[row("nodes", rack="r1"), row("nodes", node="n2", rack="r\x1b2")])
    want = [problem("nodes.csv", 3, "rack", "r\x1b2", "one line of printable text")]
    assert Importer().problems(folder) == want


def test_bad_cells_of_all_sheets_and_columns_are_listed_together(tmp_path: Path) -> None:
    folder = full_fleet(
        tmp_path,
        clusters=[row("clusters", area="asia", phase="live"), row("clusters", cluster="lion", purpose="none")],
        nodes=[row("nodes", gpus="x"), row("nodes", node="n2", service="down", since="soon")],
        quotas=[row("quotas", gpus="many")],
        workloads=[row("workloads", tier="top")],
        history=[row("history", time="then")],
    )
    found = [(each["source"], each["row"], each["column"]) for each in Importer().problems(folder)]
    assert found == [
        ("clusters.csv", 2, "area"),
        ("clusters.csv", 2, "phase"),
        ("clusters.csv", 3, "purpose"),
        ("nodes.csv", 2, "gpus"),
        ("nodes.csv", 3, "service"),
        ("nodes.csv", 3, "since"),
        ("quotas.csv", 2, "gpus"),
        ("workloads.csv", 2, "tier"),
        ("history.csv", 2, "time"),
    ]


def test_fifty_problems_are_listed_and_the_rest_is_counted(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path / "fleet", nodes=nodes(1203, gpus="x"))
    error = Importer().refused(folder)
    listed = error.fields["problems"]
    assert isinstance(listed, list)
    assert (len(listed), error.fields["problem_count"]) == (50, 1203)
    lines = error.message.splitlines()
    assert lines[0] == "fleet has 1,203 problems; nothing was imported"
    assert lines[50] == "  nodes.csv row 51 column gpus: 'x', expected a whole number from 1 to 1024"
    assert lines[51:] == ["  … and 1,153 more"]


ONE_BAD_ROW = {
    "a bad cluster row does not make its nodes, quotas and work bad": (
        {"clusters": [row("clusters", area="asia")]},
        [("clusters.csv", 2, "area")],
    ),
    "a cluster there twice does not make its nodes bad": (
        {"clusters": [row("clusters"), row("clusters")]},
        [("clusters.csv", 3, "cluster")],
    ),
    "a bad node row does not make its history, quotas and work bad": (
        {"nodes": [row("nodes", gpus="x")]},
        [("nodes.csv", 2, "gpus")],
    ),
    "a node there twice does not make its work bad": (
        {"nodes": [*nodes(4), row("nodes")]},
        [("nodes.csv", 6, "node")],
    ),
}


@pytest.mark.parametrize("sentence", ONE_BAD_ROW)
def test_one_bad_row_is_one_problem(sentence: str, tmp_path: Path) -> None:
    sheets, want = ONE_BAD_ROW[sentence]
    found = Importer().problems(full_fleet(tmp_path, **sheets))
    assert [(each["source"], each["row"], each["column"]) for each in found] == want


def test_an_island_in_two_clusters_is_refused_with_both_rows(tmp_path: Path) -> None:
    folder = write_fleet(
        tmp_path,
        clusters=[row("clusters"), row("clusters", cluster="lion")],
        nodes=[row("nodes"), row("nodes", node="n2"), row("nodes", node="n3", cluster="lion")],
    )
    want_expected = (
        "an island of cluster lion: row 2 has it in cluster tiger"
        " (--local-islands if names are unique in their cluster only)"
    )
    assert Importer().problems(folder) == [problem("nodes.csv", 4, "island", "tiger-a", want_expected)]


def test_one_transition_told_twice_with_other_extra_columns_is_refused(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path, history=[row("history", ticket="a"), row("history", ticket="b")])
    want_expected = "the same extra columns as in row 2: it is the same transition"
    assert Importer().problems(folder) == [problem("history.csv", 3, "node", "n1", want_expected)]


def test_a_row_that_begins_above_its_bad_cell_is_named_by_its_first_line(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path)
    write_csv(
        folder / "nodes.csv",
        HEADERS["nodes"],
        [row("nodes", reason="one\ntwo\nthree"), row("nodes", node="n2", gpus="x")],
    )
    found = [(each["row"], each["column"]) for each in Importer().problems(folder)]
    assert found == [(2, "reason"), (5, "gpus")]
