"""Keeps the demo fleet alive: sends what happens next through the services that real signals and people go through.

Decides nothing: `simulate.happenings` does. Must never touch a database that does not hold the demo fleet. Others act
at the same time, so that something may be gone when its turn comes: then it simply does not happen.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from plimsoll.errors import Fenced, PlimsollError, Refused, Unavailable
from plimsoll.fleet.changes import FleetImported
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.acts import Acting, Decision, Setting, set_service, tick_check
from plimsoll.health.service import act, observe
from plimsoll.quota.requests import desk as quota_desk
from plimsoll.quota.requests.clerk import carry_out
from plimsoll.server.loops_role import Turn
from plimsoll.simulate.happenings import (
    FEED,
    Accepted,
    Eased,
    Ended,
    Failed,
    Happening,
    Repaired,
    Requested,
    Submitted,
    Withdrawn,
    next_happenings,
)
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.workloads.desk import cancel, submit
from plimsoll.workloads.service import take_turn
from plimsoll.workloads.turn import Turn as WorkTurn

ROLE = "demo"
SOURCE = "demo fleet, seed "
"""What the first event of a demo's ledger says that it was made of."""


HEARD_EVERY = timedelta(minutes=2)


class Alive:
    """The demo's own life, as a pass that is made again and again."""

    def __init__(self, seed: int = 1) -> None:
        self._seed = seed
        self._checked: Keeper | None = None
        self._heard_at = datetime.min.replace(tzinfo=UTC)

    def run(self, turn: Turn) -> PlimsollError | None:
        """Let the next thing happen. Raises `Refused` where the database is not the demo's."""
        if self._checked is not turn.keeper:
            check_is_demo(turn.keeper)
            self._checked = turn.keeper
            self._heard_at = turn.now - HEARD_EVERY
        if turn.now - self._heard_at >= HEARD_EVERY:
            observe(turn.keeper, (), feed=FEED, actor=FEED)  # a feed with nothing to say is not a silent one
            self._heard_at = turn.now
        for happening in next_happenings(turn.keeper.state(), turn.now, self._seed):
            carry(turn.keeper, happening)
        return None


def check_is_demo(keeper: Keeper) -> None:
    """Refuse a database that anybody could need."""
    first = keeper.ledger.store.event_at(1)
    if first is not None and first.kind == FleetImported.kind:
        change = keeper.kinds.read(first)
        if isinstance(change, FleetImported) and change.source.startswith(SOURCE):
            return
    raise Refused(
        "not_the_demo",
        f"{keeper.ledger.store.dsn} does not hold the demo fleet: nothing is made up in it",
        next_step="plimsoll demo --db sqlite:///demo.db",
    )


def carry(keeper: Keeper, happening: Happening) -> bool:
    """Let something happen; says whether it did. What somebody else was quicker with does not."""
    try:
        _carry(keeper, happening)
    except (Fenced, Unavailable):
        raise
    except PlimsollError:
        return False
    return True


def _carry(keeper: Keeper, happening: Happening) -> None:
    if isinstance(happening, Failed | Eased):
        observe(keeper, happening.signals, feed=FEED, actor=FEED)
    elif isinstance(happening, Repaired):
        _repair(keeper, happening)
    elif isinstance(happening, Accepted):
        _accept(keeper, happening)
    elif isinstance(happening, Submitted):
        spec = happening.spec
        take_turn(keeper, lambda turn, grace: submit(turn, [spec], grace=grace), actor=spec.owner)
    elif isinstance(happening, Ended):
        _end(keeper, happening)
    else:
        _ask_or_withdraw(keeper, happening)


def _repair(keeper: Keeper, repaired: Repaired) -> None:
    def decide(state: State, acting: Acting) -> Decision:
        nodes = [state.of(Fleet).nodes[repaired.node]]
        return set_service(state, nodes, Setting(Service.VALIDATING), acting)

    act(keeper, decide, actor=FEED, reason=repaired.words, names=[repaired.node])


def _accept(keeper: Keeper, accepted: Accepted) -> None:
    def decide(state: State, acting: Acting) -> Decision:
        nodes = [state.of(Fleet).nodes[accepted.node]]
        return tick_check(state, nodes, accepted.check, acting, is_passed=True, may_pass=False)

    act(keeper, decide, actor=FEED, reason="looks good", names=[accepted.node])


def _end(keeper: Keeper, ended: Ended) -> None:
    def decide(turn: WorkTurn, grace: timedelta) -> int:
        return cancel(turn, ended.workload, how=ended.how, grace=grace)

    take_turn(keeper, decide, actor=ended.by)


def _ask_or_withdraw(keeper: Keeper, happening: Requested | Withdrawn) -> None:
    teams: Collection[str]
    if isinstance(happening, Requested):
        asked, by = happening.asked, happening.by
        teams = [asked.team]
        carry_out(
            keeper,
            lambda state, now: quota_desk.ask(state, asked, by=by, now=now),
            actor=by,
            reason=asked.reason,
            teams=teams,
        )
        return
    request = happening.request
    carry_out(
        keeper,
        lambda state, _now: quota_desk.withdraw(state, request, why="not needed any more"),
        actor=happening.by,
        teams=[happening.team],
        requests=[request],
    )
