"""What time alone brings about: feeds fall silent, holds expire, problems settle, drains end, validation completes,
announced work is over.

Pure, and level-triggered: it looks at how things are, so a sweep that was missed is made up for by the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.acts import missing_checks
from plimsoll.health.ahead import withdraw_over
from plimsoll.health.changes import FeedChanged, SignalsAnswered
from plimsoll.health.decide import Bench, Memories, Outcome, answers_of, judge_all, policy_in_force
from plimsoll.health.facts import AUTOMATION, HealthFact, Hold
from plimsoll.health.fold import Health
from plimsoll.health.judge import assess
from plimsoll.health.model import Ahead
from plimsoll.health.moves import Desk
from plimsoll.health.signals import SignalKey
from plimsoll.health.silence import fallen_silent
from plimsoll.ledger.model import Draft
from plimsoll.state.state import State
from plimsoll.times import show_time


class Swept(NamedTuple):
    """What a sweep found: the moves, and what a person should know of."""

    outcome: Outcome
    silent: list[str]
    expired: list[tuple[str, Hold]]
    over: list[Ahead]


def sweep(
    state: State, memories: Memories, heard: Mapping[str, datetime], *, now: datetime
) -> tuple[Swept, list[Draft]]:
    """`heard` is when each feed last spoke."""
    health, policy = state.of(Health), policy_in_force(state)
    silent = fallen_silent(health, heard, silence=policy.silence, now=now)
    drafts = [
        Draft(FeedChanged(feed, True, at), f"nothing heard since {show_time(at)}", at + policy.silence)
        for feed, at in silent.items()
    ]
    bench = Bench(health, policy, memories, now, silent=frozenset(silent))
    names = _names_to_visit(state, memories, set(silent))
    expired: list[tuple[str, Hold]] = []
    answered: list[Draft] = []

    def prepare(desk: Desk) -> list[SignalKey]:
        gone = []
        for hold in desk.holds:
            if hold.is_expired(now):
                expired.append((desk.node.id, hold))
                reason = f"{hold.owner}'s hold expired at {show_time(hold.expires_at)}: {hold.reason}"
                desk.end(hold, cause="expired", reason=reason)
            elif hold.signal and _is_settled(hold, desk, bench):
                desk.end(hold, cause="settled", reason=f"{hold.signal} is gone")
                answered.append(Draft(SignalsAnswered(desk.node.id, now, hold.signal), f"{hold.signal} is gone"))
                gone.append(SignalKey.read(hold.signal))
        if desk.node.service is Service.VALIDATING and not desk.holds and not missing_checks(desk.node, bench):
            verdict = bench.verdict(desk.node)
            if verdict.lets_in:
                desk.enter_service(verdict, source=AUTOMATION)
        return gone

    outcome, moves = judge_all(state, bench, names, prepare=prepare)
    over, withdrawals = withdraw_over(health, now)
    return Swept(outcome, list(silent), expired, over), [*drafts, *answered, *moves, *withdrawals]


def _names_to_visit(state: State, memories: Memories, silent: set[str]) -> set[str]:
    health, fleet = state.of(Health), state.of(Fleet)
    names = {*memories, *health.holds}
    names |= {name for name, facts in health.facts.items() if facts.health is not HealthFact.HEALTHY}
    names |= {node.id for node in fleet.nodes.values() if node.service is Service.VALIDATING}
    if silent:
        names |= {node for node, feeds in health.covers.items() if silent.intersection(feeds)}
    return names


def _is_settled(hold: Hold, desk: Desk, bench: Bench) -> bool:
    """Whether the problem that a hold answers has been gone for long enough."""
    key = SignalKey.read(hold.signal)
    memory = bench.memories_of(desk.node).get(key)
    if memory is None or not memory.points or not memory.points[-1] & 1:
        return False
    problem = assess(key, memory, bench.policy, answers=answers_of(desk.node, bench.health), now=bench.now)
    if problem is None:
        return True
    return problem.cleared_at is not None and bench.now - problem.cleared_at >= bench.policy.settle
