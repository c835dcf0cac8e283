"""Serves the pages: finds one by its path, lets its function gather, and renders it. Errors have a page, too."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from plimsoll import __version__
from plimsoll.access.model import Permission
from plimsoll.errors import PlimsollError
from plimsoll.incidents.courier import WEBHOOK_SETTING
from plimsoll.server.forms import number_meant
from plimsoll.server.guard import Visitor, check_permission
from plimsoll.server.pages.past import keep_past
from plimsoll.server.pages.registry import PAGES, Page
from plimsoll.server.pages.templates import environment
from plimsoll.server.paths import asked_path
from plimsoll.server.visit import Stamp, Visit

if TYPE_CHECKING:
    from plimsoll.server.house import House

HOME, HOME_OF_THE_PROVIDER = "/", "/campaigns"
"""Where people begin: whoever sees planned work and nothing else, at that."""
RETRIED = (429, 503)
"""Answers that may be another one a moment later."""
WRONG = (400, 404, 422)
"""Answers to what somebody asked for: another page of the same moment may well be there."""
Gather = Callable[[Visit], Awaitable[Mapping[str, Any]]]


class Pages:
    """All pages, ready to be asked for."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._environment = environment()
        self._pages = [
            (page, re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(page.path)))) for page in PAGES
        ]

    def find(self, path: str) -> tuple[Page, dict[str, str]] | None:
        for page, pattern in self._pages:
            if (match := pattern.fullmatch(path)) is not None:
                return page, {name: unquote(text) for name, text in match.groupdict().items()}
        return None

    async def respond(self, page: Page, values: dict[str, str], request: Request, visitor: Visitor) -> Response:
        """Gather, then render beside the loop: a long table must not hold up others."""
        if page.path == HOME and not visitor.may(Permission.SEE) and visitor.may(Permission.SEE_WAVES):
            query = f"?{request.url.query}" if request.url.query else ""
            return RedirectResponse(f"{HOME_OF_THE_PROVIDER}{query}", 303, {"cache-control": "no-store"})
        check_permission(visitor.principal, [page.permission], [], act=f"the page {page.path}")
        if page.is_now and request.query_params.get("as_of"):
            return RedirectResponse(str(request.url.remove_query_params("as_of").replace(scheme="", netloc="")), 303)
        visit = await self._visit(request, visitor, values)
        module, _, name = page.gather.partition(":")
        gather: Gather = getattr(importlib.import_module(f"plimsoll.server.pages.{module}"), name)
        context = await gather(visit)
        return _html(await asyncio.to_thread(self._render, page.template, visit, context))

    def _render(self, template: str, visit: Visit, context: Mapping[str, Any]) -> str:
        html = self._environment.get_template(template).render(visit=visit, **context)
        return keep_past(html, visit.as_of) if visit.as_of else html

    async def _visit(self, request: Request, visitor: Visitor, values: Mapping[str, str]) -> Visit:
        query = dict(request.query_params)
        at_least = number_meant(query.pop("at_least", None), "at_least")  # it is of this visit, and of no link
        head = await self._stamp(query.get("as_of", ""))
        return Visit(
            self._house.api, visitor, query=query, path=values, stamp=head, settings=self._told, at_least=at_least
        )

    @property
    def _told(self) -> dict[str, Any]:
        """What pages know of the settings."""
        settings = self._house.settings
        return {
            "is_demo": settings.is_demo,
            "version": __version__,
            "origin": settings.origin,
            "has_chat": bool(os.environ.get(WEBHOOK_SETTING)),
        }

    async def _stamp(self, as_of: str) -> Stamp:
        from plimsoll.commands.options import state_as_of

        if as_of:
            return await self._house.slow.run(lambda keeper: _stamp_of(state_as_of(keeper, as_of)))
        return await self._house.quick.run(lambda keeper: _stamp_of(keeper.state()))

    async def plain(
        self, template: str, request: Request, visitor: Visitor, *, stamp: Stamp | None = None, **context: Any
    ) -> Response:
        """A page that asks for nothing: sign-in, an error. With a stamp it is of the past that the URL asks for."""
        query = dict(request.query_params)
        if stamp is None:
            query.pop("as_of", None)
        visit = Visit(
            self._house.api,
            visitor,
            query=query,
            path={},
            stamp=stamp or Stamp(self._house.api.head, ""),
            settings=self._told,
        )
        status = context.pop("status", 200)
        return _html(self._render(template, visit, context), status)

    def to_sign_in(self, request: Request) -> Response:
        """Whoever is not known signs in, and comes back to where they wanted to go."""
        target = asked_path(request) + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/signin?next={quote(target, safe='')}", 303, {"cache-control": "no-store"})

    async def failed(
        self, request: Request, visitor: Visitor, error: PlimsollError, request_id: str, headers: Mapping[str, str]
    ) -> Response:
        fields = {
            "code": error.code,
            "message": error.message,
            "next_step": error.next_step,
            "fields": error.fields,
            "status": error.status,
            "retry": error.status in RETRIED,
            "request_id": request_id,
        }
        stamp = await self._past_of(request, error)
        response = await self.plain("error.html", request, visitor, error=fields, status=error.status, stamp=stamp)
        response.headers.update(headers)
        return response

    async def _past_of(self, request: Request, error: PlimsollError) -> Stamp | None:
        """The past in which somebody met an error; None where there is no such past: nobody is kept in it."""
        as_of = request.query_params.get("as_of", "")
        if not as_of:
            return None
        if error.status not in WRONG:
            return Stamp(self._house.api.head, "")
        try:
            return await self._stamp(as_of)
        except PlimsollError:
            return None


def _stamp_of(state: Any) -> Stamp:
    return Stamp(state.revision, state.recorded_at or "")


def _html(text: str, status: int = 200) -> Response:
    headers = {"content-type": "text/html; charset=utf-8", "cache-control": "private, no-cache", "vary": "cookie"}
    return Response(text, status, headers)
