"""`plimsoll campaign list|status|incident`: how campaigns stand, and where everybody looks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.model import Batch
from plimsoll.campaigns.run.desk import find_batch, find_run
from plimsoll.campaigns.run.progress import Run, Step
from plimsoll.campaigns.run.status import SAMPLES_LEAST, View, look
from plimsoll.commands.campaign.app import app
from plimsoll.commands.campaign.run import Name
from plimsoll.commands.incident import close_command, incidents_command, note_command, open_command
from plimsoll.commands.options import AsOf, Db, Format, Watch, answer_keeper, answer_state
from plimsoll.fleet.fold import Fleet
from plimsoll.incidents.fold import Incidents
from plimsoll.incidents.model import Incident
from plimsoll.incidents.view import document as incident_document
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import parse_time, show_time
from plimsoll.words import counted

SHOWN_AHEAD = 10
incident_app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Where everybody looks: open, note, close, list. An open one holds campaigns back.",
)
app.add_typer(incident_app, name="incident")


@app.command("list")
def list_command(
    context: typer.Context, db: Db = "", output: Format = Output.TABLE, as_of: AsOf = "", watch: Watch = False
) -> None:
    """Every campaign: its phase, the plan in force, and how far it is."""
    answer_state(context, db, as_of, output, watch=watch, answer=_list_answer)


def _list_answer(state: State) -> Answer:
    runs = [run for _, run in sorted(state.of(Campaigns).runs.items())]
    rows = []
    for run in runs:
        done = sum(len(each.nodes) - len(each.lost) for each in run.progress.values() if each.step.is_over)
        nodes = sum(batch.nodes for batch in run.plan.batches)
        first = min((batch.start for batch in run.plan.batches), default=None)
        last = max((batch.end for batch in run.plan.batches), default=None)
        rows.append((run.name, str(run.phase), run.plan.number, len(run.plan.batches), nodes, done, first, last))
    columns = ("campaign", "phase", "plan", "batches", "nodes", "done", "first", "last")
    notes = [] if rows else ["next: plimsoll campaign plan FILE"]
    return Answer([dict(zip(columns, row, strict=True)) for row in rows], [Table(columns, rows)], "", notes)


@app.command("status")
def status_command(
    context: typer.Context,
    name: Name,
    all_batches: Annotated[bool, typer.Option("--all", help="Also the batches that are over or far ahead.")] = False,
    batch: Annotated[
        str, typer.Option("--batch", metavar="BATCH", help="The nodes of a batch instead.", show_default=False)
    ] = "",
    without_notes: Annotated[
        bool, typer.Option("--without-notes", help="Of its incident only that there is one: nothing that was noted.")
    ] = False,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """How a campaign stands: what each batch waits for, what is left, what it has cost, who is needed when."""

    def answer(keeper: Keeper, state: State) -> Answer:
        run = find_run(state, name)
        if batch:
            return _batch_answer(state, run, find_batch(run, batch))
        now = parse_time(state.recorded_at) if as_of and state.recorded_at else keeper.ledger.clock()
        incident = state.of(Incidents).incidents.get(run.incident)
        seen = _plain(incident) if incident and without_notes else incident
        view = look(state, run, seen, now=now, is_for_outside=without_notes)
        return _status_answer(run, view, now, is_all=all_batches or output is Output.CSV)

    answer_keeper(context, db, as_of, output, watch=watch, answer=answer)


def _plain(incident: Incident) -> Incident:
    """For the provider: who is on call, and nothing of what people wrote there or of whom it hurts."""
    bare = {"notes": (), "teams": (), "opened_by": "", "closed_by": "", "course": (), "numbers": None}
    return msgspec.structs.replace(incident, **bare)


def _batch_answer(state: State, run: Run, batch: Batch) -> Answer:
    """Every node of a batch: those it took, else those that the plan has for it."""
    known, fleet = run.progress.get(batch.id), state.of(Fleet).nodes
    names = known.nodes if known is not None and known.nodes else run.names.get(batch.id, ())
    lost = set(known.lost) if known is not None else set()
    columns = ("node", "island", "sku", "gpus", "service", "came_back")
    came_back = run.step_of(batch.id) is Step.RETURNED
    rows = []
    for name in sorted(names):
        back = False if name in lost else True if came_back else None
        node = fleet.get(name)
        where = (node.island, node.sku, node.gpus, str(node.service)) if node else (None, None, None, None)
        rows.append((name, *where, back))
    step = str(run.step_of(batch.id))
    document = {
        "campaign": run.name,
        "batch": batch.id,
        "step": step,
        "start": batch.start,
        "end": batch.end,
        "nodes": [dict(zip(columns, row, strict=True)) for row in rows],
    }
    heading = f"{batch.id} is {step}: {counted(len(rows), 'node')}, {show_time(batch.start)} to {show_time(batch.end)}"
    return Answer(document, [Table(columns, rows)], heading)


def _status_answer(run: Run, view: View, now: datetime, *, is_all: bool) -> Answer:
    listed = list(view.batches) if is_all else _near(view)
    columns = ("batch", "nodes", "start", "end", "step", "lost", "waits_for", "until")
    rows = [
        (each.batch, each.nodes, each.start, each.end, each.step, each.lost, each.waits_for, each.until)
        for each in sorted(listed, key=lambda each: (each.start, each.batch))
    ]
    tables = [Table(columns, rows, "Batches")]
    days = [(day.day, day.planned, day.left_planned, day.left, day.clusters, day.to_repair) for day in view.days]
    tables.append(
        Table(("day", "planned", "left_by_plan", "left", "clusters_at_once", "to_repair"), days, "Nodes still old")
    )
    if view.budgets:
        budget = [(each.limit, each.unit, each.used, each.planned, each.allowed) for each in view.budgets]
        tables.append(Table(("limit", "unit", "used", "planned", "allowed"), budget, "Outage budget, in unit-hours"))
    if view.estimates:
        spans = [(e.mode, e.planned_hours, e.mean_hours, e.longest_hours, e.ended) for e in view.estimates]
        tables.append(
            Table(("mode", "planned_hours", "mean_hours", "longest_hours", "ended"), spans, "How long it takes")
        )
    return Answer(_document(view, now), tables, _heading(run, view), _notes(run, view, len(listed)))


def _near(view: View) -> list[Any]:
    """What is under way or late, and the next ones."""
    now = [each for each in view.batches if each.step not in ("planned", "returned", "cancelled")]
    ahead = sorted((each for each in view.batches if each.step == "planned"), key=lambda each: (each.start, each.batch))
    return [*now, *ahead[:SHOWN_AHEAD]]


def _heading(run: Run, view: View) -> str:
    share = view.done / view.nodes if view.nodes else 1.0
    heading = (
        f"{view.campaign} is {view.phase}, plan {view.number}:"
        f" {view.done:,} of {counted(view.nodes, 'node')} done ({share:.0%})"
    )
    if view.lost:
        heading += f", {len(view.lost)} did not come back"
    changes = ", ".join(f"{change.component} {change.version}" for change in run.campaign.changes)
    return f"{heading}; {changes}"


def _notes(run: Run, view: View, shown: int) -> list[str]:
    notes = []
    if view.incident is not None and view.incident.closed_at is None:
        roster = f"; on call: {', '.join(view.incident.roster)}" if view.incident.roster else ""
        notes.append(f"incident {view.incident.id}{roster}")
    if view.gone or view.joined:
        notes.append(
            f"the fleet changed: {counted(len(view.gone), 'node')} gone, {len(view.joined)} in scope without a batch;"
            f" plimsoll campaign replan {view.campaign}"
        )
    notes += [
        f"{each.mode} batches take {each.mean_hours:.1f} h, not {each.planned_hours:.1f} h: change hours in the"
        f" file, and plimsoll campaign replan {view.campaign} --file FILE"
        for each in view.estimates
        if each.ended >= SAMPLES_LEAST and each.mean_hours > each.planned_hours * 1.1
    ]
    if view.lost:
        notes.append(
            f"not back: {', '.join(view.lost[:5])}{', …' if len(view.lost) > 5 else ''};"
            f" when repaired: plimsoll campaign returned {view.campaign} NODE"
        )
    if shown < len(view.batches):
        notes.append(f"{len(view.batches) - shown} batches more with --all")
    if run.phase == "planned":
        notes.append(f"next: plimsoll campaign start {view.campaign}")
    return notes


def _document(view: View, now: datetime) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(view, incident=None), builtin_types=(datetime,)
    )
    if view.incident is not None:
        document["incident"] = incident_document(view.incident, now)
    return document


# Incidents have a noun of their own; the words that people know go on working here.
for _verb, _command in (
    ("open", open_command),
    ("note", note_command),
    ("close", close_command),
    ("list", incidents_command),
):
    incident_app.command(_verb)(_command)
