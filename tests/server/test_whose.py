"""Whose it is, where only the command can tell: teams that stand in files, teams whose quota a choice takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from plimsoll.times import utc_now
from tests.support.served import OTHER, TEAM, Served, make_people, serving, small_book

FILE = """workload: {name}
team: {team}
owner: {owner}
where: {{cluster: tiger, sku: H200}}
parts:
  - {{name: train, kind: gang, gpus: 8, tier: mid, rank: 1}}
"""


@pytest.fixture
def own(tmp_path: Any) -> Iterator[Served]:
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn)) as server:
        yield server


def _head(server: Served) -> int:
    revision: int = server.api(f"/audit/head?at_least={server.house.api.head}").document["revision"]
    return revision


THEIRS = {
    "named plainly": FILE.format(name="theirs", team=OTHER, owner="ann"),
    "behind a day that is none": FILE.format(name="theirs", team=OTHER, owner="2026-99-99"),
    "as another kind of text": FILE.format(name="theirs", team=f"!!str {OTHER}", owner="ann"),
    "in a second document": FILE.format(name="mine-2", team=TEAM, owner="ann")
    + "---\n"
    + FILE.format(name="theirs", team=OTHER, owner="ann"),
}


@pytest.mark.parametrize("case", THEIRS)
@pytest.mark.parametrize("is_alone", [True, False])
def test_nobody_submits_work_for_a_team_that_is_not_theirs(own: Served, case: str, is_alone: bool) -> None:
    before = _head(own)
    files = [THEIRS[case]] if is_alone else [FILE.format(name="mine", team=TEAM, owner="me"), THEIRS[case]]
    reply = own.post("/workloads", {"files": files}, who="member")
    assert (reply.status, reply.error["code"]) == (403, "role_too_small")
    assert OTHER in reply.error["message"]
    assert _head(own) == before
    assert own.post("/workloads", {"files": files}, who="admin").status == 200


def test_whoever_decides_for_one_team_does_not_take_from_another(own: Served) -> None:
    """16 GPUs of tiger are nobody's; 24 need somebody to give."""
    assert own.post("/quota/apply", {"reason": "the first"}).status == 200
    asked = {"team": TEAM, "gpus": 24, "sku": "H200", "cluster": "tiger", "reason": "more"}
    found = own.post("/requests", asked, who="rpm").document
    taken = next(each for each in found["options"] if each["givers"])
    assert [each["team"] for each in taken["givers"]] == [OTHER]
    path = f"/requests/{found['request']['id']}/approve"
    before = _head(own)
    for choice in (taken["key"], str(found["options"].index(taken) + 1)):
        reply = own.post(path, {"option": choice}, who="rpm")
        assert (reply.status, reply.error["code"]) == (403, "role_too_small")
        assert OTHER in reply.error["message"]
    assert _head(own) == before
    assert own.post(path, {"option": taken["key"]}, who="fleet_rpm").status == 200
    kinds = [event["kind"] for event in own.api("/events?limit=9").document["events"]]
    assert "quota.transferred" in kinds


def _submitted(server: Served, name: str, *, team: str = TEAM, who: str = "member") -> None:
    reply = server.post("/workloads", {"files": [FILE.format(name=name, team=team, owner="ann")]}, who=who)
    assert reply.status == 200, reply.body


def test_a_member_acts_on_the_work_that_they_submitted(own: Served) -> None:
    """Also before it runs, and after it was cancelled."""
    _submitted(own, "mine")
    assert own.post("/workloads/mine/rank", {"part": "train", "rank": 3, "dry_run": True}, who="member").status == 200
    assert own.post("/workloads/mine/cancel", {"reason": "not needed"}, who="member").status == 200
    assert own.post("/workloads/mine/cancel", {"reason": "again"}, who="member").status == 422


def test_nobody_acts_on_work_that_another_team_submitted(own: Served) -> None:
    _submitted(own, "theirs", team=OTHER, who="admin")
    before = _head(own)
    for act in ("rank", "cancel", "finish", "scale"):
        reply = own.post(
            f"/workloads/theirs/{act}", {"part": "train", "rank": 3} if act == "rank" else {}, who="member"
        )
        assert (reply.status, reply.error["code"]) == (403, "role_too_small"), act
        assert f"--team {TEAM}" not in reply.error["next_step"]
    own.post("/workloads/theirs/cancel", {"reason": "over"})
    assert own.post("/workloads/theirs/cancel", {"reason": "again"}, who="member").status == 403
    assert _head(own) == before + 1


def test_a_role_in_no_team_is_none(own: Served) -> None:
    """What nobody told the team of must not become the work of those who have a role in `(none)`."""
    reply = own.post("/access/grant", {"who": "zed@example.org", "role": "member", "team": "(none)", "reason": "x"})
    assert (reply.status, reply.error["code"]) == (400, "bad_team")


PLANNED = """campaign: {name}
changes: [{{component: agent, version: "2", impact: impactless}}]
scope: {{}}
start: {day}
deadline: {day}
window: {{hours: [0, 24], tz: UTC, days: [mon, tue, wed, thu, fri, sat, sun]}}
slot_minutes: 60
work: [{{scope: {{}}, mode: whole, hours: 1}}]
{running}
"""


def _planned(name: str, **running: list[str]) -> dict[str, object]:
    day = utc_now().date().isoformat()
    text = f"run: {json.dumps(running)}" if running else ""
    return {"file": PLANNED.format(name=name, day=day, running=text), "seconds": 2}


@pytest.mark.parametrize("running", [{"work": ["/bin/true"]}, {"validate": ["/bin/true"]}], ids=["work", "validate"])
def test_only_an_admin_names_programs_that_the_server_runs(own: Served, running: dict[str, list[str]]) -> None:
    """Whoever has the server run a program may do all that the server may."""
    before = _head(own)
    for dry_run in (True, False):
        reply = own.post("/campaigns/plan", _planned("agent", **running) | {"dry_run": dry_run}, who="operator")
        assert (reply.status, reply.error["code"]) == (403, "role_too_small")
        assert "having this server run '/bin/true' needs admin" in reply.error["message"]
    assert _head(own) == before
    assert own.post("/campaigns/plan", _planned("agent"), who="operator").status == 200
    reply = own.post("/campaigns/agent/replan", _planned("agent", **running), who="operator")
    assert (reply.status, reply.error["code"]) == (403, "role_too_small"), "nor with a changed file"
    assert own.post("/campaigns/plan", _planned("agent", **running)).status == 200
    assert own.post("/campaigns/agent/replan", _planned("agent", **running), who="operator").status == 200
    reply = own.post("/campaigns/plan", _planned("agent", work=["/bin/false"]), who="operator")
    assert reply.status == 403, "it is another program"


def test_a_no_says_which_team_it_is_about(own: Served) -> None:
    """Who asks an admin for a role must not be told to ask for one of the whole fleet."""
    _submitted(own, "mine")
    _submitted(own, "theirs", team=OTHER, who="admin")
    for who, name, want in (("member", "theirs", OTHER), ("viewer", "mine", "TEAM"), ("partner", "mine", "TEAM")):
        reply = own.post(f"/workloads/{name}/cancel", {"reason": "x"}, who=who)
        assert (reply.status, reply.error["code"]) == (403, "role_too_small")
        assert f"workload cancel for {want} needs" in reply.error["message"]
        assert reply.error["next_step"].endswith(f"--team {want}")
