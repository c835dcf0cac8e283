"""What `plimsoll health slo` says to type next: what was asked here, narrowed to the worst, and nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import Importer
from tests.support.inside import called

NEXT = "next: plimsoll health outages --unplanned "

CASES = {
    "nothing was asked": ((), "cluster=tiger"),
    "the worst itself was asked": (("cluster=tiger",), "cluster=tiger"),
    "more than the worst was asked": (("cluster=tiger,lion",), "cluster=tiger cluster=tiger,lion"),
    "something else was asked as well": (("sku=H200", "cluster=tiger"), "cluster=tiger sku=H200"),
}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of tiger one of two nodes is out, of lion none."""
    folder = write_fleet(
        tmp_path_factory.mktemp("folder") / "fleet",
        clusters=[row("clusters"), row("clusters", cluster="lion")],
        nodes=[
            row("nodes", node="t1"),
            row("nodes", node="t2", service="repair", reason="fan", since="2026-01-09T00:00:00Z"),
            *nodes(2, prefix="l", cluster="lion", island="lion-a"),
        ],
    )
    dsn = f"sqlite:///{tmp_path_factory.mktemp('book')}/plimsoll.db"
    Importer(dsn).bring(Path(folder))
    return dsn


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_worst_is_named_once(book: str, case: tuple[tuple[str, ...], str]) -> None:
    asked, want = case
    said = called("health", "slo", *asked, "--db", book)
    assert said.code == 0, said.err
    assert f"{NEXT}{want}    the outages behind the numbers" in said.out
