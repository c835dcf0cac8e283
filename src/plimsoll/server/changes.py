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
from itertools import islice

import msgspec

from plimsoll.errors import PlimsollError, Unavailable
from plimsoll.ledger.ledger import another_past
from plimsoll.ledger.model import Event
from plimsoll.ledger.store import Store
from plimsoll.server.guard import Pass, TooMany

LISTENERS_MAX = 2_000
LISTENERS_OF_ONE_MAX = 500
"""One who asks for streams without end must leave some to others."""
QUIET_SECONDS = 0.25
"""Changes within this time are told together."""
HEARTBEAT_SECONDS = 15.0
STREAM_SECONDS_MAX = 900.0
CATCH_UP_MAX = 5_000
TOLD_MAX = 5_000
"""So many events are read for one message: an import has a hundred thousand."""
NAMED_MAX = 50
"""A message names so many kinds and subjects; beyond that it says that there are more."""
WAIT_SECONDS = 0.3
SURE_SECONDS_MAX = 2.0
"""How long the ledger may be silent until we say that we do not know whether something has changed."""
RETRY_MILLISECONDS = 2_000
ACCESS = "access/"
"""How the subjects begin of events that give rights or take them."""


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


def seen_by(change: Change, sees: str) -> Change | None:
    """As much of a change as somebody may know of, who sees subjects that begin so; None where it is nothing."""
    if not sees:
        return change
    subjects = [subject for subject in change.subjects if subject.startswith(sees)]
    # Where not all are named, one of theirs may be among those that are not.
    return msgspec.structs.replace(change, subjects=subjects, kinds=[]) if subjects or change.is_cut else None


class Watcher:
    """Follows the ledger in a thread, and tells everybody who listens."""

    def __init__(self, open_store: Callable[[], Store], *, on_access: Callable[[], None] = lambda: None) -> None:
        self._open, self._on_access = open_store, on_access
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: set[Listener] = set()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="watcher", daemon=True)
        self.head = self._told = 0
        self.heard_at = time.monotonic()
        """When the ledger last answered."""
        self.trouble: PlimsollError | None = None
        """Why it does not answer now."""

    def start(self, head: int) -> None:
        self.head, self._told, self._loop = head, head, asyncio.get_running_loop()
        self._thread.start()

    def end_streams(self) -> None:
        """Whoever listens hears the end; whoever comes now is told to come back. Called where the streams are sent."""
        self._is_over.set()
        for listener in list(self._listeners):
            listener.end()

    def stop(self) -> None:
        self.end_streams()
        if self._thread.ident is not None:
            self._thread.join(WAIT_SECONDS * 3)

    @property
    def listeners(self) -> list[Listener]:
        return list(self._listeners)

    @property
    def listening(self) -> int:
        return len(self._listeners)

    @property
    def is_sure(self) -> bool:
        """Whether a change that others make would be known by now."""
        return self.trouble is None and time.monotonic() - self.heard_at < SURE_SECONDS_MAX

    def saw(self, revision: int) -> None:
        """A change of our own is known at once."""
        self.head = max(self.head, revision)

    def _follow(self) -> None:
        store: Store | None = None
        seen, sealed = self._told, ""
        try:
            while not self._is_over.is_set():
                try:
                    if store is None:
                        store = self._open()
                        sealed = sealed or _hash_at(store, seen)
                    is_changed = store.wait_for_change(seen, seconds_max=WAIT_SECONDS)
                    if is_changed:
                        self._is_over.wait(QUIET_SECONDS)
                    events = list(islice(store.events(after=seen), TOLD_MAX)) if is_changed else []
                    _check_past(store, seen, sealed, events)
                except PlimsollError as error:  # the database is away; readers are told by /readyz
                    self.trouble = error
                    self._is_over.wait(WAIT_SECONDS)
                    continue
                self.heard_at, self.trouble = time.monotonic(), None
                if events:
                    seen, sealed = events[-1].revision, events[-1].hash
                    self._tell(change_of(events), is_access=any(each.subject.startswith(ACCESS) for each in events))
        finally:
            if store is not None:
                store.close()

    def _tell(self, change: Change, *, is_access: bool) -> None:
        assert self._loop is not None

        def tell() -> None:
            self.head = max(self.head, change.revision)
            if is_access:
                self._on_access()
            message = _message(change)
            for listener in self._listeners:
                listener.hear(change, message)

        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(tell)

    def join(self, after: int | None, sees: str = "", shown: Pass | None = None) -> Listener:
        """One more who listens, from now on: what it missed is read after this, so that nothing falls in between."""
        if self._is_over.is_set():
            raise Unavailable("stopping", "the server is being stopped", next_step="come back", retry_after=2)
        if len(self._listeners) >= LISTENERS_MAX:
            raise TooMany("too_many_listeners", f"{LISTENERS_MAX:,} listen already", next_step="poll with ETags")
        listener = Listener(after or 0, sees, shown, begins_at=self.head if after is None else after)
        if sum(1 for each in self._listeners if each.who == listener.who) >= LISTENERS_OF_ONE_MAX:
            message = f"{LISTENERS_OF_ONE_MAX:,} of yours listen already"
            raise TooMany("too_many_listeners", message, next_step="close some of them")
        self._listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    async def listen(self, listener: Listener, missed: Change | None) -> AsyncIterator[bytes]:
        """The stream of one listener: what it missed, then what comes.

        It ends when somebody lost their rights (`recheck`), and in any case after a while: then they are asked again.
        """
        end = time.monotonic() + STREAM_SECONDS_MAX
        yield f"retry: {RETRY_MILLISECONDS}\nid: {listener.begins_at}\n\n".encode()
        if missed is not None:
            listener.knows(missed.revision)
            if (seen := seen_by(missed, listener.sees)) is not None:
                yield _message(seen)
        while (message := await listener.next()) is not None and time.monotonic() < end:
            yield message


def _hash_at(store: Store, revision: int) -> str:
    event = store.event_at(revision) if revision else None
    return event.hash if event is not None else ""


def _check_past(store: Store, seen: int, sealed: str, events: list[Event]) -> None:
    """Raise where the ledger is not the one that was read: an older copy would be silent, or tell other things."""
    if (not events and store.head().revision < seen) or (events and sealed and events[0].prev_hash != sealed):
        raise another_past(seen)


class Listener:
    """One who listens: at most one message waits for it. It knows all up to `after` already, and is told of subjects
    that begin with `sees`. By what it has `shown` it is looked up again."""

    def __init__(self, after: int = 0, sees: str = "", shown: Pass | None = None, *, begins_at: int = 0) -> None:
        self.after, self.sees, self.shown = after, sees, shown
        self.begins_at = begins_at
        """Where it goes on, should it break off before anything was told."""
        self.who = shown.principal.label if shown is not None else ""
        self._waiting: Change | None = None
        self._message = b""
        self._wake = asyncio.Event()
        self._is_over = False

    def knows(self, revision: int) -> None:
        """It was told otherwise: what waits for it up to there is not told again."""
        self.after = revision
        if self._waiting is not None and self._waiting.revision <= revision:
            self._waiting = None
            self._wake.clear()

    def hear(self, change: Change, message: bytes) -> None:
        if change.revision <= self.after:
            return
        if self.sees:
            seen = seen_by(change, self.sees)
            if seen is None:
                return
            change, message = seen, _message(seen)
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
