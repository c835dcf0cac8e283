"""Nodes, pods and evictions for the API double: versions that conflict, who wrote a cordon, budgets that say wait.

As on a real server a controller answers a cordon with a taint of its own, a moment after the write. kubectl and the
official client (tests/real/test_campaign_kubernetes.py) judge whether it is one.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.kube_api import CREATED, KubeApi, Problem, _merged
from tests.support.kube_fields import Kept
from tests.support.kubernetes import kubernetes_node

UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
MERGES = ("application/merge-patch+json", "application/strategic-merge-patch+json")
CONTROLLER = "kube-controller-manager"


class Budget(NamedTuple):
    """A PodDisruptionBudget: of the pods with a label so many must stay."""

    namespace: str
    app: str
    min_available: int


class KubeNodes(KubeApi):
    """The server with nodes and pods. `on_patch` is called with a node's name before a patch of it is looked at."""

    def __init__(self, names: tuple[str, ...] = (), **options: Any) -> None:
        super().__init__(**options)
        self.budgets: list[Budget] = []
        self.evictions: list[dict[str, Any]] = []
        self.on_patch: Callable[[str], None] = lambda _name: None
        self.is_answer_lost: Callable[[str], bool] = lambda _name: False
        for name in names:
            self.add_node(name)

    def __enter__(self) -> KubeNodes:
        return self

    def add_node(self, name: str, *, is_cordoned: bool = False) -> None:
        content = kubernetes_node(name, is_cordoned=is_cordoned)
        content["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": CREATED}
        kept = Kept({**content, "metadata": {**content["metadata"], "resourceVersion": "1"}})
        if is_cordoned:
            kept._manager("kubectl-cordon", "Update").fields.add(("spec", "unschedulable"))
        self._store("nodes", "", name, kept)

    def add_pod(self, name: str, node: str, *, app: str = "serve", owner: str = "ReplicaSet", **more: Any) -> None:
        metadata = {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "labels": {"app": app},
            "creationTimestamp": CREATED,
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": owner, "name": app, "uid": f"uid-{app}", "controller": True}
            ],
            **more,
        }
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "image"}]}
        content = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": spec,
            "status": {"phase": "Running"},
        }
        self._store("pods", "default", name, Kept(content))

    def settle(self) -> None:
        """Pods that are going are gone."""
        with self._lock:
            going = [key for key, kept in self.objects.items() if "deletionTimestamp" in kept.content["metadata"]]
            for key in going:
                del self.objects[key]

    def node(self, name: str) -> dict[str, Any]:
        return self.get("nodes", name)

    def taint_keys(self, name: str) -> list[str]:
        return sorted(taint["key"] for taint in self.node(name)["spec"].get("taints") or [])

    def by_hand(self, name: str, change: Callable[[dict[str, Any]], None], *, manager: str = "kubectl-cordon") -> None:
        """What somebody does with kubectl."""
        with self._lock:
            content = copy.deepcopy(self.objects["nodes", "", name].content)
            change(content)
            self._replace(name, content, manager)

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> tuple[int, Any]:
        parts = urlsplit(target)
        if (found := _discovery(parts.path)) is not None:
            return 200, found
        words = [unquote(word) for word in parts.path.strip("/").split("/")]
        is_pods = words[:3] == ["api", "v1", "namespaces"] and words[4:5] == ["pods"]
        if words[:3] not in (["api", "v1", "nodes"], ["api", "v1", "pods"]) and not is_pods:
            if words[:3] == ["apis", "apps", "v1"]:
                return 200, {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": words[-1]}}
            return super().answer(method, target, headers, body)
        self.requests.append(f"{method} {parts.path}")
        if self.token and headers.get("Authorization") != f"Bearer {self.token}":
            raise Problem(401, "Unauthorized", "Unauthorized")
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        if words[2] == "nodes":
            return self._nodes(method, words[3:], query, headers, body)
        with self._lock:
            return self._pods(method, words[3:] if is_pods else [], query, body)

    def _nodes(
        self, method: str, words: list[str], query: dict[str, str], headers: Any, body: bytes
    ) -> tuple[int, Any]:
        if not words:
            with self._lock:
                return 200, _paged(self._found("nodes", "", query), "NodeList", query, self.page_objects_max)
        name = words[0]
        if method == "PATCH":
            self.on_patch(name)
        with self._lock:
            kept = self.objects.get(("nodes", "", name))
            if kept is None:
                raise Problem(404, "NotFound", f'nodes "{name}" not found', name=name, kind="nodes")
            if method == "GET":
                return 200, kept.shown()
            if method != "PATCH" or headers.get("Content-Type") not in MERGES:
                raise Problem(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
            patch = json.loads(body)
            version = (patch.get("metadata") or {}).get("resourceVersion")
            if version not in (None, kept.content["metadata"]["resourceVersion"]):
                words_said = "the object has been modified; please apply your changes to the latest version"
                raise Problem(409, "Conflict", f'Operation cannot be fulfilled on nodes "{name}": {words_said}')
            manager = query.get("fieldManager") or str(headers.get("User-Agent", "unknown")).split("/")[0]
            if query.get("dryRun") != "All":
                self.writes.append(f"PATCH nodes/{name}")
                self._replace(name, _merged(kept.content, patch), manager)
            shown = self.objects["nodes", "", name].shown()
        if self.is_answer_lost(name):
            raise ConnectionAbortedError
        return 200, shown

    def _replace(self, name: str, content: dict[str, Any], manager: str) -> None:
        """Write, and let the controller have its taint follow the cordon: a write of its own."""
        kept = self.objects["nodes", "", name]
        kept.replace(content, manager)
        self._store("nodes", "", name, kept)
        spec = kept.content["spec"]
        taints = [taint for taint in spec.get("taints") or [] if taint["key"] != UNSCHEDULABLE["key"]]
        wanted = [*taints, dict(UNSCHEDULABLE)] if spec.get("unschedulable") else taints
        if sorted(map(str, wanted)) != sorted(map(str, spec.get("taints") or [])):
            after = copy.deepcopy(kept.content)
            after["spec"]["taints"] = wanted
            kept.replace(after, CONTROLLER)
            self._store("nodes", "", name, kept)

    def _pods(self, method: str, words: list[str], query: dict[str, str], body: bytes) -> tuple[int, Any]:
        namespace, _, name, action = [*words, "", "", "", ""][:4]
        if not name:
            return 200, _paged(self._found("pods", namespace, query), "PodList", query, self.page_objects_max)
        kept = self.objects.get(("pods", namespace, name))
        if kept is None:
            raise Problem(404, "NotFound", f'pods "{name}" not found', name=name, kind="pods")
        if method == "GET":
            return 200, kept.shown()
        assert (method, action) == ("POST", "eviction"), "nobody deletes a pod outright"
        asked = json.loads(body)
        assert (asked["kind"], asked["apiVersion"]) in (("Eviction", "policy/v1"), ("Eviction", "policy/v1beta1"))
        self._evict(kept, asked)
        return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def _evict(self, kept: Kept, asked: dict[str, Any]) -> None:
        metadata, options = kept.content["metadata"], asked.get("deleteOptions") or {}
        uid = (options.get("preconditions") or {}).get("uid")
        if uid not in (None, metadata["uid"]):
            raise Problem(409, "Conflict", f"Precondition failed: UID in precondition: {uid}")
        for budget in self.budgets:
            if (metadata["namespace"], metadata["labels"]["app"]) != (budget.namespace, budget.app):
                continue
            alive = [
                each
                for key, each in self.objects.items()
                if key[:2] == ("pods", budget.namespace) and each.content["metadata"]["labels"]["app"] == budget.app
                if "deletionTimestamp" not in each.content["metadata"]
            ]
            if len(alive) - 1 < budget.min_available:
                words = "Cannot evict pod as it would violate the pod's disruption budget."
                raise Problem(429, "TooManyRequests", words, causes=[{"reason": "DisruptionBudget", "message": "…"}])
        self.evictions.append(asked)
        metadata["deletionTimestamp"] = CREATED

    def _found(self, plural: str, namespace: str, query: dict[str, str]) -> list[dict[str, Any]]:
        return [
            kept.shown()
            for key, kept in sorted(self.objects.items())
            if key[0] == plural and namespace in ("", key[1])
            if all(_selects(kept.content, word) for word in query.get("fieldSelector", "").split(",") if word)
        ]

    def _store(self, plural: str, namespace: str, name: str, kept: Kept) -> None:
        self._version += 1
        kept.content["metadata"]["resourceVersion"] = str(self._version)
        self.objects[plural, namespace, name] = kept


def _selects(content: dict[str, Any], word: str) -> bool:
    is_not = "!=" in word
    path, value = word.split("!=" if is_not else "=", 1)
    place: Any = content
    for key in path.split("."):
        place = place.get(key, "") if isinstance(place, dict) else ""
    return bool(place == value) != is_not


def _paged(found: list[dict[str, Any]], kind: str, query: dict[str, str], page_max: int) -> dict[str, Any]:
    start = int(query.get("continue") or 0)
    stop = start + min(int(query.get("limit") or 0) or len(found), page_max)
    metadata = {"resourceVersion": "7", **({"continue": str(stop)} if stop < len(found) else {})}
    items = [{key: value for key, value in each.items() if key not in ("kind", "apiVersion")} for each in found]
    return {"kind": kind, "apiVersion": "v1", "metadata": metadata, "items": items[start:stop]}


def _discovery(path: str) -> Any:
    """What kubectl drain wants to know: nodes, pods, and that pods can be evicted."""
    verbs = ["get", "list", "patch", "create", "delete", "update"]
    core = [
        {"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": verbs},
        {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": verbs},
        {"name": "namespaces", "singularName": "namespace", "namespaced": False, "kind": "Namespace", "verbs": verbs},
        {
            "name": "pods/eviction",
            "singularName": "",
            "namespaced": True,
            "group": "policy",
            "version": "v1",
            "kind": "Eviction",
            "verbs": ["create"],
        },
    ]
    groups = [
        {
            "name": name,
            "versions": [{"groupVersion": f"{name}/v1", "version": "v1"}],
            "preferredVersion": {"groupVersion": f"{name}/v1", "version": "v1"},
        }
        for name in ("policy", "apps")
    ]
    return {
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": core},
        "/apis/policy/v1": {"kind": "APIResourceList", "groupVersion": "policy/v1", "resources": []},
        "/apis/apps/v1": {"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": []},
    }.get(path.rstrip("/"))
