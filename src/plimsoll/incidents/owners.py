"""What owners of running work are told: what happened under it, what was done about it, what is left to do. Pure.

Each loss is told once. What a placement did comes from the losses that the fold keeps; what lasts (a node drains under
a gang, a breaker holds a bad one back, GPUs under observed work are gone) is looked for now, and told when it is new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
from plimsoll.state.state import State
from plimsoll.times import show_second
from plimsoll.words import counted
from plimsoll.workloads.account import MINUTE_US
from plimsoll.workloads.fold_tables import Workloads, floor_of
from plimsoll.workloads.losses import (
    Out,
    gpus_of,
    in_service,
    losses_in,
    lost_already,
    lost_by_work,
    out_of_service,
    why_out,
)
from plimsoll.workloads.model import Asked, PartSpec, Workload
from plimsoll.workloads.why.stops import nodes_told

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
    cause, told = loss.detail or loss.by, nodes_told(loss.detail)
    count = len(told.nodes) + told.more
    if loss.what is What.SPARE_LOST:
        what = f"{count:,} spares of {_parts(loss)} are" if count > 1 else f"a spare of {_parts(loss)} is"
        return f"{what} gone: {cause}"
    nodes = f"{count:,} nodes" if count > 1 else "a node"
    if loss.what is What.MOVED_OFF:
        where = f"{nodes} under {_parts(loss)} {'drain' if count > 1 else 'drains'}"
        return f"{where}: {cause if told.nodes else loss.by}"
    words = "went bad"
    if loss.what is What.PLANNED_WORK:
        words = f"{'were' if count > 1 else 'was'} taken out by planned work"
    return f"{nodes} under {_parts(loss)} {words}: {cause}"


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


class _Pool(NamedTuple):
    """What of a pool is out, and what each workload there has lost already, however long the nodes that drain last."""

    out: Out
    gone: dict[str, int]


def _observed(state: State, now: datetime) -> Iterator[OwnerTold]:
    """Observed work that has fewer GPUs left than it holds. Nobody told its nodes, so who lost what follows from the
    order of loss, as everywhere."""
    tables = state.of(Workloads)
    lost: dict[str, dict[PoolKey, int]] = {}
    for pool in sorted(_overfull(state)):
        for name, gpus in lost_by_work(losses_in(state, pool, working=in_service(state, pool))).items():
            if name in tables.workloads and name not in tables.asked:
                lost.setdefault(name, {})[pool] = gpus
    news = {name: mine for name, mine in sorted(lost.items()) if sum(mine.values()) > _last_told(state, name)}
    pools = _looked_at(state, {pool for mine in news.values() for pool in mine})
    for name, mine in news.items():
        yield _told_lost(state, tables.workloads[name], sum(mine.values()), [pools[pool] for pool in mine], now)
    for name in sorted(state.of(Incidents).notices):
        if name not in lost and _last_told(state, name) and name in tables.workloads:
            workload = tables.workloads[name]
            happened = f"all of its {workload.gpus:,} GPUs work again"
            yield _told_observed(workload, now, What.GPUS_BACK, happened, "nodes came back", "nothing", 0)


def _looked_at(state: State, pools: set[PoolKey]) -> dict[PoolKey, _Pool]:
    if not pools:
        return {}
    outs = out_of_service(state, pools)
    return {pool: _Pool(out, lost_by_work(lost_already(state, pool, out))) for pool, out in outs.items()}


def _told_lost(state: State, workload: Workload, gpus: int, pools: Sequence[_Pool], now: datetime) -> OwnerTold:
    """What it gives up, how much of what is out there was planned, and until when: that is what is left to do about."""
    nodes = [node for each in pools for node in each.out.nodes]
    planned = [node for each in pools for node in each.out.planned]
    gone = min(gpus, sum(each.gone.get(workload.id, 0) for each in pools))
    happened = f"fewer GPUs of {workload.cluster} work than run work"
    done = "nothing: this work is not placed by Plimsoll"
    if not gone:
        happened = f"nodes of {workload.cluster} drain, and the others can't carry all that runs there"
    if gpus > gone:
        done += ", and runs on until the nodes go"
    happened += f"; by the order of loss it gives up {gpus:,} of its {workload.gpus:,}"
    left = ["save a checkpoint"] if gpus > gone else []
    left += ["look at it in its own scheduler"] if gone else []
    if planned:
        why = why_out(state, planned, now)
        share = f"{gpus_of(planned):,} of the {gpus_of(nodes):,} GPUs that are not in service there"
        happened += f"; planned work ({why}) has {share}"
        left.insert(0, why)
    elif nodes:
        happened += f"; none of the {gpus_of(nodes):,} GPUs that are not in service there is planned work"
    return _told_observed(workload, now, What.GPUS_LOST, happened, done, "; ".join(left), gpus)


def _overfull(state: State) -> set[PoolKey]:
    """Pools of which more is held by work than is in service."""
    fleet, used = state.of(Fleet), Counter[PoolKey]()
    for key, gpus in state.of(Workloads).held.items():
        if (cluster := fleet.island_cluster.get(key.island)) is not None:
            used[PoolKey(cluster, key.sku)] += gpus
    return {pool for pool, gpus in used.items() if pool not in fleet.pools or fleet.pools[pool].gpus_in_service < gpus}


def _last_told(state: State, workload: str) -> int:
    """How many lost GPUs the owner of observed work knows of."""
    kinds = (What.GPUS_LOST, What.GPUS_BACK)
    notices = state.of(Incidents).notices.get(workload, ())
    return next((each.gpus for each in reversed(notices) if each.what in kinds), 0)


def _told_observed(
    workload: Workload, at: datetime, what: What, happened: str, done: str, left: str, gpus: int
) -> OwnerTold:
    owner = next((part.labels["owner"] for part in workload.parts if part.labels.get("owner")), "")
    return OwnerTold(workload.id, workload.team, owner, at, what, workload.cluster, happened, done, left, gpus)
