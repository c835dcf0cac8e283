"""Whether a cluster is ready to be the first whose quota follows its health, and what is missing. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from plimsoll.errors import Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Phase, Service
from plimsoll.health.decide import policy_in_force as health_policy
from plimsoll.health.fold import FLEET_SCOPE, Health, cluster_scope
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import pool_keys
from plimsoll.quota.hurt import lost_by
from plimsoll.quota.lines import pasts
from plimsoll.quota.model import Answer, QuotaKey
from plimsoll.quota.outlets.model import Step
from plimsoll.quota.plan import make_plan
from plimsoll.quota.policy import Policy
from plimsoll.state.state import State
from plimsoll.words import counted, span_text

HISTORY_DAYS_MIN = 90
COVERED_SHARE_MIN = 0.98
OWNED_SHARE_MIN = 0.95
NAMES_SHOWN = 5


class Check(enum.StrEnum):
    """What a cluster needs before its quota is steered by itself."""

    PRODUCTION = "production"
    HEALTH_FEED = "health_feed"
    HISTORY = "history"
    QUOTAS = "quotas"
    OWNERS = "owners"
    BREAKERS = "breakers"
    EFFECT = "effect"
    DRIFT = "drift"


class Finding(msgspec.Struct, frozen=True):
    """Whether one need is met, with the number, and what to do where it is not."""

    check: Check
    is_met: bool
    found: str
    next_step: str = ""


def pilot(
    state: State,
    cluster: str,
    policy: Policy,
    *,
    now: datetime,
    heard: Mapping[str, datetime],
    unowned: Sequence[str],
    work_count: int,
    drift: Sequence[Step] | None,
) -> list[Finding]:
    """All needs of a cluster, met or not.

    `heard`: when each feed last spoke. `unowned`: running work of the cluster, of so much in all, that names no owner.
    `drift`: what differs in its scheduler, None where none was asked.
    """
    fleet = state.of(Fleet)
    phase = fleet.clusters[cluster].phase
    nodes = [node for node in fleet.nodes.values() if node.cluster == cluster and node.service is not Service.RETIRED]
    is_in = phase is Phase.PRODUCTION and bool(nodes)
    findings = [
        Finding(
            Check.PRODUCTION,
            is_in,
            f"phase {phase}, {counted(len(nodes), 'node')}",
            f"plimsoll fleet show cluster={cluster}",
        )
    ]
    findings.append(_feed(state, nodes, heard, now))
    findings.append(_history(state, cluster, now))
    findings.append(_quotas(state, cluster))
    findings.append(_owners(unowned, work_count))
    scopes = (cluster_scope(cluster), FLEET_SCOPE)
    breakers = sorted(scope for scope in state.of(Health).breakers if scope in scopes)
    found = f"{counted(len(breakers), 'breaker')} tripped" + _names(breakers)
    next_step = f"plimsoll health breaker {breakers[0]} --go-on --reason WHY" if breakers else ""
    findings.append(Finding(Check.BREAKERS, not breakers, found, next_step))
    if is_in:
        findings.append(_effect(state, cluster, policy, now))
    findings.append(_drift(cluster, drift))
    return [msgspec.structs.replace(finding, next_step="") if finding.is_met else finding for finding in findings]


def _feed(state: State, nodes: Sequence[Node], heard: Mapping[str, datetime], now: datetime) -> Finding:
    """Every node is watched by a feed that speaks."""
    health = state.of(Health)
    silence = health_policy(state).silence
    fresh = {
        name
        for name, at in heard.items()
        if now - at <= silence and not (name in health.feeds and health.feeds[name].is_silent)
    }
    covered = sum(any(feed in fresh for feed in health.covers.get(node.id, ())) for node in nodes)
    share = covered / len(nodes) if nodes else 0.0
    found = f"{covered:,} of {counted(len(nodes), 'node')} watched by a feed heard in the last {span_text(silence)}"
    return Finding(Check.HEALTH_FEED, share >= COVERED_SHARE_MIN, found, "plimsoll health observe --help")


def _history(state: State, cluster: str, now: datetime) -> Finding:
    pools = [key for key in state.of(Fleet).pools if key.cluster == cluster]
    days = max((history.span.days for history in pasts(state, pools, now=now).values()), default=0.0)
    found = f"{days:.0f} days of history, {HISTORY_DAYS_MIN} are needed"
    return Finding(Check.HISTORY, days >= HISTORY_DAYS_MIN, found, "import history.csv, or wait")


def _quotas(state: State, cluster: str) -> Finding:
    """Who runs work holds quota, and quota is for nodes that exist."""
    book, fleet = state.of(QuotaBook), state.of(Fleet)
    keys = [key for key in pool_keys(state) if key.cluster == cluster]
    without = [
        f"{team} ({key.sku})"
        for key in keys
        for team in book.pool_teams.get(key, ())
        if QuotaKey(team, *key) not in book.quotas
    ]
    unbacked = [f"{key.sku}" for key in keys if key not in fleet.pools and book.assigned.get(key, 0)]
    held = sum(QuotaKey(team, *key) in book.quotas for key in keys for team in book.pool_teams.get(key, ()))
    found = f"{counted(held, 'quota')}; {counted(len(without), 'team')} with work and without quota" + _names(without)
    if unbacked:
        found += f"; quota for {', '.join(unbacked)}, of which there are no nodes"
    is_met = bool(held) and not without and not unbacked
    return Finding(Check.QUOTAS, is_met, found, "complete quotas.csv and import it")


def _owners(unowned: Sequence[str], work_count: int) -> Finding:
    share = 1 - len(unowned) / work_count if work_count else 1.0
    found = f"{work_count - len(unowned):,} of {counted(work_count, 'workload')} with an owner"
    found += f"; without{_names(unowned)}" if unowned else ""
    return Finding(Check.OWNERS, share >= OWNED_SHARE_MIN, found, "add the column owner to workloads.csv")


def _effect(state: State, cluster: str, policy: Policy, now: datetime) -> Finding:
    """What the correction takes: running work only with its owners' agreement."""
    keys = [key for key in pool_keys(state) if key.cluster == cluster]
    try:
        plan = make_plan(state, policy, now=now, pools=keys)
    except Refused as refused:
        return Finding(Check.EFFECT, False, refused.message, refused.next_step)
    cut = [(each, team, haircut) for each in plan.pools for team, haircut in lost_by(each).items()]
    # By whom they are for: a team that was renamed has answered under its old name.
    notices = {notice.key: notice for notice in state.of(QuotaBook).notices.values()}
    silent = [
        team
        for each, team, haircut in cut
        if haircut.running
        and ((notice := notices.get(QuotaKey(team, *each.key))) is None or notice.answer is not Answer.AGREED)
    ]
    kinds = [
        f"{sum(getattr(haircut, kind) for _, _, haircut in cut):,} {kind}"
        for kind in ("unscheduled", "idle", "running")
    ]
    found = f"it takes {', '.join(kinds)} GPUs"
    if silent:
        found += f"; without agreement: {', '.join(silent[:NAMES_SHOWN])}{_more(silent)}"
    return Finding(Check.EFFECT, not silent, found, "plimsoll quota rollout --announce, then plimsoll quota agree TEAM")


def _drift(cluster: str, drift: Sequence[Step] | None) -> Finding:
    if drift is None:
        next_step = f"plimsoll quota pilot {cluster} --outlet slurm"
        return Finding(Check.DRIFT, False, "no scheduler was asked", next_step)
    names = [step.name for step in drift]
    found = f"{counted(len(names), 'setting')} of the scheduler changed by hand" + _names(names)
    return Finding(Check.DRIFT, not names, found, "plimsoll quota push --help")


def _names(names: Sequence[str]) -> str:
    if not names:
        return ""
    return f": {', '.join(names[:NAMES_SHOWN])}{_more(names)}"


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
