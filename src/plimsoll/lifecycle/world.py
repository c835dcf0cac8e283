"""What one pass knows of everything beside the cluster that it looks at. Read-only, for the decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import msgspec

from plimsoll.connect.provider import ProviderTrouble
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Phase, PoolKey, Service
from plimsoll.health.decide import Memories
from plimsoll.lifecycle.claims import QuotaAnswer, QuotaRead, answer_quota
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import Life, Work
from plimsoll.lifecycle.outside import Look, StepKey
from plimsoll.lifecycle.phases import has_reached, phase_of
from plimsoll.lifecycle.recipe import Elsewhere, Recipe, Step
from plimsoll.lifecycle.spec_check import spec_problems
from plimsoll.lifecycle.template import filled, spec_values
from plimsoll.state.state import State

replace = msgspec.structs.replace
Seen = Mapping[StepKey, tuple[str, Look | ProviderTrouble]]
"""What was seen of each step, and of which operation of it."""


class World:
    """The state, what was seen outside, and who has which quota, at one moment."""

    def __init__(
        self,
        state: State,
        now: datetime,
        *,
        looks: Seen,
        read: QuotaRead,
        places: Mapping[str, str],
        settles: Mapping[str, float],
        memories: Memories,
    ) -> None:
        self.state, self.now = state, now
        self.fleet, self.lives = state.of(Fleet), state.of(Lives)
        self.places, self.settles, self.memories = places, settles, memories
        self._looks = looks
        alive = [life for life in self.lives.lives.values() if life.gone_at is None]
        recipes = {life.name: self.lives.recipe_of(life) for life in alive}
        self.problems = {life.name: spec_problems(life.spec, recipes[life.name]) for life in alive}
        counted = [self._as_seen(life) for life in alive if life.claimed_at is not None or not self.problems[life.name]]
        self.quota: dict[str, QuotaAnswer] = answer_quota(counted, recipes, read, now)
        self._nodes: dict[str, list[Node]] | None = None

    def _as_seen(self, life: Life) -> Life:
        """A cluster with the machines that were just seen: the quota of one that is gone is still its own."""
        looks = [look for work in life.works.values() if (look := self.look_of(life.name, work)) and look.sets]
        gone = {
            each.name
            for look in looks
            for each in look.sets or ()
            if (known := life.sets.get(each.name)) is not None and each.there < known.there
        }
        if not gone:
            return life
        sets = {name: replace(each, steady_since=None) if name in gone else each for name, each in life.sets.items()}
        return replace(life, sets=sets)

    def look_of(self, cluster: str, work: Work) -> Look | None:
        """What was seen of an attempt; nothing where another one was looked at."""
        operation, found = self._looks.get((cluster, work.step), ("", None))
        return found if isinstance(found, Look) and operation == work.operation else None

    def trouble_of(self, cluster: str, work: Work) -> ProviderTrouble | None:
        """Why nobody can tell how an attempt is."""
        operation, found = self._looks.get((cluster, work.step), ("", None))
        return found if isinstance(found, ProviderTrouble) and operation == work.operation else None

    def nodes_of(self, cluster: str) -> list[Node]:
        """The nodes of a cluster that are not retired. Those of all clusters that are not gone are sorted at once."""
        if self._nodes is None:
            self._nodes = {name: [] for name, life in self.lives.lives.items() if life.gone_at is None}
            for node in self.fleet.nodes.values():
                if node.cluster in self._nodes and node.service is not Service.RETIRED:
                    self._nodes[node.cluster].append(node)
        return self._nodes.get(cluster, [])

    def services_of(self, cluster: str) -> Counter[Service]:
        return Counter(node.service for node in self.nodes_of(cluster))

    def node_counts(self, life: Life) -> tuple[int, int]:
        """How many nodes a cluster has, and how many of them are in service. The fleet keeps count of them."""
        count = self.fleet.pools.get(PoolKey(life.name, life.spec.sku))
        return (0, 0) if count is None else (count.nodes, count.nodes_in_service)

    # What other clusters must have reached.

    def elsewhere_missing(self, life: Life, step: Step) -> list[tuple[str, Elsewhere]]:
        """What a step waits for in other clusters, with the cluster's name."""
        values = spec_values(life.spec)
        found = []
        for each in step.after:
            name = filled(each.cluster, values)
            if not self.has_reached(name, each.reaches):
                found.append((name, each))
        return found

    def has_reached(self, cluster: str, reaches: str) -> bool:
        """Whether a cluster is as far as somebody waits for. One that we did not make is as far as the fleet says."""
        life = self.lives.lives.get(cluster)
        known = self.fleet.clusters.get(cluster)
        phase = phase_of(life) if life is not None else known.phase if known is not None else None
        if phase is None:
            return False
        if reaches in list(Phase):
            return has_reached(phase, Phase(reaches))
        if life is None:
            return phase is Phase.PRODUCTION
        if reaches.startswith("step "):
            return life.is_done(reaches.removeprefix("step "))
        condition = life.conditions.get(reaches)
        return condition is not None and condition.is_true

    def is_gone(self, cluster: str) -> bool:
        """Whether a cluster is retired, and will never reach anything."""
        known = self.fleet.clusters.get(cluster)
        return known is not None and known.phase is Phase.RETIRED

    def waits_in_circle(self, life: Life) -> list[str]:
        """Clusters that wait for each other, this one first and last; empty where there are none."""
        trail = [life.name]
        seen = {life.name}
        stack = [iter(self._waited_for(life))]
        while stack:
            name = next(stack[-1], None)
            if name is None:
                stack.pop()
                trail.pop()
            elif name == life.name:
                return [*trail, name]
            elif name not in seen and (other := self.lives.lives.get(name)) is not None:
                seen.add(name)
                trail.append(name)
                stack.append(iter(self._waited_for(other)))
        return []

    def _waited_for(self, life: Life) -> list[str]:
        if life.gone_at is not None:
            return []
        recipe: Recipe = self.lives.recipe_of(life)
        steps = [step for step in recipe.steps if step.after and not life.is_done(step.name)]
        return [name for step in steps for name, _ in self.elsewhere_missing(life, step)]
