"""`plimsoll why` as a researcher at 3 a.m. has it: the answer first, then the figures."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleets import nodes, row, write_fleet
from tests.support.inside import Said, called, plimsoll

FILE = """
workload: posttrain-42
team: red
where: {sku: H200, cluster: tiger}
owner: ana
parts:
  - {name: train, kind: gang, gpus: 352, tier: critical, rank: 1}
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The design's example. Island b has 45 nodes, and two grader replicas of blue are in it; a has 20, all free.

    red holds 352 and blue 100 of the 520; all of that is guaranteed. lion is empty, and is H100.
    """
    place = tmp_path_factory.mktemp("why")
    folder = write_fleet(
        place / "fleet",
        clusters=[row("clusters"), row("clusters", cluster="lion")],
        nodes=[
            *nodes(20, prefix="a", island="tiger-a"),
            *nodes(45, prefix="b", island="tiger-b"),
            *nodes(2, prefix="l", cluster="lion", island="lion-a", sku="H100"),
        ],
        quotas=[
            row("quotas", team="red", gpus="352"),
            row("quotas", team="blue", gpus="96"),
        ],
        workloads=[
            row("workloads", workload="eval", team="blue", island="tiger-b", gpus="20", kind="elastic", tier="mid"),
        ],
    )
    dsn = f"sqlite:///{place / 'plimsoll.db'}"
    file = place / "posttrain.yaml"
    file.write_text(FILE, encoding="utf-8")
    for words in (("fleet", "import", folder), ("quota", "apply", "--policy", "fixed:0"), ("workload", "submit", file)):
        ran = plimsoll(*words, db=dsn)
        assert ran.code in (0, 1), ran.err
    return dsn


def run(database: str, *words: str, want_code: int = 0) -> Said:
    said = called("--db", database, "why", *words)
    assert said.code == want_code, f"{words}\n{said.out}{said.err}"
    return said


def test_the_first_line_is_the_answer(database: str) -> None:
    out = run(database, "posttrain-42").out
    first = out.splitlines()[0]
    assert first.startswith("No: posttrain-42 can't start now. The largest free block is 340 in island tiger-b")
    assert "you need 352: 12 short" in first
    assert "of eval/elastic-1 stand in the way" in first
    assert "plimsoll workload defrag --for 352 --sku H200 --cluster tiger" in out
    assert out.index("What would let it start") < out.index("where it comes closest")


def test_json_has_codes_and_numbers(database: str) -> None:
    found = run(database, "posttrain-42", "-o", "json").json()
    assert list(found) == [
        "as_of", "revision", "about", "workload", "team", "standing", "cause", "gpus", "missing", "earliest",
        "is_estimate", "near", "position", "notes", "actions", "threats", "interruptions", "checks", "is_search_cut",
        "says",
    ]  # fmt: skip
    work = found
    assert (work["about"], work["workload"], work["team"]) == ("workload", "posttrain-42", "red")
    assert (work["standing"], work["cause"], work["missing"]) == ("waiting", "island_fragmented", 12)
    [near] = work["near"]
    assert near["installed"] - sum(step["gpus"] for step in near["steps"]) == near["free"] + near["callable"] == 340
    action = work["actions"][0]
    assert [act["kind"] for act in action["acts"]] == ["move_replicas"]
    assert (action["harm"], action["checked"], action["queue_checked"]) == ("moved", True, True)


def test_a_team(database: str) -> None:
    said = run(database, "red")
    assert said.out.splitlines()[0] == (
        "red can start 352 GPUs more inside its guarantee now: nothing is wrong; 0 of 352 guaranteed GPUs are in use."
    )
    [pool] = run(database, "red", "-o", "json").json()["pools"]
    assert (pool["assigned"], pool["guaranteed"], pool["startable"]) == (352, 352, 352)
    assert pool["largest_block"] == 340
    assert "the largest block in one island is 340, in tiger-b" in said.out


def test_a_team_as_csv_adds_up(database: str) -> None:
    rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(run(database, "blue", "-o", "csv").out)))
    assert [(each["step"], each["gpus"]) for each in rows] == [
        ("assigned", "96"),
        ("= guaranteed", "96"),
        ("- in_use", "-20"),
        ("= startable", "76"),
    ]


def test_work_that_runs(database: str) -> None:
    assert run(database, "eval").out.splitlines()[0] == (
        "eval runs: 20 GPUs, all guaranteed, in H200 of tiger, island tiger-b."
    )


def test_something_not_submitted(database: str) -> None:
    said = run(database, "--if", "gpus=352", "sku=H200", "island", "team=blue")
    assert said.out.startswith("No: it can't start now.")
    assert run(database, "--if", "gpus=64", "sku=H200", "island", "team=blue").out.startswith(
        "Yes: it can start now in H200 of tiger, as guaranteed."
    )
    document = run(database, "--if", "gpus=16", "sku=H100", "-o", "json").json()
    assert (document["about"], document["standing"], document["workload"]) == ("if", "startable", "")


ABOUT = {
    "a team": (("red",), "team"),
    "work that waits": (("posttrain-42",), "workload"),
    "something not submitted": (("--if", "gpus=16", "sku=H200"), "if"),
    "a node": (("a1",), "node"),
    "the fleet": (("--fleet",), "fleet"),
}


@pytest.mark.parametrize(("words", "want"), ABOUT.values(), ids=ABOUT)
def test_every_answer_is_flat_and_says_what_it_is_about(database: str, words: tuple[str, ...], want: str) -> None:
    found = run(database, *words, "-o", "json").json()
    assert list(found)[:3] == ["as_of", "revision", "about"]
    assert list(found)[-1] == "says"
    assert found["about"] == want
    assert found["says"]
    assert all(isinstance(each, str) for each in found["says"])


def test_no_answer_is_an_empty_csv(database: str) -> None:
    """Something that can start has no table; its figures are the row."""
    said = run(database, "--if", "gpus=16", "sku=H200", "-o", "csv").out
    [row] = csv.DictReader(io.StringIO(said))
    assert (row["about"], row["standing"], row["gpus"]) == ("if", "startable", "16")


def test_asking_changes_nothing(database: str) -> None:
    before = called("--db", database, "audit", "head", "-o", "json").out
    run(database, "--if", "gpus=352", "sku=H200", "island")
    run(database, "posttrain-42")
    assert called("--db", database, "audit", "head", "-o", "json").out == before


def test_the_past_is_answered_as_it_was_known(database: str) -> None:
    """Before the alignment nothing was guaranteed."""
    events = called("--db", database, "audit", "log", "--limit", "1000", "-o", "json").json()
    revision = min(each["revision"] for each in events["events"] if each["kind"] == "quota.aligned") - 1
    said = run(database, "red", "--as-of", str(revision))
    assert "no alignment was applied" in said.out
    assert f"as of {revision}" in said.out


BAD = {
    "nothing": ((), 2, "nothing is named"),
    "two things": (("red", "blue"), 2, "2 things are named"),
    "a name near a team": (("rad",), 1, "did you mean red?"),
    "a name near a workload": (("postrain-42",), 1, "did you mean posttrain-42?"),
    "no terms": (("--if",), 2, "--if says nothing"),
    "a bad term": (("--if", "gpu=8", "sku=H200"), 2, "did you mean gpus?"),
    "a name as a term": (("--if", "red"), 2, "'red' is no term of --if"),
    "both": (("--if", "--fleet"), 2, "exclude each other"),
    "a period without the fleet": (("red", "--from", "7d"), 2, "are for --fleet"),
    "larger than any island": (("--if", "gpus=361", "sku=H200", "island"), 1, "the largest has 360"),
    "more than there is": (("--if", "gpus=99999", "sku=H200"), 1, "the largest pool has 520"),
    "an endless number": (("--if", f"gpus={'9' * 400}", "sku=H200"), 2, "no number of GPUs"),
}


@pytest.mark.parametrize(("words", "want_code", "want"), BAD.values(), ids=BAD)
def test_bad_input(database: str, words: tuple[str, ...], want_code: int, want: str) -> None:
    said = run(database, *words, want_code=want_code)
    assert said.out == ""
    assert want in said.err
    assert "next:" in said.err


def test_an_empty_database_knows_nobody(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path / "fleet", clusters=[row("clusters")], nodes=nodes(1))
    dsn = f"sqlite:///{tmp_path / 'empty.db'}"
    assert plimsoll("fleet", "import", folder, db=dsn).code == 0
    assert "0 workloads, 0 teams, 1 nodes" in run(dsn, "red", want_code=1).err
    assert run(dsn, "--if", "gpus=8", "sku=H200", "island").out.startswith("Yes")
