"""The ground that sums stand on: every unit with the starts it has, and every limit with the room it leaves. Pure.

Sums mark starts as impossible one after the other; what is left is what later sums may still count on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from plimsoll.campaigns.days import Days, make_days
from plimsoll.campaigns.impossible.rules import CANARY, DEADLINE, HOURS, TOGETHER, WEEKDAYS, work_of
from plimsoll.campaigns.model import Campaign, Limit, LimitKind, Measure
from plimsoll.campaigns.solve.options import Clock, make_choices
from plimsoll.campaigns.solve.problem import LAST_BITS, Flags, Floats, Ints
from plimsoll.campaigns.units import Roll, Unit, amount, base_amount, matched, matches, weights
from plimsoll.fleet.fold import Fleet

COUNTING = (LimitKind.CREWS, LimitKind.STARTS_PER_DAY)
"""Limits that count units."""


class Way(NamedTuple):
    """The starts that a unit has. `starts` and `days`: a line for each, a column for each batch."""

    unit: Unit
    block: int
    starts: Ints
    days: Ints


class Caps(NamedTuple):
    """Limits of one kind on one scope, as one: the most on each day, infinite where none of them holds."""

    places: tuple[int, ...]
    limit: Limit
    most: Floats


class Ground:
    """A campaign as sums see it: every unit, and which of its starts are still thought possible."""

    def __init__(
        self, campaign: Campaign, fleet: Fleet, roll: Roll, ceilings: Mapping[int, float] | None = None
    ) -> None:
        self.campaign, self.fleet, self.roll = campaign, fleet, roll
        self.days: Days = make_days(campaign)
        self.clock = Clock(self.days)
        self.ceilings = limit_ceilings(campaign, limit_bases(campaign, fleet)) if ceilings is None else ceilings
        units = roll.units
        choices = make_choices(units, self.clock, is_together=campaign.is_together, frozen={})
        self.kept: list[Flags] = [np.ones(len(choice.starts), dtype=bool) for choice in choices]
        self.ways: list[Way] = []
        for block, choice in enumerate(choices):
            at = 0
            for place in choice.members:
                count = len(units[place].batches)
                starts, days = choice.starts[:, at : at + count], choice.days[:, at : at + count]
                self.ways.append(Way(units[place], block, starts, days))
                at += count
        skus = {sku for unit in units for sku in unit.skus}
        is_weighed = any(limit.unit is Measure.A100E for limit in campaign.limits)
        self.a100e = weights(fleet, sorted(skus)) if is_weighed else {}

    def open_ways(self, *, canary: bool | None = None) -> list[Way]:
        """The units that still have a start."""
        found = [way for way in self.ways if self.kept[way.block].any()]
        return found if canary is None else [way for way in found if way.unit.is_canary is canary]

    def rules(self, units: Sequence[Unit], *more: str) -> tuple[str, ...]:
        """The rules that say when some units may go out, and more."""
        campaign = self.campaign
        zones = {zone for unit in units for zone in unit.no_fly}
        found = [*more, *(f"no_fly[{place}]" for place, zone in enumerate(campaign.no_fly) if zone in zones)]
        found += [CANARY] * (campaign.canary is not None)
        found += [f"order[{place}]" for place, group in enumerate(campaign.order) if group.is_strict and place]
        found += [TOGETHER] * campaign.is_together
        found += [HOURS, *([WEEKDAYS] if len(campaign.window.days) < 7 else []), DEADLINE]
        places = {work_of(campaign, unit) for unit in [*units, *(each for each in self.roll.units if each.is_canary)]}
        if any(group.is_strict for group in campaign.order):
            places |= {work_of(campaign, unit) for unit in self.roll.units}
        return (*found, *(f"work[{place}]" for place in sorted(places)))

    def counts(self, limit: Limit, unit: Unit) -> Floats:
        """How much each batch of a unit counts for a limit."""
        if limit.kind in COUNTING:
            return np.full(len(unit.batches), float(matches(limit.scope, unit.value_of, unit.skus)))
        found = [amount(matched(limit.scope, unit, lots), limit.unit, self.a100e) for lots in unit.lots]
        return np.array(found, dtype=float)

    def caps(self) -> Iterator[Caps]:
        """The limits that hold on days, those of one kind and scope together."""
        alike: defaultdict[object, list[int]] = defaultdict(list)
        for place, limit in enumerate(self.campaign.limits):
            if limit.kind is not LimitKind.AVERAGE_LOSS:
                alike[limit.kind, limit.scope, limit.unit].append(place)
        for places in alike.values():
            most = np.full(len(self.days.days), np.inf)
            holding = []
            for place in places:
                limit = self.campaign.limits[place]
                held = np.array([limit.holds_on(day.date) for day in self.days.days])
                most[held] = np.minimum(most[held], max(0.0, self.ceilings[place]))
                holding += [place] if held.any() else []
            if holding:
                first = self.campaign.limits[holding[0]]
                yield Caps(tuple(holding), first, np.floor(most + LAST_BITS) if first.kind in COUNTING else most)


def limit_bases(campaign: Campaign, fleet: Fleet) -> dict[int, float]:
    """What each limit's share is taken of. Asks the whole fleet: ask once."""
    limits = enumerate(campaign.limits)
    return {place: base_amount(each, campaign, fleet) for place, each in limits if each.at_most_share is not None}


def limit_ceilings(campaign: Campaign, bases: Mapping[int, float]) -> dict[int, float]:
    """The most that each limit allows; of an average loss, in every hour."""
    return {
        place: limit.at_most if limit.at_most is not None else (limit.at_most_share or 0.0) * bases[place]
        for place, limit in enumerate(campaign.limits)
    }
