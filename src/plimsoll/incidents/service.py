"""Incidents with effects: looks for trouble, records what follows, and what people say; decides nothing itself.

A pass may run anywhere and twice at once: what is written names the streams it was decided from, so one of two wins
and the other looks again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from plimsoll.errors import Stale
from plimsoll.health.service import feeds_heard
from plimsoll.incidents.decide import decide
from plimsoll.incidents.model import Did, Finder, Look
from plimsoll.incidents.owners import decide_notices
from plimsoll.ledger.model import Draft, Event
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State

D = TypeVar("D")
STREAMS = ("incident/*",)
ATTEMPTS = 3
"""Another pass comes soon."""


def run_pass(
    keeper: Keeper, finders: Sequence[Finder], now: datetime, actor: str, epoch: int | None = None
) -> list[Did]:
    """Open, note and close incidents by what is wrong now, and tell owners what happened to their work.

    Where another process did the same meanwhile, it has done it: nothing is left to do.
    """
    heard = feeds_heard(keeper.ledger.store)

    def look(state: State) -> tuple[list[Did], list[Draft]]:
        found = [trouble for finder in finders for trouble in finder(Look(state, now, heard))]
        did, drafts = decide(state, found, now)
        told, notices = decide_notices(state, now)
        return [*did, *told], [*drafts, *notices]

    try:
        return keeper.decide_and_commit(
            look, actor=actor, reason="found by looking", reads=STREAMS, epoch=epoch, attempts=ATTEMPTS
        )[0]
    except Stale as stale:
        if stale.code != "stale":
            raise
        return []


def say(
    keeper: Keeper,
    decision: Callable[[State, datetime], tuple[D, Sequence[Draft]]],
    *,
    actor: str,
    reason: str = "",
    is_dry_run: bool = False,
) -> tuple[D, list[Event]]:
    """Record what somebody said."""
    return keeper.say(decision, actor=actor, reason=reason, reads=STREAMS, is_dry_run=is_dry_run)
