"""What is to be done about a cluster now: one visit. Pure.

A visit looks at how everything is, not at what has happened, so that one that was missed is made up for by the next.
It takes in what was seen outside, promises quota, says which steps are to begin, brings the conditions up to date, and
lets the cluster into production. What it says is to begin is recorded as an intent; only then may it be called.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec

from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.fleet.changes import ClusterRecorded
from plimsoll.fleet.model import Cluster
from plimsoll.fleet.sheet import changed_fields
from plimsoll.ledger.model import Change, Draft
from plimsoll.lifecycle.changes import (
    ClusterAvailable,
    ClusterGone,
    ConditionsChanged,
    QuotaClaimed,
    QuotaReleased,
    SetsSeen,
    StepIntended,
    StepSeen,
)
from plimsoll.lifecycle.claims import needed
from plimsoll.lifecycle.conditions import TROUBLES, judge
from plimsoll.lifecycle.grow import grown
from plimsoll.lifecycle.leave import drain, is_out, running_in
from plimsoll.lifecycle.model import (
    ConditionType,
    Going,
    Life,
    Move,
    Said,
    SetSeen,
    Work,
)
from plimsoll.lifecycle.nodes import (
    answer_checks,
    are_to_validate,
    join,
    let_in,
    let_validate,
    may_validate,
    retire_nodes,
)
from plimsoll.lifecycle.outside import Found, Look, set_wishes
from plimsoll.lifecycle.phases import phase_of
from plimsoll.lifecycle.reasons import Reason, known_reason
from plimsoll.lifecycle.recipe import Recipe, Retry, RetryClass, Step
from plimsoll.lifecycle.world import World

CONTROLLER = "plimsoll:lifecycle"
"""Who acts when nobody does."""
DETAIL_MAX = 400
LOG_MAX = 4_000
TELL_EVERY = timedelta(minutes=1)
WAIT_MAX = timedelta(hours=1)
"""Longer than anybody waits for an answer that was lost: a moment further off was written before a clock was set back.
"""
AGAIN_SECONDS = 30.0
"""How soon a call is made again that could not be made."""
PUT_RIGHT_SECONDS = 120.0
"""How long after a login was refused it is tried again: whoever puts it right need not say so for every cluster."""


class Call(NamedTuple):
    """A step that is to be begun outside. Its intent is recorded first."""

    cluster: str
    step: str
    operation: str


class Visit:
    """One cluster while it is decided what to do about it."""

    def __init__(self, life: Life, world: World) -> None:
        self.life, self.world = life, world
        self.recipe: Recipe = world.lives.recipe_of(life)
        self.drafts: list[Draft] = []
        self.calls: list[Call] = []

    def go(self) -> Visit:
        """Decide everything. `drafts` is what to record, `calls` what to begin after that."""
        if self.life.gone_at is not None:
            return self
        self._take_in()
        if self.life.leaving is None:
            self._promise()
            self._begin(self.recipe.steps)
            if may_validate(self.life, self.recipe):
                self.drafts += let_validate(self.life, self.world, CONTROLLER)
                if not self._is_checking():
                    self.drafts += let_in(self.life, self.world, CONTROLLER)
        else:
            self._leave()
        self._conditions()
        return self

    def _is_checking(self) -> bool:
        """Whether steps of ours check its nodes: what they find comes first."""
        return any(not self.life.is_done(step.name) for step in self.recipe.setting(ConditionType.HEALTH_GREEN))

    def record(self, change: Change, reason: str = "") -> None:
        """Draft a change, and go on as if it had happened."""
        self.drafts.append(Draft(change, reason, self.world.now))
        self.life = grown(self.life, change, Said(CONTROLLER, self.world.now, reason))

    def words_of(self, draft: Draft) -> str:
        """One draft in words, for whoever watches; empty where another one says it."""
        change = draft.change
        if isinstance(change, StepIntended):
            return f"{change.step} begins" + (f", attempt {change.attempt}" if change.attempt > 1 else "")
        if isinstance(change, StepSeen) and change.going is not Going.RUNNING:
            return f"{change.step} is {change.going}" + (f": {change.detail}" if change.detail else "")
        if isinstance(change, ClusterRecorded) and "phase" in change.was:
            return f"{change.was['phase']} -> {change.cluster.phase}"
        if isinstance(change, QuotaClaimed):
            return f"quota: {draft.reason}"
        return f"quota is not there any more: {draft.reason}" if isinstance(change, QuotaReleased) else ""

    # What was seen outside.

    def _take_in(self) -> None:
        for step in (*self.recipe.steps, *self.recipe.out):
            work = self.life.work(step.name)
            if work is None:
                continue
            look = self.world.look_of(self.life.name, work)
            if look is not None:
                self.take(step, work, look)

    def take(self, step: Step, work: Work, look: Look) -> None:
        """Take in what was seen of a step. What a check found is not taken before its nodes may be let in by it."""
        if step.sets is ConditionType.HEALTH_GREEN and are_to_validate(self.life, look.nodes, self.world):
            return
        if look.sets is not None:
            self._take_sets(look)
        taken = self._take_nodes(step, look)  # the last machines may come when there were enough already
        if work.going.is_outside:
            self._take_look(step, work, taken)

    def _take_nodes(self, step: Step, look: Look) -> Look:
        """Machines join the fleet, or come into service; one that can't stops its step."""
        if not look.nodes or self.life.leaving is not None:
            return look
        # What a check found counts once, at its end: a node that was repaired meanwhile is not judged by it again.
        if step.sets is ConditionType.HEALTH_GREEN and look.found in (Found.DONE, Found.FAILED):
            self.drafts += answer_checks(self.life, step, look, self.world, CONTROLLER)
        if step.sets is not ConditionType.SCALE_SETS_READY:
            return look
        joined, problem = join(self.life, self.recipe, look.nodes, self.world)
        self.drafts += joined
        if problem:
            return Look(Found.FAILED, Reason.NODE_NAME_TAKEN.code, problem, look.handle, look.log, may_retry=False)
        return look

    # The way out.

    def _leave(self) -> None:
        if drained := drain(self.life, self.world, CONTROLLER):
            self.drafts += drained
            return  # what that makes of its nodes is seen when it is visited next
        # Scale sets that are not full yet run nothing: the way out takes them down.
        under_way = [step for step in self.recipe.steps if not step.scale_sets and self._is_under_way(step)]
        if running_in(self.life, self.world) or under_way or self.life.paused is not None:
            return
        why = "drained and taken down" if self.life.has_begun else "it was planned, and is not wanted any more"
        if self.life.has_begun:
            self._begin_all(self.recipe.out)
        if is_out(self.life, self.recipe):
            self.drafts += retire_nodes(self.life, self.world)
            self.record(ClusterGone(self.life.name), why)

    def _is_under_way(self, step: Step) -> bool:
        work = self.life.work(step.name)
        return work is not None and work.going.is_outside

    def _take_look(self, step: Step, work: Work, look: Look) -> None:
        found, name = look.found, self.life.name
        if found in (Found.RUNNING, Found.FAILED) and step.scale_sets is not None and self._is_filled(step, look):
            found = Found.DONE
        if found is Found.ABSENT:
            self._begin_again(step, work)
        elif found is Found.DONE and not self._has_filled(step, look):
            self._failed(step, work, replace_look(look, Reason.SCALE_SET_SHORT.code, self._short_text(look)))
        elif found in (Found.RUNNING, Found.BLOCKED, Found.DONE):
            going = {Found.RUNNING: Going.RUNNING, Found.BLOCKED: Going.BLOCKED, Found.DONE: Going.DONE}[found]
            seen = StepSeen(
                name, step.name, work.attempt, going, look.reason, _cut(look.detail), look.handle, None, _log(look)
            )
            self._record_if_news(work, seen)
        elif found is Found.ELSEWHERE:
            detail = f"it was begun from another place ({work.place}), which can't be seen from here"
            self._record_if_news(
                work, StepSeen(name, step.name, work.attempt, work.going, Reason.RUNS_ELSEWHERE.code, detail)
            )
        elif found is Found.CANCELLED:
            self._stuck(step, work, replace_look(look, Reason.CANCELLED_OUTSIDE.code, look.detail))
        elif found is Found.LOST:
            detail = look.detail or "its command was lost with the machine that ran it"
            self._failed(step, work, replace_look(look, Reason.COMMAND_LOST.code, detail))
        else:
            self._failed(step, work, look)

    def _record_if_news(self, work: Work, seen: StepSeen) -> None:
        """How far something is that runs is told now and then; everything else at once."""
        before = (work.going, work.reason, work.handle or seen.handle)
        is_news = before != (seen.going, seen.reason, seen.handle or work.handle)
        is_old = self.world.now - (work.seen or work.tried) >= TELL_EVERY
        if is_news or (work.detail != seen.detail and is_old):
            self.record(seen)

    def _take_sets(self, look: Look) -> None:
        assert look.sets is not None
        wishes = {wish.name: wish for wish in set_wishes(self.life)}
        news = []
        for found in look.sets:
            wish = wishes.get(found.name)
            if wish is None:
                continue
            seen = SetSeen(found.name, wish.island, wish.nodes, found.there, _cut(found.detail))
            known = self.life.sets.get(found.name)
            if known is None or (known.wanted, known.there, known.detail) != (seen.wanted, seen.there, seen.detail):
                news.append(seen)
        if news:
            self.record(SetsSeen(self.life.name, tuple(news)))

    def _is_filled(self, step: Step, look: Look) -> bool:
        """Whether enough machines are there, although its operation goes on waiting for the last of them."""
        return look.sets is not None and self._has_filled(step, look)

    def _has_filled(self, step: Step, look: Look) -> bool:
        if step.sets is not ConditionType.SCALE_SETS_READY or look.sets is None:
            return True
        return self._there(look) >= self.recipe.validation.filled_share * self.life.spec.nodes

    def _there(self, look: Look) -> int:
        wanted = {wish.name: wish.nodes for wish in set_wishes(self.life)}
        return sum(min(each.there, wanted.get(each.name, 0)) for each in look.sets or ())

    def _short_text(self, look: Look) -> str:
        there, wanted = self._there(look), self.life.spec.nodes
        return f"{there:,} of {wanted:,} machines are there ({there / wanted:.1%})" + (
            f"; {look.detail}" if look.detail else ""
        )

    # What became of an attempt.

    def _failed(self, step: Step, work: Work, look: Look) -> None:
        failures = work.failures + 1
        is_left = failures < step.retry.attempts or known_reason(look.reason).move is Move.PROVIDER
        if not (look.may_retry and step.retry.kind is RetryClass.BACKOFF and is_left):
            self._stuck(step, work, look)
            return
        wait = backoff_seconds(step.retry, failures, work.operation)
        self.record(
            StepSeen(
                self.life.name,
                step.name,
                work.attempt,
                Going.RETRYING,
                known_reason(look.reason).code,
                _cut(look.detail),
                look.handle,
                self.world.now + timedelta(seconds=wait),
                _log(look),
            )
        )

    def _stuck(self, step: Step, work: Work, look: Look) -> None:
        reason = known_reason(look.reason).code
        self.record(
            StepSeen(
                self.life.name,
                step.name,
                work.attempt,
                Going.STUCK,
                reason,
                _cut(look.detail),
                look.handle,
                None,
                _log(look),
            )
        )

    # Quota.

    def _promise(self) -> None:
        answer = self.world.quota.get(self.life.name)
        if answer is None:
            return
        if self.life.claimed_at is None:
            if answer.is_sufficient and self.life.paused is None and not self.world.problems.get(self.life.name):
                self.record(QuotaClaimed(self.life.name, needed(self.life, self.recipe)), answer.message)
        elif answer.is_sufficient is False and not self.life.has_begun and answer.reason is Reason.QUOTA_SHRANK:
            # Nothing was done with it yet: it waits again, in its order.
            self.record(QuotaReleased(self.life.name), answer.message)

    # Steps.

    def _begin(self, steps: Sequence[Step]) -> None:
        if self.life.paused is not None or self.life.claimed_at is None or self.world.problems.get(self.life.name):
            return
        self._begin_all(steps)

    def _begin_all(self, steps: Sequence[Step]) -> None:
        for step in steps:
            work = self.life.work(step.name)
            if work is None and self.life.available_at is not None and step in self.recipe.steps:
                continue  # it came with another recipe: nothing is begun in production that nobody asked for
            if work is None:
                self._begin_first(step)
            elif work.going is Going.RETRYING and self._is_due(step, work):
                if step.kind == "gate":
                    self._pass_gate(step, work.attempt + 1)
                else:
                    self._intend(step, work.attempt + 1)

    def _is_due(self, step: Step, work: Work) -> bool:
        """When the next attempt may begin. A clock that was set back does not make it wait for longer than it may."""
        at = work.next_attempt_at
        longest = self.world.now + timedelta(seconds=step.retry.most_seconds)
        return at is None or at <= self.world.now or at > longest

    def _begin_first(self, step: Step) -> None:
        if any(not self.life.is_done(need) for need in self.recipe.needs_of(step)):
            return
        if step.sets is ConditionType.CHECKED_IN and self.life.checked_in is None:
            return
        if step.after and self.world.elsewhere_missing(self.life, step):
            return
        if step.kind == "gate":
            self._pass_gate(step, 1)
            return
        self._intend(step, 1)

    def _pass_gate(self, step: Step, attempt: int) -> None:
        """The check-in that does nothing by itself: it is done when somebody has said it."""
        if (said := self.life.checked_in) is None:
            return
        self.record(StepIntended(self.life.name, step.name, attempt, operation_of(self.life, step, attempt)))
        detail = f"checked in by {said.by}"
        self.record(StepSeen(self.life.name, step.name, attempt, Going.DONE, detail=detail))

    def _intend(self, step: Step, attempt: int) -> None:
        operation = operation_of(self.life, step, attempt)
        place = self.world.places.get(step.kind, "")
        self.record(StepIntended(self.life.name, step.name, attempt, operation, place))
        self.calls.append(Call(self.life.name, step.name, operation))

    def _begin_again(self, step: Step, work: Work) -> None:
        """An attempt that was intended, and is nowhere to be seen: the call was never made, or its answer was lost. It
        is made, with the same name, when the first can't arrive any more."""
        settle = timedelta(seconds=self.world.settles.get(step.kind, 0.0))
        not_before = work.next_attempt_at or work.tried + settle
        # A clock that was set back must not make it wait for ever: then it settles by the new one.
        is_set_back = not_before - self.world.now > WAIT_MAX
        is_due = self.world.now >= not_before or is_set_back
        if work.going is not Going.INTENDED:
            detail = "it was begun, and is not there any more"
            self._failed(step, work, Look(Found.LOST, Reason.COMMAND_LOST.code, detail))
        elif is_due and self.life.leaving is not None and step in self.recipe.steps:
            detail = "it was not begun: the cluster leaves"
            self._stuck(step, work, Look(Found.ABSENT, Reason.LEAVING.code, detail))
        elif is_due and self.life.paused is None:
            # Written down again: whoever comes next counts from this call, and nobody takes it for surely not made.
            reason = work.reason if work.reason == Reason.ANSWER_LOST.code else ""
            told = (reason, work.detail, "", self.world.now + settle)
            self.record(StepSeen(self.life.name, step.name, work.attempt, Going.INTENDED, *told))
            if not (settle and is_set_back):
                self.calls.append(Call(self.life.name, step.name, work.operation))

    # What is true.

    def _conditions(self) -> None:
        for _ in range(2):  # letting it into production makes `Available` true
            if changed := judge(self.life, self.recipe, self.world):
                self.record(ConditionsChanged(self.life.name, tuple(changed)))
            if not self._may_enter():
                break
            self.record(ClusterAvailable(self.life.name), "everything holds")
        self._phase()

    def _may_enter(self) -> bool:
        life = self.life
        if life.available_at is not None or life.leaving is not None or life.paused is not None:
            return False
        needed_conditions = [life.conditions[kind] for kind in ConditionType if kind is not ConditionType.AVAILABLE]
        if not all(condition.is_true for condition in needed_conditions):
            return False
        steady = timedelta(seconds=self.recipe.validation.steady_seconds)
        return self.world.now - life.conditions[ConditionType.HEALTH_GREEN].since >= steady

    def _phase(self) -> None:
        """What the fleet says of the cluster: what is wanted, and the phase that follows from its conditions."""
        known = self.world.fleet.clusters.get(self.life.name)
        cluster = cluster_of(self.life, known)
        if cluster != known:
            was = {} if known is None else changed_fields(known, cluster)
            condition = self.life.condition(ConditionType.AVAILABLE)
            why = condition.message if condition else ""
            self.drafts.append(Draft(ClusterRecorded(cluster, was), why, self.world.now))


replace = msgspec.structs.replace


def replace_look(look: Look, reason: str, detail: str) -> Look:
    return replace(look, reason=reason, detail=detail)


def cluster_of(life: Life, known: Cluster | None) -> Cluster:
    """The cluster as the fleet knows it. Labels that others gave it stay."""
    spec = life.spec
    labels = {**(known.labels if known else {}), **spec.labels}
    return Cluster(spec.name, spec.region, spec.area, spec.colo, spec.provider, spec.purpose, phase_of(life), labels)


def operation_of(life: Life, step: Step, attempt: int) -> str:
    """The name of an attempt, the same wherever and whenever it is asked for, and of nothing else."""
    return f"{life.uid}-{step.name}-{attempt}"


def backoff_seconds(retry: Retry, failures: int, operation: str) -> float:
    """Twice as long after each failure, up to the most; then between half and all of it, so that clusters that failed
    together do not come back together. The same operation always waits the same time."""
    longest = min(retry.most_seconds, retry.first_seconds * 2.0 ** min(failures - 1, 30))
    draw = int.from_bytes(hashlib.sha256(operation.encode()).digest()[:4], "big") / 2**32
    return float(longest * (0.5 + draw / 2))


def answered(life: Life, call: Call, answer: Look | ProviderTrouble, world: World) -> list[Draft]:
    """What a call that was made leads to: what was begun, or why it was not."""
    visit = Visit(life, world)
    step, work = visit.recipe.step(call.step), life.work(call.step)
    if step is None or work is None or work.operation != call.operation or work.going is not Going.INTENDED:
        return []  # somebody has retried or waived it in the meantime
    if isinstance(answer, Look):
        visit.take(step, work, answer)
        return visit.drafts
    _take_trouble(visit, step, work, answer)
    return visit.drafts


def _take_trouble(visit: Visit, step: Step, work: Work, trouble: ProviderTrouble) -> None:
    """What is refused for good waits for a person; what could not be said, or not by us, is said again, and only what
    went wrong counts as an attempt."""
    reason = TROUBLES[trouble.kind].code
    detail = trouble.message + (f" ({trouble.next_step})" if trouble.next_step else "")
    settle = visit.world.settles.get(step.kind, 0.0)
    wait: float | None = None
    if trouble.may_have_happened:
        wait, reason = max(trouble.retry_seconds or 0.0, settle), Reason.ANSWER_LOST.code
    elif trouble.kind in (TroubleKind.BUSY, TroubleKind.UNREACHABLE):
        wait = max(trouble.retry_seconds or 0.0, AGAIN_SECONDS)
    elif trouble.kind in (TroubleKind.CREDENTIALS, TroubleKind.MISSING):
        wait = PUT_RIGHT_SECONDS
    if wait is None:
        may_retry = trouble.kind is not TroubleKind.REFUSED
        visit._failed(step, work, Look(Found.FAILED, reason, detail, may_retry=may_retry))
        return
    if work.reason == Reason.ANSWER_LOST.code:
        reason = work.reason  # that this call was not made does not tell what became of the one before
    again = visit.world.now + min(timedelta(seconds=wait), WAIT_MAX)
    told = (Going.INTENDED, reason, _cut(detail), "", again)
    visit.record(StepSeen(visit.life.name, step.name, work.attempt, *told))


def _cut(text: str) -> str:
    return text if len(text) <= DETAIL_MAX else f"{text[: DETAIL_MAX - 1]}…"


def _log(look: Look) -> str:
    """Kept where it tells why something failed; a step that went well needs none in the ledger."""
    return look.log[-LOG_MAX:] if look.found in (Found.FAILED, Found.LOST, Found.CANCELLED) else ""
