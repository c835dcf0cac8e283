"""`plimsoll incident` as people and scripts use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.bad_web import BadWeb, http_answer
from tests.support.fleets import nodes, row, write_fleet
from tests.support.inside import Said, called

WORKLOAD = """\
workload: run
team: red
where: {cluster: tiger, sku: H200}
owner: ada
parts:
  - {name: train, kind: gang, gpus: 16, tier: high, rank: 1}
"""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four nodes, all of them guaranteed to red, and a gang on two of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLIMSOLL_DB", f"sqlite:///{tmp_path}/p.db")
    monkeypatch.setenv("PLIMSOLL_ACTOR", "alice")
    monkeypatch.delenv("PLIMSOLL_WEBHOOK", raising=False)
    folder = write_fleet(
        tmp_path / "fleet",
        clusters=[row("clusters")],
        nodes=nodes(4, prefix="t"),
        quotas=[row("quotas", team="red", gpus="32")],
    )
    Path("run.yaml").write_text(WORKLOAD)
    for words in (
        ("fleet", "import", folder),
        ("quota", "apply", "--policy", "fixed:0"),
        ("workload", "submit", "run.yaml"),
    ):
        said = called(*words)
        assert said.code == 0, said.err


def incident(*words: object) -> Said:
    return called("incident", *words)


def done(*words: object) -> Any:
    said = incident(*words, "-o", "json")
    assert said.code == 0, said.err
    return said.json()


def lose_a_node() -> str:
    listed = called("workload", "show", "run", "-o", "json").out
    node = next(name for name in ("t1", "t2", "t3", "t4") if f'"{name}"' in listed)
    assert called("health", "set", node, "quarantined", "--reason", "xid 79").code == 0
    return node


def test_a_lost_node_opens_an_incident_posts_it_and_tells_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    assert done("run") == {"did": [], "open": 0}
    node = lose_a_node()
    with BadWeb(lambda talk: talk.say(http_answer("ok"))) as web:
        monkeypatch.setenv("PLIMSOLL_WEBHOOK", f"{web.url}/hook")
        ran = done("run")
        posted = [json.loads(each.partition(b"\r\n\r\n")[2])["text"] for each in web.requests]
    assert [(each["what"], each["name"]) for each in ran["did"]] == [("opened", "incident-1"), ("told", "ada")]
    assert ran["open"] == 1
    assert len(posted) == 2
    assert posted[0].startswith("Open: tiger H200")
    assert f"ada: run: a node under train went bad: {node} quarantined: xid 79" in posted[1]
    (found,) = done("list")
    assert (found["kind"], found["about"], found["amount"], found["unit"]) == (
        "broken_promise",
        "pool/tiger/H200",
        8,
        "gpus",
    )
    assert (found["holds_campaigns"], found["numbers"]["teams"], found["is_on"]) == (False, ["red"], True)
    shown = done("show", "incident-1")
    assert [post["fate"] for post in shown["posts"]] == ["posted"]
    assert shown["notes"][0][1:] == ["alice", shown["notes"][0][2]]
    assert "8 GPUs short: 32 guaranteed, 24 healthy; 1 node out" in shown["notes"][0][2]
    (notice,) = done("notices", "--team", "red", "--owner", "ada")
    assert (notice["what"], notice["by"], notice["done"]) == ("node_lost", node, "train goes on with a free node")
    assert done("notices", "--team", "blue") == []
    assert done("run")["did"] == []


def test_people_open_note_and_close_and_the_older_words_go_on_working() -> None:
    words = ("open", "fire", "--cluster", "tiger", "--on-call", "bob")
    assert incident(*words, "--dry-run").out.startswith("incident incident-1 would be open: ")
    assert done(*words)["incident"] == "incident-1"
    assert called("campaign", "incident", "note", "incident-1", "smoke").code == 0
    (found,) = called("campaign", "incident", "list", "-o", "json").json()
    assert (found["id"], found["roster"], found["holds_campaigns"]) == ("incident-1", ["bob"], True)
    assert found["notes"][0][1:] == ["alice", "smoke"]
    assert "whose move" in incident("show", "incident-1").out
    would = incident("close", "incident-1", "--dry-run").out
    assert would.startswith("incident incident-1 would be closed: fire\n")
    assert "campaigns would begin on tiger again" in would
    assert called("campaign", "incident", "close", "incident-1").out == "incident incident-1 is closed\n"
    assert done("list") == []
    (closed,) = done("list", "--all", "--kind", "person")
    assert closed["closed_by"] == "alice"
    assert "it came to: " in incident("show", "incident-1").out


REFUSALS = {
    "one that is not there": (("show", "x"), 1, "no incident 'x'"),
    "one that lasts": (("close", "incident-1"), 1, "closes by itself"),
    "no such kind": (("list", "--kind", "x"), 2, "broken_promise"),
    "a span that is none": (("run", "--every", "x"), 2, "x"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_says_why(name: str) -> None:
    words, want_code, want_words = REFUSALS[name]
    lose_a_node()
    done("run")
    said = incident(*words)
    assert said.code == want_code, said.err
    assert want_words in said.err


def test_a_webhook_that_is_not_there_is_said_by_its_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plimsoll.connect.slack.RETRY_SECONDS", 0.0)
    monkeypatch.setenv("PLIMSOLL_WEBHOOK", "http://127.0.0.1:9/s3cr3tpath")
    lose_a_node()
    done("run")
    (post,) = done("show", "incident-1")["posts"]
    assert (post["fate"], post["attempts"]) == ("waiting", 1)
    assert "http://127.0.0.1:9 was not reached" in post["detail"]
    assert "s3cr3tpath" not in called("audit", "log", "-o", "json").out
