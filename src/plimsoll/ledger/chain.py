"""The hash chain: how an event is sealed to the one before it. Pure; the format is public and never changes.

`hash` = SHA-256 (hex) of the UTF-8 text of

    prev_hash, revision, recorded_at, effective_at, actor, kind, subject, reason, payload

joined by U+001F, which no field may contain. So any row changed, removed, added or moved breaks the chain there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256

import msgspec

from plimsoll.errors import UsageError
from plimsoll.ledger.model import Draft, Event, Head
from plimsoll.times import format_time

SEPARATOR = "\x1f"
SEPARATORS_PER_EVENT = 8
TEXT_MAX = 4_000
"""Characters of an actor, subject or reason."""


def event_hash(event: Event) -> str:
    """The hash this row should carry; it never looks at the hash it does carry."""
    return sha256(_sealed_text(event).encode("utf-8", "surrogatepass")).hexdigest()


def is_well_formed(event: Event) -> bool:
    """Whether the fields are cut where they were when sealed: all are text, and none of them holds a separator."""
    is_text = all(isinstance(field, str) for field in event[1:])
    return is_text and _sealed_text(event).count(SEPARATOR) == SEPARATORS_PER_EVENT


def _sealed_text(event: Event) -> str:
    return (
        f"{event[8]}\x1f{event[0]}\x1f{event[1]}\x1f{event[2]}\x1f{event[3]}\x1f{event[4]}\x1f{event[5]}\x1f"
        f"{event[6]}\x1f{event[7]}"
    )


def seal(drafts: Sequence[Draft], *, head: Head, actor: str, reason: str, recorded_at: str) -> list[Event]:
    """Number the drafts, stamp them and chain them to the head. `reason` is for those that bring none."""
    revision, prev_hash = head.revision, head.hash
    encode = msgspec.json.encode
    events = []
    for change, own_reason, happened_at in drafts:
        revision += 1
        effective_at = recorded_at if happened_at is None else format_time(happened_at)
        kind, subject, payload, why = change.kind, change.subject, encode(change).decode(), own_reason or reason
        text = (
            f"{prev_hash}\x1f{revision}\x1f{recorded_at}\x1f{effective_at}\x1f{actor}\x1f{kind}\x1f{subject}\x1f"
            f"{why}\x1f{payload}"
        )
        digest = sha256(text.encode()).hexdigest()
        fields = (revision, recorded_at, effective_at, actor, kind, subject, why, payload, prev_hash, digest)
        events.append(tuple.__new__(Event, fields))  # what Event(*fields) does, and quicker
        prev_hash = digest
    check_subjects(events)
    return events


def check_words(drafts: Sequence[Draft], *, actor: str, reason: str) -> None:
    """Refuse what can't be sealed: too long, or with control characters that would blur the fields."""
    if not actor:
        raise UsageError("no_actor", "a change needs an actor: who does it", next_step="set PLIMSOLL_ACTOR")
    _check_text("actor", actor)
    _check_text("reason", reason)
    for why in {draft.reason for draft in drafts}:
        _check_text("reason", why)


def check_subjects(events: Sequence[Event]) -> None:
    """The same for subjects. Many at once are checked as one text."""
    subjects = {event.subject for event in events}
    if not "".join(subjects).isprintable() or len(max(subjects, key=len)) > TEXT_MAX:
        for subject in subjects:
            _check_text("subject", subject)


def _check_text(name: str, text: str) -> None:
    if len(text) > TEXT_MAX:
        raise UsageError(
            "text_too_long",
            f"the {name} has {len(text)} characters, at most {TEXT_MAX} are kept",
            next_step=f"shorten the {name}",
        )
    if not text.isprintable():
        raise UsageError(
            "text_not_printable",
            f"the {name} {text[:80]!r} holds control characters or half a character",
            next_step=f"write the {name} as one line of plain text",
        )


def next_recorded_at(head: Head, now: datetime) -> str:
    """The time to record: now, but never before the event it follows, so that `--as-of` can search by it."""
    return max(head.recorded_at, format_time(now))
