"""`plimsoll campaign start|run|tick|agree|returned|pause|resume|cancel|gate`: carry a plan out."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.campaigns.marks.model import AtDeadline, Marker
from plimsoll.campaigns.run.desk import agree, find_batch, find_run, fleet_changes, move, returned, start
from plimsoll.campaigns.run.gate import Gatekeeper, told_outside
from plimsoll.campaigns.run.outside import Did, Outside
from plimsoll.campaigns.run.progress import Phase, Run, Step
from plimsoll.campaigns.run.stages import UNTOUCHED
from plimsoll.campaigns.service import run_pass, run_passes, running_campaigns, say, tick
from plimsoll.campaigns.units import make_units
from plimsoll.commands.campaign.app import app
from plimsoll.commands.errands import ErrandFolder, errand_folder
from plimsoll.commands.health.act import seconds_between
from plimsoll.commands.options import Db, DryRun, Format, Reason, current_actor, database_url, open_database
from plimsoll.commands.output import show
from plimsoll.commands.written import DRY_RUN, notes_after, state_after, written
from plimsoll.connect.errands import Errands
from plimsoll.errors import Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.health.acts import Acting
from plimsoll.health.changes import HoldEnded
from plimsoll.health.service import load_memories
from plimsoll.ledger.model import Draft
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.words import counted

Name = Annotated[str, typer.Argument(metavar="CAMPAIGN", help="Its name.")]
BatchName = Annotated[
    str, typer.Argument(metavar="BATCH", help="A batch such as 'tiger#1', or a cluster that has only one now.")
]
Deadline = Annotated[
    AtDeadline, typer.Option("--at-deadline", help="What becomes of jobs that still run when their grace is over.")
]


@app.command("start")
def start_command(
    context: typer.Context,
    name: Name,
    number: Annotated[
        int | None, typer.Option("--number", help="The plan you looked at; refused if there is a newer.")
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Start although nodes have gone or joined since the plan was made.")
    ] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Let a plan run: its work is announced to everybody, and an incident is opened where everybody looks."""
    keeper = open_database(context, db)

    def decide(state: State, now: datetime) -> tuple[int, Sequence[Draft]]:
        run = find_run(state, name)
        drafts = start(state, name, now=now, number=number)
        gone, joined = fleet_changes(state, run, make_units(run.campaign, state.of(Fleet)))
        if (gone or joined) and not anyway:
            raise Refused(
                "fleet_changed",
                f"the fleet changed since plan {run.plan.number} was made: {counted(len(gone), 'node')} of it gone,"
                f" {counted(len(joined), 'node')} in scope without a batch",
                next_step=f"plimsoll campaign replan {name}, or start --anyway: batches with nodes gone will wait",
                gone=gone[:20],
                joined=joined[:20],
            )
        return run.plan.number, drafts

    planned, events = say(keeper, decide, actor=current_actor(), reason=reason or "start", is_dry_run=dry_run)
    verb = "would start" if dry_run else "runs"
    run = find_run(keeper.state(), name)
    heading = f"{name} {verb} with plan {planned}: {counted(len(run.plan.batches), 'batch')}"
    notes = [f"next: plimsoll campaign run {name} --every 1m", f"      plimsoll campaign status {name}"]
    document = {"campaign": name, "number": planned, "incident": run.incident}
    document |= written(keeper, events, is_dry_run=dry_run)
    show(Answer(document, [], heading, notes_after(notes, is_dry_run=dry_run)), output)


def outside(keeper: Keeper, dsn: str, folder: Path | None, at_deadline: AtDeadline) -> Outside:
    """What carries campaigns out, by the settings."""
    from plimsoll.commands.campaign.markers import marker_of

    made: dict[tuple[str, str], Marker] = {}

    def marker(campaign: str, cluster: str) -> Marker:
        if (campaign, cluster) not in made:
            made[campaign, cluster] = marker_of(keeper.state(), campaign, cluster, at_deadline)
        return made[campaign, cluster]

    return Outside(Errands(errand_folder(folder, dsn)), marker)


@app.command("run")
def run_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="[CAMPAIGN]", help="Only this one; else all that run.")] = "",
    every: Annotated[
        str, typer.Option("--every", metavar="SPAN", help="Go on, such as every 1m, until Ctrl-C.", show_default=False)
    ] = "",
    at_deadline: Deadline = AtDeadline.REQUEUE,
    errands: ErrandFolder = None,
    db: Db = "",
    output: Format = Output.TABLE,
) -> None:
    """Bring every batch as far as it can go now: ask the gate, drain, hand over, work, validate, return.

    It can be stopped and killed at any moment: the next one goes on where it was. One at a time acts on a database.
    """
    keeper = open_database(context, db)
    seconds = seconds_between(every) if every else None
    if name:
        find_run(keeper.state(), name)
    lead = keeper.ledger.store.lead(f"campaign run {os.getpid()}")
    if lead is None:
        epoch, leader = keeper.ledger.store.leader()
        raise Refused(
            "another_runs",
            f"{leader} (epoch {epoch}) carries campaigns out on this database",
            next_step="stop it first, or let it do its work",
        )
    made = outside(keeper, database_url(context, db), errands, at_deadline)
    try:
        while True:
            names = [name] if name else running_campaigns(keeper.state())
            did, troubles = run_passes(keeper, names, actor=current_actor(), outside=made, epoch=lead.epoch)
            if troubles and seconds is None:
                raise troubles[0]
            if did or seconds is None:
                show(_did_answer(did, _idle(keeper.state(), name)), output)
            if seconds is None:
                return
            time.sleep(seconds)
    finally:
        lead.resign()


def _idle(state: State, name: str) -> str:
    """Why nothing is to be done, and what is."""
    if not name:
        return "nothing to do now" if running_campaigns(state) else "nothing to do: no campaign runs"
    run = find_run(state, name)
    if run.phase is Phase.PLANNED:
        return f"nothing to do: {name} is planned, and has not started; next: plimsoll campaign start {name}"
    if run.phase.is_over:
        return f"nothing to do: {name} is {run.phase}"
    return f"nothing to do now; what each batch waits for: plimsoll campaign status {name}"


def _did_answer(did: Sequence[tuple[str, Did]], idle: str = "nothing to do now") -> Answer:
    rows = [(campaign, each.batch, each.act, each.text, "no" if each.is_failed else "yes") for campaign, each in did]
    document = {
        "did": [
            {"campaign": campaign, "batch": each.batch, "act": each.act, "text": each.text, "failed": each.is_failed}
            for campaign, each in did
        ]
    }
    tables = [Table(("campaign", "batch", "act", "what", "done"), rows)] if rows else []
    return Answer(document, tables, "" if rows else idle)


@app.command("gate")
def gate_command(
    context: typer.Context,
    name: Name,
    batch: BatchName,
    number: Annotated[int | None, typer.Option("--number", help="The plan that you have.")] = None,
    without_notes: Annotated[
        bool, typer.Option("--without-notes", help="As the provider is told: nothing that people wrote of incidents.")
    ] = False,
    db: Db = "",
    output: Format = Output.TABLE,
) -> None:
    """May a batch begin now? Yes (exit 0), or no with every reason (exit 1)."""
    keeper = open_database(context, db)
    state = keeper.state()
    run = find_run(state, name)
    found = find_batch(run, batch)
    if (step := run.step_of(found.id)) is not Step.PLANNED:
        message = f"{found.id} is {step}: the gate is asked before a batch begins"
        raise Refused("batch_begun", message, next_step=f"plimsoll campaign status {name} --batch '{found.id}'")
    nos = Gatekeeper(state, run, keeper.ledger.clock()).ask(found, number)
    if without_notes:
        nos = [told_outside(no) for no in nos]
    rows = [(no.code, no.text, no.move, no.until) for no in nos]
    document = {
        "batch": found.id,
        "open": not nos,
        "reasons": [{"code": no.code, "text": no.text, "move": no.move, "until": no.until} for no in nos],
    }
    heading = f"{found.id}: no" if nos else f"{found.id}: yes, it may begin"
    tables = [Table(("code", "why", "whose_move", "until"), rows)] if rows else []
    show(Answer(document, tables, heading), output)
    if nos:
        raise typer.Exit(1)


@app.command("tick")
def tick_command(
    context: typer.Context,
    name: Name,
    batch: BatchName,
    lost: Annotated[
        list[str] | None, typer.Option("--lost", metavar="NODE", help="A node that did not come back; may be repeated.")
    ] = None,
    validated: Annotated[
        bool, typer.Option("--validated", help="The nodes were checked as well: they go back into service.")
    ] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Whoever does the work says that it is done on a batch."""
    keeper = open_database(context, db)
    known, events = tick(
        keeper,
        name,
        batch,
        actor=current_actor(),
        lost=lost or (),
        is_validated=validated,
        reason=reason,
        is_dry_run=dry_run,
    )
    left = len(known.nodes) - len({*known.lost, *(lost or ())})
    lost_text = f", {len(lost)} did not come back" if lost else ""
    heading = f"{known.batch.id}: {'would be done' if dry_run else 'done'} on {counted(left, 'node')}{lost_text}"
    document = {"campaign": name, "batch": known.batch.id, "nodes": left, "lost": sorted(lost or ())}
    document |= written(keeper, events, is_dry_run=dry_run)
    show(
        Answer(document, [], heading, notes_after([f"next: plimsoll campaign run {name}"], is_dry_run=dry_run)), output
    )


@app.command("agree")
def agree_command(
    context: typer.Context,
    name: Name,
    workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help="The gang that may be stopped now.")],
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """The owner of a gang lets it be stopped for a batch before its grace is over."""
    keeper = open_database(context, db)

    def decide(state: State, _now: datetime) -> tuple[list[str], Sequence[Draft]]:
        return agree(state, name, workload)

    batches, events = say(keeper, decide, actor=current_actor(), reason=reason, is_dry_run=dry_run)
    document = {"campaign": name, "workload": workload, "batches": batches}
    document |= written(keeper, events, is_dry_run=dry_run)
    heading = f"{workload} {'could' if dry_run else 'may'} stop for {', '.join(batches)}"
    show(Answer(document, [], heading, notes_after([], is_dry_run=dry_run)), output)


@app.command("returned")
def returned_command(
    context: typer.Context,
    name: Name,
    nodes: Annotated[
        list[str] | None, typer.Argument(metavar="[NODE]...", help="Which; else all that did not come back.")
    ] = None,
    updated: Annotated[
        bool, typer.Option("--updated", help="They have the new versions as well; else they stay behind.")
    ] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Nodes that did not come back are repaired: they validate, and are charged to no limit any more."""
    keeper = open_database(context, db)
    memories = load_memories(keeper.ledger.store, nodes or None)

    def decide(state: State, now: datetime) -> tuple[int, Sequence[Draft]]:
        acting = Acting(current_actor(), now, reason or "repaired", memories)
        drafts = returned(state, name, nodes or (), acting, is_updated=updated)
        return len({draft.change.node for draft in drafts if isinstance(draft.change, HoldEnded)}), drafts

    count, events = say(keeper, decide, actor=current_actor(), reason=reason or "repaired", is_dry_run=dry_run)
    begin = "would begin" if dry_run else "begins" if count == 1 else "begin"
    document = {"campaign": name, "nodes": count, **written(keeper, events, is_dry_run=dry_run)}
    notes = notes_after(["next: plimsoll health show"], is_dry_run=dry_run)
    show(Answer(document, [], f"{counted(count, 'node')} of {name} {begin} to validate", notes), output)


def _move(keeper: Keeper, name: str, verb: str, reason: str, *, is_dry_run: bool) -> tuple[Run, dict[str, Any]]:
    """Pause, resume or cancel: the campaign after it, and what was written."""

    def decide(state: State, _now: datetime) -> tuple[list[Draft], Sequence[Draft]]:
        drafts = move(state, name, verb)
        return drafts, drafts

    drafts, events = say(keeper, decide, actor=current_actor(), reason=reason or verb, is_dry_run=is_dry_run)
    run = find_run(state_after(keeper, drafts, is_dry_run=is_dry_run), name)
    return run, written(keeper, events, is_dry_run=is_dry_run)


def _moved(run: Run, did: dict[str, Any]) -> Answer:
    """What pausing and resuming say."""
    is_dry_run = bool(did["dry_run"])
    heading = f"{run.name} {'would be' if is_dry_run else 'is'} {run.phase}"
    left = [f"{each.batch.id} is {each.step}: it goes on" for each in run.batches_under_way()]
    document = {"campaign": run.name, "phase": str(run.phase), **did}
    return Answer(document, [], heading, [*left, *notes_after([], is_dry_run=is_dry_run)])


@app.command("pause")
def pause_command(
    context: typer.Context,
    name: Name,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Begin nothing new; what is under way is finished."""
    show(_moved(*_move(open_database(context, db), name, "pause", reason, is_dry_run=dry_run)), output)


@app.command("resume")
def resume_command(
    context: typer.Context,
    name: Name,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Go on."""
    show(_moved(*_move(open_database(context, db), name, "resume", reason, is_dry_run=dry_run)), output)


@app.command("cancel")
def cancel_command(
    context: typer.Context,
    name: Name,
    at_deadline: Deadline = AtDeadline.REQUEUE,
    errands: ErrandFolder = None,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Begin nothing new, and give back what nobody has worked on; what is being worked on is brought to its end."""
    keeper = open_database(context, db)
    run, wrote = _move(keeper, name, "cancel", reason, is_dry_run=dry_run)
    if dry_run:
        show(_would_cancel(run, wrote), output)
        return
    did: list[Did] = []
    notes: list[str] = []
    lead = keeper.ledger.store.lead(f"campaign cancel {os.getpid()}")
    if lead is None:  # two at once would mark and unmark the same nodes: whoever leads knows of it now
        notes.append(f"{keeper.ledger.store.leader()[1]} carries campaigns out, and gives back what can be")
    else:
        made = outside(keeper, database_url(context, db), errands, at_deadline)
        try:
            did = run_pass(keeper, name, actor=current_actor(), outside=made, epoch=lead.epoch)
        finally:
            lead.resign()
    run = find_run(keeper.state(), name)
    left = run.batches_under_way()
    notes += [f"{each.batch.id} is {each.step}: it is brought to its end" for each in left]
    if left and lead is not None:
        notes.append(f"next: plimsoll campaign run {name} --every 1m")
    document = {"campaign": name, "phase": str(run.phase), "under_way": [each.batch.id for each in left], **wrote}
    document["revision"] = keeper.state().revision
    show(Answer(document, _did_answer([(name, each) for each in did]).tables, f"{name} is {run.phase}", notes), output)


def _would_cancel(run: Run, did: dict[str, Any]) -> Answer:
    """What would become of every batch; nothing outside is asked for it."""
    under_way = run.batches_under_way()
    back = [each for each in under_way if each.step in UNTOUCHED]
    left = [each for each in under_way if each.step not in UNTOUCHED]
    phase = Phase.CANCELLING if left else Phase.CANCELLED
    never = sum(run.step_of(batch.id) is Step.PLANNED for batch in run.plan.batches)
    rows = [
        *((each.batch.id, len(each.nodes), str(each.step), "its nodes are given back") for each in back),
        *((each.batch.id, len(each.nodes), str(each.step), "it is brought to its end") for each in left),
    ]
    tables = [Table(("batch", "nodes", "step", "what_becomes_of_it"), rows)] if rows else []
    heading = f"{run.name} would be {phase}: {counted(never, 'batch')} would never begin"
    document = {"campaign": run.name, "phase": str(phase), "under_way": [each.batch.id for each in left], **did}
    return Answer(document, tables, heading, [DRY_RUN])
