"""Looking for trouble in a whole fleet: a pass over which nothing has changed, and one after a node went bad, with
everything promised and a campaign under way; beside a bare walk over all nodes.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import msgspec

from bench.figures import Figure, Times, alternate
from plimsoll.campaigns.changes import CampaignPlanned, CampaignStarted
from plimsoll.campaigns.file import parse_campaign
from plimsoll.campaigns.model import Plan, Score, Status
from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.demo import demo_fleet
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.fleet.sheet import MemorySheet
from plimsoll.incidents.service import run_pass
from plimsoll.ledger.model import Draft
from plimsoll.quota.plan import make_plan
from plimsoll.quota.policy import parse_word
from plimsoll.quota.service import apply_plan
from plimsoll.rooms import FINDERS, SHEETS, open_keeper
from plimsoll.state.keeper import Keeper

UNTIL = datetime(2026, 1, 5, tzinfo=UTC)
RUNS = 20
PASS_SECONDS_MAX = 0.050
FILE = """\
campaign: bench
changes: [{component: nic-firmware, version: "1"}]
scope: {}
start: 2026-01-05
deadline: 2026-01-22
window: {hours: [11, 20], tz: UTC}
work: [{scope: {}, mode: whole, hours: 4}]
limits: [{kind: out_at_once, at_most: 100, counts: all}]
"""


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        keeper = _load(Path(folder) / "bench.db")
        try:
            return _passes(keeper)
        finally:
            keeper.close()


def _load(path: Path) -> Keeper:
    """The demo fleet, everything that is healthy promised, and a campaign that runs over all of it."""
    rows = demo_fleet(seed=1, until=UNTIL)
    sheets = {sheet: MemorySheet(sheet, cells) for sheet, cells in rows.items()}
    keeper = open_keeper(f"sqlite:///{path}", create=True, clock=lambda: UNTIL + timedelta(hours=1))
    import_fleet(keeper, Source("bench", "", sheets), SHEETS, actor="bench")
    policy = parse_word("fixed-healthy:0")
    now = keeper.ledger.clock()
    apply_plan(keeper, lambda state: make_plan(state, policy, now=now), actor="bench", needs_notice=False)
    campaign = parse_campaign(FILE, source="bench")
    plan = Plan("bench", 1, Status.FEASIBLE, Score(0.0, 0.0, 0.0, 0.0), 0.0, ())
    drafts = [Draft(CampaignPlanned("bench", campaign, FILE, plan, {})), Draft(CampaignStarted("bench", 1))]
    keeper.commit(drafts, actor="bench", read_at=None)
    return keeper


def _passes(keeper: Keeper) -> list[Figure]:
    nodes = keeper.state().of(Fleet).nodes
    working = iter([node for node in nodes.values() if node.service is Service.IN_SERVICE])
    minutes = count()

    def look() -> None:
        run_pass(keeper, FINDERS, UNTIL + timedelta(hours=1, minutes=next(minutes)), "bench")

    def lose() -> None:
        broken = msgspec.structs.replace(next(working), service=Service.REPAIR)
        keeper.commit([Draft(NodeRecorded(broken, {"service": "in_service"}))], actor="bench", read_at=None)

    def walk() -> None:
        sum(node.service is Service.IN_SERVICE for node in nodes.values())

    look()
    quiet, bare = alternate(RUNS, look, walk)
    after: list[float] = []
    for _ in range(RUNS):
        lose()
        after += alternate(1, look)[0].runs
    size = f"{len(nodes):,} nodes, a campaign runs"
    return [
        _figure("incidents: nothing has changed", size, quiet, bare),
        _figure("incidents: a node went bad since, told and committed", size, Times(tuple(after)), bare),
    ]


def _figure(name: str, size: str, ours: Times, bare: Times) -> Figure:
    ratio = f"{ours.median / bare.median:.1f}x"
    limit = f"at most {PASS_SECONDS_MAX * 1e3:.0f} ms"
    return Figure(name, size, str(ours), f"bare walk {bare}", ratio, limit, ours.median <= PASS_SECONDS_MAX)
