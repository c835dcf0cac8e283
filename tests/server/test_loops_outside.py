"""A server that leads tells others: a chat of what is wrong, schedulers of what is promised. Both are real servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.commands.quota.ways import Target
from plimsoll.errors import Fenced
from plimsoll.quota.model import Mode
from plimsoll.quota.service import set_mode
from plimsoll.rooms import open_keeper
from plimsoll.server.loops_passes import Schedulers
from plimsoll.server.loops_role import LoopStatus, Turn
from tests.support.bad_web import BadWeb, http_answer
from tests.support.logbook import kept_week
from tests.support.quota_service import FakeQuotaService
from tests.support.served import OTHER, TEAM, Served, make_people, serving
from tests.support.waiting import wait_until

SECRET = "a-secret-of-a-test-that-is-long-enough"
HOOK = "/services/T0/B0/s3cr3tpath"


@pytest.fixture
def week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The database of a known week: lion is 8 GPUs short of its 16. Nothing of this machine's settings counts."""
    for name in ("PLIMSOLL_WEBHOOK", "PLIMSOLL_PUBLIC_URL", "PLIMSOLL_HTTP_URL", "PLIMSOLL_HTTP_SECRET"):
        monkeypatch.delenv(name, raising=False)
    return kept_week(tmp_path)


def enforce(dsn: str, *clusters: str) -> None:
    with open_keeper(dsn) as keeper:
        for cluster in clusters:
            set_mode(keeper, cluster, Mode.ENFORCE, actor="rpm", reason="a test")


def loop(served: Served, name: str) -> LoopStatus:
    assert served.house.controllers is not None
    return next(each for each in served.house.controllers.status() if each.name == name)


def wait_for(served: Served, name: str, is_so: Callable[[LoopStatus], bool]) -> LoopStatus:
    wait_until(lambda: is_so(loop(served, name)), what=f"the loop {name}")
    return loop(served, name)


# The chat.


def posts(web: BadWeb) -> list[Any]:
    return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in web.requests]


def test_a_chat_hears_of_an_incident_from_the_server_that_leads(week: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with BadWeb(lambda talk: talk.say(http_answer("ok"))) as web:
        monkeypatch.setenv("PLIMSOLL_WEBHOOK", f"{web.url}{HOOK}")
        with serving(week, is_leading=True, public_url="https://plimsoll.example.org"):
            wait_until(lambda: any("lion" in post["text"] for post in posts(web)), what="the chat is told")
        told = [post for post in posts(web) if "lion" in post["text"]]
    assert len(told) == 1
    lines = told[0]["text"].splitlines()
    assert lines[0] == "Open: lion H200: fewer GPUs work than are guaranteed"
    assert lines[1].startswith("8 GPUs short: ")
    assert "16 guaranteed, 8 healthy" in told[0]["text"]
    assert f"Teams hurt: {TEAM}" in told[0]["text"]
    assert "<https://plimsoll.example.org/incidents/" in json.dumps(told[0]["blocks"])
    assert all(request.startswith(f"POST {HOOK} ".encode()) for request in web.requests)


def test_a_chat_that_is_not_set_is_not_looked_for(week: str) -> None:
    with serving(week, make_people(week), is_leading=True) as served:
        status = wait_for(served, "incidents", lambda each: each.passes > 0)
        assert (status.error_code, status.failures) == ("", 0)
        titles = [each["title"] for each in served.api("/incidents").document]
        assert "lion H200: fewer GPUs work than are guaranteed" in titles


# The schedulers.


@pytest.fixture
def outlet(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeQuotaService]:
    """An in-house quota service, and the settings that lead there."""
    with FakeQuotaService(SECRET) as service:
        monkeypatch.setenv("PLIMSOLL_HTTP_URL", f"{service.url}/clusters/{{cluster}}")
        monkeypatch.setenv("PLIMSOLL_HTTP_SECRET", SECRET)
        yield service


def test_schedulers_are_told_what_is_promised_where_the_mode_is_enforce(week: str, outlet: FakeQuotaService) -> None:
    """Tiger: 80 of the line are guaranteed, 88 work. Lion is only watched, so nobody is told of it."""
    enforce(week, "tiger")
    with serving(week, is_leading=True, push_to="http") as served:
        status = wait_for(served, "schedulers", lambda each: each.passes > 0)
    assert (status.error_code, status.failures) == ("", 0)
    assert outlet.documents.keys() == {"/clusters/tiger"}
    assert outlet.document() == {
        "version": 1,
        "cluster": "tiger",
        "pools": [
            {"sku": "H200", "gpus_per_node": 8, "line": 80, "flex_standing": 8, "guaranteed": {TEAM: 24, OTHER: 56}}
        ],
    }
    assert outlet.writes == 1


def test_a_scheduler_that_can_not_be_told_is_an_error_of_the_loop(
    week: str, outlet: FakeQuotaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIMSOLL_HTTP_SECRET", "another-secret-that-nobody-there-knows")
    enforce(week, "tiger")
    with serving(week, make_people(week), is_leading=True, push_to="http") as served:
        wait_for(served, "schedulers", lambda each: each.passes > 0)
        found = {each["name"]: each for each in served.api("/status").document["loops"]}
    assert found["schedulers"]["error_code"] == "scheduler_not_told"
    assert found["schedulers"]["error_message"].startswith("tiger: ")
    assert not outlet.documents


def test_who_leads_no_more_tells_no_scheduler(week: str, outlet: FakeQuotaService) -> None:
    enforce(week, "tiger")
    with open_keeper(week) as keeper:
        old = keeper.ledger.store.lead("old", "schedulers")
        assert old is not None
        old.resign()
        new = keeper.ledger.store.lead("new", "schedulers")
        assert new is not None
        passing = Schedulers(Target.HTTP)
        with pytest.raises(Fenced):
            passing.run(Turn(keeper, old, keeper.ledger.clock()))
        assert not outlet.documents
        assert passing.run(Turn(keeper, new, keeper.ledger.clock())) is None
        assert outlet.documents.keys() == {"/clusters/tiger"}


def test_no_scheduler_is_told_without_being_asked_to(week: str, outlet: FakeQuotaService) -> None:
    enforce(week, "tiger")
    with serving(week, make_people(week), is_leading=True) as served:
        wait_for(served, "quota", lambda each: each.passes > 0)
        assert "schedulers" not in {each["name"] for each in served.api("/status").document["loops"]}
    assert not outlet.requests
