"""A Kubernetes API server for tests: Kueue's kinds and namespaces, lists in pages, server-side apply with conflicts.

It checks objects by Kueue's own schemas where these are here. Debian's kubectl (tests/real/test_quota_kubernetes.py)
judges whether it is one.
"""

from __future__ import annotations

import copy
import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

from tests.support.crd import crd_folder, defaulted, problems, schemas
from tests.support.kube_fields import Conflicts, Kept, dotted

GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"
CREATED = "2026-01-20T12:00:00Z"
KINDS: dict[str, tuple[str, bool, list[str]]] = {
    "topologies": ("Topology", False, ["topo"]),
    "resourceflavors": ("ResourceFlavor", False, ["rf"]),
    "workloadpriorityclasses": ("WorkloadPriorityClass", False, ["wpc"]),
    "cohorts": ("Cohort", False, ["co"]),
    "clusterqueues": ("ClusterQueue", False, ["cq"]),
    "localqueues": ("LocalQueue", True, ["lq"]),
}
"""By plural: the kind, whether it lives in a namespace, short names."""
OTHERS: dict[str, tuple[str, str, str]] = {
    "virtualmachinescalesets": ("compute.azure.com", "v20220301", "VirtualMachineScaleSet"),
}
"""Kinds of other groups, all in namespaces and not checked, by plural: group, version, kind."""
OPENAPI = f"/openapi/v3/apis/{GROUP}/{VERSION}"
VERBS = ["create", "delete", "get", "list", "patch", "update"]
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
Key = tuple[str, str, str]
"""Plural, namespace, name."""


class Problem(Exception):
    """What the server says instead of doing it."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.body = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": details,
            "code": code,
        }


class KubeApi:
    """The server. `objects` is what it holds; `on_write` is called before each write and may raise a Problem."""

    def __init__(
        self, *, namespaces: tuple[str, ...] = ("default",), token: str = "", tls: ssl.SSLContext | None = None
    ):
        self.objects: dict[Key, Kept] = {}
        self.namespaces = set(namespaces)
        self.others = dict(OTHERS)
        self.token = token
        self.page_objects_max = 500
        self.requests: list[str] = []
        self.writes: list[str] = []
        self.on_write: Callable[[str, Key], None] = lambda _method, _key: None
        self._lock = threading.Lock()
        self._version = 100
        api = self

        class Handler(_Handler):
            server_api = api

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def __enter__(self) -> KubeApi:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def get(self, plural: str, name: str, namespace: str = "") -> dict[str, Any]:
        """An object as it is."""
        return self.objects[plural, namespace, name].shown()

    def edit(self, plural: str, name: str, change: Callable[[dict[str, Any]], None], *, manager: str = "hand") -> None:
        """What somebody does with `kubectl edit`."""
        with self._lock:
            kept = self.objects[plural, "", name]
            content = copy.deepcopy(kept.content)
            change(content)
            self._check(content, kept.content)
            kept.replace(content, manager)

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> tuple[int, Any]:
        """What is said to a request."""
        parts = urlsplit(target)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        self.requests.append(f"{method} {parts.path}")
        if body and "protobuf" in headers.get("Content-Type", ""):
            raise Problem(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
        if self.token and headers.get("Authorization") != f"Bearer {self.token}":
            raise Problem(401, "Unauthorized", "Unauthorized")
        if (found := _discovery(parts.path)) is not None:
            return 200, found
        words = [unquote(word) for word in parts.path.strip("/").split("/")]
        with self._lock:
            if words[:2] == ["api", "v1"]:
                return self._core(method, words[2:], body)
            is_other = any(
                words[:3] == ["apis", *other[:2]] and plural in words for plural, other in self.others.items()
            )
            if words[:3] != ["apis", GROUP, VERSION] and not is_other:
                raise Problem(404, "NotFound", "the server could not find the requested resource")
            return self._kueue(method, words[3:], query, headers, body)

    def _core(self, method: str, words: list[str], body: bytes) -> tuple[int, Any]:
        if words[:1] != ["namespaces"]:
            raise Problem(404, "NotFound", "the server could not find the requested resource")
        if method == "POST":
            self.namespaces.add(json.loads(body)["metadata"]["name"])
            return 201, _namespace(json.loads(body)["metadata"]["name"])
        if len(words) == 1:
            items = [_namespace(name) for name in sorted(self.namespaces)]
            return 200, {"kind": "NamespaceList", "apiVersion": "v1", "metadata": {}, "items": items}
        self._check_namespace(words[1])
        return 200, _namespace(words[1])

    def _check_namespace(self, name: str) -> None:
        if name and name not in self.namespaces:
            raise Problem(404, "NotFound", f'namespaces "{name}" not found', name=name, kind="namespaces")

    def _kueue(
        self, method: str, words: list[str], query: dict[str, str], headers: Any, body: bytes
    ) -> tuple[int, Any]:
        namespace = ""
        if words[0] == "namespaces":
            _, namespace, *words = words
        if words[0] not in {**KINDS, **self.others}:
            raise Problem(404, "NotFound", "the server could not find the requested resource")
        if len(words) == 1 and method == "GET":
            return 200, self._list(words[0], namespace, query)
        content = yaml.safe_load(body) if body and method != "DELETE" else {}
        name = words[1] if len(words) > 1 else content["metadata"]["name"]
        key = (words[0], namespace, name)
        if method != "GET":
            self.on_write(method, key)
            self.writes.append(f"{method} {'/'.join(part for part in key if part)}")
        kept = self.objects.get(key)
        if method == "PATCH" and headers.get("Content-Type") == APPLY:
            return self._apply(key, content, query)
        if kept is None and method != "POST":
            raise Problem(404, "NotFound", f'{key[0]}.{GROUP} "{name}" not found', name=name, kind=key[0])
        if method == "GET":
            assert kept is not None
            return 200, kept.shown()
        if method == "DELETE":
            del self.objects[key]
            return 200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return self._write(method, key, kept, content, query, headers)

    def _list(self, plural: str, namespace: str, query: dict[str, str]) -> dict[str, Any]:
        wanted = dict(pair.split("=", 1) for pair in query.get("labelSelector", "").split(",") if pair)
        wanted = {label: value.lstrip("=") for label, value in wanted.items()}
        found = [
            kept.shown()
            for key, kept in sorted(self.objects.items())
            if key[0] == plural and namespace in ("", key[1])
            if wanted.items() <= (kept.content["metadata"].get("labels") or {}).items()
        ]
        start = int(query.get("continue") or 0)
        stop = start + min(int(query.get("limit") or 0) or len(found), self.page_objects_max)
        metadata = {"resourceVersion": str(self._version), **({"continue": str(stop)} if stop < len(found) else {})}
        group, version, kind = self.others.get(plural) or (GROUP, VERSION, KINDS[plural][0])
        return {
            "kind": f"{kind}List",
            "apiVersion": f"{group}/{version}",
            "metadata": metadata,
            "items": found[start:stop],
        }

    def _apply(self, key: Key, content: dict[str, Any], query: dict[str, str]) -> tuple[int, Any]:
        manager = query.get("fieldManager", "")
        if not manager:
            raise Problem(400, "BadRequest", "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value")
        self._check_namespace(key[1])
        kept = self.objects.get(key)
        is_new = kept is None
        trial = copy.deepcopy(kept) if kept is not None else Kept(_new(content, len(self.writes)))
        try:
            trial.apply(content, manager, is_forced=query.get("force") == "true")
        except Conflicts as conflicts:
            raise _conflict(key, conflicts) from None
        self._check(trial.content, None if kept is None else kept.content)
        self._keep(key, trial, query)
        return 201 if is_new else 200, trial.shown()

    def _write(
        self, method: str, key: Key, kept: Kept | None, content: dict[str, Any], query: dict[str, str], headers: Any
    ) -> tuple[int, Any]:
        manager = query.get("fieldManager") or str(headers.get("User-Agent", "unknown")).split("/")[0]
        if method == "POST":
            self._check_namespace(key[1])
            if kept is not None:
                raise Problem(409, "AlreadyExists", f'{key[0]}.{GROUP} "{key[2]}" already exists')
            trial, after = Kept(_new(content, len(self.writes))), content
        else:
            assert kept is not None
            trial = copy.deepcopy(kept)
            after = _merged(kept.content, content) if headers.get("Content-Type") == MERGE else content
        trial.replace(after, manager)
        self._check(trial.content, None if kept is None else kept.content)
        self._keep(key, trial, query)
        return 201 if method == "POST" else 200, trial.shown()

    def _keep(self, key: Key, kept: Kept, query: dict[str, str]) -> None:
        if query.get("dryRun") == "All":
            return
        before = self.objects.get(key)
        if before is not None and before.content.get("spec") != kept.content.get("spec"):
            kept.content["metadata"]["generation"] = before.content["metadata"]["generation"] + 1
        if before is None or before.shown() != kept.shown():
            self._version += 1
            kept.content["metadata"]["resourceVersion"] = str(self._version)
        self.objects[key] = kept

    def _check(self, content: dict[str, Any], old: dict[str, Any] | None) -> None:
        """Kueue's schema with what it fills in, and what Kueue's webhook looks at."""
        if not str(content["apiVersion"]).startswith(f"{GROUP}/"):
            return
        found = []
        if crd_folder() is not None:
            content.update(defaulted(schemas()[content["kind"]], content))
            found = problems(_plain(content), None if old is None else _plain(old))
        for group in content.get("spec", {}).get("resourceGroups", []):
            for resource in (each for flavor in group["flavors"] for each in flavor["resources"]):
                if _count(resource.get("lendingLimit", 0)) > _count(resource["nominalQuota"]):
                    found.append("spec.lendingLimit: must be less than or equal to the nominalQuota")
        if found:
            name = content["metadata"]["name"]
            raise Problem(422, "Invalid", f'{content["kind"]}.{GROUP} "{name}" is invalid: {"; ".join(found)}')


def _count(quantity: int | str) -> int:
    text = str(quantity)
    return int(text[:-1]) * 1000 if text.endswith("k") else int(text)


def _plain(content: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in content["metadata"].items() if key != "managedFields"}
    return {**content, "metadata": metadata}


def _new(content: dict[str, Any], number: int) -> dict[str, Any]:
    metadata = {key: content["metadata"][key] for key in ("name", "namespace") if key in content["metadata"]}
    metadata |= {"uid": f"uid-{number}", "resourceVersion": "1", "generation": 1, "creationTimestamp": CREATED}
    return {"apiVersion": content["apiVersion"], "kind": content["kind"], "metadata": metadata}


def _merged(content: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(content) if isinstance(content, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def _conflict(key: Key, conflicts: Conflicts) -> Problem:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{manager}" using {GROUP}/{VERSION}',
            "field": dotted(path),
        }
        for path, manager in conflicts.found
    ]
    message = f"Apply failed with {len(causes)} conflict{'s' if len(causes) > 1 else ''}: " + "; ".join(
        f"{cause['message']}: {cause['field']}" for cause in causes
    )
    return Problem(409, "Conflict", message, name=key[2], group=GROUP, kind=key[0], causes=causes)


def _namespace(name: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"kubernetes.io/metadata.name": name}, "creationTimestamp": CREATED}
    return {"kind": "Namespace", "apiVersion": "v1", "metadata": metadata, "status": {"phase": "Active"}}


def _discovery(path: str) -> Any:
    """How a client learns what there is."""
    resources = [
        {
            "name": plural,
            "singularName": kind.lower(),
            "namespaced": is_namespaced,
            "kind": kind,
            "verbs": VERBS,
            "shortNames": short,
        }
        for plural, (kind, is_namespaced, short) in KINDS.items()
    ]
    group = {
        "name": GROUP,
        "versions": [{"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}],
        "preferredVersion": {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION},
    }
    core = {"name": "namespaces", "singularName": "namespace", "namespaced": False, "kind": "Namespace"}
    core |= {"verbs": VERBS, "shortNames": ["ns"]}
    return {
        "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.4", "platform": "linux/amd64"},
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [core]},
        "/openapi/v3": {"paths": {f"apis/{GROUP}/{VERSION}": {"serverRelativeURL": OPENAPI}}},
        OPENAPI: {"openapi": "3.0.0", "info": {"title": "Kueue", "version": VERSION}, "paths": _openapi_paths()},
        f"/apis/{GROUP}": {"kind": "APIGroup", "apiVersion": "v1", **group},
        f"/apis/{GROUP}/{VERSION}": {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{GROUP}/{VERSION}",
            "resources": resources,
        },
    }.get(path.rstrip("/") or "/")


def _openapi_paths() -> dict[str, Any]:
    """As much as tells kubectl that the server itself checks fields."""
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string"}}
        for name in ("dryRun", "fieldManager", "fieldValidation", "force")
    ]
    found = {}
    for plural, (kind, is_namespaced, _) in KINDS.items():
        place = "namespaces/{namespace}/" if is_namespaced else ""
        kinds = {"group": GROUP, "version": VERSION, "kind": kind}
        patch = {"operationId": f"patch{kind}", "parameters": parameters, "x-kubernetes-group-version-kind": kinds}
        answers = {"responses": {"200": {"description": "OK"}}}
        found[f"/apis/{GROUP}/{VERSION}/{place}{plural}/{{name}}"] = {"patch": {**patch, **answers}}
    return found


class _Handler(BaseHTTPRequestHandler):
    server_api: KubeApi
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the base class calls it so
        """Quiet."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            code, document = self.server_api.answer(self.command, self.path, self.headers, body)
        except Problem as problem:
            code, document = problem.code, problem.body
        except ConnectionAbortedError:  # a test wants the server to die here
            self.close_connection = True
            return
        data = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815  # names of the base class
