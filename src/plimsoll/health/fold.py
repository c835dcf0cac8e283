"""How events become timelines: past transitions as told, and every change of a node's service as it is recorded."""

from __future__ import annotations

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
        timeline = self.timelines.get(node, EMPTY_TIMELINE)
        self.timelines.put(node, timeline.with_entry(moment, self.mark_number(mark)))

    def knows(self, node: str, moment: int, service: Service, reason: str) -> bool:
        """Whether the timeline holds this transition already."""
        timeline = self.timelines.get(node)
        if timeline is None:
            return False
        marks = (self.marks[number] for number in timeline.marks_at(moment))
        return any(mark.service is service and mark.reason == reason for mark in marks)

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
    mark = Mark(change.service, change.reason, tuple(sorted(change.labels.items())) if change.labels else ())
    state.of(Health).add(change.node, to_microseconds(event.effective_time), mark)


@ROOM.folds_change(NodeRecorded)
def _fold_recorded(state: State, change: NodeRecorded, event: Event) -> None:
    """A service that changed, or with which an unknown node arrived, is a transition at its `since`."""
    node = change.node
    is_news = "service" in change.was if change.was else node.service is not Service.IN_SERVICE
    if not is_news:
        return
    moment = to_microseconds(node.since or event.effective_time)
    health = state.of(Health)
    if not health.knows(node.id, moment, node.service, node.reason):
        health.add(node.id, moment, Mark(node.service, node.reason))
