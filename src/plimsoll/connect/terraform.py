"""What `terraform apply -json` and `tofu apply -json` say while they run, as nouns.

Decides how far an apply or destroy is and what failed, from the machine-readable user interface (one message a line,
the first says its version). Minor versions only add, so what is not known is passed over; another major version is
refused, since it may mean something else by the same words. Must never raise for what was printed, and never keep the
value of an output, a state or a variable: some of them are secrets, and nobody needs them to know how it goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

UI_MAJOR = "1"
ERRORS_MAX = 50
RUNNING_MAX = 1_000
SHOWN_MAX = 3
"""Addresses that a line for people names; the others are counted."""
TEXT_CHARS_MAX = 500
DETAIL_CHARS_MAX = 4_000
COUNT_MAX = 1_000_000_000

_STYLE = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]")
"""What colours a terminal."""
_UI_VERSION = re.compile(r"(\d{1,6})(?:\.\d{1,6}){0,3}")
_APPLIES = {"create": 1, "update": 1, "delete": 1, "replace": 2}
"""How many objects a planned change touches. One that is replaced is destroyed and created, and is summed up as both;
reading and moving touch nothing, and are not in a summary either."""


class Diagnostic(msgspec.Struct, frozen=True):
    """An error in terraform's words. `address` is the resource and `place` the file and line, where they are known."""

    severity: str
    summary: str
    detail: str = ""
    address: str = ""
    place: str = ""


class ChangeSummary(msgspec.Struct, frozen=True):
    """What was planned, or what was done. `operation` is plan, apply or destroy."""

    add: int
    change: int
    remove: int
    import_: int
    operation: str

    @property
    def total(self) -> int:
        """Objects to touch, as `applied` counts them: an import touches only the state."""
        return self.add + self.change + self.remove


class TerraformSaid(msgspec.Struct, frozen=True):
    """How far it is. `of` is None until it is planned, or where a saved plan is applied, until the end; `errored` are
    the resources that failed, which are named before the errors are; `refusal` says why nothing of it was read.
    """

    ui_version: str = ""
    program: str = ""
    version: str = ""
    applied: int = 0
    of: int | None = None
    running: tuple[str, ...] = ()
    errored: tuple[str, ...] = ()
    errors: tuple[Diagnostic, ...] = ()
    errors_count: int = 0
    warnings_count: int = 0
    summary: ChangeSummary | None = None
    refusal: str = ""


def plain(text: str, chars_max: int) -> str:
    """A text as one bounded line that can't control a terminal."""
    text = text[: chars_max * 4]  # so that a megabyte is not looked through for its first line
    if not text.isprintable():
        text = "".join(sign if sign.isprintable() else " " for sign in _STYLE.sub("", text))
    text = text.strip()
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def is_message(message: Mapping[str, Any]) -> bool:
    """Whether a line's object is a message of terraform's or tofu's."""
    return isinstance(message.get("@level"), str) and isinstance(message.get("@message"), str)


def read_lines(lines: Iterable[str]) -> TerraformSaid:
    """What the lines come to; those that are no messages are passed over."""
    return read_messages(message for line in lines if (message := _decoded(line)) is not None)


def read_messages(messages: Iterable[Mapping[str, Any]]) -> TerraformSaid:
    """What decoded messages come to."""
    reader = _Reader()
    for message in messages:
        if is_message(message):
            reader.take(message)
    return reader.said()


def one_line(said: TerraformSaid) -> str:
    """How far it is, or what failed, for people. What failed comes first."""
    if said.refusal:
        return said.refusal
    parts = []
    if said.errors:
        first = said.errors[0]
        where = ", ".join(part for part in (first.address, first.place) if part)
        parts.append(f"error: {first.summary}" + (f" ({where})" if where else ""))
        if said.errors_count > 1:
            parts.append(f"{said.errors_count - 1:,} more error" + ("s" if said.errors_count > 2 else ""))
    elif said.errored:
        parts.append(f"failed: {_listed(said.errored)}")
    is_over = said.summary is not None and said.summary.operation != "plan"
    if is_over and said.summary is not None:
        parts.append(_summary_text(said.summary))
    elif said.applied or said.running or said.errored:
        parts.append(f"{said.applied:,}" + (f" of {said.of:,}" if said.of is not None else "") + " applied")
    elif said.summary is not None:
        parts.append(_summary_text(said.summary))
    if said.running and not is_over:
        parts.append(f"under way: {_listed(said.running)}")
    return "; ".join(parts) or "nothing planned yet"


def _listed(addresses: tuple[str, ...]) -> str:
    more = len(addresses) - SHOWN_MAX
    return ", ".join(addresses[:SHOWN_MAX]) + (f" and {more:,} more" if more > 0 else "")


def _summary_text(summary: ChangeSummary) -> str:
    if summary.operation == "destroy":
        return f"destroyed: {summary.remove:,}"
    counts = [(summary.add, "added"), (summary.change, "changed"), (summary.remove, "destroyed")]
    if summary.import_:
        counts.append((summary.import_, "imported"))
    text = ", ".join(f"{count:,} {word}" for count, word in counts)
    return f"to be done: {text}" if summary.operation == "plan" else f"done: {text}"


class _Reader:
    """The state between two messages. A version message begins another run of the program: a step may plan first and
    apply then, or try again, and only the last run tells how it stands.
    """

    def __init__(self) -> None:
        self._plan: ChangeSummary | None = None
        self._begin(program="", version="", ui_version="")

    def _begin(self, *, program: str, version: str, ui_version: str) -> None:
        self._program, self._version, self._ui_version = program, version, ui_version
        self._applied = self._planned = self._errors_count = self._warnings_count = 0
        self._running: dict[str, None] = {}
        self._errored: dict[str, None] = {}
        self._errors: list[Diagnostic] = []
        self._refusal = ""
        # What was planned holds for the run that follows; what was done in an earlier run says nothing about this one.
        self._summary = self._plan

    def take(self, message: Mapping[str, Any]) -> None:
        kind = message.get("type")
        if kind == "version":
            self._take_version(message)
        elif self._refusal:
            return
        elif kind == "planned_change":
            self._planned += _APPLIES.get(_text(_part(message, "change"), "action"), 0)
        elif kind == "change_summary":
            self._take_summary(_part(message, "changes"))
        elif kind == "diagnostic":
            self._take_diagnostic(_part(message, "diagnostic"), message["@message"])
        elif kind in ("apply_start", "apply_progress", "apply_complete", "apply_errored"):
            self._take_apply(kind, _part(message, "hook"))
        elif kind is None and message["@level"] == "error":
            # What the program could not say in its own form, such as a mistake in the command's words.
            self._add_error(Diagnostic("error", plain(message["@message"], TEXT_CHARS_MAX)))

    def _take_version(self, message: Mapping[str, Any]) -> None:
        program = next((name for name in ("terraform", "tofu") if isinstance(message.get(name), str)), "")
        ui_version = plain(_text(message, "ui"), 40)
        self._begin(
            program=program,
            version=plain(_text(message, program), 40) if program else "",
            ui_version=ui_version,
        )
        found = _UI_VERSION.fullmatch(ui_version)
        if found is None or found[1] != UI_MAJOR:
            self._plan = self._summary = None
            self._refusal = (
                f"{' '.join(part for part in (self._program, self._version) if part) or 'the program'} speaks version"
                f" {ui_version or '(none)'} of the machine-readable interface, and only {UI_MAJOR}.x is understood"
            )

    def _take_summary(self, changes: Mapping[str, Any]) -> None:
        operation = _text(changes, "operation")
        if operation not in ("plan", "apply", "destroy"):
            return
        self._summary = ChangeSummary(
            add=_count(changes, "add"),
            change=_count(changes, "change"),
            remove=_count(changes, "remove"),
            import_=_count(changes, "import"),
            operation=operation,
        )
        self._plan = self._summary if operation == "plan" else None

    def _take_diagnostic(self, found: Mapping[str, Any], message: str) -> None:
        severity = _text(found, "severity")
        if severity == "warning":
            self._warnings_count += 1
            return
        source = _part(found, "range")
        file, line = plain(_text(source, "filename"), TEXT_CHARS_MAX), _count(_part(source, "start"), "line")
        self._add_error(
            Diagnostic(
                severity=plain(severity, 40) or "unknown",
                summary=plain(_text(found, "summary") or message, TEXT_CHARS_MAX),
                detail=plain(_text(found, "detail"), DETAIL_CHARS_MAX),
                address=plain(_text(found, "address"), TEXT_CHARS_MAX),
                place=f"{file}:{line}" if file and line else file,
            )
        )

    def _add_error(self, error: Diagnostic) -> None:
        self._errors_count += 1
        if len(self._errors) < ERRORS_MAX:  # the first ones are the causes of the later ones
            self._errors.append(error)

    def _take_apply(self, kind: str, hook: Mapping[str, Any]) -> None:
        address = plain(_text(_part(hook, "resource"), "addr"), TEXT_CHARS_MAX)
        if not address:
            return
        if kind in ("apply_start", "apply_progress"):
            if len(self._running) < RUNNING_MAX:
                self._running[address] = None
            return
        self._running.pop(address, None)
        if kind == "apply_errored":
            if len(self._errored) < ERRORS_MAX:
                self._errored[address] = None
        elif _text(hook, "action") in _APPLIES:
            self._applied += 1

    def said(self) -> TerraformSaid:
        of = self._plan.total if self._plan is not None else None
        if of is None and self._summary is not None:
            of = self._summary.total
        return TerraformSaid(
            ui_version=self._ui_version,
            program=self._program,
            version=self._version,
            applied=self._applied,
            of=of if of is not None else self._planned or None,
            running=tuple(self._running),
            errored=tuple(self._errored),
            errors=tuple(self._errors),
            errors_count=self._errors_count,
            warnings_count=self._warnings_count,
            summary=self._summary,
            refusal=self._refusal,
        )


def _decoded(line: str) -> Mapping[str, Any] | None:
    try:
        message = msgspec.json.decode(line)
    except (ValueError, RecursionError):  # a decoding error is a ValueError
        return None
    return message if isinstance(message, dict) else None


def _part(message: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = message.get(key)
    return part if isinstance(part, dict) else {}


def _text(message: Mapping[str, Any], key: str) -> str:
    text = message.get(key)
    return text if isinstance(text, str) else ""


def _count(message: Mapping[str, Any], key: str) -> int:
    count = message.get(key)
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= COUNT_MAX else 0
