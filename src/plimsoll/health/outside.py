"""What schedulers say of nodes, and what they are to be told: pure, both ways.

An operator's drain in Slurm or cordon in Kubernetes is a hold of theirs on the node. A node that we have out of service
is to be drained there with our reason, and to be resumed when it is back; a drain that is not ours is never touched.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from plimsoll.connect.kubernetes import KubernetesNode
from plimsoll.connect.slurm_nodes import Availability, SlurmNode, availability
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.health.acts import Acting, Decision
from plimsoll.health.changes import CheckTicked
from plimsoll.health.decide import Bench, Moved, Outcome, desk_report, policy_in_force
from plimsoll.health.facts import Hold
from plimsoll.health.fold import Health
from plimsoll.health.moves import Desk
from plimsoll.health.policy import CheckBy
from plimsoll.health.signals import Signal, SignalKind
from plimsoll.ledger.model import Draft
from plimsoll.state.state import State

OURS = "plimsoll: "
"""How the reason of a drain begins that we asked for."""
OUR_WORK = "planned: "
"""How the reason of a hold begins that a campaign has on a node."""
OUR_TAINT = "plimsoll.io/maintenance"
"""What a campaign puts on its nodes in Kubernetes."""
REASON_MAX = 240
RESUME_GRACE = timedelta(minutes=5)
"""Slurm pings its nodes every 100 s, where nobody has changed that."""

_DOWN, _NOT_READY = "down", "not-ready"
_ROUND_BRACKETS = str.maketrans("[]", "()")
"""In square ones Slurm says who drained a node and when; a reason that holds such a thing could not be read back."""


class Seen(NamedTuple):
    """What a scheduler says: signals, the holds that its operators have, and the nodes that are empty of work.

    `unclear`: nodes closed for our own work, of which it can't be seen whether an operator holds them as well.
    """

    signals: list[Signal]
    holds: dict[str, Hold]
    empty: frozenset[str]
    nodes: frozenset[str]
    unclear: frozenset[str] = frozenset()


def seen_in_slurm(
    nodes: Iterable[SlurmNode], *, feed: str, at: datetime, resumed: Collection[str] = frozenset()
) -> Seen:
    """Slurm's nodes: down and not responding are signals; a drain or maintenance that is not ours is a hold.

    Those `resumed` of late don't respond until the controller's next ping: that says nothing about them.
    """
    signals: list[Signal] = []
    holds: dict[str, Hold] = {}
    empty: list[str] = []
    names: list[str] = []
    for node in nodes:
        state = availability(node)
        names.append(node.name)
        is_down, is_mute = state is Availability.DOWN, state is Availability.NOT_RESPONDING
        detail = "+".join(sorted(node.states)) + (f", {node.reason}" if node.reason else "")
        if is_down and node.reason.startswith(OURS) and "NOT_RESPONDING" not in node.states:
            # It died while we had it drained, and Slurm brings back by itself only what died of nothing else.
            detail = f"it responds again, and waits for: scontrol update nodename={node.name} state=resume"
        signals.append(Signal(node.name, SignalKind.SCHEDULER, at, _DOWN, is_ok=not is_down, detail=detail))
        if not is_down and not (is_mute and node.name in resumed):
            signals.append(Signal(node.name, SignalKind.SCHEDULER, at, _NOT_READY, is_ok=not is_mute, detail=detail))
        service = _service_in_slurm(node, state)
        if service is not None:
            holds[node.name] = _hold_in_slurm(node, service, state, feed=feed, at=at)
        if state is Availability.DRAINED:
            empty.append(node.name)
    return Seen(signals, holds, frozenset(empty), frozenset(names))


def _service_in_slurm(node: SlurmNode, state: Availability) -> Service | None:
    if state is Availability.MAINTENANCE and not _is_our_work(node):
        return Service.MAINTENANCE
    if node.is_drained and not node.reason.startswith(OURS):
        return Service.DRAINING if node.has_work else Service.QUARANTINED
    return None


def _is_our_work(node: SlurmNode) -> bool:
    """Whether a node is in maintenance for a batch of ours: its hold is in the ledger already."""
    return node.reason.startswith(OURS) and node.reason[len(OURS) :].partition(", ")[2].startswith(OUR_WORK)


def resumed_of_late(state: State, *, feed: str, at: datetime) -> set[str]:
    """Nodes that may have been resumed in their scheduler only now: they moved here of late, or are about to."""
    holds = state.of(Health).holds
    return {
        node.id
        for node in state.of(Fleet).nodes.values()
        if (node.since is not None and at - node.since < RESUME_GRACE)
        or any(hold.id == feed for hold in holds.get(node.id, ()))
    }


def _hold_in_slurm(node: SlurmNode, service: Service, state: Availability, *, feed: str, at: datetime) -> Hold:
    """The hold of whoever keeps a node out in Slurm. A reason of ours on a node in maintenance is not theirs.

    Where Slurm's clock is ahead of ours it was placed now: else a resume could not end it yet.
    """
    is_theirs = bool(node.reason) and not node.reason.startswith(OURS)
    return Hold(
        id=feed,
        owner=f"slurm:{(node.reason_by if is_theirs else '') or 'unknown'}",
        service=service,
        reason=node.reason if is_theirs else f"{state.value} in Slurm, no reason given",
        placed_at=min(node.reason_at, at) if is_theirs and node.reason_at is not None else at,
        scope=feed,
    )


def seen_in_kubernetes(nodes: Iterable[KubernetesNode], *, feed: str, at: datetime) -> Seen:
    """Kubernetes' nodes: conditions are signals, a cordon is a hold."""
    signals: list[Signal] = []
    holds: dict[str, Hold] = {}
    names: list[str] = []
    unclear: list[str] = []
    for node in nodes:
        names.append(node.name)
        is_ready = node.is_ready is True
        signals.append(Signal(node.name, SignalKind.SCHEDULER, at, _NOT_READY, is_ok=is_ready, detail=node.reason))
        if not is_ready and node.ready_since is not None and node.ready_since < at:
            # When it began: a problem must last before it counts, and it may have lasted already.
            began = Signal(node.name, SignalKind.SCHEDULER, node.ready_since, _NOT_READY, detail=node.reason)
            signals.append(began)
        for kind, condition in sorted(node.conditions.items()):
            if kind != "Ready" and condition.is_true is not None:  # that nobody knows is no good news
                is_ok = not condition.is_true
                signals.append(Signal(node.name, SignalKind.CHECK, at, kind, is_ok=is_ok, detail=condition.reason))
        if node.is_cordoned and any(taint.key == OUR_TAINT for taint in node.taints):
            unclear.append(node.name)
        elif node.is_cordoned:
            holds[node.name] = Hold(feed, "kubernetes", Service.DRAINING, "cordoned in Kubernetes", at, scope=feed)
    return Seen(signals, holds, frozenset(), frozenset(names), frozenset(unclear))


def follow_holds(state: State, seen: Seen, acting: Acting, *, feed: str, at: datetime) -> Decision:
    """Make the holds of a scheduler's operators here what they are there. What is newer here than `at` stays.

    Whoever ends a drain there says that the node may run: that is the tick of the checks that wait for a person.
    """
    health, nodes = state.of(Health), state.of(Fleet).nodes
    bench = Bench(health, policy_in_force(state), acting.memories, acting.now)
    drafts: list[Draft] = []
    moved: list[Moved] = []
    for name in sorted(seen.nodes):
        node = nodes.get(name)
        if node is None or node.service is Service.RETIRED:
            continue
        desk = Desk(node, health, acting.now)
        known, wanted = desk.hold_of(feed), seen.holds.get(name)
        if wanted is not None and (known is None or _differs(known, wanted)):
            since = wanted.placed_at if known is None or known.reason != wanted.reason else known.placed_at
            desk.place(msgspec.structs.replace(wanted, placed_at=since))
        elif known is not None and wanted is None and known.placed_at <= at and name not in seen.unclear:
            desk.end(known, cause="released", reason=f"ended in the scheduler ({feed})")
        drained = [
            hold
            for hold in desk.holds
            if name in seen.empty and hold.drains_until is not None and hold.drains_until > acting.now
        ]
        for hold in drained:
            desk.place(msgspec.structs.replace(hold, drains_until=None))
        if not desk.drafts():
            continue
        desk.follow(bench.verdict(node), hold=feed)
        drafts += desk.drafts()
        if desk.node.service is Service.VALIDATING and node.service is not Service.VALIDATING and known is not None:
            drafts += [
                Draft(CheckTicked(name, check.name, True, f"resumed in the scheduler ({feed})"))
                for check in bench.policy.validation
                if check.by is CheckBy.MANUAL
            ]
        moved += desk_report(node, desk)
    return Outcome(moved), drafts


def _differs(known: Hold, wanted: Hold) -> bool:
    return (known.service, known.reason, known.owner) != (wanted.service, wanted.reason, wanted.owner)


class Act(enum.StrEnum):
    """What to do to a node in its scheduler."""

    DRAIN = "drain"
    RESUME = "resume"


class Steer(NamedTuple):
    """One thing to do in a scheduler."""

    node: str
    act: Act
    reason: str


def steers_for(state: State, nodes: Mapping[str, SlurmNode]) -> list[Steer]:
    """What must be done in Slurm so that it does as our facts say: drain what is out, resume what is back.

    A node that is DOWN gets no work anyway, and is left alone: our reason would take the place of the one for which it
    is so, and by that Slurm knows whether it may come back by itself.
    """
    fleet = state.of(Fleet).nodes
    found = []
    for name, there in sorted(nodes.items()):
        node = fleet.get(name)
        if node is None or node.service is Service.RETIRED:
            continue
        is_ours = there.is_drained and there.reason.startswith(OURS)
        if node.service is Service.IN_SERVICE:
            if is_ours:
                found.append(Steer(name, Act.RESUME, there.reason))
        elif "DOWN" in there.states:
            continue
        elif not there.is_drained or (is_ours and there.reason != our_reason(node)):
            found.append(Steer(name, Act.DRAIN, our_reason(node)))
    return found


def our_reason(node: Node) -> str:
    """What a drain of ours says in the scheduler: the service, and why, in signs that Slurm gives back unchanged."""
    why = "".join(sign if sign.isprintable() else " " for sign in node.reason).translate(_ROUND_BRACKETS)
    return f"{OURS}{node.service}, {why}".rstrip(", ")[:REASON_MAX]
