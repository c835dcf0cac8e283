"""Shapes of the answers of `plimsoll access`: roles and tokens."""

from __future__ import annotations

from plimsoll.access.model import Kind, Role, Scope
from plimsoll.server.shapes.model import (
    DRY_RUN,
    FLAG,
    INTEGER,
    TEXT,
    TIME,
    Shape,
    at_times,
    choice,
    joined,
    many,
    maybe,
    named,
    noted,
    obj,
)

TEAM = noted(TEXT, "Empty: the whole fleet.")
REVISION = maybe(INTEGER, "Null where nothing was written.")
CHANGED = obj(who=TEXT, role=choice(Role), team=TEAM, did=TEXT, dry_run=DRY_RUN, revision=REVISION)
TOKEN = named(
    "AccessToken",
    obj(
        id=noted(TEXT, "Empty after a dry run."),
        owner=TEXT,
        kind=choice(Kind),
        scopes=maybe(many(choice(Scope)), "Null: all that its owner may do."),
        team=TEAM,
        issued_at=TIME,
        issued_by=TEXT,
        expires_at=maybe(TIME, "Null: never."),
        why=TEXT,
    ),
)

SHAPES: dict[str, Shape] = {
    "access list": obj(grants=many(obj(who=TEXT, role=choice(Role), team=TEAM, by=TEXT, at=TIME, why=TEXT))),
    "access grant": CHANGED,
    "access revoke": CHANGED,
    "access check": obj(
        who=TEXT,
        permission=choice(Scope),
        team=TEAM,
        allowed=FLAG,
        code=TEXT,
        says=TEXT,
        needs=many(choice(Role), "Roles that would do, the one that may least first."),
        next_step=TEXT,
    ),
    "access whoami": obj(
        who=maybe(TEXT, "Null: nobody is signed in."),
        kind=maybe(choice(Kind), "Null: nobody is signed in."),
        by=maybe(TEXT, "`token` or `session`; `terminal` where no server is asked. Null: nobody is signed in."),
        scopes=maybe(many(choice(Scope)), "What the token is for; null: all that its owner may do."),
        roles=many(obj(role=choice(Role), team=TEAM)),
        may=many(obj(permission=choice(Scope), allowed=FLAG, where=noted(TEXT, "On the fleet, or for which teams."))),
    ),
    "access link": obj(who=TEXT, link=noted(TEXT, "It works once."), until=TIME),
    "access token issue": joined(
        TOKEN, obj(dry_run=DRY_RUN, secret=at_times(noted(TEXT, "Shown this once; left out after a dry run.")))
    ),
    "access token list": obj(tokens=many(TOKEN)),
    "access token revoke": obj(token=TEXT, owner=TEXT, dry_run=DRY_RUN, revision=REVISION),
    "access session end": obj(
        who=TEXT,
        sessions=INTEGER,
        links=noted(INTEGER, "Those that nobody had used yet."),
        dry_run=DRY_RUN,
        revision=REVISION,
    ),
}
