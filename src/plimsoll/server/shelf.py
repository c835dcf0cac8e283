"""Answers that were given a moment ago, so that many who ask the same get it for the price of one.

An answer says which revision it rests on. It is given again while nothing has changed, and for a short moment after a
change: the longer it took to make, the longer, so that what is cheap is new and what is dear is not made all the time.
Whoever must see a change of their own names its revision and gets nothing older. Those who ask for the same while it is
being made for the first time wait for it together; while it is made anew they get the one before.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress

import msgspec

from plimsoll.errors import PlimsollError
from plimsoll.server.call import Said

BEHIND_TIMES = 50
"""How old an answer may be that a later change could alter, in times of what it took to make."""
BEHIND_SECONDS_MAX = 1.0
"""And how old at most."""
MEANWHILE_TIMES = 3
"""How much older one may be that is given while a newer one is being made: nobody waits for what others asked for."""
SAME_SECONDS_MAX = 15.0
"""How old one may be that nothing has changed since: it speaks of ages and of what is due."""
KEPT_MAX = 512
BYTES_MAX = 256 << 20
PAGES_SECONDS_MAX = 30.0
"""How long an answer is kept for its next pages after one was asked for; later it is made anew, as of then."""
PAGES_BYTES_MAX = 32 << 20
"""Of a list that changes all the time there is another answer for everybody who reads it page by page."""
FORMS_MAX = 64
"""So many forms and pages are kept of one answer."""
OBJECT_TIMES = 4
"""What an answer takes in memory, in times of its bytes as JSON: pages use it without ever making any form of it."""


class Entry:
    """An answer with its forms: made when first asked for, kept as bytes."""

    __slots__ = ("at", "behind_seconds", "bodies", "key", "said", "shelf", "size")

    def __init__(self, key: Hashable, said: Said, shelf: Shelf, *, at: float, took: float) -> None:
        self.key, self.said, self.shelf = key, said, shelf
        self.at = at
        """When it was begun to be made: what changed later may not be in it."""
        self.behind_seconds = min(BEHIND_SECONDS_MAX, BEHIND_TIMES * took)
        self.bodies: dict[str, tuple[bytes, str]] = {}
        self.size = OBJECT_TIMES * said.weight

    def body(self, form: str, make: Callable[[Said], bytes]) -> tuple[bytes, str]:
        """The bytes of one form and their tag."""
        found = self.bodies.get(form)
        if found is None:
            body = make(self.said)
            tag = f'"{hashlib.blake2b(body, digest_size=9).hexdigest()}"'
            self.size += len(body)
            found = self.bodies[form] = (body, tag)
            while len(self.bodies) > FORMS_MAX:
                gone, _ = self.bodies.pop(next(iter(self.bodies)))
                self.size -= len(gone)
            self.shelf.trim()
        return found


class Making(msgspec.Struct, eq=False):
    """An answer that is being made: by whom else it may be waited for."""

    future: asyncio.Future[Entry]
    at: float
    head: int
    """What was known to have happened when it was asked for: it is all in it."""
    is_begun: bool = False

    def begin(self) -> None:
        """Called by whoever makes it, right before the state is read: what changes from now on may not be in it."""
        self.at, self.is_begun = time.monotonic(), True

    def serves(self, *, head: int, at_least: int, is_sure: bool) -> bool:
        """Whether it will be new enough for one who comes now."""
        if not self.is_begun:  # it waits for its turn; all that has happened by now will be in it
            return True
        is_same = (is_sure and self.head >= head) or time.monotonic() - self.at <= BEHIND_SECONDS_MAX
        return is_same and self.head >= at_least


Make = Callable[[Callable[[], None]], Awaitable[Said]]
"""Makes an answer; calls what it is given right before it reads the state."""


class Counts(msgspec.Struct):
    """How often the shelf helped."""

    hits: int = 0
    misses: int = 0


class Shelf:
    """The answers that may be given again."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self._pages: OrderedDict[Hashable, tuple[float, Entry]] = OrderedDict()
        self._making: dict[Hashable, Making] = {}
        self._beside: dict[Hashable, asyncio.Task[None]] = {}
        self.counts = Counts()

    def find(self, key: Hashable, *, head: int, at_least: int = 0, is_sure: bool = True) -> Entry | None:
        """An answer that is new enough; `head` is the newest revision that is known, and surely there is no newer."""
        entry = self._entries.get(key)
        if entry is None or entry.said.revision < at_least:
            return None
        age = time.monotonic() - entry.at
        if age > (SAME_SECONDS_MAX if is_sure and entry.said.revision >= head else entry.behind_seconds):
            return None
        self.counts.hits += 1
        return entry

    def find_exactly(self, key: Hashable, revision: int) -> Entry | None:
        """The answer about one revision that was given page by page a moment ago: for the next page of the same."""
        found = self._pages.get((key, revision))
        if found is None:
            return None
        self.keep_exactly(key, found[1])
        return found[1]

    async def get(
        self,
        key: Hashable,
        make: Make,
        *,
        head: int,
        at_least: int = 0,
        is_sure: bool = True,
    ) -> Entry:
        """The answer, made if need be; those who ask meanwhile share it."""
        while True:
            if (entry := self.find(key, head=head, at_least=at_least, is_sure=is_sure)) is not None:
                return entry
            if (entry := self._meanwhile(key, make, head=head, at_least=at_least)) is not None:
                return entry
            making = self._making.get(key)
            if making is None or not making.serves(head=head, at_least=at_least, is_sure=is_sure):
                return await self._make(key, make, head)
            try:
                return await asyncio.shield(making.future)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not making.future.cancelled() or (task is not None and task.cancelling()):
                    raise
                # Whoever made it has gone, and we have not: it is ours to make.

    def _meanwhile(self, key: Hashable, make: Make, *, head: int, at_least: int) -> Entry | None:
        """An answer that is a little too old, given once more; a newer one is made beside it."""
        entry = self._entries.get(key)
        if entry is None or entry.said.revision < at_least:
            return None
        if time.monotonic() - entry.at > MEANWHILE_TIMES * entry.behind_seconds:
            return None
        if key not in self._making and key not in self._beside:
            task = self._beside[key] = asyncio.create_task(self._make_quietly(key, make, head))
            task.add_done_callback(lambda _task: self._beside.pop(key, None))
        self.counts.hits += 1
        return entry

    async def _make_quietly(self, key: Hashable, make: Make, head: int) -> None:
        with suppress(PlimsollError):  # whoever asks next is told
            await self._make(key, make, head)

    async def _make(self, key: Hashable, make: Make, head: int) -> Entry:
        self.counts.misses += 1
        asked_at = time.monotonic()
        making = Making(asyncio.get_running_loop().create_future(), asked_at, head)
        self._making[key] = making
        try:
            said = await make(making.begin)
            entry = Entry(key, said, self, at=making.at, took=time.monotonic() - asked_at)
        except Exception as error:
            making.future.set_exception(error)
            making.future.exception()  # seen, also where nobody waits for it
            raise
        except BaseException:
            making.future.cancel()
            raise
        else:
            making.future.set_result(entry)
            kept = self._entries.get(key)
            if kept is None or kept.said.revision <= entry.said.revision:
                self._keep(key, entry)
            return entry
        finally:
            if self._making.get(key) is making:
                del self._making[key]

    def keep_exactly(self, key: Hashable, entry: Entry) -> None:
        """Keep an answer for its next pages."""
        page = (key, entry.said.shown_revision)
        self._pages[page] = (time.monotonic(), entry)
        self._pages.move_to_end(page)
        self.trim()

    def _keep(self, key: Hashable, entry: Entry) -> None:
        self._entries[key] = entry
        self._entries.move_to_end(key)
        self.trim()

    def trim(self) -> None:
        """Let go of the oldest until the rest is within its bounds."""
        size = sum(each.size for each in self._entries.values())
        while len(self._entries) > KEPT_MAX or size > BYTES_MAX:
            size -= self._entries.popitem(last=False)[1].size
        size = sum(each.size for _, each in self._pages.values())
        too_old = time.monotonic() - PAGES_SECONDS_MAX
        while self._pages and (
            len(self._pages) > KEPT_MAX or size > PAGES_BYTES_MAX or next(iter(self._pages.values()))[0] < too_old
        ):
            size -= self._pages.popitem(last=False)[1][1].size
