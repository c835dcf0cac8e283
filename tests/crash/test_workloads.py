"""`kill -9` while work is placed: the ledger is whole, no GPU is given twice, and the same submits go on."""

from __future__ import annotations

import time
from collections import Counter

from plimsoll.ledger.verify import verify
from plimsoll.rooms import KINDS, open_keeper
from plimsoll.state.state import State
from plimsoll.workloads.fold_tables import Workloads
from tests.support.chance import new_chance
from tests.support.children import Child
from tests.support.ledgers import events_of, wait_until_alone
from tests.support.placing import place_for_ever, yard_in

KILLS = 4
WRITING_SECONDS = 0.4


def _check_no_gpu_twice(state: State) -> None:
    used: Counter[str] = Counter()
    for workload in state.of(Workloads).workloads.values():
        for part in workload.parts:
            for block in part.blocks:
                used.update(dict(block.nodes))
    assert max(used.values(), default=0) <= 8, used


def test_submits_that_are_killed_leave_a_ledger_that_the_same_submits_go_on_with(dsn: str) -> None:
    chance = new_chance()
    yard_in(dsn)
    for _ in range(KILLS):
        with Child(place_for_ever, dsn) as child:
            assert child.hear() == "ready"
            acknowledged = child.hear()
            time.sleep(chance.uniform(0, WRITING_SECONDS))
            child.kill()
        wait_until_alone(dsn)
        with open_keeper(dsn) as keeper:
            assert verify(keeper.ledger.store).is_whole
            assert keeper.ledger.head().revision >= acknowledged, "what was acknowledged is there"
            state = State(KINDS)
            for event in events_of(keeper.ledger):
                state.apply(event)
                _check_no_gpu_twice(state)
            assert state.dump() == keeper.state().dump()
