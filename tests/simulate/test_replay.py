"""Small replays whose numbers were worked out by hand, and what must never happen in large ones."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.sheet import MemorySheet
from plimsoll.quota.model import Tier
from plimsoll.simulate.generate import Wanted, make_trace
from plimsoll.simulate.model import HOUR_US, MINUTE_US, SECOND_US, Settings, Trace
from plimsoll.simulate.outcome import first_moment, replay
from plimsoll.simulate.replay import Replay
from plimsoll.simulate.scene import set_scene
from plimsoll.simulate.trace import read_trace
from plimsoll.state.state import State
from plimsoll.workloads.account import uptime_of
from plimsoll.workloads.fold_tables import Workloads, floor_of
from tests.support.yard import START, Yard

HEADER = "time,duration,gpus,team,tier,kind,min_gpus"
TWO_TEAMS = {"tiger": {"cod": 8, "eel": 8}}


def trace_of(*rows: str) -> Trace:
    return read_trace(MemorySheet("trace.csv", [line.split(",") for line in (HEADER, *rows)]))


def replayed(state: State, trace: Trace, **settings: Any) -> Replay:
    chosen = Settings(**settings)
    cast = set_scene(state, trace, chosen, policy=None, now=first_moment(trace))
    going = Replay(state, cast, chosen)
    going.run()
    return going


def small_yard(guaranteed: Mapping[str, Mapping[str, int]] | None = None) -> State:
    """One island of 2 nodes: 16 GPUs."""
    return Yard({"tiger": {"a": 2}}, guaranteed).state


def test_who_finds_no_room_waits_until_there_is_some() -> None:
    trace = trace_of("0,3600,16,cod,mid,gang,", "0,3600,16,cod,mid,gang,", "1800,600,16,cod,mid,gang,")
    going = replayed(small_yard({"tiger": {"cod": 16}}), trace)
    assert going.waits == {(16, Tier.MID): [0.0, 3600.0, 5400.0]}
    assert (going.counts.submits, going.counts.starts, going.counts.ends) == (3, 3, 3)
    assert going.now - going.begin == 7800 * SECOND_US
    assert going.meter.block_least == 0
    assert going.meter.held_us == 16 * 1800 * SECOND_US, "counted until the last submit"


def test_a_guarantee_calls_flex_back_after_the_grace_time_and_the_victim_needs_the_rest() -> None:
    # cod runs 16 GPUs, 8 of them beyond its guarantee: as a gang all of it is flex. eel comes after an hour with what
    # it is guaranteed, gets it 15 minutes later, and leaves after another hour. By then cod had run 75 minutes, 60 of
    # which are in its checkpoint: it needs 60 more, and 10 for its restart.
    trace = trace_of("0,7200,16,cod,mid,gang,", "3600,3600,8,eel,mid,gang,")
    going = replayed(small_yard(TWO_TEAMS), trace, checkpoint_minutes=30, restart_minutes=10)
    assert going.waits == {(16, Tier.MID): [0.0], (8, Tier.MID): [900.0]}
    assert (going.counts.preemptions, going.counts.bookings, going.counts.starts) == (1, 1, 3)
    assert going.now - going.begin == (60 + 15 + 60 + 70) * MINUTE_US
    gangs = going.gangs
    assert gangs.run_us == (75 + 60 + 70) * MINUTE_US
    assert gangs.down_us == 60 * MINUTE_US
    assert (gangs.lost_us, gangs.restart_us) == (15 * MINUTE_US, 10 * MINUTE_US)
    assert gangs.uptime_share == 205 / 265
    assert gangs.goodput_share == 180 / 265
    assert gangs.lost_gpu_us == 25 * 16 * MINUTE_US


def test_without_checkpoints_all_is_run_again() -> None:
    trace = trace_of("0,7200,16,cod,mid,gang,", "3600,3600,8,eel,mid,gang,")
    going = replayed(small_yard(TWO_TEAMS), trace, checkpoint_minutes=0, restart_minutes=0, grace=timedelta(0))
    assert going.now - going.begin == (60 + 60 + 120) * MINUTE_US
    assert going.gangs.lost_us == 60 * MINUTE_US


def test_elastic_work_runs_slower_with_less_and_grows_when_there_is_room() -> None:
    # It gets 8 of its 16 GPUs for an hour: half done. With all 16 the other half takes 30 minutes.
    trace = trace_of("0,3600,8,cod,mid,gang,", "0,3600,16,eel,mid,elastic,8")
    going = replayed(small_yard(TWO_TEAMS), trace)
    assert going.counts.grows == 1
    assert going.now - going.begin == 90 * MINUTE_US


def test_a_job_larger_than_any_island_is_left_out_and_told() -> None:
    outcome = replay(small_yard(), trace_of("0,600,8,cod,mid,gang,", "0,600,24,cod,mid,gang,"), Settings())
    assert outcome.document["refused"] == {"jobs": 1, "gpus_most": 24, "gpu_hours": 4.0}
    assert outcome.document["events"]["submits"] == 1


def test_a_fleet_without_quotas_is_shared_out_by_gpu_time() -> None:
    state = Yard({"tiger": {"a": 4}}).state
    trace = trace_of("0,3600,24,cod,mid,gang,", "0,3600,8,eel,mid,gang,")
    document = replay(state, trace, Settings()).document
    assert document["fleet"]["guaranteed"] == 32
    assert any("2 teams made of the trace's groups" in each for each in document["assumed"])
    assert document["waits"]["all"]["most"] == 0.0, "3 nodes of 4 are cod's, and 1 is eel's"


def test_a_team_takes_the_place_of_its_own_later_work_and_no_promise_is_broken() -> None:
    state = Yard({"tiger": {"a": 2, "b": 1}}, {"tiger": {"cod": 24}}).state
    trace = trace_of("0,36000,8,cod,mid,gang,", "0,36000,16,cod,mid,gang,", "60,600,8,cod,critical,gang,")
    document = replay(state, trace, Settings(grace=timedelta(minutes=15))).document
    assert document["broken_promises"]["team_hours"] == 0.0
    assert document["waits"]["by_tier"][0] == {
        "tier": "critical", "jobs": 1, "mean": 900.0, "median": 900.0, "p99": 900.0, "most": 900.0,
    }  # fmt: skip


def test_a_promise_is_broken_while_too_few_nodes_work_for_it() -> None:
    # All 16 GPUs are guaranteed, so that every hour in which a node is out is a broken one for both teams.
    state = small_yard(TWO_TEAMS)
    trace = trace_of("0,360000,8,cod,mid,gang,", "0,360000,8,eel,mid,gang,")
    going = replayed(state, trace, failures=5_000.0, repair_hours=2.0, checkpoint_minutes=10)
    assert going.counts.node_failures > 0
    hours = going.promises.team_hours("shortfall")
    assert hours["cod"] == hours["eel"] > 0
    assert (going.now - going.begin) / HOUR_US > 100, "what failed was run again"


# What must never happen.


def busy_trace(seed: int, jobs: int = 400) -> Trace:
    wanted = Wanted(jobs, 2.0, seed=seed, gangs=(32, 48, 64), gang_share=0.08, busy_gpus=170)
    rows = [[str(cell) for cell in row] for row in make_trace(wanted, begin=START)]
    return read_trace(MemorySheet("made up", rows))


def busy_yard() -> State:
    """24 nodes in three islands of two clusters, without quotas."""
    return Yard({"tiger": {"a": 8, "b": 8}, "lion": {"a": 8}}).state


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_never_a_job_lost_nor_a_gpu_kept(seed: int) -> None:
    state = busy_yard()
    going = replayed(state, busy_trace(seed), seed=seed, failures=200.0, repair_hours=3.0)
    counts, gangs = going.counts, going.gangs
    assert min(counts.node_failures, counts.preemptions) > 0, "a calm replay proves nothing"
    assert counts.submits == counts.ends + going.unfinished
    assert going.unfinished == 0
    assert sum(map(len, going.waits.values())) == counts.submits
    assert going.meter.held == 0
    assert not state.of(Workloads).workloads
    assert not state.of(Workloads).bookings
    free, islands = floor_of(state).free, state.of(Fleet).islands
    assert dict(free.items()) == {key: count.gpus_in_service for key, count in islands.items()}
    asked = sum(each.run_us for each in going._cast.planned if each.spec.parts[0].is_gang)
    assert gangs.run_us - gangs.lost_us - gangs.restart_us == asked, "useful time is what the gangs had to run"


@pytest.mark.parametrize("seed", [1, 2])
def test_the_measures_agree_with_the_accounts(seed: int) -> None:
    state = busy_yard()
    going = replayed(state, busy_trace(seed), seed=seed, failures=200.0, repair_hours=3.0)
    past = state.of(Workloads).past.values()
    told = uptime_of(
        [(part, each.accounts[part.name]) for each in past for part in each.spec.parts if part.name in each.accounts],
        now=going.now,
    )
    assert told.running_hours == pytest.approx(going.gangs.run_us / HOUR_US)
    assert told.down_hours == pytest.approx(going.gangs.down_us / HOUR_US)
    assert told.lost_hours == pytest.approx(going.gangs.lost_us / HOUR_US)
    assert told.gpu_hours == pytest.approx(going.gangs.gpu_us / HOUR_US)


class Crowd(msgspec.Struct, frozen=True):
    """A small fleet (nodes by cluster and island) with more work than it can run at once. Its trace is made up."""

    islands: dict[str, dict[str, int]]
    jobs: int
    days: float
    seed: int
    gang_share: float
    busy_gpus: int
    quota: dict[str, dict[str, int]] | None = None
    grace: timedelta = timedelta(minutes=15)


CROWDS = {
    "one island, gangs beyond their guarantee": Crowd(
        {"tiger": {"a": 6}}, 244, 1.0, 1, 0.05, 38, {"tiger": {"cod": 8, "eel": 8, "ide": 16}}
    ),
    "one island, a third of the jobs are gangs": Crowd({"tiger": {"a": 9}}, 350, 2.0, 90, 0.3, 57),
    "several gangs have an island kept for them": Crowd(
        {"c0": {"a": 4}, "c1": {"a": 8}}, 265, 1.0, 124, 0.3, 115,
        {"c0": {"cod": 8, "ide": 8}, "c1": {"eel": 8, "ide": 8}}, timedelta(0),
    ),
    "large elastic work among gangs": Crowd({"c0": {"a": 8, "b": 5}, "c1": {"a": 2}}, 370, 1.0, 152, 0.05, 96),
}  # fmt: skip


@pytest.mark.parametrize("case", CROWDS.values(), ids=CROWDS.keys())
def test_never_does_work_wait_for_ever_beside_room_for_it(case: Crowd) -> None:
    wanted = Wanted(case.jobs, case.days, case.seed, (16, 32, 48, 64), case.gang_share, case.busy_gpus)
    rows = [[str(cell) for cell in row] for row in make_trace(wanted, begin=START)]
    trace = read_trace(MemorySheet("made up", rows))
    going = replayed(Yard(case.islands, case.quota).state, trace, seed=case.seed, grace=case.grace)
    assert going.unfinished == 0


def test_the_same_seed_gives_the_same_document_and_another_one_another() -> None:
    settings = Settings(seed=5, failures=100.0, repair_hours=5.0)
    first, again = (replay(busy_yard(), busy_trace(1), settings).document for _ in range(2))
    assert first == again
    other = replay(busy_yard(), busy_trace(1), Settings(seed=6, failures=100.0, repair_hours=5.0)).document
    assert other["events"] != first["events"]


def test_work_that_can_never_finish_ends_the_replay_and_is_told() -> None:
    # Without checkpoints, and a node failing every few hours, twelve hours on 16 GPUs are never done.
    trace = trace_of("0,43200,16,cod,mid,gang,")
    going = replayed(
        small_yard({"tiger": {"cod": 16}}), trace, failures=20_000.0, repair_hours=1.0, checkpoint_minutes=0
    )
    assert going.unfinished == 1
    assert going.now - going.begin <= 100 * 24 * HOUR_US
    assert going.gangs.run_us + going.gangs.down_us == going.now - going.begin, "it ran or stood still all the time"
    assert going.gangs.lost_gpu_us <= 16 * going.gangs.run_us, "no more is lost than was run"
