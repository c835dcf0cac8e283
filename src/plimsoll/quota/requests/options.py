"""A request for more quota, and the answer to it: ranked options with numbers, and why not where not. Pure.

An option never breaks another team's pin, block or running work. Every "no" has a code, numbers, and whose move it is.
All counts are GPUs in whole nodes; an option that gives less than was asked for says so (`is_whole`).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import datetime

import msgspec

from plimsoll.fleet.model import PoolKey
from plimsoll.quota.flex import FlexPast, PoolFlex, flex_now, flex_past
from plimsoll.quota.history.past import last_hours, pool_pasts
from plimsoll.quota.hull import Pool, look
from plimsoll.quota.lines import LineNow, lines_now
from plimsoll.quota.model import Request
from plimsoll.quota.names import find_pools
from plimsoll.quota.plan import NO_LINE, policy_in_force
from plimsoll.quota.policy import Policy, day_of
from plimsoll.quota.requests.givers import Giver, find_givers
from plimsoll.quota.requests.headroom import (
    Gain,
    Island,
    Returns,
    Room,
    expected_returns,
    gains,
    islands_of,
    room_in,
    tightest,
)
from plimsoll.state.state import State

PAST_DAYS = 90
WHOLE_MAX, PARTIAL_MAX = 3, 1
"""So many options of each code are offered, at most."""
CLUSTERS_NAMED_MAX = 3


class Code(enum.StrEnum):
    """What an option is, the best first. The words are public: add, never rename."""

    GUARANTEED_NOW = "guaranteed_now"
    GUARANTEED_FROM = "guaranteed_from"
    FLEX = "flex"
    TRANSFER = "transfer"
    REFUSED = "refused"

    @property
    def place(self) -> int:
        return list(Code).index(self)


class Cause(enum.StrEnum):
    """Why a pool can't promise all of it now, the most lasting first. The words are public: add, never rename."""

    NO_ISLAND_THIS_LARGE = "no_island_this_large"
    POOL_TOO_SMALL = "pool_too_small"
    NOT_ALIGNED = "not_aligned"
    CUT_TEAMS_FIRST = "cut_teams_first"
    LINE_IN_FORCE = "line_in_force"
    NODES_OUT = "nodes_out"
    PROMISED = "promised"
    ISLAND_FRAGMENTED = "island_fragmented"
    NONE = "none"

    @property
    def place(self) -> int:
        return list(Cause).index(self)

    @property
    def move(self) -> str:
        """Whose move it is."""
        return _MOVES[self]


_MOVES = {
    Cause.NO_ISLAND_THIS_LARGE: "you: ask for less in one island, or for another SKU or area",
    Cause.POOL_TOO_SMALL: "you: ask for less, or for a larger scope",
    Cause.NOT_ALIGNED: "RPM: apply an alignment",
    Cause.CUT_TEAMS_FIRST: "RPM: apply an alignment, and trim what is not used",
    Cause.LINE_IN_FORCE: "RPM: apply an alignment, the line now is higher than the one in force",
    Cause.NODES_OUT: "hardware: nodes that are out",
    Cause.PROMISED: "RPM: a transfer, or you: flex",
    Cause.ISLAND_FRAGMENTED: "scheduler: gangs stand in the way",
    Cause.NONE: "",
}


class Option(msgspec.Struct, frozen=True):
    """One way to get what was asked for, or a part of it."""

    code: Code
    cluster: str
    sku: str
    gpus: int
    is_whole: bool
    why: str
    starts: datetime | None = None
    island: str = ""
    givers: Sequence[Giver] = ()
    share: float | None = None
    """For flex: of the past hours, those in which so many GPUs stood free of any promise."""
    share_with_lent: float | None = None
    spell_hours: float | None = None
    move: str = ""

    @property
    def key(self) -> str:
        """A name that stays the same however the ranking changes."""
        return f"{self.code}:{self.cluster}" if self.cluster else str(self.code)


class PoolAnswer(msgspec.Struct, frozen=True):
    """What stands between a pool and the request: the numbers, and the most lasting cause."""

    room: Room
    island: str
    island_healthy: int
    island_free_of_gangs: int
    cause: Cause
    why: str


class Answer(msgspec.Struct, frozen=True):
    """All options, best first, and for every pool why it can't promise all of it now."""

    request: Request
    options: Sequence[Option]
    pools: Sequence[PoolAnswer]
    past: str
    """On what the share of time that flex was there rests."""

    def best(self) -> Option | None:
        """The first option that guarantees all of it and takes from nobody: what an approval means by itself."""
        free = (Code.GUARANTEED_NOW, Code.GUARANTEED_FROM)
        return next((each for each in self.options if each.is_whole and each.code in free), None)


class _Look(msgspec.Struct, frozen=True):
    """One pool, as an answer looks at it."""

    pool: Pool
    line: LineNow
    room: Room
    islands: Sequence[Island]
    flex: PoolFlex
    past: FlexPast
    gains: Sequence[Gain]

    @property
    def key(self) -> PoolKey:
        return self.pool.key


def answer_request(state: State, request: Request, *, now: datetime, returns: Returns | None = None) -> Answer:
    """The options for a request on the state as it is. `returns` is when nodes come back, where the caller knows."""
    policy = policy_in_force(state)
    keys = find_pools(state, request.sku, cluster=request.cluster, area=request.area)
    if returns is None:
        returns = expected_returns(state, keys, now=now)
    looks = _look(state, request, keys, policy, returns, now)
    options = [option for each in looks for option in _options(state, request, each)]
    ranked = _ranked(options)
    pools = [_pool_answer(request, each) for each in looks]
    if not any(each.is_whole and each.code is not Code.FLEX for each in ranked):
        ranked.append(_refused(request, pools))
    return Answer(request, ranked, pools, _past_says(looks))


def _past_says(looks: Sequence[_Look]) -> str:
    """On what the past of the pools rests; where it is not the same for all, of which of them it is said."""
    told: dict[str, list[str]] = {}
    for each in looks:
        told.setdefault(each.past.says, []).append(each.key.cluster)
    if len(told) <= 1:
        return next(iter(told), "")
    return ". ".join(f"{_some(clusters)}: {says}" for says, clusters in told.items())


def _some(clusters: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    shown = ", ".join(clusters[:CLUSTERS_NAMED_MAX])
    more = len(clusters) - CLUSTERS_NAMED_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _look(
    state: State, request: Request, keys: Sequence[PoolKey], policy: Policy, returns: Returns, now: datetime
) -> list[_Look]:
    lines = lines_now(state, policy, now=now, pools=keys)
    pools = [pool for pool in look(state, keys, policy, day_of(now)) if not request.gpus % pool.size]
    flexes = {each.key: each for each in flex_now(state, keys, policy, now=now, teams=[request.team])}
    hours, pasts = last_hours(state, days=PAST_DAYS, now=now), pool_pasts(state, keys, until=now)
    islands = islands_of(state, keys)
    found = []
    for pool in pools:
        line = lines.get(pool.key, NO_LINE)
        found.append(
            _Look(
                pool,
                line,
                room_in(state, pool, line, request.team, but=request.id),
                islands[pool.key],
                flexes[pool.key],
                flex_past(state, pool, pasts[pool.key], line, hours),
                gains(state, pool, line, policy, returns.get(pool.key, ()), now=now),
            )
        )
    return found


def _options(state: State, request: Request, each: _Look) -> list[Option]:
    found = [_now(request, each), _later(request, each), _flex(request, each), _transfer(state, request, each)]
    return [option for option in found if option is not None]


def _placed(request: Request, each: _Look, option: Option) -> Option:
    """The same with the island that takes it; or not whole, and why, where one island was asked for and none does."""
    if not request.is_one_island:
        return option
    if (island := tightest(each.islands, option.gpus)) is not None:
        return msgspec.structs.replace(option, island=island.island)
    return msgspec.structs.replace(option, is_whole=False, why=f"{option.why}; {_no_island(each, option.gpus)}")


def _no_island(each: _Look, gpus: int) -> str:
    healthy = max((island.healthy for island in each.islands), default=0)
    free = max((island.free_of_gangs for island in each.islands), default=0)
    if healthy < gpus:
        return f"not in one island: the largest has {healthy}, you need {gpus}"
    return f"not in one island now: the largest has {free} free of gangs, you need {gpus}"


def _now(request: Request, each: _Look) -> Option | None:
    gpus = min(request.gpus, each.room.headroom)
    if not gpus:
        return None
    room = each.room
    why = (
        f"the line is {min(room.line, room.line_in_force):,}, {room.guaranteed:,} are guaranteed"
        + (f", {room.reserved:,} reserved" if room.reserved else "")
        + f": {room.headroom:,} left"
    )
    option = Option(Code.GUARANTEED_NOW, *each.key, gpus, gpus == request.gpus, why, starts=request.starts)
    return _placed(request, each, option)


def _later(request: Request, each: _Look) -> Option | None:
    """From the first moment at which all of it can be promised, else the most that ever can."""
    if not each.gains or each.room.headroom >= request.gpus:
        return None
    enough = next((gain for gain in each.gains if gain.headroom >= request.gpus), each.gains[-1])
    gpus = min(request.gpus, enough.headroom)
    if gpus <= each.room.headroom:
        return None
    starts = enough.at if request.starts is None else max(enough.at, request.starts)
    if request.ends is not None and starts >= request.ends:
        return None  # by then it is no longer needed
    why = f"{enough.why}: {enough.headroom:,} can be promised then"
    option = Option(Code.GUARANTEED_FROM, *each.key, gpus, gpus == request.gpus, why, starts=starts)
    return _placed(request, each, option)


def _flex(request: Request, each: _Look) -> Option | None:
    mine = next(team for team in each.flex.teams if team.team == request.team)
    size = each.pool.size
    gpus = min(request.gpus, mine.available // size * size)
    if not gpus:
        return None
    standing, lent = each.past.standing_of(gpus), each.past.with_lent_of(gpus)
    why = f"{mine.free:,} free now" + (f" and {mine.won_back:,} won back by fair share" if mine.won_back else "")
    if standing.share is None:
        why += "; no history says how often"
    else:
        why += f"; at least {gpus:,} stood free in {standing.share:.1%} of the past {_span(standing.hours)}"
    option = Option(
        Code.FLEX,
        *each.key,
        gpus,
        gpus == request.gpus,
        why,
        share=standing.share,
        share_with_lent=lent.share,
        spell_hours=standing.spell_hours_median,
    )
    return _placed(request, each, option)


def _span(hours: int) -> str:
    return f"{hours} hours" if hours < 72 else f"{hours // 24} days"


def _transfer(state: State, request: Request, each: _Look) -> Option | None:
    givers = find_givers(state, each.pool, request.gpus, taker=request.team)
    gpus = sum(giver.gpus for giver in givers)
    if not gpus:
        return None
    why = ", ".join(f"{giver.team} {giver.gpus:,} ({_kinds(giver)})" for giver in givers)
    option = Option(
        Code.TRANSFER, *each.key, gpus, gpus == request.gpus, f"from {why}", starts=request.starts, givers=givers
    )
    return _placed(request, each, option)


def _kinds(giver: Giver) -> str:
    both = ((giver.unscheduled, "unscheduled"), (giver.idle, "idle"))
    return ", ".join(f"{gpus:,} {kind}" if giver.unscheduled and giver.idle else kind for gpus, kind in both if gpus)


def _ranked(options: Sequence[Option]) -> list[Option]:
    """Whole ones first, then by code; then the earliest, the surest, the one that asks the fewest, the largest."""

    def order(option: Option) -> tuple[object, ...]:
        starts = option.starts.timestamp() if option.starts is not None and option.code is Code.GUARANTEED_FROM else 0.0
        return (
            not option.is_whole,
            option.code.place,
            starts,
            -(option.share or 0.0),
            len(option.givers),
            -option.gpus,
            option.cluster,
        )

    kept: list[Option] = []
    counts: dict[tuple[Code, bool], int] = {}
    for option in sorted(options, key=order):
        kind = option.code, option.is_whole
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= (WHOLE_MAX if option.is_whole else PARTIAL_MAX):
            kept.append(option)
    return kept


def _pool_answer(request: Request, each: _Look) -> PoolAnswer:
    cause, why = _cause(request, each)
    island = each.islands[0] if each.islands else Island("", 0, 0)
    return PoolAnswer(each.room, island.island, island.healthy, island.free_of_gangs, cause, why)


def _cause(request: Request, each: _Look) -> tuple[Cause, str]:
    """Why a pool can't promise all of it now, the most lasting cause first."""
    room, pool, gpus = each.room, each.pool, request.gpus
    largest = max((island.healthy for island in each.islands), default=0)
    if request.is_one_island and largest < gpus:
        return Cause.NO_ISLAND_THIS_LARGE, _no_island(each, gpus)
    if pool.total < gpus:
        return Cause.POOL_TOO_SMALL, f"it has {pool.total:,} GPUs in all"
    if not room.is_aligned:
        return (
            Cause.NOT_ALIGNED,
            f"nothing is guaranteed yet; {room.assigned:,} are assigned of a line of {room.line:,}",
        )
    if room.headroom < gpus:
        if room.under_line >= gpus:
            cut = room.assigned - room.guaranteed
            return Cause.CUT_TEAMS_FIRST, f"{room.under_line:,} lie under the line, and {cut:,} were cut before"
        held = f"{room.guaranteed:,} are guaranteed" + (f" and {room.reserved:,} reserved" if room.reserved else "")
        if room.line - room.guaranteed - room.reserved >= gpus:
            return Cause.LINE_IN_FORCE, f"{held} of a line in force of {room.line_in_force:,}; it is {room.line:,} now"
        if pool.total - pool.healthy >= gpus - room.headroom and room.line == pool.healthy:
            return Cause.NODES_OUT, f"{held}; {pool.total - pool.healthy:,} GPUs are out, the line is {room.line:,}"
        line = min(room.line, room.line_in_force)
        return Cause.PROMISED, f"{held} of a line of {line:,}: {room.headroom:,} left"
    if request.is_one_island and tightest(each.islands, gpus) is None:
        return Cause.ISLAND_FRAGMENTED, _no_island(each, gpus)
    return Cause.NONE, f"{room.headroom:,} can be promised"


def _refused(request: Request, pools: Sequence[PoolAnswer]) -> Option:
    """No pool can give all of it as a guarantee: the pool that comes nearest says why."""
    nearest = min(
        pools, key=lambda each: (-each.cause.place, -each.room.headroom, each.room.cluster), default=None
    )  # fmt: skip
    if nearest is None:
        why = f"no pool of {request.sku} has nodes of which {request.gpus} GPUs are whole ones"
        return Option(Code.REFUSED, "", request.sku, 0, False, why)
    room = nearest.room
    others = f" (the nearest of {len(pools)} pools)" if len(pools) > 1 else ""
    why = f"{nearest.cause}: {room.cluster}{others}: {nearest.why}"
    return Option(Code.REFUSED, room.cluster, room.sku, 0, False, why, move=nearest.cause.move)
