"""`plimsoll access session`: who is signed in, by pages, is signed out.

Decides nothing itself (`plimsoll.access` does). Must never show what a browser holds, nor its hash.
"""

from __future__ import annotations

from typing import Annotated

import typer

from plimsoll.access import service
from plimsoll.access.desk import tokens_of
from plimsoll.access.model import Kind, person_name
from plimsoll.answers import Answer, Output
from plimsoll.commands.options import Db, DryRun, Format, Reason, current_actor, open_database
from plimsoll.commands.output import show
from plimsoll.commands.written import DRY_RUN
from plimsoll.times import utc_now
from plimsoll.words import counted

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Sign people out.",
)


@app.command("end")
def end_command(
    context: typer.Context,
    who: Annotated[str, typer.Argument(metavar="WHO", help="A person: an e-mail address or a subject.")],
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Sign somebody out in every browser, and let no link for them sign anybody in. Roles and tokens stay."""
    name, keeper = person_name(who), open_database(context, db)
    ended, events = service.end_sessions(keeper, name, actor=current_actor(), reason=reason, is_dry_run=dry_run)
    document = {
        "who": name,
        "sessions": ended.sessions,
        "links": ended.links,
        "dry_run": dry_run,
        "revision": events[-1].revision if events else None,
    }
    now = utc_now()
    living = [
        each
        for each in tokens_of(keeper.state(), name, Kind.PERSON)
        if each.expires_at is None or each.expires_at > now
    ]
    told = f"{name}: {counted(ended.sessions, 'session')} and {counted(ended.links, 'unused link')} ended"
    notes = (
        [f"{name} still has {counted(len(living), 'token')} that can be used: plimsoll access token list {name}"]
        if living
        else []
    )
    show(Answer(document, [], told, [*notes, *([DRY_RUN] if dry_run else [])]), output)
