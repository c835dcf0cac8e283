"""How much is out at each moment of a plan, by area and under each limit. Pure.

A batch counts from its start to its end; those of its nodes that are expected not to come back count on until they are
repaired. The moments are those at which a count changes; between two of them it stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from plimsoll.campaigns.model import Batch, Measure
from plimsoll.campaigns.publish.model import Cap, Published
from plimsoll.campaigns.units import amount, matched
from plimsoll.fleet.model import A100E_DEFAULT, Area

AREAS = tuple(str(area) for area in Area)
SPARE_DAYS = 3
"""Shown after the last batch: what did not come back is in repair then. More would only be empty."""
_DAY = timedelta(days=1)


class Point(NamedTuple):
    """From this moment on so many nodes of each area are out. `work` are those of them that are worked on."""

    at: datetime
    out: tuple[int, ...]
    work: int

    @property
    def total(self) -> int:
        return sum(self.out)


class Curve(NamedTuple):
    """Nodes out over time. `areas` names the parts of each point's `out`."""

    areas: tuple[str, ...]
    points: tuple[Point, ...]

    @property
    def peak(self) -> Point | None:
        """The first of the highest."""
        return max(self.points, key=lambda point: point.total, default=None)


class DayCount(NamedTuple):
    """A local day: the units that begin, the batches and nodes that go out, and the most nodes out at once."""

    day: date
    units: int
    batches: int
    nodes: int
    peak: int
    is_open: bool


class CapUse(NamedTuple):
    """The most that is out under a limit on the days on which it holds, in its unit, and when that is first so."""

    cap: Cap
    most: float
    at: datetime | None

    @property
    def share(self) -> float:
        return self.most / self.cap.most if self.cap.most else 0.0


class _Step(NamedTuple):
    """A batch changes the count: it starts, ends, or what did not come back is repaired."""

    at: datetime
    share: float
    """Of the batch's nodes: more, or fewer."""
    work_share: int


def out_curve(published: Published) -> Curve:
    """Nodes out, by area."""
    present = {published.area_of(batch.unit) for batch in published.batches}
    areas = tuple(area for area in AREAS if area in present)
    more: dict[datetime, list[float]] = defaultdict(lambda: [0.0] * (len(areas) + 1))
    for batch in published.batches:
        place = areas.index(published.area_of(batch.unit))
        for step in _steps(published, batch):
            more[step.at][place] += step.share * batch.nodes
            more[step.at][-1] += step.work_share * batch.nodes
    now = [0.0] * (len(areas) + 1)
    points = []
    for at in sorted(more):
        now = [count + change for count, change in zip(now, more[at], strict=True)]
        points.append(Point(at, tuple(round(count) for count in now[:-1]), round(now[-1])))
    return Curve(areas, tuple(points))


def _steps(published: Published, batch: Batch) -> Iterable[_Step]:
    unit = published.unit_by_name.get(batch.unit)
    repair = timedelta(minutes=unit.stay_minutes if unit else 0)
    kept = min(1.0, published.stays_of(batch) / batch.nodes) if repair and batch.nodes else 0.0
    yield _Step(batch.start, 1.0, 1)
    yield _Step(batch.end, kept - 1.0, -1)
    if kept:
        yield _Step(batch.end + repair, -kept, 0)


def cap_uses(published: Published) -> list[CapUse]:
    """How near each limit on what is out at once comes to being reached."""
    return [_use(published, cap) for cap in published.caps]


def _use(published: Published, cap: Cap) -> CapUse:
    a100e = {**A100E_DEFAULT, **published.a100e}
    more: dict[datetime, float] = defaultdict(float)
    for batch in published.batches:
        unit = published.unit_by_name.get(batch.unit)
        lots = matched(cap.limit.scope, unit, published.lots_of(batch)) if unit else ()
        if out := amount(lots, cap.limit.unit, a100e):
            for step in _steps(published, batch):
                more[step.at] += step.share * out
    for midnight in _midnights(published, more):
        more[midnight] += 0.0  # a limit may begin to hold then
    most, when, now = 0.0, None, 0.0
    for at in sorted(more):
        now += more[at]
        if now > most + 1e-6 and cap.limit.holds_on(published.local(at).date()):
            most, when = now, at
    return CapUse(cap, round(most, 6), when)


def _midnights(published: Published, moments: Iterable[datetime]) -> list[datetime]:
    """Every local midnight between the first moment and the last."""
    listed = sorted(moments)
    if not listed:
        return []
    day, last = published.local(listed[0]).date() + _DAY, published.local(listed[-1]).date()
    return [_midnight(published, day + number * _DAY) for number in range((last - day).days + 1)]


def _midnight(published: Published, day: date) -> datetime:
    return datetime.combine(day, time(), published.zone).astimezone(UTC)


def cap_on(published: Published, day: date) -> float | None:
    """The lowest limit on all nodes out at once that holds on a day; None where there is none."""
    found = [
        cap.most
        for cap in published.caps
        if cap.limit.unit is Measure.NODES and cap.limit.scope.is_everything and cap.limit.holds_on(day)
    ]
    return min(found, default=None)


def cap_steps(published: Published, first: date, last: date) -> list[tuple[date, date, float]]:
    """The lowest limit on all nodes from day to day, both inclusive; days without one are left out."""
    steps: list[tuple[date, date, float]] = []
    for number in range((last - first).days + 1):
        day = first + number * _DAY
        if (cap := cap_on(published, day)) is None:
            continue
        if steps and steps[-1][1] == day - _DAY and steps[-1][2] == cap:
            steps[-1] = (steps[-1][0], day, cap)
        else:
            steps.append((day, day, cap))
    return steps


def days_of(published: Published) -> list[date]:
    """Every day from the campaign's start to the last batch of this plan or the one before, and a few more; to the
    deadline where there is none."""
    before = published.previous.batches if published.previous else ()
    listed = [published.day(batch) for batch in (*published.batches, *before)]
    first, last = min([published.campaign.start, *listed]), published.campaign.deadline
    if listed:
        last = max(max(listed), min(last, max(listed) + SPARE_DAYS * _DAY))
    return [first + number * _DAY for number in range((last - first).days + 1)]


def day_counts(published: Published, curve: Curve) -> list[DayCount]:
    """Each day of the campaign in numbers."""
    batches: dict[date, list[Batch]] = defaultdict(list)
    for batch in published.batches:
        batches[published.day(batch)].append(batch)
    first_of: dict[str, date] = {}
    for batch in published.batches:
        first_of.setdefault(batch.unit, published.day(batch))
    days = days_of(published)
    peaks = _peaks(published, curve, days)
    return [
        DayCount(
            day,
            sum(1 for first in first_of.values() if first == day),
            len(batches[day]),
            sum(batch.nodes for batch in batches[day]),
            peaks[day],
            day.weekday() in published.campaign.window.days,
        )
        for day in days
    ]


def _peaks(published: Published, curve: Curve, days: Sequence[date]) -> dict[date, int]:
    """The most nodes out on each day: what a day begins with counts, too."""
    found, place, now = dict.fromkeys(days, 0), 0, 0
    for day in days:
        begin, end = _midnight(published, day), _midnight(published, day + _DAY)
        while place < len(curve.points) and curve.points[place].at <= begin:
            now = curve.points[place].total
            place += 1
        found[day] = now
        while place < len(curve.points) and curve.points[place].at < end:
            now = curve.points[place].total
            found[day] = max(found[day], now)
            place += 1
    return found


def area_progress(published: Published, areas: Sequence[str]) -> dict[str, list[float]]:
    """The share of each area's nodes whose batch has started by the end of each day."""
    days = days_of(published)
    done: dict[str, dict[date, int]] = {area: dict.fromkeys(days, 0) for area in areas}
    for batch in published.batches:
        done[published.area_of(batch.unit)][published.day(batch)] += batch.nodes
    found = {}
    for area, by_day in done.items():
        total, so_far, shares = sum(by_day.values()), 0, []
        for day in days:
            so_far += by_day[day]
            shares.append(so_far / total if total else 0.0)
        found[area] = shares
    return found
