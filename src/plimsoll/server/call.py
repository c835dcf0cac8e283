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
from datetime import date, datetime
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.answers import Answer
from plimsoll.commands.catalog import Command, Parameter, command, convert
from plimsoll.commands.desk import Desk, at
from plimsoll.errors import PlimsollError, UsageError
from plimsoll.fleet.folder import is_workbook
from plimsoll.server.routes import HIDDEN, Route, Sent
from plimsoll.words import near

FILES_MAX = 50
FILE_CHARS_MAX = 256 << 20
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
MADE_PLACE = "DIR"
"""How an answer calls the folder that files were made in: where it lies only whoever gets them knows."""
_SENT_PLACE = "sent"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Said(msgspec.Struct, frozen=True):
    """What a command said, in whatever form, and how it ended (0 done, 1 refused or not possible)."""

    answer: Answer | None
    text: str | None
    picture: bytes | None
    files: Mapping[str, str] | None
    """What it made, a text for each file's name; None where it makes none."""
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
            if sent is Sent.WORD:
                parameter = msgspec.structs.replace(parameter, help=f"{parameter.help} Of a file: its text.")
            if route.is_log and name == "limit":
                parameter = msgspec.structs.replace(
                    parameter, help="So many at once; the header Link has those before."
                )
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
                    arguments[key] = place / MADE_PLACE
                elif key in arguments and sent is not Sent.WORD:
                    arguments[key] = _lay_down(place, key, sent, arguments[key])
            code = 0
            with at(desk):
                try:
                    self.command.done(desk.output, **arguments)
                except PlimsollError as error:
                    raise _without(error, folder) from None
                except Exception as error:
                    # What Typer raises has no public class in all of its versions: wrong words, and an end with a code.
                    if hasattr(error, "format_message"):
                        raise UsageError("bad_usage", error.format_message().rstrip(".")) from None
                    if type(error).__name__ != "Exit":
                        raise
                    code = int(getattr(error, "exit_code", 0))
            files = _pick_up(place / MADE_PLACE) if Sent.MADE in self.route.sent.values() else None
            answer = desk.answer
            if answer is not None and self.route.has_files:
                answer = _plain(answer, folder)
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
    error.message, error.next_step = _outside(error.message, folder), _outside(error.next_step, folder)
    error.args = (error.message,)
    error.fields = _outside(error.fields, folder)
    return error


def _plain(answer: Answer, folder: str) -> Answer:
    """An answer to somebody who sent files, or gets some, names no place of ours."""
    tables = [
        msgspec.structs.replace(
            table,
            columns=_outside(table.columns, folder),
            rows=_outside(table.rows, folder),
            title=_outside(table.title, folder),
        )
        for table in answer.tables
    ]
    return Answer(
        _outside(answer.document, folder), tables, _outside(answer.heading, folder), _outside(answer.notes, folder)
    )


def _outside(value: Any, folder: str) -> Any:
    """The same with our folder taken off every path, however deep it stands."""
    if isinstance(value, str):
        return re.sub(rf"{re.escape(folder)}/({_SENT_PLACE}/\w+/)?", "", value) if folder in value else value
    if isinstance(value, dict):
        return {_outside(key, folder): _outside(each, folder) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_outside(each, folder) for each in value]
    if isinstance(value, msgspec.Struct):
        return _outside(msgspec.to_builtins(value, builtin_types=(date, datetime)), folder)
    return value


def _value(taken: Taken, value: object) -> Any:
    sent, name = taken.sent, taken.name
    if sent in (Sent.TEXT, Sent.BYTES):
        return _file(name, value, is_text=sent is Sent.TEXT)
    if sent is Sent.TEXTS and not isinstance(value, dict):
        items = value if isinstance(value, list) else [value]
        if not 1 <= len(items) <= FILES_MAX:
            raise _bad(name, f"{len(items)} files, and 1 to {FILES_MAX} are taken")
        return {f"{name}[{place}]": _coded(name, text) for place, text in enumerate(items)}
    if sent in (Sent.TEXTS, Sent.FOLDER):
        return _folder(name, value)
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


def _coded(name: str, value: object) -> bytes:
    return _text(name, value).encode(errors="surrogatepass")


def _decoded(name: str, value: object) -> bytes:
    try:
        return base64.b64decode(_text(name, value), validate=True)
    except (binascii.Error, ValueError):
        raise _bad(name, "is not base64") from None


def _file(name: str, value: object, *, is_text: bool) -> dict[str, bytes]:
    """One file, by the name that it was given, or by what the parameter is called."""
    read = _coded if is_text else _decoded
    if not isinstance(value, dict):
        body, nameless = read(name, value), f"the {name.replace('_', ' ')}"
        return {nameless if is_text else f"{nameless}.{'xlsx' if body[:2] == b'PK' else 'csv'}": body}
    if len(value) != 1:
        raise _bad(name, f"has {len(value)} files, and 1 is taken")
    return {_file_name(name, file): read(name, each) for file, each in value.items()}


def _folder(name: str, value: object) -> dict[str, bytes]:
    if not isinstance(value, dict) or not value:
        raise _bad(name, "is not a folder: send an object with a text for each file's name")
    if len(value) > FILES_MAX:
        raise _bad(name, f"has {len(value)} files, and at most {FILES_MAX} are taken")
    files = {_file_name(name, file): each for file, each in value.items()}
    return {
        file: (_decoded if is_workbook(Path(file)) else _coded)(f"{name}.{file}", each) for file, each in files.items()
    }


def _file_name(name: str, file: str) -> str:
    if not FILE_NAME.fullmatch(file):
        raise _bad(name, f"{file[:100]!r} is no file's name")
    return file


def _bad(name: str, what: str) -> UsageError:
    return UsageError("bad_parameter", f"{name}: {what}", next_step="GET /api/v1/openapi.json", parameter=name)


def _lay_down(place: Path, key: str, sent: Sent, files: Mapping[str, bytes]) -> Any:
    """The files in a place of their own, under their names: those stand in what is said of them."""
    folder = place / "the files" if sent is Sent.FOLDER else place / _SENT_PLACE / key
    folder.mkdir(parents=True)
    laid = [folder / name for name in files]
    for path, body in zip(laid, files.values(), strict=True):
        path.write_bytes(body)
    if sent is Sent.TEXTS:
        return [str(path) for path in laid]
    is_folder = sent is Sent.FOLDER and not (len(laid) == 1 and is_workbook(laid[0]))
    return folder if is_folder else laid[0]


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
