"""The body of a request is read up to a bound, whether or not its sender says how long it is."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, NamedTuple

import pytest
from starlette.requests import Request

from plimsoll.errors import UsageError
from plimsoll.server.bodies import TooBig, read_body

MOST = 10


class Sender:
    """Sends a body in pieces, and counts how many were taken."""

    def __init__(self, case: Case, *, is_cut: bool = False) -> None:
        self._pieces, self._is_cut, self.taken = case.pieces, is_cut, 0
        said = case.length.encode()
        headers = [(b"content-length", said)] if said else [(b"transfer-encoding", b"chunked")]
        self.request = Request({"type": "http", "method": "POST", "headers": headers}, self._receive)

    async def _receive(self) -> MutableMapping[str, Any]:
        if self.taken == len(self._pieces):
            assert self._is_cut, "more was asked for than there is"
            return {"type": "http.disconnect"}
        self.taken += 1
        is_more = self.taken < len(self._pieces) or self._is_cut
        return {"type": "http.request", "body": self._pieces[self.taken - 1], "more_body": is_more}

    def read(self) -> bytes:
        return asyncio.run(read_body(self.request, MOST))


class Case(NamedTuple):
    pieces: list[bytes]
    length: str = ""
    """What the sender says beforehand; nothing where it sends chunks."""


WHOLE: dict[str, tuple[Case, bytes]] = {
    "nothing": (Case([b""]), b""),
    "less than the bound": (Case([b"abc", b"def"]), b"abcdef"),
    "just the bound": (Case([b"abcde", b"fghij"]), b"abcdefghij"),
    "just the bound, and said so": (Case([b"abcdefghij"], "10"), b"abcdefghij"),
    "a length that is no number": (Case([b"abc"], "x"), b"abc"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_body_within_the_bound_is_read_whole(name: str) -> None:
    case, want = WHOLE[name]
    assert Sender(case).read() == want


REFUSED: dict[str, tuple[Case, str, int]] = {
    # what is sent, what is said to it, and how many pieces were read until then
    "one more than the bound, and said so": (Case([b"x" * 11], "11"), "has 11 bytes, and at most 10 are taken", 0),
    "a length of twenty digits": (Case([b"x"], "9" * 20), "at most 10 are taken", 0),
    "one more than the bound, and not said": (Case([b"x" * 11]), "has 11 bytes, and at most 10 are taken", 1),
    "pieces without end": (Case([b"xxxx"] * 1_000), "has 12 bytes, and at most 10 are taken", 3),
    "more than was said": (Case([b"xxxx", b"x" * 20], "4"), "has 24 bytes, and at most 10 are taken", 2),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_body_beyond_the_bound_is_not_read_on(name: str) -> None:
    case, says, want_taken = REFUSED[name]
    sender = Sender(case)
    with pytest.raises(TooBig, match=says):
        sender.read()
    assert sender.taken == want_taken


def test_a_body_that_breaks_off_is_none() -> None:
    with pytest.raises(UsageError, match="broke off after 4 bytes"):
        Sender(Case([b"xxxx"]), is_cut=True).read()
