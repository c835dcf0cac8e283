"""Never into service but through validation, never an illegal move, never a hold lost: over random lives of a fleet.

One random machine does what people, feeds, time and imports do; after every step the rules are checked on the ledger
and on the state, against a plain record of what was asked for.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from plimsoll.errors import NotFound, Refused
from plimsoll.fleet.model import Service
from plimsoll.health.changes import HoldEnded, NodeMoved
from plimsoll.health.facts import AUTOMATION, LEGAL_MOVES
from plimsoll.health.model import from_microseconds
from plimsoll.rooms import KINDS
from plimsoll.state.keeper import verify_snapshots
from tests.support.fleets import row
from tests.support.health import Ward, breakers, minutes, signal
from tests.support.imports import NOW
from tests.support.ledgers import events_of, fold_of

NODES = ["n1", "n2", "n3"]
PEOPLE = ["ada", "bob"]

_nodes = st.sampled_from(NODES)
_some = st.lists(_nodes, min_size=1, max_size=3, unique=True)
_people = st.sampled_from(PEOPLE)
_held = st.sampled_from(["draining", "quarantined", "maintenance", "repair"])
_services = st.sampled_from([str(service) for service in Service])
_problems = st.sampled_from(
    [("xid", "79"), ("xid", "48"), ("xid", "13"), ("check", "nccl"), ("heartbeat", ""), ("provider", "reboot")]
)


class Lives(RuleBasedStateMachine):
    """Three nodes, two people, feeds, a clock."""

    def __init__(self) -> None:
        super().__init__()
        self.ward = Ward(3, policy=breakers(cluster=2), is_ticking=True)
        self.seen = 0
        self.asked: dict[tuple[str, str], datetime | None] = {}
        """The holds of people, by node and id, and when each expires."""
        self.observed: dict[str, str] = {}
        """What an import said last and nothing has moved since."""

    def teardown(self) -> None:
        ledger = self.ward.keeper.ledger
        assert list(verify_snapshots(ledger, KINDS)) == []
        assert fold_of(events_of(ledger), KINDS).dump() == self.ward.state.dump()
        self.ward.keeper.close()

    def _tried(self, act: Any, *arguments: Any, **keywords: Any) -> bool:
        """Whether it was done; a refusal changes nothing."""
        before = self.ward.keeper.ledger.head()
        try:
            act(*arguments, **keywords)
        except (Refused, NotFound):
            assert self.ward.keeper.ledger.head() == before
            return False
        return True

    @initialize(count=st.integers(0, 2))
    def _start(self, count: int) -> None:
        for number in range(count):
            self.ward.hold(NODES[number], hold_id="first", actor="ada", service="maintenance")
            self.asked[NODES[number], "first"] = None

    # What happens.

    @rule(node=_nodes, problem=_problems, ago=st.integers(0, 60), is_ok=st.booleans())
    def observe(self, node: str, problem: tuple[str, str], ago: int, is_ok: bool) -> None:
        ago_from_start = ago - (self.ward.now - NOW) / minutes(1)
        self.ward.observe(signal(node, *problem, ago=ago_from_start, is_ok=is_ok))

    @rule(seen=_some)
    def see(self, seen: list[str]) -> None:
        self.ward.see(swept=seen)

    @rule(passed=st.sampled_from([1, 6, 11, 20, 200]))
    def wait(self, passed: int) -> None:
        self.ward.wait(passed)

    @rule()
    def sweep(self) -> None:
        due = {key for key, expires in self.asked.items() if expires is not None and expires <= self.ward.now}
        swept = self.ward.sweep()
        reported = {(node, hold.id) for node, hold in swept.expired}
        assert reported == due, "every hold that expired is reported, and no other"
        for key in due:
            del self.asked[key]
        for node in NODES:
            if self.ward.health.holds.get(node):
                assert self.ward.service(node) in ("draining", "quarantined", "maintenance", "repair", "retired")

    @rule(node=_nodes, service=_services)
    def bring(self, node: str, service: str) -> None:
        self.ward.wait(1)
        self.ward.bring([row("nodes", node=node, service=service, since="", reason="told")])

    @rule(
        nodes=_some,
        name=st.sampled_from(["a", "b"]),
        actor=_people,
        service=_held,
        lasts=st.sampled_from([None, 5, 30]),
        is_exclusive=st.booleans(),
    )
    def hold(
        self, nodes: list[str], name: str, actor: str, service: str, lasts: int | None, is_exclusive: bool
    ) -> None:
        expires = None if lasts is None else self.ward.now + minutes(lasts)
        fields = {"expires_at": expires, "is_exclusive": is_exclusive}
        if self._tried(self.ward.hold, *nodes, hold_id=name, actor=actor, service=service, **fields):
            self.asked |= {(node, name): expires for node in nodes}

    @rule(name=st.sampled_from(["a", "b", "first"]), actor=_people, late=st.sampled_from([0, 10]))
    def release(self, name: str, actor: str, late: int) -> None:
        at = self.ward.now - minutes(late)
        owners = {(node, hold.owner, hold.placed_at) for node in NODES for hold in self._holds(node) if hold.id == name}
        if self._tried(self.ward.release, name, actor=actor, at=at):
            assert all(owner == actor for _, owner, _ in owners), "nobody ends another's hold"
            assert all(placed <= at for _, _, placed in owners), "an older release ends no newer hold"
            for node, _, _ in owners:
                self.asked.pop((node, name))

    def _holds(self, node: str) -> Any:
        return self.ward.health.holds.get(node, ())

    @rule(node=_nodes, service=_services, actor=_people)
    def set(self, node: str, service: str, actor: str) -> None:
        was = Service(self.ward.service(node))
        others = [hold.id for hold in self._holds(node) if hold.owner not in (actor, AUTOMATION)]
        if not self._tried(self.ward.set, service, node, actor=actor):
            return
        assert Service(service) in (was, *LEGAL_MOVES[was])
        if service in ("draining", "quarantined", "maintenance", "repair"):
            self.asked[node, f"set:{actor}"] = None
        elif service in ("retired", "joining", "validating") and (was != service or service == "validating"):
            assert not others, "others' holds are theirs to end"
            self._forget(node)

    def _forget(self, node: str) -> None:
        self.asked = {key: expires for key, expires in self.asked.items() if key[0] != node}

    @rule(node=_nodes, is_passed=st.booleans())
    def tick(self, node: str, is_passed: bool) -> None:
        self._tried(self.ward.tick, "accepted", node, is_passed=is_passed)

    @rule(node=_nodes)
    def drained(self, node: str) -> None:
        self._tried(self.ward.drained, node)

    @rule(is_dismissed=st.booleans())
    def reset(self, is_dismissed: bool) -> None:
        self._tried(self.ward.reset, "cluster/tiger", is_dismissed=is_dismissed)

    @rule()
    def snapshot(self) -> None:
        self.ward.keeper.snapshot()

    # What always holds.

    @invariant()
    def never_an_illegal_move(self) -> None:
        for event in self.ward.keeper.ledger.store.events(after=self.seen):
            self.seen = event.revision
            change = KINDS.read(event)
            if isinstance(change, NodeMoved) and "service" in change.was:
                was = Service(change.was["service"])
                assert change.service in LEGAL_MOVES[was]
                assert change.service is not Service.IN_SERVICE or was is Service.VALIDATING
                assert event.reason or change.service is Service.IN_SERVICE, event
            if isinstance(change, HoldEnded):
                assert change.cause
                assert event.reason

    @invariant()
    def never_a_hold_lost_or_made_up(self) -> None:
        found = {(node, hold.id) for node in NODES for hold in self._holds(node) if hold.owner != AUTOMATION}
        assert found == set(self.asked)

    @invariant()
    def never_two_at_work(self) -> None:
        for node in NODES:
            leases = [hold for hold in self._holds(node) if hold.is_exclusive and not hold.is_expired(self.ward.now)]
            assert len(leases) <= 1

    @invariant()
    def never_healthy_and_silent(self) -> None:
        health = self.ward.health
        for node, feeds in health.covers.items():
            is_silent = any(health.feeds[feed].is_silent for feed in feeds)
            if is_silent and node in health.facts and self.ward.service(node) != "retired":
                assert health.facts[node].health != "healthy", node

    @invariant()
    def the_timeline_ends_where_the_node_is(self) -> None:
        health = self.ward.health
        for node in NODES:
            timeline = health.timelines.get(node)
            if timeline is not None and len(timeline):
                assert health.service_at(node, len(timeline) - 1) == self.ward.service(node)
                assert from_microseconds(timeline.moments()[-1]) <= self.ward.now + timedelta(seconds=1)


TestLives = Lives.TestCase
TestLives.settings = settings(stateful_step_count=25, report_multiple_bugs=False)
