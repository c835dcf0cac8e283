"""`plimsoll workload scale|rank|cancel|finish|run`: change what runs, end it, and let time do its work."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.health.act import seconds_between
from plimsoll.commands.options import Db, DryRun, Format, Reason, current_actor, open_database
from plimsoll.commands.output import show
from plimsoll.commands.workload.app import app
from plimsoll.commands.workload.words import next_notes, parts_table, standing_line, view_document, workloads_text
from plimsoll.ledger.model import Change, Event
from plimsoll.quota.model import Tier
from plimsoll.state.keeper import Keeper
from plimsoll.workloads.changes import WorkloadBooked, WorkloadPlaced
from plimsoll.workloads.desk import cancel, rank, scale
from plimsoll.workloads.service import settle_work, take_turn
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.view import WorkView, look_at

Name = Annotated[str, typer.Argument(metavar="WORKLOAD", help="Its name.")]
PartName = Annotated[
    str, typer.Option("--part", metavar="NAME", help="Which part, where there are several.", show_default=False)
]


@app.command("scale")
def scale_command(
    context: typer.Context,
    name: Name,
    part: PartName = "",
    least: Annotated[int | None, typer.Option("--min", help="The fewest replicas.", show_default=False)] = None,
    most: Annotated[int | None, typer.Option("--max", help="The most replicas.", show_default=False)] = None,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Another number of replicas for an elastic part: fewer leave at once, more come as there is room."""
    if least is None and most is None:
        raise typer.BadParameter("--min or --max is missing")

    def decide(turn: Turn, grace: timedelta) -> object:
        return scale(turn, name, part, least=least, most=most, grace=grace)

    keeper = open_database(context, db)
    show(_changed(keeper, name, decide, reason, is_dry_run=dry_run), output)


@app.command("rank")
def rank_command(
    context: typer.Context,
    name: Name,
    part: PartName = "",
    tier: Annotated[
        Tier | None, typer.Option("--tier", help="Its tier among the team's own.", show_default=False)
    ] = None,
    number: Annotated[int | None, typer.Option("--rank", help="1 is first inside a tier.", show_default=False)] = None,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Another tier or rank for a part, running or waiting. It counts among the team's own work only."""
    if tier is None and number is None:
        raise typer.BadParameter("--tier or --rank is missing")

    def decide(turn: Turn, grace: timedelta) -> object:
        return rank(turn, name, part, tier=tier, rank_now=number, grace=grace)

    keeper = open_database(context, db)
    show(_changed(keeper, name, decide, reason, is_dry_run=dry_run), output)


def _changed(
    keeper: Keeper, name: str, decide: Callable[[Turn, timedelta], object], reason: str, *, is_dry_run: bool
) -> Answer:
    """Change a workload, and show it as it is then."""

    def both(turn: Turn, grace: timedelta) -> tuple[WorkView, list[str]]:
        before = len(turn.drafts)
        decide(turn, grace)
        return look_at(turn.state, [name], now=turn.now)[0], touched(turn, before, but=name)

    (view, others), events = take_turn(keeper, both, actor=current_actor(), reason=reason, is_dry_run=is_dry_run)
    line = standing_line(view)
    heading = f"would be: {line}" if is_dry_run else line
    document = {"dry_run": is_dry_run, "revision": _revision(keeper, events), **view_document(view), "changed": others}
    return Answer(document, [parts_table([view])], heading, [*_touched_notes(others), *next_notes([view])])


def touched(turn: Turn, before: int, *, but: str) -> list[str]:
    """The other workloads that a turn has placed, moved, shrunk, stopped or called back since."""
    changes = [draft.change for draft in turn.drafts[before:]]
    names = {change.workload for change in changes if isinstance(change, WorkloadPlaced)}
    for change in changes:
        if isinstance(change, WorkloadBooked):
            names |= {change.booking.workload, *(victim.workload for victim in change.booking.victims)}
    return sorted(names - {but})


def _touched_notes(names: Sequence[str]) -> list[str]:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return [f"started, called back or changed by it: {', '.join(names[:10])}{more}"] if names else []


def _revision(keeper: Keeper, events: list[Event]) -> int:
    return events[-1].revision if events else keeper.state().revision


@app.command("cancel")
def cancel_command(
    context: typer.Context,
    name: Name,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Stop a workload, or take it out of the queue. What waits may start in its place at once."""
    _end(context, name, "cancelled", reason, db, output, is_dry_run=dry_run)


@app.command("finish")
def finish_command(
    context: typer.Context,
    name: Name,
    failed: Annotated[bool, typer.Option("--failed", help="It ended by itself, and not well.")] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Tell that a workload ended by itself."""
    _end(context, name, "failed" if failed else "finished", reason, db, output, is_dry_run=dry_run)


def _end(
    context: typer.Context, name: str, how: str, reason: str, db: str, output: Output, *, is_dry_run: bool
) -> None:
    keeper = open_database(context, db)
    (gpus, started), events = take_turn(
        keeper,
        lambda turn, grace: _ended(turn, name, how, grace),
        actor=current_actor(),
        reason=reason,
        is_dry_run=is_dry_run,
    )
    would = "would be" if is_dry_run else "is"
    heading = f"{name} {would} {how}: {gpus:,} GPUs are given back"
    notes = _touched_notes(started)
    document = {
        "dry_run": is_dry_run,
        "revision": _revision(keeper, events),
        "workload": name,
        "how": how,
        "gpus": gpus,
        "changed": started,
    }
    show(Answer(document, [], heading, notes), output)


def _ended(turn: Turn, name: str, how: str, grace: timedelta) -> tuple[int, list[str]]:
    before = len(turn.drafts)
    gpus = cancel(turn, name, how=how, grace=grace)
    return gpus, touched(turn, before, but=name)


@app.command("run")
def run_command(
    context: typer.Context,
    every: Annotated[
        str, typer.Option("--every", metavar="SPAN", help="Again and again until Ctrl-C.", show_default=False)
    ] = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """One round: repair gangs that lost nodes, let called-back flex leave, start and grow what can.

    Every command that changes workloads does this as well.
    """
    seconds = seconds_between(every) if every else 0.0
    keeper = open_database(context, db)
    while True:
        changes, events = settle_work(keeper, actor=current_actor(), is_dry_run=dry_run)
        if changes or not every:
            show(_round(changes, _revision(keeper, events), is_dry_run=dry_run), output)
        if not every:
            return
        time.sleep(seconds)


def _round(changes: Sequence[Change], revision: int, *, is_dry_run: bool) -> Answer:
    columns = ("kind", "workload", "because", "by")
    rows = [
        (
            change.kind,
            change.subject.partition("/")[2],
            str(getattr(change, "because", "") or "-"),
            str(getattr(change, "by", "") or "-"),
        )
        for change in changes
    ]
    would = "would change" if is_dry_run else "changed"
    names = {name for _, name, *_ in rows}
    heading = f"{workloads_text(len(names))} {would}" if rows else "nothing is to be done"
    told = [dict(zip(columns, row, strict=True)) for row in rows]
    document = {"dry_run": is_dry_run, "revision": revision, "changes": told}
    return Answer(document, [Table(columns, rows)] if rows else [], heading)
