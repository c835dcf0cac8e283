"""What a new plan keeps of the old one: all that is over, under way, or so near that people count on it. Pure.

`keep` turns reality into the question that is put to the solver: units whose batches stand where they are, and units
that are free to be planned from the end of the freeze horizon on. A unit of which some batches are over and one was
missed is asked about in two parts: what is over stays, the rest is planned as if it were a unit of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from plimsoll.campaigns.days import Days
from plimsoll.campaigns.model import Batch, Campaign, Plan
from plimsoll.campaigns.run.progress import Progress, Run, Step
from plimsoll.campaigns.units import Lot, Roll, Unit
from plimsoll.fleet.fold import Fleet

REST = "~rest"
"""What the name of the part of a unit ends in that is still to be planned."""

replace = msgspec.structs.replace


class Kept(NamedTuple):
    """The question for a new plan.

    `frozen`: when each batch of a unit starts, in minutes; `old`: when the first batch of a free unit was to start;
    `over`: batches that have been, as they were planned; `offsets`: for a rest, how many batches came before it;
    `why`: what is said of each unit that has to move; `earliest`: the first minute in which what is free may start.
    """

    roll: Roll
    frozen: Mapping[str, tuple[int, ...]]
    old: Mapping[str, int]
    over: Mapping[str, tuple[Batch, ...]]
    offsets: Mapping[str, int]
    why: Mapping[str, str]
    earliest: int


def keep(run: Run, campaign: Campaign, roll: Roll, days: Days, fleet: Fleet, *, now: datetime) -> Kept:
    """Hold the plan in force against what has happened."""
    horizon = now + timedelta(minutes=campaign.replanning.freeze_minutes)
    frozen: dict[str, tuple[int, ...]] = {}
    old: dict[str, int] = {}
    over: dict[str, tuple[Batch, ...]] = {}
    offsets: dict[str, int] = {}
    why: dict[str, str] = {}
    units: list[Unit] = []
    for unit in roll.units:
        done = _done(run, unit.name)
        planned = {batch.number: batch for batch in run.plan.batches if batch.unit == unit.name}
        left = [batch for number, batch in sorted(planned.items()) if number > len(done)]
        if done:
            over[unit.name] = tuple(each.batch for each in done)
            kept = _from_progress(unit, done, fleet)
            rest = _rest(unit, done)
            reason = _why_move(rest, left, days, now, horizon) if rest is not None and left else ""
            if rest is None:
                units.append(kept)
                frozen[unit.name] = tuple(_minute(days, each) for each in done)
            elif not reason and len(left) == len(rest.batches):
                units.append(_joined(kept, rest))
                starts = (*(_minute(days, each) for each in done), *(days.minute(batch.start) for batch in left))
                frozen[unit.name] = starts
            else:
                units += [kept, rest]
                frozen[unit.name] = tuple(_minute(days, each) for each in done)
                offsets[rest.name] = len(done)
                why[unit.name] = reason or "its nodes changed"
                if left:
                    old[rest.name] = days.minute(left[0].start)
            continue
        reason = _why_move(unit, left, days, now, horizon)
        if left and not reason and left[0].start < horizon:
            units.append(unit)
            frozen[unit.name] = tuple(days.minute(batch.start) for batch in left)
            continue
        units.append(unit)
        if left:
            old[unit.name] = days.minute(left[0].start)
        if reason:
            why[unit.name] = reason
    return Kept(
        Roll(tuple(units), roll.impactless, roll.notes), frozen, old, over, offsets, why, max(0, days.minute(horizon))
    )


def _done(run: Run, unit: str) -> list[Progress]:
    """The batches of a unit that have begun, in their order. One that was given back has not."""
    found = [each for each in run.progress.values() if each.batch.unit == unit]
    begun = [each for each in found if each.step not in (Step.PLANNED, Step.CANCELLED)]
    return sorted(begun, key=lambda each: each.batch.number)


def _minute(days: Days, each: Progress) -> int:
    """When a batch began, for those who count what is out."""
    return days.minute(each.started or each.batch.start)


def _lots(names: Sequence[str], fleet: Fleet) -> tuple[Lot, ...]:
    counts: dict[tuple[str, int], int] = {}
    for name in names:
        node = fleet.nodes[name]
        counts[node.sku, node.gpus] = counts.get((node.sku, node.gpus), 0) + 1
    return tuple(Lot(sku, gpus, count) for (sku, gpus), count in sorted(counts.items()))


def _from_progress(unit: Unit, done: Sequence[Progress], fleet: Fleet) -> Unit:
    """The batches of a unit that have begun, with the nodes that were really taken."""
    share = max((stays / len(names) for stays, names in zip(unit.stays, unit.batches, strict=True)), default=0.0)
    stays = tuple(
        len(each.lost) if each.step is Step.RETURNED else min(len(each.nodes), round(share * len(each.nodes) + 0.499))
        for each in done
    )
    batches = tuple(each.nodes for each in done)
    return replace(unit, batches=batches, lots=tuple(_lots(names, fleet) for names in batches), stays=stays)


def _rest(unit: Unit, done: Sequence[Progress]) -> Unit | None:
    """What of a unit has not begun, dealt into batches of the size it had."""
    begun = {name for each in done for name in each.nodes}
    batches, lots, stays = [], [], []
    for names, has, stay in zip(unit.batches, unit.lots, unit.stays, strict=True):
        left = tuple(name for name in names if name not in begun)
        if left:
            batches.append(left)
            lots.append(has if len(left) == len(names) else _fewer(has, len(left)))
            stays.append(min(stay, len(left)))
    if not batches:
        return None
    return replace(unit, name=unit.name + REST, batches=tuple(batches), lots=tuple(lots), stays=tuple(stays))


def _fewer(lots: Sequence[Lot], nodes: int) -> tuple[Lot, ...]:
    """So many nodes of a batch; of which SKU, where it has several, is guessed from the front."""
    found, left = [], nodes
    for lot in lots:
        taken = min(left, lot.nodes)
        if taken:
            found.append(lot._replace(nodes=taken))
        left -= taken
    return tuple(found)


def _joined(kept: Unit, rest: Unit) -> Unit:
    return replace(
        kept,
        batches=(*kept.batches, *rest.batches),
        lots=(*kept.lots, *rest.lots),
        stays=(*kept.stays, *rest.stays),
    )


def _why_move(unit: Unit, left: Sequence[Batch], days: Days, now: datetime, horizon: datetime) -> str:
    """Why what is left of a unit can't stay where it is planned; empty where it can."""
    if not left:
        return ""
    if left[0].start <= now:
        return f"it was to begin at {left[0].start.astimezone(UTC):%Y-%m-%d %H:%M} UTC and has not"
    if len(left) != len(unit.batches):
        return f"it has {len(unit.batches)} batches now, {len(left)} were planned"
    if any(batch.nodes != len(names) for batch, names in zip(left, unit.batches, strict=True)):
        return "it has other nodes now"
    by_date = {day.date: day for day in days.days}
    for batch in left:
        local = days.moment(days.minute(batch.start)).date()
        day = by_date.get(local)
        if day is None or not day.is_open:
            return f"{local} is no day of the campaign any more"
        if not unit.may_be_touched(day):
            zone = next(zone for zone in unit.no_fly if zone.from_day <= local <= zone.to_day)
            return f"no-fly zone from {zone.from_day} to {zone.to_day}" + (f": {zone.why}" if zone.why else "")
        if (batch.end - batch.start) != timedelta(minutes=unit.minutes) and batch.start >= horizon:
            return f"it takes {unit.minutes / 60:g} hours now"
    return ""


def batches_from(kept: Kept, starts: Mapping[str, Sequence[int]], days: Days) -> tuple[Batch, ...]:
    """The batches of the new plan: those that are over as they were, the others where they start now."""
    found: list[Batch] = []
    for unit in kept.roll.units:
        offset = kept.offsets.get(unit.name, 0)
        name = unit.name.removesuffix(REST) if offset else unit.name
        over = kept.over.get(name, ()) if not offset else ()
        found += over
        listed = zip(unit.batches, starts[unit.name], strict=True)
        for number, (names, minute) in enumerate(listed, start=1):
            if number <= len(over):
                continue
            begin = days.moment(minute).astimezone(UTC)
            end = begin + timedelta(minutes=unit.minutes)
            found.append(Batch(name, unit.mode, number + offset, len(names), begin, end))
    return tuple(sorted(found, key=lambda batch: (batch.start, batch.unit, batch.number)))


def names_from(kept: Kept) -> dict[str, tuple[str, ...]]:
    """The nodes of each batch of the new plan, by its id."""
    found = {}
    for unit in kept.roll.units:
        offset = kept.offsets.get(unit.name, 0)
        name = unit.name.removesuffix(REST) if offset else unit.name
        for number, names in enumerate(unit.batches, start=1 + offset):
            found[f"{name}#{number}"] = names
    return found


def batches_moved(before: Plan, after: Sequence[Batch]) -> list[str]:
    """Batches that stand in both plans, at another time."""
    known = {batch.id: batch.start for batch in before.batches}
    return sorted(batch.id for batch in after if batch.id in known and known[batch.id] != batch.start)
