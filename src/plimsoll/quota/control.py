"""The controller: what to do about a pool now, so that the promise follows health without surprising anybody. Pure.

It moves as little as it can. When the line falls below what is promised it takes from guarantees by the order of the
alignment; when health returns it gives back what was cut. Small moves of health move nothing (dead band), a pool
changes at most once in a while unless its promise is breaking, and running capacity is taken only after notice and with
the owner's agreement; until then the promise stays above the line, in plain sight.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import PoolKey, Service
from plimsoll.ledger.model import Draft
from plimsoll.quota.align import Unpinned, align, haircut_of
from plimsoll.quota.changes import NoticeEnded, NoticeGiven, PoolAligned
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import Pool, look, pool_keys
from plimsoll.quota.lines import LineNow, lines_now
from plimsoll.quota.model import Answer, Haircut, LineInForce, Mode, Notice, QuotaKey
from plimsoll.quota.plan import NO_LINE
from plimsoll.quota.policy import Policy, Stability, day_of
from plimsoll.state.state import State
from plimsoll.times import CLOCK_SKEW_MAX


class Verdict(enum.StrEnum):
    """What the controller finds about a pool; those that wait for something say for what."""

    STEADY = "steady"
    """Nothing to change."""
    DEAD_BAND = "dead_band"
    """The line moved less than is worth a change."""
    CHANGED_LATELY = "changed_lately"
    """The pool changed less than a week ago, and its promise holds."""
    SETTLING = "settling"
    """Nodes came back only now; their capacity is not promised yet."""
    NOT_ALIGNED = "not_aligned"
    """Nothing is guaranteed yet: the first alignment is a person's."""
    PINNED = "pinned"
    """Pins alone are above the line."""
    CUT = "cut"
    """Guarantees fall to the line."""
    GROW = "grow"
    """Guarantees grow back with health."""
    NOTICE = "notice"
    """The rest would take running capacity: its owners are told first."""
    NEEDS_AGREEMENT = "needs_agreement"
    """The notice is over, and an owner has not agreed."""


ACTING = (Verdict.CUT, Verdict.GROW, Verdict.NOTICE)


class Step(msgspec.Struct, frozen=True):
    """What to do about a pool. `guaranteed` is what would be; `drafts` do it."""

    key: PoolKey
    verdict: Verdict
    why: str
    line: int
    promised: int
    healthy: int
    guaranteed: Mapping[str, int] = {}
    drafts: Sequence[Draft] = ()

    @property
    def is_breaking(self) -> bool:
        """Whether less works than is promised, now."""
        return self.healthy < self.promised


def control(
    state: State,
    policy: Policy,
    *,
    now: datetime,
    pools: Iterable[PoolKey] | None = None,
    lines: Mapping[PoolKey, LineNow] | None = None,
) -> list[Step]:
    """What to do about these pools, or about all."""
    book = state.of(QuotaBook)
    keys = pool_keys(state) if pools is None else sorted(pools)
    found = lines_now(state, policy, now=now, pools=keys) if lines is None else lines
    recent = _came_back(state.of(Fleet), now, policy.stability)
    notices: dict[PoolKey, list[Notice]] = {}
    for notice in book.notices.values():
        notices.setdefault(notice.key.pool, []).append(notice)
    return [
        decide_pool(
            pool,
            found.get(pool.key, NO_LINE),
            policy.stability,
            last=book.lines.get(pool.key),
            notices=notices.get(pool.key, []),
            unsettled=recent.get(pool.key, 0),
            now=now,
        )
        for pool in look(state, keys, policy, day_of(now))
    ]


def _came_back(fleet: Fleet, now: datetime, calm: Stability) -> dict[PoolKey, int]:
    """GPUs that are in service for less than it takes to trust them with a promise."""
    settled_since = now - calm.grow_after
    recent: dict[PoolKey, int] = {}
    for node in fleet.nodes.values():
        if node.since is not None and node.since > settled_since and node.service is Service.IN_SERVICE:
            key = PoolKey(node.cluster, node.sku)
            recent[key] = recent.get(key, 0) + node.gpus
    return recent


def decide_pool(
    pool: Pool,
    line: LineNow,
    calm: Stability,
    *,
    last: LineInForce | None,
    notices: Sequence[Notice],
    unsettled: int,
    now: datetime,
) -> Step:
    """What to do about one pool."""
    promised = sum(pool.guaranteed.values())

    def step(
        verdict: Verdict, why: str, guaranteed: Mapping[str, int] | None = None, drafts: Sequence[Draft] = ()
    ) -> Step:
        after = pool.guaranteed if guaranteed is None else guaranteed
        return Step(pool.key, verdict, why, line.gpus, promised, pool.healthy, after, drafts)

    if last is None:
        return step(Verdict.NOT_ALIGNED, "nothing is guaranteed before the first plimsoll quota apply")
    over, band = promised - line.gpus, dead_band(promised, pool.size, calm)
    if over > 0:
        if pool.healthy >= promised:
            if over <= band:
                return step(Verdict.DEAD_BAND, f"the line is {over} GPUs below, within the dead band of {band}")
            if is_recent(last, now, calm):
                return step(Verdict.CHANGED_LATELY, f"the line is {over} GPUs below; it changed on {_day(last.since)}")
        return _cut(pool, line, calm, notices, now, step)
    stale = [Draft(NoticeEnded(notice.id, "no longer needed")) for notice in notices]
    grown = grow(pool, min(line.gpus, pool.healthy - unsettled))
    gained = sum(grown.values()) - promised
    if gained <= 0:
        if unsettled and sum(grow(pool, line.gpus).values()) > promised:
            return step(Verdict.SETTLING, f"{unsettled} GPUs came back less than {calm.grow_after} ago")
        return step(Verdict.STEADY, "promises fit under the line", None, stale)
    is_whole = all(grown[stake.team] >= stake.assigned for stake in pool.stakes)
    if gained <= band and not is_whole:
        return step(Verdict.DEAD_BAND, f"{gained} GPUs could be given back, within the dead band of {band}")
    if is_recent(last, now, calm):
        return step(Verdict.CHANGED_LATELY, f"{gained} GPUs could be given back; it changed on {_day(last.since)}")
    why = f"{gained} GPUs of health returned"
    return step(Verdict.GROW, why, grown, [*_aligned(pool, line.gpus, line.policy, grown, why), *stale])


def dead_band(promised: int, size: int, calm: Stability) -> int:
    """GPUs by which the line may be off before anything moves; less than a node never moves anything."""
    return int(calm.dead_band * promised) // size * size


def is_recent(last: LineInForce, now: datetime, calm: Stability) -> bool:
    """Whether the pool changed too short ago. A change dated ahead of the clock, which went back, holds up nothing."""
    return last.since <= now + CLOCK_SKEW_MAX and now - last.since < calm.change_every


def grow(pool: Pool, line: int) -> dict[str, int]:
    """Guarantees with as much of what was cut given back as fits, in proportion to it, in whole nodes."""
    promised = sum(pool.guaranteed.values())
    missing = {
        stake.team: max(0, stake.assigned - pool.guaranteed.get(stake.team, 0)) // pool.size for stake in pool.stakes
    }
    total = sum(missing.values())
    spare = min(total, max(0, line - promised) // pool.size)
    given = {team: spare * nodes // total if total else 0 for team, nodes in missing.items()}
    assigned = {stake.team: stake.assigned for stake in pool.stakes}
    by_remainder = sorted(missing, key=lambda team: (-(spare * missing[team] % max(1, total)), -assigned[team], team))
    for team in by_remainder[: spare - sum(given.values())]:
        given[team] += 1
    return {team: pool.guaranteed.get(team, 0) + nodes * pool.size for team, nodes in given.items()}


def taken(pool: Pool, guaranteed: Mapping[str, int]) -> dict[str, Haircut]:
    """What teams lose of what they are guaranteed now, by what it hurts."""
    found = {}
    for stake in pool.stakes:
        held = msgspec.structs.replace(stake, assigned=pool.guaranteed.get(stake.team, 0))
        if haircut := haircut_of(held, guaranteed.get(stake.team, 0)):
            found[stake.team] = haircut
    return found


def _cut(
    pool: Pool,
    line: LineNow,
    calm: Stability,
    notices: Sequence[Notice],
    now: datetime,
    step: Callable[..., Step],
) -> Step:
    """Take what hurts nobody's running work now; what does hurt after notice, where its owner has agreed."""
    held = [msgspec.structs.replace(stake, assigned=pool.guaranteed.get(stake.team, 0)) for stake in pool.stakes]
    try:
        wanted = align(held, line.gpus, pool.size).guaranteed
    except Unpinned as error:
        return step(Verdict.PINNED, f"{error.pinned} GPUs are pinned above the line of {error.line}")
    told = {notice.team: notice for notice in notices}
    hurt = {team: haircut for team, haircut in taken(pool, wanted).items() if haircut.running}
    waiting = {team for team in hurt if not may_take(told.get(team), wanted[team], now)}
    spared = {
        team: min(pool.guaranteed.get(team, 0), gpus + _whole(hurt[team].running, pool.size))
        if team in waiting
        else gpus
        for team, gpus in wanted.items()
    }
    given = [
        Draft(NoticeGiven(notice_for(QuotaKey(team, *pool.key), pool, wanted[team], hurt[team], now, calm)))
        for team in sorted(waiting)
        if is_unheard(told.get(team), wanted[team])
    ]
    cut = sum(pool.guaranteed.values()) - sum(spared.values())
    if cut:
        why = f"the line fell to {line.gpus} GPUs"
        done = [Draft(NoticeEnded(told[team].id, "applied")) for team in sorted(told) if team not in waiting]
        line_kept = max(line.gpus, sum(spared.values()))
        drafts = [*_aligned(pool, line_kept, line.policy, spared, why), *done, *given]
        return step(Verdict.CUT, f"{why}: {cut} GPUs are taken back" + _still(waiting, hurt), spared, drafts)
    if given:
        return step(Verdict.NOTICE, f"{len(given)} teams are told" + _still(waiting, hurt), None, given)
    silent = [team for team in sorted(waiting) if told[team].due <= now]
    if silent:
        return step(Verdict.NEEDS_AGREEMENT, f"{', '.join(silent)} did not agree" + _still(waiting, hurt))
    first = min(told[team].due for team in waiting)
    return step(Verdict.NOTICE, f"notice runs until {_day(first)}" + _still(waiting, hurt))


def may_take(notice: Notice | None, guaranteed: int, now: datetime) -> bool:
    """Whether a team was told in time that it would fall this far, and agreed."""
    is_covered = notice is not None and notice.guaranteed <= guaranteed
    return is_covered and notice is not None and notice.answer is Answer.AGREED and notice.due <= now


def is_unheard(notice: Notice | None, guaranteed: int) -> bool:
    """Whether a team must be told anew: not yet, or of less."""
    return notice is None or notice.guaranteed > guaranteed


def notice_for(key: QuotaKey, pool: Pool, guaranteed: int, haircut: Haircut, now: datetime, calm: Stability) -> Notice:
    """What a team is told. Its id names the pool and the team: a newer notice takes the place of an older one."""
    was = pool.guaranteed.get(key.team, 0) if pool.is_aligned else guaranteed + haircut.gpus
    return Notice("/".join(key), *key, was, guaranteed, haircut, now, now + calm.notice)


def _whole(gpus: int, size: int) -> int:
    return -(-gpus // size) * size


def _still(waiting: Iterable[str], hurt: Mapping[str, Haircut]) -> str:
    running = sum(hurt[team].running for team in waiting)
    return f"; {running} running GPUs wait for their owners" if running else ""


def _aligned(pool: Pool, line: int, policy: str, guaranteed: Mapping[str, int], why: str) -> list[Draft]:
    after = {team: gpus for team, gpus in guaranteed.items() if gpus}
    was = {
        team: pool.guaranteed.get(team, 0)
        for team in sorted({*after, *pool.guaranteed})
        if pool.guaranteed.get(team, 0) != after.get(team, 0)
    }
    return [Draft(PoolAligned(*pool.key, line, policy, after, was, why))]


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"


def modes(state: State) -> Mapping[str, Mode]:
    """The mode of every cluster; `observe` until somebody says otherwise."""
    book = state.of(QuotaBook)
    return {cluster: book.modes.get(cluster, Mode.OBSERVE) for cluster in state.of(Fleet).clusters}
