"""`plimsoll quota transfer|grants|end-grant|settle|rename`: quota that moves between teams, for good or for a while."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.options import AsOf, Db, DryRun, Format, Reason, answer_state, current_actor, open_database
from plimsoll.commands.output import show
from plimsoll.commands.quota.app import app
from plimsoll.commands.quota.request import For, NewTeam, revision_of, span_ahead, whole_number
from plimsoll.commands.quota.request_text import due_counts, due_document, due_notes, full_row
from plimsoll.commands.quota.words import moment_of
from plimsoll.fleet.model import PoolKey
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.requests.clerk import carry_out, settle_now
from plimsoll.quota.requests.desk import Due
from plimsoll.quota.requests.moves import Ended, Renamed, Transferred, end_grant, rename_team, transfer
from plimsoll.state.state import State
from plimsoll.times import show_time

Team = Annotated[str, typer.Argument(metavar="TEAM")]
Cluster = Annotated[str, typer.Option("--cluster", metavar="NAME", help="In which cluster.")]
Sku = Annotated[str, typer.Option("--sku", metavar="SKU", help="Of which SKU.")]


@app.command("transfer")
def transfer_command(
    context: typer.Context,
    giver: Annotated[str, typer.Argument(metavar="GIVER", help="The team that gives.")],
    taker: Annotated[str, typer.Argument(metavar="TAKER", help="The team that gets it.")],
    gpus: Annotated[str, typer.Argument(metavar="GPUS", help="How many GPUs, in whole nodes.")],
    cluster: Cluster,
    sku: Sku,
    lasts: For = "",
    new_team: NewTeam = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Give quota from one team to another, assigned and guaranteed alike; nobody can take it in between.

    At most what the giver is guaranteed. With --for it goes back by itself.
    """
    count, span = whole_number(gpus), span_ahead(lasts)
    keeper = open_database(context, db)
    outcome, due, events = carry_out(
        keeper,
        lambda state, now: transfer(
            state,
            giver=giver,
            taker=taker,
            cluster=cluster,
            sku=sku,
            gpus=count,
            until=None if span is None else now + span,
            is_new_taker=new_team,
            now=now,
        ),
        actor=current_actor(),
        reason=reason,
        teams=[giver, taker],
        reads=[PoolKey(cluster, sku).stream],
        is_dry_run=dry_run,
    )
    show(_transferred(outcome, due, revision_of(keeper, events), is_dry_run=dry_run), output)


def _transferred(outcome: Transferred, due: Due, revision: int, *, is_dry_run: bool) -> Answer:
    would = "would give" if is_dry_run else "gave"
    until = f" until {show_time(outcome.until.replace(microsecond=0))}" if outcome.until else ""
    what = f"{outcome.gpus:,} {outcome.sku} of {outcome.cluster}"
    heading = f"{outcome.giver.team} {would} {what} to {outcome.taker.team}{until}"
    columns = ("team", "assigned_was", "assigned", "guaranteed_was", "guaranteed")
    rows = [msgspec.structs.astuple(each) for each in (outcome.giver, outcome.taker)]
    notes = [*due_notes(due, is_dry_run=is_dry_run), *outcome.notes]
    if outcome.grant and not is_dry_run:
        notes.append(f"it goes back by itself: grant {outcome.grant}")
    document = {
        "dry_run": is_dry_run,
        "revision": revision,
        **msgspec.to_builtins(outcome),
        "due": due_document(due),
    }
    return Answer(document, [Table(columns, rows)], heading, notes)


@app.command("grants")
def grants_command(context: typer.Context, db: Db = "", output: Format = Output.TABLE, as_of: AsOf = "") -> None:
    """Quota that goes back by itself: to whom, and when."""

    def answer(state: State) -> Answer:
        now = moment_of(state, as_of)
        grants = sorted(state.of(QuotaBook).grants.values(), key=lambda grant: (grant.until, grant.id))
        columns = ("grant", "team", "cluster", "sku", "gpus", "goes_back_to", "until", "is_due")
        rows = [
            (each.id, each.team, each.cluster, each.sku, each.gpus, each.giver or "flex",
             each.until.replace(microsecond=0), each.until <= now)
            for each in grants
        ]  # fmt: skip
        due = sum(each.until <= now for each in grants)
        notes = [f"{due} are due: plimsoll quota settle"] if due else []
        document = {"revision": state.revision, "grants": [full_row(each) for each in grants]}
        return Answer(document, [Table(columns, rows)], "", notes)

    answer_state(context, db, as_of, output, watch=False, answer=answer)


@app.command("end-grant")
def end_grant_command(
    context: typer.Context,
    grant_id: Annotated[str, typer.Argument(metavar="GRANT", help="Its id, as `quota grants` shows it.")],
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Send temporary quota back before its time."""
    keeper = open_database(context, db)
    outcome, due, events = carry_out(
        keeper,
        lambda state, _now: end_grant(state, grant_id),
        actor=current_actor(),
        reason=reason,
        is_dry_run=dry_run,
    )
    revision = revision_of(keeper, events)
    show(_ended_answer([outcome], due, revision, is_dry_run=dry_run), output)


@app.command("settle")
def settle_command(context: typer.Context, db: Db = "", output: Format = Output.TABLE, dry_run: DryRun = False) -> None:
    """Let time do its work: temporary quota goes back, approved requests begin, unanswered ones expire."""
    keeper = open_database(context, db)
    due, events = settle_now(keeper, actor=current_actor(), is_dry_run=dry_run)
    show(_ended_answer([], due, revision_of(keeper, events), is_dry_run=dry_run), output)


def _ended_answer(ended: Sequence[Ended], due: Due, revision: int, *, is_dry_run: bool) -> Answer:
    all_of_it = msgspec.structs.replace(due, ended=[*due.ended, *ended])
    notes = due_notes(all_of_it, is_dry_run=is_dry_run) or ["nothing is due"]
    document = {"dry_run": is_dry_run, "revision": revision, "due": due_document(all_of_it)}
    return Answer(document, [], due_counts(all_of_it, is_dry_run=is_dry_run), notes)


@app.command("rename")
def rename_command(
    context: typer.Context,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The team's name now.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its name from now on.")],
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Give a team another name. Quota, guarantees, running work, grants, requests and its past go with it."""
    keeper = open_database(context, db)
    outcome, due, events = carry_out(
        keeper,
        lambda state, _now: rename_team(state, old, new),
        actor=current_actor(),
        reason=reason,
        teams=[old, new],
        is_dry_run=dry_run,
    )
    show(_renamed(outcome, due, revision_of(keeper, events), is_dry_run=dry_run), output)


def _renamed(outcome: Renamed, due: Due, revision: int, *, is_dry_run: bool) -> Answer:
    would = "would be" if is_dry_run else "is now"
    heading = (
        f"{outcome.team} {would} {outcome.name}: {outcome.assigned:,} GPUs assigned and {outcome.guaranteed:,}"
        f" guaranteed in {outcome.pools} pools"
    )
    fields = msgspec.to_builtins(outcome)
    document = {"dry_run": is_dry_run, "revision": revision, **fields, "due": due_document(due)}
    later = "quotas.csv and schedulers know the old name until they are changed"
    notes = [*due_notes(due, is_dry_run=is_dry_run), *outcome.notes, later]
    return Answer(document, [], heading, notes)
