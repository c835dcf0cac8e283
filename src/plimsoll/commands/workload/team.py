"""`plimsoll workload usage|hold|holds|release`: inside a team, who uses what, and what it keeps for whom."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.options import AsOf, Db, DryRun, Format, Reason, answer_state, current_actor, open_database
from plimsoll.commands.output import show
from plimsoll.commands.quota.request import moment_ahead, whole_number
from plimsoll.commands.quota.words import moment_of
from plimsoll.commands.workload.app import app
from plimsoll.errors import UsageError
from plimsoll.quota.names import check_team
from plimsoll.state.state import State
from plimsoll.times import show_time, utc_now
from plimsoll.words import counted
from plimsoll.workloads.desk import hold_quota, release_quota
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.model import TeamHold
from plimsoll.workloads.service import take_turn
from plimsoll.workloads.view import PoolUse, Use, team_use

Team = Annotated[str, typer.Argument(metavar="TEAM", help="As the quota book writes it.")]


@app.command("usage")
def usage_command(
    context: typer.Context, team: Team, db: Db = "", output: Format = Output.TABLE, as_of: AsOf = ""
) -> None:
    """Inside a team: what of its quota is used, by whom, as what, and what it keeps for whom."""

    def answer(state: State) -> Answer:
        check_team(state, team)
        pools, uses, holds = team_use(state, team, now=moment_of(state, as_of))
        tables = [
            Table(PoolUse.__struct_fields__, [msgspec.structs.astuple(each) for each in pools], "quota", "pools"),
            Table(Use.__struct_fields__, [msgspec.structs.astuple(each) for each in uses], "who uses it", "uses"),
        ]
        if holds:
            tables.append(_holds_table(holds, "kept for somebody"))
        left = sum(each.left for each in pools)
        flex = sum(each.flex for each in pools)
        used = sum(each.inside for each in pools) + flex
        heading = f"{team} uses {used:,} GPUs, {flex:,} of them flex; {left:,} guaranteed are left"
        document = {
            "revision": state.revision,
            "team": team,
            "pools": msgspec.to_builtins(pools),
            "uses": msgspec.to_builtins(uses),
            "holds": msgspec.to_builtins(holds),
        }
        return Answer(document, tables, heading)

    answer_state(context, db, as_of, output, watch=False, answer=answer)


def _holds_table(holds: list[TeamHold], title: str = "") -> Table:
    columns = ("hold", "team", "cluster", "sku", "gpus", "kept_for", "until", "by", "reason")
    rows = [
        (each.id, each.team, each.cluster, each.sku, each.gpus, each.keeper, each.until.replace(microsecond=0),
         each.by, each.reason)
        for each in holds
    ]  # fmt: skip
    return Table(columns, rows, title)


@app.command("hold")
def hold_command(
    context: typer.Context,
    team: Team,
    gpus: Annotated[str, typer.Argument(metavar="GPUS", help="How many GPUs of the team's guarantee.")],
    cluster: Annotated[str, typer.Option("--cluster", metavar="NAME", help="In which cluster.")],
    sku: Annotated[str, typer.Option("--sku", metavar="SKU", help="Of which SKU.")],
    keeper_name: Annotated[
        str, typer.Option("--for", metavar="WHO", help="The owner of work, or the name of a workload, it is kept for.")
    ],
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="Until when: 7d from now, or a date.")],
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Keep part of a team's quota for a person or a run, so that a teammate doesn't take it by accident.

    Others of the team may use it meanwhile, but only as flex.
    """
    now = utc_now()
    count, end = whole_number(gpus), moment_ahead(until, now=now)
    if not keeper_name.strip():
        raise UsageError("bad_usage", "--for is empty", next_step="--for PERSON or --for WORKLOAD")
    if end is None:
        raise UsageError("bad_usage", "--until is empty", next_step="--until 7d, or a date")
    keeper = open_database(context, db)
    hold, events = take_turn(
        keeper,
        lambda turn, _grace: hold_quota(
            turn,
            team=team,
            cluster=cluster,
            sku=sku,
            gpus=count,
            keeper=keeper_name,
            until=end,
            by=current_actor(),
            reason=reason,
        ),
        actor=current_actor(),
        reason=reason,
        is_dry_run=dry_run,
    )
    would = "would keep" if dry_run else "keeps"
    until_text = show_time(hold.until.replace(microsecond=0))
    heading = f"{team} {would} {hold.gpus:,} {sku} of {cluster} for {keeper_name} until {until_text}"
    revision = events[-1].revision if events else keeper.state().revision
    document = {"dry_run": dry_run, "revision": revision, "hold": msgspec.to_builtins(hold)}
    notes = [] if dry_run else [f"to end it sooner: plimsoll workload release {hold.id}"]
    show(Answer(document, [], heading, notes), output)


@app.command("holds")
def holds_command(context: typer.Context, db: Db = "", output: Format = Output.TABLE, as_of: AsOf = "") -> None:
    """What teams keep of their quota, for whom, and until when."""

    def answer(state: State) -> Answer:
        holds = sorted(state.of(Workloads).holds.values(), key=lambda each: (each.team, each.until, each.id))
        heading = f"{counted(len(holds), 'hold')} on teams' quota"
        return Answer({"revision": state.revision, "holds": msgspec.to_builtins(holds)}, [_holds_table(holds)], heading)

    answer_state(context, db, as_of, output, watch=False, answer=answer)


@app.command("release")
def release_command(
    context: typer.Context,
    hold: Annotated[str, typer.Argument(metavar="HOLD", help="Its id, as `workload holds` shows it.")],
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """End a hold on a team's quota before its time."""
    keeper = open_database(context, db)
    ended, events = take_turn(
        keeper,
        lambda turn, grace: release_quota(turn, hold, grace=grace),
        actor=current_actor(),
        reason=reason,
        is_dry_run=dry_run,
    )
    would = "would be" if dry_run else "are"
    heading = f"{ended.gpus:,} {ended.sku} of {ended.cluster} {would} no longer kept for {ended.keeper} of {ended.team}"
    revision = events[-1].revision if events else keeper.state().revision
    document = {"dry_run": dry_run, "revision": revision, "hold": msgspec.to_builtins(ended)}
    show(Answer(document, [], heading), output)
