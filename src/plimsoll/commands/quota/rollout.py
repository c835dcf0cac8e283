"""`plimsoll quota rollout|notices|agree|object`: the correction in four stages, and what teams say to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Annotated

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.options import (
    AsOf,
    Db,
    DryRun,
    Format,
    Reason,
    answer_state,
    changing_the_past,
    current_actor,
    open_database,
    parse_span,
    state_as_of,
)
from plimsoll.commands.output import progress, show
from plimsoll.commands.quota.app import app
from plimsoll.commands.quota.words import PolicyWord, moment_of, policy_meant, whole_seconds, words_again
from plimsoll.commands.written import DRY_RUN, notes_after, state_after, written
from plimsoll.errors import UsageError
from plimsoll.ledger.model import Event
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Answer as Said
from plimsoll.quota.model import Notice
from plimsoll.quota.plan import Plan, make_plan
from plimsoll.quota.rollout import Stage, notice_text, roll_out
from plimsoll.quota.service import answer_notices, give_notices
from plimsoll.state.state import State
from plimsoll.words import counted

NAMES_SHOWN = 6
NOTICES_SHOWN = 40
LEAD = timedelta(days=7)
GAP_MAX = timedelta(days=366)
START_MAX = timedelta(days=10 * 366)

TeamName = Annotated[str, typer.Argument(metavar="TEAM", help="Which team answers.")]
OneCluster = Annotated[str, typer.Option("--cluster", metavar="CLUSTER", help="Only there.", show_default=False)]
OneSku = Annotated[str, typer.Option("--sku", metavar="SKU", help="Only this SKU.", show_default=False)]


@app.command("rollout")
def rollout_command(
    context: typer.Context,
    policy: PolicyWord = "",
    start: Annotated[
        str, typer.Option("--start", metavar="DATE", help="The day of stage 1; a week ahead if not given.")
    ] = "",
    every: Annotated[str, typer.Option("--every", metavar="SPAN", help="Between stages, in days.")] = "7d",
    announce: Annotated[
        bool, typer.Option("--announce", help="Give every team that loses something its notice.")
    ] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    dry_run: DryRun = False,
) -> None:
    """The correction in four stages, painless first, with a date, clusters, teams and GPUs for each."""
    if as_of and announce:
        raise changing_the_past("--announce")
    gap = parse_span(every)
    if gap is None or gap < timedelta(days=1) or gap % timedelta(days=1):
        raise UsageError(
            "bad_span", f"--every {every[:40]!r} is no number of days", next_step="plimsoll quota rollout --every 7d"
        )
    with progress("planning"):
        keeper = open_database(context, db)
        state = state_as_of(keeper, as_of)
        today = moment_of(state, as_of).date()
        first = _start(start, today)
        if gap > GAP_MAX or first > today + START_MAX:
            raise UsageError(
                "bad_date",
                f"stages lie at most {GAP_MAX.days} days apart, and the first at most {START_MAX.days} days ahead",
                next_step=f"plimsoll quota rollout --start {today + LEAD} --every 7d",
            )

        def make(state: State) -> Plan:
            return make_plan(state, policy_meant(state, policy), now=moment_of(state, as_of))

        plan = make(state)
        notices: list[Notice] = []
        events: list[Event] = []
        if announce:
            notices, events = give_notices(
                keeper, make, start=first, every=gap, actor=current_actor(), reason=reason, is_dry_run=dry_run
            )
    stages = roll_out(plan, start=first, every=gap)
    again = f"--policy {words_again(policy)} " if policy else ""
    are = "would be" if dry_run else "is" if len(notices) == 1 else "are"
    open_now = f"{counted(len(notices), 'notice')} {are} open"
    # By another policy than the one in force the reasons in a notice are told with that policy's numbers.
    notes = [f"{open_now}; next: plimsoll quota notices {again}".rstrip()] if announce else []
    if not any(each.is_change for each in plan.pools):
        notes.append("all of it is in force already: nothing to roll out")
    else:
        notes += [] if announce else [f"next: plimsoll quota rollout {again}--start {first} --announce"]
        notes.append(f"on its day: plimsoll quota apply {again}--stage N")
    document = {"policy": plan.policy, "stages": msgspec.to_builtins(stages), "notices": msgspec.to_builtins(notices)}
    tables = [_stages(stages)]
    if dry_run:
        notes = [open_now, DRY_RUN] if announce else [DRY_RUN]
        tables += [_notices(notices)] if notices else []
    if announce or dry_run:
        document |= written(keeper, events, is_dry_run=dry_run)
    show(Answer(document, tables, f"policy {plan.policy}, in four stages", notes), output)


def _start(text: str, today: date) -> date:
    if not text:
        return today + LEAD
    try:
        day = date.fromisoformat(text)
    except ValueError:
        next_step = f"plimsoll quota rollout --start {today + LEAD}"
        raise UsageError("bad_date", f"--start {text[:40]!r} is not a date", next_step=next_step) from None
    if day < today:
        next_step = f"plimsoll quota rollout --start {today + LEAD}"
        raise UsageError("bad_date", f"--start {day} is past; today is {today}", next_step=next_step)
    return day


def _stages(stages: Sequence[Stage]) -> Table:
    columns = (
        "stage", "on", "pools", "clusters", "teams", "unscheduled", "idle", "running", "never_backed", "standing_flex",
        "what_it_takes",
    )  # fmt: skip
    rows = [
        (
            stage.stage, str(stage.day), stage.pools, len(stage.clusters), len(stage.teams), stage.haircut.unscheduled,
            stage.haircut.idle, stage.haircut.running, stage.never_backed, stage.flex_standing, stage.meaning,
        )
        for stage in stages
    ]  # fmt: skip
    return Table(columns, rows)


@app.command("notices")
def notices_command(
    context: typer.Context,
    team: Annotated[str, typer.Argument(metavar="[TEAM]", help="One team: its notices as it reads them.")] = "",
    policy: PolicyWord = "",
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
) -> None:
    """Who was told what, for when, and what they said."""

    def answer(state: State) -> Answer:
        notices = [notice for _, notice in sorted(state.of(QuotaBook).notices.items()) if team in ("", notice.team)]
        document = {"notices": msgspec.to_builtins(notices)}
        if not notices:
            whom = f" for {team}" if team else ""
            return Answer(document, [_notices([])], "", [f"no notice is open{whom}; next: plimsoll quota rollout"])
        plan = make_plan(
            state, policy_meant(state, policy), now=moment_of(state, as_of), pools={each.key.pool for each in notices}
        )
        hulls, lines = {hull.key: hull for hull in plan.hulls}, state.of(QuotaBook).lines
        texts = [notice_text(each, hulls.get(each.key.pool), is_first=each.key.pool not in lines) for each in notices]
        document = {"notices": [row | {"text": text} for row, text in zip(document["notices"], texts, strict=True)]}
        if team:
            return Answer(document, [] if output is Output.TABLE else [_notices(notices)], "\n\n".join(texts))
        notes = [f"next: plimsoll quota notices {notices[0].team}   # what {notices[0].team} reads"]
        return Answer(document, [_notices(notices)], counted(len(notices), "open notice"), notes)

    answer_state(context, db, as_of, output, watch=False, answer=answer)


def _notices(notices: Sequence[Notice]) -> Table:
    columns = (
        "team",
        "cluster",
        "sku",
        "due",
        "was",
        "guaranteed",
        "unscheduled",
        "idle",
        "running",
        "answer",
        "comment",
    )
    rows = [
        (
            each.team, each.cluster, each.sku, whole_seconds(each.due), each.was, each.guaranteed,
            each.haircut.unscheduled, each.haircut.idle, each.haircut.running, str(each.answer), each.comment,
        )
        for each in notices
    ]  # fmt: skip
    return Table(columns, rows)


@app.command("agree")
def agree_command(
    context: typer.Context,
    team: TeamName,
    cluster: OneCluster = "",
    sku: OneSku = "",
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """A team agrees to the notices it was given."""
    _answer(context, db, output, team, Said.AGREED, cluster, sku, reason, is_dry_run=dry_run)


@app.command("object")
def object_command(
    context: typer.Context,
    team: TeamName,
    cluster: OneCluster = "",
    sku: OneSku = "",
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """A team objects, with a reason; what takes its running capacity then waits for a person."""
    _answer(context, db, output, team, Said.OBJECTED, cluster, sku, reason, is_dry_run=dry_run)


def _answer(
    context: typer.Context,
    db: str,
    output: Output,
    team: str,
    said: Said,
    cluster: str,
    sku: str,
    reason: str,
    *,
    is_dry_run: bool,
) -> None:
    if said is Said.OBJECTED and not reason.strip():
        where = [*(["--cluster", cluster] if cluster else []), *(["--sku", sku] if sku else [])]
        next_step = f"plimsoll quota object {words_again(team, *where)} --reason WHY"
        raise UsageError("reason_missing", "an objection needs a reason", next_step=next_step)
    keeper = open_database(context, db)
    drafts, events = answer_notices(
        keeper, team, said, cluster=cluster, sku=sku, comment=reason, actor=current_actor(), is_dry_run=is_dry_run
    )
    book = state_after(keeper, drafts, is_dry_run=is_dry_run).of(QuotaBook)
    notices = [notice for _, notice in sorted(book.notices.items()) if notice.team == team]
    heading = f"{team} {'would have ' if is_dry_run else ''}{said} to {counted(len(drafts), 'notice')}"
    document = {"notices": msgspec.to_builtins(notices), "answered": len(drafts)}
    document |= written(keeper, events, is_dry_run=is_dry_run)
    notes = notes_after(["next: plimsoll quota notices"], is_dry_run=is_dry_run)
    show(Answer(document, [_notices(notices)], heading, notes), output)
