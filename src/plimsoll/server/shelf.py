"""Answers that were given a moment ago, so that many who ask the same get it for the price of one.

An answer says which revision it rests on. It is given again while nothing has changed, and for a short moment after a
change; whoever must see a change of their own names its revision and gets nothing older. Those who ask for the same
while it is being made wait for it together.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable

import msgspec

from plimsoll.server.call import Said

BEHIND_SECONDS_MAX = 1.0
"""How old an answer may be that a later change could alter."""
SAME_SECONDS_MAX = 15.0
"""How old one may be that nothing has changed since: it speaks of ages and of what is due."""
KEPT_MAX = 512
BYTES_MAX = 256 << 20


class Entry:
    """An answer with its forms: made when first asked for, kept as bytes."""

    __slots__ = ("at", "bodies", "key", "said", "size")

    def __init__(self, key: Hashable, said: Said) -> None:
        self.key, self.said = key, said
        self.at = time.monotonic()
        self.bodies: dict[str, tuple[bytes, str]] = {}
        self.size = 0

    def body(self, form: str, make: Callable[[Said], bytes]) -> tuple[bytes, str]:
        """The bytes of one form and their tag."""
        found = self.bodies.get(form)
        if found is None:
            body = make(self.said)
            tag = f'"{hashlib.blake2b(body, digest_size=9).hexdigest()}"'
            found = self.bodies[form] = (body, tag)
            self.size += len(body)
        return found


class Counts(msgspec.Struct):
    """How often the shelf helped."""

    hits: int = 0
    misses: int = 0


class Shelf:
    """The answers that may be given again."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self._making: dict[Hashable, asyncio.Future[Entry]] = {}
        self.counts = Counts()

    def find(self, key: Hashable, *, head: int, at_least: int = 0) -> Entry | None:
        """An answer that is new enough; `head` is the newest revision that is known."""
        entry = self._entries.get(key)
        if entry is None or entry.said.revision < at_least:
            return None
        age = time.monotonic() - entry.at
        if age > (SAME_SECONDS_MAX if entry.said.revision >= head else BEHIND_SECONDS_MAX):
            return None
        self.counts.hits += 1
        return entry

    def find_exactly(self, key: Hashable, revision: int) -> Entry | None:
        """The answer at one revision, however old: for the next page of the same."""
        return self._entries.get((key, revision))

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Said]], *, head: int, at_least: int = 0) -> Entry:
        """The answer, made if need be; those who ask meanwhile share it."""
        if (entry := self.find(key, head=head, at_least=at_least)) is not None:
            return entry
        making = self._making.get(key)
        if making is not None and not at_least:
            return await asyncio.shield(making)
        self.counts.misses += 1
        future: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        self._making[key] = future
        try:
            entry = Entry(key, await make())
        except BaseException as error:
            if not future.done():
                future.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
            future.exception()  # seen, also where nobody waits for it
            raise
        else:
            future.set_result(entry)
            self._keep(key, entry)
            return entry
        finally:
            if self._making.get(key) is future:
                del self._making[key]

    def keep_exactly(self, key: Hashable, entry: Entry) -> None:
        """Keep an answer for its next pages."""
        self._keep((key, entry.said.revision), entry)

    def _keep(self, key: Hashable, entry: Entry) -> None:
        self._entries[key] = entry
        self._entries.move_to_end(key)
        while len(self._entries) > KEPT_MAX or sum(each.size for each in self._entries.values()) > BYTES_MAX:
            self._entries.popitem(last=False)
