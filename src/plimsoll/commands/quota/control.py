"""`plimsoll quota control|mode|policy`: the controller, what it may do where, and the policy it follows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.options import (
    AsOf,
    Db,
    DryRun,
    Format,
    Reason,
    changing_the_past,
    current_actor,
    open_database,
    parse_span,
    read_text,
    state_as_of,
)
from plimsoll.commands.output import show
from plimsoll.commands.quota.app import app
from plimsoll.commands.quota.tell import Told, tell
from plimsoll.commands.quota.ways import Target
from plimsoll.commands.quota.words import Clusters, words_again
from plimsoll.commands.written import DRY_RUN, notes_after, state_after, written
from plimsoll.errors import NotFound, Stale, Unavailable, UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.ledger.model import Event
from plimsoll.quota.control import ACTING, Step, Verdict, modes
from plimsoll.quota.fold import POLICY, QuotaBook
from plimsoll.quota.model import Mode
from plimsoll.quota.names import check_cluster
from plimsoll.quota.policy import DEFAULT_TEXT, Policy, check_policy, parse_policy
from plimsoll.quota.service import put_policy_in_force, run_controller, set_mode
from plimsoll.state.state import State
from plimsoll.words import counted

EVERY_SECONDS_MIN = 1.0

policy_app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Where the lines are: show the policy, check a file, put it in force.",
)
app.add_typer(policy_app, name="policy")

File = Annotated[Path, typer.Argument(metavar="FILE", help="A policy file; begin with a copy of the one in force.")]


@app.command("control")
def control_command(
    context: typer.Context,
    clusters: Clusters = None,
    every: Annotated[
        str, typer.Option("--every", metavar="SPAN", help="Again and again, such as 5m.", show_default=False)
    ] = "",
    show_all: Annotated[bool, typer.Option("--all", help="Also the pools with nothing to do.")] = False,
    push_to: Annotated[
        Target | None,
        typer.Option(
            "--push",
            help="Then tell the scheduler of each cluster in mode enforce, by the settings PLIMSOLL_….",
            show_default=False,
        ),
    ] = None,
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """One round of the controller: what every pool needs now; done where the cluster's mode is `enforce`.

    Small moves of health move nothing, a pool changes at most once a week unless its promise is breaking, and running
    capacity is taken only after notice and with its owner's agreement.
    """
    span = parse_span(every) if every else None
    if every and (span is None or span.total_seconds() < EVERY_SECONDS_MIN):
        message = f"--every {every[:40]!r} is no length of time of at least {EVERY_SECONDS_MIN:g} s"
        raise UsageError("bad_span", message, next_step="plimsoll quota control --every 5m")
    keeper = open_database(context, db)
    for cluster in clusters or []:
        check_cluster(keeper.state(), cluster)
    told: list[Told] = []
    while True:
        try:
            steps, events = run_controller(keeper, actor=current_actor(), clusters=clusters or [], is_dry_run=dry_run)
            told = tell(keeper, push_to, clusters or [], is_dry_run=dry_run) if push_to else []
            show(_control_answer(keeper.state(), steps, events, told, show_all=show_all, is_dry_run=dry_run), output)
        except (Stale, Unavailable) as error:
            if span is None:
                raise
            typer.echo(f"plimsoll: {error.message}; the next round is in {every}", err=True)
        if span is None:
            if any(each.problem for each in told):
                raise typer.Exit(1)
            return
        time.sleep(span.total_seconds())


def _control_answer(
    state: State, steps: list[Step], events: list[Event], told: Sequence[Told], *, show_all: bool, is_dry_run: bool
) -> Answer:
    mode = modes(state)
    rows, documents = [], []
    for step in steps:
        of = mode.get(step.key.cluster, Mode.OBSERVE)
        is_done = step.verdict in ACTING and of is Mode.ENFORCE and bool(step.drafts) and not is_dry_run
        after = sum(step.guaranteed.values())
        documents.append(
            {
                "cluster": step.key.cluster,
                "sku": step.key.sku,
                "mode": of,
                "verdict": step.verdict,
                "why": step.why,
                "done": is_done,
                "line": step.line,
                "healthy": step.healthy,
                "guaranteed": step.promised,
                "guaranteed_after": after,
                "shortfall": max(0, step.promised - step.healthy),
            }
        )
        if show_all or step.verdict not in (Verdict.STEADY, Verdict.NOT_ALIGNED):
            rows.append((*step.key, str(of), str(step.verdict), is_done, step.promised, after, step.why))
    acting = [step for step in steps if step.verdict in ACTING and step.drafts]
    new = sum(step.verdict is Verdict.NOT_ALIGNED for step in steps)
    notes = [f"{new:,} of {counted(len(steps), 'pool')} never aligned; next: plimsoll quota plan"] if new else []
    waiting = [step for step in acting if mode.get(step.key.cluster, Mode.OBSERVE) is not Mode.ENFORCE]
    if waiting:
        notes.append(
            f"in {counted(len(waiting), 'pool')} the controller may not act; next: plimsoll quota mode"
            f" {waiting[0].key.cluster} enforce"
        )
    done = f"{counted(len(events), 'event')} written" if events else "nothing was changed"
    notes.append(DRY_RUN if is_dry_run else done)
    columns = ("cluster", "sku", "mode", "verdict", "done", "guaranteed", "after", "why")
    heading = f"{counted(len(steps), 'pool')}: {len(acting):,} to change, {len(rows):,} shown"
    tables = [Table(columns, rows)]
    if told:
        shown = [(each.cluster, each.outlet, each.changed, each.drifted, each.problem) for each in told]
        tables.append(Table(("cluster", "outlet", "changed", "drifted", "problem"), shown, "schedulers"))
    document = {
        "pools": documents,
        "events": len(events),
        "dry_run": is_dry_run,
        "told": [msgspec.to_builtins(each) for each in told],
    }
    return Answer(document, tables, heading, notes)


@app.command("mode")
def mode_command(
    context: typer.Context,
    cluster: Annotated[str, typer.Argument(metavar="[CLUSTER]", help="Which cluster.", show_default=False)] = "",
    mode: Annotated[Mode | None, typer.Argument(help="What the controller may do there.", show_default=False)] = None,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    dry_run: DryRun = False,
) -> None:
    """What the controller may do in a cluster by itself: observe (the default), propose or enforce."""
    if as_of and mode is not None:
        raise changing_the_past("a mode to set")
    keeper = open_database(context, db)
    events: list[Event] = []
    state = state_as_of(keeper, as_of)
    if cluster:
        check_cluster(state, cluster)
    if mode is not None:
        drafts, events = set_mode(keeper, cluster, mode, actor=current_actor(), reason=reason, is_dry_run=dry_run)
        state = state_after(keeper, drafts, is_dry_run=dry_run)
    found = {name: of for name, of in sorted(modes(state).items()) if cluster in ("", name)}
    rows = [(name, str(of)) for name, of in found.items() if cluster or of is not Mode.OBSERVE]
    others = len(found) - len(rows)
    notes = [f"{counted(others, 'cluster')} in mode observe"] if others else []
    if mode is Mode.ENFORCE:
        notes.append(f"is it ready? plimsoll quota pilot {cluster}")
        notes.append(f"next: plimsoll quota control {cluster} --dry-run")
    document: dict[str, Any] = {"modes": [{"cluster": name, "mode": of} for name, of in found.items()]}
    if mode is not None or dry_run:
        document |= written(keeper, events, is_dry_run=dry_run)
        notes = notes_after(notes, is_dry_run=dry_run)
    heading = f"{cluster} would be in mode {mode}" if dry_run and mode is not None else ""
    show(Answer(document, [Table(("cluster", "mode"), rows)], heading, notes), output)


@policy_app.command("show")
def policy_show_command(context: typer.Context, db: Db = "", output: Format = Output.TABLE, as_of: AsOf = "") -> None:
    """Print the policy in force, as a file to copy and change."""
    try:
        text = state_as_of(open_database(context, db), as_of).of(QuotaBook).policies.get(POLICY)
    except NotFound:
        text = None  # no database yet: the default would be in force
    policy = parse_policy(text or DEFAULT_TEXT, source="the policy in force")
    document = {"policy": policy.name, "is_default": text is None, "text": text or DEFAULT_TEXT}
    show(Answer(document, [_rules(policy)] if output is Output.CSV else [], (text or DEFAULT_TEXT).rstrip()), output)


def _rules(policy: Policy) -> Table:
    rows = [(rule.line, rule.word, str(rule.scope), str(rule.starts), str(rule.ends)) for rule in policy.rules]
    return Table(("line", "policy", "scope", "from", "until"), rows)


@policy_app.command("check")
def policy_check_command(context: typer.Context, path: File, db: Db = "", output: Format = Output.TABLE) -> None:
    """Say whether a policy file is good, and if not, where. With a database its names are checked as well."""
    text = read_text(path, noun="quota")
    policy, checked = parse_policy(text, source=str(path)), "with the fleet"
    try:
        policy = check_policy(text, open_database(context, db).state().of(Fleet), source=str(path))
    except NotFound:
        checked = "without a fleet: names were not checked"
    document = {
        "policy": policy.name,
        "rules": len(policy.rules),
        "pins": len(policy.pins),
        "blocks": len(policy.blocks),
    }
    heading = f"{path}: good, checked {checked}"
    notes = [f"next: plimsoll quota plan --policy {words_again(str(path))}"]
    show(Answer(document, [_rules(policy)], heading, notes), output)


@policy_app.command("apply")
def policy_apply_command(
    context: typer.Context,
    path: File,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Put a policy in force from now on. It moves no guarantee by itself: that is `quota apply` or the controller."""
    policy, revision = put_policy_in_force(
        open_database(context, db),
        read_text(path, noun="quota"),
        source=str(path),
        actor=current_actor(),
        reason=reason,
        is_dry_run=dry_run,
    )
    heading = f"{policy.name} would be in force" if dry_run else f"{policy.name} is in force"
    notes = [DRY_RUN] if dry_run else [f"revision {revision}; next: plimsoll quota plan"]
    document = {"policy": policy.name, "dry_run": dry_run, "revision": revision}
    show(Answer(document, [], heading, notes), output)
