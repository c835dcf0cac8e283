"""What changes, as it changes: one watcher of the ledger, and a stream of server-sent events for each who listens.

A message says up to which revision something happened, of which kinds and to which subjects; its id is the revision, so
that a listener who was away gets what it missed. Must never let a slow listener hold memory: whoever is behind gets
one message for all of it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import msgspec

from plimsoll.errors import PlimsollError
from plimsoll.ledger.model import Event
from plimsoll.ledger.store import Store
from plimsoll.server.guard import TooMany

LISTENERS_MAX = 2_000
QUIET_SECONDS = 0.25
"""Changes within this time are told together."""
HEARTBEAT_SECONDS = 15.0
CATCH_UP_MAX = 5_000
NAMED_MAX = 50
"""A message names so many kinds and subjects; beyond that it says that there are more."""
WAIT_SECONDS = 0.3
RETRY_MILLISECONDS = 2_000


class Change(msgspec.Struct, frozen=True):
    """What happened since the last message."""

    revision: int
    recorded_at: str
    kinds: list[str]
    subjects: list[str]
    is_cut: bool = False


def change_of(events: list[Event]) -> Change:
    """One message for a run of events."""
    kinds = dict.fromkeys(event.kind for event in events)
    subjects = dict.fromkeys(event.subject for event in events)
    is_cut = len(kinds) > NAMED_MAX or len(subjects) > NAMED_MAX
    last = events[-1]
    return Change(last.revision, last.recorded_at, list(kinds)[:NAMED_MAX], list(subjects)[:NAMED_MAX], is_cut)


class Watcher:
    """Follows the ledger in a thread, and tells everybody who listens."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: set[Listener] = set()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="watcher", daemon=True)
        self.head = 0
        self.heard_at = time.monotonic()
        """When the ledger last answered."""

    def start(self, head: int) -> None:
        self.head, self._loop = head, asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        for listener in list(self._listeners):
            listener.end()
        self._thread.join(WAIT_SECONDS * 3)

    @property
    def listening(self) -> int:
        return len(self._listeners)

    def saw(self, revision: int) -> None:
        """A change of our own is known at once."""
        self.head = max(self.head, revision)

    def _follow(self) -> None:
        store, seen = self._open(), self.head
        try:
            while not self._is_over.is_set():
                try:
                    if not store.wait_for_change(seen, seconds_max=WAIT_SECONDS):
                        self.heard_at = time.monotonic()
                        continue
                    time.sleep(QUIET_SECONDS)
                    events = list(store.events(after=seen))
                except PlimsollError:  # the database is away; readers are told by /readyz
                    self._is_over.wait(WAIT_SECONDS)
                    continue
                self.heard_at = time.monotonic()
                if events:
                    seen = events[-1].revision
                    self._tell(change_of(events))
        finally:
            store.close()

    def _tell(self, change: Change) -> None:
        assert self._loop is not None

        def tell() -> None:
            self.head = max(self.head, change.revision)
            message = _message(change)
            for listener in self._listeners:
                listener.hear(change, message)

        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(tell)

    async def listen(self, after: int | None, missed: list[Event]) -> AsyncIterator[bytes]:
        """The stream of one listener: what it missed, then what comes."""
        if len(self._listeners) >= LISTENERS_MAX:
            raise TooMany("too_many_listeners", f"{LISTENERS_MAX:,} listen already", next_step="poll with ETags")
        listener = Listener()
        self._listeners.add(listener)
        try:
            yield f"retry: {RETRY_MILLISECONDS}\nid: {after if after is not None else self.head}\n\n".encode()
            if missed:
                yield _message(change_of(missed))
            while (message := await listener.next()) is not None:
                yield message
        finally:
            self._listeners.discard(listener)


class Listener:
    """One who listens: at most one message waits for it."""

    def __init__(self) -> None:
        self._waiting: Change | None = None
        self._message = b""
        self._wake = asyncio.Event()
        self._is_over = False

    def hear(self, change: Change, message: bytes) -> None:
        if self._waiting is not None:
            kinds = list(dict.fromkeys([*self._waiting.kinds, *change.kinds]))
            subjects = list(dict.fromkeys([*self._waiting.subjects, *change.subjects]))
            is_cut = self._waiting.is_cut or change.is_cut or max(len(kinds), len(subjects)) > NAMED_MAX
            change = msgspec.structs.replace(
                change, kinds=kinds[:NAMED_MAX], subjects=subjects[:NAMED_MAX], is_cut=is_cut
            )
            message = _message(change)
        self._waiting, self._message = change, message
        self._wake.set()

    def end(self) -> None:
        self._is_over = True
        self._wake.set()

    async def next(self) -> bytes | None:
        """The next message, a sign of life when nothing happens, None at the end."""
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            return b": still here\n\n"
        if self._is_over:
            return None
        self._wake.clear()
        self._waiting, message = None, self._message
        return message


def _message(change: Change) -> bytes:
    return b"id: %d\ndata: %s\n\n" % (change.revision, msgspec.json.encode(change))
