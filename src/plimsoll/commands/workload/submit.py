"""`plimsoll workload submit`: ask for room, and hear at once where it runs, as what, or why not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from plimsoll.answers import Answer, Output
from plimsoll.commands.desk import check_teams
from plimsoll.commands.options import Db, DryRun, Format, Reason, current_actor, open_database
from plimsoll.commands.output import progress, show, show_text
from plimsoll.commands.workload.app import app
from plimsoll.commands.workload.words import next_notes, parts_table, standing_line, view_document, workloads_text
from plimsoll.documents import Field, read_documents
from plimsoll.errors import UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.selector import check_scope
from plimsoll.workloads.desk import SUBMITS_MAX, Outcome, submit
from plimsoll.workloads.file import read_workload
from plimsoll.workloads.service import take_turn
from plimsoll.workloads.view import WorkView, look_at

BYTES_MAX = 100_000_000
LINES_TOLD = 20

Files = Annotated[
    list[str],
    typer.Argument(metavar="FILE…", help="Workload files (YAML, several documents each); - reads standard input."),
]


@app.command("submit")
def submit_command(
    context: typer.Context,
    files: Files,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Ask for room: answers where it runs, as what (guaranteed or flex), or why not and what would help.

    The same file again changes nothing. All of several files are taken, or none.
    """
    with progress("reading"):
        fields = [field for name in files for field in _read(name)]
    if len(fields) > SUBMITS_MAX:
        next_step = f"at most {SUBMITS_MAX:,} at once"
        raise UsageError("too_many", f"{len(fields):,} workloads at once", next_step=next_step)
    specs = [read_workload(field) for field in fields]
    check_teams(spec.team for spec in specs)
    keeper = open_database(context, db)
    for spec, field in zip(specs, fields, strict=True):
        check_scope(spec.where, keeper.state().of(Fleet), field.need("where"))
    names = [spec.name for spec in specs]
    with progress("placing"):
        (outcomes, views), events = take_turn(
            keeper,
            lambda turn, grace: (
                submit(turn, specs, grace=grace),
                look_at(turn.state, names, now=turn.now),
            ),
            actor=current_actor(),
            reason=reason,
            is_dry_run=dry_run,
        )
    revision = events[-1].revision if events else keeper.state().revision
    show(_answer(views, outcomes, revision, is_dry_run=dry_run), output)


def _read(name: str) -> list[Field]:
    if name == "-":
        return read_documents(sys.stdin.read(), source="standard input", bytes_max=BYTES_MAX)
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        next_step = "docs/how-to/run-workloads.md shows a workload file"
        raise UsageError("unreadable", f"{name[:200]!r}: {why}", next_step=next_step) from None
    return read_documents(text, source=name, bytes_max=BYTES_MAX)


def _answer(views: list[WorkView], outcomes: dict[str, Outcome], revision: int, *, is_dry_run: bool) -> Answer:
    lines = [standing_line(view) for view in views[:LINES_TOLD]]
    if len(views) > LINES_TOLD:
        lines.append(f"and {workloads_text(len(views) - LINES_TOLD)} more")
    same = [name for name, outcome in outcomes.items() if outcome is Outcome.SAME]
    if same:
        lines.append(f"submitted before, unchanged: {', '.join(same[:5])}{' …' if len(same) > 5 else ''}")
    if is_dry_run:
        lines = [f"would be: {line}" for line in lines]
    document: dict[str, Any] = {
        "dry_run": is_dry_run,
        "revision": revision,
        "workloads": [{**view_document(view), "outcome": outcomes[view.workload]} for view in views],
    }
    notes = [] if is_dry_run else next_notes(views)
    return Answer(document, [parts_table(views[:LINES_TOLD])], "\n".join(lines), notes)


EXAMPLE = """\
# Ask for room: plimsoll workload submit FILE
workload: {name}
team: {team}
where: {where}
owner: a-person                       # for whom a team can keep quota: plimsoll workload hold
checkpoint_minutes: 30                # what a stop costs: work since the last checkpoint,
restart_minutes: 15                   # and the restart
# hours: 36                           # how long it should run: it may then pass a gang that waits, and
                                      # keeps off nodes whose planned work begins before it ends
# as: guaranteed                      # or flex; any (the default) takes the guarantee first
parts:
  # A gang is all or nothing inside one island; a spare node takes over when one of its nodes dies.
  - {{name: train, kind: gang, gpus: {gpus}, tier: critical, rank: 1, spare_nodes: 1}}
  # An elastic part runs with min..max replicas, wherever they fit.
  - {{name: graders, kind: elastic, replicas: {{min: 1, max: 4, gpus: 8}}, tier: critical, rank: 2}}
"""


@app.command("example")
def example_command(
    name: Annotated[str, typer.Argument(metavar="WORKLOAD", help="Its name.")] = "posttrain-42",
    team: Annotated[str, typer.Option("--team", metavar="TEAM", help="Who asks.")] = "posttraining",
    cluster: Annotated[
        str, typer.Option("--cluster", metavar="NAME", help="Where; else anywhere in the US.", show_default=False)
    ] = "",
    sku: Annotated[str, typer.Option("--sku", metavar="SKU", help="Of which SKU.")] = "H200",
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="Of the gang.")] = 352,
) -> None:
    """Print a workload file to begin with."""
    where = f"{{cluster: {cluster}, sku: {sku}}}" if cluster else f"{{sku: {sku}, area: us}}   # or cluster: tiger"
    show_text(EXAMPLE.format(name=name, team=team, where=where, gpus=gpus))
