"""How a campaign stands: what each batch waits for, how much is left, what it has cost, what it still needs. Pure."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

from plimsoll.campaigns.model import Batch
from plimsoll.campaigns.run.budget import Budget, budgets
from plimsoll.campaigns.run.desk import fleet_changes
from plimsoll.campaigns.run.gate import nodes_lost, told_outside
from plimsoll.campaigns.run.progress import Phase, Progress, Run, Step
from plimsoll.campaigns.run.stages import Act, Todo, todo
from plimsoll.campaigns.units import Roll, make_units
from plimsoll.campaigns.versions.fold import Versions
from plimsoll.errors import PlimsollError
from plimsoll.fleet.fold import Fleet
from plimsoll.incidents.model import Incident
from plimsoll.state.state import State
from plimsoll.workloads.fold_tables import floor_of

SAMPLES_LEAST = 3
"""So many batches must have ended before their length says anything about the next."""


GOING_ON = (Phase.RUNNING, Phase.PAUSED, Phase.CANCELLING)


class BatchView(msgspec.Struct, frozen=True):
    """A batch, how far it is, and what it waits for."""

    batch: str
    nodes: int
    start: datetime
    end: datetime
    step: str
    waits_for: str = ""
    until: datetime | None = None
    codes: tuple[str, ...] = ()
    lost: int = 0
    began: datetime | None = None
    ended: datetime | None = None
    waits: str = ""
    """What it waits for, without the command that `waits_for` may end with."""


class DayView(msgspec.Struct, frozen=True):
    """A day: nodes whose batch was planned to end by then, those still old at its end by plan and in fact, and the most
    clusters that are worked on at once."""

    day: date
    planned: int
    left_planned: int
    left: int | None
    clusters: int
    to_repair: int


class Estimate(msgspec.Struct, frozen=True):
    """How long batches of one kind really take, from those that ended."""

    mode: str
    planned_hours: float
    mean_hours: float
    longest_hours: float
    ended: int


class View(msgspec.Struct, frozen=True):
    """A campaign as it stands."""

    campaign: str
    phase: str
    number: int
    why: str
    nodes: int
    done: int
    lost: tuple[str, ...]
    batches: tuple[BatchView, ...]
    days: tuple[DayView, ...]
    estimates: tuple[Estimate, ...]
    budgets: tuple[Budget, ...]
    gone: tuple[str, ...]
    joined: tuple[str, ...]
    incident: Incident | None


def look(state: State, run: Run, incident: Incident | None, *, now: datetime, is_for_outside: bool = False) -> View:
    """A campaign as it stands now; for the provider, without what is none of its business."""
    floor_of(state)
    try:
        roll = make_units(run.campaign, state.of(Fleet))
    except PlimsollError:  # the fleet does not fit the file any more: the gate says so of every batch
        roll = Roll((), {}, ())
    gone, joined = fleet_changes(state, run, roll)
    waiting = {item.batch.id: item for item in todo(state, run, now)}
    stays = {f"{unit.name}#{number}": count for unit in roll.units for number, count in enumerate(unit.stays, start=1)}
    planned = {batch.id for batch in run.plan.batches}
    dropped = [each.batch for each in run.batches_under_way() if each.batch.id not in planned]
    batches = [*run.plan.batches, *dropped]
    old = {name: _still_old(state, run, each) for name, each in run.progress.items()}
    done = sum(len(each.nodes) - old[name] for name, each in run.progress.items() if each.step is Step.RETURNED)
    return View(
        campaign=run.name,
        phase=str(run.phase),
        number=run.plan.number,
        why=run.why,
        nodes=sum(batch.nodes for batch in run.plan.batches),
        done=done,
        lost=tuple(nodes_lost(state, run.name)),
        batches=tuple(
            _batch_view(run, batch, waiting.get(batch.id), is_for_outside=is_for_outside) for batch in batches
        ),
        days=tuple(_days(run, stays, old, now)),
        estimates=tuple(estimates(run)),
        budgets=tuple(budgets(state, run, roll, now=now)),
        gone=tuple(gone),
        joined=tuple(joined),
        incident=incident,
    )


def _step(run: Run, batch: Batch) -> Step:
    """How far a batch is. One that had not begun when its campaign was cancelled never will."""
    step = run.step_of(batch.id)
    is_off = run.phase in (Phase.CANCELLING, Phase.CANCELLED) and step is Step.PLANNED
    return Step.CANCELLED if is_off else step


def _batch_view(run: Run, batch: Batch, item: Todo | None, *, is_for_outside: bool) -> BatchView:
    known = run.progress.get(batch.id)
    waits, says = ("", "") if item is None else (item.waits_for, item.says or item.waits_for)
    if item is not None and item.reasons and is_for_outside:
        waits = says = told_outside(item.reasons[0]).text
    if item is not None and not waits and item.act is not Act.WAIT:
        says = f"the next pass, to {item.act}"
        waits = f"{says}: plimsoll campaign run {run.name}"
    return BatchView(
        batch.id,
        batch.nodes if known is None or not known.nodes else len(known.nodes),
        batch.start,
        batch.end,
        str(_step(run, batch)),
        waits,
        None if item is None else item.until,
        () if item is None else tuple(str(no.code) for no in item.reasons),
        0 if known is None else len(known.lost),
        None if known is None else known.started,
        None if known is None else known.ended,
        says,
    )


def _still_old(state: State, run: Run, each: Progress) -> int:
    """How many nodes of a batch did not come back and do not have the new versions since."""
    versions = state.of(Versions)
    wanted = {(change.component, change.version) for change in run.campaign.changes}
    return sum(not wanted <= set(versions.combination_of(name)) for name in each.lost)


def _days(run: Run, stays: dict[str, int], old: dict[str, int], now: datetime) -> list[DayView]:
    """The burn-down, and the people it needs."""
    zone = ZoneInfo(run.campaign.window.tz)
    total = sum(batch.nodes for batch in run.plan.batches)
    in_plan = {batch.id for batch in run.plan.batches}
    planned, actual = Counter[date](), Counter[date]()
    repairs = Counter[date]()
    for batch in run.plan.batches:
        day = batch.end.astimezone(zone).date()
        planned[day] += batch.nodes
        repairs[day] += stays.get(batch.id, 0)
    for each in run.progress.values():
        if each.step is Step.RETURNED and each.ended is not None and each.batch.id in in_plan:
            actual[each.ended.astimezone(zone).date()] += len(each.nodes) - old[each.batch.id]
    today = now.astimezone(zone).date()
    first = min([run.campaign.start, *planned, *actual])
    last = max([first, *planned, *actual, *([today] if run.phase in GOING_ON else [])])
    days, left_planned, left = [], total, total
    for number in range((last - first).days + 1):
        day = first + timedelta(days=number)
        left_planned -= planned[day]
        left -= actual[day]
        at_once = _most_at_once([b for b in run.plan.batches if b.start.astimezone(zone).date() == day])
        days.append(DayView(day, planned[day], left_planned, left if day <= today else None, at_once, repairs[day]))
    return days


def _most_at_once(batches: list[Batch]) -> int:
    """The most units that are worked on at one moment."""
    steps = sorted([(each.start, 1) for each in batches] + [(each.end, -1) for each in batches])
    now = most = 0
    for _, change in steps:
        now += change
        most = max(most, now)
    return most


def estimates(run: Run) -> list[Estimate]:
    """How long the work really takes, by how it was planned."""
    spans: dict[tuple[str, float], list[float]] = {}
    for each in run.progress.values():
        if each.step is Step.RETURNED and each.span is not None:
            hours = (each.batch.end - each.batch.start) / timedelta(hours=1)
            spans.setdefault((str(each.batch.mode), hours), []).append(each.span / timedelta(hours=1))
    return [
        Estimate(mode, hours, sum(found) / len(found), max(found), len(found))
        for (mode, hours), found in sorted(spans.items())
    ]
