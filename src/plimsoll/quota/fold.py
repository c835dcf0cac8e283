"""How quota's events change the state. Sums and indexes per pool are kept up to date with every entry."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

import msgspec

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import PoolKey
from plimsoll.ledger.model import Event
from plimsoll.quota.changes import (
    FlexCalledBack,
    GrantEnded,
    GrantOpened,
    LimitsPushed,
    LinePolicyApplied,
    ModeSet,
    NoticeAnswered,
    NoticeEnded,
    NoticeGiven,
    PoolAligned,
    QuotaAssigned,
    QuotaGranted,
    QuotaRequested,
    QuotaReserved,
    QuotaTransferred,
    RequestAnswered,
    TeamRenamed,
)
from plimsoll.quota.fold_rename import rename_team
from plimsoll.quota.model import (
    Callback,
    Claim,
    ClaimOrder,
    Grant,
    LineInForce,
    Mode,
    Notice,
    Promised,
    Quota,
    QuotaKey,
    Request,
    RequestState,
)
from plimsoll.state.state import Room, State, Tables
from plimsoll.state.table import Journal, Table

POLICY = "policy"

T = TypeVar("T", Grant, Notice, Request)


def _weight(claim: Claim) -> int:
    """GPUs of the quota that a claim takes up at most."""
    return 0 if claim.is_flex else claim.gpus + claim.reserve


class _Dump(msgspec.Struct):
    quotas: list[Quota]
    claims: list[tuple[QuotaKey, tuple[Claim, ...]]]
    lines: list[tuple[PoolKey, LineInForce]]
    guaranteed: list[tuple[QuotaKey, int]]
    promised: list[tuple[PoolKey, tuple[Promised, ...]]]
    grants: dict[str, Grant]
    notices: dict[str, Notice]
    requests: dict[str, Request]
    modes: dict[str, Mode]
    policies: dict[str, str]
    callbacks: list[tuple[PoolKey, tuple[Callback, ...]]]
    loss_basis: list[tuple[PoolKey, dict[str, int]]]


class QuotaBook(Tables):
    """Who holds what, what of it is guaranteed, and what runs on it.

    `claims` are told by the room of the workloads: quota is used by work, whoever observes or places that.
    `loss_basis`: while fewer GPUs work than are used, what was promised when they died. Which work died does not change
    with what is promised afterwards.
    """

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.quotas: Table[QuotaKey, Quota] = Table(journal)
        self.claims: Table[QuotaKey, tuple[Claim, ...]] = Table(journal)
        self.lines: Table[PoolKey, LineInForce] = Table(journal)
        self.guaranteed: Table[QuotaKey, int] = Table(journal)
        self.promised: Table[PoolKey, tuple[Promised, ...]] = Table(journal)
        self.grants: Table[str, Grant] = Table(journal)
        self.notices: Table[str, Notice] = Table(journal)
        self.requests: Table[str, Request] = Table(journal)
        self.modes: Table[str, Mode] = Table(journal)
        self.policies: Table[str, str] = Table(journal)
        self.callbacks: Table[PoolKey, tuple[Callback, ...]] = Table(journal)
        self.loss_basis: Table[PoolKey, dict[str, int]] = Table(journal)
        # Derived: GPUs per pool, and the teams that hold, use or are guaranteed something in it.
        self.assigned: Table[PoolKey, int] = Table(journal)
        self.pool_teams: Table[PoolKey, tuple[str, ...]] = Table(journal)
        # Derived: the claims of one workload among those of its team, so that it is found among thousands.
        self.work_claims: Table[tuple[QuotaKey, str], tuple[Claim, ...]] = Table(journal)
        # Derived: the order of each claim, so that a place among thousands is found without asking them.
        self.claim_orders: Table[QuotaKey, tuple[ClaimOrder, ...]] = Table(journal)
        # Derived: what all claims on a team's quota come to, and where a team is guaranteed something.
        self.claimed: Table[QuotaKey, int] = Table(journal)
        self.guaranteed_pools: Table[str, tuple[PoolKey, ...]] = Table(journal)

    def put_quota(self, quota: Quota) -> None:
        """Enter, replace or (0 GPUs) strike out."""
        before = self.quotas.get(quota.key)
        difference = quota.gpus - (before.gpus if before else 0)
        if quota.gpus:
            self.quotas.put(quota.key, quota)
        elif before is not None:
            self.quotas.drop(quota.key)
        pool = quota.key.pool
        self.assigned.put(pool, self.assigned.get(pool, 0) + difference)
        self._index(quota.key)

    def add_assigned(self, key: QuotaKey, gpus: int) -> None:
        """So many GPUs more, or fewer."""
        quota = self.quotas.get(key) or Quota(*key, 0)
        self.put_quota(msgspec.structs.replace(quota, gpus=quota.gpus + gpus))

    def put_guaranteed(self, key: QuotaKey, gpus: int) -> None:
        was = key in self.guaranteed
        if gpus:
            self.guaranteed.put(key, gpus)
        elif was:
            self.guaranteed.drop(key)
        if was is not bool(gpus):
            self._index_guaranteed(key)
        self._index(key)

    def _index_guaranteed(self, key: QuotaKey) -> None:
        others = (pool for pool in self.guaranteed_pools.get(key.team, ()) if pool != key.pool)
        now = sorted((*others, key.pool)) if key in self.guaranteed else others
        self.guaranteed_pools.put(key.team, tuple(now))

    def put_claims(self, key: QuotaKey, work: str, claims: Iterable[Claim]) -> None:
        """What one workload holds of a team's quota; replaces what it held before. The order is that of service."""
        before, gone, come = self.claims.get(key, ()), self.work_claims.get((key, work), ()), tuple(claims)
        now, orders = before, self.claim_orders.get(key, ())
        for claim in gone:  # of several that stand at one place all are this workload's
            place = bisect_left(orders, claim.order)
            now, orders = now[:place] + now[place + 1 :], orders[:place] + orders[place + 1 :]
        for claim in come:
            order = claim.order
            place = bisect_left(orders, order)
            # Twice as quick as unpacking, and there may be thousands.
            now = now[:place] + (claim,) + now[place:]  # noqa: RUF005
            orders = orders[:place] + (order,) + orders[place:]  # noqa: RUF005
        if now:
            self.claims.put(key, now)
            self.claim_orders.put(key, orders)
        elif before:
            self.claims.drop(key)
            self.claim_orders.drop(key)
        if come:
            self.work_claims.put((key, work), come)
        elif gone:
            self.work_claims.drop((key, work))
        self._sum(key, sum(map(_weight, come)) - sum(map(_weight, gone)))
        if bool(now) is not bool(before):
            self._index(key)

    def _sum(self, key: QuotaKey, more: int) -> None:
        if claimed := self.claimed.get(key, 0) + more:
            self.claimed.put(key, claimed)
        elif more:
            self.claimed.drop(key)

    def move_claims(self, key: QuotaKey, to: QuotaKey) -> None:
        """What runs under one key runs under another."""
        for work in dict.fromkeys(claim.work for claim in self.claims.get(key, ())):
            claims = self.work_claims[key, work]
            self.put_claims(key, work, ())
            self.put_claims(to, work, claims)

    def shrink_grants(self, key: QuotaKey, gpus: int) -> None:
        """What is struck out of a team's book is struck out of its temporary grants first, the longest one first.

        Else their end would take it from the team once more.
        """
        if gpus <= 0:
            return
        mine = sorted((grant for grant in self.grants.values() if grant.key == key), key=lambda g: (g.until, g.id))
        while mine and gpus > 0:  # at most one turn for each grant
            grant = mine.pop()
            if grant.gpus <= gpus:
                self.grants.drop(grant.id)
            else:
                self.grants.put(grant.id, msgspec.structs.replace(grant, gpus=grant.gpus - gpus))
            gpus -= grant.gpus

    def _index(self, key: QuotaKey) -> None:
        teams = self.pool_teams.get(key.pool, ())
        is_party = key in self.quotas or key in self.guaranteed or key in self.claims
        if is_party and key.team not in teams:
            self.pool_teams.put(key.pool, tuple(sorted((*teams, key.team))))
        elif not is_party and key.team in teams:
            self.pool_teams.put(key.pool, tuple(team for team in teams if team != key.team))

    def record_promise(self, pool: PoolKey, at: datetime) -> None:
        """Remember what is promised of a pool from now on; a clock that went back does not change the past."""
        past = self.promised.get(pool, ())
        since = max(at, past[-1].since) if past else at
        line = self.lines.get(pool)
        now = Promised(since, line.gpus if line else 0, self.guaranteed_in(pool), line.policy if line else "")
        if past and past[-1].since == since:
            past = past[:-1]
        self.promised.put(pool, (*past, now))

    def assigned_to(self, key: QuotaKey) -> int:
        quota = self.quotas.get(key)
        return quota.gpus if quota else 0

    def guaranteed_in(self, pool: PoolKey) -> dict[str, int]:
        """GPUs by team, those with none left out."""
        keys = (QuotaKey(team, *pool) for team in self.pool_teams.get(pool, ()))
        return {key.team: self.guaranteed[key] for key in keys if key in self.guaranteed}

    def line_of(self, pool: PoolKey) -> int:
        """The line in force; 0 before the first alignment."""
        line = self.lines.get(pool)
        return line.gpus if line else 0

    def reserved(self, *, but: str = "") -> dict[PoolKey, int]:
        """GPUs by pool that were approved for later, so that nobody else is promised them meanwhile; `but` is the
        request that asks. What comes from a giver takes no room.
        """
        found: dict[PoolKey, int] = {}
        for request in self.requests.values():
            approved = request.approved if request.state is RequestState.WAITING and request.id != but else None
            if approved is not None and not approved.givers:
                found[approved.pool] = found.get(approved.pool, 0) + approved.gpus
        return found

    def teams(self) -> list[str]:
        return sorted({key.team for key in self.quotas})

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(
            _Dump(
                [quota for _, quota in sorted(self.quotas.items())],
                sorted(self.claims.items()),
                sorted(self.lines.items()),
                sorted(self.guaranteed.items()),
                sorted(self.promised.items()),
                dict(sorted(self.grants.items())),
                dict(sorted(self.notices.items())),
                dict(sorted(self.requests.items())),
                dict(sorted(self.modes.items())),
                dict(sorted(self.policies.items())),
                sorted(self.callbacks.items()),
                [(pool, dict(sorted(basis.items()))) for pool, basis in sorted(self.loss_basis.items())],
            )
        )

    def load(self, body: bytes) -> None:
        dump = msgspec.msgpack.decode(body, type=_Dump)
        for quota in dump.quotas:
            self.put_quota(quota)
        for name in _Dump.__struct_fields__[1:]:
            content = getattr(dump, name)
            for key, value in content.items() if isinstance(content, dict) else content:
                getattr(self, name).put(key, value)
        for key in (*self.claims, *self.guaranteed):
            self._index(key)
        for key in self.guaranteed:
            self._index_guaranteed(key)
        for key, claims in self.claims.items():
            self._sum(key, sum(map(_weight, claims)))
            self.claim_orders.put(key, tuple(claim.order for claim in claims))
            for claim in claims:
                self.work_claims.put((key, claim.work), (*self.work_claims.get((key, claim.work), ()), claim))


ROOM = Room("quota", version=6, tables=QuotaBook)


def keep_loss_basis(state: State, pool: PoolKey) -> None:
    """Before a promise moves: remember by what it is told which work died, for as long as fewer work than are used."""
    book, count = state.of(QuotaBook), state.of(Fleet).pools.get(pool)
    keys = [QuotaKey(team, *pool) for team in book.pool_teams.get(pool, ())]
    used = sum(claim.gpus for key in keys for claim in book.claims.get(key, ()))
    if used <= (count.gpus_in_service if count else 0):
        if pool in book.loss_basis:
            book.loss_basis.drop(pool)
    elif pool not in book.loss_basis:
        assigned = {key.team: book.assigned_to(key) for key in keys}
        book.loss_basis.put(pool, book.guaranteed_in(pool) if pool in book.lines else assigned)


@ROOM.folds_change(QuotaAssigned)
def _fold_assigned(state: State, change: QuotaAssigned, event: Event) -> None:
    book, quota = state.of(QuotaBook), change.quota
    keep_loss_basis(state, quota.key.pool)
    book.shrink_grants(quota.key, book.assigned_to(quota.key) - quota.gpus)
    book.put_quota(quota)
    if book.guaranteed.get(quota.key, 0) > quota.gpus:
        book.put_guaranteed(quota.key, quota.gpus)
        book.record_promise(quota.key.pool, event.recorded_time)


@ROOM.folds_change(PoolAligned)
def _fold_aligned(state: State, change: PoolAligned, event: Event) -> None:
    book, pool = state.of(QuotaBook), change.pool
    keep_loss_basis(state, pool)
    book.lines.put(pool, LineInForce(change.line, change.policy, event.recorded_time))
    for team in {*book.guaranteed_in(pool), *change.guaranteed}:
        book.put_guaranteed(QuotaKey(team, *pool), change.guaranteed.get(team, 0))
    book.record_promise(pool, event.recorded_time)


@ROOM.folds_change(QuotaTransferred)
def _fold_transferred(state: State, change: QuotaTransferred, event: Event) -> None:
    book = state.of(QuotaBook)
    keep_loss_basis(state, change.pool)
    assigned = change.gpus if change.assigned is None else change.assigned
    for team, sign in ((change.giver, -1), (change.taker, +1)):
        _add(book, QuotaKey(team, change.cluster, change.sku), assigned=sign * assigned, guaranteed=sign * change.gpus)
    if change.grant in book.grants:
        book.grants.drop(change.grant)
    book.record_promise(change.pool, event.recorded_time)


@ROOM.folds_change(QuotaGranted)
def _fold_granted(state: State, change: QuotaGranted, event: Event) -> None:
    book = state.of(QuotaBook)
    keep_loss_basis(state, change.pool)
    _add(book, QuotaKey(change.team, change.cluster, change.sku), assigned=change.gpus, guaranteed=change.gpus)
    book.record_promise(change.pool, event.recorded_time)


@ROOM.folds_change(GrantOpened)
def _fold_grant(state: State, change: GrantOpened, _event: Event) -> None:
    state.of(QuotaBook).grants.put(change.grant.id, change.grant)


@ROOM.folds_change(GrantEnded)
def _fold_grant_ended(state: State, change: GrantEnded, event: Event) -> None:
    book = state.of(QuotaBook)
    key = QuotaKey(change.team, change.cluster, change.sku)
    keep_loss_basis(state, change.pool)
    _add(book, key, assigned=-change.gpus, guaranteed=-min(change.gpus, book.guaranteed.get(key, 0)))
    if change.grant in book.grants:
        book.grants.drop(change.grant)
    book.record_promise(change.pool, event.recorded_time)


def _add(book: QuotaBook, key: QuotaKey, *, assigned: int, guaranteed: int) -> None:
    book.add_assigned(key, assigned)
    book.put_guaranteed(key, book.guaranteed.get(key, 0) + guaranteed)


@ROOM.folds_change(QuotaRequested)
def _fold_requested(state: State, change: QuotaRequested, _event: Event) -> None:
    state.of(QuotaBook).requests.put(change.request.id, change.request)


@ROOM.folds_change(QuotaReserved)
def _fold_reserved(state: State, change: QuotaReserved, _event: Event) -> None:
    requests = state.of(QuotaBook).requests
    requests.put(change.request, msgspec.structs.replace(requests[change.request], approved=change.approved))


@ROOM.folds_change(RequestAnswered)
def _fold_answered(state: State, change: RequestAnswered, _event: Event) -> None:
    requests = state.of(QuotaBook).requests
    request = requests[change.request]
    approved = change.approved or request.approved
    answered = msgspec.structs.replace(request, state=change.state, answer=change.answer, approved=approved)
    requests.put(change.request, answered)


@ROOM.folds_change(NoticeGiven)
def _fold_notice(state: State, change: NoticeGiven, _event: Event) -> None:
    state.of(QuotaBook).notices.put(change.notice.id, change.notice)


@ROOM.folds_change(NoticeAnswered)
def _fold_notice_answered(state: State, change: NoticeAnswered, event: Event) -> None:
    notices = state.of(QuotaBook).notices
    answered = msgspec.structs.replace(
        notices[change.notice], answer=change.answer, answered_by=event.actor, comment=change.comment
    )
    notices.put(change.notice, answered)


@ROOM.folds_change(NoticeEnded)
def _fold_notice_ended(state: State, change: NoticeEnded, _event: Event) -> None:
    notices = state.of(QuotaBook).notices
    if change.notice in notices:
        notices.drop(change.notice)


@ROOM.folds_change(ModeSet)
def _fold_mode(state: State, change: ModeSet, _event: Event) -> None:
    state.of(QuotaBook).modes.put(change.cluster, change.mode)


@ROOM.folds_change(LinePolicyApplied)
def _fold_policy(state: State, change: LinePolicyApplied, _event: Event) -> None:
    state.of(QuotaBook).policies.put(POLICY, change.text)


@ROOM.folds_change(TeamRenamed)
def _fold_renamed(state: State, change: TeamRenamed, event: Event) -> None:
    """Everything that carries the team's name, what it was promised before as well; the ledger keeps the old one.

    Work under the new name may have been observed since the name was looked up, as work is in streams of its own: what
    is there already is added to, and nothing of a pool is lost.
    """
    rename_team(state.of(QuotaBook), change, event.recorded_time)


@ROOM.folds_change(FlexCalledBack)
def _fold_called_back(state: State, change: FlexCalledBack, event: Event) -> None:
    """Remembered until it is due, so that the same GPUs are not called back twice. The work is observed as it goes."""
    book = state.of(QuotaBook)
    still = (each for each in book.callbacks.get(change.pool, ()) if each.due > event.recorded_time)
    new = Callback(change.team, change.gpus, change.due, tuple(change.victims))
    book.callbacks.put(change.pool, (*still, new))


@ROOM.folds_change(LimitsPushed)
def _fold_pushed(_state: State, _change: LimitsPushed, _event: Event) -> None:
    """Nothing: what a scheduler has is looked up there. The event says that it was our doing."""
