"""Kueue's objects and the API double, judged by Debian's kubectl and by the official client of Kubernetes."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.connect.kubeconfig import read_kubeconfig
from plimsoll.connect.kueue import KueueApi
from plimsoll.quota.outlets.kueue import KueueStyle
from plimsoll.quota.outlets.kueue_outlet import KueueOutlet
from plimsoll.quota.outlets.push import OnDrift, Pushed, Result, push
from tests.support.imports import Importer
from tests.support.inside import plimsoll
from tests.support.kube_api import KubeApi
from tests.support.parts import missing_part
from tests.support.promises import align, aligned_fleet, guaranteed
from tests.support.tls import make_certificate, server_context

TEAMS = {"evals": 16, "vision": 48}
KINDS = "topologies,resourceflavors,workloadpriorityclasses,cohorts,clusterqueues,localqueues"
TOKEN = "a-token-of-a-test"


DIFF_MINOR_VERSION = 27
"""An older `kubectl diff` asks for the protobuf of OpenAPI 2, which the double does not speak."""


class Kubectl:
    """kubectl with a kubeconfig of its own."""

    def __init__(self, folder: Path, api: KubeApi, ca_file: Path) -> None:
        self._binary = shutil.which("kubectl") or missing_part("kubectl")
        self._folder = folder
        self.config = folder / "kubeconfig"
        # Written by hand: the `kubectl config` of Debian 12 falls over a file that it has just begun.
        self.config.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {"name": "tiger", "cluster": {"server": api.url, "certificate-authority": str(ca_file)}}
                    ],
                    "users": [{"name": "engineer", "user": {"token": TOKEN}}],
                    "contexts": [{"name": "tiger", "context": {"cluster": "tiger", "user": "engineer"}}],
                    "current-context": "tiger",
                }
            )
        )

    def run(self, *words: str, text: str = "", want_code: int = 0) -> str:
        command = [self._binary, f"--cache-dir={self._folder}/cache", *words]
        environment = {"HOME": str(self._folder), "PATH": os.environ["PATH"], "KUBECONFIG": str(self.config)}
        ran = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=60, env=environment, check=False
        )
        assert ran.returncode == want_code, f"{words}: {ran.stdout}{ran.stderr}"
        return ran.stdout if want_code == 0 else ran.stdout + ran.stderr

    @property
    def minor_version(self) -> int:
        """Of 1.N; Debian 12 has 1.20."""
        return int(self.json("version", "--client")["clientVersion"]["minor"].rstrip("+"))

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "-o", "json"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """kubectl shows a token only to a server that it can trust."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def api(certificate: tuple[Path, Path]) -> Iterator[KubeApi]:
    with KubeApi(namespaces=("default", "evals", "vision"), token=TOKEN, tls=server_context(*certificate)) as server:
        yield server


@pytest.fixture
def kubectl(tmp_path: Path, api: KubeApi, certificate: tuple[Path, Path]) -> Kubectl:
    return Kubectl(tmp_path, api, certificate[0])


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/plimsoll.db"


@pytest.fixture
def importer(tmp_path: Path, database: str) -> Importer:
    return aligned_fleet(tmp_path, TEAMS, dsn=database)


def tell(importer: Importer, kubectl: Kubectl, on_drift: OnDrift = OnDrift.SHOW) -> Pushed:
    api = KueueApi(read_kubeconfig(kubectl.config, context="tiger"))
    outlet = KueueOutlet(api, cluster="tiger", style=KueueStyle())
    return push(importer.keeper, outlet, "tiger", actor="tester", on_drift=on_drift)


def quota_of(queue: dict[str, Any]) -> dict[str, str]:
    (resource,) = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    return {key: value for key, value in resource.items() if key != "name"}


def test_kubectl_sees_what_was_pushed(importer: Importer, kubectl: Kubectl) -> None:
    assert tell(importer, kubectl).is_complete
    listed = kubectl.json("get", KINDS, "--all-namespaces", "-l", "app.kubernetes.io/managed-by=plimsoll")["items"]
    assert len(listed) == 11
    queue = kubectl.json("get", "cq", "vision.h200")
    assert quota_of(queue) == {"nominalQuota": "48", "lendingLimit": "48"}
    names = kubectl.run("get", "lq", "--all-namespaces", "-o", "name").split()
    assert names == ["localqueue.kueue.x-k8s.io/h200"] * 2


def test_kubectl_applies_what_is_rendered_and_a_push_finds_nothing_to_do(
    importer: Importer, kubectl: Kubectl, database: str
) -> None:
    rendered = plimsoll("quota", "render", "kueue", "tiger", db=database)
    assert rendered.code == 0, rendered.err
    apply = ("apply", "--validate=false", "--server-side", "--field-manager=plimsoll", "-f", "-")
    said = kubectl.run(*apply, text=rendered.out)
    assert said.count("serverside-applied") == 11
    pushed = tell(importer, kubectl)
    assert (pushed.same, pushed.outcomes) == (11, [])
    assert kubectl.run(*apply, text=rendered.out).count("serverside-applied") == 11
    assert tell(importer, kubectl).outcomes == [], "applied twice, it is still ours and the same"
    if kubectl.minor_version >= DIFF_MINOR_VERSION:
        assert kubectl.run("diff", "--server-side", "--field-manager=plimsoll", "-f", "-", text=rendered.out) == ""


def test_a_patch_by_hand_is_drift_and_is_put_back(importer: Importer, kubectl: Kubectl) -> None:
    tell(importer, kubectl)
    kubectl.run("patch", "cq", "vision.h200", "--type=merge", "-p", '{"spec": {"stopPolicy": "Hold"}}')
    pushed = tell(importer, kubectl)
    (left,) = pushed.with_result(Result.LEFT)
    assert (left.step.name, left.owner) == ("ClusterQueue/vision.h200", "kubectl-patch")
    assert tell(importer, kubectl, OnDrift.PUT_BACK).is_complete
    assert kubectl.json("get", "cq", "vision.h200")["spec"]["stopPolicy"] == "None"


def test_what_somebody_else_applies_against_us_is_a_conflict_for_them(
    importer: Importer, kubectl: Kubectl, database: str
) -> None:
    tell(importer, kubectl)
    documents = plimsoll("quota", "render", "kueue", "tiger", db=database).out.split("---\n")
    (rendered,) = [each.replace("'48'", "'64'") for each in documents if "\n  name: vision.h200\n" in each]
    apply = ("apply", "--validate=false", "--server-side", "--field-manager=gitops", "-f", "-")
    said = kubectl.run(*apply, text=rendered, want_code=1)
    assert 'conflict with "plimsoll"' in said
    assert ".spec.resourceGroups" in said
    kubectl.run(*apply, "--force-conflicts", text=rendered)
    pushed = tell(importer, kubectl)
    assert {each.owner for each in pushed.with_result(Result.LEFT)} == {"gitops"}
    assert tell(importer, kubectl, OnDrift.ADOPT).is_complete  # 16 + 64 fit under the line of 80
    assert guaranteed(importer) == {"evals": 16, "vision": 64}


def test_a_queue_deleted_by_hand_is_drift(importer: Importer, kubectl: Kubectl) -> None:
    tell(importer, kubectl)
    kubectl.run("delete", "lq", "h200", "-n", "vision")
    pushed = tell(importer, kubectl)
    assert [each.step.name for each in pushed.with_result(Result.LEFT)] == ["LocalQueue/vision/h200"]
    assert tell(importer, kubectl, OnDrift.PUT_BACK).is_complete
    kubectl.run("get", "lq", "h200", "-n", "vision")


def test_kueue_refuses_a_lending_limit_above_the_guarantee_and_we_never_make_one(
    importer: Importer, kubectl: Kubectl
) -> None:
    tell(importer, kubectl)
    queue = kubectl.json("get", "cq", "vision.h200")
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "8"
    said = kubectl.run("replace", "--validate=false", "-f", "-", text=json.dumps(queue), want_code=1)
    assert "invalid" in said  # newer ones name lendingLimit as well
    align(importer, {"evals": 16, "vision": 8})
    assert tell(importer, kubectl).is_complete
    assert quota_of(kubectl.json("get", "cq", "vision.h200")) == {"nominalQuota": "8", "lendingLimit": "8"}


def test_a_new_namespace_lets_the_rest_through(importer: Importer, kubectl: Kubectl, api: KubeApi) -> None:
    api.namespaces.discard("evals")
    assert not tell(importer, kubectl).is_complete
    # Not `create namespace`: kubectl speaks protobuf of Kubernetes' own kinds, and the double does not.
    namespace = '{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "evals"}}'
    kubectl.run("create", "--validate=false", "-f", "-", text=namespace)
    assert tell(importer, kubectl).is_complete


def test_the_official_client_accepts_the_double_and_sees_the_same(importer: Importer, kubectl: Kubectl) -> None:
    try:
        client = importlib.import_module("kubernetes")
    except ImportError:
        missing_part("the official Kubernetes client")
    tell(importer, kubectl)
    configured = client.config.new_client_from_config(str(kubectl.config), context="tiger")
    custom = client.client.CustomObjectsApi(configured)
    where = {"group": "kueue.x-k8s.io", "version": "v1beta2"}
    selector = "app.kubernetes.io/managed-by=plimsoll"
    listed = custom.list_cluster_custom_object(**where, plural="clusterqueues", label_selector=selector)
    assert {each["metadata"]["name"]: quota_of(each)["nominalQuota"] for each in listed["items"]} == {
        "evals.h200": "16",
        "vision.h200": "48",
    }
    body = {"spec": {"stopPolicy": "HoldAndDrain"}}
    custom.patch_cluster_custom_object(**where, plural="clusterqueues", name="vision.h200", body=body)
    (left,) = tell(importer, kubectl).with_result(Result.LEFT)
    assert left.step.name == "ClusterQueue/vision.h200"
    with pytest.raises(client.client.ApiException) as caught:
        custom.get_cluster_custom_object(**where, plural="clusterqueues", name="nobody.h200")
    assert caught.value.status == 404
    namespaces = client.client.CoreV1Api(configured).list_namespace().items
    assert sorted(each.metadata.name for each in namespaces) == ["default", "evals", "vision"]
