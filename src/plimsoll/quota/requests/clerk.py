"""Carries out what is decided about requests, transfers, flex and names; decides nothing itself.

Before every decision time does its work: grants that are over end in the same commit, so that nobody decides on what is
no longer there. A commit names the streams of the teams and the pool it read; when one of them moved, it decides again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import TypeVar

from plimsoll.ledger.model import Draft, Event
from plimsoll.quota.changes import request_stream, team_stream
from plimsoll.quota.requests.desk import Due, settle
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import format_time

POLICY_STREAM = "policy/quota"

D = TypeVar("D")
Decide = Callable[[State, datetime], tuple[D, Sequence[Draft]]]


def carry_out(
    keeper: Keeper,
    decide: Decide[D],
    *,
    actor: str,
    reason: str = "",
    teams: Collection[str] = (),
    requests: Collection[str] = (),
    reads: Collection[str] = (),
    is_dry_run: bool = False,
    epoch: int | None = None,
) -> tuple[D, Due, list[Event]]:
    """Settle what is due, decide, and commit both at once; again when somebody came in between."""
    streams = [*map(team_stream, teams), *map(request_stream, requests), *reads, POLICY_STREAM]

    def both(state: State) -> tuple[tuple[D, Due], list[Draft]]:
        now = keeper.ledger.clock()
        due, first = settle(state, now=now)
        if not first:
            decision, drafts = decide(state, now)
            return (decision, due), list(drafts)
        with state.what_if():
            state.assume(first, recorded_at=format_time(now))
            decision, drafts = decide(state, now)
        return (decision, due), [*first, *drafts]

    if is_dry_run:
        # A state of its own: what is tried out here must not be seen by anybody else.
        (decision, due), _ = both(keeper.state().fork())
        return decision, due, []
    (decision, due), events = keeper.decide_and_commit(both, actor=actor, reason=reason, reads=streams, epoch=epoch)
    return decision, due, events


def settle_now(
    keeper: Keeper, *, actor: str, is_dry_run: bool = False, epoch: int | None = None
) -> tuple[Due, list[Event]]:
    """Let time do its work: what the controller calls in every round."""
    _, due, events = carry_out(keeper, lambda _state, _now: (None, []), actor=actor, is_dry_run=is_dry_run, epoch=epoch)
    return due, events
