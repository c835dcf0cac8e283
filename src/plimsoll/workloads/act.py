"""Carries an offer out within a turn: victims leave, parts are put on nodes, or the room is booked until it is free."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta

from plimsoll.fleet.model import PoolKey
from plimsoll.workloads.changes import WorkloadBooked, WorkloadPlaced
from plimsoll.workloads.model import Asked, Because, Block, Booking, Part, PartPlaced, Place, Victim, Workload
from plimsoll.workloads.offers import Offer
from plimsoll.workloads.rooms import barred_for, choose_nodes
from plimsoll.workloads.shape import merged
from plimsoll.workloads.turn import Turn


def take_up(turn: Turn, asked: Asked, offer: Offer, *, grace: timedelta, because: Because = Because.STARTED) -> None:
    """Start what was offered: at once where nobody must leave, or where there is no time of grace for those who do."""
    if offer.victims and grace:
        name, due = asked.spec.name, turn.now + grace
        booking = Booking(name, *offer.pool, offer.places, offer.victims, due)
        turn.do(WorkloadBooked(booking))
        return
    evict(turn, offer.victims, by=asked.spec.name, barred=barred_for(turn, asked))
    place(turn, asked, offer.pool, offer.places, because)


def evict(
    turn: Turn,
    victims: Iterable[Victim],
    *,
    by: str,
    because: Because = Because.PREEMPTED,
    detail: str = "",
    barred: Collection[str] = (),
) -> None:
    """Victims give up what was chosen of them; who stops goes back into the queue. `barred`: nodes that are of no use
    to whoever comes.
    """
    grouped: dict[str, list[Victim]] = {}
    for victim in victims:
        grouped.setdefault(victim.workload, []).append(victim)
    for name, mine in grouped.items():
        workload = turn.work.workloads.get(name)
        if workload is None:
            continue  # it has ended meanwhile
        by_sku: dict[str, list[PartPlaced]] = {}
        for part in dict.fromkeys(victim.part for victim in mine):
            running = workload.running(part)
            if running is not None:
                out = {*turn.floor.lost.get((name, part), ()), *turn.floor.drains.get((name, part), ()), *barred}
                left = _left_of(workload, running, [victim for victim in mine if victim.part == part], out)
                by_sku.setdefault(running.sku, []).append(left)
        for sku, parts in by_sku.items():
            told = detail or (mine[0].right.value if because is Because.PREEMPTED else "")
            turn.do(WorkloadPlaced(name, workload.cluster, sku, tuple(parts), because, by, told))


def _left_of(workload: Workload, running: Part, victims: Sequence[Victim], out: Collection[str]) -> PartPlaced:
    """What a part and its spares hold once its victims have given up theirs, which are not on nodes that are out."""
    if any(victim.stops and not victim.is_spare for victim in victims):
        return PartPlaced(running.name, ())
    left = without(running.blocks, _by_island(victim for victim in victims if not victim.is_spare), out)
    spares = workload.spares(running.name)
    if spares is None or not left:
        return PartPlaced(running.name, left)
    lost = _by_island(victim for victim in victims if victim.is_spare)
    return PartPlaced(running.name, left, without(spares.blocks, lost, out))


def _by_island(victims: Iterable[Victim]) -> dict[str, int]:
    found: dict[str, int] = {}
    for victim in victims:
        found[victim.island] = found.get(victim.island, 0) + victim.gpus
    return found


def without(blocks: Sequence[Block], lost: Mapping[str, int], out: Collection[str] = ()) -> tuple[Block, ...]:
    """Blocks with so many GPUs of an island fewer; the nodes that were taken last go first, idle GPUs before others.
    Nodes that are `out` go last: nobody could use them.
    """
    found = []
    for block in blocks:
        gone = min(block.gpus, lost.get(block.island, 0))
        if gone == block.gpus:
            continue
        if gone:
            nodes, left = list(block.nodes), gone
            if out:
                nodes.sort(key=lambda each: each[0] not in out)
            while left and nodes:
                node, gpus = nodes.pop()
                if gpus > left:
                    nodes.append((node, gpus - left))
                left -= min(left, gpus)
            block = Block(block.island, block.gpus - gone, max(0, block.idle_gpus - gone), tuple(nodes))
        found.append(block)
    return tuple(found)


def place(
    turn: Turn,
    asked: Asked,
    pool: PoolKey,
    places: Sequence[Place],
    because: Because,
    *,
    by: str = "",
    detail: str = "",
) -> None:
    """Put parts where it was decided, besides what they hold there already."""
    running = turn.work.workloads.get(asked.spec.name)
    blocks: dict[str, list[Block]] = {}
    spares: dict[str, list[Block]] = {}
    for where, nodes in choose_nodes(turn, asked, pool, places):
        block = Block(where.island, where.gpus, nodes=nodes)
        (spares if where.is_spare else blocks).setdefault(where.part, []).append(block)
    placed = []
    for part in dict.fromkeys((*blocks, *spares)):
        had, had_spares = _blocks(running, part, is_spare=False), _blocks(running, part, is_spare=True)
        placed.append(
            PartPlaced(
                part,
                merged((*had, *blocks.get(part, ()))),
                merged((*had_spares, *spares.get(part, ()))) if had_spares or part in spares else (),
            )
        )
    turn.do(WorkloadPlaced(asked.spec.name, *pool, tuple(placed), because, by, detail))


def _blocks(running: Workload | None, part: str, *, is_spare: bool) -> tuple[Block, ...]:
    if running is None:
        return ()
    has: Part | None = running.spares(part) if is_spare else running.running(part)
    return has.blocks if has is not None else ()
