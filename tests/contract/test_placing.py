"""One suite for both databases: several processes' worth of submits at once never give a GPU twice."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.ledger.model import Draft
from plimsoll.rooms import open_keeper
from plimsoll.state.keeper import Keeper
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.service import take_turn
from tests.support.placing import submit, yard_in
from tests.support.yard import elastic, gang, spec

WRITERS = 4
EACH = 6


def used_by_node(keeper: Keeper) -> Counter[str]:
    used: Counter[str] = Counter()
    for workload in keeper.state().of(Workloads).workloads.values():
        for part in workload.parts:
            for block in part.blocks:
                assert sum(gpus for _, gpus in block.nodes) == block.gpus
                used.update(dict(block.nodes))
    return used


def test_writers_that_race_never_give_a_gpu_twice(dsn: str) -> None:
    yard_in(dsn)

    def write(writer: int) -> None:
        with open_keeper(dsn) as keeper:
            for number in range(EACH):
                wanted = spec(f"w{writer}-{number}", "red", gang(8))
                take_turn(keeper, partial(submit, wanted), actor="test")

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS)))
    with open_keeper(dsn) as keeper:
        used = used_by_node(keeper)
        assert len(keeper.state().of(Workloads).workloads) == WRITERS * EACH
        assert set(used.values()) == {8}
        assert len(used) == 24


def test_another_process_finds_what_was_placed_and_repairs_it(dsn: str) -> None:
    yard_in(dsn)
    with open_keeper(dsn) as first, open_keeper(dsn) as second:
        wanted = spec("r1", "red", gang(64, spare_nodes=1), elastic(2, 4))
        take_turn(first, partial(submit, wanted), actor="test")
        dead = sorted(used_by_node(second))[0]
        node = second.state().of(Fleet).nodes[dead]
        gone = msgspec.structs.replace(node, service=Service.QUARANTINED, reason="xid 79")
        second.commit([Draft(NodeRecorded(gone, {"service": "in_service"}))], actor="test", read_at=None)
        after = used_by_node(first)
        assert dead not in after
        assert sum(after.values()) >= 64 + 2 * 8
        assert used_by_node(second) == after
