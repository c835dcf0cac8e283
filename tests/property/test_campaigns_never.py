"""Never more out than a limit allows, never two batches on a node, never a batch before its time, never a hold of
others ended, never a batch that waits without a word.

One random machine does to two campaigns over three small clusters what runners, people, commands, hardware and time do,
in any order. An independent judge follows the ledger event by event and counts everything again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from plimsoll.campaigns.changes import CampaignPlanned
from plimsoll.campaigns.file import parse_campaign
from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.marks.model import Acted, Cleared, Drained, Extent, Looked
from plimsoll.campaigns.model import Batch, Plan, Score, Status
from plimsoll.campaigns.run.desk import move, next_number, record_plan, returned, start
from plimsoll.campaigns.run.outside import Outside
from plimsoll.campaigns.run.progress import Run
from plimsoll.campaigns.service import run_pass, say, tick
from plimsoll.campaigns.units import make_units
from plimsoll.connect.errands import OUT_BYTES_MAX, Going, Result
from plimsoll.errors import PlimsollError
from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.health.acts import Acting, Decision, Setting, place_hold, release_hold, set_service, tick_check
from plimsoll.health.facts import Hold
from plimsoll.health.fold import Health
from plimsoll.health.service import act, sweep_now
from plimsoll.incidents.desk import close_incident, open_incident
from plimsoll.incidents.fold import Incidents
from plimsoll.ledger.model import Draft
from plimsoll.rooms import KINDS
from plimsoll.state.state import State
from tests.support.dock import MONDAY, Dock, FakeErrands
from tests.support.fairway import RUNNER, Judge, check_announced, check_nodes, check_over, check_todo

CLUSTERS = {"ant": 2, "bee": 3, "cat": 6}
NODES = [f"{name}-{number}" for name, count in CLUSTERS.items() for number in range(1, count + 1)]
CAMPAIGNS = ["nic", "bios"]

FILE = """\
campaign: {name}
changes: [{{component: {name}, version: "2"}}]
scope: {{}}
start: 2026-01-05
deadline: 2026-01-09
window: {{hours: [11, 20], tz: UTC}}
work:
  - {{scope: {{cluster: [cat]}}, mode: rolling, share_per_day: 0.5, hours: 4}}
  - {{scope: {{}}, mode: whole, hours: 4}}
{more}
"""
LIMITS = [
    "{kind: out_at_once, at_most: 5}",
    "{kind: out_at_once, at_most: 3}",
    "{kind: out_at_once, at_most: 6, counts: all}",
    "{kind: out_at_once, unit: gpus, at_most: 44, counts: all}",
    "{kind: out_at_once, unit: a100e, at_most: 130}",
    "{kind: out_at_once, at_most: 3, scope: {cluster: [bee, cat]}}",
    "{kind: out_at_once, at_most: 1, scope: {sku: [GB200]}}",
    "{kind: out_per_day, at_most: 5}",
    "{kind: starts_per_day, at_most: 1}",
    "{kind: crews, at_most: 1}",
]
RUNS = [
    "run: {grace_minutes: 0}",
    "run: {grace_minutes: 30}",
    "run: {grace_minutes: 0, work: [update], validate: [check]}",
    "run: {grace_minutes: 30, work: [update]}",
    "run: {grace_minutes: 0, validate: [check]}",
]
EXTRAS = [
    "canary: {clusters: [ant], soak_hours: 20}",
    "order: [{scope: {cluster: [ant, bee]}}, {scope: {cluster: [cat]}, strict: true}]",
    "no_fly: [{scope: {cluster: [bee]}, from: 2026-01-06, to: 2026-01-07}]",
    "expect: {non_return_share: 0.2, repair_days: 1}",
]
OTHERS = ["set", "hold", "release", "release what is newer", "retire", "join", "accept", "fail"]
OTHERS += ["incident", "incident over"]
SERVICES = ["quarantined", "repair", "maintenance", "validating", "in_service"]
SAID = ["start", "start", "they are back", "they are back", "pause", "resume", "resume", "cancel"]
OUTCOMES = ["good", "good", "good", "fails", "lost", "some nodes fail"]

_names = st.sampled_from(CAMPAIGNS)
_picks = st.integers(0, 30)
_nodes = st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True)
_hours = st.tuples(st.sampled_from([5, 5, 6, 7]), st.sampled_from([11, 11, 12, 16]))
_files = st.tuples(
    st.lists(st.sampled_from(LIMITS), min_size=1, max_size=2, unique=True),
    st.sampled_from(RUNS),
    st.sampled_from([[], [], *([each] for each in EXTRAS), EXTRAS]),
)


class SlowErrands(FakeErrands):
    """Commands that end when the machine says so."""

    def look(self, name: str) -> tuple[Going, Result | None]:
        if name in self.begun and name not in self.results:
            return (Going.LOST, None) if name in self.gone else (Going.RUNNING, None)
        return super().look(name)

    def __init__(self) -> None:
        super().__init__()
        self.gone: set[str] = set()
        self.lines: dict[str, tuple[str, ...]] = {}

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
        assert words
        assert environment["PLIMSOLL_ATTEMPT"]
        assert seconds_max is not None
        assert name not in self.begun, "the same command twice"
        self.begun.append(name)
        self.lines[name] = tuple(lines)
        return True

    def running(self) -> list[str]:
        return [name for name in self.begun if self.look(name)[0] is Going.RUNNING]


class Marks:
    """A scheduler in memory. `is_down`: it does not answer."""

    where = "memory"

    def __init__(self) -> None:
        self.marked: dict[str, str] = {}
        self.booked: set[str] = set()
        self.is_down = False

    def _ask(self) -> None:
        if self.is_down:
            raise PlimsollError("scheduler_down", "the scheduler does not answer")

    def book(self, batch: str, nodes: Sequence[str], *, starts: datetime, ends: datetime) -> Acted:
        self._ask()
        assert starts < ends
        self.booked.add(batch)
        return Acted(tuple(nodes))

    def mark(self, batch: str, nodes: Sequence[str], *, starts: datetime, ends: datetime, reason: str) -> Acted:
        assert reason
        self.book(batch, nodes, starts=starts, ends=ends)
        self.marked |= dict.fromkeys(nodes, batch)
        return Acted(tuple(nodes))

    def unmark(self, batch: str, nodes: Collection[str]) -> Acted:
        self._ask()
        self.booked.discard(batch)
        self.marked = {node: by for node, by in self.marked.items() if node not in nodes or by != batch}
        return Acted(tuple(nodes))

    def look(self, batch: str, nodes: Collection[str]) -> Looked:
        self._ask()
        is_marked = any(self.marked.get(node) == batch for node in nodes)
        return Looked(Extent.MARKED if is_marked else Extent.NOT_MARKED)

    def drained(self, nodes: Collection[str]) -> Drained:
        self._ask()
        return Drained(tuple(nodes))

    def clear(self, _nodes: Collection[str]) -> Cleared:
        return Cleared()


class Fairway(RuleBasedStateMachine):
    """Eleven nodes in three clusters, two campaigns, and a clock."""

    def __init__(self) -> None:
        super().__init__()
        self.dock = Dock(CLUSTERS)
        self.errands = SlowErrands()
        self.marks = {name: Marks() for name in CAMPAIGNS}
        self.judge = Judge()
        self.joined = 0

    @initialize(
        files=st.lists(_files, min_size=2, max_size=2),
        hours=st.lists(_hours, min_size=6, max_size=6),
        two=st.booleans(),
    )
    def _start(self, files: list[tuple[list[str], str, list[str]]], hours: list[tuple[int, int]], two: bool) -> None:
        nodes = self.dock.state.of(Fleet).nodes
        big = [msgspec.structs.replace(nodes[name], sku="GB200", island="bee-b") for name in ("bee-2", "bee-3")]
        self.dock.commit(*map(NodeRecorded, big))
        for number, name in enumerate(CAMPAIGNS[: 1 + two]):
            self.plan(name, files[number], hours[3 * number : 3 * number + 3])
            self.start(name)

    # How it is done.

    @property
    def state(self) -> State:
        return self.dock.state

    @property
    def runs(self) -> dict[str, Run]:
        return dict(self.state.of(Campaigns).runs.items())

    def _say(self, decide: Callable[[State, datetime], Sequence[Draft]]) -> None:
        with suppress(PlimsollError):
            say(self.dock.keeper, lambda state, now: (None, decide(state, now)), actor="ada", reason="said")

    def _act(self, names: Collection[str], decide: Callable[[State, Acting], Decision], actor: str = "ops") -> bool:
        try:
            act(self.dock.keeper, decide, actor=actor, reason="because", names=names)
        except PlimsollError:
            return False
        return True

    def _of(self, names: Collection[str]) -> list[Node]:
        return [self.state.of(Fleet).nodes[name] for name in names]

    # Campaigns.

    @rule(name=_names, file=_files, hours=st.lists(_hours, min_size=3, max_size=3))
    def plan(self, name: str, file: tuple[list[str], str, list[str]], hours: list[tuple[int, int]]) -> None:
        """Nothing says that the plan keeps its own limits: the gate must."""
        limits, running, extras = file
        more = "\n".join([f"limits: [{', '.join(limits)}]", running, *extras])
        text = FILE.format(name=name, more=more)
        with suppress(PlimsollError):
            campaign = parse_campaign(text, source="file.yaml")
            roll = make_units(campaign, self.state.of(Fleet))
            batches = []
            for unit, (day, hour) in zip(roll.units, hours, strict=True):
                for number, names in enumerate(unit.batches, start=1):
                    begins = MONDAY.replace(day=day, hour=hour) + timedelta(days=number - 1)
                    ends = begins + timedelta(minutes=unit.minutes)
                    batches.append(Batch(unit.name, unit.mode, number, len(names), begins, ends))
            number = next_number(self.state, name)
            plan = Plan(name, number, Status.FEASIBLE, Score(0.0, 0.0, 0.0, 0.0), 0.0, tuple(batches))
            self._say(lambda state, _now: record_plan(state, campaign, text, plan, roll))

    def start(self, name: str) -> None:
        self._say(lambda state, now: start(state, name, now=now))

    def move(self, name: str, verb: str) -> None:
        self._say(lambda state, _now: move(state, name, verb))

    @rule(
        name=_names, days=st.integers(-1, 2), hours=st.integers(-2, 2), dropped=st.sampled_from(["", "", "ant", "cat"])
    )
    def plan_anew(self, name: str, days: int, hours: int, dropped: str) -> None:
        """What has not begun moves, or is dropped; a careless plan drops what is under way as well."""
        run = self.runs.get(name)
        if run is None or run.phase.is_over:
            return
        batches, names = [], {}
        for batch in run.plan.batches:
            alive = [name for name in run.names[batch.id] if self.dock.service(name) != "retired"]
            if batch.unit == dropped or (batch.id not in run.progress and not alive):
                continue
            names[batch.id] = tuple(alive) if batch.id not in run.progress else run.names[batch.id]
            by = timedelta(days=days, hours=hours) if batch.id not in run.progress else timedelta(0)
            batches.append(msgspec.structs.replace(batch, start=batch.start + by, end=batch.end + by))
        plan = msgspec.structs.replace(run.plan, number=run.plan.number + 1, batches=tuple(batches))
        self.dock.commit(CampaignPlanned(name, run.campaign, run.text, plan, names))

    @rule(name=_names, is_down=st.sampled_from([False, False, False, True]))
    def go(self, name: str, is_down: bool) -> None:
        """A pass; the scheduler may not answer."""
        if name not in self.runs:
            return
        self.marks[name].is_down = is_down
        outside = Outside(self.errands, lambda campaign, _cluster: self.marks[campaign])
        run_pass(self.dock.keeper, name, actor=RUNNER, outside=outside)
        self.marks[name].is_down = False
        run = self.runs[name]
        check_announced(self.state, run, self.dock.now)
        check_over(self.state, run)
        if not is_down:
            self._check_marks(run)
            revision = self.state.revision
            run_pass(self.dock.keeper, name, actor=RUNNER, outside=outside)
            assert self.state.revision == revision, "the next pass has nothing to record"

    def _check_marks(self, run: Run) -> None:
        """After a pass nothing is marked but what is under way or did not come back, nor booked but what is ahead."""
        nodes = self.state.of(Fleet).nodes
        marks = self.marks[run.name]
        for node, batch in marks.marked.items():
            known = run.progress.get(batch)
            is_going = known is not None and known.step.is_under_way and node in known.nodes
            is_out = run.closed.get(node) == batch and nodes[node].service is not Service.IN_SERVICE
            is_gone = nodes[node].service is Service.RETIRED
            assert is_going or is_out or is_gone, f"{node} is marked for {batch}"
        for node, batch in run.closed.items():
            if nodes[node].service not in (Service.IN_SERVICE, Service.RETIRED):
                assert marks.marked.get(node) == batch, f"{node} did not come back with {batch}, and is open"
        for batch in marks.booked:
            known = run.progress.get(batch)
            is_ahead = known is None and str(run.phase) in ("running", "paused")
            assert is_ahead or (known is not None and known.step.is_under_way), f"{batch} is booked"

    @rule(minutes=st.sampled_from([0, 1, 5]), name=_names)
    def to_the_next_start(self, minutes: int, name: str) -> None:
        starts = [each.start for run in self.runs.values() for each in run.plan.batches if each.start > self.dock.now]
        if starts:
            self.dock.now = min(starts) + timedelta(minutes=minutes)
            for each in [name, *(other for other in CAMPAIGNS if other != name)]:
                self.go(each, False)

    def _all_good(self) -> None:
        for name in self.errands.running():
            self.errands.results[name] = Result(0, "", "")
        for name, run in self.runs.items():
            for known in run.batches_under_way():
                with suppress(PlimsollError):
                    tick(self.dock.keeper, name, known.batch.id, actor="ada", is_validated=True)

    @rule(lasts=st.sampled_from([1, 4, 7]), is_told=st.booleans())
    def a_good_day(self, lasts: int, is_told: bool) -> None:
        """What is due begins, and all that is under way goes well, whether or not somebody says so."""
        self.close_incidents()
        for name in CAMPAIGNS:
            self.plan_anew(name, 0, 0, "")
            self.move(name, "resume")
        self.to_the_next_start(0, "nic")
        for _ in range(lasts):
            self.dock.now += timedelta(minutes=11)
            if is_told:
                self._all_good()
            for name in self.errands.running():
                self.errands.results[name] = Result(0, "", "")
            for name in CAMPAIGNS:
                self.go(name, False)

    @rule(pick=_picks, outcome=st.sampled_from(OUTCOMES))
    def command_ends(self, pick: int, outcome: str) -> None:
        running = self.errands.running()
        if not running:
            return
        name = running[pick % len(running)]
        if outcome == "lost":
            self.errands.gone.add(name)
            return
        lines = self.errands.lines[name]
        out = "".join(f'{{"node": "{node}", "ok": {str(number > 0).lower()}}}\n' for number, node in enumerate(lines))
        results = {"good": Result(0, "", ""), "fails": Result(3, "", "oh"), "some nodes fail": Result(0, out, "")}
        self.errands.results[name] = results[outcome]

    @rule(name=_names, pick=_picks, lost=_nodes, is_validated=st.booleans())
    def tick(self, name: str, pick: int, lost: list[str], is_validated: bool) -> None:
        run = self.runs.get(name)
        going = run.batches_under_way() if run else []
        if going:
            known = going[pick % len(going)]
            missing = [node for node in lost if node in known.nodes] if pick % 3 == 0 else []
            with suppress(PlimsollError):
                tick(self.dock.keeper, name, known.batch.id, actor="ada", lost=missing, is_validated=is_validated)

    def come_back(self, name: str, nodes: list[str]) -> None:
        self._say(lambda state, now: returned(state, name, nodes, Acting("ada", now, "repaired", {})))

    def open_incident(self, where: tuple[str, ...]) -> None:
        name = f"fire-{len(self.state.of(Incidents).incidents)}"
        self._say(lambda state, _now: open_incident(state, name, "fire", clusters=where, roster=()))

    def close_incidents(self) -> None:
        for name, incident in list(self.state.of(Incidents).incidents.items()):
            if not incident.campaign and incident.closed_at is None:
                self._say(lambda state, now, name=name: close_incident(state, name, now=now))  # type: ignore[misc]

    # Other people, and hardware.

    def set_service(self, nodes: list[str], service: str) -> None:
        setting = Setting(Service(service))
        for name in nodes:
            self._act([name], lambda state, acting, name=name: set_service(state, self._of([name]), setting, acting))  # type: ignore[misc]

    def hold(self, nodes: list[str], hold: str, is_lease: bool, hours: int | None) -> None:
        until = None if hours is None else self.dock.now + timedelta(hours=hours)
        placed = Hold(hold, "ops", Service.REPAIR, "mine", self.dock.now, is_exclusive=is_lease, expires_at=until)
        self._act(nodes, lambda state, acting: place_hold(state, self._of(nodes), placed, acting))

    def release(self, hold: str) -> None:
        self._act(
            NODES, lambda state, acting: release_hold(state, hold, acting, names=None, at=acting.now, is_forced=False)
        )

    def release_what_is_newer(self, pick: int) -> None:
        """A release that is older than the hold does not end it, whoever forces it."""
        holds = [(name, hold) for name, mine in self.state.of(Health).holds.items() for hold in mine]
        if not holds:
            return
        name, hold = sorted(holds, key=lambda each: (each[0], each[1].id))[pick % len(holds)]
        then = hold.placed_at - timedelta(minutes=1)
        was_done = self._act(
            [name],
            lambda state, acting: release_hold(state, hold.id, acting, names=[name], at=then, is_forced=True),
        )
        assert not was_done
        assert hold in self.state.of(Health).holds[name]

    def retire(self, node: str, is_observed: bool) -> None:
        known = self.state.of(Fleet).nodes[node]
        if known.service is Service.RETIRED or len([n for n in NODES if self.dock.service(n) == "retired"]) >= 3:
            return
        if is_observed:
            self.dock.retire(node)
        else:
            setting = Setting(Service.RETIRED)
            self._act([node], lambda state, acting: set_service(state, self._of([node]), setting, acting))

    def join(self, cluster: str) -> None:
        self.joined += 1
        node = Node(f"{cluster}-new{self.joined}", cluster, f"{cluster}-a", "H200", 8, Service.IN_SERVICE)
        self.dock.commit(NodeRecorded(node))

    def accept(self) -> None:
        """A person passes all that validate."""
        nodes = [node for node in self.state.of(Fleet).nodes.values() if node.service is Service.VALIDATING]
        self._act(
            [node.id for node in nodes],
            lambda state, acting: tick_check(state, nodes, "accepted", acting, is_passed=True),
        )

    def fail_a_check(self, node: str) -> None:
        self._act([node], lambda state, acting: tick_check(state, self._of([node]), "quiet", acting, is_passed=False))

    @rule(what=st.sampled_from(OTHERS), nodes=_nodes, pick=_picks, is_so=st.booleans())
    def others_do(self, what: str, nodes: list[str], pick: int, is_so: bool) -> None:
        """One rule for all that others do, so that as much time is left for campaigns to go on."""
        hold, service = ("h1", "h2")[pick % 2], SERVICES[pick % len(SERVICES)]
        acts: dict[str, Callable[[], object]] = {
            "set": lambda: self.set_service(nodes, service),
            "hold": lambda: self.hold(nodes, hold, is_so, (None, 2, 30)[pick % 3]),
            "release": lambda: self.release(hold),
            "release what is newer": lambda: self.release_what_is_newer(pick),
            "retire": lambda: self.retire(nodes[0], is_so),
            "join": lambda: self.join(nodes[0].partition("-")[0]),
            "accept": self.accept,
            "fail": lambda: self.fail_a_check(nodes[0]),
            "incident": lambda: self.open_incident(((), ("ant",), ("cat",))[pick % 3]),
            "incident over": self.close_incidents,
        }
        acts[what]()

    @rule(name=_names, what=st.sampled_from(SAID), nodes=st.one_of(st.just([]), _nodes))
    def people_say(self, name: str, what: str, nodes: list[str]) -> None:
        if what == "start":
            self.start(name)
        elif what == "they are back":
            self.come_back(name, nodes)
        else:
            self.move(name, what)

    @rule(minutes=st.sampled_from([1, 10, 60, 300, 1_440]))
    def wait(self, minutes: int) -> None:
        self.dock.now += timedelta(minutes=minutes)
        sweep_now(self.dock.keeper, actor="sweeper")

    # What always holds.

    @invariant()
    def never_what_the_rules_forbid(self) -> None:
        store = self.dock.keeper.ledger.store
        self.judge.follow(store.events(after=self.judge.state.revision))
        check_nodes(self.state)
        check_todo(self.state, self.dock.now)
        self._check_replay()

    def _check_replay(self) -> None:
        """Never another state after it was replayed or saved."""
        dump = self.state.dump()
        assert self.judge.state.dump() == dump
        loaded = State(KINDS)
        loaded.load(dump)
        assert loaded.dump() == dump

    def teardown(self) -> None:
        self.dock.keeper.close()


TestFairway = Fairway.TestCase
TestFairway.settings = settings(
    max_examples=1_500 if os.environ.get("PLIMSOLL_SOAK") else 60, stateful_step_count=30, report_multiple_bugs=False
)
