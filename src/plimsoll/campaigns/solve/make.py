"""From a campaign file and the fleet to a problem of numbers. Pure.

What can't be chosen in any plan is left out (`tidy.py`): options that break a limit by themselves or come before what
they must wait for, and rows that no choice can fill. A canary is fixed where going first is best for everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import numpy as np

from plimsoll.campaigns.days import Days
from plimsoll.campaigns.model import Campaign, LimitKind
from plimsoll.campaigns.solve.options import Choice, Clock, Frozen, make_choices
from plimsoll.campaigns.solve.problem import (
    Flags,
    Floats,
    Ints,
    Order,
    PlanProblem,
    Shares,
    Table,
    entries_of,
)
from plimsoll.campaigns.solve.rows import Entries, Placed, check_moments, make_rows, out_entries, place_units
from plimsoll.campaigns.solve.tidy import tidy
from plimsoll.campaigns.units import Roll, Unit, matched
from plimsoll.fleet.fold import Fleet

_NONE: Mapping[int, float] = {}
_NOTHING_FROZEN: Frozen = {}

MoveCost = Callable[[Unit, int], float]
"""What it costs to start a unit in a minute, besides the objective of the file."""


def make_problem(
    campaign: Campaign,
    fleet: Fleet,
    roll: Roll,
    days: Days,
    *,
    frozen: Frozen = _NOTHING_FROZEN,
    earliest: int = 0,
    move_cost: MoveCost | None = None,
    elsewhere: Mapping[int, float] = _NONE,
    already: Collection[str] = (),
) -> PlanProblem:
    """The campaign as numbers.

    `frozen`: units whose batches start when they start; limits that they break by themselves are raised to what they
    use, so that nothing is added to it. `earliest`: the first minute in which all others may start. `elsewhere`: what
    other outages take of limits that count all, by their place; `already`: the nodes that are out in them.
    """
    clock = Clock(days)
    units = roll.units
    choices = make_choices(units, clock, is_together=campaign.is_together, frozen=frozen, earliest=earliest)
    first = np.concatenate([[0], np.cumsum([len(choice.starts) for choice in choices])]).astype(np.int64)
    moments = check_moments(choices, clock, days)
    placed = place_units(units, choices, first, moments)
    rows = make_rows(campaign, fleet, placed, clock, moments, elsewhere, already)
    count = int(first[-1])
    table = _table(rows.entries, count)
    block = np.repeat(np.arange(len(choices)), np.diff(first))
    begins, ends = _times(units, choices)
    ceilings = np.concatenate([np.zeros(0), *rows.ceilings])
    limits = np.concatenate([np.zeros(0, dtype=np.int64), *rows.limits])
    is_frozen = np.array([choice.is_frozen for choice in choices], dtype=bool)
    ceilings = _raised(table, ceilings, is_frozen[block])
    problem = PlanProblem(
        names=tuple(unit.name for unit in units),
        blocks=tuple(choice.members for choice in choices),
        first=first,
        block=block,
        starts=tuple(choice.starts for choice in choices),
        batches=tuple(len(unit.batches) for unit in units),
        begins=begins,
        ends=ends,
        cost=_costs(campaign, placed, count, move_cost),
        rows=table,
        ceilings=ceilings,
        limits=limits,
        is_sum=np.array([campaign.limits[place].kind is LimitKind.AVERAGE_LOSS for place in limits], dtype=bool),
        out=_table([out_entries(each, _nodes(each.unit), np.array(each.unit.stays, float)) for each in placed], count),
        moments=len(moments),
        shares=_shares(campaign, units, placed, count, len(days.days)),
        orders=_orders(campaign, units, choices),
        imbalance=campaign.aims.imbalance,
        peak=campaign.aims.peak,
    )
    return tidy(problem, is_frozen)


def _table(entries: Sequence[Entries], columns: int) -> Table:
    """Entries by column; those of one column and row are one number."""
    none = np.zeros(0, dtype=np.int64)
    column = np.concatenate([none, *(each.column for each in entries)])
    row = np.concatenate([none, *(each.row for each in entries)])
    value = np.concatenate([np.zeros(0), *(each.value for each in entries)])
    order = np.lexsort((row, column))
    column, row, value = column[order], row[order], value[order]
    if len(column):
        fresh = np.concatenate([[True], (np.diff(column) != 0) | (np.diff(row) != 0)])
        places = np.nonzero(fresh)[0]
        column, row, value = column[places], row[places], np.add.reduceat(value, places)
    return Table(np.searchsorted(column, np.arange(columns + 1)), row, value)


def _times(units: Sequence[Unit], choices: Sequence[Choice]) -> tuple[Ints, Ints]:
    """When each option begins, and when its last batch ends."""
    begins, ends = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for choice in choices:
        minutes = np.concatenate([np.full(len(units[place].batches), units[place].minutes) for place in choice.members])
        begins.append(choice.starts.min(axis=1) if len(choice.starts) else begins[0])
        ends.append((choice.starts + minutes).max(axis=1) if len(choice.starts) else ends[0])
    return np.concatenate(begins), np.concatenate(ends)


def _nodes(unit: Unit) -> Floats:
    return np.array([len(batch) for batch in unit.batches], dtype=float)


def _raised(table: Table, ceilings: Floats, is_frozen: Flags) -> Floats:
    columns = np.nonzero(is_frozen)[0]
    if not len(columns):
        return ceilings
    places = entries_of(table.first, columns)
    return np.maximum(ceilings, np.bincount(table.row[places], table.value[places], minlength=len(ceilings)))


def _costs(campaign: Campaign, placed: Sequence[Placed], columns: int, move_cost: MoveCost | None) -> Floats:
    cost = np.zeros(columns)
    for each in placed:
        part = slice(each.column, each.column + len(each.days))
        cost[part] += campaign.aims.exposure * each.unit.weight * (each.days @ _nodes(each.unit))
        if move_cost is not None:
            cost[part] += [move_cost(each.unit, int(start)) for start in each.starts[:, 0]]
    return cost


def _shares(campaign: Campaign, units: Sequence[Unit], placed: Sequence[Placed], columns: int, days: int) -> Shares:
    spread, none = campaign.spread, np.zeros(0, dtype=np.int64)
    nodes: dict[str, Floats] = {}
    totals: dict[str, float] = {}
    for unit in units if spread is not None and campaign.aims.imbalance else ():
        assert spread is not None, "asked for above"
        counts = np.array([sum(lot.nodes for lot in matched(spread.scope, unit, lots)) for lots in unit.lots], float)
        value = unit.value_of(spread.over)
        if value is not None and counts.any():
            nodes[unit.name] = counts
            totals[value] = totals.get(value, 0.0) + float(counts.sum())
    if spread is None or len(totals) < 2:  # with one value the largest share is the smallest
        return Shares(np.zeros(columns + 1, dtype=np.int64), none, none, np.zeros(0), 0, 0)
    numbers = {value: number for number, value in enumerate(sorted(totals))}
    entries = []
    for each in placed:
        if each.unit.name not in nodes:
            continue
        counts = nodes[each.unit.name]
        name = each.unit.value_of(spread.over) or ""
        column = np.repeat(each.column + np.arange(len(each.days)), each.days.shape[1])
        day, amount = each.days.ravel(), np.tile(counts / totals[name], len(each.days))
        kept = (amount > 0) & (day >= 0)
        entries.append(Entries(column[kept], day[kept] * len(numbers) + numbers[name], amount[kept]))
    table = _table(entries, columns)
    return Shares(table.first, table.row // len(numbers), table.row % len(numbers), table.value, days, len(numbers))


def _orders(campaign: Campaign, units: Sequence[Unit], choices: Sequence[Choice]) -> tuple[Order, ...]:
    """What must have ended before what begins. Frozen blocks wait for nobody any more."""
    found = []

    def order(before: Callable[[Unit], bool], after: Callable[[Unit], bool], lag: int) -> Order:
        first = [number for number, choice in enumerate(choices) if any(before(units[at]) for at in choice.members)]
        then = [number for number, choice in enumerate(choices) if any(after(units[at]) for at in choice.members)]
        return Order(tuple(first), tuple(number for number in then if not choices[number].is_frozen), lag)

    if campaign.canary is not None:
        found.append(order(lambda unit: unit.is_canary, lambda unit: not unit.is_canary, campaign.canary.soak_minutes))
    for number, group in enumerate(campaign.order):
        if group.is_strict:
            earlier, own = frozenset(range(number)), number
            found.append(order(partial(_is_in, earlier), partial(_is_in, frozenset([own])), 0))
    return tuple(each for each in found if each.before and each.after)


def _is_in(groups: frozenset[int], unit: Unit) -> bool:
    return unit.group in groups
