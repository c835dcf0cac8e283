"""How workloads' events change the state. What each island carries is kept up to date with every workload."""

from __future__ import annotations

import msgspec

from plimsoll.fleet.model import IslandKey
from plimsoll.ledger.model import Event
from plimsoll.quota.changes import TeamRenamed
from plimsoll.quota.fold import QuotaBook, keep_loss_basis
from plimsoll.state.state import Room, State, Tables
from plimsoll.state.table import Journal, Table
from plimsoll.workloads.changes import WorkloadGone, WorkloadObserved
from plimsoll.workloads.model import Workload


class Workloads(Tables):
    """What runs."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.workloads: Table[str, Workload] = Table(journal)
        # Derived from the workloads: GPUs held per island and SKU.
        self.held: Table[IslandKey, int] = Table(journal)

    def put_workload(self, workload: Workload) -> None:
        """Enter or replace."""
        self.drop_workload(workload.id)
        self.workloads.put(workload.id, workload)
        self._hold(workload, +1)

    def drop_workload(self, workload_id: str) -> None:
        before = self.workloads.get(workload_id)
        if before is not None:
            self._hold(before, -1)
            self.workloads.drop(workload_id)

    def _hold(self, workload: Workload, sign: int) -> None:
        for part in workload.parts:
            for block in part.blocks:
                key = IslandKey(block.island, part.sku)
                if held := self.held.get(key, 0) + sign * block.gpus:
                    self.held.put(key, held)
                else:
                    self.held.drop(key)

    def dump(self) -> bytes:
        return msgspec.msgpack.encode([workload for _, workload in sorted(self.workloads.items())])

    def load(self, body: bytes) -> None:
        for workload in msgspec.msgpack.decode(body, type=list[Workload]):
            self.put_workload(workload)


ROOM = Room("workloads", version=2, tables=Workloads)


@ROOM.folds_change(WorkloadObserved)
def _fold_observed(state: State, change: WorkloadObserved, _event: Event) -> None:
    before = state.of(Workloads).workloads.get(change.workload.id)
    state.of(Workloads).put_workload(change.workload)
    _tell_claims(state, before, change.workload)


@ROOM.folds_change(WorkloadGone)
def _fold_gone(state: State, change: WorkloadGone, _event: Event) -> None:
    before = state.of(Workloads).workloads.get(change.workload)
    state.of(Workloads).drop_workload(change.workload)
    _tell_claims(state, before, None)


@ROOM.folds_change(TeamRenamed)
def _fold_renamed(state: State, change: TeamRenamed, _event: Event) -> None:
    """Quota renames the claims itself."""
    workloads = state.of(Workloads).workloads
    for workload in [each for each in workloads.values() if each.team == change.team]:
        workloads.put(workload.id, msgspec.structs.replace(workload, team=change.name))


def _tell_claims(state: State, before: Workload | None, after: Workload | None) -> None:
    """The quota book knows what runs on it, team by team."""
    book = state.of(QuotaBook)
    known = after or before
    work = known.id if known else ""
    was, now = (each.claims() if each else {} for each in (before, after))
    for key in was.keys() - now.keys():
        book.put_claims(key, work, ())
    for key, claims in now.items():
        # A part that waits with nothing placed has no claims, and the book must forget those it had.
        book.put_claims(key, work, claims)
    for pool in {key.pool for key in (*was, *now)}:
        if pool in book.loss_basis:
            keep_loss_basis(state, pool)
