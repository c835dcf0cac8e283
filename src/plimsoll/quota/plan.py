"""A plan of alignment for the fleet: what every pool and every team would have, before anything is changed. Pure."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property

import msgspec

from plimsoll.errors import Refused
from plimsoll.fleet.model import PoolKey
from plimsoll.ledger.model import Draft
from plimsoll.quota.align import Alignment, Stake, Unpinned, align, haircut_of, idle_inside
from plimsoll.quota.changes import PoolAligned, QuotaAssigned
from plimsoll.quota.fill import Loss, gang_end
from plimsoll.quota.fold import POLICY, QuotaBook
from plimsoll.quota.hull import Hull, Pool, TeamHull, hull_of, look, pool_keys
from plimsoll.quota.lines import LineNow, lines_now
from plimsoll.quota.model import Haircut, Quota
from plimsoll.quota.policy import DEFAULT_POLICY, Policy, day_of, parse_policy
from plimsoll.state.state import State

NO_LINE = LineNow(0, "", "not in production: nothing of it may be promised")
STAGES = (1, 2, 3, 4)


class Trim(enum.StrEnum):
    """What an alignment also strikes out of the book, in pools that are over."""

    NOTHING = "nothing"
    UNSCHEDULED = "unscheduled"
    IDLE = "idle"


class PoolPlan(msgspec.Struct, frozen=True, dict=True):
    """What an alignment would make of one pool. `hull` is after it, `before` is now."""

    pool: Pool
    line: LineNow
    alignment: Alignment
    assigned: Mapping[str, int]
    """The book after it."""
    hull: Hull

    @cached_property
    def before(self) -> Hull:
        pool = self.pool
        return hull_of(pool, line=self.line.gpus, line_in_force=pool.line_in_force, guaranteed=pool.guaranteed)

    @property
    def key(self) -> PoolKey:
        return self.pool.key

    @property
    def is_change(self) -> bool:
        return (
            not self.pool.is_aligned
            or self.line.gpus != self.pool.line_in_force
            or self.falls()
            or any(gpus > self.pool.guaranteed.get(team, 0) for team, gpus in self.alignment.guaranteed.items())
            or any(stake.assigned != self.assigned[stake.team] for stake in self.pool.stakes)
        )

    def falls(self) -> bool:
        """Whether a guarantee that is in force would be lowered."""
        return any(gpus > self.alignment.guaranteed.get(team, 0) for team, gpus in self.pool.guaranteed.items())

    def drafts(self, cause: str) -> list[Draft]:
        """The events that apply it; the book first, so that a guarantee is never above it."""
        drafts = [
            Draft(
                QuotaAssigned(
                    Quota(stake.team, *self.key, gpus, self.pool.labels.get(stake.team, {})),
                    {"gpus": str(stake.assigned)},
                )
            )
            for stake in self.pool.stakes
            if (gpus := self.assigned[stake.team]) != stake.assigned
        ]
        guaranteed = {team: gpus for team, gpus in self.alignment.guaranteed.items() if gpus}
        was = {
            team: self.pool.guaranteed.get(team, 0)
            for team in sorted({*guaranteed, *self.pool.guaranteed})
            if self.pool.guaranteed.get(team, 0) != guaranteed.get(team, 0)
        }
        line = self.line
        return [*drafts, Draft(PoolAligned(*self.key, line.gpus, line.policy, guaranteed, was, cause))]


class Summary(msgspec.Struct, frozen=True):
    """The fleet in one line of numbers, in GPUs."""

    pools: int
    pools_over: int
    clusters_over: int
    total: int
    healthy: int
    line: int
    assigned: int
    guaranteed: int
    allocated: int
    over: int
    never_backed: int
    to_flex: int
    haircut: Haircut
    teams_touched: int
    flex_standing: int
    flex_lent: int
    flex_used: int
    unallocated: int
    stages: Mapping[str, int]
    """Pools by stage."""


class Plan(msgspec.Struct, frozen=True):
    """What would be."""

    as_of: datetime
    revision: int
    policy: str
    pools: Sequence[PoolPlan]

    @property
    def hulls(self) -> list[Hull]:
        return [each.hull for each in self.pools]

    @property
    def teams(self) -> list[TeamHull]:
        return [team for hull in self.hulls for team in hull.teams]

    @property
    def losses(self) -> list[tuple[PoolKey, Loss]]:
        return [(each.key, loss) for each in self.pools for loss in each.pool.losses]

    def up_to(self, stage: int) -> Plan:
        """Only the pools of these stages of the roll-out."""
        return msgspec.structs.replace(self, pools=[each for each in self.pools if each.hull.stage <= stage])


def policy_in_force(state: State) -> Policy:
    """The one that was applied last, or the default."""
    text = state.of(QuotaBook).policies.get(POLICY)
    return DEFAULT_POLICY if text is None else parse_policy(text, source="the policy in force")


def make_plan(
    state: State,
    policy: Policy,
    *,
    now: datetime,
    pools: Collection[PoolKey] | None = None,
    lines: Mapping[PoolKey, LineNow] | None = None,
    trim: Trim = Trim.NOTHING,
) -> Plan:
    """The plan for these pools, or for all. Pins above a line refuse it."""
    keys = sorted(pool_keys(state) if pools is None else pools)
    found = lines_now(state, policy, now=now, pools=keys) if lines is None else lines
    planned, refused = [], []
    for pool in look(state, keys, policy, day_of(now)):
        line = found.get(pool.key, NO_LINE)
        try:
            planned.append(plan_pool(pool, line, trim))
        except Unpinned as error:
            refused.append((pool.key, error))
    if refused:
        raise _pins_above_line(refused)
    return Plan(now, state.revision, policy.name, planned)


def plan_pool(pool: Pool, line: LineNow, trim: Trim = Trim.NOTHING) -> PoolPlan:
    """One pool. Raises `Unpinned`."""
    book = stakes = pool.stakes
    if trim is not Trim.NOTHING and pool.assigned > line.gpus:
        stakes = [_trimmed(stake, pool.size, trim) for stake in book]
    alignment = align(stakes, line.gpus, pool.size)
    if stakes is not book:
        # What is struck out of the book is taken from the team as well: the haircut is from what it held before.
        alignment = msgspec.structs.replace(alignment, haircuts=_haircuts(book, alignment.guaranteed))
    hull = hull_of(
        pool,
        line=line.gpus,
        line_in_force=line.gpus,
        guaranteed=alignment.guaranteed,
        stakes=stakes,
        haircuts=alignment.haircuts,
    )
    return PoolPlan(pool, line, alignment, {stake.team: stake.assigned for stake in stakes}, hull)


def _haircuts(stakes: Iterable[Stake], guaranteed: Mapping[str, int]) -> dict[str, Haircut]:
    found = ((stake.team, haircut_of(stake, guaranteed[stake.team])) for stake in stakes)
    return {team: haircut for team, haircut in found if haircut is not None}


def _trimmed(stake: Stake, size: int, trim: Trim) -> Stake:
    """The stake of a book that holds only what is used, in whole nodes; pins, blocks and gangs stay."""
    used = min(stake.assigned, stake.allocated)
    if trim is Trim.IDLE:
        used = max(used - idle_inside(stake), gang_end(stake.claims, stake.assigned))
    kept = min(stake.assigned, -(-used // size) * size)
    floor = max(stake.pin, stake.block if stake.block <= stake.assigned else 0)
    return msgspec.structs.replace(stake, assigned=max(kept, min(floor, stake.assigned)))


def summarise(hulls: Iterable[Hull]) -> Summary:
    """Sums over pools."""
    hulls = list(hulls)
    cut = [team for hull in hulls for team in hull.teams if team.haircut.gpus]

    def total(field: str) -> int:
        return sum(getattr(hull, field) for hull in hulls)

    return Summary(
        pools=len(hulls),
        pools_over=sum(hull.over > 0 for hull in hulls),
        clusters_over=len({hull.cluster for hull in hulls if hull.over}),
        total=total("total"),
        healthy=total("healthy"),
        line=total("line"),
        assigned=total("assigned"),
        guaranteed=total("guaranteed"),
        allocated=total("allocated"),
        over=total("over"),
        never_backed=total("never_backed"),
        to_flex=total("to_flex"),
        haircut=Haircut.total(team.haircut for team in cut),
        teams_touched=len({team.team for team in cut}),
        flex_standing=total("flex_standing"),
        flex_lent=total("flex_lent"),
        flex_used=total("flex_used"),
        unallocated=total("unallocated"),
        stages={str(stage): sum(hull.stage == stage for hull in hulls) for stage in STAGES},
    )


def _pins_above_line(refused: Sequence[tuple[PoolKey, Unpinned]]) -> Refused:
    (pool, error), count = refused[0], len(refused)
    others = f", and {count - 1} more pools" if count > 1 else ""
    return Refused(
        "pins_above_line",
        f"{pool.cluster} {pool.sku}: {error.pinned} GPUs are pinned above the line of {error.line}{others}",
        next_step="lower a pin or the buffer in the policy file, then plimsoll quota policy apply FILE",
        pools=[{"cluster": key.cluster, "sku": key.sku, "pinned": e.pinned, "line": e.line} for key, e in refused],
    )
