"""`plimsoll cluster checkin|retry|waive|pause|resume|retire|migrate`: what people say of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated

import typer

from plimsoll.answers import Answer, Output
from plimsoll.commands.cluster.app import Name, StepName, app
from plimsoll.commands.options import Db, DryRun, Format, Reason, current_actor, open_database
from plimsoll.commands.output import show
from plimsoll.commands.written import DRY_RUN
from plimsoll.ledger.model import Draft
from plimsoll.lifecycle import desk
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import Life
from plimsoll.lifecycle.phases import phase_of
from plimsoll.lifecycle.recipe import Recipe
from plimsoll.lifecycle.service import say
from plimsoll.lifecycle.view import sentence
from plimsoll.state.state import State

Decide = Callable[[State, Life, Recipe], tuple[str, Sequence[Draft]]]
NEXT = ("next: plimsoll cluster run --every 30s", "      plimsoll cluster show {name}")


def _say(
    context: typer.Context,
    name: str,
    decide: Decide,
    *,
    db: str,
    output: Output,
    reason: str,
    is_dry_run: bool,
    notes: Sequence[str] = NEXT,
) -> None:
    """One act on one cluster: the sentence that the decision gives, and how the cluster is after it."""
    keeper = open_database(context, db)

    def decided(state: State, _now: datetime) -> tuple[str, Sequence[Draft]]:
        life = desk.find_life(state, name)
        return decide(state, life, state.of(Lives).recipe_of(life))

    told, events = say(keeper, decided, actor=current_actor(), reason=reason, is_dry_run=is_dry_run)
    life = desk.find_life(keeper.state(), name)
    document = {
        "cluster": name,
        "phase": str(phase_of(life)),
        "did": told,
        "dry_run": is_dry_run,
        "revision": events[-1].revision if events else keeper.state().revision,
    }
    if is_dry_run:
        show(Answer(document, [], f"{name}: {told}", [DRY_RUN]), output)
        return
    how = [] if events else [sentence(life, keeper.ledger.clock())]  # what is true is told anew by the next pass
    show(Answer(document, [], f"{name}: {told}", [*how, *(note.format(name=name) for note in notes)]), output)


@app.command("checkin")
def checkin_command(
    context: typer.Context,
    name: Name,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Check a cluster in: terraform projects and other clusters learn of it, and its bootstrap may begin.

    It may be said before there is quota: the cluster goes on by itself when there is.
    """

    def decide(_state: State, life: Life, _recipe: Recipe) -> tuple[str, Sequence[Draft]]:
        if life.checked_in is not None:
            return f"checked in already, by {life.checked_in.by}", []
        return "checked in", desk.check_in(life)

    _say(context, name, decide, db=db, output=output, reason=reason, is_dry_run=dry_run)


@app.command("retry")
def retry_command(
    context: typer.Context,
    name: Name,
    step: StepName = "",
    lost: Annotated[bool, typer.Option("--lost", help="You know that its last attempt does not run any more.")] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Try a step again, now: somebody has looked at why it failed."""

    def decide(_state: State, life: Life, recipe: Recipe) -> tuple[str, Sequence[Draft]]:
        found, drafts = desk.retry(life, recipe, step, is_lost=lost)
        return f"{found} is tried again", drafts

    _say(context, name, decide, db=db, output=output, reason=reason, is_dry_run=dry_run)


@app.command("waive")
def waive_command(
    context: typer.Context,
    name: Name,
    step: StepName = "",
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Take a step for done: somebody did it by hand, or it is not needed here. The log says who, and why."""

    def decide(_state: State, life: Life, recipe: Recipe) -> tuple[str, Sequence[Draft]]:
        found, drafts = desk.waive(life, recipe, step)
        return f"{found} is taken for done", drafts

    _say(context, name, decide, db=db, output=output, reason=reason, is_dry_run=dry_run)


@app.command("pause")
def pause_command(
    context: typer.Context,
    name: Name,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Begin nothing new for a cluster, and do not let it into production; what runs goes on."""

    def decide(_state: State, life: Life, _recipe: Recipe) -> tuple[str, Sequence[Draft]]:
        drafts = desk.pause(life)
        already = "" if life.paused is None else f" already, by {life.paused.by}"
        return f"paused{already}", drafts

    notes = ("next: plimsoll cluster resume {name}",)
    _say(context, name, decide, db=db, output=output, reason=reason, is_dry_run=dry_run, notes=notes)


@app.command("resume")
def resume_command(
    context: typer.Context,
    name: Name,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Go on with a cluster."""

    def decide(_state: State, life: Life, _recipe: Recipe) -> tuple[str, Sequence[Draft]]:
        return "going on" if life.paused else "not paused", desk.resume(life)

    _say(context, name, decide, db=db, output=output, reason=reason, is_dry_run=dry_run)


@app.command("retire")
def retire_command(
    context: typer.Context,
    name: Name,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Although teams hold quota there: their promises will be broken.")
    ] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """The way out: nothing new starts in a cluster, its work ends, its steps out are done, and it is retired.

    One of which nothing was begun is simply not wanted any more.
    """

    def decide(state: State, life: Life, _recipe: Recipe) -> tuple[str, Sequence[Draft]]:
        if life.gone_at is not None:
            return "retired already", []
        if life.leaving is not None:
            return f"on its way out already, by {life.leaving.by}", []
        return "on its way out", desk.leave(state, life, is_anyway=anyway)

    _say(context, name, decide, db=db, output=output, reason=reason, is_dry_run=dry_run)


@app.command("migrate")
def migrate_command(
    context: typer.Context,
    name: Name,
    recipe: Annotated[str, typer.Option("--recipe", help="Another recipe; else its own.", show_default=False)] = "",
    version: Annotated[
        int | None, typer.Option("--version", help="Its version; else the newest.", show_default=False)
    ] = None,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Let a cluster go on with another version of its recipe. Steps that are done stay done."""

    def decide(state: State, life: Life, _recipe: Recipe) -> tuple[str, Sequence[Draft]]:
        found, drafts = desk.migrate(state, life, recipe, version)
        return f"made by recipe {found.name} version {found.version}" + ("" if drafts else " already"), drafts

    _say(context, name, decide, db=db, output=output, reason=reason, is_dry_run=dry_run)
