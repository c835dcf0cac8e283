"""`history.csv`: past transitions in any order. Rows that are known already change nothing; none is ever removed."""

from __future__ import annotations

from datetime import datetime

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.fleet.sheet import (
    Column,
    ExportRows,
    ImportContext,
    Problem,
    Problems,
    RawSheet,
    Sheet,
    SheetPlan,
    What,
    one_of,
    parse_plain_name,
    parse_text,
    past_time,
)
from plimsoll.health.changes import NodeHistory
from plimsoll.health.fold import Health
from plimsoll.health.model import from_microseconds, to_microseconds
from plimsoll.ledger.model import Draft
from plimsoll.state.state import State
from plimsoll.times import show_time


class HistorySheet(Sheet):
    """The past, as told."""

    name = "history"

    def columns(self, context: ImportContext) -> tuple[Column, ...]:
        return (
            Column("time", past_time(context.now, is_optional=False)),
            Column("node", parse_plain_name, is_cached=True),
            Column("service", one_of(Service), is_cached=True),
            Column("reason", parse_text, is_cached=True),
        )

    def plan(self, raw: RawSheet, state: State, context: ImportContext, problems: Problems) -> SheetPlan:
        plan = SheetPlan(self.name)
        health, nodes = state.of(Health), state.of(Fleet).nodes
        timelines = health.timelines
        told: list[_Told] = []
        named_in_files = context.seen.get("nodes", set())
        for row in self.read(raw, context, problems):
            if row.is_bad:
                continue
            time, node, service, reason = row.values
            if node not in nodes and node not in named_in_files:
                problems.add(Problem(raw.source, row.number, "node", node, "a node of the nodes sheet"))
                continue
            if node in timelines and health.knows(node, to_microseconds(time), service, reason):
                plan.tally[What.SAME] += 1
                continue
            told.append((time, node, _PROGRESS[service], reason, NodeHistory(node, service, reason, row.labels)))
        told.sort(key=_transition)
        before = None
        for transition in told:
            if transition[:4] != before:
                plan.drafts.append(Draft(transition[4], "", transition[0]))
            before = transition[:4]
        plan.tally[What.ADDED] = len(plan.drafts)
        plan.tally[What.SAME] += len(told) - len(plan.drafts)
        return plan

    def export(self, state: State) -> ExportRows:
        health = state.of(Health)
        entries = sorted(
            (moment, node, place, number)
            for node, timeline in health.timelines.items()
            for place, (moment, number) in enumerate(timeline.entries())
        )
        rows = []
        for moment, node, _, number in entries:
            mark = health.marks[number]
            cells = [show_time(from_microseconds(moment)), node, str(mark.service), mark.reason]
            rows.append((cells, dict(mark.labels)))
        return rows


_Told = tuple[datetime, str, int, str, NodeHistory]

_PROGRESS = {
    Service.DRAINING: 0,
    Service.QUARANTINED: 1,
    Service.MAINTENANCE: 2,
    Service.REPAIR: 3,
    Service.JOINING: 4,
    Service.VALIDATING: 5,
    Service.IN_SERVICE: 6,
    Service.RETIRED: 7,
}
"""Rows may come in any order: transitions told for one instant are taken in the order of a way back into service."""


def _transition(told: _Told) -> tuple[datetime, str, int, str]:
    return told[:4]
