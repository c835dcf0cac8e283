"""Keeps a state abreast of its ledger: opens it from the newest snapshot, follows other processes' events, answers
for the past, commits, and takes snapshots so that the next start is quick.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

import msgspec

from plimsoll.errors import NotFound, PlimsollError, Stale, Unavailable
from plimsoll.ledger import Ledger
from plimsoll.ledger.ledger import another_past
from plimsoll.ledger.model import GENESIS, Draft, Event, Snapshot
from plimsoll.ledger.verify import Break, Finding
from plimsoll.memory import no_collection
from plimsoll.state.state import Kinds, State
from plimsoll.times import format_time

SNAPSHOT_EVENTS = 20_000
"""A snapshot is due after this many events: what a start may have to replay."""
SNAPSHOT_DENSITY = 4
"""The past stays near a snapshot for ever: a moment lies at most this part of its distance from now after one."""
PROGRESS_EVENTS = 10_000
ATTEMPTS_MAX = 8
"""How often a decision is made anew because the state moved under it."""
ATTEMPTS_AT_ONCE = 3
RETRY_SECONDS = 0.005

D = TypeVar("D")
Reaction = Callable[["Keeper", Sequence[Event]], None]
"""What is done when something was committed; it may commit in its turn."""


class Keeper:
    """The state of one ledger in this process."""

    def __init__(self, ledger: Ledger, kinds: Kinds, reactions: Sequence[Reaction] = ()) -> None:
        self.ledger = ledger
        self.kinds = kinds
        self.reactions = tuple(reactions)
        self._lock = threading.RLock()
        self._state = State(kinds)
        self._connections = ledger.store.connections
        self._snapshot_revision = 0
        self.past_kept = 0
        """How many states of the past are kept, for whoever asks of the same moment several times."""
        self._past: dict[int, State] = {}
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self._state = self._nearest_snapshot(self.ledger.head().revision)
        self._snapshot_revision = self._state.revision
        self.state()
        self._snapshot_if_due()

    def state(self) -> State:
        """The state now, with everything that any process committed."""
        with self._lock:
            with no_collection():
                self._state.apply_all(self.ledger.store.events(after=self._state.revision))
            if self._connections != self.ledger.store.connections:
                self._check_past()
            return self._state

    def _check_past(self) -> None:
        """On a new connection another copy may answer, such as a standby that had not heard the last of it."""
        connections, revision = self.ledger.store.connections, self._state.revision
        event = self.ledger.store.event_at(revision) if revision else None
        if revision and (event is None or event.hash != self._state.hash):
            raise another_past(revision)
        self._connections = connections

    @property
    def revision(self) -> int:
        """Up to where the state in this process goes."""
        return self._state.revision

    @property
    def recorded_at(self) -> str:
        """When the newest event in the state was recorded; "" where there is none."""
        return self._state.recorded_at or ""

    def as_of(self, when: int | datetime) -> State:
        """The state at a revision, or as known at a moment. It is a state of its own, unless such are kept."""
        head = self.ledger.head().revision
        revision = when if isinstance(when, int) else self.ledger.revision_at(format_time(when))
        if revision > head or revision < 0:
            raise NotFound(
                "no_such_revision",
                f"the ledger ends at revision {head}; there is no revision {revision}",
                next_step="plimsoll audit head",
                revision=revision,
                head=head,
            )
        if (kept := self._past.get(revision)) is not None:
            return kept
        state = self._nearest_snapshot(revision)
        with no_collection():
            state.apply_all(self.ledger.store.events(after=state.revision, until=revision))
        if self.past_kept:
            self._past[revision] = state
            while len(self._past) > self.past_kept:
                self._past.pop(next(iter(self._past)))
        return state

    def commit(
        self,
        drafts: Sequence[Draft],
        *,
        actor: str,
        reason: str = "",
        read_at: int | None,
        reads: Collection[str] = (),
        epoch: int | None = None,
    ) -> list[Event]:
        """Commit and advance. See `Ledger.commit`."""
        read_hash = self._state.hash if read_at == self._state.revision else ""
        events = self.ledger.commit(
            drafts, actor=actor, reason=reason, read_at=read_at, read_hash=read_hash, reads=reads, epoch=epoch
        )
        with self._lock:
            if events and (events[0].revision, events[0].prev_hash) == self._next:
                self._state.apply_committed(drafts, events)
            else:
                # It is in the ledger: a state that can't be read now catches up later, and nobody commits it twice.
                with suppress(Unavailable):
                    self.state()
            self._snapshot_if_due()
        for react in self.reactions:
            # The change itself is kept: what follows from it is decided again by whoever looks next.
            with suppress(PlimsollError):
                react(self, events)
        return events

    @property
    def _next(self) -> tuple[int, str]:
        """What an event says that follows this state."""
        return self._state.revision + 1, self._state.hash or GENESIS

    def decide_and_commit(
        self,
        decide: Callable[[State], tuple[D, Sequence[Draft]]],
        *,
        actor: str,
        reason: str = "",
        reads: Collection[str] = (),
        epoch: int | None = None,
        attempts: int = ATTEMPTS_MAX,
    ) -> tuple[D, list[Event]]:
        """Read, decide, commit; when a stream that was read has moved meanwhile, read and decide again."""
        for attempt in range(1, attempts + 1):
            with self._lock:
                state = self.state()
                decision, drafts = decide(state)
                read_at = state.revision
            try:
                events = self.commit(drafts, actor=actor, reason=reason, read_at=read_at, reads=reads, epoch=epoch)
                return decision, events
            except Stale as stale:
                if attempt == attempts or stale.code != "stale":
                    raise
                if attempt > ATTEMPTS_AT_ONCE:  # many want the same: let others through
                    time.sleep(random.uniform(0, attempt * RETRY_SECONDS))  # noqa: S311
        raise AssertionError("unreachable")

    def say(
        self,
        decide: Callable[[State, datetime], tuple[D, Sequence[Draft]]],
        *,
        actor: str,
        reason: str = "",
        reads: Collection[str] = (),
        is_dry_run: bool = False,
    ) -> tuple[D, list[Event]]:
        """Record what somebody says now, or only decide it."""
        now = self.ledger.clock()
        if is_dry_run:
            with self._lock:
                return decide(self.state(), now)[0], []
        return self.decide_and_commit(lambda state: decide(state, now), actor=actor, reason=reason, reads=reads)

    def close(self) -> None:
        """Let go of the database."""
        self.ledger.close()

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _nearest_snapshot(self, until: int) -> State:
        """The newest usable snapshot at or before a revision; an empty state if there is none."""
        store = self.ledger.store
        for revision in reversed(store.snapshot_revisions(self.kinds.fold_version)):
            if revision > until:
                continue
            snapshot, event = store.snapshot_at(revision), store.event_at(revision)
            if snapshot is None or event is None or event.hash != snapshot.hash:
                continue
            if (state := load_snapshot(self.kinds, snapshot)) is not None:
                state.hash = snapshot.hash
                return state
        return State(self.kinds)

    def _snapshot_if_due(self) -> None:
        if self._state.revision - self._snapshot_revision < SNAPSHOT_EVENTS:
            return
        try:
            self.snapshot()
        except Unavailable:
            # A shortcut that can't be saved (a full disk, a read-only file) must not make what was asked look failed.
            return

    def snapshot(self) -> int:
        """Save the state now, unless nothing happened yet; returns its revision."""
        with self._lock:
            state = self.state()
            if not state.revision:
                return 0
            head = self.ledger.head_at(state.revision)
            snapshot = Snapshot(state.revision, self.kinds.fold_version, head.hash, state.dump())
            self.ledger.store.save_snapshot(snapshot, keep=snapshots_to_keep)
            self._snapshot_revision = state.revision
            return state.revision


def load_snapshot(kinds: Kinds, snapshot: Snapshot) -> State | None:
    """A snapshot is only a shortcut: one that can't be read is passed over, and `audit verify` names it."""
    state = State(kinds)
    try:
        with no_collection():
            state.load(snapshot.body)
    except (zlib.error, msgspec.MsgspecError, LookupError, TypeError, ValueError):
        return None
    return state if state.revision == snapshot.revision else None


def verify_snapshots(
    ledger: Ledger, kinds: Kinds, progress: Callable[[int], None] = lambda _: None
) -> Iterator[Finding]:
    """Fold everything anew and compare with each snapshot on the way. The rows must be whole."""
    state = State(kinds)
    for revision in ledger.store.snapshot_revisions(kinds.fold_version):
        snapshot = ledger.store.snapshot_at(revision)
        if snapshot is None:
            continue
        for event in ledger.store.events(after=state.revision, until=revision):
            state.apply(event)
            if event.revision % PROGRESS_EVENTS == 0:
                progress(event.revision)
        loaded = load_snapshot(kinds, snapshot)
        if loaded is None or loaded.dump() != state.dump():
            message = f"the snapshot at revision {revision} is not the fold of the events before it"
            yield Finding(Break.SNAPSHOT, revision, message)


def snapshots_to_keep(revisions: list[int]) -> set[int]:
    """Thin out with distance, oldest first: one goes where the gap it leaves is small against how far back it lies.

    No gap ever grows beyond that, however often this is asked as the ledger grows; so a moment that lies `d` events
    back is at most `d / SNAPSHOT_DENSITY` events after a snapshot, and their number grows as the logarithm only.
    """
    kept = set(revisions[-1:])
    older = 0
    for revision, newer in itertools.pairwise(revisions):
        if newer - older > (revisions[-1] - newer) // SNAPSHOT_DENSITY:
            kept.add(revision)
            older = revision
    return kept
