"""The nouns of access: permissions, roles and what each may do, who has which role, who is asking.

Decides nothing (`decide.py` does). Must never hold a secret: of a token only its id is known here.
"""

from __future__ import annotations

import enum
import re
from datetime import datetime

import msgspec

from plimsoll.errors import UsageError
from plimsoll.words import near

NAME_CHARS_MAX = 200
GROUP_PREFIX = "group:"
SERVICE_PREFIX = "service:"
DEMO_PREFIX = "demo:"
_RESERVED = re.compile(r"(?i)(service|group|demo|plimsoll|campaign|http|token|session)\s*(:|$)")
"""What no person may be called, nor begin with before a colon: so acts in the ledger who is no person, the controllers
(`plimsoll`, which owns holds of its own), a campaign, the feed of a demo or of the listener."""


class Permission(enum.StrEnum):
    """What a route or a command asks for; each names exactly one."""

    SEE = "see"
    SEE_WAVES = "see_waves"
    TICK_WAVES = "tick_waves"
    USE = "use"
    DECIDE_QUOTA = "decide_quota"
    OPERATE = "operate"
    SIGNAL = "signal"
    ADMINISTER = "administer"
    NOBODY_NEEDED = "open"


class Scope(enum.StrEnum):
    """What a token can be cut down to, and what can be asked about: every permission that somebody needs."""

    SEE = Permission.SEE
    SEE_WAVES = Permission.SEE_WAVES
    TICK_WAVES = Permission.TICK_WAVES
    USE = Permission.USE
    DECIDE_QUOTA = Permission.DECIDE_QUOTA
    OPERATE = Permission.OPERATE
    SIGNAL = Permission.SIGNAL
    ADMINISTER = Permission.ADMINISTER


class Role(enum.StrEnum):
    """What somebody is, for one team or for the whole fleet."""

    VIEWER = "viewer"
    MEMBER = "member"
    RPM = "rpm"
    OPERATOR = "operator"
    ADMIN = "admin"
    PARTNER = "partner"


_SEES = frozenset({Permission.SEE, Permission.SEE_WAVES})

PERMISSIONS: dict[Role, frozenset[Permission]] = {
    Role.PARTNER: frozenset({Permission.SEE_WAVES, Permission.TICK_WAVES}),
    Role.VIEWER: _SEES,
    Role.MEMBER: _SEES | {Permission.USE},
    Role.RPM: _SEES | {Permission.USE, Permission.DECIDE_QUOTA},
    Role.OPERATOR: _SEES | {Permission.TICK_WAVES, Permission.OPERATE, Permission.SIGNAL},
    Role.ADMIN: frozenset(Permission) - {Permission.NOBODY_NEEDED},
}
"""The whole table, from the role that may least. What does not stand here is not allowed."""

TEAM_ROLES = frozenset({Role.VIEWER, Role.MEMBER, Role.RPM})
"""Roles that can be given for one team; the others are of the fleet or nothing."""

SEEN_FROM_ANYWHERE = frozenset({Permission.SEE, Permission.SEE_WAVES})
"""Any role that has them has them for the whole fleet: everybody may see who holds what."""

OF_A_TEAM = frozenset({Permission.USE, Permission.DECIDE_QUOTA})
"""A role for one team has them for that team."""

SCOPES = tuple(Permission(scope) for scope in Scope)
"""The same as permissions."""


class Kind(enum.StrEnum):
    """What kind of somebody. `demo` is whoever came by the printed link of a demo."""

    PERSON = "person"
    SERVICE = "service"
    DEMO = "demo"


class Binding(msgspec.Struct, frozen=True, order=True):
    """A role, for one team or (team "") for the whole fleet."""

    role: Role
    team: str = ""

    def __str__(self) -> str:
        return f"{self.role} of {self.team}" if self.team else f"{self.role} of the fleet"


class Principal(msgspec.Struct, frozen=True):
    """Who is asking, with what they may do at this moment. `scopes` cuts it down; None cuts nothing."""

    name: str
    kind: Kind
    bindings: tuple[Binding, ...] = ()
    scopes: frozenset[Permission] | None = None
    token_id: str = ""

    @property
    def label(self) -> str:
        """The actor in the ledger: a person's name as it is, anybody else's with what they are before it."""
        return holder_of(self.name, self.kind)


class Grant(msgspec.Struct, frozen=True):
    """A binding that was given, with who gave it, when and why."""

    binding: Binding
    by: str
    at: datetime
    why: str = ""


class Token(msgspec.Struct, frozen=True):
    """What is known of a token; the secret is shown once and only its hash is kept, elsewhere.

    `owner` is a person's name or a service's; `scopes` None means all that its owner may do.
    """

    id: str
    owner: str
    kind: Kind
    scopes: tuple[Permission, ...] | None
    team: str
    issued_at: datetime
    issued_by: str
    expires_at: datetime | None
    why: str = ""


def person_name(text: str) -> str:
    """A person's name as it is kept. E-mail addresses are the same in capitals; other names are taken to the letter.

    An address is ASCII: there are signs that look like a letter, or become one in small letters (the Kelvin sign a k).
    """
    name = text.strip()
    _check_name(name, what="a person")
    if _RESERVED.match(name):
        word = name.partition(":")[0]
        raise UsageError(
            "bad_name",
            f"{name[:80]!r} is no person: {word}, and names that begin with {word}:, are not of people",
            next_step="give an e-mail address, or the subject that the sign-in gives",
        )
    if "@" in name and not name.isascii():
        raise UsageError(
            "bad_name",
            f"{name[:80]!a} is no address of a person: it has signs outside ASCII",
            next_step="write the domain as xn--…, or sign people in by another claim: PLIMSOLL_OIDC_NAME_CLAIM=sub",
        )
    return name.lower() if "@" in name else name


def holder_name(text: str) -> str:
    """Who can have a role: a person (by e-mail or subject), `service:NAME`, `group:NAME`; a demo's `demo:NAME`."""
    for prefix in (GROUP_PREFIX, SERVICE_PREFIX, DEMO_PREFIX):
        if text.startswith(prefix):
            _check_name(text.removeprefix(prefix), what=f"a {prefix[:-1]}")
            return text
    return person_name(text)


def holder_of(name: str, kind: Kind) -> str:
    """Under which name the roles of a principal are kept."""
    return name if kind == Kind.PERSON else f"{kind}:{name}"


def owner_of(text: str) -> tuple[str, Kind]:
    """Who can have a token: a person or a service, somebody who answers for it."""
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


def read_role(text: str) -> Role:
    """The role that a word names."""
    try:
        return Role(text)
    except ValueError:
        raise UsageError(
            "no_such_role",
            f"there is no role {text[:40]!r}{near(text, list(Role))}",
            next_step=f"one of: {', '.join(Role)}",
        ) from None


NO_TEAM = "(none)"
"""A team that nobody is of: work without one is only for those who may act for all."""


def make_binding(role: Role, team: str = "") -> Binding:
    """A binding that makes sense: some roles are of the fleet only."""
    if team and role not in TEAM_ROLES:
        raise UsageError(
            "role_of_the_fleet",
            f"{role} is a role of the whole fleet, not of one team ({team[:80]})",
            next_step=f"leave out the team, or give one of: {', '.join(sorted(TEAM_ROLES))}",
        )
    if team != team.strip() or len(team) > NAME_CHARS_MAX or not team.isprintable() or team == NO_TEAM:
        raise UsageError("bad_team", f"{team[:80]!r} can't name a team", next_step="write it as the quota book does")
    return Binding(role, team)


def _check_name(name: str, *, what: str) -> None:
    if not name or len(name) > NAME_CHARS_MAX or not name.isprintable() or any(sign.isspace() for sign in name):
        shown = name[:80] if name.isprintable() else ascii(name[:80])
        raise UsageError(
            "bad_name",
            f"{shown!r} is no name of {what}: 1 to {NAME_CHARS_MAX} signs without spaces",
            next_step="plimsoll access list   # who has which role",
        )
