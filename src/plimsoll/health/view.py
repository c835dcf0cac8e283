"""What works now, as an engineer on call asks for it: what needs a person, what is out and why, what comes back when.

Pure. Every number is of nodes in clusters in production; retired nodes count nowhere.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
import numpy as np

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Phase, Service
from plimsoll.health.attention import Attention, find_attention
from plimsoll.health.facts import HealthFact, Hold, Owner
from plimsoll.health.fold import Health
from plimsoll.health.forecast.survival import Survival
from plimsoll.health.levels.outages import End, normal_reason, read_past
from plimsoll.health.model import Mark, is_planned, to_microseconds
from plimsoll.state.state import State

CLUSTERS_SHOWN = 10
RETURN_HOURS = (4, 24, 72, 168)
_HOUR = 3_600_000_000


class ReasonNow(msgspec.Struct, frozen=True):
    """Nodes that are out for one reason."""

    reason: str
    kind: str
    owner: str
    nodes: int
    gpus: int
    oldest: datetime | None
    clusters: int


class ClusterNow(msgspec.Struct, frozen=True):
    """How much of a cluster is in service."""

    cluster: str
    nodes: int
    in_service: int
    in_service_share: float
    unplanned: int
    planned: int
    degraded: int
    unknown: int


class Returns(msgspec.Struct, frozen=True):
    """What comes back by a time: promised by whoever has it, and expected by how long outages have lasted so far."""

    within_hours: int
    promised_nodes: int
    promised_gpus: int
    expected_nodes: float
    expected_gpus: float


class Present(msgspec.Struct, frozen=True):
    """Everything about now."""

    nodes: int
    gpus: int
    in_service: int
    healthy_gpus: int
    by_service: dict[str, int]
    by_health: dict[str, int]
    by_owner: dict[str, int]
    planned: int
    unplanned: int
    uncovered: int
    attention: list[Attention]
    reasons: list[ReasonNow]
    clusters: list[ClusterNow]
    returns: list[Returns]
    feeds: list[FeedNow]


class FeedNow(msgspec.Struct, frozen=True):
    """A feed, and when it was last heard."""

    feed: str
    nodes: int
    is_silent: bool
    heard_at: datetime | None


def look_now(state: State, nodes: Sequence[Node], heard: Mapping[str, datetime], *, now: datetime) -> Present:
    """The present of these nodes."""
    health, fleet = state.of(Health), state.of(Fleet)
    nodes = [
        node
        for node in nodes
        if node.service is not Service.RETIRED and fleet.clusters[node.cluster].phase is Phase.PRODUCTION
    ]
    out = [node for node in nodes if node.service is not Service.IN_SERVICE]
    facts = {node.id: health.facts_of(node) for node in nodes}
    planned = {node.id for node in out if is_planned(Mark(node.service, node.reason))}
    in_service = [node for node in nodes if node.service is Service.IN_SERVICE]
    return Present(
        nodes=len(nodes),
        gpus=sum(node.gpus for node in nodes),
        in_service=len(in_service),
        healthy_gpus=sum(node.gpus for node in in_service),
        by_service=_counts(Service, (node.service for node in nodes)),
        by_health=_counts(HealthFact, (each.health for each in facts.values())),
        by_owner=_counts(Owner, (facts[node.id].owner for node in out)),
        planned=len(planned),
        unplanned=len(out) - len(planned),
        uncovered=sum(node.id not in health.covers for node in nodes),
        attention=find_attention(state, nodes, heard, now),
        reasons=_reasons(out, planned, health),
        clusters=_clusters(nodes, planned, health),
        returns=_returns(health, nodes, out, now),
        feeds=[
            FeedNow(name, sum(name in feeds for feeds in health.covers.values()), feed.is_silent, heard.get(name))
            for name, feed in sorted(health.feeds.items())
        ],
    )


def _counts(words: type[enum.StrEnum], found: Iterable[enum.StrEnum]) -> dict[str, int]:
    counted = Counter(found)
    return {word.value: counted[word] for word in words if counted[word]}


def _health(health: Health, node: Node) -> HealthFact:
    return health.facts_of(node).health


def _reasons(out: Sequence[Node], planned: set[str], health: Health) -> list[ReasonNow]:
    groups: dict[tuple[str, str, str], list[Node]] = {}
    for node in out:
        kind = "planned" if node.id in planned else "unplanned"
        reason = normal_reason(node.reason) or f"({node.service}, no reason given)"
        groups.setdefault((reason, kind, health.facts_of(node).owner), []).append(node)
    found = [
        ReasonNow(
            reason,
            kind,
            owner,
            len(nodes),
            sum(node.gpus for node in nodes),
            min((node.since for node in nodes if node.since is not None), default=None),
            len({node.cluster for node in nodes}),
        )
        for (reason, kind, owner), nodes in groups.items()
    ]
    return sorted(found, key=lambda each: (-each.gpus, each.reason, each.kind, each.owner))


def _clusters(nodes: Sequence[Node], planned: set[str], health: Health) -> list[ClusterNow]:
    members: dict[str, list[Node]] = {}
    for node in nodes:
        members.setdefault(node.cluster, []).append(node)
    found = []
    for cluster, some in members.items():
        in_service = sum(node.service is Service.IN_SERVICE for node in some)
        is_planned_out = sum(node.id in planned for node in some)
        conditions = Counter(_health(health, node) for node in some if node.service is Service.IN_SERVICE)
        found.append(
            ClusterNow(
                cluster,
                len(some),
                in_service,
                round(in_service / len(some), 4),
                len(some) - in_service - is_planned_out,
                is_planned_out,
                conditions[HealthFact.DEGRADED],
                conditions[HealthFact.UNKNOWN],
            )
        )
    return sorted(found, key=lambda each: (each.in_service_share, each.cluster))


def _returns(health: Health, nodes: Sequence[Node], out: Sequence[Node], now: datetime) -> list[Returns]:
    """What is promised is counted as promised; of the rest, how many will be back by what outages lasted so far."""
    past = read_past(health, nodes, until=to_microseconds(now))
    outages = past.outages
    is_open = outages.end == End.OPEN
    lasted = (outages.ended - outages.began) / _HOUR
    curves = {
        kind: Survival.of(lasted[outages.is_planned == kind], is_open[outages.is_planned == kind])
        for kind in (False, True)
    }
    place = {node.id: number for number, node in enumerate(nodes)}
    promised = {node.id: back for node in out if (back := health.facts_of(node).expected_return) is not None}
    has_promise = np.zeros(len(nodes), np.bool_)
    has_promise[[place[name] for name in promised]] = True
    hours = np.array(RETURN_HOURS, np.float64)
    nodes_back, gpus_back = np.zeros(len(hours)), np.zeros(len(hours))
    for kind, curve in curves.items():
        rows = is_open & (outages.is_planned == kind) & ~has_promise[outages.node]
        if rows.any():
            chance = 1.0 - curve.lasts_on(lasted[rows], hours)
            nodes_back += chance.sum(axis=0)
            gpus_back += (chance * past.gpus[outages.node[rows]][:, None]).sum(axis=0)
    found = []
    gpus = {node.id: node.gpus for node in out}
    for column, within in enumerate(RETURN_HOURS):
        due = [name for name, back in promised.items() if now <= back <= now + timedelta(hours=within)]
        found.append(
            Returns(
                within,
                len(due),
                sum(gpus[name] for name in due),
                round(float(nodes_back[column]), 1),
                round(float(gpus_back[column]), 1),
            )
        )
    return found


def hold_rows(state: State, nodes: Iterable[Node]) -> list[tuple[Node, Hold]]:
    """Every hold on these nodes, the oldest first."""
    holds = state.of(Health).holds
    found = [(node, hold) for node in nodes for hold in holds.get(node.id, ())]
    return sorted(found, key=lambda each: (each[1].placed_at, each[1].id, each[0].id))
