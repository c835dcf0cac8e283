"""`plimsoll health slo`: service levels over time, against their goals."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.health.app import app
from plimsoll.commands.health.levels_text import heading_of, length_text, tables_of
from plimsoll.commands.options import AsOf, Db, Filters, Format, Watch, answer_state, parse_as_of
from plimsoll.filter import parse_filter
from plimsoll.fleet.fold import Fleet
from plimsoll.health.decide import policy_in_force
from plimsoll.health.fold import Health
from plimsoll.health.levels.goals import GOALS, IN_SERVICE_GOAL, MTTR_GOAL_HOURS
from plimsoll.health.levels.losses import by_gpu_hours, by_interruptions
from plimsoll.health.levels.measure import Level, LevelsBy
from plimsoll.health.levels.outages import DAY, MINUTE, STORM_GAP, Period
from plimsoll.health.levels.slo import Scope, ServiceLevels, choose_nodes, parse_period, service_levels
from plimsoll.health.model import from_microseconds
from plimsoll.state.state import State
from plimsoll.times import parse_time, show_time, utc_now
from plimsoll.words import counted

GROUPS_SHOWN = 15
RANKED_LISTED = 100
NAMES_SHOWN = 5

From = Annotated[
    str,
    typer.Option("--from", metavar="TIME", help="When the period begins.", show_default="30 days before its end"),
]
To = Annotated[str, typer.Option("--to", metavar="TIME", help="When it ends.", show_default="now")]


@app.command("slo")
def slo_command(
    context: typer.Context,
    filters: Filters = None,
    by: Annotated[LevelsBy, typer.Option("--by", help="Whose levels to tell apart.")] = LevelsBy.CLUSTER,
    begin: From = "",
    end: To = "",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=0, help="At most so many groups, 0 for all.", show_default="15 in a table, else all"
        ),
    ] = None,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """Service levels of a period: nodes in service, MTTR, interruptions, time to recover; what was lost to what.

    Goals: 95 % of the nodes in service, MTTR 2 days. Planned and unplanned are told apart everywhere.
    """
    where = parse_filter(filters or [], now=utc_now())
    most = limit if limit is not None else GROUPS_SHOWN if output is Output.TABLE else 0

    def answer(state: State) -> Answer:
        now = moment_of(state, as_of)
        period, scope = parse_period(begin, end, now=now), choose_nodes(state.of(Fleet), where, now=now)
        lemon = policy_in_force(state).lemon
        levels = service_levels(
            state.of(Fleet),
            state.of(Health),
            scope,
            period,
            by,
            lemon_exits=lemon.times,
            lemon_days=lemon.within / timedelta(days=1),
        )
        groups = list(levels.groups[:most] if most else levels.groups)
        document = stamp(state, period) | _slo_document(levels, groups, scope)
        if output is Output.CSV:
            return Answer(document, [_flat_table(groups)])
        asked = [*(filters or []), *_flag("--from", begin), *_flag("--to", end), *_flag("--as-of", as_of)]
        is_empty = not state.of(Fleet).nodes
        notes = _slo_notes(levels, groups, scope, _next_steps(levels, asked), is_fleet_empty=is_empty)
        return Answer(document, tables_of(levels, groups), heading_of(levels), notes)

    answer_state(context, db, as_of, output, watch=watch, answer=answer)


def moment_of(state: State, as_of: str) -> datetime:
    """What `now` means: with `--as-of` nothing later is known."""
    now = utc_now()
    then = parse_as_of(as_of) if as_of else now
    if isinstance(then, datetime):
        return min(then, now)
    return parse_time(state.recorded_at) if state.recorded_at else now


def stamp(state: State, period: Period) -> dict[str, Any]:
    """What an answer about a period rests on."""
    return {
        "as_of": state.recorded_at or None,
        "revision": state.revision,
        "from": from_microseconds(period.begin),
        "to": from_microseconds(period.end),
    }


def _slo_document(levels: ServiceLevels, groups: Sequence[Level], scope: Scope) -> dict[str, Any]:
    offenders = levels.offenders
    return {
        "days": round(levels.period.length / DAY, 6),
        "by": levels.by,
        "goals": GOALS,
        "storm_gap_minutes": STORM_GAP // MINUTE,
        "history_from": levels.known_from,
        "total": levels.total,
        "group_count": len(levels.groups),
        "groups": groups,
        "reasons": levels.reasons,
        "offenders": {
            "lemons": [offender.node for offender in offenders if offender.is_lemon],
            "lemon_exits": levels.lemon_exits,
            "lemon_days": levels.lemon_days,
            "by_interruptions": sorted(offenders, key=by_interruptions)[:RANKED_LISTED],
            "by_gpu_hours": sorted(offenders, key=by_gpu_hours)[:RANKED_LISTED],
        },
        "trend": {"before": levels.before, "series": levels.points},
        "not_in_production": dict(scope.left_out),
        "contradicted": levels.contradicted,
    }


def _flat_table(groups: Sequence[Level]) -> Table:
    """One row per group with every number; what is nested becomes columns named after both."""
    rows = [_flat(msgspec.to_builtins(level)) for level in groups]
    columns = list(dict.fromkeys(name for row in rows for name in row)) or list(Level.__struct_fields__)
    return Table(columns, [[row.get(name) for name in columns] for row in rows])


def _flat(level: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in level.items():
        flat |= {f"{name}_{inner}": each for inner, each in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _slo_notes(
    levels: ServiceLevels, groups: Sequence[Level], scope: Scope, next_steps: list[str], *, is_fleet_empty: bool
) -> list[str]:
    total, notes = levels.total, []
    if len(groups) < len(levels.groups):
        notes.append(f"{len(groups):,} of {len(levels.groups):,} {levels.by.value}s: --limit 0 for all")
    if total.open_unplanned:
        oldest = length_text(total.open_unplanned_oldest_hours or 0.0)
        notes.append(
            f"not in MTTR: {_are(total.open_unplanned, 'unplanned outage')} open, the oldest for {oldest};"
            f" {total.open_unplanned_over_goal:,} of them for longer than {MTTR_GOAL_HOURS / 24:.0f} days"
        )
    if total.retired_while_out:
        notes.append(f"not in MTTR: {counted(total.retired_while_out, 'outage')} ended with the node being retired")
    if (recovery := total.recovery) is not None and recovery.open_hours is not None:
        notes.append(
            f"at its end fewer than {IN_SERVICE_GOAL:.0%} were in service,"
            f" for {length_text(recovery.open_hours)} already"
        )
    if lemons := [each.node for each in levels.offenders if each.is_lemon]:
        span = f"{levels.lemon_days:g} {'day' if levels.lemon_days == 1 else 'days'}"
        rule = f"{counted(levels.lemon_exits, 'unplanned interruption')} in {span}"
        notes.append(f"lemons ({rule}): {counted(len(lemons), 'node')}")
    if levels.before is None and total.nodes:
        notes.append("no trend against the period before: history does not reach back that far")
    notes += _scope_notes(levels, scope)
    if not scope.nodes:
        return [*notes, NO_FLEET if is_fleet_empty else NO_NODE]
    return notes + next_steps


def _are(count: int, noun: str) -> str:
    return f"{counted(count, noun)} {'is' if count == 1 else 'are'}"


NO_FLEET = "the fleet is empty; next: plimsoll demo, or plimsoll fleet import DIR"
NO_NODE = "no node in production passes the filter; next: plimsoll fleet nodes with the same filter"


def _flag(name: str, value: str) -> list[str]:
    return [name, value] if value else []


def _next_steps(levels: ServiceLevels, asked: Sequence[str]) -> list[str]:
    """How to see what is behind the worst group, with everything that was asked for here."""
    words = list(asked)
    if levels.by is not LevelsBy.FLEET and levels.groups:
        worst = levels.groups[0].name
        value = worst if re.fullmatch(r"[\w.-]+", worst) else f'"{worst}"'
        narrowed = f"{levels.by}={value}"
        words = [narrowed, *(word for word in words if word != narrowed)]
    text = shlex.join(words)
    steps = [f"plimsoll health outages --unplanned {text}".rstrip() + "    the outages behind the numbers"]
    if levels.by not in (LevelsBy.NODE, LevelsBy.FLEET):
        steps.append(f"plimsoll health slo --by node {text}".rstrip())
    return [f"next: {steps[0]}", *(f"      {step}" for step in steps[1:])]


def _scope_notes(levels: ServiceLevels, scope: Scope) -> list[str]:
    notes, begin = [], from_microseconds(levels.period.begin)
    if levels.known_from is None:
        notes.append("warning: no history is known, so every node counts as in service all the time")
    elif begin < levels.known_from:
        notes.append(
            f"warning: history is known from {show_time(levels.known_from)};"
            " before that every node counts as in service"
        )
    if levels.contradicted:
        names = ", ".join(levels.contradicted[:NAMES_SHOWN])
        notes.append(
            f"warning: {_are(len(levels.contradicted), 'node')} not in the service that their history ends in, and"
            f" nobody said since when, so history counts: {names}"
        )
    return notes + selection_notes(scope)


def selection_notes(scope: Scope) -> list[str]:
    notes = []
    if scope.left_out:
        names = ", ".join(sorted(scope.left_out))
        left_out = counted(sum(scope.left_out.values()), "node")
        notes.append(f"not counted: {left_out} of clusters not in production ({names})")
    if scope.is_by_present:
        notes.append("service, since and reason choose nodes by what they are now, not by what they were")
    return notes
