"""Planned work ahead of a team's pools: what it will be without, and when. Pure.

It is told beforehand and subtracts nothing from what can be started now: the steps of `why` are about now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

import msgspec

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import PoolKey
from plimsoll.health.fold import Health
from plimsoll.state.state import State
from plimsoll.times import show_time

AHEAD = timedelta(days=30)


class PlannedOut(msgspec.Struct, frozen=True):
    """GPUs of a pool that will be out for announced work, of so many that are installed."""

    cluster: str
    sku: str
    gpus: int
    installed: int
    starts: datetime
    ends: datetime
    reason: str

    @property
    def text(self) -> str:
        return (
            f"{self.gpus:,} of {self.installed:,} {self.sku} of {self.cluster} will be out from"
            f" {show_time(self.starts)} until {show_time(self.ends)}: {self.reason}"
        )


def planned_outs(state: State, pools: Iterable[PoolKey], *, now: datetime) -> tuple[PlannedOut, ...]:
    """Announced work on the nodes of these pools in the weeks ahead, the next first."""
    ahead = state.of(Health).ahead
    if not ahead:
        return ()
    wanted: Collection[PoolKey] = set(pools)
    fleet = state.of(Fleet)
    found = []
    for work in ahead.values():
        if work.is_over(now) or work.starts > now + AHEAD:
            continue
        gpus: dict[PoolKey, int] = {}
        for name in work.nodes:
            node = fleet.nodes[name]
            pool = PoolKey(node.cluster, node.sku)
            if pool in wanted:
                gpus[pool] = gpus.get(pool, 0) + node.gpus
        found += [
            PlannedOut(*pool, count, fleet.pools[pool].gpus, work.starts, work.ends, work.reason)
            for pool, count in gpus.items()
            if pool in fleet.pools
        ]
    return tuple(sorted(found, key=lambda each: (each.starts, each.cluster, each.sku)))
