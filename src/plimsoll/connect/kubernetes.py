"""Read what `kubectl get nodes -o json` printed.

Decides what a document says of each node, and nothing about health. Must never take half a document for a whole one, or
another kind of object for a node: a wrong document is refused as a whole, with the path of what is wrong.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Literal, NoReturn

import msgspec

from plimsoll.errors import Refused, UsageError
from plimsoll.memory import no_collection

DOCUMENT_BYTES_MAX = 60_000_000
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
"""Whole GPUs. Slices (`nvidia.com/mig-…`) and shares (`nvidia.com/gpu.shared`) are not counted."""

COMMAND = "kubectl get nodes -o json"
_BOM = b"\xef\xbb\xbf"
_AT = re.compile(r"^(.*) - at `\$\.?(.*)`$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Condition(msgspec.Struct, frozen=True):
    """One condition of a node, such as Ready or node-problem-detector's KernelDeadlock; None is unknown."""

    status: str
    reason: str
    message: str
    since: datetime | None

    @property
    def is_true(self) -> bool | None:
        return {"True": True, "False": False}.get(self.status)


class Taint(msgspec.Struct, frozen=True):
    """What keeps pods off a node."""

    key: str
    value: str
    effect: str


class KubernetesNode(msgspec.Struct, frozen=True):
    """A node as Kubernetes sees it.

    `is_ready` is None when nobody knows: the kubelet stopped reporting, or never did. `gpus` can be given to pods now,
    `capacity_gpus` are installed: the device plugin takes a sick GPU from the first and leaves it in the second.
    """

    name: str
    labels: dict[str, str]
    is_ready: bool | None
    ready_since: datetime | None
    reason: str
    conditions: dict[str, Condition]
    is_cordoned: bool
    taints: tuple[Taint, ...]
    gpus: int
    capacity_gpus: int


class _Kind(msgspec.Struct):
    kind: str | None = None


class _Kinds(msgspec.Struct):
    kind: str | None = None
    items: list[_Kind] | None = None


class _Metadata(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    labels: dict[str, str] | None = None


class _Taint(msgspec.Struct):
    key: str
    effect: str
    value: str | None = None


class _Spec(msgspec.Struct):
    unschedulable: bool | None = None
    taints: list[_Taint] | None = None


class _Condition(msgspec.Struct, rename="camel"):
    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str | None = None
    message: str | None = None
    last_transition_time: _Moment | None = None


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None
    capacity: dict[str, str | int] | None = None
    allocatable: dict[str, str | int] | None = None


class _Node(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


class _Nodes(msgspec.Struct):
    items: list[_Node]


_kinds = msgspec.json.Decoder(_Kinds)
_lists = msgspec.json.Decoder(_Nodes)
_singles = msgspec.json.Decoder(_Node)


def parse_nodes(text: str | bytes, *, source: str) -> list[KubernetesNode]:
    """The nodes of a List, a NodeList or a single Node. `source` names the document in messages. Raises UsageError."""
    data = (text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text).removeprefix(_BOM)
    if len(data) > DOCUMENT_BYTES_MAX:
        raise Refused(
            "kubernetes_too_big",
            f"{source} has {len(data):,} bytes, at most {DOCUMENT_BYTES_MAX:,} are read",
            next_step=f"read the nodes in parts: {COMMAND} -l LABEL=VALUE",
            source=source,
            bytes_max=DOCUMENT_BYTES_MAX,
        )
    with no_collection():
        try:
            is_single = _check_kinds(_kinds.decode(data), source)
            documents = [_singles.decode(data)] if is_single else _lists.decode(data).items
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            _refuse(error, data, source)
        nodes = [
            _node(document, "" if is_single else f"items[{place}].", source) for place, document in enumerate(documents)
        ]
    _check_names(nodes, source)
    return nodes


def _check_kinds(document: _Kinds, source: str) -> bool:
    """Whether it is a single node. Pods have metadata and conditions, too, so the kind is what tells them apart."""
    if document.kind == "Node":
        return True
    if document.kind not in ("List", "NodeList"):
        raise _wrong_kind(document.kind, "kind", "List, NodeList or Node", source)
    for place, item in enumerate(document.items or ()):
        # The API itself leaves the kind out in the items of a NodeList; kubectl puts it into those of its List.
        if item.kind != "Node" and not (item.kind is None and document.kind == "NodeList"):
            raise _wrong_kind(item.kind, f"items[{place}].kind", "Node", source)
    return False


def _wrong_kind(kind: str | None, path: str, expected: str, source: str) -> UsageError:
    found = "missing" if kind is None else repr(kind[:60])
    return UsageError(
        "kubernetes_wrong_kind",
        f"{source}: {path} is {found}, expected {expected}",
        next_step=f"give the output of {COMMAND}",
        source=source,
        path=path,
        expected=expected,
    )


def _check_names(nodes: list[KubernetesNode], source: str) -> None:
    places: dict[str, int] = {}
    for place, node in enumerate(nodes):
        if (first := places.setdefault(node.name, place)) != place:
            raise UsageError(
                "kubernetes_bad_document",
                f"{source}: items[{place}].metadata.name is {node.name!r}, as is that of items[{first}]",
                next_step="give the nodes of one cluster, each once",
                source=source,
                path=f"items[{place}].metadata.name",
                expected="a name that no other node has",
            )


def _refuse(error: Exception, data: bytes, source: str) -> NoReturn:
    """What is wrong and where, from msgspec's words: `Expected `str`, got `int` - at `$.items[3].metadata.name``."""
    found = _AT.match(str(error))
    if isinstance(error, msgspec.ValidationError):
        what, path = (found[1], found[2]) if found else (str(error), "")
        if missing := _MISSING.fullmatch(what):
            what, path = "expected a value, and it is missing", f"{path}.{missing[1]}".lstrip(".")
        text = f"{path or 'the document'}: {what}"
        next_step = f"give the output of {COMMAND} unchanged"
    elif not data.strip():
        what, path, text = "a JSON document", "", "nothing came"
        next_step = f"look whether the command before the pipe failed: {COMMAND}"
    elif "truncated" in str(error):
        what, path, text = "the end of the document", "", f"it breaks off after {len(data):,} bytes"
        next_step = "the pipe or the disk cut it short: write it again"
    else:
        what, path, text = "a JSON document", "", f"it is not JSON: {_words(error)}"
        next_step = f"give the output of {COMMAND}, in UTF-8"
    raise UsageError(
        "kubernetes_bad_document",
        f"{source}: {text}",
        next_step=next_step,
        source=source,
        path=path,
        expected=what,
    ) from error


def _words(error: Exception) -> str:
    return "it nests too deep" if isinstance(error, RecursionError) else str(error)


def _node(document: _Node, path: str, source: str) -> KubernetesNode:
    spec, status = document.spec or _Spec(), document.status or _Status()
    conditions = {
        item.type: Condition(
            item.status,
            item.reason or "",
            item.message or "",
            item.last_transition_time and item.last_transition_time.astimezone(UTC),
        )
        for item in status.conditions or ()
    }
    ready = conditions.get("Ready", Condition("Unknown", "", "", None))
    return KubernetesNode(
        name=document.metadata.name,
        labels=document.metadata.labels or {},
        is_ready=ready.is_true,
        ready_since=ready.since,
        reason=ready.reason,
        conditions=conditions,
        is_cordoned=bool(spec.unschedulable),
        taints=tuple(Taint(taint.key, taint.value or "", taint.effect) for taint in spec.taints or ()),
        gpus=_count_gpus(status.allocatable, f"{path}status.allocatable", source),
        capacity_gpus=_count_gpus(status.capacity, f"{path}status.capacity", source),
    )


def _count_gpus(resources: dict[str, str | int] | None, path: str, source: str) -> int:
    count = 0
    for name in GPU_RESOURCES:
        found = str((resources or {}).get(name, 0))
        if not (found.isascii() and found.isdecimal() and len(found) <= 6):
            raise UsageError(
                "kubernetes_bad_document",
                f'{source}: {path}["{name}"]: expected a whole number of GPUs, got {found[:60]!r}',
                next_step=f"give the output of {COMMAND} unchanged",
                source=source,
                path=f'{path}["{name}"]',
                expected="a whole number of GPUs",
            )
        count += int(found)
    return count
