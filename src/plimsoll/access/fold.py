"""How the events of access change the state: who has which role since when, and which tokens live."""

from __future__ import annotations

import msgspec

from plimsoll.access.changes import LinkMade, RoleGranted, RoleRevoked, SessionsEnded, TokenIssued, TokenRevoked
from plimsoll.access.model import Binding, Grant, Token
from plimsoll.ledger.model import Event
from plimsoll.state.state import Room, State, Tables
from plimsoll.state.table import Journal, Table

_LAST = "last"


class _Dump(msgspec.Struct):
    grants: list[tuple[str, tuple[Grant, ...]]]
    tokens: list[Token]
    changed: int


class Access(Tables):
    """Who has which role, by holder (a person's name, `service:NAME`, `group:NAME`), and the tokens by id."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.grants: Table[str, tuple[Grant, ...]] = Table(journal)
        self.tokens: Table[str, Token] = Table(journal)
        self.changed: Table[str, int] = Table(journal)

    @property
    def changed_at(self) -> int:
        """The revision at which access last changed: what was found out about anybody before holds until it moves."""
        return self.changed.get(_LAST, 0)

    def bindings_of(self, holder: str) -> tuple[Binding, ...]:
        """The bindings that a holder was given itself."""
        return tuple(grant.binding for grant in self.grants.get(holder, ()))

    def dump(self) -> bytes:
        tokens = [token for _, token in sorted(self.tokens.items())]
        return msgspec.msgpack.encode(_Dump(sorted(self.grants.items(), key=_first), tokens, self.changed_at))

    def load(self, body: bytes) -> None:
        dump = msgspec.msgpack.decode(body, type=_Dump)
        for holder, grants in dump.grants:
            self.grants.put(holder, grants)
        for token in dump.tokens:
            self.tokens.put(token.id, token)
        if dump.changed:
            self.changed.put(_LAST, dump.changed)


ROOM = Room("access", version=1, tables=Access)


@ROOM.folds_change(RoleGranted)
def _fold_granted(state: State, change: RoleGranted, event: Event) -> None:
    access = state.of(Access)
    grant = Grant(Binding(change.role, change.team), event.actor, event.effective_time, event.reason)
    others = [each for each in access.grants.get(change.who, ()) if each.binding != grant.binding]
    access.grants.put(change.who, (*others, grant))
    access.changed.put(_LAST, event.revision)


@ROOM.folds_change(RoleRevoked)
def _fold_revoked(state: State, change: RoleRevoked, event: Event) -> None:
    access = state.of(Access)
    binding = Binding(change.role, change.team)
    held = access.grants.get(change.who, ())
    left = tuple(each for each in held if each.binding != binding)
    if left:
        access.grants.put(change.who, left)
    elif held:
        access.grants.drop(change.who)
    access.changed.put(_LAST, event.revision)


@ROOM.folds_change(TokenIssued)
def _fold_issued(state: State, change: TokenIssued, event: Event) -> None:
    access, now = state.of(Access), event.effective_time
    # Whoever makes tokens by the day must not fill the memory with those that are over.
    for token in [each for each in access.tokens.values() if each.owner == change.owner]:
        if token.expires_at is not None and token.expires_at <= now:
            access.tokens.drop(token.id)
    access.tokens.put(
        change.token,
        Token(
            id=change.token,
            owner=change.owner,
            kind=change.owner_kind,
            scopes=change.scopes,
            team=change.team,
            issued_at=now,
            issued_by=event.actor,
            expires_at=change.expires_at,
            why=event.reason,
        ),
    )
    access.changed.put(_LAST, event.revision)


@ROOM.folds_change(TokenRevoked)
def _fold_token_revoked(state: State, change: TokenRevoked, event: Event) -> None:
    access = state.of(Access)
    if change.token in access.tokens:
        access.tokens.drop(change.token)
    access.changed.put(_LAST, event.revision)


@ROOM.folds_change(LinkMade)
def _fold_link(_state: State, _change: LinkMade, _event: Event) -> None:
    """A link gives nobody a right that they have not: it is recorded for whoever reads the log."""


@ROOM.folds_change(SessionsEnded)
def _fold_sessions_ended(state: State, _change: SessionsEnded, event: Event) -> None:
    """Sessions are no events; that somebody ended them is: who was found to be signed in is looked up anew."""
    state.of(Access).changed.put(_LAST, event.revision)


def _first(item: tuple[str, tuple[Grant, ...]]) -> str:
    return item[0]
