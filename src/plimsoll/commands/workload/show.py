"""`plimsoll workload list|show|uptime`: who runs where and as what, who waits and why, and what it was worth."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.options import AsOf, Db, Filters, Format, Watch, answer_state
from plimsoll.commands.quota.words import moment_of
from plimsoll.commands.workload.app import app
from plimsoll.commands.workload.words import (
    booking_text,
    moment_text,
    next_notes,
    parts_table,
    standing_line,
    uptime_document,
    view_document,
    wait_text,
    where_text,
    workloads_text,
)
from plimsoll.errors import NotFound
from plimsoll.filter import parse_filter
from plimsoll.health.model import from_microseconds
from plimsoll.quota.names import check_team
from plimsoll.state.state import State
from plimsoll.times import show_time, utc_now
from plimsoll.words import counted
from plimsoll.workloads.desk import asked_for
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.view import (
    UPTIME_GOAL,
    Standing,
    TeamUptime,
    WorkView,
    all_names,
    look_at,
    together,
    uptimes,
)

Team = Annotated[str, typer.Option("--team", metavar="TEAM", help="Of one team.", show_default=False)]
INTERRUPTIONS_SHOWN = 10
_FIELDS = ("workload", "team", "owner", "standing", "as", "cluster", "sku", "gpus")


@app.command("list")
def list_command(
    context: typer.Context,
    filters: Filters = None,
    team: Team = "",
    waiting: Annotated[bool, typer.Option("--waiting", help="Only what waits, or runs in part.")] = False,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """What runs and what waits: where, as what, why not.

    Filters: workload, team, owner, standing, as, cluster, sku, gpus.
    """
    wanted = parse_filter(filters or [], now=utc_now())
    wanted.check(_FIELDS)

    def answer(state: State) -> Answer:
        now = moment_of(state, as_of)
        if team:
            check_team(state, team)
        views = [view for view in look_at(state, all_names(state), now=now) if team in ("", view.team)]
        if waiting:
            views = [view for view in views if view.standing is not Standing.RUNNING]
        views = [view for view in views if wanted.matches(_fields(view).get)]
        return _listed(views, state)

    answer_state(context, db, as_of, output, watch=watch, answer=answer)


def _fields(view: WorkView) -> dict[str, Any]:
    return {
        "workload": view.workload,
        "team": view.team,
        "owner": view.owner,
        "standing": view.standing.value,
        "as": view.runs_as,
        "cluster": view.cluster,
        "sku": view.sku,
        "gpus": view.gpus,
    }


def _listed(views: list[WorkView], state: State) -> Answer:
    columns = ("workload", "team", "standing", "runs_as", "gpus", "wanted", "where", "why")
    rows = [
        (view.workload, view.team, view.standing, view.runs_as, view.gpus - view.spare_gpus, view.wanted,
         where_text(view), view.waits.reason.cause if view.waits else "called back" if view.leaves_for else "-")
        for view in views
    ]  # fmt: skip
    counts = {standing: sum(view.standing is standing for view in views) for standing in Standing}
    told = ", ".join(f"{count:,} {standing}" for standing, count in counts.items() if count)
    heading = f"{workloads_text(len(views))}: {told}" if views else "no workloads"
    document = {"revision": state.revision, "workloads": [view_document(view) for view in views]}
    return Answer(document, [Table(columns, rows)], heading, next_notes(views))


@app.command("show")
def show_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="WORKLOAD", help="Its name.")],
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """One workload: its parts, islands and nodes, what it waits for, its uptime and interruptions."""

    def answer(state: State) -> Answer:
        now = moment_of(state, as_of)
        past = state.of(Workloads).past.get(name)
        if past is not None:
            return _past(state, name)
        asked_for(Turn(state, now), name)
        [view] = look_at(state, [name], now=now)
        return _shown(view, state)

    answer_state(context, db, as_of, output, watch=watch, answer=answer)


def _shown(view: WorkView, state: State) -> Answer:
    tables = [parts_table([view])]
    nodes = []
    for part in view.parts:
        own = [node for node in part.nodes if node not in part.spare_nodes]
        nodes += [(part.part, len(own), ", ".join(own))] if own else []
        if part.spare_nodes:
            nodes.append((f"{part.part}, spare", len(part.spare_nodes), ", ".join(part.spare_nodes)))
    if nodes:
        tables.append(Table(("part", "count", "nodes"), nodes, "nodes"))
    if view.interruptions:
        rows = [
            (
                show_time(from_microseconds(each.at).replace(microsecond=0)),
                each.part,
                each.because,
                each.gpus,
                each.by,
                each.detail,
            )
            for each in view.interruptions[-INTERRUPTIONS_SHOWN:]
        ]
        columns = ("at", "part", "because", "gpus", "for_or_after", "detail")
        tables.append(Table(columns, rows, "interruptions and losses"))
    owner = f" of {view.owner}" if view.owner else ""
    lines = [standing_line(view), f"team {view.team}{owner}, submitted {moment_text(view.submitted)}"]
    if view.standing is Standing.RUNNING and view.booking is not None:
        lines.append(f"it grows: {booking_text(view.booking, view.team)}")
    if view.leaves_for:
        lines.append(f"some of it was called back for {', '.join(view.leaves_for)}")
    if view.standing is Standing.PARTLY and view.waits is not None:
        lines.append(f"a part waits: {wait_text(view.waits)}")
    if view.uptime.hours:
        lines.append(_uptime_line(view))
    return Answer(
        {"revision": state.revision, **view_document(view, is_full=True)}, tables, "\n".join(lines), next_notes([view])
    )


def _uptime_line(view: WorkView) -> str:
    up = view.uptime
    return (
        f"gangs up {up.uptime or 0:.1%} of {up.hours:,.1f} hours (goal {UPTIME_GOAL:.0%}),"
        f" goodput {up.goodput or 0:.1%}, {counted(up.interruptions, 'interruption')},"
        f" {up.lost_gpu_hours:,.1f} GPU-hours lost"
    )


def _past(state: State, name: str) -> Answer:
    past = state.of(Workloads).past[name]
    ended = from_microseconds(past.ended)
    found = next(each for each in uptimes(state, now=ended) if each.workload == name) if past.accounts else None
    heading = f"{name} of {past.spec.team} is over: {past.how} at {moment_text(ended)}"
    document = {
        "revision": state.revision,
        "workload": name,
        "team": past.spec.team,
        "standing": "over",
        "how": past.how,
        "ended": ended,
        "cluster": past.cluster,
        "sku": past.sku,
        "uptime": uptime_document(found.uptime) if found is not None else None,
    }
    return Answer(document, [], heading, [f"next: plimsoll why {name}"])


@app.command("uptime")
def uptime_command(
    context: typer.Context,
    team: Team = "",
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
) -> None:
    """What gangs made of their time: uptime (goal 90 %), interruptions a day, lost work, goodput; by team and workload.

    Uptime is running time over the time since the first start; goodput leaves out what was lost since a checkpoint and
    what restarts took. Of workloads that are over the newest 10,000 count.
    """

    def answer(state: State) -> Answer:
        now = moment_of(state, as_of)
        if team:
            check_team(state, team)
        found = uptimes(state, now=now, teams=[team] if team else [])
        if not found and team:
            raise NotFound(
                "no_uptime", f"nothing of {team} that was submitted here ever ran", next_step="plimsoll workload list"
            )
        return _uptimes(found, state)

    answer_state(context, db, as_of, output, watch=False, answer=answer)


def _uptimes(found: list[TeamUptime], state: State) -> Answer:
    columns = (
        "team", "workload", "uptime_share", "goodput_share", "hours", "down_hours", "interruptions",
        "interruptions_per_day", "lost_gpu_hours", "gpu_hours",
    )  # fmt: skip
    teams = sorted({each.team for each in found})
    by_team = {team: together(each.uptime for each in found if each.team == team) for team in teams}
    rows = [(team, "", *_numbers(by_team[team])) for team in teams]
    works = [(each.team, each.workload, *_numbers(each.uptime)) for each in found]
    total = together(each.uptime for each in found)
    heading = (
        f"gangs were up {total.uptime:.1%} of their {total.hours:,.1f} hours (goal {UPTIME_GOAL:.0%}), goodput"
        f" {total.goodput or 0:.1%}, {counted(total.interruptions, 'interruption')}"
        if total.uptime is not None
        else "no gang that was submitted here has run yet"
    )
    document = {
        "revision": state.revision,
        "goal": UPTIME_GOAL,
        "all": uptime_document(total),
        "teams": [{"team": team, **uptime_document(by_team[team])} for team in teams],
        "workloads": [{"team": each.team, "workload": each.workload, **uptime_document(each.uptime)} for each in found],
    }
    return Answer(document, [Table(columns, [*rows, *works])], heading)


def _numbers(uptime: Any) -> tuple[Any, ...]:
    document = uptime_document(uptime)
    names = ("uptime_share", "goodput_share", "hours", "down_hours", "interruptions", "interruptions_per_day")
    return *(document[name] for name in names), document["lost_gpu_hours"], document["gpu_hours"]
