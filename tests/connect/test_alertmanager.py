"""What a server can do to the Alertmanager client, and what the client then says. The real server is in tests/real."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from plimsoll.connect.alertmanager import GONE, Alertmanager, Matcher
from plimsoll.errors import PlimsollError, UsageError
from tests.support.bad_web import BadWeb, Conversation, http_answer

TOKEN = "s3cr3t-t0ken"
START = datetime(2026, 1, 5, 11, tzinfo=UTC)


def saying(data: bytes) -> Callable[[Conversation], None]:
    return lambda conversation: conversation.say(data)


def silent(conversation: Conversation) -> None:
    while conversation.pause(0.02):
        pass


class Case(NamedTuple):
    speak: Callable[[Conversation], None]
    want_code: str
    want_words: str


CASES = {
    "it is silent": Case(silent, "alertmanager_unavailable", "no whole answer"),
    "it says something else": Case(saying(http_answer("<html>")), "alertmanager_bad_answer", "6 bytes"),
    "it is another API": Case(saying(http_answer('{"silences": 3}')), "alertmanager_bad_answer", "array"),
    "its times are none": Case(
        saying(
            http_answer(
                '[{"id":"1","matchers":[],"startsAt":"soon","endsAt":"later","createdBy":"","comment":"",'
                '"status":{"state":"active"}}]'
            )
        ),
        "alertmanager_bad_answer",
        "soon",
    ),
    "it wants another token": Case(
        saying(http_answer('"no"', status="401 Unauthorized")), "alertmanager_unavailable", "HTTP 401: no"
    ),
    "it is not there": Case(
        saying(http_answer("nothing here", status="404 Not Found")), "alertmanager_refused", "HTTP 404: nothing here"
    ),
    "it fails": Case(
        saying(http_answer('{"code": 500, "message": "disk"}', status="500 Internal Server Error")),
        "alertmanager_unavailable",
        "HTTP 500: disk",
    ),
    "it points elsewhere": Case(
        saying(http_answer("", status="302 Found", headers="Location: https://u:pw@else.example/x?t=1\r\n")),
        "alertmanager_bad_answer",
        "https://else.example/x",
    ),
    "it never ends": Case(saying(http_answer("[", length=1 << 40)), "alertmanager_unavailable", "bytes"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_the_server_does(case: Case) -> None:
    with BadWeb(case.speak) as server:
        client = Alertmanager(f"{server.url}/prefix", timeout_seconds=0.4, bearer_token=TOKEN)
        with pytest.raises(PlimsollError) as caught:
            client.silences()
        assert server.requests[0].startswith(b"GET /prefix/api/v2/silences HTTP/1.1")
        assert len(server.requests) == 1, "who asked looks first, then asks again"
    error = caught.value
    assert error.code == case.want_code
    assert case.want_words in str(error)
    assert error.next_step
    assert TOKEN not in f"{error} {error.next_step} {error.fields}"


def test_a_silence_that_is_gone_is_ended() -> None:
    for words in ("silence not found", "silence already expired"):
        with BadWeb(saying(http_answer(f'"{words}"', status="500 Internal Server Error"))) as server:
            Alertmanager(server.url).expire("some/id")
            assert server.requests[0].startswith(b"DELETE /api/v2/silence/some%2Fid ")


def test_a_silence_that_is_gone_can_not_be_changed() -> None:
    with (
        BadWeb(saying(http_answer('"silence not found"', status="404 Not Found"))) as server,
        pytest.raises(PlimsollError) as caught,
    ):
        Alertmanager(server.url).save(
            matchers=[Matcher("node", "n1")],
            starts_at=START,
            ends_at=START + timedelta(hours=1),
            created_by="plimsoll",
            comment="c",
            silence_id="gone",
        )
    assert caught.value.code == GONE


@pytest.mark.parametrize("url", ["alerts.example", "http://", "http://alerts.example?x=1"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Alertmanager(url)
    assert caught.value.code == "alertmanager_bad_setting"


def test_a_token_is_one_line_and_never_shown() -> None:
    with pytest.raises(UsageError) as caught:
        Alertmanager("http://alerts.example", bearer_token=f"{TOKEN}\r\nX: y")
    assert TOKEN not in str(caught.value)
    assert TOKEN not in repr(Alertmanager(f"http://u:{TOKEN}@alerts.example"))
