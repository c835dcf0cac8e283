"""Giving and taking roles, tokens, sessions and one-time links: the effects of access.

Of every secret only a SHA-256 hash is kept (they are random, so that is enough). A right is looked up at the moment of
use, so that what was revoked works nowhere any more. Must never log, record or return a secret but to whom it is for.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import NamedTuple

import msgspec

from plimsoll.access import desk
from plimsoll.access.changes import LinkMade, SessionsEnded
from plimsoll.access.decide import bindings_of_groups, cut_to_team
from plimsoll.access.fold import Access
from plimsoll.access.model import (
    GROUP_PREFIX,
    SERVICE_PREFIX,
    Binding,
    Kind,
    Permission,
    Principal,
    Token,
    holder_name,
    holder_of,
    person_name,
)
from plimsoll.ledger.model import Draft, Event, Paper
from plimsoll.ledger.store import Store
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import format_time

TOKEN_PREFIX = "plim"  # noqa: S105
TOKEN = "token"  # noqa: S105
SESSION = "session"
LINK = "link"
MEMBERSHIP = "membership"
"""Kinds of papers."""

ID_BYTES = 6
SECRET_BYTES = 32
SECRET_CHARS_MAX = 200
GROUPS_MAX = 500
MEMBERSHIP_DAYS = 30
"""How long the groups that the issuer told at a sign-in count for a person's tokens."""

Mapped = Mapping[str, Sequence[Binding]]
_NOTHING_MAPPED: Mapped = {}


class _TokenBody(msgspec.Struct):
    hash: str


class _SessionBody(msgspec.Struct):
    name: str
    kind: Kind
    groups: tuple[str, ...] = ()


class _LinkBody(msgspec.Struct):
    name: str


# Roles.


def grant(
    keeper: Keeper, who: str, binding: Binding, *, actor: str, reason: str = "", is_dry_run: bool = False
) -> list[Event]:
    """Give somebody a role; no event where they have it."""
    holder = holder_name(who)
    _, events = keeper.say(
        lambda state, _now: (None, desk.grant(state, holder, binding)),
        actor=actor,
        reason=reason,
        is_dry_run=is_dry_run,
    )
    return events


def revoke(
    keeper: Keeper,
    who: str,
    binding: Binding,
    *,
    actor: str,
    reason: str = "",
    is_anyway: bool = False,
    is_dry_run: bool = False,
) -> list[Event]:
    """Take a role away. All streams of access are read: two admins who revoke each other must not both succeed."""
    holder = holder_known(keeper.state(), who)
    _, events = keeper.say(
        lambda state, _now: (None, desk.revoke(state, holder, binding, is_anyway=is_anyway)),
        actor=actor,
        reason=reason,
        reads=("access/*",),
        is_dry_run=is_dry_run,
    )
    return events


def holder_known(state: State, who: str) -> str:
    """Who has roles under this name, also where nobody could be given any under it now: what it has can be taken."""
    return who if who in state.of(Access).grants else holder_name(who)


def principal_of(
    state: State, name: str, kind: Kind, groups: Sequence[str] = (), mapping: Mapped = _NOTHING_MAPPED
) -> Principal:
    """Somebody with the roles they have now: their own, those given to their groups, those that settings map."""
    access = state.of(Access)
    found = list(access.bindings_of(holder_of(name, kind)))
    for group in groups:
        found += access.bindings_of(f"{GROUP_PREFIX}{group}")
    found += bindings_of_groups(groups, mapping)
    return Principal(name, kind, tuple(dict.fromkeys(found)))


def principal_of_label(
    store: Store, state: State, label: str, now: datetime, mapping: Mapped = _NOTHING_MAPPED
) -> Principal:
    """Somebody by the name that stands in the ledger; a person with the groups of their last sign-in."""
    holder = holder_name(label)
    for kind in (Kind.SERVICE, Kind.DEMO):
        if holder.startswith(f"{kind}:"):
            return principal_of(state, holder.removeprefix(f"{kind}:"), kind)
    if holder.startswith(GROUP_PREFIX):
        mapped = bindings_of_groups((holder.removeprefix(GROUP_PREFIX),), mapping)
        return Principal(holder, Kind.PERSON, tuple(dict.fromkeys((*state.of(Access).bindings_of(holder), *mapped))))
    return principal_of(state, holder, Kind.PERSON, groups_seen(store, holder, now), mapping)


# Tokens.


def issue_token(
    keeper: Keeper,
    owner: str,
    *,
    kind: Kind,
    scopes: Sequence[Permission] | None,
    team: str = "",
    expires: datetime | None,
    actor: str,
    reason: str = "",
) -> tuple[str, Token]:
    """Make a token: the secret, which nobody sees again, and what is known of it.

    It is recorded first and works only once its hash is kept: one that was cut short in between works for nobody.
    """
    assert kind != Kind.DEMO, "a demo has no tokens"
    name = person_name(owner) if kind == Kind.PERSON else _service_name(owner)
    token = secrets.token_hex(ID_BYTES)
    secret = f"{TOKEN_PREFIX}_{token}_{secrets.token_urlsafe(SECRET_BYTES)}"
    keeper.say(
        lambda state, now: (
            None,
            desk.issue(state, token, name, kind, scopes=scopes, team=team, expires_at=expires, now=now),
        ),
        actor=actor,
        reason=reason,
    )
    body = msgspec.json.encode(_TokenBody(_hash(secret))).decode()
    keeper.ledger.store.keep_paper(Paper(TOKEN, token, format_time(expires) if expires else "", body))
    return secret, keeper.state().of(Access).tokens[token]


def find_token(
    store: Store, state: State, secret: str, now: datetime, mapping: Mapped = _NOTHING_MAPPED
) -> Principal | None:
    """Whose token this is, with what it may do now; None for one that is wrong, over or ended."""
    prefix, _, rest = secret.partition("_")
    name, separator, _ = rest.partition("_")
    if prefix != TOKEN_PREFIX or not separator or not _is_plain(secret):
        return None
    token = state.of(Access).tokens.get(name)
    if token is None or (token.expires_at is not None and token.expires_at <= now):
        return None
    paper = store.paper(TOKEN, name)
    if paper is None:
        return None
    kept = msgspec.json.decode(paper.body, type=_TokenBody).hash
    if not hmac.compare_digest(kept, _hash(secret)):
        return None
    groups = groups_seen(store, token.owner, now) if token.kind == Kind.PERSON else ()
    owner = principal_of(state, token.owner, token.kind, groups, mapping)
    scopes = None if token.scopes is None else frozenset(token.scopes)
    return Principal(owner.name, owner.kind, cut_to_team(owner.bindings, token.team), scopes, token.id)


def revoke_token(
    keeper: Keeper, token: str, *, actor: str, reason: str = "", is_dry_run: bool = False
) -> tuple[Token, list[Event]]:
    """End a token. It is dead with the event; its hash goes after that."""
    found, events = keeper.say(
        lambda state, _now: desk.end_token(state, token), actor=actor, reason=reason, is_dry_run=is_dry_run
    )
    if not is_dry_run:
        keeper.ledger.store.drop_paper(TOKEN, token)
    return found, events


def tokens(state: State) -> list[Token]:
    """All tokens that were not ended, also those that are over, by owner and age."""
    found = state.of(Access).tokens.values()
    return sorted(found, key=lambda each: (each.kind, each.owner, each.issued_at, each.id))


# Sessions.


def open_session(
    store: Store, principal_name: str, kind: Kind, groups: Sequence[str] | None, now: datetime, hours: float
) -> str:
    """Begin a session; its secret belongs into a cookie. The groups are remembered for the person's tokens, too; None
    where nobody told any: then those that an issuer told before go on counting for the tokens."""
    name = person_name(principal_name) if kind == Kind.PERSON else principal_name
    kept = tuple(groups or ())[:GROUPS_MAX]
    secret = secrets.token_urlsafe(SECRET_BYTES)
    body = msgspec.json.encode(_SessionBody(name, kind, kept)).decode()
    store.keep_paper(Paper(SESSION, _hash(secret), format_time(now + timedelta(hours=hours)), body))
    if kind == Kind.PERSON and groups is not None:
        until = format_time(now + timedelta(days=MEMBERSHIP_DAYS))
        store.keep_paper(Paper(MEMBERSHIP, name, until, msgspec.json.encode(kept).decode()))
    return secret


def find_session(
    store: Store, state: State, secret: str, now: datetime, mapping: Mapped = _NOTHING_MAPPED
) -> Principal | None:
    """Whose session this is, with what they may do now; None for one that is unknown, over or ended."""
    if not _is_plain(secret):
        return None
    paper = store.paper(SESSION, _hash(secret))
    if paper is None or paper.is_over(now):
        return None
    body = msgspec.json.decode(paper.body, type=_SessionBody)
    return principal_of(state, body.name, body.kind, body.groups, mapping)


def end_session(store: Store, secret: str) -> bool:
    """Sign out; whether there was such a session."""
    return _is_plain(secret) and store.drop_paper(SESSION, _hash(secret))


class Ended(NamedTuple):
    """How many sessions, and links that were not used yet, of one person."""

    sessions: int
    links: int


def end_sessions(
    keeper: Keeper, who: str, *, actor: str, reason: str = "", is_dry_run: bool = False
) -> tuple[Ended, list[Event]]:
    """Sign somebody out everywhere; no event where they are signed in nowhere. It is recorded first; cut short in
    between, it is done by doing it again."""
    name, store, now = person_name(who), keeper.ledger.store, keeper.ledger.clock()
    sessions = [
        paper for paper in store.papers(SESSION) if _is_session_of(paper, name, Kind.PERSON) and not paper.is_over(now)
    ]
    links = [
        paper
        for paper in store.papers(LINK)
        if msgspec.json.decode(paper.body, type=_LinkBody).name == name and not paper.is_over(now)
    ]
    ended = Ended(len(sessions), len(links))
    drafts = [Draft(SessionsEnded(name, *ended))] if any(ended) else []
    _, events = keeper.say(lambda _state, _now: (None, drafts), actor=actor, reason=reason, is_dry_run=is_dry_run)
    if not is_dry_run:
        for paper in (*sessions, *links):
            store.drop_paper(paper.kind, paper.id)
    return ended, events


def _is_session_of(paper: Paper, name: str, kind: Kind) -> bool:
    body = msgspec.json.decode(paper.body, type=_SessionBody)
    return (body.name, body.kind) == (name, kind)


def groups_seen(store: Store, person: str, now: datetime) -> tuple[str, ...]:
    """The groups that the issuer told when this person last signed in; none where that is too long ago."""
    paper = store.paper(MEMBERSHIP, person)
    if paper is None or paper.is_over(now):
        return ()
    return msgspec.json.decode(paper.body, type=tuple[str, ...])


# One-time links.


def make_link(keeper: Keeper, who: str, minutes: float, *, actor: str, reason: str = "") -> tuple[str, datetime]:
    """A link that signs a person in once: its secret, and until when it works.

    It is recorded first, for whoever opens it acts under that name.
    """
    name, now = person_name(who), keeper.ledger.clock()
    until = now + timedelta(minutes=minutes)
    keeper.say(lambda _state, _now: (None, [Draft(LinkMade(name, until))]), actor=actor, reason=reason)
    secret = secrets.token_urlsafe(SECRET_BYTES)
    body = msgspec.json.encode(_LinkBody(name)).decode()
    keeper.ledger.store.keep_paper(Paper(LINK, _hash(secret), format_time(until), body))
    return secret, until


def redeem_link(store: Store, secret: str, now: datetime) -> str | None:
    """Who comes by a link; None for one that is wrong, over, or was used: of two at once one gets in."""
    if not _is_plain(secret):
        return None
    paper = store.take_paper(LINK, _hash(secret))
    if paper is None or paper.is_over(now):
        return None
    return msgspec.json.decode(paper.body, type=_LinkBody).name


def _hash(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _is_plain(secret: str) -> bool:
    """Whether this can be a secret of ours at all: anything may come from outside."""
    return 0 < len(secret) <= SECRET_CHARS_MAX and secret.isascii() and secret.isprintable()


def _service_name(owner: str) -> str:
    return holder_name(f"{SERVICE_PREFIX}{owner.removeprefix(SERVICE_PREFIX)}").removeprefix(SERVICE_PREFIX)
