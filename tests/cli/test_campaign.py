"""`plimsoll campaign …` as people type it: from a file to a plan that ran, and every way to be wrong."""

from __future__ import annotations

import csv
import io
import json
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from plimsoll.rooms import open_keeper
from plimsoll.times import utc_now
from tests.support.bad_web import BadWeb, Conversation, http_answer
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


def set_clock(monkeypatch: pytest.MonkeyPatch, moment: datetime) -> None:
    """What commands take for now."""
    defaults = open_keeper.__kwdefaults__
    assert defaults is not None, "it has a clock"
    monkeypatch.setitem(defaults, "clock", lambda: moment)


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
    set_clock(monkeypatch, later)
    status = done("status", "nic")
    assert {each["batch"] for each in status["batches"]} == {"tiger#1", "lion#1"}
    assert all(each["waits_for"] for each in status["batches"]), "nothing just waits"
    done("pause", "nic", "--reason", "lunch")
    assert "lunch" in campaign("status", "nic").out
    done("resume", "nic")
    done("cancel", "nic", "--reason", "wrong fix")
    assert done("list")[0]["phase"] == "cancelled"
    assert {each["step"] for each in done("status", "nic")["batches"]} == {"cancelled"}
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
    "an incident without a title": (("incident", "open", " "), 2, "without a title"),
    "an incident that can't be pasted": (("incident", "open", "fire", "--id", "a b"), 2, "is no id"),
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


def test_a_published_plan_is_announced_before_it_starts_and_told_apart_from_what_was_told() -> None:
    done("plan", "nic.yaml")
    write_file(cap=6, days=2)
    done("plan", "nic.yaml")
    done("publish", "nic", "told")
    ahead = called("health", "announced", "-o", "json").json()["ahead"]
    assert sorted(len(work["nodes"]) for work in ahead) == [2, 4], "teams see it in why before it starts"
    page = Path("told/campaign.csv").read_text()
    done("publish", "nic", "told")
    assert Path("told/campaign.csv").read_text() == page, "plan 1 was never told: nothing changed for anybody"
    done("start", "nic")
    again = called("health", "announced", "-o", "json").json()["ahead"]
    assert [work["id"] for work in again] == [work["id"] for work in ahead], "once, not twice"


def test_a_chat_is_told_a_number_once_and_only_if_it_took_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def chat(conversation: Conversation) -> None:
        said.append("no" if not said else "ok")
        status = "403 Forbidden" if said == ["no"] else "200 OK"
        conversation.say(http_answer(said[-1], status=status))

    monkeypatch.delenv("PLIMSOLL_WEBHOOK", raising=False)
    done("plan", "nic.yaml")
    done("publish", "nic", "told")
    unset = campaign("publish", "nic", "told", "--chat")
    assert (unset.code, "PLIMSOLL_WEBHOOK" in unset.err) == (2, True)
    with BadWeb(chat) as web:
        monkeypatch.setenv("PLIMSOLL_WEBHOOK", f"{web.url}/hook")
        assert campaign("publish", "nic", "told", "--chat").code == 1
        assert done("publish", "nic", "told", "--chat")["did"] == {"chat": "plan 1 posted"}
        assert "posted before" in done("publish", "nic", "told", "--chat")["did"]["chat"]
        assert said == ["no", "ok"]
        assert done("publish", "nic", "told", "--chat", "--again")["did"] == {"chat": "plan 1 posted"}


def test_the_next_command_is_one_that_will_not_be_refused() -> None:
    assert "campaign start nic" in campaign("plan", "nic.yaml").out
    assert "campaign start nic" in campaign("run", "nic").out, "nothing is done because it has not started"
    write_file("old.yaml", days=-3)
    assert "campaign start" not in campaign("plan", "old.yaml").out, "it would be refused: its dates are past"
    write_file(cap=5)
    done("plan", "nic.yaml")
    done("start", "nic")
    assert "campaign start" not in campaign("replan", "nic").out, "it runs already"
    nodes = done("status", "nic", "--batch", "lion")["nodes"]
    assert [node["node"] for node in nodes] == ["l1", "l2"]


def test_an_example_that_could_not_be_planned_is_not_printed() -> None:
    for words, want in {
        ("two words",): "name of at most 100",
        ("nic", "--area", "mars"): "no node is in an area 'mars'; there are eu",
        ("nic", "--start", "9999-12-31"): "a campaign starts on 9990-12-31 at the latest",
    }.items():
        said = campaign("example", *words)
        assert (said.code, said.out) == (2, "")
        assert want in said.err


def test_status_of_a_past_moment_is_that_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    done("plan", "nic.yaml")
    done("start", "nic")
    moment = utc_now()
    later = moment + timedelta(days=9)
    set_clock(monkeypatch, later)
    past = done("status", "nic", "--as-of", moment.isoformat())
    assert {code for batch in past["batches"] for code in batch["codes"]} == {"not_due"}


def test_a_later_deadline_is_looked_for_as_far_as_a_short_week_needs() -> None:
    write_file(length=0)
    text = Path("nic.yaml").read_text().replace("tz: UTC", "tz: UTC, days: [sat]")
    text = text.replace("mode: whole, hours: 4", "mode: rolling, share_per_day: 0.2, hours: 24")
    Path("nic.yaml").write_text(text.replace("at_most: 4}", "at_most: 4}, {kind: crews, at_most: 1}"))
    said = campaign("plan", "nic.yaml", "-o", "json")
    assert said.code == 1
    deadline = next(each for each in said.json()["relaxations"] if each["limit"] == "deadline")
    assert deadline["possible"], "six Saturdays, one batch on each"
    first, last = date.fromisoformat(deadline["from"]), date.fromisoformat(deadline["to"])
    assert (last.strftime("%a"), 35 <= (last - first).days <= 42) == ("Sat", True)


def test_the_gate_is_not_open_to_what_has_begun_or_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(cap=6)
    begin = datetime.fromisoformat(done("plan", "nic.yaml")["batches"][0]["start"])
    done("start", "nic")
    set_clock(monkeypatch, begin + timedelta(minutes=1))
    assert campaign("gate", "nic", "tiger").code == 0
    done("run", "nic")
    said = campaign("gate", "nic", "tiger")
    assert (said.code, "tiger#1 is working" in said.err) == (1, True)
    done("tick", "nic", "tiger", "--lost", "t1", "--lost", "t2", "--validated")
    back = done("returned", "nic", "--updated")
    assert back["nodes"] == 2
