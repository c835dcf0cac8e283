"""The rules of a campaign file by name, and the same file without some of them. Pure.

A rule is what a person could be asked to give up: a limit, the deadline, the window, a no-fly zone, the canary, a
strict step of the order, `together`, a rule of `work`. Its name is its place in the file. Without a rule of `work` the
units that it is for are not done. A rule that is left out keeps its scope: scopes split clusters into units, and the
units must stay what they are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from plimsoll.campaigns.file import DAYS_MAX
from plimsoll.campaigns.model import (
    MINUTES_A_DAY,
    Campaign,
    Canary,
    Impact,
    ImpactRule,
    Limit,
    LimitKind,
    Measure,
    Mode,
    Work,
)
from plimsoll.campaigns.units import Roll, Unit, matches
from plimsoll.fleet.selector import Scope

DEADLINE, HOURS, WEEKDAYS, CANARY, TOGETHER = "deadline", "window.hours", "window.days", "canary", "together"
_NEVER = date.max
_SPARE_DAYS = 14
"""How much later than twice its length a campaign without a deadline ends."""


class Rule(NamedTuple):
    """A rule by its place in the file, and in words."""

    name: str
    text: str


def rules_of(campaign: Campaign, roll: Roll) -> list[Rule]:
    """Every rule, those that people give up most easily first."""
    found = [Rule(f"limits[{place}]", limit_text(limit)) for place, limit in enumerate(campaign.limits)]
    found += [
        Rule(
            f"no_fly[{place}]",
            f"{scope_text(zone.scope)} is not touched from {zone.from_day} to {zone.to_day}{_why(zone.why)}",
        )
        for place, zone in enumerate(campaign.no_fly)
    ]
    if campaign.canary:
        names, hours = ", ".join(campaign.canary.clusters), campaign.canary.soak_minutes / 60
        found.append(Rule(CANARY, f"{names} first, and {hours:g} hours before anybody else starts"))
    found += [
        Rule(f"order[{place}]", f"{scope_text(group.scope)} starts only after all groups before it have ended")
        for place, group in enumerate(campaign.order)
        if group.is_strict and place
    ]
    if campaign.is_together:
        found.append(Rule(TOGETHER, "all units of a colo start at the same moment"))
    window = campaign.window
    if window.opens >= campaign.slot_minutes or window.closes < MINUTES_A_DAY:
        found.append(
            Rule(HOURS, f"work only from {clock_text(window.opens)} to {clock_text(window.closes)} {window.tz}")
        )
    if len(window.days) < 7:
        found.append(Rule(WEEKDAYS, f"work only on {', '.join(WEEKDAY_NAMES[day] for day in window.days)}"))
    found.append(
        Rule(DEADLINE, f"everything is done by {campaign.deadline}, {days_text(campaign)} from {campaign.start}")
    )
    used = {work_of(campaign, unit) for unit in roll.units}
    found += [Rule(f"work[{place}]", work_text(work)) for place, work in enumerate(campaign.work) if place in used]
    return found


WEEKDAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def scope_text(scope: Scope) -> str:
    return "everything" if scope.is_everything else f"{{{scope}}}"


def clock_text(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def days_text(campaign: Campaign) -> str:
    days = (campaign.deadline - campaign.start).days + 1
    return "1 day" if days == 1 else f"{days} days"


def number_text(value: float) -> str:
    return f"{value:,.0f}" if abs(value - round(value)) < 1e-6 else f"{value:,.1f}"


def _why(why: str) -> str:
    return f" ({why})" if why else ""


def limit_text(limit: Limit) -> str:
    """A limit as a person says it."""
    unit = {Measure.NODES: "nodes", Measure.GPUS: "GPUs", Measure.A100E: "A100e"}[limit.unit]
    if limit.at_most_share is not None:
        of = "the fleet" if limit.of == "fleet" else "its scope"
        most = f"{limit.at_most_share:.4g} of {of}'s {unit}"
    else:
        most = number_text(limit.at_most or 0)
        most += "" if limit.kind in (LimitKind.CREWS, LimitKind.STARTS_PER_DAY) else f" {unit}"
    kind = {
        LimitKind.OUT_AT_ONCE: f"at most {most} out at once",
        LimitKind.OUT_PER_DAY: f"at most {most} going out a day",
        LimitKind.AVERAGE_LOSS: f"at most {most} lost on average",
        LimitKind.STARTS_PER_DAY: f"at most {most} begun a day",
        LimitKind.CREWS: f"at most {most} worked on at once",
    }[limit.kind]
    where = "" if limit.scope.is_everything else f" of {scope_text(limit.scope)}"
    since = "" if limit.from_day is None else f" from {limit.from_day}"
    until = "" if limit.until_day is None else f" until {limit.until_day}"
    days = f" on {', '.join(WEEKDAY_NAMES[day] for day in limit.weekdays)}" if limit.weekdays else ""
    return f"{kind}{where}{since}{until}{days}"


def work_text(work: Work) -> str:
    how = "whole" if work.mode is Mode.WHOLE else f"rolling, {work.share_per_day:.4g} a day"
    return f"{scope_text(work.scope)} {how}, {work.minutes / 60:g} hours"


def work_of(campaign: Campaign, unit: Unit) -> int:
    """The place of the rule that says how a unit is done."""
    return next(place for place, work in enumerate(campaign.work) if matches(work.scope, unit.value_of, unit.skus))


def without(campaign: Campaign, roll: Roll, names: Collection[str]) -> Campaign:
    """The file without these rules."""
    found = replace(
        campaign,
        limits=tuple(
            replace(limit, from_day=_NEVER) if f"limits[{place}]" in names else limit
            for place, limit in enumerate(campaign.limits)
        ),
        no_fly=tuple(
            replace(zone, from_day=date.min, to_day=date.min) if f"no_fly[{place}]" in names else zone
            for place, zone in enumerate(campaign.no_fly)
        ),
        order=tuple(
            replace(group, is_strict=group.is_strict and f"order[{place}]" not in names)
            for place, group in enumerate(campaign.order)
        ),
        is_together=campaign.is_together and TOGETHER not in names,
    )
    if CANARY in names:
        found = replace(found, canary=None)
    window = found.window
    if HOURS in names:  # slots stay where they are, so that nothing that was possible becomes impossible
        window = replace(window, opens=window.opens % campaign.slot_minutes, closes=MINUTES_A_DAY)
    if WEEKDAYS in names:
        window = replace(window, days=tuple(range(7)))
    if DEADLINE in names:
        found = replace(found, deadline=latest_deadline(campaign, roll))
    places = {place for place in range(len(campaign.work)) if f"work[{place}]" in names}
    return _spare(replace(found, window=window), roll, places)


def latest_deadline(campaign: Campaign, roll: Roll) -> date:
    """As good as none, and still few enough days to search."""
    days = (campaign.deadline - campaign.start).days + 1
    batches = max((len(unit.batches) for unit in roll.units), default=1)
    soak = campaign.canary.soak_minutes // MINUTES_A_DAY + 1 if campaign.canary else 0
    enough = math.ceil((2 * max(days, batches) + soak + _SPARE_DAYS) * 7 / len(campaign.window.days))
    return max(campaign.deadline, campaign.start + timedelta(days=min(DAYS_MAX, enough) - 1))


def _spare(campaign: Campaign, roll: Roll, places: Collection[int]) -> Campaign:
    """The file with nothing to do for some rules of `work`: whatever they are for stays in service."""
    if not places:
        return campaign
    changes = []
    for change in campaign.changes:
        impacts: list[ImpactRule] = []
        for place, work in enumerate(campaign.work):  # the first match wins, there as here
            spared = place in places
            for rule in change.impacts:
                scope = Scope((*work.scope.terms, *rule.scope.terms))
                impacts.append(ImpactRule(scope, Impact.IMPACTLESS if spared else rule.impact))
            impacts.append(ImpactRule(work.scope, Impact.IMPACTLESS if spared else Impact.DISRUPTIVE))
        changes.append(replace(change, impacts=tuple(impacts)))
    left = units_left(campaign, roll, places)
    canary = campaign.canary
    if canary is not None:
        names = {unit.name for unit in left} | {unit.cluster.id for unit in left}
        kept = tuple(name for name in canary.clusters if name in names)
        canary = Canary(kept, canary.soak_minutes) if kept else None
    return replace(campaign, changes=tuple(changes), canary=canary)


def units_left(campaign: Campaign, roll: Roll, places: Collection[int]) -> list[Unit]:
    """The units that are still done without some rules of `work`."""
    return [unit for unit in roll.units if work_of(campaign, unit) not in places]


def roll_without(campaign: Campaign, roll: Roll, names: Collection[str]) -> Roll:
    """The units of the file without some rules, without asking the fleet again."""
    places = {place for place in range(len(campaign.work)) if f"work[{place}]" in names}
    dropped = [zone for place, zone in enumerate(campaign.no_fly) if f"no_fly[{place}]" in names]
    units: Sequence[Unit] = units_left(campaign, roll, places)
    is_canary = CANARY not in names
    return roll._replace(
        units=tuple(
            replace(
                unit,
                no_fly=tuple(zone for zone in unit.no_fly if zone not in dropped),
                is_canary=unit.is_canary and is_canary,
            )
            for unit in units
        )
    )
