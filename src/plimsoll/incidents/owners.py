"""What owners of running work are told: what happened under it, what was done about it, what is left to do. Pure.

Each loss is told once. What a placement did comes from the losses that the fold keeps; what lasts (a node drains under
a gang, a breaker holds a bad one back, GPUs under observed work are gone) is looked for now, and told when it is new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import PoolKey
from plimsoll.health.fold import Health
from plimsoll.health.model import from_microseconds
from plimsoll.incidents.changes import OwnerTold
from plimsoll.incidents.fold import Incidents
from plimsoll.incidents.model import Did, Loss
from plimsoll.incidents.reasons import What
from plimsoll.ledger.model import Draft
from plimsoll.quota.fill import survive
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import QuotaKey
from plimsoll.state.state import State
from plimsoll.times import show_second
from plimsoll.words import counted
from plimsoll.workloads.account import MINUTE_US
from plimsoll.workloads.fold_tables import Workloads, floor_of
from plimsoll.workloads.model import Asked, PartSpec, Workload

TOLD_MAX = 200
"""So many are told in one pass; the rest in the next."""
NEWS_FOR = timedelta(days=1)
"""A loss of which nobody was told for so long is no news: `why` still knows it. So a ledger from before there were
notices brings none about at once.
"""
NODES_NAMED = 3
"""So many nodes, or reasons, are named in a sentence."""
_UNKNOWN = from_microseconds(0)
"""For a node of which nobody knows since when it drains."""


def decide_notices(state: State, now: datetime) -> tuple[list[Did], list[Draft]]:
    """Who has to be told what, and what that is in words."""
    told = [*_placements(state, now), *_lasting(state), *_observed(state, now)][:TOLD_MAX]
    did = [Did("told", each.owner or each.team, f"{each.workload}: {each.happened}; {each.done}") for each in told]
    return did, [Draft(each) for each in told]


# What placements did.


def _placements(state: State, now: datetime) -> Iterator[OwnerTold]:
    for _, loss in sorted(state.of(Incidents).losses.items(), key=lambda pair: (pair[1].at, pair[0])):
        if now - loss.at > NEWS_FOR:
            continue
        asked = state.of(Workloads).asked.get(loss.workload)
        happened = _happened(loss)
        done, left = _standing(state, loss, asked) if asked is not None else _over(state, loss)
        yield OwnerTold(loss.workload, loss.team, loss.owner, loss.at, loss.what, loss.by, happened, done, left)


def _happened(loss: Loss) -> str:
    cause = loss.detail or loss.by
    if loss.what is What.SPARE_LOST:
        return f"a spare of {_parts(loss)} is gone: {cause}"
    if loss.what is What.MOVED_OFF:
        return f"{loss.by} drains under {_parts(loss)}"
    words = "was taken out by planned work" if loss.what is What.PLANNED_WORK else "went bad"
    return f"a node under {_parts(loss)} {words}: {cause}"


def _parts(loss: Loss) -> str:
    return ", ".join(loss.parts) or loss.workload


def _standing(state: State, loss: Loss, asked: Asked) -> tuple[str, str]:
    """How the parts of a loss stand now, and what is left to do."""
    spec = asked.spec
    known = {part.name for part in spec.parts}
    found = [_part_stands(state, loss, asked, spec.part(name)) for name in loss.parts if name in known]
    if not found:
        return "it is not there any more", "nothing"
    done = "; ".join(dict.fromkeys(each for each, _ in found))
    left = "; ".join(dict.fromkeys(each for _, each in found if each)) or "nothing"
    return done, left


def _part_stands(state: State, loss: Loss, asked: Asked, part: PartSpec) -> tuple[str, str]:
    tables, name = state.of(Workloads), loss.workload
    workload = tables.workloads.get(name)
    running = workload.running(part.name) if workload is not None else None
    if running is None or not running.gpus:
        return _waits(state, name, part)
    if loss.what is What.SPARE_LOST:
        spares = workload.spares(part.name) if workload is not None else None
        has = sum(len(block.nodes) for block in spares.blocks) if spares is not None else 0
        return f"{part.name} runs on; {has} of {counted(part.spare_nodes, 'spare')} left", _next_spare(part, has)
    if not part.is_gang:
        have, want = running.gpus // part.gpus, part.most
        if have >= want:
            return f"{part.name} runs with all of its {counted(want, 'replica')} again", ""
        return (
            f"{part.name} runs on with {have} of {counted(want, 'replica')}",
            "the rest comes by itself when there is room",
        )
    how = loss.hows.get(part.name, "")
    island = running.blocks[0].island
    done = f"{part.name} goes on with {how}" if how else f"{part.name} runs again in {island}"
    return done, _after_restart(state, asked, part, workload)


def _after_restart(state: State, asked: Asked, part: PartSpec, workload: Workload | None) -> str:
    """What a gang that went on has lost, and what it goes on without."""
    words = []
    stops = state.of(Workloads).interruptions.get(asked.spec.name, ())
    lost = next((each.lost_us for each in reversed(stops) if each.part == part.name), 0)
    if lost:
        words.append(f"nothing; {max(1, round(lost / MINUTE_US))} min of work since its last checkpoint are lost")
    spares = workload.spares(part.name) if workload is not None else None
    has = sum(len(block.nodes) for block in spares.blocks) if spares is not None else 0
    if part.spare_nodes and has < part.spare_nodes:
        words.append(_next_spare(part, has))
    return "; ".join(words)


def _next_spare(part: PartSpec, has: int) -> str:
    return "" if has >= part.spare_nodes else "the next node that goes bad is not replaced by a spare"


def _waits(state: State, name: str, part: PartSpec) -> tuple[str, str]:
    tables = state.of(Workloads)
    booking = tables.bookings.get(name)
    if booking is not None:
        who = counted(len({victim.workload for victim in booking.victims}), "other workload")
        return f"{part.name} has stopped; {who} must leave for it", f"nothing: it starts by {show_second(booking.due)}"
    wait = tables.wait_of(name)
    if wait is None:
        return f"{part.name} has stopped and waits", f"plimsoll why {name}"
    reason = wait.reason
    missing = f", {reason.missing:,} GPUs are missing" if reason.missing else ""
    move = reason.cause.move
    left = f"the move is {move}'s; plimsoll why {name}" if move != "wait" else f"wait; plimsoll why {name}"
    return f"{part.name} has stopped and waits: {reason.cause.value}{missing}", left


def _over(state: State, loss: Loss) -> tuple[str, str]:
    past = state.of(Workloads).past.get(loss.workload)
    return (f"it is over: {past.how}" if past is not None else "it is over"), "nothing"


# What lasts.


class _Under(NamedTuple):
    """A node under a part of a workload, with what lasts there: since when, and why."""

    node: str
    part: str
    since: datetime
    why: str
    scope: str = ""


def _lasting(state: State) -> Iterator[OwnerTold]:
    """Nodes that drain under work, and bad ones that a breaker keeps in service under it. All that is new to the owner
    of a workload is one notice: a run of hundreds of GPUs must not drown the rest.
    """
    tables = state.of(Workloads)
    if not tables.asked:
        return
    for name, under in _by_workload(_draining(state)):
        if news := _news(state, name, What.DRAINS, under):
            done = "nothing yet: it runs on until the node goes"
            left = "save a checkpoint; when the node goes, its spare or another node takes over"
            if len(news) > 1:
                done = "nothing yet: it runs on until the nodes go"
                left = "save a checkpoint; when a node goes, a spare or another node takes over"
            what = f"{_nodes(news)} {'drain' if len(news) > 1 else 'drains'} under {_parts_of(news)}"
            why = _whys(news) or "no reason was given"
            yield _told_lasting(tables.asked[name], What.DRAINS, under, news, f"{what}: {why}", done, left)
    for name, under in _by_workload(_held_back(state)):
        if news := _news(state, name, What.HELD_BACK, under):
            done = f"nothing: the breaker of {_distinct(each.scope for each in news)} holds automation back"
            left = "save a checkpoint; on-call decides about the breaker"
            what = f"{_nodes(news)} under {_parts_of(news)} {'are' if len(news) > 1 else 'is'} bad"
            why = _whys(news)
            happened = f"{what}: {why}" if why else what
            yield _told_lasting(tables.asked[name], What.HELD_BACK, under, news, happened, done, left)


def _draining(state: State) -> Iterator[tuple[str, _Under]]:
    nodes = state.of(Fleet).nodes
    for (name, part), draining in sorted(floor_of(state).drains.items()):
        for node in draining:
            yield name, _Under(node, part, nodes[node].since or _UNKNOWN, nodes[node].reason)


def _held_back(state: State) -> Iterator[tuple[str, _Under]]:
    parts_on, facts = floor_of(state).parts_on, state.of(Health).facts
    for scope, tripped in sorted(state.of(Health).breakers.items()):
        for node in tripped.nodes:
            for name, part in parts_on.get(node, ()):
                why = facts[node].why if node in facts else ""
                yield name, _Under(node, part, tripped.since, why, scope)


def _by_workload(found: Iterable[tuple[str, _Under]]) -> list[tuple[str, list[_Under]]]:
    together: dict[str, list[_Under]] = {}
    for name, under in found:
        together.setdefault(name, []).append(under)
    return sorted(together.items())


def _news(state: State, workload: str, what: What, under: list[_Under]) -> list[_Under]:
    """What the owner was not told yet: nodes that the last such notice does not know, or not since then."""
    if workload not in state.of(Workloads).asked:
        return []
    notices = state.of(Incidents).notices.get(workload, ())
    last = next((each for each in reversed(notices) if each.what is what), None)
    if last is None:
        return under
    known = {last.by, *last.nodes}
    return [each for each in under if each.node not in known or each.since > last.at]


def _told_lasting(
    asked: Asked, what: What, under: list[_Under], news: list[_Under], happened: str, done: str, left: str
) -> OwnerTold:
    """A notice of what is new; it remembers all that lasts, so that the next one tells of nothing twice."""
    spec, at = asked.spec, max(each.since for each in under)
    names = tuple(sorted({each.node for each in under}))
    by = news[0].node
    return OwnerTold(
        spec.name, spec.team, spec.owner, at, what, by, happened, done, left, nodes=names if len(names) > 1 else ()
    )


def _nodes(news: list[_Under]) -> str:
    """`n1`, or `44 nodes (n1, n2, n3 and 41 more)`."""
    names = list(dict.fromkeys(each.node for each in news))
    if len(names) == 1:
        return names[0]
    more = f" and {len(names) - NODES_NAMED:,} more" if len(names) > NODES_NAMED else ""
    return f"{counted(len(names), 'node')} ({', '.join(names[:NODES_NAMED])}{more})"


def _parts_of(news: list[_Under]) -> str:
    return _distinct(each.part for each in news)


def _whys(news: list[_Under]) -> str:
    """Why, each reason once, the most common first."""
    reasons = Counter(each.why for each in news if each.why)
    return ", ".join(sorted(reasons, key=lambda why: (-reasons[why], why))[:NODES_NAMED])


def _distinct(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))


# Work that was only observed.


def _observed(state: State, now: datetime) -> Iterator[OwnerTold]:
    """Observed work that has fewer GPUs left than it holds. Nobody told its nodes, so who lost what follows from the
    order of loss, as everywhere."""
    tables = state.of(Workloads)
    lost: dict[str, tuple[int, PoolKey]] = {}
    for pool in sorted(_overfull(state)):
        for name, gpus in _lost_in(state, pool).items():
            if name in tables.workloads and name not in tables.asked:
                lost[name] = lost.get(name, (0, pool))[0] + gpus, pool
    for name, (gpus, pool) in sorted(lost.items()):
        before = _last_told(state, name)
        if gpus > before:
            workload = tables.workloads[name]
            happened = (
                f"fewer GPUs of {pool.cluster} work than run work; by the order of loss it gives up {gpus:,} of its"
                f" {workload.gpus:,}"
            )
            yield _told_observed(workload, now, What.GPUS_LOST, pool.cluster, happened, gpus)
    for name in sorted(state.of(Incidents).notices):
        if name not in lost and _last_told(state, name) and name in tables.workloads:
            workload = tables.workloads[name]
            happened = f"all of its {workload.gpus:,} GPUs work again"
            yield _told_observed(workload, now, What.GPUS_BACK, workload.cluster, happened, 0)


def _overfull(state: State) -> set[PoolKey]:
    """Pools of which more is held by work than is in service."""
    fleet, used = state.of(Fleet), Counter[PoolKey]()
    for key, gpus in state.of(Workloads).held.items():
        if (cluster := fleet.island_cluster.get(key.island)) is not None:
            used[PoolKey(cluster, key.sku)] += gpus
    return {pool for pool, gpus in used.items() if pool not in fleet.pools or fleet.pools[pool].gpus_in_service < gpus}


def _lost_in(state: State, pool: PoolKey) -> dict[str, int]:
    """GPUs of a pool that died under work, by workload."""
    book = state.of(QuotaBook)
    count = state.of(Fleet).pools.get(pool)
    keys = {team: QuotaKey(team, *pool) for team in book.pool_teams.get(pool, ())}
    claims = {team: book.claims.get(key, ()) for team, key in keys.items()}
    assigned = {team: book.assigned_to(key) for team, key in keys.items()}
    basis = book.loss_basis.get(pool, book.guaranteed_in(pool) if pool in book.lines else assigned)
    _, losses = survive(claims, basis, count.gpus_in_service if count is not None else 0)
    found: dict[str, int] = {}
    for loss in losses:
        found[loss.work] = found.get(loss.work, 0) + loss.gpus
    return found


def _last_told(state: State, workload: str) -> int:
    """How many lost GPUs the owner of observed work knows of."""
    kinds = (What.GPUS_LOST, What.GPUS_BACK)
    notices = state.of(Incidents).notices.get(workload, ())
    return next((each.gpus for each in reversed(notices) if each.what in kinds), 0)


def _told_observed(workload: Workload, at: datetime, what: What, by: str, happened: str, gpus: int) -> OwnerTold:
    owner = next((part.labels["owner"] for part in workload.parts if part.labels.get("owner")), "")
    is_lost = what is What.GPUS_LOST
    done = "nothing: this work is not placed by Plimsoll" if is_lost else "nodes came back"
    left = "look at it in its own scheduler" if is_lost else "nothing"
    return OwnerTold(workload.id, workload.team, owner, at, what, by, happened, done, left, gpus)
