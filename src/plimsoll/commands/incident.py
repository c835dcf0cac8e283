"""`plimsoll incident …`: where everybody looks: what is wrong, what it came to, and what owners were told."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.health.act import seconds_between
from plimsoll.commands.options import (
    AsOf,
    Db,
    DryRun,
    Format,
    Reason,
    Watch,
    answer_keeper,
    answer_state,
    current_actor,
    open_database,
)
from plimsoll.commands.output import show
from plimsoll.commands.written import DRY_RUN, notes_after, written
from plimsoll.errors import Fenced, PlimsollError, Stale, Unavailable
from plimsoll.incidents.decide import numbers_text
from plimsoll.incidents.desk import close_incident, find_incident, next_incident_id, note_incident, open_incident
from plimsoll.incidents.model import Did, Incident
from plimsoll.incidents.reasons import Kind
from plimsoll.incidents.service import run_pass, say
from plimsoll.incidents.view import (
    COLUMNS,
    NOTE_COLUMNS,
    NOTICE_COLUMNS,
    documents,
    listed,
    notice_document,
    notice_row,
    notices,
    posts_of,
    row,
    whose_moves,
)
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import parse_time, show_second
from plimsoll.words import counted

POST_SECONDS = 120.0
"""How long a single run waits for the chat."""

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Where everybody looks: what is wrong, what it came to, and what owners were told.",
)
IncidentName = Annotated[str, typer.Argument(metavar="ID", help="The incident.")]


def _moment(keeper: Keeper, state: State, as_of: str) -> datetime:
    return parse_time(state.recorded_at) if as_of and state.recorded_at else keeper.ledger.clock()


@app.command("list")
def incidents_command(
    context: typer.Context,
    show_all: Annotated[bool, typer.Option("--all", help="Also those that are closed.")] = False,
    kind: Annotated[Kind | None, typer.Option("--kind", help="Only of this kind.", show_default=False)] = None,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """Incidents that are open, with who stands by."""

    def answer(keeper: Keeper, state: State) -> Answer:
        now = _moment(keeper, state, as_of)
        found = listed(state, is_all=show_all, kind=str(kind or ""))
        return Answer(documents(state, found, now), [Table(COLUMNS, [row(each, now) for each in found])])

    answer_keeper(context, db, as_of, output, watch=watch, answer=answer)


@app.command("show")
def show_command(
    context: typer.Context,
    name: IncidentName,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """One incident: its timeline, what it came to, whose move it is, and what was posted about it."""

    def answer(keeper: Keeper, state: State) -> Answer:
        return _one(state, find_incident(state, name), _moment(keeper, state, as_of))

    answer_keeper(context, db, as_of, output, watch=watch, answer=answer)


def _one(state: State, incident: Incident, now: datetime) -> Answer:
    posts = posts_of(state, incident.id)
    notes = [(at, by, text) for at, by, text in incident.notes]
    tables = [Table(NOTE_COLUMNS, notes, "Timeline")]
    if posts:
        rows = [(post.what, str(post.fate), post.changed_at, post.detail) for post in posts]
        tables.append(Table(("post", "fate", "at", "detail"), rows, "Posted to the chat"))
    is_open = incident.closed_at is None
    standing = "open" if is_open else f"closed at {show_second(incident.closed_at)}"
    heading = f"{incident.id} ({incident.kind}) is {standing} since {show_second(incident.opened_at)}: {incident.title}"
    if not is_open:
        heading = f"{incident.id} ({incident.kind}) was {standing}: {incident.title}"
    told = [f"{'so far' if is_open else 'it came to'}: {numbers_text(incident.numbers_at(now))}"]
    if move := whose_moves(state, [incident], now)[incident.id]:
        told.append(f"whose move: {move}")
    if incident.has_trouble and incident.next_step:
        told.append(f"next: {incident.next_step}")
    posted = [
        {
            "what": post.what,
            "fate": str(post.fate),
            "at": post.changed_at,
            "attempts": post.attempts,
            "detail": post.detail,
        }
        for post in posts
    ]
    (shown,) = documents(state, [incident], now)
    return Answer({**shown, "posts": posted}, tables, heading, told)


@app.command("open")
def open_command(
    context: typer.Context,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What is going on, in a line.")],
    cluster: Annotated[
        list[str] | None, typer.Option("--cluster", metavar="NAME", help="Only about this; may be repeated.")
    ] = None,
    roster: Annotated[
        list[str] | None, typer.Option("--on-call", metavar="WHO", help="Who stands by; may be repeated.")
    ] = None,
    identity: Annotated[str, typer.Option("--id", metavar="ID", help="Its id.", show_default=False)] = "",
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Open an incident: campaigns begin nothing on these clusters, or nowhere, until it is closed."""
    keeper = open_database(context, db)

    def decide(state: State, _now: datetime) -> tuple[str, Any]:
        name = identity or next_incident_id(state)
        return name, open_incident(state, name, title, clusters=cluster or (), roster=roster or ())

    name, events = say(keeper, decide, actor=current_actor(), reason=reason or title, is_dry_run=dry_run)
    where = f"on {', '.join(cluster)}" if cluster else "anywhere"
    would = "would be" if dry_run else "is"
    document = {"incident": name, **written(keeper, events, is_dry_run=dry_run)}
    notes = notes_after([f"next: plimsoll incident close {name}"], is_dry_run=dry_run)
    show(Answer(document, [], f"incident {name} {would} open: campaigns begin nothing {where}", notes), output)


@app.command("note")
def note_command(
    context: typer.Context,
    name: IncidentName,
    note: Annotated[str, typer.Argument(metavar="TEXT", help="What was found or done.")],
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Add a line to an incident."""
    keeper = open_database(context, db)

    def decide(state: State, _now: datetime) -> tuple[None, Any]:
        return None, note_incident(state, name, note)

    _, events = say(keeper, decide, actor=current_actor(), is_dry_run=dry_run)
    heading = f"would be noted on {name}" if dry_run else f"noted on {name}"
    document = {"incident": name, **written(keeper, events, is_dry_run=dry_run)}
    show(Answer(document, [], heading, notes_after([], is_dry_run=dry_run)), output)


@app.command("close")
def close_command(
    context: typer.Context,
    name: IncidentName,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """It is over: campaigns go on. One that was found by looking closes by itself."""
    keeper = open_database(context, db)

    def decide(state: State, now: datetime) -> tuple[Incident, Any]:
        return find_incident(state, name), close_incident(state, name, now=now)

    known, events = say(keeper, decide, actor=current_actor(), reason=reason, is_dry_run=dry_run)
    document = {"incident": name, **written(keeper, events, is_dry_run=dry_run)}
    if not dry_run:
        show(Answer(document, [], f"incident {name} is closed"), output)
        return
    where = f"on {', '.join(known.clusters)}" if known.clusters else "anywhere"
    told = [f"campaigns would begin {where} again, unless something else is open"] if known.holds_campaigns else []
    show(Answer(document, [], f"incident {name} would be closed: {known.title}", [*told, DRY_RUN]), output)


@app.command("notices")
def notices_command(
    context: typer.Context,
    team: Annotated[str, typer.Option("--team", metavar="TEAM", help="Only this team's.", show_default=False)] = "",
    owner: Annotated[str, typer.Option("--owner", metavar="WHO", help="Only this owner's.", show_default=False)] = "",
    workload: Annotated[
        str, typer.Option("--workload", metavar="NAME", help="Only about this work.", show_default=False)
    ] = "",
    incident: Annotated[
        str,
        typer.Option(
            "--incident", metavar="ID", help="Only of what happened where it is, while it was open.", show_default=False
        ),
    ] = "",
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """What owners of running work were told: what happened, what was done about it, what is left. Newest first."""

    def answer(state: State) -> Answer:
        meanwhile = find_incident(state, incident) if incident else None
        found = notices(state, team=team, owner=owner, workload=workload, incident=meanwhile)
        table = Table(NOTICE_COLUMNS, [notice_row(each) for each in found])
        return Answer([notice_document(each) for each in found], [table])

    answer_state(context, db, as_of, output, watch=watch, answer=answer)


@app.command("run")
def run_command(
    context: typer.Context,
    every: Annotated[
        str, typer.Option("--every", metavar="SPAN", help="Go on, such as every 10s, until Ctrl-C.", show_default=False)
    ] = "",
    db: Db = "",
    output: Format = Output.TABLE,
) -> None:
    """Look once: open, note and close incidents, tell owners, and post to the webhook of PLIMSOLL_WEBHOOK.

    Several may run at once: each trouble has one incident, and each message is posted once.
    """
    from plimsoll.incidents.courier import courier_from
    from plimsoll.rooms import FINDERS

    keeper = open_database(context, db)
    seconds = seconds_between(every) if every else None
    actor = current_actor()
    courier = courier_from(os.environ, keeper, actor=actor)
    while True:
        try:
            did = run_pass(keeper, FINDERS, keeper.ledger.clock(), actor)
        except Fenced:
            raise
        except PlimsollError as error:
            if seconds is None or not isinstance(error, Unavailable | Stale):
                raise
            did = [Did("failed", "", error.message)]  # the next pass may find it otherwise
        if courier is not None:
            courier.wake()
        if seconds is None:
            if courier is not None:
                courier.wait(POST_SECONDS)
            _tell(keeper, did, output)
            return
        if did:
            _log(keeper, did, output)
        time.sleep(seconds)


def _tell(keeper: Keeper, did: Sequence[Did], output: Output) -> None:
    count = len(listed(keeper.state(), is_all=False))
    rows = [(each.what, each.name, each.text) for each in did]
    columns = ("what", "name", "text")
    said = {"did": [dict(zip(columns, each, strict=True)) for each in rows], "open": count}
    is_one = "is" if count == 1 else "are"
    heading = f"{counted(len(did), 'thing')} done; {counted(count, 'incident')} {is_one} open"
    show(Answer(said, [Table(columns, rows)] if rows else [], heading), output)


def _log(keeper: Keeper, did: Sequence[Did], output: Output) -> None:
    """Line by line, as in a log."""
    if output is not Output.TABLE:
        _tell(keeper, did, output)
        return
    now = keeper.ledger.clock()
    for each in did:
        typer.echo(f"{show_second(now)}  {each.what} {each.name}: {each.text}")
