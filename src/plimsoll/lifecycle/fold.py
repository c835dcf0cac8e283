"""How the lifecycle's events change the state: lives, recipes, and how long each step took."""

from __future__ import annotations

import msgspec

from plimsoll.ledger.model import Change, Event
from plimsoll.lifecycle.changes import RecipeRecorded, StepSeen
from plimsoll.lifecycle.grow import GROWING, grown
from plimsoll.lifecycle.model import Going, Life, Said
from plimsoll.lifecycle.recipe import Recipe
from plimsoll.lifecycle.recipe_file import read_recipe
from plimsoll.state.state import Room, State, Tables
from plimsoll.state.table import Journal, Table

TOOK_MAX = 50
"""How many past clusters the durations of a step are remembered of."""

RecipeKey = tuple[str, int]
StepKey = tuple[str, str]


class Took(msgspec.Struct, frozen=True):
    """How long a step took for one cluster, from its first attempt to its end."""

    cluster: str
    seconds: float
    attempts: int


class _Dump(msgspec.Struct):
    lives: list[Life]
    recipes: list[Recipe]
    took: list[tuple[StepKey, tuple[Took, ...]]]


class Lives(Tables):
    """Every cluster that was ever planned here, and every version of every recipe."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.lives: Table[str, Life] = Table(journal)
        self.recipes: Table[RecipeKey, Recipe] = Table(journal)
        self.newest: Table[str, int] = Table(journal)
        self.took: Table[StepKey, tuple[Took, ...]] = Table(journal)

    def recipe_of(self, life: Life) -> Recipe:
        """The recipe with which a cluster is made."""
        return self.recipes[life.spec.recipe, life.recipe_version]

    def put_recipe(self, recipe: Recipe) -> None:
        self.recipes.put((recipe.name, recipe.version), recipe)
        self.newest.put(recipe.name, max(recipe.version, self.newest.get(recipe.name, 0)))

    def dump(self) -> bytes:
        lives = [life for _, life in sorted(self.lives.items())]
        recipes = [recipe for _, recipe in sorted(self.recipes.items())]
        return msgspec.msgpack.encode(_Dump(lives, recipes, sorted(self.took.items())), order="sorted")

    def load(self, body: bytes) -> None:
        dump = msgspec.msgpack.decode(body, type=_Dump)
        for life in dump.lives:
            self.lives.put(life.name, life)
        for recipe in dump.recipes:
            self.put_recipe(recipe)
        for key, took in dump.took:
            self.took.put(key, took)


ROOM = Room("lifecycle", version=1, tables=Lives)


@ROOM.folds_change(RecipeRecorded)
def _fold_recipe(state: State, change: RecipeRecorded, _event: Event) -> None:
    recipe = read_recipe(change.text, source=f"recipe {change.recipe}")
    if change.machines:
        recipe = msgspec.structs.replace(recipe, machines=change.machines)
    state.of(Lives).put_recipe(recipe)


def _fold_life(state: State, change: Change, event: Event) -> None:
    lives = state.of(Lives)
    name = event.subject.removeprefix("cluster/")
    before = lives.lives.get(name)
    life = grown(before, change, Said(event.actor, event.effective_time, event.reason))
    lives.lives.put(name, life)
    if isinstance(change, StepSeen) and change.going is Going.DONE:
        _remember(lives, life, change.step)


def _remember(lives: Lives, life: Life, step: str) -> None:
    work = life.works[step]
    assert work.ended is not None, "a step that is done has ended"
    seconds = max(0.0, (work.ended - work.begun).total_seconds())  # a clock that was set back
    took = Took(life.name, seconds, work.attempt)
    key = life.spec.recipe, step
    others = [each for each in lives.took.get(key, ()) if each.cluster != life.name]
    lives.took.put(key, (*others, took)[-TOOK_MAX:])


_kind: type[Change]
for _kind in GROWING:
    ROOM.folds_change(_kind)(_fold_life)
