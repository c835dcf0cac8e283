"""The nouns of what is promised: so far the book of what teams were assigned."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from plimsoll.fleet.model import PoolKey


class QuotaKey(NamedTuple):
    """A team's share of a pool."""

    team: str
    cluster: str
    sku: str

    @property
    def pool(self) -> PoolKey:
        return PoolKey(self.cluster, self.sku)


class Quota(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the quota book says a team holds in a pool, in GPUs, before correction."""

    team: str
    cluster: str
    sku: str
    gpus: int
    labels: dict[str, str] = {}

    @property
    def key(self) -> QuotaKey:
        return QuotaKey(self.team, self.cluster, self.sku)
