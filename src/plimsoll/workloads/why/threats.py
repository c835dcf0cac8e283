"""What may happen to work that runs: bad nodes under it, nodes that go, planned work ahead, flex called back. Pure.

Where nobody told its nodes, its pool is judged: what is out, drains or is announced there, and what of the work the
order of loss takes for that. Where it takes nothing there is no threat; but the work may run there, and that is said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from plimsoll.fleet.model import Node, PoolKey, Service
from plimsoll.health.ahead import nodes_ahead
from plimsoll.health.attention import breakers_over
from plimsoll.health.facts import HealthFact
from plimsoll.health.fold import Health
from plimsoll.health.model import Ahead, Mark, is_planned
from plimsoll.quota.model import QuotaKey
from plimsoll.times import show_second
from plimsoll.words import counted
from plimsoll.workloads.losses import gpus_of, in_service, losses_in, lost_by_work, out_of_service, told_back, why_out
from plimsoll.workloads.reasons import Cause
from plimsoll.workloads.rights import Held, flex_by_team, flex_ratio, held_in
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.view import WorkView
from plimsoll.workloads.why.model import Threat

AHEAD_SHOWN = 5
"""So much planned work ahead of a pool is told one by one where nobody told the nodes; of the rest how much it is."""
_FOREVER = datetime.max.replace(tzinfo=UTC)


class Threats(NamedTuple):
    """What may happen to work, from lasting to passing; and what may concern it, as nobody told its nodes."""

    found: list[Threat]
    notes: list[str]


def threats_of(turn: Turn, view: WorkView, now: datetime) -> Threats:
    """All that anybody knows of."""
    found, notes = [*_called_back(turn, view), *_on_its_nodes(turn, view, now)], list[str]()
    for pool, islands in _untold(turn, view).items():
        more = _Pool(turn, view, pool, islands, now).threats()
        found += more.found
        notes += more.notes
    if flex := sum(part.flex for part in view.parts):
        found.append(Threat(Cause.FLEX_TAKEN, flex, _first_to_go(turn, view, flex)))
    return Threats(sorted(found, key=lambda each: (each.cause.place, -each.gpus)), notes)


def _called_back(turn: Turn, view: WorkView) -> Iterator[Threat]:
    for booker in view.leaves_for:
        booking = turn.work.bookings[booker]
        gpus = sum(victim.gpus for victim in booking.victims if victim.workload == view.workload)
        says = f"{gpus:,} GPUs of it were called back for {booker} and leave by {show_second(booking.due)}"
        yield Threat(Cause.PREEMPTED, gpus, says, booking.due)


# Where its nodes are known.


def _on_its_nodes(turn: Turn, view: WorkView, now: datetime) -> Iterator[Threat]:
    state, name = turn.state, view.workload
    lost, drain = _held(turn, turn.floor.lost, name), _held(turn, turn.floor.drains, name)
    if lost:
        says = f"{_some(lost)} under it {_are(lost)} out: it is repaired in the next round"
        yield Threat(Cause.NODE_LOST, gpus_of(lost), says)
    for planned in (True, False):
        if some := [node for node in drain if _is_planned(node) is planned]:
            what = f"{_some(some)} under it {'drain' if len(some) > 1 else 'drains'} ({why_out(state, some, now)})"
            says = f"{what}: it must leave {'them' if len(some) > 1 else 'it'}"
            yield Threat(Cause.PLANNED_WORK if planned else Cause.NODES_UNHEALTHY, gpus_of(some), says)
    mine = sorted({node for part in view.parts for node in part.nodes})
    yield from _bad(turn, mine)
    ahead = nodes_ahead(state.of(Health), mine, now=now, until=_FOREVER)
    works = {work.id: work for work in ahead.values()}
    for work in sorted(works.values(), key=lambda each: each.order):
        nodes = [turn.fleet.nodes[node] for node, each in ahead.items() if each.id == work.id]
        yield Threat(Cause.PLANNED_AHEAD, gpus_of(nodes), _takes(work, _some(nodes)), work.starts)


def _held(turn: Turn, table: Mapping[tuple[str, str], Sequence[str]], name: str) -> list[Node]:
    """The nodes that some parts of a workload have in a table of the floor."""
    nodes = {node for (work, _), some in table.items() if work == name for node in some}
    return [turn.fleet.nodes[node] for node in sorted(nodes)]


def _bad(turn: Turn, names: Sequence[str]) -> Iterator[Threat]:
    """Nodes that are bad and in service all the same, as when a breaker holds automation back."""
    health = turn.state.of(Health)
    alike: dict[tuple[str, str, str], list[Node]] = {}
    for name in names:
        node = turn.fleet.nodes[name]
        facts, scopes = health.facts_of(node), ", ".join(each.scope for each in breakers_over(health, node))
        is_bad = facts.health in (HealthFact.UNHEALTHY, HealthFact.DEGRADED)
        if node.service is Service.IN_SERVICE and (is_bad or scopes):
            how = facts.health.value if is_bad else "bad"
            alike.setdefault((how, facts.why if is_bad else "", scopes), []).append(node)
    for (how, why, scopes), nodes in sorted(alike.items()):
        what = f"{_some(nodes)} under it {_are(nodes)} {how}" + (f" ({why})" if why else "")
        them = "them" if len(nodes) > 1 else "it"
        held = f", and the breaker of {scopes} keeps automation from taking {them} out" if scopes else ""
        yield Threat(Cause.NODES_UNHEALTHY, gpus_of(nodes), what + (held or " and still in service"))


def _is_planned(node: Node) -> bool:
    return is_planned(Mark(node.service, node.reason))


def _are(nodes: Sequence[Node]) -> str:
    return "are" if len(nodes) > 1 else "is"


def _some(nodes: Sequence[Node]) -> str:
    return nodes[0].id if len(nodes) == 1 else f"{counted(len(nodes), 'node')} ({nodes[0].id}, …)"


def _takes(work: Ahead, what: str) -> str:
    return f"planned work ({work.reason}) takes {what} from {show_second(work.starts)} to {show_second(work.ends)}"


# Where nobody told them.


def _untold(turn: Turn, view: WorkView) -> dict[PoolKey, set[str]]:
    """By pool the islands in which it holds GPUs of nobody knows which nodes."""
    workload = turn.work.workloads[view.workload]
    found: dict[PoolKey, set[str]] = {}
    for part in workload.parts:
        for block in part.blocks:
            if sum(gpus for _, gpus in block.nodes) < block.gpus:
                found.setdefault(PoolKey(workload.cluster, part.sku), set()).add(block.island)
    return found


class _Pool:
    """A pool of which work holds GPUs on nobody knows which nodes, in these islands."""

    def __init__(self, turn: Turn, view: WorkView, key: PoolKey, islands: Collection[str], now: datetime) -> None:
        self._state, self._view, self._key, self._islands, self._now = turn.state, view, key, islands, now
        self._nodes = {
            node.id: node
            for node in turn.fleet.nodes.values()
            if PoolKey(node.cluster, node.sku) == key and node.service is not Service.RETIRED
        }
        self._out, self._working = out_of_service(turn.state, [key])[key], in_service(turn.state, key)
        self._lost = self._taken(self._working)

    def threats(self) -> Threats:
        """What is out or drains, and then what is announced."""
        found, notes = list[Threat](), list[str]()
        drain, out = self._out.drain, self._out.gone
        gone = min(self._lost, self._taken(self._working + gpus_of(drain)))
        if gone:
            says = f"fewer GPUs of {self._key.cluster} work than run work"
            if out:
                says = f"{self._share(out)} are out ({why_out(self._state, out, self._now)})"
            says += f": by the order of loss {gone:,} of its {self._view.gpus:,} GPUs are lost"
            found.append(Threat(_cause(out), gone, says))
        if drain:
            says = f"{self._share(drain)} drain ({why_out(self._state, drain, self._now)})"
            if goes := self._lost - gone:
                found.append(Threat(_cause(drain), goes, f"{says}{self._gives_up(drain, goes)} when they go"))
            elif self._may_hit(drain):
                notes.append(self._unsure(says))
        ahead = self._ahead()
        return Threats(found + ahead.found, notes + ahead.notes)

    def _ahead(self) -> Threats:
        """Announced work: what the order of loss takes for it."""
        ahead_of = self._state.of(Health).ahead_of
        known = {work.id: work for name in self._nodes for work in ahead_of.get(name, ())}
        works = sorted((work for work in known.values() if self._is_ahead(work)), key=lambda each: each.order)
        taken, harmless = list[tuple[Ahead, int]](), list[Ahead]()
        for work in works:
            if gpus := self._taken_by(work, works):
                taken.append((work, gpus))
            elif self._may_hit(self._nodes_of(work)):
                harmless.append(work)
        found, notes = list[Threat](), list[str]()
        for work, gpus in taken[:AHEAD_SHOWN]:
            nodes = self._nodes_of(work)
            says = _takes(work, self._share(nodes)) + self._gives_up(nodes, gpus)
            found.append(Threat(Cause.PLANNED_AHEAD, gpus, says, work.starts))
        if later := [work for work, _ in taken[AHEAD_SHOWN:]]:
            times = counted(len(later), "time")
            notes.append(
                f"planned work takes nodes of its pool {times} more, the last to {show_second(later[-1].ends)}"
            )
        if harmless:
            says = _takes(harmless[0], self._share(self._nodes_of(harmless[0])))
            if times_more := len(harmless) - 1:
                last = show_second(harmless[-1].ends)
                says += f", and other nodes {counted(times_more, 'time')} more until {last}"
            notes.append(self._unsure(says))
        return Threats(found, notes)

    def _is_ahead(self, work: Ahead) -> bool:
        """Whether it has not begun: once its nodes are out, that is what is told of them."""
        is_due = work.starts <= self._now
        has_begun = is_due and all(node.service is not Service.IN_SERVICE for node in self._nodes_of(work))
        return not has_begun and not work.is_over(self._now)

    def _taken_by(self, work: Ahead, works: Sequence[Ahead]) -> int:
        """What announced work takes of it, together with what else goes on then. Nodes that are out now are back by
        then, if that was told.
        """
        back = [
            node
            for node in self._out.nodes
            if (told := told_back(self._state, node, self._now)) is not None and told <= work.starts
        ]
        then = self._working + gpus_of(back)
        there = {name for name, node in self._nodes.items() if node.service is Service.IN_SERVICE}
        there |= {node.id for node in back}
        together = (each for each in works if each.starts < work.ends and work.starts < each.ends)
        gone = there & {name for each in together for name in each.nodes}
        return max(0, self._taken(then - gpus_of(self._nodes[name] for name in gone)) - self._taken(then))

    def _taken(self, working: int) -> int:
        """GPUs that the order of loss takes of it while so many of the pool's work."""
        return lost_by_work(losses_in(self._state, self._key, working=working)).get(self._view.workload, 0)

    def _nodes_of(self, work: Ahead) -> list[Node]:
        return [self._nodes[name] for name in work.nodes if name in self._nodes]

    def _may_hit(self, nodes: Sequence[Node]) -> bool:
        return any(node.island in self._islands for node in nodes)

    def _share(self, nodes: Sequence[Node]) -> str:
        share = f"all {len(self._nodes):,}" if self._is_all(nodes) else f"{len(nodes):,} of the {len(self._nodes):,}"
        return f"{share} {self._key.sku} nodes of {self._key.cluster}"

    def _is_all(self, nodes: Sequence[Node]) -> bool:
        return len(nodes) == len(self._nodes)

    def _gives_up(self, nodes: Sequence[Node], gpus: int) -> str:
        """Where all nodes of the pool go, nobody needs to be told on which it runs."""
        says = f"it gives up {gpus:,} of its {self._view.gpus:,} GPUs"
        return f": {says}" if self._is_all(nodes) else f"; nobody told on which it runs: by the order of loss {says}"

    def _unsure(self, says: str) -> str:
        more = " more" if self._lost else ""
        return f"{says}: it may run on them, as nobody told its nodes; by the order of loss it gives up nothing{more}"


def _cause(nodes: Sequence[Node]) -> Cause:
    """What most of these are out for."""
    planned = gpus_of(node for node in nodes if _is_planned(node))
    return Cause.PLANNED_WORK if nodes and 2 * planned >= gpus_of(nodes) else Cause.NODES_UNHEALTHY


# Flex.


def _first_to_go(turn: Turn, view: WorkView, flex: int) -> str:
    """Flex goes when a guarantee needs it: how much of the pool's flex goes before."""
    pool = PoolKey(view.cluster, view.sku)
    held = [each for each in held_in(turn, pool) if each.flex]
    order = going_order(turn, pool, held)
    place = next(place for place, each in enumerate(order) if each.work == view.workload)
    before = sum(each.flex for each in order[:place])
    first = "it goes first" if not before else f"{before:,} GPUs of other flex go before it"
    return (
        f"{flex:,} GPUs of it are flex and go when a guarantee needs them; of the flex in {view.cluster} {first}"
        " where that is enough"
    )


def going_order(turn: Turn, pool: PoolKey, held: Sequence[Held]) -> list[Held]:
    """Flex in the order in which it is called back: spares, then whoever holds most flex for its guarantee, the last of
    its own order first.
    """
    flex = flex_by_team(held)
    ratios = {team: flex_ratio(gpus, turn.book.guaranteed.get(QuotaKey(team, *pool), 0)) for team, gpus in flex.items()}
    found = sorted(held, key=lambda each: each.order, reverse=True)
    found.sort(key=lambda each: each.team)
    found.sort(key=lambda each: _weight(ratios[each.team]), reverse=True)
    found.sort(key=lambda each: not each.is_spare)
    return found


def _weight(ratio: float | None) -> tuple[bool, float]:
    return ratio is None, ratio or 0.0
