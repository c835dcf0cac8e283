"""A change that names an `Idempotency-Key` is made once, wherever it is sent: commands and signals go through here.

Decides whether a request is made now or was made already. Must never make one without its receipt put down first.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from plimsoll.errors import Unavailable
from plimsoll.server import receipts
from plimsoll.server.guard import Visitor
from plimsoll.state.keeper import Keeper

PICKED_HEADERS = {"cache-control": "private, no-cache", "vary": "accept, authorization, cookie"}
"""An answer is for whoever asked, as they asked."""
TOLD_ONCE = b'{"answer": "was told once, and is kept nowhere"}'


class Key(msgspec.Struct, frozen=True):
    """What a request is to be known by when it is sent again."""

    name: str
    digest: str
    seconds: float
    """How long it may be under way."""


def key_of(request: Request, visitor: Visitor, body: bytes, *, seconds: float, more: str = "") -> Key | None:
    """The key of a request; None where it has none. `more` is what it says beside its path and its body."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    receipts.check_key(key)
    digest = receipts.digest_of(request.method, request.url.path + more, body)
    return Key(receipts.identity(visitor.label, key), digest, seconds)


def make_once(keeper: Keeper, key: Key | None, make: Callable[[], Response], *, is_secret: bool = False) -> Response:
    """Make a change and its answer; or the first answer, where the key says that it was made. `is_secret`: the answer
    is told once and not kept."""
    if key is None:
        return make()
    store, clock = keeper.ledger.store, keeper.ledger.clock
    mine = receipts.begin(store, key.name, key.digest, clock(), seconds=key.seconds)
    if mine.status:
        return _again(mine)
    try:
        with keeper.ledger.beside(lambda revision: receipts.mark(store, key.name, mine, revision)):
            response = make()
    except Exception:
        with suppress(Unavailable):  # what went wrong first is what the caller must hear
            receipts.give_up(store, key.name, mine)
        raise
    with suppress(Unavailable):  # it is in the ledger, and its receipt with it: nobody does it again
        receipts.end(
            store,
            key.name,
            mine,
            status=response.status_code,
            content_type=response.headers["content-type"],
            body=TOLD_ONCE if is_secret else bytes(response.body),
            now=clock(),
            exit_code=int(response.headers.get("plimsoll-exit-code", "0")),
        )
    return response


def _again(first: receipts.Receipt) -> Response:
    headers = {"content-type": first.content_type, "idempotency-replayed": "true", **PICKED_HEADERS}
    if first.revision:
        headers["plimsoll-revision"] = str(first.revision)
    if first.exit_code:
        headers["plimsoll-exit-code"] = str(first.exit_code)
    return Response(first.body.encode(), first.status, headers)
