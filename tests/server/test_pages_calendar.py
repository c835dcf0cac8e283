"""Where planned work can be followed in a calendar program: the whole address, on every page that speaks of it."""

from __future__ import annotations

import re
from html import unescape

import pytest

from plimsoll.access import service
from plimsoll.commands.access import LINK_PATH
from plimsoll.rooms import open_keeper
from tests.support.served import TEAM, Served

PLACES = {
    "a team": (f"/teams/{TEAM}/coming", f"team={TEAM}&token=TOKEN"),
    "a team, from its page": (f"/account?team={TEAM}", f"team={TEAM}&token=TOKEN"),
    "a team whose name is not kind": ("/account?team=%22%3E%3Cb%3E%26", "team=%22%3E%3Cb%3E%26&token=TOKEN"),
    "a campaign, from its page": ("/account?name=fix", "name=fix&token=TOKEN"),
    "all of it": ("/account", "token=TOKEN"),
}


@pytest.fixture(scope="module")
def cookie(served: Served) -> str:
    """Tokens are made by who signed in themselves, and not by who has a token."""
    with open_keeper(served.house.settings.dsn) as keeper:
        secret, _ = service.make_link(keeper, "member@example.org", 5, actor="tester")
    return served.ask(f"{LINK_PATH}{secret}", method="POST").headers["set-cookie"].partition(";")[0]


@pytest.mark.parametrize("case", PLACES)
def test_the_address_to_follow_is_whole(served: Served, cookie: str, case: str) -> None:
    path, want = PLACES[case]
    html = served.ask(path, Cookie=cookie, Accept="text/html").body.decode()
    copied = [unescape(text) for text in re.findall(r'data-copy="([^"]*)"', html)]
    assert f"{served.url}/api/v1/calendar?{want}" in copied


def test_the_address_is_never_of_the_past(served: Served, cookie: str) -> None:
    then = served.api("/audit/head").document["revision"]
    html = served.ask(f"/teams/{TEAM}/coming?as_of={then}", Cookie=cookie, Accept="text/html").body.decode()
    copied = [unescape(text) for text in re.findall(r'data-copy="([^"]*)"', html)]
    assert [text for text in copied if "/calendar" in text] == [f"{served.url}/api/v1/calendar?team={TEAM}&token=TOKEN"]
