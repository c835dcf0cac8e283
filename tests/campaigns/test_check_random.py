"""The checker against what is counted node by node, and against the modules that make units and days: random scenes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from plimsoll.campaigns.check.due import ask
from plimsoll.campaigns.check.found import Code
from plimsoll.campaigns.check.plan import check_plan
from plimsoll.campaigns.days import make_days
from plimsoll.campaigns.model import Batch, Campaign, Limit, LimitKind, Mode
from plimsoll.campaigns.units import Roll, base_amount, make_units
from plimsoll.errors import PlimsollError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from tests.support.plans import LIMIT_CODES, TooMany, first_plan, plans, starts_of
from tests.support.random_campaigns import Scene, scenes

PATIENT = settings(
    max_examples=settings().max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
HOUR = timedelta(hours=1)


def units_of(scene: Scene) -> Roll:
    """The units; a file that does not fit the fleet is no scene."""
    try:
        return make_units(scene.campaign, scene.fleet)
    except PlimsollError:
        assume(False)
        raise


@PATIENT
@given(scenes())
def test_units_are_those_that_the_checker_expects(scene: Scene) -> None:
    roll = units_of(scene)
    asked = ask(scene.campaign, scene.fleet)
    assert {unit.name for unit in roll.units} == set(asked.due)
    assert set(roll.impactless) == asked.spared
    for unit in roll.units:
        due = asked.due[unit.name]
        assert due.work is not None
        assert (unit.mode, unit.minutes, unit.weight, unit.group) == (due.mode, due.work.minutes, due.weight, due.group)
        assert unit.is_canary is due.is_canary
        assert unit.no_fly == tuple(scene.campaign.no_fly[place] for place in due.no_fly)
        want_lots = [[(lot.sku, lot.gpus_per_node, lot.nodes) for lot in lots] for lots in unit.lots]
        assert want_lots == [[(kind.sku, kind.gpus, nodes) for kind, nodes in lots] for lots in due.batches]
        assert unit.stays == due.stays
        assert unit.stay_minutes == round(due.stay_seconds / 60)
        assert {key: value for key, value in unit.values if value} == {k: v for k, v in due.values.items() if v}


@PATIENT
@given(scenes(clusters_max=1))
def test_slots_are_those_that_the_checker_allows(scene: Scene) -> None:
    """Every quarter of an hour of every day: a start there is right for the checker just where it is a slot."""
    roll, days, campaign = units_of(scene), make_days(scene.campaign), scene.campaign
    assume(roll.units)
    unit = roll.units[0]
    length = timedelta(minutes=unit.minutes)
    slots = {
        days.moment(minute)
        for day in days.days
        for minute in day.slots
        if minute is not None and minute + unit.minutes <= day.closes and unit.may_be_touched(day)
    }
    # In UTC: clocks that change would make a sum of moments another one.
    moment, last = days.moment(0).astimezone(UTC) - HOUR, days.moment(days.ends).astimezone(UTC) + HOUR
    found = set()
    while moment < last:
        batch = Batch(unit.name, unit.mode, 1, len(unit.batches[0]), moment, moment + length)
        codes = {each.code for each in check_plan(campaign, scene.fleet, [batch]).problems}
        if not codes - {Code.BATCH_MISSING, Code.UNIT_MISSING, *LIMIT_CODES}:
            found.add(moment)
        moment += HOUR / 4
    assert found == {slot.astimezone(UTC) for slot in slots}


@PATIENT
@given(scenes())
def test_bases_of_shares_agree(scene: Scene) -> None:
    units_of(scene)
    asked = ask(scene.campaign, scene.fleet)
    for limit in scene.campaign.limits:
        if limit.at_most_share is not None and limit.unit == "nodes":
            lots = asked.base(limit.scope, is_fleet=limit.of == "fleet")
            assert base_amount(limit, scene.campaign, scene.fleet) == sum(nodes for _, nodes in lots)


# Counted node by node, moment by moment.


class Slow:
    """A plan held against its limits without a single sum that is carried on."""

    def __init__(self, campaign: Campaign, fleet: Fleet, batches: tuple[Batch, ...]) -> None:
        self.campaign, self.fleet = campaign, fleet
        self.batches = [
            msgspec.structs.replace(each, start=each.start.astimezone(UTC), end=each.end.astimezone(UTC))
            for each in batches
        ]
        self.zone = ZoneInfo(campaign.window.tz)
        self.roll = {unit.name: unit for unit in make_units(campaign, fleet).units}
        span = (campaign.deadline - campaign.start).days + 2
        self.days = [campaign.start + timedelta(days=number) for number in range(span)]
        self.midnights = [datetime(day.year, day.month, day.day, tzinfo=self.zone).astimezone(UTC) for day in self.days]

    def nodes(self, batch: Batch) -> list[Node]:
        return [self.fleet.nodes[name] for name in self.roll[batch.unit].batches[batch.number - 1]]

    def fits(self, limit: Limit, unit: str, sku: str) -> bool:
        values = dict(self.roll[unit].values)
        return all((sku if key == "sku" else values.get(key)) in allowed for key, allowed in limit.scope.terms)

    def weight(self, limit: Limit, node: Node) -> float:
        return {"nodes": 1.0, "gpus": node.gpus, "a100e": node.gpus * (self.fleet.a100e(node.sku) or 0)}[limit.unit]

    def amount(self, limit: Limit, batch: Batch) -> float:
        found = [node for node in self.nodes(batch) if self.fits(limit, batch.unit, node.sku)]
        return math.fsum(self.weight(limit, node) for node in found)

    def stay(self, batch: Batch) -> tuple[float, datetime]:
        """The share of a batch that stays out, and until when."""
        unit = self.roll[batch.unit]
        share = unit.stays[batch.number - 1] / len(unit.batches[batch.number - 1])
        return share, batch.end + timedelta(minutes=unit.stay_minutes)

    def counted(self, limit: Limit, moment: datetime) -> float:
        total = 0.0
        for batch in self.batches:
            share, back = self.stay(batch)
            if batch.start <= moment < batch.end:
                touches = any(self.fits(limit, batch.unit, sku) for sku in self.roll[batch.unit].skus)
                total += self.amount(limit, batch) if limit.kind is not LimitKind.CREWS else touches
            elif batch.end <= moment < back and limit.kind is not LimitKind.CREWS:
                total += share * self.amount(limit, batch)
        return total

    def on_day(self, limit: Limit, day: Any) -> float:
        going = [each for each in self.batches if each.start.astimezone(self.zone).date() == day]
        if limit.kind is LimitKind.OUT_PER_DAY:
            return math.fsum(self.amount(limit, each) for each in going)
        firsts = [each for each in going if each.number == 1]
        return sum(any(self.fits(limit, each.unit, sku) for sku in self.roll[each.unit].skus) for each in firsts)

    def most(self, limit: Limit) -> float:
        """The most that is reached on a day on which the limit holds."""
        held = [place for place, day in enumerate(self.days[:-1]) if limit.holds_on(day)]
        if limit.kind in (LimitKind.OUT_PER_DAY, LimitKind.STARTS_PER_DAY):
            return max((self.on_day(limit, self.days[place]) for place in held), default=0)
        moments = {each.start.astimezone(UTC) for each in self.batches} | {*self.midnights}
        moments |= {each.end.astimezone(UTC) for each in self.batches}
        inside = [
            moment
            for moment in moments
            if any(self.midnights[place] <= moment < self.midnights[place + 1] for place in held)
        ]
        return max((self.counted(limit, moment) for moment in inside), default=0)

    def lost(self, limit: Limit) -> float:
        """The share that is lost on average."""
        dated = limit.from_day or limit.until_day or limit.weekdays
        spans = [span for span, day in zip(pairwise(self.midnights), self.days, strict=False) if limit.holds_on(day)]
        hours = sum((last - first) / HOUR for first, last in spans)
        total = 0.0
        for batch in self.batches:
            share, back = self.stay(batch)
            for first, last, part in ((batch.start, batch.end, 1.0), (batch.end, back, share)):
                if dated:
                    inside = sum(max(0.0, (min(last, b) - max(first, a)) / HOUR) for a, b in spans)
                else:
                    inside = (last - first) / HOUR
                total += part * self.amount(limit, batch) * inside
        base = base_amount(limit, self.campaign, self.fleet)
        return total / (base * hours) if base * hours else math.inf * (total > 0) if total else 0.0

    def allowed(self, limit: Limit) -> float:
        if limit.at_most is not None:
            return limit.at_most
        assert limit.at_most_share is not None
        return limit.at_most_share * base_amount(limit, self.campaign, self.fleet)

    def broken(self) -> set[str]:
        found = set()
        for place, limit in enumerate(self.campaign.limits):
            if limit.kind is LimitKind.AVERAGE_LOSS:
                assert limit.at_most_share is not None
                is_broken = self.lost(limit) > limit.at_most_share * (1 + 1e-9)
            else:
                is_broken = self.most(limit) > self.allowed(limit) + 1e-7
            if is_broken:
                found.add(f"limits[{place}]")
        return found


@PATIENT
@given(scenes(), st.data())
def test_limits_are_counted_as_node_by_node(scene: Scene, data: st.DataObject) -> None:
    """Any plan whose batches are right by themselves, whether it keeps its limits or not."""
    units_of(scene)
    campaign = scene.campaign
    chosen: tuple[Batch, ...] = ()
    for due in ask(campaign, scene.fleet).due.values():
        ways = starts_of(campaign, scene.fleet, due, but=LIMIT_CODES)
        assume(ways)
        chosen += data.draw(st.sampled_from(ways))
    found = check_plan(campaign, scene.fleet, chosen)
    assert {each.rule for each in found.problems if each.rule.startswith("limits")} == Slow(
        campaign, scene.fleet, chosen
    ).broken()


# Whatever a single change breaks is found.


def moved(batch: Batch, by: timedelta) -> Batch:
    start, end = batch.start.astimezone(UTC), batch.end.astimezone(UTC)
    return msgspec.structs.replace(batch, start=start + by, end=end + by)


def renamed(batches: list[Batch], place: int) -> list[Batch]:
    return [*batches[:place], msgspec.structs.replace(batches[place], unit="eel"), *batches[place + 1 :]]


def changed(**changes: Any) -> Callable[[list[Batch], int], list[Batch]]:
    def change(batches: list[Batch], place: int) -> list[Batch]:
        return [*batches[:place], msgspec.structs.replace(batches[place], **changes), *batches[place + 1 :]]

    return change


def shifted(by: timedelta) -> Callable[[list[Batch], int], list[Batch]]:
    return lambda batches, place: [*batches[:place], moved(batches[place], by), *batches[place + 1 :]]


def stretched(batches: list[Batch], place: int) -> list[Batch]:
    return changed(end=batches[place].end + timedelta(minutes=1))(batches, place)


MUTATIONS: dict[str, tuple[Callable[[list[Batch], int], list[Batch]], set[Code]]] = {
    "left out": (lambda b, i: b[:i] + b[i + 1 :], {Code.UNIT_MISSING, Code.BATCH_MISSING}),
    "twice": (lambda b, i: [*b, b[i]], {Code.BATCH_TWICE}),
    "renamed": (renamed, {Code.UNKNOWN_UNIT}),
    "a node more": (lambda b, i: changed(nodes=b[i].nodes + 1)(b, i), {Code.WRONG_NODES}),
    "a node less": (lambda b, i: changed(nodes=b[i].nodes - 1)(b, i), {Code.WRONG_NODES}),
    "the other mode": (
        lambda b, i: changed(mode=Mode.WHOLE if b[i].mode is Mode.ROLLING else Mode.ROLLING)(b, i),
        {Code.WRONG_MODE},
    ),
    "another number": (lambda b, i: changed(number=b[i].number + 100)(b, i), {Code.BATCH_UNKNOWN}),
    "a minute longer": (stretched, {Code.WRONG_LENGTH}),
    "a minute later": (shifted(timedelta(minutes=1)), {Code.OFF_SLOT, Code.OUTSIDE_WINDOW}),
    "a year later": (shifted(timedelta(days=364)), {Code.PAST_DEADLINE}),
    "a year earlier": (shifted(timedelta(days=-364)), {Code.BEFORE_START}),
    "half a day later": (shifted(timedelta(hours=12)), {Code.OUTSIDE_WINDOW}),
}


@pytest.mark.parametrize("name", MUTATIONS)
@settings(PATIENT, max_examples=15)
@given(scenes(clusters_max=2), st.data())
def test_a_change_that_breaks_a_rule_is_found(name: str, scene: Scene, data: st.DataObject) -> None:
    units_of(scene)
    try:
        found = first_plan(scene.campaign, scene.fleet)
    except TooMany:
        assume(False)
        raise
    assume(found is not None and found.batches)
    assert found is not None
    change, want_codes = MUTATIONS[name]
    batches = list(found.batches)
    place = data.draw(st.integers(0, len(batches) - 1))
    problems = check_plan(scene.campaign, scene.fleet, change(batches, place)).problems
    assert {each.code for each in problems} & want_codes


def rolled(found: tuple[Batch, ...]) -> Iterator[tuple[Batch, Batch]]:
    counts = Counter(each.unit for each in found)
    for unit, count in counts.items():
        if count > 1:
            listed = sorted((each for each in found if each.unit == unit), key=lambda each: each.number)
            yield listed[0], listed[1]


@PATIENT
@given(scenes(clusters_max=1, nodes_max=5))
def test_two_rolling_batches_that_change_places_are_found(scene: Scene) -> None:
    units_of(scene)
    found = first_plan(scene.campaign, scene.fleet)
    assume(found is not None)
    assert found is not None
    for first, second in rolled(found.batches):
        swapped = [each for each in found.batches if each not in (first, second)]
        swapped += [
            msgspec.structs.replace(first, start=second.start, end=second.end),
            msgspec.structs.replace(second, start=first.start, end=first.end),
        ]
        problems = check_plan(scene.campaign, scene.fleet, swapped).problems
        assert Code.NOT_CONSECUTIVE in {each.code for each in problems}


@PATIENT
@given(scenes(clusters_max=2, nodes_max=3))
def test_a_retired_node_changes_nothing(scene: Scene) -> None:
    """It is in no batch and in no base."""
    units_of(scene)
    found = next(plans(scene.campaign, scene.fleet), None)
    assume(found is not None)
    assert found is not None
    before = check_plan(scene.campaign, scene.fleet, found.batches)
    cluster = next(iter(scene.fleet.clusters))
    scene.fleet.put_node(Node("gone", cluster, f"{cluster}-i1", "H100", 8, Service.RETIRED))
    assert check_plan(scene.campaign, scene.fleet, found.batches) == before
