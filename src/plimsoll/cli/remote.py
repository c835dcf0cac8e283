"""The same commands at a server: `plimsoll --server URL …` sends what was typed, and shows what comes back.

Reads the files that are named here and writes those that are made here; the server sees texts, never paths. Must never
send a token to another host than the one that was named, nor unencrypted over a network.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlencode

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.audit import log_notes, print_lines
from plimsoll.commands.catalog import Command, command
from plimsoll.commands.options import watching_the_past
from plimsoll.commands.output import is_terminal, progress, show, show_text
from plimsoll.commands.pictures import put
from plimsoll.connect.web import Address, NoAnswer, Trouble, exchange, read_address, trust
from plimsoll.connect.web import Answer as HttpAnswer
from plimsoll.errors import NotFound, PlimsollError, Refused, Stale, Unavailable, UsageError
from plimsoll.fleet.folder import is_workbook, read_folder
from plimsoll.server.call import FILE_NAME, MADE_PLACE, Operation
from plimsoll.server.forms import ANSWER_TYPE, PICTURES
from plimsoll.server.routes import API, LOCAL, ROUTES, Route, Sent

TIMEOUT_SECONDS = 180.0
ANSWER_BYTES_MAX = 512 << 20
ATTEMPTS_MAX = 3
RETRY_SECONDS = 1.0
RETRY_AFTER_SECONDS_MAX = 10.0
"""However long a server wants us to wait before it is asked again."""
UNDER_WAY_SECONDS_MAX = 60.0
"""How long we wait for what we sent ourselves, and of which the first answer was lost."""
WATCH_SECONDS = 2.0
POLICY_SOURCE = "the policy"
"""How a server calls a policy that it was sent as a text."""
_KINDS: dict[int, type[PlimsollError]] = {400: UsageError, 404: NotFound, 409: Stale, 422: Refused, 503: Unavailable}


class Server:
    """A server that is talked to, and the token for it."""

    def __init__(self, url: str, token: str, ca_file: str | None = None) -> None:
        try:
            self.address, credentials = read_address(url)
            self._tls = trust(ca_file) if self.address.scheme == "https" else None
        except ValueError as error:
            raise UsageError("bad_server", f"--server: {error}", next_step="--server https://HOST") from None
        if credentials:
            raise UsageError("bad_server", "--server has a password in it", next_step="export PLIMSOLL_TOKEN=…")
        if token and not self.address.keeps_secrets:
            raise UsageError(
                "bad_server",
                f"the token would go to {self.address} unencrypted: whoever is on the way could act with it",
                next_step="--server https://HOST; or unset PLIMSOLL_TOKEN, to ask without it",
            )
        self._token = token

    def ask(self, method: str, path: str, body: bytes, said: Mapping[str, str]) -> HttpAnswer:
        """What the server says. A change is known by its key: it is sent again until there is an answer for good."""
        headers = {"User-Agent": "plimsoll", **said}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if method == "POST":
            headers |= {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
        address = msgspec.structs.replace(self.address, path=self.address.path + path)
        answer = self._exchange(method, address, body, headers)
        attempts, until = 1, time.monotonic() + UNDER_WAY_SECONDS_MAX
        while (wait := _wait_before(answer)) is not None:
            is_under_way = answer.status == 409
            if time.monotonic() + wait > until or (attempts == ATTEMPTS_MAX and not is_under_way):
                break
            attempts += not is_under_way
            time.sleep(wait)
            answer = self._exchange(method, address, body, headers)
        return answer

    def _exchange(self, method: str, address: Address, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        """One exchange, begun again where there was no answer."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return exchange(
                    method,
                    address,
                    body=body,
                    headers=headers,
                    timeout_seconds=TIMEOUT_SECONDS,
                    body_bytes_max=ANSWER_BYTES_MAX,
                    tls=self._tls,
                )
            except NoAnswer as failed:
                if attempt == ATTEMPTS_MAX or failed.trouble is Trouble.UNTRUSTED:
                    raise Unavailable(
                        "server_unavailable",
                        f"{self.address} did not answer: {failed.detail}",
                        next_step="look at the URL and the network; curl URL/healthz",
                        attempts=attempt,
                    ) from None
                time.sleep(RETRY_SECONDS * attempt)
        raise AssertionError("unreachable")


def _wait_before(answer: HttpAnswer) -> float | None:
    """How long to wait before the same is sent again; None where this answer is for good."""
    text = answer.headers.get("retry-after", "")
    if answer.status not in (409, 429, 503) or not (text.isascii() and text.isdigit()):
        return None
    return min(max(float(text), RETRY_SECONDS), RETRY_AFTER_SECONDS_MAX)


class Asked(NamedTuple):
    """A command as it is sent, and what is done here with what comes back."""

    route: Route
    output: str
    path: str
    values: dict[str, Any]
    made: Path | None
    """Where files that are made go."""
    out: Path | None
    """Where a text goes."""
    names: dict[str, str]
    """Patterns of what the server says, and how we call that: a file whose text it was sent, a folder that it made."""
    policy: str = ""
    """The file of a policy, where its text is sent."""


class Reply(NamedTuple):
    """The whole answer, its tag, and where its next page begins."""

    answer: Any
    tag: str
    cursor: str


def call(server: Server, words: str, values: Mapping[str, Any]) -> None:
    """What a command would do at a database, done at the server."""
    if words in LOCAL:
        raise Refused("only_here", f"`plimsoll {words}` is done at a database: {LOCAL[words]}", next_step="--db URL")
    if values.get("watch") and values.get("as_of"):
        raise watching_the_past()
    known = command(words)
    given = {key: value for key, value in values.items() if key in _keys(known)}
    asked = _request(Operation(_route(words, given)), known, given, _output(values))
    if asked.route.is_log:
        limit = int(asked.values.pop("limit", known.parameters["limit"].default))
        code = _log(server, asked, limit, is_watched=bool(values.get("watch")))
    else:
        code = _answer(server, asked, is_watched=bool(values.get("watch")))
    if code:
        raise typer.Exit(code)


def _keys(known: Command) -> set[str]:
    return {each.key for each in known.parameters.values()}


def _output(values: Mapping[str, Any]) -> str:
    form = values.get("output")
    word = "table" if form is None else str(getattr(form, "value", form))
    if word in PICTURES:
        raise Refused("only_here", "pictures are made at a database", next_step="--db URL, or another -o")
    return word


def _answer(server: Server, asked: Asked, *, is_watched: bool) -> int:
    """Show what comes back, and again whenever it is another; its exit code."""
    tag, code = "", 0
    while True:
        with progress("asking the server"):
            reply = _ask(server, asked, tag=tag)
        if reply is not None:
            if tag and is_terminal(sys.stdout):
                typer.echo("\033[2J\033[H", nl=False)
            tag, code = reply.tag, int(reply.answer["exit_code"])
            _show(reply.answer, asked)
        if not is_watched:
            return code
        time.sleep(WATCH_SECONDS)


# The log.


def _log(server: Server, asked: Asked, limit: int, *, is_watched: bool) -> int:
    """The newest of the log; then, if it is watched, what comes after it, each event once."""
    with progress("asking the server"):
        answer = _pages(server, asked, limit)
    if not is_watched:
        _show(answer, asked)
        return int(answer["exit_code"])
    output, after, is_first = Output(asked.output), int(asked.values.get("after", 0)), True
    while True:
        print_lines(_read_answer(answer), output, is_first=is_first)
        after, is_first = max(after, int(answer["revision"])), False
        time.sleep(WATCH_SECONDS)
        answer = _pages(server, asked._replace(values={**asked.values, "after": after}), 0)


def _pages(server: Server, asked: Asked, limit: int) -> Any:
    """So much of a log, 0 for all: a server gives it by the page, the newest first."""
    most, items = int(asked.route.most["limit"]), asked.route.items
    pages: list[Any] = []
    count, cursor = 0, ""
    while True:
        page = {"limit": min(most, limit - count) if limit else most, **({"cursor": cursor} if cursor else {})}
        reply = _ask(server, asked._replace(values={**asked.values, **page}))
        assert reply is not None, "no tag was sent"
        pages.insert(0, reply.answer)
        count, cursor = count + len(reply.answer["document"][items]), reply.cursor
        if not cursor or count == limit:
            break
    (table,) = pages[-1]["tables"]
    rows = [row for each in pages for row in each["tables"][0]["rows"]]
    events = [event for each in pages for event in each["document"][items]]
    notes = log_notes(count, limit)
    return {**pages[-1], "document": {items: events}, "tables": [{**table, "rows": rows}], "notes": notes}


# What is sent.


def _route(words: str, given: Mapping[str, Any]) -> Route:
    """The line of the table: of two, the one that takes what was given."""
    lines = [route for route in ROUTES if route.words == words]
    assert lines, f"{words} is in no line of the table"

    def fits(route: Route) -> tuple[bool, bool, int]:
        operation = Operation(route)
        takes = {taken.parameter.key: taken for taken in operation.takes.values()}
        needed = {taken.parameter.key for taken in operation.takes.values() if taken.is_in_path}
        said = {key for key, value in given.items() if not _is_unsaid(value) and key not in route.sent}
        lists = any(isinstance(given.get(key), list | tuple) and len(given[key]) != 1 for key in needed)
        return (
            said <= set(takes) | {"errands", "every"} and needed <= said and not lists,
            route.is_read,
            len(needed),
        )

    return max(lines, key=fits)


def _is_unsaid(value: Any) -> bool:
    """Nothing was typed there; Typer says so in one way or another."""
    return value is None or value is False or (isinstance(value, str | list | tuple) and not value)


def _request(operation: Operation, known: Command, given: Mapping[str, Any], output: str) -> Asked:
    """The path and the values, and where what comes back goes."""
    takes = {taken.parameter.key: taken for taken in operation.takes.values()}
    defaults = {each.key: each.default for each in known.parameters.values()}
    asked = Asked(operation.route, output, operation.route.path, {}, None, None, {})
    for key, value in given.items():
        if operation.route.sent.get(key) is Sent.MADE:
            if is_workbook(Path(value)):
                raise Refused(
                    "only_here", "a workbook is written at a database", next_step="--db URL, or name a folder"
                )
            asked = asked._replace(made=Path(value))
            asked.names[rf"\b{MADE_PLACE}\b(?=/|:|$)"] = str(value)
        elif key == "out":
            asked = asked._replace(out=value)
        elif key not in takes:
            if value != defaults.get(key) and not _is_unsaid(value):
                raise Refused("only_here", f"--{key.replace('_', '-')} is only for a database", next_step="--db URL")
        elif takes[key].is_in_path:
            one = value[0] if isinstance(value, list | tuple) and value else value
            text = quote(str(getattr(one, "value", one)), safe="")
            asked = asked._replace(path=asked.path.replace(f"{{{takes[key].name}}}", text))
        elif value != defaults[key] and (value is False or not _is_unsaid(value)):
            if takes[key].sent is Sent.WORD and (value.endswith((".yaml", ".yml")) or os.path.isfile(value)):
                asked = asked._replace(policy=value)
                value = _text(value).rstrip("\n") + "\n"  # by the end of a line it is known from a word
                asked.names[re.escape(shlex.quote(value))] = shlex.quote(asked.policy)
            asked.values[takes[key].name] = _value(takes[key].sent, value)
    return asked


def _value(sent: Sent | None, value: Any) -> Any:
    if sent is Sent.TEXTS:
        texts = [_text(each) for each in value]
        return _named(value, texts) or texts
    if sent in (Sent.TEXT, Sent.BYTES):
        one = _text(value) if sent is Sent.TEXT else base64.b64encode(_read(value)).decode()
        return _named([value], [one]) or one
    if sent is Sent.FOLDER:
        return _folder(Path(value))
    return msgspec.to_builtins(value, enc_hook=str)


def _named(paths: Sequence[Any], contents: Sequence[str]) -> dict[str, str]:
    """What files hold, by their names; nothing where one has no name that can be sent."""
    names = [Path(each).name for each in paths]
    is_plain = len(set(names)) == len(names) and all(FILE_NAME.fullmatch(name) for name in names)
    return dict(zip(names, contents, strict=True)) if is_plain else {}


def _folder(path: Path) -> dict[str, str]:
    """The files of a fleet folder, or the one workbook."""
    if not path.is_dir():
        read_folder(path, ())  # what is neither is refused as at a database
        return {path.name: base64.b64encode(_read(path)).decode()}
    files = sorted(each for each in path.glob("*") if each.is_file() and each.suffix in (".csv", ".yaml"))
    if not files:
        raise UsageError("unreadable", f"{path}: no file of a fleet is in this folder", next_step="name a fleet folder")
    return {each.name: _text(each) for each in files}


def _text(path: Any) -> str:
    body = _read(path)
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        message = f"{path}, line {line}: not UTF-8 text; nothing was sent"
        raise UsageError("unreadable", message, next_step="save it as UTF-8") from None


def _read(path: Any) -> bytes:
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError("unreadable", f"{path}: {error.strerror}", next_step="name a file that can be read") from None


# What comes back.


def _ask(server: Server, asked: Asked, *, tag: str = "") -> Reply | None:
    """What the server answers; None where nothing changed since the answer of that tag."""
    headers = {"Accept": f"{ANSWER_TYPE}; output={asked.output}"}
    if tag:
        headers["If-None-Match"] = tag
    if asked.route.is_read:
        query = urlencode(_for_query(asked.values), doseq=True)
        answer = server.ask("GET", f"{API}{asked.path}{'?' + query if query else ''}", b"", headers)
    else:
        answer = server.ask("POST", API + asked.path, msgspec.json.encode(asked.values), headers)
    if answer.status == 304:
        return None
    if answer.status != 200:
        raise _error(server, answer, asked)
    query = answer.headers.get("link", "").partition(">")[0].partition("?")[2]
    cursor = parse_qs(query).get("cursor", [""])[-1]
    return Reply(_whole(server, answer), answer.headers.get("etag", ""), cursor)


def _for_query(values: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value).lower() if isinstance(value, bool) else value for key, value in values.items()}


def _error(server: Server, answer: HttpAnswer, asked: Asked) -> PlimsollError:
    try:
        error = msgspec.json.decode(answer.body)["error"]
        kind = _KINDS.get(answer.status, Refused)
        is_policy = asked.policy and error["fields"].get("source") == POLICY_SOURCE
        error = _called_here(error, {**asked.names, **({POLICY_SOURCE: asked.policy} if is_policy else {})})
        step = error["next_step"]
        if error["code"] == "under_way":  # typed again it is another request
            step = "plimsoll audit log   # shows whether it was done; type it again only if it was not"
        if answer.status == 401:
            step = "export PLIMSOLL_TOKEN=…   # plimsoll access token issue makes one"
        return kind(error["code"], error["message"], next_step=step, **error["fields"])
    except (msgspec.DecodeError, LookupError, TypeError):
        return _not_plimsoll(server, answer)


def _whole(server: Server, answer: HttpAnswer) -> Any:
    """The whole answer. One that was lost on its way and kept nowhere is not told again: it only says so."""
    try:
        found = msgspec.json.decode(answer.body)
        if "document" in found:
            return found
        message = f"it was done when it was sent first, and what it said {found['answer']}"
    except (msgspec.DecodeError, LookupError, TypeError):
        raise _not_plimsoll(server, answer) from None
    raise Stale("answer_lost", message, next_step="plimsoll audit log   # shows what was done")


def _not_plimsoll(server: Server, answer: HttpAnswer) -> Unavailable:
    return Unavailable(
        "not_plimsoll",
        f"{server.address} answered HTTP {answer.status}, and not as Plimsoll does",
        next_step="look at the URL: curl URL/healthz",
    )


def _called_here(value: Any, names: Mapping[str, str]) -> Any:
    """The same with our names for what the server calls otherwise."""
    if isinstance(value, str):
        for pattern, ours in names.items():
            value = re.sub(pattern, ours.replace("\\", r"\\"), value)
        return value
    if isinstance(value, dict):
        return {key: _called_here(each, names) for key, each in value.items()}
    return [_called_here(each, names) for each in value] if isinstance(value, list) else value


def _read_answer(answer: Any) -> Answer:
    tables = [
        Table(each["columns"], each["rows"], each["title"], each.get("name", ""), each.get("shown"))
        for each in answer["tables"]
    ]
    return Answer(answer["document"], tables, answer["heading"], answer["notes"])


def _show(answer: Any, asked: Asked) -> None:
    if asked.made is not None and not asked.values.get("dry_run"):
        _write(asked.made, answer.get("files") or {})
    if answer["text"] is not None and not answer["tables"] and answer["document"] is None:
        if asked.out is not None:
            put(answer["text"].encode(), asked.out, next_step="name another file")
        else:
            show_text(answer["text"])
        return
    show(_read_answer(_called_here(answer, asked.names) if asked.names else answer), Output(asked.output))


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        plain = name.removesuffix(";base64")
        path = folder / plain
        if folder.resolve() not in path.resolve().parents:
            raise Refused("bad_file", f"the server names a file outside: {plain[:100]!r}", next_step="ask its operator")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(text) if plain != name else text.encode())
        except OSError as error:
            raise UsageError("bad_file", f"{path}: {error.strerror}", next_step="name another folder") from None


def server_of(url: str) -> Server:
    """The server that is meant, with the token of the environment."""
    return Server(url, os.environ.get("PLIMSOLL_TOKEN", ""), os.environ.get("PLIMSOLL_CA_FILE") or None)
