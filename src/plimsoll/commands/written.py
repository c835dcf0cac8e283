"""What commands that change something say besides: whether it was only tried, the revision, and how it would be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from plimsoll.ledger.model import Draft, Event
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import format_time

DRY_RUN = "dry run: nothing was kept"


def written(keeper: Keeper, events: Sequence[Event], *, is_dry_run: bool) -> dict[str, Any]:
    """For a document."""
    return {"dry_run": is_dry_run, "revision": events[-1].revision if events else keeper.state().revision}


def notes_after(notes: Iterable[str], *, is_dry_run: bool) -> list[str]:
    """What comes next; after a dry run only that it was one."""
    return [DRY_RUN] if is_dry_run else list(notes)


def state_after(keeper: Keeper, drafts: Iterable[Draft], *, is_dry_run: bool) -> State:
    """The state that a command tells of: as it is now, or as it would be."""
    state = keeper.state()
    if not is_dry_run:
        return state
    twin = state.fork()
    twin.assume(drafts, recorded_at=format_time(keeper.ledger.clock()))
    return twin
