"""How a node's holds and a verdict on its signals become moves of its facts. Pure; one node at a time.

`Desk` is where one node's next facts are put together: holds are placed and ended on it, then `drafts` says what has
to be recorded, legal moves only. Nothing is recorded where nothing changed.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from plimsoll.fleet.model import Node, Service
from plimsoll.health.changes import HoldEnded, HoldPlaced, NodeMoved
from plimsoll.health.facts import (
    AUTOMATION,
    HELD_SERVICES,
    LEGAL_MOVES,
    WITHDRAWN,
    Facts,
    HealthFact,
    Hold,
    Owner,
    check_move,
    held_service,
)
from plimsoll.health.fold import Health, Unheld
from plimsoll.health.judge import Verdict
from plimsoll.health.model import EMPTY_TIMELINE, Mark, from_microseconds, is_planned
from plimsoll.ledger.model import Draft

_RECORDED = (HoldPlaced, HoldEnded, NodeMoved)
_FAULTY = (Service.QUARANTINED, Service.REPAIR)
_GOOD_ENOUGH = (HealthFact.HEALTHY, HealthFact.DEGRADED)


class Desk:
    """One node while its next facts are decided."""

    def __init__(self, node: Node, health: Health, now: datetime) -> None:
        self.node, self.now = node, now
        self.holds = health.holds.get(node.id, ())
        self.facts = health.facts_of(node)
        self._had_holds = bool(self.holds)
        self._before = health.unheld.get(node.id) if self.holds else Unheld(node.service, self.facts)
        self._since = _last_known(node, health)
        self._drafts: list[Draft] = []
        self.has_moved = False

    def hold_of(self, hold_id: str) -> Hold | None:
        return next((hold for hold in self.holds if hold.id == hold_id), None)

    def place(self, hold: Hold) -> None:
        """Put a hold on the node, or change the one of this id."""
        self.holds = (*(other for other in self.holds if other.id != hold.id), hold)
        self._drafts.append(Draft(HoldPlaced(self.node.id, hold), hold.reason))

    def end(self, hold: Hold, *, cause: str, reason: str) -> None:
        """Take one hold off; others stay."""
        self.holds = tuple(other for other in self.holds if other.id != hold.id)
        self._drafts.append(Draft(HoldEnded(self.node.id, hold.id, hold.owner, cause), reason))
        if cause != WITHDRAWN and self._before is not None:
            self._before = msgspec.structs.replace(self._before, is_exact=False)

    def service_wanted(self) -> Service:
        """What the holds make of the node. Without any it stays where it is, or begins to validate if it had one."""
        was = self.node.service
        if was is Service.RETIRED:
            return was
        before = self._service_before()
        if not self.holds:
            if not self._had_holds or was not in HELD_SERVICES:
                return was
            is_way_back = before is was or before in LEGAL_MOVES[was]
            return before if before in HELD_SERVICES and is_way_back else Service.VALIDATING
        service = held_service(self.holds, was, self.now)
        # Somebody said that it is out before there was a hold: a weaker one does not say better.
        return max(before, service, key=HELD_SERVICES.index) if before in HELD_SERVICES else service

    def _service_before(self) -> Service | None:
        return None if self._before is None else self._before.service

    def move(
        self,
        service: Service,
        *,
        why: str,
        source: str,
        health: HealthFact | None = None,
        owner: Owner | None = None,
        expected_return: datetime | None = None,
        at: datetime | None = None,
        signal: str = "",
        hold: str = "",
        reason: str = "",
        is_withdrawal: bool = False,
    ) -> None:
        """Change the facts; nothing is drafted where none of them changes. Refuses an illegal move.

        `why` is for what the node is out or ill; `reason` is why this very move is made, where that is something else.
        """
        was: dict[str, str] = {}
        if service is not self.node.service:
            check_move(self.node.id, self.node.service, service)
            was["service"] = str(self.node.service)
        is_out = service is not Service.IN_SERVICE
        facts = Facts(
            health=health or self.facts.health,
            owner=(owner or self.facts.owner) if is_out else Owner.OURS,
            why=why,
            source=source,
            expected_return=expected_return if is_out else None,
        )
        if facts.health is not self.facts.health:
            was["health"] = str(self.facts.health)
        if facts.owner is not self.facts.owner:
            was["owner"] = str(self.facts.owner)
        if facts.expected_return != self.facts.expected_return:
            was["expected_return"] = str(self.facts.expected_return or "")
        if is_out and "service" not in was and facts.why != self.facts.why:
            was["why"] = self.facts.why  # a fault is no planned work: what it is out for is a fact of its own
        if not was:
            return
        moment = at if at is not None and self.moment_of(at) == at else None
        change = NodeMoved(self.node.id, service, facts, was, signal, hold, is_withdrawal)
        self._drafts.append(Draft(change, reason or why, moment if "service" in was else None))
        self.facts, self.has_moved = facts, True
        if "service" in was:
            self._since = moment or self.now
            self.node = msgspec.structs.replace(self.node, service=service, since=self._since)

    def moment_of(self, at: datetime) -> datetime:
        """When what happened at a moment could move the node: not before it came into its present service, nor later
        than now, whatever the clock of who saw it."""
        return at if at <= self.now and (self._since is None or at > self._since) else self.now

    def enter_service(self, verdict: Verdict, *, source: str) -> None:
        """The end of validation: what the signals say now, and healthy where they say nothing."""
        self.move(Service.IN_SERVICE, why=verdict.why, source=source, health=verdict.health or HealthFact.HEALTHY)

    def go_back(self, verdict: Verdict, *, why: str, source: str) -> None:
        """Be what the node was before its holds, all of which were withdrawn: it should never have left."""
        before = self._before
        if before is None or not before.is_exact or self.holds or self.node.service is Service.RETIRED:
            return
        if before.service is Service.IN_SERVICE:
            self.move(Service.VALIDATING, why=why, source=source, health=verdict.health)
            self.move(Service.IN_SERVICE, why=why, source=source, health=verdict.health, is_withdrawal=True)
        elif before.service is self.node.service or before.service in LEGAL_MOVES[self.node.service]:
            self.move(before.service, why=why, source=source, health=verdict.health, owner=before.facts.owner)
        else:
            return
        self._had_holds = False

    def follow(self, verdict: Verdict, *, at: datetime | None = None, signal: str = "", hold: str = "") -> None:
        """Bring the facts to what holds and signals say together."""
        service = self.service_wanted()
        health, why, source = verdict.health or self.facts.health, verdict.why, verdict.source
        if health in _GOOD_ENOUGH and service in _FAULTY and self._is_called_faulty():
            health = HealthFact.UNHEALTHY  # that nothing is wrong today does not mend it; validation does
        owner, expected = self.facts.owner, self.facts.expected_return
        worst = self._worst_hold()
        if self._is_out_anyway(service, worst) and self._before is not None:
            told = self._before.facts
            why, source, owner, expected = told.why, told.source, told.owner, told.expected_return
        elif worst is not None:
            why, owner, expected = worst.reason, worst.whose_move, worst.expected_return
            source = source if source and worst.owner == AUTOMATION else worst.owner
        elif service is not Service.IN_SERVICE:
            why = self.facts.why or why  # validation belongs to what it ends; and who was told to be out still is
        reason = ""
        if service is Service.VALIDATING and self.node.service is not Service.VALIDATING:
            reason, owner, expected = "every hold has ended", Owner.OURS, None
        if service is Service.IN_SERVICE:
            owner, expected = Owner.OURS, None
        self.move(
            service,
            why=why,
            source=source or self.facts.source,
            reason=reason,
            health=health,
            owner=owner,
            expected_return=expected,
            at=at,
            signal=signal,
            hold=hold,
        )

    def _is_out_anyway(self, service: Service, worst: Hold | None) -> bool:
        """Whether the node is in a service for what was so before its holds, and not for one of them."""
        if service is not self._service_before() or service not in HELD_SERVICES or not self._had_holds | bool(worst):
            return False
        return worst is None or HELD_SERVICES.index(worst.service_at(self.now)) < HELD_SERVICES.index(service)

    def _is_called_faulty(self) -> bool:
        """Whether we found the node faulty ourselves, or were told so; a person's hold says what it is for."""
        return not self.holds or any(hold.owner == AUTOMATION for hold in self.holds)

    def _worst_hold(self) -> Hold | None:
        """The strongest now. Of several it is a fault rather than planned work, and one that waits for others, whatever
        the order in which they were placed.
        """
        return max(self.holds, key=self._strength, default=None)

    def _strength(self, hold: Hold) -> tuple[int, bool, bool, str]:
        service = hold.service_at(self.now)
        is_fault = not is_planned(Mark(service, hold.reason))
        return HELD_SERVICES.index(service), is_fault, hold.whose_move is Owner.PROVIDER, hold.id

    def drafts(self) -> list[Draft]:
        """What is to be recorded. Holds are placed before others end: a node that has one is never without in between,
        and what it was before its holds stays known.
        """
        return sorted(self._drafts, key=lambda draft: _RECORDED.index(type(draft.change)))


def _last_known(node: Node, health: Health) -> datetime | None:
    """Since when a node is where it is, or when that was noticed."""
    moments = health.timelines.get(node.id, EMPTY_TIMELINE).moments()
    if not moments:
        return node.since
    noticed = from_microseconds(moments[-1])
    return noticed if node.since is None else max(node.since, noticed)
