"""Why there can be no plan, in sums that a person can check. Pure.

Each sum looks at one rule at a time and is kind to the plan: it leaves out whatever it can't be sure of. So a shortfall
is a proof that no plan exists, and no shortfall proves nothing. Units without a possible start come first, then batches
that are over a limit by themselves, then all the work together against all the room that a limit leaves.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from plimsoll.campaigns.days import Days, make_days
from plimsoll.campaigns.model import Campaign, Limit, LimitKind, Measure
from plimsoll.campaigns.options import Clock, make_choices
from plimsoll.campaigns.problem import LAST_BITS, Flags, Floats, Ints
from plimsoll.campaigns.rules import (
    CANARY,
    DEADLINE,
    HOURS,
    TOGETHER,
    WEEKDAYS,
    clock_text,
    days_text,
    limit_text,
    number_text,
    work_of,
)
from plimsoll.campaigns.units import Roll, Unit, amount, base_amount, ceiling, matched, matches, weights
from plimsoll.fleet.fold import Fleet
from plimsoll.words import counted

_COUNTING = (LimitKind.CREWS, LimitKind.STARTS_PER_DAY)
_AT_ONCE = (LimitKind.OUT_AT_ONCE, LimitKind.CREWS)
SHOWN_MAX = 3


class Shortfall(msgspec.Struct, frozen=True):
    """A sum that can't come out: so much is needed, so much there is, and the rules that it rests on."""

    code: str
    text: str
    rules: tuple[str, ...]
    needed: float
    available: float


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
        self.ceilings = limit_ceilings(campaign, fleet) if ceilings is None else ceilings
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
        if limit.kind in _COUNTING:
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
                most[held] = np.minimum(most[held], self.ceilings[place])
                holding += [place] if held.any() else []
            if holding:
                first = self.campaign.limits[holding[0]]
                yield Caps(tuple(holding), first, np.floor(most + LAST_BITS) if first.kind in _COUNTING else most)


def limit_ceilings(campaign: Campaign, fleet: Fleet) -> dict[int, float]:
    """The most that each limit allows; of an average loss, in every hour. Asks the whole fleet: ask once."""
    return {
        place: base_amount(limit, campaign, fleet) * (limit.at_most_share or 0.0)
        if limit.kind is LimitKind.AVERAGE_LOSS
        else ceiling(limit, campaign, fleet)
        for place, limit in enumerate(campaign.limits)
    }


def find_shortfalls(ground: Ground) -> list[Shortfall]:
    """Sums that can't come out, the plainest first. Units that were found to have no start are in no later sum."""
    found = [each for look in (_without_start, _canary, _order, _too_big) for each in look(ground)]
    found += _average_loss(ground)
    return [*found, *(each for caps in ground.caps() for each in _whole_sum(ground, caps))]


def _names(units: Sequence[Unit]) -> str:
    shown = ", ".join(unit.name for unit in units[:SHOWN_MAX])
    return shown if len(units) <= SHOWN_MAX else f"{shown} and {len(units) - SHOWN_MAX} more"


# A unit that has no possible start.


def _without_start(ground: Ground) -> Iterator[Shortfall]:
    lost: defaultdict[tuple[str, int, int], list[Unit]] = defaultdict(list)
    for way in ground.ways:
        if len(way.starts):
            continue
        permitted = sum(way.unit.may_be_touched(day) for day in ground.days.days)
        code = "too_few_days" if permitted < len(way.unit.batches) else "no_start"
        if code == "no_start" and ground.campaign.is_together:
            code = "no_common_start"
        lost[code, len(way.unit.batches), permitted].append(way.unit)
    for (code, batches, permitted), units in lost.items():
        days = f"{counted(permitted, 'permitted day')} from {ground.campaign.start} to {ground.campaign.deadline}"
        if code == "too_few_days":
            text = f"{_names(units)}: {batches} batches on consecutive days, and {days}"
            if batches == 1:
                text = f"{_names(units)}: {days}"
        elif code == "no_common_start":
            text = f"{_names(units)}: no start at which all units of the colo could begin together"
        else:
            hours = f"{clock_text(ground.campaign.window.opens)} to {clock_text(ground.campaign.window.closes)}"
            text = f"{_names(units)}: no start at which {units[0].minutes / 60:g} hours fit between {hours}; {days}"
        yield Shortfall(code, text, ground.rules(units), float(batches), float(permitted))


def _ends(way: Way) -> Ints:
    found: Ints = way.starts[:, -1] + way.unit.minutes
    return found


def _earliest_end(ground: Ground, way: Way) -> int:
    return int(_ends(way)[ground.kept[way.block]].min())


def _late(ground: Ground, ways: Sequence[Way], free: int) -> list[Unit]:
    """Leave out starts before a moment; the units that have no other."""
    for way in ways:
        ground.kept[way.block] &= way.starts[:, 0] >= free
    return [way.unit for way in ways if not ground.kept[way.block].any()]


def _canary(ground: Ground) -> Iterator[Shortfall]:
    canary = ground.campaign.canary
    first, others = ground.open_ways(canary=True), ground.open_ways(canary=False)
    if canary is None or not first or not others:
        return
    free = max(_earliest_end(ground, way) for way in first) + canary.soak_minutes
    late = _late(ground, others, free)
    if late:
        moment = ground.days.moment(free)
        text = (
            f"canary {_names([way.unit for way in first])} has soaked {canary.soak_minutes / 60:g} hours by "
            f"{moment:%Y-%m-%d %H:%M} at the earliest; {_names(late)} can't be done from then until the deadline, "
            f"{ground.campaign.deadline}"
        )
        needed, available = free / 60, ground.days.ends / 60
        yield Shortfall("canary_too_late", text, ground.rules(late), needed, available)


def _order(ground: Ground) -> Iterator[Shortfall]:
    for place, group in enumerate(ground.campaign.order):
        ways = ground.open_ways()
        before = [way for way in ways if way.unit.group is not None and way.unit.group < place]
        after = [way for way in ways if way.unit.group == place]
        if not group.is_strict or not before or not after:
            continue
        free = max(_earliest_end(ground, way) for way in before)
        late = _late(ground, after, free)
        if late:
            moment = ground.days.moment(free)
            text = (
                f"the groups before order[{place}] end {moment:%Y-%m-%d %H:%M} at the earliest; {_names(late)} can't "
                f"be done from then until the deadline, {ground.campaign.deadline}"
            )
            yield Shortfall("order_too_late", text, ground.rules(late), free / 60, ground.days.ends / 60)


# A batch that is over a limit by itself.


def _too_big(ground: Ground) -> Iterator[Shortfall]:
    for caps in ground.caps():
        if caps.limit.kind is LimitKind.STARTS_PER_DAY:
            continue
        big: list[tuple[float, Unit]] = []
        for way in ground.open_ways():
            counts = ground.counts(caps.limit, way.unit)
            over = counts[None, :] > caps.most[way.days] * (1 + LAST_BITS) + LAST_BITS
            ground.kept[way.block] &= ~over.any(axis=1)
            if not ground.kept[way.block].any():
                big.append((float(counts.max()), way.unit))
        if big:
            big.sort(key=lambda each: (-each[0], each[1].name))
            units = [unit for _, unit in big]
            most = float(caps.most[np.isfinite(caps.most)].max())
            text = (
                f"limits[{caps.places[0]}] ({limit_text(caps.limit)}): a batch of {units[0].name} alone takes "
                f"{number_text(big[0][0])}, and {number_text(most)} are allowed"
            )
            text += f"; so do {_names(units[1:])}" if units[1:] else ""
            rules = ground.rules(units, *(f"limits[{place}]" for place in caps.places))
            yield Shortfall("batch_too_big", text, rules, big[0][0], most)


# All the work against all the room.


def _average_loss(ground: Ground) -> Iterator[Shortfall]:
    for place, limit in enumerate(ground.campaign.limits):
        is_dated = limit.from_day is not None or limit.until_day is not None or bool(limit.weekdays)
        if limit.kind is not LimitKind.AVERAGE_LOSS or is_dated:
            continue
        lost = 0.0
        for unit in ground.roll.units:
            stays = np.array([stay / len(batch) for stay, batch in zip(unit.stays, unit.batches, strict=True)])
            hours = unit.minutes / 60 + stays * unit.stay_minutes / 60
            lost += float((ground.counts(limit, unit) * hours).sum())
        span = ground.days.ends / 60
        available = ground.ceilings[place] * span
        if lost > available * (1 + LAST_BITS) + LAST_BITS:
            text = (
                f"limits[{place}] ({limit_text(limit)}): the work costs {number_text(lost)} {limit.unit}-hours, "
                f"whatever the plan; over {number_text(span)} hours {number_text(available)} are allowed"
            )
            units = [unit for unit in ground.roll.units if ground.counts(limit, unit).any()]
            rules = ground.rules(units, f"limits[{place}]")
            yield Shortfall("average_loss", text, rules, lost, available)


class Sum(NamedTuple):
    """Work that must go out on some days, and the room there is on them."""

    needed: float
    available: float
    units: tuple[Unit, ...]
    days: int
    batches: int
    minutes: int
    turns: int


def _whole_sum(ground: Ground, caps: Caps) -> Iterator[Shortfall]:
    lengths = {way.unit.minutes for way in ground.open_ways() if ground.counts(caps.limit, way.unit).any()}
    sums = [_sum(ground, caps, minutes) for minutes in (sorted(lengths) if caps.limit.kind in _AT_ONCE else [0])]
    short = [each for each in sums if each.needed > each.available * (1 + LAST_BITS) + LAST_BITS]
    if not short:
        return
    worst = max(short, key=lambda each: each.needed / max(each.available, LAST_BITS))
    names = ", ".join(f"limits[{place}]" for place in caps.places)
    noun = "unit" if caps.limit.kind in _COUNTING else "A100e" if caps.limit.unit is Measure.A100E else "node"
    noun = "GPU" if caps.limit.unit is Measure.GPUS and noun == "node" else noun
    needed, available = number_text(worst.needed), number_text(worst.available)
    room = f"{counted(worst.days, 'day')} have room for {available}"
    if caps.limit.kind in _AT_ONCE:
        window = ground.campaign.window
        hours = f"{clock_text(window.opens)} to {clock_text(window.closes)}"
        room = (
            f"{counted(worst.days, 'day')}, from {hours} work of {worst.minutes / 60:g} hours fits "
            f"{counted(worst.turns, 'time')} one after the other: room for {available}"
        )
    plural = noun if noun == "A100e" else f"{noun}s"
    text = (
        f"{names} ({limit_text(caps.limit)}): {counted(len(worst.units), 'unit')} in {_batches(worst.batches)} take "
        f"{needed} {plural} in all by {ground.campaign.deadline} ({days_text(ground.campaign)}); {room}"
    )
    rules = ground.rules(worst.units, *(f"limits[{place}]" for place in caps.places))
    yield Shortfall(f"{caps.limit.kind}_sum", text, rules, worst.needed, worst.available)


def _batches(count: int) -> str:
    return "1 batch" if count == 1 else f"{count:,} batches"


def _sum(ground: Ground, caps: Caps, minutes: int) -> Sum:
    """All batches that can't avoid the days of a limit. Of what is out at once, a batch counts at every moment of a row
    that lie `minutes` apart: as often as it is surely out, at as many as the window has."""
    held = np.isfinite(caps.most)
    used = np.zeros(len(held), dtype=bool)
    needed, batches, units = 0.0, 0, []
    for way in ground.open_ways():
        counts = ground.counts(caps.limit, way.unit)
        if caps.limit.kind is LimitKind.STARTS_PER_DAY:
            counts[1:] = 0
        if minutes:
            counts = counts * (way.unit.minutes // minutes)
        days = way.days[ground.kept[way.block]]
        surely = held[days].all(axis=0) & (counts > 0)
        if surely.any():
            needed += float(counts[surely].sum())
            used[days[:, surely]] = True
            batches += int(surely.sum())
            units.append(way.unit)
    turns = np.ones(len(held))
    if minutes:
        turns = np.array([_turns(ground.days, number, minutes) for number in range(len(held))])
    available = float((caps.most[used] * turns[used]).sum()) if used.any() else 0.0
    most = int(turns[used].max()) if used.any() else 0
    return Sum(needed, available, tuple(units), int(used.sum()), batches, minutes, most)


def _turns(days: Days, number: int, minutes: int) -> float:
    """How often work of a length fits into a day's window, one after the other."""
    day = days.days[number]
    opens = next((slot for slot in day.slots if slot is not None), day.closes)
    return float(math.floor((day.closes - opens) / minutes))
