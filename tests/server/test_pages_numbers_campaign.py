"""The campaign's page: what is drawn and what stands in its cells, worked out by hand for two plans of two clusters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from plimsoll.campaigns.model import Batch, Mode, Plan, Score, Status
from plimsoll.campaigns.run.desk import record_plan
from plimsoll.campaigns.units import make_units
from plimsoll.fleet.fold import Fleet
from plimsoll.rooms import open_keeper
from tests.support.pages import Page, see
from tests.support.plans import campaign_of, file_text
from tests.support.served import OTHER, TEAM, Served, make_people, serving, small_book

ASKED: dict[str, Any] = {
    "start": "2031-01-06",  # a Monday
    "deadline": "2031-01-10",
    "window": {"hours": [0, 24], "tz": "UTC"},
    "slot_minutes": 60,
    "work": [
        {"scope": {"cluster": "tiger"}, "mode": "rolling", "share_per_day": 0.5, "hours": 2},
        {"scope": {}, "mode": "whole", "hours": 2},
    ],
    "limits": [
        {"kind": "out_at_once", "unit": "nodes", "at_most": 14},
        {"kind": "out_at_once", "unit": "nodes", "at_most": 12, "from": "2031-01-08"},
        {"kind": "out_at_once", "unit": "nodes", "at_most": 5, "scope": {"area": "eu"}},  # not one of all nodes
    ],
    "no_fly": [{"scope": {"cluster": ["tiger"]}, "from": "2031-01-07", "to": "2031-01-07", "why": "training run"}],
}


def batch(unit: str, number: int, nodes: int, day: int, hour: int) -> Batch:
    begins = datetime(2031, 1, day, hour, tzinfo=UTC)
    mode = Mode.ROLLING if unit == "tiger" else Mode.WHOLE
    return Batch(unit, mode, number, nodes, begins, begins.replace(hour=hour + 2))


PLANS = (
    (batch("lion", 1, 4, 8, 9), batch("tiger", 1, 6, 8, 8), batch("tiger", 2, 6, 9, 8)),
    (batch("lion", 1, 4, 8, 9), batch("tiger", 1, 6, 6, 11), batch("tiger", 2, 6, 8, 8)),
)
"""The second one does tiger's first half 45 hours earlier and its second half 24 hours earlier; lion stays."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    dsn = small_book(tmp_path_factory.mktemp("campaign-numbers"))
    campaign, text = campaign_of(**ASKED), file_text(**ASKED)
    with open_keeper(dsn) as keeper:
        roll = make_units(campaign, keeper.state().of(Fleet))
        for number, batches in enumerate(PLANS, start=1):
            plan = Plan("fix", number, Status.OPTIMAL, Score(30.0 - number, 20.0, 0.0, 10.0), 20.0, batches)
            drafts = record_plan(keeper.state(), campaign, text, plan, roll)
            keeper.commit(drafts, actor="tester", read_at=None)
    with serving(dsn, make_people(dsn)) as server:
        yield server


@pytest.fixture(scope="module")
def page(site: Served) -> Page:
    return see(site, "/campaigns/fix")


def points(layer: Any) -> set[tuple[Any, ...]]:
    return {tuple(point.values()) for point in layer["data"]["values"]}


def test_the_curve_is_what_is_out_by_area_at_every_change(page: Page) -> None:
    """On the 8th tiger's six go at 8 and are back at 10; lion's four go at 9 and are back at 11."""
    layers = page.chart("curve")["layer"]
    found = {(each["at"][5:13], each["area"]): each["nodes"] for each in layers[0]["data"]["values"]}
    want = {
        "01-06T11": (6, 0),
        "01-06T13": (0, 0),
        "01-08T08": (6, 0),
        "01-08T09": (6, 4),
        "01-08T10": (0, 4),
        "01-08T11": (0, 0),
    }
    for hour, (us, eu) in want.items():
        assert (found[hour, "us"], found[hour, "eu"]) == (us, eu), hour
    assert {nodes for (hour, _), nodes in found.items() if hour not in want} <= {0}


def test_the_cap_is_the_lowest_limit_on_all_nodes_day_by_day(page: Page) -> None:
    """14 on the 6th and 7th, 12 from the 8th to the end of the 10th."""
    caps = page.chart("curve")["layer"][1]["data"]["values"]
    assert [(each["at"][:10], each["cap"]) for each in caps] == [
        ("2031-01-06", 14),
        ("2031-01-08", 14),
        ("2031-01-08", 12),
        ("2031-01-11", 12),
    ]
    assert len(page.chart("curve")["layer"]) == 2, "today is not among these days"


def test_the_most_out_at_once_stands_against_the_limit_of_that_day(page: Page) -> None:
    assert page.number("peak") == "10"
    assert "10 of 12" in page.text


def test_the_balance_is_the_share_of_each_areas_nodes_on_each_day(page: Page) -> None:
    values = page.chart("balance-chart")["data"]["values"]
    found = {(each["day"][8:10], each["area"]): (each["share"], each["nodes"]) for each in values}
    assert {key: value for key, value in found.items() if value[1]} == {
        ("06", "us"): (0.5, 6),
        ("08", "us"): (0.5, 6),
        ("08", "eu"): (1.0, 4),
    }


def cells(page: Page, cluster: str) -> list[str]:
    """A row of the calendar, day by day: why it is shut, then what stands there."""
    row = next(row for row in re.findall(r"(?s)<tr>(.*?)</tr>", page.html) if f'title="{cluster}: ' in row)
    found = []
    for attributes, inner in re.findall(r"(?s)<td([^>]*)>(.*?)</td>", row):
        shut = re.search(r'title="([^"]*)"', attributes)
        words = Page(inner).text
        found.append(f"[{shut[1]}] {words}".strip() if shut else words)
    return found


def test_the_calendar_has_no_fly_days_and_what_was_there_before(page: Page) -> None:
    tiger, lion = cells(page, "tiger"), cells(page, "lion")
    assert len(tiger) == len(lion) == 5
    assert "11h" in tiger[0]
    assert tiger[1] == "[training run]"
    assert "8h" in tiger[2]
    assert "was" in tiger[2], "the first half was on this day"
    assert tiger[3:] == ["was", ""]
    assert lion[:2] == ["", ""]
    assert "9h" in lion[2]
    assert "was" not in lion[2]
    assert lion[3:] == ["", ""]
    assert 'title="tiger#2 was here in plan 1: 6 nodes"' in page.html
    assert 'title="tiger#1 was here in plan 1: 6 nodes"' in page.html


def test_the_days_add_up_below_the_calendar(page: Page) -> None:
    foot = re.search(r"(?s)<tfoot><tr><th[^>]*>nodes going out</th>(.*?)</tr>", page.html)
    assert foot is not None
    assert [Page(cell).text for cell in re.findall(r"<td[^>]*>(.*?)</td>", foot[1])] == ["6", "", "10", "", ""]


def test_what_changed_between_two_plans(site: Served) -> None:
    """The first plan goes from the 8th to the 9th, the second from the 6th to the 8th: both use two days."""
    page = see(site, "/campaigns/fix/compare?left=1&right=2")
    figures = page.rows("Two plans in numbers")
    assert figures["nodes"] == ["16", "16"]
    assert figures["batches"] == ["3", "3"]
    assert figures["days used"] == ["2", "2"]
    assert figures["first day"] == ["8 Jan 2031", "6 Jan 2031"]
    assert figures["last day"] == ["9 Jan 2031", "8 Jan 2031"]
    assert figures["most nodes out"] == ["10", "10"]
    # All 16 nodes are out for 2 hours: 32 of the 16 x 120 of the five days.
    assert figures["average loss"] == ["1.7 %", "1.7 %"]
    # Each node counts the days that it waits for its turn: 4 x 2 + 6 x 2 + 6 x 3, and 4 x 2 + 0 + 6 x 2.
    assert figures["objective"] == ["38", "20"]
    assert page.rows("Batches that differ") == {
        "tiger#1": ["earlier by 45.0 h", "8 Jan 08:00", "6 Jan 11:00", "6"],
        "tiger#2": ["earlier by 24.0 h", "9 Jan 08:00", "8 Jan 08:00", "6"],
    }


OF_TIGER = {("tiger", "6 Jan 11:00"): "6 nodes", ("tiger", "8 Jan 08:00"): "6 nodes"}
COMING = {
    "who holds quota in both": (TEAM, OF_TIGER | {("lion", "8 Jan 09:00"): "4 nodes"}),
    "who holds nothing of lion": (OTHER, OF_TIGER),
}


@pytest.mark.parametrize("case", COMING)
def test_a_team_reads_what_is_planned_where_it_holds_something(case: str, site: Served) -> None:
    """The next first, by plan 2 and not by plan 1."""
    team, want = COMING[case]
    rows = see(site, f"/teams/{team}/coming").tables["Planned work, the next first"][1:]
    assert {(row[0], row[1]): row[3] for row in rows} == want
    assert [(row[0], row[1]) for row in rows] == list(want)
