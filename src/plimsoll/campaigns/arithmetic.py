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


class Load(NamedTuple):
    """A batch as a sum sees it: the first and the last day on which it may go out, and how much it counts."""

    unit: Unit
    first: int
    last: int
    amount: float


class Sum(NamedTuple):
    """Work that must go out from one day to another, and the room there is on those days. `turns`: how often work of so
    many minutes fits into a day, one after the other."""

    loads: tuple[Load, ...]
    available: float
    first: int
    last: int
    minutes: int
    turns: int

    @property
    def needed(self) -> float:
        return math.fsum(load.amount for load in self.loads)

    @property
    def is_short(self) -> bool:
        return self.needed > self.available * (1 + LAST_BITS) + LAST_BITS


def _whole_sum(ground: Ground, caps: Caps) -> Iterator[Shortfall]:
    lengths = {way.unit.minutes for way in ground.open_ways() if ground.counts(caps.limit, way.unit).any()}
    sums: list[Sum] = []
    for minutes in sorted(lengths) if caps.limit.kind in _AT_ONCE else [0]:
        sums += _sums(ground, caps, minutes)
    if not sums:
        return
    worst = max(sums, key=lambda each: each.needed / max(each.available, LAST_BITS))
    names = ", ".join(f"limits[{place}]" for place in caps.places)
    units = list({load.unit.name: load.unit for load in worst.loads}.values())
    first, last = (ground.days.days[number].date for number in (worst.first, worst.last))
    room = f"there is room for {number_text(worst.available)}"
    if worst.minutes:
        window = ground.campaign.window
        hours = f"{clock_text(window.opens)} to {clock_text(window.closes)}"
        times = "once" if worst.turns == 1 else f"{worst.turns} times"
        room = f"work of {worst.minutes / 60:g} hours fits {times} a day from {hours}: {room}"
    text = (
        f"{names} ({limit_text(caps.limit)}): {_names(units)} in {_batches(len(worst.loads))} need "
        f"{number_text(worst.needed)} {_noun(caps.limit)} from {first} to {last}; {room}"
    )
    rules = ground.rules(units, *(f"limits[{place}]" for place in caps.places))
    yield Shortfall(f"{caps.limit.kind}_sum", text, rules, worst.needed, worst.available)


def _noun(limit: Limit) -> str:
    if limit.kind in _COUNTING:
        return "places"
    return {Measure.NODES: "nodes", Measure.GPUS: "GPUs", Measure.A100E: "A100e"}[limit.unit]


def _batches(count: int) -> str:
    return "1 batch" if count == 1 else f"{count:,} batches"


def _sums(ground: Ground, caps: Caps, minutes: int) -> Iterator[Sum]:
    """Every span of days in which more must go out than there is room for.

    Of what is out at once, a batch counts at each of a row of moments that lie `minutes` apart: as often as it is
    surely out, of as many as the window has.
    """
    held = np.isfinite(caps.most)
    loads, used = _loads(ground, caps, minutes, held)
    turns = np.ones(len(held))
    if minutes:
        turns = np.array([_turns(ground.days, number, minutes) for number in range(len(held))])
    room = np.where(used, np.where(held, caps.most, np.inf) * turns, 0.0)
    room[used & (turns == 0)] = 0.0
    ends = sorted({load.last for load in loads})
    for first in sorted({load.first for load in loads}):
        for last in (end for end in ends if end >= first):
            inside = tuple(load for load in loads if load.first >= first and load.last <= last)
            available = float(room[first : last + 1].sum())
            found = Sum(inside, available, first, last, minutes, int(turns[first : last + 1].max()))
            if inside and found.is_short:
                yield found


def _loads(ground: Ground, caps: Caps, minutes: int, held: Flags) -> tuple[list[Load], Flags]:
    """The batches that can't avoid the days on which a limit holds, and the days on which any of them may go out."""
    loads, used = [], np.zeros(len(held), dtype=bool)
    for way in ground.open_ways():
        counts = ground.counts(caps.limit, way.unit)
        if caps.limit.kind is LimitKind.STARTS_PER_DAY:
            counts[1:] = 0
        if minutes:
            counts = counts * (way.unit.minutes // minutes)
        days = way.days[ground.kept[way.block]]
        for batch in np.nonzero(held[days].all(axis=0) & (counts > 0))[0]:
            mine = days[:, batch]
            used[mine] = True
            loads.append(Load(way.unit, int(mine.min()), int(mine.max()), float(counts[batch])))
    return loads, used


def _turns(days: Days, number: int, minutes: int) -> float:
    """How often work of a length fits into a day's window, one after the other."""
    day = days.days[number]
    opens = next((slot for slot in day.slots if slot is not None), day.closes)
    return float(math.floor((day.closes - opens) / minutes))
