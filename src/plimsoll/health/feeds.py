"""The feeds: ask the outside what it sees, and take that in; steer schedulers the other way. Effects only.

A feed that can't be reached raises and is not heard: after a while the sweep calls it silent and its nodes unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from functools import partial

import msgspec

from plimsoll.connect.kubernetes import KubernetesNode
from plimsoll.connect.prometheus import Prometheus, Sample
from plimsoll.connect.slurm import Slurm
from plimsoll.errors import Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.health.changes import NodeSteered
from plimsoll.health.decide import Outcome, policy_in_force
from plimsoll.health.outside import Act, Seen, Steer, follow_holds, seen_in_kubernetes, seen_in_slurm, steers_for
from plimsoll.health.policy import Query
from plimsoll.health.service import Observed, act, observe
from plimsoll.health.signals import Signal, SignalKind
from plimsoll.ledger.model import Draft
from plimsoll.state.keeper import Keeper


class Fed(msgspec.Struct, frozen=True):
    """What a feed brought: what became of its signals, what it said besides, and what was done there."""

    observed: Observed
    notes: list[str]
    steered: list[Steer] = []


def observe_prometheus(
    keeper: Keeper, prometheus: Prometheus, *, feed: str, actor: str, is_dry_run: bool = False
) -> Fed:
    """Ask the policy's queries and take the answers in."""
    state = keeper.state()
    fleet = state.of(Fleet)
    signals: list[Signal] = []
    unknown: Counter[str] = Counter()
    notes: list[str] = []
    at, is_partial = None, False
    for query in policy_in_force(state).queries:
        vector = prometheus.query(query.query)
        label = f"{query.kind} {query.name}".strip()
        if vector.nan_count:
            notes.append(f"{label}: {vector.nan_count:,} samples were no number and were left out")
        notes += [f"{label}: {warning}" for warning in vector.warnings]
        is_partial = is_partial or bool(vector.warnings)
        for sample in vector.samples:
            name = _node_name(sample.labels.get(query.node_label, ""), fleet)
            at = sample.at if at is None else max(at, sample.at)
            if name not in fleet.nodes:
                unknown[name or f"(no label {query.node_label})"] += 1
            elif (signal := _signal(query, name, sample)) is not None:
                signals.append(signal)
    if unknown:
        shown = ", ".join(name for name, _ in unknown.most_common(3))
        notes.append(f"{len(unknown):,} names are no nodes of the fleet: {shown}, …")
    if at is None or not signals:
        raise Refused(
            "feed_empty",
            f"{prometheus.where} answered, but with no sample of any node",
            next_step="plimsoll health policy show, and try its queries on the server's own page",
            unknown=list(unknown)[:20],
        )
    # A part of the answer may be missing: then a node that is not in it is not lost.
    swept = None if is_partial else {signal.node for signal in signals}
    observed = observe(keeper, signals, feed=feed, actor=actor, swept=swept, at=at, is_dry_run=is_dry_run)
    return Fed(observed, notes)


def _node_name(label: str, fleet: Fleet) -> str:
    """The node that a label names: without a port, and without a domain where the fleet has none."""
    host = label.rpartition(":")[0] if label.rpartition(":")[2].isdigit() and ":" in label else label
    if host in fleet.nodes:
        return host
    short = host.partition(".")[0]
    return short if short in fleet.nodes else host


def _signal(query: Query, node: str, sample: Sample) -> Signal | None:
    """A sample as a signal: an XID's value is its code, a heartbeat's and a check's whether it is good."""
    if query.kind is SignalKind.XID:
        return Signal(node, query.kind, sample.at, str(int(sample.value))) if sample.value >= 1 else None
    if query.kind in (SignalKind.HEARTBEAT, SignalKind.CHECK, SignalKind.SCHEDULER):
        return Signal(node, query.kind, sample.at, query.name, is_ok=sample.value >= 1)
    return Signal(node, query.kind, sample.at, query.name, value=sample.value)


def observe_kubernetes(
    keeper: Keeper,
    nodes: Iterable[KubernetesNode],
    *,
    feed: str,
    actor: str,
    at: datetime | None = None,
    is_dry_run: bool = False,
) -> Fed:
    """Take a list of Kubernetes' nodes in."""
    moment = at or keeper.ledger.clock()
    seen = seen_in_kubernetes(nodes, feed=feed, at=moment)
    return _take_in(keeper, seen, feed=feed, actor=actor, at=moment, is_dry_run=is_dry_run)


def observe_slurm(keeper: Keeper, slurm: Slurm, *, feed: str, actor: str, is_dry_run: bool = False) -> Fed:
    """Take Slurm's nodes in: signals, and the drains of its operators."""
    at = keeper.ledger.clock()
    return _take_in(
        keeper,
        seen_in_slurm(slurm.nodes(), feed=feed, at=at),
        feed=feed,
        actor=actor,
        at=at,
        is_dry_run=is_dry_run,
    )


def _take_in(keeper: Keeper, seen: Seen, *, feed: str, actor: str, at: datetime, is_dry_run: bool) -> Fed:
    fleet = keeper.state().of(Fleet)
    known = seen.nodes.intersection(fleet.nodes)
    notes = []
    if unknown := sorted(seen.nodes - known):
        notes.append(f"{len(unknown):,} names are no nodes of the fleet: {', '.join(unknown[:3])}, …")
    if not known:
        raise Refused(
            "feed_empty",
            f"{feed} names {len(seen.nodes):,} nodes, and none of them is in the fleet",
            next_step="plimsoll fleet nodes, to compare the names",
            unknown=unknown[:20],
        )
    signals = [signal for signal in seen.signals if signal.node in known]
    observed = observe(keeper, signals, feed=feed, actor=actor, swept=known, at=at, is_dry_run=is_dry_run)
    decide = partial(follow_holds, seen=seen, feed=feed, at=at)
    outcome, revision = act(
        keeper,
        lambda state, acting: decide(state, acting=acting),
        actor=actor,
        reason=f"seen in {feed}",
        names=known,
        is_dry_run=is_dry_run,
    )
    both = Outcome([*observed.outcome.moved, *outcome.moved], observed.outcome.held_back, observed.outcome.tripped)
    return Fed(msgspec.structs.replace(observed, outcome=both, revision=revision), notes)


def steer_slurm(
    keeper: Keeper, slurm: Slurm, *, feed: str, actor: str, epoch: int | None = None, is_dry_run: bool = False
) -> list[Steer]:
    """Make Slurm do as our facts say. It is asked first, so that nothing is done twice or against an operator."""
    there = {node.name: node for node in slurm.nodes()}
    steers = steers_for(keeper.state(), there)
    if is_dry_run:
        return steers
    done: list[Steer] = []
    try:
        for reason in sorted({steer.reason for steer in steers}):
            for kind in Act:
                some = [steer for steer in steers if steer.act is kind and steer.reason == reason]
                if not some:
                    continue
                names = [steer.node for steer in some]
                if kind is Act.DRAIN:
                    ours = [name for name in names if there[name].is_drained]
                    slurm.drain(ours, reason=reason, overwrites_reason=True)
                    slurm.drain([name for name in names if name not in ours], reason=reason)
                else:
                    slurm.resume(names, drained_for=reason)
                done += some
    finally:
        drafts = [Draft(NodeSteered(steer.node, feed, steer.act), steer.reason) for steer in done]
        keeper.commit(drafts, actor=actor, reason=f"steered {feed}", read_at=None, epoch=epoch)
    return done
