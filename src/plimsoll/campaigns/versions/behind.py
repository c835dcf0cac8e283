"""How far each cluster is behind the versions that are wanted, and why. Pure.

What is wanted on a node is what was said last: by `campaign want`, or by a campaign that the node is in the scope of.
A node is behind while it has an older version, or none that anybody knows; a newer one is not behind.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date, datetime
from typing import NamedTuple

import msgspec

from plimsoll.campaigns.versions.courses import Bite, Course, Update
from plimsoll.campaigns.versions.decide import live_nodes, matches_node
from plimsoll.campaigns.versions.fold import Versions
from plimsoll.campaigns.versions.model import in_order, version_order
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.fleet.selector import CLUSTER_KEYS, SKU_KEY, Scope


class Reason(enum.StrEnum):
    """Why a node is behind, from lasting to passing."""

    NO_CAMPAIGN = "no_campaign"
    DID_NOT_RETURN = "did_not_return"
    LATE = "late"
    NO_FLY = "no_fly"
    PLANNED = "planned"
    UNDER_WAY = "under_way"


class Cause(msgspec.Struct, frozen=True):
    """Nodes that are behind for one reason. `on` is the last day that matters: of a plan, or of a no-fly zone."""

    reason: Reason
    nodes: int
    on: date | None = None
    campaign: str = ""
    why: str = ""


class Lag(msgspec.Struct, frozen=True):
    """A component of a cluster. `releases`: by how many known versions the furthest node is behind; None where its
    version is not known. `since`: when the wanted version was first asked for."""

    cluster: str
    component: str
    wanted: str
    nodes: int
    behind: int
    unknown: int
    oldest: str
    releases: int | None
    since: datetime
    days: int
    causes: tuple[Cause, ...]


class _Wish(NamedTuple):
    """A version somebody wants, and where."""

    since: datetime
    component: str
    version: str
    means: Callable[[Node], bool]


class _Slot(NamedTuple):
    course: Course
    update: Update


def lags(
    fleet: Fleet,
    versions: Versions,
    courses: Sequence[Course],
    *,
    now: datetime,
    is_all: bool = False,
    names: Collection[str] | None = None,
) -> list[Lag]:
    """Every cluster and component that is behind, the furthest first; with `is_all` also what is where it should be.

    `names`: only these nodes are looked at.
    """
    wishes: dict[str, list[_Wish]] = {}
    for each in sorted(_wishes(fleet, versions, courses), key=lambda wish: wish.since, reverse=True):
        wishes.setdefault(each.component, []).append(each)
    slots = _slots(courses)
    releases = _releases(versions, courses)
    tallies: dict[tuple[str, str, str], _Tally] = {}
    nodes = [node for node in live_nodes(fleet) if names is None or node.id in names]
    on = {node.id: dict(versions.combination_of(node.id)) for node in nodes}
    for component, listed in sorted(wishes.items()):
        for node in nodes:
            wish = next((wish for wish in listed if wish.means(node)), None)
            if wish is None:
                continue
            key = (node.cluster, component, wish.version)
            tally = tallies.get(key)
            if tally is None:
                tally = tallies[key] = _Tally(wish)
            if tally.count(on[node.id].get(component, "")):
                tally.causes[_cause(node, wish, slots, now)] += 1
    found = [tally.lag(key, releases.get(key[1], []), now) for key, tally in tallies.items() if is_all or tally.behind]
    return sorted(found, key=lambda lag: (-lag.behind, -(lag.releases or 0), lag.cluster, lag.component, lag.wanted))


class _Tally:
    """What is counted of one cluster, component and wanted version."""

    def __init__(self, wish: _Wish) -> None:
        self.wish = wish
        self.nodes = self.behind = self.unknown = 0
        self.olds: set[str] = set()
        self.causes: Counter[tuple[Reason, date | None, str, str]] = Counter()
        self._known: dict[str, bool] = {}
        self._order = version_order(wish.version)

    def count(self, version: str) -> bool:
        """Count a node, and say whether it is behind."""
        self.nodes += 1
        is_behind = self._known.get(version)
        if is_behind is None:
            is_behind = self._known[version] = not version or version_order(version) < self._order
        if is_behind:
            self.behind += 1
            if version:
                self.olds.add(version)
            else:
                self.unknown += 1
        return is_behind

    def lag(self, key: tuple[str, str, str], releases: Sequence[str], now: datetime) -> Lag:
        oldest = in_order(self.olds)[0] if self.olds else ""
        places = {version: place for place, version in enumerate(releases)}
        order = list(Reason)
        causes = sorted(self.causes.items(), key=lambda item: (order.index(item[0][0]), -item[1], str(item[0])))
        return Lag(
            *key,
            nodes=self.nodes,
            behind=self.behind,
            unknown=self.unknown,
            oldest=oldest,
            releases=places[self.wish.version] - places[oldest] if oldest else None if self.unknown else 0,
            since=self.wish.since,
            days=max(0, (now - self.wish.since).days) if self.behind else 0,
            causes=tuple(Cause(reason, nodes, on, name, why) for (reason, on, name, why), nodes in causes),
        )


class _Means:
    """Whether a scope means a node; asked once for all that are alike to it."""

    def __init__(self, fleet: Fleet, scope: Scope) -> None:
        self._fleet, self._scope = fleet, scope
        self._labels = [key for key, _ in scope.terms if key not in {*CLUSTER_KEYS, SKU_KEY}]
        self._known: dict[tuple[str | None, ...], bool] = {}

    def __call__(self, node: Node) -> bool:
        alike = (node.cluster, node.sku, *(node.labels.get(key) for key in self._labels))
        found = self._known.get(alike)
        if found is None:
            found = self._known[alike] = matches_node(self._scope, node, self._fleet)
        return found


class _Members:
    """Whether a node is one of a campaign's."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def __call__(self, node: Node) -> bool:
        return node.id in self._names


def _wishes(fleet: Fleet, versions: Versions, courses: Iterable[Course]) -> Iterable[_Wish]:
    for wanted in versions.wanted.values():
        yield _Wish(wanted.since, wanted.component, wanted.version, _Means(fleet, wanted.scope))
    for course in courses:
        means = _Members({name for update in course.updates for name in update.nodes})
        for change in course.campaign.changes:
            yield _Wish(course.since, change.component, change.version, means)


def _releases(versions: Versions, courses: Iterable[Course]) -> dict[str, list[str]]:
    """Every version of a component that anybody has named, the oldest first; those that rank alike count once."""
    named: dict[str, set[str]] = {component: set(found) for component, found in versions.releases.items()}
    for course in courses:
        for change in course.campaign.changes:
            named.setdefault(change.component, set()).add(change.version)
    return {component: in_order(found) for component, found in named.items()}


def _slots(courses: Iterable[Course]) -> dict[tuple[str, str], dict[str, _Slot]]:
    """By component and version, the update that brings it to each node; the newest plan's."""
    found: dict[tuple[str, str], dict[str, _Slot]] = {}
    for course in courses:
        for pair in course.versions.items():
            by_node = found.setdefault(pair, {})
            for update in course.updates:
                slot = _Slot(course, update)
                by_node.update(dict.fromkeys(update.nodes, slot))
    return found


def _cause(
    node: Node, wish: _Wish, slots: dict[tuple[str, str], dict[str, _Slot]], now: datetime
) -> tuple[Reason, date | None, str, str]:
    slot = slots.get((wish.component, wish.version), {}).get(node.id)
    if slot is None:
        return Reason.NO_CAMPAIGN, None, "", ""
    course, update = slot
    name, day = course.campaign.name, update.starts.date()
    if node.id in update.lost or (update.is_over and node.service is not Service.IN_SERVICE):
        return Reason.DID_NOT_RETURN, day, name, node.reason
    if update.is_over or course.is_over:
        return Reason.LATE, day, name, "its update is over, and nobody has recorded the new version"
    if update.is_begun:
        return Reason.UNDER_WAY, day, name, ""
    if update.ends <= now:
        return Reason.LATE, day, name, "its update was to be over by now"
    if (bite := _bite_now(course, update, now)) is not None:
        return Reason.NO_FLY, bite.zone.to_day, name, bite.zone.why or str(bite.zone.scope)
    return Reason.PLANNED, day, name, ""


def _bite_now(course: Course, update: Update, now: datetime) -> Bite | None:
    """The no-fly zone that keeps an update from being done today."""
    today = now.astimezone(update.starts.tzinfo).date()
    return next((b for b in course.holding(update) if b.first_day <= today <= b.zone.to_day), None)
