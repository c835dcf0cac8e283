"""Why there can be no plan, in sums that a person can check. Pure.

Each sum looks at one rule at a time and is kind to the plan: it leaves out whatever it can't be sure of. So a shortfall
is a proof that no plan exists, and no shortfall proves nothing. Units without a possible start come first, then batches
that are over a limit by themselves, then all the work together against all the room that a limit leaves.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from plimsoll.campaigns.days import Days
from plimsoll.campaigns.impossible.ground import COUNTING, Caps, Ground, Way
from plimsoll.campaigns.impossible.rules import clock_text, limit_text, number_text
from plimsoll.campaigns.model import Limit, LimitKind, Measure
from plimsoll.campaigns.solve.problem import LAST_BITS, Flags, Ints
from plimsoll.campaigns.units import Unit
from plimsoll.words import counted

_AT_ONCE = (LimitKind.OUT_AT_ONCE, LimitKind.CREWS)
SHOWN_MAX = 3


class Shortfall(msgspec.Struct, frozen=True):
    """A sum that can't come out: so much is needed, so much there is, and the rules that it rests on."""

    code: str
    text: str
    rules: tuple[str, ...]
    needed: float
    available: float


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
    yield from _in_one_colo(
        ground, first, others, f"canary, and everybody else waits {canary.soak_minutes / 60:g} hours"
    )
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


def _in_one_colo(ground: Ground, first: Sequence[Way], then: Sequence[Way], why: str) -> Iterator[Shortfall]:
    """Units that must start together though one must wait for the other."""
    leading = {way.block: way.unit for way in first}
    held = [way for way in then if way.block in leading]
    if held:
        unit = leading[held[0].block]
        text = (
            f"{_names([way.unit for way in held])} must start together with {unit.name} of the same colo "
            f"({unit.cluster.colo}), which is {why}"
        )
        yield Shortfall("together_and_after", text, ground.rules([unit, *(way.unit for way in held)]), 1.0, 0.0)


def _order(ground: Ground) -> Iterator[Shortfall]:
    for place, group in enumerate(ground.campaign.order):
        ways = ground.open_ways()
        before = [way for way in ways if way.unit.group is not None and way.unit.group < place]
        after = [way for way in ways if way.unit.group == place]
        if not group.is_strict or not before or not after:
            continue
        yield from _in_one_colo(ground, before, after, f"in a group before order[{place}], which waits for it")
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
    if limit.kind in COUNTING:
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
