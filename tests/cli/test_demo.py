"""`plimsoll demo`: loads once, shows always, and never touches a database that holds something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.inside import called


def test_the_demo_shows_a_fleet_and_what_to_type_next(demo_book: str) -> None:
    said = called("demo", "--db", demo_book)
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0].startswith("77 clusters, 240 islands, 19,105 nodes; ")
    assert "most over-promised (GPUs)" in lines
    assert [line.split("plimsoll ")[1].split()[0] for line in lines[-4:]] == ["fleet", "cluster", "audit", "audit"]
    assert any(line.startswith("40 teams, ") and "GPUs are promised that are not there." in line for line in lines)


def test_the_demo_loaded_again_changes_nothing(demo_book: str) -> None:
    head = called("audit", "head", "--db", demo_book).out
    first, second = (called("demo", "--db", demo_book, "-o", "json").json() for _ in range(2))
    assert first == second
    assert first["totals"]["nodes"] == 19105
    assert called("audit", "head", "--db", demo_book).out == head


def test_the_demo_is_refused_where_something_else_is(book: str, demo_book: str) -> None:
    head = called("audit", "head", "--db", book).out
    said = called("demo", "--db", book)
    assert (said.code, said.out) == (1, "")
    assert said.err.splitlines() == [
        f"plimsoll: {book} holds 14 events that are not the demo fleet, seed 1; the demo takes an empty database",
        "  next: plimsoll demo --db sqlite:///demo.db",
    ]
    assert called("audit", "head", "--db", book).out == head
    other_seed = called("demo", "--seed", "2", "--db", demo_book, "-o", "json")
    assert (other_seed.code, other_seed.error["code"]) == (1, "database_not_empty")


WRONG_ENDS = {
    "soon": "plimsoll: 'soon' is not a time",
    "2999-01-01": "plimsoll: --until 2999-01-01 is in the future",
}


@pytest.mark.parametrize("until", WRONG_ENDS)
def test_a_wrong_end_of_the_demo_is_refused_before_anything_is_made(until: str, tmp_path: Path) -> None:
    said = called("demo", "--until", until)
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines()[0] == WRONG_ENDS[until]
    assert list(tmp_path.iterdir()) == []


def test_the_whole_demo_goes_round_by_export_and_import(demo_book: str, tmp_path: Path) -> None:
    assert called("fleet", "export", "out", "--db", demo_book).code == 0
    plan = called("fleet", "import", "out", "--db", demo_book, "--dry-run", "-o", "json").json()
    assert plan["differences"] == []
    assert {name: count["same"] for name, count in plan["counts"].items()} == {
        "clusters": 78,
        "nodes": 19105,
        "quotas": 334,
        "workloads": 2757,
        "versions": 57315,
        "history": plan["counts"]["history"]["same"],
    }
    assert plan["counts"]["history"]["added"] == 0
