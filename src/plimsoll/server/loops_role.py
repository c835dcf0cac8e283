"""One role's loops: a thread, a keeper and a lead of their own, and passes made one after the other.

Decides only whose turn it is and how long to wait. A loop that fails must never stop another, never spin, and never
hide why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

import msgspec

from plimsoll.errors import Fenced, PlimsollError
from plimsoll.ledger.store import Leadership
from plimsoll.server.logs import SILENT, Log, frames
from plimsoll.state.keeper import Keeper
from plimsoll.times import Clock

STANDBY_SECONDS = 2.0
"""How often the first role of a process that stands by asks for the lead. To ask is to connect, so the others ask more
seldom, and at once when one of them was given it: whoever led has gone."""
STANDBY_SECONDS_OTHERS = 6.0
BACKOFF_SECONDS_MAX = 60.0
"""The longest wait after passes that failed."""
AWAY_SECONDS_MAX = 10.0
"""The longest wait for a database that is away."""
FAILURES_COUNTED_MAX = 16
MESSAGE_MAX = 500
FINE = ("", "")


class Turn(NamedTuple):
    """What a pass may use. `now` is the ledger's time when it began."""

    keeper: Keeper
    lead: Leadership
    now: datetime


class Loop(NamedTuple):
    """A pass that is made every so often by whoever leads in its role.

    What `run` returns is an error of a part of the pass whose rest was done; one that it raises ended the pass, and the
    next one comes later.
    """

    name: str
    role: str
    every_seconds: float
    run: Callable[[Turn], PlimsollError | None]


class LoopStatus(msgspec.Struct, frozen=True):
    """How a loop is in this process. `leader` is who leads in its role, or did last. `lag_seconds` is how long a good
    pass has been overdue: 0 where another process leads."""

    name: str
    role: str
    is_leading: bool
    leader: str
    epoch: int
    every_seconds: float
    began_at: datetime | None
    ended_at: datetime | None
    seconds: float
    error_code: str
    error_message: str
    passes: int
    failures: int
    lag_seconds: float


class Course:
    """One loop: when it is due, and what its last pass came to. Only its own thread changes it."""

    def __init__(self, loop: Loop) -> None:
        assert loop.every_seconds > 0, loop
        self.loop = loop
        self.due = 0.0
        self.good_since = time.monotonic()
        """When the last good pass began, or when there was last no need of one here."""
        self.failures_in_a_row = 0
        self.failures = 0
        self.passes = 0
        self.began_at: datetime | None = None
        self.ended_at: datetime | None = None
        self.seconds = 0.0
        self.error = FINE

    def run(self, keeper: Keeper, lead: Leadership, clock: Clock) -> None:
        """Make one pass. Raises what the lane has to know of: that another leads, or what nobody has foreseen."""
        began, self.began_at = time.monotonic(), clock()
        try:
            trouble = self.loop.run(Turn(keeper, lead, keeper.ledger.clock()))
        except Fenced:
            raise
        except Exception as error:
            self._fail(error)
            if not isinstance(error, PlimsollError):
                raise
            return
        finally:
            ended = time.monotonic()
            self.ended_at, self.seconds, self.passes = clock(), ended - began, self.passes + 1
        self.failures_in_a_row, self.good_since = 0, began
        self.error = FINE if trouble is None else told(trouble)
        self.failures += trouble is not None
        # One that takes long rests for as long: no loop has a core to itself.
        self.due = max(began + self.loop.every_seconds, ended + self.seconds)

    def _fail(self, error: Exception) -> None:
        """Say why, and try again later: twice as long after each failure, up to the most."""
        self.failures_in_a_row = min(self.failures_in_a_row + 1, FAILURES_COUNTED_MAX)
        self.failures += 1
        self.error = told(error)
        every = self.loop.every_seconds
        self.due = time.monotonic() + max(every, min(BACKOFF_SECONDS_MAX, every * 2**self.failures_in_a_row))


class RoleThread:
    """The loops of one role."""

    def __init__(
        self,
        role: str,
        loops: Sequence[Loop],
        keeper_factory: Callable[[], Keeper],
        clock: Clock,
        name: str,
        stopping: threading.Event,
        *,
        standby_seconds: float = STANDBY_SECONDS,
        tell_others: Callable[[RoleThread], None] = lambda _one: None,
        log: Log = SILENT,
    ) -> None:
        self.role = role
        self.wake = threading.Event()
        self._standby_seconds, self._tell_others, self._log = standby_seconds, tell_others, log
        self._make, self._clock, self._name, self._stopping = keeper_factory, clock, name, stopping
        self._courses = [Course(loop) for loop in loops]
        self._keeper: Keeper | None = None
        self._lead: Leadership | None = None
        self._leader = (0, "")
        self._error = FINE
        """Why no loop of this role can do anything."""
        self.thread = threading.Thread(target=self._work, name=f"plimsoll {loops[0].name}", daemon=True)

    def status(self) -> list[LoopStatus]:
        now, (epoch, leader), is_leading = time.monotonic(), self._leader, self._lead is not None
        return [
            LoopStatus(
                each.loop.name,
                self.role,
                is_leading,
                leader,
                epoch,
                each.loop.every_seconds,
                each.began_at,
                each.ended_at,
                each.seconds,
                *(self._error if self._error != FINE else each.error),
                each.passes,
                each.failures,
                max(0.0, now - each.good_since - each.loop.every_seconds),
            )
            for each in self._courses
        ]

    def _work(self) -> None:
        failures = 0
        try:
            while not self._stopping.is_set():
                try:
                    seconds = self._step()
                    self._error, failures = FINE, 0
                except Exception as error:
                    # No database, or none that can be led: a state made anew, when there is one again.
                    if told(error) != self._error:
                        self._log("loops_wait", role=self.role, code=told(error)[0], message=told(error)[1])
                    self._error, failures = told(error), min(failures + 1, FAILURES_COUNTED_MAX)
                    seconds = min(AWAY_SECONDS_MAX, 2.0**failures / 2)
                    self._resign()
                    self._close()
                self.wake.wait(seconds)
                self.wake.clear()
        finally:
            self._resign()
            self._close()

    def _step(self) -> float:
        """Do what is due, and say how long to wait. Raises where there is no database."""
        if self._keeper is None:
            self._keeper = self._make()
        if self._lead is not None and not self._lead.is_held():
            self._resign()  # the connection that held it is gone: another may lead by now
        if self._lead is None:
            self._lead = self._take_lead(self._keeper)
        if self._lead is None:
            return self._standby_seconds
        for course in sorted(self._courses, key=lambda each: each.due):
            if self._stopping.is_set() or course.due > time.monotonic():
                break
            before = course.error
            try:
                course.run(self._keeper, self._lead, self._clock)
            except Fenced:
                self._resign()
                return self._standby_seconds
            except Exception as error:
                self._log("mistake", loop=course.loop.name, error=type(error).__name__, where=frames(error))
                self._close()  # whatever it left half done in memory is not gone on with
                return 0.0
            if course.error not in (before, FINE):
                self._log("loop_failed", loop=course.loop.name, code=course.error[0], message=course.error[1])
        return max(0.0, min(course.due for course in self._courses) - time.monotonic())

    def _take_lead(self, keeper: Keeper) -> Leadership | None:
        store = keeper.ledger.store
        lead = store.lead(self._name, self.role)
        try:
            self._leader = store.leader(self.role)
        except BaseException:
            if lead is not None:  # else it is held for ever by somebody who does not know of it
                lead.resign()
            raise
        now = time.monotonic()
        for course in self._courses:
            course.good_since = now
        if lead is None:
            keeper.state()  # so that little is left to catch up with when the turn comes
        else:
            self._tell_others(self)
        return lead

    def _resign(self) -> None:
        lead, self._lead = self._lead, None
        if lead is not None:
            with suppress(PlimsollError, OSError):
                lead.resign()

    def _close(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            with suppress(PlimsollError, OSError):
                keeper.close()


def told(error: Exception) -> tuple[str, str]:
    """An error's code and message."""
    if isinstance(error, PlimsollError):
        return error.code, error.message[:MESSAGE_MAX]
    return "unexpected", f"{type(error).__name__}: {error}"[:MESSAGE_MAX]
