"""Signals over HTTP: what is taken, what is refused and how, and what a bad sender can't do."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from plimsoll.commands.health import listener as signals
from plimsoll.commands.health.listener import BODY_BYTES_MAX, SENDERS_MAX, SignalServer
from plimsoll.errors import Refused, Unavailable, UsageError
from tests.support.health import Ward
from tests.support.waiting import wait_until

TOKEN = "s3cret"
XID = b'{"node": "n1", "kind": "xid", "name": "79"}'


class Served(NamedTuple):
    """A fleet behind a running server."""

    ward: Ward
    server: SignalServer

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    def send(self, body: bytes, *, path: str = "/api/v1/signals", token: str = TOKEN, **headers: str) -> Answered:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", path, body, {"Authorization": f"Bearer {token}", **headers})
            response = connection.getresponse()
            return Answered(response.status, json.loads(response.read()))
        finally:
            connection.close()

    def say(self, data: bytes, *, half: bool = False) -> Answered:
        """Raw bytes, for what no client would send; `half` hangs up the sending side."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as plain:
            plain.sendall(data)
            if half:
                plain.shutdown(socket.SHUT_WR)
            response = http.client.HTTPResponse(plain)
            response.begin()
            return Answered(response.status, json.loads(response.read()))


class Answered(NamedTuple):
    status: int
    document: Any

    @property
    def error(self) -> dict[str, Any]:
        assert self.document.keys() == {"error"}
        error: dict[str, Any] = self.document["error"]
        assert error.keys() == {"code", "message", "next_step", "fields"}
        assert error["next_step"]
        return error


@pytest.fixture
def served(sqlite_dsn: str) -> Iterator[Served]:
    with Ward(4, dsn=sqlite_dsn) as ward, SignalServer(ward.keeper, host="127.0.0.1", port=0, token=TOKEN) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield Served(ward, server)
        server.shutdown()
        thread.join()


def head(length: int | str, *, token: str = TOKEN) -> bytes:
    lines = ["POST /api/v1/signals HTTP/1.1", "Host: x", f"Authorization: Bearer {token}"]
    return "\r\n".join([*lines, *([f"Content-Length: {length}"] if length != "" else []), "", ""]).encode()


def test_a_signal_is_judged_and_answered(served: Served) -> None:
    said = served.send(XID)
    assert said.status == 200
    assert said.document.keys() == {"feed", "taken", "ignored", "rejections", "outcome", "revision"}
    assert (said.document["feed"], said.document["taken"]) == ("http", 1)
    (moved,) = said.document["outcome"]["moved"]
    assert (moved["node"], moved["service"], moved["why"]) == ("n1", "quarantined", "xid 79")
    assert said.document["revision"] == served.ward.state.revision
    # The next one is judged on what the first one did.
    again = served.send(XID)
    assert (again.document["taken"], again.document["outcome"]["moved"]) == (1, [])
    served.ward.keeper.state()
    assert served.ward.service("n1") == "quarantined"


def test_the_feed_has_the_name_that_the_sender_gives(served: Served) -> None:
    assert served.send(XID, path="/api/v1/signals?feed=dcgm").document["feed"] == "dcgm"
    assert served.send(XID, path="/api/v1/signals?feed=rack%2012&x=y").document["feed"] == "rack 12"
    assert served.send(XID, path="/api/v1/signals?x=y").document["feed"] == "http"
    actors = {event.actor for event in served.ward.keeper.ledger.store.events()}
    assert {"http:dcgm", "http:rack 12"} <= actors


def test_what_can_not_be_judged_is_named_beside_what_can(served: Served) -> None:
    lines = [XID, b'{"node": "n9", "kind": "xid", "name": 79}', b"", b'{"node": "n2", "kind": "xid", "name": 31}']
    said = served.send(b"\n".join(lines)).document
    assert (said["taken"], said["ignored"]) == (1, 1)
    assert said["rejections"] == [
        {"code": "unknown_node", "node": "n9", "message": "there is no node 'n9'", "count": 1}
    ]


REFUSED: dict[str, tuple[bytes, dict[str, str], int, str, str]] = {
    "no JSON": (XID + b"\n{node}", {}, 400, "bad_signal", "the request, line 2: "),
    "a field that is none": (b'{"node": "n1", "kind": "xid", "nmae": "79"}', {}, 400, "bad_signal", "nmae"),
    "a kind that is none": (b'{"node": "n1", "kind": "xld"}', {}, 400, "bad_signal", "line 1: Invalid enum value"),
    "an XID that is none": (b'{"node": "n1", "kind": "xid", "name": "x"}', {}, 400, "bad_signal", "found 'x'"),
    "a wrong token": (XID, {"token": "guess"}, 401, "not_allowed", "missing or wrong"),
    "another path": (XID, {"path": "/api/v2"}, 404, "no_such_path", "/api/v2"),
    "a feed's name that is too long": (XID, {"path": f"/api/v1/signals?feed={'x' * 101}"}, 400, "bad_feed", "100"),
    "a feed's name with a line break": (XID, {"path": "/api/v1/signals?feed=a%0Ab"}, 400, "bad_feed", "name"),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_bad_request_is_refused_in_one_shape_and_nothing_is_taken(sentence: str, served: Served) -> None:
    body, options, want_status, want_code, want = REFUSED[sentence]
    before = served.ward.keeper.ledger.head()
    said = served.send(body, **options)
    assert (said.status, said.error["code"]) == (want_status, want_code)
    assert want in said.error["message"]
    assert served.ward.keeper.ledger.head() == before


RAW: dict[str, tuple[bytes, int, str]] = {
    "no length": (head(""), 411, "length_missing"),
    "a length that is none": (head("many"), 411, "length_missing"),
    "a length below nothing": (head("-1"), 411, "length_missing"),
    "a length that no number holds": (head("9" * 5_000), 411, "length_missing"),
    "a length that is too big": (head(BODY_BYTES_MAX + 1), 413, "body_too_big"),
    "half a body, cut between two lines": (head(2 * len(XID) + 1) + XID + b"\n", 400, "body_cut"),
}


@pytest.mark.parametrize("sentence", RAW)
def test_a_request_that_no_client_would_send_is_refused(sentence: str, served: Served) -> None:
    data, want_status, want_code = RAW[sentence]
    before = served.ward.keeper.ledger.head()
    said = served.say(data, half=True)
    assert (said.status, said.error["code"]) == (want_status, want_code)
    assert served.ward.keeper.ledger.head() == before


def test_who_sends_a_body_that_is_too_big_can_read_why(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as plain:
        plain.sendall(head(BODY_BYTES_MAX + 1))
        for _ in range(64):
            plain.sendall(b"x" * 65_536)
        response = http.client.HTTPResponse(plain)
        response.begin()
        assert response.status == 413


@pytest.mark.parametrize("dripped", [b"POST /api/v1/signals HTTP/1.1\r\nX: ", head(1_000)], ids=["headers", "body"])
def test_a_sender_that_drips_is_given_up(dripped: bytes, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "SENDER_SECONDS_MAX", 0.5)
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as plain:
        plain.sendall(dripped)
        with pytest.raises(OSError):  # noqa: PT012  # how many bytes go through is not ours to say
            while time.monotonic() - began < 8:
                plain.sendall(b"x")
                time.sleep(0.05)
                if plain.recv(65_536, socket.MSG_DONTWAIT) == b"":
                    raise ConnectionError
    assert time.monotonic() - began < 6


def test_a_sender_that_is_too_slow_is_told_so(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "SENDER_SECONDS_MAX", 0.3)
    said = served.say(head(len(XID)) + XID[:10])
    assert (said.status, said.error["code"]) == (408, "too_slow")
    assert served.ward.service("n1") == "in_service"


def test_many_senders_at_once_are_all_heard(served: Served) -> None:
    count = 2 * SENDERS_MAX
    bodies = [b'{"node": "n%d", "kind": "xid", "name": "79"}' % (number % 4 + 1) for number in range(count)]
    with ThreadPoolExecutor(32) as pool:
        said = list(pool.map(served.send, bodies))
    assert {each.status for each in said} == {200}
    assert sum(each.document["taken"] for each in said) == count
    assert sorted(moved["node"] for each in said for moved in each.document["outcome"]["moved"]) == [
        "n1",
        "n2",
        "n3",
        "n4",
    ]


def test_idle_senders_do_not_keep_others_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "SENDER_SECONDS_MAX", 1.0)
    idle = [socket.create_connection(("127.0.0.1", served.port), timeout=10) for _ in range(SENDERS_MAX)]
    try:
        began = time.monotonic()
        assert served.send(XID).status == 200
        assert time.monotonic() - began < 8
    finally:
        for plain in idle:
            plain.close()


def test_a_database_that_can_not_be_written_is_said(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: Any, **_options: Any) -> None:
        raise Unavailable("disk_full", "the disk is full", next_step="make room")

    monkeypatch.setattr(signals, "observe", fail)
    said = served.send(XID)
    assert (said.status, said.error["code"], said.error["message"]) == (503, "disk_full", "the disk is full")


def test_it_says_that_it_is_there(served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
    for _ in range(2):  # one connection, several requests
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b'{"status":"ok"}')
    connection.request("GET", "/")
    assert connection.getresponse().status == 404
    connection.close()


HOSTS = {"0.0.0.0": False, "192.0.2.7": False, "example.org": False, "127.0.0.1": True, "localhost": True}  # noqa: S104


@pytest.mark.parametrize("host", HOSTS)
def test_without_a_token_only_this_machine_is_served(host: str) -> None:
    with Ward(1) as ward:
        if HOSTS[host]:
            SignalServer(ward.keeper, host=host, port=0, token="").server_close()
            return
        with pytest.raises(Refused) as caught:
            SignalServer(ward.keeper, host=host, port=0, token="")
        assert caught.value.code == "token_missing"
        assert host in caught.value.message


def test_a_port_that_is_taken_is_said(served: Served) -> None:
    with pytest.raises(UsageError) as caught:
        SignalServer(served.ward.keeper, host="127.0.0.1", port=served.port, token="")
    assert caught.value.message == f"can't listen on 127.0.0.1:{served.port}: Address already in use"


def test_without_a_token_of_its_own_it_asks_for_none(sqlite_dsn: str) -> None:
    with Ward(1, dsn=sqlite_dsn) as ward, SignalServer(ward.keeper, host="127.0.0.1", port=0, token="") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        assert Served(ward, server).send(XID, token="").status == 200
        wait_until(lambda: ward.keeper.state() is not None and ward.service("n1") == "quarantined", what="it is judged")
        server.shutdown()
        thread.join()
