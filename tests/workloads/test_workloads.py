"""What runs, as `workloads.csv` tells it: parts, blocks, and islands that carry at most what is installed in them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from plimsoll.fleet.model import IslandKey
from plimsoll.ledger.model import Draft
from plimsoll.quota.model import Kind, Tier
from plimsoll.state.state import State
from plimsoll.workloads.changes import WorkloadPlaced
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.model import Because, Block, Part, PartPlaced, Workload
from plimsoll.workloads.shape import named
from plimsoll.workloads.sheet import as_seen
from tests.support.fleets import Rows, nodes, row, write_fleet
from tests.support.imports import Importer, contents

TWO_ISLANDS = [*nodes(4), *nodes(2, prefix="b", island="tiger-b")]
ELASTIC = {"kind": "elastic"}


def work(**cells: str) -> dict[str, str]:
    return row("workloads", **cells)


class Case(NamedTuple):
    """Rows of one workload, and its parts."""

    rows: Rows
    want: tuple[Part, ...]


CASES = {
    "a gang is one block": Case([work(gpus="16")], (Part(Kind.GANG, Tier.HIGH, 1, "H200", (Block("tiger-a", 16),)),)),
    "two gangs of one workload are two parts, the first rank first": Case(
        [work(rank="2"), work(rank="1", gpus="16")],
        (
            Part(Kind.GANG, Tier.HIGH, 1, "H200", (Block("tiger-a", 16),)),
            Part(Kind.GANG, Tier.HIGH, 2, "H200", (Block("tiger-a", 8),)),
        ),
    ),
    "an elastic part may be in several islands": Case(
        [work(island="tiger-b", gpus="3", **ELASTIC), work(island="tiger-a", gpus="5", idle_gpus="1", **ELASTIC)],
        (Part(Kind.ELASTIC, Tier.HIGH, 1, "H200", (Block("tiger-a", 5, 1), Block("tiger-b", 3))),),
    ),
    "rows whose extra columns differ keep each their own": Case(
        [work(island="tiger-a", url="a", **ELASTIC), work(island="tiger-b", url="b", **ELASTIC)],
        (
            Part(Kind.ELASTIC, Tier.HIGH, 1, "H200", (Block("tiger-a", 8),), labels={"url": "a"}),
            Part(Kind.ELASTIC, Tier.HIGH, 1, "H200", (Block("tiger-b", 8),), labels={"url": "b"}),
        ),
    ),
    "elastic work without an island goes where it stands least in the way": Case(
        [work(island="", gpus="16", **ELASTIC)],
        (Part(Kind.ELASTIC, Tier.HIGH, 1, "H200", (Block("tiger-b", 16),), is_assumed=True),),
    ),
    "elastic work without an island takes what named islands leave": Case(
        [work(island="", gpus="16", rank="1", **ELASTIC), work(island="tiger-b", rank="2", gpus="8")],
        (
            Part(Kind.ELASTIC, Tier.HIGH, 1, "H200", (Block("tiger-a", 16),), is_assumed=True),
            Part(Kind.GANG, Tier.HIGH, 2, "H200", (Block("tiger-b", 8),)),
        ),
    ),
    "elastic work too big for one island is spread": Case(
        [work(island="", gpus="40", idle_gpus="33", **ELASTIC)],
        (
            Part(
                Kind.ELASTIC, Tier.HIGH, 1, "H200", (Block("tiger-a", 32, 32), Block("tiger-b", 8, 1)), is_assumed=True
            ),
        ),
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_rows_become_parts(sentence: str, tmp_path: Path) -> None:
    rows, want = CASES[sentence]
    importer = Importer()
    importer.bring(write_fleet(tmp_path / "in", nodes=TWO_ISLANDS, workloads=rows))
    assert dict(importer.of(Workloads).workloads) == {"run-1": named(Workload("run-1", "evals", "tiger", want))}


@pytest.mark.parametrize("sentence", CASES)
def test_the_order_of_rows_and_a_round_by_export_change_nothing(sentence: str, tmp_path: Path) -> None:
    rows = list(CASES[sentence].rows)
    importer = Importer()
    importer.bring(write_fleet(tmp_path / "in", nodes=TWO_ISLANDS, workloads=rows))
    backwards = write_fleet(tmp_path / "backwards", nodes=TWO_ISLANDS[::-1], workloads=rows[::-1])
    assert not importer.bring(backwards).is_change
    exported = importer.export(tmp_path / "out")
    assert not importer.bring(exported).is_change
    heir = Importer()
    heir.bring(exported)
    assert heir.of(Workloads).workloads == importer.of(Workloads).workloads
    assert contents(heir.export(tmp_path / "again")) == contents(exported)


def test_healthy_gpus_are_assumed_before_those_out_of_service(tmp_path: Path) -> None:
    # tiger-b is the tighter one, but only one of its two nodes is in service.
    fleet = [
        *nodes(4),
        row("nodes", node="b1", island="tiger-b"),
        row("nodes", node="b2", island="tiger-b", service="repair"),
    ]
    importer = Importer()
    importer.bring(write_fleet(tmp_path, nodes=fleet, workloads=[work(island="", gpus="16", **ELASTIC)]))
    assert dict(importer.of(Workloads).held) == {IslandKey("tiger-a", "H200"): 16}


def test_installed_gpus_are_assumed_where_the_healthy_ones_are_too_few(tmp_path: Path) -> None:
    fleet = nodes(4, service="repair", since="2026-01-05")
    importer = Importer()
    importer.bring(write_fleet(tmp_path, nodes=fleet, workloads=[work(island="", gpus="32", **ELASTIC)]))
    assert dict(importer.of(Workloads).held) == {IslandKey("tiger-a", "H200"): 32}


def test_assumed_work_stays_where_it_was_while_it_fits(tmp_path: Path) -> None:
    anywhere = work(island="", gpus="16", **ELASTIC)
    importer = Importer()
    importer.bring(write_fleet(tmp_path, nodes=TWO_ISLANDS, workloads=[anywhere]))
    # A third island would now be the tightest one.
    more = [*TWO_ISLANDS, *nodes(2, prefix="c", island="tiger-0")]
    assert importer.bring(write_fleet(tmp_path, nodes=more, workloads=[anywhere])).counts()["workloads"]["same"] == 1
    gang = work(workload="run-2", island="tiger-b", gpus="16")
    importer.bring(write_fleet(tmp_path, nodes=more, workloads=[anywhere, gang]))
    assert dict(importer.of(Workloads).held) == {IslandKey("tiger-b", "H200"): 16, IslandKey("tiger-0", "H200"): 16}


def test_an_island_is_filled_to_its_last_gpu_and_no_further(tmp_path: Path) -> None:
    full = [work(gpus="24"), work(workload="run-2", gpus="8")]
    importer = Importer()
    importer.bring(write_fleet(tmp_path, workloads=full))
    assert dict(importer.of(Workloads).held) == {IslandKey("tiger-a", "H200"): 32}
    found = importer.problems(write_fleet(tmp_path, workloads=[*full, work(workload="run-3", gpus="1")]))
    assert [(each["row"], each["expected"]) for each in found] == [
        (4, "at most 0 GPUs: island tiger-a has 32 of H200, 32 are taken by other work")
    ]


def test_work_that_ends_gives_back_its_island(tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(write_fleet(tmp_path, workloads=[work(gpus="32")]))
    importer.bring(write_fleet(tmp_path, workloads=[work(workload="run-2", gpus="32")]))
    assert list(importer.of(Workloads).workloads) == ["run-2"]
    assert dict(importer.of(Workloads).held) == {IslandKey("tiger-a", "H200"): 32}
    importer.bring(write_fleet(tmp_path, workloads=[]))
    assert dict(importer.of(Workloads).held) == {}


def test_staying_work_whose_island_shrank_makes_room_in_a_partial_import(tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(
        write_fleet(tmp_path / "1", workloads=[work(gpus="24"), work(workload="graders", gpus="8", **ELASTIC)])
    )
    part = write_fleet(
        tmp_path / "2",
        clusters=[],
        nodes=[row("nodes", node="n4", service="retired")],
        workloads=[work(workload="run-2", gpus="8")],
    )
    # 24 are left and the gang keeps them, the graders end; so there is nothing for run-2.
    found = importer.problems(part, is_partial=True)
    assert [each["expected"] for each in found] == [
        "at most 0 GPUs: island tiger-a has 24 of H200, 24 are taken by other work"
    ]
    write_fleet(tmp_path / "2", clusters=[], nodes=[row("nodes", node="n4", service="retired")], workloads=[])
    plan = importer.bring(part, is_partial=True)
    assert plan.counts()["workloads"]["removed"] == 1
    assert dict(importer.of(Workloads).held) == {IslandKey("tiger-a", "H200"): 24}


def test_what_runs_is_the_same_after_a_snapshot(tmp_path: Path) -> None:
    importer = Importer()
    rows = [work(), work(workload="run-2", island="", gpus="20", idle_gpus="4", owner="ann", **ELASTIC)]
    importer.bring(write_fleet(tmp_path, nodes=TWO_ISLANDS, workloads=rows))
    loaded = State(importer.keeper.kinds)
    loaded.load(importer.state.dump())
    assert loaded.of(Workloads).workloads == importer.of(Workloads).workloads
    assert loaded.of(Workloads).held == importer.of(Workloads).held


def test_observed_work_that_was_moved_here_comes_back_from_an_export_unchanged(tmp_path: Path) -> None:
    importer = Importer()
    rows = [work(island="tiger-b", gpus="16", **ELASTIC)]
    importer.bring(write_fleet(tmp_path / "fleet", nodes=TWO_ISLANDS, workloads=rows))
    before = importer.of(Workloads).workloads["run-1"]
    placed = PartPlaced(before.parts[0].name, (Block("tiger-a", 16, nodes=(("n1", 8), ("n2", 8))),))
    change = WorkloadPlaced("run-1", before.cluster, "H200", (placed,), Because.MOVED, "defrag")
    importer.keeper.commit([Draft(change)], actor="test", read_at=None)
    assert as_seen(importer.of(Workloads).workloads["run-1"]) != as_seen(before)
    assert importer.differences(importer.export(tmp_path / "out")) == {}
