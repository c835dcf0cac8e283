"""Which nodes get which versions when, by a plan or by a campaign that runs. Pure.

A *course* is what combinations, no-fly zones and lagging clusters are read from. It is the same for a plan that nobody
has started (`course_of_plan`) and for what the ledger knows (`courses_of`); there, what has happened counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from plimsoll.campaigns.days import Days, make_days
from plimsoll.campaigns.model import Campaign, NoFly, Plan
from plimsoll.campaigns.run.progress import Phase, Run, Step
from plimsoll.campaigns.units import Roll, Unit, make_units
from plimsoll.errors import PlimsollError
from plimsoll.fleet.fold import Fleet


class Update(NamedTuple):
    """Nodes that get a campaign's versions together, at `ends`. `batch` is empty where nothing goes out of service.

    `is_over`: it has ended, and `lost` are those that did not come back from it.
    """

    unit: str
    batch: str
    nodes: tuple[str, ...]
    starts: datetime
    ends: datetime
    is_begun: bool = False
    is_over: bool = False
    lost: frozenset[str] = frozenset()


class Bite(NamedTuple):
    """A no-fly zone that matches a unit, and the first day on which the unit could have been touched but for it."""

    zone: NoFly
    first_day: date


class Course(NamedTuple):
    """The updates of a campaign. `since`: when it was first planned; `held`: by unit, the no-fly zones that bite."""

    campaign: Campaign
    since: datetime
    updates: tuple[Update, ...]
    held: Mapping[str, tuple[Bite, ...]]
    is_over: bool = False

    @property
    def versions(self) -> dict[str, str]:
        return {change.component: change.version for change in self.campaign.changes}

    def holding(self, update: Update) -> tuple[Bite, ...]:
        """The zones that an update had to wait for: they bit before it starts."""
        if not update.batch:
            return ()
        return tuple(each for each in self.held.get(update.unit, ()) if each.first_day < update.starts.date())


def course_of_plan(campaign: Campaign, plan: Plan, roll: Roll, *, since: datetime) -> Course:
    """The course of a plan that nobody has started. What takes nothing out is done when the first window opens."""
    days = make_days(campaign)
    members = {unit.name: unit.batches for unit in roll.units}
    updates = [
        Update(batch.unit, batch.id, members[batch.unit][batch.number - 1], batch.start, batch.end)
        for batch in plan.batches
    ]
    updates += _impactless(roll.impactless, _first_opening(days))
    return Course(campaign, since, _in_order(updates, days), zones_that_bite(roll.units, days))


def courses_of(runs: Iterable[Run], fleet: Fleet) -> list[Course]:
    """The courses of what the ledger knows, the newest plan last. What was cancelled is none."""
    found = [course_of_run(run, fleet) for run in runs if run.phase is not Phase.CANCELLED]
    return sorted(found, key=lambda course: (course.since, course.campaign.name))


def course_of_run(run: Run, fleet: Fleet) -> Course:
    updates = []
    for batch in run.plan.batches:
        known = run.progress.get(batch.id)
        step = known.step if known else Step.PLANNED
        if step is Step.CANCELLED or (step is Step.PLANNED and run.phase is Phase.CANCELLING):
            continue
        nodes = (known.nodes if known else ()) or run.names.get(batch.id, ())
        lost = frozenset(known.lost) if known else frozenset()
        starts, ends = batch.start, batch.end
        if known and known.started:
            starts, ends = known.started, known.ended or known.started + (batch.end - batch.start)
        updates.append(
            Update(batch.unit, batch.id, nodes, starts, ends, step.is_under_way, step is Step.RETURNED, lost)
        )
    days = make_days(run.campaign)
    at = run.started_at or _first_opening(days)
    impactless = [update._replace(is_over=run.started_at is not None) for update in _impactless(run.impactless, at)]
    since = min((entry[1] for entry in run.history), default=days.origin)
    held = zones_that_bite(_units(run.campaign, fleet), days)
    return Course(run.campaign, since, _in_order([*updates, *impactless], days), held, run.phase.is_over)


def _units(campaign: Campaign, fleet: Fleet) -> tuple[Unit, ...]:
    """The units that no-fly zones are held against; none where the fleet has moved away under the file."""
    if not campaign.no_fly:
        return ()
    try:
        return make_units(campaign, fleet).units
    except PlimsollError:
        return ()


def _impactless(units: Mapping[str, tuple[str, ...]], at: datetime) -> list[Update]:
    return [Update(unit, "", nodes, at, at) for unit, nodes in units.items()]


def _in_order(updates: Iterable[Update], days: Days) -> tuple[Update, ...]:
    """By their end, and on the clock of the campaign's window: its no-fly zones are days of that clock."""
    zone = ZoneInfo(days.zone)
    local = [each._replace(starts=each.starts.astimezone(zone), ends=each.ends.astimezone(zone)) for each in updates]
    return tuple(sorted(local, key=lambda update: (update.ends, update.unit, update.starts)))


def _first_opening(days: Days) -> datetime:
    slots = (slot for day in days.days if day.is_open for slot in day.slots if slot is not None)
    return days.moment(next(slots, 0))


def zones_that_bite(units: Iterable[Unit], days: Days) -> dict[str, tuple[Bite, ...]]:
    """By unit, the zones without which it could have been touched on some day, each with the first such day.

    Two zones over the same day both bite: taking one away would not help, and both owners are to be asked.
    """
    found = {}
    for unit in units:
        held = []
        for zone in unit.no_fly:
            first = next(
                (day.date for day in days.days if day.is_open and zone.from_day <= day.date <= zone.to_day), None
            )
            if first is not None:
                held.append(Bite(zone, first))
        if held:
            found[unit.name] = tuple(held)
    return found
