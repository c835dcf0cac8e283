"""What the limits on the average loss allow a campaign, and what it has used of that. Pure.

As in a plan: the hours that nodes of the limit's scope are out, and those that nodes which did not come back stay out;
of a dated limit only what lies on its days. What was used is counted from what really happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

import msgspec

from plimsoll.campaigns.model import Limit, LimitKind, Measure
from plimsoll.campaigns.run.progress import Run
from plimsoll.campaigns.units import Labelled, Lot, Roll, amount, base_amount, labelled, matches_node, weights
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.fold import Health
from plimsoll.health.model import EMPTY_TIMELINE, from_microseconds, to_microseconds
from plimsoll.state.state import State

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


class Budget(msgspec.Struct, frozen=True):
    """What a limit on the average loss allows, in unit-hours, what the plan needs of it, and what was used."""

    limit: str
    unit: str
    used: float
    planned: float
    allowed: float


def budgets(state: State, run: Run, roll: Roll, *, now: datetime) -> list[Budget]:
    """For each limit on the average loss what it allows and what of that is used."""
    seen = {each.node.id: each for each in labelled(run.campaign, state.of(Fleet))}
    return [
        _budget(state, run, roll, seen, number, limit, now)
        for number, limit in enumerate(run.campaign.limits)
        if limit.kind is LimitKind.AVERAGE_LOSS and limit.at_most_share is not None
    ]


def _budget(
    state: State, run: Run, roll: Roll, seen: dict[str, Labelled], number: int, limit: Limit, now: datetime
) -> Budget:
    fleet, campaign = state.of(Fleet), run.campaign
    zone = ZoneInfo(campaign.window.tz)

    def size(names: Iterable[str]) -> float:
        found = [seen[name] for name in names if name in seen]
        lots = [Lot(each.node.sku, each.node.gpus, 1) for each in found if matches_node(limit.scope, each)]
        a100e = weights(fleet, {lot.sku for lot in lots}) if limit.unit is Measure.A100E else {}
        return amount(lots, limit.unit, a100e)

    def hours(first: datetime, last: datetime) -> float:
        return _hours_on(limit, first, last, zone)

    units = {unit.name: unit for unit in roll.units}
    planned = used = 0.0
    for batch in run.plan.batches:
        names = run.names.get(batch.id, ())
        planned += size(names) * hours(batch.start, batch.end)
        unit = units.get(batch.unit)
        if unit is not None and batch.number <= len(unit.stays):
            share = unit.stays[batch.number - 1] / len(unit.batches[batch.number - 1])
            planned += size(names) * share * hours(batch.end, batch.end + timedelta(minutes=unit.stay_minutes))
    for each in run.progress.values():
        if each.started is None:
            continue
        ended = each.ended or now
        used += size(each.nodes) * hours(each.started, ended)
        used += sum(size([name]) * hours(ended, _back(state, name, ended, now)) for name in each.lost)
    first, last = (datetime.combine(day, time(), zone) for day in (campaign.start, campaign.deadline + DAY))
    allowed = (limit.at_most_share or 0.0) * base_amount(limit, campaign, fleet) * hours(first, last)
    return Budget(f"limits[{number}]", str(limit.unit), used, planned, allowed)


def _back(state: State, node: str, ended: datetime, now: datetime) -> datetime:
    """When a node that did not come back with its batch was in service again; now, where it still is not."""
    health, end = state.of(Health), to_microseconds(ended)
    for moment, mark in health.timelines.get(node, EMPTY_TIMELINE).entries():
        if moment >= end and health.marks[mark].service is Service.IN_SERVICE:
            return min(now, from_microseconds(moment))
    return now


def _hours_on(limit: Limit, first: datetime, last: datetime, zone: ZoneInfo) -> float:
    """The hours between two moments; of a dated limit those on its days."""
    if last <= first:
        return 0.0
    if limit.from_day is None and limit.until_day is None and not limit.weekdays:
        return (_real(last) - _real(first)) / HOUR
    found, day = 0.0, first.astimezone(zone).date()
    while day <= last.astimezone(zone).date():
        if limit.holds_on(day):
            begins, ends = (datetime.combine(each, time(), zone) for each in (day, day + DAY))
            found += max(timedelta(0), _real(min(last, ends)) - _real(max(first, begins))) / HOUR
        day += DAY
    return found


def _real(moment: datetime) -> datetime:
    """In a zone whose clocks never change, so that a difference is the time that passes."""
    return moment.astimezone(ZoneInfo("UTC"))
