"""What can happen to quota, as events."""

from __future__ import annotations

from typing import ClassVar

from plimsoll.fleet.model import PoolKey
from plimsoll.ledger.model import Change
from plimsoll.quota.model import Quota


class QuotaAssigned(Change, frozen=True):
    """The book says that a team holds this much; 0 strikes the entry out."""

    kind: ClassVar[str] = "quota.assigned"

    quota: Quota
    was: dict[str, str | None] = {}

    @property
    def subject(self) -> str:
        return PoolKey(self.quota.cluster, self.quota.sku).stream
