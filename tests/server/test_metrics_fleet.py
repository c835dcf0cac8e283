"""What Prometheus is told of a fleet whose every number was worked out by hand (`tests/support/logbook.py`)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

import pytest

from plimsoll.errors import PlimsollError, Unavailable
from plimsoll.health.service import observe
from plimsoll.ledger import open_store
from plimsoll.server import specials
from plimsoll.server.loops import Controllers
from plimsoll.server.loops_passes import settings_of
from plimsoll.server.loops_role import Loop, Turn
from plimsoll.times import utc_now
from tests.support.logbook import kept_week, logbook
from tests.support.served import OTHER, TEAM, Served, make_people, serving
from tests.support.waiting import wait_until

LINE = re.compile(r'(?P<name>[a-z_]+)(?:\{(?P<labels>[a-z_]+="[^"\\]*"(?:,[a-z_]+="[^"\\]*")*)\})? (?P<value>\S+)')
QUIET_MINUTES = 120
"""How long ago the feed that vouches for nodes was heard; after 15 minutes it counts as silent."""
PASSING_MINUTES = 90
WAITING = {
    "wide-1": (TEAM, "tiger", 40),  # 16 run of 24 guaranteed: 40 more are beyond the guarantee
    "wide-2": (TEAM, "tiger", 48),
    "guest": (OTHER, "lion", 24),  # nothing of lion is guaranteed to it
}

Found = dict[tuple[str, ...], float]
"""The values of one metric by those of its labels, in the order in which these are written."""


def read(served: Served) -> dict[str, Found]:
    """All metrics, by name without our prefix. Every line must be one of the text form."""
    found: dict[str, Found] = {}
    for line in served.ask("/metrics", who="viewer").body.decode().splitlines():
        if line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        assert match is not None, line
        labels = tuple(re.findall(r'"([^"]*)"', match["labels"] or ""))
        samples = found.setdefault(match["name"].removeprefix("plimsoll_"), {})
        assert labels not in samples, f"told twice: {line}"
        samples[labels] = float(match["value"])
    return found


class Scrape(NamedTuple):
    """What was told, and the times between which it was."""

    found: dict[str, Found]
    began: datetime
    ended: datetime
    heard: datetime
    """When the clock of the fleet stood at its last whole hour."""


@pytest.fixture(scope="module")
def scrape(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrape]:
    dsn = kept_week(tmp_path_factory.mktemp("metrics"))
    with logbook(dsn) as book:
        for feed, minutes, swept in (("quiet", QUIET_MINUTES, ["t1", "t2"]), ("passing", PASSING_MINUTES, None)):
            book.at(minutes / 60)
            observe(book.keeper, (), feed=feed, actor=feed, swept=swept)
        heard = book.hour
    with serving(dsn, make_people(dsn)) as served:
        files = "\n---\n".join(
            f"workload: {name}\nteam: {team}\nwhere: {{cluster: {cluster}, sku: H200}}\nowner: ada\n"
            f"parts: [{{name: train, kind: gang, gpus: {gpus}, tier: high, rank: 1}}]"
            for name, (team, cluster, gpus) in WAITING.items()
        )
        replies = [
            served.post("/workloads", {"files": files}),
            served.post("/incidents", {"title": "smoke in hall 2", "id": "smoke"}),
            served.post("/incidents", {"title": "a door that rattles", "id": "door"}),
            served.post("/incidents/door/close", {}),
        ]
        assert [reply.status for reply in replies] == [200] * 4, [reply.body[:300] for reply in replies]
        began = utc_now()
        found = read(served)
        yield Scrape(found, began, utc_now(), heard)


HULLS = {
    "total": (96, 32),
    "healthy": (88, 8),
    "line": (80, 8),  # lion: what works there is less than the 24 that the policy would leave
    "line_in_force": (80, 24),
    "assigned": (112, 16),
    "guaranteed": (80, 16),
    "allocated": (64, 8),
    "idle": (24, 0),
    "flex_standing": (8, 0),
    "flex_lent": (16, 8),  # tiger: 8 of 24 and 8 of 56; lion: 16 are not in use, but only 8 work
    "flex_used": (0, 8),
    "over": (32, 8),
    "shortfall": (0, 8),
}


@pytest.mark.parametrize("field", HULLS)
def test_each_cluster_is_a_hull(field: str, scrape: Scrape) -> None:
    tiger, lion = HULLS[field]
    assert scrape.found[f"{field}_gpus"] == {("tiger", "H200"): tiger, ("lion", "H200"): lion}


def test_the_promise_is_told_for_the_fleet_and_for_each_team_of_the_last_week(scrape: Scrape) -> None:
    """168 hours for each of three: 42 were broken for both teams of tiger, and all of them in lion. So half of the 504
    hours of the fleet was kept; 126 of the 336 of the one team, and 126 of the 168 of the other."""
    assert scrape.found["promise_kept_share"] == {(): 0.5}
    assert scrape.found["team_promise_kept_share"] == {(TEAM,): 0.375, (OTHER,): 0.75}


def test_nodes_are_counted_by_service(scrape: Scrape) -> None:
    assert scrape.found["nodes"] == {("in_service",): 12, ("repair",): 4}


def test_what_waits_is_counted_by_the_reason_that_lasts_longest(scrape: Scrape) -> None:
    assert scrape.found["queue_workloads"] == {("over_guarantee",): 2, ("no_guarantee",): 1}


def test_only_incidents_that_are_open_count(scrape: Scrape) -> None:
    assert scrape.found["incidents_open"] == {(): 1}


def test_a_feed_is_as_old_as_what_it_said_last(scrape: Scrape) -> None:
    ages = scrape.found["feed_age_seconds"]
    assert set(ages) == {("quiet",), ("passing",)}
    for feed, minutes in (("quiet", QUIET_MINUTES), ("passing", PASSING_MINUTES)):
        heard = scrape.heard - timedelta(minutes=minutes)
        youngest, oldest = (scrape.began - heard).total_seconds(), (scrape.ended - heard).total_seconds()
        assert youngest - 1 <= ages[feed,] <= oldest + 1, feed


def test_only_a_feed_that_vouches_for_nodes_falls_silent(scrape: Scrape) -> None:
    assert scrape.found["feed_silent"] == {("quiet",): 1, ("passing",): 0}


def test_a_server_that_leads_nothing_tells_of_no_controllers(scrape: Scrape) -> None:
    assert "controller_lag_seconds" not in scrape.found
    assert "controller_leading" not in scrape.found


def test_the_lag_of_a_controller_is_how_long_it_has_done_no_good(
    served: Served, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that fails falls behind by every second; one that is done waits for its hour; a third is led elsewhere."""
    dsn = served.house.settings.dsn
    tries: list[float] = []

    def fail(_turn: Turn) -> PlimsollError | None:
        tries.append(time.monotonic())
        raise Unavailable("away", "nobody answers")

    loops = [
        Loop("fails", "a", 0.25, fail),
        Loop("done", "b", 3600.0, lambda _turn: None),
        Loop("elsewhere", "c", 0.25, lambda _turn: None),
    ]
    monkeypatch.setattr(specials, "METRICS_SECONDS", 0.0)
    store = open_store(dsn)
    other = store.lead("another", "c")
    assert other is not None
    controllers = Controllers(served.house.open_keeper, settings_of(dsn, environment={}), loops=loops)
    monkeypatch.setattr(served.house, "controllers", controllers)
    began = time.monotonic()
    try:
        with controllers:
            wait_until(lambda: bool(tries) and controllers.status()[1].passes == 1, what="both were tried")
            time.sleep(1.0)
            least = time.monotonic() - tries[0]
            found = read(served)
            most = time.monotonic() - began
    finally:
        other.resign()
        store.close()
    assert found["controller_leading"] == {("fails",): 1, ("done",): 1, ("elsewhere",): 0}
    lags = found["controller_lag_seconds"]
    assert least - 0.25 <= lags["fails",] <= most - 0.25, "it was due a quarter of a second after it was led"
    assert lags["done",] == 0


def test_a_team_that_nothing_was_promised_has_no_share(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first alignment no hour counts: a 1 would be a lie, and so would a 0."""
    monkeypatch.setattr(specials, "METRICS_SECONDS", 0.0)
    found = read(served)
    assert "promise_kept_share" not in found
    assert "team_promise_kept_share" not in found
    assert "healthy_gpus" in found
