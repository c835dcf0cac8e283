"""The controllers of a process that serves: each pass that a command makes once is made here again and again.

Loops of one role share a thread, a keeper and a lead; of several processes on one database one leads in each role, and
the others stand by. Decides nothing about the fleet: what a pass does is its capability's.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence

from plimsoll.memory import learn_types
from plimsoll.server.logs import SILENT, Log
from plimsoll.server.loops_passes import PassSettings, loops_of
from plimsoll.server.loops_role import STANDBY_SECONDS, STANDBY_SECONDS_OTHERS, Loop, LoopStatus, RoleThread
from plimsoll.state.keeper import Keeper
from plimsoll.times import Clock, utc_now

STOP_SECONDS_MAX = 60.0
"""How long the end waits for passes in hand: a call outside may take its time."""


class Controllers:
    """All loops of this process. Each role opens a keeper of its own by `keeper_factory`."""

    def __init__(
        self,
        keeper_factory: Callable[[], Keeper],
        settings: PassSettings,
        clock: Clock = utc_now,
        *,
        loops: Sequence[Loop] | None = None,
        log: Log = SILENT,
    ) -> None:
        listed = loops_of(settings) if loops is None else loops
        self._order = [loop.name for loop in listed]
        assert len(set(self._order)) == len(self._order), self._order
        self.name = f"serve {socket.gethostname()} {os.getpid()}"
        self._stopping = threading.Event()
        by_role: dict[str, list[Loop]] = {}
        for loop in listed:
            by_role.setdefault(loop.role, []).append(loop)
        self._lanes = [
            RoleThread(
                role,
                mine,
                keeper_factory,
                clock,
                self.name,
                self._stopping,
                standby_seconds=STANDBY_SECONDS_OTHERS if place else STANDBY_SECONDS,
                tell_others=self._wake_others,
                log=log,
            )
            for place, (role, mine) in enumerate(by_role.items())
        ]

    def _wake_others(self, one: RoleThread) -> None:
        for lane in self._lanes:
            if lane is not one:
                lane.wake.set()

    def start(self) -> None:
        """Begin; returns at once."""
        assert not self._stopping.is_set(), "controllers that were stopped do not start again"
        learn_types()
        for lane in self._lanes:
            lane.thread.start()

    def stop(self, seconds_max: float = STOP_SECONDS_MAX) -> bool:
        """Begin no pass any more, wait for those in hand, and resign the leads; says whether all came to their end."""
        self._stopping.set()
        for lane in self._lanes:
            lane.wake.set()
        deadline = time.monotonic() + seconds_max
        for lane in self._lanes:
            if lane.thread.ident is not None:
                lane.thread.join(max(0.0, deadline - time.monotonic()))
        return not any(lane.thread.is_alive() for lane in self._lanes)

    def status(self) -> list[LoopStatus]:
        """How each loop is now, in the order in which they were given."""
        found = {each.name: each for lane in self._lanes for each in lane.status()}
        return [found[name] for name in self._order]

    def __enter__(self) -> Controllers:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()
