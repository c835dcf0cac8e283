"""Read a recipe that somebody wrote. Pure; mistakes are named with file, line and field, and nothing is guessed.

Steps may stand in any order; what they need must exist and must not run in a circle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from plimsoll.documents import Field, read_document
from plimsoll.fleet.model import Phase
from plimsoll.lifecycle.machines import MACHINES
from plimsoll.lifecycle.model import ConditionType
from plimsoll.lifecycle.recipe import (
    BuildJob,
    Command,
    Elsewhere,
    Machine,
    Quota,
    QuotaSource,
    Recipe,
    Retry,
    RetryClass,
    ScaleSets,
    Step,
    Validation,
)
from plimsoll.lifecycle.template import FIELDS, names_in, unknown_names

STEPS_MAX = 60
WORDS_MAX = 100
VERSION_MAX = 999_999
SPAN_SECONDS_MAX = 30 * 86400.0
STEP_CONDITIONS = (
    ConditionType.CHECKED_IN,
    ConditionType.INFRASTRUCTURE_APPLIED,
    ConditionType.SCALE_SETS_READY,
    ConditionType.SERVICES_DEPLOYED,
    ConditionType.DEPENDENCIES_APPLIED,
    ConditionType.HEALTH_GREEN,
)
"""Conditions that steps bring about; the others follow from the spec, from quota, and from all of them together."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_RECIPE_KEYS = ("recipe", "version", "steps", "out", "machines", "quota", "validation", "asks")
_OUT_KEYS = ("step", "needs", "run", "env", "build", "within", "retry", "asks")
_STEP_KEYS = (*_OUT_KEYS, "sets", "scale_sets")


def read_recipe(text: str, *, source: str) -> Recipe:
    """The recipe of a text, or the mistake with its line."""
    root = read_document(text, source=source)
    with root.mapping(_RECIPE_KEYS):
        name = _plain_name(root.need("recipe"))
        version = root.need("version").whole_number(least=1, most=VERSION_MAX)
        asks = field.text() if (field := root.get("asks")) else "the fleet's engineers"
        listed = root.need("steps")
        steps = _steps(listed, is_out=False)
        out_field = root.get("out")
        out = _steps(out_field, is_out=True) if out_field else ()
        machines = dict(MACHINES)
        if field := root.get("machines"):
            machines = {sku: _machine(entry) for sku, entry in field.pairs()}
            if not machines:
                raise field.bad("expected at least one SKU, such as H200")
        quota = _quota(field) if (field := root.get("quota")) else Quota()
        validation = _validation(field) if (field := root.get("validation")) else Validation()
    _check_needs(listed, steps)
    if out_field:
        _check_needs(out_field, out)
        _check_apart(out_field, steps, out)
    _check_gate(listed, steps)
    return Recipe(name, version, text, steps, out, machines, quota, validation, asks, _labels_of((*steps, *out)))


def _plain_name(field: Field) -> str:
    text = field.text()
    if not _NAME.fullmatch(text):
        raise field.expected("a short name of small letters, digits and '-'")
    return text


def _steps(field: Field, *, is_out: bool) -> tuple[Step, ...]:
    items = field.items()
    if not 1 <= len(items) <= STEPS_MAX:
        raise field.bad(f"expected 1 to {STEPS_MAX} steps, found {len(items)}")
    steps: dict[str, Step] = {}
    for item in items:
        step = _step(item, is_out=is_out)
        if step.name in steps:
            raise item.bad(f"step {step.name!r} stands here twice")
        steps[step.name] = step
    return tuple(steps.values())


def _step(field: Field, *, is_out: bool) -> Step:
    with field.mapping(_OUT_KEYS if is_out else _STEP_KEYS):
        name = _plain_name(field.need("step"))
        words = [str(each) for each in STEP_CONDITIONS]
        sets = None if is_out else ConditionType(field.need("sets").one_of(words))
        needs, after = _needs(found) if (found := field.get("needs")) else ((), ())
        env = _environment(found) if (found := field.get("env")) else {}
        run = Command(_words(found), env) if (found := field.get("run")) else None
        build = _build(found) if (found := field.get("build")) else None
        sets_field = field.get("scale_sets")
        scale_sets = _scale_sets(sets_field) if sets_field else None
        within = _seconds(found) if (found := field.get("within")) else 4 * 3600.0
        retry = _retry(found) if (found := field.get("retry")) else Retry()
        asks = found.text() if (found := field.get("asks")) else ""
    does = [each for each in (run, build, scale_sets) if each is not None]
    if len(does) > 1:
        raise field.bad(f"step {name!r} does {len(does)} things; a step is one of run, build, scale_sets")
    if not does and sets is not ConditionType.CHECKED_IN:
        raise field.bad(f"step {name!r} does nothing: give it run, build or scale_sets")
    if scale_sets and sets is not ConditionType.SCALE_SETS_READY:
        raise field.bad(f"step {name!r} makes scale sets, so it sets {ConditionType.SCALE_SETS_READY}")
    if env and run is None:
        raise field.bad("env belongs to run; a build has its own")
    return Step(name, sets, needs, after, run, build, scale_sets, within, retry, asks)


def _needs(field: Field) -> tuple[tuple[str, ...], tuple[Elsewhere, ...]]:
    steps: list[str] = []
    after: list[Elsewhere] = []
    for item in field.items():
        if not item.is_mapping:
            steps.append(item.text())
            continue
        with item.mapping(("cluster", "reaches")):
            cluster = _template(item.need("cluster"))
            reaches = item.need("reaches")
            after.append(Elsewhere(cluster, _reaches(reaches)))
    return tuple(steps), tuple(after)


def _reaches(field: Field) -> str:
    """A phase, a condition, or `step NAME`."""
    text = field.text()
    if text in {str(each) for each in ConditionType} or text in [str(each) for each in Phase]:
        return text
    if text.startswith("step ") and _NAME.fullmatch(text.removeprefix("step ")):
        return text
    raise field.expected("a phase such as production, a condition such as ServicesDeployed, or 'step NAME'")


def _template(field: Field) -> str:
    text = field.text()
    if wrong := unknown_names(text):
        raise field.bad(f"{{{wrong[0]}}} is not known; in braces may stand {', '.join(FIELDS)}, labels.NAME")
    return text


def _words(field: Field) -> tuple[str, ...]:
    items = field.items()
    if not 1 <= len(items) <= WORDS_MAX:
        raise field.expected("a command: a list of words such as [tofu, apply, -json]")
    return tuple(_template(item) for item in items)


def _environment(field: Field) -> dict[str, str]:
    found = {}
    for name, entry in field.pairs():
        if not _VARIABLE.fullmatch(name):
            raise entry.bad(f"{name[:WORDS_MAX]!r} is no name of an environment variable: letters, digits and '_'")
        found[name] = _template(entry)
    return found


def _labels(field: Field) -> dict[str, str]:
    return {name: _template(entry) for name, entry in field.pairs()}


def _build(field: Field) -> BuildJob:
    with field.mapping(("pipeline", "branch", "commit", "env")):
        return BuildJob(
            pipeline=_template(field.need("pipeline")),
            branch=_template(found) if (found := field.get("branch")) else "main",
            commit=found.text() if (found := field.get("commit")) else "HEAD",
            env=_environment(found) if (found := field.get("env")) else {},
        )


def _scale_sets(field: Field) -> ScaleSets:
    with field.mapping(("group", "namespace", "subnet", "image", "context", "ssh_key", "password_secret", "labels")):
        return ScaleSets(
            group=_template(field.need("group")),
            namespace=_template(found) if (found := field.get("namespace")) else "default",
            subnet=_template(found) if (found := field.get("subnet")) else "",
            image=_template(found) if (found := field.get("image")) else "",
            context=_template(found) if (found := field.get("context")) else "",
            ssh_key=_template(found) if (found := field.get("ssh_key")) else "",
            password_secret=_template(found) if (found := field.get("password_secret")) else "",
            labels=_labels(found) if (found := field.get("labels")) else {},
        )


def _retry(field: Field) -> Retry:
    if not field.is_mapping:
        return Retry(RetryClass(field.one_of([str(each) for each in RetryClass])))
    with field.mapping(("class", "attempts", "first", "most")):
        usual = Retry()
        kind = found.one_of([str(each) for each in RetryClass]) if (found := field.get("class")) else "backoff"
        attempts = field.get("attempts")
        first_field, most_field = field.get("first"), field.get("most")
        first = _seconds(first_field) if first_field else usual.first_seconds
        most = _seconds(most_field) if most_field else max(first, usual.most_seconds)
        if most < first:
            raise field.bad(f"most ({most:g} s) is less than first ({first:g} s)")
        return Retry(
            RetryClass(kind),
            attempts.whole_number(least=1, most=1000) if attempts else usual.attempts,
            first,
            most,
        )


def _seconds(field: Field) -> float:
    seconds = field.span().total_seconds()
    if not 0 < seconds <= SPAN_SECONDS_MAX:
        raise field.expected("a length of time over 0 and up to 30d")
    return seconds


def _machine(field: Field) -> Machine:
    with field.mapping(("vm", "family", "cores", "gpus")):
        return Machine(
            field.need("vm").text(),
            field.need("family").text(),
            field.need("cores").whole_number(least=1, most=10_000),
            field.need("gpus").whole_number(least=1, most=1_024),
        )


def _quota(field: Field) -> Quota:
    with field.mapping(("source", "file", "settle")):
        source = QuotaSource(field.need("source").one_of([str(each) for each in QuotaSource]))
        file = found.text() if (found := field.get("file")) else "quota.csv"
        settle = found.span().total_seconds() if (found := field.get("settle")) else Quota().settle_seconds
        return Quota(source, file, min(settle, SPAN_SECONDS_MAX))


def _validation(field: Field) -> Validation:
    usual = Validation()
    with field.mapping(("healthy_share", "steady_for", "filled_share")):
        healthy = field.get("healthy_share")
        steady = field.get("steady_for")
        share = field.get("filled_share")
        return Validation(
            healthy.number(least=0.01, most=1) if healthy else usual.healthy_share,
            min(steady.span().total_seconds(), SPAN_SECONDS_MAX) if steady else usual.steady_seconds,
            share.number(least=0.01, most=1) if share else usual.filled_share,
        )


# What must hold between steps.


def _check_needs(field: Field, steps: Sequence[Step]) -> None:
    by_name = {step.name: step for step in steps}
    for item, step in zip(field.items(), steps, strict=True):
        for need in step.needs:
            if need not in by_name:
                raise item.bad(f"step {step.name!r} needs {need!r}, and there is no such step ({', '.join(by_name)})")
    if circle := find_circle(steps):
        place = next(item for item, step in zip(field.items(), steps, strict=True) if step.name == circle[0])
        raise place.bad(f"the steps need each other in a circle: {' -> '.join(circle)}")


def find_circle(steps: Sequence[Step]) -> list[str]:
    """Steps that need each other, the first one again at the end; empty where there are none."""
    by_name = {step.name: step for step in steps}
    done: set[str] = set()
    for first in by_name:
        trail: list[str] = []
        stack = [(first, iter(by_name[first].needs))] if first not in done else []
        while stack:
            name, needs = stack[-1]
            if len(trail) < len(stack):
                trail.append(name)
            following = next(needs, None)
            if following is None:
                done.add(name)
                stack.pop()
                trail.pop()
            elif following in trail:
                return [*trail[trail.index(following) :], following]
            elif following not in done and following in by_name:
                stack.append((following, iter(by_name[following].needs)))
    return []


def _check_apart(field: Field, steps: Sequence[Step], out: Sequence[Step]) -> None:
    names = {step.name for step in steps}
    for item, step in zip(field.items(), out, strict=True):
        if step.name in names:
            raise item.bad(f"step {step.name!r} is one of the way in already; give the one of the way out another name")


def _check_gate(field: Field, steps: Sequence[Step]) -> None:
    """Nothing is done before somebody checked the cluster in, and that is one step."""
    gates = [step for step in steps if step.sets is ConditionType.CHECKED_IN]
    if len(gates) != 1:
        raise field.bad(f"expected one step that sets {ConditionType.CHECKED_IN}, found {len(gates)}")
    gate = gates[0]
    if gate.needs:
        raise field.bad(f"step {gate.name!r} is the check-in, which comes first: it needs no other step")
    for item, step in zip(field.items(), steps, strict=True):
        if step is not gate and gate.name not in reachable(steps, step.name):
            raise item.bad(f"step {step.name!r} does not need {gate.name!r}, and nothing may begin before the check-in")
    if not any(step.sets is ConditionType.SCALE_SETS_READY for step in steps):
        raise field.bad(f"no step sets {ConditionType.SCALE_SETS_READY}: a cluster without nodes is none")


def reachable(steps: Sequence[Step], name: str) -> set[str]:
    """All steps that a step needs, directly or not."""
    by_name = {step.name: step for step in steps}
    found: set[str] = set()
    left = list(by_name[name].needs)
    while left:
        need = left.pop()
        if need not in found and need in by_name:
            found.add(need)
            left += by_name[need].needs
    return found


def _labels_of(steps: Sequence[Step]) -> tuple[str, ...]:
    """The labels that the texts of some steps name."""
    named = (name for step in steps for text in _texts_of(step) for name in names_in(text))
    return tuple(sorted({name.removeprefix("labels.") for name in named if name.startswith("labels.")}))


def _texts_of(step: Step) -> Iterator[str]:
    """Every text of a step in which fields may stand."""
    if step.run is not None:
        yield from step.run.words
        yield from step.run.env.values()
    if step.build is not None:
        yield from (step.build.pipeline, step.build.branch, *step.build.env.values())
    if (sets := step.scale_sets) is not None:
        yield from (sets.group, sets.namespace, sets.subnet, sets.image, sets.context, sets.ssh_key)
        yield from (sets.password_secret, *sets.labels.values())
    for each in step.after:
        yield each.cluster
