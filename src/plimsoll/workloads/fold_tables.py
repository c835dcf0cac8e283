"""The tables of who runs where, with what is derived from them: queues, reservations, and the floor."""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import IslandKey, PoolKey
from plimsoll.quota.model import QuotaKey
from plimsoll.state.state import State, Tables
from plimsoll.state.table import Journal, Orders, Table
from plimsoll.workloads.changes import WorkloadWaits
from plimsoll.workloads.fold_floor import Floor
from plimsoll.workloads.model import (
    Account,
    Asked,
    Booking,
    Interruption,
    Part,
    Past,
    Shape,
    TeamHold,
    WaitSpell,
    Workload,
)
from plimsoll.workloads.shape import shape_of, wants_more

WAITS_KEPT = 10_000
"""So many waits that are over are remembered for each pool, the newest."""
PAST_KEPT = 10_000
"""So many workloads that are over are remembered, the newest."""


class _Dump(msgspec.Struct):
    workloads: list[Workload]
    asked: dict[str, Asked]
    accounts: list[tuple[tuple[str, str], Account]]
    interruptions: dict[str, tuple[Interruption, ...]]
    bookings: dict[str, Booking]
    waits: dict[str, WorkloadWaits]
    holds: dict[str, TeamHold]
    past: dict[str, Past]
    queued_since: dict[str, int]
    submitted_last: dict[str, int]
    waited: list[tuple[PoolKey, list[WaitSpell]]]


class Workloads(Tables):
    """What runs, what waits and why, and what became of it."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.workloads: Table[str, Workload] = Table(journal)
        self.asked: Table[str, Asked] = Table(journal)
        self.accounts: Table[tuple[str, str], Account] = Table(journal)
        self.interruptions: Table[str, tuple[Interruption, ...]] = Table(journal)
        self.bookings: Table[str, Booking] = Table(journal)
        self.waits: Table[str, WorkloadWaits] = Table(journal)
        self.holds: Table[str, TeamHold] = Table(journal)
        self.past: Table[str, Past] = Table(journal)
        self.queued_since: Table[str, int] = Table(journal)
        self.submitted_last: Table[str, int] = Table(journal)
        self.waited: Orders[PoolKey, WaitSpell] = Orders(journal)
        # Derived: GPUs held per island and SKU.
        self.held: Table[IslandKey, int] = Table(journal)
        # Derived: who waits to start, by shape, and which elastic parts would like to have more, by pool.
        self.queue: Orders[Shape, tuple[int, int, int, str]] = Orders(journal)
        self.queued: Table[str, tuple[Shape, tuple[int, int, int, str]]] = Table(journal)
        self.growing: Orders[PoolKey, tuple[int, int, int, str, str]] = Orders(journal)
        self.growers: Table[str, tuple[tuple[PoolKey, tuple[int, int, int, str, str]], ...]] = Table(journal)
        # Derived: for whom an island of a pool is kept free, who must leave for whom, and the past by its end.
        self.reservations: Table[PoolKey, tuple[str, ...]] = Table(journal)
        self.leaving: Table[str, tuple[str, ...]] = Table(journal)
        self.team_holds: Table[QuotaKey, tuple[str, ...]] = Table(journal)
        self.past_order: Orders[str, tuple[int, str]] = Orders(journal)
        self._floor: Floor | None = None

    def floor(self, fleet: Fleet) -> Floor:
        """What is free, made when it is first asked for. Within a what-if it is undone with it."""
        if self._floor is None:
            if self.journal.is_open:
                self.journal.entries.append((self, None, None))
            was_open, self.journal.is_open = self.journal.is_open, False
            floor = Floor(self.journal, fleet)
            for workload in self.workloads.values():
                for part in workload.parts:
                    for block in part.blocks:
                        floor.hold(workload, name=part.name, block=block, sku=part.sku, sign=+1)
            for booking in self.bookings.values():
                floor.book(booking, +1)
            self.journal.is_open = was_open
            self._floor = floor
        return self._floor

    def put_back(self, _key: None, _before: None) -> None:
        """Undo the making of the floor: it was made of something that is no longer so."""
        self._floor = None

    def put_workload(self, workload: Workload) -> None:
        """Enter or replace."""
        before = self.workloads.get(workload.id)
        self.workloads.put(workload.id, workload)
        kept = {id(part) for part in workload.parts} if before is not None else set[int]()
        if before is not None:
            self._hold(before, [part for part in before.parts if id(part) not in kept], -1)
            kept &= {id(part) for part in before.parts}
        self._hold(workload, [part for part in workload.parts if id(part) not in kept], +1)

    def drop_workload(self, workload_id: str) -> None:
        before = self.workloads.get(workload_id)
        if before is not None:
            self._hold(before, before.parts, -1)
            self.workloads.drop(workload_id)

    def _hold(self, workload: Workload, parts: list[Part] | tuple[Part, ...], sign: int) -> None:
        for part in parts:
            for block in part.blocks:
                key = IslandKey(block.island, part.sku)
                if held := self.held.get(key, 0) + sign * block.gpus:
                    self.held.put(key, held)
                else:
                    self.held.drop(key)
                if self._floor is not None:
                    self._floor.hold(workload, name=part.name, block=block, sku=part.sku, sign=sign)

    def requeue(self, name: str, at: int) -> None:
        """Put a workload where it belongs in the queues, by what it has and what it wants, from a moment on."""
        asked, running = self.asked.get(name), self.workloads.get(name)
        now = None if asked is None or name in self.bookings else shape_of(asked, running)
        before = self.queued.get(name)
        if before != now:
            if before is None:
                self.queued_since.put(name, at)
            elif now is None:
                self._end_wait(name, before[0], at)
            if before is not None:
                self.queue.remove(*before)
                self.queued.drop(name)
            if now is not None:
                self.queue.add(*now)
                self.queued.put(name, now)
        if now is None and name in self.waits:
            self.drop_wait(name)
        wanting = wants_more(asked, running) if asked is not None and running is not None and now is None else ()
        was_wanting = self.growers.get(name, ())
        if wanting != was_wanting:
            for each in was_wanting:
                self.growing.remove(*each)
            for each in wanting:
                self.growing.add(*each)
            if wanting:
                self.growers.put(name, wanting)
            elif was_wanting:
                self.growers.drop(name)

    def _end_wait(self, name: str, shape: Shape, at: int) -> None:
        """A workload waits no longer: how long it did is remembered."""
        told = self.wait_of(name)
        begin = self.queued_since[name]
        self.queued_since.drop(name)
        self._remember_wait(name, shape, told, begin, at)

    def _remember_wait(self, name: str, shape: Shape, told: WorkloadWaits | None, begin: int, at: int) -> None:
        if told is None or at <= begin or not told.reason.cluster:
            return
        reason, pool = told.reason, PoolKey(told.reason.cluster, told.reason.sku)
        spell = WaitSpell(at, begin, name, shape.team, reason.gpus, reason.cause.value, told.is_guaranteed)
        self.waited.add(pool, spell)
        if len(self.waited.of(pool)) > WAITS_KEPT:
            self.waited.remove(pool, self.waited.of(pool)[0])

    def tell_wait(self, change: WorkloadWaits, at: int) -> None:
        """From a moment on a workload waits for this. What it waited without a right to it, or with, is told apart."""
        name = change.workload
        before, queued = self.waits.get(name), self.queued.get(name)
        if before is not None and queued is not None and before.is_guaranteed is not change.is_guaranteed:
            self._remember_wait(name, queued[0], before, self.queued_since[name], at)
            self.queued_since.put(name, at)
        self.put_wait(change)

    def next_submitted(self, at: int) -> int:
        """A moment of its own for each submit: of several at once the first in the file is the first."""
        now = max(at, self.submitted_last.get("", 0) + 1)
        self.submitted_last.put("", now)
        return now

    def put_wait(self, change: WorkloadWaits) -> None:
        self.drop_wait(change.workload)
        self.waits.put(change.workload, change)
        if change.holds_island:
            pool = PoolKey(change.reason.cluster, change.reason.sku)
            _put_name(self.reservations, pool, change.workload)

    def drop_wait(self, name: str) -> None:
        before = self.waits.get(name)
        if before is None:
            return
        self.waits.drop(name)
        if before.holds_island:
            pool = PoolKey(before.reason.cluster, before.reason.sku)
            _put_rest(self.reservations, pool, name)

    def wait_of(self, name: str) -> WorkloadWaits | None:
        """Why a workload waits: of many that are alike, what was told to the first of them holds for all."""
        queued = self.queued.get(name)
        return self.waits.get(name) or (self.waits.get(self.queue.of(queued[0])[0][-1]) if queued is not None else None)

    def put_booking(self, booking: Booking) -> None:
        self.drop_booking(booking.workload)
        self.bookings.put(booking.workload, booking)
        for victim in {each.workload for each in booking.victims}:
            _put_name(self.leaving, victim, booking.workload)
        if self._floor is not None:
            self._floor.book(booking, +1)

    def drop_booking(self, name: str) -> None:
        before = self.bookings.get(name)
        if before is None:
            return
        self.bookings.drop(name)
        for victim in {each.workload for each in before.victims}:
            _put_rest(self.leaving, victim, name)
        if self._floor is not None:
            self._floor.book(before, -1)

    def put_hold(self, hold: TeamHold) -> None:
        self.holds.put(hold.id, hold)
        _put_name(self.team_holds, hold.key, hold.id)

    def drop_hold(self, hold: TeamHold) -> None:
        self.holds.drop(hold.id)
        _put_rest(self.team_holds, hold.key, hold.id)

    def put_past(self, name: str, past: Past) -> None:
        self.drop_past(name)
        self.past.put(name, past)
        self.past_order.add("", (past.ended, name))
        if len(self.past) > PAST_KEPT:
            self.drop_past(self.past_order.of("")[0][1])

    def drop_past(self, name: str) -> None:
        if (before := self.past.get(name)) is not None:
            self.past.drop(name)
            self.past_order.remove("", (before.ended, name))

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(
            _Dump(
                [workload for _, workload in sorted(self.workloads.items())],
                dict(sorted(self.asked.items())),
                sorted(self.accounts.items()),
                dict(sorted(self.interruptions.items())),
                dict(sorted(self.bookings.items())),
                dict(sorted(self.waits.items())),
                dict(sorted(self.holds.items())),
                dict(sorted(self.past.items())),
                dict(sorted(self.queued_since.items())),
                dict(self.submitted_last),
                [(pool, list(self.waited.of(pool))) for pool in sorted(self.waited.listed())],
            )
        )

    def load(self, body: bytes) -> None:
        dump = msgspec.msgpack.decode(body, type=_Dump)
        for workload in dump.workloads:
            self.put_workload(workload)
        for name in ("asked", "interruptions"):
            for key, value in getattr(dump, name).items():
                getattr(self, name).put(key, value)
        for who, account in dump.accounts:
            self.accounts.put(who, account)
        for booking in dump.bookings.values():
            self.put_booking(booking)
        for hold in dump.holds.values():
            self.put_hold(hold)
        for name, past in dump.past.items():
            self.put_past(name, past)
        for wait in dump.waits.values():
            self.put_wait(wait)
        for name in self.asked:
            self.requeue(name, dump.queued_since.get(name, 0))
        for name, at in dump.submitted_last.items():
            self.submitted_last.put(name, at)
        for pool, spells in dump.waited:
            for spell in spells:
                self.waited.add(pool, spell)


def floor_of(state: State) -> Floor:
    """What is free now."""
    return state.of(Workloads).floor(state.of(Fleet))


def _put_name(table: Table[Any, tuple[str, ...]], key: Any, name: str) -> None:
    """One of several names. Their order follows from the names alone: a state that was loaded has the same."""
    names = table.get(key, ())
    if name not in names:
        table.put(key, tuple(sorted((*names, name))))


def _put_rest(table: Table[Any, tuple[str, ...]], key: Any, gone: str) -> None:
    """Take one of several names out."""
    left = tuple(each for each in table.get(key, ()) if each != gone)
    if left:
        table.put(key, left)
    elif key in table:
        table.drop(key)
