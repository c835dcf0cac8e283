"""What works now, as an engineer on call asks for it: what needs a person, what is out and why, what comes back when.

Pure. Every number is of nodes in clusters in production; retired nodes count nowhere.
"""

from __future__ import annotations

import difflib
import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
import numpy as np

from plimsoll.errors import Refused
from plimsoll.filter import Filter
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Phase, Service
from plimsoll.health.attention import Attention, find_attention
from plimsoll.health.decide import policy_in_force
from plimsoll.health.facts import Facts, HealthFact, Hold, Owner
from plimsoll.health.fold import Health
from plimsoll.health.forecast.survival import Survival
from plimsoll.health.levels.outages import End, OpenOutage, Past, normal_reason, open_outages, read_past
from plimsoll.health.model import Mark, is_planned, to_microseconds
from plimsoll.health.silence import facts_seen, fallen_silent
from plimsoll.state.state import State

CLUSTERS_SHOWN = 10
RETURN_HOURS = (4, 24, 72, 168)
_HOUR = 3_600_000_000
_STEPS = (Service.VALIDATING, Service.DRAINING, Service.JOINING)
"""Services that are a step of an outage: why the node is out was said before them."""


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
    silent = fallen_silent(health, heard, silence=policy_in_force(state).silence, now=now)
    facts = {node.id: facts_seen(health, node, silent) for node in nodes}
    past = read_past(health, nodes, until=to_microseconds(now))
    is_out = open_outages(past)
    causes = {node.id: _cause(node, is_out.get(node.id)) for node in out}
    planned = {name for name, cause in causes.items() if cause.is_planned}
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
        attention=find_attention(state, nodes, heard, now, is_out=is_out),
        reasons=_reasons(out, causes, facts),
        clusters=_clusters(nodes, planned, facts),
        returns=_returns(health, past, out, now),
        feeds=[
            FeedNow(
                name,
                sum(name in feeds for feeds in health.covers.values()),
                feed.is_silent or name in silent,
                heard.get(name),
            )
            for name, feed in sorted(health.feeds.items())
        ],
    )


def _counts(words: type[enum.StrEnum], found: Iterable[enum.StrEnum]) -> dict[str, int]:
    counted = Counter(found)
    return {word.value: counted[word] for word in words if counted[word]}


class _Cause(NamedTuple):
    is_planned: bool
    reason: str


def _cause(node: Node, outage: OpenOutage | None) -> _Cause:
    """Why a node is out: what it says; but a step goes on with what came before it, as in the service levels."""
    if node.service in _STEPS and outage is not None and outage.service is node.service:
        return _Cause(outage.is_planned_now, outage.reason)
    return _Cause(is_planned(Mark(node.service, node.reason)), normal_reason(node.reason))


def _reasons(out: Sequence[Node], causes: Mapping[str, _Cause], facts: Mapping[str, Facts]) -> list[ReasonNow]:
    groups: dict[tuple[str, str, str], list[Node]] = {}
    for node in out:
        cause = causes[node.id]
        kind = "planned" if cause.is_planned else "unplanned"
        reason = cause.reason or f"({node.service}, no reason given)"
        groups.setdefault((reason, kind, facts[node.id].owner), []).append(node)
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


def _clusters(nodes: Sequence[Node], planned: set[str], facts: Mapping[str, Facts]) -> list[ClusterNow]:
    members: dict[str, list[Node]] = {}
    for node in nodes:
        members.setdefault(node.cluster, []).append(node)
    found = []
    for cluster, some in members.items():
        conditions = Counter([facts[node.id].health for node in some if node.service is Service.IN_SERVICE])
        in_service = conditions.total()
        is_planned_out = len(planned.intersection([node.id for node in some]))
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


def _returns(health: Health, past: Past, out: Sequence[Node], now: datetime) -> list[Returns]:
    """What is promised is counted as promised; of the rest, how many will be back by what outages lasted so far."""
    outages, nodes = past.outages, past.nodes
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


def check_names(fleet: Fleet, where: Filter, *, now: datetime) -> None:
    """Refuse a filter that names a place or a SKU that is nowhere. A cluster without nodes is one all the same."""
    for term in where.terms:
        known = _names_of(fleet, term.field) if term.operator == "=" else None
        if not known or any(Filter([term], now=now).matches({term.field: name}.get) for name in known):
            continue
        near = difflib.get_close_matches(term.values[0], known, n=1)
        raise Refused(
            "no_nodes",
            f"no node matches {term}" + (f"; did you mean {near[0]!r}?" if near else ""),
            next_step=f"plimsoll fleet show --by {term.field}",
        )


def _names_of(fleet: Fleet, field: str) -> list[str] | None:
    """Every name there is of a kind of place or thing; None where the field is none."""
    if field == "cluster":
        return sorted(fleet.clusters)
    if field in ("area", "region", "colo"):
        return sorted({str(getattr(cluster, field)) for cluster in fleet.clusters.values()})
    if field in ("island", "sku"):
        return sorted({str(getattr(node, field)) for node in fleet.nodes.values()})
    return None


def hold_rows(state: State, nodes: Iterable[Node]) -> list[tuple[Node, Hold]]:
    """Every hold on these nodes, the oldest first."""
    holds = state.of(Health).holds
    found = [(node, hold) for node in nodes for hold in holds.get(node.id, ())]
    return sorted(found, key=lambda each: (each[1].placed_at, each[1].id, each[0].id))
