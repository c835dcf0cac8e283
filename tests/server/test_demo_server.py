"""A served demo lives by itself and lets one be anybody; every other server does neither."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from plimsoll.errors import Refused
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.fleet.sheet import MemorySheet
from plimsoll.health.changes import FeedChanged
from plimsoll.ledger import open_store
from plimsoll.rooms import SHEETS, open_keeper
from plimsoll.server.alive import SOURCE
from plimsoll.server.loops_passes import ACTOR
from plimsoll.server.run import bind, serve
from plimsoll.server.settings import Settings, check
from plimsoll.server.signin import PEOPLE
from tests.support.fleets import HEADERS, nodes, row
from tests.support.served import Reply, Served, make_people, serving, session, small_book
from tests.support.waiting import wait_until

FORM = "application/x-www-form-urlencoded"


def pond(folder: Path, source: str) -> str:
    """A database of 40 nodes, ten of them in repair, that says where it comes from."""
    dsn = f"sqlite:///{folder}/pond.db"
    listed = nodes(30, prefix="n"), nodes(10, prefix="r", service="repair", since="2026-01-04T09:00:00Z")
    rows = {"clusters": [row("clusters")], "nodes": [*listed[0], *listed[1]], "quotas": [row("quotas", gpus="160")]}
    sheets = {
        sheet: MemorySheet(sheet, [HEADERS[sheet], *([cells[column] for column in HEADERS[sheet]] for cells in some)])
        for sheet, some in rows.items()
    }
    with open_keeper(dsn, create=True) as keeper:
        import_fleet(keeper, Source(source, "digest", sheets), SHEETS, actor="tester")
    return dsn


def made_up(dsn: str) -> list[str]:
    """What others did than who set the database up and the controllers; that a feed was heard is nothing."""
    store = open_store(dsn)
    try:
        return [
            event.kind
            for event in store.events()
            if event.actor not in ("tester", ACTOR) and event.kind != FeedChanged.kind
        ]
    finally:
        store.close()


def loops(served: Served) -> Mapping[str, str]:
    """The code of what went wrong last in each loop."""
    assert served.house.controllers is not None
    return {each.name: each.error_code for each in served.house.controllers.status()}


def passes(served: Served, name: str) -> int:
    assert served.house.controllers is not None
    return next(each.passes for each in served.house.controllers.status() if each.name == name)


# The demo's own life.


def test_a_demo_goes_on_by_itself(tmp_path: Path) -> None:
    dsn = pond(tmp_path, f"{SOURCE}1")
    with serving(dsn, make_people(dsn), is_leading=True, is_demo=True) as served:
        before = served.api("/status").document["server"]["revision"]
        wait_until(lambda: bool(made_up(dsn)), what="something happened")
        wait_until(lambda: served.api("/status").document["server"]["revision"] > before, what="who looks sees it")
        assert loops(served)["demo"] == ""


def test_nothing_is_made_up_in_a_database_that_somebody_may_need(tmp_path: Path) -> None:
    dsn = pond(tmp_path, "fleet.csv")
    with serving(dsn, is_leading=True, is_demo=True) as served:
        wait_until(lambda: passes(served, "demo") > 0, what="a pass of the demo")
        assert loops(served)["demo"] == "not_the_demo"
    assert made_up(dsn) == []


def test_a_server_that_is_no_demo_makes_nothing_up_even_of_the_demos_fleet(tmp_path: Path) -> None:
    dsn = pond(tmp_path, f"{SOURCE}1")
    with serving(dsn, is_leading=True) as served:
        wait_until(lambda: passes(served, "health") > 0, what="a pass of the others")
        assert "demo" not in loops(served)
    assert made_up(dsn) == []


# Being somebody else.


def become(served: Served, who: str, *, by: str = "viewer", target: str = "/", **headers: str) -> Reply:
    form = f"who={who}&next={target}".encode()
    signed_in = session(served, f"{by}@example.org") if by else {}
    return served.ask("/signin/as", method="POST", send=form, Content_Type=FORM, **signed_in, **headers)


def name_of(served: Served, reply: Reply) -> str:
    """As whom the cookie that came counts."""
    cookie = reply.headers["set-cookie"].partition(";")[0]
    who: str = served.ask("/api/v1/whoami", Cookie=cookie).document["who"]
    return who


@pytest.mark.parametrize("who", PEOPLE)
def test_in_a_demo_one_can_be_anybody_of_it(who: str, tmp_path: Path) -> None:
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn), is_demo=True) as served:
        reply = become(served, who, target="/quota")
        assert (reply.status, reply.headers["location"]) == (303, "/quota")
        assert name_of(served, reply) == who


class No(NamedTuple):
    who: str
    by: str
    is_demo: bool
    want: tuple[int, str]


NOES = {
    "where it is no demo, whoever asks": No("ada@example.org", "admin", False, (422, "not_a_demo")),
    "a stranger, in a demo": No("ada@example.org", "", True, (422, "not_a_demo")),
    "somebody who is nobody of the demo": No("viewer@example.org", "admin", True, (400, "bad_parameter")),
    "nobody at all": No("", "admin", True, (400, "bad_parameter")),
}


@pytest.mark.parametrize("case", NOES)
def test_nobody_else_becomes_anybody(case: str, tmp_path: Path) -> None:
    no = NOES[case]
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn), is_demo=no.is_demo) as served:
        reply = become(served, no.who, by=no.by, Accept="application/json")
        assert (reply.status, reply.error["code"]) == no.want
        assert "set-cookie" not in reply.headers


def test_a_token_makes_nobody_somebody_else(tmp_path: Path) -> None:
    """However narrow it is: whoever has it would have everything."""
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn), is_demo=True) as served:
        reply = served.ask("/signin/as", who="viewer", method="POST", send=b"who=root@example.org", Content_Type=FORM)
        assert (reply.status, reply.error["code"]) == (422, "not_a_demo")


def test_a_page_of_somebody_else_can_not_make_one_somebody_else(tmp_path: Path) -> None:
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn), is_demo=True) as served:
        cookie = become(served, "ada@example.org").headers["set-cookie"].partition(";")[0]
        forged = become(served, "root@example.org", by="", Cookie=cookie, Sec_Fetch_Site="cross-site")
        assert (forged.status, forged.error["code"]) == (403, "foreign_page")
        own = become(served, "root@example.org", by="", Cookie=cookie, Sec_Fetch_Site="same-origin")
        assert name_of(served, own) == "root@example.org"


def test_the_names_of_a_demo_are_offered_there_only(tmp_path: Path) -> None:
    dsn = small_book(tmp_path)
    for is_demo in (True, False):
        with serving(dsn, make_people(dsn), is_demo=is_demo) as served:
            page = served.ask("/signin", who="viewer", Accept="text/html").body.decode()
        assert [name for name in PEOPLE if f'value="{name}"' in page] == (list(PEOPLE) if is_demo else [])


# Where a demo may be served.

STRANGERS = ("0.0.0.0", "::", "10.1.2.3", "plimsoll.example.org")  # noqa: S104  # they are refused
OURS = ("127.0.0.1", "127.8.8.8", "::1", "localhost")


@pytest.mark.parametrize("host", STRANGERS)
@pytest.mark.parametrize("public_url", ["", "https://plimsoll.example.org"])
def test_a_demo_is_never_served_to_strangers(host: str, public_url: str) -> None:
    with pytest.raises(Refused) as caught:
        check(Settings(dsn="sqlite:///demo.db", host=host, is_demo=True, public_url=public_url))
    assert caught.value.code == "demo_for_strangers"
    assert host in caught.value.message


@pytest.mark.parametrize("host", OURS)
def test_a_demo_is_served_to_this_machine(host: str) -> None:
    settings = Settings(dsn="sqlite:///demo.db", host=host, is_demo=True)
    assert check(settings) == settings


def test_what_is_to_be_served_is_looked_at_before_it_is(tmp_path: Path) -> None:
    """Not even whether there is a database is asked first."""
    dsn = f"sqlite:///{tmp_path}/none.db"
    listener = bind(Settings(dsn=dsn, port=0))
    try:
        with pytest.raises(Refused) as caught:
            serve(Settings(dsn=dsn, host="0.0.0.0", is_demo=True), listener)  # noqa: S104  # it is refused
    finally:
        listener.close()
    assert caught.value.code == "demo_for_strangers"
