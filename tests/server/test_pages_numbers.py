"""The numbers of the quota page, a team's and a cluster's, each worked out by hand (`tests/support/logbook.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

import pytest

from plimsoll.ledger import open_store
from plimsoll.server.pages.team import flex_row
from tests.support.logbook import kept_week
from tests.support.pages import Page, see
from tests.support.served import OTHER, TEAM, Served, make_people, serving

CUTS = "What the correction takes from each team, in GPUs"
POLICIES = "Policies side by side, in GPUs"
FLEX = "Flex where the team is at home"


class Week(NamedTuple):
    """A server of the known week, and the moment at which two nodes came back, 18 hours before the hour that it is."""

    served: Served
    returned: str


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Week]:
    dsn = kept_week(tmp_path_factory.mktemp("numbers"))
    store = open_store(dsn)
    returned = store.head().recorded_at
    store.close()
    with serving(dsn, make_people(dsn)) as server:
        yield Week(server, returned)


# The quota page.


def stage(page: Page, number: int) -> str:
    """A stage's card, as text."""
    return page.part(f"stage {number}</span>", "</article>").text


class Stages(NamedTuple):
    want_cut: list[int]
    want_teams: dict[str, list[str]]
    """By team: GPUs, unscheduled, idle, running, assigned, guaranteed after, in use, clusters, stage."""
    want_never: list[int]
    want_flex: list[int]


# What tiger has over its line is cut from 4 and 2 nodes that nothing runs on, then from 1 and 2 that are idle. Lion has
# 8 healthy whatever the buffer, so 8 of its 16, that nothing runs on, were never there; of tiger's 112 it is 112 - 88.
QUOTA = {
    # Tiger: 10 of 12 nodes; 4 over, as is in force already. Lion is cut to what works.
    "fixed:0.15": Stages(
        [0, 40, 0, 0],
        {TEAM: ["32", "32", "0", "0", "64", "32", "16", "2", "2"],
         OTHER: ["8", "8", "0", "0", "64", "56", "56", "1", "2"]},
        [0, 32, 0, 0],
        [0, 8, 0, 0],
    ),
    # Tiger: 6 of 12 nodes are 48; 8 over: all 6 that nothing runs on, and 2 idle ones. Both teams run a gang: one from
    # each would break both, so both come from the one that has two.
    "fixed:0.5": Stages(
        [0, 8, 64, 0],
        {TEAM: ["40", "40", "0", "0", "64", "24", "16", "2", "2"],
         OTHER: ["32", "16", "16", "0", "64", "32", "56", "1", "3"]},
        [0, 8, 24, 0],
        [0, 0, 40, 0],
    ),
}  # fmt: skip


@pytest.mark.parametrize("policy", QUOTA)
def test_each_stage_has_its_haircut(policy: str, week: Week) -> None:
    page, want = see(week.served, f"/quota?policy={policy}"), QUOTA[policy]
    assert [int(page.number(f"stage-{number}")) for number in (1, 2, 3, 4)] == want.want_cut
    for number in (1, 2, 3, 4):
        assert f"never there {want.want_never[number - 1]} " in stage(page, number), number
        assert f"flex after {want.want_flex[number - 1]} " in stage(page, number), number
    rows = page.rows(CUTS)
    assert {team: cells[1:] for team, cells in rows.items() if team in (TEAM, OTHER)} == want.want_teams


def test_a_pool_of_a_stage_that_was_aligned_has_a_line_in_force(week: Week) -> None:
    """An alignment was applied to both. By today's health lion would be cut again, which makes its line no less so; nor
    does a look at another policy, by which tiger would stand under stage 3."""
    page = see(week.served, "/quota")
    assert "stage 2 line in force only quota" in stage(page, 2)
    assert not any("in force" in stage(page, number) for number in (1, 3, 4))
    assert "All of it is in force" not in page.text, "lion is guaranteed 16, and the policy says 8"
    other = see(week.served, "/quota?policy=fixed:0.5")
    assert ["line in force" in stage(other, number) for number in (1, 2, 3, 4)] == [False, True, True, False]


COMPARED = {
    # Cut, never there, unscheduled, idle, running, clusters, teams, guaranteed, standing flex. Lion always: 8 of 16.
    "fixed:0": ["32", "32", "32", "0", "0", "2", "2", "96", "0"],  # tiger: 88 work, 24 over
    "fixed:0.15": ["40", "32", "40", "0", "0", "2", "2", "88", "8"],  # 10 nodes: 32 over
    "fixed:0.2": ["48", "32", "48", "0", "0", "2", "2", "80", "16"],  # 9 nodes: 40 over
    "fixed:0.3": ["56", "32", "56", "0", "0", "2", "2", "72", "24"],  # 8 nodes: 48 over, all that nothing runs on
    "fixed:0.5": ["72", "32", "56", "16", "0", "2", "2", "56", "40"],  # 6 nodes: 64 over
}


@pytest.fixture(scope="module")
def compared(week: Week) -> Page:
    return see(week.served, "/quota/compare?policy=fixed:0.5")


def test_policies_say_how_many_days_they_are_judged_by(compared: Page) -> None:
    """Health is known from the first node that failed on, 7 days and 20 hours before the hour that it is."""
    assert "Over 8 of the 90 days asked for, " in compared.text


@pytest.mark.parametrize("policy", COMPARED)
def test_policies_side_by_side(policy: str, compared: Page) -> None:
    assert compared.rows(POLICIES)[policy][:9] == COMPARED[policy]
    drawn = {
        each["kind"]: each["GPUs"]
        for each in compared.chart("policies-chart")["layer"][0]["data"]["values"]
        if each["policy"] == policy
    }
    assert [str(drawn[kind]) for kind in ("unscheduled", "idle", "running")] == COMPARED[policy][2:5]


# A team.


def test_a_team_reads_how_its_promise_was_kept(week: Week) -> None:
    """When the two came back 174 hours had gone by since both guarantees were made. In lion 170 of them were broken, in
    tiger 6 and 42: 218 of 348, and 130 were kept."""
    page = see(week.served, f"/teams/{TEAM}?as_of={quote(week.returned)}")
    assert "Promise kept 37.4 % of 348 hours, 30 days" in page.text


def test_a_team_reads_which_promise_is_broken_now(week: Week) -> None:
    page = see(week.served, f"/teams/{TEAM}")
    assert "A promise is broken in lion H200 8 of what is guaranteed to all teams there" in page.text
    assert "A promise is broken" not in see(week.served, f"/teams/{OTHER}").text, "it is guaranteed nothing in lion"


def test_a_team_reads_how_reliable_flex_has_been(week: Week) -> None:
    """It is known from the first node that failed on, 170 hours. Beyond the 80 that are guaranteed 16 stood in tiger
    for 8 hours, none for 6, 16 for 114, none for 42: in 72 % of the hours 16, in 90 % nothing. The spells: 8 and 114
    hours, so 61. More could be had: the 8 that stand, and 8 of the 56 that the other team leaves."""
    rows = see(week.served, f"/teams/{TEAM}/flex?as_of={quote(week.returned)}").rows(FLEX)
    assert rows["tiger"] == ["H200", "0", "16", "8", "0", "0", "16", "2.5 days"]
    assert rows["lion"][1:4] == ["0", "0", "0"]


def test_each_column_of_flex_is_the_share_that_its_head_says() -> None:
    past = {"standing_in_share_of_hours": {"99%": 1, "90%": 2, "50%": 3}, "standing": {"spell_hours_median": 4.5}}
    teams = [{"team": "a", "guaranteed": 0, "held": 5, "inside": 0, "available": 6},
             {"team": "b", "guaranteed": 0, "held": 0, "inside": 0, "available": 7}]  # fmt: skip
    pool = {"cluster": "x", "sku": "H100", "is_aligned": True, "standing": 8, "teams": teams, "past": past}
    row = flex_row(pool, "a")
    assert row is not None
    assert [row[key] for key in ("in_99", "in_90", "in_50", "spell_hours")] == [1, 2, 3, 4.5]
    assert [row[key] for key in ("held", "available", "standing", "is_own")] == [5, 6, 8, True]
    assert (flex_row(pool, "b") or {})["is_own"] is False, "it neither runs nor holds anything there"
    assert flex_row(pool, "c") is None
