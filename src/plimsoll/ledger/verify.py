"""Prove the ledger whole: read every row as an auditor would and say what does not hold, row by row.

It trusts nothing but the hashes. After a break it goes on from what the row says, so that one changed row is one
finding and not a million.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence

import msgspec

from plimsoll.errors import UsageError
from plimsoll.ledger.chain import event_hash, is_well_formed
from plimsoll.ledger.model import EMPTY_HEAD, GENESIS, Event, Head
from plimsoll.ledger.store import Store

FINDINGS_MAX = 100
"""Of the rows; what is wrong with the head, the snapshots and published heads is always said."""
PROGRESS_ROWS = 10_000
REVISION_DIGITS_MAX = 18
MIN_REVISION = -(2**62)
"""Rows numbered below 1 must be seen too: we never write them."""


class Break(enum.StrEnum):
    """What can be wrong with a ledger."""

    CHANGED = "changed"
    MISSING = "missing"
    UNLINKED = "unlinked"
    BACKWARDS = "backwards"
    CUT_OFF = "cut_off"
    REWRITTEN = "rewritten"
    SNAPSHOT = "snapshot"


class Finding(msgspec.Struct, frozen=True):
    """One thing that does not hold, and where."""

    what: Break
    revision: int
    message: str


class Verdict(msgspec.Struct, frozen=True):
    """What an audit found. `head` is the end of the chain as read, not as remembered."""

    head: Head
    events: int
    findings: tuple[Finding, ...]
    unlisted: int = 0

    @property
    def is_whole(self) -> bool:
        return not self.findings


def parse_head(text: str) -> tuple[int, str]:
    """`REVISION:HASH`, as `audit head` prints it."""
    revision, separator, digest = text.strip().partition(":")
    is_hash = len(digest) == len(GENESIS) and all(character in "0123456789abcdef" for character in digest)
    is_number = revision.isascii() and revision.isdigit() and len(revision) <= REVISION_DIGITS_MAX
    is_start = is_number and int(revision) == 0
    if not (separator and is_number and is_hash) or (is_start and digest != GENESIS):
        raise UsageError(
            "bad_head",
            f"{text!r} is not a published head",
            next_step="give REVISION:HASH as `plimsoll audit head` printed it",
            value=text,
        )
    return int(revision), digest


def verify(
    store: Store, *, published: Sequence[tuple[int, str]] = (), progress: Callable[[int], None] = lambda _: None
) -> Verdict:
    """Check every row, the recorded head, the snapshots' anchors and, if given, heads published earlier.

    Writers may go on meanwhile: what they add is checked too.
    """
    reading = _Reading(published)
    recorded = reading.read(store, progress)
    head, findings = reading.head, reading.findings
    findings += _verify_recorded_head(recorded, head)
    findings += _verify_snapshots(store)
    for revision, _ in published:
        if revision > head.revision:
            message = f"revision {revision} was published as the head; the ledger ends at {head.revision}"
            findings.append(Finding(Break.CUT_OFF, head.revision, message))
    return Verdict(head, reading.count, tuple(findings), unlisted=max(0, reading.row_findings - FINDINGS_MAX))


class _Reading:
    """The rows read so far: where they end, and what was wrong with them."""

    def __init__(self, published: Sequence[tuple[int, str]]) -> None:
        self.head = EMPTY_HEAD
        self.count = 0
        self.row_findings = 0
        self.findings: list[Finding] = []
        self._published: dict[int, set[str]] = {}
        for revision, digest in published:
            self._published.setdefault(revision, set()).add(digest)

    def read(self, store: Store, progress: Callable[[int], None]) -> Head:
        """Read every row; returns the recorded head at which they must end."""
        after = MIN_REVISION
        while True:
            # The head is asked for first, so all rows up to it can be seen; rows past it were written since, and a
            # later head will name them, or never, when they are forged.
            recorded, count_before = store.head(), self.count
            for event in store.events(after=after):
                after = event.revision
                self._take(event)
                if self.count % PROGRESS_ROWS == 0:
                    progress(self.count)
            if self.head.revision <= recorded.revision or self.count == count_before:
                return recorded

    def _take(self, event: Event) -> None:
        self.count += 1
        for finding in _verify_row(event, self.head):
            self.row_findings += 1
            if self.row_findings <= FINDINGS_MAX:
                self.findings.append(finding)
        self.findings += self._verify_published(event)
        if event.revision >= 1:
            is_text = isinstance(event.recorded_at, str)
            self.head = Head(event.revision, event.hash, event.recorded_at if is_text else self.head.recorded_at)

    def _verify_published(self, event: Event) -> Iterator[Finding]:
        if self._published.get(event.revision, {event.hash}) != {event.hash}:
            message = f"revision {event.revision} was published with another hash: the ledger was rewritten before it"
            yield Finding(Break.REWRITTEN, event.revision, message)


def _verify_row(event: Event, before: Head) -> Iterator[Finding]:
    if event.revision < 1:
        yield Finding(Break.UNLINKED, event.revision, f"revision {event.revision} was never given: inserted")
        return
    if event.revision != before.revision + 1:
        first, last = before.revision + 1, event.revision - 1
        span = f"revision {first} is" if first == last else f"revisions {first} to {last} are"
        yield Finding(Break.MISSING, first, f"{span} missing")
    elif event.prev_hash != before.hash:
        message = f"revision {event.revision} does not follow revision {before.revision}: inserted or reordered"
        yield Finding(Break.UNLINKED, event.revision, message)
    if not is_well_formed(event) or event_hash(event) != event.hash:
        what = f"{event.kind} {event.subject}"
        shown = what if what.isprintable() else repr(what)
        message = f"revision {event.revision} ({shown}) is not what was sealed: changed"
        yield Finding(Break.CHANGED, event.revision, message)
    if isinstance(event.recorded_at, str) and event.recorded_at < before.recorded_at:
        message = f"revision {event.revision} is recorded before the one it follows"
        yield Finding(Break.BACKWARDS, event.revision, message)


def _verify_recorded_head(recorded: Head, found: Head) -> Iterator[Finding]:
    if recorded.revision > found.revision:
        message = f"the ledger ends at revision {found.revision}, its head was revision {recorded.revision}: cut off"
        yield Finding(Break.CUT_OFF, found.revision, message)
    elif recorded.revision < found.revision:
        message = f"revision {found.revision} is past the recorded head {recorded.revision}: added from outside"
        yield Finding(Break.UNLINKED, found.revision, message)
    elif recorded != found:
        message = f"the last row is not the recorded head at revision {recorded.revision}"
        yield Finding(Break.CHANGED, found.revision, message)


def _verify_snapshots(store: Store) -> Iterator[Finding]:
    for revision, digest in store.snapshot_anchors():
        event = store.event_at(revision)
        if event is None or event.hash != digest:
            message = f"the snapshot at revision {revision} belongs to another chain"
            yield Finding(Break.SNAPSHOT, revision, message)
