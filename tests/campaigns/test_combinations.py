"""Combinations that plans make, what holds changes back, who is behind: by hand, and against a walk node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import date, timedelta
from itertools import combinations as subsets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.campaigns.days import make_days
from plimsoll.campaigns.file import parse_campaign
from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.model import Batch, Mode, NoFly, Plan, Status
from plimsoll.campaigns.units import make_units
from plimsoll.campaigns.versions.behind import Lag, Reason, lags
from plimsoll.campaigns.versions.blocked import ZoneState, held_back
from plimsoll.campaigns.versions.canaries import cover
from plimsoll.campaigns.versions.combinations import Listed, list_combinations
from plimsoll.campaigns.versions.courses import Bite, Course, Update, course_of_plan, courses_of, zones_that_bite
from plimsoll.campaigns.versions.decide import record_relevant, record_tested, record_wanted
from plimsoll.campaigns.versions.model import Combination, Installed, Result, Verdict
from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.fleet.selector import Scope
from tests.support.dock import FILE, Dock, with_lines
from tests.support.versions import MONDAY, Yard, at, campaign, course, node, pairs, update

TIGER = NoFly(Scope((("cluster", ("tiger",)),)), date(2026, 1, 7), date(2026, 1, 9), "training run")
ONE, TWO, THREE = ["tiger-1"], ["tiger-1", "tiger-2"], ["tiger-1", "tiger-2", "tiger-3"]


def by_combination(yard: Yard, *courses: Course) -> dict[Combination, Listed]:
    listing = list_combinations(yard.fleet, yard.versions, courses)
    return {each.combination: each for each in listing.combinations}


# By hand.


def test_a_plan_mixes_the_fleet_from_its_first_turn_to_its_last() -> None:
    yard = Yard({"tiger": 3, "lion": 2})
    yard.put_all("tiger", at(-9), nic="41", driver="560")
    yard.put_all("lion", at(-5), nic="41", driver="550")
    plan = course(
        campaign(nic="43"),
        [
            update("tiger", TWO, at(0, 11)),
            update("tiger", ["tiger-3"], at(1, 11)),
            update("lion", ["lion-1"], at(2, 11)),
        ],
    )
    found = by_combination(yard, plan)
    new = found[pairs(nic="43", driver="560")]
    assert (new.nodes_now, new.nodes_most, new.nodes_after) == (0, 3, 3)
    assert (new.since, new.until, new.made_by, new.verdict) == (at(0, 15), None, ("nic",), Verdict.UNTESTED)
    old = found[pairs(nic="41", driver="560")]
    assert (old.nodes_now, old.nodes_most, old.nodes_after) == (3, 3, 0)
    assert (old.since, old.until, old.is_made) == (at(-9), at(1, 15), False)
    stays = found[pairs(nic="41", driver="550")]
    assert (stays.nodes_now, stays.nodes_after, stays.since, stays.until) == (2, 1, at(-5), None)
    (place,) = found[pairs(nic="43", driver="550")].clusters
    assert (place.cluster, place.nodes_now, place.nodes_most, place.since) == ("lion", 0, 1, at(2, 15))


def test_what_two_plans_make_at_one_moment_never_existed_in_between() -> None:
    yard = Yard({"tiger": 1})
    yard.put_all("tiger", nic="41", driver="550")
    both = [
        course(campaign("a", nic="43"), [update("tiger", ONE, at(1))]),
        course(campaign("b", driver="560"), [update("tiger", ONE, at(1))]),
    ]
    assert by_combination(yard, *both).keys() == {pairs(nic="41", driver="550"), pairs(nic="43", driver="560")}
    apart = [both[0], course(campaign("b", driver="560"), [update("tiger", ONE, at(2))])]
    assert pairs(nic="43", driver="550") in by_combination(yard, *apart)


def test_what_comes_and_goes_in_one_moment_changes_nothing() -> None:
    yard = Yard({"tiger": 1, "lion": 1})
    yard.put_all("tiger", nic="41", driver="550")
    yard.put_all("lion", nic="43", driver="540")
    courses = [
        course(campaign("a", driver="550"), [update("lion", ["lion-1"], at(1))]),
        course(campaign("b", driver="560"), [update("lion", ["lion-1"], at(2))]),
        course(campaign("c", nic="43"), [update("tiger", ONE, at(3))]),
        course(campaign("d", driver="560"), [update("tiger", ONE, at(3))]),
    ]
    listing = list_combinations(yard.fleet, yard.versions, courses)
    brief = next(each for each in listing.combinations if each.combination == pairs(nic="43", driver="550"))
    assert (brief.since, brief.until, brief.made_by) == (at(1, 4), at(2, 4), ("a",))
    assert [place.cluster for place in brief.clusters] == ["lion"]
    assert listing.canaries.names == ("lion",), "tiger never shows it"


def test_what_is_over_has_happened_and_what_is_cancelled_never_will() -> None:
    yard = Yard({"tiger": 2})
    yard.put_all("tiger", nic="41")
    over = course(campaign(nic="43"), [update("tiger", ONE, at(0), is_over=True)])
    ended = course(campaign(nic="44"), [update("tiger", TWO, at(0))], is_over=True)
    assert by_combination(yard, over, ended).keys() == {pairs(nic="41")}


def test_nodes_that_nobody_looked_at_are_counted_as_not_known() -> None:
    yard = Yard({"tiger": 3})
    yard.put("tiger", ["tiger-1"], nic="41")
    found = by_combination(yard, course(campaign(nic="43"), [update("tiger", TWO, at(0))]))
    assert (found[()].nodes_now, found[()].nodes_after, found[()].verdict) == (2, 1, Verdict.UNKNOWN)
    assert found[pairs(nic="43")].nodes_after == 2


def test_components_that_do_not_matter_do_not_tell_combinations_apart() -> None:
    yard = Yard({"tiger": 2})
    yard.put("tiger", ["tiger-1"], bios="1", nic="41", driver="1")
    yard.put("tiger", ["tiger-2"], bios="2", nic="41", driver="1")
    yard.take(record_relevant(yard.state, ["driver"]))
    plan = course(campaign(nic="43"), [update("tiger", TWO, at(0))])
    assert by_combination(yard, plan).keys() == {pairs(nic="41", driver="1"), pairs(nic="43", driver="1")}
    assert by_combination(yard).keys() == {pairs(driver="1")}, "what no plan changes and nobody named is left out"


def test_a_zone_keeps_old_combinations_alive() -> None:
    yard = Yard({"tiger": 1, "lion": 1})
    yard.put_all("tiger", nic="41")
    yard.put_all("lion", nic="40")
    updates = [update("tiger", ["tiger-1"], at(5, 11)), update("lion", ["lion-1"], at(5, 11))]
    held = {"tiger": (Bite(TIGER, TIGER.from_day),)}
    found = by_combination(yard, course(campaign("nic", TIGER, nic="43"), updates, held=held))
    assert found[pairs(nic="41")].held_by == ("training run",)
    assert found[pairs(nic="40")].held_by == ()


def test_canaries_cover_what_plans_make_and_nobody_tested() -> None:
    yard = Yard({"tiger": 3, "lion": 2, "lynx": 1})
    yard.put("tiger", TWO, nic="41", driver="550")
    yard.put("tiger", ["tiger-3"], nic="41", driver="560")
    yard.put_all("lion", nic="41", driver="550")
    yard.put_all("lynx", nic="41", driver="565")
    every = [
        update(name, [n.id for n in yard.fleet.nodes.values() if n.cluster == name], at(0))
        for name in yard.fleet.clusters
    ]
    plan = course(campaign(nic="43"), every)
    listing = list_combinations(yard.fleet, yard.versions, [plan])
    assert listing.canaries.names == ("tiger", "lynx")
    assert [each.verdict for each in listing.combinations] == [Verdict.UNTESTED] * 6
    yard.take(record_tested(yard.state, pairs(nic="43", driver="560"), Result.PASSED))
    yard.take(record_tested(yard.state, pairs(nic="43", driver="565"), Result.FAILED))
    listing = list_combinations(yard.fleet, yard.versions, [plan])
    assert listing.canaries.names == ("lion",), "the smaller of the two that show the last one"
    assert listing.combinations[0].verdict is Verdict.FAILED


# Against a walk node by node.

NAMES = ("a-1", "a-2", "a-3", "b-1", "b-2")
VERSIONS = st.dictionaries(st.sampled_from(("driver", "nic")), st.sampled_from(("1", "2", "3")), max_size=2)
CHANGES = st.dictionaries(st.sampled_from(("driver", "nic")), st.sampled_from(("2", "3", "4")), min_size=1, max_size=2)


@st.composite
def courses(draw: st.DrawFn) -> list[Course]:
    found = []
    for name in draw(st.lists(st.sampled_from("xyz"), unique=True, max_size=3)):
        members = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
        updates = [
            update("u", [member], at(0, draw(st.integers(1, 6))), hours=draw(st.integers(1, 4))) for member in members
        ]
        since = at(-draw(st.integers(0, 2)))
        found.append(course(campaign(name, **draw(CHANGES)), updates, since=since))
    return sorted(found, key=lambda each: (each.since, each.campaign.name))


def walked(yard: Yard, plans: list[Course]) -> Mapping[Combination, tuple[object, ...]]:
    """Every node on its own, every moment looked at: now, most, after, since, until of each combination."""
    on = {name: dict(yard.versions.combination_of(name)) for name in NAMES}

    def look() -> Counter[Combination]:
        return Counter(tuple(sorted(versions.items())) for versions in on.values())

    moments = sorted({each.ends for plan in plans for each in plan.updates})
    looks = [(MONDAY, look())]
    for moment in moments:
        for plan in plans:
            for each in plan.updates:
                for name in each.nodes if each.ends == moment else ():
                    on[name] = on[name] | plan.versions
        looks.append((moment, look()))
    found = {}
    for combination in {combination for _, counts in looks for combination in counts}:
        counts = [counts[combination] for _, counts in looks]
        there = [place for place, count in enumerate(counts) if count]
        since = (None if not combination else MONDAY) if there[0] == 0 else looks[there[0]][0]
        until = None if counts[-1] else looks[there[-1] + 1][0]
        found[combination] = (counts[0], max(counts), counts[-1], since, until)
    return found


@given(st.lists(VERSIONS, min_size=len(NAMES), max_size=len(NAMES)), courses())
def test_combinations_are_those_of_a_walk_node_by_node(now: list[dict[str, str]], plans: list[Course]) -> None:
    yard = Yard({"a": 3, "b": 2})
    for name, versions in zip(NAMES, now, strict=True):
        yard.put(name[0], [name], **versions)
    listing = list_combinations(yard.fleet, yard.versions, plans)
    found = {
        each.combination: (each.nodes_now, each.nodes_most, each.nodes_after, each.since, each.until)
        for each in listing.combinations
    }
    assert found == walked(yard, plans)
    for each in listing.combinations:
        assert sum(place.nodes_now for place in each.clusters) == each.nodes_now
        assert sum(place.nodes_after for place in each.clusters) == each.nodes_after
        assert len({place.cluster for place in each.clusters}) == len(each.clusters)
    assert sum(each.nodes_after for each in listing.combinations) == len(NAMES), "no node is lost on the way"
    made = {each.combination for each in listing.combinations if each.is_made and each.verdict is Verdict.UNTESTED}
    assert {each for chosen in listing.canaries.clusters for each in chosen.covers} == made
    assert not listing.canaries.missing


# The cover.

ITEMS = [pairs(nic=str(number)) for number in range(6)]


@given(
    st.dictionaries(st.sampled_from("abcdefg"), st.frozensets(st.sampled_from(ITEMS))),
    st.frozensets(st.sampled_from(ITEMS)),
    st.lists(st.integers(1, 9), min_size=7, max_size=7),
)
def test_no_smaller_cover_exists(
    found: dict[str, frozenset[Combination]], wanted: frozenset[Combination], numbers: list[int]
) -> None:
    sizes = dict(zip("abcdefg", numbers, strict=True))
    chosen = cover(wanted, found, sizes)
    shown = frozenset(each for name in chosen.names for each in found[name])
    reachable = wanted & frozenset(each for covers in found.values() for each in covers)
    assert reachable <= shown
    assert set(chosen.missing) == wanted - reachable
    assert chosen.is_least
    best = min(
        (len(names), sum(sizes[name] for name in names))
        for count in range(len(found) + 1)
        for names in subsets(sorted(found), count)
        if reachable <= frozenset(each for name in names for each in found[name])
    )
    assert (len(chosen.names), sum(sizes[name] for name in chosen.names)) == best
    assert chosen == cover(wanted, dict(reversed(found.items())), sizes), "the order of the clusters means nothing"


def test_a_search_that_grows_too_long_still_covers() -> None:
    items = [pairs(nic=str(number)) for number in range(60)]
    found = {
        f"c{number:02}": frozenset(items[(number * 7 + step * step) % 60] for step in range(9)) for number in range(60)
    }
    chosen = cover(items, found, dict.fromkeys(found, 5))
    assert frozenset(each for name in chosen.names for each in found[name]) == frozenset(items)
    assert not chosen.is_least


# What no-fly zones hold back.


def held(yard: Yard, plan: Course, day: int) -> tuple[object, ...] | None:
    found = held_back(yard.fleet, yard.versions, [plan], now=at(day, 12))
    return None if not found else (found[0].state, found[0].nodes, found[0].since, found[0].days)


def zoned(*updates: Update, first_day: date = TIGER.from_day) -> Course:
    return course(campaign("nic", TIGER, nic="43"), updates, held={"tiger": (Bite(TIGER, first_day),)})


def test_what_a_zone_holds_back() -> None:
    yard = Yard({"tiger": 3, "lion": 1})
    yard.put_all("tiger", nic="41")
    late, early = update("tiger", TWO, at(6, 11)), update("tiger", ["tiger-3"], at(1, 11), batch="tiger#2")
    plan = zoned(late, early, update("lion", ["lion-1"], at(6, 11)))
    assert [len(plan.holding(each)) for each in (late, early)] == [1, 0], "who goes before it begins waits for nothing"
    assert held(yard, plan, 0) == (ZoneState.AHEAD, 2, date(2026, 1, 7), 0)
    assert held(yard, plan, 2) == (ZoneState.NOW, 2, date(2026, 1, 7), 1)
    assert held(yard, plan, 4) == (ZoneState.NOW, 2, date(2026, 1, 7), 3)
    assert held(yard, plan, 5) == (ZoneState.OVER, 2, date(2026, 1, 7), 3)
    yard.put("tiger", ["tiger-1"], nic="43")
    assert held(yard, plan, 2) == (ZoneState.NOW, 1, date(2026, 1, 7), 1), "one was done by hand"
    (line,) = held_back(yard.fleet, yard.versions, [plan], now=at(2, 12))
    assert (line.changes, line.clusters, line.why) == (("nic=43",), ("tiger",), "training run")
    assert line.planned_first == line.planned_last == date(2026, 1, 11)


def test_a_zone_bites_only_where_work_could_have_been_done() -> None:
    weekdays = parse_campaign(file_of(days="[mon, tue]"), source="x.yaml")
    yard = Yard({"tiger": 2})
    roll = make_units(weekdays, yard.fleet)
    assert zones_that_bite(roll.units, make_days(weekdays)) == {}, "Wednesday to Friday are no days of the window"
    every_day = parse_campaign(file_of(), source="x.yaml")
    (bite,) = zones_that_bite(make_units(every_day, yard.fleet).units, make_days(every_day))["tiger"]
    assert bite.first_day == date(2026, 1, 7)


def file_of(days: str = "[mon, tue, wed, thu, fri, sat, sun]") -> str:
    return f"""
campaign: nic
changes: [{{component: nic, version: "43"}}]
start: 2026-01-05
deadline: 2026-01-20
window: {{hours: [11, 20], tz: America/New_York, days: {days}}}
work: [{{scope: {{}}, mode: rolling, share_per_day: 0.5, hours: 4}}]
no_fly: [{{scope: {{cluster: [tiger]}}, from: 2026-01-07, to: 2026-01-09, why: training run}}]
"""


def test_the_course_of_a_plan_is_on_the_clock_of_its_window() -> None:
    yard = Yard({"tiger": 4})
    what = parse_campaign(file_of(), source="x.yaml")
    roll = make_units(what, yard.fleet)
    start = at(5, 0) + timedelta(hours=1)  # 20:00 of the day before, where the window is
    batches = tuple(
        Batch(
            "tiger",
            Mode.ROLLING,
            number,
            2,
            start + timedelta(days=number - 1),
            start + timedelta(days=number - 1, hours=4),
        )
        for number in (1, 2)
    )
    plan = Plan("nic", 1, Status.FEASIBLE, None, None, batches)
    found = course_of_plan(what, plan, roll, since=MONDAY)
    assert [each.nodes for each in found.updates] == [("tiger-1", "tiger-2"), ("tiger-3", "tiger-4")]
    assert [each.starts.date() for each in found.updates] == [date(2026, 1, 9), date(2026, 1, 10)]
    assert found.holding(found.updates[0])[0].zone.why == "training run"


def test_the_course_of_a_campaign_that_runs_follows_what_happened() -> None:
    zone = "no_fly: [{scope: {cluster: [whale]}, from: 2026-01-06, to: 2026-01-07, why: training run}]"
    automatic = with_lines(FILE, "run: {grace_minutes: 0, work: [update], validate: [check]}\n" + zone)
    dock = Dock({"tiger": 4, "whale": 2}, automatic)
    dock.plan(tiger="05T11:00", whale="08T11:00")
    (planned,) = courses_of(dock.state.of(Campaigns).runs.values(), dock.state.of(Fleet))
    assert [(each.batch, len(each.nodes), each.is_over) for each in planned.updates] == [
        ("tiger#1", 4, False),
        ("whale#1", 2, False),
    ]
    assert planned.since == dock.now
    assert [bite.first_day for bite in planned.holding(planned.updates[1])] == [date(2026, 1, 6)]
    dock.start()
    for text in ("05T11:20", "05T11:21", "05T11:22"):
        dock.go(text)
    (going,) = courses_of(dock.state.of(Campaigns).runs.values(), dock.state.of(Fleet))
    assert (going.updates[0].is_over, going.updates[1].is_over) == (True, False)
    assert going.updates[0].ends == dock.now, "it was over long before the plan said"
    dock.move("cancel")
    dock.go("05T11:23")
    assert courses_of(dock.state.of(Campaigns).runs.values(), dock.state.of(Fleet)) == []


def test_what_takes_nothing_out_changes_when_it_starts() -> None:
    impact = '"28.43", impact: [{scope: {cluster: [whale]}, impact: impactless}]'
    dock = Dock({"tiger": 2, "whale": 2}, FILE.replace('"28.43"', impact))
    dock.plan(tiger="05T11:00")
    (planned,) = courses_of(dock.state.of(Campaigns).runs.values(), dock.state.of(Fleet))
    (quiet,) = [each for each in planned.updates if not each.batch]
    assert (quiet.unit, quiet.nodes, quiet.is_over) == ("whale", ("whale-1", "whale-2"), False)
    assert quiet.ends == at(0, 11), "when the first window opens"
    dock.at("05T09:00").start()
    (going,) = courses_of(dock.state.of(Campaigns).runs.values(), dock.state.of(Fleet))
    assert [(each.unit, each.ends) for each in going.updates if each.is_over] == [("whale", dock.now)]


# Who is behind.


def lag_of(yard: Yard, *plans: Course, day: int = 3, component: str = "nic") -> Lag:
    (found,) = [each for each in lags(yard.fleet, yard.versions, plans, now=at(day)) if each.component == component]
    return found


def behind_yard() -> Yard:
    yard = Yard({"tiger": 3})
    yard.put("tiger", ["tiger-1"], nic="39")
    yard.put("tiger", ["tiger-2"], nic="41")
    yard.put("tiger", ["tiger-3"], nic="43")
    return yard


def test_how_far_a_cluster_is_behind() -> None:
    yard = behind_yard()
    yard.take(record_wanted(yard.state, pairs(nic="43"), Scope()), when=at(1))
    lag = lag_of(yard, day=11)
    assert (lag.wanted, lag.nodes, lag.behind, lag.oldest) == ("43", 3, 2, "39")
    assert (lag.releases, lag.days, lag.since) == (2, 10, at(1))
    assert [(cause.reason, cause.nodes) for cause in lag.causes] == [(Reason.NO_CAMPAIGN, 2)]


def test_what_was_said_last_is_wanted() -> None:
    yard = behind_yard()
    yard.take(record_wanted(yard.state, pairs(nic="41"), Scope()), when=at(2))
    older = course(campaign(nic="43"), [update("tiger", THREE, at(9))], since=at(1))
    newer = course(campaign(nic="43"), [update("tiger", ["tiger-2"], at(9))], since=at(3))
    assert (lag_of(yard, older).wanted, lag_of(yard, older).behind) == ("41", 1), "a newer version is not behind"
    found = {(each.wanted, each.behind) for each in lags(yard.fleet, yard.versions, [newer], now=at(4))}
    assert found == {("41", 1), ("43", 1)}, "the campaign wants its own nodes only"


CAUSES = {
    "its day has not come": (update("tiger", THREE, at(9, 11)), 1, (Reason.PLANNED, date(2026, 1, 14))),
    "a zone holds it today": (update("tiger", THREE, at(9, 11)), 3, (Reason.NO_FLY, date(2026, 1, 9))),
    "the zone is over": (update("tiger", THREE, at(9, 11)), 5, (Reason.PLANNED, date(2026, 1, 14))),
    "it is out now": (update("tiger", THREE, at(3), is_begun=True), 3, (Reason.UNDER_WAY, date(2026, 1, 8))),
    "its time has passed": (update("tiger", THREE, at(1)), 3, (Reason.LATE, date(2026, 1, 6))),
    "nobody recorded it": (update("tiger", THREE, at(1), is_over=True), 3, (Reason.LATE, date(2026, 1, 6))),
    "it did not come back": (
        update("tiger", THREE, at(1), is_over=True, lost=frozenset(THREE)),
        3,
        (Reason.DID_NOT_RETURN, date(2026, 1, 6)),
    ),
}


@pytest.mark.parametrize("name", CAUSES)
def test_why_a_node_is_behind(name: str) -> None:
    the_update, day, want = CAUSES[name]
    yard = Yard({"tiger": 3})
    yard.put_all("tiger", nic="41")
    lag = lag_of(yard, zoned(the_update), day=day)
    assert [(cause.reason, cause.on) for cause in lag.causes] == [want]
    assert lag.causes[0].nodes == 3
    assert lag.causes[0].campaign == "nic"


def test_unknown_versions_are_behind_and_retired_nodes_are_not() -> None:
    yard = Yard({"tiger": 3})
    yard.put("tiger", ["tiger-1"], nic="43")
    yard.do(NodeRecorded(node("tiger-3", "tiger", service=Service.RETIRED), {"service": "in_service"}))
    yard.take(record_wanted(yard.state, pairs(nic="43"), Scope()))
    lag = lag_of(yard)
    assert (lag.nodes, lag.behind, lag.unknown, lag.releases) == (2, 1, 1, None)
    yard.put("tiger", ["tiger-2"], nic="43")
    assert lags(yard.fleet, yard.versions, [], now=at(3)) == []
    (even,) = lags(yard.fleet, yard.versions, [], now=at(3), is_all=True)
    assert (even.behind, even.releases, even.days, even.causes) == (0, 0, 0, ())


def test_counts_of_clusters_are_kept_apart() -> None:
    yard = Yard({"tiger": 1, "lion": 2})
    yard.put_all("tiger", nic="41")
    yard.put_all("lion", nic="41")
    assert {held.cluster: each.nodes for held, each in yard.versions.presence.items()} == {"tiger": 1, "lion": 2}
    assert all(isinstance(held, Installed) for held in yard.versions.presence)
