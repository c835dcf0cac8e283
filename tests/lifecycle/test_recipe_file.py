"""Recipes as people write them: what is taken, and every mistake with its line."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from plimsoll.documents import DOCUMENT_BYTES_MAX, BadDocument
from plimsoll.lifecycle.machines import BUILT_IN, MACHINES
from plimsoll.lifecycle.model import ConditionType
from plimsoll.lifecycle.recipe import Elsewhere, QuotaSource, Retry, RetryClass
from plimsoll.lifecycle.recipe_file import STEPS_MAX, find_circle, reachable, read_recipe

GOOD = """\
recipe: mine
version: 1
quota: {source: none}
steps:
  - {step: checkin, sets: CheckedIn}
  - {step: boot, sets: InfrastructureApplied, needs: [checkin], run: [echo, "{cluster}"]}
  - {step: fill, sets: ScaleSetsReady, needs: [boot], run: [echo]}
"""
BOOT_LINE, FILL_LINE = 6, 7


class Wrong(NamedTuple):
    """A text of the good recipe, what stands there instead, and what is said about it."""

    instead_of: str
    written: str
    want_line: int
    want: str


WRONG = {
    "steps that need each other": Wrong(
        "needs: [checkin]", "needs: [checkin, fill]", BOOT_LINE, "in a circle: boot -> fill -> boot"
    ),
    "a step that needs itself": Wrong("needs: [boot]", "needs: [boot, fill]", FILL_LINE, "in a circle: fill -> fill"),
    "a step that there is not": Wrong(
        "needs: [boot]", "needs: [bot]", FILL_LINE, "needs 'bot', and there is no such step (checkin, boot, fill)"
    ),
    "a misspelt key": Wrong("run: [echo]", "runs: [echo]", FILL_LINE, "key 'runs' is not known; did you mean 'run'?"),
    "a misspelt key at the top": Wrong("version: 1", "verson: 1", 2, "did you mean 'version'?"),
    "two check-ins": Wrong(
        "sets: InfrastructureApplied, needs: [checkin]", "sets: CheckedIn", 5, "one step that sets CheckedIn, found 2"
    ),
    "no check-in": Wrong("sets: CheckedIn", "sets: ServicesDeployed, run: [x]", 5, "sets CheckedIn, found 0"),
    "something before the check-in": Wrong(
        "needs: [checkin], ", "", BOOT_LINE, "'boot' does not need 'checkin', and nothing may begin before the check-in"
    ),
    "a check-in that waits for something": Wrong(
        "- {step: checkin, sets: CheckedIn}",
        "- {step: pre, sets: ServicesDeployed, run: [x]}\n  - {step: checkin, sets: CheckedIn, needs: [pre]}",
        5,
        "'checkin' is the check-in, which comes first: it needs no other step",
    ),
    "no machines": Wrong(
        "sets: ScaleSetsReady", "sets: ServicesDeployed", 5, "no step sets ScaleSetsReady: a cluster without nodes is"
    ),
    "a field that no spec has": Wrong("{cluster}", "{clustr}", BOOT_LINE, "{clustr} is not known; in braces may stand"),
    "a field with a large letter": Wrong("{cluster}", "{Cluster}", BOOT_LINE, "{Cluster} is not known"),
    "a label without a name": Wrong("{cluster}", "{labels.}", BOOT_LINE, "{labels.} is not known"),
    "needs that are no list": Wrong("needs: [boot]", "needs: boot", FILL_LINE, "expected a list, found 'boot'"),
    "an alias": Wrong('run: [echo, "{cluster}"]', "run: &a [echo, *a]", BOOT_LINE, "anchors and aliases"),
    "a step of the way out with a name of the way in": Wrong(
        "steps:", "out:\n  - {step: boot, run: [x]}\nsteps:", 5, "'boot' is one of the way in already"
    ),
    "a condition on the way out": Wrong(
        "steps:", "out:\n  - {step: bye, sets: CheckedIn, run: [x]}\nsteps:", 5, "key 'sets' is not known"
    ),
    "another cluster that reaches nothing known": Wrong(
        "needs: [boot]",
        "needs: [boot, {cluster: hub, reaches: prod}]",
        FILL_LINE,
        "steps[2].needs[1].reaches: expected a phase such as production, a condition such as ServicesDeployed, or",
    ),
    "another cluster by a field that no spec has": Wrong(
        "needs: [boot]", "needs: [boot, {cluster: 'hub-{regio}', reaches: production}]", FILL_LINE, "{regio} is not"
    ),
    "a step twice": Wrong("step: fill", "step: boot", FILL_LINE, "step 'boot' stands here twice"),
    "a name with blanks": Wrong("recipe: mine", "recipe: My Own", 1, "expected a short name of small letters"),
    "a version of nought": Wrong("version: 1", "version: 0", 2, "expected a number from 1 to 999999, found '0'"),
    "a version that is a word": Wrong("version: 1", "version: one", 2, "found 'one'"),
    "a step that does two things": Wrong(
        "run: [echo]}", "run: [echo], build: {pipeline: x}}", FILL_LINE, "does 2 things"
    ),
    "a step that does nothing": Wrong(", run: [echo]}", "}", FILL_LINE, "'fill' does nothing: give it run, build or"),
    "scale sets that set something else": Wrong(
        'run: [echo, "{cluster}"]', "scale_sets: {group: x}", BOOT_LINE, "makes scale sets, so it sets ScaleSetsReady"
    ),
    "a deadline beyond all": Wrong("run: [echo]}", "run: [echo], within: 99d}", FILL_LINE, "over 0 and up to 30d"),
    "no time at all": Wrong("run: [echo]}", "run: [echo], within: 0s}", FILL_LINE, "over 0 and up to 30d, found '0s'"),
    "waits that shrink": Wrong(
        "run: [echo]}",
        "run: [echo], retry: {first: 10m, most: 1m}}",
        FILL_LINE,
        "most (60 s) is less than first (600 s)",
    ),
    "a retry class that there is not": Wrong("run: [echo]}", "run: [echo], retry: never}", FILL_LINE, "'never'"),
    "a machine without cores": Wrong(
        "quota:", "machines: {H200: {vm: x, family: f, cores: 0, gpus: 8}}\nquota:", 3, "machines.H200.cores"
    ),
    "no SKU": Wrong("quota:", "machines: {}\nquota:", 3, "expected at least one SKU"),
    "a quota source that there is not": Wrong("source: none", "source: aws", 3, "(allowed: azure, file, none)"),
    "a share in per cent": Wrong("quota:", "validation: {healthy_share: 95}\nquota:", 3, "a number from 0.01 to 1"),
    "a share that is no number": Wrong("quota:", "validation: {healthy_share: nan}\nquota:", 3, "found 'nan'"),
    "a variable that no shell could have": Wrong(
        "run: [echo]}", "run: [echo], env: {A=B: x}}", FILL_LINE, "'A=B' is no name of an environment variable"
    ),
    "variables of a build that belong to run": Wrong(
        "run: [echo]}", "build: {pipeline: x}, env: {A: b}}", FILL_LINE, "env belongs to run"
    ),
    "a word that is nothing": Wrong(
        "run: [echo]", "run: [echo, null]", FILL_LINE, "run[1]: expected a text, found nothing"
    ),
    "a command without words": Wrong("run: [echo]", "run: []", FILL_LINE, "expected a command: a list of words"),
    "a step name that no host could have": Wrong("step: fill", f"step: {'f' * 41}", FILL_LINE, "a short name"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_mistake_is_named_with_its_line(case: Wrong) -> None:
    assert case.instead_of in GOOD
    with pytest.raises(BadDocument) as caught:
        read_recipe(GOOD.replace(case.instead_of, case.written, 1), source="r.yaml")
    assert caught.value.message.startswith(f"r.yaml, line {case.want_line}: ")
    assert case.want in caught.value.message
    assert caught.value.exit_code == 2
    assert f"line {case.want_line} of r.yaml" in caught.value.next_step


TEXTS = {
    "nothing": ("", "the file is empty"),
    "a list": ("- a\n", "expected a mapping (name: value), found a list"),
    "half a list": ("a: [b\nc: d", "not YAML"),
    "too long": (f"{GOOD}# {'x' * DOCUMENT_BYTES_MAX}", "over 1,000,000 bytes"),
    "two documents": (f"{GOOD}---\na: b\n", "a second document begins here"),
    "too many steps": (
        GOOD
        + "".join(f"  - {{step: s{n}, sets: ServicesDeployed, needs: [boot], run: [x]}}\n" for n in range(STEPS_MAX)),
        "expected 1 to 60 steps, found 63",
    ),
}


@pytest.mark.parametrize("case", TEXTS)
def test_what_is_no_recipe_at_all_is_refused(case: str) -> None:
    text, want = TEXTS[case]
    with pytest.raises(BadDocument, match=r"r\.yaml, line") as caught:
        read_recipe(text, source="r.yaml")
    assert want in caught.value.message


def test_what_is_left_out_is_as_usual() -> None:
    recipe = read_recipe(GOOD, source="r.yaml")
    assert (recipe.name, recipe.version, recipe.text) == ("mine", 1, GOOD)
    assert [(step.name, step.kind) for step in recipe.steps] == [("checkin", "gate"), ("boot", "run"), ("fill", "run")]
    assert recipe.quota.source is QuotaSource.NONE
    assert recipe.machines == MACHINES
    assert recipe.steps[1].retry == Retry(RetryClass.BACKOFF, 6, 60.0, 1800.0)
    assert recipe.steps[1].within_seconds == 14_400.0
    assert recipe.validation.healthy_share == 0.95


def test_steps_may_stand_in_any_order_and_wait_for_other_clusters() -> None:
    lines = GOOD.splitlines()
    text = "\n".join([*lines[:4], lines[6], lines[5], lines[4]])
    text = text.replace("needs: [boot]", "needs: [boot, {cluster: 'hub-{region}', reaches: step fill}]")
    recipe = read_recipe(text, source="r.yaml")
    assert [step.name for step in recipe.steps] == ["fill", "boot", "checkin"]
    assert recipe.steps[0].after == (Elsewhere("hub-{region}", "step fill"),)
    assert reachable(recipe.steps, "fill") == {"boot", "checkin"}
    assert find_circle(recipe.steps) == []


def test_braces_that_a_shell_or_json_needs_stay() -> None:
    text = GOOD.replace("{cluster}", "${CLUSTER} {} {0} awk {print $1}")
    assert read_recipe(text, source="r.yaml").steps[1].run is not None


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_recipes_that_come_with_us_can_be_read(name: str) -> None:
    recipe = read_recipe(BUILT_IN[name], source=name)
    assert (recipe.name, recipe.version) == (name, 1)
    assert recipe.setting(ConditionType.CHECKED_IN)[0].name == "checkin"
    assert recipe.setting(ConditionType.SCALE_SETS_READY)
