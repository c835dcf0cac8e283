"""A change that is sent twice happens once: what an `Idempotency-Key` led to is kept for a day.

The key is put down before anything is done. Whoever sends it again gets the answer of the first time; while the first
is under way, or where it was cut off and nobody knows how it ended, they are told so and nothing is done.
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
UNDER_WAY_SECONDS = 120.0
KEY_CHARS_MAX = 200
ANSWER_BYTES_MAX = 1 << 20


class Receipt(msgspec.Struct, frozen=True):
    """What a key stands for, and what came of it."""

    digest: str
    begun_at: str
    by: str
    """The process's own word: only it may write the end."""
    status: int = 0
    content_type: str = ""
    body: str = ""
    revision: int = 0


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


def begin(store: Store, name: str, digest: str, now: datetime) -> Receipt:
    """Put the key down; a receipt with a status is the answer of the first time."""
    mine = Receipt(digest, format_time(now), secrets.token_hex(8))
    until = format_time(now + timedelta(hours=KEPT_HOURS))
    if store.add_paper(Paper(KIND, name, until, msgspec.json.encode(mine).decode())):
        return mine
    paper = store.paper(KIND, name)
    if paper is None or paper.is_over(now):
        store.drop_paper(KIND, name)
        return begin(store, name, digest, now)
    first = msgspec.json.decode(paper.body, type=Receipt)
    if first.digest != digest:
        raise Refused(
            "idempotency_key_reused",
            "this Idempotency-Key was sent with another request",
            next_step="send each change with a key of its own",
        )
    if not first.status:
        age = (now - parse_time(first.begun_at)).total_seconds()
        if age < UNDER_WAY_SECONDS:
            raise Stale(
                "under_way", f"the same request is under way since {age:.0f} s", next_step="try again", retry_after=2
            )
        raise Stale(
            "outcome_unknown",
            f"the same request was begun at {first.begun_at} and cut off: whether it happened is not known",
            next_step="look at GET /api/v1/events, then send it with a new key if it did not happen",
        )
    return first


def end(store: Store, name: str, mine: Receipt, *, status: int, content_type: str, body: bytes, now: datetime) -> None:
    """Keep the answer. One that is too long for that is kept as what it was about."""
    if len(body) > ANSWER_BYTES_MAX:
        body, content_type = msgspec.json.encode({"answer": "was too long to keep"}), "application/json"
    done = msgspec.structs.replace(mine, status=status, content_type=content_type, body=body.decode(errors="replace"))
    until = format_time(now + timedelta(hours=KEPT_HOURS))
    store.keep_paper(Paper(KIND, name, until, msgspec.json.encode(done).decode()))


def give_up(store: Store, name: str) -> None:
    """Nothing was done: the key is free again."""
    store.drop_paper(KIND, name)
