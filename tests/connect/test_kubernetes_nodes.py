"""Nodes are closed for planned work and opened again on the API double, which real clients judge in tests/real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from plimsoll.connect.kubeconfig import access
from plimsoll.connect.kubernetes_nodes import MARK, KubernetesNodes, Note, mark_value
from plimsoll.connect.kubernetes_pods import KubernetesPods
from plimsoll.errors import Refused, Unavailable
from tests.support.kube_api import Problem
from tests.support.kube_nodes import Budget, KubeNodes

NAMES = ("n1", "n2", "n3")
NOTE = Note("nic-firmware", "tiger#1", "firmware 28.43")
CORDON = "node.kubernetes.io/unschedulable"


@pytest.fixture
def api() -> Iterator[KubeNodes]:
    with KubeNodes(NAMES) as server:
        yield server


@pytest.fixture
def client(api: KubeNodes) -> KubernetesPods:
    return KubernetesPods(access(url=api.url), timeout_seconds=10, sleep=lambda _seconds: None)


def cordon(content: dict[str, Any]) -> None:
    content["spec"]["unschedulable"] = True


def uncordon(content: dict[str, Any]) -> None:
    content["spec"].pop("unschedulable", None)


def close(client: KubernetesNodes, *names: str, note: Note = NOTE) -> tuple[tuple[str, ...], dict[str, str]]:
    closed = client.close(names, note)
    return closed.done, dict(closed.left)


def reopen(client: KubernetesNodes, *names: str) -> tuple[tuple[str, ...], dict[str, str]]:
    opened = client.open(names, campaign=NOTE.campaign, batch=NOTE.batch)
    return opened.done, dict(opened.left)


def test_a_node_is_cordoned_tainted_and_says_why_and_comes_back_as_it_was(
    api: KubeNodes, client: KubernetesPods
) -> None:
    before = {name: api.node(name)["spec"] for name in NAMES}
    assert close(client, "n1", "n2") == (("n1", "n2"), {})
    assert api.node("n1")["spec"]["unschedulable"] is True
    assert {"key": MARK, "value": "nic-firmware", "effect": "NoSchedule"} in api.node("n1")["spec"]["taints"]
    assert json.loads(api.node("n2")["metadata"]["annotations"][MARK]) == {
        "campaign": "nic-firmware", "batch": "tiger#1", "reason": "firmware 28.43", "was_cordoned": False,
    }  # fmt: skip
    assert api.node("n3")["spec"] == before["n3"]
    assert reopen(client, "n1", "n2") == (("n1", "n2"), {})
    for name in ("n1", "n2"):
        assert "unschedulable" not in api.node(name)["spec"]
        assert api.taint_keys(name) == []
        assert MARK not in api.node(name)["metadata"].get("annotations", {})


def test_asking_again_writes_nothing(api: KubeNodes, client: KubernetesPods) -> None:
    for act in (close, reopen):
        act(client, *NAMES)
        writes = list(api.writes)
        assert act(client, *NAMES) == (NAMES, {})
        assert api.writes == writes


def test_a_cordon_from_before_survives(api: KubeNodes, client: KubernetesPods) -> None:
    api.by_hand("n1", cordon)
    assert close(client, "n1") == (("n1",), {})
    assert close(client, "n1") == (("n1",), {}), "the second time it is our own cordon that is there"
    assert reopen(client, "n1") == ((), {"n1": "cordoned by kubectl-cordon"})
    assert api.node("n1")["spec"]["unschedulable"] is True
    assert api.taint_keys("n1") == [CORDON]


def test_a_cordon_from_before_survives_where_nobody_knows_who_made_it(api: KubeNodes, client: KubernetesPods) -> None:
    api.add_node("n4", is_cordoned=True)
    api.objects["nodes", "", "n4"].managers.clear()
    assert close(client, "n4") == (("n4",), {})
    assert reopen(client, "n4") == ((), {"n4": "cordoned by somebody else"})
    assert api.node("n4")["spec"]["unschedulable"] is True


def test_a_cordon_from_before_that_ended_meanwhile_is_not_put_back(api: KubeNodes, client: KubernetesPods) -> None:
    api.by_hand("n1", cordon)
    close(client, "n1")
    api.by_hand("n1", uncordon, manager="kubectl-uncordon")
    assert close(client, "n1") == (("n1",), {}), "it is closed again: the work goes on"
    assert api.node("n1")["spec"]["unschedulable"] is True
    assert reopen(client, "n1") == (("n1",), {})
    assert "unschedulable" not in api.node("n1")["spec"]


def test_a_cordon_that_somebody_made_after_us_survives(api: KubeNodes, client: KubernetesPods) -> None:
    close(client, "n1")
    api.by_hand("n1", uncordon, manager="kubectl-uncordon")
    api.by_hand("n1", cordon)
    assert reopen(client, "n1") == ((), {"n1": "cordoned by kubectl-cordon"})
    assert api.taint_keys("n1") == [CORDON]


def test_a_mark_of_other_work_is_left_alone(api: KubeNodes, client: KubernetesPods) -> None:
    close(client, "n1")
    other = Note("os-image", "tiger#1")
    assert close(client, "n1", "n2", note=other) == (("n2",), {"n1": "marked for campaign nic-firmware batch tiger#1"})
    assert reopen(client, "n1", "n2") == (("n1",), {"n2": "marked for campaign os-image batch tiger#1"})
    assert client.marked_nodes(["n2"])["n2"].is_closed_for("os-image", "tiger#1")
    api.by_hand("n3", lambda content: content["metadata"].setdefault("annotations", {}).update({MARK: "by hand"}))
    assert close(client, "n3") == ((), {"n3": "marked by another"})


def test_an_older_batch_does_not_open_what_a_newer_one_closed(api: KubeNodes, client: KubernetesPods) -> None:
    close(client, "n1", note=Note("nic-firmware", "tiger#2"))
    done, left = reopen(client, "n1")
    assert (done, left) == ((), {"n1": "marked for campaign nic-firmware batch tiger#2"})
    assert api.node("n1")["spec"]["unschedulable"] is True


def test_nodes_that_are_not_there_are_named(api: KubeNodes, client: KubernetesPods) -> None:
    closed = client.close(["n1", "gone", "n2", "gone"], NOTE)
    assert (closed.done, closed.missing) == (("n1", "n2"), ("gone",))

    def vanish(name: str) -> None:
        api.objects.pop(("nodes", "", name), None)

    api.on_patch = vanish
    closed = client.close(["n1", "n3"], NOTE)
    assert (closed.done, closed.missing) == (("n1",), ("n3",))


def test_what_another_writes_in_between_is_kept(api: KubeNodes, client: KubernetesPods) -> None:
    sick = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}

    def write(name: str) -> None:
        if "node.kubernetes.io/not-ready" not in api.taint_keys(name):
            api.by_hand(name, lambda content: content["spec"]["taints"].append(sick), manager="controller")

    api.on_patch = write
    assert close(client, "n1") == (("n1",), {})
    assert api.taint_keys("n1") == ["node.kubernetes.io/not-ready", CORDON, MARK]
    assert reopen(client, "n1") == (("n1",), {})
    assert api.taint_keys("n1") == ["node.kubernetes.io/not-ready"]


def test_a_node_that_others_never_stop_writing_to_is_given_up(api: KubeNodes, client: KubernetesPods) -> None:
    count = iter(range(1_000))

    def write(name: str) -> None:
        if name == "n2":
            api.by_hand(name, lambda content: content["metadata"]["labels"].update({"beat": str(next(count))}))

    api.on_patch = write
    with pytest.raises(Refused) as caught:
        client.close(NAMES, NOTE)
    assert caught.value.code == "kubernetes_not_done"
    assert caught.value.fields["done"] == ["n1", "n3"]
    assert "n2" in str(caught.value)


def test_a_lost_answer_is_asked_for_again_and_changes_nothing_twice(api: KubeNodes, client: KubernetesPods) -> None:
    lost = ["n1", "n2"]
    api.is_answer_lost = lambda name: name in lost and not lost.remove(name)  # type: ignore[func-returns-value]
    assert close(client, *NAMES) == (NAMES, {})
    assert sorted(api.writes) == [f"PATCH nodes/{name}" for name in NAMES]


def test_a_server_that_dies_after_the_first_node_is_asked_again(api: KubeNodes, client: KubernetesPods) -> None:
    def die(name: str) -> None:
        if name != "n1":
            raise ConnectionAbortedError

    api.on_patch = die
    with pytest.raises(Unavailable) as caught:
        client.close(NAMES, NOTE)
    assert caught.value.code == "kubernetes_unavailable"
    nodes = client.marked_nodes(NAMES)
    assert [name for name in NAMES if nodes[name].is_closed_for(NOTE.campaign, NOTE.batch)] == ["n1"]
    api.on_patch = lambda _name: None
    assert close(client, *NAMES) == (NAMES, {})
    assert api.writes == [f"PATCH nodes/{name}" for name in NAMES]


def test_without_rights_it_says_which_are_needed(api: KubeNodes, client: KubernetesPods) -> None:
    def forbid(name: str) -> None:
        raise Problem(403, "Forbidden", f'nodes "{name}" is forbidden')

    api.on_patch = forbid
    with pytest.raises(Unavailable) as caught:
        client.close(NAMES, NOTE)
    assert "patch nodes" in caught.value.next_step


def test_many_nodes_are_read_in_pages(api: KubeNodes, client: KubernetesPods) -> None:
    names = [f"m{number:03}" for number in range(100)]
    for name in names:
        api.add_node(name)
    api.page_objects_max = 7
    assert client.close(names, NOTE).done == tuple(names)
    assert len(client.marked_nodes(names)) == 100
    assert api.requests.count("GET /api/v1/nodes") >= 2 * 15


def test_a_taints_value_is_what_kubernetes_takes() -> None:
    cases = {"nic-firmware": "nic-firmware", "NIC 28.43/b": "NIC-28.43-b", "-ü-": "x", "x" * 99: "x" * 63, "": "x"}
    assert {text: mark_value(text) for text in cases} == cases


def test_a_node_is_empty_when_only_daemons_and_the_kubelets_own_are_left(
    api: KubeNodes, client: KubernetesPods
) -> None:
    api.add_pod("web-1", "n1")
    api.add_pod("web-2", "n2", deletionTimestamp="2026-01-05T11:00:00Z")
    api.add_pod("exporter", "n3", owner="DaemonSet")
    api.add_pod("static", "n3", annotations={"kubernetes.io/config.mirror": "abc"})
    api.add_pod("done", "n3")
    api.objects["pods", "default", "done"].content["status"]["phase"] = "Succeeded"
    assert [(pod.name, pod.node, pod.is_going) for pod in client.pods(NAMES)] == [
        ("web-1", "n1", False), ("web-2", "n2", True),
    ]  # fmt: skip
    many = [*NAMES, *(f"x{number}" for number in range(40))]
    assert [pod.name for pod in client.pods(many)] == ["web-1", "web-2"]


def test_an_eviction_waits_for_the_budget_and_others_go(api: KubeNodes, client: KubernetesPods) -> None:
    for number, node in enumerate(("n1", "n1", "n2")):
        api.add_pod(f"web-{number}", node, app="web")
    api.add_pod("batch-1", "n1", app="batch")
    api.budgets = [Budget("default", "web", 2)]
    evicted = client.evict(client.pods(["n1"]), grace_seconds=30)
    assert [pod.name for pod in evicted.going] == ["batch-1", "web-0"]
    assert list(evicted.waiting) == ["pod default/web-1"]
    assert "disruption budget" in evicted.waiting["pod default/web-1"]
    assert {asked["deleteOptions"]["gracePeriodSeconds"] for asked in api.evictions} == {30}
    assert api.requests.count("POST /api/v1/namespaces/default/pods/web-1/eviction") == 1, "it is not hammered"
    api.settle()
    api.add_pod("web-3", "n2", app="web")  # its replacement runs
    evicted = client.evict(client.pods(["n1"]))
    assert ([pod.name for pod in evicted.going], evicted.waiting) == (["web-1"], {})
    assert "gracePeriodSeconds" not in api.evictions[-1]["deleteOptions"]


def test_a_pod_that_is_gone_or_was_replaced_is_gone(api: KubeNodes, client: KubernetesPods) -> None:
    api.add_pod("web-1", "n1")
    api.add_pod("web-2", "n1")
    pods = client.pods(["n1"])
    del api.objects["pods", "default", "web-1"]
    api.objects["pods", "default", "web-2"].content["metadata"]["uid"] = "another"
    assert client.evict(pods).going == tuple(pods)
    assert api.evictions == [], "the new pod of the same name was not asked to go"
