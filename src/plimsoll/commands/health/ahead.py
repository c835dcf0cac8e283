"""`plimsoll health announce|announced|withdraw`: planned work ahead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.health.act import Targets, moment_from_now, needs_reason
from plimsoll.commands.health.app import app
from plimsoll.commands.options import (
    AsOf,
    Db,
    DryRun,
    Filters,
    Format,
    Reason,
    Watch,
    answer_keeper,
    current_actor,
    open_database,
)
from plimsoll.commands.output import show
from plimsoll.commands.written import DRY_RUN
from plimsoll.filter import parse_filter
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.fleet.view import find_nodes
from plimsoll.health.ahead import make_work_id
from plimsoll.health.fold import Health
from plimsoll.health.model import Ahead
from plimsoll.health.service import announce_work, find_targets, withdraw_work
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import parse_time, show_time, utc_now
from plimsoll.words import counted

WORKS_SHOWN = 50
CLUSTERS_NAMED = 2


@app.command("announce")
def announce_command(
    context: typer.Context,
    targets: Targets,
    starts: Annotated[str, typer.Option("--from", metavar="SPAN|TIME", help="When it begins: in 3d, or a time.")],
    ends: Annotated[str, typer.Option("--until", metavar="SPAN|TIME", help="When it is done: in 4d, or a time.")],
    reason: Reason = "",
    work_id: Annotated[
        str, typer.Option("--id", metavar="ID", help="Its name.", show_default="one made of the content")
    ] = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Announce planned work: these nodes will be out from a time to another.

    Nothing moves by that: forecasts count it, and work that would run into it goes elsewhere. A hold begins it.
    """
    needs_reason(reason)
    keeper, now, owner = open_database(context, db), utc_now(), current_actor()
    begin, end = moment_from_now(starts, now), moment_from_now(ends, now)
    meant = find_targets(keeper.state(), targets, now=now)
    names = [node.id for node in meant if node.service is not Service.RETIRED]
    work_id = work_id or make_work_id(owner, names, starts=begin, ends=end, reason=reason)
    ahead = Ahead(work_id, owner, tuple(names), begin, end, reason)
    announced, revision = announce_work(keeper, ahead, actor=owner, is_dry_run=dry_run)
    document = {"dry_run": dry_run, "revision": revision, "is_new": announced.is_new, "ahead": announced.ahead}
    verb = "would be announced" if dry_run else "announced"
    if not announced.is_new:
        verb = "announced already"
    heading = f"{counted(len(announced.ahead.nodes), 'node')} {verb} as {work_id!r}, {_times(ahead)}"
    closing = f"revision {revision}; next: plimsoll health announced, plimsoll health forecast"
    notes = [DRY_RUN if dry_run else closing]
    table = _every_node([announced.ahead]) if output is Output.CSV else _by_cluster(keeper.state(), announced.ahead)
    show(Answer(document, [table], heading, notes), output)


@app.command("announced")
def announced_command(
    context: typer.Context,
    filters: Filters = None,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """List the planned work ahead, what starts first first; with a filter, the work on such nodes."""

    def answer(_keeper: Keeper, state: State) -> Answer:
        now = parse_time(state.recorded_at) if as_of and state.recorded_at else utc_now()
        works = sorted(state.of(Health).ahead.values(), key=lambda work: work.order)
        if filters:
            names = {node.id for node in find_nodes(state.of(Fleet), parse_filter(filters, now=now))}
            works = [work for work in works if not names.isdisjoint(work.nodes)]
        document = {"as_of": state.recorded_at or None, "revision": state.revision, "ahead": works}
        if output is Output.CSV:
            return Answer(document, [_every_node(works)])
        return Answer(document, [_every_work(state, works[:WORKS_SHOWN])], notes=_notes(works, now))

    answer_keeper(context, db, as_of, output, watch=watch, answer=answer)


def _notes(works: Sequence[Ahead], now: datetime) -> list[str]:
    count = len({name for work in works for name in work.nodes})
    notes = [f"{counted(len(works), 'announcement')} for {counted(count, 'node')}"]
    if len(works) > WORKS_SHOWN:
        notes[0] += f"; the first {WORKS_SHOWN}, -o json or csv lists all"
    if over := sum(work.is_over(now) for work in works):
        notes.append(f"{over:,} of them over; next: plimsoll health sweep")
    return notes


@app.command("withdraw")
def withdraw_command(
    context: typer.Context,
    work_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the work.")],
    force: Annotated[bool, typer.Option("--force", help="Also work that is not yours; say why.")] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Take an announcement back: the work is off, or done early. A hold that began it is ended by `release`."""
    if force:
        needs_reason(reason)
    keeper, actor = open_database(context, db), current_actor()
    why = reason or f"withdrawn by {actor}"
    ahead, revision = withdraw_work(keeper, work_id, actor=actor, reason=why, is_forced=force, is_dry_run=dry_run)
    document = {"dry_run": dry_run, "revision": revision, "ahead": ahead}
    verb = "would be withdrawn" if dry_run else "withdrawn"
    heading = f"{ahead.id!r} {verb}: {counted(len(ahead.nodes), 'node')}, {_times(ahead)}"
    notes = [DRY_RUN if dry_run else f"revision {revision}; next: plimsoll health announced"]
    show(Answer(document, [_every_node([ahead])] if output is Output.CSV else [], heading, notes), output)


def _second(moment: datetime) -> datetime:
    """A moment as people read it; machines get all of it."""
    return moment.replace(microsecond=0)


def _times(ahead: Ahead) -> str:
    return f"from {show_time(_second(ahead.starts))} until {show_time(_second(ahead.ends))}"


def _by_cluster(state: State, ahead: Ahead) -> Table:
    nodes = state.of(Fleet).nodes
    meant = [nodes[name] for name in ahead.nodes]
    counts, gpus = Counter(node.cluster for node in meant), Counter[str]()
    for node in meant:
        gpus[node.cluster] += node.gpus
    return Table(("cluster", "nodes", "gpus"), [(name, counts[name], gpus[name]) for name in sorted(counts)])


def _every_work(state: State, works: Sequence[Ahead]) -> Table:
    """For people: one line an announcement."""
    nodes = state.of(Fleet).nodes
    lines = []
    for work in works:
        clusters = sorted({nodes[name].cluster for name in work.nodes})
        where = ", ".join(clusters[:CLUSTERS_NAMED]) + (", …" if len(clusters) > CLUSTERS_NAMED else "")
        lines.append(
            (work.id, work.owner, len(work.nodes), where, _second(work.starts), _second(work.ends), work.reason)
        )
    return Table(("work", "owner", "nodes", "where", "starts", "ends", "reason"), lines)


def _every_node(works: Sequence[Ahead]) -> Table:
    """For machines: one line a node and announcement."""
    rows = [(work.id, name, work.owner, work.starts, work.ends, work.reason) for work in works for name in work.nodes]
    return Table(("work", "node", "owner", "starts", "ends", "reason"), rows)
