"""The API: from a request to a command's answer and back, the same way for every line of the table.

Decides what a request means (values, form, page of a list, how new), asks the guard, calls the command in a lane, and
makes the response. Must never answer with something that its permission did not cover.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from plimsoll.access.decide import may_issue
from plimsoll.access.fold import Access
from plimsoll.access.model import Kind, Permission, owner_of
from plimsoll.commands.desk import Desk
from plimsoll.errors import NotFound, UsageError
from plimsoll.server.bodies import read_body, read_object
from plimsoll.server.call import Operation, Said
from plimsoll.server.changes import Watcher
from plimsoll.server.forms import TEXT_TYPE, WHOLE, Form, body_of, form_meant, number_meant, printed_as
from plimsoll.server.guard import Guard, Visitor, check_permission, check_verdict
from plimsoll.server.lanes import Lane
from plimsoll.server.once import PICKED_HEADERS, key_of, make_once
from plimsoll.server.paging import Page, next_cursor, page_meant
from plimsoll.server.paths import asked_path
from plimsoll.server.receipts import UNDER_WAY_SECONDS, UNDER_WAY_SECONDS_SLOW
from plimsoll.server.routes import API, ROUTES, Route
from plimsoll.server.shapes import SHAPES
from plimsoll.server.shelf import Entry, Shelf
from plimsoll.server.teams import teams_of
from plimsoll.state.keeper import Keeper

BODY_BYTES_MAX = 1 << 20
CHANGERS_MAX = 10_000
BODY_BYTES_MAX_FILES = 128 << 20
SOME_TEAM = "TEAM"
"""How a "no" calls the team while nobody has looked which it is: nobody is to ask for a role of the whole fleet."""
LARGE_BYTES = 100_000
"""What takes a good part of a second to read is read beside the others."""


class Meant(msgspec.Struct, frozen=True):
    """What every request can say besides its command's own parameters."""

    form: Form
    page: Page
    at_least: int
    table: str = ""
    output: str = "json"
    """As which `-o` the command is asked for it."""


class Api:
    """All operations, and what they need to be done."""

    def __init__(
        self, *, quick: Lane, slow: Lane, long: Lane, shelf: Shelf, guard: Guard, watcher: Watcher, dsn: str
    ) -> None:
        self.quick, self.slow, self.long = quick, slow, long
        self.shelf, self.guard, self._watcher, self.dsn = shelf, guard, watcher, dsn
        self._changed_by: OrderedDict[str, int] = OrderedDict()
        self.operations = [Operation(route) for route in ROUTES]
        self._exact: dict[tuple[str, str], Operation] = {}
        self._patterns: list[tuple[str, re.Pattern[str], Operation]] = []
        for operation in self.operations:
            path = API + operation.route.path
            if operation.path_names:
                pattern = re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path)))
                self._patterns.append((operation.route.method, pattern, operation))
            else:
                self._exact[operation.route.method, path] = operation
        self.by_words: dict[str, Operation] = {}
        for operation in sorted(self.operations, key=lambda each: (not each.route.is_read, bool(each.path_names))):
            self.by_words.setdefault(operation.command.words, operation)

    @property
    def head(self) -> int:
        """The newest revision that is known here."""
        return self._watcher.head

    def find(self, method: str, path: str) -> tuple[Operation, dict[str, str]] | None:
        """The operation at a path as it was sent; exact ones first. A name may hold a slash, sent as %2F."""
        method = "GET" if method == "HEAD" else method
        if (operation := self._exact.get((method, path))) is not None:
            return operation, {}
        for wanted, pattern, operation in self._patterns:
            if wanted == method and (match := pattern.fullmatch(path)) is not None:
                return operation, {name: unquote(text) for name, text in match.groupdict().items()}
        return None

    def methods_at(self, path: str) -> list[str]:
        """What a path can be asked with."""
        found = {method for method, exact in self._exact if exact == path}
        found |= {method for method, pattern, _ in self._patterns if pattern.fullmatch(path)}
        return sorted(found | ({"HEAD"} if "GET" in found else set()))

    async def respond(
        self, operation: Operation, values: Mapping[str, str], request: Request, visitor: Visitor
    ) -> Response:
        """The response to one request."""
        route = operation.route
        if not route.own or visitor.principal is None:
            check_permission(visitor.principal, _permissions(route), _anywhere(route, visitor), act=route.words)
        if route.is_read:
            meant, query = _query(request, operation)
            read = _cut(route, operation.read({**query, **values}), visitor)
            if route.cut and read.get("team") and not visitor.may(Permission.SEE) and not visitor.is_inside:
                # Where a team's work is tells where the team is.
                check_permission(visitor.principal, [Permission.SEE], [], act=f"{route.words} of a team")
            await self._check_own(route, read, visitor)
            entry = await self._entry(operation, read, meant, visitor)
            return _response(request, route, entry, meant)
        meant, query = _query(request, operation)
        if query:
            name = next(iter(query))
            raise UsageError("unknown_parameter", f"{name[:100]!r}: values are sent in the body", next_step="send JSON")
        limit = BODY_BYTES_MAX_FILES if route.has_files else BODY_BYTES_MAX
        body = await read_body(request, limit)
        read = operation.read({**read_object(request, body), **values})
        await self._check_own(route, read, visitor)
        return await self._change(operation, read, body, request, visitor, meant)

    async def _check_own(self, route: Route, read: Mapping[str, Any], visitor: Visitor) -> None:
        """What is somebody's own they may do themselves, signed in; a token is not enough for it."""
        if not route.own:
            return
        what, _, name = route.own.rpartition(":")
        text = str(read.get(name) or "")
        if what == "token":
            found = await self.quick.run(lambda keeper: keeper.state().of(Access).tokens.get(text))
            owner, kind = (found.owner, found.kind) if found is not None else ("", Kind.PERSON)
        else:
            owner, kind = owner_of(text) if text else ("", Kind.PERSON)
        check_verdict(visitor.principal, may_issue(visitor.principal, owner, kind, act=route.words))

    async def said(self, words: str, read: Mapping[str, Any], visitor: Visitor, *, at_least: int = 0) -> Said:
        """What a command that reads answers, for our own pages: by the same check and from the same shelf."""
        operation = self.by_words[words]
        assert operation.route.is_read, f"{words} changes something"
        route = operation.route
        if route.own:
            await self._check_own(route, read, visitor)
        else:
            check_permission(visitor.principal, _permissions(route), _anywhere(route, visitor), act=words)
        meant = Meant(Form.JSON, Page(), at_least)
        return (await self._entry(operation, _cut(route, read, visitor), meant, visitor)).said

    def _lane(self, route: Route, *, is_past: bool = False, is_large: bool = False) -> Lane:
        """Where it is done: nobody who asks for little waits for somebody who asks for much, or sends much."""
        return self.long if route.is_long else self.slow if route.is_slow or is_past or is_large else self.quick

    async def _entry(self, operation: Operation, read: dict[str, Any], meant: Meant, visitor: Visitor) -> Entry:
        # One's token may be for less than one's session: what is personal is for exactly who was let in.
        whose: Hashable = visitor if operation.route.is_personal else ""
        asked = (operation.command.words, meant.output, whose)
        key: Hashable = (*asked, msgspec.json.encode(sorted(read.items())))
        if meant.page.revision:
            if (entry := self.shelf.find_exactly(key, meant.page.revision)) is not None:
                return entry
            if operation.command.takes("as_of"):
                read = {**read, "as_of": str(meant.page.revision)}
                key = (*asked, msgspec.json.encode(sorted(read.items())))
        lane = self._lane(operation.route, is_past=bool(read.get("as_of")))

        def work(keeper: Keeper, begin: Callable[[], None]) -> Said:
            begin()
            keeper.state()
            return operation.call(self._desk(operation.route, keeper, visitor, meant.output), read)

        # Whoever changed something sees it, also without naming it.
        at_least = max(meant.at_least, self._changed_by.get(visitor.label, 0))
        entry = await self.shelf.get(
            key,
            lambda begin: lane.run(lambda keeper: work(keeper, begin)),
            head=self.head,
            at_least=at_least,
            is_sure=self._watcher.is_sure,
        )
        if entry.said.revision < meant.at_least:  # it was asked of the database right now
            raise NotFound(
                "no_such_revision",
                f"the ledger ends at revision {entry.said.revision}; there is no revision {meant.at_least} yet",
                next_step="GET /api/v1/audit/head",
                revision=meant.at_least,
                head=entry.said.revision,
            )
        if meant.page.cut(operation.route) != WHOLE:
            self.shelf.keep_exactly(key, entry)
        return entry

    async def _change(
        self, operation: Operation, read: dict[str, Any], body: bytes, request: Request, visitor: Visitor, meant: Meant
    ) -> Response:
        route = operation.route
        lane = self._lane(route, is_large=len(body) > LARGE_BYTES)
        seconds = UNDER_WAY_SECONDS if lane is self.quick else UNDER_WAY_SECONDS_SLOW
        key = key_of(request, visitor, body, seconds=seconds)

        def work(keeper: Keeper) -> Response:
            teams = teams_of(keeper.state(), route, read)
            if teams is None and not any(visitor.may(permission) for permission in _permissions(route)):
                # It is of no team that we know of: somebody who may act for one team only goes no further.
                what = route.team.partition(":")[0]
                raise NotFound(
                    "no_such_thing", f"there is no {what} of that name", next_step="look at the list of them"
                )
            if teams is not None and not route.own and not route.asks_itself:
                check_permission(visitor.principal, _permissions(route), teams, act=route.words)

            def make() -> Response:
                said = operation.call(self._desk(route, keeper, visitor, meant.output), read)
                return _said_response(said, meant.form)

            return make_once(keeper, key, make, is_secret=route.is_secret)

        response = await lane.run(work)
        revision = int(response.headers.get("plimsoll-revision", "0"))
        self._watcher.saw(revision)
        self._changed_by[visitor.label] = max(revision, self._changed_by.pop(visitor.label, 0))
        while len(self._changed_by) > CHANGERS_MAX:
            self._changed_by.popitem(last=False)
        if route.words.startswith("access"):
            self.guard.forget()
        return response

    def _desk(self, route: Route, keeper: Keeper, visitor: Visitor, output: str) -> Desk:
        def check_team(team: str) -> None:
            check_permission(visitor.principal, _permissions(route), [team], act=route.words)

        def check_program(program: str) -> None:
            act = f"having this server run {program[:80]!r}"
            check_permission(visitor.principal, [Permission.ADMINISTER], [], act=act)

        return Desk(
            keeper,
            visitor.label,
            self.dsn,
            principal=visitor.principal,
            mapping=self.guard.mapping,
            check_team=check_team,
            check_program=check_program,
            output=output,
        )


def _permissions(route: Route) -> list[Permission]:
    return [route.permission, *([route.also] if route.also is not None else [])]


def _cut(route: Route, read: Mapping[str, Any], visitor: Visitor) -> dict[str, Any]:
    """What a command is told: whoever sees planned work and nothing else gets no more of it than that."""
    is_cut = bool(route.cut) and not visitor.may(Permission.SEE)
    return {**read, **({route.cut: True} if is_cut else {})}


def _anywhere(route: Route, visitor: Visitor) -> list[str]:
    """Before the team is known: any team for which one has a role will do."""
    if not route.team or visitor.principal is None:
        return []
    teams = {binding.team for binding in visitor.principal.bindings}
    wanted = [team for team in sorted(teams) if any(visitor.may(each, team) for each in _permissions(route))]
    return wanted[:1] or [SOME_TEAM]


def _query(request: Request, operation: Operation) -> tuple[Meant, dict[str, Any]]:
    """What is said to us, and what is said to the command."""
    route = operation.route
    values: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        values.setdefault(name, []).append(value)
    if route.content:
        values.pop("token", None)  # the guard has read it
    accept = request.headers.get("accept", "")
    form = form_meant(_last(values, "format"), accept)
    printed = printed_as(form, accept)
    at_least = number_meant(_last(values, "at_least"), "at_least")
    table = _table(values, form) if route.is_read else ""
    page = page_meant(operation, values, is_terminal=bool(printed))
    return Meant(form, page, at_least, table, printed or _output(operation, form, table)), values


def _output(operation: Operation, form: Form, table: str) -> str:
    """As which `-o` a command is asked: what prints a text or a file is asked for that, whatever it could say besides.

    A table that is named is one of the usual answer; without a name it is what a terminal puts into a file.
    """
    if operation.route.words not in SHAPES:
        return "table"
    return "csv" if form is Form.CSV and not table else "json"


def _table(values: dict[str, Any], form: Form) -> str:
    """Which table of the answer is meant, where CSV is."""
    table = _last(values, "table") or ""
    if table and form is not Form.CSV:
        message = f"table: {table[:50]!r} says which table is given as CSV, and {form} is asked for"
        raise UsageError("bad_parameter", message, next_step="add format=csv", parameter="table")
    return table


def _last(values: dict[str, Any], name: str) -> str | None:
    found = values.pop(name, None)
    return None if found is None else str(found[-1])


def _response(request: Request, route: Route, entry: Entry, meant: Meant) -> Response:
    items, cut = route.items, meant.page.cut(route)
    name = f"{meant.form}:{cut.begin}:{cut.most}:{meant.table}"
    body, tag = entry.body(name, lambda said: body_of(said, meant.form, items=items, cut=cut, table=meant.table))
    said = entry.said
    headers = {**PICKED_HEADERS, "etag": tag, "plimsoll-revision": str(said.revision)}
    if said.exit_code:
        headers["plimsoll-exit-code"] = str(said.exit_code)
    if cursor := next_cursor(route, said, meant.form, meant.page, meant.table):
        url = request.url.include_query_params(cursor=cursor, limit=meant.page.limit)
        headers["link"] = f'<{asked_path(request)}?{url.query}>; rel="next"'
    if _is_known(tag, request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    headers["content-type"] = _content_type(said, meant.form, route)
    return Response(body, 200, headers)


def _is_known(tag: str, named: str) -> bool:
    """Whether `If-None-Match` names it. Which bytes it had on its way does not count: a proxy may have weakened it."""
    tags = {each.strip().removeprefix("W/") for each in named.split(",")}
    return tag in tags or "*" in tags


def _said_response(said: Said, form: Form) -> Response:
    headers = {
        **PICKED_HEADERS,
        "content-type": _content_type(said, form),
        "plimsoll-revision": str(said.revision),
    }
    if said.exit_code:
        headers["plimsoll-exit-code"] = str(said.exit_code)
    return Response(body_of(said, form), 200, headers)


def _content_type(said: Said, form: Form, route: Route | None = None) -> str:
    if form is not Form.ANSWER and said.text is not None and said.answer is None:
        return (route.content if route is not None else "") or TEXT_TYPE
    return form.content_type
