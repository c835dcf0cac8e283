"""How each event changes a life. Pure; the fold and the decisions use the same functions, so that a decision sees at
once what its own drafts will have made of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from plimsoll.ledger.model import Change
from plimsoll.lifecycle.changes import (
    ClusterAvailable,
    ClusterCheckedIn,
    ClusterGone,
    ClusterLeaving,
    ClusterPaused,
    ClusterPlanned,
    ClusterRespecified,
    ClusterResumed,
    ConditionsChanged,
    QuotaClaimed,
    QuotaReleased,
    RecipeMigrated,
    SetsSeen,
    StepIntended,
    StepRetried,
    StepSeen,
    StepWaived,
)
from plimsoll.lifecycle.model import ConditionType, Going, Life, Said, SetSeen, Truth, Work

FLIPS_MAX = 20
WAIVED = "Waived"
"""Why a step is done that nobody has seen to be done."""
replace = msgspec.structs.replace


def grown(life: Life | None, change: Change, said: Said) -> Life:
    """The life after a change. `said`: by whom, when, why."""
    if isinstance(change, ClusterPlanned):
        return Life(change.spec, change.uid, change.recipe_version, said)
    assert life is not None, f"{change.subject} was never planned"
    return _GROWS[type(change)](life, change, said)


def _respecified(life: Life, change: ClusterRespecified, _said: Said) -> Life:
    after = replace(life, spec=change.spec, recipe_version=change.recipe_version, generation=life.generation + 1)
    return _reclaiming(life, after)


def _reclaiming(before: Life, after: Life) -> Life:
    """What was promised for another wish is free again: the cluster waits anew, in its order."""
    if before.has_begun or _quota_wish(before) == _quota_wish(after):
        return after
    return replace(after, claim={}, claimed_at=None)


def _quota_wish(life: Life) -> tuple[object, ...]:
    """What decides how much of which quota a cluster needs."""
    spec = life.spec
    return spec.subscription, spec.region, spec.sku, spec.nodes, spec.recipe, life.recipe_version


def _conditions(life: Life, change: ConditionsChanged, said: Said) -> Life:
    conditions = dict(life.conditions)
    flips = life.flips
    for condition in change.conditions:
        known = conditions.get(condition.type)
        is_green = condition.type is ConditionType.HEALTH_GREEN
        if is_green and known is not None and known.is_true and condition.status is not Truth.TRUE:
            flips = (*flips, said.at)[-FLIPS_MAX:]
        conditions[condition.type] = condition
    return replace(life, conditions=conditions, flips=flips)


def _claimed(life: Life, change: QuotaClaimed, said: Said) -> Life:
    return replace(life, claim=change.cores, claimed_at=said.at)


def _released(life: Life, _change: QuotaReleased, _said: Said) -> Life:
    return replace(life, claim={}, claimed_at=None)


def _checked_in(life: Life, _change: ClusterCheckedIn, said: Said) -> Life:
    return replace(life, checked_in=said)


def _put(life: Life, work: Work) -> Life:
    return replace(life, works={**life.works, work.step: work})


def _intended(life: Life, change: StepIntended, said: Said) -> Life:
    known = life.works.get(change.step)
    return _put(
        life,
        Work(
            step=change.step,
            going=Going.INTENDED,
            attempt=change.attempt,
            operation=change.operation,
            since=said.at,
            begun=known.begun if known else said.at,
            tried=said.at,
            place=change.place,
            reason="",
            detail="",
            log=known.log if known else "",
            generation=life.generation,
            failures=known.failures if known else 0,
        ),
    )


def _seen(life: Life, change: StepSeen, said: Said) -> Life:
    known = life.works[change.step]
    is_new = change.going is not known.going
    has_failed = is_new and change.going in (Going.RETRYING, Going.STUCK)
    now = replace(
        known,
        going=change.going,
        since=said.at if is_new else known.since,
        handle=change.handle or known.handle,
        reason=change.reason,
        detail=change.detail,
        next_attempt_at=change.next_attempt_at,
        ended=said.at if change.going is Going.DONE else None,
        log=change.log or known.log,
        seen=said.at,
        failures=known.failures + 1 if has_failed else known.failures,
    )
    return _put(life, now)


def _retried(life: Life, change: StepRetried, said: Said) -> Life:
    """Tried again at once, and as often as at first."""
    known = life.works.get(change.step)
    if known is None:  # a step that came with another recipe, of a cluster in production
        known = Work(change.step, Going.RETRYING, 0, "", said.at, said.at, said.at)
    again = replace(known, going=Going.RETRYING, since=said.at, next_attempt_at=said.at, failures=0, ended=None)
    return _put(life, again)


def _waived(life: Life, change: StepWaived, said: Said) -> Life:
    known = life.works.get(change.step)
    why = f"{said.by}: {said.why}" if said.why else said.by
    if known is None:
        known = Work(change.step, Going.DONE, 0, "", said.at, said.at, said.at)
    done = replace(known, going=Going.DONE, since=said.at, ended=said.at, reason=WAIVED, detail=f"waived by {why}")
    return _put(life, done)


def _sets(life: Life, change: SetsSeen, said: Said) -> Life:
    sets = dict(life.sets)
    for each in change.sets:
        sets[each.name] = _steady_since(each, sets.get(each.name), said.at)
    return replace(life, sets=sets)


def _steady_since(seen: SetSeen, known: SetSeen | None, at: datetime) -> SetSeen:
    is_same = known is not None and known.there == seen.there and known.steady_since is not None
    return replace(seen, steady_since=known.steady_since if known is not None and is_same else at)


def _paused(life: Life, _change: ClusterPaused, said: Said) -> Life:
    return replace(life, paused=said)


def _resumed(life: Life, _change: ClusterResumed, _said: Said) -> Life:
    return replace(life, paused=None)


def _migrated(life: Life, change: RecipeMigrated, _said: Said) -> Life:
    spec = replace(life.spec, recipe=change.recipe)
    after = replace(life, spec=spec, recipe_version=change.version, generation=life.generation + 1)
    return _reclaiming(life, after)


def _available(life: Life, _change: ClusterAvailable, said: Said) -> Life:
    return replace(life, available_at=said.at)


def _leaving(life: Life, _change: ClusterLeaving, said: Said) -> Life:
    return replace(life, leaving=said, paused=None)


def _gone(life: Life, _change: ClusterGone, said: Said) -> Life:
    return replace(life, gone_at=said.at, leaving=life.leaving or said, claim={}, claimed_at=None, available_at=None)


_GROWS: dict[type[Change], Callable[[Life, Any, Said], Life]] = {
    ClusterRespecified: _respecified,
    ConditionsChanged: _conditions,
    QuotaClaimed: _claimed,
    QuotaReleased: _released,
    ClusterCheckedIn: _checked_in,
    StepIntended: _intended,
    StepSeen: _seen,
    StepRetried: _retried,
    StepWaived: _waived,
    SetsSeen: _sets,
    ClusterPaused: _paused,
    ClusterResumed: _resumed,
    RecipeMigrated: _migrated,
    ClusterAvailable: _available,
    ClusterLeaving: _leaving,
    ClusterGone: _gone,
}
GROWING: tuple[type[Change], ...] = (ClusterPlanned, *_GROWS)
"""Every change of a life."""
