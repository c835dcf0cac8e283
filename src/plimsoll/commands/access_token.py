"""`plimsoll access token`: tokens for scripts and services.

Decides nothing itself (`plimsoll.access` does). Must never show a secret but in the answer that made it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from plimsoll.access import desk, service
from plimsoll.access.model import Permission, Role, Scope, Token, holder_of, make_binding, owner_of
from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.access_notes import role_notes, second, team_notes
from plimsoll.commands.options import (
    AsOf,
    Db,
    DryRun,
    Format,
    Reason,
    Watch,
    answer_state,
    current_actor,
    open_database,
    parse_span,
)
from plimsoll.commands.output import show
from plimsoll.commands.written import DRY_RUN
from plimsoll.errors import UsageError
from plimsoll.state.state import State
from plimsoll.times import show_second, utc_now
from plimsoll.words import counted

LIFETIME_DEFAULT = "90d"
LIFETIME_MAX = timedelta(days=3660)
FOR_EVER = "ever"

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Tokens for scripts and services: make, list, revoke.",
)


@app.command("issue")
def issue_command(
    context: typer.Context,
    owner: Annotated[str, typer.Argument(metavar="OWNER", help="Whose token: a person, or service:NAME.")],
    scope: Annotated[
        list[Scope] | None,
        typer.Option(
            "--scope",
            metavar="PERMISSION",
            help=f"Only for this ({', '.join(Scope)}); may be repeated.",
            show_default=False,
        ),
    ] = None,
    team: Annotated[
        str, typer.Option("--team", metavar="TEAM", help="Only for this team's work and quota.", show_default=False)
    ] = "",
    lifetime: Annotated[
        str, typer.Option("--for", metavar="SPAN", help="How long it works: 8h, 90d, or ever.")
    ] = LIFETIME_DEFAULT,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Make a token. It is shown once; it may never do more than its owner may at that moment."""
    name, kind = owner_of(owner)
    if scope is not None and not scope:  # a list that came out empty must not make the widest token
        raise UsageError("no_scope", "the list of scopes is empty", next_step="leave it out for all that the owner may")
    scopes = None if scope is None else tuple(sorted({Permission(each) for each in scope}))
    make_binding(Role.VIEWER, team)
    now, keeper = utc_now(), open_database(context, db)
    span = _lifetime(lifetime)
    expires = None if span is None else now + span
    state = keeper.state()
    notes = team_notes(state, team) + role_notes(state, name, kind)
    if dry_run:
        desk.issue(state, "0" * 12, name, kind, scopes=scopes, team=team, expires_at=expires, now=now)
        token = Token("", name, kind, scopes, team, now, current_actor(), expires, reason)
        document = {**_token_document(token), "dry_run": True}
        show(Answer(document, [], f"would make a token of {_token_words(token)}", [DRY_RUN]), output)
        return
    secret, token = service.issue_token(
        keeper, name, kind=kind, scopes=scopes, team=team, expires=expires, actor=current_actor(), reason=reason
    )
    lines = [secret, "this is shown once: keep it where only its user can read it", *notes]
    lines.append(f"to revoke it: plimsoll access token revoke {token.id}")
    document = {**_token_document(token), "dry_run": False, "secret": secret}
    table = Table(("id", "secret", "expires_at"), [(token.id, secret, token.expires_at)])
    show(Answer(document, [table] if output is Output.CSV else [], f"token of {_token_words(token)}", lines), output)


@app.command("list")
def tokens_command(
    context: typer.Context,
    owner: Annotated[str, typer.Argument(metavar="[OWNER]", help="Only of this one.", show_default=False)] = "",
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """Print the tokens that were not revoked; never a secret."""
    wanted = owner_of(owner) if owner else None

    def answer(state: State) -> Answer:
        now = utc_now()
        found = [each for each in service.tokens(state) if wanted in (None, (each.owner, each.kind))]
        rows = [
            (
                each.id,
                holder_of(each.owner, each.kind),
                _scopes_words(each),
                each.team or None,
                second(each.expires_at),
                "over" if each.expires_at is not None and each.expires_at <= now else "works",
                each.issued_by,
                each.why,
            )
            for each in found
        ]
        columns = ("id", "owner", "scopes", "team", "expires", "state", "by", "why")
        document = {"tokens": [_token_document(each) for each in found]}
        return Answer(document, [Table(columns, rows)], counted(len(found), "token"))

    answer_state(context, db, as_of, output, watch=watch, answer=answer)


@app.command("revoke")
def revoke_command(
    context: typer.Context,
    token: Annotated[str, typer.Argument(metavar="ID", help="As `token list` prints it.")],
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Revoke a token: it works nowhere any more."""
    keeper = open_database(context, db)
    found, events = service.revoke_token(keeper, token, actor=current_actor(), reason=reason, is_dry_run=dry_run)
    document = {
        "token": found.id,
        "owner": holder_of(found.owner, found.kind),
        "dry_run": dry_run,
        "revision": events[-1].revision if events else None,
    }
    show(
        Answer(document, [], f"token {found.id} of {_token_words(found)} is revoked", [DRY_RUN] if dry_run else []),
        output,
    )


def _lifetime(text: str) -> timedelta | None:
    """How long; None for ever."""
    if text == FOR_EVER:
        return None
    span = parse_span(text)
    if span is None or not timedelta() < span <= LIFETIME_MAX:
        raise UsageError(
            "bad_lifetime",
            f"{text[:40]!r} is no time for a token: more than nothing and at most {LIFETIME_MAX.days:,} days",
            next_step="--for 8h, --for 90d, or --for ever",
        )
    return span


def _scopes_words(token: Token) -> str:
    return "all of its owner's" if token.scopes is None else ", ".join(token.scopes)


def _token_words(token: Token) -> str:
    team = f", team {token.team}" if token.team else ""
    until = f"until {show_second(token.expires_at)}" if token.expires_at else "for ever"
    return f"{holder_of(token.owner, token.kind)}: {_scopes_words(token)}{team}, {until}"


def _token_document(token: Token) -> dict[str, object]:
    return {
        "id": token.id,
        "owner": holder_of(token.owner, token.kind),
        "kind": token.kind,
        "scopes": token.scopes,
        "team": token.team,
        "issued_at": token.issued_at,
        "issued_by": token.issued_by,
        "expires_at": token.expires_at,
        "why": token.why,
    }
