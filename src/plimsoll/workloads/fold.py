"""How workloads' events change the state. What each island carries is kept up to date with every workload."""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.health.changes import NodeMoved
from plimsoll.health.model import to_microseconds
from plimsoll.ledger.model import Event
from plimsoll.quota.changes import TeamRenamed
from plimsoll.quota.fold import QuotaBook, keep_loss_basis
from plimsoll.quota.model import QuotaKey
from plimsoll.state.state import Room, State
from plimsoll.workloads.account import change_account, close_down, note_interruption
from plimsoll.workloads.changes import (
    BookingDropped,
    PartRanked,
    PartScaled,
    TeamHoldEnded,
    TeamHoldPlaced,
    WorkloadBooked,
    WorkloadEnded,
    WorkloadGone,
    WorkloadObserved,
    WorkloadPlaced,
    WorkloadSubmitted,
    WorkloadWaits,
)
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.model import (
    Account,
    Asked,
    Because,
    Interruption,
    Past,
    Spec,
    Workload,
)
from plimsoll.workloads.shape import (
    HOLD_PREFIX,
    adopt,
    drawn_on,
    named,
    node_size,
    parts_after,
    reserve_claims,
)

LOSSES = (Because.PREEMPTED, Because.NODE_LOST, Because.PLANNED_WORK)
"""What takes replicas from an elastic part against its will."""

ROOM = Room("workloads", version=4, tables=Workloads)


@ROOM.folds_change(NodeRecorded)
def _fold_recorded(state: State, change: NodeRecorded, _event: Event) -> None:
    """The fleet has entered the node already; the floor follows, if there is one."""
    if (floor := state.of(Workloads)._floor) is not None:
        floor.see_node(change.node)


@ROOM.folds_change(NodeMoved)
def _fold_moved(state: State, change: NodeMoved, _event: Event) -> None:
    if (floor := state.of(Workloads)._floor) is not None:
        floor.see_node(state.of(Fleet).nodes[change.node])


@ROOM.folds_change(ClusterRecorded)
def _fold_cluster(state: State, _change: ClusterRecorded, _event: Event) -> None:
    if (floor := state.of(Workloads)._floor) is not None:
        floor.forget_pools()


@ROOM.folds_change(WorkloadObserved)
def _fold_observed(state: State, change: WorkloadObserved, event: Event) -> None:
    """What is seen running is no longer waited for."""
    tables, name = state.of(Workloads), change.workload.id
    if name in tables.asked:
        _forget(tables, name, _moment(event))
    _put(state, name, named(change.workload))


@ROOM.folds_change(WorkloadGone)
def _fold_gone(state: State, change: WorkloadGone, event: Event) -> None:
    if change.workload in state.of(Workloads).asked:
        _forget(state.of(Workloads), change.workload, _moment(event))
    _put(state, change.workload, None)


@ROOM.folds_change(WorkloadSubmitted)
def _fold_submitted(state: State, change: WorkloadSubmitted, event: Event) -> None:
    tables, spec = state.of(Workloads), change.spec
    at = _moment(event)
    tables.drop_past(spec.name)
    tables.asked.put(spec.name, Asked(spec, tables.next_submitted(at)))
    tables.requeue(spec.name, at)


@ROOM.folds_change(WorkloadPlaced)
def _fold_placed(state: State, change: WorkloadPlaced, event: Event) -> None:
    tables, name, at = state.of(Workloads), change.workload, _moment(event)
    running = tables.workloads.get(name)
    asked = tables.asked.get(name)
    if asked is None:
        asked = _adopt(state, name, at)
    for placed in change.parts:
        has = running.running(placed.part) if running is not None else None
        if has is None or placed.blocks != has.blocks:  # else only spares came or went: nobody notices
            _account_for(tables, asked, placed.part, sum(block.gpus for block in placed.blocks), change, at)
    after = parts_after(asked, running, change)
    tables.drop_booking(name)
    _put(state, name, after)
    tables.requeue(name, at)


def _adopt(state: State, name: str, at: int) -> Asked:
    """Observed work that is touched for the first time is from now on ours to place."""
    tables = state.of(Workloads)
    running = tables.workloads.get(name)
    assert running is not None, f"{name} neither was submitted nor runs"
    asked = adopt(running, node_size(state.of(Fleet), running.cluster, running.parts[0].sku))
    tables.asked.put(name, asked)
    for part in running.parts:
        account = Account(first_started=at, since=at, checkpoint_base=at, gpus=part.gpus)
        tables.accounts.put((name, part.name), account)
    return asked


def _account_for(tables: Workloads, asked: Asked, part: str, gpus: int, change: WorkloadPlaced, at: int) -> None:
    name, spec = change.workload, asked.spec
    before = tables.accounts.get((name, part), Account())
    after = change_account(before, spec, spec.part(part), gpus, change.because, at)
    tables.accounts.put((name, part), after)
    if after.interruptions > before.interruptions:
        lost = after.lost_us - before.lost_us
        told = Interruption(part, at, change.because, change.by, change.detail, lost_us=lost, gpus=before.gpus)
        past = tables.interruptions.get(name, ())
        tables.interruptions.put(name, note_interruption(past, told))
    elif gpus < before.gpus and change.because in LOSSES:
        told = Interruption(part, at, change.because, change.by, change.detail, gpus=before.gpus - gpus)
        tables.interruptions.put(name, note_interruption(tables.interruptions.get(name, ()), told))
    elif after.down_us > before.down_us:
        past = tables.interruptions.get(name, ())
        tables.interruptions.put(name, close_down(past, part, after.down_us - before.down_us))


@ROOM.folds_change(WorkloadBooked)
def _fold_booked(state: State, change: WorkloadBooked, event: Event) -> None:
    tables = state.of(Workloads)
    tables.put_booking(change.booking)
    tables.requeue(change.booking.workload, _moment(event))


@ROOM.folds_change(BookingDropped)
def _fold_booking_dropped(state: State, change: BookingDropped, event: Event) -> None:
    tables = state.of(Workloads)
    tables.drop_booking(change.workload)
    tables.requeue(change.workload, _moment(event))


@ROOM.folds_change(WorkloadWaits)
def _fold_waits(state: State, change: WorkloadWaits, event: Event) -> None:
    state.of(Workloads).tell_wait(change, _moment(event))


@ROOM.folds_change(WorkloadEnded)
def _fold_ended(state: State, change: WorkloadEnded, event: Event) -> None:
    tables, name, at = state.of(Workloads), change.workload, _moment(event)
    asked, running = tables.asked.get(name), tables.workloads.get(name)
    if asked is None:
        assert running is not None, f"{name} neither was submitted nor runs"
        asked = adopt(running, 1)
    accounts = {}
    for part in asked.spec.parts:
        if (before := tables.accounts.get((name, part.name))) is not None:
            accounts[part.name] = change_account(before, asked.spec, part, 0, None, at)
    where = (running.cluster, running.parts[0].sku) if running is not None and running.parts else ("", "")
    stops = tables.interruptions.get(name, ())
    parts = running.parts if running is not None else ()
    nodes = tuple(sorted({node for part in parts for block in part.blocks for node, _ in block.nodes}))
    past = Past(asked.spec, asked.submitted, at, change.how, *where, accounts, stops, nodes, event.actor, event.reason)
    if name in tables.asked:
        _forget(tables, name, at)
    _put(state, name, None)
    tables.put_past(name, past)


def _forget(tables: Workloads, name: str, at: int) -> None:
    """Everything about a workload but what it holds."""
    asked = tables.asked[name]
    tables.asked.drop(name)
    tables.drop_booking(name)
    for part in asked.spec.parts:
        if (name, part.name) in tables.accounts:
            tables.accounts.drop((name, part.name))
    if name in tables.interruptions:
        tables.interruptions.drop(name)
    tables.requeue(name, at)


@ROOM.folds_change(PartScaled)
def _fold_scaled(state: State, change: PartScaled, event: Event) -> None:
    _respec(state, change.workload, change.part, _moment(event), least=change.least, most=change.most)


@ROOM.folds_change(PartRanked)
def _fold_ranked(state: State, change: PartRanked, event: Event) -> None:
    _respec(state, change.workload, change.part, _moment(event), tier=change.tier, rank=change.rank)
    running = state.of(Workloads).workloads.get(change.workload)
    if running is not None:
        parts = tuple(
            msgspec.structs.replace(part, tier=change.tier, rank=change.rank) if part.name == change.part else part
            for part in running.parts
        )
        _put(state, change.workload, msgspec.structs.replace(running, parts=parts))


def _respec(state: State, name: str, part: str, at: int, **fields: Any) -> None:
    tables = state.of(Workloads)
    asked = tables.asked.get(name) or _adopt(state, name, at)
    parts = tuple(msgspec.structs.replace(each, **fields) if each.name == part else each for each in asked.spec.parts)
    spec = msgspec.structs.replace(asked.spec, parts=parts)
    asked = msgspec.structs.replace(asked, original=asked.original or asked.spec)
    tables.asked.put(name, msgspec.structs.replace(asked, spec=spec))
    tables.requeue(name, at)


@ROOM.folds_change(TeamHoldPlaced)
def _fold_hold(state: State, change: TeamHoldPlaced, _event: Event) -> None:
    state.of(Workloads).put_hold(change.hold)
    _draw_on_holds(state, change.hold.key, {change.hold.id})


@ROOM.folds_change(TeamHoldEnded)
def _fold_hold_ended(state: State, change: TeamHoldEnded, _event: Event) -> None:
    hold = state.of(Workloads).holds.get(change.hold)
    if hold is not None:
        state.of(Workloads).drop_hold(hold)
        _draw_on_holds(state, hold.key, {hold.id})


@ROOM.folds_change(TeamRenamed)
def _fold_renamed(state: State, change: TeamRenamed, event: Event) -> None:
    """Quota renames the claims itself."""
    tables = state.of(Workloads)
    for workload in [each for each in tables.workloads.values() if each.team == change.team]:
        tables.workloads.put(workload.id, msgspec.structs.replace(workload, team=change.name))
    for hold in [each for each in tables.holds.values() if each.team == change.team]:
        tables.drop_hold(hold)
        tables.put_hold(msgspec.structs.replace(hold, team=change.name))
    for name, asked in [(name, each) for name, each in tables.asked.items() if each.spec.team == change.team]:
        original = _renamed(asked.original, change.name) if asked.original is not None else None
        spec = _renamed(asked.spec, change.name)
        tables.asked.put(name, msgspec.structs.replace(asked, spec=spec, original=original))
        tables.requeue(name, _moment(event))
    for name, past in [(name, each) for name, each in tables.past.items() if each.spec.team == change.team]:
        tables.past.put(name, msgspec.structs.replace(past, spec=_renamed(past.spec, change.name)))
    for pool in tables.waited.listed():
        for spell in [each for each in tables.waited.of(pool) if each.team == change.team]:
            tables.waited.remove(pool, spell)
            tables.waited.add(pool, spell._replace(team=change.name))


def _renamed(spec: Spec, team: str) -> Spec:
    return msgspec.structs.replace(spec, team=team)


def _put(state: State, name: str, after: Workload | None) -> None:
    """What a workload holds from now on; the quota book is told."""
    tables = state.of(Workloads)
    before = tables.workloads.get(name)
    if after is None:
        tables.drop_workload(name)
    else:
        tables.put_workload(after)
    keys = _tell_claims(state, before, after)
    for key in keys:
        if key in tables.team_holds:
            _draw_on_holds(state, key, set())


def _tell_claims(state: State, before: Workload | None, after: Workload | None) -> set[QuotaKey]:
    """The quota book knows what runs on it, team by team; returns the keys that changed."""
    book = state.of(QuotaBook)
    was = before.claims() if before is not None else {}
    now = after.claims() if after is not None else {}
    for key in was:
        if key not in now and before is not None:
            book.put_claims(key, before.id, ())
    for key, claims in now.items():
        # A part that waits with nothing placed has no claims, and the book must forget those it had.
        book.put_claims(key, after.id if after is not None else "", claims)
    keys = {*was, *now}
    if book.loss_basis:
        for pool in {key.pool for key in keys}:
            if pool in book.loss_basis:
                keep_loss_basis(state, pool)
    return keys


def _draw_on_holds(state: State, key: QuotaKey, also: set[str]) -> None:
    """Who draws on what a team keeps comes first with it; what nobody draws yet stays reserved. `also`: a hold that
    came or went.
    """
    tables, book = state.of(Workloads), state.of(QuotaBook)
    holds = [tables.holds[each] for each in tables.team_holds.get(key, ())]
    works = dict.fromkeys(claim.work for claim in book.claims.get(key, ()) if not claim.reserve)
    running = [tables.workloads[work] for work in works]
    owners = {work: tables.asked[work].spec.owner if work in tables.asked else "" for work in works}
    drawn = drawn_on(holds, running, owners, key)
    for workload in running:
        parts = tuple(
            part if part.is_first is ((workload.id, place) in drawn)
            else msgspec.structs.replace(part, is_first=not part.is_first)
            for place, part in enumerate(workload.parts)
        )  # fmt: skip
        if any(a is not b for a, b in zip(parts, workload.parts, strict=True)):
            after = msgspec.structs.replace(workload, parts=parts)
            tables.put_workload(after)
            _tell_claims(state, workload, after)
    for hold_id in also:
        book.put_claims(key, f"{HOLD_PREFIX}{hold_id}", ())
    for hold in holds:
        book.put_claims(key, f"{HOLD_PREFIX}{hold.id}", reserve_claims(hold, running, drawn))


def _moment(event: Event) -> int:
    return to_microseconds(event.effective_time)
