"""Kueue as an outlet: what a cluster's Kubernetes has of our objects, and one object written at a time.

An object is one setting, because Kueue checks an object as a whole: guarantee and lending limit change together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from plimsoll.connect.kueue import owners_of
from plimsoll.errors import Refused
from plimsoll.quota.model import PoolPromise
from plimsoll.quota.outlets.kueue import (
    CLUSTER_LABEL,
    KINDS,
    MANAGED_BY,
    MANAGER,
    KueueStyle,
    kube_name,
    limit,
    objects,
    setting_name,
    setting_value,
)
from plimsoll.quota.outlets.model import Cause, Limit, Settings, Step


class Api(Protocol):
    """What the outlet asks of a server."""

    @property
    def where(self) -> str: ...

    def list_objects(self, kind: str, *, labels: Mapping[str, str]) -> list[dict[str, Any]]: ...

    def apply(self, content: Mapping[str, Any], *, is_forced: bool) -> dict[str, Any]: ...

    def delete(self, kind: str, *, namespace: str, name: str) -> None: ...


class KueueOutlet:
    """Kueue in the Kubernetes of one cluster."""

    name = "kubernetes"

    def __init__(self, api: Api, *, cluster: str, style: KueueStyle) -> None:
        style.check()
        self._api = api
        self._cluster = cluster
        self._style = style
        self._wanted: dict[str, dict[str, Any]] = {}
        self._found: dict[str, dict[str, Any]] = {}

    def wanted(self, promises: Sequence[PoolPromise]) -> Settings:
        self._wanted = {setting_name(each): each for each in objects(promises, self._style)}
        return {name: setting_value(each) for name, each in self._wanted.items()}

    def read(self) -> Settings:
        """Our objects. Those of another cluster mean that this is the wrong Kubernetes: nothing is to be done there."""
        listed = [each for kind in KINDS for each in self._list(kind)]
        self._found = {setting_name(each): each for each in listed}
        return {name: setting_value(each) for name, each in self._found.items()}

    def _list(self, kind: str) -> list[dict[str, Any]]:
        found = []
        for each in self._api.list_objects(kind, labels={MANAGED_BY: MANAGER}):
            content = {**each, "kind": kind}  # the items of a list do not carry it
            other = (content["metadata"].get("labels") or {}).get(CLUSTER_LABEL)
            if other != kube_name(self._cluster):
                raise Refused(
                    "wrong_kubernetes",
                    f"{self._api.where} is steered for cluster {other}: it has {setting_name(content)}",
                    next_step=f"name the Kubernetes of {self._cluster}: --context NAME or --url URL",
                    cluster=self._cluster,
                    found=other,
                )
            if "deletionTimestamp" not in content["metadata"]:  # Kueue keeps a queue until its last work has ended
                found.append(content)
        return found

    def write(self, step: Step) -> None:
        """Apply or delete one object. What drifted is taken from whoever holds it, anything else is not."""
        if step.wanted is None:
            kind, *place = step.name.split("/")
            self._api.delete(kind, namespace=place[0] if len(place) == 2 else "", name=place[-1])
            return
        content = self._wanted[step.name]
        made = self._api.apply(content, is_forced=step.cause is Cause.DRIFT)
        made["kind"] = content["kind"]
        if (now := setting_value(made)) != step.wanted:
            raise Refused(
                "kueue_not_taken",
                f"{step.name} at {self._api.where} is not what was applied: a webhook there changes it",
                next_step="look which: kubectl get mutatingwebhookconfigurations",
                name=step.name,
                found=now,
                wanted=step.wanted,
            )

    def limit(self, name: str, value: str) -> Limit | None:
        return limit(name, value)

    def owner(self, name: str) -> str:
        """Who beside us holds what differs of an object."""
        found, wanted = self._found.get(name), self._wanted.get(name)
        if found is None or wanted is None:
            return ""
        have, want = (msgspec.json.decode(setting_value(each)).get("spec", {}) for each in (found, wanted))
        keys = [key for key in {**have, **want} if have.get(key) != want.get(key)]
        return ", ".join(sorted({owner for key in keys for owner in owners_of(found, key)}))
