"""Marks of a campaign in Kubernetes: a cordon, a taint and a note on each node of a batch when it is due.

Kubernetes plans nothing ahead, so that there is nothing to book. Must never open a node that somebody else closed, and
never delete a pod: pods are evicted, and their budgets may put that off.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from plimsoll.campaigns.marks.model import Acted, Cleared, Drained, Extent, Looked
from plimsoll.connect.kubernetes_nodes import Closed, Note
from plimsoll.connect.kubernetes_pods import KubernetesPods


class KubernetesMarks:
    """The Kubernetes of one cluster, for one campaign. `grace_seconds`: what an evicted pod gets; else its own."""

    def __init__(self, api: KubernetesPods, *, campaign: str, grace_seconds: int | None = None) -> None:
        self._api, self._campaign, self._grace_seconds = api, campaign, grace_seconds

    @property
    def where(self) -> str:
        return f"Kubernetes at {self._api.where}"

    def book(self, _batch: str, nodes: Sequence[str], *, starts: datetime, ends: datetime) -> Acted:
        assert starts < ends
        known = self._api.marked_nodes(nodes)
        missing = tuple(name for name in dict.fromkeys(nodes) if name not in known)
        return Acted(tuple(name for name in dict.fromkeys(nodes) if name in known), missing)

    def mark(self, batch: str, nodes: Sequence[str], *, starts: datetime, ends: datetime, reason: str) -> Acted:
        assert starts < ends
        return _acted(self._api.close(nodes, Note(self._campaign, batch, reason)))

    def unmark(self, batch: str, nodes: Collection[str]) -> Acted:
        return _acted(self._api.open(nodes, campaign=self._campaign, batch=batch))

    def look(self, batch: str, nodes: Collection[str]) -> Looked:
        known = self._api.marked_nodes(nodes)
        closed = {name for name, node in known.items() if node.is_closed_for(self._campaign, batch)}
        ours = {name for name, node in known.items() if node.note and node.note.is_of(self._campaign, batch)}
        left = tuple(name for name in dict.fromkeys(nodes) if name in known and name not in closed)
        missing = tuple(name for name in dict.fromkeys(nodes) if name not in known)
        if not ours:
            return Looked(Extent.NOT_MARKED, left, missing)
        return Looked(Extent.PARTLY if left else Extent.MARKED, left, missing)

    def drained(self, nodes: Collection[str]) -> Drained:
        busy: dict[str, list[str]] = {}
        for pod in self._api.pods(nodes):
            busy.setdefault(pod.node, []).append(pod.label)
        return Drained(
            tuple(name for name in dict.fromkeys(nodes) if name not in busy),
            {name: tuple(busy[name]) for name in dict.fromkeys(nodes) if name in busy},
        )

    def clear(self, nodes: Collection[str]) -> Cleared:
        evicted = self._api.evict(self._api.pods(nodes), grace_seconds=self._grace_seconds)
        return Cleared(tuple(pod.label for pod in evicted.going), evicted.waiting)


def _acted(closed: Closed) -> Acted:
    return Acted(closed.done, closed.missing, closed.left)
