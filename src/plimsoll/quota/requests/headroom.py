"""How much of a pool can still be promised, now and when nodes return or grants end; and whether an island takes it.

Pure. Headroom is what lies between the lower of the two lines (now, in force) and what is promised, less what was
approved for later, and only as far as the next alignment would leave it to the team and take nothing from others for
it: who was cut comes first. The same holds for what returns later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from fractions import Fraction

import msgspec

from plimsoll.errors import Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import IslandKey, PoolKey, Service
from plimsoll.health.fold import Health
from plimsoll.health.forecast.live import told_return
from plimsoll.health.forecast.method import Ask
from plimsoll.health.forecast.methods import METHODS
from plimsoll.health.forecast.present import forecast_state
from plimsoll.quota.align import Stake, Unpinned, align
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import Pool
from plimsoll.quota.lines import LineNow, fixed_nodes
from plimsoll.quota.model import Kind, QuotaKey
from plimsoll.quota.policy import LineBy, Policy, day_of
from plimsoll.state.state import State

FORECAST_HOURS = 7 * 24
TARGET = 0.99


class Island(msgspec.Struct, frozen=True):
    """The GPUs of a pool in one island: in service, and of those the ones that no gang holds."""

    island: str
    healthy: int
    free_of_gangs: int


class Room(msgspec.Struct, frozen=True):
    """What can still be promised of a pool, in GPUs, whole nodes. `reserved` is approved for later."""

    cluster: str
    sku: str
    gpus_per_node: int
    healthy: int
    line: int
    line_in_force: int
    assigned: int
    guaranteed: int
    reserved: int
    under_line: int
    """What lies under both lines and is neither guaranteed nor reserved."""
    headroom: int
    """What of that would last."""
    is_aligned: bool

    @property
    def key(self) -> PoolKey:
        return PoolKey(self.cluster, self.sku)


class Gain(msgspec.Struct, frozen=True):
    """GPUs that can be promised from a moment on, and why."""

    at: datetime
    headroom: int
    why: str


def room_in(state: State, pool: Pool, line: LineNow, team: str, *, but: str = "") -> Room:
    """The headroom of a pool now, for a team."""
    guaranteed, reserved = sum(pool.guaranteed.values()), state.of(QuotaBook).reserved(but=but).get(pool.key, 0)
    lower = min(line.gpus, pool.line_in_force)
    left = max(0, lower - guaranteed - reserved) // pool.size
    return Room(
        *pool.key,
        gpus_per_node=pool.size,
        healthy=pool.healthy,
        line=line.gpus,
        line_in_force=pool.line_in_force,
        assigned=pool.assigned,
        guaranteed=guaranteed,
        reserved=reserved,
        under_line=left * pool.size,
        headroom=_lasting(pool, team, lower - reserved, left) * pool.size,
        is_aligned=pool.is_aligned,
    )


def _lasting(pool: Pool, team: str, line: int, most: int) -> int:
    """The most nodes, up to `most`, that the next alignment would leave to a team without taking them from another."""
    if not most:
        return 0
    try:
        before = align(pool.stakes, line, pool.size).guaranteed
    except Unpinned:
        return 0
    low, high = 0, most  # halved with every turn
    while low < high:
        nodes = (low + high + 1) // 2
        if _lasts(pool, team, line, nodes * pool.size, before):
            low = nodes
        else:
            high = nodes - 1
    return low


def _lasts(pool: Pool, team: str, line: int, gpus: int, before: Mapping[str, int]) -> bool:
    mine = next((stake for stake in pool.stakes if stake.team == team), Stake(team, 0))
    others = [stake for stake in pool.stakes if stake.team != team]
    granted = msgspec.structs.replace(mine, assigned=mine.assigned + gpus)
    try:
        after = align([*others, granted], line, pool.size).guaranteed
    except Unpinned:  # with it, a block of the team would have to stay whole
        return False
    is_kept = after[team] >= before.get(team, 0) + gpus
    return is_kept and all(after[stake.team] >= before[stake.team] for stake in others)


def islands_of(state: State, keys: Collection[PoolKey]) -> dict[PoolKey, list[Island]]:
    """The islands of these pools, the ones with the most GPUs free of gangs first. Elastic work can be moved away."""
    fleet, book = state.of(Fleet), state.of(QuotaBook)
    gangs: dict[IslandKey, int] = {}
    for key in keys:
        for team in book.pool_teams.get(key, ()):
            for claim in book.claims.get(QuotaKey(team, *key), ()):
                if claim.kind is Kind.GANG:
                    place = IslandKey(claim.island, key.sku)
                    gangs[place] = gangs.get(place, 0) + claim.gpus
    found: dict[PoolKey, list[Island]] = {key: [] for key in keys}
    for place, count in fleet.islands.items():
        mine = found.get(PoolKey(fleet.island_cluster[place.island], place.sku))
        if mine is not None:
            healthy = count.gpus_in_service
            mine.append(Island(place.island, healthy, max(0, healthy - gangs.get(place, 0))))
    for islands in found.values():
        islands.sort(key=lambda each: (-each.free_of_gangs, -each.healthy, each.island))
    return found


def tightest(islands: Sequence[Island], gpus: int) -> Island | None:
    """The island that takes so many GPUs and leaves the least, so that big ones stay whole."""
    fitting = [each for each in islands if each.free_of_gangs >= gpus]
    return min(fitting, key=lambda each: (each.free_of_gangs, each.island), default=None)


Returns = Mapping[PoolKey, Sequence[tuple[datetime, bool]]]
"""For each pool when its nodes that are out come back, earliest first, and whether somebody told so."""


def expected_returns(state: State, pools: Collection[PoolKey], *, now: datetime) -> Returns:
    """When nodes that are out are expected back: by those who have them, else by the forecast, where it can say."""
    wanted = set(pools)
    clusters = {pool.cluster for pool in wanted}
    only = next(iter(clusters)) if len(clusters) == 1 else ""
    try:
        # Who is out and until when does not depend on the method: one is enough, and quicker.
        found = forecast_state(state, Ask(FORECAST_HOURS, TARGET), now=now, cluster=only, method=METHODS[0].name)
    except Refused:
        return _told_returns(state, wanted, now)
    return {
        each.pool: sorted((down.returns, down.is_told) for down in each.down)
        for each in found.pools
        if each.pool in wanted
    }


def _told_returns(state: State, pools: Collection[PoolKey], now: datetime) -> Returns:
    """Without a history nobody guesses: only what somebody told."""
    health = state.of(Health)
    found: dict[PoolKey, list[tuple[datetime, bool]]] = {pool: [] for pool in sorted(pools)}
    for node in state.of(Fleet).nodes.values():
        mine = found.get(PoolKey(node.cluster, node.sku))
        if mine is None or node.service in (Service.IN_SERVICE, Service.RETIRED):
            continue
        if (moment := told_return(health, node, now)) is not None:
            mine.append((moment, True))
    return {pool: sorted(each) for pool, each in found.items()}


def gains(
    state: State, pool: Pool, line: LineNow, policy: Policy, returns: Sequence[tuple[datetime, bool]], *, now: datetime
) -> list[Gain]:
    """When how much more of a pool can be promised, as nodes return and temporary grants end."""
    if not pool.is_aligned:
        return []
    size, reserved = pool.size, state.of(QuotaBook).reserved().get(pool.key, 0)
    ends = sorted(
        (grant.until, grant.gpus)
        for grant in state.of(QuotaBook).grants.values()
        if grant.key.pool == pool.key and not grant.giver and grant.until > now
    )
    promised = sum(pool.guaranteed.values())
    found: list[Gain] = []
    for moment in sorted({at for at, _ in returns} | {at for at, _ in ends}):
        back = [is_told for at, is_told in returns if at <= moment]
        ended = sum(gpus for at, gpus in ends if at <= moment)
        then = _line_then(state, pool, line, policy, len(back), moment)
        held = max(promised, pool.assigned) - ended
        headroom = max(0, then - held - reserved) // size * size
        if headroom > (found[-1].headroom if found else 0):
            found.append(Gain(moment, headroom, _why(back, ended)))
    return found


def _why(back: Sequence[bool], ended: int) -> str:
    words = []
    if back:
        guessed = len(back) - sum(back)
        how = f", {guessed} of them by the forecast" if guessed else ""
        words.append(f"{len(back)} {'node' if len(back) == 1 else 'nodes'} back{how}")
    if ended:
        words.append(f"temporary grants of {ended} GPUs over")
    return " and ".join(words)


def _line_then(state: State, pool: Pool, line: LineNow, policy: Policy, back: int, moment: datetime) -> int:
    """The line when so many nodes are back. A forecast's line grows with them, less its share held back."""
    total, healthy = pool.total // pool.size, pool.healthy // pool.size
    cluster = state.of(Fleet).clusters[pool.key.cluster]
    lines = []
    for rule in policy.rules_for(cluster, pool.key.sku, day_of(moment)):
        if rule.by is LineBy.FIXED:
            buffer, base_is_healthy = rule.buffer, rule.is_of_healthy
            nodes = fixed_nodes(
                total=total, healthy=min(total, healthy + back), buffer=buffer, is_of_healthy=base_is_healthy
            )
        else:
            # What is held back of today's healthy nodes is held back then as well.
            share = Fraction(line.gpus, pool.healthy) if pool.healthy else Fraction(0)
            nodes = int(share * min(total, healthy + back))
        lines.append(nodes * pool.size)
    return min(lines)
