"""What work loses where fewer GPUs of a pool are in service than it uses. Pure.

Nobody told the nodes of observed work. So who lost what follows from the order of loss, as everywhere; and whether that
is gone already, or goes when the nodes that drain do, from what it would be if those were in service still.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, PoolKey, Service
from plimsoll.health.fold import Health
from plimsoll.health.forecast.live import told_return
from plimsoll.health.model import Mark, is_planned
from plimsoll.quota.fill import Loss, survive
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import QuotaKey
from plimsoll.state.state import State
from plimsoll.times import show_second

REASONS_NAMED = 3


def losses_in(state: State, pool: PoolKey, *, working: int) -> list[Loss]:
    """What work of a pool loses while so many of its GPUs work."""
    book = state.of(QuotaBook)
    keys = {team: QuotaKey(team, *pool) for team in book.pool_teams.get(pool, ())}
    claims = {team: book.claims.get(key, ()) for team, key in keys.items()}
    assigned = {team: book.assigned_to(key) for team, key in keys.items()}
    basis = book.loss_basis.get(pool, book.guaranteed_in(pool) if pool in book.lines else assigned)
    return survive(claims, basis, working)[1]


def lost_by_work(losses: Iterable[Loss]) -> dict[str, int]:
    """GPUs that each workload loses."""
    found: dict[str, int] = {}
    for loss in losses:
        found[loss.work] = found.get(loss.work, 0) + loss.gpus
    return found


def in_service(state: State, pool: PoolKey) -> int:
    """GPUs of a pool that work."""
    count = state.of(Fleet).pools.get(pool)
    return count.gpus_in_service if count is not None else 0


class Out(NamedTuple):
    """Nodes of a pool that are not in service: those that drain and still run their work, and those that are gone."""

    drain: Sequence[Node]
    gone: Sequence[Node]

    @property
    def nodes(self) -> list[Node]:
        return [*self.drain, *self.gone]

    @property
    def planned(self) -> list[Node]:
        """Those that somebody wanted out."""
        return [node for node in self.nodes if is_planned(Mark(node.service, node.reason))]


def out_of_service(state: State, pools: Collection[PoolKey]) -> dict[PoolKey, Out]:
    """The nodes of these pools that are out, or on their way out."""
    found: dict[PoolKey, tuple[list[Node], list[Node]]] = {pool: ([], []) for pool in pools}
    for node in state.of(Fleet).nodes.values():
        if node.service not in (Service.IN_SERVICE, Service.RETIRED):
            drain, gone = found.get(PoolKey(node.cluster, node.sku), (None, None))
            if drain is not None and gone is not None:
                (drain if node.service is Service.DRAINING else gone).append(node)
    return {pool: Out(*some) for pool, some in found.items()}


def gpus_of(nodes: Iterable[Node]) -> int:
    return sum(node.gpus for node in nodes)


def lost_already(state: State, pool: PoolKey, out: Out) -> list[Loss]:
    """What of the losses of a pool is gone: all but what still runs on nodes that drain."""
    return losses_in(state, pool, working=in_service(state, pool) + gpus_of(out.drain))


def why_out(state: State, nodes: Sequence[Node], now: datetime) -> str:
    """`planned: nic-firmware, tiger batch 1, until 2026-01-05T15:00:00Z`: the most common reasons, and the last return
    that somebody told."""
    counts: dict[str, int] = {}
    for node in nodes:
        reason = node.reason or "no reason given"
        counts[reason] = counts.get(reason, 0) + 1
    reasons = sorted(counts, key=lambda reason: (-counts[reason], reason))[:REASONS_NAMED]
    told = [told_back(state, node, now) for node in nodes]
    known = [moment for moment in told if moment is not None]
    until = f", until {show_second(max(known))}" if len(known) == len(told) else ""
    return ", ".join(reasons) + until


def told_back(state: State, node: Node, now: datetime) -> datetime | None:
    """When a node is back, as told by those who have it or by whoever announced the work that is under way."""
    health = state.of(Health)
    if (told := told_return(health, node, now)) is not None:
        return told
    under_way = [work.ends for work in health.ahead_of.get(node.id, ()) if work.starts <= now < work.ends]
    return max(under_way, default=None)
