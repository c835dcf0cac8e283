"""Close nodes of a Kubernetes cluster for planned work, and open them again: cordon, taint, and a note that says whose.

Decides only whether the server did what was asked. Each node is changed by one patch that carries the version which was
read, so that nothing another writer did in between is lost, and a crash leaves no node half closed. Must never open a
node that was closed before us or by somebody after us, never take away a mark of other work, and never show a token.

The note is an annotation. It keeps whether the node was cordoned before; who holds the cordon now is told by the
server's own record of who wrote which field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn
from urllib.parse import quote

import msgspec

from plimsoll.connect.kueue import FIELD_MANAGER, PAGE_OBJECTS, PAGES_MAX, KueueApi, owners_of
from plimsoll.connect.web import Answer
from plimsoll.errors import Refused

MARK = "plimsoll.io/maintenance"
"""The key of the taint and of the annotation."""
EFFECT = "NoSchedule"
CONFLICTS_MAX = 8
"""How often a node is read again because somebody else wrote to it in between."""
VALUE_CHARS_MAX = 63
ONE_BY_ONE_MAX = 32
"""Up to so many nodes are asked for one by one, more as a list of all."""
NAMES_SHOWN_MAX = 10

_UNWANTED = re.compile(r"[^A-Za-z0-9_.-]+")
_RIGHTS = "give the token's user the rights to get, list and patch nodes, to list pods and to create pods/eviction"


class Note(msgspec.Struct, frozen=True):
    """What the annotation says: for which work a node is closed, and what it was before."""

    campaign: str
    batch: str
    reason: str = ""
    was_cordoned: bool = False

    def is_of(self, campaign: str, batch: str) -> bool:
        return (self.campaign, self.batch) == (campaign, batch)


class MarkedNode(msgspec.Struct, frozen=True):
    """A node as far as it can be closed. `owners`: who, beside us, wrote the cordon that it has."""

    name: str
    version: str
    is_cordoned: bool
    taints: tuple[dict[str, Any], ...]
    note: Note | None
    has_foreign_note: bool
    owners: tuple[str, ...]

    def is_closed_for(self, campaign: str, batch: str) -> bool:
        """Whether it is closed for this work, whole: cordon, taint and note."""
        return (
            self.note is not None
            and self.note.is_of(campaign, batch)
            and self.is_cordoned
            and any(_is_ours(taint) for taint in self.taints)
        )


class Closed(msgspec.Struct, frozen=True):
    """What became of nodes. `left`: those that somebody else keeps, and why; `missing`: those that are not there."""

    done: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    left: Mapping[str, str] = {}


_Change = Callable[[MarkedNode], tuple[dict[str, Any] | None, str]]
"""The patch that a node needs; None where it needs none, with the words why it is not as asked, if it is not."""


class _Page(msgspec.Struct):
    items: list[dict[str, Any]] | None = None
    metadata: dict[str, Any] = {}


class KubernetesNodes(KueueApi):
    """The nodes of one API server. It is talked to as for Kueue; only the kinds are others."""

    def marked_nodes(self, names: Collection[str]) -> dict[str, MarkedNode]:
        """Of these nodes those that are there, by name."""
        wanted = dict.fromkeys(names)
        if len(wanted) <= ONE_BY_ONE_MAX:  # a node may have 20 KB
            found = {name: self._get(name) for name in wanted}
            return {name: node for name, node in found.items() if node is not None}
        nodes = [_read(each) for each in self._list("/api/v1/nodes", {}, "nodes")]
        return {node.name: node for node in nodes if node.name in wanted}

    def _get(self, name: str) -> MarkedNode | None:
        answer = self._ask("GET", _path(name), {})
        if answer.status == 404:
            return None
        if answer.status != 200:
            self._refuse(answer, f"node {name}")
        return _read(self._decode(answer.body, dict[str, Any]))

    def close(self, names: Sequence[str], note: Note) -> Closed:
        """Cordon and taint nodes for some work. What is closed for it already is left alone.

        A node that is marked for other work is left to it. Raises Refused `kubernetes_not_done` when the server would
        not take a change, with those that are done; Unavailable when it did not answer: then ask again.
        """
        return self._each(names, lambda node: _closing(node, note), verb="closed")

    def open(self, names: Collection[str], *, campaign: str, batch: str) -> Closed:
        """Take back what `close` did for this work; nodes without a mark of it are left as they are.

        `left` are those that stay cordoned: they were before, or somebody has cordoned them since.
        """
        return self._each(names, lambda node: _opening(node, campaign, batch), verb="opened")

    def _each(self, names: Collection[str], change: _Change, *, verb: str) -> Closed:
        there = self.marked_nodes(names)
        done: list[str] = []
        left: dict[str, str] = {}
        not_done: dict[str, str] = {}
        gone: set[str] = set()
        for name in dict.fromkeys(names):
            if name not in there:
                continue
            try:
                found, why = self._change(there[name], change)
            except Refused as error:
                not_done[name] = error.message
                continue
            if found is None:
                gone.add(name)
            elif why:
                left[name] = why
            else:
                done.append(name)
        if not_done:
            shown = "; ".join(list(not_done.values())[:NAMES_SHOWN_MAX])
            raise Refused(
                "kubernetes_not_done",
                f"{len(not_done):,} of {len(there):,} nodes were not {verb}: {shown}",
                next_step="look at them: kubectl describe node NAME",
                done=done,
                not_done=not_done,
            )
        missing = tuple(name for name in dict.fromkeys(names) if name not in there or name in gone)
        return Closed(tuple(done), missing, left)

    def _change(self, node: MarkedNode, change: _Change) -> tuple[MarkedNode | None, str]:
        """Patch one node until it is as wanted: the node then (None: it is gone), and who keeps it otherwise."""
        for _ in range(CONFLICTS_MAX):
            patch, why = change(node)
            if patch is None:
                return node, why
            patch.setdefault("metadata", {})["resourceVersion"] = node.version
            answer = self._ask(
                "PATCH",
                _path(node.name),
                {"fieldManager": FIELD_MANAGER},
                body=msgspec.json.encode(patch),
                media_type="application/merge-patch+json",
            )
            if answer.status == 404:
                return None, ""
            if answer.status == 200:
                node = _read(self._decode(answer.body, dict[str, Any]))
            elif answer.status == 409:  # somebody was quicker: look again
                again = self._get(node.name)
                if again is None:
                    return None, ""
                node = again
            else:
                self._refuse(answer, f"node {node.name}")
        raise Refused(
            "kubernetes_busy",
            f"node {node.name} at {self.where} was changed by others {CONFLICTS_MAX} times while we tried",
            next_step="look who writes to it: kubectl get node NAME -o yaml --show-managed-fields",
            node=node.name,
        )

    def _list(self, path: str, query: Mapping[str, str], what: str) -> list[dict[str, Any]]:
        """All objects under a path, page by page. When a page is too old by then it is read again from the start."""
        for _ in range(CONFLICTS_MAX):
            found = self._pages(path, query, what)
            if found is not None:
                return found
        raise self._bad("the list moved on while it was read", "try again")

    def _pages(self, path: str, query: Mapping[str, str], what: str) -> list[dict[str, Any]] | None:
        found: list[dict[str, Any]] = []
        token = ""
        for _ in range(PAGES_MAX):
            more = {"limit": str(PAGE_OBJECTS), **({"continue": token} if token else {})}
            answer = self._ask("GET", path, {**query, **more})
            if answer.status == 410:
                return None
            if answer.status != 200:
                self._refuse(answer, what)
            page: _Page = self._decode(answer.body, _Page)
            found += page.items or []
            token = str(page.metadata.get("continue") or "")
            if not token:
                return found
        raise self._bad(f"more than {PAGES_MAX * PAGE_OBJECTS:,} {what}", "look who makes so many")

    def _refuse(self, answer: Answer, what: str) -> NoReturn:
        if answer.status == 403:
            raise self._unavailable(f"{self.where} does not let us at {what} (HTTP 403)", _RIGHTS)
        if answer.status == 404:
            raise self._unavailable(
                f"{self.where} knows no {what} (HTTP 404)", "check that the URL is that of an API server"
            )
        super()._refuse(answer, what)


def _path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name, safe='')}"


def mark_value(text: str) -> str:
    """A taint's value as Kubernetes takes it."""
    return _UNWANTED.sub("-", text)[:VALUE_CHARS_MAX].strip("-_.") or "x"


def _closing(node: MarkedNode, note: Note) -> tuple[dict[str, Any] | None, str]:
    """The patch that closes a node, or None and who has it."""
    if node.has_foreign_note or (node.note is not None and not node.note.is_of(note.campaign, note.batch)):
        other = node.note
        return None, f"marked for campaign {other.campaign} batch {other.batch}" if other else "marked by another"
    if node.is_closed_for(note.campaign, note.batch):
        return None, ""
    # Whether it was cordoned before us is known only at the first time; a cordon that has ended since is no reason.
    was_cordoned = node.is_cordoned and (node.note is None or node.note.was_cordoned)
    kept = msgspec.structs.replace(note, was_cordoned=was_cordoned)
    taint = {"key": MARK, "value": mark_value(note.campaign), "effect": EFFECT}
    return {
        "metadata": {"annotations": {MARK: msgspec.json.encode(kept).decode()}},
        "spec": {"unschedulable": True, "taints": [*_without_ours(node.taints), taint]},
    }, ""


def _opening(node: MarkedNode, campaign: str, batch: str) -> tuple[dict[str, Any] | None, str]:
    """The patch that opens a node, or None and why it stays closed."""
    if node.note is None or not node.note.is_of(campaign, batch):
        return None, _why_closed(node)
    spec: dict[str, Any] = {"taints": _without_ours(node.taints) or None}
    if not node.note.was_cordoned and not node.owners:
        spec["unschedulable"] = None
    return {"metadata": {"annotations": {MARK: None}}, "spec": spec}, ""


def _why_closed(node: MarkedNode) -> str:
    if node.note is not None:
        return f"marked for campaign {node.note.campaign} batch {node.note.batch}"
    if node.has_foreign_note:
        return "marked by another"
    return f"cordoned by {', '.join(node.owners) or 'somebody else'}" if node.is_cordoned else ""


def _without_ours(taints: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [taint for taint in taints if not _is_ours(taint)]


def _is_ours(taint: Mapping[str, Any]) -> bool:
    return taint.get("key") == MARK


def _read(content: Mapping[str, Any]) -> MarkedNode:
    metadata, spec = content.get("metadata") or {}, content.get("spec") or {}
    text = (metadata.get("annotations") or {}).get(MARK)
    note = None
    if text is not None:
        try:
            note = msgspec.json.decode(text, type=Note)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            note = None  # somebody else's, under our key: it is theirs
    is_cordoned = bool(spec.get("unschedulable"))
    return MarkedNode(
        name=str(metadata.get("name", "")),
        version=str(metadata.get("resourceVersion", "")),
        is_cordoned=is_cordoned,
        taints=tuple(spec.get("taints") or ()),
        note=note,
        has_foreign_note=text is not None and note is None,
        owners=tuple(owners_of(content, "unschedulable")) if is_cordoned else (),
    )
