"""From a request's values to a command's answer: what may be sent, how it is read, and how the command is called.

Must never hand a name of the caller's to a command as a file of this machine: files are sent, and live in a folder of
their own for as long as the call.
"""

from __future__ import annotations

import base64
import binascii
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.answers import Answer
from plimsoll.commands.catalog import Command, Parameter, command, convert
from plimsoll.commands.desk import Desk, at
from plimsoll.errors import PlimsollError, UsageError
from plimsoll.server.routes import HIDDEN, Route, Sent
from plimsoll.words import near

FILES_MAX = 50
FILE_CHARS_MAX = 256 << 20
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Said(msgspec.Struct, frozen=True):
    """What a command said, in whatever form, and how it ended (0 done, 1 refused or not possible)."""

    answer: Answer | None
    text: str | None
    picture: bytes | None
    files: Mapping[str, str]
    exit_code: int
    revision: int
    recorded_at: str = ""
    """When that revision was recorded."""
    shown_revision: int = 0
    """What it is about: that revision, or an older one that was asked for."""
    weight: int = 0
    """The bytes of its document as JSON: how much it is to be kept."""


class Taken(msgspec.Struct, frozen=True):
    """One parameter of a route, as the API calls it."""

    name: str
    parameter: Parameter
    sent: Sent | None
    is_in_path: bool
    least: float | None
    most: float | None


class Operation:
    """A route with its command: what it takes, made once."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.command: Command = command(route.words)
        self.path_names: list[str] = _PLACEHOLDER.findall(route.path)
        self.takes: dict[str, Taken] = {}
        renamed = {inner: outer for outer, inner in route.same_as.items()}
        for parameter in self.command.parameters.values():
            sent = route.sent.get(parameter.key)
            name = renamed.get(parameter.name, parameter.name)
            if sent is not None and name == "path":  # what is a path in a terminal is here the thing itself
                name = "files" if sent is Sent.FOLDER else "file"
            if sent is Sent.MADE or (sent is None and parameter.name in (HIDDEN - route.shown) | route.hidden):
                continue
            if sent is None and parameter.is_path:
                raise AssertionError(f"{route.path}: {parameter.name} is a file, and nothing says how it is sent")
            least = route.least.get(parameter.name, parameter.least)
            most = route.most.get(parameter.name, parameter.most)
            self.takes[name] = Taken(name, parameter, sent, name in self.path_names, least, most)
        missing = set(self.path_names) - set(self.takes)
        assert not missing, f"{route.path}: {missing} are no parameters of {route.words}"

    def read(self, values: Mapping[str, object]) -> dict[str, Any]:
        """The values by the names that the function has; what is unknown, missing or wrong is refused."""
        for name in values:
            if name not in self.takes:
                raise UsageError(
                    "unknown_parameter",
                    f"there is no parameter {name[:100]!r} here{near(name, list(self.takes))}",
                    next_step=f"it takes {', '.join(self.takes) or 'none'}",
                    parameter=name[:100],
                )
        read: dict[str, Any] = {}
        for name, taken in self.takes.items():
            if name not in values or values[name] is None:
                if taken.parameter.is_required or taken.is_in_path:
                    raise UsageError(
                        "missing_parameter",
                        f"{name} is missing",
                        next_step=taken.parameter.help or f"send {name}",
                        parameter=name,
                    )
                continue
            read[taken.parameter.key] = _value(taken, values[name])
        return read

    def call(self, desk: Desk, read: Mapping[str, Any]) -> Said:
        """The command's answer. What it is sent and what it makes lies in a folder that goes with the call."""
        with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:
            place = Path(folder)
            arguments = dict(read)
            for key, sent in self.route.sent.items():
                if sent is Sent.MADE:
                    arguments[key] = place / "made"
                elif key in arguments:
                    arguments[key] = _lay_down(place, sent, arguments[key])
            code = 0
            with at(desk):
                try:
                    self.command.done(**arguments)
                except PlimsollError as error:
                    raise _without(error, f"{folder}/") from None
                except Exception as error:
                    # What Typer raises has no public class in all of its versions: wrong words, and an end with a code.
                    if hasattr(error, "format_message"):
                        raise UsageError("bad_usage", error.format_message().rstrip(".")) from None
                    if type(error).__name__ != "Exit":
                        raise
                    code = int(getattr(error, "exit_code", 0))
            files = _pick_up(place / "made") if Sent.MADE in self.route.sent.values() else {}
            answer = None if desk.answer is None else _plain(desk.answer, f"{folder}/")
            return Said(
                answer,
                desk.text,
                desk.picture,
                files,
                code,
                desk.keeper.revision,
                desk.keeper.recorded_at,
                desk.shown_revision or desk.keeper.revision,
                _weight(answer, desk) if self.route.is_read else 0,
            )


def _weight(answer: Answer | None, desk: Desk) -> int:
    """The bytes of it: worked out here, in the lane, for whoever keeps it."""
    document = 0 if answer is None else len(msgspec.json.encode(answer.document))
    return document + len(desk.text or "") + len(desk.picture or b"")


def _without(error: PlimsollError, folder: str) -> PlimsollError:
    """The same error without our folder in it: to whoever sent a file it is called as they called it."""
    error.message, error.next_step = error.message.replace(folder, ""), error.next_step.replace(folder, "")
    error.args = (error.message,)
    error.fields = {
        key: value.replace(folder, "") if isinstance(value, str) else value for key, value in error.fields.items()
    }
    return error


def _plain(answer: Answer, folder: str) -> Answer:
    """An answer to somebody who sent files, or gets some, names no place of ours."""
    document = answer.document
    if isinstance(document, dict):
        document = {key: each.replace(folder, "") if isinstance(each, str) else each for key, each in document.items()}
    notes = [note.replace(folder, "") for note in answer.notes]
    return Answer(document, answer.tables, answer.heading.replace(folder, ""), notes)


def _value(taken: Taken, value: object) -> Any:
    sent, name = taken.sent, taken.name
    if sent is Sent.TEXT:
        return _text(name, value)
    if sent is Sent.TEXTS:
        items = value if isinstance(value, list) else [value]
        if not 1 <= len(items) <= FILES_MAX:
            raise _bad(name, f"{len(items)} files, and 1 to {FILES_MAX} are taken")
        return [_text(name, each) for each in items]
    if sent is Sent.FOLDER:
        return _folder(name, value)
    if sent is Sent.BYTES:
        try:
            return base64.b64decode(_text(name, value), validate=True)
        except (binascii.Error, ValueError):
            raise _bad(name, "is not base64") from None
    parameter = taken.parameter
    if taken.least != parameter.least or taken.most != parameter.most:
        parameter = msgspec.structs.replace(parameter, least=taken.least, most=taken.most)
    return convert(parameter, value)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _bad(name, "is not a text: send what the file says, as a text")
    if len(value) > FILE_CHARS_MAX:
        raise _bad(name, f"has {len(value):,} characters, and at most {FILE_CHARS_MAX:,} are taken")
    return value


def _folder(name: str, value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not value:
        raise _bad(name, "is not a folder: send an object with a text for each file's name")
    if len(value) > FILES_MAX:
        raise _bad(name, f"has {len(value)} files, and at most {FILES_MAX} are taken")
    for file in value:
        if not _FILE_NAME.fullmatch(file):
            raise _bad(name, f"{str(file)[:100]!r} is no file's name")
    return {file: _text(f"{name}.{file}", text) for file, text in value.items()}


def _bad(name: str, what: str) -> UsageError:
    return UsageError("bad_parameter", f"{name}: {what}", next_step="GET /api/v1/openapi.json", parameter=name)


def _lay_down(place: Path, sent: Sent, value: Any) -> Any:
    if sent is Sent.FOLDER:
        folder = place / "sent"
        folder.mkdir()
        for name, text in value.items():
            (folder / name).write_text(text, encoding="utf-8", newline="")
        return folder
    if sent is Sent.TEXTS:
        return [str(_one(place / f"sent-{number}.yaml", text)) for number, text in enumerate(value, 1)]
    if sent is Sent.BYTES:
        file = place / "sent.xlsx"
        if value[:2] != b"PK":
            file = place / "sent.csv"
        file.write_bytes(value)
        return file
    return _one(place / "sent.yaml", value)


def _one(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8", newline="", errors="surrogatepass")
    return file


def _pick_up(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        return {}
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    texts = {}
    for path in found:
        body = path.read_bytes()
        try:
            texts[str(path.relative_to(folder))] = body.decode()
        except UnicodeDecodeError:
            texts[f"{path.relative_to(folder)};base64"] = base64.b64encode(body).decode()
    return texts
