"""A fleet whose health is watched: a clock that tests move, signals from builders, acts in one line."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Collection, Sequence, Set
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.health.acts import (
    Acting,
    Decision,
    Setting,
    holders,
    mark_drained,
    place_hold,
    release_hold,
    reset_breaker,
    set_service,
    tick_check,
)
from plimsoll.health.changes import NodeHistory, NodeMoved
from plimsoll.health.decide import Outcome
from plimsoll.health.facts import Facts, Hold
from plimsoll.health.fold import Health
from plimsoll.health.service import Observed, act, observe, put_policy_in_force, sweep_now
from plimsoll.health.signals import Signal, SignalKind
from plimsoll.health.sweep import Swept
from plimsoll.ledger import open_ledger
from plimsoll.ledger.model import Change, Draft, Event, EventFilter
from plimsoll.rooms import KINDS, SHEETS
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import IN_MEMORY, NOW

C = TypeVar("C", bound=Change)

POLICY = """\
policy: test
xid_profile: few
xid_profiles:
  few:
    quarantine: [79]
    degrade: [13]
    drain: [48]
    repair: [64]
    else: nothing
rules:
  - {signal: heartbeat, do: quarantine, lasting: 5m}
  - {signal: check, name: "mild-*", do: degrade}
  - {signal: check, do: quarantine, after: {count: 2, within: 30m}}
  - {signal: thermal, at_least: 100, do: quarantine, after: {count: 2, within: 10m}}
  - {signal: thermal, at_least: 90, do: degrade}
  - {signal: ecc, do: repair, owner: provider, returns_in: 3d}
  - {signal: provider, do: repair, owner: provider, returns_in: 2d}
  - {signal: scheduler, do: quarantine, lasting: 10m, owner: provider}
flapping: {times: 3, within: 2h, do: quarantine}
lemon: {exits: 3, within: 30d, do: repair}
degraded_for: 24h
settle: 10m
drain_at_most: 24h
silence: 15m
breakers:
  cluster: {share: 1, at_least: 1000, within: 1h}
  fleet: {share: 1, at_least: 1000, within: 1h}
validation:
  - {check: quiet, for: 10m}
  - {check: accepted, by: manual}
"""
"""Short, and with breakers that can't trip."""


def policy_with(old: str = "", new: str = "") -> str:
    """The test's policy with one text changed; the text must be there."""
    assert old in POLICY, f"{old!r} is not in the policy"
    return POLICY.replace(old, new, 1) if old else POLICY


def breakers(*, cluster: int = 1000, fleet: int = 1000, within: str = "1h") -> str:
    """The test's policy with breakers that allow so many exits."""
    text = policy_with(
        "cluster: {share: 1, at_least: 1000, within: 1h}",
        f"cluster: {{share: 0, at_least: {cluster}, within: {within}}}",
    )
    return text.replace(
        "fleet: {share: 1, at_least: 1000, within: 1h}", f"fleet: {{share: 0, at_least: {fleet}, within: {within}}}"
    )


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def signal(node: str = "n1", kind: str = "xid", name: str = "79", *, ago: float = 1, **fields: Any) -> Signal:
    """A bad signal of a minute before the tests' first moment, where not said otherwise."""
    return Signal(node, SignalKind(kind), NOW - minutes(ago), name, **fields)


class FactsNow(NamedTuple):
    """The three facts of a node and the ids of its holds."""

    health: str
    service: str
    owner: str
    holds: Set[str]


@functools.cache
def _folders() -> tempfile.TemporaryDirectory[str]:
    """Made when it is first needed: a process that only imports this and is killed leaves nothing behind."""
    return tempfile.TemporaryDirectory(prefix="plimsoll-fleets-")


@functools.lru_cache(maxsize=64)
def fleet_folder(rows: tuple[tuple[tuple[str, str], ...], ...]) -> Path:
    """A folder with these nodes in the clusters that they name, written once."""
    listed = [dict(each) for each in rows]
    clusters = [row("clusters", cluster=name) for name in sorted({each["cluster"] for each in listed})]
    return write_fleet(Path(tempfile.mkdtemp(dir=_folders().name)), clusters=clusters, nodes=listed)


class Ward:
    """Nodes under observation. `now` is what every clock shows; it moves by `wait` only."""

    def __init__(
        self,
        rows: Sequence[dict[str, str]] | int = 4,
        *,
        policy: str = POLICY,
        dsn: str = IN_MEMORY,
        is_ticking: bool = False,
    ) -> None:
        self.now = NOW
        self._step = timedelta(microseconds=1) if is_ticking else timedelta(0)
        self.keeper = Keeper(open_ledger(dsn, create=True, clock=self._clock), KINDS)
        if self.keeper.state().revision:
            return
        self.bring(nodes(rows) if isinstance(rows, int) else rows)
        if policy:
            put_policy_in_force(self.keeper, policy, source="test", actor="tester", reason="")

    def _clock(self) -> datetime:
        self.now += self._step
        return self.now

    def __enter__(self) -> Ward:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.keeper.close()

    def bring(self, rows: Sequence[dict[str, str]]) -> None:
        """Import these nodes; those not named stay as they are."""
        source = Source.of_path(fleet_folder(tuple(tuple(each.items()) for each in rows)), SHEETS)
        import_fleet(self.keeper, source, SHEETS, actor="importer", is_partial=True)

    def tell(self, name: str, service: str, *, ago: float) -> None:
        """A transition of the past, as `history.csv` tells it."""
        draft = Draft(NodeHistory(name, Service(service)), "", NOW - minutes(ago))
        self.keeper.commit([draft], actor="importer", read_at=None)

    def wait(self, minutes_passed: float) -> None:
        self.now += minutes(minutes_passed)

    # What is known.

    @property
    def state(self) -> State:
        return self.keeper.state()

    @property
    def health(self) -> Health:
        return self.state.of(Health)

    def node(self, name: str = "n1") -> Node:
        return self.state.of(Fleet).nodes[name]

    def facts(self, name: str = "n1") -> Facts:
        return self.health.facts_of(self.node(name))

    def holds(self, name: str = "n1") -> dict[str, Hold]:
        return {hold.id: hold for hold in self.health.holds.get(name, ())}

    def look(self, name: str = "n1") -> FactsNow:
        facts, node = self.facts(name), self.node(name)
        return FactsNow(str(facts.health), str(node.service), str(facts.owner), frozenset(self.holds(name)))

    def look_at_all(self) -> dict[str, FactsNow]:
        return {name: self.look(name) for name in sorted(self.state.of(Fleet).nodes)}

    def service(self, name: str = "n1") -> str:
        return str(self.node(name).service)

    def events(self, change: type[C]) -> list[tuple[Event, C]]:
        """The events of one kind, with their changes."""
        found = self.keeper.ledger.store.events(where=EventFilter(kind=change.kind))
        return [(event, KINDS.read(event)) for event in found]  # type: ignore[misc]

    def moves(self, name: str = "n1") -> list[tuple[str, str]]:
        """From where to where a node's service moved."""
        return [
            (change.was["service"], str(change.service))
            for _, change in self.events(NodeMoved)
            if change.node == name and "service" in change.was
        ]

    # What happens.

    def observe(self, *signals: Signal, feed: str = "feed", **options: Any) -> Observed:
        return observe(self.keeper, signals, feed=feed, actor="feeder", **options)

    def see(self, *signals: Signal, swept: Collection[str], feed: str = "sweeper", **options: Any) -> Observed:
        """A sweep of a feed: it has looked at all of these nodes."""
        return observe(self.keeper, signals, feed=feed, actor="feeder", swept=swept, **options)

    def sweep(self) -> Swept:
        return sweep_now(self.keeper, actor="sweeper")

    def act(
        self, decide: Callable[[State, Acting], Decision], names: Collection[str], *, actor: str = "ada", reason: str
    ) -> Outcome:
        return act(self.keeper, decide, actor=actor, reason=reason, names=names)[0]

    def _nodes(self, state: State, names: Sequence[str]) -> list[Node]:
        return [state.of(Fleet).nodes[name] for name in names]

    def hold(
        self, *names: str, hold_id: str = "h1", actor: str = "ada", service: str = "maintenance", **fields: Any
    ) -> Outcome:
        """A hold of `actor`, placed now, on these nodes (n1 where none is named)."""
        placed = names or ("n1",)
        placed_at = fields.pop("placed_at", self.now)
        reason = fields.pop("reason", f"work of {actor}")
        hold = Hold(hold_id, actor, Service(service), reason, placed_at, **fields)
        return self.act(
            lambda state, acting: place_hold(state, self._nodes(state, placed), hold, acting),
            placed,
            actor=actor,
            reason=hold.reason,
        )

    def release(
        self,
        hold_id: str = "h1",
        *,
        actor: str = "ada",
        names: Sequence[str] | None = None,
        at: datetime | None = None,
        is_forced: bool = False,
    ) -> Outcome:
        return self.act(
            lambda state, acting: release_hold(
                state, hold_id, acting, names=names, at=at or acting.now, is_forced=is_forced
            ),
            [node.id for node in holders(self.state, hold_id, names)],
            actor=actor,
            reason="done",
        )

    def set(self, service: str, *names: str, actor: str = "ada", reason: str = "because", **fields: Any) -> Outcome:
        setting, meant = Setting(Service(service), **fields), names or ("n1",)
        return self.act(
            lambda state, acting: set_service(state, self._nodes(state, meant), setting, acting),
            meant,
            actor=actor,
            reason=reason,
        )

    def tick(
        self,
        check: str = "accepted",
        *names: str,
        is_passed: bool = True,
        actor: str = "ada",
        may_pass: bool = True,
    ) -> Outcome:
        meant = names or ("n1",)
        return self.act(
            lambda state, acting: tick_check(
                state,
                self._nodes(state, meant),
                check,
                acting,
                is_passed=is_passed,
                detail="burn-in",
                may_pass=may_pass,
            ),
            meant,
            actor=actor,
            reason="burn-in",
        )

    def drained(self, *names: str) -> Outcome:
        meant = names or ("n1",)
        return self.act(lambda state, acting: mark_drained(state, meant, acting), meant, reason="empty")

    def reset(self, scope: str, *, is_dismissed: bool = False) -> Outcome:
        held = self.health.breakers[scope].nodes if scope in self.health.breakers else ()
        return self.act(
            lambda state, acting: reset_breaker(state, scope, acting, is_dismissed=is_dismissed),
            held,
            reason="looked at it",
        )

    def bring_back(self, *names: str) -> None:
        """The way back as a person takes it: validate, wait until it was quiet, accept."""
        self.set("validating", *names)
        self.wait(11)
        self.tick("accepted", *names)


# What child processes do.


def add_to_cursors(tell: Callable[[Any], None], dsn: str, name: str, rounds: int) -> None:
    """Each round adds one to a number that all have in common, and a line to a list, as a merge of samples does."""
    with open_ledger(dsn) as ledger:
        tell("ready")

        def change(found: dict[tuple[str, str], str]) -> dict[tuple[str, str], str | None]:
            count = int(found.get(("count", "all"), "0")) + 1
            lines = f"{found.get(('lines', 'all'), '')}{name} "
            return {("count", "all"): str(count), ("lines", "all"): lines, (f"own/{name}", "x"): str(count)}

        for _ in range(rounds):
            ledger.store.update_cursors(["count", "lines"], change)
    tell("done")


def observe_one_by_one(tell: Callable[[Any], None], dsn: str, signals: Sequence[Signal], now: datetime) -> None:
    """Takes signals in, each by itself, in a process of its own; tells the node of each that was acknowledged."""
    with Keeper(open_ledger(dsn, clock=lambda: now), KINDS) as keeper:
        tell("ready")
        for each in signals:
            observe(keeper, [each], feed="feed", actor="child")
            tell(each.node)
    tell("done")
