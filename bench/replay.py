"""Replay of a trace through the real decisions, against a plain FIFO first-fit loop on the same jobs and cluster.

The loop knows islands and nothing else: no quota, no priorities, no preemption, no reasons; who comes first blocks who
comes after. A job event is a submit, an end, or a change of what a job holds. Philly's trace is not part of this
repository (see `failures.py` for where it is looked for); without it a made-up one is used.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from heapq import heappop, heappush

import msgspec

from bench.failures import data_folder
from bench.figures import Figure
from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded
from plimsoll.fleet.folder import CsvSheet
from plimsoll.fleet.model import Area, Cluster, Node, Phase, Purpose, Service
from plimsoll.fleet.sheet import MemorySheet
from plimsoll.ledger.model import Draft
from plimsoll.memory import no_collection
from plimsoll.rooms import KINDS
from plimsoll.simulate.generate import Wanted, make_trace
from plimsoll.simulate.measures import Waits, waits_of
from plimsoll.simulate.model import Job, Settings, Trace
from plimsoll.simulate.outcome import first_moment
from plimsoll.simulate.replay import Replay
from plimsoll.simulate.scene import set_scene
from plimsoll.simulate.trace import read_trace
from plimsoll.state.state import State

GPUS = 8
ISLAND_NODES = 16
ISLANDS = 8
"""Of the cluster for the trace: 1,024 GPUs, which bursts of Philly fill to the last one."""
EVENTS_PER_SECOND_LEAST = 20_000
GROWTH_MOST = 2.0
WAIT_RATIO_MOST, BLOCK_RATIO_LEAST = 1.0, 0.99
SMALL_CLUSTERS, LARGE_CLUSTERS, CLUSTER_ISLANDS = 4, 400, 16
"""1,024 and 102,400 nodes, in clusters of 256."""
GROWTH_JOBS = 20_000
GANGS = Wanted(20_000, 14.0, seed=5, gangs=(64, 96, 128), busy_gpus=800)
"""Gangs up to a whole island among small and elastic work, on the same cluster: four fifths of it are in use."""
LOADED_JOBS, LOADED_DAYS, LOADED_SHARE = 20_000, 7.0, 0.75


class Plain(msgspec.Struct, frozen=True):
    """What the plain loop came to."""

    waits: Waits
    block_mean: float
    block_share: float
    """Of the largest block that so many free GPUs could make."""
    events: int
    seconds: float


def measure() -> list[Figure]:
    trace = philly()
    if trace is None:
        trace = made_up(Wanted(40_000, 90.0, seed=3, gangs=(16, 32), busy_gpus=400))
    figures = _against_plain(trace, is_quick=True)
    figures += _against_plain(made_up(GANGS), is_quick=False)
    cut = msgspec.structs.replace(trace, jobs=trace.jobs[:GROWTH_JOBS])
    figures.append(_growth("the same trace", cut, cut, limit=GROWTH_MOST))
    nodes = CLUSTER_ISLANDS * ISLAND_NODES * GPUS
    small, large = (
        made_up(Wanted(LOADED_JOBS, LOADED_DAYS, seed=4, gangs=(64, 96, 128), busy_gpus=round(LOADED_SHARE * gpus)))
        for gpus in (SMALL_CLUSTERS * nodes, LARGE_CLUSTERS * nodes // 10)
    )
    figures.append(_growth("fleets with as much work as they carry", small, large, limit=None))
    return figures


def philly() -> Trace | None:
    data = data_folder()
    path = data / "traces" / "philly.csv" if data is not None else None
    return read_trace(CsvSheet(path)) if path is not None and path.is_file() else None


def made_up(wanted: Wanted) -> Trace:
    rows = [[str(cell) for cell in row] for row in make_trace(wanted, begin=datetime(2026, 1, 5, tzinfo=UTC))]
    return read_trace(MemorySheet("made up", rows))


def build(*, clusters: int, islands: int) -> State:
    """A fleet of equal islands, all of it in service."""
    state = State(KINDS)
    drafts = []
    for number in range(clusters):
        name = f"cluster-{number:03d}"
        drafts.append(Draft(ClusterRecorded(Cluster(name, "r", Area.US, "c", "p", Purpose.RESEARCH, Phase.PRODUCTION))))
        drafts += [
            Draft(NodeRecorded(Node(f"{island}-{place:02d}", name, island, "H200", GPUS, Service.IN_SERVICE)))
            for island in (f"{name}-{each:02d}" for each in range(islands))
            for place in range(ISLAND_NODES)
        ]
    with no_collection():
        state.assume(drafts, recorded_at="2017-01-01T00:00:00.000000Z")
    return state


def run(state: State, trace: Trace) -> tuple[Replay, float]:
    settings = Settings()
    cast = set_scene(state, trace, settings, policy=None, now=first_moment(trace))
    going = Replay(state, cast, settings)
    with no_collection():
        began = time.process_time()
        going.run()
        return going, time.process_time() - began


def plain_loop(jobs: Sequence[Job], *, islands: int) -> Plain:
    """First come, first served, into the first island that has room, on the first nodes that have some."""
    free = [ISLAND_NODES * GPUS] * islands
    nodes = [[GPUS] * ISLAND_NODES for _ in range(islands)]
    ends: list[tuple[int, int, int, list[tuple[int, int]]]] = []
    queue: deque[Job] = deque()
    waits: list[float] = []
    events = place = block_us = possible_us = 0
    now, until = jobs[0].at, jobs[-1].at
    began = time.process_time()
    while place < len(jobs) or ends:
        submits_at = jobs[place].at if place < len(jobs) else None
        at = ends[0][0] if ends and (submits_at is None or ends[0][0] <= submits_at) else submits_at
        assert at is not None
        span = max(0, min(at, until) - now)
        block_us += max(free) * span
        possible_us += min(sum(free), ISLAND_NODES * GPUS) * span
        now = min(max(now, at), until)
        if at == submits_at and not (ends and ends[0][0] <= at):
            queue.append(jobs[place])
            place += 1
        else:
            _, _, island, taken = heappop(ends)
            for node, gpus in taken:
                nodes[island][node] += gpus
                free[island] += gpus
        events += 1
        while queue:
            job = queue[0]
            island = next((each for each in range(islands) if free[each] >= job.gpus), -1)
            if island < 0:
                break
            queue.popleft()
            taken = _first_nodes(nodes[island], job.gpus)
            free[island] -= job.gpus
            waits.append((at - job.at) / 1e6)
            events += 1
            heappush(ends, (at + job.run_us, events, island, taken))
    seconds = time.process_time() - began
    mean = block_us / (until - jobs[0].at)
    return Plain(waits_of(waits), mean, block_us / possible_us, events, seconds)


def _first_nodes(nodes: list[int], gpus: int) -> list[tuple[int, int]]:
    taken = []
    for node, has in enumerate(nodes):
        if has:
            used = min(has, gpus)
            nodes[node] -= used
            taken.append((node, used))
            gpus -= used
            if not gpus:
                break
    return taken


def _against_plain(trace: Trace, *, is_quick: bool) -> list[Figure]:
    plain = plain_loop(trace.jobs, islands=ISLANDS)
    going, seconds = run(build(clusters=1, islands=ISLANDS), trace)
    ours = waits_of([each for mine in going.waits.values() for each in mine])
    speed, plain_speed = going.counts.job_events / seconds, plain.events / plain.seconds
    gpus = ISLANDS * ISLAND_NODES * GPUS
    size = (
        f"{trace.source}: {len(trace.jobs):,} jobs, {gpus:,} GPUs, {ISLANDS} islands;"
        f" {going.counts.preemptions:,} preemptions, {going.counts.bookings:,} called back"
    )
    return [
        Figure(
            "replay with quota, priorities, islands, preemption",
            size,
            f"{speed:,.0f} job events/s ({going.counts.job_events:,} in {seconds:.1f} s)",
            f"FIFO first-fit {plain_speed:,.0f}/s",
            f"{plain_speed / speed:.1f}x slower",
            f"at least {EVENTS_PER_SECOND_LEAST:,}/s" if is_quick else "told",
            speed >= EVENTS_PER_SECOND_LEAST if is_quick else None,
        ),
        _quality("mean wait", size, ours.mean, plain.waits.mean),
        _quality("p99 wait", size, ours.p99, plain.waits.p99),
        _block(size, going, plain),
    ]


def _block(size: str, going: Replay, plain: Plain) -> Figure:
    """Of the largest block that so many free GPUs could make: a loop that lets work wait has more of them free."""
    share = going.meter.block_share or 0.0
    mean = going.meter.block_us / (going.meter.until - going.begin)
    return Figure(
        "largest block kept, of the possible",
        size,
        f"{share:.1%} (mean {mean:.1f} GPUs)",
        f"FIFO first-fit {plain.block_share:.1%} (mean {plain.block_mean:.1f})",
        f"{share / plain.block_share:.3f}x",
        f"at least {BLOCK_RATIO_LEAST:g}x",
        share >= BLOCK_RATIO_LEAST * plain.block_share,
    )


def _quality(name: str, size: str, ours: float, plain: float) -> Figure:
    ratio = ours / plain if plain else float(ours > 0)
    return Figure(
        name, size, f"{ours:,.1f} s", f"FIFO first-fit {plain:,.1f} s", f"{ratio:.2f}x",
        f"at most {WAIT_RATIO_MOST:g}x", ratio <= WAIT_RATIO_MOST,
    )  # fmt: skip


def _growth(name: str, small: Trace, large: Trace, *, limit: float | None) -> Figure:
    """What an event costs in a fleet a hundred times as large; with as much work as it carries, ten times."""
    clusters = (SMALL_CLUSTERS, LARGE_CLUSTERS if limit else LARGE_CLUSTERS // 10)
    costs, told = [], []
    for trace, count in zip((small, large), clusters, strict=True):
        going, seconds = run(build(clusters=count, islands=CLUSTER_ISLANDS), trace)
        costs.append(seconds / going.counts.job_events)
        held = going.meter.held_us / going.meter.works_us
        told.append(f"{count * CLUSTER_ISLANDS * ISLAND_NODES:,} nodes {held:.0%} used")
    ratio = costs[1] / costs[0]
    return Figure(
        f"cost of an event in a large fleet, {name}",
        f"{len(small.jobs):,} jobs; {', '.join(told)}",
        f"{costs[1] * 1e6:.0f} µs",
        f"small fleet {costs[0] * 1e6:.0f} µs",
        f"{ratio:.2f}x",
        f"under {limit:g}x" if limit else "told",
        ratio < limit if limit else None,
    )
