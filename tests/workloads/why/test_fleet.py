"""GPU-hours promised but unusable: each cause, each fix, each sum. Numbers are worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

import pytest

from plimsoll.commands.why_past import answer_fleet
from plimsoll.errors import NotFound, UsageError
from plimsoll.fleet.changes import ClusterRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase, PoolKey, Service
from plimsoll.health.levels.outages import ALWAYS, FOREVER
from plimsoll.health.model import to_microseconds
from plimsoll.quota.changes import PoolAligned
from plimsoll.quota.model import Kind, Tier
from plimsoll.workloads.changes import WorkloadObserved
from plimsoll.workloads.model import Block, Part, RunsAs, Workload
from plimsoll.workloads.why.fleet import FixBy, FleetWhy, LostTo, bases_of, explain_fleet
from plimsoll.workloads.why.past_text import fleet_text
from plimsoll.workloads.why.unusable import Basis
from tests.support.yard import START, Yard, gang, spec

FOUR = {"tiger": {"a": 2, "b": 2}}
"""Four nodes, 32 GPUs."""
NIGHT = START + timedelta(hours=12)
"""All periods are the 12 hours from 9:00 to 21:00, unless said otherwise."""


def at(yard: Yard, hour: float) -> None:
    yard.now = START + timedelta(hours=hour - 9)


def out(yard: Yard, begin: float, end: float, *nodes: str, reason: str = "xid 79") -> None:
    """Nodes are out between two hours of the day."""
    service = Service.MAINTENANCE if reason.startswith("planned") else Service.QUARANTINED
    at(yard, begin)
    yard.set_service([f"tiger-{node}" for node in nodes], service, reason)
    at(yard, end)
    yard.set_service([f"tiger-{node}" for node in nodes], Service.IN_SERVICE)


def why(yard: Yard, *, since: datetime = START, until: datetime = NIGHT) -> FleetWhy:
    return explain_fleet(yard.state, since=since, until=until, now=max(until, yard.now))


def promise(gpus: int) -> Yard:
    return Yard(FOUR, {"tiger": {"vision": gpus}})


def nothing_is_wrong() -> Yard:
    return promise(32)


def one_fault() -> Yard:
    yard = promise(32)
    out(yard, 10, 14, "a-1")
    return yard


def a_fault_within_the_slack() -> Yard:
    yard = promise(24)
    out(yard, 10, 14, "a-1")
    return yard


def planned_work_on_top() -> Yard:
    yard = promise(24)
    out(yard, 10, 14, "a-1")
    at(yard, 10)
    out(yard, 12, 14, "b-1", reason="planned: firmware")
    return yard


def two_faults_and_planned_work() -> Yard:
    yard = promise(24)
    at(yard, 10)
    yard.set_service(["tiger-a-1", "tiger-a-2"], Service.REPAIR, "ecc")
    yard.set_service(["tiger-b-1"], Service.MAINTENANCE, "planned: firmware")
    at(yard, 14)
    yard.set_service(["tiger-a-1", "tiger-a-2", "tiger-b-1"], Service.IN_SERVICE)
    return yard


def more_assigned_than_installed() -> Yard:
    return Yard(FOUR, assigned={"tiger": {"vision": 40}})


def over_promised_and_a_fault() -> Yard:
    yard = more_assigned_than_installed()
    out(yard, 10, 14, "a-1")
    return yard


def a_node_left_for_good() -> Yard:
    yard = promise(32)
    at(yard, 15)
    yard.set_service(["tiger-a-1"], Service.RETIRED, "sold")
    return yard


def aligned_in_between() -> Yard:
    yard = more_assigned_than_installed()
    at(yard, 15)
    yard.do(PoolAligned("tiger", "H200", 24, "fixed:0.15", {"vision": 24}))
    return yard


def not_in_production() -> Yard:
    yard = promise(32)
    cluster = yard.state.of(Fleet).clusters["tiger"]
    yard.do(
        ClusterRecorded(
            type(cluster)(
                cluster.id, cluster.region, cluster.area, "c", cluster.provider, cluster.purpose, Phase.PLANNED
            ),
            {},
        )
    )
    return yard


def observe(yard: Yard, name: str, island: str, gpus: int, idle: int, *, tier: Tier = Tier.MID) -> None:
    part = Part(Kind.ELASTIC, tier, 1, "H200", (Block(f"tiger-{island}", gpus, idle),))
    yard.do(WorkloadObserved(Workload(name, "vision", "tiger", (part,))))


def some_do_nothing() -> Yard:
    yard = promise(32)
    observe(yard, "batch", "a", 16, 6)
    return yard


def idle_is_flex_first() -> Yard:
    yard = promise(24)
    observe(yard, "batch", "a", 16, 12)
    observe(yard, "more", "b", 16, 0)
    return yard


def idle_on_what_is_left() -> Yard:
    yard = promise(32)
    observe(yard, "batch", "a", 16, 16)
    out(yard, 11, 20, "a-1", "a-2", "b-1")
    return yard


def a_gang_waits_for_an_island() -> Yard:
    yard = promise(32)
    observe(yard, "one", "a", 8, 0, tier=Tier.CRITICAL)  # else it would give way to its own team's gang
    observe(yard, "two", "b", 8, 0, tier=Tier.CRITICAL)
    at(yard, 12)
    yard.submit(spec("big", "vision", gang(16)))
    assert yard.cause("big") == "island_fragmented"
    return yard


def flex_waits_for_an_island() -> Yard:
    yard = promise(16)
    observe(yard, "one", "a", 8, 0, tier=Tier.CRITICAL)  # else it would give way to its own team's gang
    observe(yard, "two", "b", 8, 0, tier=Tier.CRITICAL)
    at(yard, 12)
    yard.submit(spec("big", "vision", gang(16), runs_as=RunsAs.FLEX))
    assert yard.cause("big") == "island_fragmented"
    return yard


class Want(NamedTuple):
    promised: float
    over_promise: float = 0
    faults: float = 0
    planned_work: float = 0
    fragmentation: float = 0
    idle: float = 0


CASES: dict[str, tuple[Callable[[], Yard], Want]] = {
    "all was there and used": (nothing_is_wrong, Want(384)),
    "a node fails for 4 hours": (one_fault, Want(384, faults=32)),
    "a fault that the slack covers breaks no promise": (a_fault_within_the_slack, Want(288)),
    "planned work takes what a fault left over": (planned_work_on_top, Want(288, planned_work=16)),
    "faults alone come first, planned work is the rest": (
        two_faults_and_planned_work,
        Want(288, faults=32, planned_work=32),
    ),
    "more is assigned than installed": (more_assigned_than_installed, Want(480, over_promise=96)),
    "over-promise and a fault": (over_promised_and_a_fault, Want(480, over_promise=96, faults=32)),
    "a node leaves for good, and the promise stays": (a_node_left_for_good, Want(384, over_promise=48)),
    "an alignment ends the over-promise": (aligned_in_between, Want(384, over_promise=48)),
    "a cluster that is not in production backs nothing": (not_in_production, Want(384, over_promise=384)),
    "GPUs that do nothing": (some_do_nothing, Want(384, idle=72)),
    "what is idle is charged to flex first": (idle_is_flex_first, Want(288, idle=48)),
    "nothing is idle and missing at once": (idle_on_what_is_left, Want(384, faults=216, idle=120)),
    "a gang inside its guarantee waits for an island": (a_gang_waits_for_an_island, Want(384, fragmentation=144)),
    "flex that waits was promised nothing": (flex_waits_for_an_island, Want(192)),
}


@pytest.mark.parametrize("case", CASES)
def test_gpu_hours_by_cause(case: str) -> None:
    make, want = CASES[case]
    found = why(make()).fleet
    assert {cause.value: hours for cause, hours in found.by_cause.items()} == {
        name: getattr(want, name) for name in Want._fields[1:]
    }
    assert found.promised == want.promised
    assert found.unusable == sum(want[1:])
    assert found.usable_share == pytest.approx(1 - sum(want[1:]) / want.promised, abs=1e-6)


def given_back(yard: Yard, **period: datetime) -> dict[FixBy, tuple[float, int]]:
    return {fix.fix: (fix.gpu_hours, fix.gpus) for fix in why(yard, **period).fixes}


def test_alignment_takes_back_the_promises_that_nothing_stands_behind() -> None:
    """40 are promised and 32 installed: 8 for 12 hours. What the fault cost is not the alignment's to spare."""
    assert given_back(over_promised_and_a_fault()) == {FixBy.ALIGN_QUOTAS: (96.0, 8)}


def test_alignment_does_not_take_back_what_is_below_the_line() -> None:
    """40 are promised and 32 installed; for 4 of 12 hours only 16 are healthy. The alignment spares 8 at any time."""
    yard = more_assigned_than_installed()
    out(yard, 10, 14, "a-1", "a-2")
    assert why(yard).fleet.unusable == 24 * 4 + 8 * 8
    assert given_back(yard)[FixBy.ALIGN_QUOTAS] == (96.0, 8)


def test_repair_in_time_gives_back_what_lasts_longer_than_two_days() -> None:
    yard = promise(32)
    out(yard, 10, 10 + 50, "a-1")
    found = given_back(yard, until=START + timedelta(days=3))
    # 8 GPUs for 2 of 50 hours; nothing was promised beyond the line, so an alignment spares nothing.
    assert found == {FixBy.REPAIR_IN_TIME: (16.0, 0)}


def test_repair_gives_back_no_more_than_faults_cost() -> None:
    """32 were promised under a line of 24: a node out for 50 hours costs the over-promise 400, and faults nothing."""
    yard = promise(32)
    out(yard, 10, 10 + 50, "a-1")
    until = START + timedelta(days=3)
    basis = Basis([(ALWAYS, 32)], [(ALWAYS, 24)], 24, [(ALWAYS, 0)])
    found = explain_fleet(yard.state, since=START, until=until, now=until, bases={PoolKey("tiger", "H200"): basis})
    assert (found.fleet.by_cause[LostTo.OVER_PROMISE], found.fleet.by_cause[LostTo.FAULTS]) == (400.0, 0.0)
    assert {fix.fix: fix.gpu_hours for fix in found.fixes} == {FixBy.ALIGN_QUOTAS: 400.0}


def test_a_fault_after_planned_work_has_its_own_two_days() -> None:
    yard = promise(32)
    at(yard, 10)
    yard.set_service(["tiger-a-1"], Service.MAINTENANCE, "planned: firmware")
    at(yard, 10 + 9)
    yard.set_service(["tiger-a-1"], Service.REPAIR, "did not come back")
    at(yard, 10 + 9 + 49)
    yard.set_service(["tiger-a-1"], Service.IN_SERVICE)
    found = given_back(yard, until=START + timedelta(days=3))
    assert found[FixBy.REPAIR_IN_TIME] == (8.0, 0)
    assert found[FixBy.SHORTEN_PLANNED_WORK] == (8.0, 0), "9 hours, of which 8 are what such work takes"


def test_defragmentation_and_idle_give_back_their_own() -> None:
    assert given_back(a_gang_waits_for_an_island())[FixBy.DEFRAGMENT] == (144.0, 12)
    assert given_back(some_do_nothing())[FixBy.RECLAIM_IDLE] == (72.0, 6)


def test_clusters_and_pools_add_up_to_the_fleet() -> None:
    yard = Yard({"tiger": {"a": 2}, "lion": {"a": 3}}, assigned={"tiger": {"vision": 24}, "lion": {"vision": 24}})
    yard.now += timedelta(minutes=7)
    yard.set_service(["lion-a-1"], Service.QUARANTINED, "xid 79")
    found = why(yard)
    assert [(each.name, each.unusable) for each in found.clusters] == [("tiger", 96.0), ("lion", 95.07)]
    assert [each.name for each in found.pools] == ["tiger/H200", "lion/H200"]
    assert found.fleet.unusable == 191.07
    assert found.fleet.by_cause[LostTo.FAULTS] == 95.07


def test_one_cluster_can_be_asked_for() -> None:
    yard = Yard({"tiger": {"a": 2}, "lion": {"a": 3}}, assigned={"tiger": {"vision": 24}, "lion": {"vision": 24}})
    found = explain_fleet(yard.state, since=START, until=NIGHT, now=NIGHT, clusters=["tiger"])
    assert [each.name for each in found.clusters] == ["tiger"]
    assert found.fleet.promised == 288.0


def test_what_was_promised_under_which_line_is_known_from_the_first_alignment_on() -> None:
    basis = bases_of(aligned_in_between().state, now=NIGHT)[PoolKey("tiger", "H200")]
    three = to_microseconds(START + timedelta(hours=6))
    assert basis.promised == [(ALWAYS, 40), (three, 24)]
    assert basis.line_in_force == [(ALWAYS, FOREVER), (three, 24)]
    assert basis.line_now == 24


ASSUMED: dict[str, tuple[Callable[[], Yard], list[str]]] = {
    "nothing ever failed": (nothing_is_wrong, ["history_short"]),
    "nothing is aligned": (more_assigned_than_installed, ["history_short", "assigned_as_now"]),
    "some GPUs are idle": (some_do_nothing, ["history_short", "idle_as_now"]),
    "work waits": (a_gang_waits_for_an_island, ["history_short"]),
}


@pytest.mark.parametrize("case", ASSUMED)
def test_what_is_not_remembered_is_said(case: str) -> None:
    make, want = ASSUMED[case]
    assert [each.code for each in why(make()).assumptions] == want


BAD = {
    "it ends in the future": (START, NIGHT + timedelta(hours=1)),
    "it has no length": (NIGHT, NIGHT),
    "it ends before it begins": (NIGHT, START),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_period_is_refused(case: str) -> None:
    since, until = BAD[case]
    with pytest.raises(UsageError) as error:
        explain_fleet(promise(32).state, since=since, until=until, now=NIGHT)
    assert error.value.code == "bad_period"


def test_a_cluster_that_does_not_exist_is_refused() -> None:
    with pytest.raises(NotFound) as error:
        explain_fleet(promise(32).state, since=START, until=NIGHT, now=NIGHT, clusters=["tigre"])
    assert error.value.code == "no_such_cluster"


def test_an_empty_fleet_was_promised_nothing() -> None:
    found = why(Yard({}))
    assert (found.fleet.promised, found.fleet.usable_share, found.fixes) == (0.0, None, [])
    assert fleet_text(found) == ["From 2026-03-02 09:00 UTC to 2026-03-02 21:00 UTC nothing was promised to anybody."]


def test_the_sentences_say_what_was_lost_and_what_helps() -> None:
    says = fleet_text(why(over_promised_and_a_fault()))
    assert says[0].endswith("128 of 480 promised GPU-hours were not usable (26.7%).")
    assert says[1].startswith("  over_promise: 96 GPU-hours, 8 GPUs on average:")
    assert says[2].startswith("  faults: 32 GPU-hours, 2 GPUs on average:")
    assert says[3].endswith("takes back promises of 96 GPU-hours, 8 GPUs on average (rpm: plimsoll quota plan).")


def test_the_table_has_a_row_for_each_cluster() -> None:
    yard = one_fault()
    answer = answer_fleet(yard.state, START, NIGHT, NIGHT)
    assert answer.tables[0].rows == [("tiger", 384.0, 32.0, 0.0, 32.0, 0.0, 0.0, 0.0, 0.916667)]
    assert answer.document["fleet"]["by_cause"]["faults"] == 32.0
    assert answer.document["from"] == "2026-03-02T09:00:00Z"
