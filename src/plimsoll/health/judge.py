"""What the signals of one node say under a policy. Pure; knows no holds, no breakers and no other node.

A problem is *active* while its latest bad signal is newer than its latest good one. It *triggers* when the rule's
repeats or duration are reached, or when it came and went too often. A trigger asks for its consequence even when the
problem has gone since: a node that was broken returns through validation, however late we hear of it. Entering service
answers what came before.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

import msgspec

from plimsoll.health.facts import HealthFact, Owner
from plimsoll.health.model import from_microseconds, to_microseconds
from plimsoll.health.policy import Action, Policy, Repeats, Rule
from plimsoll.health.signals import Memory, Signal, SignalKey, SignalKind

_MICROSECOND = timedelta(microseconds=1)


class Reading(NamedTuple):
    """A signal as one rule sees it: which problem it is about, and whether it is good."""

    key: SignalKey
    rule: Rule
    is_ok: bool


def readings(signal: Signal, policy: Policy) -> list[Reading]:
    """A signal as the rules see it; none where the policy has no rule or wants nothing done.

    With thresholds there is one reading a line that it is above or below. A bad signal without a value is beyond all.
    """
    found = []
    for rule in _rules_for(policy, signal.kind, signal.name):
        if rule.action is Action.NOTHING:
            continue
        is_below = rule.at_least is not None and signal.value is not None and signal.value < rule.at_least
        found.append(Reading(rule.key(signal.name), rule, signal.is_ok or is_below))
    return found


@functools.lru_cache(maxsize=100_000)
def _rules_for(policy: Policy, kind: SignalKind, name: str) -> Sequence[Rule]:
    return policy.rules_for(kind, name)


@functools.lru_cache(maxsize=100_000)
def rule_of(policy: Policy, key: SignalKey) -> Rule | None:
    """The rule that a remembered problem falls under today; None where the policy no longer knows it."""
    names = [key.name, key.name.rpartition(">=")[0]]
    found = (rule for name in names for rule in policy.rules_for(key.kind, name) if rule.key(name) == key)
    return next(found, None)


class Answers(NamedTuple):
    """Up to when the signals of a node were answered, in microseconds: all of them, and those of single problems."""

    everything: int = 0
    told: Mapping[str, int] = {}

    def until(self, key: SignalKey) -> int:
        return max(self.everything, self.told.get(str(key), 0)) if self.told else self.everything


class Problem(msgspec.Struct, frozen=True):
    """One thing that is or was wrong with a node. `trigger` is when its consequence became due, unanswered so far.

    Moments are kept in microseconds: a sweep judges tens of thousands of problems, and few of them are ever shown.
    """

    key: SignalKey
    action: Action
    rule: Rule
    is_active: bool
    began: int
    due: int | None
    ended: int | None
    is_flapping: bool
    memory: Memory

    @property
    def since(self) -> datetime:
        """When its last stretch of bad signals began."""
        return from_microseconds(self.began)

    @property
    def trigger(self) -> datetime | None:
        return None if self.due is None else from_microseconds(self.due)

    @property
    def cleared_at(self) -> datetime | None:
        """When it was good again."""
        return None if self.ended is None else from_microseconds(self.ended)

    @property
    def why(self) -> str:
        """In words, for the log and for people."""
        text = str(self.key)
        if self.rule.is_planned:
            text = f"{'provider' if self.rule.owner is Owner.PROVIDER else 'planned'}: {self.key.name or self.key.kind}"
        if self.memory.value is not None:
            text += f" ({self.memory.value:g})"
        if self.memory.detail:
            text += f": {self.memory.detail}"
        return f"flapping, {text}" if self.is_flapping else text


def assess(key: SignalKey, memory: Memory, policy: Policy, *, answers: Answers, now: datetime) -> Problem | None:
    """What the remembered signals of one problem come to; None where they come to nothing."""
    rule = rule_of(policy, key)
    if rule is None or rule.action is Action.NOTHING:
        return None
    stretches = _stretches(memory.points)
    if not stretches:
        return None
    last, answered = stretches[-1], answers.until(key)
    is_active = last.ended is None if key.kind.is_lasting else last.ended is None and last.bads[-1] > answered
    bads = [bad for stretch in stretches for bad in stretch.bads if bad > answered]
    if not bads and key.kind.is_lasting and last.ended is None:
        bads = last.bads[-1:]  # it was answered and goes on all the same; its repeats are counted anew
    if rule.lasting:
        trigger = _first_lasting(stretches, rule.lasting // _MICROSECOND, answered, to_microseconds(now))
    else:
        trigger = _first_repeat(bads, rule.count, rule.within // _MICROSECOND)
    if not bads and trigger is None:
        return None
    unanswered = [stretch for stretch in stretches if bads and stretch.bads[-1] >= bads[0]]
    action: Action = rule.action
    is_flapping = False
    if key.kind.is_lasting and (trigger is None or policy.flapping.action.severity > action.severity):
        flapped = _first_flapping(unanswered, policy.flapping)
        if flapped is not None:
            trigger, action, is_flapping = flapped, policy.flapping.action, True
    return Problem(
        key=key,
        action=action,
        rule=rule,
        is_active=is_active,
        began=last.bads[0],
        due=trigger,
        ended=last.ended,
        is_flapping=is_flapping,
        memory=memory,
    )


class _Stretch(NamedTuple):
    """Bad signals with no good one between them, and the good one that ended them."""

    bads: list[int]
    ended: int | None


def _stretches(points: Iterable[int]) -> list[_Stretch]:
    found: list[_Stretch] = []
    for is_ok, group in groupby(points, key=lambda point: point & 1):
        moments = [point >> 1 for point in group]
        if not is_ok:
            found.append(_Stretch(moments, None))
        elif found:
            found[-1] = _Stretch(found[-1].bads, moments[0])
    return found


def _first_repeat(moments: Sequence[int], count: int, within: int) -> int | None:
    """When so many came within so long for the first time."""
    for first, last in zip(moments, moments[count - 1 :], strict=False):
        if last - first <= within or count == 1:
            return last
    return None


def _first_lasting(stretches: Sequence[_Stretch], lasting: int, answered: int, now: int) -> int | None:
    """When a stretch had gone on for so long, since it was answered, for the first time. A good signal ends it."""
    for bads, ended in stretches:
        first = max(bads[0], answered)
        if (now if ended is None else ended) - first >= lasting:
            return first + lasting
    return None


def _first_flapping(stretches: Sequence[_Stretch], flapping: Repeats) -> int | None:
    """When a problem had come so often within so long for the first time.

    From the end of one stretch to the beginning of another, so that a signal more never makes it less.
    """
    if flapping.action is Action.NOTHING:
        return None
    for first, last in zip(stretches, stretches[flapping.times - 1 :], strict=False):
        if last.bads[0] - first.bads[-1] <= flapping.within // _MICROSECOND:
            return last.bads[0]
    return None


class Verdict(NamedTuple):
    """What the signals say of a node: its health, why, and the problems that ask for something, the worst first.

    `health` is None for a node that nobody observes: that nothing is said against it does not make it healthy.
    """

    health: HealthFact | None
    why: str
    source: str
    problems: list[Problem]

    @property
    def lets_in(self) -> bool:
        """Whether a node may enter service by itself: nothing is wrong, as far as anybody can tell."""
        return self.health not in (HealthFact.UNHEALTHY, HealthFact.UNKNOWN)


def judge(
    memories: Mapping[SignalKey, Memory],
    policy: Policy,
    *,
    answers: Answers,
    is_observed: bool,
    silent_feeds: Sequence[str],
    now: datetime,
) -> Verdict:
    """The verdict on one node. `is_observed`: somebody speaks of it, or has."""
    found = [assess(key, memory, policy, answers=answers, now=now) for key, memory in memories.items()]
    problems = sorted((each for each in found if each is not None and _counts(each, policy, now)), key=_order)
    if problems:
        worst = problems[0]
        health = HealthFact.UNHEALTHY if worst.action.takes_out else HealthFact.DEGRADED
        return Verdict(health, worst.why, worst.memory.source, problems)
    if silent_feeds:
        return Verdict(HealthFact.UNKNOWN, f"feed {silent_feeds[0]} is silent", silent_feeds[0], [])
    return Verdict(HealthFact.HEALTHY if is_observed else None, "", "", [])


def _order(problem: Problem) -> tuple[int, int, SignalKey]:
    return -problem.action.severity, problem.began if problem.due is None else problem.due, problem.key


def _counts(problem: Problem, policy: Policy, now: datetime) -> bool:
    """Whether a problem makes the node anything but healthy: it was triggered, and it is not just an old blemish."""
    if problem.due is None:
        return False
    if problem.action.takes_out:
        return True
    is_recent = problem.key.kind.is_lasting or now - from_microseconds(problem.memory.latest_bad) < policy.degraded_for
    return problem.is_active and is_recent
