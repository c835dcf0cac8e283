"""What an admin asks for (give a role, take it, make or end a token) as changes, or why not. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from plimsoll.access.changes import RoleGranted, RoleRevoked, TokenIssued, TokenRevoked
from plimsoll.access.fold import Access
from plimsoll.access.model import SERVICE_PREFIX, Binding, Kind, Permission, Role, Token, holder_of
from plimsoll.errors import NotFound, Refused
from plimsoll.ledger.model import Draft
from plimsoll.state.state import State
from plimsoll.times import show_second
from plimsoll.words import near

TOKENS_PER_OWNER_MAX = 100


def grant(state: State, who: str, binding: Binding) -> list[Draft]:
    """Give a role; nothing where they have it."""
    if binding in state.of(Access).bindings_of(who):
        return []
    return [Draft(RoleGranted(who, binding.role, binding.team))]


def revoke(state: State, who: str, binding: Binding, *, is_anyway: bool = False) -> list[Draft]:
    """Take a role away; the last admin's only if that is really meant."""
    access = state.of(Access)
    held = access.bindings_of(who)
    if binding not in held:
        has = ", ".join(map(str, sorted(held))) or "no role at all"
        raise NotFound(
            "no_such_grant",
            f"{who} is not {binding} (has: {has})" + ("" if held else near(who, list(access.grants))),
            next_step="plimsoll access list",
            who=who,
        )
    if is_last_admin(access, who, binding) and not is_anyway:
        raise Refused(
            "last_admin",
            f"{who} is the last admin of the fleet: nobody could give roles any more, but who can open the database",
            next_step="plimsoll access grant SOMEBODY admin   # first; or --anyway",
            who=who,
        )
    return [Draft(RoleRevoked(who, binding.role, binding.team))]


def is_last_admin(access: Access, who: str, binding: Binding) -> bool:
    """Whether without this binding no person and no group is admin of the fleet; a service is nobody to ask."""
    admin = Binding(Role.ADMIN)
    if binding != admin or who.startswith(SERVICE_PREFIX):
        return False
    return not any(
        admin in access.bindings_of(holder) and holder != who and not holder.startswith(SERVICE_PREFIX)
        for holder in access.grants
    )


def issue(
    state: State,
    token: str,
    owner: str,
    kind: Kind,
    *,
    scopes: Sequence[Permission] | None,
    team: str,
    expires_at: datetime | None,
    now: datetime,
) -> list[Draft]:
    """Make a token with this id."""
    living = [each for each in tokens_of(state, owner, kind) if each.expires_at is None or each.expires_at > now]
    if len(living) >= TOKENS_PER_OWNER_MAX:
        raise Refused(
            "too_many_tokens",
            f"{holder_of(owner, kind)} has {len(living)} tokens, at most {TOKENS_PER_OWNER_MAX} live at once",
            next_step="plimsoll access token list, then plimsoll access token revoke ID",
        )
    if expires_at is not None and expires_at <= now:
        raise Refused(
            "expired_already",
            f"a token that ends at {show_second(expires_at)} is over already: it is {show_second(now)}",
            next_step="give a later end, such as --for 90d",
        )
    cut = None if scopes is None else tuple(sorted(set(scopes)))
    return [Draft(TokenIssued(token, owner, kind, cut, team, expires_at))]


def end_token(state: State, token: str) -> tuple[Token, list[Draft]]:
    """End a token before its time."""
    tokens = state.of(Access).tokens
    if token not in tokens:
        raise NotFound(
            "no_such_token",
            f"there is no token {token[:40]!r}{near(token, list(tokens))}",
            next_step="plimsoll access token list",
            token=token[:40],
        )
    found = tokens[token]
    return found, [Draft(TokenRevoked(token, found.owner, found.kind))]


def tokens_of(state: State, owner: str, kind: Kind) -> list[Token]:
    """The tokens of one owner, oldest first."""
    found = [each for each in state.of(Access).tokens.values() if (each.owner, each.kind) == (owner, kind)]
    return sorted(found, key=lambda each: (each.issued_at, each.id))
