"""The memory: the one way in for changes, and the ways to read them back.

A commit names the streams it read and the revision at which it read them. It is refused when one of *those* moved
since; whatever else happened in the meantime does not disturb it. Revision and hash are given under one lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from plimsoll.errors import Fenced, PlimsollError, Stale, Tampered, Unavailable
from plimsoll.ledger.chain import check_words, next_recorded_at, seal
from plimsoll.ledger.model import EMPTY_HEAD, Draft, Event, Head
from plimsoll.ledger.store import Store
from plimsoll.times import Clock, utc_now

COMMIT_EVENTS_MAX = 5_000_000
OUTCOME_SECONDS_MAX = 60.0
FOLLOW_POLL_SECONDS = 1.0

Beside = Callable[[int], None]
"""What is written in the transaction of a commit, whose last revision it is told. It may refuse the commit."""


class Ledger:
    """Append-only, hash-chained events in a store."""

    def __init__(self, store: Store, clock: Clock = utc_now) -> None:
        self.store = store
        self.clock = clock
        self._beside: Beside | None = None

    @contextmanager
    def beside(self, write: Beside) -> Iterator[None]:
        """Whatever is committed inside is kept together with what `write` writes, or not at all.

        For one who has the ledger to itself: a commit of another thread would be taken for one of these.
        """
        assert self._beside is None, "one thing at a time is written beside commits"
        self._beside = write
        try:
            yield
        finally:
            self._beside = None

    def commit(
        self,
        drafts: Sequence[Draft],
        *,
        actor: str,
        reason: str = "",
        read_at: int | None,
        read_hash: str = "",
        reads: Collection[str] = (),
        epoch: int | None = None,
    ) -> list[Event]:
        """Append the drafts, all or none. `reason` is for those that bring none of their own.

        `read_at` is the revision of the state that was read; the streams written to and those in `reads` must not
        have moved since (None: an observation that was decided from nothing). `node/*` in `reads` is every stream that
        begins so. `read_hash` is the chain's hash there, where it is known. `epoch` is the leader's, if it is one.
        """
        assert len(drafts) <= COMMIT_EVENTS_MAX, f"{len(drafts)} events in one commit"
        if not drafts:
            return []
        check_words(drafts, actor=actor, reason=reason)
        events: list[Event] = []
        try:
            with self.store.transaction():
                head, current_epoch = self.store.locked_head()
                if epoch is not None and epoch != current_epoch and not self.store.is_current(epoch):
                    raise _fenced(epoch, current_epoch)
                if read_at is not None and _is_another_past(head, read_at, read_hash):
                    raise another_past(read_at)
                if read_at is not None and read_at < head.revision:
                    self._refuse_if_moved(drafts, reads, read_at)
                recorded_at = next_recorded_at(head, self.clock())
                events = seal(drafts, head=head, actor=actor, reason=reason, recorded_at=recorded_at)
                self.store.insert_events(events)
                last = events[-1]
                self.store.set_head(Head(last.revision, last.hash, last.recorded_at))
                if self._beside is not None:
                    self._beside(last.revision)
        except Unavailable as error:
            if error.code != "commit_unknown":
                raise
            self._resolve_outcome(events[-1], error)
        return events

    def check_lead(self, epoch: int | None) -> None:
        """Raise where whoever led in this epoch leads no more: for what is about to be done outside."""
        if epoch is not None and not self.store.is_current(epoch):
            message = f"this process led in epoch {epoch}, which is over: another leads now"
            raise Fenced("fenced", message, next_step="nothing: the new leader carries on", epoch=epoch)

    def _refuse_if_moved(self, drafts: Sequence[Draft], reads: Collection[str], read_at: int) -> None:
        moved = dict(self.store.subjects_after(read_at))
        streams = {draft.change.subject for draft in drafts}.union(reads)
        families = tuple(each[:-1] for each in reads if each.endswith("/*"))
        if conflicts := sorted(each for each in moved if each in streams or each.startswith(families)):
            first = conflicts[0]
            raise Stale(
                "stale",
                f"{first} changed at revision {moved[first]}, after it was read at revision {read_at}"
                + (f" (and {len(conflicts) - 1} more streams)" if len(conflicts) > 1 else ""),
                next_step=f"look at what changed and try again: plimsoll audit log --after {read_at} --subject {first}",
                stream=first,
                read_at=read_at,
                changed_at=moved[first],
                streams=conflicts[:100],
            )

    def _resolve_outcome(self, last: Event, unknown: PlimsollError) -> None:
        """The connection broke while committing: the chain itself tells whether our last event is in it.

        It is asked under the lock: the broken transaction may not have ended yet, and holds the lock until it has.
        """
        deadline = time.monotonic() + OUTCOME_SECONDS_MAX
        while True:
            try:
                with self.store.transaction():
                    self.store.locked_head()
                    found = self.store.event_at(last.revision)
            except Unavailable:
                if time.monotonic() >= deadline:
                    raise unknown from None
                time.sleep(0.2)
                continue
            if found is not None and found.hash == last.hash:
                return
            raise Unavailable(
                "not_committed",
                "the connection broke while committing, and nothing of the change was kept",
                next_step="try again",
            ) from unknown

    def head(self) -> Head:
        """Where the chain ends now."""
        return self.store.head()

    def head_at(self, revision: int) -> Head:
        """Where the chain ended then."""
        if revision == 0:
            return EMPTY_HEAD
        event = self.store.event_at(revision)
        assert event is not None, f"revision {revision} is past the head"
        return Head(event.revision, event.hash, event.recorded_at)

    def revision_at(self, moment_text: str) -> int:
        """The last revision recorded at or before a moment; 0 before the first. Recorded times never go back."""
        low, high = 0, self.head().revision
        while low < high:
            middle = (low + high + 1) // 2
            event = self.store.event_at(middle)
            if event is not None and event.recorded_at <= moment_text:
                low = middle
            else:
                high = middle - 1
        return low

    def follow(self, after: int, *, seconds_max: float | None = None) -> Iterator[Event]:
        """New events as they come, from any process, in order and without gaps; for ever if no time is given."""
        deadline = None if seconds_max is None else time.monotonic() + seconds_max
        while True:
            for event in self.store.events(after=after):
                after = event.revision
                yield event
            left = FOLLOW_POLL_SECONDS if deadline is None else min(FOLLOW_POLL_SECONDS, deadline - time.monotonic())
            if left <= 0:
                return
            self.store.wait_for_change(after, seconds_max=left)

    def close(self) -> None:
        """Let go of the database."""
        self.store.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _fenced(epoch: int, current: int) -> Fenced:
    return Fenced(
        "fenced",
        f"this process led in epoch {epoch}, which is over: another leads now (the newest epoch is {current})",
        next_step="nothing: the new leader carries on",
        epoch=epoch,
        current=current,
    )


def _is_another_past(head: Head, read_at: int, read_hash: str) -> bool:
    return read_at > head.revision or (read_at == head.revision and bool(read_hash) and read_hash != head.hash)


def another_past(revision: int) -> Tampered:
    """What was read is not what the ledger holds: it was put back to an older copy, or changed, under this process."""
    return Tampered(
        "another_past",
        f"the ledger does not hold revision {revision:,} as it was read here: it was put back to an older copy, or"
        " was changed",
        next_step="start anew whatever runs on it; then plimsoll audit verify",
        revision=revision,
    )
