"""The RPM's and the provider's pages: the API's numbers, buttons only for who may, no quota for a partner."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from plimsoll.campaigns.changes import BatchStepped, CampaignStarted
from plimsoll.campaigns.model import Batch, Mode, Plan, Score, Status
from plimsoll.campaigns.run.desk import find_run, record_plan
from plimsoll.campaigns.run.progress import Step
from plimsoll.campaigns.run.stages import begin, hand_over
from plimsoll.campaigns.service import say
from plimsoll.campaigns.units import make_units
from plimsoll.fleet.fold import Fleet
from plimsoll.health.acts import Acting
from plimsoll.incidents.changes import IncidentOpened
from plimsoll.ledger.model import Draft
from plimsoll.rooms import open_keeper
from plimsoll.server.pages.campaign import hours_text, near
from plimsoll.server.pages.campaigns import month
from plimsoll.server.pages.quota import bar, buffer_of, by_team, policy_asked, pools_as_planned, stages
from plimsoll.state.state import State
from plimsoll.times import utc_now
from tests.support.plans import campaign_of, file_text
from tests.support.served import OTHER, PEOPLE, TEAM, Served, make_people, serving, small_book

INSIDERS = sorted(set(PEOPLE) - {"partner"})
PLANNED: dict[str, Any] = {
    "window": {"hours": [0, 24], "tz": "Asia/Kolkata"},
    "slot_minutes": 60,
    "limits": [{"kind": "out_at_once", "unit": "nodes", "at_most": 12}],
}


def running_campaign(dsn: str) -> None:
    """A campaign of two clusters: `lion` is handed over to the provider now, `tiger` comes tomorrow."""
    hour = utc_now().replace(minute=0, second=0, microsecond=0)
    dates = {"start": str(hour.date()), "deadline": str(hour.date() + timedelta(days=3))}
    campaign, text = campaign_of(**PLANNED, **dates), file_text(**PLANNED, **dates)
    later, span = hour + timedelta(days=1), timedelta(hours=2)
    batches = (
        Batch("lion", Mode.WHOLE, 1, 4, hour, hour + span),
        Batch("tiger", Mode.WHOLE, 1, 12, later, later + span),
    )
    plan = Plan("fix", 1, Status.OPTIMAL, Score(12.0, 12.0, 0.0, 12.0), 12.0, batches)
    acting = Acting("campaign:fix", hour, "a test", {})
    with open_keeper(dsn) as keeper:
        roll = make_units(campaign, keeper.state().of(Fleet))

        def begun(state: State) -> list[Draft]:
            return begin(state, find_run(state, "fix"), batches[0], acting)

        def handed_over(state: State) -> list[Draft]:
            run = find_run(state, "fix")
            return hand_over(state, run, run.progress["lion#1"], acting)

        steps: list[Callable[[State], Sequence[Draft]]] = [
            lambda state: record_plan(state, campaign, text, plan, roll),
            lambda _state: [
                Draft(CampaignStarted("fix", 1, "fix")),
                Draft(IncidentOpened("fix", "fix: 16 nodes go out of service, plan 1", (), ("lion", "tiger"), "fix")),
            ],
            begun,
            lambda _state: [Draft(BatchStepped("fix", "lion#1", Step.DRAINING))],
            handed_over,
        ]
        for step in steps:
            say(keeper, lambda state, _now, step=step: (None, step(state)), actor="tester")  # type: ignore[misc]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of a small fleet that is over-promised, with a campaign under way."""
    dsn = small_book(tmp_path_factory.mktemp("pages"))
    running_campaign(dsn)
    with serving(dsn, make_people(dsn)) as server:
        yield server


def page(site: Served, path: str, who: str) -> str:
    reply = site.ask(path, who=who, Accept="text/html")
    assert reply.status == 200, reply.body[:500]
    return reply.body.decode()


def acts(html: str) -> set[str]:
    """What a page lets one do: the last word of every form's address."""
    return {match.rpartition("/")[2].split("?")[0] for match in re.findall(r'data-act="POST ([^"]+)"', html)}


def number(html: str, key: str) -> str:
    found = re.search(rf'data-number="{key}">([^<]*)<', html)
    assert found, key
    return found[1]


# The quota page.


@pytest.mark.parametrize("who", INSIDERS)
def test_the_quota_page_has_the_numbers_of_the_plan_for_every_role(site: Served, who: str) -> None:
    """Tiger has 12 nodes of 8: 15 % kept back leave 10, and 112 GPUs are assigned where 96 are. Lion is with the
    provider: none of its 4 nodes works, and 16 are assigned."""
    html = page(site, "/quota", who)
    summary = site.api("/quota/plan", who=who).document["summary"]
    assert (number(html, "over"), number(html, "never")) == ("48", "32")
    assert (summary["over"], summary["never_backed"]) == (48, 32)
    assert number(html, "guaranteed") == f"{summary['guaranteed']:,}"


def test_another_buffer_is_another_url(site: Served) -> None:
    """Nothing kept back: 96 work in tiger, so 16 are over there; and the 16 of lion."""
    html = page(site, "/quota?policy=fixed:0", "viewer")
    assert (number(html, "over"), number(html, "to_flex")) == ("32", "0")
    assert number(page(site, "/quota?buffer=0", "viewer"), "over") == "32"


def test_the_correction_of_one_cluster_is_a_link_from_its_page(site: Served) -> None:
    """Of the 32 that are over with nothing kept back, 16 are tiger's. Every link, file and form stays with it."""
    assert "/quota?cluster=tiger" in page(site, "/clusters/tiger", "viewer")
    html = page(site, "/quota?policy=fixed:0&cluster=tiger", "admin")
    assert (number(html, "over"), number(html, "line")) == ("16", "96")
    assert "Only what lies in tiger" in html
    links = re.findall(r'href="(/quota\?[^"]*|\?[^"]*policy=[^"]*)"', html)
    assert len(links) > 8
    # But for the way back to the whole fleet.
    assert [link for link in links if "cluster=tiger" not in link] == ["?policy=fixed%3A0"]
    assert re.search(r'name="clusters"[^>]* value="tiger"', html) or re.search(
        r'value="tiger"[^>]* name="clusters"', html
    )
    assert "clusters=tiger" in html
    compared = page(site, "/quota/compare?policy=fixed:0&cluster=tiger", "viewer")
    over = re.search(r'>fixed:0</a></th>\s*<td class="n">([^<]*)<', compared)
    assert over is not None
    assert over[1] == "16"
    reply = site.ask("/quota?cluster=nowhere", who="viewer", Accept="text/html")
    assert reply.status == 404
    assert b"nowhere" in reply.body


def test_only_who_may_decide_has_buttons_on_the_quota_page(site: Served) -> None:
    everything = {"apply", "rollout", "transfers", "{cluster}", "control"}
    want_acts = {who: everything if who in ("fleet_rpm", "admin") else set() for who in INSIDERS}
    assert {who: acts(page(site, "/quota", who)) for who in INSIDERS} == want_acts


def test_a_request_is_decided_where_it_is_shown_by_its_own_rpm(site: Served) -> None:
    asked = site.post("/requests", {"team": TEAM, "gpus": "8", "sku": "H200", "reason": "more"}, who="member")
    assert asked.status == 200, asked.body
    html = page(site, f"/quota?at_least={asked.document['revision']}", "rpm")
    assert f"{TEAM} asks for 8 H200" in html
    assert acts(html) == {"approve", "deny"}
    assert acts(page(site, "/quota", "viewer")) == set()


def test_the_policies_side_by_side_are_a_part_of_their_own(site: Served) -> None:
    html = page(site, "/quota/compare", "viewer")
    assert html.count("data-part") == 1
    assert all(f">{policy}<" in html for policy in ("fixed:0", "fixed:0.15", "tiered", "forecast"))


def test_where_nobody_is_spared_the_page_says_so(site: Served) -> None:
    """Of tiger's 112 it takes from both teams, who are all there are."""
    html = page(site, "/quota", "viewer")
    assert "Every team loses something." in html
    assert "loses nothing" not in html


GPUS = {"a comma that may be a point": "1,6", "two numbers": "1 6", "a fraction": "1.6", "a word": "many"}


@pytest.mark.parametrize("sentence", GPUS)
def test_a_transfer_takes_whole_numbers_alone(sentence: str, site: Served) -> None:
    """The form says so before it is sent, and the server to whoever sends it."""
    field = re.search(r'<input id="gpus"[^>]*>', page(site, "/quota", "fleet_rpm"))
    assert field is not None
    pattern = re.search(r'pattern="([^"]*)"', field[0])
    assert pattern is not None
    assert [re.fullmatch(pattern[1], text) is not None for text in ("16", GPUS[sentence])] == [True, False]
    sent = {"giver": OTHER, "taker": TEAM, "gpus": GPUS[sentence], "cluster": "tiger", "sku": "H200", "reason": "lent"}
    reply = site.post("/transfers", sent)
    assert (reply.status, reply.error["code"]) == (400, "bad_gpus")
    assert repr(GPUS[sentence]) in reply.error["message"]


def test_a_policy_that_is_none_is_told_on_a_page(site: Served) -> None:
    reply = site.ask("/quota?policy=wishful", who="viewer", Accept="text/html")
    assert reply.status == 400
    assert b"wishful" in reply.body


# The campaigns' pages.


@pytest.mark.parametrize("who", sorted(PEOPLE))
def test_every_role_sees_the_campaign_and_only_hands_on_have_buttons(site: Served, who: str) -> None:
    html = page(site, "/campaigns/fix", who)
    status = site.api("/campaigns/fix", who=who).document
    assert number(html, "done") == f"{status['done']:,}" == "0"
    assert number(html, "out") == "4"
    ticks, runs = {"{batch}"}, {"publish", "pause", "replan", "cancel"}
    want_acts = {"partner": ticks, "operator": ticks | runs, "admin": ticks | runs}.get(who, set())
    assert acts(html) == want_acts
    assert "plan" in acts(page(site, "/campaigns", who)) or who not in ("operator", "admin")


@pytest.mark.parametrize("path", ["/", "/clusters/lion"])
def test_a_campaigns_own_incident_is_no_alarm(site: Served, path: str) -> None:
    html = page(site, path, "viewer")
    told = re.findall(r'<div class="notice (\w+)"( role="alert")?>\s*<p class="notice-title">([^<]*)<', html)
    assert ("info", "", "Planned work: fix: 16 nodes go out of service, plan 1") in told
    assert "a campaign’s own" in page(site, "/incidents", "viewer")


def test_what_is_waited_for_is_told_without_the_command(site: Served) -> None:
    html = page(site, "/campaigns/fix", "operator")
    assert "Waits for provider to say that it is done" in html
    assert "plimsoll campaign tick" not in html


def test_the_partner_is_told_which_cluster_which_day_which_hours_and_who_confirms(site: Served) -> None:
    html = page(site, "/campaigns/fix", "partner")
    batch = next(each for each in site.api("/campaigns/fix").document["batches"] if each["batch"] == "lion#1")
    start = datetime.fromisoformat(batch["start"]).astimezone(UTC)
    local = start + timedelta(hours=5, minutes=30)
    assert f"{start:%H:%M}–{start + timedelta(hours=2):%H:%M}" in html
    assert f"{local:%H:%M}–" in html
    assert "confirmed by you, the provider" in html
    assert "/api/v1/campaigns/fix?batch=lion%231&amp;format=csv" in html
    nodes = site.api("/campaigns/fix?batch=lion%231&format=csv", who="partner").body.decode()
    assert [line.split(",")[0] for line in nodes.splitlines()] == ["node", "l1", "l2", "l3", "l4"]


def test_the_partner_sees_no_quota_no_team_and_no_way_to_them(site: Served) -> None:
    for path in ("/campaigns", "/campaigns/fix", "/campaigns/fix/gates", "/campaigns/fix/compare?left=1&right=1"):
        html = page(site, path, "partner")
        main = re.sub(r"(?s)<script.*?</script>", "", html[html.index("<main") : html.index("</main>")])
        for word in ("quota", "guarant", "assigned", "GPU", TEAM, OTHER, "run-1"):
            assert word not in main, f"{path}: {word}"
        inner = {href for href in re.findall(r'href="(/[^"#?]*)', html) if not href.startswith(("/static", "/api"))}
        assert all(href == "/" or href.startswith(("/campaigns", "/account")) for href in inner), inner
    assert site.ask("/quota", who="partner", Accept="text/html").status == 403


def test_the_gate_is_asked_about_the_next_batches(site: Served) -> None:
    html = page(site, "/campaigns/fix/gates", "partner")
    reasons = site.api("/campaigns/fix/gate/tiger", who="partner").document["reasons"]
    assert reasons[0]["text"] in html
    assert "tiger#1" in html
    assert "lion#1" not in html


def test_a_batch_that_is_ticked_leaves_the_list_and_names_what_was_lost(site: Served) -> None:
    refused = site.post("/campaigns/fix/tick/lion%231", {"lost": ["t1"]}, who="partner")
    assert (refused.status, refused.error["code"]) == (400, "not_in_batch")
    ticked = site.post("/campaigns/fix/tick/lion%231", {"lost": ["l4"]}, who="partner")
    assert ticked.status == 200, ticked.body
    html = page(site, f"/campaigns/fix?at_least={ticked.document['revision']}", "partner")
    assert number(html, "lost") == "1"
    assert "The nodes were checked" in html
    assert acts(html) == {"{batch}", "returned"}


def test_a_name_with_a_slash_can_stand_in_a_path(site: Served) -> None:
    """Where a label splits a cluster its batches are called `lion/gen2#1`."""
    refused = site.api("/campaigns/fix/gate/lion%2Fgen2%231", who="partner")
    assert (refused.status, refused.error["fields"]["batch"]) == (404, "lion/gen2#1")


def test_a_campaign_that_is_not_there_has_a_page_that_says_so(site: Served) -> None:
    reply = site.ask("/campaigns/nothing", who="partner", Accept="text/html")
    assert reply.status == 404
    assert b"nothing" in reply.body


# What is worked out for them, without a server.

ASKED = {
    "no parameter means the policy in force": ({}, ""),
    "a slider without scripts sends percent": ({"buffer": "12"}, "fixed:0.12"),
    "a slider has an end": ({"buffer": "99"}, ""),
    "a policy is taken as it is": ({"policy": "tiered"}, "tiered"),
}


@pytest.mark.parametrize("sentence", ASKED)
def test_the_policy_that_a_url_means(sentence: str) -> None:
    query, want = ASKED[sentence]
    assert policy_asked(query) == want


def test_the_buffer_of_a_policy_is_where_the_slider_stands() -> None:
    assert [buffer_of(word) for word in ("fixed:0.07", "fixed", "tiered", "fixed:x")] == [7, 15, None, None]


def quota(team: str, cluster: str, guaranteed: int, **cut: int) -> dict[str, Any]:
    haircut = {"unscheduled": 0, "idle": 0, "running": 0} | cut
    return {"team": team, "cluster": cluster, "sku": "H100", "assigned": guaranteed + sum(haircut.values()),
            "guaranteed": guaranteed, "allocated": 8, "haircut": haircut, "stage": 4 if cut else 1}  # fmt: skip


def test_what_a_team_loses_is_added_up_over_its_clusters() -> None:
    rows = by_team([quota("a", "x", 8, idle=8), quota("a", "y", 16), quota("b", "x", 8, unscheduled=24, running=8)])
    assert [(row["team"], row["cut"], row["clusters"], row["stage"]) for row in rows] == [
        ("b", 32, 1, 4),
        ("a", 8, 1, 4),
    ]
    assert rows[1]["bar"] == [("idle", 8, "0%", "25%")]
    assert bar({"unscheduled": 1, "idle": 0, "running": 3}, 4) == [
        ("unscheduled", 1, "0%", "25%"),
        ("running", 3, "25%", "75%"),
    ]


X, Y, Z = (("x", "H100"), ("y", "H100"), ("z", "H100"))


def test_a_pool_is_as_planned_where_every_team_has_what_the_plan_says() -> None:
    """Of y one of two teams has it; of z nobody was to have anything, and no alignment was applied."""
    plan = {"teams": [quota("a", "x", 8), quota("a", "y", 8), quota("b", "y", 8), quota("a", "z", 0)]}
    now = {"teams": [quota("a", "x", 8), quota("a", "y", 8)]}
    assert pools_as_planned(plan, now, {X, Y}) == {X}


def test_a_stage_counts_its_pools_with_a_line_in_force_whatever_their_guarantees_are() -> None:
    """x was corrected while nothing ran on what was cut, and now work runs on it: it would be of stage 4 today."""
    pools = [
        {"cluster": cluster, "sku": sku, "stage": stage, "never_backed": 0, "flex_standing": 0}
        for (cluster, sku), stage in ((X, 4), (Y, 2), (Z, 2))
    ]
    teams = [quota("a", "x", 8, running=8), quota("a", "y", 8, unscheduled=8), quota("a", "z", 8, unscheduled=8)]
    plan = {"clusters": pools, "teams": teams, "summary": {"over": 24}}
    told = [{"stage": stage, "meaning": "", "day": "2026-01-05"} for stage in (1, 2, 3, 4)]
    found = stages(plan, {X, Y}, told)
    assert [(each["pools"], each["aligned"]) for each in found] == [(0, 0), (2, 1), (0, 0), (1, 1)]


def test_the_tick_list_has_what_is_under_way_and_what_comes_soon() -> None:
    days = ("2026-01-04", "2026-01-05", *(f"2026-01-{day:02}" for day in range(6, 14)))
    steps = ("returned", "working", *["planned"] * 8)
    rows = [
        {"batch": f"x#{place}", "step": step, "day": day}
        for place, (step, day) in enumerate(zip(steps, days, strict=True))
    ]
    assert [row["batch"] for row in near(rows, "2026-01-05", is_over=False)] == ["x#1", "x#2", "x#3", "x#4", "x#5"]
    assert [row["batch"] for row in near(rows, "2026-01-10", is_over=False)][1:] == [
        f"x#{place}" for place in range(2, 9)
    ]
    assert [row["batch"] for row in near(rows, "2026-01-05", is_over=True)] == ["x#1"]


def test_hours_that_end_on_the_next_day_say_so() -> None:
    assert hours_text("2026-01-05T22:00:00Z", "2026-01-06T02:00:00Z", "UTC") == "22:00–02:00 (+1 d) UTC"


def test_all_campaigns_are_on_one_calendar() -> None:
    def row(name: str, **nodes: int) -> dict[str, Any]:
        days = [{"day": f"2026-01-{day[1:]}", "nodes": count} for day, count in nodes.items()]
        return {"campaign": name, "calendar": {"today": "2026-01-05", "days": days}}

    found = month([row("a", d05=10, d06=0, d07=40), row("b", d06=20), {"campaign": "old", "calendar": None}])
    assert found["days"] == ["2026-01-05", "2026-01-06", "2026-01-07"]
    assert [each["cells"] for each in found["rows"]] == [[(10, 1), (0, 0), (40, 4)], [(0, 0), (20, 2), (0, 0)]]
    assert found["total"] == [10, 20, 40]
