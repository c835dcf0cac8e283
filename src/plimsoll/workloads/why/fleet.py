"""Why the fleet gives less than it promises: GPU-hours promised but unusable over a period, by cause, and what each fix
would give back. Pure.

What each number means is defined in `unusable`. What the state does not remember is taken as it is now, and the answer
says so (`Assumption`): what was assigned before the first alignment of a pool, what is idle, and which work that fits
its guarantee waited for an island.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase, PoolKey
from plimsoll.health.fold import Health
from plimsoll.health.levels.goals import MTTR_GOAL_HOURS
from plimsoll.health.levels.outages import ALWAYS, FOREVER, HOUR, Period, history_begin, read_past
from plimsoll.health.levels.slo import checked_period
from plimsoll.health.model import from_microseconds, to_microseconds
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import Pool, look, pool_keys
from plimsoll.quota.lines import lines_now
from plimsoll.quota.names import check_cluster
from plimsoll.quota.plan import policy_in_force
from plimsoll.quota.policy import day_of
from plimsoll.state.state import State
from plimsoll.times import show_time
from plimsoll.words import counted
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.reasons import Cause, Move
from plimsoll.workloads.why.unusable import PLANNED_GOAL_HOURS, Basis, Step, Times, Wait, measure_pools

PARTS = 100
"""Hours are told in hundredths; each pool and cause is rounded by itself, so that whatever is told adds up exactly."""


class LostTo(enum.StrEnum):
    """Why promised GPU-hours were not usable, the most lasting first. The words are public: add, never rename."""

    OVER_PROMISE = "over_promise"
    """More was promised than is installed, or than the line in force allows."""
    FAULTS = "faults"
    PLANNED_WORK = "planned_work"
    FRAGMENTATION = "fragmentation"
    """Work inside its guarantee waited: enough was free, but not in one island."""
    IDLE = "idle"
    """Under running work, and doing nothing."""

    @property
    def move(self) -> Move:
        return _MOVES[self]


_MOVES = {
    LostTo.OVER_PROMISE: Move.RPM,
    LostTo.FAULTS: Move.HARDWARE,
    LostTo.PLANNED_WORK: Move.PLANNED_WORK,
    LostTo.FRAGMENTATION: Move.SCHEDULER,
    LostTo.IDLE: Move.OWNER,
}


class FixBy(enum.StrEnum):
    """What would give hours back. The words are public: add, never rename."""

    ALIGN_QUOTAS = "align_quotas"
    """Returns nothing: what nothing stood behind is no longer promised."""
    REPAIR_IN_TIME = "repair_in_time"
    SHORTEN_PLANNED_WORK = "shorten_planned_work"
    DEFRAGMENT = "defragment"
    RECLAIM_IDLE = "reclaim_idle"


class Fix(msgspec.Struct, frozen=True):
    """One thing that could be done, by itself: several together give back at most their sum, and none more than its
    cause cost.

    `gpus` are whole GPUs on average over the period.
    """

    fix: FixBy
    gpu_hours: float
    gpus: int
    move: Move
    what: str
    next_step: str


class Lost(msgspec.Struct, frozen=True):
    """GPU-hours of the fleet, a cluster or a pool: `unusable` is exactly the sum of `by_cause`."""

    name: str
    promised: float
    unusable: float
    usable_share: float | None
    """None where nothing was promised."""
    by_cause: Mapping[LostTo, float]


class Assumption(msgspec.Struct, frozen=True):
    """Something that the state does not remember, and what was taken for it."""

    code: str
    text: str


class FleetWhy(msgspec.Struct, frozen=True):
    """The answer for a period. Clusters and pools (`cluster/sku`) come with the most unusable hours first."""

    begin: datetime = msgspec.field(name="from")
    end: datetime = msgspec.field(name="to")
    hours: float
    fleet: Lost
    gpus: Mapping[LostTo, int]
    """Whole GPUs on average over the period."""
    clusters: Sequence[Lost]
    pools: Sequence[Lost]
    fixes: Sequence[Fix]
    """What gives back the most first; those that give nothing are left out."""
    assumptions: Sequence[Assumption]


def explain_fleet(
    state: State,
    *,
    since: datetime,
    until: datetime,
    now: datetime,
    clusters: Collection[str] = (),
    bases: Mapping[PoolKey, Basis] | None = None,
) -> FleetWhy:
    """GPU-hours promised but unusable from `since` to `until`, of all clusters or of these. `bases` are for those who
    know more of the past than the state does.
    """
    period = checked_period(since, until, now)
    for name in clusters:
        check_cluster(state, name)
    known = bases_of(state, now=now, clusters=clusters) if bases is None else bases
    times = pool_times(state, known, period)
    leaves = {pool: _hundredths(each) for pool, each in times.items()}
    total = sum_times(times.values())
    gpus = {cause: getattr(total, cause.value) // period.length for cause in LostTo}
    by_cluster: dict[str, list[PoolKey]] = {}
    for pool in leaves:
        by_cluster.setdefault(pool.cluster, []).append(pool)
    return FleetWhy(
        begin=since,
        end=until,
        hours=round(period.length / HOUR, 6),
        fleet=_lost("fleet", leaves.values()),
        gpus=gpus,
        clusters=_worst_first(_lost(name, (leaves[pool] for pool in mine)) for name, mine in by_cluster.items()),
        pools=_worst_first(_lost(f"{pool.cluster}/{pool.sku}", [mine]) for pool, mine in leaves.items()),
        fixes=_fixes(total, period),
        assumptions=_assumptions(state, known, total, period, is_given=bases is not None),
    )


def pool_times(state: State, bases: Mapping[PoolKey, Basis], period: Period) -> dict[PoolKey, Times]:
    """The exact times of each pool. What is not in production backs no promise."""
    fleet = state.of(Fleet)
    nodes = [
        node
        for node in fleet.nodes.values()
        if PoolKey(node.cluster, node.sku) in bases and fleet.clusters[node.cluster].phase is Phase.PRODUCTION
    ]
    nodes.sort(key=lambda node: node.id)
    return measure_pools(read_past(state.of(Health), nodes, until=period.end), bases, period)


def sum_times(times: Iterable[Times]) -> Times:
    total = Times()
    for each in times:
        total = total.plus(each)
    return total


def bases_of(state: State, *, now: datetime, clusters: Collection[str] = ()) -> dict[PoolKey, Basis]:
    """What the state knows of these pools, with what is now in the place of what it does not remember.

    Promised is what was guaranteed, from the first alignment of a pool on; before it, what is assigned now.
    """
    keys = [key for key in pool_keys(state) if not clusters or key.cluster in clusters]
    policy = policy_in_force(state)
    lines = lines_now(state, policy, now=now, pools=keys)
    waits = waits_of(state)
    found = {}
    for pool in look(state, keys, policy, day_of(now)):
        promised: list[Step] = [(ALWAYS, pool.assigned)]
        in_force: list[Step] = [(ALWAYS, FOREVER)]
        for each in state.of(QuotaBook).promised.get(pool.key, ()):
            promised.append((to_microseconds(each.since), each.gpus))
            in_force.append((to_microseconds(each.since), each.line))
        line = lines.get(pool.key)
        found[pool.key] = Basis(
            promised, in_force, line.gpus if line else 0, [(ALWAYS, _idle(pool))], waits.get(pool.key, ())
        )
    return found


def _idle(pool: Pool) -> int:
    """GPUs that do nothing within what teams were promised: what is idle is charged to their flex first."""
    idle = 0
    for stake in pool.stakes:
        promised = pool.guaranteed.get(stake.team, 0) if pool.is_aligned else stake.assigned
        idle += max(0, stake.idle - max(0, stake.allocated - promised))
    return idle


def waits_of(state: State) -> dict[PoolKey, list[Wait]]:
    """Work that waits for an island, or did, though what it asks for fits its guarantee."""
    work = state.of(Workloads)
    found: dict[PoolKey, list[Wait]] = {}
    for name, wait in sorted(work.waits.items()):
        reason = wait.reason
        if wait.is_guaranteed and reason.cause is Cause.ISLAND_FRAGMENTED:
            pool = PoolKey(reason.cluster, reason.sku)
            found.setdefault(pool, []).append(Wait(work.queued_since[name], FOREVER, reason.gpus))
    for pool in sorted(work.waited.listed()):
        for spell in work.waited.of(pool):
            if spell.is_guaranteed and spell.cause == Cause.ISLAND_FRAGMENTED:
                found.setdefault(pool, []).append(Wait(spell.begin, spell.end, spell.gpus))
    return found


_Leaf = tuple[int, dict[LostTo, int]]
"""Promised, and unusable by cause, in hundredths of GPU-hours."""


def _hundredths(times: Times) -> _Leaf:
    by_cause = {cause: _rounded(getattr(times, cause.value)) for cause in LostTo}
    return max(_rounded(times.promised), sum(by_cause.values())), by_cause


def _rounded(time: int) -> int:
    return (time * PARTS + HOUR // 2) // HOUR


def _lost(name: str, leaves: Iterable[_Leaf]) -> Lost:
    promised, by_cause = 0, dict.fromkeys(LostTo, 0)
    for mine, causes in leaves:
        promised += mine
        for cause, part in causes.items():
            by_cause[cause] += part
    unusable = sum(by_cause.values())
    return Lost(
        name,
        promised / PARTS,
        unusable / PARTS,
        round(1 - unusable / promised, 6) if promised else None,
        {cause: part / PARTS for cause, part in by_cause.items()},
    )


def _worst_first(lost: Iterable[Lost]) -> list[Lost]:
    return sorted(lost, key=lambda each: (-each.unusable, each.name))


def _fixes(total: Times, period: Period) -> list[Fix]:
    faults, planned = f"{MTTR_GOAL_HOURS:g}", f"{PLANNED_GOAL_HOURS:g}"
    told = [
        (
            FixBy.ALIGN_QUOTAS,
            total.less_by_alignment,
            Move.RPM,
            "align quotas to the line: that returns no GPU-hours, but promises them to nobody",
            "plimsoll quota plan",
        ),
        (
            FixBy.REPAIR_IN_TIME,
            total.less_by_repair,
            Move.HARDWARE,
            f"repair every fault within {faults} hours, the goal for the mean",
            "plimsoll health outages --unplanned",
        ),
        (
            FixBy.SHORTEN_PLANNED_WORK,
            total.less_by_shorter_work,
            Move.PLANNED_WORK,
            f"give nodes back {planned} hours after their planned work began",
            "plimsoll health outages --planned",
        ),
        (
            FixBy.DEFRAGMENT,
            total.fragmentation,
            Move.SCHEDULER,
            "move elastic replicas and flex out of the way of gangs inside their guarantee",
            "plimsoll workload defrag --for GPUS --sku SKU",
        ),
        (
            FixBy.RECLAIM_IDLE,
            total.idle,
            Move.OWNER,
            "end or shrink work whose GPUs do nothing",
            "plimsoll workload list",
        ),
    ]
    found = [
        Fix(fix, _rounded(time) / PARTS, time // period.length, move, what, next_step)
        for fix, time, move, what, next_step in told
        if time
    ]
    return sorted(found, key=lambda each: -each.gpu_hours)


def _assumptions(
    state: State, bases: Mapping[PoolKey, Basis], total: Times, period: Period, *, is_given: bool
) -> list[Assumption]:
    found = []
    begin = history_begin(state.of(Health))
    if begin is None or begin > period.begin:
        told = show_time(from_microseconds(begin).replace(microsecond=0)) if begin is not None else "now"
        found.append(
            Assumption(
                "history_short", f"nobody told of any outage before {told}: until then every node counts as in service"
            )
        )
    if is_given:
        return found
    unaligned = [
        pool
        for pool, basis in bases.items()
        if basis.promised[0][1] and (len(basis.promised) == 1 or basis.promised[1][0] > period.begin)
    ]
    if unaligned:
        found.append(
            Assumption(
                "assigned_as_now",
                f"{len(unaligned)} of {counted(len(bases), 'pool')} {'was' if len(unaligned) == 1 else 'were'} not"
                " aligned in all of this time:"
                " what their teams are assigned now is taken as what they were promised then",
            )
        )
    if total.idle:
        found.append(Assumption("idle_as_now", "what is idle now is taken as idle in all of this time"))
    return found
