"""Whoever loses a right loses the stream of changes: wherever it was taken, and whether or not an event tells of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from plimsoll.access import service
from plimsoll.access.model import Binding, Kind, Role
from plimsoll.errors import Unavailable
from plimsoll.server import recheck
from plimsoll.server.guard import Pass
from plimsoll.state.keeper import Keeper
from tests.support.command import PLIMSOLL
from tests.support.served import Served, make_people, serving, small_book
from tests.support.servers import Ear
from tests.support.waiting import wait_until

SOON = 20.0
"""Seconds until a stream must have ended, on a machine that has much else to do. Without a word it lasts 15 minutes."""
VIEWER = "viewer@example.org"


@pytest.fixture
def heeding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server that looks at its listeners only when something tells it to."""
    monkeypatch.setattr(recheck, "RECHECK_SECONDS", 3_600.0)
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn)) as server:
        yield server


def _token_id(server: Served, owner: str = VIEWER) -> str:
    with server.house.open_keeper() as keeper:
        return next(each.id for each in service.tokens(keeper.state()) if each.owner == owner)


def _revoke_by_api(server: Served) -> None:
    assert server.post(f"/access/tokens/{_token_id(server)}/revoke").status == 200


def _revoke_in_a_terminal(server: Served) -> None:
    ran = subprocess.run(
        [str(PLIMSOLL), "--db", server.house.settings.dsn, "access", "token", "revoke", _token_id(server)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def _take_the_role(server: Served) -> None:
    assert server.post("/access/revoke", {"who": VIEWER, "role": "viewer"}).status == 200


def _take_the_role_elsewhere(server: Served) -> None:
    with server.house.open_keeper() as keeper:
        service.revoke(keeper, VIEWER, Binding(Role.VIEWER), actor="tester")


ENDS: dict[str, tuple[Callable[[Served], None], int]] = {
    "a token that is revoked here": (_revoke_by_api, 401),
    "a token that is revoked in a terminal": (_revoke_in_a_terminal, 401),
    "a role that is taken away here": (_take_the_role, 403),
    "a role that is taken away by another process": (_take_the_role_elsewhere, 403),
}


@pytest.mark.parametrize("case", ENDS)
def test_who_loses_a_right_hears_nothing_any_more_and_nobody_else_is_let_go_of(heeding: Served, case: str) -> None:
    take, want = ENDS[case]
    ear, other = Ear(heeding), Ear(heeding, who="operator")
    take(heeding)
    ear.wait_for_end(SOON)
    assert heeding.api("/changes", who="viewer").status == want
    heeding.post("/incidents", {"title": "after", "id": "after"})
    other.wait_for("incident/after")
    assert "incident/after" not in ear.subjects
    other.close()


def _session(server: Served, *, hours: float = 1.0) -> str:
    with server.house.open_keeper() as keeper:
        now = keeper.ledger.clock()
        return service.open_session(keeper.ledger.store, VIEWER, Kind.PERSON, (), now, hours)


def test_who_signs_out_hears_nothing_any_more_in_any_of_their_pages(heeding: Served) -> None:
    cookie = f"plimsoll={_session(heeding)}"
    pages, token = [Ear(heeding, cookie=cookie) for _ in range(3)], Ear(heeding)
    reply = heeding.ask("/signout", method="POST", Cookie=cookie, Sec_Fetch_Site="same-origin")
    assert reply.status == 303
    for page in pages:
        page.wait_for_end(SOON)
    heeding.post("/incidents", {"title": "after", "id": "after"})
    token.wait_for("incident/after")
    token.close()


@pytest.fixture
def looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server that looks at its listeners often."""
    monkeypatch.setattr(recheck, "RECHECK_SECONDS", 0.1)
    monkeypatch.setattr(recheck, "PAUSE_SECONDS", 0.0)
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn)) as server:
        yield server


def test_a_session_that_was_ended_at_another_server_ends_here(looking: Served) -> None:
    """No event tells of it."""
    secret = _session(looking)
    ear = Ear(looking, cookie=f"plimsoll={secret}")
    with looking.house.open_keeper() as keeper:
        assert service.end_session(keeper.ledger.store, secret)
    ear.wait_for_end(SOON)
    cookie = f"plimsoll={secret}"
    wait_until(
        lambda: looking.ask("/api/v1/whoami", Cookie=cookie).document["who"] is None, what="nobody is known by it"
    )
    assert looking.ask("/api/v1/changes", Cookie=cookie).status == 401


def test_a_session_whose_time_is_over_ends_while_one_listens(looking: Served) -> None:
    ear = Ear(looking, cookie=f"plimsoll={_session(looking, hours=3 / 3600)}")
    ear.wait_for_end(SOON)


def test_a_token_whose_time_is_over_ends_while_one_listens(looking: Served) -> None:
    with looking.house.open_keeper() as keeper:
        until = keeper.ledger.clock() + timedelta(seconds=3)
        token, _ = service.issue_token(keeper, VIEWER, kind=Kind.PERSON, scopes=None, expires=until, actor="tester")
    ear = Ear(looking, token=token)
    ear.wait_for_end(SOON)
    assert looking.ask("/api/v1/changes", Authorization=f"Bearer {token}").status == 401


def test_who_is_let_see_more_is_asked_anew(heeding: Served) -> None:
    ear = Ear(heeding, who="partner")
    assert heeding.post("/access/grant", {"who": "partner@example.org", "role": "viewer"}).status == 200
    ear.wait_for_end(SOON)
    ear = Ear(heeding, who="partner")
    heeding.post("/incidents", {"title": "seen", "id": "seen"})
    ear.wait_for("incident/seen")
    ear.close()


def test_a_round_that_fails_is_not_the_last(looking: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[Exception] = [Unavailable("connection_lost", "did not answer"), KeyError("oh")]
    lost = looking.house.guard.lost

    def fail(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return lost(*arguments)

    ear = Ear(looking)
    monkeypatch.setattr(looking.house.guard, "lost", fail)
    wait_until(lambda: not failures, what="two rounds have failed")
    _take_the_role_elsewhere(looking)
    ear.wait_for_end(SOON)


def test_a_round_looks_everybody_up_once_and_a_few_at_a_time(heeding: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recheck, "LOOKED_UP_AT_ONCE", 2)
    asked: list[list[str]] = []
    lost = heeding.house.guard.lost

    def note(keeper: Keeper, passes: list[Pass]) -> list[Pass]:
        asked.append([each.principal.label for each in passes])
        return lost(keeper, passes)

    ears = [Ear(heeding, who=who) for who in ("viewer", "viewer", "operator", "member", "member")]
    monkeypatch.setattr(heeding.house.guard, "lost", note)
    heeding.post("/access/grant", {"who": "somebody@example.org", "role": "viewer"})
    wait_until(lambda: len(asked) >= 2, what="a round")
    assert all(len(each) <= 2 for each in asked)
    first = sorted(label.partition("@")[0] for each in asked[:2] for label in each)
    assert first == ["member", "operator", "viewer"]
    for ear in ears:
        assert not ear.is_over, "nothing changed for them"
        ear.close()
