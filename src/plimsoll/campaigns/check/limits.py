"""Whether a plan keeps the limits of its file. Pure; shares no code with what makes plans.

What is out at once is counted by a sweep over moments: a batch adds its nodes when it starts, gives them back when it
ends less those that stay out, and those when they are repaired. A sum can only grow where something starts, and a dated
limit begins to hold at a midnight: those are the moments at which it is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date

import numpy as np
import numpy.typing as npt

from plimsoll.campaigns.check.due import Asked, Lots, fits
from plimsoll.campaigns.check.found import Calendar, Code, Placed, Problem, group_by_unit, is_over, show
from plimsoll.campaigns.model import Base, Campaign, Counts, Limit, LimitKind, Measure
from plimsoll.fleet.fold import Fleet

Moments = npt.NDArray[np.float64]


class UnknownWeight(Exception):
    """A limit counts A100-equivalents of a SKU that nobody has weighed."""


def check_limits(
    campaign: Campaign,
    fleet: Fleet,
    asked: Asked,
    placed: Sequence[Placed],
    calendar: Calendar,
    elsewhere: Mapping[int, float],
) -> Iterator[Problem]:
    """What goes beyond a limit. `elsewhere`: what other outages take of a limit that counts all, by its place."""
    for place, limit in enumerate(campaign.limits):
        try:
            yield from _check(place, limit, fleet, asked, placed, calendar, elsewhere.get(place, 0.0))
        except UnknownWeight as error:
            yield Problem(
                Code.UNKNOWN_WEIGHT,
                f"limits[{place}]",
                f"limits[{place}] counts A100-equivalents, and nobody has said how many a GPU of {error} is",
                found=str(error),
            )


def _check(
    place: int,
    limit: Limit,
    fleet: Fleet,
    asked: Asked,
    placed: Sequence[Placed],
    calendar: Calendar,
    elsewhere: float,
) -> Iterator[Problem]:
    scoped = [each for each in placed if fits(limit.scope, each.due.values, [kind.sku for kind, _ in each.due.lots])]
    allowed = limit.at_most
    base = 0.0
    if allowed is None:
        base = _amount(asked.base(limit.scope, is_fleet=limit.of is Base.FLEET), limit, fleet)
        allowed = (limit.at_most_share or 0.0) * base
    if limit.kind is LimitKind.AVERAGE_LOSS:
        yield from _average_loss(place, limit, scoped, fleet, calendar, base)
        return
    if limit.kind is LimitKind.CREWS:
        found = _at_once(scoped, [1.0] * len(scoped), [0.0] * len(scoped), limit, calendar)
    elif limit.kind is LimitKind.OUT_AT_ONCE:
        out = [_matched(each, limit, fleet) for each in scoped]
        if limit.counts is Counts.ALL:
            out = [most - _taken(each, limit, fleet, asked) for each, most in zip(scoped, out, strict=True)]
        stays = [amount * each.stays / each.nodes for each, amount in zip(scoped, out, strict=True)]
        planned = _at_once(scoped, out, stays, limit, calendar)
        found = {day: (amount + elsewhere, at) for day, (amount, at) in planned.items() if amount > 0}
    elif limit.kind is LimitKind.OUT_PER_DAY:
        found = _by_day([(each, _matched(each, limit, fleet)) for each in scoped], limit)
    else:
        firsts = [batches[0] for batches in group_by_unit(scoped).values()]
        found = _by_day([(each, 1.0) for each in firsts], limit)
    for day, (amount, at) in sorted(found.items()):
        if is_over(amount, allowed):
            yield _over(place, limit, day, amount, allowed, None if at is None else (calendar, at))


def _over(
    place: int, limit: Limit, day: date, found: float, allowed: float, at: tuple[Calendar, float] | None
) -> Problem:
    unit = "unit" if limit.kind in (LimitKind.CREWS, LimitKind.STARTS_PER_DAY) else str(limit.unit).removesuffix("s")
    what = {
        LimitKind.OUT_AT_ONCE: "out at once",
        LimitKind.OUT_PER_DAY: "going out that day",
        LimitKind.STARTS_PER_DAY: "begun that day",
        LimitKind.CREWS: "being worked on at once",
    }[limit.kind]
    moment = at[0].local(at[1]) if at else None
    when = f"{moment:%Y-%m-%d %H:%M}" if moment else f"{day}"
    noun = unit if limit.unit is Measure.A100E and unit != "unit" else f"{unit}s"
    return Problem(
        Code(limit.kind.value),
        f"limits[{place}]",
        f"limits[{place}] ({limit.kind}, {limit.scope}): {show(found)} {noun} {what}, {when}; at most {show(allowed)}",
        day=day,
        moment=moment,
        found=found,
        allowed=allowed,
    )


def _amount(lots: Lots, limit: Limit, fleet: Fleet) -> float:
    """Nodes in the unit of a limit."""
    if limit.unit is Measure.NODES:
        return float(sum(count for _, count in lots))
    total = 0.0
    for kind, count in lots:
        weight = 1.0 if limit.unit is Measure.GPUS else fleet.a100e(kind.sku)
        if weight is None:
            raise UnknownWeight(kind.sku)
        total += count * kind.gpus * weight
    return total


def _matched(each: Placed, limit: Limit, fleet: Fleet) -> float:
    """What a batch takes out of a limit's scope: the SKU is asked of each node."""
    lots = tuple((kind, count) for kind, count in each.lots if fits(limit.scope, each.due.values, (kind.sku,)))
    return _amount(lots, limit, fleet)


def _taken(each: Placed, limit: Limit, fleet: Fleet, asked: Asked) -> float:
    """What other outages have taken of a batch already, and is counted with them."""
    lots = asked.already.get((each.due.name, each.batch.number), ())
    return _amount(
        tuple((kind, count) for kind, count in lots if fits(limit.scope, each.due.values, (kind.sku,))), limit, fleet
    )


def _at_once(
    placed: Sequence[Placed], out: Sequence[float], stays: Sequence[float], limit: Limit, calendar: Calendar
) -> dict[date, tuple[float, float | None]]:
    """The most that is out on each day on which the limit holds, and when."""
    days = [number for number, day in enumerate(calendar.days) if limit.holds_on(day)]
    if not placed or not days:
        return {}
    times, sums = sweep(placed, out, stays)
    midnights = np.array(calendar.midnights)
    moments = np.unique(np.concatenate([midnights[days], [each.start for each in placed]]))
    numbers = np.searchsorted(midnights, moments, side="right") - 1
    holds = np.isin(numbers, days)
    found: dict[date, tuple[float, float | None]] = {}
    for number, at, amount in zip(numbers[holds], moments[holds], read(times, sums, moments[holds]), strict=True):
        day = calendar.days[number]
        if day not in found or amount > found[day][0]:
            found[day] = float(amount), float(at)
    return found


def sweep(placed: Sequence[Placed], out: Sequence[float], stays: Sequence[float]) -> tuple[Moments, Moments]:
    """The moments at which the count changes, and what it is from each on."""
    start, end = np.array([each.start for each in placed]), np.array([each.end for each in placed])
    back = end + np.array([each.due.stay_seconds for each in placed])
    amount, stay = np.array(out, dtype=np.float64), np.array(stays, dtype=np.float64)
    times = np.concatenate([start, end, back])
    steps = np.concatenate([amount, stay - amount, -stay])
    moments, places = np.unique(times, return_inverse=True)
    return moments, np.cumsum(np.bincount(places, weights=steps, minlength=len(moments)))


def read(times: Moments, sums: Moments, moments: Moments) -> Moments:
    """The count at each of some moments."""
    places = np.searchsorted(times, moments, side="right")
    return np.concatenate([[0.0], sums])[places]


def _by_day(amounts: Sequence[tuple[Placed, float]], limit: Limit) -> dict[date, tuple[float, float | None]]:
    sums: defaultdict[date, float] = defaultdict(float)
    for each, amount in amounts:
        if limit.holds_on(each.day):
            sums[each.day] += amount
    return {day: (amount, None) for day, amount in sums.items()}


def _average_loss(
    place: int, limit: Limit, placed: Sequence[Placed], fleet: Fleet, calendar: Calendar, base: float
) -> Iterator[Problem]:
    """Unit-hours out over what there is: all of them, or those on the days on which a dated limit holds."""
    is_dated = limit.from_day is not None or limit.until_day is not None or bool(limit.weekdays)
    held = [limit.holds_on(day) for day in calendar.days]
    widths = np.diff(calendar.midnights) * held
    hours = float(np.sum(widths)) / 3600
    until = np.concatenate([[0.0], np.cumsum(widths)])

    def between(first: float, last: float) -> float:
        if not is_dated:
            return (last - first) / 3600
        found = np.interp([first, last], calendar.midnights, until)
        return float(found[1] - found[0]) / 3600

    lost = 0.0
    for each in placed:
        amount = _matched(each, limit, fleet)
        lost += amount * between(each.start, each.end)
        lost += amount * each.stays / each.nodes * between(each.end, each.end + each.due.stay_seconds)
    allowed = (limit.at_most_share or 0.0) * base * hours
    if is_over(lost, allowed):
        share = lost / (base * hours) if base * hours else float("inf")
        text = (
            f"limits[{place}] ({limit.kind}, {limit.scope}): {show(lost)} {limit.unit}-hours lost, {share:.4%} of "
            f"{show(base)} {limit.unit} over {show(hours)} hours; {limit.at_most_share or 0:.4%} are allowed"
        )
        yield Problem(Code.AVERAGE_LOSS, f"limits[{place}]", text, found=share, allowed=limit.at_most_share)
