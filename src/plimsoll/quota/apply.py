"""Which pools of a plan may be applied now, and which wait for notice or agreement (rule 10). Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from plimsoll.fleet.model import PoolKey
from plimsoll.ledger.model import Draft
from plimsoll.quota.changes import NoticeEnded, NoticeGiven
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hurt import taken
from plimsoll.quota.model import Haircut, Notice, QuotaKey
from plimsoll.quota.notice import is_unheard, may_take, notice_for
from plimsoll.quota.plan import Plan, PoolPlan
from plimsoll.quota.policy import Stability
from plimsoll.state.state import State


class Wait(enum.StrEnum):
    """Why a pool is not corrected yet."""

    ANNOUNCED = "announced"
    """Its teams were told a day that has not come."""
    NOTICE_GIVEN = "notice_given"
    """It takes running capacity: its owners are told now."""
    NEEDS_AGREEMENT = "needs_agreement"
    """It takes running capacity, and an owner has not agreed."""


class Held(msgspec.Struct, frozen=True):
    """A pool that waits: for what, for whom, and until when at least."""

    key: PoolKey
    wait: Wait
    teams: Sequence[str]
    until: datetime


class Applied(msgspec.Struct, frozen=True):
    """What an application does: the pools that change, those that wait, and the events."""

    plan: Plan
    changed: Sequence[PoolPlan]
    held: Sequence[Held]
    drafts: Sequence[Draft]


def decide_apply(state: State, plan: Plan, calm: Stability, *, now: datetime, needs_notice: bool = True) -> Applied:
    """Apply what may be applied. A pool whose guarantees were never in force, and nobody was told of, may."""
    notices: dict[PoolKey, list[Notice]] = {}
    for _, notice in sorted(state.of(QuotaBook).notices.items()):
        notices.setdefault(notice.key.pool, []).append(notice)
    changed, held, drafts = [], list[Held](), list[Draft]()
    for each in plan.pools:
        if not each.is_change:
            continue
        told = notices.get(each.key, [])
        wait, given = _wait(each, told, calm, now) if needs_notice else (None, [])
        if wait is not None:
            held.append(wait)
            drafts += given
            continue
        changed.append(each)
        drafts += each.drafts(f"policy {plan.policy}")
        drafts += (Draft(NoticeEnded(notice.id, "applied")) for notice in told)
    return Applied(plan, changed, held, drafts)


def _wait(each: PoolPlan, told: Sequence[Notice], calm: Stability, now: datetime) -> tuple[Held | None, list[Draft]]:
    by_team = {notice.team: notice for notice in told}
    wanted = each.alignment.guaranteed
    # Nobody had a guarantee before the first alignment, and what runs goes on as flex; but who was told is waited for.
    lost = taken(each.pool, wanted) if each.pool.is_aligned else _told_loss(each, by_team)
    ahead = [notice for notice in told if notice.due > now and notice.team in lost]
    if ahead:
        due = max(notice.due for notice in ahead)
        return Held(each.key, Wait.ANNOUNCED, [notice.team for notice in ahead], due), []
    hurt = {team: haircut for team, haircut in lost.items() if haircut.running}
    unheard = [team for team in sorted(hurt) if is_unheard(by_team.get(team), wanted[team])]
    if unheard:
        given = [
            notice_for(
                QuotaKey(team, *each.key),
                wanted[team] + hurt[team].gpus,
                wanted[team],
                hurt[team],
                now,
                calm,
                by_team.get(team),
            )
            for team in unheard
        ]
        return Held(each.key, Wait.NOTICE_GIVEN, unheard, now + calm.notice), [Draft(NoticeGiven(n)) for n in given]
    waiting = [team for team in sorted(hurt) if not may_take(by_team.get(team), wanted[team], now)]
    if waiting:
        return Held(each.key, Wait.NEEDS_AGREEMENT, waiting, max(by_team[team].due for team in waiting)), []
    return None, []


def _told_loss(each: PoolPlan, by_team: Mapping[str, Notice]) -> dict[str, Haircut]:
    return {team.team: team.haircut for team in each.hull.teams if team.haircut.gpus and team.team in by_team}
