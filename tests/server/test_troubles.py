"""What comes from outside and must hold up nobody: long texts, half characters, an issuer that hangs, refusals."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from plimsoll.server import signin
from plimsoll.server.api import LARGE_BYTES
from tests.support.served import TEAM, Served, make_people, serving, small_book


@pytest.fixture
def own(tmp_path: Any) -> Iterator[Served]:
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn)) as server:
        yield server


def test_a_long_text_is_read_beside_the_others(served: Served) -> None:
    slow, long = served.house.slow.done, "# " + "x" * LARGE_BYTES
    reply = served.post("/quota/policy/check", {"file": long}, who="viewer")
    assert (reply.status, reply.error["code"]) == (400, "bad_document")
    assert served.house.slow.done == slow + 1


def test_a_feed_that_sends_much_is_heard_beside_the_others(own: Served) -> None:
    line = b'{"node": "tiger-01", "kind": "check", "name": "nccl", "ok": true}\n'
    lanes = own.house.quick, own.house.slow
    for lines, lane in ((1, own.house.quick), (LARGE_BYTES // len(line) + 1, own.house.slow)):
        before = {each.name: each.done for each in lanes}
        reply = own.post("/signals?feed=nccl", line * lines, who="operator")
        assert reply.status == 200, reply.body
        assert lane.done > before[lane.name]
        assert own.house.slow.done == before["slow"] + (lane is own.house.slow)


def test_a_text_in_another_encoding_is_told_as_any_other_mistake(own: Served) -> None:
    before = own.house.mistakes
    reply = own.post("/requests", b'{"team": "\xe9quipe"}', who="member")
    assert (reply.status, reply.error["code"], own.house.mistakes) == (400, "bad_json", before)


def test_no_block_of_nothing_is_looked_for(own: Served) -> None:
    for size in ("0", "-8"):
        reply = own.api(f"/defrag?for={size}&sku=H200")
        assert reply.status in (400, 422), size
        assert own.house.mistakes == 0


def test_a_hold_without_an_end_is_refused_in_words(own: Served) -> None:
    hold = {"team": TEAM, "cluster": "tiger", "sku": "H200", "gpus": "8", "for": "ann", "until": "", "dry_run": True}
    reply = own.post("/workload-holds", hold, who="member")
    assert (reply.status, reply.error["code"]) == (400, "bad_usage")


def test_nobody_follows_the_calendar_of_a_name_that_is_none(own: Served) -> None:
    for asked, want in (("team=nosuch", 404), ("cluster=nosuch", 404), (f"team={TEAM}", 200), ("cluster=tiger", 200)):
        assert own.api(f"/calendar?{asked}").status == want


def test_half_a_character_is_told_as_any_other_mistake(served: Served) -> None:
    """YAML can write it; JSON and the log must live with it."""
    before = served.house.mistakes
    reply = served.post("/workloads", {"files": ['team: "\\ud800"']}, who="member")
    assert (reply.status, reply.error["code"]) == (400, "bad_document")
    assert "x-request-id" in reply.headers
    assert served.house.mistakes == before


def test_a_refusal_is_counted_where_it_was(own: Served) -> None:
    assert own.post("/transfers", {}, who="viewer").status == 403
    assert own.api("/workloads/none", who="viewer").status == 404
    assert own.api("/workloads/none", who="").status == 401
    assert own.api("/nothing", who="viewer").status == 404
    text = own.ask("/metrics", who="viewer").body.decode()
    found = {
        (route, status): int(count)
        for route, status, count in re.findall(r'requests_total\{route="([^"]*)",status="(\d+)"\} (\d+)', text)
    }
    assert found == {
        ("/api/v1/transfers", "403"): 1,
        ("/api/v1/workloads/{name}", "404"): 1,
        ("/api/v1/workloads/{name}", "401"): 1,
        ("other", "404"): 1,
    }


def test_pages_of_the_past_are_of_one_past_wherever_they_are_asked_for(tmp_path: Path) -> None:
    dsn = small_book(tmp_path)
    people = make_people(dsn)
    asked = {"team": TEAM, "gpus": 8, "sku": "H200", "cluster": "tiger", "reason": "more"}
    with serving(dsn, people) as one, serving(dsn, people) as other:
        for _ in range(6):
            assert one.post("/requests", asked).status == 200
        past = one.house.api.head
        for _ in range(6):
            assert one.post("/requests", asked).status == 200
        for then in (one, other):
            seen, path = [], f"/api/v1/requests?as_of={past}&limit=4"
            for server in (one, then, then, then):
                reply = server.ask(path, who="admin")
                seen += [each["id"] for each in reply.document["requests"]]
                match = re.match("<(.*)>", reply.headers.get("link", ""))
                if match is None:
                    break
                path = match[1]
            assert seen == [f"q{number}" for number in range(1, 7)]


class Deaf:
    """An issuer that takes connections and never says a word."""

    def __init__(self) -> None:
        self._ear = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._ear.getsockname()[1]}"

    def hang_up(self) -> None:
        """Whoever waits hears the end."""
        self._ear.settimeout(0.2)
        with suppress(OSError):
            while True:
                self._ear.accept()[0].close()
        self._ear.close()


def test_an_issuer_that_hangs_holds_up_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signin, "ISSUER_WAITING_MAX", 6)
    dsn, deaf = small_book(tmp_path), Deaf()
    oidc = {"issuer": deaf.url, "client_id": "plimsoll"}
    with serving(dsn, make_people(dsn), oidc=oidc) as server, ThreadPoolExecutor(9) as pool:
        asking = [pool.submit(server.ask, "/signin/oidc") for _ in range(9)]
        refused, _ = wait(asking, timeout=5, return_when=FIRST_COMPLETED)
        while len(refused) < 3:
            refused = {each for each in asking if each.done()}
        assert {(each.result().status, each.result().error["code"]) for each in refused} == {(503, "issuer_busy")}
        assert server.ask("/quota", who="viewer", Accept="text/html").status == 200
        assert sum(not each.done() for each in asking) == 6, "they wait still"
        deaf.hang_up()
        assert {each.result().error["code"] for each in asking} == {"issuer_busy", "issuer_unavailable"}
