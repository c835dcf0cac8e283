"""What a step of a cluster's creation says while it runs: JSON on its output, one message a line.

    {"type": "progress", "done": 3, "of": 12, "message": "…"}                    how far it is (of may be missing)
    {"type": "node", "node": "lynx-0001", "island": "lynx-i1", "labels": {…}}    a machine that is there
    {"type": "node", "node": "lynx-0001", "ok": false, "detail": "…"}            what the check of a machine came to
    {"type": "blocked", "message": "…", "asks": "who"}                           it waits for a person
    {"type": "failed", "reason": "OutOfQuota", "message": "…", "retry": "later"} why it will not end well (or "never")
    {"type": "result", "message": "…", "outputs": {…}}                           what it came to

Messages of `terraform -json` and `tofu -json` may stand between them; every other line is log. Decides what the lines
come to: later messages win. Must never raise for what a command printed: a line that is meant for us and wrong is
named with its number and what was expected, and nothing of it is used.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from plimsoll.connect import terraform
from plimsoll.connect.terraform import TerraformSaid, plain

NODES_MAX = 100_000
LABELS_MAX = 32
OUTPUTS_MAX = 100
PROBLEMS_MAX = 20
LOG_LINES_MAX = 200
LINE_CHARS_MAX = 1 << 20
MESSAGE_CHARS_MAX = 1_000
LOG_CHARS_MAX = 400
COUNT_MAX = 1_000_000_000
_MEANT_WITHIN = 4_096

_MEANT = re.compile(r'"type"\s*:\s*"(?:progress|node|blocked|failed|result)"|"@level"')
"""A line that is broken and was one for us. It is a problem and no log, since it may hold what no log should."""

Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z")]
Label = Annotated[str, Meta(min_length=1, max_length=63)]
LabelValue = Annotated[str, Meta(max_length=256)]
Told = Annotated[str, Meta(min_length=1)]


class Progress(msgspec.Struct, frozen=True):
    done: int
    of: int | None
    message: str


class NodeSaid(msgspec.Struct, frozen=True):
    """A machine. `is_ok` is None where no check was told."""

    node: str
    island: str = ""
    is_ok: bool | None = None
    detail: str = ""
    labels: Mapping[str, str] = {}


class Blocked(msgspec.Struct, frozen=True):
    message: str
    asks: str


class Failure(msgspec.Struct, frozen=True):
    """`reason` is one CamelCase word, as the reason of a condition is."""

    reason: str
    message: str
    may_retry: bool


class Said(msgspec.Struct, frozen=True):
    """What the output comes to. Whoever shows it to people may: texts are bounded lines without control characters."""

    progress: Progress | None = None
    nodes: tuple[NodeSaid, ...] = ()
    blocked: Blocked | None = None
    failure: Failure | None = None
    result: str = ""
    outputs: Mapping[str, str] = {}
    terraform: TerraformSaid | None = None
    problems: tuple[str, ...] = ()
    log: tuple[str, ...] = ()


class _Progress(msgspec.Struct):
    done: Count
    of: Count | None = None
    message: str = ""


class _Node(msgspec.Struct):
    node: Name
    island: Name | None = None
    ok: bool | None = None
    detail: str | None = None
    labels: Annotated[dict[Label, LabelValue], Meta(max_length=LABELS_MAX)] | None = None


class _Blocked(msgspec.Struct):
    message: Told
    asks: str = ""


class _Failed(msgspec.Struct):
    reason: Annotated[str, Meta(pattern=r"\A[A-Z][A-Za-z0-9]{0,63}\Z")]
    message: str = ""
    retry: str = "later"


class _Result(msgspec.Struct):
    message: Told
    outputs: Annotated[dict[Label, str | int | float | bool | None], Meta(max_length=OUTPUTS_MAX)] = {}


def read_output(text: str, *, is_ended: bool = False) -> Said:
    """What the output so far comes to. Its last line counts when it is whole, or when the command has ended."""
    lines = text.split("\n")  # not `splitlines`: a JSON text may hold other signs that end a line
    last = lines.pop()
    if is_ended and last:
        lines.append(last)
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        reader.take(number, line)
    return reader.said()


class _Reader:
    """The state between two lines."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._nodes: dict[str, NodeSaid] = {}
        self._blocked: Blocked | None = None
        self._failure: Failure | None = None
        self._result, self._outputs = "", dict[str, str]()
        self._terraform: list[Mapping[str, Any]] = []
        self._problems: list[str] = []
        self._problems_count = 0
        self._log: deque[str] = deque(maxlen=LOG_LINES_MAX)
        self._takes: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "progress": self._take_progress,
            "node": self._take_node,
            "blocked": self._take_blocked,
            "failed": self._take_failed,
            "result": self._take_result,
        }

    def take(self, number: int, line: str) -> None:
        if not line.lstrip(" \t\ufeff").startswith("{"):
            self._keep(line)
            return
        if len(line) > LINE_CHARS_MAX:
            self._add_problem(f"line {number}: expected at most {LINE_CHARS_MAX:,} characters, found {len(line):,}")
            return
        try:
            message = msgspec.json.decode(line.lstrip("\ufeff"))
        except (ValueError, RecursionError) as error:  # a decoding error is a ValueError
            if _MEANT.search(line[:_MEANT_WITHIN]):
                self._add_problem(f"line {number}: expected one whole JSON object: {_why(error)}")
            else:
                self._keep(line)
            return
        if terraform.is_message(message):
            self._blocked = None
            self._terraform.append(message)
            self._keep(message["@message"])
            return
        kind = message.get("type")
        take = self._takes.get(kind) if isinstance(kind, str) else None
        if take is None:
            self._keep(line)  # another program's own JSON
            return
        try:
            take(message)
        except (ValueError, RecursionError) as error:
            self._add_problem(f"line {number}: {kind}: {_why(error)}")

    def _keep(self, line: str) -> None:
        if line and not line.isspace():
            self._log.append(line)

    def _add_problem(self, problem: str) -> None:
        self._problems_count += 1
        if len(self._problems) < PROBLEMS_MAX:
            self._problems.append(problem)

    # Whatever says that it goes on ends the waiting for a person.

    def _take_progress(self, message: Mapping[str, Any]) -> None:
        told = msgspec.convert(message, _Progress)
        if told.of is not None and told.done > told.of:
            raise ValueError(f"Expected `done` <= `of`, got {told.done} of {told.of}")
        self._progress = Progress(told.done, told.of, plain(told.message, MESSAGE_CHARS_MAX))
        self._blocked = None

    def _take_node(self, message: Mapping[str, Any]) -> None:
        told = msgspec.convert(message, _Node)
        known = self._nodes.get(told.node)
        if known is None:
            if len(self._nodes) >= NODES_MAX:
                raise ValueError(f"Expected at most {NODES_MAX:,} nodes")
            known = NodeSaid(told.node)
        # A later message wins in what it tells; a check that does not repeat the island does not take it away.
        self._nodes[told.node] = NodeSaid(
            node=told.node,
            island=known.island if told.island is None else told.island,
            is_ok=known.is_ok if told.ok is None else told.ok,
            detail=plain(told.detail, MESSAGE_CHARS_MAX) if told.detail is not None else _detail(known, told),
            labels=known.labels if told.labels is None else _plain_labels(told.labels),
        )
        self._blocked = None

    def _take_blocked(self, message: Mapping[str, Any]) -> None:
        told = msgspec.convert(message, _Blocked)
        self._blocked = Blocked(plain(told.message, MESSAGE_CHARS_MAX), plain(told.asks, MESSAGE_CHARS_MAX))

    def _take_failed(self, message: Mapping[str, Any]) -> None:
        told = msgspec.convert(message, _Failed)
        if told.retry not in ("later", "never"):
            raise ValueError("Expected `later` or `never` - at `$.retry`")
        self._failure = Failure(told.reason, plain(told.message, MESSAGE_CHARS_MAX), told.retry == "later")
        self._result, self._outputs, self._blocked = "", {}, None

    def _take_result(self, message: Mapping[str, Any]) -> None:
        told = msgspec.convert(message, _Result)
        self._result = plain(told.message, MESSAGE_CHARS_MAX)
        self._outputs = {
            plain(key, MESSAGE_CHARS_MAX): plain(_output_text(value), MESSAGE_CHARS_MAX)
            for key, value in told.outputs.items()
        }
        self._failure, self._blocked = None, None

    def said(self) -> Said:
        told = terraform.read_messages(self._terraform) if self._terraform else None
        problems = self._problems
        if more := self._problems_count - len(problems):
            problems = [*problems, f"{more:,} more lines were wrong"]
        if told is not None and told.refusal:
            problems = [told.refusal, *problems]
        return Said(
            progress=self._progress,
            nodes=tuple(self._nodes.values()),
            blocked=self._blocked,
            failure=self._failure,
            result=self._result,
            outputs=self._outputs,
            terraform=told,
            problems=tuple(problems),
            log=tuple(plain(line, LOG_CHARS_MAX) for line in self._log),
        )


def _detail(known: NodeSaid, told: _Node) -> str:
    """The detail of an earlier check explains that check, and not a later one that came out otherwise."""
    return known.detail if told.ok is None or told.ok == known.is_ok else ""


def _plain_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {plain(key, 63): plain(value, 256) for key, value in labels.items()}


def _output_text(value: str | int | float | bool | None) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _why(error: Exception) -> str:
    """What was expected, in the decoder's words; it does not quote what stood there."""
    return "nested too deep" if isinstance(error, RecursionError) else plain(str(error), MESSAGE_CHARS_MAX)
