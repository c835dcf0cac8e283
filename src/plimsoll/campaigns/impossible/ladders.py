"""How a rule of a campaign file can be relaxed, a step at a time: the smallest change first. Pure.

A step is the whole file with one rule changed, and the change in words. Each step of a ladder gives more room than the
one before it, so that the first one that helps is the cheapest; the steps of a rule of `work` are tried one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from plimsoll.campaigns.impossible.ground import Ground
from plimsoll.campaigns.impossible.rules import (
    CANARY,
    DEADLINE,
    HOURS,
    TOGETHER,
    WEEKDAY_NAMES,
    WEEKDAYS,
    clock_text,
    latest_deadline,
    number_text,
    scope_text,
)
from plimsoll.campaigns.model import MINUTES_A_DAY, Campaign, LimitKind, Measure, Mode, Window, Work

STEPS_MAX = 400
_SHARES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.34, 0.5, 1.0)
_SOAK_PARTS = (0.75, 0.5, 0.25, 0.0)


class Step(NamedTuple):
    """A file with one rule relaxed: the change in words, and the value before and after."""

    campaign: Campaign
    change: str
    before: object
    after: object


class Ladder(NamedTuple):
    """The steps of a rule. `is_rising`: each gives more room than the one before; else they are tried one by one."""

    steps: tuple[Step, ...]
    is_rising: bool = True


def ladders_of(name: str, ground: Ground) -> list[Ladder]:
    """The ways to relax a rule; none where it can't be relaxed."""
    campaign = ground.campaign
    made: Mapping[str, Callable[[], Iterator[Step]]] = {
        DEADLINE: lambda: _deadline(ground),
        HOURS: lambda: _hours(campaign),
        WEEKDAYS: lambda: _weekdays(campaign),
        CANARY: lambda: _canary(campaign),
        TOGETHER: lambda: iter([Step(replace(campaign, is_together=False), "together: null", "colo", None)]),
    }
    if name in made:
        return [Ladder(tuple(made[name]()))]
    key, place = name[:-1].split("[")
    number = int(place)
    if key == "limits":
        return [Ladder(tuple(_limit(ground, number))[:STEPS_MAX])]
    if key == "no_fly":
        zone = campaign.no_fly[number]
        ends = (True, False) if zone.from_day < zone.to_day else (True,)
        return [Ladder(tuple(_no_fly(campaign, number, is_end=is_end))) for is_end in ends]
    if key == "order":
        group = replace(campaign.order[number], is_strict=False)
        order = _put(campaign.order, number, group)
        return [Ladder((Step(replace(campaign, order=order), f"{name}: strict: false", True, False),))]
    return [Ladder(tuple(_work(campaign, number)), is_rising=False)]


def _put(listed: Sequence[object], place: int, entry: object) -> tuple[object, ...]:
    return (*listed[:place], entry, *listed[place + 1 :])


def _deadline(ground: Ground) -> Iterator[Step]:
    campaign = ground.campaign
    for days in range(1, (latest_deadline(campaign, ground.roll) - campaign.deadline).days + 1):
        after = campaign.deadline + timedelta(days=days)
        plural = "day" if days == 1 else "days"
        change = f"deadline + {days} {plural}"
        yield Step(replace(campaign, deadline=after), change, str(campaign.deadline), str(after))


def _hours(campaign: Campaign) -> Iterator[Step]:
    """An hour later each, then an hour earlier; slots stay where they are."""
    window, steps = campaign.window, []
    closes, opens = window.closes, window.opens
    back = math.ceil(60 / campaign.slot_minutes) * campaign.slot_minutes
    while closes < MINUTES_A_DAY:
        closes = min(MINUTES_A_DAY, closes + 60)
        steps.append((opens, closes))
    while opens - back >= 0:
        opens -= back
        steps.append((opens, closes))
    for opens, closes in steps:
        wider = replace(window, opens=opens, closes=closes)
        more = (closes - opens - (window.closes - window.opens)) / 60
        yield Step(replace(campaign, window=wider), f"window + {more:g} h", _span(window), _span(wider))


def _span(window: Window) -> str:
    return f"{clock_text(window.opens)}-{clock_text(window.closes)}"


def _weekdays(campaign: Campaign) -> Iterator[Step]:
    window = campaign.window
    days = list(window.days)
    for day in (day for day in range(7) if day not in window.days):
        days = sorted([*days, day])
        added = ", ".join(WEEKDAY_NAMES[each] for each in days if each not in window.days)
        wider = replace(window, days=tuple(days))
        before, after = ([WEEKDAY_NAMES[each][:3].lower() for each in each_days] for each_days in (window.days, days))
        yield Step(replace(campaign, window=wider), f"work on {added} as well", before, after)


def _canary(campaign: Campaign) -> Iterator[Step]:
    canary = campaign.canary
    assert canary is not None, "a rule that is there"
    before = canary.soak_minutes / 60
    for part in _SOAK_PARTS:
        minutes = int(canary.soak_minutes * part / 60) * 60
        if minutes < canary.soak_minutes:
            shorter = replace(canary, soak_minutes=minutes)
            change = f"canary soak {before:g} h -> {minutes / 60:g} h"
            yield Step(replace(campaign, canary=shorter), change, before, minutes / 60)
    yield Step(replace(campaign, canary=None), "no canary", list(canary.clusters), None)


def _no_fly(campaign: Campaign, place: int, *, is_end: bool) -> Iterator[Step]:
    """A day shorter each, at its end or at its beginning; then not at all."""
    zone = campaign.no_fly[place]
    before = [str(zone.from_day), str(zone.to_day)]
    length = (zone.to_day - zone.from_day).days + 1
    for days in range(1, length):
        by = timedelta(days=days)
        shorter = replace(zone, to_day=zone.to_day - by) if is_end else replace(zone, from_day=zone.from_day + by)
        change = f"no_fly[{place}] ends {days} d earlier" if is_end else f"no_fly[{place}] begins {days} d later"
        no_fly = _put(campaign.no_fly, place, shorter)
        yield Step(replace(campaign, no_fly=no_fly), change, before, [str(shorter.from_day), str(shorter.to_day)])
    gone = replace(zone, from_day=date.min, to_day=date.min)  # it keeps its scope, which may split clusters
    yield Step(replace(campaign, no_fly=_put(campaign.no_fly, place, gone)), f"no no_fly[{place}]", before, None)


def _limit(ground: Ground, place: int) -> Iterator[Step]:
    """More of what it counts, in steps of about a twentieth, until it can't be in the way any more."""
    campaign = ground.campaign
    limit = campaign.limits[place]
    total = sum(float(ground.counts(limit, unit).sum()) for unit in ground.roll.units)
    if limit.at_most is not None:
        others = limit.at_most - ground.ceilings[place]  # what other outages take of it
        before, top = limit.at_most, total + others
    else:
        before, top = limit.at_most_share or 0.0, 1.0
    step = nice_step(before, is_whole=limit.at_most is not None)
    word = {LimitKind.CREWS: "crews", LimitKind.STARTS_PER_DAY: "starts a day", LimitKind.AVERAGE_LOSS: "average loss"}
    unit = {Measure.NODES: "cap", Measure.GPUS: "cap of GPUs", Measure.A100E: "cap of A100e"}[limit.unit]
    noun = word.get(limit.kind, unit if limit.kind is LimitKind.OUT_AT_ONCE else "nodes a day")
    value = before
    while value < top:
        value = min(round((math.floor(value / step + 1e-6) + 1) * step, 9), max(top, before))
        key = "at_most" if limit.at_most is not None else "at_most_share"
        changed = replace(limit, **{key: value})
        is_count = limit.at_most is not None
        shown = [number_text(each) if is_count else f"{each:.6g}" for each in (before, value)]
        limits = _put(campaign.limits, place, changed)
        change = f"{noun} {shown[0]} -> {shown[1]}"
        yield Step(replace(campaign, limits=limits), change, _plain(before), _plain(value))


def _plain(value: float) -> float:
    """A whole number without a point, as a file has it."""
    return int(value) if value == int(value) else value


def nice_step(value: float, *, is_whole: bool) -> float:
    """About a twentieth of a number, as a person would choose it: 1,800 goes in steps of 100, 8 in steps of 1."""
    least = 1.0 if is_whole else 0.001
    if value <= 0:
        return least
    power = 10.0 ** math.floor(math.log10(value / 20))
    found = min((power * part for part in (1, 2, 5, 10)), key=lambda each: abs(each - value / 20))
    return max(least, round(found) if is_whole else found)


def _work(campaign: Campaign, place: int) -> Iterator[Step]:
    """Rolling work in larger shares, which takes fewer days, or in smaller ones, which takes less at once; whole work
    as rolling."""
    work = campaign.work[place]
    if work.mode is Mode.WHOLE:
        shares = sorted((share for share in _SHARES if share < 1), reverse=True)
        changed = [replace(work, mode=Mode.ROLLING, share_per_day=share) for share in shares]
    else:
        larger = [share for share in _SHARES if share > work.share_per_day + 1e-9]
        smaller = [share for share in reversed(_SHARES) if share < work.share_per_day - 1e-9]
        changed = [replace(work, share_per_day=share) for share in (*larger, *smaller)]
    for each in changed:
        listed = _put(campaign.work, place, each)
        before, after = _how(work), _how(each)
        change = f"allow rolling for {scope_text(work.scope)}, {each.share_per_day:g} a day"
        if work.mode is Mode.ROLLING:
            change = f"share a day {work.share_per_day:g} -> {each.share_per_day:g} for {scope_text(work.scope)}"
        yield Step(replace(campaign, work=listed), change, before, after)


def _how(work: Work) -> object:
    return "whole" if work.mode is Mode.WHOLE else work.share_per_day
