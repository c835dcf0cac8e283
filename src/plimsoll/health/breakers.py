"""The circuit breakers: automation takes out so much in so long, per cluster and over the fleet, then asks a person.

What is held back still shows: the node's health is what the signals say, only its service stays.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node
from plimsoll.health.changes import BreakerTripped, ExitsCounted
from plimsoll.health.fold import FLEET_SCOPE, Health, cluster_scope
from plimsoll.health.judge import Problem
from plimsoll.health.model import to_microseconds
from plimsoll.health.policy import Breaker, Policy
from plimsoll.ledger.model import Draft
from plimsoll.state.state import State
from plimsoll.words import counted


class HeldBack(msgspec.Struct, frozen=True):
    """A node that automation would have taken out, had its breaker not stopped it."""

    node: str
    scope: str
    action: str
    why: str


class _Room(NamedTuple):
    """How much a breaker allows, and how much was taken before this judgement."""

    limit: int
    recent: int
    within: timedelta


class Gate:
    """Counts what one judgement takes out, and holds back what is too much."""

    def __init__(self, state: State, policy: Policy, now: datetime) -> None:
        self._health, self._fleet, self._policy, self._now = state.of(Health), state.of(Fleet), policy, now
        self._rooms: dict[str, _Room] = {}
        self._taken: Counter[str] = Counter()
        self.held_back: list[HeldBack] = []
        self.tripped: list[str] = []

    def lets_out(self, node: Node, problem: Problem) -> bool:
        """Whether one more node may leave; if not, it is noted as held back."""
        scopes = cluster_scope(node.cluster), FLEET_SCOPE
        for scope in scopes:
            if scope in self._health.breakers or self._is_full(scope, node.cluster):
                if scope not in self.tripped:
                    self.tripped.append(scope)
                self.held_back.append(HeldBack(node.id, scope, problem.action, problem.why))
                return False
        self._taken.update(scopes)
        return True

    def _is_full(self, scope: str, cluster: str) -> bool:
        if scope not in self._rooms:
            self._rooms[scope] = self._room(scope, cluster)
        room = self._rooms[scope]
        return room.recent + self._taken[scope] >= room.limit

    def _breaker(self, scope: str) -> Breaker:
        return self._policy.fleet_breaker if scope == FLEET_SCOPE else self._policy.cluster_breaker

    def _room(self, scope: str, cluster: str) -> _Room:
        breaker, exits = self._breaker(scope), self._health.exits
        is_fleet = scope == FLEET_SCOPE
        oldest = to_microseconds(self._now - breaker.within)
        pools = self._fleet.pools.items()
        nodes = sum(count.nodes for pool, count in pools if is_fleet or pool.cluster == cluster)
        return _Room(breaker.limit(nodes), sum(at > oldest for at in exits.get(scope, ())), breaker.within)

    def drafts(self) -> list[Draft]:
        """What each breaker counted; one that trips, or that holds back more nodes than it did."""
        found = [
            Draft(ExitsCounted(scope, taken), f"automation took {counted(taken, 'node')} out")
            for scope, taken in sorted(self._taken.items())
        ]
        for scope in self.tripped:
            known = self._health.breakers.get(scope)
            before = set(known.nodes) if known else set()
            held = before | {each.node for each in self.held_back if each.scope == scope}
            if known is not None and held == before:
                continue
            cluster = scope.partition("/")[2]
            room = self._rooms.get(scope) or self._room(scope, cluster)
            taken = known.taken if known else room.recent + self._taken[scope]
            seconds = room.within.total_seconds()
            reason = (
                f"{taken} nodes were taken out within {seconds / 3600:g} h, at most {room.limit} are allowed;"
                f" {len(held)} are held back"
            )
            found.append(Draft(BreakerTripped(scope, room.limit, seconds, taken, sorted(held)), reason))
        return found
