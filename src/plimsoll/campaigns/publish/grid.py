"""A plan as a calendar: units by area downwards, days across. Pure; the page and the picture are drawn from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import date, datetime
from typing import NamedTuple

from plimsoll.campaigns.model import MINUTES_A_DAY, Batch
from plimsoll.campaigns.publish.changes import BatchChange, Changes
from plimsoll.campaigns.publish.curve import AREAS, days_of
from plimsoll.campaigns.publish.model import Published


class Cell(NamedTuple):
    """A batch on its day. `left` and `right` are its start and end as shares of the window."""

    batch: Batch
    left: float
    right: float
    change: BatchChange | None
    is_done: bool


class Row(NamedTuple):
    """A unit. `ghosts`: what the plan before had on a day and this one has not. `closed`: why it may not be touched."""

    unit: str
    cluster: str
    area: str
    purpose: str
    nodes: int
    is_canary: bool
    cells: dict[date, list[Cell]]
    ghosts: dict[date, list[BatchChange]]
    closed: dict[date, str]


class Grid(NamedTuple):
    """All units with a batch, now or in the plan before, by area. `open_days` are those on which work may be done."""

    days: tuple[date, ...]
    open_days: frozenset[date]
    rows: tuple[Row, ...]

    def areas(self) -> list[tuple[str, list[Row]]]:
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row.area, []).append(row)
        return list(found.items())


def make_grid(published: Published, found: Changes) -> Grid:
    days = days_of(published)
    changed = {change.id: change for change in found.changes}
    cells: dict[str, dict[date, list[Cell]]] = defaultdict(lambda: defaultdict(list))
    ghosts: dict[str, dict[date, list[BatchChange]]] = defaultdict(lambda: defaultdict(list))
    first: dict[str, datetime] = {}
    for batch in published.batches:
        first.setdefault(batch.unit, batch.start)
        left, right = _place(published, batch)
        cell = Cell(batch, left, right, changed.get(batch.id), batch.id in published.done)
        cells[batch.unit][published.day(batch)].append(cell)
    for change in found.changes:
        if change.before is not None and _is_elsewhere(published, change):
            ghosts[change.unit][published.day(change.before)].append(change)
            first.setdefault(change.unit, change.before.start)
    names = sorted(first, key=lambda unit: (AREAS.index(published.area_of(unit)), first[unit], unit))
    rows = tuple(_row(published, unit, cells[unit], ghosts[unit], days) for unit in names)
    weekdays = published.campaign.window.days
    return Grid(tuple(days), frozenset(day for day in days if day.weekday() in weekdays), rows)


def _is_elsewhere(published: Published, change: BatchChange) -> bool:
    """Whether the day on which a batch was has it no more."""
    assert change.before is not None, "it was there before"
    return change.after is None or published.day(change.after) != published.day(change.before)


def _row(
    published: Published,
    name: str,
    cells: dict[date, list[Cell]],
    ghosts: dict[date, list[BatchChange]],
    days: Sequence[date],
) -> Row:
    unit = published.unit_by_name.get(name)
    closed = {}
    for zone in unit.no_fly if unit else ():
        for day in days:
            if zone.from_day <= day <= zone.to_day:
                closed[day] = zone.why or "no-fly zone"
    return Row(
        unit=name,
        cluster=published.cluster_of(name),
        area=published.area_of(name),
        purpose=str(unit.cluster.purpose) if unit else "",
        nodes=sum(cell.batch.nodes for listed in cells.values() for cell in listed),
        is_canary=bool(unit and unit.is_canary),
        cells=dict(cells),
        ghosts=dict(ghosts),
        closed=closed,
    )


def _place(published: Published, batch: Batch) -> tuple[float, float]:
    """Where in its day's window a batch lies, from 0 to 1."""
    window = published.campaign.window
    start = published.local(batch.start)
    opened = start.hour * 60 + start.minute - window.opens
    length = (batch.end - batch.start).total_seconds() / 60
    span = max(1, min(window.closes, MINUTES_A_DAY) - window.opens)
    left = min(1.0, max(0.0, opened / span))
    return left, min(1.0, max(left, (opened + length) / span))
