"""A visit of a page: who came, what the URL says, and how the page asks for what it shows.

A page has no other way to the state than the API's answers: same permission, same shelf, same documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from plimsoll.access.model import Permission
from plimsoll.commands.catalog import command, convert
from plimsoll.server.api import Api
from plimsoll.server.call import Operation, Said
from plimsoll.server.guard import Visitor
from plimsoll.server.routes import API

TOKEN = "TOKEN"  # noqa: S105
"""Stands in an address for the token that only its owner has."""
READING = frozenset({Permission.SEE, Permission.SEE_WAVES, Permission.NOBODY_NEEDED})
"""All that one may in the past: an act would be done now."""


class Who(msgspec.Struct, frozen=True):
    """The visitor, as a page names them."""

    name: str
    label: str
    roles: Sequence[str]
    teams: Sequence[str]
    """The teams that they have a role of."""


class Stamp(msgspec.Struct):
    """What the page rests on: all that was recorded until then is in it."""

    revision: int
    recorded_at: str


class Visit:
    """One visit of one page."""

    def __init__(
        self,
        api: Api,
        visitor: Visitor,
        *,
        query: Mapping[str, str],
        path: Mapping[str, str],
        stamp: Stamp,
        settings: Mapping[str, Any],
        at_least: int = 0,
    ) -> None:
        self._api, self.visitor, self._at_least = api, visitor, at_least
        self.query, self.path = dict(query), dict(path)
        self.stamp = stamp
        self.settings = settings
        principal = visitor.principal
        bindings = principal.bindings if principal is not None else ()
        self.principal = Who(
            principal.name if principal is not None else "",
            visitor.label,
            [str(binding) for binding in bindings],
            sorted({binding.team for binding in bindings if binding.team}),
        )

    @property
    def as_of(self) -> str:
        """The moment of the past that the URL asks for, as it was written; "" is now."""
        return self.query.get("as_of", "")

    async def ask(self, words: str, /, **values: object) -> Any:
        """The document that a command answers, as JSON has it. The page's `as_of` goes along where it is taken."""
        found = await self.ask_whole(words, **values)
        return msgspec.to_builtins(found.document)

    async def ask_whole(self, words: str, /, **values: object) -> Any:
        """The whole answer: document, tables, heading, notes."""
        parameters = {each.key: each for each in command(words).parameters.values()}
        unknown = set(values) - set(parameters)
        assert not unknown, f"{words} takes no {unknown}"
        if self.as_of and "as_of" in parameters:
            values.setdefault("as_of", self.as_of)
        read = {key: convert(parameters[key], value) for key, value in values.items() if value not in (None, "", [])}
        said = await self._said(words, read)
        assert said.answer is not None, f"{words} answers with a text"
        return said.answer

    async def ask_text(self, words: str, **values: object) -> str:
        """What a command prints as it is, such as an example file."""
        parameters = {each.key: each for each in command(words).parameters.values()}
        read = {key: convert(parameters[key], value) for key, value in values.items() if value not in (None, "", [])}
        return (await self._said(words, read)).text or ""

    async def _said(self, words: str, read: Mapping[str, Any]) -> Said:
        said = await self._api.said(words, read, self.visitor, at_least=self._at_least)
        if said.revision < self.stamp.revision and not self.as_of:
            self.stamp.revision, self.stamp.recorded_at = said.revision, said.recorded_at
        return said

    def may(self, permission: Permission | str, team: str = "") -> bool:
        """Whether the visitor may do something: a page shows no button that would be refused, and in the past none."""
        wanted = Permission(permission)
        return (not self.as_of or wanted in READING) and self.visitor.may(wanted, team)

    def calendar_address(self, about: Mapping[str, str] | None = None) -> str:
        """Where a calendar program asks for planned work, with the server in front; never of the past."""
        path = self._api.by_words["campaign feed"].route.path
        return f"{self.settings['origin']}{API}{path}?{urlencode({**(about or {}), 'token': TOKEN})}"

    def _operation(self, words: str, keys: set[str]) -> Operation:
        """The operation of these words that takes all that is said: a list, or one thing that its path names."""
        first = self._api.by_words[words]
        for each in [first, *(each for each in self._api.operations if each.command.words == words)]:
            if each.route.is_read and keys <= {taken.parameter.key for taken in each.takes.values()}:
                return each
        raise AssertionError(f"no address of {words} takes {keys}")

    def api_url(
        self,
        words: str,
        params: Mapping[str, object] | None = None,
        format: str = "",  # noqa: A002
        table: str = "",
    ) -> str:
        """The address of the same answer in the API; `table` names the one of its tables that CSV is of."""
        operation = self._operation(words, set(params or ()))
        names = {taken.parameter.key: name for name, taken in operation.takes.items()}
        values = {names.get(key, key): value for key, value in (params or {}).items() if value not in (None, "", [])}
        path = operation.route.path
        for name in operation.path_names:
            path = path.replace(f"{{{name}}}", quote(str(values.pop(name, "")), safe=""))
        if self.as_of and "as_of" in operation.takes:
            values.setdefault("as_of", self.as_of)
        if format:
            values["format"] = format
        if table:
            values["table"] = table
        return API + path + (f"?{urlencode(values, doseq=True)}" if values else "")
