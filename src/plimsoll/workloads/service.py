"""Workloads with effects: takes a turn on the state, commits what was decided, and decides nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from plimsoll.fleet.changes import ClusterRecorded
from plimsoll.ledger.model import Change, Draft, Event
from plimsoll.quota.plan import policy_in_force
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.workloads.fold_tables import Workloads, floor_of
from plimsoll.workloads.queue import run_round, settle_due
from plimsoll.workloads.turn import Turn

D = TypeVar("D")

STREAMS = ("workload/*", "node/*", "pool/*", "team/*", "cluster/*", "work/*", "policy/quota")
"""What a placement reads: whoever placed, promised, lost or announced something meanwhile comes before it."""


ATTEMPTS_MAX = 100
"""All placements read each other, so that many at once get in each other's way; a decision takes milliseconds."""
MOVERS = ("node/", "pool/", "work/")
"""Streams whose changes can break what runs, or make room for what waits."""
ACTOR = "plimsoll"


def take_turn(
    keeper: Keeper,
    decide: Callable[[Turn, timedelta], D],
    *,
    actor: str,
    reason: str = "",
    is_dry_run: bool = False,
    epoch: int | None = None,
) -> tuple[D, list[Event]]:
    """Let time do its work, decide, and commit both at once; again when somebody came in between."""

    def both(state: State) -> tuple[D, list[Draft]]:
        floor_of(state)  # made once, outside the what-if, so that it stays
        grace = policy_in_force(state).flex_grace
        with state.what_if():
            turn = Turn(state, keeper.ledger.clock())
            settle_due(turn, grace=grace)
            decision = decide(turn, grace)
            return decision, turn.drafts

    if is_dry_run:
        decision, _ = both(keeper.state().fork())
        return decision, []
    return keeper.decide_and_commit(both, actor=actor, reason=reason, reads=STREAMS, attempts=ATTEMPTS_MAX, epoch=epoch)


def react_to_change(keeper: Keeper, events: Sequence[Event]) -> None:
    """Nodes or promises moved: what was submitted here is repaired, started and grown by it."""
    is_news = any(event.subject.startswith(MOVERS) or event.kind == ClusterRecorded.kind for event in events)
    if is_news and keeper.state().of(Workloads).asked:
        settle_work(keeper, actor=ACTOR)


def settle_work(
    keeper: Keeper, *, actor: str, is_dry_run: bool = False, epoch: int | None = None
) -> tuple[list[Change], list[Event]]:
    """One round: broken gangs are repaired, what was called back leaves, what waits starts. What changes by it."""

    def decide(turn: Turn, grace: timedelta) -> list[Change]:
        run_round(turn, grace=grace)
        return [draft.change for draft in turn.drafts]

    return take_turn(keeper, decide, actor=actor, reason="round", is_dry_run=is_dry_run, epoch=epoch)
