"""Streams last for minutes, and rights may end sooner: whoever listens is looked up again and again.

At once where the ledger says that access changed, whoever did that and wherever, and where somebody signs out here;
every few seconds for what no event tells: a session that was ended at another server, a token whose time is over.
Whoever is not who they were is let go of; they come back by themselves and are asked for their rights like anybody.
Must never let go of all for a change of one: thousands who come back at once would wait for each other.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from plimsoll.errors import PlimsollError
from plimsoll.server.changes import Listener, Watcher
from plimsoll.server.guard import Guard, Pass
from plimsoll.server.lanes import Lane
from plimsoll.server.logs import Log, frames

RECHECK_SECONDS = 5.0
"""The longest that somebody hears of changes after a right ended of which no event tells."""
PAUSE_SECONDS = 0.5
"""Between two rounds: a thousand roles that are given one by one are not a thousand rounds."""
LOOKED_UP_AT_ONCE = 100
"""For so many a request may wait."""


class Recheck:
    """Rounds of all who listen, until it is cancelled."""

    def __init__(self, guard: Guard, watcher: Watcher, lane: Lane, log: Log) -> None:
        self._guard, self._watcher, self._lane, self._log = guard, watcher, lane, log

    async def run(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._guard.moved.wait(), RECHECK_SECONDS)
            self._guard.moved.clear()
            try:
                await self.go_round()
            except PlimsollError:  # the database is away, and so are its changes; or many wait: in the next round
                pass
            except Exception as error:  # a mistake in one round must not end all that would come
                self._log("mistake", error=type(error).__name__, where=frames(error))
            await asyncio.sleep(PAUSE_SECONDS)

    async def go_round(self) -> None:
        """Look up everybody who listens, once each, however many pages they have open."""
        listening: dict[Pass, list[Listener]] = {}
        for listener in self._watcher.listeners:
            if listener.shown is not None:
                listening.setdefault(listener.shown, []).append(listener)
        passes = list(listening)
        for begin in range(0, len(passes), LOOKED_UP_AT_ONCE):
            some = passes[begin : begin + LOOKED_UP_AT_ONCE]
            for each in await self._lane.run(lambda keeper, some=some: self._guard.lost(keeper, some)):  # type: ignore[misc]
                for listener in listening[each]:
                    listener.end()
