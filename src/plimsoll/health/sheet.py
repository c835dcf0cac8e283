"""`history.csv`: past transitions in any order. Rows that are known already change nothing; none is ever removed."""

from __future__ import annotations

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
        told: set[tuple[int, str, Service, str]] = set()
        named_in_files = context.seen.get("nodes", set())
        for row in self.read(raw, context, problems):
            if row.is_bad:
                continue
            time, node, service, reason = row.values
            if node not in nodes and node not in named_in_files:
                problems.add(Problem(raw.source, row.number, "node", node, "a node of the nodes sheet"))
                continue
            moment = to_microseconds(time)
            transition = (moment, node, service, reason)
            if transition in told or health.knows(node, moment, service, reason):
                plan.tally[What.SAME] += 1
                continue
            told.add(transition)
            plan.drafts.append(Draft(NodeHistory(node, service, reason, row.labels), "", time))
        plan.drafts.sort(key=_when_and_where)
        plan.tally[What.ADDED] = len(plan.drafts)
        return plan

    def export(self, state: State) -> ExportRows:
        health = state.of(Health)
        entries = sorted(
            (moment, node, number)
            for node, timeline in health.timelines.items()
            for moment, number in timeline.entries()
        )
        rows = []
        for moment, node, number in entries:
            mark = health.marks[number]
            cells = [show_time(from_microseconds(moment)), node, str(mark.service), mark.reason]
            rows.append((cells, dict(mark.labels)))
        return rows


def _when_and_where(draft: Draft) -> tuple[object, str]:
    return draft.effective_at, draft.change.subject
