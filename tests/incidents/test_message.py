"""What a chat tells the owners of running work: what happened to it, what was done about it, what is left to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from plimsoll.incidents.changes import OwnerTold
from plimsoll.incidents.courier import Courier
from plimsoll.incidents.reasons import What
from tests.support.harbour import Harbour

SPARE = ("a node under train went bad: n1 (xid 79)", "train goes on with spare", "nothing")
WAITS = ("a node under eval went bad: n2 (xid 48)", "eval has stopped and waits", "plimsoll why run-2")
URL = "https://plimsoll.example/"


class Chat:
    """Keeps what it is told."""

    where = "https://chat.example"

    def __init__(self) -> None:
        self.told: list[Any] = []

    def post(self, message: Mapping[str, object]) -> None:
        self.told.append(json.loads(json.dumps(message)))


class Notice(NamedTuple):
    workload: str
    said: tuple[str, str, str] = SPARE
    owner: str = "ada"
    team: str = "vision"


def told(*notices: Notice, url: str = URL) -> Any:
    """The one message that the chat gets of all of them."""
    chat = Chat()
    with Harbour(2) as harbour:
        at = harbour.now
        harbour.commit(
            *(OwnerTold(each.workload, each.team, each.owner, at, What.NODE_LOST, "n1", *each.said) for each in notices)
        )
        Courier(harbour.keeper, chat, url=url).deliver()
    (message,) = chat.told
    return message


CASES: dict[str, tuple[list[Notice], str, list[str]]] = {
    "one owner of one run": (
        [Notice("run-1")],
        "Running work was hit: 1 notice for 1 owner",
        ["ada: run-1: a node under train went bad: n1 (xid 79); train goes on with spare; left to do: nothing"],
    ),
    "two owners": (
        [Notice("run-2", WAITS, owner="bob"), Notice("run-1")],
        "Running work was hit: 2 notices for 2 owners",
        [
            "ada: run-1: a node under train went bad: n1 (xid 79); train goes on with spare; left to do: nothing",
            "bob: run-2: a node under eval went bad: n2 (xid 48); eval has stopped and waits;"
            " left to do: plimsoll why run-2",
        ],
    ),
    "a run that names no owner is its team's": (
        [Notice("run-1", owner="")],
        "Running work was hit: 1 notice for 1 owner",
        ["team vision: run-1: a node under train went bad: n1 (xid 79); train goes on with spare; left to do: nothing"],
    ),
    "what has a meaning for the chat is only text": (
        [Notice("run-1", ("<!channel> & all", "none", "none"))],
        "Running work was hit: 1 notice for 1 owner",
        ["ada: run-1: &lt;!channel&gt; &amp; all; none; left to do: none"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_owner_reads_what_happened_what_was_done_and_what_is_left(case: str) -> None:
    notices, want_heading, want = CASES[case]
    message = told(*notices)
    assert message["text"].split("\n") == [want_heading, *want]
    header, lines, footer, link = message["blocks"]
    assert header == {"type": "header", "text": {"type": "plain_text", "text": want_heading}}
    assert lines == {"type": "section", "text": {"type": "mrkdwn", "text": "\n".join(want)}}
    assert footer["elements"] == [{"type": "mrkdwn", "text": "plimsoll incident notices"}]
    assert link["text"]["text"] == "<https://plimsoll.example/incidents|Look at it>"


def test_where_nobody_knows_our_address_no_link_is_given() -> None:
    assert [block["type"] for block in told(Notice("run-1"), url="")["blocks"]] == ["header", "section", "context"]


def test_of_many_notices_ten_are_read_and_the_rest_is_counted() -> None:
    message = told(*(Notice(f"run-{number:02}", owner=f"owner-{number:02}") for number in range(1, 14)))
    heading, *lines = message["text"].split("\n")
    assert heading == "Running work was hit: 13 notices for 13 owners"
    assert [line.partition(":")[0] for line in lines[:-1]] == [f"owner-{number:02}" for number in range(1, 11)]
    assert lines[-1] == "and 3 more: plimsoll incident notices"


def test_a_notice_that_is_very_long_does_not_lose_the_message() -> None:
    """A chat refuses the whole of it where one block has more than 3,000 characters."""
    message = told(Notice("run-1", ("x" * 5_000, "none", "none")))
    assert len(message["text"]) == 3_000
    assert max(len(block["text"]["text"]) for block in message["blocks"] if "text" in block) == 3_000
