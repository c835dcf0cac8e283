"""Azure Service Operator for tests: what it does with the scale sets of one API server, and what it says of them.

Every `step` it looks at all objects once: a new generation is sent to Azure, an operation that goes on is asked after,
and the Ready condition is written back. Which troubles it tries again (Warning) and which end it (Error) is as in the
operator's own classifier: 400 and a list of codes end it until the object changes, everything else is tried again.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from typing import Any

from tests.support.azure import SUBSCRIPTION, AzureCloud
from tests.support.kube_api import KubeApi

PLURAL = "virtualmachinescalesets"
API = "api-version=2022-03-01"
LOGIN = "node-login/password"
FATAL = {"BadRequest", "Conflict", "InvalidParameter", "RequestDisallowedByPolicy", "SkuNotAvailable"}
"""Of the operator's list those that a scale set may meet."""
WORDS = {
    "Reconciling": "The resource is in the process of being reconciled by the operator",
    "WaitingForOwner": "Owner {name!r} cannot be found. Progress is blocked until the owner is created.",
    "SecretNotFound": "Secret {name!r} cannot be found",
}


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str, told: str) -> None:
        super().__init__(message)
        self.status, self.code, self.told = status, code, told


class _Known:
    """What the operator remembers of an object."""

    def __init__(self) -> None:
        self.generation = 0
        self.operation = ""
        self.is_over = False


class ServiceOperator:
    """The operator. `secrets` are those of its namespaces, NAME/KEY each."""

    def __init__(self, api: KubeApi, cloud: AzureCloud) -> None:
        self.api, self.cloud = api, cloud
        self.secrets = {LOGIN}
        self.is_quiet = False
        """An operator that is down says nothing and does nothing."""
        self._known: dict[tuple[str, str], _Known] = {}
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, every_seconds: float = 0.05) -> ServiceOperator:
        """Go on by itself, for processes that can't step it."""

        def run() -> None:
            while not self._is_over.wait(every_seconds):
                self.step()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join(10)

    def step(self, times: int = 1) -> None:
        """Look at every object so many times."""
        for _ in range(0 if self.is_quiet else times):
            for key in [key for key in list(self.api.objects) if key[0] == PLURAL]:
                self._reconcile(key)

    def _reconcile(self, key: tuple[str, str, str]) -> None:
        kept = self.api.objects.get(key)
        if kept is None:
            return
        content = kept.shown()
        known = self._known.setdefault(key[1:], _Known())
        generation = content["metadata"]["generation"]
        if generation != known.generation:
            known.generation, known.operation, known.is_over = generation, "", False
            self._say(key, generation, "False", "Info", "Reconciling")
            return
        if known.is_over:
            return
        try:
            if known.operation:
                self._follow(key, content, known)
            else:
                self._send(key, content, known)
        except _Refused as refused:
            is_fatal = refused.code in FATAL or refused.status == 400
            known.operation, known.is_over = "", is_fatal
            severity = "Error" if is_fatal else "Warning"
            self._say(key, generation, "False", severity, refused.code or "Failed", refused.told)

    def _send(self, key: tuple[str, str, str], content: dict[str, Any], known: _Known) -> None:
        spec, generation = content["spec"], known.generation
        owner = spec["owner"].get("name") or spec["owner"]["armId"].rpartition("/")[2]
        if owner.lower() not in self.cloud.groups:
            words = WORDS["WaitingForOwner"].format(name=owner)
            self._say(key, generation, "False", "Warning", "WaitingForOwner", words)
            return
        system = spec["virtualMachineProfile"]["osProfile"]
        secret = system.get("adminPassword")
        if secret and f"{secret['name']}/{secret['key']}" not in self.secrets:
            words = WORDS["SecretNotFound"].format(name=secret["name"])
            self._say(key, generation, "False", "Warning", "SecretNotFound", words)
            return
        if not secret and not system.get("linuxConfiguration"):
            words = "Required parameter 'adminPassword' is missing (null)."
            raise _Refused(400, "InvalidParameter", words, words)
        apart = {"location", "sku", "tags", "zones", "owner"}
        body = {name: spec[name] for name in ("location", "sku", "tags") if name in spec}
        body["properties"] = {name: value for name, value in spec.items() if name not in apart}
        path = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{owner}/providers/Microsoft.Compute"
        headers, _ = self._ask("PUT", f"{self.cloud.url}{path}/virtualMachineScaleSets/{key[2]}?{API}", body)
        known.operation = headers["Azure-AsyncOperation"]
        self._say(key, generation, "False", "Info", "Reconciling", status={"provisioningState": "Creating"})

    def _follow(self, key: tuple[str, str, str], content: dict[str, Any], known: _Known) -> None:
        _, found = self._ask("GET", known.operation)
        if found["status"] == "InProgress":
            return
        if found["status"] == "Failed":
            error = found["error"]
            raise _Refused(200, error["code"], error["message"], error["message"])
        known.is_over = True
        sku = content["spec"]["sku"]
        self._say(key, known.generation, "True", "", "Succeeded", status={"provisioningState": "Succeeded", "sku": sku})

    def _ask(self, method: str, url: str, body: Any = None) -> tuple[Any, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.cloud.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(url, data=data, method=method, headers=headers)  # noqa: S310  # our own server
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
                return answer.headers, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode()
            found = json.loads(text)["error"] if text.startswith("{") else {"code": "", "message": text}
            told = (
                f"{found['message']}: {method} {url.partition('?')[0]}\n--------\nRESPONSE {error.code}: {error.code} "
                f"{error.reason}\nERROR CODE: {found['code']}\n--------\n{text}\n--------\n"
            )
            raise _Refused(error.code, found["code"], found["message"], told) from None

    def _say(
        self,
        key: tuple[str, str, str],
        generation: int,
        ready: str,
        severity: str,
        reason: str,
        message: str = "",
        status: dict[str, Any] | None = None,
    ) -> None:
        condition = {"type": "Ready", "status": ready, "reason": reason, "observedGeneration": generation}
        condition |= {"severity": severity} if severity else {}
        condition |= {"message": words} if (words := message or WORDS.get(reason, "")) else {}
        condition["lastTransitionTime"] = "2026-01-20T12:00:00Z"
        kept = self.api.objects.get(key)
        if kept is not None:
            kept.content["status"] = {**kept.content.get("status", {}), **(status or {}), "conditions": [condition]}
