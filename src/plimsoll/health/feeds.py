"""The feeds: ask the outside what it sees, and take that in; steer schedulers the other way. Effects only.

A feed that can't be reached raises and is not heard: after a while the sweep calls it silent and its nodes unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

import msgspec

from plimsoll.connect.kubernetes import KubernetesNode
from plimsoll.connect.prometheus import Prometheus, Sample
from plimsoll.connect.slurm import Slurm
from plimsoll.errors import Refused, Unavailable
from plimsoll.fleet.fold import Fleet
from plimsoll.health.changes import NodeSteered
from plimsoll.health.decide import Outcome, policy_in_force
from plimsoll.health.fold import Health
from plimsoll.health.outside import (
    OURS,
    Act,
    Seen,
    Steer,
    follow_holds,
    resumed_of_late,
    seen_in_kubernetes,
    seen_in_slurm,
    steers_for,
)
from plimsoll.health.policy import Query
from plimsoll.health.service import Observed, act, observe
from plimsoll.health.signals import Signal, SignalKind
from plimsoll.ledger.model import Draft
from plimsoll.ledger.store import Store
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State

NAMES_SHOWN = 3
ABOUT_THE_QUERY = "PromQL "
"""How Prometheus begins a remark about the words of a query; any other warning says that something is missing."""


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
    at = None
    answers: dict[str, bool] = {}
    for query in policy_in_force(state).queries:
        vector = prometheus.query(query.query)
        label = f"{query.kind} {query.name}".strip()
        if query.kind is not SignalKind.XID:  # that there is no XID is good news
            answers[label] = bool(vector.samples or vector.nan_count)
        if vector.nan_count:
            notes.append(f"{label}: {vector.nan_count:,} samples were no number and were left out")
        notes += _remarks(prometheus.where, label, vector.warnings)
        for sample in vector.samples:
            name = _node_name(sample.labels.get(query.node_label, ""), fleet)
            at = sample.at if at is None else max(at, sample.at)
            if name not in fleet.nodes:
                unknown[name or f"(no label {query.node_label})"] += 1
            elif (signal := _signal(query, name, sample)) is not None:
                signals.append(signal)
    notes += _strangers([name for name, _ in unknown.most_common()])
    if at is None or not signals:
        raise Refused(
            "feed_empty",
            f"{prometheus.where} answered, but with no sample of any node",
            next_step="plimsoll health policy show, and try its queries on the server's own page",
            unknown=list(unknown)[:20],
        )
    swept = {signal.node for signal in signals}
    _check_source(state, swept, feed)
    _check_all_answered(keeper.ledger.store, prometheus.where, feed, answers, is_dry_run=is_dry_run)
    observed = observe(keeper, signals, feed=feed, actor=actor, swept=swept, at=at, is_dry_run=is_dry_run)
    return Fed(observed, notes)


def _remarks(where: str, label: str, warnings: Iterable[str]) -> list[str]:
    """What a server remarked about a query. A warning that a part did not answer leaves nothing to judge by.

    Half an answer taken for a whole one would keep nodes healthy that nobody looks at. So the feed is not heard, and
    after a while it is silent.
    """
    missing = [warning for warning in warnings if not warning.startswith(ABOUT_THE_QUERY)]
    if missing:
        raise Unavailable(
            "feed_partial",
            f"{where} answered {label} with a part only: {missing[0]}; nothing was taken",
            next_step="look after the servers behind it; it is heard again when all of them answer",
            warnings=missing,
        )
    return [f"{label}: {warning}" for warning in warnings]


def _check_all_answered(store: Store, where: str, feed: str, answers: Mapping[str, bool], *, is_dry_run: bool) -> None:
    """Refuse an answer in which a query has no sample any more that had some before: its exporters are gone.

    Else the heartbeats of one exporter would keep nodes healthy whose GPUs nobody looks at.
    """
    scope = f"queries/{feed}"
    before = {name for _, name in store.cursors([scope])}
    answered = {name for name, is_answered in answers.items() if is_answered}
    if lost := sorted(before.intersection(answers) - answered):
        raise Unavailable(
            "feed_partial",
            f"{where} has no sample any more for {', '.join(lost)}; nothing was taken",
            next_step="look after the exporters; or, if it is meant so, take the query out of the policy",
            queries=lost,
        )
    if not is_dry_run and answered - before:
        store.update_cursors([scope], lambda _found: {(scope, name): "seen" for name in answered - before})


def _strangers(names: Sequence[str]) -> list[str]:
    """A note about names that the fleet does not know."""
    if not names:
        return []
    shown = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
    what = "name is no node" if len(names) == 1 else "names are no nodes"
    return [f"{len(names):,} {what} of the fleet: {shown}"]


def _check_source(state: State, swept: Collection[str], feed: str) -> None:
    """Refuse an answer that knows none of the nodes that its feed spoke of: it is another source under the same name.

    Else all of them would have lost their heartbeat.
    """
    before = {node for node, feeds in state.of(Health).covers.items() if feed in feeds}
    if before and before.isdisjoint(swept):
        raise Refused(
            "feed_differs",
            f"feed {feed} speaks of {len(before):,} nodes, and this answer of {len(swept):,} others and none of them",
            next_step="give each source a name of its own: --feed NAME",
            feed=feed,
        )


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
    resumed = resumed_of_late(keeper.state(), feed=feed, at=at)
    seen = seen_in_slurm(slurm.nodes(), feed=feed, at=at, resumed=resumed)
    return _take_in(keeper, seen, feed=feed, actor=actor, at=at, is_dry_run=is_dry_run)


def _take_in(keeper: Keeper, seen: Seen, *, feed: str, actor: str, at: datetime, is_dry_run: bool) -> Fed:
    fleet = keeper.state().of(Fleet)
    known = seen.nodes.intersection(fleet.nodes)
    unknown = sorted(seen.nodes - known)
    if not known:
        raise Refused(
            "feed_empty",
            f"of the {len(seen.nodes):,} nodes that {feed} names none is in the fleet",
            next_step="plimsoll fleet nodes, to compare the names",
            unknown=unknown[:20],
        )
    _check_source(keeper.state(), known, feed)
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
    return Fed(msgspec.structs.replace(observed, outcome=both, revision=revision), _strangers(unknown))


def steer_slurm(keeper: Keeper, slurm: Slurm, *, feed: str, actor: str, is_dry_run: bool = False) -> list[Steer]:
    """Make Slurm do as our facts say. It is asked first, so that nothing is done twice or against an operator."""
    there = {node.name: node for node in slurm.nodes()}
    steers = steers_for(keeper.state(), there)
    if is_dry_run:
        return steers
    batches: dict[tuple[Act, str, bool], list[Steer]] = {}
    for steer in steers:
        batches.setdefault((steer.act, steer.reason, there[steer.node].is_drained), []).append(steer)
    done: list[Steer] = []
    failed: Refused | None = None
    try:
        for (kind, reason, is_drained), batch in sorted(batches.items()):
            names = [steer.node for steer in batch]
            try:
                if kind is Act.RESUME:
                    there_after = {node.name for node in slurm.resume(names, drained_for=reason)}
                else:
                    there_after = _drain(slurm, names, reason, is_drained=is_drained)
            except Refused as error:  # some were done, and the other batches have nothing to do with it
                failed = failed or error
                there_after = set(_list(error.fields.get("done")))
            done += [steer for steer in batch if steer.node in there_after]
    finally:
        drafts = [Draft(NodeSteered(steer.node, feed, steer.act), steer.reason) for steer in done]
        keeper.commit(drafts, actor=actor, reason=f"steered {feed}", read_at=None)
    if failed is not None:
        raise failed
    return done


def _drain(slurm: Slurm, names: Sequence[str], reason: str, *, is_drained: bool) -> set[str]:
    """Drain nodes, and say which are drained for our reason then. An operator may have been quicker with some.

    What is drained there already is so for an older reason of ours; whether it still is, is looked at right before.
    """
    if is_drained:
        wanted = set(names)
        names = [node.name for node in slurm.nodes() if node.name in wanted and node.reason.startswith(OURS)]
    drained = slurm.drain(names, reason=reason, overwrites_reason=is_drained)
    return {node.name for node in drained if node.reason == reason}


def _list(found: object) -> list[str]:
    return found if isinstance(found, list) else []
