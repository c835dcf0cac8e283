"""Service levels of small histories, worked out by hand.

The period is the first ten days of January 2026: 240 hours. Nodes have 8 GPUs.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from plimsoll.filter import parse_filter
from plimsoll.fleet.fold import Fleet
from plimsoll.health.fold import Health
from plimsoll.health.levels.losses import Outage, list_outages
from plimsoll.health.levels.measure import LevelsBy
from plimsoll.health.levels.outages import normal_reason
from plimsoll.health.levels.slo import ServiceLevels, choose_nodes, parse_period, past_of, service_levels
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import NOW, Importer

Row = dict[str, str]


def told(day: int, clock: str, service: str, reason: str = "", node: str = "n1", month: str = "2026-01") -> Row:
    return row("history", time=f"{month}-{day:02}T{clock}Z", service=service, reason=reason, node=node)


def fault(day: int, clock: str, back_day: int, back_clock: str, node: str = "n1", reason: str = "xid 79") -> list[Row]:
    """Out in one go."""
    return [told(day, clock, "repair", reason, node), told(back_day, back_clock, "in_service", "", node)]


class Small:
    """A fleet in memory, and what is said of it."""

    def __init__(self, folder: Path, history: list[Row], **sheets: list[Row]) -> None:
        self.importer = Importer()
        self.importer.bring(write_fleet(folder, history=history, **({"nodes": nodes(1)} | sheets)))

    def levels(
        self,
        begin: str = "2026-01-01",
        end: str = "2026-01-11",
        by: LevelsBy = LevelsBy.CLUSTER,
        where: str = "",
        **lemon: Any,
    ) -> ServiceLevels:
        fleet, health = self.importer.of(Fleet), self.importer.of(Health)
        scope = choose_nodes(fleet, parse_filter(where, now=NOW), now=NOW)
        return service_levels(fleet, health, scope, parse_period(begin, end, now=NOW), by, **lemon)

    def outages(self, begin: str = "2026-01-01", end: str = "2026-01-11") -> list[Outage]:
        fleet, period = self.importer.of(Fleet), parse_period(begin, end, now=NOW)
        scope = choose_nodes(fleet, parse_filter("", now=NOW), now=NOW)
        return list(list_outages(past_of(self.importer.of(Health), scope, period), period))


CASES: dict[str, tuple[list[Row], dict[str, Any]]] = {
    "a node that nothing happens to": (
        [],
        {
            "nodes": 1,
            "node_hours": 240,
            "node_hours_in_service": 240,
            "in_service_share": 1,
            "in_service_goal_is_met": True,
            "net_of_planned_share": 1,
            "mttr_hours": None,
            "mttr_goal_is_met": None,
            "gpu_hours": 1920,
            "interruptions_planned": 0,
            "interruptions_unplanned": 0,
            "unplanned_per_1000_node_days": 0,
            "open_unplanned": 0,
        },
    ),
    "one repair of 24 hours": (
        fault(3, "06:00", 4, "06:00"),
        {
            "node_hours_in_service": 216,
            "node_hours_out_unplanned": 24,
            "node_hours_out_planned": 0,
            "in_service_share": 0.9,
            "in_service_goal_is_met": False,
            "net_of_planned_share": 0.9,
            "mttr_hours": 24,
            "mttr_goal_is_met": True,
            "gpu_hours_lost_unplanned": 192,
            "interruptions_unplanned": 1,
            "unplanned_per_day": 0.1,
            "unplanned_per_1000_node_days": 100,
        },
    ),
    "exactly the goals: 12 of 240 hours out, and a repair that took 48 hours and ended with the period's first 12": (
        [told(30, "12:00", "repair", "xid 79", month="2025-12"), told(1, "12:00", "in_service")],
        {
            "node_hours_out_unplanned": 12,
            "in_service_share": 0.95,
            "in_service_goal_is_met": True,
            "mttr_hours": 48,
            "mttr_goal_is_met": True,
            "interruptions_unplanned": 0,
        },
    ),
    "three repairs of 1, 2 and 57 hours": (
        fault(2, "00:00", 2, "01:00") + fault(3, "00:00", 3, "02:00") + fault(4, "00:00", 6, "09:00"),
        {
            "node_hours_out_unplanned": 60,
            "in_service_share": 0.75,
            "mttr_hours": 20,
            "interruptions_unplanned": 3,
            "unplanned_per_day": 0.3,
            "unplanned_per_1000_node_days": 300,
        },
    ),
    "the provider's maintenance of 12 hours with notice": (
        [
            told(5, "00:00", "draining", "provider: host maintenance"),
            told(5, "04:00", "maintenance", "provider: host maintenance"),
            told(5, "11:00", "validating", "provider: host maintenance"),
            told(5, "12:00", "in_service"),
        ],
        {
            "in_service_share": 0.95,
            "net_of_planned_share": 1,
            "node_hours_out_planned": 12,
            "node_hours_out_unplanned": 0,
            "gpu_hours_lost_planned": 96,
            "interruptions_planned": 1,
            "interruptions_unplanned": 0,
            "planned_per_day": 0.1,
            "planned_per_1000_node_days": 100,
            "mttr_hours": None,
        },
    ),
    "maintenance without a reason, and validation that says nothing of its own": (
        [told(5, "00:00", "maintenance"), told(5, "06:00", "validating"), told(5, "08:00", "in_service")],
        {"node_hours_out_planned": 8, "node_hours_out_unplanned": 0, "interruptions_planned": 1},
    ),
    "planned work of 6 hours turns into a repair of 30": (
        [
            told(5, "00:00", "maintenance", "planned: driver"),
            told(5, "06:00", "repair", "xid 79"),
            told(6, "10:00", "validating"),
            told(6, "12:00", "in_service"),
        ],
        {
            "node_hours_out_planned": 6,
            "node_hours_out_unplanned": 30,
            "in_service_share": 0.85,
            "net_of_planned_share": 204 / 234,
            "interruptions_planned": 1,
            "interruptions_unplanned": 0,
            "mttr_hours": None,
        },
    ),
    "planned work of 6 hours turns into a repair of 30 that nobody explains": (
        [
            told(5, "00:00", "maintenance", "planned: driver"),
            told(5, "06:00", "repair"),
            told(6, "12:00", "in_service"),
        ],
        {"node_hours_out_planned": 6, "node_hours_out_unplanned": 30},
    ),
    "validation goes on with planned work, whatever it says itself": (
        [
            told(5, "00:00", "maintenance", "planned: fw"),
            told(5, "06:00", "validating", "every hold has ended"),
            told(5, "08:00", "in_service"),
        ],
        {"node_hours_out_planned": 8, "node_hours_out_unplanned": 0, "interruptions_planned": 1},
    ),
    "validation after a fault is part of the fault, even if it calls itself planned": (
        [
            told(5, "00:00", "repair", "xid 79"),
            told(5, "06:00", "validating", "planned: burn-in"),
            told(5, "08:00", "in_service"),
        ],
        {"node_hours_out_planned": 0, "node_hours_out_unplanned": 8, "mttr_hours": 8},
    ),
    "a drain that begins an outage speaks for itself": (
        [
            told(5, "00:00", "draining", "planned: fw"),
            told(5, "06:00", "validating", "empty"),
            told(5, "08:00", "in_service"),
        ],
        {"node_hours_out_planned": 8, "node_hours_out_unplanned": 0},
    ),
    "a drain that nobody explains is a fault": (
        [told(5, "00:00", "draining"), told(5, "06:00", "in_service")],
        {"node_hours_out_unplanned": 6, "interruptions_unplanned": 1},
    ),
    "two outages with 9 minutes between them are a storm: one outage of 129 minutes, 120 of them out": (
        fault(2, "10:00", 2, "11:00") + fault(2, "11:09", 2, "12:09"),
        {"interruptions_unplanned": 1, "node_hours_out_unplanned": 2, "mttr_hours": 2.15},
    ),
    "two outages with 10 minutes between them are two": (
        fault(2, "10:00", 2, "11:00") + fault(2, "11:10", 2, "12:10"),
        {"interruptions_unplanned": 2, "node_hours_out_unplanned": 2, "mttr_hours": 1},
    ),
    "a fault 5 minutes after planned work is not part of it": (
        [
            told(2, "10:00", "maintenance", "planned: driver"),
            told(2, "11:00", "in_service"),
            told(2, "11:05", "repair", "xid 48"),
            told(2, "14:05", "in_service"),
        ],
        {
            "interruptions_planned": 1,
            "interruptions_unplanned": 1,
            "node_hours_out_planned": 1,
            "node_hours_out_unplanned": 3,
            "mttr_hours": 3,
        },
    ),
    "an outage open for 60 hours at the end": (
        [told(8, "12:00", "quarantined", "xid 79")],
        {
            "in_service_share": 0.75,
            "mttr_hours": None,
            "interruptions_unplanned": 1,
            "open_unplanned": 1,
            "open_unplanned_oldest_hours": 60,
            "open_unplanned_over_goal": 1,
        },
    ),
    "an outage that ends after the period is open, and nobody looks ahead": (
        fault(10, "00:00", 15, "00:00"),
        {"in_service_share": 0.9, "mttr_hours": None, "open_unplanned": 1, "open_unplanned_oldest_hours": 24},
    ),
    "an outage that ends at the very end of the period has ended": (
        fault(10, "00:00", 11, "00:00"),
        {"mttr_hours": 24, "open_unplanned": 0, "interruptions_unplanned": 1},
    ),
    "an outage that begins at the very end of the period is none of it": (
        fault(11, "00:00", 12, "00:00"),
        {"in_service_share": 1, "open_unplanned": 0, "interruptions_unplanned": 0},
    ),
    "an outage that ends at the very beginning is none of it": (
        [told(31, "00:00", "repair", "xid 79", month="2025-12"), told(1, "00:00", "in_service")],
        {"in_service_share": 1, "mttr_hours": None, "interruptions_unplanned": 0},
    ),
    "out over the whole period and beyond": (
        [told(20, "00:00", "repair", "xid 79", month="2025-12"), told(12, "00:00", "in_service")],
        {
            "in_service_share": 0,
            "interruptions_unplanned": 0,
            "open_unplanned": 1,
            "open_unplanned_oldest_hours": 12 * 24 + 240,
            "mttr_hours": None,
        },
    ),
    "retired after 100 hours, the last 10 of them in repair": (
        [told(4, "18:00", "repair", "xid 79"), told(5, "04:00", "retired", "xid 79")],
        {
            "node_hours": 100,
            "node_hours_in_service": 90,
            "in_service_share": 0.9,
            "interruptions_unplanned": 1,
            "unplanned_per_1000_node_days": 240,
            "mttr_hours": None,
            "retired_while_out": 1,
            "open_unplanned": 0,
        },
    ),
    "joined: counts from when it first entered service, 48 hours before the end": (
        [told(6, "00:00", "joining", "new node"), told(8, "00:00", "validating"), told(9, "00:00", "in_service")],
        {
            "node_hours": 48,
            "node_hours_in_service": 48,
            "in_service_share": 1,
            "interruptions_unplanned": 0,
            "open_unplanned": 0,
        },
    ),
    "joins only after the period": (
        [told(12, "00:00", "joining", "new node"), told(13, "00:00", "in_service")],
        {"nodes": 0, "node_hours": 0, "in_service_share": None, "in_service_goal_is_met": None},
    ),
    "retired, and back with new parts four days later": (
        [told(3, "00:00", "retired"), told(6, "00:00", "joining"), told(7, "00:00", "in_service")],
        {"node_hours": 48 + 96, "in_service_share": 1, "interruptions_unplanned": 0},
    ),
    "an outage that goes on with something else at the very end is open": (
        [told(10, "00:00", "repair", "xid 79"), told(11, "00:00", "validating")],
        {"open_unplanned": 1, "open_unplanned_oldest_hours": 24, "mttr_hours": None},
    ),
    "of several transitions of one instant the last one counts": (
        [told(3, "00:00", "quarantined", "xid 79"), told(3, "00:00", "in_service")],
        {"in_service_share": 1, "interruptions_unplanned": 0},
    ),
    "a reason that changes does not end the outage": (
        [told(3, "00:00", "quarantined", "xid 79"), told(3, "12:00", "repair", "fan"), told(4, "00:00", "in_service")],
        {"interruptions_unplanned": 1, "mttr_hours": 24},
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_levels_are_what_the_hand_says(sentence: str, tmp_path: Path) -> None:
    history, want = CASES[sentence]
    total = Small(tmp_path, history).levels().total
    for field, value in want.items():
        assert getattr(total, field) == (pytest.approx(value, abs=1e-6) if value is not None else None), field


def test_the_spread_of_repairs_names_repairs_that_were(tmp_path: Path) -> None:
    # Ten nodes, repaired in 1, 2, … 10 hours: the median is the fifth, p90 the ninth, p99 the tenth.
    history = [each for n in range(1, 11) for each in fault(2, "00:00", 2, f"{n:02}:00", node=f"n{n}")]
    repairs = Small(tmp_path, history, nodes=nodes(10)).levels().total.repairs
    assert (repairs.count, repairs.mean_hours) == (10, 5.5)
    assert (repairs.p50_hours, repairs.p90_hours, repairs.p99_hours, repairs.max_hours) == (5, 9, 10, 10)


def test_groups_are_clusters_areas_skus_and_nodes(tmp_path: Path) -> None:
    clusters = [row("clusters"), row("clusters", cluster="lion", area="eu")]
    mixed = [
        *nodes(2),
        row("nodes", node="n3", cluster="lion", island="lion-a", sku="H100"),
        row("nodes", node="n4", cluster="lion", island="lion-a", sku="GB200", gpus="4"),
    ]
    small = Small(tmp_path, fault(2, "00:00", 4, "00:00", node="n4"), clusters=clusters, nodes=mixed)
    want = {
        LevelsBy.CLUSTER: {"lion": (2, 0.9, 192), "tiger": (2, 1, 0)},
        LevelsBy.AREA: {"eu": (2, 0.9, 192), "us": (2, 1, 0)},
        LevelsBy.SKU: {"GB200": (1, 0.8, 192), "H100": (1, 1, 0), "H200": (2, 1, 0)},
        LevelsBy.NODE: {"n4": (1, 0.8, 192), "n1": (1, 1, 0), "n2": (1, 1, 0), "n3": (1, 1, 0)},
        LevelsBy.FLEET: {"fleet": (4, 0.95, 192)},
    }
    for by, groups in want.items():
        found = small.levels(by=by).groups
        assert {g.name: (g.nodes, g.in_service_share, g.gpu_hours_lost_unplanned) for g in found} == groups
        assert [g.name for g in found] == list(groups), "the worst comes first"


def test_time_to_recover_is_from_below_the_goal_until_back_at_it(tmp_path: Path) -> None:
    # Of 20 nodes 19 are the goal. Two out: below from 10:00, when the second leaves, until 13:00, when the first is
    # back. Later three for 20 hours; and at the end two that are open for 5 hours.
    history = [
        *fault(2, "08:00", 2, "13:00", node="n1"),
        *fault(2, "10:00", 3, "10:00", node="n2"),
        *(each for n in (3, 4, 5) for each in fault(5, "00:00", 5, "20:00", node=f"n{n}")),
        told(10, "09:00", "repair", "fan", "n6"),
        told(10, "19:00", "repair", "fan", "n7"),
    ]
    recovery = Small(tmp_path, history, nodes=nodes(20)).levels().total.recovery
    assert recovery is not None
    assert (recovery.episodes, recovery.mean_hours, recovery.worst_hours) == (2, 11.5, 20)
    assert (recovery.open_hours, recovery.below_goal_hours) == (5, 28)


def test_reasons_are_ranked_by_what_was_lost_to_them(tmp_path: Path) -> None:
    history = [
        *fault(2, "00:00", 2, "10:00", node="n1", reason="XID 79: GPU 3 fell off the bus"),
        *fault(4, "00:00", 4, "05:00", node="n1", reason="xid 79"),
        *fault(3, "00:00", 3, "20:00", node="n2", reason="fan"),
        told(5, "00:00", "maintenance", "planned: driver", "n3"),
        told(5, "04:00", "validating", "", "n3"),
        told(5, "05:00", "repair", "fan", "n3"),
        told(5, "08:00", "in_service", "", "n3"),
    ]
    reasons = Small(tmp_path, history, nodes=nodes(3)).levels().reasons
    found = [(r.reason, r.is_planned, r.nodes, r.outages, r.gpu_hours) for r in reasons]
    assert found == [
        ("fan", False, 2, 2, 23 * 8),
        ("xid 79", False, 1, 2, 15 * 8),
        ("planned: driver", True, 1, 1, 5 * 8),
    ]
    assert sum(r.lost_share for r in reasons) == pytest.approx(1, abs=1e-5)


REASONS = {
    "xid 79": "xid 79",
    " XID  79: GPU 3": "xid 79",
    "planned: nic-firmware": "planned: nic-firmware",
    "Planned:driver: wave 2": "planned: driver",
    "provider: host maintenance": "provider: host maintenance",
    "pci 0000:1b:00.0 lost": "pci 0000:1b:00.0 lost",
    "": "",
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_without_its_details(reason: str) -> None:
    assert normal_reason(reason) == REASONS[reason]


def test_offenders_are_nodes_with_faults_and_lemons_are_named(tmp_path: Path) -> None:
    history = [each for day in (2, 4, 6, 8) for each in fault(day, "00:00", day, "01:00", node="n1")]
    history += fault(1, "00:00", 9, "00:00", node="n2", reason="fan")
    history += [told(3, "00:00", "maintenance", "planned: driver", "n3"), told(9, "00:00", "in_service", "", "n3")]
    offenders = {each.node: each for each in Small(tmp_path, history, nodes=nodes(4)).levels().offenders}
    assert offenders.keys() == {"n1", "n2"}, "planned work is not a node's fault"
    often, most = offenders["n1"], offenders["n2"]
    assert (often.interruptions, often.gpu_hours, often.is_lemon, often.reason) == (4, 32, True, "xid 79")
    assert (most.interruptions, most.gpu_hours, most.is_lemon, most.reason) == (1, 8 * 192, False, "fan")


def test_the_policy_says_what_a_lemon_is(tmp_path: Path) -> None:
    history = [each for day in (2, 8) for each in fault(day, "00:00", day, "01:00")]
    small = Small(tmp_path, history)

    def is_lemon(exits: int, days: float) -> bool:
        (offender,) = small.levels(lemon_exits=exits, lemon_days=days).offenders
        return offender.is_lemon

    assert is_lemon(2, 9.5), "the period ends on January 11: both are in 9.5 days"
    assert not is_lemon(2, 8.5)
    assert is_lemon(1, 8.5)
    assert not is_lemon(3, 30)


def test_four_exits_long_ago_make_no_lemon(tmp_path: Path) -> None:
    history = [
        each
        for day in (2, 4, 6, 8)
        for each in (
            told(day, "00:00", "repair", "fan", month="2025-11"),
            told(day, "01:00", "in_service", month="2025-11"),
        )
    ]
    offenders = Small(tmp_path, history).levels(begin="2025-11-01").offenders
    assert [(each.interruptions, each.is_lemon) for each in offenders] == [(4, False)]


def test_the_trend_has_the_period_before_and_the_days(tmp_path: Path) -> None:
    history = [
        *(
            told(20, clock, service, "fan", month="2025-12")
            for clock, service in (("00:00", "repair"), ("00:30", "in_service"))
        ),
        told(23, "00:00", "repair", "fan", month="2025-12"),
        told(24, "00:00", "in_service", month="2025-12"),
        *fault(10, "12:00", 10, "18:00"),
    ]
    levels = Small(tmp_path, history).levels()
    assert levels.before is not None
    assert (levels.before.in_service_share, levels.before.mttr_hours) == (0.9, 24)
    assert [point.interruptions_unplanned for point in levels.points] == [0] * 9 + [1]
    assert levels.points[-1].in_service_share == 0.75
    assert levels.points[-1].end == datetime(2026, 1, 11, tzinfo=UTC)
    assert Small(tmp_path / "more", history).levels(begin="2025-12-30").before is None, "history begins on December 20"


def test_a_long_period_is_shown_by_week(tmp_path: Path) -> None:
    points = Small(tmp_path, fault(3, "00:00", 4, "00:00")).levels(begin="2025-12-26").points
    assert [point.begin.strftime("%m-%d") for point in points] == ["12-26", "12-28", "01-04"]
    assert [point.interruptions_unplanned for point in points] == [0, 1, 0]


def test_nodes_of_clusters_that_are_not_in_production_do_not_count(tmp_path: Path) -> None:
    clusters = [row("clusters"), row("clusters", cluster="cub", phase="provisioned")]
    both = [*nodes(1), row("nodes", node="c1", cluster="cub", island="cub-a", service="joining")]
    small = Small(tmp_path, [], clusters=clusters, nodes=both)
    assert small.levels().total.nodes == 1
    scope = choose_nodes(small.importer.of(Fleet), parse_filter("", now=NOW), now=NOW)
    assert dict(scope.left_out) == {"cub": 1}


def test_a_node_that_says_since_when_it_is_back_is_back(tmp_path: Path) -> None:
    lagging = [told(3, "00:00", "repair", "xid 79")]
    back = Small(tmp_path, lagging, nodes=nodes(1, since="2026-01-04T00:00:00Z")).levels()
    assert (back.total.mttr_hours, back.total.open_unplanned, list(back.contradicted)) == (24, 0, [])
    unsaid = Small(tmp_path / "unsaid", lagging).levels()
    assert (unsaid.total.open_unplanned, list(unsaid.contradicted)) == (1, ["n1"])


def test_an_outage_tells_its_story(tmp_path: Path) -> None:
    history = [
        told(31, "12:00", "maintenance", "planned: driver", month="2025-12"),
        told(1, "06:00", "repair", "xid 79"),
        told(1, "10:00", "in_service"),
    ]
    (outage,) = Small(tmp_path, history).outages()
    assert (outage.length_hours, outage.hours, outage.hours_planned, outage.hours_unplanned) == (22, 10, 6, 4)
    assert (outage.gpu_hours, outage.is_planned, outage.ended_by) == (80, True, "in_service")
    assert (outage.began_in_period, outage.ended_in_period) == (False, True)
    assert outage.reasons == ["planned: driver", "xid 79"]
    assert [(part.service, part.is_planned) for part in outage.stretches] == [("maintenance", True), ("repair", False)]


def test_validation_takes_the_reason_of_what_it_ends(tmp_path: Path) -> None:
    history = [
        told(3, "00:00", "maintenance", "planned: fw"),
        told(3, "04:00", "validating", "every hold has ended"),
        told(3, "05:00", "in_service"),
    ]
    small = Small(tmp_path, history)
    (outage,) = small.outages()
    assert outage.reasons == ["planned: fw"]
    assert [(loss.reason, loss.is_planned, loss.node_hours) for loss in small.levels().reasons] == [
        ("planned: fw", True, 5)
    ]


def test_years_of_a_large_fleet_are_added_up_exactly(tmp_path: Path) -> None:
    # 2,000 nodes of 1,000 GPUs over 1,000 years are more GPU-microseconds than fit into 64 bits.
    levels = Small(tmp_path, [], nodes=nodes(2000, gpus="1000")).levels(begin="1026-01-01", end="2026-01-01").total
    days = (datetime(2026, 1, 1, tzinfo=UTC) - datetime(1026, 1, 1, tzinfo=UTC)).days
    assert levels.gpu_hours == 2000 * 1000 * days * 24
    assert levels.in_service_share == 1
