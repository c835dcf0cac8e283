"""How a team's other name goes through the quota book: a fold of its own, as everything there carries names."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec

from plimsoll.quota.changes import TeamRenamed
from plimsoll.quota.model import Callback, Grant, Notice, Promised, QuotaKey, Request
from plimsoll.state.table import Table

if TYPE_CHECKING:
    from plimsoll.quota.fold import QuotaBook

T = TypeVar("T", Grant, Notice, Request)


def rename_team(book: QuotaBook, change: TeamRenamed, at: datetime) -> None:
    """Everything that carries the team's name, what it was promised before as well."""
    for key in sorted(key for key in {*book.quotas, *book.guaranteed, *book.claims} if key.team == change.team):
        _rename_holding(book, key, key._replace(team=change.name), at)
    _rename(book.grants, change)
    _rename(book.notices, change)
    _rename(book.requests, change)
    for name, grant in list(book.grants.items()):
        if grant.giver == change.team:
            book.grants.put(name, msgspec.structs.replace(grant, giver=change.name))
    for name, request in list(book.requests.items()):
        if request.approved is not None and any(team == change.team for team, _ in request.approved.givers):
            givers = tuple(_by_new_name(request.approved.givers, change).items())
            approved = msgspec.structs.replace(request.approved, givers=givers)
            book.requests.put(name, msgspec.structs.replace(request, approved=approved))
    for pool, promised in list(book.promised.items()):
        if any(change.team in each.teams for each in promised):
            book.promised.put(pool, tuple(_renamed_promise(each, change) for each in promised))
    for pool, basis in list(book.loss_basis.items()):
        if change.team in basis:
            book.loss_basis.put(pool, _by_new_name(basis.items(), change))
    for pool, callbacks in list(book.callbacks.items()):
        book.callbacks.put(pool, tuple(_renamed(each, change) for each in callbacks))


def _rename_holding(book: QuotaBook, key: QuotaKey, to: QuotaKey, at: datetime) -> None:
    """What a team holds and uses of one pool goes under another name; the sums of the pool stay."""
    quota, guaranteed = book.quotas.get(key), book.guaranteed.get(key, 0)
    if quota is not None:
        book.put_quota(msgspec.structs.replace(quota, team=to.team, gpus=quota.gpus + book.assigned_to(to)))
        book.put_quota(msgspec.structs.replace(quota, gpus=0))
    book.put_guaranteed(to, guaranteed + book.guaranteed.get(to, 0))
    book.put_guaranteed(key, 0)
    book.move_claims(key, to)
    if guaranteed:
        book.record_promise(key.pool, at)


def _by_new_name(gpus_by_team: Iterable[tuple[str, int]], change: TeamRenamed) -> dict[str, int]:
    found: dict[str, int] = {}
    for team, gpus in gpus_by_team:
        name = change.name if team == change.team else team
        found[name] = found.get(name, 0) + gpus
    return found


def _renamed_promise(promised: Promised, change: TeamRenamed) -> Promised:
    teams = _by_new_name(promised.teams.items(), change)
    return msgspec.structs.replace(promised, teams=dict(sorted(teams.items())))


def _renamed(callback: Callback, change: TeamRenamed) -> Callback:
    names = {change.team: change.name}
    victims = tuple((names.get(team, team), work, gpus) for team, work, gpus in callback.victims)
    return msgspec.structs.replace(callback, team=names.get(callback.team, callback.team), victims=victims)


def _rename(table: Table[str, T], change: TeamRenamed) -> None:
    for name, value in list(table.items()):
        if value.team == change.team:
            table.put(name, msgspec.structs.replace(value, team=change.name))
