"""The front door over HTTP: takes every request in, finds who answers it, and lets nothing out that it should not.

Decides which of API, pages, sign-in, files and health checks is meant. Every answer leaves with the same headers, a
request id, and a line in the log; every error leaves in the one shape, as JSON or as a page.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from plimsoll.errors import NotFound, PlimsollError, Unavailable
from plimsoll.server.guard import NOBODY, NotSignedIn, Visitor
from plimsoll.server.house import Handler, House
from plimsoll.server.logs import frames, plain_path
from plimsoll.server.paths import asked_path
from plimsoll.server.routes import API

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)

CHECKS = frozenset({"/healthz", "/readyz"})
"""They say how this process is, to whoever asks, by whatever name: a probe asks an address. Nobody is looked up for
them, and no rate holds them up."""


class MethodNotAllowed(PlimsollError):
    """There is something at the path, for another method."""

    status = 405


class Front:
    """The ASGI application."""

    def __init__(self, house: House) -> None:
        self.house = house
        self._headers = list(HEADERS)
        if house.settings.is_secure:
            self._headers.append((b"strict-transport-security", b"max-age=31536000"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.house.open()
                except PlimsollError as error:
                    self.house.failed = error
                    await send({"type": "lifespan.startup.failed", "message": error.message})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.house.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        request = Request(scope, receive)
        given = request.headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        told = _Told(send, request_id, self._headers)
        visitor, code = NOBODY, ""
        route, respond = self._find(request)
        try:
            if request.url.path not in CHECKS:
                self._check_host(request)
                visitor = await self._visitor(request)
                self.house.guard.check_rate(request, visitor)
                self.house.guard.check_origin(request, visitor)
            response = await respond(request, visitor)
        except PlimsollError as error:
            code = error.code
            response = await self._failed(request, visitor, error, request_id)
        except asyncio.CancelledError:  # the end of the server does not wait for it any longer
            code = "stopping"
            response = error_response(_stopping(), {"retry-after": "2", "connection": "close"})
        except Exception as error:
            code = "unexpected"
            self.house.log("mistake", request_id=request_id, error=type(error).__name__, where=frames(error))
            self.house.mistakes += 1
            failed = PlimsollError(
                "unexpected",
                "this is a mistake of ours, and it was written down",
                next_step=f"tell whoever runs this server the request id {request_id}",
                request_id=request_id,
            )
            response = await self._failed(request, visitor, failed, request_id)
        await response(scope, receive, told)
        seconds = time.perf_counter() - began
        self.house.tally.add(route or "other", told.status, seconds)
        if not route.startswith(("/static", "/healthz", "/readyz", "/metrics")) or told.status >= 400:
            self.house.log(
                "request",
                request_id=request_id,
                method=request.method,
                route=route or plain_path(request.url.path),
                status=told.status,
                ms=seconds * 1000,
                bytes=told.bytes,
                who=visitor.label,
                code=code,
            )

    async def _visitor(self, request: Request) -> Visitor:
        """Who asks. Our own files are for everybody, also while nobody can be looked up: an error page needs them."""
        try:
            return await self.house.guard.visitor(request)
        except Unavailable:
            if not request.url.path.startswith("/static/"):
                raise
            return NOBODY

    def _check_host(self, request: Request) -> None:
        """A name of somebody else's that leads here (DNS rebinding) is not ours."""
        host = request.headers.get("host", "").lower()
        if host in self.house.settings.hosts:
            return
        raise NotFound(
            "unknown_host", f"this server is not called {host[:100]!r}", next_step=f"ask {self.house.settings.origin}"
        )

    def _find(self, request: Request) -> tuple[str, Handler]:
        """Which route it is, and who answers it: known before anything can go wrong, so that refusals are counted for
        what they were refused at. The route of what we do not have is empty.
        """
        path, method = asked_path(request), request.method
        house = self.house
        if path.startswith(API + "/") or path == API:
            found = house.api.find(method, path)
            if found is not None:
                return API + found[0].route.path, partial(house.api.respond, *found)
        special = house.specials.get((method if method != "HEAD" else "GET", path))
        if special is not None:
            return path, special
        for prefix, handler in house.prefixes:
            if path.startswith(prefix):
                return prefix, handler
        if (page := house.pages.find(path)) is not None and method in ("GET", "HEAD"):
            return page[0].path, partial(house.pages.respond, *page)
        return "", self._nothing

    async def _nothing(self, request: Request, visitor: Visitor) -> Response:
        raise self._nothing_here(asked_path(request), request.method)

    def _nothing_here(self, path: str, method: str) -> PlimsollError:
        allowed = self.house.api.methods_at(path) or sorted(
            each for each, exact in self.house.specials if exact == path
        )
        if self.house.pages.find(path) is not None:
            allowed = ["GET", "HEAD"]
        if allowed:
            return MethodNotAllowed(
                "method_not_allowed",
                f"{path[:200]} takes {', '.join(allowed)}, not {method[:20]}",
                next_step="GET /api/v1/openapi.json",
                allow=allowed,
            )
        return NotFound("no_such_path", f"there is nothing at {path[:200]!r}", next_step="GET /api/v1/openapi.json")

    async def _failed(self, request: Request, visitor: Visitor, error: PlimsollError, request_id: str) -> Response:
        status = error.status
        headers = {}
        if "retry_after" in error.fields:
            headers["retry-after"] = str(error.fields["retry_after"])
        if status == 401:
            headers["www-authenticate"] = 'Bearer realm="plimsoll"'
        if status == 405:
            headers["allow"] = ", ".join(str(each) for each in error.fields.get("allow", ()))  # type: ignore[attr-defined]
        if isinstance(error, Unavailable):
            headers.setdefault("retry-after", "2")
        wants_page = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith(API)
        if wants_page:
            if isinstance(error, NotSignedIn) and request.method == "GET":
                return self.house.pages.to_sign_in(request)
            return await self.house.pages.failed(request, visitor, error, request_id, headers)
        return error_response(error, headers)


def _stopping() -> Unavailable:
    return Unavailable(
        "stopping",
        "the server was stopped before this was answered",
        next_step="send it again, with the same Idempotency-Key if it is a change",
    )


def error_response(error: PlimsollError, headers: dict[str, str] | None = None) -> Response:
    """The one shape of an error."""
    document = {
        "error": {
            "code": error.code,
            "message": error.message,
            "next_step": error.next_step,
            "fields": {key: _safe(value) for key, value in error.fields.items()},
        }
    }
    body = _json_of(document)
    made = {"content-type": "application/json", "cache-control": "no-store", **(headers or {})}
    return Response(body, error.status, made)


def _json_of(document: object) -> bytes:
    """What is wrong with a text may be that it is none (half a character, as YAML can write it): that is told, too."""
    try:
        return msgspec.json.encode(document, enc_hook=str)
    except UnicodeEncodeError:
        return json.dumps(document, default=str).encode()


def _safe(value: object) -> object:
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return value
    except (TypeError, ValueError):
        return str(value)
    return value


class _Told:
    """Passes a response on, with what every response has, and remembers what it was."""

    def __init__(self, send: Send, request_id: str, headers: list[tuple[bytes, bytes]]) -> None:
        self._send, self._more = send, [*headers, (b"x-request-id", request_id.encode())]
        self.status, self.bytes = 0, 0

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._more]
        else:
            self.bytes += len(message.get("body", b""))
        await self._send(message)
