"""How the quota book's events change the state. The sum per pool is kept up to date with every entry."""

from __future__ import annotations

import msgspec

from plimsoll.fleet.model import PoolKey
from plimsoll.ledger.model import Event
from plimsoll.quota.changes import QuotaAssigned
from plimsoll.quota.model import Quota, QuotaKey
from plimsoll.state.state import Room, State, Tables
from plimsoll.state.table import Journal, Table


class QuotaBook(Tables):
    """Who holds what."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.quotas: Table[QuotaKey, Quota] = Table(journal)
        # Derived from the quotas: GPUs.
        self.assigned: Table[PoolKey, int] = Table(journal)

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

    def teams(self) -> list[str]:
        return sorted({key.team for key in self.quotas})

    def dump(self) -> bytes:
        return msgspec.msgpack.encode([quota for _, quota in sorted(self.quotas.items())])

    def load(self, body: bytes) -> None:
        for quota in msgspec.msgpack.decode(body, type=list[Quota]):
            self.put_quota(quota)


ROOM = Room("quota", version=1, tables=QuotaBook)


@ROOM.folds_change(QuotaAssigned)
def _fold_assigned(state: State, change: QuotaAssigned, _event: Event) -> None:
    state.of(QuotaBook).put_quota(change.quota)
