"""Words that people type for teams, pools and GPUs: what they mean, or what is wrong with them. Pure."""

from __future__ import annotations

from collections.abc import Collection

from plimsoll.errors import NotFound, Refused, UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Count, Phase, PoolKey
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.policy import GPUS_MAX
from plimsoll.state.state import State
from plimsoll.words import near

NAME_LENGTH_MAX = 100


def known_teams(state: State) -> set[str]:
    """Everybody who holds or uses something, was guaranteed something once, or has asked for it."""
    book = state.of(QuotaBook)
    holders = {team for teams in book.pool_teams.values() for team in teams}
    lenders = {grant.giver for grant in book.grants.values() if grant.giver}
    promised = {team for past in book.promised.values() for each in past for team in each.teams}
    return holders | lenders | promised | {request.team for request in book.requests.values()}


def check_team(state: State, team: str, *, may_be_new: bool | None = None) -> str:
    """The team's name, if there is such a team; a new one only where that is said (None: it can't be said here)."""
    known = known_teams(state)
    if team in known:
        return team
    if may_be_new:
        return check_new_name(team)
    or_new = "" if may_be_new is None else "; --new-team if it holds nothing yet"
    raise NotFound(
        "no_such_team",
        f"there is no team {team[:NAME_LENGTH_MAX]!r} among {len(known)}{near(team, known)}",
        next_step=f"write it as the quota book does{or_new}",
        team=team[:NAME_LENGTH_MAX],
    )


def check_new_name(name: str) -> str:
    """A name that a team can have."""
    if not name.strip() or name != name.strip() or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        message = f"{name[:NAME_LENGTH_MAX]!r} can't name a team"
        next_step = f"1 to {NAME_LENGTH_MAX} letters, without blanks around them"
        raise UsageError("bad_team", message, next_step=next_step)
    return name


def check_gpus(gpus: int) -> int:
    """A number of GPUs that can be asked for."""
    if not 0 < gpus <= GPUS_MAX:
        message = f"{gpus} GPUs can't be asked for or given"
        raise UsageError("bad_gpus", message, next_step=f"a number from 1 to {GPUS_MAX:,}", gpus=gpus)
    return gpus


def check_whole_nodes(gpus: int, size: int, what: str) -> int:
    """Quota is in whole nodes of its pool."""
    check_gpus(gpus)
    if gpus % size:
        below, above = gpus // size * size, -(-gpus // size) * size
        ways = f"{below} or {above}" if below else f"{above}"
        raise UsageError(
            "not_whole_nodes",
            f"{gpus} GPUs are no whole nodes: {what} has {size} on each",
            next_step=f"ask for {ways}",
            gpus=gpus,
            gpus_per_node=size,
        )
    return gpus


def check_pool(state: State, cluster: str, sku: str) -> tuple[PoolKey, Count]:
    """A pool whose GPUs can be promised: one in production that has nodes."""
    fleet = state.of(Fleet)
    check_cluster(state, cluster)
    if fleet.clusters[cluster].phase is not Phase.PRODUCTION:
        phase = fleet.clusters[cluster].phase
        raise Refused(
            "not_in_production",
            f"cluster {cluster} is {phase}: 0 GPUs of it can be promised",
            next_step="plimsoll fleet show --by phase",
            cluster=cluster,
            phase=str(phase),
        )
    count = fleet.pools.get(PoolKey(cluster, sku))
    if count is None:
        raise no_such_sku(sku, {pool.sku for pool in fleet.pools if pool.cluster == cluster}, f"cluster {cluster}")
    return PoolKey(cluster, sku), count


def check_cluster(state: State, cluster: str) -> None:
    """Raises `NotFound` with the name that was probably meant."""
    clusters = state.of(Fleet).clusters
    if cluster not in clusters:
        raise NotFound(
            "no_such_cluster",
            f"there is no cluster {cluster[:NAME_LENGTH_MAX]!r} among {len(clusters)}{near(cluster, clusters)}",
            next_step="plimsoll fleet show --by cluster",
            cluster=cluster[:NAME_LENGTH_MAX],
        )


def no_such_sku(sku: str, known: Collection[str], where: str) -> NotFound:
    folded = {name.casefold(): name for name in known}
    hint = near(sku.casefold(), folded)
    for lower, name in folded.items():
        hint = hint.replace(f" {lower}?", f" {name}?")
    return NotFound(
        "no_such_sku",
        f"{where} has no {sku[:NAME_LENGTH_MAX]!r}{hint}",
        next_step=f"one of: {', '.join(sorted(known))}" if known else "plimsoll fleet show --by sku",
        sku=sku[:NAME_LENGTH_MAX],
    )


def find_pools(state: State, sku: str, *, cluster: str = "", area: str = "") -> list[PoolKey]:
    """The pools that a request means: one cluster, an area, or the whole fleet."""
    fleet = state.of(Fleet)
    if cluster:
        return [check_pool(state, cluster, sku)[0]]
    if area and area not in list(Area):
        next_step = f"one of: {', '.join(Area)}"
        raise UsageError("no_such_area", f"there is no area {area[:40]!r}{near(area, list(Area))}", next_step=next_step)
    known = {
        pool
        for pool in fleet.pools
        if fleet.clusters[pool.cluster].phase is Phase.PRODUCTION and area in ("", fleet.clusters[pool.cluster].area)
    }
    found = sorted(pool for pool in known if pool.sku == sku)
    if not found:
        raise no_such_sku(sku, {pool.sku for pool in known}, f"area {area}" if area else "the fleet")
    return found
