"""Kueue's objects: valid by Kueue's own schemas, the promise to the GPU, and stable texts."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import Refused, UsageError
from plimsoll.fleet.model import PoolKey
from plimsoll.quota.model import PoolPromise
from plimsoll.quota.outlets.kueue import (
    HASH_CHARS,
    KINDS,
    KueueStyle,
    kube_name,
    limit,
    objects,
    quantity,
    read_quantity,
    render,
    setting_name,
    setting_value,
    settings,
)
from plimsoll.quota.outlets.model import Limit
from tests.support.crd import RULES, problems, rule_messages, schemas

STYLE = KueueStyle()


def promise(
    sku: str = "H200", *, healthy: int = 320, cluster: str = "tiger", guaranteed: dict[str, int] | None = None
) -> PoolPromise:
    guaranteed = {"evals": 64, "vision": 192} if guaranteed is None else guaranteed
    return PoolPromise(PoolKey(cluster, sku), 8, healthy, healthy, guaranteed)


def named(made: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = [each for each in made if setting_name(each) == name]
    return found


def quota_of(content: dict[str, Any]) -> dict[str, str]:
    (group,) = content["spec"]["resourceGroups"]
    (flavor,) = group["flavors"]
    (resource,) = flavor["resources"]
    return {key: value for key, value in resource.items() if key != "name"}


def test_a_pool_is_a_cohort_with_the_flex_and_a_queue_for_each_team() -> None:
    made = objects([promise()], STYLE)
    assert [setting_name(each) for each in made] == [
        "Topology/islands",
        "ResourceFlavor/h200",
        "WorkloadPriorityClass/critical",
        "WorkloadPriorityClass/high",
        "WorkloadPriorityClass/mid",
        "WorkloadPriorityClass/low",
        "Cohort/h200",
        "ClusterQueue/evals.h200",
        "ClusterQueue/vision.h200",
        "LocalQueue/evals/h200",
        "LocalQueue/vision/h200",
    ]
    assert quota_of(named(made, "Cohort/h200")) == {"nominalQuota": "64"}  # 320 healthy - 256 guaranteed
    vision = named(made, "ClusterQueue/vision.h200")
    assert quota_of(vision) == {"nominalQuota": "192", "lendingLimit": "192"}
    assert vision["spec"]["cohortName"] == "h200"
    assert vision["spec"]["fairSharing"] == {"weight": "192"}
    assert vision["spec"]["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "vision"}}
    assert named(made, "LocalQueue/vision/h200")["spec"]["clusterQueue"] == "vision.h200"
    values = [each["value"] for each in made if each["kind"] == "WorkloadPriorityClass"]
    assert values == [4000, 3000, 2000, 1000]


def test_no_other_team_can_take_what_is_guaranteed_and_a_guarantee_calls_flex_back() -> None:
    """Rule 3, in Kueue's words; docs/how-to/steer-kueue.md says which setting of Kueue itself it needs."""
    for each in objects([promise()], STYLE):
        if each["kind"] == "ClusterQueue":
            assert each["spec"]["preemption"] == {
                "borrowWithinCohort": {"policy": "Never"},
                "reclaimWithinCohort": "Any",
                "withinClusterQueue": "LowerPriority",
            }
            (group,) = each["spec"]["resourceGroups"]
            assert "borrowingLimit" not in group["flavors"][0]["resources"][0]  # all flex may be used


def test_a_team_without_a_guarantee_may_use_flex_in_every_pool_and_comes_last() -> None:
    promises = [promise("H100", guaranteed={"evals": 8}), promise("H200", guaranteed={"vision": 16})]
    made = objects(promises, STYLE)
    queues = {setting_name(each): each for each in made if each["kind"] == "ClusterQueue"}
    assert sorted(queues) == [f"ClusterQueue/{team}.{sku}" for team in ("evals", "vision") for sku in ("h100", "h200")]
    idle = queues["ClusterQueue/vision.h100"]
    assert quota_of(idle) == {"nominalQuota": "0", "lendingLimit": "0"}
    assert idle["spec"]["fairSharing"] == {"weight": "0"}


def test_a_shortfall_leaves_no_flex_and_keeps_the_promises() -> None:
    made = objects([promise(healthy=100)], STYLE)
    assert quota_of(named(made, "Cohort/h200")) == {"nominalQuota": "0"}
    assert quota_of(named(made, "ClusterQueue/vision.h200"))["nominalQuota"] == "192"


def test_every_rule_of_the_schemas_is_known() -> None:
    for kind in KINDS:
        assert set(rule_messages(schemas()[kind])) <= set(RULES), kind


BAD = {
    "a lending limit that is no quantity": ("spec.resourceGroups.0.flavors.0.resources.0.lendingLimit", "many"),
    "a cohort that is no name": ("spec.cohortName", "Big Cohort"),
    "a policy that Kueue does not know": ("spec.preemption.reclaimWithinCohort", "Always"),
    "a misspelt field": ("spec.fairsharing", {}),
    "more covered resources than quotas": ("spec.resourceGroups.0.coveredResources", ["a", "b"]),
    "borrowing from lower priorities but never reclaiming": (
        "spec.preemption",
        {"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}},
    ),
}


@pytest.mark.parametrize("case", BAD, ids=str)
def test_the_judge_judges(case: str) -> None:
    """The validator finds what is wrong, so that finding nothing means something."""
    content = named(objects([promise()], STYLE), "ClusterQueue/vision.h200")
    path, value = BAD[case]
    *steps, last = path.split(".")
    place: Any = content
    for step in steps:
        place = place[int(step)] if step.isdigit() else place[step]
    place[last] = value
    assert problems(content)


def test_what_kueue_holds_for_immutable_is_found() -> None:
    flavor, topology = (
        named(objects([promise()], STYLE), name) for name in ("ResourceFlavor/h200", "Topology/islands")
    )
    other = objects([promise()], KueueStyle(sku_label="x/sku", island_label="x/island"))
    assert problems(named(other, "ResourceFlavor/h200"), flavor)
    assert problems(named(other, "Topology/islands"), topology)


TEAMS = st.text(min_size=1, max_size=70)
SKUS = st.sampled_from(["A100", "H100", "H200", "GB200", "RTX 6000", "h20/x", "日本"])


@st.composite
def clusters(draw: st.DrawFn) -> list[PoolPromise]:
    skus = sorted(draw(st.sets(SKUS, min_size=1, max_size=3)))
    teams = draw(st.lists(TEAMS, min_size=1, max_size=5, unique=True))
    found = []
    for sku in skus:
        guaranteed = {team: 8 * draw(st.integers(0, 3000)) for team in teams if draw(st.booleans())}
        found.append(promise(sku, healthy=8 * draw(st.integers(0, 8000)), guaranteed=guaranteed))
    return found


@given(promises=clusters())
def test_any_fleet_gives_objects_that_kueue_takes(promises: list[PoolPromise]) -> None:
    made = objects(promises, STYLE)
    assert not [problem for each in made for problem in problems(each)]
    names = [setting_name(each) for each in made]
    assert len(set(names)) == len(names)
    for each in made:
        if each["kind"] == "ClusterQueue":
            quota = {key: read_quantity(value) for key, value in quota_of(each).items()}
            assert quota["lendingLimit"] == quota["nominalQuota"]


@given(before=clusters(), after=clusters())
def test_any_change_of_promises_is_one_that_kueue_takes(before: list[PoolPromise], after: list[PoolPromise]) -> None:
    old = {setting_name(each): each for each in objects(before, STYLE)}
    for each in objects(after, STYLE):
        assert not problems(each, old.get(setting_name(each)))


@given(promises=clusters())
def test_never_more_is_promised_than_is_healthy_or_guaranteed(promises: list[PoolPromise]) -> None:
    made = objects(promises, STYLE)
    for each in promises:
        in_pool = [limit(setting_name(one), setting_value(one)) for one in made]
        gpus = sum(one.gpus for one in in_pool if one is not None and one.sku == each.pool.sku)
        assert gpus == max(each.healthy, sum(each.guaranteed.values()))


@given(names=st.lists(TEAMS, min_size=2, max_size=30, unique=True))
def test_teams_never_get_the_same_name(names: list[str]) -> None:
    made = [kube_name(name) for name in [*names, *(kube_name(name) for name in names if kube_name(name) != name)]]
    assert len(set(made)) == len(made)


NAMES = {
    "a fit name stays": ("vision-2", "vision-2"),
    "capitals and signs go": ("Vision & Co", "vision-co-"),
    "nothing is left": ("日本", "x-"),
    "a name that looks hashed is hashed": ("a-0123abcd", "a-0123abcd-"),
}


@pytest.mark.parametrize("case", NAMES, ids=str)
def test_names(case: str) -> None:
    name, want = NAMES[case]
    made = kube_name(name)
    assert made == want if not want.endswith("-") else made.startswith(want) and len(made) == len(want) + HASH_CHARS


def test_names_do_not_depend_on_who_else_is_there() -> None:
    assert kube_name("Vision") != kube_name("vision") == "vision"


QUANTITIES = {0: "0", 8: "8", 512: "512", 1000: "1k", 1024: "1024", 10_000: "10k", 12_800: "12800", 2_000_000: "2M"}


@pytest.mark.parametrize("count", QUANTITIES)
def test_quantities_are_written_as_kubernetes_writes_them(count: int) -> None:
    assert quantity(count) == QUANTITIES[count]
    assert read_quantity(QUANTITIES[count]) == read_quantity(count) == count


def test_what_is_no_whole_number_is_none() -> None:
    assert [read_quantity(text) for text in ("1.5", "-8", "", "8Gi", "many", None)] == [None] * 6


def test_defaults_of_the_server_and_other_spellings_are_no_difference() -> None:
    content = named(objects([promise()], STYLE), "ClusterQueue/vision.h200")
    stored = yaml.safe_load(yaml.safe_dump(content))
    stored["spec"]["flavorFungibility"] = {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"}
    stored["spec"]["fairSharing"]["weight"] = 192
    stored["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = 192
    stored["status"] = {"reservingWorkloads": 3}
    stored["metadata"]["resourceVersion"] = "17"
    assert setting_value(stored) == setting_value(content)


HANDS = {
    "another guarantee": lambda spec: spec["resourceGroups"][0]["flavors"][0]["resources"][0].update(nominalQuota="8"),
    "a borrowing limit": lambda spec: spec["resourceGroups"][0]["flavors"][0]["resources"][0].update(
        borrowingLimit="0"
    ),
    "the queue is stopped": lambda spec: spec.update(stopPolicy="HoldAndDrain"),
    "priority counts between teams": lambda spec: spec["preemption"].update(
        borrowWithinCohort={"policy": "LowerPriority"}
    ),
    "everybody may use it": lambda spec: spec.update(namespaceSelector={}),
    "another weight": lambda spec: spec["fairSharing"].update(weight="1"),
}


@pytest.mark.parametrize("case", HANDS, ids=str)
def test_what_breaks_the_promise_is_a_difference(case: str) -> None:
    content = named(objects([promise()], STYLE), "ClusterQueue/vision.h200")
    before = setting_value(content)
    HANDS[case](content["spec"])
    assert setting_value(content) != before


def test_a_limit_is_read_back_with_the_names_of_the_book() -> None:
    values = settings([promise(guaranteed={"Vision & Co": 64})], STYLE)
    found = {limit(name, value) for name, value in values.items()}
    assert found == {None, Limit("H200", "", 256), Limit("H200", "Vision & Co", 64)}


def test_a_note_changed_by_hand_gives_nobody_a_guarantee() -> None:
    content = named(objects([promise()], STYLE), "ClusterQueue/vision.h200")
    name = setting_name(content)
    content["metadata"]["annotations"]["plimsoll/team"] = "evals"
    assert limit(name, setting_value(content)) is None


def test_a_queue_of_another_shape_is_no_limit() -> None:
    assert limit("ClusterQueue/x.h200", '{"spec":{},"notes":{}}') is None
    assert limit("ClusterQueue/x.h200", "not json") is None


def test_the_text_changes_only_in_the_lines_whose_number_changed() -> None:
    before, after = (
        render([promise(guaranteed={"evals": 64, "vision": gpus})], STYLE).splitlines() for gpus in (192, 200)
    )
    differing = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    words = [" ".join(new.split()) for _, new in differing]
    # The flex that is left; guarantee, lending limit and weight of the one queue.
    assert sorted(words) == ["lendingLimit: '200'", "nominalQuota: '200'", "nominalQuota: '56'", "weight: '200'"]


def test_the_text_is_what_the_objects_are() -> None:
    text = render([promise()], STYLE)
    assert list(yaml.safe_load_all(text)) == objects([promise()], STYLE)
    assert render([promise(guaranteed={"vision": 192, "evals": 64})], STYLE) == text  # whatever the order in the book


@given(promises=clusters())
def test_the_text_of_any_fleet_is_read_back_as_its_objects(promises: list[PoolPromise]) -> None:
    assert list(yaml.safe_load_all(render(promises, STYLE))) == objects(promises, STYLE)


def test_skus_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(Refused) as caught:
        objects([promise("H200"), promise("h200")], STYLE)
    assert caught.value.code == "kueue_same_name"


@pytest.mark.parametrize("namespace", ["teams", "Team-{team}", "{team}-", "a-prefix-that-is-too-long-{team}"])
def test_a_namespace_that_is_not_each_teams_own_is_refused(namespace: str) -> None:
    with pytest.raises(UsageError) as caught:
        KueueStyle(namespace=namespace).check()
    assert caught.value.code == "kueue_bad_style"
    KueueStyle(namespace="team-{team}").check()


def test_a_label_that_kubernetes_would_not_take_is_refused() -> None:
    with pytest.raises(UsageError):
        KueueStyle(sku_label="my label").check()
