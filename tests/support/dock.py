"""A small fleet under a campaign: a clock that tests move, a plan in one line, commands that are plain functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from plimsoll.campaigns.file import parse_campaign
from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.model import Batch, Plan, Score, Status
from plimsoll.campaigns.run.desk import find_run, move, record_plan, returned, start
from plimsoll.campaigns.run.gate import Gatekeeper
from plimsoll.campaigns.run.outside import Did, Outside
from plimsoll.campaigns.run.progress import Progress, Run
from plimsoll.campaigns.service import run_pass, say, tick
from plimsoll.campaigns.units import make_units
from plimsoll.connect.errands import OUT_BYTES_MAX, Errands, Going, Result
from plimsoll.documents import read_document
from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Cluster, Node, Phase, Purpose, Service
from plimsoll.health.acts import Acting, tick_check
from plimsoll.health.fold import Health
from plimsoll.health.service import act, put_policy_in_force, sweep_now
from plimsoll.ledger.model import Change, Draft
from plimsoll.rooms import open_keeper
from plimsoll.state.state import State
from plimsoll.times import parse_time
from tests.support.health import POLICY
from tests.support.imports import IN_MEMORY

MONDAY = parse_time("2026-01-05T08:00:00Z")
ACTOR = "alice"

FILE = """\
campaign: nic
changes: [{component: nic-firmware, version: "28.43"}]
scope: {}
start: 2026-01-05
deadline: 2026-01-09
window: {hours: [11, 20], tz: UTC}
big: {nodes_over: 5}
work:
  - {scope: {size: big}, mode: rolling, share_per_day: 0.5, hours: 4}
  - {scope: {}, mode: whole, hours: 4}
roster: [bob, carol]
"""


class FakeErrands(Errands):
    """Commands as functions: nodes to what is printed and the exit code. `crash` stands for the machine's death."""

    def __init__(self, does: Callable[[str, Sequence[str]], Result] | None = None) -> None:
        super().__init__(Path("/nonexistent"))
        self.begun: list[str] = []
        self.results: dict[str, Result] = {}
        self.does = does or (lambda _what, _names: Result(0, "", ""))

    @property
    def where(self) -> str:
        return "fake"

    def look(self, name: str) -> tuple[Going, Result | None]:
        if name not in self.begun:
            return Going.NOT_BEGUN, None
        found = self.results.get(name)
        return (Going.LOST, None) if found is None else (Going.ENDED, found)

    def begin(
        self,
        name: str,
        words: Sequence[str],
        *,
        environment: Mapping[str, str],
        lines: Sequence[str],
        seconds_max: float = 0.0,
        files: Mapping[str, str] | None = None,
        out_bytes_max: int = OUT_BYTES_MAX,
    ) -> bool:
        assert seconds_max is not None
        if name in self.begun:
            return False
        self.begun.append(name)
        self.results[name] = self.does(words[0], lines)
        assert environment["PLIMSOLL_OPERATION"]
        return True


class Dock:
    """Clusters of equal nodes, named by how many they have."""

    def __init__(
        self,
        clusters: Mapping[str, int],
        file: str = FILE,
        *,
        errands: FakeErrands | None = None,
        dsn: str = IN_MEMORY,
    ) -> None:
        self.now = MONDAY
        self.keeper = open_keeper(dsn, create=True, clock=lambda: self.now)
        self.errands = errands or FakeErrands()
        drafts: list[Draft] = []
        for name, count in clusters.items():
            cluster = Cluster(name, "us-north", Area.US, f"{name}-colo", "acme", Purpose.RESEARCH, Phase.PRODUCTION)
            drafts.append(Draft(ClusterRecorded(cluster)))
            for number in range(1, count + 1):
                node = Node(f"{name}-{number}", name, f"{name}-a", "H200", 8, Service.IN_SERVICE, since=MONDAY)
                drafts.append(Draft(NodeRecorded(node)))
        self.keeper.commit(drafts, actor=ACTOR, reason="setup", read_at=None)
        put_policy_in_force(self.keeper, POLICY, source="test", actor=ACTOR, reason="setup")
        self.file = file

    @property
    def state(self) -> State:
        return self.keeper.state()

    @property
    def run(self) -> Run:
        return self.state.of(Campaigns).runs["nic"]

    def at(self, text: str) -> Dock:
        """Move the clock: `05T11:00` is on the fifth of January."""
        self.now = parse_time(f"2026-01-{text}:00Z")
        return self

    def plan(self, **starts: str) -> Plan:
        """Record a plan: by cluster the day and hour of its first batch, others following day by day."""
        campaign = parse_campaign(self.file, source="nic.yaml")
        roll = make_units(campaign, self.state.of(Fleet), read_document(self.file, source="nic.yaml"))
        batches = []
        for unit in roll.units:
            first = parse_time(f"2026-01-{starts[unit.name.replace('-', '_')]}:00Z")
            for number, names in enumerate(unit.batches, start=1):
                begin = first + timedelta(days=number - 1)
                end = begin + timedelta(minutes=unit.minutes)
                batches.append(Batch(unit.name, unit.mode, number, len(names), begin, end))
        known = self.state.of(Campaigns).runs.get("nic")
        number = 1 if known is None else known.plan.number + 1
        plan = Plan("nic", number, Status.FEASIBLE, Score(0.0, 0.0, 0.0, 0.0), 0.0, tuple(batches))
        say(self.keeper, lambda state, _now: (None, record_plan(state, campaign, self.file, plan, roll)), actor=ACTOR)
        return plan

    def start(self) -> None:
        say(self.keeper, lambda state, now: (None, start(state, "nic", now=now)), actor=ACTOR, reason="go")

    def go(self, text: str = "") -> list[Did]:
        """One pass, at a time."""
        if text:
            self.at(text)
        return run_pass(self.keeper, "nic", actor=ACTOR, outside=Outside(self.errands))

    def move(self, verb: str) -> None:
        say(self.keeper, lambda state, _now: (None, move(state, "nic", verb)), actor=ACTOR, reason=verb)

    def tick(self, batch: str, *, lost: Sequence[str] = (), is_validated: bool = False) -> None:
        tick(self.keeper, "nic", batch, actor="provider", lost=lost, is_validated=is_validated)

    def returned(self, *nodes: str) -> None:
        def decide(state: State, now: datetime) -> tuple[None, list[Draft]]:
            return None, returned(state, "nic", nodes, Acting(ACTOR, now, "repaired", {}))

        say(self.keeper, decide, actor=ACTOR)

    def accept(self, *names: str) -> None:
        """A person's tick of the check that waits for one, for nodes that validate."""
        nodes = [self.state.of(Fleet).nodes[name] for name in names]
        act(
            self.keeper,
            lambda state, acting: tick_check(state, nodes, "accepted", acting, is_passed=True),
            actor=ACTOR,
            reason="looks good",
            names=list(names),
        )

    def sweep(self) -> None:
        sweep_now(self.keeper, actor="plimsoll")

    def commit(self, *changes: Change) -> None:
        self.keeper.commit([Draft(change) for change in changes], actor=ACTOR, reason="test", read_at=None)

    def service(self, name: str) -> str:
        return str(self.state.of(Fleet).nodes[name].service)

    def services(self, cluster: str) -> set[str]:
        return {str(node.service) for node in self.state.of(Fleet).nodes.values() if node.cluster == cluster}

    def step(self, batch: str) -> str:
        return str(self.run.step_of(batch))

    def progress(self, batch: str) -> Progress:
        return self.run.progress[batch]

    def holds(self, name: str) -> list[str]:
        return [hold.id for hold in self.state.of(Health).holds.get(name, ())]

    def nos(self, batch: str) -> list[str]:
        """The codes of why a batch may not begin now."""
        run = find_run(self.state, "nic")
        found = next(each for each in run.plan.batches if each.id == batch)
        return [str(no.code) for no in Gatekeeper(self.state, run, self.now).ask(found)]

    def retire(self, name: str) -> None:
        node = self.state.of(Fleet).nodes[name]
        self.commit(NodeRecorded(msgspec.structs.replace(node, service=Service.RETIRED)))


def with_lines(text: str, *lines: str) -> str:
    """A campaign file with more lines at its end."""
    return text + "".join(f"{line}\n" for line in lines)
