"""Why a node is as it is: its three facts, since when and by whom, when it is back, what that did to work, and who
waits for it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from plimsoll.errors import NotFound
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Phase, PoolKey, Service
from plimsoll.health.attention import breakers_over
from plimsoll.health.decide import count_exits, policy_in_force
from plimsoll.health.facts import Facts, HealthFact, Hold, Owner
from plimsoll.health.fold import Health
from plimsoll.health.forecast.live import told_return
from plimsoll.health.intake import near_nodes
from plimsoll.health.levels.outages import open_outages, read_past
from plimsoll.health.model import Mark, from_microseconds, is_planned, to_microseconds
from plimsoll.quota.fill import fill
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Kind, QuotaKey, Tier
from plimsoll.state.state import State
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.model import Because, Interruption, Workload
from plimsoll.workloads.reasons import Cause, Move
from plimsoll.workloads.why.outs import nodes_out
from plimsoll.workloads.why.stops import Outcome, nodes_lost, outcome_of, reason_now

REPAIR_HISTORY = "repair history"
"""Who says when a node is back, where no person and no feed did."""
HURT_MAX = 20
"""Interruptions of a node that are told one by one, the newest."""


WAITS_MAX = 50
"""Workloads waiting for the node's island of which it is looked up what they miss now."""


class HoldWhy(msgspec.Struct, frozen=True):
    """Who keeps the node out of service. `signal` is what an automated hold answers."""

    hold: str
    owner: str
    service: Service
    reason: str
    since: datetime
    until: datetime | None
    signal: str


class Back(msgspec.Struct, frozen=True):
    """When the node is expected back: `by` told so, or half of such outages have ended by then. `overdue_since` is a
    time that somebody told and that has passed.
    """

    at: datetime | None
    is_told: bool
    by: str
    overdue_since: datetime | None
    is_late: bool = False
    """By repair history it is not back for so long that nothing more is claimed."""


class Running(msgspec.Struct, frozen=True):
    """A part that runs on the node, in GPUs of the node; `inside` of them lie within its team's guarantee, at most."""

    workload: str
    team: str
    part: str
    kind: Kind
    tier: Tier
    is_spare: bool
    gpus: int
    inside: int


class Hurt(msgspec.Struct, frozen=True):
    """A gang that the node interrupted, and what became of it."""

    workload: str
    team: str
    part: str
    at: datetime
    because: Because
    outcome: Outcome


class AheadWhy(msgspec.Struct, frozen=True):
    """Planned work that was announced for the node."""

    work: str
    owner: str
    starts: datetime
    ends: datetime
    reason: str


class WaitsFor(msgspec.Struct, frozen=True):
    """Work that waits for the node's island. `is_enough`: with this node back it would have what it misses there.
    `behind` are workloads of the same shape that wait after it.
    """

    workload: str
    team: str
    cause: Cause
    gpus: int
    missing: int
    is_guaranteed: bool
    is_enough: bool
    behind: int


class NodeWhy(msgspec.Struct, frozen=True):
    """The answer. `out_since` is when the present outage began, `since` when its last step did."""

    node: str
    cluster: str
    phase: Phase
    island: str
    sku: str
    gpus: int
    service: Service
    health: str
    owner: Owner
    since: datetime | None
    out_since: datetime | None
    is_planned: bool | None
    """Whether it is out for planned work; None where it is in service."""
    reason: str
    source: str
    move: Move | None
    """Whose move it is; None where there is nothing to do."""
    whose: str
    holds: Sequence[HoldWhy]
    held_back: Sequence[str]
    """Breakers that keep automation from taking it out."""
    back: Back | None
    runs: Sequence[Running]
    unplaced_gpus: int
    """GPUs of the island under work whose nodes nobody told: some of it may run here."""
    hurt: Sequence[Hurt]
    ahead: Sequence[AheadWhy]
    waits: Sequence[WaitsFor]
    is_lemon: bool
    exits: int
    exits_days: float


def explain_node(state: State, name: str, *, now: datetime) -> NodeWhy:
    """All about a node that somebody who misses it would ask."""
    fleet, health = state.of(Fleet), state.of(Health)
    node = fleet.nodes.get(name)
    if node is None:
        raise _unknown(fleet, name)
    facts, policy = health.facts_of(node), policy_in_force(state)
    holds = sorted(health.holds.get(node.id, ()), key=lambda hold: (hold.placed_at, hold.id))
    is_out = node.service not in (Service.IN_SERVICE, Service.RETIRED)
    outage = open_outages(read_past(health, [node], until=to_microseconds(now))).get(node.id) if is_out else None
    planned = outage.is_planned_now if outage is not None else is_planned(Mark(node.service, node.reason))
    exits = count_exits(node, health, now - policy.lemon.within)
    tripped = [each.scope for each in breakers_over(health, node)]
    move, whose = _move(node, holds, facts, is_planned_now=planned, is_held_back=bool(tripped))
    return NodeWhy(
        node=node.id,
        cluster=node.cluster,
        phase=fleet.clusters[node.cluster].phase,
        island=node.island,
        sku=node.sku,
        gpus=node.gpus,
        service=node.service,
        health=facts.health.value,
        owner=facts.owner,
        since=node.since,
        out_since=from_microseconds(outage.began) if outage is not None else (node.since if is_out else None),
        is_planned=planned if is_out else None,
        reason=node.reason or facts.why or (outage.reason if outage is not None else ""),
        source=facts.source,
        move=move,
        whose=whose,
        holds=[_hold(hold) for hold in holds],
        held_back=tripped,
        back=_back(state, node, holds, now) if is_out else None,
        runs=list(_runs(state, node)),
        unplaced_gpus=_unplaced(state, node),
        hurt=_hurt(state, node, now),
        ahead=[
            AheadWhy(work.id, work.owner, work.starts, work.ends, work.reason)
            for work in health.ahead_of.get(node.id, ())
            if not work.is_over(now)
        ],
        waits=_waits(state, node, now, is_out=is_out),
        is_lemon=exits >= policy.lemon.times,
        exits=exits,
        exits_days=policy.lemon.within / timedelta(days=1),
    )


def _unknown(fleet: Fleet, name: str) -> NotFound:
    meant = near_nodes(name, fleet)
    return NotFound(
        "unknown_node",
        f"there is no node {name[:100]!r} among {len(fleet.nodes):,}"
        + (f"; did you mean {meant[0]!r}?" if meant else ""),
        next_step="plimsoll fleet nodes",
        node=name[:100],
    )


def _move(
    node: Node, holds: Sequence[Hold], facts: Facts, *, is_planned_now: bool, is_held_back: bool
) -> tuple[Move | None, str]:
    """Whose move it is, by code and in a word."""
    if is_held_back:
        return Move.HARDWARE, "on-call: a breaker holds automation back"
    if node.service is Service.IN_SERVICE and facts.health is HealthFact.UNHEALTHY:
        return Move.HARDWARE, "on-call: it is unhealthy and still in service"
    if node.service in (Service.IN_SERVICE, Service.RETIRED):
        return None, ""
    owners = ", ".join(dict.fromkeys(hold.owner for hold in holds))
    who = "the provider" if facts.owner is Owner.PROVIDER else owners or "our hardware engineers"
    if is_planned_now:
        return Move.PLANNED_WORK, owners or who
    return Move.HARDWARE, who


def _hold(hold: Hold) -> HoldWhy:
    return HoldWhy(hold.id, hold.owner, hold.service, hold.reason, hold.placed_at, hold.expires_at, hold.signal)


def _back(state: State, node: Node, holds: Sequence[Hold], now: datetime) -> Back:
    """What was told counts; only where nobody told anything, repair history answers."""
    health = state.of(Health)
    facts = health.facts_of(node)
    told = [(facts.expected_return, facts.source)]
    told += [(moment, hold.owner) for hold in holds for moment in (hold.expected_return, hold.expires_at)]
    known = [(moment, by) for moment, by in told if moment is not None]
    latest = max(known, key=lambda each: each[0], default=None)
    if (at := told_return(health, node, now)) is not None and latest is not None:
        return Back(at, True, latest[1], None)
    overdue = latest[0] if latest is not None else None
    pool = PoolKey(node.cluster, node.sku)
    # How long repairs take says nothing of a node that was never in service.
    outs = nodes_out(state, [pool], now=now)[pool] if node.service is not Service.JOINING else []
    mine = next((out for out in outs if out.node.id == node.id), None)
    guess, is_late = (mine.back, mine.is_late) if mine is not None else (None, False)
    return Back(guess, False, REPAIR_HISTORY if guess is not None or is_late else "", overdue, is_late)


def _runs(state: State, node: Node) -> Iterator[Running]:
    """What is known to run on the node."""
    for workload in _in_cluster(state, node):
        for part in workload.parts:
            here = sum(gpus for block in part.blocks for name, gpus in block.nodes if name == node.id)
            if here:
                inside = _inside(state, workload, part.name, is_spare=part.is_spare, node=node)
                yield Running(
                    workload.id,
                    workload.team,
                    part.name,
                    part.kind,
                    part.tier,
                    part.is_spare,
                    here,
                    min(here, inside),
                )


def _in_cluster(state: State, node: Node) -> Iterator[Workload]:
    for _, workload in sorted(state.of(Workloads).workloads.items()):
        if workload.cluster == node.cluster:
            yield workload


def _inside(state: State, workload: Workload, part: str, *, is_spare: bool, node: Node) -> int:
    """GPUs of a part in the node's island that lie inside its team's guarantee."""
    book = state.of(QuotaBook)
    key = QuotaKey(workload.team, node.cluster, node.sku)
    claims = book.claims.get(key, ())
    return sum(
        taken
        for claim, taken in zip(claims, fill(claims, book.guaranteed.get(key, 0)), strict=True)
        if (claim.work, claim.part, claim.is_spare, claim.island) == (workload.id, part, is_spare, node.island)
    )


def _unplaced(state: State, node: Node) -> int:
    return sum(
        block.gpus
        for workload in _in_cluster(state, node)
        for part in workload.parts
        if part.sku == node.sku
        for block in part.blocks
        if block.island == node.island and not block.nodes
    )


def _hurt(state: State, node: Node, now: datetime) -> list[Hurt]:
    """What the node interrupted, the newest first. Only gangs are told: elastic work just runs on with less."""
    work = state.of(Workloads)
    found: list[tuple[int, str, str, Sequence[Interruption], int]] = []
    for name, stops in work.interruptions.items():
        found += _named_in(name, work.asked[name].spec.team, stops, node)
    for name, past in work.past.items():
        found += _named_in(name, past.spec.team, past.interruptions, node)
    found.sort(key=lambda each: (-each[0], each[1]))
    return [
        Hurt(
            name,
            team,
            stops[place].part,
            from_microseconds(at),
            stops[place].because,
            outcome_of(state, name, stops, place, now=now),
        )
        for at, name, team, stops, place in found[:HURT_MAX]
    ]


def _named_in(
    name: str, team: str, stops: Sequence[Interruption], node: Node
) -> Iterator[tuple[int, str, str, Sequence[Interruption], int]]:
    for place, told in enumerate(stops):
        # Most interruptions are not this node's: a look at the text spares reading it.
        is_near = told.by == node.id or node.id in told.detail
        if is_near and any(loss.node == node.id for loss in nodes_lost(told).nodes):
            yield told.at, name, team, stops, place


def _waits(state: State, node: Node, now: datetime, *, is_out: bool) -> list[WaitsFor]:
    """Who waits for the island, those with a right to it first."""
    work = state.of(Workloads)
    here = [
        name
        for name, wait in work.waits.items()
        if (wait.reason.cluster, wait.reason.island, wait.reason.sku) == (node.cluster, node.island, node.sku)
    ]
    found = []
    for name in sorted(here, key=lambda each: (not work.waits[each].is_guaranteed, each))[:WAITS_MAX]:
        asked, reason = work.asked[name], reason_now(state, name, now=now)
        if reason.island == node.island:
            is_enough = is_out and 0 < reason.missing <= node.gpus
            right = work.waits[name].is_guaranteed
            behind = len(work.queue.of(work.queued[name][0])) - 1 if name in work.queued else 0
            found.append(
                WaitsFor(name, asked.spec.team, reason.cause, reason.gpus, reason.missing, right, is_enough, behind)
            )
    return sorted(found, key=lambda each: (not each.is_guaranteed, each.missing, each.workload))
