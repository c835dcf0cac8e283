"""Where commands are done: one after the other in a lane, each lane a thread with a state of its own.

The quick lane answers nearly everything. What takes seconds (plans, comparisons, the past) goes down the slow lane, so
that nobody waits for it who did not ask for it. Must never let a queue grow without bound: a full lane says so.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from plimsoll.errors import PlimsollError, Unavailable
from plimsoll.state.keeper import Keeper

T = TypeVar("T")
QUICK_WAITING_MAX = 256
SLOW_WAITING_MAX = 16


class Lane:
    """A thread that does one thing after the other with its own keeper."""

    def __init__(self, name: str, open_keeper: Callable[[], Keeper], *, waiting_max: int) -> None:
        self.name = name
        self._open = open_keeper
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(waiting_max)
        self._keeper: Keeper | None = None
        self._thread = threading.Thread(target=self._work, name=f"lane-{name}", daemon=True)
        self._is_over = False
        self.busy_since: float | None = None
        self.done = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds_max: float = 10.0) -> None:
        """What waits is still done; nothing new is taken."""
        self._is_over = True
        with suppress(queue.Full):  # a full lane sees that it is over after what it has in hand
            self._jobs.put_nowait(None)
        self._thread.join(seconds_max)

    @property
    def waiting(self) -> int:
        return self._jobs.qsize()

    async def run(self, work: Callable[[Keeper], T]) -> T:
        """What the work returns or raises; refused where too many wait."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            if future.cancelled():  # whoever asked has gone
                return
            try:
                result = work(self.keeper())
            except BaseException as error:
                _tell(loop, future.set_exception, future, error)
            else:
                _tell(loop, future.set_result, future, result)

        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            raise Unavailable(
                "busy",
                f"{self._jobs.maxsize} requests wait in the {self.name} lane already",
                next_step="try again in a few seconds",
                retry_after=2,
            ) from None
        return await future

    def keeper(self) -> Keeper:
        """The lane's own; opened when it is first needed."""
        if self._keeper is None:
            self._keeper = self._open()
        return self._keeper

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self.busy_since = time.monotonic()
            job()
            self.busy_since = None
            self.done += 1
            if self._is_over and self._jobs.empty():
                break
        if self._keeper is not None:
            self._keeper.close()


def _tell(loop: asyncio.AbstractEventLoop, tell: Callable[[Any], None], future: asyncio.Future[Any], what: Any) -> None:
    def deliver() -> None:
        if not future.done():
            tell(what)

    try:
        loop.call_soon_threadsafe(deliver)
    except RuntimeError:  # the loop has ended, and nobody listens
        return


def is_ours(error: BaseException) -> bool:
    """Whether an error is an answer, and not a mistake of ours."""
    return isinstance(error, PlimsollError)
