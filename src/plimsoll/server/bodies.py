"""The body of a request: read up to a bound, and as the JSON object that it must be."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from plimsoll.errors import PlimsollError, UsageError


class TooBig(PlimsollError):
    """More than is taken at once."""

    status = 413


class WrongKind(PlimsollError):
    """Not a kind of body that is read."""

    status = 415


class TooSlow(PlimsollError):
    """A body that drips."""

    status = 408


SENDER_SECONDS_MAX = 60.0
"""For all that a sender has to say, however it drips."""


async def read_body(request: Request, bytes_max: int) -> bytes:
    """All of it, or nothing: what is too long is refused before it fills the memory."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:18]) > bytes_max:
        raise _too_big(int(declared[:18]), bytes_max)
    pieces, size = [], 0
    try:
        async with asyncio.timeout(SENDER_SECONDS_MAX):
            async for piece in request.stream():
                size += len(piece)
                if size > bytes_max:
                    raise _too_big(size, bytes_max)
                pieces.append(piece)
    except TimeoutError:
        message = f"the body did not come within {SENDER_SECONDS_MAX:g} s: {size:,} bytes of it"
        raise TooSlow("too_slow", message, next_step="send it in parts") from None
    except ClientDisconnect:
        raise UsageError("body_cut", f"the body broke off after {size:,} bytes", next_step="send it again") from None
    return b"".join(pieces)


def _too_big(size: int, most: int) -> TooBig:
    return TooBig(
        "body_too_big", f"the body has {size:,} bytes, and at most {most:,} are taken", next_step="send it in parts"
    )


def read_object(request: Request, body: bytes) -> dict[str, Any]:
    """A JSON object; nothing at all is an empty one."""
    if not body.strip():
        return {}
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise WrongKind(
            "not_json",
            f"the body is {kind[:50] or 'of no kind'!r}, and JSON is read",
            next_step="send Content-Type: application/json",
        )
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError("bad_json", f"the body is not JSON: {str(error)[:200]}", next_step="send an object") from None
    if not isinstance(document, dict):
        raise UsageError("bad_json", "the body is not an object", next_step='send {"name": value, …}')
    return document
