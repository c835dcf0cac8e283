"""The fewest, then smallest, clusters in which a set of combinations would be seen: a set cover. Pure, deterministic.

Exact where the search stays small, as it does for any real campaign; else greedy, and it says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from plimsoll.campaigns.versions.model import Combination

STEPS_MAX = 50_000
"""How many partial covers are looked at before the best so far is taken."""


class Chosen(msgspec.Struct, frozen=True):
    """A cluster, and what is first seen there."""

    cluster: str
    nodes: int
    covers: tuple[Combination, ...]


class Cover(msgspec.Struct, frozen=True):
    """The clusters chosen. `is_least`: no choice has fewer clusters, nor as few with fewer nodes."""

    clusters: tuple[Chosen, ...]
    is_least: bool
    missing: tuple[Combination, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.cluster for each in self.clusters)


def cover(
    wanted: Collection[Combination], found: Mapping[str, frozenset[Combination]], sizes: Mapping[str, int]
) -> Cover:
    """Choose clusters so that everything wanted is found in one of them; what is found nowhere is missing."""
    everything = frozenset().union(*found.values()) if found else frozenset()
    goal = frozenset(wanted) & everything
    candidates = _undominated({name: each & goal for name, each in found.items()}, sizes)
    greedy = _greedy(goal, candidates, sizes)
    search = _Search(candidates, sizes, greedy)
    search.run(goal, ())
    chosen, seen = [], set[Combination]()
    for name in sorted(search.best, key=lambda name: (-len(candidates[name]), sizes.get(name, 0), name)):
        chosen.append(Chosen(name, sizes.get(name, 0), tuple(sorted(candidates[name] - seen))))
        seen |= candidates[name]
    missing = sorted(frozenset(wanted) - everything)
    return Cover(tuple(chosen), search.steps <= STEPS_MAX, tuple(missing))


def _undominated(
    found: Mapping[str, frozenset[Combination]], sizes: Mapping[str, int]
) -> dict[str, frozenset[Combination]]:
    """Without the clusters in place of which another, no bigger one shows as much."""
    order = sorted((name for name in found if found[name]), key=lambda name: (sizes.get(name, 0), name))
    kept: dict[str, frozenset[Combination]] = {}
    for name in order:
        if not any(found[name] <= found[other] for other in kept):
            kept[name] = found[name]
    return kept


def _greedy(
    goal: frozenset[Combination], candidates: Mapping[str, frozenset[Combination]], sizes: Mapping[str, int]
) -> tuple[str, ...]:
    chosen: list[str] = []
    left = goal
    while left:
        name = min(candidates, key=lambda name: (-len(candidates[name] & left), sizes.get(name, 0), name))
        assert candidates[name] & left, "every turn covers something"
        chosen.append(name)
        left -= candidates[name]
    return tuple(sorted(chosen))


class _Search:
    """Branches on what the fewest clusters show; the best cover is kept."""

    def __init__(
        self, candidates: Mapping[str, frozenset[Combination]], sizes: Mapping[str, int], best: tuple[str, ...]
    ) -> None:
        self._candidates, self._sizes = candidates, sizes
        self.best, self.steps = best, 0
        self._cost = self._cost_of(best)
        self._by: dict[Combination, list[str]] = {}
        for name, covers in sorted(candidates.items()):
            for each in covers:
                self._by.setdefault(each, []).append(name)
        self._most = max((len(covers) for covers in candidates.values()), default=1)

    def _cost_of(self, names: Collection[str]) -> tuple[int, int, tuple[str, ...]]:
        return len(names), sum(self._sizes.get(name, 0) for name in names), tuple(sorted(names))

    def run(self, left: frozenset[Combination], chosen: tuple[str, ...]) -> None:
        self.steps += 1
        if self.steps > STEPS_MAX:
            return
        if not left:
            if (cost := self._cost_of(chosen)) < self._cost:
                self.best, self._cost = cost[2], cost
            return
        count, nodes, _ = self._cost_of(chosen)
        at_least = count + -(-len(left) // self._most)
        if (at_least, nodes) > self._cost[:2]:
            return
        hardest = min(left, key=lambda each: (len(self._by[each]), each))
        for name in sorted(self._by[hardest], key=lambda name: (-len(self._candidates[name] & left), name)):
            self.run(left - self._candidates[name], (*chosen, name))
