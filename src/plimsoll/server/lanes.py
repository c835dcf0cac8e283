"""Where commands are done: one after the other in a lane, each lane a thread with a state of its own.

The quick lane answers nearly everything. What takes longer goes down the slow lane, and plans and comparisons down the
long one, so that nobody waits for it who did not ask for it. Must never let a queue grow without bound: a full lane
says so.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from plimsoll.errors import Unavailable
from plimsoll.state.keeper import Keeper

T = TypeVar("T")
QUICK_WAITING_MAX = 256
SLOW_WAITING_MAX = 16
QUICK_SECONDS_MAX = 15.0
"""How long one waits for its turn: where a database hangs, those who wait behind are told so."""
SLOW_SECONDS_MAX = 300.0


class Lane:
    """A thread that does one thing after the other with its own keeper."""

    def __init__(
        self,
        name: str,
        open_keeper: Callable[[], Keeper],
        *,
        waiting_max: int,
        seconds_max: float = QUICK_SECONDS_MAX,
    ) -> None:
        self.name = name
        self._open = open_keeper
        self._seconds_max = seconds_max
        self._jobs: queue.Queue[_Job | None] = queue.Queue(waiting_max)
        self._keeper: Keeper | None = None
        self._thread = threading.Thread(target=self._work, name=f"lane-{name}", daemon=True)
        self._is_over = False
        self.busy_since: float | None = None
        self.done = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds_max: float = 10.0) -> None:
        """What waits is still done, for so long; nothing new is taken."""
        self._is_over = True
        with suppress(queue.Full):  # a full lane sees that it is over after what it has in hand
            self._jobs.put_nowait(None)
        self._thread.join(seconds_max)

    @property
    def waiting(self) -> int:
        return self._jobs.qsize()

    async def run(self, work: Callable[[Keeper], T]) -> T:
        """What the work returns or raises; refused where too many wait, or its turn does not come."""
        if self._is_over:
            raise self._stopping()
        job = _Job(work)
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            raise Unavailable(
                "busy",
                f"{self._jobs.maxsize} requests wait in the {self.name} lane already",
                next_step="try again in a few seconds",
                retry_after=2,
            ) from None
        timer = job.loop.call_later(self._seconds_max, self._not_its_turn, job)
        try:
            result: T = await job.future
            return result
        finally:
            timer.cancel()

    def _not_its_turn(self, job: _Job) -> None:
        """What was begun is waited for, since it may change something; what was not is never begun."""
        if job.take():
            job.fail(
                Unavailable(
                    "busy",
                    f"its turn in the {self.name} lane did not come within {self._seconds_max:g} s",
                    next_step="try again in a few seconds",
                    retry_after=5,
                )
            )

    def _stopping(self) -> Unavailable:
        return Unavailable("stopping", "the server is being stopped", next_step="try again", retry_after=2)

    def keeper(self) -> Keeper:
        """The lane's own; opened when it is first needed."""
        if self._keeper is None:
            self._keeper = self._open()
        return self._keeper

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.take():
                self.busy_since = time.monotonic()
                job.do(self.keeper)
                self.busy_since = None
                self.done += 1
            if self._is_over and self._jobs.empty():
                break
        while not self._jobs.empty():  # those who came while it was being stopped
            if (late := self._jobs.get()) is not None and late.take():
                _tell(late.loop, late.fail, self._stopping())
        if self._keeper is not None:
            self._keeper.close()


class _Job:
    """One thing to do, and who waits for it."""

    def __init__(self, work: Callable[[Keeper], Any]) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self._work = work
        self._turn = threading.Lock()

    def take(self) -> bool:
        """Whether it is to be done: nobody has done it or given it up, and whoever asked is still there."""
        return not self.future.cancelled() and self._turn.acquire(blocking=False)

    def do(self, keeper: Callable[[], Keeper]) -> None:
        try:
            result = self._work(keeper())
        except BaseException as error:
            # What would end more than this one request (an exit, the end of a generator) is a mistake like others.
            is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            _tell(self.loop, self.fail, error if is_plain else RuntimeError(repr(error)))
        else:
            _tell(self.loop, self._end, result)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def _end(self, result: Any) -> None:
        if not self.future.done():
            self.future.set_result(result)


def _tell(loop: asyncio.AbstractEventLoop, tell: Callable[[Any], None], what: Any) -> None:
    with suppress(RuntimeError):  # the loop has ended, and nobody listens
        loop.call_soon_threadsafe(tell, what)
