"""What `kubectl get nodes -o json` prints, whole and broken."""

from __future__ import annotations

import copy
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.connect import kubernetes
from plimsoll.connect.kubernetes import Condition, Taint, parse_nodes
from plimsoll.errors import PlimsollError, Refused, UsageError
from tests.support.parts import missing_part

SINCE = "2026-01-05T11:00:00Z"
WHEN = datetime(2026, 1, 5, 11, tzinfo=UTC)


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {
        "lastHeartbeatTime": "2026-01-06T09:30:12Z", "lastTransitionTime": SINCE, "message": message, "reason": reason,
        "status": status, "type": kind,
    }  # fmt: skip


def gpu_node(name: str = "gpu-0001", **changes: Any) -> dict[str, Any]:
    """A healthy H100 node as the API gives it, with node-problem-detector and the GPU operator's labels."""
    resources = {
        "cpu": "96", "ephemeral-storage": "28260312Ki", "hugepages-1Gi": "0", "hugepages-2Mi": "0",
        "memory": "1979639268Ki", "nvidia.com/gpu": "8", "pods": "110", "rdma/hca_shared_devices_a": "1k",
    }  # fmt: skip
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
            "creationTimestamp": "2025-11-01T08:00:00Z",
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "node.kubernetes.io/instance-type": "Standard_ND96isr_H100_v5",
                "nvidia.com/gpu.count": "8",
                "nvidia.com/gpu.present": "true",
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
                "nvidia.com/mig.strategy": "single",
                "topology.kubernetes.io/zone": "eastus-1",
            },
            "name": name,
            "resourceVersion": "123456789",
            "uid": "0b8a2b1e-5b5c-4a53-9f0f-0d8a3f1c7f11",
        },
        "spec": {
            "podCIDR": "10.244.3.0/24",
            "podCIDRs": ["10.244.3.0/24"],
            "providerID": "azure:///subscriptions/0/resourceGroups/tiger",
            "taints": [{"effect": "NoSchedule", "key": "nvidia.com/gpu", "value": "present"}],
        },
        "status": {
            "addresses": [{"address": "10.0.0.7", "type": "InternalIP"}, {"address": name, "type": "Hostname"}],
            "allocatable": dict(resources),
            "capacity": dict(resources),
            "conditions": [
                condition("KernelDeadlock", "False", "KernelHasNoDeadlock", "kernel has no deadlock"),
                condition("ReadonlyFilesystem", "False", "FilesystemIsNotReadOnly", "Filesystem is not read-only"),
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "images": [{"names": ["registry.k8s.io/pause:3.9"], "sizeBytes": 321520}],
            "nodeInfo": {"architecture": "amd64", "kubeletVersion": "v1.29.4", "operatingSystem": "linux"},
        },
    }  # fmt: skip
    document.update(changes)
    return document


def listed(*nodes: dict[str, Any], kind: str = "List") -> bytes:
    document = {"apiVersion": "v1", "items": list(nodes), "kind": kind, "metadata": {"resourceVersion": ""}}
    return msgspec.json.format(msgspec.json.encode(document), indent=4)


def test_a_healthy_node_is_read_whole() -> None:
    (node,) = parse_nodes(listed(gpu_node()), source="nodes.json")
    assert node.name == "gpu-0001"
    assert node.labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert (node.is_ready, node.ready_since, node.reason) == (True, WHEN, "KubeletReady")
    assert list(node.conditions) == [
        "KernelDeadlock", "ReadonlyFilesystem", "MemoryPressure", "DiskPressure", "PIDPressure", "Ready",
    ]  # fmt: skip
    assert node.conditions["KernelDeadlock"] == Condition(
        "False", "KernelHasNoDeadlock", "kernel has no deadlock", WHEN
    )
    assert node.conditions["KernelDeadlock"].is_true is False
    assert not node.is_cordoned
    assert node.taints == (Taint("nvidia.com/gpu", "present", "NoSchedule"),)
    assert (node.gpus, node.capacity_gpus) == (8, 8)


def sick_node() -> dict[str, Any]:
    """Cordoned, its kubelet silent, one GPU taken away by the device plugin, the kernel's log complaining."""
    document = gpu_node("gpu-0002")
    document["spec"]["unschedulable"] = True
    document["spec"]["taints"] += [
        {"effect": "NoSchedule", "key": "node.kubernetes.io/unschedulable", "timeAdded": SINCE},
        {"effect": "NoExecute", "key": "node.kubernetes.io/unreachable", "timeAdded": SINCE},
    ]
    document["status"]["allocatable"]["nvidia.com/gpu"] = "7"
    document["status"]["conditions"][-1] = condition(
        "Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."
    )
    document["status"]["conditions"].append(condition("GpuXidError", "True", "XidCode79", "GPU fell off the bus"))
    return document


def test_a_sick_node_says_what_is_known() -> None:
    healthy, sick = parse_nodes(listed(gpu_node(), sick_node()).decode(), source="nodes.json")
    assert healthy.is_ready
    assert (sick.is_ready, sick.reason) == (None, "NodeStatusUnknown")
    assert (sick.gpus, sick.capacity_gpus) == (7, 8)
    assert sick.is_cordoned
    assert [taint.key for taint in sick.taints][1:] == [
        "node.kubernetes.io/unschedulable", "node.kubernetes.io/unreachable",
    ]  # fmt: skip
    assert sick.conditions["GpuXidError"].is_true


def test_a_list_of_the_api_and_a_single_node_are_read_too() -> None:
    bare = {key: value for key, value in gpu_node().items() if key not in ("kind", "apiVersion")}
    assert parse_nodes(listed(bare, kind="NodeList"), source="x") == parse_nodes(listed(gpu_node()), source="x")
    assert parse_nodes(msgspec.json.encode(gpu_node()), source="x") == parse_nodes(listed(gpu_node()), source="x")
    assert parse_nodes(b"\xef\xbb\xbf" + listed(), source="x") == []


def test_a_node_that_never_reported_is_neither_ready_nor_not() -> None:
    for document in (
        gpu_node(status={}),
        {"kind": "Node", "metadata": {"name": "a"}},
        gpu_node(status=None, spec=None),
    ):
        (node,) = parse_nodes(listed(document), source="x")
        assert (node.is_ready, node.ready_since, node.gpus, node.conditions) == (None, None, 0, {})


def test_gpus_of_both_makers_count_and_slices_do_not() -> None:
    document = gpu_node()
    document["status"]["allocatable"] = {"amd.com/gpu": 8, "nvidia.com/mig-1g.10gb": "56", "nvidia.com/gpu.shared": "4"}
    (node,) = parse_nodes(listed(document), source="x")
    assert (node.gpus, node.capacity_gpus) == (8, 8)


def test_times_with_another_zone_are_utc() -> None:
    document = gpu_node()
    document["status"]["conditions"][-1]["lastTransitionTime"] = "2026-01-05T13:00:00+02:00"
    assert parse_nodes(listed(document), source="x")[0].ready_since == WHEN


class Case(NamedTuple):
    change: Callable[[dict[str, Any]], object]
    want_path: str
    want_words: str


def at(*path: str | int, value: Any) -> Callable[[dict[str, Any]], object]:
    """Put a value into a document, at a path."""

    def change(document: Any) -> None:
        *way, last = path
        for step in way:
            document = document[step]
        document[last] = value

    return change


CONDITION = ("status", "conditions", 2)
CASES = {
    "no metadata": Case(lambda node: node.pop("metadata"), "items[1].metadata", "it is missing"),
    "no name": Case(lambda node: node["metadata"].pop("name"), "items[1].metadata.name", "it is missing"),
    "an empty name": Case(at("metadata", "name", value=""), "items[1].metadata.name", "length >= 1"),
    "a name that is a number": Case(at("metadata", "name", value=7), "items[1].metadata.name", "got `int`"),
    "a label that is a number": Case(
        at("metadata", "labels", "a", value=7), "items[1].metadata.labels[...]", "got `int`"
    ),
    "a condition without a type": Case(
        lambda node: node["status"]["conditions"][2].pop("type"), "items[1].status.conditions[2].type", "it is missing"
    ),
    "a condition with another status": Case(
        at(*CONDITION, "status", value="Maybe"), "items[1].status.conditions[2].status", "Maybe"
    ),
    "a status that is a truth value": Case(
        at(*CONDITION, "status", value=True), "items[1].status.conditions[2].status", "Expected `str`, got `bool`"
    ),
    "a time that is none": Case(
        at(*CONDITION, "lastTransitionTime", value="yesterday"),
        "items[1].status.conditions[2].lastTransitionTime", "Invalid RFC3339",
    ),
    "a time without a zone": Case(
        at(*CONDITION, "lastTransitionTime", value="2026-01-05T11:00:00"),
        "items[1].status.conditions[2].lastTransitionTime", "timezone",
    ),
    "a taint without an effect": Case(
        at("spec", "taints", value=[{"key": "a"}]), "items[1].spec.taints[0].effect", "it is missing"
    ),
    "GPUs that are no number": Case(
        at("status", "allocatable", "nvidia.com/gpu", value="8k"),
        'items[1].status.allocatable["nvidia.com/gpu"]', "a whole number of GPUs, got '8k'",
    ),
    "less than no GPUs": Case(
        at("status", "capacity", "amd.com/gpu", value=-1),
        'items[1].status.capacity["amd.com/gpu"]', "a whole number of GPUs, got '-1'",
    ),
    "the same name": Case(at("metadata", "name", value="gpu-0001"), "items[1].metadata.name", "as is that of items[0]"),
}  # fmt: skip


def refused(data: bytes) -> PlimsollError:
    with pytest.raises(UsageError) as caught:
        parse_nodes(data, source="nodes.json")
    assert str(caught.value).startswith("nodes.json: ")
    assert caught.value.next_step
    return caught.value


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_wrong_field_is_named_by_its_path(case: Case) -> None:
    document = copy.deepcopy(gpu_node("gpu-0002"))
    case.change(document)
    error = refused(listed(gpu_node(), document))
    assert (error.code, error.fields["path"]) == ("kubernetes_bad_document", case.want_path)
    assert case.want_path in str(error)
    assert case.want_words in str(error)


def test_a_single_nodes_path_has_no_place() -> None:
    document = gpu_node()
    document["status"]["allocatable"]["nvidia.com/gpu"] = "many"
    assert refused(msgspec.json.encode(document)).fields["path"] == 'status.allocatable["nvidia.com/gpu"]'


POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "status": {"conditions": []}}


@pytest.mark.parametrize(
    ("data", "want_path", "want_words"),
    [
        (listed(POD), "items[0].kind", "items[0].kind is 'Pod', expected Node"),
        (listed(gpu_node(), POD), "items[1].kind", "items[1].kind is 'Pod'"),
        (listed({"metadata": {"name": "a"}}), "items[0].kind", "items[0].kind is missing"),
        (listed(POD, kind="PodList"), "kind", "kind is 'PodList', expected List, NodeList or Node"),
        (msgspec.json.encode(POD), "kind", "kind is 'Pod'"),
        (b"{}", "kind", "kind is missing"),
    ],
)
def test_another_kind_is_not_taken_for_a_node(data: bytes, want_path: str, want_words: str) -> None:
    error = refused(data)
    assert (error.code, error.fields["path"]) == ("kubernetes_wrong_kind", want_path)
    assert want_words in str(error)


@pytest.mark.parametrize(
    ("data", "want_words"),
    [
        (b"", "nothing came"),
        (b" \n", "nothing came"),
        (b"error: You must be logged in to the server (Unauthorized)", "it is not JSON"),
        (b"[]", "the document: Expected `object`, got `array`"),
        (b'{"kind": "List"}', "items: expected a value, and it is missing"),
        (b'{"kind": "List", "items": [NaN]}', "it is not JSON: JSON is malformed: invalid character (byte 27)"),
        (listed(gpu_node()).replace(b'"96"', b"NaN"), "it is not JSON: JSON is malformed: invalid character"),
        (listed(gpu_node()).decode().encode("utf-16"), "it is not JSON"),
        (listed(gpu_node("gpu-1")).replace(b"eastus-1", b"\xff"), "it is not JSON"),
        (b'{"kind": "List", "x": ' + b"[" * 100_000, "it is not JSON: it nests too deep"),
    ],
)  # fmt: skip
def test_what_is_no_document_is_said(data: bytes, want_words: str) -> None:
    error = refused(data)
    assert error.code == "kubernetes_bad_document"
    assert want_words in str(error)


def test_too_big_a_document_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "DOCUMENT_BYTES_MAX", 1_000)
    data = listed(gpu_node())
    with pytest.raises(Refused) as caught:
        parse_nodes(data, source="-")
    assert caught.value.code == "kubernetes_too_big"
    assert f"{len(data):,} bytes, at most 1,000 are read" in str(caught.value)


WHOLE = listed(gpu_node(), sick_node())


@given(st.integers(0, len(WHOLE) - 2))
def test_a_pipe_that_breaks_off_never_gives_nodes(place: int) -> None:
    error = refused(WHOLE[:place])
    assert error.code == "kubernetes_bad_document"
    assert "breaks off after" in str(error) or not WHOLE[:place].strip()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)
PLACES = [
    ("metadata",), ("metadata", "name"), ("metadata", "labels"), ("spec",), ("spec", "taints"), ("spec", "taints", 0),
    ("spec", "unschedulable"), ("status",), ("status", "conditions"), ("status", "conditions", 0),
    ("status", "capacity"), ("status", "conditions", 5, "lastTransitionTime"),
    ("status", "allocatable", "nvidia.com/gpu"), ("kind",),
]  # fmt: skip


@given(st.sampled_from(PLACES), JSON)
def test_no_document_makes_anything_but_nodes_or_our_error(place: tuple[str | int, ...], value: Any) -> None:
    document = gpu_node()
    at(*place, value=value)(document)
    with suppress(PlimsollError):
        (node,) = parse_nodes(listed(document), source="x")
        assert node.name
        assert node.gpus >= 0


@contextmanager
def api_server(nodes: list[dict[str, Any]]) -> Iterator[str]:
    """The part of the Kubernetes API that `kubectl get nodes` asks for; its URL."""
    bare = [{key: value for key, value in node.items() if key not in ("kind", "apiVersion")} for node in nodes]
    resource = {"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": ["get", "list"]}
    answers = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [{**resource, "shortNames": ["no"]}]},
        "/api/v1/nodes": {"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": bare},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            body = msgspec.json.encode(answer or {"kind": "Status", "status": "Failure", "code": 404})
            self.send_response(200 if answer else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the base class
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_what_the_real_kubectl_prints_is_read(tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl") or missing_part("kubectl")
    nodes = [gpu_node(), sick_node()]
    with api_server(nodes) as url:
        ran = subprocess.run(
            [kubectl, "--server", url, "--cache-dir", str(tmp_path), "get", "nodes", "-o", "json"],
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "KUBECONFIG": str(tmp_path / "none")},
            capture_output=True,
            check=False,
            timeout=30,
        )
    assert ran.returncode == 0, ran.stderr.decode()
    assert b'"kind": "List"' in ran.stdout
    assert parse_nodes(ran.stdout, source="kubectl") == parse_nodes(listed(*nodes), source="x")
