"""`kill -9` while signals come in: what was acknowledged has been done; what was half done, the next sweep does."""

from __future__ import annotations

import time
from contextlib import suppress
from pickle import UnpicklingError

from plimsoll.health.service import load_memories
from plimsoll.ledger.verify import verify
from plimsoll.rooms import KINDS
from tests.support.chance import new_chance
from tests.support.children import Child
from tests.support.health import Ward, observe_one_by_one, signal
from tests.support.imports import NOW
from tests.support.ledgers import events_of, fold_of, wait_until_alone

NODES = 200
KILLS = 6
WRITING_SECONDS = 0.15


def _said_before_the_end(child: Child) -> set[str]:
    """What a killed child had still said; the last word may be cut off."""
    said: set[str] = set()
    with suppress(EOFError, OSError, UnpicklingError):
        while True:
            said.add(child.hear(0.0))
    return said - {"done"}


def test_a_killed_feed_leaves_nothing_that_the_next_sweep_does_not_make_up_for(dsn: str) -> None:
    chance = new_chance()
    with Ward(NODES, dsn=dsn):
        pass
    names = [f"n{number}" for number in range(1, NODES + 1)]
    chance.shuffle(names)
    acknowledged: set[str] = set()
    for number in range(KILLS):
        signals = [signal(name) for name in names[number * NODES // KILLS :]]
        with Child(observe_one_by_one, dsn, signals, NOW) as child:
            assert child.hear() == "ready"
            acknowledged.add(child.hear())
            time.sleep(chance.uniform(0, WRITING_SECONDS))
            child.kill()
            acknowledged |= _said_before_the_end(child)
        wait_until_alone(dsn)
        with Ward(dsn=dsn) as ward:
            out = {name for name in names if ward.service(name) == "quarantined"}
            assert acknowledged <= out, "what was acknowledged is done"
            told = set(load_memories(ward.keeper.ledger.store))
            assert out <= told, "nothing is done that nobody said"
            ward.sweep()
            assert {name for name in names if ward.service(name) == "quarantined"} == told
            assert verify(ward.keeper.ledger.store).is_whole
            assert fold_of(events_of(ward.keeper.ledger), KINDS).dump() == ward.state.dump()
