"""`plimsoll quota plan|apply`: what a correction would do, and doing it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.options import AsOf, Db, DryRun, Format, Reason, answer_state, current_actor, open_database
from plimsoll.commands.output import progress, show
from plimsoll.commands.quota.app import app
from plimsoll.commands.quota.effects import Effect, effect_tables, effects_of
from plimsoll.commands.quota.show import nothing_of
from plimsoll.commands.quota.words import (
    Clusters,
    PolicyWord,
    Skus,
    line_warnings,
    moment_of,
    plan_document,
    policy_meant,
    team_sums,
    team_table,
    whole_seconds,
    words_again,
)
from plimsoll.commands.written import DRY_RUN
from plimsoll.errors import Refused, UsageError
from plimsoll.quota.apply import Applied, Held, Wait
from plimsoll.quota.hull import TeamHull
from plimsoll.quota.model import Haircut
from plimsoll.quota.plan import STAGES, Plan, Summary, Trim, make_plan, policy_in_force, summarise
from plimsoll.quota.rollout import MEANING
from plimsoll.quota.service import apply_plan, pools_of
from plimsoll.state.state import State
from plimsoll.times import show_time, utc_now
from plimsoll.words import counted

TEAMS_SHOWN = 25
POOLS_SHOWN = 40

TrimWord = Annotated[
    Trim | None,
    typer.Option("--trim", help="Strike it out of the book as well, in pools that are over.", show_default=False),
]
StageNumber = Annotated[
    int, typer.Option("--stage", min=1, max=4, help="Only pools up to this stage: 1 nobody loses … 4 running work.")
]


@app.command("plan")
def plan_command(
    context: typer.Context,
    clusters: Clusters = None,
    sku: Skus = None,
    policy: PolicyWord = "",
    trim: TrimWord = None,
    stage: StageNumber = 4,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
) -> None:
    """What a correction would make of every pool and team: nothing is changed.

    A team's quota stays as it is where all of them fit under the line. Otherwise what is over goes: unscheduled first,
    then idle, then running, in proportion, in whole nodes.
    """

    def answer(state: State) -> Answer:
        now = moment_of(state, as_of)
        plan = make_plan(
            state,
            policy_meant(state, policy),
            now=now,
            pools=pools_of(state, clusters or [], sku or []),
            trim=trim or Trim.NOTHING,
        )
        answer = _plan_answer(plan, stage, _again(clusters, sku, policy, trim, stage), clusters or [])
        # A file is for counting: every team's quota, not the few that a person reads.
        return _with_all_teams(answer, plan.up_to(stage)) if output is Output.CSV else answer

    answer_state(context, db, as_of, output, watch=False, answer=answer)


def _with_all_teams(answer: Answer, plan: Plan) -> Answer:
    return msgspec.structs.replace(answer, tables=[team_table(plan.teams)])


def _again(
    clusters: Sequence[str] | None, skus: Sequence[str] | None, policy: str, trim: Trim | None, stage: int
) -> str:
    """The words that ask for the same plan again."""
    words = [*(clusters or []), *(word for sku in skus or [] for word in ("--sku", sku))]
    words += ["--policy", policy] if policy else []
    words += ["--trim", str(trim)] if trim else []
    words += ["--stage", str(stage)] if stage < max(STAGES) else []
    return words_again(*words)


def _plan_answer(whole: Plan, stage: int, again: str, clusters: Sequence[str]) -> Answer:
    plan = whole.up_to(stage)
    hulls, summary = plan.hulls, summarise(plan.hulls)
    document = plan_document(hulls, summary, as_of=plan.as_of, policy=plan.policy)
    cut = sorted((team for team in plan.teams if team.haircut.gpus), key=lambda t: (-t.stage, -t.haircut.gpus, t.key))
    over = sorted((hull for hull in hulls if hull.over), key=lambda hull: (-hull.over, hull.key))
    pool_columns = (
        "cluster", "sku", "total", "healthy", "line", "assigned", "guaranteed", "over", "never_backed", "to_flex",
        "flex_standing", "stage",
    )  # fmt: skip
    pool_rows = [[getattr(hull, column) for column in pool_columns] for hull in over]
    notes = [_left_out(len(whole.pools) - len(hulls))] if len(whole.pools) > len(hulls) else []
    if len(over) > POOLS_SHOWN or len(cut) > TEAMS_SHOWN:
        notes.append(f"… {len(over):,} pools are over and {len(cut):,} quotas are cut in all: -o json lists them")
    words = " ".join(word for word in (again, f"--planned-at {plan.revision}") if word)
    if plan.pools and not any(each.is_change for each in plan.pools):
        notes.append("all of it is in force already: nothing to apply")
    elif plan.pools:
        notes.append(f"next: plimsoll quota apply {words}   # as of {show_time(plan.as_of)}")
    tables = [
        _stage_table(summary),
        Table(pool_columns, pool_rows, "pools over the line (GPUs)", "pools", POOLS_SHOWN),
        _loss_table(plan.teams),
        team_table(cut, "whose quota is cut, and of what (GPUs)", TEAMS_SHOWN),
    ]
    if not whole.pools:
        notes.append(nothing_of(clusters))
    notes += line_warnings({each.key: each.line for each in plan.pools})
    return Answer(document, tables, _headline(plan, summary), notes)


def _left_out(count: int) -> str:
    return f"{counted(count, 'pool')} of a later stage left out"


def _headline(plan: Plan, summary: Summary) -> str:
    if not summary.pools:
        return f"policy {plan.policy}: there is no pool to plan for"
    if not summary.over:
        return (
            f"policy {plan.policy}: all {summary.assigned:,} GPUs of quota fit under the lines; nobody loses anything"
        )
    haircut, clusters = summary.haircut, counted(summary.clusters_over, "cluster")
    return (
        f"policy {plan.policy}: {summary.assigned:,} GPUs are assigned, {summary.healthy:,} work, {summary.line:,} may"
        f" be promised\n{summary.over:,} are over in {clusters}: {summary.never_backed:,} were"
        f" never there, {summary.to_flex:,} go to flex\nthe cut: {haircut.unscheduled:,} unscheduled,"
        f" {haircut.idle:,} idle, {haircut.running:,} running, of {counted(summary.teams_touched, 'team')};"
        f" standing flex {summary.flex_standing:,}"
    )


def _loss_table(teams: Sequence[TeamHull]) -> Table:
    """What it takes from each team, over all pools: who loses most stands first; who loses nothing is in the file."""
    columns: dict[str, Callable[[TeamHull], int]] = {
        "cut": lambda team: team.haircut.gpus,
        "unscheduled": lambda team: team.haircut.unscheduled,
        "idle": lambda team: team.haircut.idle,
        "running": lambda team: team.haircut.running,
        "assigned": lambda team: team.assigned,
        "guaranteed": lambda team: team.guaranteed,
        "allocated": lambda team: team.allocated,
    }
    cut = [team for team in teams if team.haircut.gpus]
    where = {team.team: 0 for team in teams} | {row[0]: row[1] for row in team_sums(cut, columns, by="cut")}
    stages: dict[str, int] = {}
    for team in cut:
        stages[team.team] = max(stages.get(team.team, 1), team.stage)
    rows = [
        (row[0], *row[2:], where[str(row[0])], stages.get(str(row[0]), 1))
        for row in team_sums(teams, columns, by="cut")
    ]
    shown = min(len(stages), TEAMS_SHOWN)
    names = ("team", *columns, "clusters_cut", "stage")
    return Table(names, rows, "what it takes from each team (GPUs)", "teams", shown)


def _stage_table(summary: Summary) -> Table:
    rows = [(stage, summary.stages[str(stage)], MEANING[stage]) for stage in STAGES]
    return Table(("stage", "pools", "what_it_takes"), rows, name="stages")


@app.command("apply")
def apply_command(
    context: typer.Context,
    clusters: Clusters = None,
    sku: Skus = None,
    policy: PolicyWord = "",
    trim: TrimWord = None,
    stage: StageNumber = 4,
    planned_at: Annotated[
        int | None,
        typer.Option("--planned-at", metavar="REVISION", help="Refuse if a pool changed since.", show_default=False),
    ] = None,
    without_notice: Annotated[
        bool, typer.Option("--without-notice", help="Take running capacity at once; needs --reason.")
    ] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Make a plan's guarantees the ones in force. What takes running capacity that was guaranteed waits for notice."""
    again = " ".join(word for word in ("plimsoll quota apply", _again(clusters, sku, policy, trim, stage)) if word)
    if without_notice and not reason.strip():
        next_step = f"{again} --without-notice --reason WHY"
        raise UsageError("reason_missing", "--without-notice needs a reason", next_step=next_step)
    with progress("planning"):
        keeper = open_database(context, db)
        if planned_at is not None and not 0 <= planned_at <= keeper.state().revision:
            raise UsageError(
                "no_such_revision",
                f"the ledger ends at revision {keeper.state().revision}; there is no revision {planned_at}",
                next_step="plimsoll quota plan",
            )

        later: list[int] = []

        def make(state: State) -> Plan:
            pools = pools_of(state, clusters or [], sku or [])
            meant = policy_meant(state, policy)
            whole = make_plan(state, meant, now=utc_now(), pools=pools, trim=trim or Trim.NOTHING)
            later[:] = [sum(each.hull.stage > stage for each in whole.pools)]
            return whole.up_to(stage)

        applied, events = apply_plan(
            keeper,
            make,
            actor=current_actor(),
            reason=reason,
            planned_at=planned_at,
            needs_notice=not without_notice,
            is_dry_run=dry_run,
        )
    revision = events[-1].revision if events else keeper.state().revision
    in_force = policy_in_force(keeper.state()).name
    answer = _applied_answer(applied, revision, later[0], in_force=in_force, is_dry_run=dry_run)
    if output is Output.CSV:
        changed = [team for each in applied.changed for team in each.hull.teams]
        answer = msgspec.structs.replace(answer, tables=[team_table(changed)])
    show(answer, output)
    if applied.held and not applied.changed and not dry_run:
        raise _all_wait(applied, again)


def _applied_answer(applied: Applied, revision: int, later: int, *, in_force: str, is_dry_run: bool) -> Answer:
    hulls, effects = [each.hull for each in applied.changed], effects_of(applied.changed)
    summary = summarise(hulls)
    document = plan_document(
        hulls,
        summary,
        as_of=applied.plan.as_of,
        policy=applied.plan.policy,
        revision=revision,
        dry_run=is_dry_run,
        held=[_held_row(held) for held in applied.held],
        effects=msgspec.to_builtins(effects),
        is_change=bool(applied.drafts),
    )
    verb = "would be" if is_dry_run else "are"
    heading = f"policy {applied.plan.policy}: nothing {'can be changed yet' if applied.held else 'to change'}"
    if applied.changed:
        heading = (
            f"policy {applied.plan.policy}: {summary.guaranteed:,} GPUs {verb} guaranteed in"
            f" {counted(len(hulls), 'pool')}, under lines of {summary.line:,}; standing flex {summary.flex_standing:,}"
        )
        heading += _taken(applied, summary, effects)
    tables = effect_tables(effects, TEAMS_SHOWN)
    if applied.held:
        rows = [(*held.key, str(held.wait), ", ".join(held.teams), whole_seconds(held.until)) for held in applied.held]
        tables.append(Table(("cluster", "sku", "waits", "teams", "until"), rows, "pools that wait"))
    notes = [DRY_RUN if is_dry_run else f"revision {revision}; next: plimsoll quota show"]
    if any(held.wait is Wait.NOTICE_GIVEN for held in applied.held) and not is_dry_run:
        notes.insert(0, "notices were given; next: plimsoll quota notices")
    if len(effects) > TEAMS_SHOWN:
        notes.insert(0, f"… {len(effects):,} quotas change in all: -o json lists them")
    if later:
        notes.insert(0, _left_out(later))
    if applied.changed and applied.plan.policy != in_force:
        notes.insert(0, f"the policy in force stays {in_force}: quota show, and the controller, go by that one")
    return Answer(document, tables, heading, notes)


def _taken(applied: Applied, summary: Summary, effects: Sequence[Effect]) -> str:
    """What an application leaves outside the guarantees, and what it strikes out of the book."""
    text, cut = "", Haircut.total(each.haircut for each in effects)
    if cut.gpus:
        touched = len({each.team for each in effects if each.haircut.gpus})
        text += (
            f"\nnot guaranteed of what {counted(touched, 'team')} held: {cut.unscheduled:,} unscheduled,"
            f" {cut.idle:,} idle, {cut.running:,} running"
        )
    if summary.flex_used:
        text += f"\n{summary.flex_used:,} GPUs of running work go on as flex: they may be called back"
    struck = sum(each.before.assigned - each.hull.assigned for each in applied.changed)
    return text + (f"\n{struck:,} GPUs are struck out of the book" if struck else "")


def _held_row(held: Held) -> dict[str, object]:
    return {"cluster": held.key.cluster, "sku": held.key.sku} | {
        "waits": str(held.wait),
        "teams": list(held.teams),
        "until": show_time(held.until),
    }


_WAITS = {
    Wait.ANNOUNCED: ": the day that was told is {until}",
    Wait.NOTICE_GIVEN: ": told now, for {until}",
    Wait.NEEDS_AGREEMENT: " to agree",
}


def _all_wait(applied: Applied, again: str) -> Refused:
    first, count = applied.held[0], len(applied.held)
    why = ", ".join(first.teams) + _WAITS[first.wait].format(until=show_time(whole_seconds(first.until)))
    pools = "1 pool waits" if count == 1 else f"{count:,} pools wait"
    return Refused(
        str(first.wait),
        f"nothing was applied: {pools}, such as {first.key.cluster} {first.key.sku} for {why}",
        next_step=f"plimsoll quota notices; or {again} --without-notice --reason WHY",
        held=msgspec.to_builtins([_held_row(held) for held in applied.held]),
    )
