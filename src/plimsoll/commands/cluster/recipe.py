"""`plimsoll cluster recipe list|show|check|apply`: how clusters are made."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.cluster.app import app, say_first
from plimsoll.commands.options import AsOf, Db, DryRun, Format, Reason, Watch, answer_state, open_database
from plimsoll.commands.output import show, show_text
from plimsoll.errors import NotFound, UsageError
from plimsoll.ledger.model import Draft
from plimsoll.lifecycle.desk import apply_recipe, find_recipe
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.machines import BUILT_IN
from plimsoll.lifecycle.recipe import Recipe
from plimsoll.lifecycle.recipe_file import read_recipe
from plimsoll.lifecycle.spec_check import spec_problems
from plimsoll.state.state import State
from plimsoll.words import counted

recipes = typer.Typer(
    rich_markup_mode=None, add_completion=False, no_args_is_help=True, help="How clusters are made: steps as data."
)
app.add_typer(recipes, name="recipe")

SHOWN = 5
RecipeFile = Annotated[Path, typer.Argument(metavar="FILE", help="A recipe (YAML).")]
RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="Its name.")]


def _read(path: Path) -> Recipe:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        next_step = "plimsoll cluster recipe show standard > FILE   # makes one to begin with"
        raise UsageError("unreadable", f"{str(path)[:200]!r}: {why}", next_step=next_step) from None
    return read_recipe(text, source=path.name)


@recipes.command("list")
def list_command(
    context: typer.Context, db: Db = "", output: Format = Output.TABLE, as_of: AsOf = "", watch: Watch = False
) -> None:
    """Every recipe, its versions, and how many clusters are made with each."""

    def answer(state: State) -> Answer:
        lives = state.of(Lives)
        alive = [life for life in lives.lives.values() if life.gone_at is None]
        found = {**{(name, 1): name for name in BUILT_IN}, **{key: key[0] for key in lives.recipes}}
        rows = []
        for name, version in sorted(found):
            known = lives.recipes.get((name, version))
            if known is None and name in lives.newest:
                continue
            recipe = known or read_recipe(BUILT_IN[name], source=name)
            users = sum((life.spec.recipe, life.recipe_version) == (name, version) for life in alive)
            newest = version == lives.newest.get(name, version)
            rows.append(
                (name, version, newest, len(recipe.steps), users, ", ".join(step.name for step in recipe.steps))
            )
        document = {
            "recipes": [
                {"recipe": name, "version": version, "newest": newest, "clusters": users, "steps": steps.split(", ")}
                for name, version, newest, _, users, steps in rows
            ]
        }
        columns = ("recipe", "version", "newest", "steps", "clusters", "what")
        return Answer(document, [Table(columns, rows)])

    try:
        answer_state(context, db, as_of, output, watch=watch, answer=answer)
    except NotFound as error:
        if error.code != "no_database":
            raise
        from plimsoll.rooms import KINDS

        show(answer(State(KINDS)), output)  # those that come with us are there without any database


@recipes.command("show")
def show_command(
    context: typer.Context,
    name: RecipeName,
    version: Annotated[int | None, typer.Option("--version", help="Else the newest.", show_default=False)] = None,
    db: Db = "",
) -> None:
    """Print a recipe as it was written."""
    try:
        state = open_database(context, db).state()
    except NotFound:
        if name in BUILT_IN and version in (None, 1):
            show_text(BUILT_IN[name])
            return
        raise
    recipe, _ = find_recipe(state, name)
    if version is not None and version != recipe.version:
        known = state.of(Lives).recipes.get((name, version))
        if known is None:
            message = f"there is no version {version} of recipe {name}; the newest is {recipe.version}"
            raise NotFound("no_such_recipe", message, next_step="plimsoll cluster recipe list")
        recipe = known
    show_text(recipe.text)


@recipes.command("check")
def check_command(path: RecipeFile, output: Format = Output.TABLE) -> None:
    """Read a recipe and say what it does; changes nothing."""
    recipe = _read(path)
    rows = [
        (
            step.name,
            str(step.sets or "-"),
            step.kind,
            ", ".join((*step.needs, *(f"{each.cluster} reaches {each.reaches}" for each in step.after))),
            step.within_seconds / 3600,
            str(step.retry.kind),
            step.retry.attempts,
        )
        for step in (*recipe.steps, *recipe.out)
    ]
    columns = ("step", "sets", "how", "needs", "hours_at_most", "retry", "attempts")
    document = {"recipe": recipe.name, "version": recipe.version, "steps": [row[0] for row in rows]}
    heading = f"{path.name}: recipe {recipe.name} version {recipe.version}, {counted(len(rows), 'step')}"
    show(Answer(document, [Table(columns, rows)], heading), output)


def _cannot(state: State, recipe: Recipe, names: Sequence[str]) -> dict[str, str]:
    """The clusters that a recipe takes and can't make as they are wanted, and why."""
    lives = state.of(Lives).lives
    found = {name: spec_problems(lives[name].spec, recipe) for name in names}
    return {
        name: "; ".join(f"{field}: expected {expected}" for field, expected in problems)
        for name, problems in found.items()
        if problems
    }


@recipes.command("apply")
def apply_command(
    context: typer.Context,
    path: RecipeFile,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Put a new version of a recipe there. Planned clusters take it; those that have begun keep theirs."""
    recipe = _read(path)

    def decide(state: State, _now: datetime) -> tuple[tuple[list[str], bool], Sequence[Draft]]:
        moved, drafts = apply_recipe(state, recipe)
        return (moved, bool(drafts)), drafts

    keeper, (moved, is_new), _ = say_first(context, db, decide, reason, dry_run)
    wrong = _cannot(keeper.state(), recipe, moved)
    verb = "would be there" if dry_run else "is there"
    heading = f"recipe {recipe.name} version {recipe.version} {verb if is_new else 'was there already'}"
    more = f" and {len(moved) - SHOWN:,} more" if len(moved) > SHOWN else ""
    notes = [f"{counted(len(moved), 'planned cluster')} take it: {', '.join(moved[:SHOWN])}{more}"] if moved else []
    notes += [f"warning: it can't make {name}: {why}" for name, why in list(wrong.items())[:SHOWN]]
    document = {
        "recipe": recipe.name,
        "version": recipe.version,
        "new": is_new,
        "clusters": moved,
        "wrong": wrong,
        "dry_run": dry_run,
    }
    show(Answer(document, [], heading, notes), output)
