"""`history.csv`: past transitions in any order. Rows that are known already change nothing; none is ever removed."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

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
        for row in self.read(raw, context, problems):
            if row.is_bad:
                continue
            time, node, service, reason = row.values
            if node not in nodes and not context.may_name("nodes", node):
                problems.add(Problem(raw.source, row.number, "node", node, "a node of the nodes sheet"))
                continue
            known = health.find(node, to_microseconds(time), service, reason) if node in timelines else None
            if known is not None and (not row.labels or row.labels == dict(known.labels)):
                plan.tally[What.SAME] += 1
                continue
            what = What.ADDED if known is None else What.CHANGED
            told.append((time, node, service, reason, row.number, what, row.labels))
        self._tell(told, plan, raw, problems)
        return plan

    def _tell(self, told: list[_Told], plan: SheetPlan, raw: RawSheet, problems: Problems) -> None:
        """Draft each transition once, in the order of time: the order of the rows says nothing."""
        if any(a[0] >= b[0] and (a[0] > b[0] or a[1] >= b[1]) for a, b in pairwise(told)):
            told.sort(key=_transition)
        before: _Told | None = None
        changed = 0
        for transition in told:
            time, node, service, reason, number, what, labels = transition
            if before is None or before[0] != time or before[:4] != transition[:4]:
                plan.drafts.append(Draft(NodeHistory(node, service, reason, labels), "", time))
                changed += what is What.CHANGED
                before = transition
            elif labels == before[6]:
                plan.tally[What.SAME] += 1
            else:
                expected = f"the same extra columns as in row {before[4]}: it is the same transition"
                problems.add(Problem(raw.source, number, "node", node, expected))
        plan.tally[What.CHANGED] = changed
        plan.tally[What.ADDED] = len(plan.drafts) - changed

    def export(self, state: State) -> ExportRows:
        health = state.of(Health)
        entries = sorted(
            (moment, node, place, number)
            for node, timeline in health.timelines.items()
            for place, (moment, number) in enumerate(timeline.entries())
        )
        rows = []
        for moment, node, place, number in entries:
            mark = health.marks[number]
            if mark.is_assumed and place and health.service_at(node, place - 1) is mark.service:
                continue  # only noticed again: when it began is told
            cells = [show_time(from_microseconds(moment)), node, str(mark.service), mark.reason]
            rows.append((cells, dict(mark.labels)))
        return rows


_Told = tuple[datetime, str, Service, str, int, What, dict[str, str]]


def _transition(told: _Told) -> tuple[datetime, str, Service, str]:
    return told[:4]
