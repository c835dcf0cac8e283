"""What work can wait for: nodes that return, planned work that ends, other work that ends as it said. Pure.

Each is a change to a what-if of the state, as in `fixes`. A gang waits for the island that has room for it first, which
need not be the one where least is missing now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.model import PoolKey, Service
from plimsoll.health.fold import Health
from plimsoll.health.model import Ahead, from_microseconds
from plimsoll.quota.model import QuotaKey
from plimsoll.times import show_time
from plimsoll.workloads.changes import WorkloadEnded
from plimsoll.workloads.model import Asked
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.why.model import Act, ActionKind
from plimsoll.workloads.why.near import Closest, close_now
from plimsoll.workloads.why.outs import Out, back_by, to_the_hour

NODES_NAMED = 4


class Done(NamedTuple):
    """What was changed on the what-if; GPUs that moved, those of own work that stopped, and the moment waited for."""

    act: Act
    moved: int = 0
    own: int = 0
    at: datetime | None = None
    is_estimate: bool = False


class Return(NamedTuple):
    """When an island (all of them, where it is empty) has room again, by which nodes, and whether that was told."""

    at: datetime
    is_told: bool
    island: str
    nodes: tuple[Out, ...]


def returns_for(close: Closest, outs: Sequence[Out]) -> list[Return]:
    """Where nodes that return make the room, the first first. Flex that may be called back there counts as room."""
    if not close.missing:
        return []
    needs = {"": close.missing}
    if close.part.is_gang:
        needs = {island: close.needs_in(island) for _, _, island in close.rooms}
    by_island: dict[str, list[Out]] = {}
    for out in outs:
        by_island.setdefault(out.node.island if close.part.is_gang else "", []).append(out)
    found = []
    for island, mine in by_island.items():
        if island in needs:
            at, is_told, chosen = back_by(mine, needs[island])
            if at is not None:
                found.append(Return(at, is_told, island, tuple(chosen)))
    return sorted(found, key=lambda each: (each.at, not each.is_told, each.island != close.island, each.island))


def with_return(close: Closest, outs: Sequence[Out]) -> Closest:
    """Among islands where as few GPUs are missing, the one of which somebody knows when it has them."""
    for each in returns_for(close, outs):
        if each.island and (there := close.at(each.island)).missing == close.missing:
            return there
    return close


def waiting_nodes(pool: PoolKey, outs: Sequence[Out], place: int) -> Callable[[Turn, Asked], Done | None]:
    """Until the nodes are back that make room in an island: the first island to have it, or the next ones."""

    def do(turn: Turn, asked: Asked) -> Done | None:
        found = returns_for(close_now(turn, asked, pool), outs)
        if place >= len(found):
            return None
        at, is_told, island, chosen = found[place]
        for out in chosen:
            node = msgspec.structs.replace(out.node, service=Service.IN_SERVICE, since=at, reason="")
            turn.do(NodeRecorded(node, {}))
        named = ", ".join(out.node.id for out in chosen[:NODES_NAMED])
        more = f" and {len(chosen) - NODES_NAMED} more" if len(chosen) > NODES_NAMED else ""
        there = f" in island {island}" if island else ""
        how = "as told" if is_told else "by repair history"
        are = "is" if len(chosen) == 1 else "are"
        says = f"wait until {named}{more} {are} back{there}: {show_time(at.replace(microsecond=0))}, {how}"
        command = f"plimsoll why {chosen[0].node.id}"
        return Done(Act(ActionKind.WAIT_NODES, says, command), at=at, is_estimate=not is_told)

    return do


def waiting_planned(pool: PoolKey) -> Callable[[Turn, Asked], Done | None]:
    """Until the work that is announced there is over."""

    def do(turn: Turn, asked: Asked) -> Done | None:
        close = close_now(turn, asked, pool)
        until = turn.now + timedelta(hours=asked.spec.hours)
        works = [
            work
            for work in turn.state.of(Health).ahead.values()
            if work.ends > turn.now and work.starts < until and _is_in(turn, work, pool, close.island)
        ]
        if not works or not close.missing:
            return None
        last = max(works, key=lambda work: (work.ends, work.id))
        says = f"wait until the planned work there is over: {last.reason}, {show_time(last.ends)}"
        return Done(Act(ActionKind.WAIT_PLANNED, says, "plimsoll health announced"), at=last.ends)

    return do


def _is_in(turn: Turn, work: Ahead, pool: PoolKey, island: str) -> bool:
    spots = (turn.floor.spots.get(node) for node in work.nodes)
    return any(
        spot is not None and (spot.cluster, spot.key.sku) == pool and island in ("", spot.key.island) for spot in spots
    )


def waiting_work(pool: PoolKey) -> Callable[[Turn, Asked], Done | None]:
    """Until work that said how long it takes has ended."""

    def do(turn: Turn, asked: Asked) -> Done | None:
        close = close_now(turn, asked, pool)
        ends = []
        for name in {claim.work for team in turn.book.pool_teams.get(pool, ())
                     for claim in turn.book.claims.get(QuotaKey(team, *pool), ())
                     if claim.gpus and close.island in ("", claim.island)}:  # fmt: skip
            other = turn.work.asked.get(name)
            if other is None or not other.spec.hours or name == asked.spec.name:
                continue
            begun = max((turn.work.accounts[name, part.name].first_started for part in other.spec.parts
                         if (name, part.name) in turn.work.accounts), default=0)  # fmt: skip
            end = from_microseconds(begun) + timedelta(hours=other.spec.hours)
            if begun and end > turn.now:
                ends.append((end, name))
        left, chosen = close.missing, list[tuple[datetime, str]]()
        for end, name in sorted(ends):
            if left <= 0:
                break
            chosen.append((end, name))
            blocks = (block for part in turn.work.workloads[name].parts for block in part.blocks)
            left -= sum(block.gpus for block in blocks if close.island in ("", block.island))
        if left > 0 or not chosen:
            return None
        for _, name in chosen:
            turn.do(WorkloadEnded(name, "finished"))
        named = ", ".join(name for _, name in chosen[:NODES_NAMED])
        at = to_the_hour(chosen[-1][0])
        says = f"wait until {named} should have ended, by the hours it said: {show_time(at.replace(microsecond=0))}"
        return Done(Act(ActionKind.WAIT_WORK, says, f"plimsoll workload show {chosen[-1][1]}"), at=at, is_estimate=True)

    return do
