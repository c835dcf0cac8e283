"""A second import is a diff: it shows what it changes, changes nothing else, and never drops what was."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from plimsoll.fleet.decide import ImportPlan
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase, PoolKey, Service
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.health.fold import Health
from plimsoll.quota.fold import QuotaBook
from plimsoll.rooms import SHEETS
from plimsoll.state.state import State
from plimsoll.workloads.fold_tables import Workloads
from tests.support.fleets import Rows, nodes, row, write_fleet
from tests.support.imports import NOW, Importer, full_fleet

NOT_IN = "not in after"
Differences = dict[tuple[str, str], tuple[str, dict[str, str | None]]]


class Case(NamedTuple):
    """What stands in the second folder instead, and what the import says of it."""

    sheets: dict[str, Rows]
    want: Differences


LION = {"cluster": "lion"}
BEFORE: dict[str, Rows] = {
    "clusters": [row("clusters", serves="api"), row("clusters", **LION)],
    "nodes": [*nodes(4), *nodes(2, prefix="lion-", island="lion-a", **LION)],
    "quotas": [row("quotas"), row("quotas", team="graders", gpus="8")],
    "workloads": [row("workloads"), row("workloads", workload="run-2", kind="elastic")],
    "history": [row("history")],
}
CASES = {
    "nothing changed": Case({}, {}),
    "rows stand in another order": Case({name: list(rows)[::-1] for name, rows in BEFORE.items()}, {}),
    "a cluster's phase, colo and labels changed": Case(
        {
            "clusters": [
                row("clusters", phase="provisioned", colo="", owner="ann"),
                row("clusters", **LION),
            ]
        },
        {
            ("clusters", "tiger"): (
                "changed",
                {"phase": "production", "colo": "colo-1", "labels.owner": None, "labels.serves": "api"},
            )
        },
    ),
    "a node went to repair": Case(
        {
            "nodes": [
                row("nodes", service="repair", since="2026-01-19T08:00:00Z", reason="xid 79"),
                *nodes(4)[1:],
                *nodes(2, prefix="lion-", island="lion-a", **LION),
            ]
        },
        {("nodes", "n1"): ("changed", {"service": "in_service", "since": None, "reason": ""})},
    ),
    "a node is new": Case(
        {"nodes": [*nodes(5), *nodes(2, prefix="lion-", island="lion-a", **LION)]},
        {("nodes", "n5"): ("added", {})},
    ),
    "a node is gone": Case(
        {"nodes": [*nodes(3), *nodes(2, prefix="lion-", island="lion-a", **LION)]},
        {("nodes", "n4"): ("removed", {"service": "in_service", "since": None, "reason": ""})},
    ),
    "a cluster is gone with its nodes": Case(
        {"clusters": [row("clusters", serves="api")], "nodes": nodes(4)},
        {
            ("clusters", "lion"): ("removed", {"phase": "production"}),
            ("nodes", "lion-1"): ("removed", {"service": "in_service", "since": None, "reason": ""}),
            ("nodes", "lion-2"): ("removed", {"service": "in_service", "since": None, "reason": ""}),
        },
    ),
    "a quota was raised, one is gone and one is new": Case(
        {"quotas": [row("quotas", gpus="24"), row("quotas", team="voice")]},
        {
            ("quotas", "evals tiger H200"): ("changed", {"gpus": "16"}),
            ("quotas", "voice tiger H200"): ("added", {}),
            ("quotas", "graders tiger H200"): ("removed", {"gpus": "8"}),
        },
    ),
    "a quota was set to zero": Case(
        {"quotas": [row("quotas"), row("quotas", team="graders", gpus="0")]},
        {("quotas", "graders tiger H200"): ("removed", {"gpus": "8"})},
    ),
    "a workload grew and one is gone": Case(
        {"workloads": [row("workloads", gpus="16", idle_gpus="4")]},
        {
            ("workloads", "run-1"): ("changed", {"parts": "gang high 1: 8 H200 in tiger-a, 0 idle"}),
            ("workloads", "run-2"): ("removed", {}),
        },
    ),
    "a workload went to another team": Case(
        {"workloads": [row("workloads", team="voice"), row("workloads", workload="run-2", kind="elastic")]},
        {("workloads", "run-1"): ("changed", {"team": "evals"})},
    ),
}


def before(tmp_path: Path) -> Importer:
    importer = Importer()
    importer.bring(write_fleet(tmp_path / "before", **BEFORE))
    return importer


@pytest.mark.parametrize("sentence", CASES)
def test_a_second_import_shows_what_it_changes(sentence: str, tmp_path: Path) -> None:
    sheets, want = CASES[sentence]
    importer = before(tmp_path)
    head = importer.head
    after = write_fleet(tmp_path / "after", **(BEFORE | sheets))

    dry = importer.differences(after, is_dry_run=True)
    assert importer.head == head
    assert importer.differences(after) == dry == want
    # An event for each difference and one that they belong to; none where nothing changed.
    assert importer.head.revision == head.revision + (len(want) + 1 if want else 0)
    assert importer.differences(after) == {}


def test_a_node_that_is_gone_is_retired_and_its_past_stays(tmp_path: Path) -> None:
    importer = before(tmp_path)
    importer.bring(write_fleet(tmp_path / "after", **(BEFORE | {"nodes": nodes(4)[1:], "clusters": [row("clusters")]})))
    node = importer.node("n1")
    assert (node.service, node.since, node.reason) == (Service.RETIRED, NOW, NOT_IN)
    assert {pool: count.nodes for pool, count in importer.of(Fleet).pools.items()} == {PoolKey("tiger", "H200"): 3}
    assert importer.sheets()["history"][1:] == [
        ["2026-01-05T11:00:00Z", "n1", "repair", "xid 79"],
        ["2026-01-20T12:00:00Z", "lion-1", "retired", NOT_IN],
        ["2026-01-20T12:00:00Z", "lion-2", "retired", NOT_IN],
        ["2026-01-20T12:00:00Z", "n1", "retired", NOT_IN],
    ]
    assert importer.of(Fleet).clusters["lion"].phase is Phase.RETIRED
    past = importer.keeper.as_of(14)
    assert past.of(Fleet).nodes["n1"].service is Service.IN_SERVICE


def test_a_node_that_comes_back_is_itself_again(tmp_path: Path) -> None:
    importer = before(tmp_path)
    importer.bring(write_fleet(tmp_path / "after", **(BEFORE | {"nodes": nodes(3)})))
    importer.now = NOW.replace(hour=18)
    differences = importer.differences(write_fleet(tmp_path / "again", **BEFORE))
    assert differences["nodes", "n4"][0] == "changed"
    assert importer.node("n4").service is Service.IN_SERVICE
    assert [cells[0::2] for cells in importer.sheets()["history"] if cells[1] == "n4"] == [
        ["2026-01-20T12:00:00Z", "retired"],
        ["2026-01-20T18:00:00Z", "in_service"],
    ]


@pytest.mark.parametrize("sheet", ["quotas", "workloads", "history"])
def test_an_optional_file_that_is_missing_changes_nothing(sheet: str, tmp_path: Path) -> None:
    importer = before(tmp_path)
    after = write_fleet(tmp_path / "after", **{name: rows for name, rows in BEFORE.items() if name != sheet})
    plan = importer.bring(after)
    assert not plan.is_change
    assert sheet not in plan.counts()


def test_history_that_is_left_out_is_not_removed(tmp_path: Path) -> None:
    importer = before(tmp_path)
    history = importer.sheets()["history"]
    assert not importer.bring(write_fleet(tmp_path / "after", **(BEFORE | {"history": []}))).is_change
    assert importer.sheets()["history"] == history


PARTIAL: dict[str, tuple[dict[str, Rows], Differences]] = {
    "one node of one cluster": (
        {"clusters": [row("clusters", **LION)], "nodes": [row("nodes", node="lion-3", island="lion-a", **LION)]},
        {("nodes", "lion-3"): ("added", {})},
    ),
    "a node of a cluster that only the database knows": (
        {"clusters": [], "nodes": [row("nodes", service="draining")]},
        {("nodes", "n1"): ("changed", {"service": "in_service"})},
    ),
    "one quota": (
        {"clusters": [], "nodes": [], "quotas": [row("quotas", gpus="24")]},
        {("quotas", "evals tiger H200"): ("changed", {"gpus": "16"})},
    ),
    "one workload, which gives back what it held": (
        {"clusters": [], "nodes": [], "workloads": [row("workloads", gpus="24")]},
        {("workloads", "run-1"): ("changed", {"parts": "gang high 1: 8 H200 in tiger-a, 0 idle"})},
    ),
}


@pytest.mark.parametrize("sentence", PARTIAL)
def test_a_part_of_the_fleet_leaves_the_rest_alone(sentence: str, tmp_path: Path) -> None:
    sheets, want = PARTIAL[sentence]
    importer = before(tmp_path)
    after = write_fleet(tmp_path / "after", **sheets)
    assert importer.differences(after, is_partial=True) == want
    assert len(importer.of(Fleet).clusters) == 2


PARTIAL_BAD: dict[str, tuple[dict[str, Rows], str, str]] = {
    "an island that the database has in another cluster": (
        {"clusters": [], "nodes": [row("nodes", node="n9", island="lion-a")]},
        "island",
        "an island of cluster tiger: the database has it in cluster lion"
        " (--local-islands if names are unique in their cluster only)",
    ),
    "another number of GPUs than the pool has in the database": (
        {"clusters": [], "nodes": [row("nodes", node="n9", gpus="4")]},
        "gpus",
        "8 as in the database: all H200 nodes of cluster tiger have the same number",
    ),
    "work that does not fit beside what stays": (
        {"clusters": [], "nodes": [], "workloads": [row("workloads", workload="run-3", gpus="24")]},
        "gpus",
        "at most 16 GPUs: island tiger-a has 32 of H200, 16 are taken by other work",
    ),
}


@pytest.mark.parametrize("sentence", PARTIAL_BAD)
def test_a_part_of_the_fleet_must_fit_the_rest(sentence: str, tmp_path: Path) -> None:
    sheets, want_column, want_expected = PARTIAL_BAD[sentence]
    importer = before(tmp_path)
    found = importer.problems(write_fleet(tmp_path / "after", **sheets), is_partial=True)
    assert [(each["row"], each["column"], each["expected"]) for each in found] == [(2, want_column, want_expected)]


class Guard(NamedTuple):
    """How many nodes of how many are left."""

    present: int
    left: int
    want_refused: bool


GUARD = {
    "half of the fleet is gone": Guard(40, 20, want_refused=False),
    "more than half is gone": Guard(40, 19, want_refused=True),
    "all of a small fleet is gone": Guard(19, 0, want_refused=False),
    "all of a fleet of twenty is gone": Guard(20, 0, want_refused=True),
}


@pytest.mark.parametrize("sentence", GUARD)
def test_most_of_a_fleet_is_not_retired_by_mistake(sentence: str, tmp_path: Path) -> None:
    present, left, want_refused = GUARD[sentence]
    importer = Importer()
    importer.bring(write_fleet(tmp_path / "before", nodes=nodes(present)))
    after = write_fleet(tmp_path / "after", nodes=nodes(left))
    if not want_refused:
        assert importer.bring(after).counts()["nodes"]["removed"] == present - left
        return
    error = importer.refused(after)
    assert error.code == "mass_removal"
    assert error.message == (f"this import would retire {present - left} of {present} nodes; nothing was imported")
    assert "--partial" in error.next_step
    dry = importer.bring(after, is_dry_run=True)
    assert dry.warnings == [f"without --dry-run: {error.message}; next: {error.next_step}"]
    assert not importer.bring(after, is_partial=True).is_change
    assert importer.bring(after, is_removal_allowed=True).counts()["nodes"]["removed"] == present - left


def test_nodes_that_are_retired_already_are_not_counted_again(tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(write_fleet(tmp_path / "all", nodes=nodes(60)))
    importer.bring(write_fleet(tmp_path / "half", nodes=nodes(30)))
    error = importer.refused(write_fleet(tmp_path / "few", nodes=nodes(10)))
    assert error.message == "this import would retire 20 of 30 nodes; nothing was imported"


def test_an_island_whose_old_nodes_are_retired_may_move_to_another_cluster(tmp_path: Path) -> None:
    both = [row("clusters"), row("clusters", **LION)]
    importer = Importer()
    importer.bring(write_fleet(tmp_path / "1", clusters=both, nodes=nodes(2, island="x")))
    importer.bring(write_fleet(tmp_path / "2", clusters=both, nodes=[row("nodes", island="x", **LION)]))
    assert dict(importer.of(Fleet).island_cluster) == {"x": "lion"}
    exported = importer.export(tmp_path / "out")
    assert not importer.bring(exported).is_change
    fresh = Importer()
    fresh.bring(exported)
    assert dict(fresh.of(Fleet).island_cluster) == {"x": "lion"}


def test_a_snapshot_gives_the_same_islands_as_the_events(tmp_path: Path) -> None:
    both = [row("clusters"), row("clusters", **LION)]
    importer = Importer()
    importer.bring(write_fleet(tmp_path / "1", clusters=both, nodes=nodes(3, island="x")))
    importer.bring(write_fleet(tmp_path / "2", clusters=both, nodes=[row("nodes", island="x", **LION)]))
    loaded = State(importer.keeper.kinds)
    loaded.load(importer.state.dump())
    for table in ("pools", "islands", "island_cluster", "island_nodes"):
        assert getattr(loaded.of(Fleet), table) == getattr(importer.of(Fleet), table), table


def test_quotas_of_a_pool_that_lost_its_nodes_stay_and_are_said_to_have_nothing_behind_them(tmp_path: Path) -> None:
    importer = before(tmp_path)
    lion_only = {"clusters": [row("clusters", **LION)], "nodes": nodes(2, prefix="lion-", island="lion-a", **LION)}
    want = (
        "24 GPUs of quota are in retired clusters or pools without nodes, such as 16 H200 of"
        " evals in tiger: nothing stands behind them; take them out of quotas.csv"
    )
    plan = importer.bring(write_fleet(tmp_path / "after", **lion_only, workloads=[]))
    assert plan.warnings == [want]
    assert dict(importer.of(QuotaBook).assigned) == {PoolKey("tiger", "H200"): 24}
    exported = importer.export(tmp_path / "out")
    again = importer.bring(exported)
    assert (again.is_change, again.warnings) == (False, [want])
    assert Importer().bring(exported).warnings == [want]


def test_work_whose_island_shrank_under_it_gives_up_what_is_gone(tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(
        write_fleet(
            tmp_path / "before",
            nodes=nodes(4),
            workloads=[
                row("workloads", gpus="16"),
                row("workloads", workload="graders", kind="elastic", gpus="12", idle_gpus="2"),
            ],
        )
    )
    # 32 GPUs carry 28; 24 are left, so the elastic part gives up 4 of its 12.
    plan = importer.bring(write_fleet(tmp_path / "after", nodes=nodes(3)))
    assert plan.counts()["workloads"] == {"added": 0, "changed": 1, "removed": 0, "same": 0}
    assert plan.warnings == ["workload graders held 4 GPUs that are no longer installed: they were taken off it"]
    held = {name: sum(part.gpus for part in work.parts) for name, work in importer.of(Workloads).workloads.items()}
    assert held == {"graders": 8, "run-1": 16}
    assert not importer.bring(importer.export(tmp_path / "out")).is_change


class Rival:
    """Another process that imports between our reading and our writing."""

    def __init__(self, importer: Importer, folder: Path) -> None:
        self.importer, self.folder = importer, folder
        self.reads = 0

    def rows(self, source: str, count: int) -> None:
        assert (source, count) == ("nodes.csv", 1000)
        self.reads += 1
        if self.reads == 1:
            self.importer.bring(self.folder)


def test_two_imports_at_once_end_as_one_after_the_other(tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    first, second = Importer(dsn), Importer(dsn)
    first.bring(write_fleet(tmp_path / "before", nodes=nodes(1000)))
    rival = Rival(second, write_fleet(tmp_path / "rival", nodes=nodes(1001, reason="rival")))
    ours = write_fleet(tmp_path / "ours", nodes=nodes(1000, reason="ours"))

    source = Source.of_path(ours, SHEETS).watched(rival.rows)
    plan, revision = import_fleet(first.keeper, source, SHEETS, actor="tester")

    assert rival.reads == 2, "the plan was made again on what the rival left"
    assert plan.counts()["nodes"] == {"added": 0, "changed": 1000, "removed": 1, "same": 0}
    assert first.node("n1001").service is Service.RETIRED
    assert {node.reason for node in first.of(Fleet).nodes.values()} == {"ours", "not in ours"}
    assert first.head.revision == revision
    assert second.sheets() == first.sheets()


def test_a_dry_run_keeps_nothing_and_says_the_same(tmp_path: Path) -> None:
    importer = Importer()
    folder = full_fleet(tmp_path)
    dry: ImportPlan = importer.bring(folder, is_dry_run=True)
    assert importer.head.revision == 0
    assert importer.of(Fleet).nodes == {}
    assert importer.of(Health).timelines == {}
    assert importer.bring(folder).counts() == dry.counts()


def test_timelines_are_the_same_after_a_snapshot(tmp_path: Path) -> None:
    importer = before(tmp_path)
    loaded: Any = State(importer.keeper.kinds)
    loaded.load(importer.state.dump())
    assert loaded.of(Health).timelines == importer.of(Health).timelines
    assert loaded.dump() == importer.state.dump()
