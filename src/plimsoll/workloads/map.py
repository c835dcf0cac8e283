"""The fleet as a map: every node in its island, in columns, so that 18,500 of them are drawn at once. Pure.

Decides nothing: it only says what is where. Words that repeat stand once in a list, and columns hold their places in
it. Observed work is known by island, not by node: it is told with the island.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from plimsoll.fleet.model import Node, Service
from plimsoll.health.facts import HealthFact
from plimsoll.health.fold import Health
from plimsoll.health.silence import facts_seen
from plimsoll.state.state import State
from plimsoll.workloads.fold_tables import Workloads


class MapIsland(msgspec.Struct, frozen=True):
    """An island: its nodes, and what runs in it, as pairs of a place in `works` and GPUs."""

    island: str
    cluster: str
    nodes: int
    gpus: int
    gpus_in_service: int
    work: tuple[tuple[int, int], ...]


class MapWork(msgspec.Struct, frozen=True):
    """A workload that runs somewhere on the map."""

    workload: str
    team: str


class MapNodes(msgspec.Struct, frozen=True):
    """Columns, one entry a node, islands one after the other. Times are seconds since 1970, 0 where nobody said.

    `work` are places in `works` of what is known to run on the node itself.
    """

    node: list[str]
    island: list[int]
    sku: list[int]
    gpus: list[int]
    service: list[int]
    health: list[int]
    reason: list[int]
    since: list[int]
    back: list[int]
    work: list[tuple[int, ...]]


class FleetMap(msgspec.Struct, frozen=True):
    """All of it. The first of the `reasons` is the empty one."""

    services: list[str]
    healths: list[str]
    reasons: list[str]
    skus: list[str]
    works: list[MapWork]
    islands: list[MapIsland]
    nodes: MapNodes


class _Places:
    """A list of words, each once, and the place of each."""

    def __init__(self, first: Iterable[str] = ()) -> None:
        self.words = list(first)
        self._places = {word: place for place, word in enumerate(self.words)}

    def of(self, word: str) -> int:
        place = self._places.get(word)
        if place is None:
            place = self._places[word] = len(self.words)
            self.words.append(word)
        return place


SERVICES = [service.value for service in Service]
HEALTHS = [fact.value for fact in HealthFact]
_SERVICE_PLACE = {service: place for place, service in enumerate(Service)}
_HEALTH_PLACE = {fact: place for place, fact in enumerate(HealthFact)}


def fleet_map(state: State, nodes: Iterable[Node], *, silent: Mapping[str, datetime] | None = None) -> FleetMap:
    """These nodes on a map. `silent` are feeds that have fallen silent: nobody vouches for their nodes."""
    members: dict[tuple[str, str], list[Node]] = {}
    for node in nodes:
        members.setdefault((node.cluster, node.island), []).append(node)
    health = state.of(Health)
    reasons, skus = _Places([""]), _Places()
    works, in_island, on_node = _running(state, {island for _, island in members})
    columns = MapNodes([], [], [], [], [], [], [], [], [], [])
    islands = []
    for place, ((cluster, island), inside) in enumerate(sorted(members.items())):
        islands.append(_island(island, cluster, inside, in_island.get(island, {})))
        for node in inside:
            facts = facts_seen(health, node, silent or ())
            columns.node.append(node.id)
            columns.island.append(place)
            columns.sku.append(skus.of(node.sku))
            columns.gpus.append(node.gpus)
            columns.service.append(_SERVICE_PLACE[node.service])
            columns.health.append(_HEALTH_PLACE[facts.health])
            columns.reason.append(reasons.of(facts.why or node.reason))
            columns.since.append(_seconds(node.since))
            columns.back.append(_seconds(facts.expected_return))
            columns.work.append(on_node.get(node.id, ()))
    return FleetMap(SERVICES, HEALTHS, reasons.words, skus.words, works, islands, columns)


def _island(island: str, cluster: str, inside: list[Node], work: Mapping[int, int]) -> MapIsland:
    return MapIsland(
        island=island,
        cluster=cluster,
        nodes=len(inside),
        gpus=sum(node.gpus for node in inside),
        gpus_in_service=sum(node.gpus for node in inside if node.service is Service.IN_SERVICE),
        work=tuple(sorted(work.items(), key=lambda pair: (-pair[1], pair[0]))),
    )


def _running(
    state: State, islands: set[str]
) -> tuple[list[MapWork], dict[str, dict[int, int]], dict[str, tuple[int, ...]]]:
    """What runs in these islands, and on which nodes where that is known."""
    works: list[MapWork] = []
    in_island: dict[str, dict[int, int]] = {}
    on_node: dict[str, tuple[int, ...]] = {}
    for _, workload in sorted(state.of(Workloads).workloads.items()):
        blocks = [block for part in workload.parts for block in part.blocks if block.island in islands]
        if not blocks:
            continue
        place = len(works)
        works.append(MapWork(workload.id, workload.team))
        for block in blocks:
            held = in_island.setdefault(block.island, {})
            held[place] = held.get(place, 0) + block.gpus
            for node, _gpus in block.nodes:
                others = on_node.get(node, ())
                if place not in others:
                    on_node[node] = (*others, place)
    return works, in_island, on_node


def _seconds(moment: datetime | None) -> int:
    return int(moment.timestamp()) if moment is not None else 0


MAP_COLUMNS = (
    "node", "island", "cluster", "sku", "gpus", "service", "health", "reason", "since", "expected_return", "workloads",
)  # fmt: skip


def map_rows(found: FleetMap) -> list[tuple[object, ...]]:
    """One row a node, in words, under `MAP_COLUMNS`."""
    nodes = found.nodes
    return [
        (
            nodes.node[place],
            found.islands[nodes.island[place]].island,
            found.islands[nodes.island[place]].cluster,
            found.skus[nodes.sku[place]],
            nodes.gpus[place],
            found.services[nodes.service[place]],
            found.healths[nodes.health[place]],
            found.reasons[nodes.reason[place]],
            _moment(nodes.since[place]),
            _moment(nodes.back[place]),
            " ".join(found.works[each].workload for each in nodes.work[place]),
        )
        for place in range(len(nodes.node))
    ]


def _moment(seconds: int) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None
