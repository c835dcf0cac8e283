"""The pods on nodes of a Kubernetes cluster, and how they are asked to go: by eviction, which budgets may put off.

Decides which pods keep a node from being empty: all that run, except those of a DaemonSet and those that the kubelet
itself keeps, which go with the node. Must never delete a pod outright: an eviction asks the PodDisruptionBudgets, and
what they put off (HTTP 429) is asked for again later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from plimsoll.connect.kubernetes_nodes import ONE_BY_ONE_MAX, KubernetesNodes
from plimsoll.connect.kueue import ATTEMPTS_MAX, BODY_BYTES_MAX, FIELD_MANAGER, RETRY_SECONDS
from plimsoll.connect.web import Address, Answer, NoAnswer, Trouble, exchange

GRACE_SECONDS_MAX = 7 * 24 * 3600

_MIRROR = "kubernetes.io/config.mirror"
_ENDED = ("Succeeded", "Failed")
_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
_WORDS_CHARS_MAX = 300


class Pod(msgspec.Struct, frozen=True):
    """A pod on a node. `is_going`: it has been asked to."""

    namespace: str
    name: str
    uid: str
    node: str
    is_going: bool = False

    @property
    def label(self) -> str:
        return f"pod {self.namespace}/{self.name}"


class Evicted(msgspec.Struct, frozen=True):
    """Pods that are going or gone, and those that may not go now, with the server's words."""

    going: tuple[Pod, ...] = ()
    waiting: Mapping[str, str] = {}


class _Status(msgspec.Struct):
    message: str = ""


class KubernetesPods(KubernetesNodes):
    """The pods of one API server."""

    def pods(self, nodes: Collection[str]) -> list[Pod]:
        """The pods that keep these nodes from being empty, also those that are on their way out."""
        wanted = dict.fromkeys(nodes)
        if len(wanted) <= ONE_BY_ONE_MAX:
            queries = [f"spec.nodeName={name},{_NOT_ENDED}" for name in wanted]
        else:
            queries = [_NOT_ENDED]
        listed = [each for query in queries for each in self._list("/api/v1/pods", {"fieldSelector": query}, "pods")]
        found = [_pod(each) for each in listed if _counts(each)]
        return sorted((pod for pod in found if pod.node in wanted), key=lambda pod: (pod.namespace, pod.name))

    def evict(self, pods: Sequence[Pod], *, grace_seconds: int | None = None) -> Evicted:
        """Ask pods to go, each once. Without a grace each has its own. A pod that is gone or was replaced is gone."""
        assert grace_seconds is None or 0 < grace_seconds <= GRACE_SECONDS_MAX
        going: list[Pod] = []
        waiting: dict[str, str] = {}
        for pod in pods:
            if pod.is_going:
                going.append(pod)
                continue
            answer = self._evict(pod, grace_seconds)
            if answer.status in (200, 201, 202, 404, 409):
                going.append(pod)
            elif answer.status in (429, 500):  # a budget, or two budgets for one pod
                waiting[pod.label] = _words(answer)
            else:
                self._refuse(answer, pod.label)
        return Evicted(tuple(going), waiting)

    def _evict(self, pod: Pod, grace_seconds: int | None) -> Answer:
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}} if pod.uid else {}
        options |= {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        path = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}/eviction"
        return self._post(path, msgspec.json.encode(body))

    def _post(self, path: str, body: bytes) -> Answer:
        """One request; again only where the server did not answer. 429 is a budget's no, for longer than we wait."""
        base = self._access.address
        headers = {"Accept": "application/json", "User-Agent": FIELD_MANAGER, "Content-Type": "application/json"}
        headers |= {"Authorization": self._access.authorization} if self._access.authorization else {}
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                answer = exchange(
                    "POST",
                    Address(base.scheme, base.host, base.port, f"{base.path}{path}"),
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
                if answer.status not in (502, 503, 504) or attempt == ATTEMPTS_MAX:
                    return answer
            self._sleep(RETRY_SECONDS * attempt)
        raise AssertionError("unreachable")


def _counts(content: Mapping[str, Any]) -> bool:
    """Whether a pod keeps its node from being empty."""
    metadata = content.get("metadata") or {}
    if (content.get("status") or {}).get("phase") in _ENDED or _MIRROR in (metadata.get("annotations") or {}):
        return False
    owners = metadata.get("ownerReferences") or []
    return not any(owner.get("kind") == "DaemonSet" and owner.get("controller") for owner in owners)


def _pod(content: Mapping[str, Any]) -> Pod:
    metadata = content.get("metadata") or {}
    return Pod(
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        node=str((content.get("spec") or {}).get("nodeName") or ""),
        is_going=bool(metadata.get("deletionTimestamp")),
    )


def _words(answer: Answer) -> str:
    try:
        text = msgspec.json.decode(answer.body, type=_Status).message
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        text = ""
    line = "".join(sign if sign.isprintable() else " " for sign in text[:_WORDS_CHARS_MAX])
    return line or f"HTTP {answer.status}"
