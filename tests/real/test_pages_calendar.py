"""Following planned work in a calendar program, in Chromium: from a team's page to an address that works as it is."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from plimsoll.server.demo import TEAM
from tests.support.browser import DESKTOP, Window, chromium
from tests.support.served import make_people, serving, small_book

pytestmark = pytest.mark.xdist_group("chromium")


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    dsn = small_book(tmp_path_factory.mktemp("calendar"))
    with (
        serving(dsn, make_people(dsn)) as served,
        chromium(served) as browser,
        browser.window("member@example.org", scheme="light", size=DESKTOP) as found,
    ):
        yield found


def test_the_address_for_a_calendar_is_whole_and_works_without_signing_in(window: Window) -> None:
    window.go(f"/teams/{TEAM}")
    window.page.get_by_role("link", name="Follow it in a calendar").click()
    window.settle()
    form = window.page.locator("form[data-fills]")
    form.get_by_role("button", name="Make one").click()
    told = form.locator("[data-answer]")
    told.get_by_text(f"what hits {TEAM}").wait_for()
    addresses = told.locator(".command code").all_inner_texts()
    assert all(address.startswith(f"{window.url}/api/v1/calendar?") for address in addresses)
    assert f"team={TEAM}&token=plim_" in addresses[0]
    assert "token=plim_" in addresses[-1]
    assert "team=" not in addresses[-1], "the last is of all planned work"
    for address in addresses:
        assert _asked(address) == (200, "text/calendar; charset=utf-8", b"BEGIN:VCALENDAR")
    window.check()


def _asked(address: str) -> tuple[int, str, bytes]:
    """As a calendar program asks: an address and nothing else."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=60)
    connection.request("GET", f"{parts.path}?{parts.query}")
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers["content-type"], body[:15]
