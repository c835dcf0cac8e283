"""How events become what is known of health: timelines, facts, holds, feeds, breakers, the policy in force,
the work ahead.
"""

from __future__ import annotations

from datetime import datetime
from operator import lt

import msgspec

from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.health.changes import (
    BreakerReset,
    BreakerTripped,
    CheckTicked,
    ExitsCounted,
    FeedChanged,
    HoldEnded,
    HoldPlaced,
    NodeHistory,
    NodeMoved,
    NodeSteered,
    PolicyApplied,
    SignalsAnswered,
    WorkAnnounced,
    WorkWithdrawn,
)
from plimsoll.health.facts import WITHDRAWN, Facts, Hold, presumed_facts
from plimsoll.health.model import EMPTY_TIMELINE, WITHDRAWN_REASON, Ahead, Mark, Timeline, to_microseconds
from plimsoll.health.signals import RETENTION
from plimsoll.ledger.model import Event
from plimsoll.state.state import Room, State, Tables
from plimsoll.state.table import Journal, Table
from plimsoll.times import parse_time, show_time

FLEET_SCOPE = "fleet"
"""The breaker over all clusters."""


def cluster_scope(cluster: str) -> str:
    """The breaker of one cluster; no cluster's name can be taken for the fleet's."""
    return f"cluster/{cluster}"


class Feed(msgspec.Struct, frozen=True):
    """A source of signals: whether it is silent, and since when it is so."""

    name: str
    is_silent: bool
    since: datetime


class Tick(msgspec.Struct, frozen=True):
    """The last answer to a check of the validation."""

    check: str
    at: datetime
    is_passed: bool
    by: str
    detail: str = ""


class Tripped(msgspec.Struct, frozen=True):
    """A breaker that holds automation back until a person resets it."""

    scope: str
    since: datetime
    limit: int
    taken: int
    nodes: tuple[str, ...]


class Unheld(msgspec.Struct, frozen=True):
    """What a node was before its holds, and is again after them if it was out of service then.

    `is_exact`: nothing but withdrawals has ended a hold since, so even one that was in service goes straight back.
    """

    service: Service
    facts: Facts
    is_exact: bool = True


class _Dump(msgspec.Struct):
    marks: list[Mark]
    timelines: dict[str, Timeline]
    facts: dict[str, Facts]
    holds: dict[str, tuple[Hold, ...]]
    unheld: dict[str, Unheld]
    answered: dict[str, dict[str, int]]
    ticks: dict[str, tuple[Tick, ...]]
    feeds: dict[str, Feed]
    covers: dict[str, tuple[str, ...]]
    breakers: dict[str, Tripped]
    exits: dict[str, tuple[int, ...]]
    policies: dict[str, str]
    ahead: dict[str, Ahead]


class Health(Tables):
    """What worked when, and what is known now. Marks are numbered in the order in which they first appeared.

    `facts` holds the nodes that something was observed of; `facts_of` answers for all. `answered` is up to when the
    signals of a node ask for nothing: those of one problem, or all of them under "". `exits` are the moments at which
    automation took nodes out of service, by the scope of the breaker that counts them. `ahead` is announced work by its
    id; `ahead_of` is the same by node, what starts first first: it follows from `ahead` and is not saved.
    """

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.timelines: Table[str, Timeline] = Table(journal)
        self.marks: Table[int, Mark] = Table(journal)
        self.mark_numbers: Table[Mark, int] = Table(journal)
        self.facts: Table[str, Facts] = Table(journal)
        self.holds: Table[str, tuple[Hold, ...]] = Table(journal)
        self.unheld: Table[str, Unheld] = Table(journal)
        self.answered: Table[str, dict[str, int]] = Table(journal)
        self.ticks: Table[str, tuple[Tick, ...]] = Table(journal)
        self.feeds: Table[str, Feed] = Table(journal)
        self.covers: Table[str, tuple[str, ...]] = Table(journal)
        self.breakers: Table[str, Tripped] = Table(journal)
        self.exits: Table[str, tuple[int, ...]] = Table(journal)
        self.policies: Table[str, str] = Table(journal)
        self.ahead: Table[str, Ahead] = Table(journal)
        self.ahead_of: Table[str, tuple[Ahead, ...]] = Table(journal)

    def facts_of(self, node: Node) -> Facts:
        """What is known of a node, or what its import lets us presume."""
        return self.facts.get(node.id) or presumed_facts(node)

    def answer(self, node: str, until: int, *, signal: str = "") -> None:
        """The signals of a node up to a moment ask for nothing more."""
        before = self.answered.get(node, {})
        self.answered.put(node, before | {signal: max(before.get(signal, 0), until)})

    def mark_number(self, mark: Mark) -> int:
        """The number of a mark; a new one gets the next number."""
        number = self.mark_numbers.get(mark)
        if number is None:
            number = len(self.marks)
            self.marks.put(number, mark)
            self.mark_numbers.put(mark, number)
        return number

    def add(self, node: str, moment: int, mark: Mark) -> None:
        """Enter a transition; one of the same moment, service and reason is replaced."""
        timeline = self.timelines.get(node, EMPTY_TIMELINE)
        number = self.mark_numbers.get(mark)
        if number is None:
            number = self.mark_number(mark)
        if not timeline.is_past(moment):
            self.timelines.put(node, timeline.with_last(moment, number))
            return
        others = [other for other in timeline.marks_at(moment) if self.marks[other].order != mark.order]
        numbers = sorted([*others, number], key=lambda each: self.marks[each].order)
        self.timelines.put(node, timeline.with_marks_at(moment, numbers))

    def add_all(self, node: str, entries: list[int]) -> None:
        """Enter transitions, given as moment, mark number, moment, mark number, …"""
        timeline, moments = self.timelines.get(node, EMPTY_TIMELINE), entries[::2]
        if not timeline.is_past(moments[0]) and all(map(lt, moments, moments[1:])):
            self.timelines.put(node, timeline.with_all_last(entries))
            return
        for moment, number in zip(moments, entries[1::2], strict=True):
            self.add(node, moment, self.marks[number])

    def find(self, node: str, moment: int, service: Service, reason: str) -> Mark | None:
        """The mark of this transition, if the timeline holds it already."""
        timeline = self.timelines.get(node)
        if timeline is None:
            return None
        marks = (self.marks[number] for number in timeline.marks_at(moment))
        return next((mark for mark in marks if mark.service is service and mark.reason == reason), None)

    def service_at(self, node: str, place: int) -> Service:
        """What a node went to in an entry of its timeline."""
        return self.marks[self.timelines[node].mark_numbers()[place]].service

    def add_ahead(self, ahead: Ahead) -> None:
        """Enter announced work, in place of what had its id."""
        if ahead.id in self.ahead:
            self.drop_ahead(ahead.id)
        self.ahead.put(ahead.id, ahead)
        self._index_ahead(ahead)

    def drop_ahead(self, work: str) -> None:
        """Strike announced work out."""
        for node in self.ahead[work].nodes:
            left = tuple(each for each in self.ahead_of[node] if each.id != work)
            if left:
                self.ahead_of.put(node, left)
            else:
                self.ahead_of.drop(node)
        self.ahead.drop(work)

    def _index_ahead(self, ahead: Ahead) -> None:
        alone = (ahead,)  # one for all: nearly every node of a campaign has this work only
        for node in ahead.nodes:
            others = self.ahead_of.get(node)
            works = alone if others is None else tuple(sorted((*others, ahead), key=_order))
            self.ahead_of.put(node, works)

    def dump(self) -> bytes:
        marks = [self.marks[number] for number in range(len(self.marks))]
        tables = [dict(sorted(getattr(self, name).items())) for name in _Dump.__struct_fields__[1:]]
        return msgspec.msgpack.encode(_Dump(marks, *tables))

    def load(self, body: bytes) -> None:
        dump = msgspec.msgpack.decode(body, type=_Dump)
        for mark in dump.marks:
            self.mark_number(mark)
        for name in _Dump.__struct_fields__[1:]:
            table = getattr(self, name)
            for key, value in getattr(dump, name).items():
                table.put(key, value)
        for ahead in dump.ahead.values():
            self._index_ahead(ahead)


def _order(ahead: Ahead) -> tuple[datetime, str]:
    return ahead.order


ROOM = Room("health", version=3, tables=Health)


@ROOM.folds_change(NodeHistory)
def _fold_history(state: State, change: NodeHistory, event: Event) -> None:
    labels = tuple(sorted(change.labels.items())) if change.labels else ()
    moment = to_microseconds(datetime.fromisoformat(event.effective_at))
    state.of(Health).add(change.node, moment, Mark(change.service, change.reason, labels))


@ROOM.folds_run(NodeHistory)
def _fold_histories(state: State, changes: list[NodeHistory], events: list[Event]) -> None:
    """A whole past at once: the entries of a node that follow its timeline are packed together."""
    health = state.of(Health)
    numbers = health.mark_numbers
    told: dict[str, list[int]] = {}
    for change, event in zip(changes, events, strict=True):
        mark = Mark(change.service, change.reason, tuple(sorted(change.labels.items())) if change.labels else ())
        number = numbers.get(mark)
        if number is None:
            number = health.mark_number(mark)
        moment = to_microseconds(datetime.fromisoformat(event.effective_at))
        entries = told.get(change.node)
        if entries is None:
            told[change.node] = [moment, number]
        else:
            entries += (moment, number)
    for node, entries in told.items():
        health.add_all(node, entries)


@ROOM.folds_change(NodeRecorded)
def _fold_recorded(state: State, change: NodeRecorded, event: Event) -> None:
    """A service that changed is a transition at the event's own moment: whoever recorded it has judged `since`.

    A node that is out of service says since when, also where only that is new: so the timeline does not depend on how
    many imports it took to say it. But something later that is known already stays the last word.
    """
    node = change.node
    is_out = node.service is not Service.IN_SERVICE
    if not change.was and not is_out:
        return  # a new node that works: nearly all of an import
    health = state.of(Health)
    if "service" in change.was:
        _forget_facts(health, change, event)
        moment, is_assumed = event.effective_time, node.since != event.effective_time
    elif is_out and (node.since is not None or not change.was):
        moment, is_assumed = node.since or event.effective_time, node.since is None
        if change.was and health.timelines.get(node.id, EMPTY_TIMELINE).is_past(to_microseconds(moment) + 1):
            return
    else:
        return
    if health.find(node.id, to_microseconds(moment), node.service, node.reason) is None:
        health.add(node.id, to_microseconds(moment), Mark(node.service, node.reason, is_assumed=is_assumed))


def _forget_facts(health: Health, change: NodeRecorded, event: Event) -> None:
    """Somebody says that a node is elsewhere than we had it: what we knew of it was about something else.

    Its holds stay, and so do the signals that ask for them; without any, being in service answers what came before.
    """
    node = change.node
    if node.id in health.facts:
        health.facts.drop(node.id)
    if node.id in health.unheld:
        health.unheld.put(node.id, Unheld(node.service, presumed_facts(node)))
    if change.was["service"] == Service.IN_SERVICE and "" not in health.answered.get(node.id, {}):
        since = change.was["since"] if "since" in change.was else show_time(node.since)
        health.answer(node.id, to_microseconds(parse_time(since)) if since else 0)
    if node.service is Service.IN_SERVICE and node.id not in health.holds:
        health.answer(node.id, to_microseconds(event.effective_time))


@ROOM.folds_change(NodeMoved)
def _fold_moved(state: State, change: NodeMoved, event: Event) -> None:
    """The three facts. A service that changed is an entry of the timeline, and shows in the fleet's own counts."""
    health, fleet = state.of(Health), state.of(Fleet)
    health.facts.put(change.node, change.facts)
    node, moment = fleet.nodes[change.node], event.effective_time
    if "service" not in change.was:
        if "why" in change.was:
            fleet.put_node(msgspec.structs.replace(node, reason=change.facts.why))
            health.add(node.id, to_microseconds(moment), Mark(change.service, change.facts.why))
        return
    is_in = change.service is Service.IN_SERVICE
    reason = "" if is_in else change.facts.why
    fleet.put_node(msgspec.structs.replace(node, service=change.service, since=moment, reason=reason))
    mark = Mark(change.service, f"{WITHDRAWN_REASON} {change.facts.why}" if change.is_withdrawal else reason)
    health.add(node.id, to_microseconds(moment), mark)
    if is_in and not change.is_withdrawal:
        health.answer(node.id, to_microseconds(moment))
    elif node.service is Service.IN_SERVICE and "" not in health.answered.get(node.id, {}):
        health.answer(node.id, to_microseconds(node.since) if node.since else 0)
    if node.id in health.ticks and change.service is not Service.VALIDATING:
        health.ticks.drop(node.id)


@ROOM.folds_change(HoldPlaced)
def _fold_hold(state: State, change: HoldPlaced, _event: Event) -> None:
    health = state.of(Health)
    if change.node not in health.holds:
        node = state.of(Fleet).nodes[change.node]
        health.unheld.put(node.id, Unheld(node.service, health.facts_of(node)))
    others = (hold for hold in health.holds.get(change.node, ()) if hold.id != change.hold.id)
    health.holds.put(change.node, (*others, change.hold))


@ROOM.folds_change(HoldEnded)
def _fold_hold_ended(state: State, change: HoldEnded, _event: Event) -> None:
    health = state.of(Health)
    left = tuple(hold for hold in health.holds.get(change.node, ()) if hold.id != change.hold)
    if left:
        health.holds.put(change.node, left)
    elif change.node in health.holds:
        health.holds.drop(change.node)
    before = health.unheld.get(change.node)
    if before is not None and not left:
        health.unheld.drop(change.node)
    elif before is not None and change.cause != WITHDRAWN:
        health.unheld.put(change.node, msgspec.structs.replace(before, is_exact=False))


@ROOM.folds_change(SignalsAnswered)
def _fold_answered(state: State, change: SignalsAnswered, _event: Event) -> None:
    state.of(Health).answer(change.node, to_microseconds(change.until), signal=change.signal)


@ROOM.folds_change(CheckTicked)
def _fold_tick(state: State, change: CheckTicked, event: Event) -> None:
    ticks = state.of(Health).ticks
    tick = Tick(change.check, event.effective_time, change.is_passed, event.actor, change.detail)
    others = (each for each in ticks.get(change.node, ()) if each.check != change.check)
    ticks.put(change.node, (*others, tick))


@ROOM.folds_change(FeedChanged)
def _fold_feed(state: State, change: FeedChanged, event: Event) -> None:
    health = state.of(Health)
    known = health.feeds.get(change.feed)
    is_news = known is None or known.is_silent is not change.is_silent
    since = event.effective_time if is_news or known is None else known.since
    health.feeds.put(change.feed, Feed(change.feed, change.is_silent, since))
    for node in change.joined:
        health.covers.put(node, tuple(sorted({*health.covers.get(node, ()), change.feed})))
    for node in change.left:
        left = tuple(feed for feed in health.covers.get(node, ()) if feed != change.feed)
        if left:
            health.covers.put(node, left)
        elif node in health.covers:
            health.covers.drop(node)


@ROOM.folds_change(ExitsCounted)
def _fold_exits(state: State, change: ExitsCounted, event: Event) -> None:
    exits, now = state.of(Health).exits, event.recorded_time
    oldest = to_microseconds(now - RETENTION)
    recent = (at for at in exits.get(change.scope, ()) if at > oldest)
    exits.put(change.scope, (*recent, *[to_microseconds(now)] * change.taken))


@ROOM.folds_change(BreakerTripped)
def _fold_tripped(state: State, change: BreakerTripped, event: Event) -> None:
    breakers = state.of(Health).breakers
    known = breakers.get(change.scope)
    since = known.since if known else event.effective_time
    nodes = tuple(sorted(change.nodes))
    breakers.put(change.scope, Tripped(change.scope, since, change.limit, change.taken, nodes))


@ROOM.folds_change(BreakerReset)
def _fold_reset(state: State, change: BreakerReset, _event: Event) -> None:
    """The count begins anew: a person has looked at what was taken out so far."""
    health = state.of(Health)
    if change.scope in health.breakers:
        health.breakers.drop(change.scope)
    if change.scope in health.exits:
        health.exits.drop(change.scope)


@ROOM.folds_change(PolicyApplied)
def _fold_policy(state: State, change: PolicyApplied, _event: Event) -> None:
    state.of(Health).policies.put("policy", change.text)


@ROOM.folds_change(NodeSteered)
def _fold_steered(_state: State, _change: NodeSteered, _event: Event) -> None:
    """Nothing: what a scheduler does is looked up there. The event says that it was our doing."""


@ROOM.folds_change(WorkAnnounced)
def _fold_announced(state: State, change: WorkAnnounced, _event: Event) -> None:
    state.of(Health).add_ahead(change.ahead)


@ROOM.folds_change(WorkWithdrawn)
def _fold_withdrawn(state: State, change: WorkWithdrawn, _event: Event) -> None:
    health = state.of(Health)
    if change.work in health.ahead:
        health.drop_ahead(change.work)
