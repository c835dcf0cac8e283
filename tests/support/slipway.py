"""A slipway: clusters on their way into production, made by the real controller on a real ledger, with an outside that
the test moves by hand: steps that run until it says so, quota, and a clock.
"""

from __future__ import annotations

import shlex
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.connect.provider import ProviderTrouble
from plimsoll.errors import PlimsollError
from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Cluster, Node, Phase, Purpose, Service
from plimsoll.ledger.model import Change, Draft, Event
from plimsoll.lifecycle import desk
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import Condition, ConditionType, Going, Life, QuotaKey, Said, Spec, Work
from plimsoll.lifecycle.outside import (
    Found,
    Look,
    Looks,
    NodeFound,
    Order,
    Outside,
    SetFound,
    StepKey,
    UsageRead,
)
from plimsoll.lifecycle.recipe import Recipe
from plimsoll.lifecycle.recipe_file import read_recipe
from plimsoll.lifecycle.service import Did, run_pass, say
from plimsoll.quota.model import Kind, Tier
from plimsoll.rooms import KINDS, open_keeper
from plimsoll.state.state import State
from plimsoll.workloads.changes import WorkloadObserved
from plimsoll.workloads.model import Block, Part, Workload

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
H200 = "standardNDISRH200V5Family"
H100 = "standardNDSH100v5Family"
CORES = 96
"""Of a node of either SKU."""
QUICK_DISK = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
"""Where a ledger need not outlive the machine."""

SLIP = """\
recipe: slip
version: 1
asks: the yard
quota: {source: azure, settle: 10m}
steps:
  - {step: checkin, sets: CheckedIn, run: [checkin], within: 30m}
  - step: bootstrap
    sets: InfrastructureApplied
    needs: [checkin]
    build: {pipeline: bootstrap}
    within: 4h
    retry: {class: backoff, attempts: 3, first: 1m, most: 30m}
  - {step: scale-sets, sets: ScaleSetsReady, needs: [bootstrap], scale_sets: {group: g}, within: 4h}
  - {step: services, sets: ServicesDeployed, needs: [scale-sets], run: [services], within: 2h}
  - {step: dependencies, sets: DependenciesApplied, needs: [bootstrap], run: [dependencies], within: 2h, retry: person}
  - {step: burn-in, sets: HealthGreen, needs: [services], run: [burn-in], within: 12h}
validation: {healthy_share: 0.75, steady_for: 10m, filled_share: 1}
out:
  - {step: destroy, run: [destroy], within: 4h}
"""
"""Every kind of step once, and a retry of each class."""

BARE = """\
recipe: bare
version: 1
quota: {source: none}
steps:
  - {step: checkin, sets: CheckedIn}
  - {step: scale-sets, sets: ScaleSetsReady, needs: [checkin], run: [fill]}
validation: {healthy_share: 0.75, steady_for: 10m, filled_share: 1}
"""
"""The least that a recipe can be: a check-in that does nothing, machines, no checks, no quota, no way out."""

replace = msgspec.structs.replace


# Builders, for what is pure.


def recipe(text: str = SLIP, **changes: Any) -> Recipe:
    return replace(read_recipe(text, source="test"), **changes)


def spec(name: str = "lynx", **changes: Any) -> Spec:
    usual = Spec(name, "eastus", Area.US, "", "azure", Purpose.RESEARCH, "sub-a", "H200", 4, recipe="slip")
    return replace(usual, **changes)


def life(
    name: str = "lynx", *, at: datetime = START, uid: str = "", works: Iterable[Work] = (), **changes: Any
) -> Life:
    """A cluster that was planned at `at`. What is not a field of a life is one of its spec."""
    own = {key: value for key, value in changes.items() if key in Life.__struct_fields__}
    row = spec(name, **{key: value for key, value in changes.items() if key not in own})
    plain = Life(row, uid or f"u-{name}", 1, Said("ada", at), works={each.step: each for each in works})
    return replace(plain, **own)


def work(step: str, going: Going = Going.RUNNING, *, at: datetime = START, attempt: int = 1, **changes: Any) -> Work:
    plain = Work(step, going, attempt, f"u-lynx-{step}-{attempt}", at, at, at)
    ended = {"ended": at} if going is Going.DONE else {}
    return replace(plain, **{**ended, **changes})


def key(family: str = H200, *, subscription: str = "sub-a", region: str = "eastus") -> QuotaKey:
    return QuotaKey(subscription, region, family)


def usage(limit: int, used: int = 0, **place: Any) -> UsageRead:
    return UsageRead(key(**place), limit, used)


class MovableClock:
    """Shows what the test says."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def go(self, **span: float) -> datetime:
        self.now += timedelta(**span)
        return self.now


# The outside.


class Crash(BaseException):
    """The controller dies here."""


@dataclass
class Operation:
    """One attempt outside, running until the test says otherwise."""

    order: Order
    look: Look = field(default_factory=lambda: Look(Found.RUNNING))

    @property
    def key(self) -> StepKey:
        return self.order.key


Fault = PlimsollError | Crash


class Cloud:
    """All that is outside: operations by name, machines by cluster and set, quota, and what is to go wrong.

    `on_begin` is asked before something begins; `faults` are raised by the next call for a step, `late` ones after the
    operation was begun all the same.
    """

    def __init__(self) -> None:
        self.operations: dict[str, Operation] = {}
        self.calls: list[str] = []
        self.machines: dict[str, dict[str, int]] = {}
        self.cores: dict[str, tuple[QuotaKey, int]] = {}
        self.limits: dict[QuotaKey, int] = {}
        self.others: dict[QuotaKey, int] = {}
        self.bad_nodes: set[str] = set()
        self.names: dict[str, str] = {}
        """Another name for a machine than the usual one."""
        self.early: dict[StepKey, Fault] = {}
        self.late: dict[StepKey, Fault] = {}
        self.blind: dict[StepKey, ProviderTrouble] = {}
        self.quota_trouble: PlimsollError | None = None
        self.is_quick = False
        """What is begun is done at once."""
        self.on_begin: Callable[[Order], None] = lambda _order: None
        self._lock = threading.Lock()

    def latest(self, cluster: str, step: str) -> Operation:
        """The newest attempt of a step."""
        return [each for each in self.operations.values() if each.key == (cluster, step)][-1]

    def set(self, cluster: str, step: str, found: Found, reason: str = "", detail: str = "", **more: Any) -> None:
        """How an operation is from now on."""
        self.latest(cluster, step).look = Look(found, reason, detail, **more)

    def set_operation(self, operation: str, found: Found) -> None:
        self.operations[operation].look = Look(found)

    def finish(self, cluster: str, step: str) -> None:
        operation = self.latest(cluster, step)
        self._carry_out(operation.order)
        operation.look = Look(Found.DONE)

    def _carry_out(self, order: Order) -> None:
        sets = self.machines.setdefault(order.life.name, {})
        if order.step.sets is ConditionType.SCALE_SETS_READY:
            sets.update({wish.name: wish.nodes for wish in order.sets})
        if order.step in order.recipe.out:
            sets.clear()

    def fill(self, cluster: str, there: int) -> None:
        """So many machines are there, in the order of the sets."""
        wishes = self.latest(cluster, "scale-sets").order.sets
        sets = self.machines.setdefault(cluster, {})
        for wish in wishes:
            sets[wish.name] = min(there, wish.nodes)
            there -= sets[wish.name]

    def used(self, wanted: QuotaKey) -> int:
        ours = 0
        for cluster, sets in self.machines.items():
            place, cores = self.cores[cluster]
            total = replace(place, family="cores")
            ours += sum(sets.values()) * cores if wanted in (place, total) else 0
        return ours + self.others.get(wanted, 0)

    # As the controller sees it.

    def usages(self, _recipe: Recipe, subscription: str, region: str) -> Sequence[UsageRead]:
        if self.quota_trouble is not None:
            raise self.quota_trouble
        found = [each for each in self.limits if (each.subscription, each.region) == (subscription, region)]
        return [UsageRead(each, self.limits[each], self.used(each)) for each in found]

    def begin(self, order: Order) -> Look:
        with self._lock:
            self.on_begin(order)
            self.calls.append(order.operation)
            if (fault := self.early.pop(order.key, None)) is not None:
                raise fault
            if order.operation not in self.operations:
                machine = order.recipe.machines[order.life.spec.sku]
                place = key(machine.family, subscription=order.life.spec.subscription, region=order.life.spec.region)
                self.cores[order.life.name] = place, machine.cores
                self.operations[order.operation] = Operation(order)
                if self.is_quick:
                    self.finish(*order.key)
            if (fault := self.late.pop(order.key, None)) is not None:
                raise fault
            return self.show(order)

    def look(self, orders: Sequence[Order]) -> Looks:
        return {order.key: self.blind.get(order.key) or self.show(order) for order in orders}

    def show(self, order: Order) -> Look:
        operation = self.operations.get(order.operation)
        if operation is None:
            return Look(Found.ABSENT)
        look = operation.look
        if order.step.sets is ConditionType.SCALE_SETS_READY:
            there = self.machines.get(order.life.name, {})
            sets = tuple(SetFound(wish.name, there.get(wish.name, 0)) for wish in order.sets)
            named = [
                NodeFound(self._name(order, wish.first + number), wish.island)
                for wish in order.sets
                for number in range(min(wish.nodes, there.get(wish.name, 0)))
            ]
            return replace(look, sets=sets, nodes=tuple(named))
        if order.step.sets is ConditionType.HEALTH_GREEN and look.found is Found.DONE:
            names = [self._name(order, number + 1) for number in range(order.life.spec.nodes)]
            bad = self.bad_nodes
            return replace(look, nodes=tuple(NodeFound(name, "", name not in bad, "ecc") for name in names))
        return look

    def _name(self, order: Order, number: int) -> str:
        usual = f"{order.life.name}-{number:02d}"
        return self.names.get(usual, usual)


class Hand:
    """The provider of one kind of step: the cloud, seen from one place."""

    def __init__(self, cloud: Cloud, *, place: str = "", settle_seconds: float = 30.0) -> None:
        self._cloud, self.place, self.settle_seconds = cloud, place, settle_seconds

    def look(self, orders: Sequence[Order]) -> Looks:
        seen = self._cloud.look(orders)
        hidden = Look(Found.ELSEWHERE)
        return seen | {each.key: hidden for each in orders if each.place and each.place != self.place}

    def begin(self, order: Order) -> Look:
        return self._cloud.begin(order)


# The whole.


class Slip:
    """A ledger, a controller, and the outside."""

    def __init__(self, folder: Path | None = None, *, limit: int | None = 10_000) -> None:
        self._own = tempfile.TemporaryDirectory(dir=QUICK_DISK) if folder is None else None
        self.path = Path(self._own.name if self._own else str(folder)) / "slip.db"
        self.clock, self.cloud = MovableClock(), Cloud()
        self.place = "here"
        self.keeper = open_keeper(f"sqlite:///{self.path}", create=True, clock=self.clock)
        self.said = 0
        if limit is not None:
            self.cloud.limits[key()] = limit
        self.apply(SLIP)

    def close(self) -> None:
        self.keeper.close()
        if self._own is not None:
            self._own.cleanup()

    def __enter__(self) -> Slip:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def restart(self) -> None:
        """The controller starts anew, from what is in the database."""
        self.keeper.close()
        self.keeper = open_keeper(f"sqlite:///{self.path}", clock=self.clock)

    @property
    def state(self) -> State:
        return self.keeper.state()

    @property
    def lives(self) -> Lives:
        return self.state.of(Lives)

    def life(self, name: str = "lynx") -> Life:
        return self.lives.lives[name]

    def condition(self, kind: ConditionType, name: str = "lynx") -> Condition:
        return self.life(name).conditions[kind]

    def node(self, name: str) -> Node:
        return self.state.of(Fleet).nodes[name]

    def phase(self, name: str = "lynx") -> Phase:
        return self.state.of(Fleet).clusters[name].phase

    def events(self, after: int = 0) -> list[Event]:
        return list(self.keeper.ledger.store.events(after=after))

    def changes(self, after: int = 0) -> list[tuple[Event, Change]]:
        return [(event, KINDS.read(event)) for event in self.events(after)]

    def has_intent(self, operation: str) -> bool:
        """Whether the intent of an operation is on disk, seen by somebody else than the controller."""
        with closing(sqlite3.connect(self.path)) as connection:
            found = connection.execute(
                "SELECT count(*) FROM events WHERE kind = 'cluster.step_intended' AND payload LIKE ?",
                (f'%"operation":"{operation}"%',),
            )
            return bool(found.fetchone()[0])

    # What people do.

    def _say(self, decide: Callable[[State], Sequence[Draft]], why: str = "") -> None:
        say(self.keeper, lambda state, _now: (None, decide(state)), actor="ada", reason=why)

    def add(self, name: str = "lynx", **changes: Any) -> None:
        self.said += 1
        row, uid = spec(name, **changes), f"u{self.said}-{name}"
        self._say(lambda state: desk.plan(state, row, uid, Said("ada", self.clock())))

    def edit(self, name: str = "lynx", **changes: Any) -> None:
        self._say(lambda state: desk.respecify(state, self.life(name), replace(self.life(name).spec, **changes))[1])

    def check_in(self, name: str = "lynx") -> None:
        self._say(lambda _state: desk.check_in(self.life(name)))

    def pause(self, name: str = "lynx", why: str = "") -> None:
        self._say(lambda _state: desk.pause(self.life(name)), why)

    def resume(self, name: str = "lynx") -> None:
        self._say(lambda _state: desk.resume(self.life(name)))

    def retry(self, name: str = "lynx", step: str = "", *, is_lost: bool = False) -> None:
        self._say(lambda _state: desk.retry(self.life(name), self.recipe_of(name), step, is_lost=is_lost)[1])

    def waive(self, name: str = "lynx", step: str = "", why: str = "") -> None:
        self._say(lambda _state: desk.waive(self.life(name), self.recipe_of(name), step)[1], why)

    def retire(self, name: str = "lynx") -> None:
        self._say(lambda state: desk.leave(state, self.life(name), is_anyway=True))

    def apply(self, text: str) -> None:
        self._say(lambda state: desk.apply_recipe(state, recipe(text))[1])

    def migrate(self, name: str = "lynx", recipe: str = "") -> None:
        self._say(lambda state: desk.migrate(state, self.life(name), recipe, None)[1])

    def recipe_of(self, name: str) -> Recipe:
        return self.lives.recipe_of(self.life(name))

    # What happens.

    def record(self, *changes: Change) -> None:
        drafts = [Draft(change) for change in changes]
        self.keeper.commit(drafts, actor="import", read_at=None)

    def set_service(self, names: Iterable[str], service: Service) -> None:
        nodes = [self.node(name) for name in names]
        after = [replace(node, service=service, since=self.clock(), reason="xid 79") for node in nodes]
        self.record(*(NodeRecorded(node, {"service": "?"}) for node in after))

    def import_nodes(self, name: str = "lynx") -> None:
        """Nodes that nobody has named are entered by hand, as they come from a sheet."""
        row, machine = self.life(name).spec, self.recipe_of(name).machines[self.life(name).spec.sku]
        fields = name, f"{name}-i1", row.sku, machine.gpus, Service.IN_SERVICE
        self.record(*(NodeRecorded(Node(f"{name}-x{number}", *fields)) for number in range(row.nodes)))

    def record_cluster(self, name: str, phase: Phase) -> None:
        self.record(ClusterRecorded(Cluster(name, "eastus", Area.US, "", "", Purpose.RESEARCH, phase)))

    def observe_work(self, name: str = "lynx", *, nodes: tuple[str, ...] = ()) -> None:
        """Work of somebody is seen in a cluster; on which nodes, where that is known."""
        block = Block(f"{name}-i1", 8, nodes=tuple((node, 8) for node in nodes))
        part = Part(Kind.GANG, Tier.MID, 1, self.life(name).spec.sku, (block,))
        self.record(WorkloadObserved(Workload("train", "x", name, (part,))))

    @property
    def outside(self) -> Outside:
        hands = {"run": Hand(self.cloud, place=self.place), "build": Hand(self.cloud), "scale_sets": Hand(self.cloud)}
        return Outside(hands, self.cloud)

    def run(self, **span: float) -> list[Did]:
        """A pass, after so long."""
        self.clock.go(**span)
        return run_pass(self.keeper, self.outside)

    def idle(self) -> list[Event]:
        """What one more pass writes down."""
        before = self.state.revision
        self.run()
        return self.events(before)

    def finish(self, *steps: str, name: str = "lynx") -> None:
        """Steps end well, one after the other, each seen by a pass."""
        for step in steps:
            self.cloud.finish(name, step)
            self.run(minutes=1)

    def begin(self, name: str = "lynx", **changes: Any) -> None:
        """A cluster that is planned, checked in, and has begun."""
        self.add(name, **changes)
        self.check_in(name)
        self.run()

    def build(self, name: str = "lynx", **changes: Any) -> None:
        """A cluster whose steps are all done and whose nodes are in service, and that settles."""
        self.begin(name, **changes)
        self.finish("checkin", "bootstrap", "dependencies", "scale-sets", "services", "burn-in", name=name)

    def produce(self, name: str = "lynx", **changes: Any) -> None:
        """A cluster in production."""
        self.build(name, **changes)
        self.run(minutes=15)
        assert self.phase(name) is Phase.PRODUCTION, self.life(name).conditions


# What people are told to type.


def command_problem(text: str) -> str:
    """What the command line says of the first command that a next step names; empty where it understands it."""
    import typer

    from plimsoll.cli.main import root

    begin = text.find("plimsoll ")
    if begin < 0:
        return f"{text!r} names no command"
    named = text[begin:].split(";")[0].split(", ")[0]
    words = [word for word in shlex.split(named)[1:] if word != "…"]
    command: Any = typer.main.get_command(root)
    context: Any = None
    while True:
        try:
            context = command.make_context(words[0] if words else "", list(words), parent=context)
        except Exception as error:  # what the command line says of wrong words has no public class
            return f"{named!r}: {error}"
        words = [*context._protected_args, *context.args] if hasattr(command, "list_commands") else []
        if not words:
            return ""
        found = command.get_command(context, words[0])
        if found is None:
            return f"{named!r}: there is no {words[0]!r}"
        command, words = found, words[1:]
