"""One answer for a period: the service levels of a fleet against their goals, what was lost to what, and the trend.

Pure: the time is an argument. Command line and pages ask here, so that they can't disagree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from plimsoll.errors import UsageError
from plimsoll.filter import Filter, Term
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Phase
from plimsoll.fleet.view import find_nodes
from plimsoll.health.fold import Health
from plimsoll.health.levels.losses import LEMON_DAYS, LEMON_EXITS, Loss, Offender, find_offenders, rank_reasons
from plimsoll.health.levels.measure import Level, LevelsBy, Point, find_episodes, group_nodes, measure, series
from plimsoll.health.levels.outages import Past, Period, history_begin, read_past
from plimsoll.health.model import from_microseconds, to_microseconds
from plimsoll.times import TIME_FORMS, parse_moment, show_time

PERIOD_DEFAULT = timedelta(days=30)
_CALENDAR_BEGIN = datetime.min.replace(tzinfo=UTC)
PRESENT_FIELDS = ("service", "since", "reason")
"""What a filter takes from a node as it is now, whatever the period is."""


class Scope(msgspec.Struct, frozen=True):
    """Whose service levels are asked for. Nodes of clusters that are not in production are left out."""

    nodes: Sequence[Node]
    left_out: Mapping[str, int]
    """Their number by cluster."""
    is_by_present: bool
    """Whether the filter asks for what nodes are now."""


class ServiceLevels(msgspec.Struct, frozen=True):
    """Everything about a period. `before` is the one before of the same length, None where history does not reach."""

    period: Period
    by: LevelsBy
    total: Level
    groups: Sequence[Level]
    reasons: Sequence[Loss]
    offenders: Sequence[Offender]
    before: Level | None
    points: Sequence[Point]
    known_from: datetime | None
    contradicted: Sequence[str]
    lemon_exits: int
    lemon_days: float


def parse_period(begin: str, end: str, *, now: datetime) -> Period:
    """The period that a person means; by default the last 30 days."""
    until = parse_moment(end, now=now) if end else now
    since = parse_moment(begin, now=now) if begin else max(until, _CALENDAR_BEGIN + PERIOD_DEFAULT) - PERIOD_DEFAULT
    return checked_period(since, until, now)


def checked_period(since: datetime, until: datetime, now: datetime) -> Period:
    """The period, if it has a length and lies in the past."""
    if until > now:
        raise UsageError(
            "bad_period",
            f"the period ends at {show_time(until)}, which is after {show_time(now)}: nobody knows yet",
            next_step="leave out --to, or name a moment in the past",
            to=show_time(until),
        )
    if since >= until:
        raise UsageError(
            "bad_period",
            f"the period begins at {show_time(since)} and ends at {show_time(until)}: it has no length",
            next_step=f"--from must be before --to; {TIME_FORMS}",
            begin=show_time(since),
            to=show_time(until),
        )
    return Period(to_microseconds(since), to_microseconds(until))


def choose_nodes(fleet: Fleet, where: Filter, *, now: datetime) -> Scope:
    """The nodes that pass the filter. One that was retired counted until then, so it is asked for as well."""
    everything = Filter([*where.terms, Term("service", "!=", ("",))], now=now)
    nodes: list[Node] = []
    left_out: Counter[str] = Counter()
    for node in find_nodes(fleet, everything):
        if fleet.clusters[node.cluster].phase is Phase.PRODUCTION:
            nodes.append(node)
        else:
            left_out[node.cluster] += 1
    return Scope(nodes, left_out, any(term.field in PRESENT_FIELDS for term in where.terms))


def past_of(health: Health, scope: Scope, period: Period) -> Past:
    """What was known at the end of the period."""
    return read_past(health, scope.nodes, until=period.end)


def service_levels(
    fleet: Fleet,
    health: Health,
    scope: Scope,
    period: Period,
    by: LevelsBy,
    *,
    lemon_exits: int = LEMON_EXITS,
    lemon_days: float = LEMON_DAYS,
) -> ServiceLevels:
    """The whole answer. Groups that did not count in the period are left out; the worst come first.

    So many unplanned exits in so many days make a lemon; the policy in force says how many.
    """
    past = past_of(health, scope, period)
    whole = group_nodes(fleet, scope.nodes, LevelsBy.FLEET)
    total = measure(past, whole, period, find_episodes(past, whole))[0]
    groups = [total]
    if by is not LevelsBy.FLEET:
        grouping = group_nodes(fleet, scope.nodes, by)
        # Of a single node, time to recover is the length of its outages.
        episodes = None if by is LevelsBy.NODE else find_episodes(past, grouping)
        groups = measure(past, grouping, period, episodes)
    known_from = history_begin(health)
    has_before = known_from is not None and known_from <= period.before.begin
    return ServiceLevels(
        period=period,
        by=by,
        total=total,
        groups=sorted((level for level in groups if level.nodes), key=_worst_first),
        reasons=rank_reasons(past, period),
        offenders=find_offenders(past, period, lemon_exits=lemon_exits, lemon_days=lemon_days),
        before=measure(past, whole, period.before)[0] if has_before else None,
        points=series(past, period),
        known_from=None if known_from is None else from_microseconds(known_from),
        contradicted=past.contradicted,
        lemon_exits=lemon_exits,
        lemon_days=lemon_days,
    )


def _worst_first(level: Level) -> tuple[float, str]:
    return 1.0 if level.in_service_share is None else level.in_service_share, level.name
