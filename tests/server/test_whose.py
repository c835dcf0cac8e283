"""Whose it is, where only the command can tell: teams that stand in files, teams whose quota a choice takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

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
