"""The same commands at a server: `plimsoll --server URL …` sends what was typed, and shows what comes back.

Reads the files that are named here and writes those that are made here; the server sees texts, never paths. Must never
send a token to another host than the one that was named, nor unencrypted over a network.
"""

from __future__ import annotations

import base64
import os
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.catalog import Command, command
from plimsoll.commands.output import is_terminal, progress, show, show_text
from plimsoll.connect.web import Address, NoAnswer, Trouble, exchange, read_address, trust
from plimsoll.connect.web import Answer as HttpAnswer
from plimsoll.errors import NotFound, PlimsollError, Refused, Stale, Unavailable, UsageError
from plimsoll.server.call import Operation
from plimsoll.server.forms import ANSWER_TYPE
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


def call(server: Server, words: str, values: Mapping[str, Any]) -> None:
    """What a command would do at a database, done at the server."""
    if words in LOCAL:
        raise Refused("only_here", f"`plimsoll {words}` is done at a database: {LOCAL[words]}", next_step="--db URL")
    known = command(words)
    given = {key: value for key, value in values.items() if key in _keys(known)}
    output = Output(str(getattr(values.get("output"), "value", "table"))) if _is_plain(values) else None
    if output is None:
        raise Refused("only_here", "pictures and reports are made at a database", next_step="--db URL, or -o json")
    route = _route(words, given)
    sent, made = _request(Operation(route), known, given)
    tag, is_first = "", True
    while True:
        with progress("asking the server"):
            answer = _ask(server, route, *sent, tag=tag if not is_first else "")
        if answer is not None:
            tag = answer[1]
            if not is_first and is_terminal(sys.stdout):
                typer.echo("\033[2J\033[H", nl=False)
            _show(answer[0], output, made)
        if not values.get("watch"):
            break
        is_first = False
        time.sleep(WATCH_SECONDS)
    code = answer[0]["exit_code"] if answer is not None else 0
    if code:
        raise typer.Exit(code)


def _keys(known: Command) -> set[str]:
    return {each.key for each in known.parameters.values()}


def _is_plain(values: Mapping[str, Any]) -> bool:
    form = values.get("output")
    return form is None or str(getattr(form, "value", form)) in [each.value for each in Output]


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


def _request(
    operation: Operation, known: Command, given: Mapping[str, Any]
) -> tuple[tuple[str, dict[str, Any]], Path | None]:
    """The path and the values, and where files that come back go."""
    route = operation.route
    names = {taken.parameter.key: taken for taken in operation.takes.values()}
    defaults = {each.key: each.default for each in known.parameters.values()}
    path, values, made = route.path, {}, None
    for key, value in given.items():
        if route.sent.get(key) is Sent.MADE:
            made = Path(value)
            continue
        if key not in names:
            if value != defaults.get(key) and not _is_unsaid(value):
                raise Refused("only_here", f"--{key.replace('_', '-')} is only for a database", next_step="--db URL")
            continue
        taken = names[key]
        if taken.is_in_path:
            one = value[0] if isinstance(value, list | tuple) and value else value
            path = path.replace(f"{{{taken.name}}}", quote(str(getattr(one, "value", one)), safe=""))
        elif value != defaults[key] and (value is False or not _is_unsaid(value)):
            values[taken.name] = _value(taken.sent, value)
    return (path, values), made


def _value(sent: Sent | None, value: Any) -> Any:
    if sent is Sent.TEXT:
        return _read(value).decode(errors="replace")
    if sent is Sent.TEXTS:
        return [_read(each).decode(errors="replace") for each in value]
    if sent is Sent.BYTES:
        return base64.b64encode(_read(value)).decode()
    if sent is Sent.FOLDER:
        files = sorted(path for path in Path(value).glob("*") if path.is_file() and path.suffix in (".csv", ".yaml"))
        if not files:
            raise UsageError("unreadable", f"{value}: there is no folder with files", next_step="name a fleet folder")
        return {path.name: _read(path).decode(errors="replace") for path in files}
    return msgspec.to_builtins(value, enc_hook=str)


def _read(path: Any) -> bytes:
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError("unreadable", f"{path}: {error.strerror}", next_step="name a file that can be read") from None


def _ask(server: Server, route: Route, path: str, values: dict[str, Any], *, tag: str) -> tuple[Any, str] | None:
    """The whole answer and its tag; None where nothing changed."""
    headers = {"Accept": ANSWER_TYPE}
    if tag:
        headers["If-None-Match"] = tag
    if route.is_read:
        query = urlencode(_for_query(values), doseq=True)
        answer = server.ask("GET", f"{API}{path}{'?' + query if query else ''}", b"", headers)
    else:
        answer = server.ask("POST", API + path, msgspec.json.encode(values), headers)
    if answer.status == 304:
        return None
    if answer.status != 200:
        raise _error(server, answer)
    return msgspec.json.decode(answer.body), answer.headers.get("etag", "")


def _for_query(values: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value).lower() if isinstance(value, bool) else value for key, value in values.items()}


def _error(server: Server, answer: HttpAnswer) -> PlimsollError:
    try:
        error = msgspec.json.decode(answer.body)["error"]
        kind = _KINDS.get(answer.status, Refused)
        step = error["next_step"]
        if error["code"] == "under_way":  # typed again it is another request
            step = "plimsoll audit log   # shows whether it was done; type it again only if it was not"
        if answer.status == 401:
            step = "export PLIMSOLL_TOKEN=…   # plimsoll access token issue makes one"
        return kind(error["code"], error["message"], next_step=step, **error["fields"])
    except (msgspec.DecodeError, LookupError, TypeError):
        return Unavailable(
            "not_plimsoll",
            f"{server.address} answered HTTP {answer.status}, and not as Plimsoll does",
            next_step="look at the URL: curl URL/healthz",
        )


def _show(answer: Any, output: Output, made: Path | None) -> None:
    document = answer["document"]
    if made is not None and isinstance(document, dict):
        _write(made, document.pop("files", {}))
    if answer["text"] is not None and not answer["tables"] and document is None:
        show_text(answer["text"])
        return
    tables = [
        Table(each["columns"], each["rows"], each["title"], each.get("name", ""), each.get("shown"))
        for each in answer["tables"]
    ]
    show(Answer(document, tables, answer["heading"], answer["notes"]), output)


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
