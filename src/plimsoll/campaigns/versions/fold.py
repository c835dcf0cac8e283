"""How events become the versions on nodes, and the count of each combination in each cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

import msgspec

from plimsoll.campaigns.versions.changes import CombinationTested, ComponentsRelevant, VersionsRecorded, VersionWanted
from plimsoll.campaigns.versions.model import Combination, Installed, Presence, Trial, Wanted, in_order, with_versions
from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.fleet.selector import Scope
from plimsoll.health.changes import NodeMoved
from plimsoll.ledger.model import Event
from plimsoll.state.state import Room, State, Tables
from plimsoll.state.table import Journal, Table

RELEVANT = "relevant"


class _Dump(msgspec.Struct):
    installed: list[tuple[str, Combination, datetime, list[str]]]
    wanted: list[Wanted]
    tested: list[tuple[Combination, tuple[Trial, ...]]]
    releases: list[tuple[str, tuple[str, ...]]]
    relevant: tuple[str, ...]


class Versions(Tables):
    """What is on the nodes. A retired node is forgotten: if it comes back, somebody has to look at it again."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.nodes: Table[str, Installed] = Table(journal)
        self.wanted: Table[tuple[str, Scope], Wanted] = Table(journal)
        self.tested: Table[Combination, tuple[Trial, ...]] = Table(journal)
        self.releases: Table[str, tuple[str, ...]] = Table(journal)
        """Every version of a component that was ever named, the oldest first."""
        self._relevant: Table[str, tuple[str, ...]] = Table(journal)
        # Derived from the nodes.
        self.presence: Table[Installed, Presence] = Table(journal)
        self._shared: dict[Installed, Installed] = {}

    @property
    def relevant(self) -> tuple[str, ...] | None:
        """The components by which combinations are told apart; None where all count."""
        return self._relevant.get(RELEVANT) or None

    @property
    def results(self) -> list[Trial]:
        return [tested for _, found in sorted(self.tested.items()) for tested in found]

    def combination_of(self, node: str) -> Combination:
        installed = self.nodes.get(node)
        return installed.combination if installed else ()

    def put_node(self, node: str, installed: Installed) -> None:
        """Enter what a node has; the counts are moved by `move_counts`."""
        if installed.combination:
            self.nodes.put(node, self._shared.setdefault(installed, installed))
        elif node in self.nodes:
            self.nodes.drop(node)

    def move_counts(self, moves: Counter[tuple[Installed | None, Installed]], at: datetime) -> None:
        """So many nodes went from one combination to another; those that came count before those that left, so that
        what stays is not taken for new."""
        for (_, after), nodes in moves.items():
            self._count(after, nodes, at)
        for (before, _), nodes in moves.items():
            if before is not None:
                self._count(before, -nodes, at)

    def _count(self, installed: Installed, more: int, at: datetime) -> None:
        if not installed.combination:
            return
        known = self.presence.get(installed)
        nodes = (known.nodes if known else 0) + more
        if nodes:
            self.presence.put(installed, Presence(nodes, known.since if known else at))
        else:
            self.presence.drop(installed)

    def add_releases(self, pairs: Iterable[tuple[str, str]]) -> None:
        for component, version in pairs:
            known = self.releases.get(component, ())
            if version and version not in known:
                self.releases.put(component, tuple(in_order((*known, version))))

    def put_relevant(self, components: tuple[str, ...]) -> None:
        self._relevant.put(RELEVANT, components)

    def dump(self) -> bytes:
        groups: dict[Installed, list[str]] = {}
        for node, installed in self.nodes.items():
            groups.setdefault(installed, []).append(node)
        return msgspec.msgpack.encode(
            _Dump(
                [
                    (*installed, self.presence[installed].since, sorted(nodes))
                    for installed, nodes in sorted(groups.items())
                ],
                [wanted for _, wanted in sorted(self.wanted.items(), key=lambda item: (item[0][0], str(item[0][1])))],
                sorted(self.tested.items()),
                sorted(self.releases.items()),
                self._relevant.get(RELEVANT, ()),
            )
        )

    def load(self, body: bytes) -> None:
        dump = msgspec.msgpack.decode(body, type=_Dump)
        for cluster, combination, since, nodes in dump.installed:
            installed = Installed(cluster, combination)
            self._shared[installed] = installed
            self.presence.put(installed, Presence(len(nodes), since))
            for node in nodes:
                self.nodes.put(node, installed)
        for wanted in dump.wanted:
            self.wanted.put((wanted.component, wanted.scope), wanted)
        for combination, found in dump.tested:
            self.tested.put(combination, found)
        for component, versions in dump.releases:
            self.releases.put(component, versions)
        if dump.relevant:
            self.put_relevant(dump.relevant)


ROOM = Room("versions", version=1, tables=Versions)


@ROOM.folds_change(VersionsRecorded)
def _fold_recorded(state: State, change: VersionsRecorded, event: Event) -> None:
    versions, nodes = state.of(Versions), state.of(Fleet).nodes
    moves: Counter[tuple[Installed | None, Installed]] = Counter()
    after: dict[tuple[Installed | None, str], Installed] = {}
    for name in change.nodes:
        node = nodes.get(name)
        if node is None or node.service is Service.RETIRED:
            continue  # it left while somebody looked
        before = versions.nodes.get(name)
        installed = after.get((before, node.cluster))
        if installed is None:
            made = Installed(node.cluster, with_versions(before.combination if before else (), change.versions))
            installed = after[before, node.cluster] = made
        versions.put_node(name, installed)
        moves[before, installed] += 1
    versions.move_counts(moves, event.effective_time)
    versions.add_releases(change.versions.items())


@ROOM.folds_change(NodeRecorded)
def _fold_node(state: State, change: NodeRecorded, event: Event) -> None:
    """A retired node has nothing on it any more; one that stands in another cluster takes its versions along."""
    if change.was:  # else a new node: nearly all of an import
        _follow(state, change.node, event)


@ROOM.folds_change(NodeMoved)
def _fold_moved(state: State, change: NodeMoved, event: Event) -> None:
    if change.service is Service.RETIRED:
        _follow(state, state.of(Fleet).nodes[change.node], event)


def _follow(state: State, node: Node, event: Event) -> None:
    versions = state.of(Versions)
    before = versions.nodes.get(node.id)
    if before is None or (node.service is not Service.RETIRED and node.cluster == before.cluster):
        return
    combination = () if node.service is Service.RETIRED else before.combination
    installed = Installed(node.cluster, combination)
    versions.put_node(node.id, installed)
    versions.move_counts(Counter({(before, installed): 1}), event.effective_time)


@ROOM.folds_change(VersionWanted)
def _fold_wanted(state: State, change: VersionWanted, event: Event) -> None:
    versions, key = state.of(Versions), (change.component, change.scope)
    if change.version:
        wanted = Wanted(change.component, change.version, change.scope, event.effective_time, event.actor, event.reason)
        versions.wanted.put(key, wanted)
        versions.add_releases([(change.component, change.version)])
    elif key in versions.wanted:
        versions.wanted.drop(key)


@ROOM.folds_change(CombinationTested)
def _fold_tested(state: State, change: CombinationTested, event: Event) -> None:
    versions, combination = state.of(Versions), change.combination
    tested = Trial(combination, change.result, event.effective_time, event.actor, change.where, change.note)
    versions.tested.put(combination, (*versions.tested.get(combination, ()), tested))
    versions.add_releases(combination)


@ROOM.folds_change(ComponentsRelevant)
def _fold_relevant(state: State, change: ComponentsRelevant, _event: Event) -> None:
    state.of(Versions).put_relevant(tuple(sorted(set(change.components))))
