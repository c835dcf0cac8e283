"""Where the line of each pool is now, by the policy and on today's health. Pure.

A line is in whole nodes, and never above what is healthy. What lies behind it (the share that a pool was in service,
the forecast) is looked up only where a rule asks for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction

import msgspec
import numpy as np

from plimsoll.errors import Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Count, Node, Phase, PoolKey
from plimsoll.health.fold import Health
from plimsoll.health.forecast.history import HOUR, History, Marks, Span, history_of, without_the_untold
from plimsoll.health.forecast.live import live_span
from plimsoll.health.forecast.method import Ask
from plimsoll.health.forecast.present import forecast_state
from plimsoll.health.model import to_microseconds
from plimsoll.quota.policy import DEFAULT_RULE, LineBy, Policy, Rule, day_of
from plimsoll.state.state import State

SHARE_PARTS = 10**9


class LineNow(msgspec.Struct, frozen=True):
    """The most GPUs of a pool that may be promised, and why."""

    gpus: int
    policy: str
    why: str
    warning: str = ""


def lines_now(
    state: State, policy: Policy, *, now: datetime, pools: Collection[PoolKey] | None = None
) -> dict[PoolKey, LineNow]:
    """The lines of these pools, or of all; a pool that is not in production has none."""
    fleet = state.of(Fleet)
    asked = sorted(fleet.pools if pools is None else {pool for pool in pools if pool in fleet.pools})
    day = day_of(now)
    rules = {
        pool: policy.rules_for(cluster, pool.sku, day)
        for pool in asked
        if (cluster := fleet.clusters[pool.cluster]).phase is Phase.PRODUCTION
    }
    behind = _Behind(state, now, rules)
    return {pool: _lowest([behind.line(pool, fleet.pools[pool], rule) for rule in rules[pool]]) for pool in rules}


def _lowest(lines: Sequence[LineNow]) -> LineNow:
    """A pool that several rules match since the fleet changed takes the most careful one, and says so."""
    lowest = min(lines, key=lambda line: line.gpus)
    if len(lines) == 1:
        return lowest
    warning = f"{len(lines)} rules match ({', '.join(line.policy for line in lines)}): the lowest line counts"
    return msgspec.structs.replace(lowest, warning=warning)


def fixed_nodes(*, total: int, healthy: int, buffer: Fraction, is_of_healthy: bool = False) -> int:
    """The line of `fixed` and `tiered`, in nodes."""
    base = healthy if is_of_healthy else total
    return min(healthy, int((1 - buffer) * base))


def tier_buffer(rule: Rule, share: float) -> Fraction:
    """The buffer of a pool that was in service for this share of its past."""
    # A share is a quotient of floats: one that is 0.95 on paper must not miss its tier by a hair.
    exact_share = Fraction(round(share * SHARE_PARTS), SHARE_PARTS)
    return next(tier.buffer for tier in rule.tiers if exact_share >= tier.healthy_share)


class _Behind:
    """What rules look at, found when the first of them asks."""

    def __init__(self, state: State, now: datetime, rules: Mapping[PoolKey, Sequence[Rule]]) -> None:
        self._state, self._now, self._rules = state, now, rules
        self._shares: dict[timedelta, dict[PoolKey, float]] = {}
        self._forecasts: dict[Rule, dict[PoolKey, tuple[int, int]] | Refused] = {}

    def line(self, pool: PoolKey, count: Count, rule: Rule) -> LineNow:
        total, healthy, size = count.nodes, count.nodes_in_service, count.gpus_per_node
        if rule.by is LineBy.FORECAST:
            try:
                nodes, why = self._forecast(pool, rule)
            except Refused as refused:
                # A policy in force must give a line whatever the history; who asks for a forecast is told why not.
                if not rule.line:
                    raise
                stead = self.line(pool, count, DEFAULT_RULE)
                warning = f"{refused.message}: {stead.policy} in the place of {rule.word}"
                return msgspec.structs.replace(stead, warning=warning)
            return LineNow(min(healthy, nodes) * size, rule.word, why)
        if rule.by is LineBy.TIERED:
            share = self._share(pool, rule.window)
            if share is None:
                buffer, why = rule.tiers[-1].buffer, "no history: the largest buffer"
            else:
                buffer = tier_buffer(rule, share)
                why = f"in service {share:.2%} over up to {rule.window.days} days: buffer {float(buffer):g}"
        else:
            buffer = rule.buffer
            why = f"buffer {float(buffer):g} of {'healthy' if rule.is_of_healthy else 'total'}"
        nodes = fixed_nodes(total=total, healthy=healthy, buffer=buffer, is_of_healthy=rule.is_of_healthy)
        if nodes == healthy < int((1 - buffer) * total):
            why += "; no more is healthy"
        return LineNow(nodes * size, rule.word, why)

    def _share(self, pool: PoolKey, window: timedelta) -> float | None:
        if window not in self._shares:
            pools = [each for each, rules in self._rules.items() if any(r.by is LineBy.TIERED for r in rules)]
            self._shares[window] = shares_in_service(self._state, pools, window=window, now=self._now)
        return self._shares[window].get(pool)

    def _forecast(self, pool: PoolKey, rule: Rule) -> tuple[int, str]:
        """The nodes that hold with the target probability, less the reserve for a common cause."""
        key = msgspec.structs.replace(rule, scope=type(rule.scope)(), line=0)
        if key not in self._forecasts:
            ask = Ask(rule.horizon // timedelta(hours=1), float(rule.target))
            try:
                pools = forecast_state(self._state, ask, now=self._now).pools
                self._forecasts[key] = {each.pool: (each.promised, each.reserve.held_nodes) for each in pools}
            except Refused as refused:
                self._forecasts[key] = refused
        found = self._forecasts[key]
        if isinstance(found, Refused):
            raise found
        promised, reserve = found.get(pool, (0, 0))
        why = (
            f"{promised} nodes hold for {rule.horizon.days} days with {float(rule.target):g}, less {reserve} in reserve"
        )
        return max(0, promised - reserve), why


def shares_in_service(
    state: State, pools: Collection[PoolKey], *, window: timedelta, now: datetime
) -> dict[PoolKey, float]:
    """For each pool the share of its node-hours of the window that were in service; none for a pool without a past."""
    past = pasts(state, pools, now=now)
    found = ((pool, share_before(history, history.span.hour_count, window)) for pool, history in past.items())
    return {pool: share for pool, share in found if share is not None}


def pasts(state: State, pools: Collection[PoolKey], *, now: datetime) -> dict[PoolKey, History]:
    """The history of these pools, up to now; empty where nobody told a transition."""
    fleet, health = state.of(Fleet), state.of(Health)
    marks = Marks(health)
    span = live_span(fleet, health, marks)
    if span is None:
        return {}
    end = max(span.end, to_microseconds(now))
    span = Span(end - max(1, (end - span.start) // HOUR) * HOUR, end)
    nodes: dict[PoolKey, list[Node]] = {pool: [] for pool in pools}
    for node in fleet.nodes.values():
        key = PoolKey(node.cluster, node.sku)
        if key in nodes:
            nodes[key].append(node)
    return {
        pool: history_of(
            " ".join(pool), without_the_untold(sorted(each, key=lambda n: n.id), health, marks), health, marks, span
        )
        for pool, each in nodes.items()
    }


def share_before(history: History, hour: int, window: timedelta) -> float | None:
    """The share of the node-hours of the window before an hour that were in service; none where there were none."""
    start = max(0.0, hour - window / timedelta(hours=1))
    if not history.node_count or hour <= start:
        return None
    out = np.clip(np.minimum(history.ended, hour) - np.maximum(history.began, start), 0, None).sum()
    return 1 - float(out) / (history.node_count * (hour - start))
