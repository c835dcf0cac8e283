"""The numbers of the fleet's page and a cluster's forecast: totals, filters, what changed, and what is drawn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from plimsoll.times import utc_now
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import Importer
from tests.support.logbook import kept_week
from tests.support.pages import Page, see
from tests.support.served import OTHER, TEAM, Served, make_people, serving

HULLS = "Clusters with their hulls, in GPUs"
MOVED = "Pools by how their healthy count moved, in GPUs"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Four clusters of nodes of eight, nothing aligned. The line keeps 15 % back: of 4 nodes it leaves 3, of 2 one.

    ant: us, research, 4 H100; 24 assigned. bee: eu, applied, 4 H200; 32 assigned, 8 over. cat: us, applied, 4 H100 and
    2 H200; 24 and 8 assigned. dog: eu, research, 2 H200; 16 assigned, 8 over.
    """
    folder = tmp_path_factory.mktemp("filters")
    us, eu = {"area": "us", "region": "us-north"}, {"area": "eu", "region": "eu-south"}
    write_fleet(
        folder / "fleet",
        clusters=[
            row("clusters", cluster="ant", purpose="research", **us),
            row("clusters", cluster="bee", purpose="applied", **eu),
            row("clusters", cluster="cat", purpose="applied", **us),
            row("clusters", cluster="dog", purpose="research", **eu),
        ],
        nodes=[
            *nodes(4, prefix="a", cluster="ant", island="ant-a", sku="H100"),
            *nodes(4, prefix="b", cluster="bee", island="bee-a"),
            *nodes(4, prefix="c", cluster="cat", island="cat-a", sku="H100"),
            *nodes(2, prefix="k", cluster="cat", island="cat-b"),
            *nodes(2, prefix="d", cluster="dog", island="dog-a"),
        ],
        quotas=[
            row("quotas", team=TEAM, cluster="ant", sku="H100", gpus="24"),
            row("quotas", team=TEAM, cluster="bee", gpus="32"),
            row("quotas", team=OTHER, cluster="cat", sku="H100", gpus="24"),
            row("quotas", team=OTHER, cluster="cat", gpus="8"),
            row("quotas", team=OTHER, cluster="dog", gpus="16"),
        ],
    )
    dsn = f"sqlite:///{folder}/plimsoll.db"
    importer = Importer(dsn)
    importer.bring(folder / "fleet")
    importer.keeper.close()
    with serving(dsn, make_people(dsn)) as server:
        yield server


ALL = {"ant": "32", "bee": "32", "cat": "48", "dog": "16"}
FILTERS: dict[str, tuple[str, dict[str, str]]] = {
    "nothing asked": ("", ALL),
    "an area": ("?area=eu", {"bee": "32", "dog": "16"}),
    "a purpose": ("?purpose=applied", {"bee": "32", "cat": "48"}),
    "a SKU counts only what is of it": ("?sku=H200", {"bee": "32", "cat": "16", "dog": "16"}),
    "over the line": ("?over=yes", {"bee": "32", "dog": "16"}),
    "all of them together": ("?area=eu&purpose=research&sku=H200&over=yes", {"dog": "16"}),
    "a name": ("?find=AT", {"cat": "48"}),
    "a region": ("?find=north", {"ant": "32", "cat": "48"}),
}


def installed(page: Page) -> dict[str, str]:
    """What is installed, by cluster; the name's cell has more words in it."""
    rows = [cells for cells in page.tables[HULLS][1:] if not re.fullmatch(r"\d+ clusters?", cells[0])]
    return {re.split(r"(?=H\d)", cells[0])[0]: cells[2] for cells in rows}


@pytest.mark.parametrize("case", FILTERS)
def test_a_filter_leaves_what_it_says(case: str, fleet: Served) -> None:
    query, want = FILTERS[case]
    page = see(fleet, f"/{query}")
    assert installed(page) == want
    assert page.number("total") == "128", "the totals are those of the whole fleet"
    assert page.number("over") == "16"
    if len(want) > 1:
        foot = page.tables[HULLS][-1]
        assert (foot[0], foot[2]) == (f"{len(want)} clusters", str(sum(int(each) for each in want.values())))


def test_nothing_that_fits_is_told(fleet: Served) -> None:
    assert "No cluster fits" in see(fleet, "/?area=us&over=yes").text


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    dsn = kept_week(tmp_path_factory.mktemp("week"))
    with serving(dsn, make_people(dsn)) as server:
        yield server


CHANGED = {
    # A week ago all 12 nodes of tiger worked, a day ago 9; 11 do now. In lion one works, then and now.
    7: ("−8", ["H200", "96", "96", "88", "−8", "72"]),
    1: ("+16", ["H200", "96", "72", "88", "+16", "72"]),
}


@pytest.mark.parametrize("days", CHANGED)
def test_what_changed_is_what_works_now_and_worked_then(days: int, week: Served) -> None:
    want_total, want_row = CHANGED[days]
    page = see(week, f"/changes?days={days}")
    assert f"{want_total} healthy GPUs since" in page.text
    assert page.rows(MOVED) == {"tiger": want_row}


def test_the_fleets_page_has_the_change_of_a_week(week: Served) -> None:
    assert 'data-include="/changes?days=7"' in see(week, "/").html


def test_flex_above_is_the_flex_below(week: Served) -> None:
    """Tiger: 88 work, 80 are guaranteed, 64 of those run: 8 stand and 16 are lent. Lion: 8 work, and 16 that nobody
    uses are guaranteed: of those 8 can be lent."""
    page = see(week, "/")
    assert page.number("flex") == page.tables[HULLS][-1][9] == "32"
    assert "8 standing, 24 lent; 8 in use" in page.text


# What can be relied on.


def history(now: datetime) -> list[dict[str, str]]:
    """For 60 days, every fourth day, one of four nodes is out for a day; 20 days ago another one with it."""
    rows = []
    for place, day in enumerate(range(60, 0, -4)):
        begins = now - timedelta(days=day)
        for name in [f"t{2 + place % 4}", *(["t7"] if day == 20 else [])]:
            for moment, service in ((begins, "repair"), (begins + timedelta(days=1), "in_service")):
                cells = {"node": name, "time": moment.isoformat(), "service": service, "reason": "xid 79"}
                rows.append(row("history", **cells))
    return rows


@pytest.fixture(scope="module")
def ahead(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder, now = tmp_path_factory.mktemp("ahead"), utc_now().replace(microsecond=0)
    write_fleet(
        folder / "fleet",
        nodes=[
            row("nodes", node="t1", service="repair", since=(now - timedelta(hours=3)).isoformat(), reason="fan"),
            *(row("nodes", node=f"t{number}") for number in range(2, 13)),
        ],
        quotas=[row("quotas", team=TEAM, gpus="48")],
        history=history(now),
    )
    dsn = f"sqlite:///{folder}/plimsoll.db"
    importer = Importer(dsn)
    importer.now = now
    importer.bring(folder / "fleet")
    importer.keeper.close()
    with serving(dsn, make_people(dsn)) as server:
        done = server.post("/quota/apply", {"reason": "the first alignment"})
        assert done.status == 200, done.body
        yield server


def drawn(page: Page, mark: str) -> list[Any]:
    """The values of the layers with one kind of mark."""
    return [each["data"]["values"] for each in page.chart("course-1")["layer"] if each["mark"]["type"] == mark]


def test_the_picture_has_the_band_of_the_forecast_and_the_line(ahead: Served) -> None:
    """12 nodes, 11 of which work: the line keeps 15 % back, 10 nodes. 48 are guaranteed."""
    page = see(ahead, "/clusters/tiger/forecast")
    found = ahead.api("/health/forecast?cluster=tiger").document["pools"][0]
    (band,) = drawn(page, "area")
    assert [(each["low"], each["gpus"], each["high"]) for each in band] == [
        (each["low"], each["gpus"], each["high"]) for each in found["ahead"]
    ]
    assert band, "nothing is expected at all"
    assert all(each["low"] <= each["gpus"] <= each["high"] <= 96 for each in band)
    assert min(each["low"] for each in band) < 96, "nodes have failed all the time"
    assert [values[0] for values in drawn(page, "rule")] == [
        {"gpus": 80, "label": "the line 80"},
        {"gpus": 96, "label": "installed 96"},
    ]
    middle, past, promised = drawn(page, "line")
    assert middle == band
    assert past[-1]["gpus"] == 88
    assert min(each["gpus"] for each in past) == 80, "twenty days ago two were out"
    assert {each["gpus"] for each in promised} == {48}


def test_what_can_be_relied_on_is_said_in_words_and_stands_in_a_table(ahead: Served) -> None:
    page = see(ahead, "/clusters/tiger/forecast")
    found = ahead.api("/health/forecast?cluster=tiger").document["pools"][0]
    assert "88 of 96 H200 GPUs are healthy now; the fewest in 35 days were 80." in page.text
    assert f"{found['promised']} can be relied on for the next 7 days." in page.text
    held = 96 - found["promised"]
    assert f"{found['promised']} of 96 GPUs, so {held} are held back" in page.text
    assert list(page.rows("Nodes that are out, the first to return first")) == ["t1"]
    rows = page.tables["What is expected"][1:]
    assert [row[1:] for row in rows] == [[str(each[key]) for key in ("low", "gpus", "high")] for each in found["ahead"]]
