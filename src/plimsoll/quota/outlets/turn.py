"""One push at a time for each scheduler and cluster, over all processes that share the database.

Whoever has the turn pushes what the book says then; who comes later reads the book later. Without turns a slow push
could overwrite what a quick and newer one has set. A turn ends by itself when its holder is gone.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from plimsoll.errors import PlimsollError, Refused, Stale
from plimsoll.ledger.store import Store
from plimsoll.times import CLOCK_SKEW_MAX, Clock, show_time

SCOPE = "push turn"
TURN_SECONDS = 180.0
"""Longer than one write to a scheduler may take: the turn is renewed with each."""
WAIT_SECONDS_MAX = 30.0
POLL_SECONDS = 0.2

Cursors = dict[tuple[str, str], str]
Written = Mapping[tuple[str, str], str | None]


class _Holder(msgspec.Struct, frozen=True):
    id: str
    host: str
    process: int
    actor: str
    until: datetime


class Turn:
    """The turn of one push. Every write of its memory goes through `remember`, which checks that it is still ours."""

    def __init__(self, store: Store, clock: Clock, name: str, *, actor: str) -> None:
        self._store, self._clock, self._place = store, clock, (SCOPE, name)
        self._actor = actor
        self._id = uuid.uuid4().hex

    def __enter__(self) -> Turn:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while (other := self._try()) is not None:
            if time.monotonic() >= deadline:
                raise Refused(
                    "push_running",
                    f"{other.actor} pushes to {self._place[1]} already (process {other.process} on {other.host});"
                    f" its turn ends at {show_time(other.until)} at the latest",
                    next_step="wait for it, then push again",
                    actor=other.actor,
                    until=show_time(other.until),
                )
            time.sleep(POLL_SECONDS)
        return self

    def _try(self) -> _Holder | None:
        """Take the turn, or say who has it."""
        others: list[_Holder] = []

        def change(found: Cursors) -> Written:
            others.clear()
            other, now = self._holder(found), self._clock()
            # A turn that ends later than any can was taken before a clock went back: it would hold us up that long.
            last = now + timedelta(seconds=TURN_SECONDS) + CLOCK_SKEW_MAX
            if other is not None and now < other.until <= last and not _is_gone(other):
                others.append(other)
                return {}
            return {self._place: self._mine()}

        self._store.update_cursors([SCOPE], change)
        return others[0] if others else None

    def remember(self, scopes: list[str], change: Callable[[Cursors], Written]) -> None:
        """Change cursors and renew the turn, in one transaction; refused when somebody else has taken it."""

        def both(found: Cursors) -> Written:
            holder = self._holder(found)
            if holder is None or holder.id != self._id:
                raise Stale(
                    "push_taken_over",
                    f"this push to {self._place[1]} stood still for {TURN_SECONDS:g} s or more, and another took over",
                    next_step="nothing: the other one pushes what the book says now",
                )
            return {**change(found), self._place: self._mine()}

        self._store.update_cursors([SCOPE, *scopes], both)

    def __exit__(self, *_exception: object) -> None:
        def change(found: Cursors) -> Written:
            holder = self._holder(found)
            return {self._place: None} if holder is not None and holder.id == self._id else {}

        with suppress(PlimsollError):  # it ends by itself, and must not hide what happened in it
            self._store.update_cursors([SCOPE], change)

    def _holder(self, found: Cursors) -> _Holder | None:
        text = found.get(self._place)
        return None if text is None else msgspec.json.decode(text, type=_Holder)

    def _mine(self) -> str:
        until = self._clock() + timedelta(seconds=TURN_SECONDS)
        holder = _Holder(self._id, socket.gethostname(), os.getpid(), self._actor, until)
        return msgspec.json.encode(holder).decode()


def _is_gone(holder: _Holder) -> bool:
    """Whether its process ended without giving the turn back; of another machine we can't know."""
    if holder.host != socket.gethostname():
        return False
    try:
        os.kill(holder.process, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it lives, as another user
        return False
    return False
