"""The path of a request as it was sent: a name may hold a slash, sent as %2F, and then it is no path of its own."""

from __future__ import annotations

from starlette.requests import Request


def asked_path(request: Request) -> str:
    """What is encoded in it stays so until its parts are known."""
    raw: bytes | None = request.scope.get("raw_path")
    return request.url.path if raw is None else raw.partition(b"?")[0].decode("latin-1")
