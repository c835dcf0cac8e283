"""Whether a plan is what its file asks for: the independent validator. Pure.

It shares no code with the modules that build and search plans; no plan leaves without passing it. `check_plan` works
out what must be there from the file and the fleet (`check_due`), holds every batch against its unit, its day and the
window here, against the limits in `check_limits`, and works out the objective anew in `check_score`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import pairwise

from plimsoll.campaigns.check.due import Asked, Due, ask, zone_on
from plimsoll.campaigns.check.found import (
    Calendar,
    Checked,
    Code,
    Placed,
    Problem,
    group_by_unit,
    make_calendar,
    show,
)
from plimsoll.campaigns.check.limits import check_limits
from plimsoll.campaigns.check.score import score_plan
from plimsoll.campaigns.model import Batch, Campaign, Mode, Score
from plimsoll.fleet.fold import Fleet
from plimsoll.words import counted

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NONE: Mapping[int, float] = {}


def check_plan(
    campaign: Campaign,
    fleet: Fleet,
    batches: Sequence[Batch],
    *,
    elsewhere: Mapping[int, float] = _NONE,
    already: Collection[str] = (),
) -> Checked:
    """Everything that is wrong with a plan, and its objective worked out anew.

    `elsewhere`: how much of a limit that counts all outages others take already, by the limit's place, in its unit;
    `already`: the nodes that are out in that.
    """
    asked, calendar = ask(campaign, fleet, already), make_calendar(campaign)
    placed: list[Placed] = []
    problems = [*_check_units(asked, batches), *_place(asked, calendar, batches, placed)]
    for each in placed:
        problems += _check_batch(campaign, calendar, each)
    units = group_by_unit(placed)
    for listed in units.values():
        problems += _check_rolling(campaign, calendar, listed)
    problems += _check_canary(campaign, units)
    problems += _check_order(campaign, units)
    if campaign.is_together:
        problems += _check_together(units)
    problems += check_limits(campaign, fleet, asked, placed, calendar, elsewhere)
    return Checked(tuple(problems), score_plan(campaign, asked.due, placed))


def check_score(said: Score, checked: Checked) -> Problem | None:
    """What is wrong with the objective that a plan says it has."""
    for part in ("exposure", "imbalance", "peak", "total"):
        claimed, found = getattr(said, part), getattr(checked.score, part)
        if abs(claimed - found) > 1e-6 * max(1.0, abs(found)):
            text = f"the plan says {part} {show(claimed)}; worked out anew it is {show(found)}"
            return Problem(Code.OBJECTIVE, "objective", text, found=claimed, allowed=found)
    return None


# What must be there.


def _check_units(asked: Asked, batches: Sequence[Batch]) -> Iterator[Problem]:
    planned: defaultdict[str, set[int]] = defaultdict(set)
    for batch in batches:
        planned[batch.unit].add(batch.number)
    for name, due in asked.due.items():
        if due.work is None:
            yield Problem(Code.NO_WORK_RULE, "work", f"no rule of work matches {name}", unit=name)
        if name not in planned:
            text = f"{name} is in scope with {counted(due.nodes, 'node')} and is not in the plan"
            yield Problem(Code.UNIT_MISSING, "scope", text, unit=name, found=0, allowed=len(due.batches))
            continue
        for number in range(1, len(due.batches) + 1):
            if number not in planned[name]:
                text = f"batch {number} of {name} is missing; it has {_batches(len(due.batches))}"
                yield Problem(Code.BATCH_MISSING, "work", text, unit=name, batch=number, allowed=len(due.batches))


def _place(asked: Asked, calendar: Calendar, batches: Sequence[Batch], placed: list[Placed]) -> Iterator[Problem]:
    """Put the batches that are asked for into the calendar, and say what is wrong with the others."""
    seen: set[tuple[str, int]] = set()
    for batch in batches:
        due = asked.due.get(batch.unit)
        if due is None:
            yield _unknown(asked, batch)
        elif not 1 <= batch.number <= len(due.batches):
            text = f"{batch.unit} has {_batches(len(due.batches))}; the plan has one with number {batch.number}"
            yield _at(Code.BATCH_UNKNOWN, "work", text, batch, found=batch.number, allowed=len(due.batches))
        elif (batch.unit, batch.number) in seen:
            yield _at(Code.BATCH_TWICE, "work", f"batch {batch.number} of {batch.unit} is in the plan twice", batch)
        else:
            seen.add((batch.unit, batch.number))
            start, end = batch.start.timestamp(), batch.end.timestamp()
            each = Placed(due, batch, calendar.local(start).date(), start, end)
            placed.append(each)
            yield from _check_work(each)


def _batches(count: int) -> str:
    return "1 batch" if count == 1 else f"{count:,} batches"


def _unknown(asked: Asked, batch: Batch) -> Problem:
    if batch.unit in asked.spared:
        text = f"{batch.unit} is to stay in service: every change is impactless there; the plan takes it out"
        return _at(Code.UNKNOWN_UNIT, "changes", text, batch)
    return _at(Code.UNKNOWN_UNIT, "scope", f"{batch.unit} is in the plan and has no node in scope", batch)


def _at(
    code: Code,
    rule: str,
    text: str,
    batch: Batch,
    *,
    day: date | None = None,
    found: float | str | None = None,
    allowed: float | str | None = None,
) -> Problem:
    moment = batch.start
    return Problem(
        code, rule, text, unit=batch.unit, batch=batch.number, day=day, moment=moment, found=found, allowed=allowed
    )


def _check_work(each: Placed) -> Iterator[Problem]:
    """Size, mode and length of a batch."""
    batch, due, name = each.batch, each.due, f"batch {each.batch.number} of {each.batch.unit}"
    if batch.nodes != each.nodes:
        text = f"{name} has {counted(batch.nodes, 'node')}; {each.nodes:,} are due"
        yield _at(Code.WRONG_NODES, "work", text, batch, found=batch.nodes, allowed=each.nodes)
    if due.work is None:
        return
    if batch.mode is not due.mode:
        text = f"{name} is planned {batch.mode}; its rule says {due.mode}"
        yield _at(Code.WRONG_MODE, "work", text, batch, found=str(batch.mode), allowed=str(due.mode))
    minutes = (each.end - each.start) / 60
    if minutes != due.work.minutes:
        text = f"{name} is out for {show(minutes / 60)} hours; its rule says {show(due.work.minutes / 60)}"
        yield _at(Code.WRONG_LENGTH, "work", text, batch, found=minutes / 60, allowed=due.work.minutes / 60)


# When it may be.


def _check_batch(campaign: Campaign, calendar: Calendar, each: Placed) -> Iterator[Problem]:
    batch, day, name = each.batch, each.day, f"batch {each.batch.number} of {each.batch.unit}"
    if day < campaign.start:
        text = f"{name} starts on {day}; the campaign starts on {campaign.start}"
        yield _at(Code.BEFORE_START, "start", text, batch, day=day, found=str(day), allowed=str(campaign.start))
    if day > campaign.deadline:
        text = f"{name} starts on {day}; the deadline is {campaign.deadline}"
        yield _at(Code.PAST_DEADLINE, "deadline", text, batch, day=day, found=str(day), allowed=str(campaign.deadline))
    if day.weekday() not in campaign.window.days:
        text = f"{name} starts on {day}, a {WEEKDAYS[day.weekday()]}, which is no day of the window"
        yield _at(Code.WRONG_WEEKDAY, "window.days", text, batch, day=day, found=WEEKDAYS[day.weekday()])
    place = zone_on(campaign, each.due, day)
    if place is not None:
        zone = campaign.no_fly[place]
        why = f" ({zone.why})" if zone.why else ""
        text = f"{name} starts on {day}; no_fly[{place}]{why} lasts from {zone.from_day} to {zone.to_day}"
        yield _at(Code.NO_FLY, f"no_fly[{place}]", text, batch, day=day, found=str(day))
    yield from _check_hours(campaign, calendar, each, name)


def _check_hours(campaign: Campaign, calendar: Calendar, each: Placed, name: str) -> Iterator[Problem]:
    window, batch = campaign.window, each.batch
    local = calendar.local(each.start)
    minutes = (local.replace(tzinfo=None) - datetime.combine(each.day, datetime.min.time())) / timedelta(minutes=1)
    hours = f"{_clock(window.opens)} to {_clock(window.closes)} {window.tz}"
    if not window.opens <= minutes < window.closes:
        text = f"{name} starts at {local:%H:%M}; the window is from {hours}"
        yield _at(Code.OUTSIDE_WINDOW, "window.hours", text, batch, day=each.day, found=f"{local:%H:%M}", allowed=hours)
        return
    if (minutes - window.opens) % campaign.slot_minutes or each.start != calendar.at(each.day, int(minutes)):
        every = counted(campaign.slot_minutes, "minute")
        text = f"{name} starts at {local:%H:%M:%S%z}; slots begin every {every} from {_clock(window.opens)}"
        yield _at(Code.OFF_SLOT, "slot_minutes", text, batch, day=each.day, found=f"{local:%H:%M:%S}")
    if each.end > calendar.at(each.day, window.closes):
        ends = calendar.local(each.end)
        text = f"{name} ends at {ends:%Y-%m-%d %H:%M}; the window is from {hours}"
        yield _at(Code.OUTSIDE_WINDOW, "window.hours", text, batch, day=each.day, found=f"{ends:%H:%M}", allowed=hours)


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _check_rolling(campaign: Campaign, calendar: Calendar, listed: Sequence[Placed]) -> Iterator[Problem]:
    """Each batch follows the one before it on the next permitted day, at the same hour."""
    if listed[0].due.mode is not Mode.ROLLING:
        return
    first = calendar.local(listed[0].start)
    for before, each in pairwise(listed):
        name = f"batch {each.batch.number} of {each.due.name}"
        local = calendar.local(each.start)
        if (local.hour, local.minute) != (first.hour, first.minute):
            text = f"{name} starts at {local:%H:%M}, the first at {first:%H:%M}"
            found, allowed = f"{local:%H:%M}", f"{first:%H:%M}"
            yield _at(Code.OTHER_HOUR, "work", text, each.batch, day=each.day, found=found, allowed=allowed)
        if each.batch.number != before.batch.number + 1:
            continue  # the one between is missing, which has been said
        wanted = _next_day(campaign, each.due, before.day)
        if each.day != wanted and each.day <= campaign.deadline:
            text = f"{name} starts on {each.day}; the next permitted day after batch {before.batch.number} is {wanted}"
            found, allowed = str(each.day), str(wanted)
            yield _at(Code.NOT_CONSECUTIVE, "work", text, each.batch, day=each.day, found=found, allowed=allowed)


def _next_day(campaign: Campaign, due: Due, day: date) -> date | None:
    for number in range(
        max(day, campaign.start).toordinal() + (day >= campaign.start), campaign.deadline.toordinal() + 1
    ):
        found = date.fromordinal(number)
        if found.weekday() in campaign.window.days and zone_on(campaign, due, found) is None:
            return found
    return None


# What must come before what.


def _check_canary(campaign: Campaign, units: Mapping[str, Sequence[Placed]]) -> Iterator[Problem]:
    if campaign.canary is None:
        return
    ends = [each for listed in units.values() if listed[0].due.is_canary for each in listed]
    if not ends:
        return  # the canary is missing, which has been said
    last = max(ends, key=lambda each: each.end)
    free = last.end + campaign.canary.soak_minutes * 60
    for name, listed in units.items():
        first = min(listed, key=lambda each: each.start)
        if not first.due.is_canary and first.start < free:
            hours = (first.start - last.end) / 3600
            soak = campaign.canary.soak_minutes / 60
            text = f"{name} starts {show(hours)} hours after canary {last.due.name} has ended; {show(soak)} are due"
            yield _at(Code.CANARY_SOAK, "canary", text, first.batch, day=first.day, found=hours, allowed=soak)


def _check_order(campaign: Campaign, units: Mapping[str, Sequence[Placed]]) -> Iterator[Problem]:
    groups: defaultdict[int, list[Placed]] = defaultdict(list)
    for listed in units.values():
        if listed[0].due.group is not None:
            groups[listed[0].due.group] += listed
    for place, group in enumerate(campaign.order):
        earlier = [each for number in range(place) for each in groups[number]]
        if not group.is_strict or not earlier:
            continue
        last = max(earlier, key=lambda each: each.end)
        firsts = group_by_unit(groups[place])
        for name, listed in firsts.items():
            first = min(listed, key=lambda each: each.start)
            if first.start < last.end:
                text = (
                    f"{name} of order[{place}] starts {first.batch.start.isoformat()}, before {last.due.name} of "
                    f"order[{last.due.group}] has ended, {last.batch.end.isoformat()}"
                )
                hours = (first.start - last.end) / 3600
                yield _at(
                    Code.STRICT_ORDER, f"order[{place}]", text, first.batch, day=first.day, found=hours, allowed=0
                )


def _check_together(units: Mapping[str, Sequence[Placed]]) -> Iterator[Problem]:
    """Units of one colo start at the same moment: that of the first of them."""
    colos: defaultdict[str, list[Placed]] = defaultdict(list)
    for listed in units.values():
        colos[listed[0].due.values["colo"]].append(listed[0])
    for colo, firsts in colos.items():
        earliest = min(firsts, key=lambda each: (each.start, each.due.name))
        for each in firsts:
            if each.start != earliest.start:
                text = (
                    f"{each.due.name} starts {each.batch.start.isoformat()}, {earliest.due.name} of the same colo "
                    f"({colo}) {earliest.batch.start.isoformat()}"
                )
                found, allowed = each.batch.start.isoformat(), earliest.batch.start.isoformat()
                yield _at(Code.NOT_TOGETHER, "together", text, each.batch, day=each.day, found=found, allowed=allowed)
