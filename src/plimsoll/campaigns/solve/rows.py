"""What each option uses of each limit, as rows with a ceiling. Pure.

The count of what is out only rises when something starts, so a limit on what is out at once needs a row at every slot,
and at a midnight on which it begins to hold. What stays out after a batch counts in proportion to the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from plimsoll.campaigns.days import Days
from plimsoll.campaigns.model import Campaign, Counts, Limit, LimitKind, Measure
from plimsoll.campaigns.solve.options import Choice, Clock
from plimsoll.campaigns.solve.problem import Flags, Floats, Ints, spans
from plimsoll.campaigns.units import Lot, Unit, amount, base_amount, ceiling, matched, matches, weights
from plimsoll.fleet.fold import Fleet


class Entries(NamedTuple):
    """Numbers of a table before it is one: column, row, value."""

    column: Ints
    row: Ints
    value: Floats


class Presence(NamedTuple):
    """When the batches of a unit are out, for all options of its block: at which moment, and which batch.

    `is_work`: out for the work itself; else what stays out afterwards.
    """

    option: Ints
    moment: Ints
    batch: Ints
    is_work: Flags


class Placed(NamedTuple):
    """A unit with its options."""

    unit: Unit
    column: int
    """Where the columns of its block begin."""
    starts: Ints
    days: Ints
    present: Presence


class Rows(NamedTuple):
    """Rows as they are made: entries, a ceiling and the limit's place for each."""

    entries: list[Entries]
    ceilings: list[Floats]
    limits: list[Ints]

    @property
    def made(self) -> int:
        return sum(len(each) for each in self.ceilings)


def place_units(units: Sequence[Unit], choices: Sequence[Choice], columns: Ints, moments: Ints) -> list[Placed]:
    """Each unit with its part of its block's options."""
    found = []
    for choice, column in zip(choices, columns, strict=False):
        at = 0
        for place in choice.members:
            unit, count = units[place], len(units[place].batches)
            starts, days = choice.starts[:, at : at + count], choice.days[:, at : at + count]
            found.append(Placed(unit, int(column), starts, days, _presence(unit, starts, moments)))
            at += count
    return found


def _presence(unit: Unit, starts: Ints, moments: Ints) -> Presence:
    begin = starts.ravel()
    ends = begin + unit.minutes
    first, last = np.searchsorted(moments, begin), np.searchsorted(moments, ends)
    owner, moment = spans(first, last - first)
    count = len(unit.batches)
    if unit.stay_minutes and any(unit.stays):
        stays = np.tile(np.array(unit.stays) > 0, len(starts))
        back = np.searchsorted(moments, ends + unit.stay_minutes)
        owner_after, moment_after = spans(last, np.where(stays, back - last, 0))
    else:
        owner_after = moment_after = np.zeros(0, dtype=np.int64)
    owners = np.concatenate([owner, owner_after])
    is_work = np.arange(len(owners)) < len(owner)
    return Presence(owners // count, np.concatenate([moment, moment_after]), owners % count, is_work)


def out_entries(placed: Placed, work: Floats, stay: Floats) -> Entries:
    """What is out at each moment; `work` and `stay`: how much each batch counts while it is out, and afterwards."""
    present = placed.present
    value = np.where(present.is_work, work[present.batch], stay[present.batch])
    some = value > 0
    return Entries(placed.column + present.option[some], present.moment[some], value[some])


def make_rows(
    campaign: Campaign,
    fleet: Fleet,
    placed: Sequence[Placed],
    clock: Clock,
    moments: Ints,
    less: Mapping[int, float],
    already: Collection[str] = (),
) -> Rows:
    """All limits. `less`: how much of a limit that counts all outages is taken by others, by its place.

    `already`: the nodes that take it; with their own batch they are not counted once more.
    """
    rows = Rows([], [], [])
    skus = {sku for each in placed for sku in each.unit.skus}
    a100e = weights(fleet, sorted(skus)) if any(each.unit is Measure.A100E for each in campaign.limits) else {}
    for place, limit in enumerate(campaign.limits):
        if limit.kind is LimitKind.AVERAGE_LOSS:
            _average_loss(rows, place, limit, campaign, fleet, placed, clock, a100e)
            continue
        # Where others take more than it allows, nothing may be added: that is no reason to do nothing at all.
        allowed = max(0.0, ceiling(limit, campaign, fleet) - less.get(place, 0.0))
        if limit.kind in (LimitKind.OUT_AT_ONCE, LimitKind.CREWS):
            twice = partial(_twice, limit, fleet, already, a100e)
            _at_once(rows, place, limit, allowed, placed, clock, moments, a100e, twice)
        else:
            _by_day(rows, place, limit, allowed, placed, clock, a100e)
    return rows


def _counts(limit: Limit, unit: Unit, a100e: Mapping[str, float]) -> Floats:
    """How much each batch of a unit counts for a limit."""
    if limit.kind in (LimitKind.CREWS, LimitKind.STARTS_PER_DAY):
        return np.full(len(unit.batches), float(matches(limit.scope, unit.value_of, unit.skus)))
    return np.array([amount(matched(limit.scope, unit, lots), limit.unit, a100e) for lots in unit.lots], dtype=float)


def _twice(
    limit: Limit, fleet: Fleet, already: Collection[str], a100e: Mapping[str, float], unit: Unit
) -> Floats | float:
    """How much of each batch a limit counts among other outages as it is."""
    if limit.counts is not Counts.ALL or not already:
        return 0.0
    found = []
    for names in unit.batches:
        out = [fleet.nodes[name] for name in names if name in already]
        lots = [Lot(node.sku, node.gpus, 1) for node in out]
        found.append(amount(matched(limit.scope, unit, lots), limit.unit, a100e))
    return np.array(found, dtype=float)


def _stays(unit: Unit) -> Floats:
    """The share of each batch that is expected to stay out."""
    return np.array([stay / len(batch) for stay, batch in zip(unit.stays, unit.batches, strict=True)])


def _at_once(
    rows: Rows,
    place: int,
    limit: Limit,
    allowed: float,
    placed: Sequence[Placed],
    clock: Clock,
    moments: Ints,
    a100e: Mapping[str, float],
    twice: Callable[[Unit], Floats | float],
) -> None:
    holds = _held_moments(limit, clock, moments)
    numbers = np.cumsum(holds) - 1 + rows.made
    for each in placed:
        counts = _counts(limit, each.unit, a100e) - twice(each.unit)
        if not counts.any():
            continue
        stay = np.zeros(len(counts)) if limit.kind is LimitKind.CREWS else counts * _stays(each.unit)
        column, moment, value = out_entries(each, counts, stay)
        kept = holds[moment]
        rows.entries.append(Entries(column[kept], numbers[moment[kept]], value[kept]))
    _close(rows, place, int(holds.sum()), allowed)


def _held_moments(limit: Limit, clock: Clock, moments: Ints) -> Flags:
    """The moments that need a row: those on days on which the limit holds; a midnight only where it begins to hold."""
    held = np.array([limit.holds_on(day.date) for day in clock.days.days])
    begins = held & ~np.concatenate([[True], held[:-1]])
    days = clock.day_of(moments)
    is_inside = (days >= 0) & (days < len(held))
    day = np.clip(days, 0, len(held) - 1)
    is_midnight = np.isin(moments, clock.midnights) & ~np.isin(moments, clock.moments)
    found: Flags = is_inside & held[day] & (~is_midnight | begins[day])
    return found


def _by_day(
    rows: Rows,
    place: int,
    limit: Limit,
    allowed: float,
    placed: Sequence[Placed],
    clock: Clock,
    a100e: Mapping[str, float],
) -> None:
    held = np.array([limit.holds_on(day.date) for day in clock.days.days])
    numbers = np.cumsum(held) - 1 + rows.made
    for each in placed:
        counts = _counts(limit, each.unit, a100e)
        days = each.days
        if limit.kind is LimitKind.STARTS_PER_DAY:
            counts, days = counts[:1], days[:, :1]
        column = np.repeat(each.column + np.arange(len(days)), days.shape[1])
        day, value = days.ravel(), np.tile(counts, len(days))
        kept = (value > 0) & (day >= 0)
        kept[kept] = held[day[kept]]
        rows.entries.append(Entries(column[kept], numbers[day[kept]], value[kept]))
    _close(rows, place, int(held.sum()), allowed)


def _average_loss(
    rows: Rows,
    place: int,
    limit: Limit,
    campaign: Campaign,
    fleet: Fleet,
    placed: Sequence[Placed],
    clock: Clock,
    a100e: Mapping[str, float],
) -> None:
    """One row, in unit-hours. Without dates all hours out count, even beyond the deadline."""
    is_dated = limit.from_day is not None or limit.until_day is not None or bool(limit.weekdays)
    held = np.array([limit.holds_on(day.date) for day in clock.days.days])
    widths = np.diff(clock.midnights) * held
    until = np.concatenate([[0.0], np.cumsum(widths)])

    def hours(first: Ints, last: Ints) -> Floats:
        if not is_dated:
            return (last - first) / 60
        found: Floats = (np.interp(last, clock.midnights, until) - np.interp(first, clock.midnights, until)) / 60
        return found

    for each in placed:
        counts = _counts(limit, each.unit, a100e)
        ends = each.starts + each.unit.minutes
        lost = hours(each.starts, ends) * counts + hours(ends, ends + each.unit.stay_minutes) * counts * _stays(
            each.unit
        )
        value = lost.sum(axis=1)
        column = each.column + np.arange(len(value))
        rows.entries.append(Entries(column, np.full(len(value), rows.made), value))
    base = base_amount(limit, campaign, fleet)
    _close(rows, place, 1, (limit.at_most_share or 0.0) * base * float(widths.sum()) / 60)


def _close(rows: Rows, place: int, count: int, allowed: float) -> None:
    rows.ceilings.append(np.full(count, allowed))
    rows.limits.append(np.full(count, place, dtype=np.int64))


def check_moments(choices: Sequence[Choice], clock: Clock, days: Days) -> Ints:
    """Every moment at which a limit may be broken first."""
    off_slot = [choice.starts.ravel() for choice in choices if choice.is_frozen]
    midnights = np.array([day.midnight for day in days.days], dtype=np.int64)
    return np.unique(np.concatenate([clock.moments, midnights, *off_slot]))
