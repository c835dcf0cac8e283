"""Which nodes of a pool are out, why, and when they are expected back: as told, else as the past lets expect. Pure.

Only the outages of the clusters asked for are read, so that this takes about a millisecond each. Where a cluster saw
too few repairs to learn from, those of others are read as well; where nobody ever saw one, nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

import numpy as np

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, PoolKey, Service
from plimsoll.health.fold import Health
from plimsoll.health.forecast.live import told_return
from plimsoll.health.forecast.survival import REPAIRS_MIN, Survival
from plimsoll.health.levels.outages import End, OpenOutage, Past, normal_reason, open_outages, read_past
from plimsoll.health.model import Mark, is_planned, to_microseconds
from plimsoll.state.state import State
from plimsoll.times import show_time
from plimsoll.words import counted
from plimsoll.workloads.why.model import Named

HOUR_US = 3_600_000_000
HALF = 0.5
"""An expected return is the time by which half of such outages were over."""
LEFT_DAYS_MAX = 90
LEFT_HOURS_MAX = 24.0 * LEFT_DAYS_MAX
NODES_NAMED = 3
NODES_READ_MAX = 4_000
"""Of the fleet's nodes so many are read, where a cluster's own say too little: an estimate needs no more of them."""
_STEPS = (Service.VALIDATING, Service.DRAINING, Service.JOINING)
"""Services that are a step of an outage: why the node is out was said before them."""


class Out(NamedTuple):
    """A node that is out. `back` is when it is expected; `is_told`: by those who have it."""

    node: Node
    is_planned: bool
    reason: str
    back: datetime | None
    is_told: bool
    is_late: bool = False
    """By the repair history it is not back within LEFT_DAYS_MAX; nothing more is claimed."""


def nodes_out(state: State, pools: Collection[PoolKey], *, now: datetime) -> dict[PoolKey, list[Out]]:
    """The nodes of these pools that are out, the first to return first."""
    fleet, health = state.of(Fleet), state.of(Health)
    found: dict[PoolKey, list[Out]] = {pool: [] for pool in sorted(pools)}
    short = {pool for pool in found if (count := fleet.pools.get(pool)) and count.nodes > count.nodes_in_service}
    if not short:
        return found
    clusters = {pool.cluster for pool in short}
    members: dict[str, list[Node]] = {cluster: [] for cluster in clusters}
    for node in fleet.nodes.values():
        if node.cluster in clusters:
            members[node.cluster].append(node)
    everywhere = _Everywhere(state, now)
    for cluster, nodes in sorted(members.items()):
        past = read_past(health, nodes, until=to_microseconds(now))
        is_open = open_outages(past)
        curves = {planned: everywhere.unless_enough(past, planned) for planned in (False, True)}
        for node in nodes:
            mine = found.get(PoolKey(cluster, node.sku))
            if mine is not None and node.service not in (Service.IN_SERVICE, Service.RETIRED):
                mine.append(_out(health, node, is_open.get(node.id), curves, now))
    for outs in found.values():
        outs.sort(key=lambda out: (out.back is None, out.back or now, not out.is_told, out.node.id))
    return found


def _out(
    health: Health, node: Node, outage: OpenOutage | None, curves: dict[bool, Survival | None], now: datetime
) -> Out:
    planned, reason = is_planned(Mark(node.service, node.reason)), normal_reason(node.reason)
    if node.service in _STEPS and outage is not None and outage.service is node.service:
        planned, reason = outage.is_planned_now, outage.reason
    told = told_return(health, node, now)
    back, is_late = told.replace(microsecond=0) if told is not None else None, False
    curve = curves[planned]
    if back is None and curve is not None:
        began = outage.began if outage is not None else to_microseconds(node.since or now)
        age = max(0.0, (to_microseconds(now) - began) / HOUR_US)
        left = max(curve.left(age, HALF), 1.0)
        is_late = left >= LEFT_HOURS_MAX
        back = to_the_hour(now + timedelta(hours=left)) if not is_late else None
    return Out(node, planned, reason or f"{node.service}, no reason given", back, told is not None, is_late)


def to_the_hour(moment: datetime) -> datetime:
    """The next full hour: an estimate is no more exact than that."""
    hour = moment.replace(minute=0, second=0, microsecond=0)
    return hour if hour == moment else hour + timedelta(hours=1)


class _Everywhere:
    """How long outages last elsewhere, for clusters that saw too few; read once, and only if it is needed."""

    def __init__(self, state: State, now: datetime) -> None:
        self._state, self._now = state, now
        self._past: Past | None = None

    def unless_enough(self, past: Past, planned: bool) -> Survival | None:
        """The curve of a cluster's outages, else that of the fleet's; None where none was ever seen to end."""
        curve, seen = _curve(past, planned)
        if seen >= REPAIRS_MIN:
            return curve
        if self._past is None:
            nodes = list(islice(self._state.of(Fleet).nodes.values(), NODES_READ_MAX))
            self._past = read_past(self._state.of(Health), nodes, until=to_microseconds(self._now))
        curve, seen = _curve(self._past, planned)
        return curve if seen else None


def _curve(past: Past, planned: bool) -> tuple[Survival, int]:
    outages = past.outages
    mine = outages.is_planned == planned
    is_open = outages.end[mine] == End.OPEN
    lasted = (outages.ended[mine] - outages.began[mine]) / HOUR_US
    return Survival.of(lasted, is_open), int(np.count_nonzero(~is_open))


def by_reason(outs: Iterable[Out]) -> tuple[Named, ...]:
    """Nodes that are out, by reason, the most GPUs first: how many, which, and when the last of them is expected."""
    groups: dict[str, list[Out]] = {}
    for out in outs:
        groups.setdefault(out.reason, []).append(out)
    found = []
    for reason, mine in groups.items():
        named = ", ".join(out.node.id for out in mine[:NODES_NAMED])
        more = f" and {len(mine) - NODES_NAMED} more" if len(mine) > NODES_NAMED else ""
        says = f"{counted(len(mine), 'node')} ({named}{more}), {back_text(mine)}"
        found.append(Named(reason, sum(out.node.gpus for out in mine), says))
    return tuple(sorted(found, key=lambda each: (-each.gpus, each.name)))


def back_text(outs: Sequence[Out]) -> str:
    """When the first and the last of them are expected back."""
    known = [out.back for out in outs if out.back is not None]
    late = sum(out.is_late for out in outs)
    not_soon = f"not back within {LEFT_DAYS_MAX} days by repair history"
    if not known:
        return not_soon if outs and late == len(outs) else "nobody knows when back"
    unknown = len(outs) - len(known) - late
    how = "" if all(out.is_told for out in outs if out.back) else " by repair history"
    first, last = show_time(min(known)), show_time(max(known))
    when = f"back {first}" if first == last else f"back {first} to {last}"
    return when + how + (f", {late} {not_soon}" if late else "") + (f", of {unknown} nobody knows" if unknown else "")


def back_by(outs: Sequence[Out], gpus: int) -> tuple[datetime | None, bool, list[Out]]:
    """When so many GPUs of these are back, whether that was told, and which nodes make it up; None: nobody knows."""
    chosen: list[Out] = []
    left = gpus
    for out in outs:
        if left <= 0 or out.back is None:
            break
        chosen.append(out)
        left -= out.node.gpus
    if left > 0 or not chosen:
        return None, False, chosen
    return max(out.back for out in chosen if out.back), all(out.is_told for out in chosen), chosen
