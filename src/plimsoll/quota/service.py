"""Quota with effects: applies alignments, lets the controller act, takes policies and answers; decides nothing."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Sequence
from datetime import date, timedelta

from plimsoll.errors import NotFound, Refused, Stale
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import PoolKey
from plimsoll.ledger.model import Draft, Event
from plimsoll.quota.apply import Applied, decide_apply
from plimsoll.quota.changes import LinePolicyApplied, ModeSet, NoticeAnswered
from plimsoll.quota.control import Step, control
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import pool_keys
from plimsoll.quota.model import Answer, Mode, Notice
from plimsoll.quota.plan import Plan, policy_in_force
from plimsoll.quota.policy import Policy, check_policy
from plimsoll.quota.rollout import announce
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State

CHANGES_TOLD_MAX = 3


def apply_plan(
    keeper: Keeper,
    make: Callable[[State], Plan],
    *,
    actor: str,
    reason: str = "",
    planned_at: int | None = None,
    needs_notice: bool = True,
    is_dry_run: bool = False,
) -> tuple[Applied, list[Event]]:
    """Apply a plan as it was shown. If somebody changed one of its pools meanwhile, nothing is applied, and it is said
    what changed: a correction is never made on numbers that nobody has seen.
    """
    state = keeper.state()
    plan = make(state)
    now = keeper.ledger.clock()
    applied = decide_apply(state, plan, policy_in_force(state).stability, now=now, needs_notice=needs_notice)
    if is_dry_run or not applied.drafts:
        return applied, []
    read_at = state.revision if planned_at is None else planned_at
    streams = [each.key.stream for each in plan.pools]
    try:
        events = keeper.commit(applied.drafts, actor=actor, reason=reason, read_at=read_at, reads=streams)
    except Stale as stale:
        raise _told_what_changed(keeper, stale, streams, read_at) from None
    return applied, events


def _told_what_changed(keeper: Keeper, stale: Stale, streams: Collection[str], read_at: int) -> Stale:
    """The same refusal with who did what: the other person is to be talked to, not to be overwritten."""
    names = set(streams)
    changes = [event for event in keeper.ledger.store.events(after=read_at) if event.subject in names]
    told = "; ".join(
        f"{event.actor} {event.kind} on {event.subject} (revision {event.revision})"
        for event in changes[:CHANGES_TOLD_MAX]
    )
    more = f" and {len(changes) - CHANGES_TOLD_MAX} more" if len(changes) > CHANGES_TOLD_MAX else ""
    return Stale(
        stale.code,
        f"nothing was applied: since revision {read_at} {told}{more}",
        next_step="plimsoll quota plan, then apply what it shows",
        **stale.fields,
    )


def run_controller(
    keeper: Keeper, *, actor: str, clusters: Collection[str] = (), is_dry_run: bool = False
) -> tuple[list[Step], list[Event]]:
    """One round: look at every pool, and act in the clusters whose mode is `enforce`."""
    now = keeper.ledger.clock()

    def decide(state: State) -> tuple[list[Step], Sequence[Draft]]:
        steps = control(state, policy_in_force(state), now=now)
        if clusters:
            steps = [step for step in steps if step.key.cluster in clusters]
        modes = state.of(QuotaBook).modes
        drafts = [draft for step in steps if modes.get(step.key.cluster) is Mode.ENFORCE for draft in step.drafts]
        return steps, drafts

    if is_dry_run:
        return decide(keeper.state())[0], []
    return keeper.decide_and_commit(decide, actor=actor, reason="controller")


def put_policy_in_force(
    keeper: Keeper, text: str, *, source: str, actor: str, reason: str, is_dry_run: bool = False
) -> tuple[Policy, int]:
    """Another policy from now on; what it would change is shown by a plan."""

    def decide(state: State) -> tuple[Policy, list[Draft]]:
        policy = check_policy(text, state.of(Fleet), source=source)
        return policy, [Draft(LinePolicyApplied(policy.name, text))]

    if is_dry_run:
        return decide(keeper.state())[0], keeper.state().revision
    policy, events = keeper.decide_and_commit(decide, actor=actor, reason=reason or f"policy {source}")
    return policy, events[-1].revision


def set_mode(keeper: Keeper, cluster: str, mode: Mode, *, actor: str, reason: str) -> int:
    """What the controller may do in a cluster by itself."""

    def decide(state: State) -> tuple[None, list[Draft]]:
        check_cluster(state, cluster)
        is_same = state.of(QuotaBook).modes.get(cluster, Mode.OBSERVE) is mode
        return None, [] if is_same else [Draft(ModeSet(cluster, mode))]

    _, events = keeper.decide_and_commit(decide, actor=actor, reason=reason)
    return events[-1].revision if events else keeper.state().revision


def check_cluster(state: State, cluster: str) -> None:
    """Raises `NotFound` with the name that was probably meant."""
    clusters = state.of(Fleet).clusters
    if cluster not in clusters:
        raise NotFound(
            "no_such_cluster",
            f"there is no cluster {cluster[:100]!r} among {len(clusters)}{near_text(cluster, clusters)}",
            next_step="plimsoll fleet show --by cluster",
            cluster=cluster[:100],
        )


def near_text(name: str, known: Collection[str]) -> str:
    """A hint at the name that was probably meant."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def give_notices(
    keeper: Keeper,
    make: Callable[[State], Plan],
    *,
    start: date,
    every: timedelta,
    actor: str,
    reason: str,
) -> tuple[list[Notice], list[Event]]:
    """Announce a roll-out: every team that loses something is told."""
    now = keeper.ledger.clock()

    def decide(state: State) -> tuple[list[Notice], list[Draft]]:
        return announce(state, make(state), start=start, every=every, now=now)

    return keeper.decide_and_commit(decide, actor=actor, reason=reason or "roll-out")


def answer_notices(
    keeper: Keeper,
    team: str,
    answer: Answer,
    *,
    cluster: str = "",
    sku: str = "",
    comment: str,
    actor: str,
) -> tuple[list[Notice], list[Event]]:
    """A team agrees to its open notices, or objects to them; those of one cluster or SKU where named."""

    def decide(state: State) -> tuple[list[Notice], list[Draft]]:
        open_notices = [notice for _, notice in sorted(state.of(QuotaBook).notices.items())]
        mine = [notice for notice in open_notices if notice.team == team]
        meant = [each for each in mine if cluster in ("", each.cluster) and sku in ("", each.sku)]
        if not meant:
            where = " ".join(word for word in (cluster, sku) if word)
            raise NotFound(
                "no_such_notice",
                f"{team} has no open notice" + (f" for {where}" if where else "") + f"; it has {len(mine)} in all",
                next_step="plimsoll quota notices",
                team=team,
            )
        return meant, [Draft(NoticeAnswered(notice.id, answer, comment)) for notice in meant]

    if answer is Answer.OBJECTED and not comment.strip():
        raise Refused("reason_missing", "an objection needs a reason", next_step="--reason WHY")
    return keeper.decide_and_commit(decide, actor=actor, reason=comment)


def pools_of(state: State, clusters: Collection[str], skus: Collection[str] = ()) -> list[PoolKey] | None:
    """The pools that names mean; None for all."""
    for cluster in clusters:
        check_cluster(state, cluster)
    if not clusters and not skus:
        return None
    return [
        key for key in pool_keys(state) if (not clusters or key.cluster in clusters) and (not skus or key.sku in skus)
    ]
