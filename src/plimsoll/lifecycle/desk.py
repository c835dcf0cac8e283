"""What people say about clusters that are being made: plan, edit, check in, retry, waive, pause, retire. Pure.

Each act is refused where it can't be meant, with what is and what to type instead. What was begun outside is not
undone by editing a row: such an edit is refused, field by field.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from plimsoll.errors import NotFound, Refused
from plimsoll.fleet.changes import ClusterRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase
from plimsoll.fleet.sheet import changed_fields
from plimsoll.ledger.model import Draft
from plimsoll.lifecycle.changes import (
    ClusterCheckedIn,
    ClusterLeaving,
    ClusterPaused,
    ClusterPlanned,
    ClusterRespecified,
    ClusterResumed,
    RecipeMigrated,
    RecipeRecorded,
    StepRetried,
    StepWaived,
)
from plimsoll.lifecycle.decide import cluster_of
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.grow import WAIVED, grown
from plimsoll.lifecycle.machines import BUILT_IN
from plimsoll.lifecycle.model import ConditionType, Going, Life, Said, Spec
from plimsoll.lifecycle.phases import phase_of
from plimsoll.lifecycle.reasons import SURELY_NOT_BEGUN
from plimsoll.lifecycle.recipe import Recipe, Step
from plimsoll.lifecycle.recipe_file import read_recipe
from plimsoll.lifecycle.spec_check import spec_problems
from plimsoll.lifecycle.view import phase_words
from plimsoll.quota.fold import QuotaBook
from plimsoll.state.state import State
from plimsoll.words import counted, near

FREE_FIELDS = ("owner", "wanted", "labels", "purpose", "colo")
"""What of a row may change after something was begun outside: nothing that was made depends on it."""


def find_life(state: State, name: str) -> Life:
    """A cluster that we make or made."""
    lives = state.of(Lives).lives
    life = lives.get(name)
    if life is not None:
        return life
    if (known := state.of(Fleet).clusters.get(name)) is not None:
        raise NotFound(
            "not_ours",
            f"{name} is {phase_words(known.phase)}, and was not made by Plimsoll: nothing is known of its steps",
            next_step=f"plimsoll fleet nodes cluster={name}",
            cluster=name,
        )
    raise NotFound(
        "no_such_cluster", f"there is no cluster {name!r}{near(name, list(lives))}", next_step="plimsoll cluster list"
    )


def find_recipe(state: State, name: str) -> tuple[Recipe, list[Draft]]:
    """The newest version of a recipe; one that comes with us is recorded when it is first used."""
    lives = state.of(Lives)
    if (version := lives.newest.get(name)) is not None:
        return lives.recipes[name, version], []
    if name in BUILT_IN:
        recipe = read_recipe(BUILT_IN[name], source=f"recipe {name}")
        return recipe, [Draft(_recorded(recipe), "comes with Plimsoll")]
    known = sorted({*lives.newest, *BUILT_IN})
    raise NotFound(
        "no_such_recipe",
        f"there is no recipe {name!r}{near(name, known)} (known: {', '.join(known)})",
        next_step="plimsoll cluster recipe list",
        recipe=name,
    )


def _recorded(recipe: Recipe) -> RecipeRecorded:
    return RecipeRecorded(recipe.name, recipe.version, recipe.text, recipe.machines)


def plan(state: State, spec: Spec, uid: str, said: Said) -> list[Draft]:
    """Want a cluster. One that the fleet knows and that is not in production yet is taken over with its nodes."""
    recipe, drafts = find_recipe(state, spec.recipe)
    check_spec(spec, recipe)
    if spec.name in state.of(Lives).lives:
        life = state.of(Lives).lives[spec.name]
        raise Refused(
            "cluster_exists",
            f"{spec.name} is {phase_words(phase_of(life))} already",
            next_step=f"plimsoll cluster edit {spec.name} …, or plimsoll cluster show {spec.name}",
            cluster=spec.name,
        )
    known = state.of(Fleet).clusters.get(spec.name)
    if known is not None and known.phase in (Phase.PRODUCTION, Phase.RETIRED):
        raise Refused(
            "cluster_exists",
            f"the fleet has a cluster {spec.name} that is {phase_words(known.phase)}",
            next_step="choose another name: those of clusters are not used twice",
            cluster=spec.name,
        )
    planned = ClusterPlanned(spec.name, spec, uid, recipe.version)
    cluster = cluster_of(grown(None, planned, said), known)
    was = {} if known is None else changed_fields(known, cluster)
    recorded = [Draft(ClusterRecorded(cluster, was))] if cluster != known else []
    return [*drafts, Draft(planned), *recorded]


def check_spec(spec: Spec, recipe: Recipe) -> None:
    """Refuse a spec that its recipe can't make."""
    if problems := spec_problems(spec, recipe):
        told = "; ".join(f"{field}: {_shown(spec, field)!r}, expected {expected}" for field, expected in problems)
        raise Refused(
            "bad_spec",
            f"{spec.name}: {told}",
            next_step=f"correct it and try again; plimsoll cluster recipe show {recipe.name} prints what it knows",
            cluster=spec.name,
            problems=[{"field": field, "expected": expected} for field, expected in problems],
        )


def _shown(spec: Spec, field: str) -> str:
    return spec.name if field == "cluster" else str(getattr(spec, field, spec.labels.get(field, "")))


def respecify(state: State, life: Life, spec: Spec) -> tuple[dict[str, str | None], list[Draft]]:
    """Change what is wanted: anything before something was begun, and only what nothing depends on after that."""
    was = changed_fields(life.spec, spec)
    if not was:
        return {}, []
    if life.gone_at is not None or life.leaving is not None:
        raise Refused("cluster_leaves", f"{life.name} is retired, or on its way out", cluster=life.name)
    fixed = [field for field in was if field.partition(".")[0] not in FREE_FIELDS]
    if fixed and life.has_begun:
        raise fixed_fields(life, spec, fixed)
    running = [work.step for work in life.works.values() if work.going.is_outside]
    named = [field for field in was if field not in ("owner", "wanted")]
    if running and named:
        raise Refused(
            "step_runs",
            f"{running[0]} of {life.name} runs, and may have been begun by its {named[0]}; nothing was changed",
            next_step="change it when the step has ended, or only owner and wanted",
            cluster=life.name,
            step=running[0],
        )
    lives = state.of(Lives)
    version, drafts = life.recipe_version, list[Draft]()
    if spec.recipe != life.spec.recipe or not life.has_begun:
        recipe, drafts = find_recipe(state, spec.recipe)
        version = recipe.version
    else:
        recipe = lives.recipes[spec.recipe, version]
    check_spec(spec, recipe)
    change = ClusterRespecified(life.name, spec, version, was)
    known = state.of(Fleet).clusters.get(life.name)
    cluster = cluster_of(grown(life, change, life.planned), known)
    # A label that was taken from the row is taken from the cluster.
    gone = {name for name in life.spec.labels if name not in spec.labels}
    labels = {name: value for name, value in cluster.labels.items() if name not in gone}
    cluster = msgspec.structs.replace(cluster, labels=labels)
    fields = {} if known is None else changed_fields(known, cluster)
    recorded = [Draft(ClusterRecorded(cluster, fields))] if cluster != known else []
    return was, [*drafts, Draft(change), *recorded]


def fixed_fields(life: Life, spec: Spec, fixed: list[str]) -> Refused:
    """Why a row can't be changed any more."""
    told = "; ".join(f"{field} is {getattr(life.spec, field)}, not {getattr(spec, field)}" for field in fixed)
    return Refused(
        "already_begun",
        f"{life.name} is {phase_words(phase_of(life))}, and what was made can't be edited: {told}",
        next_step=f"put the row back; or plimsoll cluster retire {life.name} and plan another one",
        cluster=life.name,
        fields=fixed,
        phase=str(phase_of(life)),
    )


def check_in(life: Life) -> list[Draft]:
    """The second of two human touches. Who checks in again changes nothing."""
    if life.gone_at is not None or life.leaving is not None:
        raise Refused("cluster_leaves", f"{life.name} is retired, or on its way out", cluster=life.name)
    return [] if life.checked_in is not None else [Draft(ClusterCheckedIn(life.name))]


def find_step(recipe: Recipe, life: Life, name: str) -> Step:
    """A step by its name; without one, the one that waits for somebody."""
    steps = (*recipe.steps, *recipe.out)
    if name:
        step = recipe.step(name)
        if step is None:
            names = [each.name for each in steps]
            raise NotFound(
                "no_such_step",
                f"recipe {recipe.name} has no step {name!r}{near(name, names)} (it has {', '.join(names)})",
                next_step=f"plimsoll cluster show {life.name}",
            )
        return step
    for going in (Going.STUCK, Going.RETRYING):
        for step in steps:
            if (work := life.work(step.name)) is not None and work.going is going:
                return step
    raise Refused(
        "nothing_to_retry",
        f"no step of {life.name} has failed",
        next_step=f"plimsoll cluster show {life.name}",
        cluster=life.name,
    )


def step_to_tell(recipe: Recipe, life: Life, name: str) -> Step:
    """A step by its name; without one, the one that failed, else what runs, else what ended last."""
    works = [work for work in life.works.values() if recipe.step(work.step) is not None]
    if name or not works or any(work.going in (Going.STUCK, Going.RETRYING) for work in works):
        return find_step(recipe, life, name or ("" if works else recipe.steps[0].name))
    latest = max(works, key=lambda work: (work.going.is_outside, work.since))
    return find_step(recipe, life, latest.step)


def retry(life: Life, recipe: Recipe, name: str, *, is_lost: bool = False) -> tuple[str, list[Draft]]:
    """Try a step again, now, and as often as at first. One that may still run is not begun twice, unless somebody says
    that it is lost."""
    step = find_step(recipe, life, name)
    work = life.work(step.name)
    if work is None and life.available_at is None:
        raise Refused(
            "not_begun",
            f"{step.name} of {life.name} was not begun yet: it begins by itself",
            next_step=f"plimsoll cluster show {life.name}",
            cluster=life.name,
        )
    check_not_over(life, recipe, step)
    is_check = step.sets is ConditionType.HEALTH_GREEN and life.available_at is None
    if work is not None and work.going is Going.DONE and work.reason != WAIVED and not is_check:
        raise Refused("step_done", f"{step.name} of {life.name} is done", cluster=life.name, step=step.name)
    is_waiting = work is not None and work.going is Going.INTENDED and work.reason in SURELY_NOT_BEGUN
    if work is not None and work.going.is_outside and not is_lost and not is_waiting:
        raise Refused(
            "step_runs",
            f"{step.name} of {life.name} is {work.going} (attempt {work.attempt}); a second beside it could do harm",
            next_step=f"plimsoll cluster retry {life.name} {step.name} --lost, if you know that it does not run",
            cluster=life.name,
            step=step.name,
        )
    return step.name, [Draft(StepRetried(life.name, step.name))]


def check_not_over(life: Life, recipe: Recipe, step: Step) -> None:
    """Refuse what is said of a step of a cluster that is gone, or of its way in when it leaves."""
    if life.gone_at is not None or (life.leaving is not None and step in recipe.steps):
        raise Refused(
            "cluster_leaves",
            f"{life.name} is {'retired' if life.gone_at else 'on its way out'}: {step.name} is not done any more",
            next_step=f"plimsoll cluster show {life.name}",
            cluster=life.name,
        )


def waive(life: Life, recipe: Recipe, name: str) -> tuple[str, list[Draft]]:
    """Take a step for done: somebody did it by hand, or it is not needed. The check-in is said, not waived."""
    step = find_step(recipe, life, name)
    check_not_over(life, recipe, step)
    work = life.work(step.name)
    if phase_of(life) is Phase.PLANNED or (step.sets is ConditionType.CHECKED_IN and life.checked_in is None):
        raise Refused(
            "not_begun",
            f"{life.name} is {phase_words(phase_of(life))} and {'' if life.checked_in else 'not '}checked in:"
            f" {step.name} can't be taken for done before it could begin",
            next_step=f"plimsoll cluster show {life.name}"
            if life.checked_in
            else f"plimsoll cluster checkin {life.name}",
            cluster=life.name,
            step=step.name,
        )
    if work is not None and work.going.is_outside:
        raise Refused(
            "step_runs",
            f"{step.name} of {life.name} is {work.going}: it says itself when it is done",
            next_step=f"plimsoll cluster show {life.name}",
            cluster=life.name,
            step=step.name,
        )
    if work is not None and work.going is Going.DONE:
        raise Refused("step_done", f"{step.name} of {life.name} is done", cluster=life.name, step=step.name)
    return step.name, [Draft(StepWaived(life.name, step.name))]


def pause(life: Life) -> list[Draft]:
    if life.gone_at is not None:
        raise Refused("cluster_leaves", f"{life.name} is retired", cluster=life.name)
    return [] if life.paused is not None else [Draft(ClusterPaused(life.name))]


def resume(life: Life) -> list[Draft]:
    return [] if life.paused is None else [Draft(ClusterResumed(life.name))]


def leave(state: State, life: Life, *, is_anyway: bool) -> list[Draft]:
    """Begin the way out. A cluster of which something is promised is not taken from under anybody."""
    if life.gone_at is not None or life.leaving is not None:
        return []
    held = quota_held(state, life.name)
    if held and not is_anyway:
        most = min(held, key=lambda team: (-held[team], team))
        raise Refused(
            "quota_promised",
            f"{counted(len(held), 'team')} hold quota for {sum(held.values()):,} GPUs of {life.name}, most of it {most}"
            f" ({held[most]:,})",
            next_step=f"plimsoll quota show {life.name}; move it first, or --anyway: then promises are broken",
            cluster=life.name,
            held=held,
        )
    return [Draft(ClusterLeaving(life.name))]


def quota_held(state: State, cluster: str) -> dict[str, int]:
    """The GPUs of a cluster that each team is promised, or holds by the book."""
    book = state.of(QuotaBook)
    totals: dict[str, int] = {}
    for key in {*book.quotas, *book.guaranteed}:
        if key.cluster == cluster:
            assigned = book.quotas[key].gpus if key in book.quotas else 0
            gpus = max(assigned, book.guaranteed.get(key, 0))
            totals[key.team] = totals.get(key.team, 0) + gpus
    return {team: gpus for team, gpus in totals.items() if gpus}


def migrate(state: State, life: Life, name: str, version: int | None) -> tuple[Recipe, list[Draft]]:
    """Let a cluster go on with another recipe, or another version of its own. Steps that are done stay done."""
    recipe, drafts = find_recipe(state, name or life.spec.recipe)
    if version is not None:
        known = state.of(Lives).recipes.get((recipe.name, version))
        if known is None:
            raise NotFound(
                "no_such_recipe",
                f"there is no version {version} of recipe {recipe.name}",
                next_step="plimsoll cluster recipe list",
            )
        recipe, drafts = known, []
    if (recipe.name, recipe.version) == (life.spec.recipe, life.recipe_version):
        return recipe, []
    if life.gone_at is not None:
        raise Refused("cluster_leaves", f"{life.name} is retired", cluster=life.name)
    before = state.of(Lives).recipe_of(life)
    running = [
        work.step
        for work in life.works.values()
        if work.going.is_outside and does(recipe.step(work.step)) != does(before.step(work.step))
    ]
    if running:
        raise Refused(
            "step_runs",
            f"{running[0]} of {life.name} runs, and recipe {recipe.name} version {recipe.version} has no such step, or"
            " does it otherwise",
            next_step="wait until it has ended",
            cluster=life.name,
        )
    check_spec(msgspec.structs.replace(life.spec, recipe=recipe.name), recipe)
    return recipe, [*drafts, Draft(RecipeMigrated(life.name, recipe.name, recipe.version, life.recipe_version))]


def does(step: Step | None) -> object:
    """What a step does outside: what is begun is looked for by it."""
    return None if step is None else (step.run, step.build, step.scale_sets)


def apply_recipe(state: State, recipe: Recipe) -> tuple[list[str], list[Draft]]:
    """Put a version of a recipe there. Clusters that have begun keep theirs; planned ones take the new one."""
    lives = state.of(Lives)
    known = lives.recipes.get((recipe.name, recipe.version))
    newest = lives.newest.get(recipe.name, 0)
    text = known.text if known is not None else "" if newest else BUILT_IN.get(recipe.name, "")
    if text == recipe.text:
        return [], []
    if recipe.version <= newest or (recipe.name in BUILT_IN and not newest and recipe.version <= 1):
        least = max(newest, 1 if recipe.name in BUILT_IN else 0) + 1
        raise Refused(
            "old_version",
            f"recipe {recipe.name} has version {max(newest, least - 1)} already, and versions do not change;"
            f" this file says {recipe.version}",
            next_step=f"write version: {least}",
            recipe=recipe.name,
            newest=newest,
        )
    drafts = [Draft(_recorded(recipe))]
    moved = []
    for name, life in sorted(lives.lives.items()):
        if life.spec.recipe == recipe.name and not life.has_begun and life.gone_at is None:
            moved.append(name)
            drafts.append(Draft(RecipeMigrated(name, recipe.name, recipe.version, life.recipe_version)))
    return moved, drafts


def spec_with(spec: Spec, changes: Mapping[str, object]) -> Spec:
    """A spec with some fields changed; a label is `labels.NAME`."""
    plain = {name: value for name, value in changes.items() if not name.startswith("labels.")}
    labels = dict(spec.labels)
    for name, value in changes.items():
        if name.startswith("labels."):
            key = name.removeprefix("labels.")
            if value:
                labels[key] = str(value)
            else:
                labels.pop(key, None)
    return msgspec.structs.replace(spec, **plain, labels=labels)
