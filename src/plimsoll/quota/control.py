"""The controller: what to do about a pool now, so that the promise follows health without surprising anybody. Pure.

It moves as little as it can. When the line falls below what is promised it takes from guarantees by the order of the
alignment; when health returns it gives back what was cut. Small moves of health move nothing (dead band) unless they
break the promise for longer than it takes to trust a node, a pool changes at most once in a while unless its promise is
breaking, and running capacity is taken only after notice and with the owner's agreement; until then the promise stays
above the line, in plain sight.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

import msgspec

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import PoolKey, Service
from plimsoll.health.model import Mark, is_planned
from plimsoll.ledger.model import Draft
from plimsoll.quota.align import Stake, Unpinned, align
from plimsoll.quota.changes import NoticeEnded, NoticeGiven, PoolAligned
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import Pool, look, pool_keys
from plimsoll.quota.hurt import harmless, held_stakes, loss_of
from plimsoll.quota.lines import LineNow, lines_now
from plimsoll.quota.model import Answer, Haircut, LineInForce, Mode, Notice, QuotaKey
from plimsoll.quota.notice import is_stale, is_unheard, notice_for
from plimsoll.quota.plan import NO_LINE
from plimsoll.quota.policy import Policy, Stability, day_of
from plimsoll.state.state import State
from plimsoll.times import CLOCK_SKEW_MAX, show_time
from plimsoll.words import counted, span_text


class Verdict(enum.StrEnum):
    """What the controller finds about a pool; those that wait for something say for what."""

    STEADY = "steady"
    """Nothing to change."""
    DEAD_BAND = "dead_band"
    """The line moved less than is worth a change."""
    PLANNED_WORK = "planned_work"
    """What is out for planned work comes back soon; until then the shortfall is shown and nothing is taken."""
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
    lately = _moved_lately(state.of(Fleet), now, policy.stability)
    reserved = book.reserved()
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
            unsettled=lately.came_back.get(pool.key, 0),
            lately_out=lately.went_out.get(pool.key, 0),
            planned_out=lately.planned.get(pool.key, 0),
            reserved=reserved.get(pool.key, 0),
            now=now,
        )
        for pool in look(state, keys, policy, day_of(now))
    ]


class _Lately(msgspec.Struct, frozen=True):
    """GPUs by pool that came back, went out, or are out for planned work, each for less than it takes to count on."""

    came_back: dict[PoolKey, int]
    went_out: dict[PoolKey, int]
    planned: dict[PoolKey, int]


def _moved_lately(fleet: Fleet, now: datetime, calm: Stability) -> _Lately:
    """A node dated ahead of the clock, which went back, tells nothing about how long it is as it is."""
    lately = _Lately({}, {}, {})
    first, last = now - max(calm.grow_after, calm.ride_out), now + CLOCK_SKEW_MAX
    for node in fleet.nodes.values():
        if node.since is None or not first < node.since <= last or node.service is Service.RETIRED:
            continue
        key, is_in = PoolKey(node.cluster, node.sku), node.service is Service.IN_SERVICE
        if now - node.since < calm.grow_after:
            found = lately.came_back if is_in else lately.went_out
            found[key] = found.get(key, 0) + node.gpus
        if not is_in and now - node.since < calm.ride_out and is_planned(Mark(node.service, node.reason)):
            lately.planned[key] = lately.planned.get(key, 0) + node.gpus
    return lately


def decide_pool(
    pool: Pool,
    line: LineNow,
    calm: Stability,
    *,
    last: LineInForce | None,
    notices: Sequence[Notice],
    unsettled: int,
    now: datetime,
    lately_out: int = 0,
    planned_out: int = 0,
    reserved: int = 0,
) -> Step:
    """What to do about one pool. `unsettled` and `lately_out`: GPUs that came back, or went out, only now;
    `planned_out`: those that are out for planned work, and not for long.
    """
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
        if over <= band and pool.healthy + lately_out >= promised:
            return step(Verdict.DEAD_BAND, f"the line is {over:,} GPUs below, within the dead band of {band:,}")
        if line.gpus + planned_out >= promised:
            why = f"{planned_out:,} GPUs are out for planned work since less than {span_text(calm.ride_out)}"
            return step(Verdict.PLANNED_WORK, why)
        if pool.healthy >= promised and is_recent(last, now, calm):
            return step(Verdict.CHANGED_LATELY, f"the line is {over:,} GPUs below; {_changed(last, calm)}")
        ridden_out = msgspec.structs.replace(line, gpus=line.gpus + planned_out)
        return _cut(pool, ridden_out, calm, notices, now, step)
    stale = [Draft(NoticeEnded(each.id, "no longer needed")) for each in notices if is_stale(each, now, calm)]
    grown = grow(pool, min(line.gpus, pool.healthy - unsettled) - reserved)
    gained = sum(grown.values()) - promised
    if gained <= 0:
        if unsettled and sum(grow(pool, line.gpus - reserved).values()) > promised:
            why = f"{unsettled:,} GPUs came back less than {span_text(calm.grow_after)} ago"
            return step(Verdict.SETTLING, why, None, stale)
        return step(Verdict.STEADY, "promises fit under the line", None, stale)
    is_whole = all(grown[stake.team] >= stake.assigned for stake in pool.stakes)
    if gained <= band and not is_whole:
        why = f"{gained:,} GPUs could be given back, within the dead band of {band:,}"
        return step(Verdict.DEAD_BAND, why, None, stale)
    if is_recent(last, now, calm):
        why = f"{gained:,} GPUs could be given back; {_changed(last, calm)}"
        return step(Verdict.CHANGED_LATELY, why, None, stale)
    why = f"{gained:,} GPUs more fit under the line of {line.gpus:,}"
    return step(Verdict.GROW, why, grown, [*_aligned(pool, line.gpus, line.policy, grown, why), *stale])


def dead_band(promised: int, size: int, calm: Stability) -> int:
    """GPUs by which the line may be off before anything moves; less than a node never moves anything."""
    return int(calm.dead_band * promised) // size * size


def is_recent(last: LineInForce, now: datetime, calm: Stability) -> bool:
    """Whether the pool changed too short ago. One dated far ahead of the clock, which went back, holds up nothing."""
    return abs(now - last.since) < calm.change_every


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


def _cut(
    pool: Pool,
    line: LineNow,
    calm: Stability,
    notices: Sequence[Notice],
    now: datetime,
    step: Callable[..., Step],
) -> Step:
    """Take what hurts nobody's running work now; what does hurt after notice, where its owner has agreed."""
    held = {stake.team: stake for stake in held_stakes(pool)}
    told = {notice.team: notice for notice in notices}
    try:
        wanted = _wanted(list(held.values()), told, line.gpus, pool.size)
    except Unpinned as error:
        return step(Verdict.PINNED, f"{error.pinned:,} GPUs are pinned above the line of {error.line:,}")
    is_breaking = pool.healthy < sum(pool.guaranteed.values())
    spared = {
        team: _spared(held[team], gpus, told.get(team), pool.size, now, is_breaking=is_breaking)
        for team, gpus in wanted.items()
    }
    waiting = sorted(team for team, gpus in wanted.items() if spared[team] > gpus)
    rest = {team: loss_of(msgspec.structs.replace(held[team], assigned=spared[team]), wanted[team]) for team in waiting}
    hurt = {team: haircut for team, haircut in rest.items() if haircut is not None and haircut.running}
    given = [
        Draft(
            NoticeGiven(notice_for(QuotaKey(team, *pool.key), spared[team], wanted[team], hurt[team], now, calm, old))
        )
        for team in hurt
        if is_unheard(old := told.get(team), wanted[team])
    ]
    cut = sum(pool.guaranteed.values()) - sum(spared.values())
    if cut:
        why = f"the line fell to {line.gpus:,} GPUs"
        done = [
            Draft(NoticeEnded(told[team].id, "applied"))
            for team in sorted(told)
            if team not in waiting and spared.get(team, 0) < pool.guaranteed.get(team, 0)
        ]
        line_kept = max(line.gpus, sum(spared.values()))
        drafts = [*_aligned(pool, line_kept, line.policy, spared, why), *done, *given]
        return step(Verdict.CUT, f"{why}: {cut:,} GPUs are taken back" + _still(hurt), spared, drafts)
    if given:
        return step(Verdict.NOTICE, f"{counted(len(given), 'team')} to be told" + _still(hurt), None, given)
    silent = [team for team in waiting if told[team].due <= now]
    if silent:
        return step(Verdict.NEEDS_AGREEMENT, f"{', '.join(silent)} did not agree" + _still(hurt))
    first = min(told[team].due for team in waiting)
    return step(Verdict.NOTICE, f"notice runs until {_day(first)}" + _still(hurt))


def _wanted(held: Sequence[Stake], told: Mapping[str, Notice], line: int, size: int) -> Mapping[str, int]:
    """What the alignment leaves to each team. Raises `Unpinned`.

    Where what teams were told is enough, nobody else's running work is asked for: who agreed and gave does not give
    again for those who objected, and whom it hits does not change with every round.
    """
    if told:
        floors = {team: notice.guaranteed for team, notice in told.items()}
        kept = [
            msgspec.structs.replace(
                stake, pin=max(stake.pin, min(harmless(stake, size), floors.get(stake.team, stake.assigned)))
            )
            for stake in held
        ]
        with suppress(Unpinned):
            return align(kept, line, size).guaranteed
    return align(held, line, size).guaranteed


def _spared(held: Stake, wanted: int, notice: Notice | None, size: int, now: datetime, *, is_breaking: bool) -> int:
    """What a team is left with for now, of what it holds, when so much is wanted."""
    if wanted >= held.assigned:
        return wanted
    if notice is not None and notice.due > now and not is_breaking:
        return held.assigned  # nobody loses anything before the day that was told
    spared = max(wanted, harmless(held, size))
    if notice is not None and notice.answer is Answer.AGREED and notice.due <= now:
        return min(spared, max(wanted, notice.guaranteed))
    return spared


def _still(hurt: Mapping[str, Haircut]) -> str:
    running = sum(haircut.running for haircut in hurt.values())
    return f"; {running:,} running GPUs wait for their owners" if running else ""


def _aligned(pool: Pool, line: int, policy: str, guaranteed: Mapping[str, int], why: str) -> list[Draft]:
    after = {team: gpus for team, gpus in guaranteed.items() if gpus}
    was = {
        team: pool.guaranteed.get(team, 0)
        for team in sorted({*after, *pool.guaranteed})
        if pool.guaranteed.get(team, 0) != after.get(team, 0)
    }
    return [Draft(PoolAligned(*pool.key, line, policy, after, was, why))]


def _changed(last: LineInForce, calm: Stability) -> str:
    return f"the pool changed at {_day(last.since)}, and does so once in {span_text(calm.change_every)}"


def _day(moment: datetime) -> str:
    return show_time(moment.replace(second=0, microsecond=0))


def modes(state: State) -> Mapping[str, Mode]:
    """The mode of every cluster; `observe` until somebody says otherwise."""
    book = state.of(QuotaBook)
    return {cluster: book.modes.get(cluster, Mode.OBSERVE) for cluster in state.of(Fleet).clusters}
