"""Never the same cores twice, never out of turn, never begun unasked, never a lie about a cluster.

One random machine does what people, providers, hardware, crashes and clocks do to a few clusters that share quota. An
independent reader follows the ledger, event by event, and judges every promise and every call at the moment it was
made. In the end all goes well, and every cluster must come to its end.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing, suppress
from datetime import timedelta
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.errors import PlimsollError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.lifecycle.model import ConditionType, Going
from plimsoll.lifecycle.outside import Found, Order
from plimsoll.lifecycle.reasons import Reason
from plimsoll.lifecycle.view import sentence
from tests.support.lifecycle_model import Reader, check_begin, check_promises
from tests.support.slipway import BARE, CORES, H100, H200, SLIP, START, Crash, Slip, key

NAMES = ["ant", "bee", "cat", "dog"]
LINKED = (
    SLIP.replace("recipe: slip", "recipe: linked")
    .replace("needs: [scale-sets]", "needs: [scale-sets, {cluster: ant, reaches: provisioned}]")
    .replace("needs: [services]", "needs: [services, {cluster: bee, reaches: ServicesDeployed}]")
)
QUICK = BARE.replace("source: none", "source: azure").replace("recipe: bare", "recipe: quick")
NEWER = SLIP.replace("version: 1", "version: 2").replace(
    "validation:", "  - {step: dns, sets: DependenciesApplied, needs: [bootstrap], run: [dns]}\nvalidation:"
)
STEPS = ["checkin", "bootstrap", "scale-sets", "services", "dependencies", "burn-in", "dns", "destroy"]
END_PASSES_MAX = 60

_names = st.sampled_from(NAMES)
_steps = st.sampled_from(STEPS)
_picks = st.integers(0, 30)
_sizes = st.integers(1, 4)
_spans = st.sampled_from([0, 1, 1, 5, 20, 90])


def _trouble(kind: TroubleKind, *, is_lost: bool = False) -> ProviderTrouble:
    return ProviderTrouble("t", "it said no", kind=kind, next_step="az login", may_have_happened=is_lost)


class Begun(NamedTuple):
    """A call that was made, and the last event that was on disk at that moment."""

    order: Order
    revision: int
    still_running: tuple[str, ...]


class Yard(RuleBasedStateMachine):
    """Up to four clusters, two subscriptions, two families, and a clock that goes both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.slip = Slip(limit=None)
        self.reader = Reader()
        self.begun: list[Begun] = []
        self.given_up: set[str] = set()
        """Attempts of which a person said that they do not run."""
        self.latest = START
        self.slip.cloud.on_begin = self._on_begin
        for text in (LINKED, QUICK, BARE):
            self.slip.apply(text)

    @initialize(h200=st.integers(0, 10), h100=st.integers(0, 6), total=st.sampled_from([None, 4, 8, 12]))
    def _start(self, h200: int, h100: int, total: int | None) -> None:
        self._limit(H200, h200)
        self._limit(H100, h100)
        if total is not None:
            self._limit("cores", total)
        self._limit(H200, 8, subscription="sub-b")

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self._all_goes_well()
        finally:
            self.slip.close()

    # What is seen of it.

    def _on_begin(self, order: Order) -> None:
        with closing(sqlite3.connect(self.slip.path)) as connection:
            (revision,) = connection.execute("SELECT max(revision) FROM events").fetchone()
        assert self.slip.has_intent(order.operation), f"{order.operation} begins, and nobody has written that down"
        running = tuple(
            operation
            for operation, each in self.slip.cloud.operations.items()
            if each.key == order.key
            and operation != order.operation
            and each.look.found in (Found.RUNNING, Found.BLOCKED)
            and operation not in self.given_up
        )
        self.begun.append(Begun(order, revision, running))

    def _follow(self) -> None:
        """Read what was written since, judging each call where it stands."""
        calls, self.begun = sorted(self.begun, key=lambda each: each.revision), []
        promised = []
        for event, change in self.slip.changes(self.reader.revision):
            while calls and calls[0].revision < event.revision:
                self._judge(calls.pop(0))
            if self.reader.read(event, change, self.slip.lives.recipes):
                promised.append(event.subject.removeprefix("cluster/"))
        for call in calls:
            self._judge(call)
        if promised:
            check_promises(self.reader, promised, self.slip.cloud)

    def _judge(self, call: Begun) -> None:
        assert not call.still_running, f"{call.order.operation} begins beside {call.still_running}"
        check_begin(self.reader, call.order)

    def _act(self, act: object, *arguments: object, **named: object) -> None:
        """What a person says may be refused, and then nothing has happened."""
        with suppress(PlimsollError):
            act(*arguments, **named)  # type: ignore[operator]
        self._follow()

    def _pass(self, **span: float) -> bool:
        """One pass; whether it came to its end."""
        try:
            self.slip.run(**span)
        except Crash:
            self.slip.restart()
            self._follow()
            return False
        finally:
            self.latest = max(self.latest, self.slip.clock())
        self._follow()
        self.reader.check_settled(self.slip.state)
        return True

    def _limit(self, family: str, nodes: int, *, subscription: str = "sub-a") -> None:
        self.slip.cloud.limits[key(family, subscription=subscription)] = nodes * CORES

    # People.

    @precondition(lambda self: len(self.reader.clusters) < len(NAMES))
    @rule(
        nodes=_sizes,
        sku=st.sampled_from(["H200", "H200", "H100"]),
        subscription=st.sampled_from(["sub-a", "sub-a", "sub-b"]),
        recipe=st.sampled_from(["slip", "slip", "slip", "linked", "quick", "bare"]),
        days=st.sampled_from([None, None, 1, 2]),
        is_checked_in=st.booleans(),
    )
    def add(self, nodes: int, sku: str, subscription: str, recipe: str, days: int | None, is_checked_in: bool) -> None:
        wanted = None if days is None else START + timedelta(days=days)
        islands = 2 if nodes > 2 else 1
        name = NAMES[len(self.reader.clusters)]
        self._act(
            self.slip.add,
            name,
            nodes=nodes,
            islands=islands,
            sku=sku,
            subscription=subscription,
            recipe=recipe,
            wanted=wanted,
        )
        if is_checked_in:
            self.check_in(name)
        self._pass(seconds=1)

    @rule(name=_names)
    def check_in(self, name: str) -> None:
        if name in self.reader.clusters:
            self._act(self.slip.check_in, name)

    @rule(
        name=_names,
        changes=st.fixed_dictionaries(
            {},
            optional={
                "nodes": _sizes,
                "sku": st.sampled_from(["H100", "H200"]),
                "subscription": st.sampled_from(["sub-a", "sub-b"]),
                "owner": st.sampled_from(["ada", "grace"]),
                "recipe": st.sampled_from(["slip", "quick", "bare"]),
                "wanted": st.sampled_from([None, START, START + timedelta(days=3)]),
            },
        ),
    )
    def edit(self, name: str, changes: dict[str, object]) -> None:
        if name in self.reader.clusters:
            self._act(self.slip.edit, name, **changes)

    @rule(name=_names, is_paused=st.booleans())
    def pause(self, name: str, is_paused: bool) -> None:
        if name in self.reader.clusters:
            self._act(self.slip.pause if is_paused else self.slip.resume, name)

    @rule(name=_names, step=st.sampled_from(["", *STEPS]), is_lost=st.sampled_from([False, False, True]))
    def retry(self, name: str, step: str, is_lost: bool) -> None:
        if name in self.reader.clusters:
            self._retry(name, step, is_lost=is_lost)

    def _retry(self, name: str, step: str, *, is_lost: bool) -> None:
        work = self.slip.life(name).work(step)
        if is_lost and work is not None and work.going.is_outside:
            self.given_up.add(work.operation)
        self._act(self.slip.retry, name, step, is_lost=is_lost)

    @rule(name=_names, step=_steps)
    def waive(self, name: str, step: str) -> None:
        if name in self.reader.clusters:
            self._act(self.slip.waive, name, step)

    @rule(name=_names)
    def retire(self, name: str) -> None:
        if name in self.reader.clusters:
            self._act(self.slip.retire, name)
            self._pass()

    @rule()
    def new_recipe(self) -> None:
        self._act(self.slip.apply, NEWER)

    @rule(name=_names)
    def migrate(self, name: str) -> None:
        if name in self.reader.clusters:
            self._act(self.slip.migrate, name)

    # Providers.

    @rule(
        family=st.sampled_from([H200, H200, H100, "cores"]),
        nodes=st.integers(0, 14),
        subscription=st.sampled_from(["sub-a", "sub-a", "sub-b"]),
    )
    def move_limit(self, family: str, nodes: int, subscription: str) -> None:
        if family == "cores" and key("cores") not in self.slip.cloud.limits:
            return  # a region is counted as a whole, or it is not
        self._limit(family, nodes, subscription=subscription if family != "cores" else "sub-a")

    @rule(family=st.sampled_from([H200, H100]), nodes=st.integers(0, 3))
    def others_use(self, family: str, nodes: int) -> None:
        cloud = self.slip.cloud
        before = cloud.others.get(key(family), 0)
        cloud.others[key(family)] = nodes * CORES
        cloud.others[key("cores")] = cloud.others.get(key("cores"), 0) - before + nodes * CORES

    @rule(pick=_picks, found=st.sampled_from([Found.DONE, Found.DONE, Found.DONE, *Found]), minutes=_spans)
    def outside_moves(self, pick: int, found: Found, minutes: int) -> None:
        """An operation ends, fails, is blocked, is cancelled, is gone, and somebody looks."""
        running = [
            operation
            for operation, each in self.slip.cloud.operations.items()
            if each.look.found in (Found.RUNNING, Found.BLOCKED)
        ]
        if not running:
            return
        operation = running[pick % len(running)]
        each = self.slip.cloud.operations[operation]
        if found is Found.ABSENT:
            del self.slip.cloud.operations[operation]
        elif found is Found.DONE:
            self.slip.cloud._carry_out(each.order)
            self.slip.cloud.set_operation(operation, Found.DONE)
        elif found is not Found.ELSEWHERE:
            self.slip.cloud.set_operation(operation, found)
        self._pass(minutes=minutes)

    @rule(name=_names, there=st.integers(0, 4))
    def fill(self, name: str, there: int) -> None:
        """Machines come, and go again; those of a cluster in production are not asked for any more."""
        cluster = self.reader.clusters.get(name)
        if cluster is None or cluster.is_available or cluster.is_leaving:
            return
        with suppress(IndexError):
            self.slip.cloud.fill(name, there)
        self._pass(minutes=1)

    @rule(
        name=_names,
        step=_steps,
        fault=st.sampled_from(
            [
                *(_trouble(kind) for kind in TroubleKind),
                _trouble(TroubleKind.UNREACHABLE, is_lost=True),
                Crash(),
            ]
        ),
        is_late=st.booleans(),
    )
    def go_wrong(self, name: str, step: str, fault: ProviderTrouble | Crash, is_late: bool) -> None:
        """The next call for a step fails, or it is made and nobody hears of it."""
        if is_late and (isinstance(fault, Crash) or fault.may_have_happened):
            self.slip.cloud.late[name, step] = fault
        else:
            self.slip.cloud.early[name, step] = fault

    @rule(name=_names, step=_steps, kind=st.sampled_from([None, *TroubleKind]))
    def look_away(self, name: str, step: str, kind: TroubleKind | None) -> None:
        self.slip.cloud.blind.pop((name, step), None)
        if kind is not None:
            self.slip.cloud.blind[name, step] = _trouble(kind)

    @rule(kind=st.sampled_from([None, None, *TroubleKind]))
    def hide_quota(self, kind: TroubleKind | None) -> None:
        self.slip.cloud.quota_trouble = None if kind is None else _trouble(kind)

    # Hardware.

    @rule(
        name=_names,
        count=_sizes,
        service=st.sampled_from([Service.IN_SERVICE, Service.IN_SERVICE, Service.QUARANTINED, Service.REPAIR]),
    )
    def health_moves(self, name: str, count: int, service: Service) -> None:
        self._set_service(name, count, service)
        self._pass(minutes=1)

    def _set_service(self, name: str, count: int, service: Service) -> None:
        cluster = self.reader.clusters.get(name)
        if cluster is None or cluster.is_leaving:
            return
        nodes = sorted(
            node.id
            for node in self.slip.state.of(Fleet).nodes.values()
            if node.cluster == name and node.service not in (service, Service.JOINING, Service.RETIRED)
        )
        if nodes:
            self.slip.set_service(nodes[:count], service)
            self._follow()

    # The controller and time.

    @rule(minutes=_spans)
    def run(self, minutes: int) -> None:
        self._pass(minutes=minutes)

    @rule(minutes=_spans)
    def run_again(self, minutes: int) -> None:
        """A pass leaves nothing for a second one at the same moment, but what its own calls have begun unheard."""
        is_heard = not self.slip.cloud.late and not self.slip.cloud.early
        if not self._pass(minutes=minutes):
            return
        if not is_heard:
            self._pass()
        written = self.slip.idle()
        assert not written, f"nothing has changed, and this was written: {written}"
        self._follow()

    @rule()
    def restart(self) -> None:
        before = self.slip.lives.dump()
        self.slip.restart()
        assert self.slip.lives.dump() == before, "another state after a restart"

    @rule()
    def move_house(self) -> None:
        """The controller runs on another machine now."""
        self.slip.place = "there" if self.slip.place == "here" else "here"
        self.slip.restart()

    @rule(hours=st.sampled_from([-72, -1, 1, 5, 72]))
    def set_clock(self, hours: int) -> None:
        self.slip.clock.go(hours=hours)
        self._pass()

    # In the end.

    def _all_goes_well(self) -> None:
        """Everything outside works, there is quota, and people do what they are asked to: all comes to its end."""
        cloud = self.slip.cloud
        cloud.quota_trouble = None
        for faults in (cloud.blind, cloud.early, cloud.late):
            faults.clear()
        for subscription in ("sub-a", "sub-b"):
            for family in (H100, H200):
                self._limit(family, 1_000, subscription=subscription)
        if key("cores") in cloud.limits:
            self._limit("cores", 2_000)
        for name in self.reader.clusters:
            self._act(self.slip.resume, name)
            self._act(self.slip.check_in, name)
        for _ in range(END_PASSES_MAX):
            if all(cluster.is_over for cluster in self.reader.clusters.values()):
                return
            self._help()
            assert self._pass(minutes=20)
        left = [each for each in self.reader.clusters.values() if not each.is_over]
        now = self.slip.clock()
        told = [(sentence(self.slip.life(each.name), now), each.going, each.is_leaving) for each in left]
        raise AssertionError(f"not at its end after {END_PASSES_MAX} passes: {told}")

    def _help(self) -> None:
        for operation, each in self.slip.cloud.operations.items():
            if each.look.found in (Found.RUNNING, Found.BLOCKED):
                self.slip.cloud._carry_out(each.order)
                self.slip.cloud.set_operation(operation, Found.DONE)
        for name in self.reader.clusters:
            self._set_service(name, 9, Service.IN_SERVICE)
            life = self.slip.life(name)
            for work in life.works.values():
                if work.going is Going.STUCK or work.reason == Reason.RUNS_ELSEWHERE.code:
                    self._retry(name, work.step, is_lost=True)
            if life.conditions[ConditionType.HEALTH_GREEN].reason == Reason.NODES_MISSING.code:
                self.slip.import_nodes(name)
            waits = (Reason.WAITING_FOR_CLUSTER.code, Reason.WAITING_IN_CIRCLE.code)
            for condition in life.conditions.values():
                if condition.reason in waits:
                    step = condition.message.split()[0]
                    step = condition.next_step.split()[-1] if condition.reason == waits[1] else step
                    self._act(self.slip.waive, name, step)


TestYard = Yard.TestCase
TestYard.settings = settings(
    max_examples=2_000 if os.environ.get("PLIMSOLL_SOAK") else 40, stateful_step_count=40, report_multiple_bugs=False
)
