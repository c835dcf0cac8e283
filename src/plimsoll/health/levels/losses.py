"""What the lost GPU-hours of a period were lost to: reasons, nodes, and the outages behind every number. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

import msgspec
import numpy as np

from plimsoll.fleet.model import Service
from plimsoll.health.levels.measure import clipped, fates, hours, sum_by
from plimsoll.health.levels.outages import DAY, End, Past, Period, Whole
from plimsoll.health.model import from_microseconds

LEMON_EXITS = 4
LEMON_DAYS = 30
"""A node that left service unplanned so often in so many days is a lemon, where no policy says otherwise."""

_SERVICES = list(Service)


class Loss(msgspec.Struct, frozen=True):
    """What one reason cost in the period. `outages` are those with hours in the period; one with two reasons is in
    both.
    """

    reason: str
    is_planned: bool
    nodes: int
    outages: int
    node_hours: float
    gpu_hours: float
    lost_share: float


class Offender(msgspec.Struct, frozen=True):
    """A node and its unplanned outages in the period. `reason` is what most of its hours were lost to."""

    node: str
    cluster: str
    sku: str
    interruptions: int
    node_hours: float
    gpu_hours: float
    is_lemon: bool
    open_since: datetime | None
    reason: str


class Stretch(msgspec.Struct, frozen=True):
    """A part of an outage: out of service for one reason. The last one of an open outage has no end yet."""

    service: Service
    reason: str
    is_planned: bool
    begin: datetime = msgspec.field(name="from")
    end: datetime | None = msgspec.field(name="to")


class Outage(msgspec.Struct, frozen=True):
    """One outage. `length_hours` is all of it so far, `hours` and what follows is what lies in the period."""

    node: str
    cluster: str
    sku: str
    gpus: int
    began: datetime
    ended: datetime | None
    ended_by: str | None
    is_planned: bool
    is_assumed: bool
    length_hours: float
    hours: float
    hours_planned: float
    hours_unplanned: float
    gpu_hours: float
    began_in_period: bool
    ended_in_period: bool
    reasons: list[str]
    stretches: list[Stretch]


def rank_reasons(past: Past, period: Period) -> list[Loss]:
    """Reasons by the GPU-hours lost to them, most first; planned and unplanned are separate rows."""
    stretches = past.stretches
    lost = clipped(stretches.begin, stretches.end, period)
    cost = np.flatnonzero(lost)
    lost, node, outage = lost[cost], stretches.node[cost], stretches.outage[cost]
    key = 2 * stretches.reason[cost] + stretches.is_planned[cost]
    size = 2 * len(past.reasons)
    time, gpu_time = sum_by(key, lost, size), sum_by(key, lost, size, past.gpus[node])
    nodes, outages = _distinct(key, node, size), _distinct(key, outage, size)
    whole = sum(gpu_time)
    losses = [
        Loss(
            reason=past.reasons[at // 2],
            is_planned=bool(at % 2),
            nodes=nodes[at],
            outages=outages[at],
            node_hours=hours(time[at]),
            gpu_hours=hours(gpu_time[at]),
            lost_share=round(gpu_time[at] / whole, 6) if whole else 0.0,
        )
        for at in np.unique(key).tolist()
    ]
    return sorted(losses, key=lambda loss: (-loss.gpu_hours, -loss.node_hours, loss.reason, loss.is_planned))


def _distinct(key: Whole, value: Whole, size: int) -> list[int]:
    """How many different values each key has."""
    pairs = np.unique(np.stack([key, value], axis=1), axis=0) if len(key) else np.zeros((0, 2), np.int64)
    counts: list[int] = np.bincount(pairs[:, 0], minlength=size).tolist()
    return counts


def find_offenders(
    past: Past, period: Period, *, lemon_exits: int = LEMON_EXITS, lemon_days: float = LEMON_DAYS
) -> list[Offender]:
    """Every node with an unplanned outage in the period, by name. The caller ranks them."""
    outages, stretches, size = past.outages, past.stretches, len(past.nodes)
    is_fault = ~outages.is_planned
    begins, _, is_open = fates(past, period)
    exits = np.bincount(outages.node[is_fault & begins], minlength=size)
    recent = Period(period.end - round(lemon_days * DAY), period.end)
    is_lemon = np.bincount(outages.node[is_fault & fates(past, recent)[0]], minlength=size) >= lemon_exits
    open_since = {
        node: from_microseconds(began)
        for node, began in zip(outages.node[is_open].tolist(), outages.began[is_open].tolist(), strict=True)
    }
    lost = np.where(stretches.is_planned, 0, clipped(stretches.begin, stretches.end, period))
    time, gpu_time = sum_by(stretches.node, lost, size), sum_by(stretches.node, lost, size, past.gpus[stretches.node])
    bounds = np.searchsorted(stretches.node, np.arange(size + 1)).tolist()
    found = []
    for at in np.flatnonzero((exits > 0) | (np.array(time, dtype=object) > 0)).tolist():
        node, mine = past.nodes[at], slice(bounds[at], bounds[at + 1])
        by_reason: Counter[int] = Counter()
        for reason, cost in zip(stretches.reason[mine].tolist(), lost[mine].tolist(), strict=True):
            by_reason[reason] += cost
        found.append(
            Offender(
                node=node.id,
                cluster=node.cluster,
                sku=node.sku,
                interruptions=int(exits[at]),
                node_hours=hours(time[at]),
                gpu_hours=hours(gpu_time[at]),
                is_lemon=bool(is_lemon[at]),
                open_since=open_since.get(at),
                reason=past.reasons[by_reason.most_common(1)[0][0]],
            )
        )
    return found


def by_interruptions(offender: Offender) -> tuple[int, float, str]:
    """Most interruptions first."""
    return -offender.interruptions, -offender.gpu_hours, offender.node


def by_gpu_hours(offender: Offender) -> tuple[float, bool, float, str]:
    """Most GPU-hours first; of those that were out all the time, the longest out."""
    since = offender.open_since
    return -offender.gpu_hours, since is None, since.timestamp() if since else 0.0, offender.node


def list_outages(past: Past, period: Period, *, is_planned: bool | None = None) -> Iterator[Outage]:
    """Every outage with hours in the period, newest first: the rows that the service levels are added up from."""
    outages, stretches = past.outages, past.stretches
    begins, ends, is_open = fates(past, period)
    lost = clipped(stretches.begin, stretches.end, period)
    planned_lost = np.where(stretches.is_planned, lost, 0)
    size = len(outages.node)
    out, planned_out = sum_by(stretches.outage, lost, size), sum_by(stretches.outage, planned_lost, size)
    bounds = [*outages.first_stretch.tolist(), len(stretches.node)]
    for at in np.lexsort((outages.node, -outages.began)).tolist():
        if not out[at] or (is_planned is not None and bool(outages.is_planned[at]) is not is_planned):
            continue
        node = past.nodes[outages.node[at]]
        began, ended, end = int(outages.began[at]), int(outages.ended[at]), End(int(outages.end[at]))
        parts = [_stretch(past, place, is_open=bool(is_open[at])) for place in range(bounds[at], bounds[at + 1])]
        yield Outage(
            node=node.id,
            cluster=node.cluster,
            sku=node.sku,
            gpus=node.gpus,
            began=from_microseconds(began),
            ended=None if is_open[at] else from_microseconds(ended),
            ended_by=None if is_open[at] else end.name.lower(),
            is_planned=bool(outages.is_planned[at]),
            is_assumed=bool(outages.is_assumed[at]),
            length_hours=hours((period.end if is_open[at] else ended) - began),
            hours=hours(out[at]),
            hours_planned=hours(planned_out[at]),
            hours_unplanned=hours(out[at] - planned_out[at]),
            gpu_hours=hours(out[at] * node.gpus),
            began_in_period=bool(begins[at]),
            ended_in_period=bool(ends[at]),
            reasons=list(dict.fromkeys(part.reason for part in parts)),
            stretches=parts,
        )


def _stretch(past: Past, place: int, *, is_open: bool) -> Stretch:
    stretches, end = past.stretches, int(past.stretches.end[place])
    return Stretch(
        service=_SERVICES[stretches.service[place]],
        reason=past.reasons[stretches.reason[place]],
        is_planned=bool(stretches.is_planned[place]),
        begin=from_microseconds(int(stretches.begin[place])),
        end=None if is_open and end >= past.until else from_microseconds(end),
    )
