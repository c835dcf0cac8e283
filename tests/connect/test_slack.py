"""What a chat's server can do to the webhook, and what is then said. Nothing is posted twice unknowingly."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

import pytest

from plimsoll.connect import slack
from plimsoll.connect.slack import Webhook
from plimsoll.errors import PlimsollError, UsageError
from tests.support.bad_web import BadWeb, Conversation, http_answer
from tests.support.slurm import free_ports

SECRET = "/services/T0000/B0000/s3cr3tpath"
MESSAGE = {"text": "plan 2", "blocks": []}


def saying(*answers: bytes) -> Callable[[Conversation], None]:
    """One answer for each request; the last one again and again."""
    left = list(answers)
    return lambda conversation: conversation.say(left.pop(0) if len(left) > 1 else left[0])


def silent(conversation: Conversation) -> None:
    while conversation.pause(0.02):
        pass


class Case(NamedTuple):
    speak: Callable[[Conversation], None]
    want_code: str = ""
    want_words: str = ""
    want_posts: int = 1
    want_pauses: tuple[float, ...] = ()


OK = http_answer("ok")
BUSY = http_answer("rate_limited", status="429 Too Many Requests")
DOWN = http_answer("", status="503 Service Unavailable")
CASES = {
    "it is taken": Case(saying(OK)),
    "it is taken without a word": Case(saying(http_answer("", status="204 No Content"))),
    "the chat is busy, then takes it": Case(saying(BUSY, DOWN, OK), want_posts=3, want_pauses=(1.0, 2.0)),
    "the chat stays busy": Case(
        saying(BUSY), "webhook_unavailable", "HTTP 429: rate_limited", want_posts=4, want_pauses=(1.0, 2.0, 4.0)
    ),
    "the webhook was removed": Case(
        saying(http_answer("no_service", status="404 Not Found")), "webhook_refused", "HTTP 404: no_service"
    ),
    "a gateway gave up waiting: it may have been posted": Case(
        saying(http_answer("", status="504 Gateway Timeout")), "webhook_unavailable", "HTTP 504"
    ),
    "no answer comes: it may have been posted": Case(silent, "webhook_unavailable", "may have posted it"),
    "the answer breaks off: it may have been posted": Case(
        saying(http_answer("o", length=100)), "webhook_unavailable", "may have posted it"
    ),
    "an answer that shows the secret": Case(
        saying(http_answer(f"bad hook {SECRET} s3cr3tpath", status="400 Bad Request")), "webhook_refused", "HTTP 400"
    ),
    "a redirect, which would carry the message elsewhere": Case(
        saying(http_answer("", status="302 Found", headers="Location: https://elsewhere.example/\r\n")),
        "webhook_refused",
        "HTTP 302",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_the_chat_does(case: Case) -> None:
    pauses: list[float] = []
    with BadWeb(case.speak) as server:
        webhook = Webhook(f"{server.url}{SECRET}", timeout_seconds=0.4, sleep=pauses.append)
        if not case.want_code:
            webhook.post(MESSAGE)
        else:
            with pytest.raises(PlimsollError) as caught:
                webhook.post(MESSAGE)
            shown(caught.value)
            assert caught.value.code == case.want_code
            assert case.want_words in str(caught.value)
        assert len(server.requests) == case.want_posts
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(f"POST {SECRET} HTTP/1.1".encode())
    assert b"application/json" in head
    assert json.loads(body) == MESSAGE
    assert tuple(pauses) == case.want_pauses


def shown(error: PlimsollError) -> None:
    """Nothing of the path is in anything that could be printed, logged or stored."""
    text = f"{error} {error.next_step} {error.fields} {error.__cause__!r}"
    assert error.next_step
    assert not [word for word in ("s3cr3t", "T0000", "B0000") if word in text], text


def test_where_nobody_listens_it_is_tried_again_because_nothing_was_said() -> None:
    (port,) = free_ports(1)
    pauses: list[float] = []
    with pytest.raises(PlimsollError) as caught:
        Webhook(f"http://127.0.0.1:{port}{SECRET}", sleep=pauses.append).post(MESSAGE)
    shown(caught.value)
    assert caught.value.code == "webhook_unavailable"
    assert "was not reached" in str(caught.value)
    assert pauses == [1.0, 2.0, 4.0]


def test_the_secret_is_not_in_what_is_shown() -> None:
    webhook = Webhook(f"https://chat.example{SECRET}")
    assert (webhook.where, repr(webhook)) == ("https://chat.example", "Webhook('https://chat.example')")


@pytest.mark.parametrize(
    "url", ["chat.example/x", f"ftp://chat.example{SECRET}", f"https://me:pw@chat.example{SECRET}"]
)
def test_what_is_no_webhook_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Webhook(url)
    shown(caught.value)
    assert caught.value.code == "webhook_bad_setting"


def test_a_message_has_a_size() -> None:
    with pytest.raises(UsageError) as caught:
        Webhook(f"http://127.0.0.1:1{SECRET}").post({"text": "x" * slack.MESSAGE_BYTES_MAX})
    assert caught.value.code == "webhook_too_long"
