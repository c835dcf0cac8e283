"""Marks in Kubernetes and the API double's nodes and pods, judged by kubectl and by the official client."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from plimsoll.campaigns.marks.kubernetes import KubernetesMarks
from plimsoll.campaigns.marks.model import Acted, Extent
from plimsoll.connect.kubeconfig import read_kubeconfig
from plimsoll.connect.kubernetes_nodes import MARK
from plimsoll.connect.kubernetes_pods import KubernetesPods
from tests.real.test_quota_kubernetes import TOKEN, Kubectl
from tests.support.kube_nodes import Budget, KubeNodes
from tests.support.parts import missing_part
from tests.support.tls import make_certificate, server_context

NAMES = ("n1", "n2", "n3")
BATCH = "tiger#1"
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
CORDON = "node.kubernetes.io/unschedulable"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def api(certificate: tuple[Path, Path]) -> Iterator[KubeNodes]:
    with KubeNodes(NAMES, token=TOKEN, tls=server_context(*certificate)) as server:
        yield server


@pytest.fixture
def kubectl(tmp_path: Path, api: KubeNodes, certificate: tuple[Path, Path]) -> Kubectl:
    return Kubectl(tmp_path, api, certificate[0])


@pytest.fixture
def marks(kubectl: Kubectl) -> KubernetesMarks:
    client = KubernetesPods(read_kubeconfig(kubectl.config, context="tiger"))
    return KubernetesMarks(client, campaign="nic-firmware", grace_seconds=60)


def mark(marks: KubernetesMarks, *names: str) -> Acted:
    return marks.mark(BATCH, names, starts=NOON, ends=NOON + timedelta(hours=4), reason="firmware")


def taints(node: dict[str, Any]) -> list[str]:
    return sorted(f"{taint['key']}={taint.get('value', '')}" for taint in node["spec"].get("taints") or [])


def test_kubectl_sees_the_mark_and_that_it_is_gone(marks: KubernetesMarks, kubectl: Kubectl) -> None:
    assert mark(marks, "n1", "n2", "n9") == Acted(("n1", "n2"), ("n9",))
    node = kubectl.json("get", "node", "n1")
    assert node["spec"]["unschedulable"] is True
    assert taints(node) == [f"{CORDON}=", f"{MARK}=nic-firmware"]
    assert json.loads(node["metadata"]["annotations"][MARK])["batch"] == BATCH
    assert marks.look(BATCH, NAMES).extent is Extent.PARTLY
    assert marks.look(BATCH, ["n1", "n2"]).extent is Extent.MARKED
    assert "already cordoned" in kubectl.run("cordon", "n2")
    assert marks.unmark(BATCH, ["n1", "n2"]) == Acted(("n1", "n2"))
    assert [taints(each) for each in kubectl.json("get", "nodes")["items"]] == [[], [], []]
    assert marks.look(BATCH, NAMES).extent is Extent.NOT_MARKED


def test_what_somebody_does_with_kubectl_survives(marks: KubernetesMarks, kubectl: Kubectl) -> None:
    kubectl.run("cordon", "n1")
    assert mark(marks, *NAMES).done == NAMES
    kubectl.run("uncordon", "n2")
    assert marks.look(BATCH, NAMES).open == ("n2",)
    kubectl.run("cordon", "n2")
    kubectl.run("taint", "--validate=false", "node", "n3", "team=vision:NoSchedule")
    acted = marks.unmark(BATCH, NAMES)
    assert acted.done == ("n3",)
    assert set(acted.left) == {"n1", "n2"}
    assert all("kubectl" in why for why in acted.left.values())
    found = {each["metadata"]["name"]: taints(each) for each in kubectl.json("get", "nodes")["items"]}
    assert found == {"n1": [f"{CORDON}="], "n2": [f"{CORDON}="], "n3": ["team=vision"]}


def test_a_node_is_drained_as_kubectl_would_drain_it(marks: KubernetesMarks, kubectl: Kubectl, api: KubeNodes) -> None:
    api.add_pod("web-1", "n1", app="web")
    api.add_pod("web-2", "n1", app="web")
    api.add_pod("exporter", "n1", owner="DaemonSet")
    api.budgets = [Budget("default", "web", 1)]
    mark(marks, "n1")
    planned = kubectl.run("drain", "n1", "--ignore-daemonsets", "--dry-run=client")
    assert "web-1" in planned
    assert "web-2" in planned
    assert marks.drained(["n1", "n2"]).busy == {"n1": ("pod default/web-1", "pod default/web-2")}
    cleared = marks.clear(["n1"])
    assert cleared.asked == ("pod default/web-1",)
    assert list(cleared.waiting) == ["pod default/web-2"]
    api.settle()
    api.budgets = []
    assert marks.clear(["n1"]).waiting == {}
    assert marks.drained(["n1"]).empty == (), "it is on its way out"
    api.settle()
    assert marks.drained(["n1", "n2"]).empty == ("n1", "n2")


def test_the_official_client_accepts_the_double_and_sees_the_same(
    marks: KubernetesMarks, kubectl: Kubectl, api: KubeNodes
) -> None:
    try:
        client = importlib.import_module("kubernetes")
    except ImportError:
        missing_part("the official Kubernetes client")
    core = client.client.CoreV1Api(client.config.new_client_from_config(str(kubectl.config), context="tiger"))
    mark(marks, "n1")
    node = core.read_node("n1")
    assert node.spec.unschedulable is True
    assert (MARK, "nic-firmware", "NoSchedule") in [(each.key, each.value, each.effect) for each in node.spec.taints]
    core.patch_node("n2", {"spec": {"unschedulable": True}})
    assert mark(marks, "n2").done == ("n2",)
    assert list(marks.unmark(BATCH, ["n1", "n2"]).left) == ["n2"]
    stale = {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"unschedulable": True}}
    with pytest.raises(client.client.ApiException) as caught:
        core.patch_node("n1", stale)
    assert caught.value.status == 409
    api.add_pod("web-1", "n1", app="web")
    api.budgets = [Budget("default", "web", 1)]
    pods = core.list_pod_for_all_namespaces(field_selector="spec.nodeName=n1,status.phase!=Succeeded").items
    assert [pod.metadata.name for pod in pods] == ["web-1"]
    eviction = client.client.V1Eviction(
        api_version="policy/v1", kind="Eviction", metadata=client.client.V1ObjectMeta(name="web-1", namespace="default")
    )
    with pytest.raises(client.client.ApiException) as caught:
        core.create_namespaced_pod_eviction("web-1", "default", eviction)
    assert caught.value.status == 429
    assert "disruption budget" in marks.clear(["n1"]).waiting["pod default/web-1"]
