"""A turn of decisions: each step sees what the steps before it decided, and nothing is committed yet.

Whoever takes a turn on a state that others see does it inside `State.what_if`; the simulator takes it on its own.
"""

from __future__ import annotations

from datetime import datetime

from plimsoll.fleet.fold import Fleet
from plimsoll.ledger.model import Change, Draft
from plimsoll.quota.fold import QuotaBook
from plimsoll.state.state import State
from plimsoll.times import format_time
from plimsoll.workloads.fold_tables import Workloads, floor_of


class Turn:
    """The state as it is after the drafts so far."""

    __slots__ = ("at", "book", "drafts", "fleet", "floor", "now", "state", "work")

    def __init__(self, state: State, now: datetime) -> None:
        self.state, self.now, self.at = state, now, format_time(now)
        self.drafts: list[Draft] = []
        self.fleet, self.book, self.work = state.of(Fleet), state.of(QuotaBook), state.of(Workloads)
        self.floor = floor_of(state)

    def do(self, change: Change, reason: str = "") -> None:
        """Decide one more thing."""
        draft = Draft(change, reason)
        self.state.assume((draft,), recorded_at=self.at)
        self.drafts.append(draft)
