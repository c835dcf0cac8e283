"""Promises that work waited for: what fits its team's guarantee and did not start within the time of grace. Pure.

Where enough was free and only not in one island, that is told apart: it is fragmentation, and no machine was missing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from plimsoll.fleet.model import PoolKey
from plimsoll.health.model import from_microseconds, to_microseconds
from plimsoll.quota.history.promise import Breach, Broken
from plimsoll.quota.plan import policy_in_force
from plimsoll.state.state import State
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.model import WaitSpell
from plimsoll.workloads.reasons import Cause


def guaranteed_waits(state: State, *, now: datetime) -> list[tuple[PoolKey, WaitSpell]]:
    """Every wait inside a guarantee, from the end of its grace on; what waits still, until now."""
    tables = state.of(Workloads)
    grace = policy_in_force(state).flex_grace // timedelta(microseconds=1)
    found = [(pool, spell) for pool in sorted(tables.waited.listed()) for spell in tables.waited.of(pool)]
    at = to_microseconds(now)
    for name, wait in sorted(tables.waits.items()):
        reason = wait.reason
        if reason.cluster and name in tables.queued_since:
            team, begin = tables.asked[name].spec.team, tables.queued_since[name]
            spell = WaitSpell(at, begin, name, team, reason.gpus, reason.cause.value, wait.is_guaranteed)
            found.append((PoolKey(reason.cluster, reason.sku), spell))
    late = [(pool, spell._replace(begin=spell.begin + grace)) for pool, spell in found if spell.is_guaranteed]
    return [(pool, spell) for pool, spell in late if spell.begin < spell.end]


def waited_breaches(state: State, *, now: datetime) -> list[Breach]:
    """The waits by which a promise was broken."""
    return [
        Breach(
            *pool,
            [spell.team],
            from_microseconds(spell.begin),
            from_microseconds(spell.end),
            spell.gpus,
            Broken.WAITED,
        )
        for pool, spell in guaranteed_waits(state, now=now)
        if spell.cause != Cause.ISLAND_FRAGMENTED
    ]


def fragmented_gpu_hours(state: State, *, days: int, now: datetime) -> float:
    """GPU-hours of the last days that work inside its guarantee waited only because no island had it all."""
    oldest, newest = to_microseconds(now - timedelta(days=days)), to_microseconds(now)
    waited = sum(
        max(0, min(spell.end, newest) - max(spell.begin, oldest)) * spell.gpus
        for _, spell in guaranteed_waits(state, now=now)
        if spell.cause == Cause.ISLAND_FRAGMENTED
    )
    return waited / 3_600_000_000
