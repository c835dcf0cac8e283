"""`kill -9` while guarantees move: the ledger is whole, no promise is above its line, and the next round completes."""

from __future__ import annotations

import time
from contextlib import suppress
from pickle import UnpicklingError

from plimsoll.ledger.model import Event
from plimsoll.ledger.verify import verify
from plimsoll.quota.fold import QuotaBook
from plimsoll.rooms import KINDS
from plimsoll.state.state import State
from tests.support.chance import new_chance
from tests.support.children import Child
from tests.support.harbour import TIGER, WEEK, Harbour, steer_for_ever
from tests.support.ledgers import events_of, wait_until_alone

KILLS = 5
WRITING_SECONDS = 0.3


def _said_before_the_end(child: Child) -> list[int]:
    """What a killed child had still said; the last word may be cut off."""
    said: list[int] = []
    with suppress(EOFError, OSError, UnpicklingError):
        while True:
            said.append(child.hear(0.0))
    return said


def _fold_and_check(events: list[Event]) -> State:
    """Every state that the ledger went through keeps its promises under the line in force, and within the book."""
    state = State(KINDS)
    book = state.of(QuotaBook)
    for event in events:
        state.apply(event)
        assert sum(book.guaranteed_in(TIGER).values()) <= book.line_of(TIGER), event
        assert all(gpus <= book.assigned_to(key) for key, gpus in book.guaranteed.items()), event
    return state


def test_a_round_or_an_apply_that_is_killed_leaves_a_ledger_that_the_next_one_goes_on_with(dsn: str) -> None:
    chance = new_chance()
    with Harbour(12, {"a": 8, "b": 8}, dsn=dsn) as harbour:
        harbour.mode()
        harbour.apply()
    for number in range(1, KILLS + 1):
        with Child(steer_for_ever, dsn, number) as child:
            assert child.hear() == "ready"
            acknowledged = [child.hear()]
            time.sleep(chance.uniform(0, WRITING_SECONDS))
            child.kill()
            acknowledged += _said_before_the_end(child)
        wait_until_alone(dsn)
        with Harbour(dsn=dsn) as harbour:
            ledger = harbour.keeper.ledger
            assert verify(ledger.store).is_whole
            assert ledger.head().revision >= max(acknowledged), "what was acknowledged is there"
            assert _fold_and_check(events_of(ledger)).dump() == harbour.state.dump()
            harbour.catch_up()
            harbour.wait(WEEK)
            harbour.control()
            head = harbour.state.revision
            harbour.control()
            assert harbour.state.revision == head, "the round was complete"
            hull = harbour.hull()
            assert hull.guaranteed <= harbour.book.line_of(TIGER)
