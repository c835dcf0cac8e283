"""What each no-fly zone is holding back: which changes, on how many nodes, since when, until when. Pure.

A zone holds back what could have been done on one of its days and has not been done: nodes that have the versions
already are not held back, nor those whose update comes before the zone begins.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from datetime import date, datetime

import msgspec

from plimsoll.campaigns.days import make_days
from plimsoll.campaigns.model import NoFly
from plimsoll.campaigns.versions.courses import Course, Update
from plimsoll.campaigns.versions.fold import Versions
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service


class ZoneState(enum.StrEnum):
    """Where today lies."""

    NOW = "now"
    AHEAD = "ahead"
    OVER = "over"


class HeldBack(msgspec.Struct, frozen=True):
    """What a zone holds back in one campaign. `since` is the first day on which it bites, `planned` the days on which
    the updates that wait for it come; `days` how long it has held them back so far."""

    campaign: str
    zone: str
    why: str
    from_day: date
    to_day: date
    state: ZoneState
    since: date
    days: int
    changes: tuple[str, ...]
    nodes: int
    clusters: tuple[str, ...]
    planned_first: date | None
    planned_last: date | None


def held_back(fleet: Fleet, versions: Versions, courses: Sequence[Course], *, now: datetime) -> list[HeldBack]:
    """What no-fly zones of campaigns that are not over hold back; what holds most, of what holds now, first."""
    found = []
    for course in courses:
        if course.is_over:
            continue
        today = now.astimezone(make_days(course.campaign).moment(0).tzinfo).date()
        for zone in dict.fromkeys(course.campaign.no_fly):
            line = _one(fleet, versions, course, zone, today)
            if line is not None:
                found.append(line)
    order = list(ZoneState)
    return sorted(
        found, key=lambda each: (order.index(each.state), -each.nodes, each.campaign, each.from_day, each.zone)
    )


def _one(fleet: Fleet, versions: Versions, course: Course, zone: NoFly, today: date) -> HeldBack | None:
    """None where the zone bites nobody."""
    firsts = {unit: bite.first_day for unit, bites in course.held.items() for bite in bites if bite.zone == zone}
    if not firsts:
        return None
    after = [update for update in course.updates if _waits(update, firsts)]
    waiting = [(update, found) for update in after if (found := _unchanged(fleet, versions, course, update))]
    names = {name for _, found in waiting for name in found}
    since = min(firsts[update.unit] for update, _ in waiting) if waiting else min(firsts.values())
    planned = sorted(_day(update) for update, _ in waiting)
    state = ZoneState.OVER if zone.to_day < today else ZoneState.AHEAD if today < since else ZoneState.NOW
    return HeldBack(
        campaign=course.campaign.name,
        zone=str(zone.scope),
        why=zone.why,
        from_day=zone.from_day,
        to_day=zone.to_day,
        state=state,
        since=since,
        days=max(0, (min(today, zone.to_day) - since).days + 1) if state is not ZoneState.AHEAD else 0,
        changes=tuple(f"{change.component}={change.version}" for change in course.campaign.changes),
        nodes=len(names),
        clusters=tuple(sorted({fleet.nodes[name].cluster for name in names})),
        planned_first=planned[0] if planned else None,
        planned_last=planned[-1] if planned else None,
    )


def _day(update: Update) -> date:
    return update.starts.date()


def _waits(update: Update, firsts: dict[str, date]) -> bool:
    """Whether an update comes after the day on which a zone begins to bite its unit."""
    return bool(update.batch) and not update.is_over and update.unit in firsts and _day(update) > firsts[update.unit]


def _unchanged(fleet: Fleet, versions: Versions, course: Course, update: Update) -> list[str]:
    """Nodes of an update that do not have the campaign's versions yet."""
    wanted = set(course.versions.items())
    return [name for name in _present(fleet, update.nodes) if not wanted.issubset(versions.combination_of(name))]


def _present(fleet: Fleet, names: Iterable[str]) -> list[str]:
    return [name for name in names if name in fleet.nodes and fleet.nodes[name].service is not Service.RETIRED]
