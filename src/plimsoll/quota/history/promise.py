"""Promise kept: of all team-hours, the share in which a team could use all it was guaranteed. Pure.

A team-hour counts when the team was guaranteed something of a pool at some instant of that hour by the clock. It is
broken when at such an instant fewer GPUs of the pool were healthy than were guaranteed to all its teams together, with
the guarantees of that instant; or when somebody tells so (`Breach`): work that fits a guarantee and waits. Hours before
the first alignment of a pool do not count: nothing was promised.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import msgspec
import numpy as np

from plimsoll.fleet.model import PoolKey
from plimsoll.health.levels.outages import HOUR, Fact
from plimsoll.health.model import from_microseconds, to_microseconds
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.history.past import Hours, Out, PoolPast, pool_pasts
from plimsoll.quota.model import Promised
from plimsoll.state.state import State

NODES_NAMED = 20


class Broken(enum.StrEnum):
    """Why a promise broke, the most lasting first. The words are public: add, never rename."""

    RETIRED = "retired"
    """So many nodes left for good that the rest is less than was promised."""
    UNPLANNED = "unplanned"
    """Faults alone were enough."""
    PLANNED_WORK = "planned_work"
    """Without planned work it would have held."""
    WAITED = "waited"
    """Work that fits its team's guarantee waited longer than the grace time."""

    @property
    def move(self) -> str:
        """Whose move it is."""
        return _MOVES[self]


_MOVES = {
    Broken.RETIRED: "RPM: plan and apply an alignment",
    Broken.UNPLANNED: "hardware: repair; RPM: a larger buffer",
    Broken.PLANNED_WORK: "whoever plans the work: smaller batches",
    Broken.WAITED: "scheduler",
}


class Breach(msgspec.Struct, frozen=True):
    """A time in which a promise to some teams was broken, found by somebody else. GPUs that were missing."""

    cluster: str
    sku: str
    teams: Sequence[str]
    begin: datetime
    end: datetime
    missing: int
    cause: Broken


class Loss(msgspec.Struct, frozen=True):
    """Nodes that were out for one reason at the worst moment of a spell."""

    reason: str
    is_planned: bool
    nodes: int
    gpus: int


class Spell(msgspec.Struct, frozen=True):
    """Broken hours without a whole one between them. Numbers are those of the worst moment."""

    cluster: str
    sku: str
    begin: datetime = msgspec.field(name="from")
    end: datetime = msgspec.field(name="to")
    is_open: bool
    hours: int
    missing: int
    guaranteed: int
    healthy: int
    worst_at: datetime
    cause: Broken
    teams: Sequence[str]
    reasons: Sequence[Loss]
    nodes: Sequence[str]

    @property
    def move(self) -> str:
        return self.cause.move


class Kept(msgspec.Struct, frozen=True):
    """The level of a team, cluster, policy or of the fleet. The share is None where no hour counts."""

    name: str
    team_hours: int
    broken_hours: int
    kept_share: float | None


class PromiseKept(msgspec.Struct, frozen=True):
    """The answer for a period of whole hours."""

    begin: datetime = msgspec.field(name="from")
    end: datetime = msgspec.field(name="to")
    fleet: Kept
    teams: Sequence[Kept]
    clusters: Sequence[Kept]
    policies: Sequence[Kept]
    guaranteed_gpu_hours: float
    missing_gpu_hours: float
    spells: Sequence[Spell]
    not_aligned: int
    """Pools somebody holds quota of and nothing is guaranteed of yet."""


_Name = tuple[str, PoolKey, str]
"""Team, pool, policy."""


@dataclass
class _Marks:
    """For one team, pool and policy the hours that count and those that were broken."""

    counts: Fact
    is_broken: Fact

    @classmethod
    def of(cls, hours: int) -> _Marks:
        return cls(np.zeros(hours, bool), np.zeros(hours, bool))


@dataclass(frozen=True)
class _Segment:
    """A time in which neither health nor the promise of a pool changed."""

    begin: int
    end: int
    healthy: int
    promised: Promised

    @property
    def missing(self) -> int:
        return self.promised.gpus - self.healthy


def promise_kept(
    state: State,
    *,
    days: int,
    now: datetime,
    teams: Collection[str] = (),
    clusters: Collection[str] = (),
    breaches: Sequence[Breach] = (),
) -> PromiseKept:
    """The share of team-hours of the last days in which the promise held, and every spell in which it did not."""
    book = state.of(QuotaBook)
    end = to_microseconds(now) // HOUR * HOUR
    hours = Hours(end - days * 24 * HOUR, days * 24)
    keys = [key for key in sorted(book.promised) if not clusters or key.cluster in clusters]
    pasts = pool_pasts(state, keys, until=now)
    marks: dict[_Name, _Marks] = {}
    spells: list[Spell] = []
    guaranteed_time = missing_time = 0
    for key in keys:
        segments = list(_segments(book.promised[key], pasts[key], hours))
        told = [
            each
            for each in breaches
            if (each.cluster, each.sku) == key and each.begin < hours.ends and each.end > hours.starts
        ]
        _mark(marks, key, segments, told, hours)
        spells += _spells(key, pasts[key], segments, hours)
        spells += (_told_spell(each, hours) for each in told)
        guaranteed_time += sum((each.end - each.begin) * each.promised.gpus for each in segments)
        missing_time += sum((each.end - each.begin) * max(0, each.missing) for each in segments)
    if teams:
        marks = {name: each for name, each in marks.items() if name[0] in teams}
        spells = [spell for spell in spells if set(spell.teams) & set(teams)]
    unaligned = {
        key.pool for key in book.quotas if key.pool not in book.lines and (not clusters or key.cluster in clusters)
    }
    return PromiseKept(
        begin=hours.starts,
        end=hours.ends,
        fleet=_level("fleet", marks.items()),
        teams=_levels(marks, lambda name: name[0]),
        clusters=_levels(marks, lambda name: name[1].cluster),
        policies=_levels(marks, lambda name: name[2]),
        guaranteed_gpu_hours=round(guaranteed_time / HOUR, 1),
        missing_gpu_hours=round(missing_time / HOUR, 1),
        spells=sorted(spells, key=lambda spell: (spell.begin, spell.cluster, spell.sku, spell.cause)),
        not_aligned=len(unaligned),
    )


def _segments(promised: Sequence[Promised], past: PoolPast, hours: Hours) -> Iterator[_Segment]:
    """The period cut wherever health or the promise changed, from the first promise on."""
    since = [to_microseconds(each.since) for each in promised]
    begin = max(hours.begin, since[0])
    if begin >= hours.end:
        return
    changes = past.moments[(past.moments > begin) & (past.moments < hours.end)].tolist()
    cuts = sorted({begin, hours.end, *changes, *(each for each in since if begin < each < hours.end)})
    place = -1
    for start, stop in pairwise(cuts):
        while place + 1 < len(since) and since[place + 1] <= start:
            place += 1
        yield _Segment(start, stop, int(past.healthy[past.place(start)]), promised[place])


def _hour_range(begin: int, end: int, hours: Hours) -> slice:
    """The hours that a time touches."""
    first, last = (begin - hours.begin) // HOUR, -((hours.begin - end) // HOUR)
    return slice(max(0, first), max(0, min(hours.count, last)))


def _mark(
    marks: dict[_Name, _Marks],
    key: PoolKey,
    segments: Sequence[_Segment],
    told: Sequence[Breach],
    hours: Hours,
) -> None:
    for each in segments:
        touched = _hour_range(each.begin, each.end, hours)
        for team in each.promised.teams:
            mark = marks.setdefault((team, key, each.promised.policy), _Marks.of(hours.count))
            mark.counts[touched] = True
            if each.missing > 0:
                mark.is_broken[touched] = True
    for breach in told:
        touched = _hour_range(to_microseconds(breach.begin), to_microseconds(breach.end), hours)
        for (team, pool, _), mark in marks.items():
            if pool == key and team in breach.teams:
                mark.is_broken[touched] |= mark.counts[touched]


def _levels(marks: Mapping[_Name, _Marks], name_of: Callable[[_Name], str]) -> list[Kept]:
    """By a part of the name, the worst first."""
    groups: dict[str, list[tuple[_Name, _Marks]]] = {}
    for each in marks.items():
        groups.setdefault(name_of(each[0]), []).append(each)
    found = [_level(name, group) for name, group in groups.items()]
    return sorted(found, key=lambda level: (level.kept_share if level.kept_share is not None else 1.0, level.name))


def _level(name: str, marks: Collection[tuple[_Name, _Marks]]) -> Kept:
    """An hour in which the policy changed is one hour of its team and pool."""
    joined: dict[tuple[str, PoolKey], _Marks] = {}
    for (team, pool, _), mark in marks:
        before = joined.get((team, pool))
        joined[team, pool] = (
            mark if before is None else _Marks(before.counts | mark.counts, before.is_broken | mark.is_broken)
        )
    counted = sum(int(mark.counts.sum()) for mark in joined.values())
    broken = sum(int(mark.is_broken.sum()) for mark in joined.values())
    return Kept(name, counted, broken, round(1 - broken / counted, 6) if counted else None)


def _spells(key: PoolKey, past: PoolPast, segments: Sequence[_Segment], hours: Hours) -> Iterator[Spell]:
    """Broken times, those of the same hour or of hours that follow each other taken together."""
    broken = [each for each in segments if each.missing > 0]
    group: list[_Segment] = []
    for each in broken:
        if (
            group
            and _hour_range(each.begin, each.end, hours).start > _hour_range(group[-1].begin, group[-1].end, hours).stop
        ):
            yield _spell(key, past, group, hours)
            group = []
        group.append(each)
    if group:
        yield _spell(key, past, group, hours)


def _spell(key: PoolKey, past: PoolPast, group: Sequence[_Segment], hours: Hours) -> Spell:
    worst = max(group, key=lambda each: (each.missing, -each.begin))
    out = past.out_at(worst.begin)
    total = int(past.total[past.place(worst.begin)])
    is_broken = np.zeros(hours.count, bool)
    for each in group:
        is_broken[_hour_range(each.begin, each.end, hours)] = True
    return Spell(
        *key,
        begin=from_microseconds(group[0].begin),
        end=from_microseconds(group[-1].end),
        is_open=group[-1].end == hours.end,
        hours=int(is_broken.sum()),
        missing=worst.missing,
        guaranteed=worst.promised.gpus,
        healthy=worst.healthy,
        worst_at=from_microseconds(worst.begin),
        cause=_cause(out, total, worst.promised.gpus),
        teams=sorted({team for each in group for team in each.promised.teams}),
        reasons=_losses(out),
        nodes=[each.node for each in out[:NODES_NAMED]],
    )


def _cause(out: Sequence[Out], total: int, promised: int) -> Broken:
    if total < promised:
        return Broken.RETIRED
    faults = sum(each.gpus for each in out if not each.is_planned)
    return Broken.UNPLANNED if total - faults < promised else Broken.PLANNED_WORK


def _losses(out: Sequence[Out]) -> list[Loss]:
    """By reason, the most nodes first."""
    groups: dict[tuple[str, bool], list[Out]] = {}
    for each in out:
        groups.setdefault((each.reason, each.is_planned), []).append(each)
    found = [
        Loss(reason, is_planned, len(group), sum(each.gpus for each in group))
        for (reason, is_planned), group in groups.items()
    ]
    return sorted(found, key=lambda loss: (-loss.nodes, loss.reason, loss.is_planned))


def _told_spell(breach: Breach, hours: Hours) -> Spell:
    touched = _hour_range(to_microseconds(breach.begin), to_microseconds(breach.end), hours)
    return Spell(
        breach.cluster,
        breach.sku,
        begin=breach.begin,
        end=breach.end,
        is_open=to_microseconds(breach.end) >= hours.end,
        hours=touched.stop - touched.start,
        missing=breach.missing,
        guaranteed=0,
        healthy=0,
        worst_at=breach.begin,
        cause=breach.cause,
        teams=list(breach.teams),
        reasons=[],
        nodes=[],
    )
