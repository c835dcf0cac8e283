"""Builders of what `kubectl get nodes -o json` prints: the defaults are a node with nothing wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from plimsoll.times import show_time
from tests.support.imports import NOW

KUBELET = {
    "MemoryPressure": "KubeletHasSufficientMemory",
    "DiskPressure": "KubeletHasNoDiskPressure",
    "PIDPressure": "KubeletHasSufficientPID",
}
PROBLEM_DETECTOR = {"KernelDeadlock": "KernelHasNoDeadlock", "ReadonlyFilesystem": "FilesystemIsNotReadOnly"}


def kubernetes_node(
    name: str = "n1",
    *,
    ready: str = "True",
    since: datetime = NOW,
    is_cordoned: bool = False,
    conditions: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A node as the API has it; `conditions` gives the status of some of them."""
    said = dict.fromkeys({**KUBELET, **PROBLEM_DETECTOR}, "False") | dict(conditions or {})
    listed = [
        {
            "type": kind,
            "status": status,
            "reason": {"True": f"{kind}IsSo", "Unknown": "NodeStatusUnknown"}.get(
                status, {**KUBELET, **PROBLEM_DETECTOR}.get(kind, "")
            ),
            "message": "",
            "lastHeartbeatTime": show_time(since),
            "lastTransitionTime": show_time(since),
        }
        for kind, status in said.items()
    ]
    reason = {"True": "KubeletReady", "False": "KubeletNotReady", "Unknown": "NodeStatusUnknown"}[ready]
    listed.append({"type": "Ready", "status": ready, "reason": reason, "lastTransitionTime": show_time(since)})
    taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}] if is_cordoned else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {
            "providerID": f"azure:///{name}",
            "taints": taints,
            **({"unschedulable": True} if is_cordoned else {}),
        },
        "status": {
            "allocatable": {"cpu": "95", "nvidia.com/gpu": "8"},
            "capacity": {"cpu": "96", "nvidia.com/gpu": "8"},
            "conditions": listed,
        },
    }


def kubernetes_list(*nodes: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(nodes), "metadata": {"resourceVersion": ""}})
