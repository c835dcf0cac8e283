"""Replays a trace on a virtual clock: every submit, end, failure and return takes the real decisions.

The clock goes from event to event. What was decided is read from the drafts of the turn, and tells when a job will end.
It changes the state only by folding what the decisions say, and never looks at a clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush

import msgspec

from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.model import Phase, PoolKey, Service
from plimsoll.health.model import to_microseconds
from plimsoll.quota.model import Kind, Tier
from plimsoll.simulate.failures import Failures
from plimsoll.simulate.measures import FRAGMENTED, WAITING, Counts, Gangs, Meter, Promises
from plimsoll.simulate.model import DAY_US, MINUTE_US, Cast, Planned, Settings
from plimsoll.state.state import State
from plimsoll.times import format_time
from plimsoll.workloads.bookings import begin_bookings
from plimsoll.workloads.changes import (
    WorkloadBooked,
    WorkloadEnded,
    WorkloadPlaced,
    WorkloadSubmitted,
    WorkloadWaits,
)
from plimsoll.workloads.growth import grow_elastic
from plimsoll.workloads.model import Because
from plimsoll.workloads.queue import start_waiting, try_start
from plimsoll.workloads.reasons import Cause
from plimsoll.workloads.repair import repair_all
from plimsoll.workloads.turn import Turn

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RETURN, _END, _FAIL, _DUE = 0, 1, 2, 3
"""What happens at one moment happens in this order; submits come last."""
TELL_JOBS = 500
LATE_SPANS, LATE_US = 4, 90 * DAY_US
"""The replay ends so many times the longest job, and so long, after the last submit, whatever still runs."""


class Run:
    """A job while it waits or runs."""

    __slots__ = (
        "base", "gpus", "is_elastic", "is_started", "left", "planned", "pool", "restart", "since", "stopped", "version",
    )  # fmt: skip

    def __init__(self, planned: Planned) -> None:
        self.planned = planned
        self.left = planned.run_us
        """What is still to be run with all its GPUs, from the last checkpoint."""
        self.gpus = self.since = self.base = self.restart = self.stopped = self.version = 0
        self.is_started = False
        self.is_elastic = planned.spec.parts[0].kind is Kind.ELASTIC
        self.pool: PoolKey | None = None


class Replay:
    """One replay of a cast on a state of its own."""

    def __init__(
        self, state: State, cast: Cast, settings: Settings, *, tell: Callable[[int], None] = lambda _done: None
    ) -> None:
        self._state, self._cast, self._settings, self._tell = state, cast, settings, tell
        self._grace = settings.grace
        self._checkpoint_us = round(settings.checkpoint_minutes * MINUTE_US)
        self._restart_us = round(settings.restart_minutes * MINUTE_US)
        self._heap: list[tuple[int, int, int, str, int]] = []
        self._count = 0
        self._jobs: dict[str, Run] = {}
        self._out: set[str] = set()
        self._touched: dict[PoolKey, None] = {}
        self.counts, self.gangs = Counts(), Gangs()
        self.waits: dict[tuple[int, Tier], list[float]] = {}
        self.promises = Promises(settings.grace // timedelta(microseconds=1))
        first, last = cast.planned[0].at, cast.planned[-1].at
        self.turn = Turn(state, _EPOCH + timedelta(microseconds=first))
        fleet = self.turn.fleet
        pools = {pool for pool in fleet.pools if fleet.clusters[pool.cluster].phase is Phase.PRODUCTION}
        self._skus = sorted({pool.sku for pool in pools})
        works = sum(fleet.pools[pool].gpus_in_service for pool in pools)
        island = max(
            count.gpus_in_service
            for key, count in fleet.islands.items()
            if PoolKey(fleet.island_cluster[key.island], key.sku) in pools
        )
        self.meter = Meter(first, last, works=works, block=self._largest(), island=island)
        nodes = sorted(
            node.id
            for node in fleet.nodes.values()
            if node.service is Service.IN_SERVICE and fleet.clusters[node.cluster].phase is Phase.PRODUCTION
        )
        self._failures = Failures(
            nodes,
            per_1000_node_days=settings.failures,
            repair_hours=settings.repair_hours,
            seed=settings.seed,
        )
        self.now = self.begin = first
        longest = max(planned.run_us for planned in cast.planned)
        self._latest = last + LATE_SPANS * longest + LATE_US

    # The clock.

    def run(self) -> None:
        """Until all jobs are over, or nothing that is to come could let the rest of them run."""
        planned, place, count = self._cast.planned, 0, len(self._cast.planned)
        heap = self._heap
        if (at := self._failures.next_at(self.begin)) is not None:
            self._push(at, _FAIL)
        while place < count or (self._jobs and heap and not self._is_hopeless()):
            if heap and (place == count or heap[0][0] <= planned[place].at):
                self._advance(heap[0][0])
                self._happen()
                continue
            at = planned[place].at
            self._advance(at)
            while place < count and planned[place].at == at:
                self._submit(planned[place])
                place += 1
                if place % TELL_JOBS == 0:
                    self._tell(place)
            if self._touched:
                self._settle()
        self.promises.close(self.now)
        self.meter.advance(self.now)
        self._close()

    def _is_hopeless(self) -> bool:
        """Whether what waits waits for ever, as nothing runs and no node comes back; or it has taken too long, as with
        work that fails before each checkpoint.
        """
        if self._heap[0][0] > self._latest:
            return True
        return len(self._heap) == 1 and self._heap[0][1] == _FAIL and not self._out

    def _push(self, at: int, what: int, name: str = "", version: int = 0) -> None:
        self._count += 1
        heappush(self._heap, (at, what, self._count, name, version))

    def _advance(self, at: int) -> None:
        if at != self.now:
            self.meter.advance(at)
            self.now = at
            turn = self.turn
            turn.now = moment = _EPOCH + timedelta(microseconds=at)
            turn.at = format_time(moment)

    def _happen(self) -> None:
        """Everything of this moment but submits, and what follows from it."""
        heap, now = self._heap, self.now
        while heap and heap[0][0] == now:
            _, what, _, name, version = heappop(heap)
            if what == _END:
                run = self._jobs.get(name)
                if run is not None and run.version == version:
                    self._end(name, run)
            elif what == _RETURN:
                self._return(name)
            elif what == _FAIL:
                self._fail()
            else:
                booking = self.turn.work.bookings.get(name)
                if booking is not None:
                    self._touched[booking.pool] = None
        if self._touched:
            self._settle()

    def _settle(self) -> None:
        """Room came or went in these pools: bookings begin, what waits starts, what may grow grows."""
        turn, pools = self.turn, list(self._touched)
        work = turn.work
        if work.bookings:
            begin_bookings(turn)
        if work.queued:
            start_waiting(turn, grace=self._grace, pools=pools)
        if work.growers and grow_elastic(turn, grace=self._grace, pools=pools):
            start_waiting(turn, grace=self._grace, pools=pools)  # somebody had to leave, and may go elsewhere
        self._learn()
        self._touched.clear()  # whoever had to leave was tried again already

    # What happens.

    def _submit(self, planned: Planned) -> None:
        turn, spec = self.turn, planned.spec
        name = spec.name
        self._jobs[name] = Run(planned)
        self.counts.submits += 1
        turn.do(WorkloadSubmitted(spec))
        queued = turn.work.queued.get(name)
        # One of its shape that waits before it was tried when room last came: what it could not have, this can't.
        if queued is None or turn.work.queue.of(queued[0])[0][-1] == name:
            try_start(turn, name, grace=self._grace)
        self._learn()

    def _end(self, name: str, run: Run) -> None:
        self.turn.do(WorkloadEnded(name, "finished"))
        self._leave(run)
        self.counts.ends += 1
        self.promises.runs(name, self.now)
        del self._jobs[name]
        assert run.pool is not None, f"{name} ended and did not run"
        self._touched[run.pool] = None

    def _fail(self) -> None:
        """A node dies under what runs on it."""
        if (at := self._failures.next_at(self.now)) is not None:
            self._push(at, _FAIL)
        name = self._failures.node()
        if name in self._out:
            return
        self._out.add(name)
        self.counts.node_failures += 1
        self._push(self.now + self._failures.repair_us(), _RETURN, name)
        self._record(name, Service.QUARANTINED, "failed")
        repair_all(self.turn, grace=self._grace)
        self._learn()

    def _return(self, name: str) -> None:
        self._out.discard(name)
        self.counts.node_returns += 1
        self._record(name, Service.IN_SERVICE, "")

    def _record(self, name: str, service: Service, reason: str) -> None:
        turn = self.turn
        node = turn.fleet.nodes[name]
        after = msgspec.structs.replace(node, service=service, since=turn.now, reason=reason)
        turn.do(NodeRecorded(after, {"service": node.service}))
        self.meter.works += node.gpus if service is Service.IN_SERVICE else -node.gpus
        pool = PoolKey(node.cluster, node.sku)
        self._touched[pool] = None
        guaranteed = turn.book.guaranteed_in(pool)
        is_short = turn.fleet.pools[pool].gpus_in_service < sum(guaranteed.values())
        self.promises.shortfall(pool.stream, guaranteed, self.now, is_short=is_short)

    # What was decided.

    def _learn(self) -> None:
        """Read the drafts since the last look."""
        drafts = self.turn.drafts
        for draft in drafts:
            change = draft.change
            kind = type(change)
            if kind is WorkloadPlaced:
                self._placed(change)  # type: ignore[arg-type]
            elif kind is WorkloadWaits:
                self._waits(change)  # type: ignore[arg-type]
            elif kind is WorkloadBooked:
                booking = change.booking  # type: ignore[attr-defined]
                self.counts.bookings += 1
                self._push(to_microseconds(booking.due), _DUE, booking.workload)
        drafts.clear()
        self.meter.block = self._largest()

    def _largest(self) -> int:
        """The largest gang that would fit now without anybody leaving."""
        by_sku, largest = self.turn.floor.by_sku, 0
        for sku in self._skus:
            islands = by_sku.of(sku)
            if islands and islands[-1][0] > largest:
                largest = islands[-1][0]
        return largest

    def _waits(self, change: WorkloadWaits) -> None:
        run = self._jobs.get(change.workload)
        if run is not None:
            what = ""
            if change.is_guaranteed:
                what = FRAGMENTED if change.reason.cause is Cause.ISLAND_FRAGMENTED else WAITING
            self.promises.waits(change.workload, run.planned.spec.team, self.now, what)

    def _placed(self, change: WorkloadPlaced) -> None:
        run = self._jobs[change.workload]
        blocks = change.parts[0].blocks
        gpus = blocks[0].gpus if len(blocks) == 1 else sum(block.gpus for block in blocks)
        because, before = change.because, run.gpus
        if before:
            self._stand_down(run, because)
        self._tally(because, before, gpus)
        self.meter.held += gpus - before
        run.gpus = gpus
        run.version += 1
        if not gpus:
            run.stopped = self.now
            run.pool = None
            self._touched[PoolKey(change.cluster, change.sku)] = None
            return
        self._stand_up(change, run, is_resumed=not before)

    def _tally(self, because: Because, before: int, after: int) -> None:
        counts = self.counts
        if not before:
            counts.starts += 1
        elif because is Because.PREEMPTED:
            if after:
                counts.shrinks += 1
            else:
                counts.preemptions += 1
        elif because is Because.GROWN:
            counts.grows += 1
        elif because is Because.REPAIRED:
            counts.repairs += 1
        elif because is Because.MOVED:
            counts.moves += 1
        else:
            counts.losses += 1

    def _stand_up(self, change: WorkloadPlaced, run: Run, *, is_resumed: bool) -> None:
        """It runs from now on, and will end when what is left has been run."""
        now, planned = self.now, run.planned
        if is_resumed:
            if run.is_started:
                if not run.is_elastic:
                    self.gangs.down_us += now - run.stopped
                    run.restart = self._restart_us
            else:
                run.is_started = True
                key = planned.gpus, planned.spec.parts[0].tier
                self.waits.setdefault(key, []).append((now - planned.at) / 1e6)
            self.promises.runs(change.workload, now)
            run.pool = PoolKey(change.cluster, change.sku)
            run.base = now
        run.since = now
        if run.is_elastic:
            end = now - (-run.left * planned.gpus // run.gpus)
        else:
            end = run.base + run.restart + run.left
        self._push(max(now + 1, end), _END, change.workload, run.version)

    def _stand_down(self, run: Run, because: Because) -> None:
        """What it ran since the last look is counted; a gang that is interrupted keeps what its checkpoint holds."""
        now, gangs = self.now, self.gangs
        ran = now - run.since
        gangs.gpu_us += ran * run.gpus
        if run.is_elastic:
            run.left = max(0, run.left - ran * run.gpus // run.planned.gpus)
            return
        gangs.run_us += ran
        stretch = now - run.base
        if because.interrupts:
            lost = stretch % self._checkpoint_us if self._checkpoint_us else stretch
            saved = max(0, stretch - lost - run.restart)
            gangs.lost_us += lost
            restart = min(run.restart, stretch - lost)
            gangs.lost_gpu_us += (lost + restart) * run.gpus
            gangs.restart_us += restart
            run.left = max(0, run.left - saved)
            run.base, run.restart = now, self._restart_us

    def _close(self) -> None:
        """The replay is over: what still runs has run until now, and a gang that stands still has stood still."""
        for run in self._jobs.values():
            if run.gpus:
                ran = self.now - run.since
                self.gangs.gpu_us += ran * run.gpus
                self.gangs.run_us += 0 if run.is_elastic else ran
            elif run.is_started and not run.is_elastic:
                self.gangs.down_us += self.now - run.stopped

    def _leave(self, run: Run) -> None:
        ran = self.now - run.since
        self.gangs.gpu_us += ran * run.gpus
        if not run.is_elastic:
            self.gangs.run_us += ran
            self.gangs.restart_us += run.restart
            self.gangs.lost_gpu_us += run.restart * run.gpus
        self.meter.held -= run.gpus

    @property
    def unfinished(self) -> int:
        return len(self._jobs)
