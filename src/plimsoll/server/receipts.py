"""A change that is sent twice happens once: what an `Idempotency-Key` led to is kept for a day.

The key is put down before anything is done, and what is done is marked on it in the transaction of each commit. So
after a crash it says for sure whether something was changed: if nothing was, the next one who sends it does it; if
something was, they are told which revision it came to, and nothing is done again. Whoever was only slow and finds its
key taken over can commit nothing any more.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

import msgspec

from plimsoll.errors import Refused, Stale, UsageError
from plimsoll.ledger.model import Paper
from plimsoll.ledger.store import Store
from plimsoll.times import format_time, parse_time

KIND = "receipt"
KEPT_HOURS = 24
UNDER_WAY_SECONDS = 30.0
"""After this long without an answer the first is taken to be gone: it is safe to be wrong, for then it is refused."""
UNDER_WAY_SECONDS_SLOW = 600.0
KEY_CHARS_MAX = 200
ANSWER_BYTES_MAX = 1 << 20
BEGIN_ATTEMPTS_MAX = 4


class Receipt(msgspec.Struct, frozen=True):
    """What a key stands for, and what came of it."""

    digest: str
    begun_at: str
    by: str
    """The own word of who does it: nobody else can mark it or write its end."""
    status: int = 0
    content_type: str = ""
    body: str = ""
    revision: int = 0
    """The last that was committed for it."""
    seconds: float = UNDER_WAY_SECONDS
    exit_code: int = 0
    """How the command would have ended in a terminal."""


def check_key(key: str) -> None:
    if not 1 <= len(key) <= KEY_CHARS_MAX or not key.isascii() or not key.isprintable():
        raise UsageError(
            "bad_idempotency_key",
            f"an Idempotency-Key has 1 to {KEY_CHARS_MAX} printable ASCII characters, and this has {len(key)}",
            next_step="send a random UUID",
        )


def identity(who: str, key: str) -> str:
    """One who asks can't meet the keys of another."""
    return hashlib.sha256(f"{who}\n{key}".encode()).hexdigest()


def digest_of(method: str, path: str, body: bytes) -> str:
    return hashlib.sha256(b"\n".join([method.encode(), path.encode(), body])).hexdigest()


def begin(store: Store, name: str, digest: str, now: datetime, *, seconds: float = UNDER_WAY_SECONDS) -> Receipt:
    """Put the key down, and do it; a receipt with a status is the answer of the first time, and nothing is done."""
    mine = Receipt(digest, format_time(now), secrets.token_hex(8), seconds=seconds)
    paper = _paper(name, mine, now)
    for _ in range(BEGIN_ATTEMPTS_MAX):
        if store.add_paper(paper, now=now):
            return mine
        found = store.paper(KIND, name)
        if found is None or found.is_over(now):
            continue  # it was given up right now, or its time came
        first = _read(found)
        if first.digest != digest:
            raise Refused(
                "idempotency_key_reused",
                "this Idempotency-Key was sent with another request",
                next_step="send each change with a key of its own",
            )
        if first.status:
            return first
        age = (now - parse_time(first.begun_at)).total_seconds()
        if age < first.seconds:
            raise _under_way(age)
        if first.revision:
            raise Stale(
                "answer_lost",
                f"the same request was begun at {first.begun_at}, came to revision {first.revision}, and was cut off"
                " before its answer was kept: it is not done again",
                next_step="look at what it did: GET /api/v1/events",
                revision=first.revision,
            )
        with store.transaction():
            if store.swap_paper(found, paper):
                return mine
    raise _under_way(0.0)


def mark(store: Store, name: str, mine: Receipt, revision: int) -> None:
    """In the transaction of a commit: say what it came to. Whoever does not have the key any more can't commit."""
    found = store.paper(KIND, name)
    first = _read(found) if found is not None else None
    if found is not None and first is not None and first.by == mine.by:
        marked = msgspec.structs.replace(first, revision=revision)
        if store.swap_paper(found, Paper(KIND, name, found.expires_at, _text(marked))):
            return
    raise Stale(
        "taken_over",
        f"the request took more than {mine.seconds:g} s, and was begun anew where it was sent again: this one is over",
        next_step="send it again with the same key for its answer",
        retry_after=2,
    )


def end(
    store: Store,
    name: str,
    mine: Receipt,
    *,
    status: int,
    content_type: str,
    body: bytes,
    now: datetime,
    exit_code: int = 0,
) -> None:
    """Keep the answer. One that is too long for that is kept as what it was about."""
    if len(body) > ANSWER_BYTES_MAX:
        body, content_type = msgspec.json.encode({"answer": "was too long to keep"}), "application/json"
    with store.transaction():
        found = store.paper(KIND, name)
        if found is None or (first := _read(found)).by != mine.by:
            return
        text = body.decode(errors="replace")
        said = {"status": status, "content_type": content_type, "body": text, "exit_code": exit_code}
        done = msgspec.structs.replace(first, **said)
        store.swap_paper(found, _paper(name, done, now))


def give_up(store: Store, name: str, mine: Receipt) -> None:
    """It failed. Where nothing was committed the key is free again; else it goes on saying what was."""
    with store.transaction():
        found = store.paper(KIND, name)
        if found is not None and (first := _read(found)).by == mine.by and not first.revision:
            store.swap_paper(found, None)


def _under_way(age: float) -> Stale:
    what = f"the same request is under way since {max(0.0, age):.0f} s"
    return Stale("under_way", what, next_step="try again", retry_after=2)


def _paper(name: str, receipt: Receipt, now: datetime) -> Paper:
    return Paper(KIND, name, format_time(now + timedelta(hours=KEPT_HOURS)), _text(receipt))


def _text(receipt: Receipt) -> str:
    return msgspec.json.encode(receipt).decode()


def _read(paper: Paper) -> Receipt:
    return msgspec.json.decode(paper.body, type=Receipt)
