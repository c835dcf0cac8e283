"""What is true of a cluster now, condition by condition, each with a reason, a sentence, and whose move it is. Pure.

A condition never hides another one: each says only what it is about, and `Available` names those that it waits for.
Nothing here depends on how long ago something was but through the moments that are named, so that a cluster about
which nothing changes gets the same conditions again.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.fleet.model import Phase, Service
from plimsoll.health.decide import policy_in_force
from plimsoll.health.policy import CheckBy
from plimsoll.lifecycle.grow import WAIVED
from plimsoll.lifecycle.leave import running_in
from plimsoll.lifecycle.model import (
    Condition,
    ConditionType,
    Going,
    Life,
    Move,
    Severity,
    Truth,
    Work,
)
from plimsoll.lifecycle.phases import phase_of
from plimsoll.lifecycle.reasons import SURELY_NOT_BEGUN, Reason, known_reason
from plimsoll.lifecycle.recipe import Recipe, RetryClass, Step
from plimsoll.lifecycle.world import World
from plimsoll.times import show_second
from plimsoll.words import counted

FLAPS_MAX = 3
FLAP_SPAN = timedelta(hours=24)
REFRESH = timedelta(minutes=10)
"""How often the numbers of a message about quota are brought up to date while nothing else of it changes."""
TROUBLES = {
    TroubleKind.CREDENTIALS: Reason.CREDENTIALS,
    TroubleKind.MISSING: Reason.MISSING_OUTSIDE,
    TroubleKind.REFUSED: Reason.STEP_FAILED,
    TroubleKind.OUT_OF_QUOTA: Reason.OUT_OF_QUOTA,
    TroubleKind.NO_CAPACITY: Reason.NO_CAPACITY,
    TroubleKind.BUSY: Reason.BUSY,
    TroubleKind.UNREACHABLE: Reason.UNREACHABLE,
}

_NUMBER = re.compile(r"\b[0-9][0-9,]*\b")
_NUMBERED = re.compile(r"\b\w*[0-9][\w,.:-]*")
"""What a service says of a trouble has times and ids in it, which say nothing."""
HELD_UP = (Reason.OUT_OF_QUOTA, Reason.NO_CAPACITY, Reason.SCALE_SET_SHORT)
"""Why machines do not come although they are wanted."""


_NOT_BEGUN = (Reason.ANSWER_LOST.code, *SURELY_NOT_BEGUN)


class Verdict(NamedTuple):
    """What is to be said of a condition."""

    status: Truth
    reason: Reason
    message: str
    next_step: str = ""
    severity: Severity | None = None
    move: Move | None = None


def judge(life: Life, recipe: Recipe, world: World) -> list[Condition]:
    """The conditions that are other than before, in their order; all of them at the first visit."""
    verdicts = {
        ConditionType.SPEC_VALID: _spec(life, world),
        ConditionType.QUOTA_SUFFICIENT: _quota(life, world),
        ConditionType.CHECKED_IN: _steps(life, recipe, world, ConditionType.CHECKED_IN),
        ConditionType.INFRASTRUCTURE_APPLIED: _steps(life, recipe, world, ConditionType.INFRASTRUCTURE_APPLIED),
        ConditionType.SCALE_SETS_READY: _scale_sets(life, recipe, world),
        ConditionType.SERVICES_DEPLOYED: _steps(life, recipe, world, ConditionType.SERVICES_DEPLOYED),
        ConditionType.DEPENDENCIES_APPLIED: _steps(life, recipe, world, ConditionType.DEPENDENCIES_APPLIED),
        ConditionType.HEALTH_GREEN: _health(life, recipe, world),
    }
    if life.gone_at is not None:
        gone = Verdict(Truth.FALSE, Reason.RETIRED, f"retired at {show_second(life.gone_at)}")
        verdicts |= {kind: gone for kind in verdicts if kind is not ConditionType.SPEC_VALID}
    changed = [_condition(kind, verdict, life, world.now) for kind, verdict in verdicts.items()]
    found = [condition for condition in changed if _is_news(life, condition, world.now)]
    told: dict[str, Condition] = {**life.conditions}
    told |= {condition.type: condition for condition in found}
    available = _condition(ConditionType.AVAILABLE, _available(life, recipe, world, told), life, world.now)
    return [*found, available] if _is_news(life, available, world.now) else found


def _condition(kind: ConditionType, verdict: Verdict, life: Life, now: datetime) -> Condition:
    known = life.conditions.get(kind)
    is_same_status = known is not None and known.status is verdict.status
    is_same_reason = is_same_status and known is not None and known.reason == verdict.reason.code
    return Condition(
        type=kind,
        status=verdict.status,
        reason=verdict.reason.code,
        message=verdict.message,
        severity=verdict.severity or (Severity.INFO if verdict.status is Truth.TRUE else verdict.reason.severity),
        move=verdict.move or (Move.NOBODY if verdict.status is Truth.TRUE else verdict.reason.move),
        generation=life.generation,
        # A moment that is still to come was written before the clock was set back: it counts from now, not from then.
        since=min(known.since, now) if known is not None and is_same_status else now,
        changed=min(known.changed, now) if known is not None and is_same_reason else now,
        next_step=verdict.next_step,
        told=now,
    )


def _is_news(life: Life, condition: Condition, now: datetime) -> bool:
    known = life.conditions.get(condition.type)
    if known is None or known.generation != condition.generation:
        return True
    if known == msgspec.structs.replace(condition, told=known.told):
        return False
    number = _NUMBERED if condition.status is Truth.UNKNOWN else _NUMBER
    may_wait = condition.type is ConditionType.QUOTA_SUFFICIENT or condition.status is Truth.UNKNOWN
    is_number = may_wait and (
        (known.status, known.reason, number.sub("", known.message))
        == (condition.status, condition.reason, number.sub("", condition.message))
    )
    return not is_number or not timedelta(0) <= now - (known.told or known.changed) < REFRESH


# One condition each.


def _spec(life: Life, world: World) -> Verdict:
    problems = world.problems.get(life.name, ())
    if not problems:
        return Verdict(Truth.TRUE, Reason.DONE, "it can be made as it is wanted")
    told = "; ".join(f"{field}: expected {expected}" for field, expected in problems)
    return Verdict(Truth.FALSE, Reason.SPEC_WRONG, told, f"plimsoll cluster edit {life.name} …")


def _quota(life: Life, world: World) -> Verdict:
    answer = world.quota.get(life.name)
    if answer is None:
        message = "waits for a spec that is right"
        return Verdict(Truth.UNKNOWN, Reason.WAITING, message, f"plimsoll cluster edit {life.name} …", move=Move.PERSON)
    if answer.is_sufficient and life.claimed_at is None and answer.reason is Reason.QUOTA_PROMISED:
        # There is enough, and nothing was promised yet: that takes a commit of its own.
        message = "there is enough quota; it is promised as soon as the cluster goes on"
        reason = Reason.PAUSED if life.paused else Reason.STARTING
        return Verdict(Truth.FALSE, reason, message, _resume(life) if life.paused else "")
    if answer.is_sufficient is None:
        return Verdict(Truth.UNKNOWN, answer.reason, answer.message, answer.next_step or "plimsoll cluster quota")
    if answer.is_sufficient:
        return Verdict(Truth.TRUE, answer.reason, answer.message)
    return Verdict(Truth.FALSE, answer.reason, answer.message, "plimsoll cluster quota")


def _resume(life: Life) -> str:
    return f"plimsoll cluster resume {life.name}"


def _scale_sets(life: Life, recipe: Recipe, world: World) -> Verdict:
    verdict = _steps(life, recipe, world, ConditionType.SCALE_SETS_READY)
    there = sum(min(each.there, each.wanted) for each in life.sets.values())
    wanted = life.spec.nodes
    share = recipe.validation.filled_share
    steps = recipe.setting(ConditionType.SCALE_SETS_READY)
    is_waived = all((work := life.work(step.name)) is not None and work.reason == WAIVED for step in steps)
    if verdict.status is Truth.TRUE and life.sets and there < share * wanted and not is_waived:
        short = [each for _, each in sorted(life.sets.items()) if each.there < each.wanted]
        told = ", ".join(f"{each.name} {each.there} of {each.wanted}" for each in short[:3])
        detail = next((f": {each.detail}" for each in short if each.detail), "")
        message = f"{there:,} of {wanted:,} machines are there ({told}){detail}"
        return Verdict(Truth.FALSE, Reason.SCALE_SET_SHORT, message, f"plimsoll cluster show {life.name}")
    if verdict.reason is Reason.OVERDUE and life.sets:
        message = f"{there:,} of {wanted:,} machines are there ({there / wanted:.1%}); {verdict.message}"
        return verdict._replace(reason=Reason.SCALE_SET_SHORT, message=message)
    if verdict.reason is Reason.RUNNING and life.sets:
        return verdict._replace(reason=Reason.FILLING, message=f"{there:,} of {wanted:,} machines are there")
    if verdict.reason in HELD_UP and life.sets:
        return verdict._replace(message=f"{there:,} of {wanted:,} machines are there; {verdict.message}")
    return verdict


def _health(life: Life, recipe: Recipe, world: World) -> Verdict:
    verdict = _steps(life, recipe, world, ConditionType.HEALTH_GREEN)
    total, in_service = world.node_counts(life)
    if verdict.status is not Truth.TRUE:
        return verdict
    if not total and not _is_there(life):
        return Verdict(Truth.FALSE, Reason.WAITING_FOR_STEP, "its nodes come with its scale sets")
    least = recipe.validation.healthy_share * life.spec.nodes
    services = world.services_of(life.name) if in_service < least else {}
    out = ", ".join(
        f"{count:,} {service}"
        for service, count in sorted(services.items(), key=lambda pair: (-pair[1], pair[0]))
        if service is not Service.IN_SERVICE
    )
    shown = f"{in_service:,} of {life.spec.nodes:,} nodes are in service" + (f" ({out})" if out else "")
    look = f"plimsoll fleet nodes cluster={life.name} service!=in_service"
    if in_service >= least:
        return Verdict(Truth.TRUE, Reason.GREEN, f"at least {recipe.validation.healthy_share:.0%} are in service")
    if total < least:
        missing = f"{shown}; only {total:,} are known"
        return Verdict(Truth.FALSE, Reason.NODES_MISSING, missing, look)
    needs_person = any(service in (Service.QUARANTINED, Service.REPAIR) for service in services)
    if needs_person:
        return Verdict(Truth.FALSE, Reason.NODES_UNHEALTHY, shown, look)
    if any(service in (Service.MAINTENANCE, Service.DRAINING) for service in services):
        return Verdict(Truth.FALSE, Reason.PLANNED_WORK, shown, look)
    waits = [check.name for check in policy_in_force(world.state).validation if check.by is CheckBy.MANUAL]
    if waits and verdict.status is Truth.TRUE:
        told = f"{shown}; somebody has to answer {', '.join(waits)} for them"
        return Verdict(
            Truth.FALSE, Reason.NODES_TO_ACCEPT, told, f"plimsoll health tick {waits[0]} cluster={life.name}"
        )
    return Verdict(Truth.FALSE, Reason.VALIDATING, shown, f"plimsoll health show cluster={life.name}")


def _is_there(life: Life) -> bool:
    condition = life.condition(ConditionType.SCALE_SETS_READY)
    return condition is not None and condition.is_true


def _available(life: Life, recipe: Recipe, world: World, told: dict[str, Condition]) -> Verdict:
    if life.gone_at is not None:
        return Verdict(Truth.FALSE, Reason.RETIRED, f"retired at {show_second(life.gone_at)}")
    if life.leaving is not None:
        return Verdict(Truth.FALSE, *_leaving(life, recipe, world))
    if life.available_at is not None:
        return Verdict(Truth.TRUE, Reason.IN_PRODUCTION, f"in production since {show_second(life.available_at)}")
    waiting = [kind for kind in ConditionType if kind is not ConditionType.AVAILABLE and not told[kind].is_true]
    if waiting:
        worst = max((told[kind] for kind in waiting), key=lambda each: list(Severity).index(each.severity))
        message = f"waits for {', '.join(waiting)}"
        return Verdict(Truth.FALSE, Reason.WAITING, message, worst.next_step, worst.severity, worst.move)
    if life.paused is not None:
        return Verdict(Truth.FALSE, Reason.PAUSED, _paused_text(life), _resume(life))
    steady = timedelta(seconds=recipe.validation.steady_seconds)
    green = told[ConditionType.HEALTH_GREEN].since
    flaps = [flip for flip in life.flips if world.now - flip <= FLAP_SPAN]
    if len(flaps) >= FLAPS_MAX:
        message = (
            f"its health was green and then not {len(flaps)} times since {show_second(flaps[0])};"
            f" in production at {show_second(green + steady)} if it stays green; {recipe.asks} should look"
        )
        return Verdict(Truth.FALSE, Reason.FLAPPING, message, f"plimsoll health outages cluster={life.name}")
    return Verdict(Truth.FALSE, Reason.SETTLING, f"everything holds; in production at {show_second(green + steady)}")


def _paused_text(life: Life) -> str:
    assert life.paused is not None
    why = f": {life.paused.why}" if life.paused.why else ""
    return f"paused by {life.paused.by} at {show_second(life.paused.at)}{why}"


def _leaving(life: Life, recipe: Recipe, world: World) -> tuple[Reason, str, str]:
    for step in (*recipe.steps, *recipe.out):
        work = life.work(step.name)
        # A step of the way in that still runs is waited for; one that failed is not wanted any more.
        if work is not None and (work.going.is_outside or (step in recipe.out and work.going is not Going.DONE)):
            verdict = _one_step(life, recipe, world, step, work)
            return verdict.reason, f"it leaves: {verdict.message}", verdict.next_step
    if life.paused is not None:
        return Reason.PAUSED, f"it leaves: {_paused_text(life)}", _resume(life)
    if running := running_in(life, world):
        told = f"it leaves: drained, it waits for the end of {counted(len(running), 'workload')} ({running[0]})"
        return Reason.DRAINING, told, ""
    return Reason.LEAVING, "it leaves", ""


# Conditions that steps bring about.


def _steps(life: Life, recipe: Recipe, world: World, kind: ConditionType) -> Verdict:
    steps = recipe.setting(kind)
    if not steps:
        return Verdict(Truth.TRUE, Reason.NOT_NEEDED, f"recipe {recipe.name} has no step for it")
    left = [step for step in steps if not life.is_done(step.name)]
    if not left:
        return Verdict(Truth.TRUE, Reason.DONE, f"done: {', '.join(step.name for step in steps)}")
    verdicts = [_one_step(life, recipe, world, step, life.work(step.name)) for step in left]
    return max(verdicts, key=lambda each: list(Severity).index(each.severity or each.reason.severity))


def _one_step(life: Life, recipe: Recipe, world: World, step: Step, work: Work | None) -> Verdict:
    if work is None:
        return _not_begun(life, world, step)
    asks = step.asks or recipe.asks
    again = f"plimsoll cluster retry {life.name} {step.name}"
    trouble = world.trouble_of(life.name, work)
    if trouble is not None and work.going.is_outside:
        return _trouble(life, step, trouble)
    if work.going is Going.STUCK:
        reason = known_reason(work.reason)
        told = f"{step.name} failed ({_attempts(step, work)}): {work.detail}; {asks}: look at it, then try again"
        reason = reason if reason.severity is Severity.ERROR else Reason.STEP_STUCK
        return Verdict(Truth.FALSE, reason, told, again)
    if work.going is Going.BLOCKED:
        told = f"{step.name}: {work.detail or 'it waits for somebody'}"
        told += f"; {asks}: unblock it there ({work.handle})" if work.handle else ""
        return Verdict(Truth.FALSE, Reason.BLOCKED_OUTSIDE, told, f"plimsoll cluster log {life.name} {step.name}")
    if work.going is Going.RETRYING:
        if life.paused is not None:
            return Verdict(
                Truth.FALSE, Reason.PAUSED, f"{_paused_text(life)}; {step.name} is to be tried again", _resume(life)
            )
        told = (
            f"{step.name} failed ({_attempts(step, work)}): {work.detail}; again at {show_second(work.next_attempt_at)}"
        )
        reason = known_reason(work.reason)
        move = Move.CONTROLLER if reason is Reason.OVERDUE else None
        return Verdict(Truth.FALSE, reason, told, again, move=move)
    if work.reason == Reason.RUNS_ELSEWHERE.code:
        return Verdict(Truth.UNKNOWN, Reason.RUNS_ELSEWHERE, f"{step.name}: {work.detail}", f"{again} --lost")
    if world.now >= work.tried + timedelta(seconds=step.within_seconds):
        detail = work.detail or "running"
        told = f"{step.name} has been going since {show_second(work.tried)}, longer than it may ({detail})"
        return Verdict(Truth.FALSE, Reason.OVERDUE, f"{told}; {asks} should look", f"plimsoll cluster show {life.name}")
    if work.going is Going.INTENDED and life.paused is not None:
        return Verdict(Truth.FALSE, Reason.PAUSED, f"{_paused_text(life)}; {step.name} is to begin", _resume(life))
    if work.going is Going.INTENDED:
        reason = known_reason(work.reason) if work.reason in _NOT_BEGUN else Reason.STARTING
        told = f"{step.name}: {work.detail}" if work.detail else f"{step.name} begins"
        return Verdict(Truth.FALSE, reason, told, again if reason.move is Move.PERSON else "")
    # Something that goes on by itself may still say why it does not get on, as an operator that Azure refuses.
    reason = known_reason(work.reason) if work.reason else Reason.RUNNING
    return Verdict(Truth.FALSE, reason, f"{step.name}: {work.detail}" if work.detail else f"{step.name} runs")


def _attempts(step: Step, work: Work) -> str:
    is_given_up = work.going is Going.STUCK and work.failures < step.retry.attempts
    if work.failures > step.retry.attempts:
        return f"attempt {work.failures}"
    if step.retry.kind is RetryClass.PERSON or is_given_up:
        return f"attempt {work.attempt}"
    return f"attempt {work.failures} of {step.retry.attempts}"


def _trouble(life: Life, step: Step, trouble: ProviderTrouble) -> Verdict:
    """Nobody can tell how it is: whether the condition holds is not known."""
    told = f"nobody can see how {step.name} is: {trouble.message}"
    next_step = trouble.next_step or f"plimsoll cluster show {life.name}"
    return Verdict(Truth.UNKNOWN, TROUBLES[trouble.kind], told, next_step)


def _not_begun(life: Life, world: World, step: Step) -> Verdict:
    """What a step waits for that was not begun."""
    if life.leaving is not None:
        return Verdict(Truth.FALSE, Reason.LEAVING, f"{step.name} is not done any more: the cluster leaves")
    if life.available_at is not None:
        told = f"{step.name} was never done: the recipe has changed since"
        return Verdict(Truth.FALSE, Reason.RECIPE_CHANGED, told, f"plimsoll cluster retry {life.name} {step.name}")
    if phase_of(life) is Phase.PLANNED:
        return Verdict(Truth.FALSE, Reason.WAITING_FOR_QUOTA, f"{step.name} waits for quota")
    if step.sets is ConditionType.CHECKED_IN and life.checked_in is None:
        told = "somebody has to check it in: from then on terraform projects and other clusters know of it"
        return Verdict(Truth.FALSE, Reason.WAITING_FOR_CHECK_IN, told, f"plimsoll cluster checkin {life.name}")
    before = world.lives.recipe_of(life).needs_of(step)
    missing = [need for need in before if not life.is_done(need)]
    missing = [need for need in missing if need in step.needs] or missing
    if missing:
        return Verdict(Truth.FALSE, Reason.WAITING_FOR_STEP, f"{step.name} comes after {', '.join(missing)}")
    elsewhere = world.elsewhere_missing(life, step)
    if elsewhere:
        name, each = elsewhere[0]
        if circle := world.waits_in_circle(life):
            told = f"clusters wait for each other: {' -> '.join(circle)}; one of them needs another recipe"
            migrate = f"plimsoll cluster migrate {life.name} --recipe RECIPE"
            return Verdict(Truth.FALSE, Reason.WAITING_IN_CIRCLE, told, migrate)
        known = world.lives.lives.get(name)
        if world.is_gone(name):
            told = f"{step.name} comes after {name} has reached {each.reaches}, and {name} is retired"
            migrate = f"plimsoll cluster migrate {life.name} --recipe RECIPE"
            return Verdict(Truth.FALSE, Reason.WAITING_FOR_CLUSTER, told, migrate, Severity.ERROR, Move.PERSON)
        is_there = known is not None or name in world.fleet.clusters
        now = (
            f"it is {phase_of(known)}"
            if known
            else "it is not that far"
            if is_there
            else "there is no such cluster yet"
        )
        told = f"{step.name} comes after {name} has reached {each.reaches}; {now}"
        return Verdict(Truth.FALSE, Reason.WAITING_FOR_CLUSTER, told, f"plimsoll cluster show {name}")
    if life.paused is not None:
        return Verdict(Truth.FALSE, Reason.PAUSED, f"{_paused_text(life)}; {step.name} would begin", _resume(life))
    return Verdict(Truth.FALSE, Reason.STARTING, f"{step.name} begins")
