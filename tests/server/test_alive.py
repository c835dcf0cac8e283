"""The demo's own life: the same for a seed and a clock, steady for hours, and nothing but the demo's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from plimsoll.errors import Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.fleet.sheet import MemorySheet
from plimsoll.health.acts import Acting, Decision, place_hold
from plimsoll.health.facts import Hold
from plimsoll.health.fold import Health
from plimsoll.health.service import act, observe, sweep_now
from plimsoll.ledger.store import Leadership
from plimsoll.rooms import SHEETS, open_keeper
from plimsoll.server.alive import SOURCE, Alive, carry
from plimsoll.server.loops_role import Turn
from plimsoll.simulate.happenings import (
    EVERY_SECONDS,
    JOBS_MAX,
    OUT_SHARE_WANTED,
    PREFIX,
    WAITING_MAX,
    Accepted,
    Ended,
    Happening,
    Repaired,
    Submitted,
    next_happenings,
)
from plimsoll.state.state import State
from plimsoll.workloads.fold_tables import Workloads
from tests.support.fleets import HEADERS, row
from tests.support.imports import IN_MEMORY

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
CLUSTERS, NODES = ("heron", "lynx", "moth"), 500
EVENTS_AN_HOUR_MAX = 3_000
SWEEP_EVERY = 10


class Pond:
    """A small fleet that says that it is the demo, and a clock that is moved."""

    def __init__(self, source: str = f"{SOURCE}1", out: int = 90) -> None:
        self.now = START
        self.keeper = open_keeper(IN_MEMORY, create=True, clock=lambda: self.now)
        names = [f"{cluster}-{number:03d}" for cluster in CLUSTERS for number in range(NODES)]
        rows = {
            "clusters": [row("clusters", cluster=cluster) for cluster in CLUSTERS],
            "nodes": [
                row(
                    "nodes",
                    node=name,
                    cluster=name.partition("-")[0],
                    island=f"{name[:-2]}",
                    service="repair" if place % (len(names) // out) == 0 else "in_service",
                    since="2026-01-04T09:00:00Z",
                )
                for place, name in enumerate(names)
            ],
            "quotas": [row("quotas", cluster=cluster, gpus="4000") for cluster in CLUSTERS],
        }
        sheets = {
            sheet: MemorySheet(
                sheet, [HEADERS[sheet], *([cells[column] for column in HEADERS[sheet]] for cells in some)]
            )
            for sheet, some in rows.items()
        }
        import_fleet(self.keeper, Source(source, "digest", sheets), SHEETS, actor="tester")

    @property
    def state(self) -> State:
        return self.keeper.state()

    def next(self, seed: int = 1) -> list[Happening]:
        return next_happenings(self.state, self.now, seed)

    def live(self, span: timedelta, seed: int = 1, also: Callable[[], None] = lambda: None) -> Counter[str]:
        """Let time go by; what happened, and what did not."""
        told: Counter[str] = Counter()
        for step in range(int(span.total_seconds() / EVERY_SECONDS)):
            self.now += timedelta(seconds=EVERY_SECONDS)
            happenings = self.next(seed)
            also()
            for happening in happenings:
                did = carry(self.keeper, happening)
                told[type(happening).__name__ if did else "refused"] += 1
            if step % SWEEP_EVERY == 0:
                sweep_now(self.keeper, actor="plimsoll")
        return told

    @property
    def out_share(self) -> float:
        nodes = self.state.of(Fleet).nodes
        return sum(node.service is not Service.IN_SERVICE for node in nodes.values()) / len(nodes)

    @property
    def jobs(self) -> list[str]:
        return [name for name in self.state.of(Workloads).asked if name.startswith(PREFIX)]


def test_hours_go_by_and_the_fleet_stays_as_it_is() -> None:
    pond = Pond()
    told = pond.live(timedelta(minutes=30))
    begun = pond.state.revision
    told += pond.live(timedelta(minutes=30))
    assert pond.state.revision - begun < EVENTS_AN_HOUR_MAX / 2
    assert abs(pond.out_share - OUT_SHARE_WANTED) < 0.02
    assert 10 < len(pond.jobs) <= JOBS_MAX
    assert len(pond.state.of(Workloads).queued) <= WAITING_MAX + 5, "those that a failure stopped wait as well"
    assert not pond.state.of(Health).breakers
    for kind in ("Failed", "Repaired", "Accepted", "Submitted", "Ended"):
        assert told[kind] >= 5, (kind, told)
    assert sum(told.values()) > 1_000, "nearly every three seconds something moves"
    assert told["refused"] < 10


def test_the_same_seed_and_clock_make_the_same_life_and_another_seed_another() -> None:
    def life(seed: int) -> list[str]:
        pond = Pond()
        pond.live(timedelta(minutes=3), seed)
        return [f"{event.kind} {event.subject} {event.payload}" for event in pond.keeper.ledger.store.events()]

    assert life(1) == life(1)
    assert life(1) != life(2)


def test_what_people_hold_is_left_alone() -> None:
    pond = Pond()
    held = sorted(node.id for node in pond.state.of(Fleet).nodes.values() if node.service is Service.REPAIR)
    hold = Hold("ours", "alice", Service.MAINTENANCE, "new cables", START)

    def decide(state: State, acting: Acting) -> Decision:
        return place_hold(state, [state.of(Fleet).nodes[name] for name in held], hold, acting)

    act(pond.keeper, decide, actor="alice", reason="new cables", names=held)
    told = pond.live(timedelta(minutes=15))
    assert told["Repaired"] + told["Accepted"] == 0, "there is nothing that the demo may repair"
    assert told["Failed"] > 0
    assert told["refused"] == 0
    assert all([hold.id for hold in pond.state.of(Health).holds[name]] == ["ours"] for name in held)
    assert {pond.state.of(Fleet).nodes[name].service for name in held} <= {Service.REPAIR, Service.MAINTENANCE}


def test_somebody_who_is_quicker_is_no_trouble() -> None:
    pond = Pond()
    pond.live(timedelta(minutes=10))
    node = next(node.id for node in pond.state.of(Fleet).nodes.values() if node.service is Service.IN_SERVICE)
    gone: list[Happening] = [
        Repaired(node, "too late"),
        Accepted(node, "accepted"),
        Ended(f"{PREFIX}gone", "finished", "keen-sail"),
    ]
    before = pond.state.revision
    assert [carry(pond.keeper, happening) for happening in gone] == [False] * 3
    assert pond.state.revision == before

    def people() -> None:
        """Whatever is about to happen, somebody has just changed the same nodes and queues."""
        observe(pond.keeper, (), feed="other", actor="other")
        for happening in pond.next():
            if isinstance(happening, Submitted | Ended):
                carry(pond.keeper, happening)

    told = pond.live(timedelta(minutes=5), also=people)
    assert told["refused"] > 10
    assert len(pond.jobs) <= JOBS_MAX


def test_a_database_that_is_not_the_demo_is_never_touched() -> None:
    pond = Pond("my own fleet")
    before = pond.state.revision

    class Lead(Leadership):
        epoch = 1

        def is_held(self) -> bool:
            return True

        def resign(self) -> None: ...

    alive = Alive()
    for _ in range(3):
        pond.now += timedelta(minutes=5)
        with pytest.raises(Refused) as caught:
            alive.run(Turn(pond.keeper, Lead(), pond.now))
        assert caught.value.code == "not_the_demo"
    assert pond.state.revision == before
