"""Keeps the time of batches free in their schedulers, so that nothing is planned into it; and lets go of it again.

A service: it talks to schedulers. That a time will be kept is on the ledger before the scheduler is told, and that it
is kept after: so what was begun is finished, and what a new plan moved or dropped is found and taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from plimsoll.campaigns.changes import BatchBooked
from plimsoll.campaigns.marks.model import Marker, NoMarks
from plimsoll.campaigns.model import Batch
from plimsoll.campaigns.run.outside import Did
from plimsoll.campaigns.run.progress import Phase, Run, Step
from plimsoll.errors import Fenced, PlimsollError
from plimsoll.ledger.model import Draft, Event
from plimsoll.state.state import State
from plimsoll.times import show_time

LATE = timedelta(minutes=10)
"""A batch that has not begun so long after its time may not begin at all: its nodes are let go of."""
Commit = Callable[[Callable[[State, Run], Sequence[Draft]]], list[Event]]


def book_ahead(run: Run, marker_of: Callable[[str], Marker], commit: Commit, *, now: datetime) -> list[Did]:
    """Bring what is kept free in schedulers to what the plan in force says. `marker_of`: that of a batch's unit."""
    notice = timedelta(minutes=run.campaign.running.notice_minutes)
    is_going_on = run.phase in (Phase.RUNNING, Phase.PAUSED)
    wanted = {
        batch.id: batch
        for batch in run.plan.batches
        if is_going_on and run.step_of(batch.id) is Step.PLANNED and batch.start - notice <= now < batch.start + LATE
    }
    did = []
    for name in sorted({*wanted, *run.booked}):
        batch = wanted.get(name)
        if run.step_of(name).is_under_way or (batch is not None and run.booked.get(name) == (batch.start, True)):
            continue  # it has begun, and ends with its marks; or all is as it should be
        try:
            marker = marker_of(name.rpartition("#")[0])
            if isinstance(marker, NoMarks) and name not in run.booked:
                continue
            did.append(_book(run, name, batch, marker, commit))
        except Fenced:
            raise
        except PlimsollError as error:
            did.append(Did(name, "book", error.message, is_failed=True))
    return did


def _book(run: Run, name: str, batch: Batch | None, marker: Marker, commit: Commit) -> Did:
    nodes = run.names.get(name, ())

    def say(start: datetime | None, *, is_done: bool) -> None:
        commit(lambda _state, _run: [Draft(BatchBooked(run.name, name, start, is_done), "its time is kept free")])

    if batch is None:
        marker.unmark(name, ())  # a booking goes as a whole, and closes no node
        say(None, is_done=True)
        return Did(name, "book", "its time is not kept free any more")
    if run.booked.get(name) != (batch.start, False):  # else it was said, and cut short before it was done
        say(batch.start, is_done=False)
    marker.book(name, nodes, starts=batch.start, ends=batch.end)
    say(batch.start, is_done=True)
    return Did(name, "book", f"{len(nodes)} nodes from {show_time(batch.start)}")
