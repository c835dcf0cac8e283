"""Builders for access: people with roles, a keeper in memory-like quickness, and what racing processes do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any

from plimsoll.access import service
from plimsoll.access.model import Binding, Kind, Permission, Principal, Role
from plimsoll.ledger import open_store
from plimsoll.ledger.model import Paper
from plimsoll.rooms import open_keeper
from plimsoll.state.keeper import Keeper
from tests.support.ledgers import MONDAY

Tell = Callable[[Any], None]


class Gatehouse:
    """A database with people in it, and a clock that a test moves."""

    def __init__(self, dsn: str) -> None:
        self.now = MONDAY
        self.keeper: Keeper = open_keeper(dsn, create=True, clock=lambda: self.now)
        self.store = self.keeper.ledger.store

    def grant(self, who: str, role: Role, team: str = "") -> None:
        service.grant(self.keeper, who, Binding(role, team), actor="tester")

    def revoke(self, who: str, role: Role, team: str = "") -> None:
        service.revoke(self.keeper, who, Binding(role, team), actor="tester", is_anyway=True)

    def issue(
        self,
        owner: str,
        *,
        kind: Kind = Kind.PERSON,
        scopes: Sequence[Permission] | None = None,
        team: str = "",
        expires: datetime | None = None,
    ) -> str:
        return service.issue_token(
            self.keeper, owner, kind=kind, scopes=scopes, team=team, expires=expires, actor="tester"
        )[0]

    def holder(self, secret: str, mapping: service.Mapped | None = None) -> Principal | None:
        return service.find_token(self.store, self.keeper.state(), secret, self.now, mapping or {})

    def visitor(self, secret: str, mapping: service.Mapped | None = None) -> Principal | None:
        return service.find_session(self.store, self.keeper.state(), secret, self.now, mapping or {})

    def __enter__(self) -> Gatehouse:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.keeper.close()


def race_for_papers(tell: Tell, dsn: str, name: str, count: int, is_adding: bool) -> None:
    """Add the same papers as the others, or take the same; tells of which ones it was the one that did."""
    with closing(open_store(dsn)) as store:
        tell("ready")
        if is_adding:
            tell([n for n in range(count) if store.add_paper(Paper("race", f"p{n}", "", name))])
        else:
            tell([n for n in range(count) if store.take_paper("race", f"p{n}") is not None])


def redeem_at(tell: Tell, dsn: str, secret: str, moment: float) -> None:
    """Open a link at a moment at which others do; tells who it is for."""
    with closing(open_store(dsn)) as store:
        tell("ready")
        time.sleep(max(0.0, moment - time.monotonic()))
        tell(service.redeem_link(store, secret, MONDAY))
