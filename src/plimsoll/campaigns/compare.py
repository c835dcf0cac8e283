"""Two plans side by side: days, peak, loss, objective, by area and purpose, and what moved from one to the other. Pure.

The plans may be of one file or of two. Every figure is worked out from the batches and the nodes in them, never taken
from what a plan says of itself; the objective is the checker's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from plimsoll.campaigns.check.plan import check_plan
from plimsoll.campaigns.days import make_days
from plimsoll.campaigns.model import Batch, Campaign, Score
from plimsoll.campaigns.units import Roll, Unit
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase

GROUPS = ("area", "purpose")
_HOUR = timedelta(hours=1)


class Side(NamedTuple):
    """A plan with the file that it is of and the units that it is for."""

    name: str
    campaign: Campaign
    roll: Roll
    batches: Sequence[Batch]


class Part(msgspec.Struct, frozen=True):
    """What a plan does to the nodes of an area or a purpose. `lost`: A100e-hours, None where a SKU has no weight."""

    nodes: int
    batches: int
    first_day: date
    last_day: date
    peak: float
    lost: float | None


class Figures(msgspec.Struct, frozen=True):
    """A plan in numbers. `average_loss`: A100e out at any time from the start to the deadline, on average, and
    `average_loss_share` of what is in production; None where a SKU has no weight."""

    name: str
    problems: int
    score: Score
    units: int
    nodes: int
    batches: int
    days_used: int
    first_day: date | None
    last_day: date | None
    peak: float
    average_loss: float | None
    average_loss_share: float | None
    nodes_per_day: tuple[tuple[date, int], ...]
    parts: tuple[tuple[str, str, Part], ...]
    """By area and by purpose: the key, its value, and the figures of it."""


class Moved(msgspec.Struct, frozen=True):
    """A batch that is not the same in both plans: at another time, of another size, or only in one of them."""

    unit: str
    number: int
    left: Batch | None
    right: Batch | None

    @property
    def hours(self) -> float | None:
        """How much later it starts in the right plan."""
        return None if self.left is None or self.right is None else (self.right.start - self.left.start) / _HOUR


class Compared(msgspec.Struct, frozen=True):
    """Two plans, and the batches that differ, the earliest first."""

    left: Figures
    right: Figures
    moved: tuple[Moved, ...]
    same: int
    """How many batches are the same in both."""


def compare(left: Side, right: Side, fleet: Fleet) -> Compared:
    """Two plans side by side, on the fleet as it is."""
    before, after = ({batch.id: batch for batch in side.batches} for side in (left, right))
    moved = [
        Moved(batch.unit, batch.number, before.get(key), after.get(key))
        for key, batch in {**before, **after}.items()
        if not _is_same(before.get(key), after.get(key))
    ]
    moved.sort(key=lambda each: (_starts(each), each.unit, each.number))
    same = len(before.keys() | after.keys()) - len(moved)
    return Compared(figures(left, fleet), figures(right, fleet), tuple(moved), same)


def _is_same(left: Batch | None, right: Batch | None) -> bool:
    if left is None or right is None:
        return False
    return (left.start, left.end, left.nodes, left.mode) == (right.start, right.end, right.nodes, right.mode)


def _starts(moved: Moved) -> datetime:
    return min(batch.start for batch in (moved.left, moved.right) if batch is not None)


def figures(side: Side, fleet: Fleet) -> Figures:
    """A plan in numbers. Batches of units that the file does not have any more are in the objective of nobody."""
    checked = check_plan(side.campaign, fleet, side.batches)
    units = {unit.name: unit for unit in side.roll.units}
    outs = [_out(units[batch.unit], batch, side.campaign, fleet) for batch in side.batches if batch.unit in units]
    per_day: Counter[date] = Counter()
    for out in outs:
        per_day[out.day] += out.nodes
    days = sorted(per_day)
    hours = make_days(side.campaign).ends / 60
    lost = _sum(out.lost for out in outs)
    base = _base(fleet)
    return Figures(
        name=side.name,
        problems=len(checked.problems),
        score=checked.score,
        units=len({out.unit.name for out in outs}),
        nodes=sum(out.nodes for out in outs),
        batches=len(side.batches),
        days_used=len(days),
        first_day=days[0] if days else None,
        last_day=days[-1] if days else None,
        peak=_peak(outs),
        average_loss=None if lost is None else lost / hours,
        average_loss_share=None if lost is None or not base else lost / hours / base,
        nodes_per_day=tuple((day, per_day[day]) for day in days),
        parts=tuple(_parts(outs)),
    )


class _Out(NamedTuple):
    """A batch and what stays out after it."""

    unit: Unit
    day: date
    nodes: int
    stays: int
    start: datetime
    end: datetime
    back: datetime
    lost: float | None


def _out(unit: Unit, batch: Batch, campaign: Campaign, fleet: Fleet) -> _Out:
    start, end = batch.start.astimezone(UTC), batch.end.astimezone(UTC)
    is_known = batch.number <= len(unit.batches)
    stays = unit.stays[batch.number - 1] if is_known and unit.stay_minutes else 0
    back = end + timedelta(minutes=unit.stay_minutes if stays else 0)
    nodes = len(unit.batches[batch.number - 1]) if is_known else batch.nodes
    lost: float | None = 0.0
    if is_known:
        weighed = _weighed(fleet, unit.lots[batch.number - 1])
        out = (end - start) / _HOUR + stays / nodes * ((back - end) / _HOUR)
        lost = None if weighed is None else weighed * out
    day = start.astimezone(ZoneInfo(campaign.window.tz)).date()
    return _Out(unit, day, nodes, stays, start, end, back, lost)


def _weighed(fleet: Fleet, lots: Sequence[tuple[str, int, int]]) -> float | None:
    """A100-equivalents of some nodes, None where nobody has weighed a SKU of them."""
    total = 0.0
    for sku, gpus, nodes in lots:
        weight = fleet.a100e(sku)
        if weight is None:
            return None
        total += weight * gpus * nodes
    return total


def _base(fleet: Fleet) -> float | None:
    """All A100-equivalents in production."""
    total = 0.0
    for pool, count in fleet.pools.items():
        if fleet.clusters[pool.cluster].phase is Phase.PRODUCTION:
            weight = fleet.a100e(pool.sku)
            if weight is None:
                return None
            total += weight * count.gpus
    return total


def _sum(values: Iterable[float | None]) -> float | None:
    listed = list(values)
    return None if any(value is None for value in listed) else sum(value for value in listed if value is not None)


def _peak(outs: Sequence[_Out]) -> float:
    """The most nodes out at once, with those that stay out."""
    steps: defaultdict[datetime, int] = defaultdict(int)
    for out in outs:
        steps[out.start] += out.nodes
        steps[out.end] += out.stays - out.nodes
        steps[out.back] -= out.stays
    most = now = 0
    for moment in sorted(steps):
        now += steps[moment]
        most = max(most, now)
    return float(most)


def _parts(outs: Sequence[_Out]) -> Iterable[tuple[str, str, Part]]:
    for key in GROUPS:
        groups: defaultdict[str, list[_Out]] = defaultdict(list)
        for out in outs:
            groups[str(getattr(out.unit.cluster, key))].append(out)
        for value, members in sorted(groups.items()):
            part = Part(
                nodes=sum(out.nodes for out in members),
                batches=len(members),
                first_day=min(out.day for out in members),
                last_day=max(out.day for out in members),
                peak=_peak(members),
                lost=_sum(out.lost for out in members),
            )
            yield key, value, part
