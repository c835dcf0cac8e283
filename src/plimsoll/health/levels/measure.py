"""Service levels of a period: nodes in service, time to repair, interruptions, time to recover, by any group of nodes.

Pure: it counts what `outages` found and knows no clock. Whatever it says can be added up again from the outages of the
period; hours are summed as whole microseconds, so that no share depends on the order of its parts.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
import numpy as np

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node
from plimsoll.health.levels.goals import IN_SERVICE_GOAL, MTTR_GOAL_HOURS
from plimsoll.health.levels.outages import DAY, FOREVER, HOUR, End, Fact, Past, Period, Whole, changes, lasts
from plimsoll.health.model import from_microseconds

SERIES_POINTS_MAX = 53
DAILY_DAYS_MAX = 14
"""A trend over so many days or fewer is shown by day, a longer one by week."""
DIGITS = 6

_MICROSECONDS = 1_000_000


class LevelsBy(enum.StrEnum):
    """What service levels can be asked by."""

    NODE = "node"
    CLUSTER = "cluster"
    AREA = "area"
    SKU = "sku"
    FLEET = "fleet"


class Spread(msgspec.Struct, frozen=True):
    """How long outages took, in hours. A percentile is the length of one of them: the nearest rank."""

    count: int
    mean_hours: float | None = None
    p50_hours: float | None = None
    p90_hours: float | None = None
    p99_hours: float | None = None
    max_hours: float | None = None


class Recovery(msgspec.Struct, frozen=True):
    """Episodes in which fewer nodes than the goal were in service: those that ended, and the one that has not."""

    episodes: int
    mean_hours: float | None
    worst_hours: float | None
    open_hours: float | None
    below_goal_hours: float


class Level(msgspec.Struct, frozen=True):
    """The service levels of a group of nodes, and what they are made of."""

    name: str
    nodes: int
    in_service_share: float | None
    in_service_goal_is_met: bool | None
    net_of_planned_share: float | None
    mttr_hours: float | None
    mttr_goal_is_met: bool | None
    node_hours: float
    node_hours_in_service: float
    node_hours_out_planned: float
    node_hours_out_unplanned: float
    gpu_hours: float
    gpu_hours_lost_planned: float
    gpu_hours_lost_unplanned: float
    interruptions_planned: int
    interruptions_unplanned: int
    planned_per_day: float
    unplanned_per_day: float
    planned_per_1000_node_days: float | None
    unplanned_per_1000_node_days: float | None
    repairs: Spread
    planned_work: Spread
    open_planned: int
    open_planned_oldest_hours: float | None
    open_unplanned: int
    open_unplanned_oldest_hours: float | None
    open_unplanned_over_goal: int
    retired_while_out: int
    recovery: Recovery | None


class Grouping(NamedTuple):
    """The group of each node, as a place in the names."""

    names: Sequence[str]
    of_node: Whole


class Episodes(NamedTuple):
    """When groups were below the goal; an open one ends at `FOREVER`."""

    group: Whole
    began: Whole
    ended: Whole


class Point(msgspec.Struct, frozen=True):
    """One step of the trend."""

    begin: datetime = msgspec.field(name="from")
    end: datetime = msgspec.field(name="to")
    in_service_share: float | None
    interruptions_planned: int
    interruptions_unplanned: int
    unplanned_per_1000_node_days: float | None
    repairs: int
    mttr_hours: float | None


def group_nodes(fleet: Fleet, nodes: Sequence[Node], by: LevelsBy) -> Grouping:
    """Groups in the order of their names."""
    values = [_value(fleet, node, by) for node in nodes]
    names = sorted(set(values)) if by is not LevelsBy.FLEET else ["fleet"]
    places = {name: place for place, name in enumerate(names)}
    return Grouping(names, np.array([places[value] for value in values], np.int64))


def _value(fleet: Fleet, node: Node, by: LevelsBy) -> str:
    if by is LevelsBy.NODE:
        return node.id
    if by is LevelsBy.CLUSTER:
        return node.cluster
    if by is LevelsBy.SKU:
        return node.sku
    return "fleet" if by is LevelsBy.FLEET else str(fleet.clusters[node.cluster].area)


def measure(past: Past, grouping: Grouping, period: Period, episodes: Episodes | None = None) -> list[Level]:
    """The service levels of every group, in the order of the groups. Without episodes nothing is said of recovery."""
    assert period.end <= past.until, "what comes later is not known"
    size, group = len(grouping.names), grouping.of_node
    counted = np.zeros(len(past.nodes), np.int64)
    np.add.at(counted, past.counted.node, clipped(past.counted.begin, past.counted.end, period))
    nodes = np.bincount(group[counted > 0], minlength=size).tolist()
    node_time, gpu_time = sum_by(group, counted, size), sum_by(group, counted, size, past.gpus)
    planned, unplanned = (_tally(past, grouping, period, is_planned=fact) for fact in (True, False))
    recoveries = [None] * size if episodes is None else _recoveries(episodes, size, period)
    return [
        _level(grouping.names[at], nodes[at], node_time[at], gpu_time[at], planned[at], unplanned[at], period, recovery)
        for at, recovery in enumerate(recoveries)
    ]


class _Tally(NamedTuple):
    """The outages of one group and kind in a period; times in microseconds."""

    out: int
    gpus_out: int
    interruptions: int
    ended: Spread
    open: int
    oldest: int
    over_goal: int
    retired: int


def _tally(past: Past, grouping: Grouping, period: Period, *, is_planned: bool) -> list[_Tally]:
    size, stretches = len(grouping.names), past.stretches
    is_kind = stretches.is_planned == is_planned
    node = stretches.node[is_kind]
    lost = clipped(stretches.begin[is_kind], stretches.end[is_kind], period)
    out = sum_by(grouping.of_node[node], lost, size)
    gpus_out = sum_by(grouping.of_node[node], lost, size, past.gpus[node])

    outages = past.outages
    group = grouping.of_node[outages.node]
    is_kind = outages.is_planned == is_planned
    begins, ends, is_open = fates(past, period)
    is_back, is_retired = ends & (outages.end == End.IN_SERVICE), ends & (outages.end == End.RETIRED)
    spreads = _spreads((outages.ended - outages.began)[is_kind & is_back], group[is_kind & is_back], size)
    age = period.end - outages.began
    oldest = np.zeros(size, np.int64)
    np.maximum.at(oldest, group[is_kind & is_open], age[is_kind & is_open])
    is_over_goal = is_open & (age > MTTR_GOAL_HOURS * HOUR)
    begun, still_open, over_goal, retired = (
        np.bincount(group[is_kind & fact], minlength=size).tolist()
        for fact in (begins, is_open, is_over_goal, is_retired)
    )
    columns = (out, gpus_out, begun, spreads, still_open, oldest.tolist(), over_goal, retired)
    return [_Tally(*each) for each in zip(*columns, strict=True)]


def fates(past: Past, period: Period) -> tuple[Fact, Fact, Fact]:
    """Which outages begin in the period, which end in it, and which are open at its end."""
    began, ended = past.outages.began, past.outages.ended
    is_over = past.outages.end != End.OPEN
    begins: Fact = (began >= period.begin) & (began < period.end)
    ends: Fact = is_over & (ended > period.begin) & (ended <= period.end)
    is_open: Fact = (began < period.end) & (~is_over | (ended > period.end))
    return begins, ends, is_open


def _level(
    name: str,
    nodes: int,
    node_time: int,
    gpu_time: int,
    planned: _Tally,
    unplanned: _Tally,
    period: Period,
    recovery: Recovery | None,
) -> Level:
    in_service = node_time - planned.out - unplanned.out
    mttr = unplanned.ended.mean_hours
    days, node_days = period.length / DAY, node_time / DAY
    return Level(
        name=name,
        nodes=nodes,
        in_service_share=_share(in_service, node_time),
        in_service_goal_is_met=in_service / node_time >= IN_SERVICE_GOAL if node_time else None,
        net_of_planned_share=_share(in_service, node_time - planned.out),
        mttr_hours=mttr,
        mttr_goal_is_met=None if mttr is None else mttr <= MTTR_GOAL_HOURS,
        node_hours=hours(node_time),
        node_hours_in_service=hours(in_service),
        node_hours_out_planned=hours(planned.out),
        node_hours_out_unplanned=hours(unplanned.out),
        gpu_hours=hours(gpu_time),
        gpu_hours_lost_planned=hours(planned.gpus_out),
        gpu_hours_lost_unplanned=hours(unplanned.gpus_out),
        interruptions_planned=planned.interruptions,
        interruptions_unplanned=unplanned.interruptions,
        planned_per_day=round(planned.interruptions / days, DIGITS),
        unplanned_per_day=round(unplanned.interruptions / days, DIGITS),
        planned_per_1000_node_days=_rate(planned.interruptions, node_days),
        unplanned_per_1000_node_days=_rate(unplanned.interruptions, node_days),
        repairs=unplanned.ended,
        planned_work=planned.ended,
        open_planned=planned.open,
        open_planned_oldest_hours=hours(planned.oldest) if planned.open else None,
        open_unplanned=unplanned.open,
        open_unplanned_oldest_hours=hours(unplanned.oldest) if unplanned.open else None,
        open_unplanned_over_goal=unplanned.over_goal,
        retired_while_out=planned.retired + unplanned.retired,
        recovery=recovery,
    )


def find_episodes(past: Past, grouping: Grouping) -> Episodes:
    """When the nodes in service of each group were fewer than the goal, over all that is known."""
    counted, stretches, group = past.counted, past.stretches, grouping.of_node
    leaves = counted.end != FOREVER
    is_over = (past.outages.end[stretches.outage] != End.OPEN) | (stretches.end < past.until)
    steps = [
        (group[counted.node], counted.begin, 1, 0),
        (group[counted.node[leaves]], counted.end[leaves], -1, 0),
        (group[stretches.node], stretches.begin, 0, 1),
        (group[stretches.node[is_over]], stretches.end[is_over], 0, -1),
    ]
    groups, moments = (np.concatenate([step[at] for step in steps]) for at in (0, 1))
    order = np.lexsort((moments, groups))
    groups, moments = groups[order], moments[order]
    totals = [np.cumsum(np.repeat([s[at] for s in steps], [len(s[0]) for s in steps])[order]) for at in (2, 3)]
    is_settled = lasts(groups) | lasts(moments)
    groups, moments = groups[is_settled], moments[is_settled]
    node_count, out_count = (_restarted(total[is_settled], groups) for total in totals)
    # A quotient of whole numbers is rounded as the goal itself is, so 19 of 20 nodes are not below it.
    is_below = (node_count - out_count) / np.maximum(node_count, 1) < IN_SERVICE_GOAL
    is_below &= node_count > 0
    edge = changes(groups) | changes(is_below)
    groups, moments, is_below = groups[edge], moments[edge], is_below[edge]
    ended = np.where(lasts(groups), FOREVER, np.append(moments[1:], FOREVER)[: len(moments)])
    return Episodes(groups[is_below], moments[is_below], ended[is_below])


def _restarted(totals: Whole, groups: Whole) -> Whole:
    """Running totals over all groups, as running totals of each."""
    first = changes(groups)
    before = np.append(0, totals[:-1])[: len(totals)][first]
    restarted: Whole = totals - before[np.cumsum(first) - 1]
    return restarted


def _recoveries(episodes: Episodes, size: int, period: Period) -> list[Recovery | None]:
    group, began, ended = episodes
    is_back = (ended > period.begin) & (ended <= period.end)
    is_open = (began < period.end) & (ended > period.end)
    spreads = _spreads((ended - began)[is_back], group[is_back], size)
    open_time = np.zeros(size, np.int64)
    open_time[group[is_open]] = period.end - began[is_open]
    below = sum_by(group, clipped(began, ended, period), size)
    return [
        Recovery(
            episodes=spread.count,
            mean_hours=spread.mean_hours,
            worst_hours=spread.max_hours,
            open_hours=hours(still) if still else None,
            below_goal_hours=hours(short),
        )
        for spread, still, short in zip(spreads, open_time.tolist(), below, strict=True)
    ]


def series(past: Past, period: Period) -> list[Point]:
    """The whole in steps of a week (a short period: of a day) back from its end; the first step may be shorter."""
    step = DAY if period.length <= DAILY_DAYS_MAX * DAY else 7 * DAY
    whole = Grouping(["fleet"], np.zeros(len(past.nodes), np.int64))
    points: list[Point] = []
    end = period.end
    while end > period.begin and len(points) < SERIES_POINTS_MAX:
        part = Period(max(period.begin, end - step), end)
        level = measure(past, whole, part)[0]
        points.append(
            Point(
                begin=from_microseconds(part.begin),
                end=from_microseconds(part.end),
                in_service_share=level.in_service_share,
                interruptions_planned=level.interruptions_planned,
                interruptions_unplanned=level.interruptions_unplanned,
                unplanned_per_1000_node_days=level.unplanned_per_1000_node_days,
                repairs=level.repairs.count,
                mttr_hours=level.mttr_hours,
            )
        )
        end = part.begin
    return points[::-1]


def clipped(begin: Whole, end: Whole, period: Period) -> Whole:
    """How much of each span lies in the period."""
    length: Whole = np.maximum(np.minimum(end, period.end) - np.maximum(begin, period.begin), 0)
    return length


def sum_by(group: Whole, times: Whole, size: int, weight: Whole | None = None) -> list[int]:
    """Exact sums: a large fleet's microseconds over years, by GPU, fit neither an int64 nor a float."""
    sums = []
    for part in np.divmod(times, _MICROSECONDS):
        total = np.zeros(size, np.int64)
        np.add.at(total, group, part if weight is None else part * weight)
        sums.append(total.tolist())
    return [seconds * _MICROSECONDS + rest for seconds, rest in zip(*sums, strict=True)]


def _spreads(lengths: Whole, groups: Whole, size: int) -> list[Spread]:
    order = np.lexsort((lengths, groups))
    lengths, bounds = lengths[order], np.searchsorted(groups[order], np.arange(size + 1)).tolist()
    return [_spread(lengths[bounds[at] : bounds[at + 1]]) for at in range(size)]


def _spread(ascending: Whole) -> Spread:
    count = len(ascending)
    if not count:
        return Spread(0)
    ranked = [hours(int(ascending[-(-percent * count // 100) - 1])) for percent in (50, 90, 99, 100)]
    return Spread(count, round(float(ascending.mean()) / HOUR, DIGITS), *ranked)


def hours(time: int) -> float:
    """Microseconds as hours."""
    return round(time / HOUR, DIGITS)


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, DIGITS) if whole else None


def _rate(count: int, node_days: float) -> float | None:
    return round(1000 * count / node_days, DIGITS) if node_days else None
