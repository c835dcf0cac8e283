"""Read, apply and delete Kueue's objects through the API of Kubernetes.

Decides only whether the server did what was asked. Writes by server-side apply under our own name as field manager, so
that the server itself knows which fields are ours and says who holds one that is not. Must never take a field from
somebody else unless told to, never follow a redirect, and never show a token.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

import msgspec

from plimsoll.connect.kubeconfig import Access
from plimsoll.connect.web import Address, Answer, NoAnswer, Trouble, exchange
from plimsoll.errors import NotFound, PlimsollError, Refused, Unavailable

GROUP_VERSION = "kueue.x-k8s.io/v1beta2"
FIELD_MANAGER = "plimsoll"
TIMEOUT_SECONDS = 30.0
BODY_BYTES_MAX = 64 << 20
PAGE_OBJECTS = 500
PAGES_MAX = 200
ATTEMPTS_MAX = 3
RETRY_SECONDS = 0.5
WORDS_CHARS_MAX = 500
RETRY_STATUSES = (429, 502, 503, 504)

PLURALS = {
    "Topology": "topologies",
    "ResourceFlavor": "resourceflavors",
    "WorkloadPriorityClass": "workloadpriorityclasses",
    "Cohort": "cohorts",
    "ClusterQueue": "clusterqueues",
    "LocalQueue": "localqueues",
}

_OWNER = re.compile(r'conflict with "([^"]*)"')
_NO_NAMESPACE = re.compile(r'namespaces "([^"]*)" not found')
_BAD_CONTINUE = 410


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    details: _Details | None = None


class _ListMetadata(msgspec.Struct, rename={"next_page": "continue"}):
    next_page: str = ""


class _Page(msgspec.Struct):
    items: list[dict[str, Any]] | None = None
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


class KueueApi:
    """Kueue's objects on one API server. A subclass may name other kinds: they are talked about in the same way."""

    group_version = GROUP_VERSION
    plurals: Mapping[str, str] = PLURALS

    def __init__(
        self,
        access: Access,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._access = access
        self._timeout_seconds = timeout_seconds
        self._sleep = sleep

    @property
    def where(self) -> str:
        return str(self._access.address)

    def list_objects(self, kind: str, *, labels: Mapping[str, str], namespace: str = "") -> list[dict[str, Any]]:
        """All objects of a kind with these labels, from all namespaces or from one."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        found: list[dict[str, Any]] = []
        next_page = ""
        for _ in range(PAGES_MAX):
            query = {"labelSelector": selector, "limit": str(PAGE_OBJECTS)}
            query |= {"continue": next_page} if next_page else {}
            answer = self._ask("GET", self._path_of(kind, namespace), query)
            if answer.status == _BAD_CONTINUE:
                raise self._bad("the list moved on while it was read", "try again")
            if answer.status != 200:
                self._refuse(answer, kind)
            page = self._decode(answer.body, _Page)
            found += page.items or []
            next_page = page.metadata.next_page
            if not next_page:
                return found
        raise self._bad(f"more than {PAGES_MAX * PAGE_OBJECTS:,} objects", "look who makes so many")

    def apply(self, content: Mapping[str, Any], *, is_forced: bool) -> dict[str, Any]:
        """Server-side apply: make the object, or set those of its fields that are given, and return it as it is then.

        Raises Refused `field_taken` with the owners where somebody else holds a field, unless it is forced.
        """
        metadata, kind = content["metadata"], content["kind"]
        answer = self._ask(
            "PATCH",
            self._path_of(kind, metadata.get("namespace", ""), metadata["name"]),
            {"fieldManager": FIELD_MANAGER, "force": "true" if is_forced else "false"},
            body=msgspec.json.encode(content),
            media_type="application/apply-patch+yaml",  # JSON is YAML
        )
        if answer.status not in (200, 201):
            self._refuse(answer, f"{kind} {metadata['name']}")
        made: dict[str, Any] = self._decode(answer.body, dict[str, Any])
        return made

    def delete(self, kind: str, *, namespace: str, name: str) -> None:
        """Delete an object; one that is not there is deleted."""
        answer = self._ask("DELETE", self._path_of(kind, namespace, name), {})
        if answer.status not in (200, 202, 404):
            self._refuse(answer, f"{kind} {name}")

    def _ask(
        self, method: str, path: str, query: Mapping[str, str], *, body: bytes = b"", media_type: str = ""
    ) -> Answer:
        """One exchange; again where the server is busy or was not heard: every request here may be repeated."""
        base = self._access.address
        full = f"{base.path}{path}{'?' if query else ''}{urlencode(query)}"
        headers = {"Accept": "application/json", "User-Agent": FIELD_MANAGER}
        headers |= {"Content-Type": media_type} if media_type else {}
        headers |= {"Authorization": self._access.authorization} if self._access.authorization else {}
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                answer = exchange(
                    method,
                    Address(base.scheme, base.host, base.port, full),
                    body=body,
                    headers=headers,
                    timeout_seconds=self._timeout_seconds,
                    body_bytes_max=BODY_BYTES_MAX,
                    tls=self._access.tls,
                )
            except NoAnswer as failed:
                if attempt == ATTEMPTS_MAX or failed.trouble in (Trouble.UNTRUSTED, Trouble.TOO_MUCH):
                    raise self._no_answer(failed) from failed
            else:
                if answer.status not in RETRY_STATUSES or attempt == ATTEMPTS_MAX:
                    return answer
            self._sleep(RETRY_SECONDS * attempt)
        raise AssertionError("unreachable")

    def _no_answer(self, failed: NoAnswer) -> PlimsollError:
        next_step = {
            Trouble.TOO_SLOW: "look at the API server's load, and try again",
            Trouble.UNTRUSTED: "give the cluster's certificate authority: --ca-file FILE",
        }.get(failed.trouble, "look whether the API server runs there: kubectl cluster-info")
        return self._unavailable(f"{self.where} did not answer: {failed.detail}", next_step)

    def _refuse(self, answer: Answer, what: str) -> NoReturn:
        """The server's own words, by what it says is wrong."""
        try:
            status = msgspec.json.decode(answer.body, type=_Status)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            status = _Status(answer.body[: 4 * WORDS_CHARS_MAX].decode(errors="replace"))
        words = _one_line(status.message)
        causes = (status.details.causes if status.details else None) or []
        if answer.status == 409 and any(cause.reason == "FieldManagerConflict" for cause in causes):
            self._refuse_taken(what, causes)
        if answer.status == 404:
            self._refuse_missing(what, words)
        if answer.status in (400, 409, 413, 422):
            raise Refused(
                "kubernetes_refused",
                f"{self.where} did not take {what}: {words or f'HTTP {answer.status}'}",
                next_step="look at the object there: kubectl get KIND NAME -o yaml",
                status=answer.status,
                object=what,
            )
        next_step = {
            401: "give a token, or a newer one: PLIMSOLL_KUBERNETES_TOKEN or --token-file FILE",
            403: "give the token's user the rights that docs/how-to/steer-kueue.md lists",
        }.get(answer.status, "look at the API server's log")
        message = f"{self.where} said HTTP {answer.status} to {what}: {words}"
        raise self._unavailable(message, next_step, status=answer.status)

    def _refuse_taken(self, what: str, causes: list[_Cause]) -> NoReturn:
        owners = sorted({found[1] for cause in causes if (found := _OWNER.search(cause.message))})
        fields = sorted({cause.field for cause in causes if cause.field})
        raise Refused(
            "field_taken",
            f"{', '.join(fields) or 'a field'} of {what} is held by {', '.join(owners) or 'somebody else'}",
            next_step="agree with them, or take it: --put-back",
            owners=owners,
            fields=fields,
        )

    def _refuse_missing(self, what: str, words: str) -> NoReturn:
        if found := _NO_NAMESPACE.search(words):
            raise Refused(
                "kubernetes_no_namespace",
                f"{what} can't be made: there is no namespace {found[1]!r} at {self.where}",
                next_step=f"kubectl create namespace {found[1]}, or say how they are called: --namespace 'x-{{team}}'",
                namespace=found[1],
            )
        raise NotFound(
            "kueue_missing",
            f"{self.where} knows no {what} of {GROUP_VERSION}: {words}",
            next_step="install Kueue 0.15 or newer there, then: kubectl api-resources --api-group=kueue.x-k8s.io",
        )

    def _decode(self, body: bytes, shape: Any) -> Any:
        try:
            return msgspec.json.decode(body, type=shape)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._bad(_one_line(str(error)), "check that the URL is that of an API server") from error

    def _bad(self, what: str, next_step: str) -> PlimsollError:
        return Unavailable("kubernetes_bad_answer", f"the answer of {self.where}: {what}", next_step=next_step)

    def _unavailable(self, message: str, next_step: str, **fields: object) -> PlimsollError:
        return Unavailable("kubernetes_unavailable", message, next_step=next_step, url=self.where, **fields)

    def _path_of(self, kind: str, namespace: str = "", name: str = "") -> str:
        place = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        end = f"/{quote(name, safe='')}" if name else ""
        return f"/apis/{self.group_version}{place}/{self.plurals[kind]}{end}"


def owners_of(content: Mapping[str, Any], key: str) -> list[str]:
    """Who, beside us, holds something under a key of the object's spec; the status has its own writers."""
    found = set()
    for entry in content.get("metadata", {}).get("managedFields") or []:
        fields = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        if not entry.get("subresource") and entry.get("manager") != FIELD_MANAGER and f"f:{key}" in fields:
            found.add(str(entry.get("manager")))
    return sorted(found)


def _one_line(text: str) -> str:
    """Words from outside, as one bounded line that can't control a terminal."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text[: 4 * WORDS_CHARS_MAX]).split())[
        :WORDS_CHARS_MAX
    ]
