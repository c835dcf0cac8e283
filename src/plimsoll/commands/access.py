"""`plimsoll access`: who may do what, tokens, and why somebody may not.

Decides nothing itself (`plimsoll.access` does). In a terminal nobody is asked for a role: whoever can open the database
can change all of it. Roles count for those who come through the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

import typer

from plimsoll.access import desk, service
from plimsoll.access.decide import allows, judge
from plimsoll.access.fold import Access
from plimsoll.access.model import (
    DEMO_PREFIX,
    GROUP_PREFIX,
    SCOPES,
    SERVICE_PREFIX,
    Binding,
    Kind,
    Permission,
    Principal,
    Role,
    Token,
    holder_name,
    holder_of,
    make_binding,
    person_name,
)
from plimsoll.answers import Answer, Output, Table
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
from plimsoll.errors import UsageError
from plimsoll.quota.names import known_teams
from plimsoll.state.state import State
from plimsoll.times import show_second, utc_now
from plimsoll.words import counted, near, rough_span

LIFETIME_DEFAULT = "90d"
LIFETIME_MAX = timedelta(days=3660)
FOR_EVER = "ever"
LINK_MAX = timedelta(days=1)
LINK_PATH = "/signin/once/"
"""Where the server takes such a link."""
DRY_RUN = "dry run: nothing was kept"
TERMINAL_NOTE = "a terminal that can open the database may do everything; roles count for those who come by the server"

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Who may do what: roles, tokens, and why somebody may not.",
)
token_app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Tokens for scripts and services: make, list, end.",
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
        rows = [
            (holder, str(g.binding.role), g.binding.team or None, g.by, _second(g.at), g.why) for holder, g in found
        ]
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
    notes = _team_notes(keeper.state(), team)
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
    holder, binding = holder_name(who), make_binding(role, team)
    keeper = open_database(context, db)
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
    permission: Annotated[Permission, typer.Argument(metavar="PERMISSION", help=f"One of {', '.join(SCOPES)}.")],
    team: Annotated[
        str, typer.Option("--team", metavar="TEAM", help="Whose work or quota it is about.", show_default=False)
    ] = "",
    db: Db = "",
    output: Format = Output.TABLE,
) -> None:
    """Say whether somebody may do something, and why. Exit 1 where they may not."""
    keeper = open_database(context, db)
    principal = service.principal_of_label(keeper.ledger.store, keeper.state(), who, utc_now())
    verdict = judge(principal, permission, team)
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
    keeper, actor = open_database(context, db), current_actor()
    try:
        principal = service.principal_of_label(keeper.ledger.store, keeper.state(), actor, utc_now())
    except UsageError:  # a login name or PLIMSOLL_ACTOR may be anything
        principal = Principal(actor, Kind.PERSON)
    rows = [(permission, *_where(principal, permission)) for permission in SCOPES]
    document = {
        "who": actor,
        "roles": [{"role": each.role, "team": each.team} for each in sorted(principal.bindings)],
        "may": [{"permission": name, "allowed": bool(where), "where": where} for name, where in rows],
    }
    has = ", ".join(map(str, sorted(principal.bindings))) or "no role"
    notes = [] if here() is not None else [TERMINAL_NOTE]
    show(Answer(document, [Table(("permission", "where"), rows)], f"{actor}: {has}", notes), output)


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
        *_role_notes(keeper.state(), name, Kind.PERSON),
    ]
    table = Table(tuple(document), [tuple(document.values())])
    shown = [table] if output is Output.CSV else []
    show(Answer(document, shown, f"a link for {name}, until {show_second(until)}", lines), output)


@token_app.command("issue")
def issue_command(
    context: typer.Context,
    owner: Annotated[str, typer.Argument(metavar="OWNER", help="Whose token: a person, or service:NAME.")],
    scope: Annotated[
        list[Permission] | None,
        typer.Option("--scope", metavar="PERMISSION", help="Only for this; may be repeated.", show_default=False),
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
    name, kind = _owner(owner)
    scopes = None if not scope else tuple(sorted(set(scope)))
    if scopes and Permission.NOBODY_NEEDED in scopes:
        raise UsageError(
            "no_such_permission", "nobody needs a token for that", next_step=f"one of: {', '.join(SCOPES)}"
        )
    make_binding(Role.VIEWER, team)
    now, keeper = utc_now(), open_database(context, db)
    span = _lifetime(lifetime)
    expires = None if span is None else now + span
    state = keeper.state()
    notes = _team_notes(state, team) + _role_notes(state, name, kind)
    if dry_run:
        desk.issue(state, "0" * 12, name, kind, scopes=scopes, team=team, expires_at=expires, now=now)
        token = Token("", name, kind, scopes, team, now, current_actor(), expires, reason)
        show(Answer(_token_document(token), [], f"would make a token of {_token_words(token)}", [DRY_RUN]), output)
        return
    secret, token = service.issue_token(
        keeper, name, kind=kind, scopes=scopes, team=team, expires=expires, actor=current_actor(), reason=reason
    )
    lines = [secret, "this is shown once: keep it where only its user can read it", *notes]
    lines.append(f"to end it: plimsoll access token revoke {token.id}")
    document = {**_token_document(token), "secret": secret}
    table = Table(("id", "secret", "expires_at"), [(token.id, secret, token.expires_at)])
    show(Answer(document, [table] if output is Output.CSV else [], f"token of {_token_words(token)}", lines), output)


@token_app.command("list")
def tokens_command(
    context: typer.Context,
    owner: Annotated[str, typer.Argument(metavar="[OWNER]", help="Only of this one.", show_default=False)] = "",
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """Print the tokens that were not ended; never a secret."""
    wanted = _owner(owner) if owner else None

    def answer(state: State) -> Answer:
        now = utc_now()
        found = [each for each in service.tokens(state) if wanted in (None, (each.owner, each.kind))]
        rows = [
            (
                each.id,
                holder_of(each.owner, each.kind),
                _scopes_words(each),
                each.team or None,
                _second(each.expires_at),
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


@token_app.command("revoke")
def end_command(
    context: typer.Context,
    token: Annotated[str, typer.Argument(metavar="ID", help="As `token list` prints it.")],
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """End a token now: it works nowhere any more."""
    keeper = open_database(context, db)
    found, events = service.revoke_token(keeper, token, actor=current_actor(), reason=reason, is_dry_run=dry_run)
    document = {
        "token": found.id,
        "owner": holder_of(found.owner, found.kind),
        "dry_run": dry_run,
        "revision": events[-1].revision if events else None,
    }
    show(
        Answer(document, [], f"token {found.id} of {_token_words(found)} is ended", [DRY_RUN] if dry_run else []),
        output,
    )


app.add_typer(token_app, name="token")


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


def _owner(text: str) -> tuple[str, Kind]:
    holder = holder_name(text)
    if holder.startswith(SERVICE_PREFIX):
        return holder.removeprefix(SERVICE_PREFIX), Kind.SERVICE
    if holder.startswith((GROUP_PREFIX, DEMO_PREFIX)):
        raise UsageError(
            "bad_owner",
            f"{holder[:80]} can't have a token: somebody must answer for it",
            next_step="give a person or service:NAME",
        )
    return holder, Kind.PERSON


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


def _team_notes(state: State, team: str) -> list[str]:
    known = known_teams(state)
    return [f"no team {team!r} holds or uses anything yet{near(team, known)}"] if team and team not in known else []


def _role_notes(state: State, name: str, kind: Kind) -> list[str]:
    holder = holder_of(name, kind)
    if state.of(Access).bindings_of(holder):
        return []
    return [f"{holder} has no role of its own yet: plimsoll access grant {holder} ROLE"]


def _where(principal: Principal, permission: Permission) -> tuple[str]:
    if allows_fleet := [each for each in principal.bindings if allows(each, permission)]:
        return (f"fleet ({allows_fleet[0].role})",)
    teams = sorted({each.team for each in principal.bindings if each.team and allows(each, permission, each.team)})
    return (", ".join(teams),)


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


def _second(moment: datetime | None) -> datetime | None:
    """For a table: nobody reads microseconds there."""
    return None if moment is None else moment.replace(microsecond=0)


def _cells(document: dict[str, object]) -> list[object]:
    return [" ".join(map(str, value)) if isinstance(value, tuple) else value for value in document.values()]
