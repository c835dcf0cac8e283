"""The quota book: who holds what, and sums that are always those of its entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.fleet.model import PoolKey
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Quota, QuotaKey
from plimsoll.state.state import State
from tests.support.fleets import Rows, nodes, row, write_fleet
from tests.support.imports import Importer

TIGER = PoolKey("tiger", "H200")
GB = PoolKey("tiger", "GB200")
TWO_POOLS = [*nodes(4), *nodes(3, prefix="g", sku="GB200", gpus="4", island="tiger-g")]

SUMS: dict[str, tuple[Rows, dict[PoolKey, int]]] = {
    "nobody holds anything": ([], {}),
    "two teams share a pool": ([row("quotas"), row("quotas", team="voice", gpus="24")], {TIGER: 40}),
    "one team holds two pools": ([row("quotas"), row("quotas", sku="GB200", gpus="12")], {TIGER: 16, GB: 12}),
    "quota for nothing is no entry": ([row("quotas", gpus="0")], {}),
    "teams hold more than there is": ([row("quotas", gpus="400"), row("quotas", team="voice")], {TIGER: 416}),
}


@pytest.mark.parametrize("sentence", SUMS)
def test_what_is_assigned_is_the_sum_of_the_book(sentence: str, tmp_path: Path) -> None:
    quotas, want = SUMS[sentence]
    importer = Importer()
    importer.bring(write_fleet(tmp_path, nodes=TWO_POOLS, quotas=quotas))
    book = importer.of(QuotaBook)
    assert {pool: gpus for pool, gpus in book.assigned.items() if gpus} == want
    assert sum(quota.gpus for quota in book.quotas.values()) == sum(want.values())


def test_a_quota_that_ends_leaves_the_book_and_the_sum(tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(write_fleet(tmp_path, quotas=[row("quotas", ticket="Q-1"), row("quotas", team="voice")]))
    importer.bring(write_fleet(tmp_path, quotas=[row("quotas", team="voice", gpus="8")]))
    book = importer.of(QuotaBook)
    assert dict(book.quotas) == {QuotaKey("voice", "tiger", "H200"): Quota("voice", "tiger", "H200", 8)}
    assert book.assigned[TIGER] == 8
    assert book.teams() == ["voice"]


def test_the_book_is_the_same_after_a_snapshot(tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(
        write_fleet(tmp_path, nodes=TWO_POOLS, quotas=[row("quotas", ticket="Q-1"), row("quotas", sku="GB200")])
    )
    loaded = State(importer.keeper.kinds)
    loaded.load(importer.state.dump())
    assert loaded.of(QuotaBook).quotas == importer.of(QuotaBook).quotas
    assert loaded.of(QuotaBook).assigned == importer.of(QuotaBook).assigned


WHOLE_NODES = {
    "nodes of eight": ("H200", "8", True),
    "half a node of eight": ("H200", "4", False),
    "nodes of four": ("GB200", "4", True),
    "one node and a half of four": ("GB200", "6", False),
}


@pytest.mark.parametrize("sentence", WHOLE_NODES)
def test_quota_is_in_whole_nodes_of_its_pool(sentence: str, tmp_path: Path) -> None:
    sku, gpus, want_accepted = WHOLE_NODES[sentence]
    folder = write_fleet(tmp_path, nodes=TWO_POOLS, quotas=[row("quotas", sku=sku, gpus=gpus)])
    if want_accepted:
        assert Importer().bring(folder).counts()["quotas"]["added"] == 1
    else:
        per_node = "8" if sku == "H200" else "4"
        found = [(each["column"], each["expected"]) for each in Importer().problems(folder)]
        assert found == [("gpus", f"whole nodes: a multiple of {per_node} GPUs")]


def test_quota_of_a_retired_cluster_is_kept_with_a_warning(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path, clusters=[row("clusters", phase="retired")], quotas=[row("quotas")])
    plan = Importer().bring(folder)
    assert plan.warnings == [
        "16 GPUs of quota are in retired clusters or pools without nodes, such as 16 H200 of"
        " evals in tiger: nothing stands behind them; take them out of quotas.csv"
    ]


def test_quota_that_stays_must_be_whole_nodes_of_what_its_pool_has_now(tmp_path: Path) -> None:
    """Else an export of the fleet could not be imported again."""
    importer = Importer()
    importer.bring(write_fleet(tmp_path / "before", nodes=TWO_POOLS, quotas=[row("quotas", gpus="24")]))
    bigger = [each | {"gpus": "16"} if each["sku"] == "H200" else each for each in TWO_POOLS]
    refused = importer.refused(write_fleet(tmp_path / "after", nodes=bigger))
    assert "evals holds 24 H200 in tiger, whose nodes have 16 GPUs now" in refused.message
