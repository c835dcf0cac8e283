"""Which combinations of versions exist, which will while plans run, and which of them were tested together. Pure.

Each update of a plan moves its nodes at its end. Between the first update and the last the fleet is mixed: that is when
combinations exist that nobody ever tried. Combinations are seen through the relevant components (see `versions.judge`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import groupby

import msgspec

from plimsoll.campaigns.versions.canaries import Cover, cover
from plimsoll.campaigns.versions.courses import Course, Update
from plimsoll.campaigns.versions.fold import Versions
from plimsoll.campaigns.versions.model import Combination, Installed, Trial, Verdict, judge, seen_through, with_versions
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service


class Place(msgspec.Struct, frozen=True):
    """A combination in one cluster: nodes now, at most, and when all updates are over; from when until when.

    `since` is None where it is there now and nobody has said since when; `until` is None where it stays.
    """

    cluster: str
    nodes_now: int
    nodes_most: int
    nodes_after: int
    since: datetime | None
    until: datetime | None


class Listed(msgspec.Struct, frozen=True):
    """A combination that exists or will. `is_made`: some update makes it. `made_by` and `held_by`: the campaigns that
    make it, and why the no-fly zones that keep it alive exist."""

    combination: Combination
    verdict: Verdict
    tested: Trial | None
    nodes_now: int
    nodes_most: int
    nodes_after: int
    since: datetime | None
    until: datetime | None
    is_made: bool
    made_by: tuple[str, ...]
    held_by: tuple[str, ...]
    clusters: tuple[Place, ...]


class Listing(msgspec.Struct, frozen=True):
    """All combinations, those that failed or were never tested first, and the clusters to try the untested ones in."""

    combinations: tuple[Listed, ...]
    canaries: Cover
    relevant: tuple[str, ...] | None


class _Track:
    """A count over time."""

    __slots__ = ("is_seen", "most", "nodes", "now", "since", "until")

    def __init__(self) -> None:
        self.now = self.nodes = self.most = 0
        self.since: datetime | None = None
        self.until: datetime | None = None
        self.is_seen = False

    def begin(self, nodes: int, since: datetime | None) -> None:
        """So many nodes more have it now."""
        self.since = min(self.since, since) if self.since and since else since
        self.is_seen = True
        self.now = self.nodes = self.most = self.now + nodes

    def settle(self, at: datetime) -> None:
        """All updates of a moment are done. What came and went within it never was."""
        if self.nodes:
            if not self.is_seen:
                self.since, self.is_seen = at, True
            self.most, self.until = max(self.most, self.nodes), None
        elif self.is_seen and self.until is None:
            self.until = at


class _Course:
    """The fleet's combinations on their way through all updates."""

    def __init__(self, fleet: Fleet, versions: Versions, relevant: Collection[str] | None) -> None:
        self._fleet, self._versions, self._relevant = fleet, versions, relevant
        self.places: dict[Installed, _Track] = {}
        self.totals: dict[Combination, _Track] = {}
        self.made_by: dict[Combination, set[str]] = {}
        self.held_by: dict[Combination, set[str]] = {}
        self.made_in: dict[str, set[Combination]] = {}
        self.moved: Counter[str] = Counter()
        self._on: dict[str, Combination] = {}
        self._seen: dict[Combination, Combination] = {}
        self._begin()

    def _through(self, combination: Combination) -> Combination:
        seen = self._seen.get(combination)
        if seen is None:
            seen = self._seen[combination] = seen_through(combination, self._relevant)
        return seen

    def _begin(self) -> None:
        unknown: Counter[str] = Counter()
        for pool, count in self._fleet.pools.items():
            unknown[pool.cluster] += count.nodes
        for installed, presence in sorted(self._versions.presence.items()):
            unknown[installed.cluster] -= presence.nodes
            self._count(installed.cluster, self._through(installed.combination), presence.nodes, presence.since)
        for cluster, nodes in unknown.items():
            if nodes > 0:
                self._count(cluster, (), nodes, None)

    def _count(self, cluster: str, combination: Combination, nodes: int, since: datetime | None) -> None:
        self.places.setdefault(Installed(cluster, combination), _Track()).begin(nodes, since)
        self.totals.setdefault(combination, _Track()).begin(nodes, since)

    def go(self, at: datetime, updates: Iterable[tuple[Course, Update]]) -> None:
        """Everything that ends at one moment."""
        steps: Counter[tuple[str, Combination, Combination]] = Counter()
        made: list[tuple[str, Combination, str]] = []
        for course, update in updates:
            mine = self._step(course, update)
            steps += mine
            made += [(cluster, after, course.campaign.name) for cluster, _, after in mine]
            zones = {each.zone.why or str(each.zone.scope) for each in course.holding(update)}
            for _, before, _ in mine if zones else ():
                self.held_by.setdefault(before, set()).update(zones)
        touched: set[Installed] = set()
        for (cluster, before, after), nodes in steps.items():
            for combination, more in ((before, -nodes), (after, nodes)):
                installed = Installed(cluster, combination)
                self.places.setdefault(installed, _Track()).nodes += more
                self.totals.setdefault(combination, _Track()).nodes += more
                touched.add(installed)
        for installed in touched:
            self.places[installed].settle(at)
        for combination in {installed.combination for installed in touched}:
            self.totals[combination].settle(at)
        for cluster, combination, campaign in made:
            if self.places[Installed(cluster, combination)].nodes:
                self.made_by.setdefault(combination, set()).add(campaign)
                self.made_in.setdefault(cluster, set()).add(combination)

    def _step(self, course: Course, update: Update) -> Counter[tuple[str, Combination, Combination]]:
        """From what to what the nodes of an update go, those that have the versions already left out."""
        nodes, versions = self._fleet.nodes, course.versions
        steps: Counter[tuple[str, Combination, Combination]] = Counter()
        known: dict[Combination, Combination] = {}
        for name in update.nodes:
            node = nodes.get(name)
            if node is None or node.service is Service.RETIRED:
                continue
            whole = self._on.get(name)
            if whole is None:
                whole = self._versions.combination_of(name)
            after = known.get(whole)
            if after is None:
                after = known[whole] = with_versions(whole, versions)
            self._on[name] = after
            if (now := self._through(whole)) != (then := self._through(after)):
                steps[node.cluster, now, then] += 1
                self.moved[node.cluster] += 1
        return steps


def list_combinations(
    fleet: Fleet, versions: Versions, courses: Sequence[Course], *, relevant: Collection[str] | None = None
) -> Listing:
    """Every combination that exists or will exist while these plans run. Turns that are over have happened already:
    what they made is on the nodes.

    `relevant` are the components that count: those that the ledger names where this is None, with whatever the plans
    change; all where it names none.
    """
    relevant = relevant_components(versions, courses) if relevant is None else tuple(sorted(relevant))
    course_now = _Course(fleet, versions, relevant)
    ahead = [course for course in courses if not course.is_over]
    updates = [(course, update) for course in ahead for update in course.updates if not update.is_over]
    updates.sort(key=lambda pair: pair[1].ends)  # of two that end at once the newer plan comes last
    for at, group in groupby(updates, key=lambda pair: pair[1].ends):
        course_now.go(at, group)
    results = versions.results
    places: dict[Combination, list[Place]] = {}
    for installed, track in sorted(course_now.places.items()):
        if track.is_seen:
            place = Place(installed.cluster, track.now, track.most, track.nodes, track.since, track.until)
            places.setdefault(installed.combination, []).append(place)
    listed = [
        _listed(combination, course_now, tuple(found), judge(combination, results, relevant))
        for combination, found in places.items()
    ]
    listed.sort(key=lambda each: (_ORDER[each.verdict], -each.nodes_most, each.combination))
    return Listing(tuple(listed), _canaries(listed, course_now), relevant)


_ORDER = {verdict: place for place, verdict in enumerate(Verdict)}


def relevant_components(versions: Versions, courses: Iterable[Course]) -> tuple[str, ...] | None:
    """What combinations are told apart by: what somebody declared, and what plans change. None: everything."""
    if versions.relevant is None:
        return None
    return tuple(sorted({*versions.relevant, *(component for course in courses for component in course.versions)}))


def _listed(
    combination: Combination, course: _Course, places: tuple[Place, ...], judged: tuple[Verdict, Trial | None]
) -> Listed:
    track = course.totals[combination]
    return Listed(
        combination,
        *judged,
        nodes_now=track.now,
        nodes_most=track.most,
        nodes_after=track.nodes,
        since=track.since,
        until=track.until,
        is_made=combination in course.made_by,
        made_by=tuple(sorted(course.made_by.get(combination, ()))),
        held_by=tuple(sorted(course.held_by.get(combination, ()))),
        clusters=places,
    )


def _canaries(listed: Sequence[Listed], course: _Course) -> Cover:
    """The clusters in which all untested combinations that plans make would be seen, as few and as small as can be.

    What is untested and runs already needs no canary: it can be tested where it is.
    """
    wanted = {each.combination for each in listed if each.verdict is Verdict.UNTESTED and each.is_made}
    found = {cluster: frozenset(made & wanted) for cluster, made in course.made_in.items()}
    return cover(wanted, found, course.moved)
