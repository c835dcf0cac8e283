"""`plimsoll campaign start|run|tick|agree|returned|pause|resume|cancel|gate`: carry a plan out."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.campaigns.marks.model import AtDeadline, Marker
from plimsoll.campaigns.run.desk import agree, find_batch, find_run, fleet_changes, move, returned, start
from plimsoll.campaigns.run.gate import Gatekeeper
from plimsoll.campaigns.run.outside import Did, Outside
from plimsoll.campaigns.run.progress import Phase, Step
from plimsoll.campaigns.service import run_pass, run_passes, running_campaigns, say, tick
from plimsoll.campaigns.units import make_units
from plimsoll.commands.campaign.app import app
from plimsoll.commands.errands import ErrandFolder, errand_folder
from plimsoll.commands.health.act import seconds_between
from plimsoll.commands.options import Db, DryRun, Format, Reason, current_actor, database_url, open_database
from plimsoll.commands.output import show
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
    heading = (
        f"{name} {verb} with plan {planned}: {counted(len(run.plan.batches), 'batch').replace('batchs', 'batches')}"
    )
    notes = [f"next: plimsoll campaign run {name} --every 1m", f"      plimsoll campaign status {name}"]
    document = {"campaign": name, "number": planned, "dry_run": dry_run, "incident": run.incident}
    document["revision"] = events[-1].revision if events else keeper.state().revision
    show(Answer(document, [], heading, [] if dry_run else notes), output)


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
) -> None:
    """Whoever does the work says that it is done on a batch."""
    keeper = open_database(context, db)
    known, events = tick(
        keeper, name, batch, actor=current_actor(), lost=lost or (), is_validated=validated, reason=reason
    )
    left = len(known.nodes) - len({*known.lost, *(lost or ())})
    lost_text = f", {len(lost)} did not come back" if lost else ""
    heading = f"{known.batch.id}: done on {counted(left, 'node')}{lost_text}"
    document = {"campaign": name, "batch": known.batch.id, "nodes": left, "lost": sorted(lost or ())}
    document["revision"] = events[-1].revision if events else keeper.state().revision
    show(Answer(document, [], heading, [f"next: plimsoll campaign run {name}"]), output)


@app.command("agree")
def agree_command(
    context: typer.Context,
    name: Name,
    workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help="The gang that may be stopped now.")],
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
) -> None:
    """The owner of a gang lets it be stopped for a batch before its grace is over."""
    keeper = open_database(context, db)
    batches, _ = say(keeper, lambda state, _now: agree(state, name, workload), actor=current_actor(), reason=reason)
    document = {"campaign": name, "workload": workload, "batches": batches}
    show(Answer(document, [], f"{workload} may stop for {', '.join(batches)}"), output)


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
) -> None:
    """Nodes that did not come back are repaired: they validate, and are charged to no limit any more."""
    keeper = open_database(context, db)
    memories = load_memories(keeper.ledger.store, nodes or None)

    def decide(state: State, now: datetime) -> tuple[int, Sequence[Draft]]:
        acting = Acting(current_actor(), now, reason or "repaired", memories)
        drafts = returned(state, name, nodes or (), acting, is_updated=updated)
        return len({draft.change.node for draft in drafts if isinstance(draft.change, HoldEnded)}), drafts

    count, _ = say(keeper, decide, actor=current_actor(), reason=reason or "repaired")
    heading = f"{counted(count, 'node')} of {name} {'begins' if count == 1 else 'begin'} to validate"
    show(Answer({"campaign": name, "nodes": count}, [], heading, ["next: plimsoll health show"]), output)


def _move(context: typer.Context, name: str, verb: str, reason: str, db: str, output: Output) -> Keeper:
    keeper = open_database(context, db)
    _, events = say(
        keeper, lambda state, _now: (None, move(state, name, verb)), actor=current_actor(), reason=reason or verb
    )
    run = find_run(keeper.state(), name)
    document = {"campaign": name, "phase": str(run.phase), "revision": events[-1].revision}
    if verb != "cancel":
        show(Answer(document, [], f"{name} is {run.phase}"), output)
    return keeper


@app.command("pause")
def pause_command(
    context: typer.Context, name: Name, reason: Reason = "", db: Db = "", output: Format = Output.TABLE
) -> None:
    """Begin nothing new; what is under way is finished."""
    _move(context, name, "pause", reason, db, output)


@app.command("resume")
def resume_command(
    context: typer.Context, name: Name, reason: Reason = "", db: Db = "", output: Format = Output.TABLE
) -> None:
    """Go on."""
    _move(context, name, "resume", reason, db, output)


@app.command("cancel")
def cancel_command(
    context: typer.Context,
    name: Name,
    at_deadline: Deadline = AtDeadline.REQUEUE,
    errands: ErrandFolder = None,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
) -> None:
    """Begin nothing new, and give back what nobody has worked on; what is being worked on is brought to its end."""
    keeper = _move(context, name, "cancel", reason, db, output)
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
    document = {"campaign": name, "phase": str(run.phase), "under_way": [each.batch.id for each in left]}
    show(Answer(document, _did_answer([(name, each) for each in did]).tables, f"{name} is {run.phase}", notes), output)
