"""What can happen to access, as events: roles given and taken, tokens made and ended. Never a secret, never a hash."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from plimsoll.access.model import Kind, Permission, Role, holder_of
from plimsoll.ledger.model import Change


def subject_of(holder: str) -> str:
    """The stream of one holder of roles: `access/alice@example.org`, `access/service:prometheus`."""
    return f"access/{holder}"


class RoleGranted(Change, frozen=True):
    """A person, a service or a group was given a role, for a team or (team "") for the fleet."""

    kind: ClassVar[str] = "access.granted"

    who: str
    role: Role
    team: str = ""

    @property
    def subject(self) -> str:
        return subject_of(self.who)


class RoleRevoked(Change, frozen=True):
    """The role was taken away again."""

    kind: ClassVar[str] = "access.revoked"

    who: str
    role: Role
    team: str = ""

    @property
    def subject(self) -> str:
        return subject_of(self.who)


class TokenIssued(Change, frozen=True):
    """A token was made. `scopes` None: all that its owner may do."""

    kind: ClassVar[str] = "access.token_issued"

    token: str
    owner: str
    owner_kind: Kind
    scopes: tuple[Permission, ...] | None = None
    team: str = ""
    expires_at: datetime | None = None

    @property
    def subject(self) -> str:
        return subject_of(holder_of(self.owner, self.owner_kind))


class TokenRevoked(Change, frozen=True):
    """A token was ended before its time."""

    kind: ClassVar[str] = "access.token_revoked"

    token: str
    owner: str
    owner_kind: Kind

    @property
    def subject(self) -> str:
        return subject_of(holder_of(self.owner, self.owner_kind))


class SessionsEnded(Change, frozen=True):
    """Somebody was signed out in every browser, and the links that would have signed them in work no more."""

    kind: ClassVar[str] = "access.sessions_ended"

    who: str
    sessions: int
    links: int = 0

    @property
    def subject(self) -> str:
        return subject_of(self.who)


class LinkMade(Change, frozen=True):
    """A link was made that signs whoever opens it first in as this person. The ledger says who made it, and why."""

    kind: ClassVar[str] = "access.link_made"

    who: str
    until: datetime

    @property
    def subject(self) -> str:
        return subject_of(self.who)
