"""`plimsoll quota show|plan|apply` as their users have them, on the worked case of the design."""

from __future__ import annotations

import csv
import io
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from plimsoll.rooms import open_keeper
from tests.support.command import plimsoll
from tests.support.fleets import nodes, row, write_fleet
from tests.support.inside import Said, called

POOL_KEYS = [
    "cluster", "sku", "total", "healthy", "line", "line_in_force", "assigned", "guaranteed", "allocated", "over",
    "never_backed", "to_flex", "unallocated", "flex_standing", "flex_lent", "flex_used", "stage",
]  # fmt: skip
TEAM_KEYS = ["team", "cluster", "sku", "assigned", "guaranteed", "allocated", "idle", "haircut", "stage"]
SIZE = 8


@pytest.fixture(scope="session")
def worked_case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """361 H100 nodes, 319 healthy; alpha holds 200 and beta 145 of them, 180 and 130 are in use, 2 of these idle."""
    place = tmp_path_factory.mktemp("worked")
    h100 = {"sku": "H100", "cluster": "walrus", "island": "walrus-a"}
    folder = write_fleet(
        place / "fleet",
        clusters=[row("clusters", cluster="walrus")],
        nodes=[*nodes(319, **h100), *nodes(42, prefix="r", service="repair", **h100)],
        quotas=[
            row("quotas", team="alpha", cluster="walrus", sku="H100", gpus=str(200 * SIZE)),
            row("quotas", team="beta", cluster="walrus", sku="H100", gpus=str(145 * SIZE)),
        ],
        workloads=[
            row(
                "workloads",
                workload="run-a",
                team="alpha",
                gpus=str(180 * SIZE),
                idle_gpus="16",
                kind="elastic",
                **h100,
            ),
            row("workloads", workload="run-b", team="beta", gpus=str(130 * SIZE), kind="elastic", **h100),
        ],
    )
    path = place / "plimsoll.db"
    assert plimsoll("fleet", "import", folder, db=f"sqlite:///{path}").code == 0
    return path


class Book:
    """A copy of a database, and commands on it."""

    def __init__(self, path: Path) -> None:
        self.db = f"sqlite:///{path}"

    def run(self, *words: str | Path, want_code: int = 0) -> Said:
        said = called("--db", self.db, "quota", *words)
        assert said.code == want_code, f"{words}\n{said.out}{said.err}"
        return said

    def json(self, *words: str | Path) -> Any:
        return self.run(*words, "-o", "json").json()

    def refused(self, *words: str | Path, want_code: int = 1) -> str:
        """The error for people: on stderr alone, with the next thing to type."""
        ran = self.run(*words, want_code=want_code)
        assert ran.out == ""
        first, _, second = ran.err.partition("\n")
        assert first.startswith("plimsoll: ")
        assert second.startswith("  next: ")
        return ran.err.removeprefix("plimsoll: ").rstrip("\n")

    def revision(self) -> int:
        revision: int = plimsoll("audit", "head", "-o", "json", db=self.db).json()["revision"]
        return revision


@pytest.fixture
def book(worked_case: Path, tmp_path: Path) -> Book:
    shutil.copy(worked_case, tmp_path / "book.db")
    return Book(tmp_path / "book.db")


# plan


def _nodes(pool: dict[str, Any]) -> dict[str, int]:
    return {key: value // SIZE for key, value in pool.items() if isinstance(value, int) and key != "stage"}


def test_the_worked_case_without_a_buffer(book: Book) -> None:
    """26 of 345 were never there; all 26 are of the 35 that nothing runs on."""
    plan = book.json("plan", "--policy", "fixed:0")
    (pool,) = plan["clusters"]
    assert _nodes(pool) == {
        "total": 361, "healthy": 319, "line": 319, "line_in_force": 319, "assigned": 345, "guaranteed": 319,
        "allocated": 310, "over": 26, "never_backed": 26, "to_flex": 0, "unallocated": 0, "flex_standing": 0,
        "flex_lent": 9, "flex_used": 0,
    }  # fmt: skip
    assert pool["stage"] == 2
    assert plan["summary"]["haircut"] == {"unscheduled": 26 * SIZE, "idle": 0, "running": 0}


def test_the_worked_case_with_a_buffer_of_15_percent(book: Book) -> None:
    """306 may be promised: 39 over, 26 never backed and 13 to flex; 35 unscheduled, then 2 idle, then 2 running."""
    plan = book.json("plan", "--policy", "fixed:0.15")
    (pool,) = plan["clusters"]
    found = _nodes(pool)
    assert [found[key] for key in ("line", "over", "never_backed", "to_flex")] == [306, 39, 26, 13]
    assert (found["guaranteed"], found["flex_standing"], pool["stage"]) == (306, 13, 4)
    assert plan["summary"]["haircut"] == {"unscheduled": 35 * SIZE, "idle": 2 * SIZE, "running": 2 * SIZE}
    # 2 of 178 and 130 running: 1.2 and 0.8.
    assert [(team["team"], team["guaranteed"] // SIZE) for team in plan["teams"]] == [("alpha", 177), ("beta", 129)]


def test_the_json_of_a_plan_has_these_keys_and_no_others(book: Book) -> None:
    plan = book.json("plan")
    assert list(plan) == ["as_of", "policy", "clusters", "teams", "summary"]
    assert [list(pool) for pool in plan["clusters"]] == [POOL_KEYS]
    assert [list(team) for team in plan["teams"]] == [TEAM_KEYS] * 2
    assert list(plan["teams"][0]["haircut"]) == ["unscheduled", "idle", "running"]


def test_a_plan_with_trim_shows_the_book_as_it_would_be(book: Book) -> None:
    (pool,) = book.json("plan", "--policy", "fixed:0", "--trim", "unscheduled")["clusters"]
    found = _nodes(pool)
    assert (found["assigned"], found["guaranteed"], found["flex_standing"]) == (310, 310, 9)


def test_a_plan_is_the_same_every_time_and_changes_nothing(book: Book) -> None:
    before = book.revision()
    first, second = (book.run("plan", "--as-of", str(before), "-o", "json").out for _ in range(2))
    assert first == second
    assert book.revision() == before


def test_what_a_plan_says_to_people(book: Book) -> None:
    out = book.run("plan", "--policy", "fixed:0").out
    assert out.startswith(
        "policy fixed:0: 2,760 GPUs are assigned, 2,552 work, 2,552 may be promised\n"
        "208 are over in 1 cluster: 208 were never there, 0 go to flex\n"
        "the cut: 208 unscheduled, 0 idle, 0 running, of 2 teams; standing flex 0\n"
    )


def next_steps(out: str) -> list[list[str]]:
    """What is printed as the next thing to type, as a shell would read it."""
    steps = [line.partition("next: ")[2] for line in out.splitlines() if "next: " in line]
    return [shlex.split(step, comments=True) for step in steps]


@pytest.mark.parametrize("words", [("walrus",), ("--policy", "fixed:0", "--stage", "3", "--trim", "idle")])
def test_the_next_step_of_a_plan_can_be_typed_as_it_is_printed(words: tuple[str, ...], book: Book) -> None:
    (step,) = next_steps(book.run("plan", *words).out)
    assert step[:3] == ["plimsoll", "quota", "apply"]
    assert plimsoll(*step[1:], db=book.db).code == 0


def test_the_next_step_quotes_what_a_shell_would_split(book: Book, tmp_path: Path) -> None:
    policy = tmp_path / "my lines.yaml"
    policy.write_text(book.run("policy", "show").out)
    (step,) = next_steps(book.run("plan", "--policy", policy).out)
    assert str(policy) in step


# apply


def test_apply_and_apply_again(book: Book) -> None:
    first = book.run("apply", "--policy", "fixed:0", "--reason", "as agreed")
    assert first.out.startswith("policy fixed:0: 2,552 GPUs are guaranteed in 1 pool, under lines of 2,552;")
    head = book.revision()
    again = book.run("apply", "--policy", "fixed:0")
    assert again.out.startswith("policy fixed:0: nothing to change\n")
    assert book.revision() == head, "no event"
    last = plimsoll("audit", "log", "--limit", "1", "-o", "json", db=book.db).json()["events"][0]
    assert (last["kind"], last["actor"], last["reason"]) == ("quota.aligned", "tester", "as agreed")


def test_a_dry_run_of_apply_keeps_nothing(book: Book) -> None:
    head = book.revision()
    document = book.json("apply", "--dry-run")
    assert (document["dry_run"], document["held"], len(document["clusters"])) == (True, [], 1)
    assert book.revision() == head


def _effect(team: str, assigned: int, was: int, guaranteed: int, *cut: int) -> dict[str, Any]:
    haircut = dict(zip(("unscheduled", "idle", "running"), (nodes * SIZE for nodes in cut), strict=True))
    return {"team": team, "cluster": "walrus", "sku": "H100", "assigned": assigned * SIZE,
            "guaranteed_was": was * SIZE, "guaranteed": guaranteed * SIZE, "haircut": haircut}  # fmt: skip


def test_a_dry_run_of_apply_says_what_it_does_to_each_team(book: Book) -> None:
    """39 nodes are over: all 35 that nothing runs on go, 20 of them alpha's; its 2 idle ones; of 178 and 130 that run
    2 are 1.2 and 0.8."""
    document = book.json("apply", "--policy", "fixed:0.15", "--dry-run")
    assert document["effects"] == [_effect("alpha", 200, 0, 177, 20, 2, 1), _effect("beta", 145, 0, 129, 15, 0, 1)]
    assert document["is_change"] is True
    out = book.run("apply", "--policy", "fixed:0.15", "--dry-run").out
    assert "not guaranteed of what 2 teams held: 280 unscheduled, 16 idle, 16 running\n" in out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    begin = lines.index("what it does to each team (GPUs)")
    assert lines[begin + 1 : begin + 4] == [
        "team cluster sku assigned guaranteed was guaranteed cut unscheduled cut idle cut running",
        "alpha walrus H100 1,600 0 1,416 160 16 8",
        "beta walrus H100 1,160 0 1,032 120 0 8",
    ]


def test_a_second_correction_is_told_by_what_it_takes_of_the_guarantees(book: Book) -> None:
    """26 nodes that nothing runs on went before, 15 and 11 of them: 185 and 134 stayed, and 180 and 130 are in use."""
    book.run("apply", "--policy", "fixed:0")
    words = ("apply", "--policy", "fixed:0.15", "--without-notice", "--reason", "the hall floods", "--dry-run")
    document = book.json(*words)
    assert document["effects"] == [_effect("alpha", 200, 185, 177, 5, 2, 1), _effect("beta", 145, 134, 129, 4, 0, 1)]
    assert document["summary"]["haircut"] == {"unscheduled": 280, "idle": 16, "running": 16}, "as the plan has it"
    assert "of what 2 teams held: 72 unscheduled, 16 idle, 16 running\n" in book.run(*words).out


CHANGES = {
    "nothing to change": (("--policy", "fixed:0"), False),
    "only a notice is given": (("--policy", "fixed:0.3"), True),
    "guarantees move": (("--policy", "fixed:0.3", "--without-notice", "--reason", "the hall floods"), True),
}


@pytest.mark.parametrize("sentence", CHANGES)
def test_a_dry_run_of_apply_says_whether_there_is_anything_to_do(sentence: str, book: Book) -> None:
    words, want = CHANGES[sentence]
    book.run("apply", "--policy", "fixed:0")
    document = book.json("apply", *words, "--dry-run")
    assert document["is_change"] is want
    assert bool(document["effects"]) == ("--without-notice" in words), "who only gets a notice keeps what they have"


def test_apply_with_trim_strikes_out_of_the_book(book: Book) -> None:
    book.run("apply", "--policy", "fixed:0", "--trim", "unscheduled")
    (pool,) = book.json("show")["clusters"]
    assert (pool["assigned"] // SIZE, pool["guaranteed"] // SIZE, pool["flex_standing"] // SIZE) == (310, 310, 9)


def test_apply_up_to_a_stage_leaves_the_others(book: Book) -> None:
    plan = book.run("plan", "--policy", "fixed:0.15", "--stage", "3").out
    assert "\n1 pool of a later stage left out\n" in f"{plan}\n"
    assert next_steps(plan) == []
    out = book.run("apply", "--policy", "fixed:0.15", "--stage", "3").out
    assert out.startswith("policy fixed:0.15: nothing to change\n\n1 pool of a later stage left out\n")
    assert book.json("show")["summary"]["guaranteed"] == 0


def test_who_looked_before_somebody_else_applied_is_told(book: Book) -> None:
    planned_at = str(book.revision())
    plimsoll("quota", "apply", "--policy", "fixed:0", db=book.db, PLIMSOLL_ACTOR="ada")
    assert book.refused("apply", "--policy", "fixed:0.15", "--planned-at", planned_at) == (
        f"nothing was applied: since revision {planned_at} ada changed pool/walrus/H100"
        f" (quota.aligned, revision {int(planned_at) + 1})\n  next: plimsoll quota plan"
    )


def test_running_capacity_that_is_guaranteed_waits(book: Book) -> None:
    book.run("apply", "--policy", "fixed:0")
    waits = book.run("apply", "--policy", "fixed:0.3", want_code=1)
    assert "pools that wait" in waits.out
    assert "notices were given; next: plimsoll quota notices" in waits.out
    assert waits.err.startswith(
        "plimsoll: nothing was applied: 1 pool waits, such as walrus H100 for alpha, beta: told now"
    )
    assert re.search(r"told now, for \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n", waits.err), "no fractions of a second"
    again = plimsoll("quota", "apply", "--policy", "fixed:0.3", "-o", "json", db=book.db)
    error = msgspec.json.decode(again.err)["error"]
    assert (again.code, error["code"]) == (1, "announced")
    assert error["fields"]["held"][0]["teams"] == ["alpha", "beta"]
    book.run("apply", "--policy", "fixed:0.3", "--without-notice", "--reason", "the hall floods")
    assert book.json("show")["summary"]["guaranteed"] == 252 * SIZE


# show


def test_show_draws_one_cluster_and_lists_its_teams(book: Book) -> None:
    book.run("apply", "--policy", "fixed:0")
    out = book.run("show", "walrus").out
    assert out.startswith("walrus H100\n  installed ")
    for line in ("healthy", "line now", "line in force", "assigned", "guaranteed", "allocated", "flex lent"):
        assert f"\n  {line:<14}" in out
    assert re.search(r"\nalpha +walrus +H100 +1,600 +1,480 +1,440 +16 ", out)


def test_show_of_a_team(book: Book) -> None:
    out = book.run("show", "--team", "alpha").out
    assert out.startswith("alpha holds 1,600 GPUs on paper in 1 pool; 0 are guaranteed, 1,440 in use\n")
    assert "312 GPUs of quota, of all teams in these pools, are over the line in 1 cluster" in out
    teams = book.json("show", "--team", "alpha")["teams"]
    assert [team["team"] for team in teams] == ["alpha"]


def test_show_says_what_is_over_and_what_to_do(book: Book) -> None:
    out = book.run("show").out
    assert "312 GPUs of quota are over the line in 1 cluster; no working machine stands behind 208 of them" in out
    assert next_steps(out) == [["plimsoll", "quota", "plan"]]


def test_show_says_the_same_in_every_form(book: Book) -> None:
    document = book.json("show")
    (pool,) = document["clusters"]
    assert list(pool) == [*POOL_KEYS, "idle", "shortfall", "line_policy", "line_why", "is_aligned", "mode"]
    assert (pool["mode"], pool["line_why"], pool["is_aligned"]) == ("observe", "buffer 0.15 of total", False)
    (line,) = csv.DictReader(io.StringIO(book.run("show", "-o", "csv").out))
    assert {key: int(line[key]) for key in ("total", "healthy", "line", "over")} == {
        key: pool[key] for key in ("total", "healthy", "line", "over")
    }
    as_yaml = yaml.safe_load(book.run("show", "-o", "yaml").out)
    assert {**as_yaml, "as_of": ""} == {**document, "as_of": ""}


def test_show_of_the_past(book: Book) -> None:
    before = str(book.revision())
    book.run("apply", "--policy", "fixed:0")
    assert book.json("show")["summary"]["guaranteed"] == 319 * SIZE
    assert book.json("show", "--as-of", before)["summary"]["guaranteed"] == 0
    out = book.run("show", "--as-of", before).out
    assert f"as of {before}: revision {before}, recorded at " in out


def test_show_of_a_cluster_that_is_not_in_production_says_so(tmp_path: Path) -> None:
    clusters = [row("clusters"), row("clusters", cluster="lion", phase="provisioned")]
    both = [*nodes(4), *nodes(2, prefix="l", cluster="lion", island="lion-a")]
    folder = write_fleet(tmp_path / "fleet", clusters=clusters, nodes=both, quotas=[row("quotas")])
    book = Book(tmp_path / "book.db")
    assert called("fleet", "import", folder, "--db", book.db).code == 0
    assert "nothing of lion is in production, and nobody holds quota there; next:" in book.run("show", "lion").out
    assert book.json("show", "lion")["clusters"] == []
    assert book.refused("show", "lion", "--team", "evals") == (
        "evals holds and uses nothing here, but in 1 other pool\n  next: plimsoll quota show --team evals"
    )


def test_show_of_an_empty_fleet_says_how_to_begin(tmp_path: Path) -> None:
    open_keeper(f"sqlite:///{tmp_path}/empty.db", create=True).close()
    book = Book(tmp_path / "empty.db")
    assert "nothing is installed and nobody holds quota; next: plimsoll demo" in book.run("show").out
    assert book.run("plan").out.startswith("policy fixed:0.15: there is no pool to plan for")
    assert book.run("apply").out.startswith("policy fixed:0.15: nothing to change")
    assert book.json("control") == {"pools": [], "events": 0, "dry_run": False, "told": []}


UNKNOWN = {
    "a cluster that is nearly one": (
        ("show", "walruss"),
        "there is no cluster 'walruss' among 1; did you mean walrus?\n  next: plimsoll fleet show --by cluster",
    ),
    "a team that is nearly one": (
        ("show", "--team", "alpah"),
        "no team 'alpah' holds or uses anything here; did you mean alpha?\n  next: plimsoll quota show",
    ),
    "a SKU that is nearly one": (
        ("show", "--sku", "h100"),
        "there is no SKU 'h100' among 1; did you mean H100?\n  next: plimsoll fleet show --by sku",
    ),
    "a SKU in a plan": (("plan", "--sku", "B9"), "there is no SKU 'B9' among 1\n  next: plimsoll fleet show --by sku"),
    "a team in a SKU that is not there": (
        ("show", "--team", "alpha", "--sku", "B9"),
        "there is no SKU 'B9' among 1\n  next: plimsoll fleet show --by sku",
    ),
}


@pytest.mark.parametrize("sentence", UNKNOWN)
def test_names_that_do_not_exist(sentence: str, book: Book) -> None:
    words, want = UNKNOWN[sentence]
    assert book.refused(*words) == want
