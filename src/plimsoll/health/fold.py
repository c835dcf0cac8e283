"""How events become timelines: past transitions as told, and every change of a node's service as it is recorded."""

from __future__ import annotations

from datetime import datetime
from operator import lt

import msgspec

from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.model import Service
from plimsoll.health.changes import NodeHistory
from plimsoll.health.model import EMPTY_TIMELINE, Mark, Timeline, to_microseconds
from plimsoll.ledger.model import Event
from plimsoll.state.state import Room, State, Tables
from plimsoll.state.table import Journal, Table


class _Dump(msgspec.Struct):
    marks: list[Mark]
    timelines: dict[str, Timeline]


class Health(Tables):
    """What worked when. Marks are numbered in the order in which they first appeared."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.timelines: Table[str, Timeline] = Table(journal)
        self.marks: Table[int, Mark] = Table(journal)
        self.mark_numbers: Table[Mark, int] = Table(journal)

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

    def dump(self) -> bytes:
        marks = [self.marks[number] for number in range(len(self.marks))]
        return msgspec.msgpack.encode(_Dump(marks, dict(sorted(self.timelines.items()))))

    def load(self, body: bytes) -> None:
        dump = msgspec.msgpack.decode(body, type=_Dump)
        for mark in dump.marks:
            self.mark_number(mark)
        for node, timeline in dump.timelines.items():
            self.timelines.put(node, timeline)


ROOM = Room("health", version=1, tables=Health)


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
    node, health = change.node, state.of(Health)
    is_out = node.service is not Service.IN_SERVICE
    if "service" in change.was:
        moment, is_assumed = event.effective_time, node.since != event.effective_time
    elif is_out and (node.since is not None or not change.was):
        moment, is_assumed = node.since or event.effective_time, node.since is None
        if change.was and health.timelines.get(node.id, EMPTY_TIMELINE).is_past(to_microseconds(moment) + 1):
            return
    else:
        return
    if health.find(node.id, to_microseconds(moment), node.service, node.reason) is None:
        health.add(node.id, to_microseconds(moment), Mark(node.service, node.reason, is_assumed=is_assumed))
