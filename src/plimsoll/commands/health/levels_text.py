"""How service levels look to people: the numbers against their goals, then by group, reason, node and week."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from plimsoll.answers import Table
from plimsoll.health.levels.goals import IN_SERVICE_GOAL, MTTR_GOAL_HOURS
from plimsoll.health.levels.losses import Loss, Offender, by_gpu_hours, by_interruptions
from plimsoll.health.levels.measure import Level, LevelsBy, Point, Recovery, Spread
from plimsoll.health.levels.outages import DAY
from plimsoll.health.levels.slo import ServiceLevels
from plimsoll.health.model import from_microseconds
from plimsoll.words import counted

RANKED_SHOWN = 5
REASONS_SHOWN = 12
POINTS_SHOWN = 8


def heading_of(levels: ServiceLevels) -> str:
    total, period = levels.total, levels.period
    span = f"{minute_text(period.begin)} to {minute_text(period.end)} ({days_text(period.length / DAY)})"
    if not total.nodes:
        return f"no node counted, {span}"
    share_goal = _verdict(total.in_service_goal_is_met, f"goal {IN_SERVICE_GOAL:.0%}")
    mttr_goal = _mttr_verdict(total, f"goal {MTTR_GOAL_HOURS / 24:.0f} days")
    if total.open_unplanned_over_goal:
        mttr_goal += f", {total.open_unplanned_over_goal:,} open for longer"
    mttr = "no unplanned outage ended" if total.mttr_hours is None else f"MTTR {length_text(total.mttr_hours)}"
    return (
        f"nodes in service {_percent(total.in_service_share or 0.0)} ({share_goal}), {mttr} ({mttr_goal})\n"
        f"{counted(total.nodes, 'node')}, {span}"
    )


def tables_of(levels: ServiceLevels, groups: Sequence[Level]) -> list[Table]:
    if not levels.total.nodes:
        return []
    offenders = levels.offenders
    tables = [_summary_table(levels.total, levels.before)]
    if levels.by is not LevelsBy.FLEET:
        tables.append(_group_table(levels, groups))
    tables.append(_spread_table(levels.total))
    tables.append(_reason_table(levels.reasons))
    if offenders:
        often, most = sorted(offenders, key=by_interruptions), sorted(offenders, key=by_gpu_hours)
        tables.append(_offender_table("nodes with the most unplanned interruptions", "by_interruptions", often))
        tables.append(_offender_table("nodes with the most GPU-hours lost to faults", "by_gpu_hours", most))
    if len(levels.points) > 1:
        tables.append(_point_table(levels.points[-POINTS_SHOWN:], _trend_title(levels)))
    return tables


def _summary_table(total: Level, before: Level | None) -> Table:
    """The levels against their goals and against the period before."""
    rows: list[tuple[str, str, str, str, str]] = []

    def add(name: str, field: str, show: Callable[[float], str], words: tuple[str, str], goal: str = "") -> None:
        now, was = getattr(total, field), None if before is None else getattr(before, field)
        change = "-"
        if now is not None and was is not None:
            by = f"{abs(now - was) * 100:.2f} points" if show is _percent else show(abs(now - was))
            change = "the same" if show(now) == show(was) else f"{words[now > was]} by {by}"
        rows.append((name, "-" if now is None else show(now), goal, "-" if was is None else show(was), change))

    high_is_good, low_is_good, neither = ("worse", "better"), ("better", "worse"), ("less", "more")
    share_goal = _verdict(total.in_service_goal_is_met, f"{IN_SERVICE_GOAL:.0%}")
    mttr_goal = _mttr_verdict(total, f"{MTTR_GOAL_HOURS / 24:.0f} days")
    add("nodes in service", "in_service_share", _percent, high_is_good, share_goal)
    add("  net of planned work", "net_of_planned_share", _percent, high_is_good)
    add("MTTR", "mttr_hours", length_text, low_is_good, mttr_goal)
    for kind, words in (("unplanned", low_is_good), ("planned", neither)):
        add(f"{kind} interruptions", f"interruptions_{kind}", _whole, words)
        add("  a day", f"{kind}_per_day", _number, words)
        add("  per 1,000 node-days", f"{kind}_per_1000_node_days", _number, words)
        add("  GPU-hours lost", f"gpu_hours_lost_{kind}", _whole, words)
    return Table(("level", "this period", "goal", "the one before", "trend"), rows, name="levels")


def _group_table(levels: ServiceLevels, groups: Sequence[Level]) -> Table:
    columns = [levels.by.value, "nodes", "service_share", "mttr_hours", "missed", "unplanned", "per_1000"]
    columns += ["planned", "open", "gpu_hours_lost"]
    rows: list[tuple[object, ...]] = [
        (
            level.name,
            level.nodes,
            level.in_service_share,
            level.mttr_hours,
            _missed(level),
            level.interruptions_unplanned,
            level.unplanned_per_1000_node_days,
            level.interruptions_planned,
            level.open_planned + level.open_unplanned,
            round(level.gpu_hours_lost_planned + level.gpu_hours_lost_unplanned),
        )
        for level in groups
    ]
    if levels.by is not LevelsBy.NODE:
        columns.append("to_recover")
        rows = [(*row, _recovery_text(level.recovery)) for row, level in zip(rows, groups, strict=True)]
    return Table(columns, rows, f"by {levels.by.value}, worst first", "groups")


def _recovery_text(recovery: Recovery | None) -> str:
    """The mean time back to the goal; where it is not back, since when."""
    if recovery is None:
        return ""
    if recovery.open_hours is not None:
        return f"below {length_text(recovery.open_hours)}"
    return "" if recovery.mean_hours is None else length_text(recovery.mean_hours)


def _missed(level: Level) -> str:
    missed = [level.in_service_goal_is_met is False, level.mttr_goal_is_met is False]
    return {(True, True): "both", (True, False): "share", (False, True): "MTTR"}.get((missed[0], missed[1]), "")


def _spread_table(total: Level) -> Table:
    columns = ("outages_that_ended", "count", "mean_hours", "p50", "p90", "p99", "max")
    rows = [_spread_row("unplanned (MTTR)", total.repairs), _spread_row("planned", total.planned_work)]
    if (recovery := total.recovery) is not None:
        episodes = (f"together back at {IN_SERVICE_GOAL:.0%}", recovery.episodes, recovery.mean_hours, None, None, None)
        rows.append((*episodes, recovery.worst_hours))
    return Table(columns, rows, "how long, in hours", "lengths")


def _spread_row(name: str, spread: Spread) -> tuple[object, ...]:
    return name, *msgspec.structs.astuple(spread)


def _reason_table(reasons: Sequence[Loss]) -> Table:
    rows = [
        (
            loss.reason or "(none given)",
            kind_of(loss.is_planned),
            loss.nodes,
            loss.outages,
            round(loss.gpu_hours),
            loss.lost_share,
        )
        for loss in reasons
    ]
    columns = ("reason", "kind", "nodes", "outages", "gpu_hours_lost", "share")
    return Table(columns, rows, "reasons by GPU-hours lost", "reasons", REASONS_SHOWN)


def _offender_table(title: str, name: str, offenders: Sequence[Offender]) -> Table:
    rows = [
        (
            each.node,
            each.cluster,
            each.sku,
            each.interruptions,
            round(each.gpu_hours),
            "lemon" if each.is_lemon else "",
            each.open_since,
            each.reason,
        )
        for each in offenders
    ]
    columns = ("node", "cluster", "sku", "interruptions", "gpu_hours_lost", "lemon", "out_since", "mostly")
    return Table(columns, rows, title, name, RANKED_SHOWN)


def _trend_title(levels: ServiceLevels) -> str:
    """Where the table leaves days of the period out, it says which, and where they are."""
    points, shown = levels.points, levels.points[-POINTS_SHOWN:]
    begin = from_microseconds(levels.period.begin)
    if shown[0].begin <= begin:
        return "trend"
    left_out = f"trend; left out: {begin:%Y-%m-%d} to {shown[0].begin:%Y-%m-%d}"
    if points[0].begin == shown[0].begin:
        return left_out
    return f"{left_out} (-o json goes back to {points[0].begin:%Y-%m-%d})"


def _point_table(points: Sequence[Point], title: str) -> Table:
    rows = [
        (
            f"{point.begin:%Y-%m-%d %H:%M}",
            round((point.end - point.begin).total_seconds() / 86_400, 1),
            point.in_service_share,
            point.interruptions_unplanned,
            point.unplanned_per_1000_node_days,
            point.interruptions_planned,
            point.mttr_hours,
        )
        for point in points
    ]
    columns = ("from", "days", "in_service_share", "unplanned", "per_1000_node_days", "planned", "mttr_hours")
    return Table(columns, rows, title, "trend")


def kind_of(is_planned: bool) -> str:
    return "planned" if is_planned else "unplanned"


def _verdict(is_met: bool | None, goal: str) -> str:
    return goal if is_met is None else f"{goal}: {'met' if is_met else 'missed'}"


def _mttr_verdict(total: Level, goal: str) -> str:
    """MTTR knows only what has ended: while others are open for longer than the goal, it is not simply met."""
    verdict = _verdict(total.mttr_goal_is_met, goal)
    return f"{verdict} by those that ended" if total.mttr_goal_is_met and total.open_unplanned_over_goal else verdict


def _percent(share: float) -> str:
    return f"{share:.2%}"


def _number(value: float) -> str:
    return f"{value:,.2f}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def length_text(hours: float) -> str:
    return f"{hours:,.1f} h" if hours < 72 else f"{hours / 24:,.1f} days"


def days_text(days: float) -> str:
    return "1 day" if days == 1 else f"{days:,.1f} days"


def minute_text(moment: int) -> str:
    return f"{from_microseconds(moment):%Y-%m-%dT%H:%MZ}"
