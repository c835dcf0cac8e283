"""Quota with effects: applies alignments, lets the controller act, takes policies and answers; decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import date, datetime, timedelta

from plimsoll.errors import NotFound, PlimsollError, Stale, UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import PoolKey
from plimsoll.ledger.model import Draft, Event
from plimsoll.quota.apply import Applied, decide_apply
from plimsoll.quota.changes import LinePolicyApplied, ModeSet, NoticeAnswered
from plimsoll.quota.control import Step, control
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import pool_keys
from plimsoll.quota.model import Answer, Mode, Notice
from plimsoll.quota.names import check_cluster
from plimsoll.quota.plan import Plan, PoolPlan, policy_in_force
from plimsoll.quota.policy import Policy, check_policy
from plimsoll.quota.requests.clerk import POLICY_STREAM, settle_now
from plimsoll.quota.rollout import announce
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.words import counted, near

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
    """Apply a plan as it was shown. If somebody changed one of its pools meanwhile, or the plan would be another one
    by now, nothing is applied, and it is said what changed: a correction is never made on numbers that nobody has seen.
    """
    state = keeper.state()
    plan = make(state)
    if planned_at is not None and planned_at < state.revision:
        _refuse_if_other(keeper, plan, make, planned_at)
    now = keeper.ledger.clock()
    applied = decide_apply(state, plan, policy_in_force(state).stability, now=now, needs_notice=needs_notice)
    if is_dry_run or not applied.drafts:
        return applied, []
    read_at = state.revision if planned_at is None else planned_at
    streams = [*(each.key.stream for each in plan.pools), POLICY_STREAM]
    try:
        events = keeper.commit(applied.drafts, actor=actor, reason=reason, read_at=read_at, reads=streams)
    except Stale as stale:
        if stale.code != "stale":
            raise
        raise _told_what_changed(keeper, stale, streams, read_at) from None
    return applied, events


def _refuse_if_other(keeper: Keeper, plan: Plan, make: Callable[[State], Plan], planned_at: int) -> None:
    """Raises `Stale` where the plan of then would not be made now: health may have moved the lines."""
    try:
        then = {each.key: each for each in make(keeper.as_of(planned_at)).pools}
    except PlimsollError:
        then = {}
    moved = [each for each in plan.pools if each.key not in then or _numbers(then[each.key]) != _numbers(each)]
    gone = sorted(then.keys() - {each.key for each in plan.pools})
    if not moved and not gone:
        return
    keys = [*(each.key for each in moved), *gone]
    what = ", ".join(f"{key.cluster} {key.sku}" for key in keys[:CHANGES_TOLD_MAX])
    if moved and (old := then.get(moved[0].key)) is not None:
        what += f" (a line of {old.line.gpus:,} GPUs then, {moved[0].line.gpus:,} now)" if len(keys) == 1 else ""
    stale = Stale("stale", "", stream=keys[0].stream, read_at=planned_at, streams=[key.stream for key in keys[:100]])
    raise _told_what_changed(
        keeper, stale, [key.stream for key in keys], planned_at, f"the plan is another one for {what}"
    )


def _numbers(each: PoolPlan) -> tuple[object, ...]:
    """What a person who looked at a plan has seen of a pool."""
    return each.line.gpus, dict(each.alignment.guaranteed), dict(each.assigned)


def _told_what_changed(
    keeper: Keeper, stale: Stale, streams: Collection[str], read_at: int, otherwise: str = ""
) -> Stale:
    """The same refusal with who did what: the other person is to be talked to, not to be overwritten."""
    moved = stale.fields.get("streams")
    names = {*streams, POLICY_STREAM, *(moved if isinstance(moved, list) else ())}
    changes = [event for event in keeper.ledger.store.events(after=read_at) if event.subject in names]
    told = "; ".join(
        f"{event.actor} changed {event.subject} ({event.kind}, revision {event.revision})"
        for event in changes[:CHANGES_TOLD_MAX]
    )
    more = f" and {counted(len(changes) - CHANGES_TOLD_MAX, 'more change')}" if len(changes) > CHANGES_TOLD_MAX else ""
    return Stale(
        stale.code,
        f"nothing was applied: since revision {read_at} {told or otherwise}{more}",
        next_step="plimsoll quota plan",
        **stale.fields,
    )


def run_controller(
    keeper: Keeper,
    *,
    actor: str,
    clusters: Collection[str] = (),
    is_dry_run: bool = False,
    epoch: int | None = None,
) -> tuple[list[Step], list[Event]]:
    """One round: let time do its work, look at every pool, and act in the clusters whose mode is `enforce`."""
    reads: set[str] = {POLICY_STREAM}

    def decide(state: State) -> tuple[list[Step], Sequence[Draft]]:
        pools = [key for key in pool_keys(state) if key.cluster in clusters] if clusters else None
        steps = control(state, policy_in_force(state), now=keeper.ledger.clock(), pools=pools)
        modes = state.of(QuotaBook).modes
        acting = [step for step in steps if step.drafts and modes.get(step.key.cluster) is Mode.ENFORCE]
        # Whoever takes the controller's right to act away, or moves a pool that it decides on, comes before it.
        reads.update(f"cluster/{step.key.cluster}" for step in acting)
        reads.update(step.key.stream for step in acting)
        return steps, [draft for step in acting for draft in step.drafts]

    if is_dry_run:
        return decide(keeper.state())[0], []
    _, settled = settle_now(keeper, actor=actor, epoch=epoch)
    steps, events = keeper.decide_and_commit(decide, actor=actor, reason="controller", reads=reads, epoch=epoch)
    return steps, [*settled, *events]


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


def set_mode(
    keeper: Keeper, cluster: str, mode: Mode, *, actor: str, reason: str, is_dry_run: bool = False
) -> tuple[list[Draft], list[Event]]:
    """What the controller may do in a cluster by itself: what has to be recorded for it, and what was."""

    def decide(state: State, _now: datetime) -> tuple[list[Draft], list[Draft]]:
        check_cluster(state, cluster)
        is_same = state.of(QuotaBook).modes.get(cluster, Mode.OBSERVE) is mode
        drafts = [] if is_same else [Draft(ModeSet(cluster, mode))]
        return drafts, drafts

    return keeper.say(decide, actor=actor, reason=reason, is_dry_run=is_dry_run)


def give_notices(
    keeper: Keeper,
    make: Callable[[State], Plan],
    *,
    start: date,
    every: timedelta,
    actor: str,
    reason: str,
    is_dry_run: bool = False,
) -> tuple[list[Notice], list[Event]]:
    """Announce a roll-out: every team that loses something is told."""
    reads: set[str] = {POLICY_STREAM}

    def decide(state: State, now: datetime) -> tuple[list[Notice], list[Draft]]:
        plan = make(state)
        # Nobody is told numbers of a pool that somebody has corrected meanwhile.
        reads.update(each.key.stream for each in plan.pools)
        return announce(state, plan, start=start, every=every, now=now)

    return keeper.say(decide, actor=actor, reason=reason or "roll-out", reads=reads, is_dry_run=is_dry_run)


def answer_notices(
    keeper: Keeper,
    team: str,
    answer: Answer,
    *,
    cluster: str = "",
    sku: str = "",
    comment: str,
    actor: str,
    is_dry_run: bool = False,
) -> tuple[list[Draft], list[Event]]:
    """A team agrees to its open notices, or objects to them; those of one cluster or SKU where named."""
    read: dict[str, Notice] = {}

    def decide(state: State, _now: datetime) -> tuple[list[Draft], list[Draft]]:
        open_notices = [notice for _, notice in sorted(state.of(QuotaBook).notices.items())]
        mine = [notice for notice in open_notices if notice.team == team]
        meant = [each for each in mine if cluster in ("", each.cluster) and sku in ("", each.sku)]
        if not meant:
            raise _no_such_notice(team, " ".join(word for word in (cluster, sku) if word), mine, open_notices)
        for notice in meant:
            _refuse_if_told_anew(read.setdefault(notice.id, notice), notice)
        drafts = [Draft(NoticeAnswered(notice.id, answer, comment)) for notice in meant]
        return drafts, drafts

    if answer is Answer.OBJECTED and not comment.strip():
        next_step = f"plimsoll quota object {team} --reason WHY"
        raise UsageError("reason_missing", "an objection needs a reason", next_step=next_step)
    return keeper.say(decide, actor=actor, reason=comment, is_dry_run=is_dry_run)


def _no_such_notice(team: str, where: str, mine: Sequence[Notice], open_notices: Sequence[Notice]) -> NotFound:
    if mine:
        message = f"{team} has no open notice for {where}; it has {counted(len(mine), 'open notice')} elsewhere"
    else:
        message = f"no notice is open for {team[:100]!r}{near(team, {each.team for each in open_notices})}"
    return NotFound("no_such_notice", message, next_step="plimsoll quota notices", team=team[:100])


def _refuse_if_told_anew(read: Notice, now: Notice) -> None:
    """Nobody agrees to what was told only while the answer was under way."""
    if (read.guaranteed, read.haircut, read.due) != (now.guaranteed, now.haircut, now.due):
        raise Stale(
            "notice_changed",
            f"{now.team} was told anew meanwhile: {now.guaranteed:,} GPUs, not {read.guaranteed:,}",
            next_step=f"plimsoll quota notices {now.team}",
            team=now.team,
        )


def check_skus(state: State, skus: Collection[str]) -> None:
    """Raises `NotFound` with the name that was probably meant."""
    known = sorted({key.sku for key in pool_keys(state)})
    for sku in skus:
        if sku not in known:
            raise NotFound(
                "no_such_sku",
                f"there is no SKU {sku[:100]!r} among {len(known)}{near(sku, known)}",
                next_step="plimsoll fleet show --by sku",
                sku=sku[:100],
            )


def pools_of(state: State, clusters: Collection[str], skus: Collection[str] = ()) -> list[PoolKey] | None:
    """The pools that names mean; None for all."""
    for cluster in clusters:
        check_cluster(state, cluster)
    check_skus(state, skus)
    if not clusters and not skus:
        return None
    return [
        key for key in pool_keys(state) if (not clusters or key.cluster in clusters) and (not skus or key.sku in skus)
    ]
