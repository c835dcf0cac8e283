"""Properties of service levels on random small fleets: they are what a slow and plain count says, and they add up."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Cluster, Node, Phase, Purpose, Service
from plimsoll.health.fold import Health
from plimsoll.health.levels.losses import find_offenders, list_outages, rank_reasons
from plimsoll.health.levels.measure import Level, LevelsBy, find_episodes, group_nodes, measure, series
from plimsoll.health.levels.outages import MINUTE, Past, Period, read_past
from plimsoll.health.model import Mark, from_microseconds, to_microseconds
from plimsoll.state.table import Journal
from tests.health.levels.checker import Checker, Told

ZERO = to_microseconds(datetime(2026, 1, 1, tzinfo=UTC))
REASONS = ["", "", "", "xid 79", "XID 79: GPU 3", "planned: driver", "provider: host", "fan"]
SERVICES = [*(str(service) for service in Service), "in_service", "in_service", "in_service", "repair", "validating"]
TOLD = st.builds(Told, st.integers(0, 240) | st.integers(100, 130), st.sampled_from(SERVICES), st.sampled_from(REASONS))
CLUSTERS = {"a": Area.US, "b": Area.EU}


class World(NamedTuple):
    """A small fleet, twice: for the code, and as stories for the checker."""

    fleet: Fleet
    past: Past
    period: Period
    checker: Checker


@st.composite
def worlds(draw: st.DrawFn) -> World:
    begin = draw(st.integers(-20, 150))
    end = begin + draw(st.integers(1, 150))
    return world(draw(st.lists(st.lists(TOLD, max_size=9), min_size=1, max_size=4)), begin, end)


def world(stories: list[list[Told]], begin: int, end: int) -> World:
    fleet, health = Fleet(Journal()), Health(Journal())
    told: dict[str, list[Told]] = {}
    for name, area in CLUSTERS.items():
        cluster = Cluster(name, "region", area, "colo", "acme", Purpose.RESEARCH, Phase.PRODUCTION)
        fleet.clusters.put(name, cluster)  # as a fold would
    for place, story in enumerate(stories):
        name, cluster_name = f"n{place}", "ab"[place % 2]
        for each in story:
            health.add(name, ZERO + each.minute * MINUTE, Mark(Service(each.service), each.reason))
        told[name] = [
            Told((moment - ZERO) // MINUTE, str(health.marks[number].service), health.marks[number].reason)
            for moment, number in (health.timelines[name].entries() if story else ())
        ]
        service = Service(told[name][-1].service) if story else Service.IN_SERVICE
        gpus = 4 if place % 2 else 8
        fleet.put_node(Node(name, cluster_name, f"{cluster_name}-1", "H200" if place < 2 else "H100", gpus, service))
    period = Period(ZERO + begin * MINUTE, ZERO + end * MINUTE)
    past = read_past(health, list(fleet.nodes.values()), until=period.end)
    return World(fleet, past, period, Checker(told, begin, end))


def levels(world: World, by: LevelsBy = LevelsBy.FLEET) -> list[Level]:
    grouping = group_nodes(world.fleet, world.past.nodes, by)
    return measure(world.past, grouping, world.period, find_episodes(world.past, grouping))


def minutes(hours: float | None) -> object:
    return None if hours is None else pytest.approx(60 * hours, abs=1e-3)


@given(worlds())
def test_levels_are_never_other_than_a_plain_count_says(world: World) -> None:
    level, checker = levels(world)[0], world.checker
    assert minutes(level.node_hours) == checker.counted
    assert minutes(level.node_hours_in_service) == checker.in_service
    assert minutes(level.node_hours_out_planned) == checker.out_planned
    assert minutes(level.node_hours_out_unplanned) == checker.out_unplanned
    assert level.interruptions_planned == checker.interruptions(is_planned=True)
    assert level.interruptions_unplanned == checker.interruptions(is_planned=False)
    repairs = checker.repair_minutes()
    assert level.repairs.count == len(repairs)
    assert minutes(level.mttr_hours) == (sum(repairs) / len(repairs) if repairs else None)
    assert minutes(level.repairs.max_hours) == (repairs[-1] if repairs else None)
    assert minutes(level.repairs.p50_hours) == (repairs[(len(repairs) - 1) // 2] if repairs else None)
    assert level.retired_while_out == checker.retired_count()
    for is_planned, count, oldest in (
        (True, level.open_planned, level.open_planned_oldest_hours),
        (False, level.open_unplanned, level.open_unplanned_oldest_hours),
    ):
        ages = checker.open_ages(is_planned=is_planned)
        assert (count, minutes(oldest)) == (len(ages), max(ages, default=None))


@given(worlds())
def test_time_to_recover_is_never_other_than_a_plain_count_says(world: World) -> None:
    recovery = levels(world)[0].recovery
    spells, still = world.checker.recoveries()
    assert recovery is not None
    assert recovery.episodes == len(spells)
    assert minutes(recovery.mean_hours) == (sum(spells) / len(spells) if spells else None)
    assert minutes(recovery.worst_hours) == max(spells, default=None)
    assert minutes(recovery.open_hours) == still


@given(worlds())
def test_reasons_never_lose_or_invent_an_hour(world: World) -> None:
    found = {
        (loss.reason, loss.is_planned): minutes(loss.node_hours) for loss in rank_reasons(world.past, world.period)
    }
    assert found == world.checker.by_reason


@given(worlds(), st.sampled_from([by for by in LevelsBy if by is not LevelsBy.FLEET]))
def test_groups_never_add_up_to_something_else(world: World, by: LevelsBy) -> None:
    (whole,), groups = levels(world), levels(world, by)
    for field in SUMMED:
        assert sum(getattr(group, field) for group in groups) == pytest.approx(getattr(whole, field), abs=1e-4), field
    assert sum(group.repairs.count for group in groups) == whole.repairs.count


SUMMED = [
    "nodes",
    "node_hours",
    "node_hours_in_service",
    "node_hours_out_planned",
    "node_hours_out_unplanned",
    "gpu_hours",
    "gpu_hours_lost_planned",
    "gpu_hours_lost_unplanned",
    "interruptions_planned",
    "interruptions_unplanned",
    "open_planned",
    "open_unplanned",
    "retired_while_out",
]


@given(worlds())
def test_outages_never_add_up_to_something_else(world: World) -> None:
    whole = levels(world)[0]
    outages = list(list_outages(world.past, world.period))
    assert sum(o.hours_planned for o in outages) == pytest.approx(whole.node_hours_out_planned, abs=1e-4)
    assert sum(o.hours_unplanned for o in outages) == pytest.approx(whole.node_hours_out_unplanned, abs=1e-4)
    lost = whole.gpu_hours_lost_planned + whole.gpu_hours_lost_unplanned
    assert sum(o.gpu_hours for o in outages) == pytest.approx(lost, abs=1e-4)
    assert sum(o.began_in_period and o.is_planned for o in outages) == whole.interruptions_planned
    assert sum(o.began_in_period and not o.is_planned for o in outages) == whole.interruptions_unplanned
    assert sum(o.ended is None for o in outages) == whole.open_planned + whole.open_unplanned
    repairs = [o.length_hours for o in outages if o.ended_in_period and o.ended_by == "in_service" and not o.is_planned]
    assert len(repairs) == whole.repairs.count
    if repairs:
        assert sum(repairs) / len(repairs) == pytest.approx(whole.mttr_hours, abs=1e-4)
    for outage in outages:
        assert outage.hours <= outage.length_hours + 1e-6
        assert outage.began == outage.stretches[0].begin
        assert outage.ended == outage.stretches[-1].end


@given(worlds())
def test_offenders_never_leave_out_a_fault(world: World) -> None:
    whole = levels(world)[0]
    offenders = find_offenders(world.past, world.period)
    assert sum(each.interruptions for each in offenders) == whole.interruptions_unplanned
    assert sum(each.gpu_hours for each in offenders) == pytest.approx(whole.gpu_hours_lost_unplanned, abs=1e-4)


@given(st.lists(st.lists(TOLD, max_size=9), min_size=1, max_size=3), st.integers(0, 200))
def test_what_comes_after_the_period_never_changes_it(stories: list[list[Told]], end: int) -> None:
    known = [[told for told in story if told.minute <= end] for story in stories]
    # Only a node of which nothing is known yet may be another one: it may join later.
    kept = [place for place, story in enumerate(stories) if known[place] or not story]
    whole, cut = ([each[place] for place in kept] for each in (stories, known))
    if kept:
        assert levels(world(whole, -30, end)) == levels(world(cut, -30, end))


def test_days_add_up_to_the_period() -> None:
    day = 24 * 60
    story = [
        Told(day * n + 600 + n, service, "fan") for n in range(12) for service in [("repair", "in_service")[n % 2]]
    ]
    made = world(
        [story, [Told(day * 3, "maintenance", "planned: x"), Told(day * 4 + 7, "in_service", "")]], 0, 10 * day
    )
    points, whole = series(made.past, made.period), levels(made)[0]
    assert len(points) == 10
    assert sum(point.interruptions_unplanned for point in points) == whole.interruptions_unplanned == 5
    assert sum(point.interruptions_planned for point in points) == whole.interruptions_planned == 1
    assert sum(point.repairs for point in points) == whole.repairs.count == 5
    assert points[0].begin == from_microseconds(made.period.begin)
