"""`plimsoll campaign …` as people type it: from a file to a plan that ran, and every way to be wrong."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from plimsoll.times import utc_now
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import Importer
from tests.support.inside import Said, called

FILE = """\
campaign: nic
changes: [{{component: nic, version: "2"}}]
scope: {{}}
start: {start}
deadline: {deadline}
window: {{hours: [0, 24], tz: UTC}}
work: [{{mode: whole, hours: 4}}]
limits: [{{kind: out_at_once, at_most: {cap}}}]
objective: {{exposure: 1, peak: 0}}
run: {{grace_minutes: 0}}
roster: [bob]
"""
PLAN_KEYS = [
    "campaign",
    "number",
    "status",
    "objective",
    "bound",
    "gap",
    "seconds",
    "batches",
    "conflict",
    "relaxations",
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two clusters, and a campaign file that begins tomorrow."""
    fleet = write_fleet(
        tmp_path / "fleet",
        clusters=[row("clusters"), row("clusters", cluster="lion", area="eu", colo="colo-2")],
        nodes=[*nodes(4, prefix="t"), *nodes(2, prefix="l", cluster="lion", island="lion-a")],
    )
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    importer = Importer(dsn)
    importer.bring(fleet)
    importer.keeper.close()
    monkeypatch.setenv("PLIMSOLL_DB", dsn)
    monkeypatch.setenv("PLIMSOLL_ACTOR", "alice")
    monkeypatch.chdir(tmp_path)
    write_file()
    return tmp_path


def write_file(name: str = "nic.yaml", *, days: int = 1, cap: int = 4, length: int = 3) -> None:
    first = (utc_now() + timedelta(days=days)).date()
    text = FILE.format(start=first, deadline=first + timedelta(days=length), cap=cap)
    Path(name).write_text(text)


def campaign(*words: object) -> Said:
    return called("campaign", *words)


def done(*words: object) -> Any:
    said = campaign(*words, "-o", "json")
    assert said.code == 0, said.err
    return said.json()


def test_a_plan_has_the_shape_that_others_rely_on() -> None:
    plan = done("plan", "nic.yaml")
    assert list(plan)[: len(PLAN_KEYS)] == PLAN_KEYS
    assert (plan["campaign"], plan["number"], plan["status"]) == ("nic", 1, "optimal")
    assert list(plan["objective"]) == ["total", "exposure", "imbalance", "peak"]
    assert plan["objective"]["total"] == 0, "both fit on the first day, one after the other"
    assert plan["objective"]["peak"] == 4
    assert [list(batch) for batch in plan["batches"]] == [["cluster", "mode", "batch", "nodes", "start", "end"]] * 2
    assert {batch["cluster"]: batch["nodes"] for batch in plan["batches"]} == {"tiger": 4, "lion": 2}
    assert plan["conflict"] == plan["relaxations"] == []


def test_the_same_plan_keeps_its_number_and_a_dry_run_records_nothing() -> None:
    assert done("plan", "nic.yaml", "--dry-run")["number"] == 1
    assert campaign("list", "-o", "json").json() == []
    first, again = done("plan", "nic.yaml"), done("plan", "nic.yaml")
    assert first["number"] == again["number"] == 1
    assert first["batches"] == again["batches"]
    write_file(cap=5)
    assert done("plan", "nic.yaml")["number"] == 2


def test_a_plan_of_anybody_is_checked() -> None:
    plan = done("plan", "nic.yaml")
    Path("plan.json").write_text(json.dumps(plan))
    said = campaign("check", "nic.yaml", "plan.json")
    assert said.code == 0
    assert said.out.startswith("nic: valid")
    plan["batches"][0]["start"] = plan["batches"][1]["start"]
    plan["batches"][0]["end"] = plan["batches"][1]["end"]
    Path("plan.json").write_text(json.dumps({"campaign": "nic", "batches": plan["batches"]}))
    wrong = campaign("check", "nic.yaml", "plan.json", "-o", "json")
    assert wrong.code == 1
    assert {problem["code"] for problem in wrong.json()["problems"]} == {"out_at_once"}


def test_where_no_plan_exists_it_says_what_collides_and_what_would_help() -> None:
    write_file(cap=3)
    said = campaign("plan", "nic.yaml", "-o", "json")
    assert said.code == 1
    plan = said.json()
    assert plan["status"] == "infeasible"
    assert plan["objective"] is None
    assert [each["limit"] for each in plan["conflict"]][:1] == ["limits[0]"]
    cap = next(each for each in plan["relaxations"] if each["limit"] == "limits[0]")
    assert (cap["from"], cap["to"], cap["possible"]) == (3, 4, True)
    text = campaign("plan", "nic.yaml").out
    assert text.startswith("nic: no plan exists")
    assert campaign("list", "-o", "json").json() == []


def test_a_campaign_by_hand_from_start_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(days=0)
    plan = done("plan", "nic.yaml", "--dry-run")
    assert plan["status"] == "optimal"
    write_file(days=1)
    done("plan", "nic.yaml")
    started = done("start", "nic")
    assert started["incident"] == "nic-1"
    twice = campaign("start", "nic")
    assert (twice.code, "alice" in twice.err) == (1, True)
    refused = campaign("plan", "nic.yaml")
    assert refused.code == 1
    assert "campaign replan nic" in refused.err
    assert campaign("gate", "nic", "tiger").code == 1
    later = utc_now() + timedelta(days=1, hours=23)
    monkeypatch.setattr("plimsoll.rooms.utc_now", lambda: later)
    status = done("status", "nic")
    assert {each["batch"] for each in status["batches"]} == {"tiger#1", "lion#1"}
    assert all(each["waits_for"] for each in status["batches"]), "nothing just waits"
    done("pause", "nic", "--reason", "lunch")
    assert "lunch" in campaign("status", "nic").out
    done("resume", "nic")
    done("cancel", "nic", "--reason", "wrong fix")
    assert done("list")[0]["phase"] == "cancelled"
    assert called("health", "announced", "-o", "json").json()["ahead"] == []


def test_two_plans_are_held_side_by_side() -> None:
    done("plan", "nic.yaml")
    write_file(cap=6)
    done("plan", "nic.yaml")
    found = done("compare", "nic:1", "nic:2")
    assert found["left"]["peak"] == 4
    assert found["right"]["nodes"] == 6
    missing = campaign("compare", "nic:1", "nic:7")
    assert (missing.code, "no plan 7" in missing.err) == (1, True)


def test_every_batch_as_csv() -> None:
    rows = list(csv.DictReader(io.StringIO(campaign("plan", "nic.yaml", "-o", "csv").out)))
    assert [set(line) for line in rows] == [{"cluster", "mode", "batch", "nodes", "start", "end"}] * 2


WRONG = {
    "a campaign that is not there": (("status", "nope"), 1, "there is no campaign 'nope'"),
    "a file that is not there": (("plan", "nope.yaml"), 2, "No such file"),
    "a plan that is no plan": (("check", "nic.yaml", "nic.yaml"), 2, "nic.yaml"),
    "a batch that is not there": (("gate", "nic", "whale"), 1, "no batch 'whale'"),
    "done before it began": (("tick", "nic", "tiger"), 1, "nothing is under way"),
    "back though it never left": (("returned", "nic"), 1, "nothing to bring back"),
    "agreed to nothing": (("agree", "nic", "run-1"), 1, "no batch of nic waits for 'run-1'"),
    "an incident that is not there": (("incident", "close", "x"), 1, "no incident 'x'"),
    "an incident on no cluster": (("incident", "open", "fire", "--cluster", "tigre"), 1, "did you mean tiger"),
    "another plan than the newest": (("start", "nic", "--number", "7"), 1, "plan 1 is the newest"),
    "resumed though it never paused": (("resume", "nic"), 1, "one can resume what is paused"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_and_changes_nothing(name: str) -> None:
    done("plan", "nic.yaml")
    before = called("audit", "head").out
    words, want_code, want_text = WRONG[name]
    said = campaign(*words)
    assert said.code == want_code
    assert want_text in said.err
    assert "Traceback" not in said.err
    assert called("audit", "head").out == before


def test_a_fleet_that_changed_since_the_plan_is_said_before_the_start(folder: Path) -> None:
    write_file(cap=6)
    done("plan", "nic.yaml")
    fleet = write_fleet(
        folder / "fleet",
        clusters=[row("clusters"), row("clusters", cluster="lion", area="eu", colo="colo-2")],
        nodes=[*nodes(5, prefix="t"), *nodes(1, prefix="l", cluster="lion", island="lion-a")],
    )
    assert called("fleet", "import", fleet, "--allow-removals").code == 0
    said = campaign("start", "nic")
    assert said.code == 1
    assert "1 node of it gone, 1 node in scope without a batch" in said.err
    assert "campaign replan nic" in said.err
    again = done("replan", "nic")
    assert {batch["cluster"]: batch["nodes"] for batch in again["batches"]} == {"tiger": 5, "lion": 1}
