"""`plimsoll access`: who may do what, and why somebody may not.

Decides nothing itself (`plimsoll.access` does). In a terminal nobody is asked for a role: whoever can open the database
can change all of it. Roles count for those who come through the server.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer

from plimsoll.access import service
from plimsoll.access.decide import SIGN_IN, judge, read_mapping, where_allowed
from plimsoll.access.fold import Access
from plimsoll.access.model import (
    SCOPES,
    Binding,
    Kind,
    Permission,
    Principal,
    Role,
    Scope,
    holder_name,
    make_binding,
    person_name,
)
from plimsoll.answers import Answer, Output, Table
from plimsoll.commands import access_session, access_token
from plimsoll.commands.access_notes import role_notes, second, team_notes
from plimsoll.commands.desk import here
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
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import show_second, utc_now
from plimsoll.words import counted, rough_span

LINK_MAX = timedelta(days=1)
LINK_PATH = "/signin/once/"
"""Where the server takes such a link."""
TERMINAL_NOTE = "a terminal that can open the database may do everything; roles count for those who come by the server"

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Who may do what: roles, tokens, and why somebody may not.",
)
Who = Annotated[
    str, typer.Argument(metavar="WHO", help="A person (e-mail address or subject), service:NAME or group:NAME.")
]
RoleWord = Annotated[Role, typer.Argument(metavar="ROLE", help=f"One of {', '.join(Role)}.")]
Team = Annotated[
    str, typer.Option("--team", metavar="TEAM", help="For this team; else for the whole fleet.", show_default=False)
]


@app.command("list")
def list_command(
    context: typer.Context,
    who: Annotated[str, typer.Argument(metavar="[WHO]", help="Only of these.", show_default=False)] = "",
    team: Annotated[
        str, typer.Option("--team", metavar="TEAM", help="Only what counts for this team.", show_default=False)
    ] = "",
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """Print who has which role, given by whom and why."""
    wanted = holder_name(who) if who else ""

    def answer(state: State) -> Answer:
        found = [
            (holder, grant)
            for holder, grants in sorted(state.of(Access).grants.items(), key=lambda item: item[0])
            for grant in sorted(grants, key=lambda each: each.binding)
            if wanted in ("", holder) and (not team or grant.binding.team in ("", team))
        ]
        rows = [(holder, str(g.binding.role), g.binding.team or None, g.by, second(g.at), g.why) for holder, g in found]
        document = {
            "grants": [
                {"who": holder, "role": g.binding.role, "team": g.binding.team, "by": g.by, "at": g.at, "why": g.why}
                for holder, g in found
            ]
        }
        notes = [] if found else ["next: plimsoll access grant YOU admin"]
        heading = f"{counted(len(found), 'role')} of {counted(len({who for who, _ in found}), 'holder')}"
        return Answer(document, [Table(("who", "role", "team", "by", "since", "why"), rows)], heading, notes)

    answer_state(context, db, as_of, output, watch=watch, answer=answer)


@app.command("grant")
def grant_command(
    context: typer.Context,
    who: Who,
    role: RoleWord,
    team: Team = "",
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Give somebody a role, for one team or for the whole fleet."""
    holder, binding = holder_name(who), make_binding(role, team)
    keeper = open_database(context, db)
    has_it = binding in keeper.state().of(Access).bindings_of(holder)
    events = service.grant(keeper, holder, binding, actor=current_actor(), reason=reason, is_dry_run=dry_run)
    notes = team_notes(keeper.state(), team)
    told = f"{holder} is {binding}" + (" already" if has_it else "")
    _tell(
        holder, binding, told, revision=events[-1].revision if events else None, output=output, notes=notes, dry=dry_run
    )


@app.command("revoke")
def revoke_command(
    context: typer.Context,
    who: Who,
    role: RoleWord,
    team: Team = "",
    anyway: Annotated[bool, typer.Option("--anyway", help="Although it is the last admin of the fleet.")] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Take a role away. What rests on it (tokens, sessions) loses it at once."""
    binding, keeper = make_binding(role, team), open_database(context, db)
    holder = service.holder_known(keeper.state(), who)
    events = service.revoke(
        keeper, holder, binding, actor=current_actor(), reason=reason, is_anyway=anyway, is_dry_run=dry_run
    )
    left = keeper.state().of(Access).bindings_of(holder) if not dry_run else ()
    notes = [f"left: {', '.join(map(str, sorted(left)))}"] if left else []
    told = f"{holder} is not {binding} any more"
    _tell(
        holder, binding, told, revision=events[-1].revision if events else None, output=output, notes=notes, dry=dry_run
    )


@app.command("check")
def check_command(
    context: typer.Context,
    who: Who,
    permission: Annotated[Scope, typer.Argument(metavar="PERMISSION", help=f"One of {', '.join(Scope)}.")],
    team: Annotated[
        str, typer.Option("--team", metavar="TEAM", help="Whose work or quota it is about.", show_default=False)
    ] = "",
    db: Db = "",
    output: Format = Output.TABLE,
) -> None:
    """Say whether somebody may do something, and why. Exit 1 where they may not."""
    keeper = open_database(context, db)
    principal = _somebody(keeper, who)
    verdict = judge(principal, Permission(permission), team)
    document = {
        "who": principal.label,
        "permission": permission,
        "team": team,
        "allowed": verdict.is_allowed,
        "code": verdict.code,
        "says": verdict.says,
        "needs": verdict.needs,
        "next_step": verdict.next_step,
    }
    notes = [f"next: {verdict.next_step}"] if verdict.next_step else []
    heading = f"{'yes' if verdict.is_allowed else 'no'}: {verdict.says}"
    show(
        Answer(document, [Table(tuple(document), [_cells(document)])] if output is Output.CSV else [], heading, notes),
        output,
    )
    if not verdict.is_allowed:
        raise typer.Exit(1)


@app.command("whoami")
def whoami_command(context: typer.Context, db: Db = "", output: Format = Output.TABLE) -> None:
    """Say who is acting, with which roles, and what they may do."""
    principal = _asker(open_database(context, db))
    is_terminal = here() is None
    rows = [(str(permission), _where(principal, permission)) for permission in SCOPES]
    may = [{"permission": name, "allowed": bool(where), "where": where} for name, where in rows]
    if principal is None:
        document: dict[str, object] = {"who": None, "kind": None, "by": None, "scopes": None, "roles": [], "may": may}
        heading, notes = "nobody is signed in", [f"next: {SIGN_IN}"]
    else:
        bindings = sorted(principal.bindings)
        scopes = None if principal.scopes is None else sorted(principal.scopes)
        document = {
            "who": principal.label,
            "kind": principal.kind,
            "by": "terminal" if is_terminal else "token" if principal.token_id else "session",
            "scopes": scopes,
            "roles": [{"role": each.role, "team": each.team} for each in bindings],
            "may": may,
        }
        heading = f"{principal.label}: {', '.join(map(str, bindings)) or 'no role'}"
        notes = [] if scopes is None else [f"this token is for {', '.join(scopes)} only"]
    if is_terminal:
        notes.append(TERMINAL_NOTE)
    show(Answer(document, [Table(("permission", "where"), rows)], heading, notes), output)


@app.command("link")
def link_command(
    context: typer.Context,
    who: Annotated[str, typer.Argument(metavar="WHO", help="Whom it signs in: an e-mail address or a subject.")],
    lifetime: Annotated[str, typer.Option("--for", metavar="SPAN", help="How long it waits to be used.")] = "15m",
    url: Annotated[
        str,
        typer.Option("--url", metavar="URL", help="The server's address, to print the whole link.", show_default=False),
    ] = "",
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
) -> None:
    """Make a link that signs somebody in once, where there is no issuer, or before it is set up."""
    span = parse_span(lifetime)
    if span is None or not timedelta() < span <= LINK_MAX:
        raise UsageError(
            "bad_lifetime",
            f"{lifetime[:40]!r} is no time for a link: more than nothing and at most {rough_span(LINK_MAX)}",
            next_step="--for 15m",
        )
    keeper = open_database(context, db)
    name = person_name(who)
    secret, until = service.make_link(keeper, name, span.total_seconds() / 60, actor=current_actor(), reason=reason)
    link = f"{url.rstrip('/')}{LINK_PATH}{secret}"
    document = {"who": name, "link": link, "until": until}
    lines = [
        link,
        f"whoever opens it first acts as {name}; it works once",
        *role_notes(keeper.state(), name, Kind.PERSON),
    ]
    table = Table(tuple(document), [tuple(document.values())])
    shown = [table] if output is Output.CSV else []
    show(Answer(document, shown, f"a link for {name}, until {show_second(until)}", lines), output)


app.add_typer(access_token.app, name="token")
app.add_typer(access_session.app, name="session")


def _tell(
    holder: str, binding: Binding, told: str, *, revision: int | None, output: Output, notes: Sequence[str], dry: bool
) -> None:
    document = {
        "who": holder,
        "role": binding.role,
        "team": binding.team,
        "did": told,
        "dry_run": dry,
        "revision": revision,
    }
    show(Answer(document, [], told, [*notes, *([DRY_RUN] if dry else [])]), output)


def _cells(document: dict[str, object]) -> list[object]:
    return [" ".join(map(str, value)) if isinstance(value, tuple) else value for value in document.values()]


def _asker(keeper: Keeper) -> Principal | None:
    """Who acts: over HTTP exactly as they were let in, with the scopes of their token; in a terminal by their name."""
    desk, actor = here(), current_actor()
    if desk is not None and (desk.principal is not None or not actor):
        return desk.principal
    try:
        return _by_name(keeper, actor)
    except UsageError:  # a login name or PLIMSOLL_ACTOR may be anything
        return Principal(actor, Kind.PERSON)


def _somebody(keeper: Keeper, who: str) -> Principal:
    """Somebody by name. Who asks for themselves is judged as they were let in."""
    desk = here()
    if desk is not None and desk.principal is not None and desk.principal.label == holder_name(who):
        return desk.principal
    return _by_name(keeper, who)


def _by_name(keeper: Keeper, who: str) -> Principal:
    """With the roles that settings map to groups: the server's, in a terminal those of its environment."""
    desk = here()
    mapping = desk.mapping if desk is not None else read_mapping(os.environ.get("PLIMSOLL_OIDC_GROUPS", ""))
    return service.principal_of_label(keeper.ledger.store, keeper.state(), who, utc_now(), mapping)


def _where(principal: Principal | None, permission: Permission) -> str:
    role, teams = where_allowed(principal, permission)
    return f"fleet ({role})" if role is not None else ", ".join(teams)
