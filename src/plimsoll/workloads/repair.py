"""Repair of gangs: when a node dies under a gang, what it goes on with. Pure, within a turn.

In this order: its spare; a free healthy node of the island; flex or lower-ranked work there; an elastic replica that
moves away; the whole gang to another island; else it is blocked, with the reason and the missing number. Elastic work
just runs on with less. Only work whose nodes are known is repaired: of observed work others take care.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from plimsoll.fleet.model import IslandKey, Node, PoolKey
from plimsoll.health.fold import Health
from plimsoll.health.model import Mark, is_planned
from plimsoll.quota.model import Kind
from plimsoll.workloads.act import evict, place, take_up
from plimsoll.workloads.changes import WorkloadPlaced
from plimsoll.workloads.model import Asked, Because, Block, PartPlaced, PartSpec, Place, Victim
from plimsoll.workloads.offers import Offer, best_offer
from plimsoll.workloads.preempt import Preemption
from plimsoll.workloads.rights import Held, held_in, part_spec, stuck_in
from plimsoll.workloads.rooms import Plan, rooms_without_work_ahead
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.victims import Option, fewest

NODES_TOLD = 3
"""So many of the nodes that were lost at once are told by name; of the rest it is told how many they are."""


def repair_all(turn: Turn, *, grace: timedelta) -> None:
    """Every part that lost nodes goes on as well as it can; the most important first, gangs before elastic work."""
    hit = [(name, part) for name, part in turn.floor.lost if name in turn.work.asked]
    for name, part in sorted(hit, key=lambda who: _urgency(turn, *who)):
        if (name, part) in turn.floor.lost:  # a repair before this one may have stopped it
            repair(turn, name, part, grace=grace)
    for name, part in sorted(who for who in turn.floor.drains if who[0] in turn.work.asked):
        _leave_draining(turn, name, part)


def _urgency(turn: Turn, name: str, part: str) -> tuple[object, ...]:
    asked = turn.work.asked[name]
    spec = asked.spec.part(part)
    return not spec.is_gang, spec.tier.place, spec.rank, asked.submitted, name, part


def repair(turn: Turn, name: str, part_name: str, *, grace: timedelta) -> None:
    """One part that lost nodes."""
    asked, workload = turn.work.asked[name], turn.work.workloads[name]
    spec = asked.spec.part(part_name)
    gone = set(turn.floor.lost[name, part_name])
    running, spares = workload.running(part_name), workload.spares(part_name)
    assert running is not None, f"{name}/{part_name} lost {gone} and does not run"
    pool = PoolKey(workload.cluster, running.sku)
    because, by, detail = _loss(turn, gone)
    left = tuple(block for block in (_without_nodes(each, gone) for each in running.blocks) if block.gpus)
    kept_spares = tuple(
        block for block in (_without_nodes(each, gone) for each in (spares.blocks if spares else ())) if block.gpus
    )
    if not spec.is_gang:
        whole = _whole_replicas(spec, left)
        turn.do(WorkloadPlaced(name, *pool, (PartPlaced(part_name, whole),), because, by, detail))
        return
    lost = running.gpus - sum(block.gpus for block in left)
    if not lost:  # only a spare died: nobody notices
        turn.do(WorkloadPlaced(name, *pool, (PartPlaced(part_name, left, kept_spares),), Because.SCALED, by, detail))
        return
    island = running.blocks[0].island
    ladder = _Ladder(turn, asked, spec, pool, island, left, kept_spares, lost, because=because, by=by, detail=detail)
    if not (ladder.spare() or ladder.free_node() or ladder.victim(grace) or ladder.replica_away()):
        turn.do(WorkloadPlaced(name, *pool, (PartPlaced(part_name, ()),), because, by, detail))
        is_alone = name not in turn.work.workloads
        offer = best_offer(turn, asked, [spec], cluster=pool.cluster, sku="" if is_alone else pool.sku)
        if offer is not None:
            take_up(turn, asked, offer, grace=grace, because=Because.MOVED)


def _loss(turn: Turn, gone: Iterable[str]) -> tuple[Because, str, str]:
    """Whether it was planned, the node to blame, and what is known of the first nodes. A fault among them makes it a
    fault, and what broke is told first."""
    nodes = sorted((turn.fleet.nodes[node] for node in gone), key=lambda node: (_is_planned(node), node.id))
    told = "; ".join(
        f"{node.id} {node.service}{f': {node.reason}' if node.reason else ''}" for node in nodes[:NODES_TOLD]
    )
    more = f" and {len(nodes) - NODES_TOLD} more" if len(nodes) > NODES_TOLD else ""
    first = nodes[0]
    return (Because.PLANNED_WORK if _is_planned(first) else Because.NODE_LOST), first.id, told + more


def _is_planned(node: Node) -> bool:
    return is_planned(Mark(node.service, node.reason))


def _without_nodes(block: Block, gone: set[str]) -> Block:
    nodes = tuple(each for each in block.nodes if each[0] not in gone)
    lost = sum(gpus for node, gpus in block.nodes if node in gone)
    return Block(block.island, block.gpus - lost, max(0, block.idle_gpus - lost), nodes)


def _whole_replicas(spec: PartSpec, blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Half a replica is none: what is left of one is given up."""
    found = []
    for block in blocks:
        over = block.gpus % spec.gpus
        nodes = list(block.nodes)
        while over and nodes:
            node, gpus = nodes.pop()
            if gpus > over:
                nodes.append((node, gpus - over))
            block = Block(block.island, block.gpus - min(gpus, over), block.idle_gpus, tuple(nodes))
            over -= min(gpus, over)
        if block.gpus:
            found.append(block)
    return tuple(found)


class _Ladder:
    """The steps for one gang, each tried only where the one before was not enough."""

    def __init__(
        self,
        turn: Turn,
        asked: Asked,
        spec: PartSpec,
        pool: PoolKey,
        island: str,
        left: tuple[Block, ...],
        spares: tuple[Block, ...],
        lost: int,
        *,
        because: Because,
        by: str,
        detail: str,
    ) -> None:
        self._turn, self._asked, self._spec = turn, asked, spec
        self._pool, self._island = pool, island
        self._left, self._spares, self._lost = left, spares, lost
        self._because, self._by, self._detail = because, by, detail

    def spare(self) -> bool:
        """Its own spare nodes step in; what they can't replace is looked for elsewhere."""
        nodes = [each for block in self._spares for each in block.nodes]
        taken: list[tuple[str, int]] = []
        while nodes and self._lost:
            node, gpus = nodes.pop(0)
            used = min(gpus, self._lost)
            taken.append((node, used))
            self._lost -= used
            if gpus > used:
                nodes.insert(0, (node, gpus - used))
                break
        if taken:
            more = Block(self._island, sum(gpus for _, gpus in taken), nodes=tuple(taken))
            self._left = (*self._left, more)
            rest = sum(gpus for _, gpus in nodes)
            self._spares = (Block(self._island, rest, nodes=tuple(nodes)),) if rest else ()
        if self._lost:
            return False
        self._go_on(self._left, "spare")
        return True

    def free_node(self) -> bool:
        """Free healthy nodes of the island."""
        free = self._turn.floor.free.get(IslandKey(self._island, self._pool.sku), 0)
        if free < self._lost:
            return False
        self._go_on_with_more("a free node")
        return True

    def victim(self, grace: timedelta) -> bool:
        """Flex, or the team's own lower-ranked work, in the island. While it has its time of grace the gang waits."""
        # Below 0 where work without known nodes holds more than works: that is missing as well.
        free = self._turn.floor.free.get(IslandKey(self._island, self._pool.sku), 0)
        preemption = Preemption(self._turn, self._asked, [self._spec], self._pool)
        victims = preemption.in_island(self._spec, self._island, self._lost - free)
        if victims is None:
            return False
        if not grace:
            evict(self._turn, victims, by=self._asked.spec.name)
            self._go_on_with_more("nodes that flex gave up")
            return True
        name = self._asked.spec.name
        stopped = PartPlaced(self._spec.name, ())
        self._turn.do(WorkloadPlaced(name, *self._pool, (stopped,), self._because, self._by, self._detail))
        places = (Place(self._spec.name, self._island, self._spec.gpus),)
        take_up(self._turn, self._asked, Offer(self._pool, True, places, tuple(victims), ()), grace=grace)
        return True

    def replica_away(self) -> bool:
        """Elastic replicas of the island run on in another one, whoever's they are."""
        floor, key = self._turn.floor, IslandKey(self._island, self._pool.sku)
        need = self._lost - floor.free.get(key, 0)
        options = []
        for held in held_in(self._turn, self._pool):
            if held.kind is Kind.ELASTIC and not held.is_spare and self._island in held.islands:
                unit = part_spec(self._turn, held).gpus
                if (times := (held.islands[self._island] - stuck_in(self._turn, held, self._island)) // unit) > 0:
                    options.append(Option(held, unit, unit, False, times))
        taken = fewest(options, need)
        if taken is None:
            return False
        plan = Plan([each for each in floor.by_pool.of(self._pool) if each[1] != self._island], 1)
        moves: list[tuple[Held, list[Place]]] = []
        for place_of, times in taken.chosen:
            held = options[place_of].who
            before = len(plan.places)
            if plan.put_replicas(part_spec(self._turn, held), times) < times:
                return False
            moves.append((held, plan.places[before:]))
        for held, places in moves:
            move_replicas(self._turn, held, self._pool, self._island, places, by=self._asked.spec.name)
        self._go_on_with_more("nodes that a replica left")
        return True

    def _go_on_with_more(self, how: str) -> None:
        nodes = self._turn.floor.pick(IslandKey(self._island, self._pool.sku)).take(self._lost)
        self._go_on((*self._left, Block(self._island, self._lost, nodes=nodes)), how)

    def _go_on(self, blocks: tuple[Block, ...], how: str) -> None:
        one = Block(self._island, self._spec.gpus, nodes=tuple(each for block in blocks for each in block.nodes))
        placed = PartPlaced(self._spec.name, (one,), self._spares)
        name = self._asked.spec.name
        detail = f"{self._detail}; goes on with {how}"
        self._turn.do(WorkloadPlaced(name, *self._pool, (placed,), Because.REPAIRED, self._by, detail))


def move_replicas(turn: Turn, held: Held, pool: PoolKey, island: str, places: Sequence[Place], *, by: str) -> None:
    """Replicas of a part leave an island for others of the pool."""
    gpus = sum(each.gpus for each in places)
    victim = Victim(held.work, held.part, island, gpus, False, held.team)
    evict(turn, [victim], by=by, because=Because.MOVED)
    asked = turn.work.asked[held.work]
    named = [Place(held.part, each.island, each.gpus) for each in places]
    place(turn, asked, pool, named, Because.MOVED, by=by)


def _leave_draining(turn: Turn, name: str, part_name: str) -> None:
    """Elastic replicas leave a node that drains, if there is room elsewhere; a gang stays until the node goes."""
    asked, workload = turn.work.asked[name], turn.work.workloads[name]
    spec = asked.spec.part(part_name)
    running = workload.running(part_name)
    if spec.is_gang or running is None:
        return
    gone = set(turn.floor.drains[name, part_name])
    pool = PoolKey(workload.cluster, running.sku)
    left = _whole_replicas(
        spec, [block for block in (_without_nodes(each, gone) for each in running.blocks) if block.gpus]
    )
    leaving = running.gpus - sum(block.gpus for block in left)
    plan = Plan(turn.floor.by_pool.of(pool), 1)
    if plan.put_replicas(spec, leaving // spec.gpus) * spec.gpus < leaving:
        return
    if turn.state.of(Health).ahead:
        # Where planned work is over it need not move again; only what finds no place there goes elsewhere.
        rather = Plan(rooms_without_work_ahead(turn, pool), 1)
        if rather.put_replicas(spec, leaving // spec.gpus) * spec.gpus == leaving:
            plan = rather
    _, by, detail = _loss(turn, gone)
    turn.do(WorkloadPlaced(name, *pool, (PartPlaced(part_name, left),), Because.MOVED, by, detail))
    place(turn, asked, pool, plan.places, Because.MOVED, by=by, detail=detail)
