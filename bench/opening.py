"""Opening a large ledger from its snapshot, against replaying it; and how much memory a state takes."""

from __future__ import annotations

import random
import tempfile
from datetime import timedelta

from bench.figures import Figure, Times, run_child
from plimsoll.fleet.demo import demo_fleet
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.fleet.sheet import MemorySheet
from plimsoll.health.changes import NodeHistory
from plimsoll.ledger.model import Draft
from plimsoll.rooms import SHEETS, open_keeper
from plimsoll.times import parse_time

EVENTS = 1_000_000
BATCH = 50_000
NODES = 1_000_000
OPEN_SECONDS_MAX = 2.0
OPEN_BYTES_MAX = 500e6
STATE_BYTES_MAX = 2e9
RUNS = 5

OPEN = """
import resource, sys
from plimsoll.rooms import open_keeper
from plimsoll.fleet.fold import Fleet
keeper = open_keeper(sys.argv[1])
assert len(keeper.state().of(Fleet).nodes) > 18_000
print(keeper.state().revision, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""

REPLAY = """
import sys
from plimsoll.ledger import open_ledger
from plimsoll.rooms import KINDS
from plimsoll.state.state import State
state = State(KINDS)
state.apply_all(open_ledger(sys.argv[1]).store.events())
print(state.revision)
"""

GROW = """
import resource, sys
import msgspec
from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Cluster, Node, Phase, Purpose, Service
from plimsoll.ledger.model import Draft, Event
from plimsoll.rooms import KINDS
from plimsoll.state.state import State
state = State(KINDS)
revision = 0
def apply(change):
    global revision
    revision += 1
    when = "2026-01-05T00:00:00.000000Z"
    payload = msgspec.json.encode(change).decode()
    state.apply(Event(revision, when, when, "bench", change.kind, change.subject, "", payload, "", ""))
for number in range(int(sys.argv[1])):
    cluster, island = f"cluster-{number // 250:04d}", f"cluster-{number // 250:04d}-i{number % 250 // 64}"
    if number % 250 == 0:
        apply(ClusterRecorded(Cluster(cluster, "r1", Area.US, "c1", "p", Purpose.RESEARCH, Phase.PRODUCTION)))
    apply(NodeRecorded(Node(f"{cluster}-{number % 250:04d}", cluster, island, "H200", 8, Service.IN_SERVICE)))
assert len(state.of(Fleet).nodes) == int(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as name:
        dsn = f"sqlite:///{name}/large.db"
        fill(dsn)
        opened = [run_child(OPEN, dsn) for _ in range(RUNS)]
        replay_seconds, _ = run_child(REPLAY, dsn)
        times = Times(tuple(seconds for seconds, _ in opened))
        revision, memory = (int(word) for word in opened[-1][1].split())
    size = f"{revision:,} events, 19,000 nodes"
    _, grown = run_child(GROW, str(NODES))
    state_bytes = int(grown)
    return [
        Figure(
            "open with a snapshot (a whole process)",
            size,
            str(times),
            f"full replay {replay_seconds:.1f} s",
            f"{times.median / replay_seconds:.3f}x",
            f"under {OPEN_SECONDS_MAX:g} s",
            times.median < OPEN_SECONDS_MAX,
        ),
        _memory("memory after opening", size, memory, OPEN_BYTES_MAX),
        _memory("memory of a state", f"{NODES:,} nodes", state_bytes, STATE_BYTES_MAX),
    ]


def _memory(name: str, size: str, used: int, most: float) -> Figure:
    share = f"{used / most:.2f}x"
    return Figure(name, size, f"{used / 1e6:,.0f} MB", f"limit {most / 1e6:,.0f} MB", share, "at most 1x", used <= most)


def fill(dsn: str) -> None:
    """The demo fleet and a long past of its nodes."""
    until = parse_time("2026-01-05T00:00:00Z")
    rows = demo_fleet(seed=1, until=until)
    source = Source("demo", "", {name: MemorySheet(name, cells) for name, cells in rows.items()})
    dice = random.Random(1)
    services = (Service.QUARANTINED, Service.REPAIR, Service.VALIDATING, Service.IN_SERVICE)
    with open_keeper(dsn, create=True) as keeper:
        import_fleet(keeper, source, SHEETS, actor="bench")
        nodes = sorted(keeper.state().of(Fleet).nodes)
        while (missing := EVENTS - keeper.state().revision) > 0:
            moments = (until - timedelta(seconds=dice.randrange(60_000_000)) for _ in range(min(BATCH, missing)))
            drafts = [Draft(NodeHistory(dice.choice(nodes), dice.choice(services), "xid 79"), "", at) for at in moments]
            keeper.commit(drafts, actor="bench", reason="the past", read_at=None)
