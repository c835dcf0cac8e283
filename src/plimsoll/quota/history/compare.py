"""Policies side by side: what each would cut now, of whom, how much of it was never there, and how often its promise
would have been kept in the past. Pure.

A policy that can't be planned or judged is a row with the reason, never an error of the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from plimsoll.errors import PlimsollError, UsageError
from plimsoll.fleet.model import PoolKey
from plimsoll.quota.history.replay import (
    DAY_HOURS,
    Past,
    PoolRecord,
    Replay,
    Unjudged,
    check_judged,
    common_window,
    kept_share,
    read_past,
)
from plimsoll.quota.hull import pool_keys
from plimsoll.quota.model import Haircut
from plimsoll.quota.plan import Plan, Summary, make_plan, summarise
from plimsoll.quota.policy import Policy, parse_word
from plimsoll.state.state import State

POLICIES_MAX = 12
DAYS_MAX = 3660
BUFFERS_DEFAULT = "0,5,10,15,tiered,forecast"


class Kept(msgspec.Struct, frozen=True):
    """How often promises would have been kept over the days that were judged.

    `kept_share` is of team-hours. `planned_share` is the part of all pool-hours that planned work alone broke. Flex is
    what was healthy beyond all guarantees: GPUs on average, and the share of pool-hours in which there was some.
    """

    kept_share: float | None
    broken_hours: int
    planned_hours: int
    pool_hours: int
    flex_mean: float
    flex_hours_share: float
    promised_mean: float


class PoolRow(msgspec.Struct, frozen=True):
    """A policy in one pool, in GPUs."""

    policy: str
    cluster: str
    sku: str
    total: int
    healthy: int
    line: int
    assigned: int
    guaranteed: int
    over: int
    never_backed: int
    to_flex: int
    haircut: Haircut
    flex_standing: int
    stage: int
    teams_touched: int
    kept_share: float | None
    flex_mean: float | None
    flex_hours_share: float | None


class TeamRow(msgspec.Struct, frozen=True):
    """A policy for one team over all its clusters, in GPUs."""

    policy: str
    team: str
    assigned: int
    guaranteed: int
    allocated: int
    haircut: Haircut
    clusters: int
    clusters_touched: int
    stage: int
    kept_share: float | None


class PolicyRow(msgspec.Struct, frozen=True):
    """A policy for all pools asked for, in GPUs. `refused` says why it has no plan, `unjudged` why it has no past."""

    policy: str
    summary: Summary | None = None
    flex_created: int = 0
    kept: Kept | None = None
    refused: str = ""
    unjudged: str = ""
    pools: Sequence[PoolRow] = ()
    teams: Sequence[TeamRow] = ()

    @property
    def reason(self) -> str:
        return self.refused or self.unjudged


class Comparison(msgspec.Struct, frozen=True):
    """All of it. `today` is the book as it stands: everything that is assigned is promised, whatever works."""

    as_of: datetime
    days: int
    judged_from: datetime | None
    judged_until: datetime | None
    today: Kept | None
    policies: Sequence[PolicyRow]
    quiet_days: float = 0.0
    """For so long nothing was told, and health is taken as it was."""

    @property
    def reasons(self) -> dict[str, list[str]]:
        """Why numbers are missing, and of which policies."""
        found: dict[str, list[str]] = {}
        for row in self.policies:
            if row.reason:
                found.setdefault(row.reason, []).append(row.policy)
        return found

    @property
    def judged_days(self) -> float:
        if self.judged_from is None or self.judged_until is None:
            return 0.0
        return (self.judged_until - self.judged_from).total_seconds() / 86_400


def parse_policies(text: str) -> list[Policy]:
    """The policies of `--buffers`: numbers are percent of total, words are as for `--policy`."""
    words = [word.strip() for word in text.split(",")]
    if not any(words):
        raise _bad_buffers("nothing is named to compare", text)
    if len(words) > POLICIES_MAX:
        raise _bad_buffers(f"{len(words)} policies are more than the {POLICIES_MAX} that fit side by side", text)
    policies: list[Policy] = []
    for word in words:
        if not word:
            raise _bad_buffers("there is an empty place between two commas", text)
        policy = _parse_one(word)
        if any(policy.rules == other.rules for other in policies):
            raise _bad_buffers(f"{word[:40]} is named twice", word)
        policies.append(policy)
    return policies


def _parse_one(word: str) -> Policy:
    number = word.removesuffix("%").strip()
    try:
        percent = float(number)
    except ValueError:
        try:
            return parse_word(word)
        except UsageError as error:
            raise _bad_buffers(error.message.partition(": ")[2] or error.message, word) from None
    if not 0 <= percent < 100:
        raise _bad_buffers(f"a buffer of {number[:40]} % is not from 0 up to, not including, 100", word)
    if 0 < percent < 1:
        raise _bad_buffers(
            f"{number[:40]} is less than one percent; for {percent * 100:g} % write {percent * 100:g}", word
        )
    return parse_word(f"fixed:{percent / 100:.10g}")


def _bad_buffers(why: str, value: str) -> UsageError:
    return UsageError(
        "bad_buffers",
        f"--buffers: {why}",
        next_step=f"percent and policies with commas between them: --buffers {BUFFERS_DEFAULT}, or fixed-healthy:0.1,"
        " forecast:0.95",
        value=value[:60],
    )


def check_days(days: int) -> None:
    """How far back to look must be at least a day."""
    if not 1 <= days <= DAYS_MAX:
        raise UsageError(
            "bad_days",
            f"--days {days} is not a number of days from 1 to {DAYS_MAX:,}",
            next_step="--days 90",
            value=days,
        )


def compare(
    state: State,
    policies: Sequence[Policy],
    *,
    now: datetime,
    days: int,
    pools: Collection[PoolKey] | None = None,
) -> Comparison:
    """Compare policies on these pools, or on all."""
    keys = sorted(pool_keys(state) if pools is None else pools)
    past = read_past(state, now=now)
    why = [_why_unjudged(past, policy) for policy in policies]
    judged = [policy for policy, reason in zip(policies, why, strict=True) if not reason]
    if not judged:
        rows = [_row(state, policy, keys, now, None, reason) for policy, reason in zip(policies, why, strict=True)]
        return Comparison(now, days, None, None, None, rows)
    window = common_window(past, judged, days=days)
    today, *records = Replay(state, past, window, now=now).records([None, *judged])
    left = iter(records)
    rows = [
        _row(state, policy, keys, now, None if reason else next(left), reason)
        for policy, reason in zip(policies, why, strict=True)
    ]
    mine = [today[key] for key in keys if key in today]
    moments = past.moment(window.first), past.moment(window.end)
    return Comparison(now, days, *moments, _kept(mine), rows, past.quiet_hours / DAY_HOURS)


def _why_unjudged(past: Past, policy: Policy) -> str:
    try:
        check_judged(past, policy)
    except Unjudged as error:
        return error.why
    return ""


def _row(
    state: State,
    policy: Policy,
    keys: Sequence[PoolKey],
    now: datetime,
    records: Mapping[PoolKey, PoolRecord] | None,
    unjudged: str,
) -> PolicyRow:
    try:
        plan = make_plan(state, policy, now=now, pools=keys)
    except PlimsollError as error:
        return PolicyRow(policy.name, refused=error.message, unjudged=unjudged)
    mine = {key: records[key] for key in keys if key in records} if records is not None else {}
    # What nobody could ever use as flex before the first alignment counts as new: it was not told apart.
    created = sum(
        each.hull.flex_standing - (each.before.flex_standing if each.pool.is_aligned else 0) for each in plan.pools
    )
    return PolicyRow(
        policy.name,
        summary=summarise(plan.hulls),
        flex_created=created,
        kept=None if records is None else _kept(list(mine.values())),
        unjudged=unjudged,
        pools=[_pool_row(policy.name, plan, place, mine) for place in range(len(plan.pools))],
        teams=_team_rows(policy.name, plan, mine),
    )


def _kept(records: Sequence[PoolRecord]) -> Kept:
    hours = sum(record.hours for record in records)
    return Kept(
        kept_share=kept_share(team for record in records for team in record.teams.values()),
        broken_hours=sum(record.broken_hours for record in records),
        planned_hours=sum(record.planned_hours for record in records),
        pool_hours=hours,
        flex_mean=sum(record.flex_mean for record in records),
        flex_hours_share=sum(record.flex_hours for record in records) / hours if hours else 0.0,
        promised_mean=sum(
            team.guaranteed_hours / record.hours for record in records if record.hours for team in record.teams.values()
        ),
    )


def _pool_row(policy: str, plan: Plan, place: int, records: Mapping[PoolKey, PoolRecord]) -> PoolRow:
    hull = plan.pools[place].hull
    record = records.get(hull.key)
    cut = [team.haircut for team in hull.teams if team.haircut.gpus]
    return PoolRow(
        policy,
        hull.cluster,
        hull.sku,
        total=hull.total,
        healthy=hull.healthy,
        line=hull.line,
        assigned=hull.assigned,
        guaranteed=hull.guaranteed,
        over=hull.over,
        never_backed=hull.never_backed,
        to_flex=hull.to_flex,
        haircut=Haircut.total(cut),
        flex_standing=hull.flex_standing,
        stage=hull.stage,
        teams_touched=len(cut),
        kept_share=record.kept_share if record else None,
        flex_mean=record.flex_mean if record else None,
        flex_hours_share=record.flex_share if record else None,
    )


def _team_rows(policy: str, plan: Plan, records: Mapping[PoolKey, PoolRecord]) -> list[TeamRow]:
    found = []
    for name in sorted({team.team for team in plan.teams}):
        mine = [team for team in plan.teams if team.team == name]
        past = [record.teams[name] for record in records.values() if name in record.teams]
        found.append(
            TeamRow(
                policy,
                name,
                assigned=sum(team.assigned for team in mine),
                guaranteed=sum(team.guaranteed for team in mine),
                allocated=sum(team.allocated for team in mine),
                haircut=Haircut.total(team.haircut for team in mine),
                clusters=len({team.cluster for team in mine}),
                clusters_touched=len({team.cluster for team in mine if team.haircut.gpus}),
                stage=max(team.stage for team in mine),
                kept_share=kept_share(past),
            )
        )
    return found
