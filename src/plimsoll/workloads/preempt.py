"""Preemption: which flex gives way so that a part can start in a pool. Pure.

Never anything inside a guarantee, never more than needed. A guarantee calls back any flex, its own team's too. Flex
takes the place of its own team's flex that comes after it, and of another team's as long as its team, with it, holds
less flex for its guarantee than that team does.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from plimsoll.fleet.model import PoolKey
from plimsoll.quota.model import Kind, QuotaKey
from plimsoll.workloads.model import Asked, PartSpec, Victim
from plimsoll.workloads.rights import Held, flex_by_team, flex_ratio, held_in, inside_new, new_claims, part_spec
from plimsoll.workloads.rooms import Plan
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.victims import Option, Taken, fewest

_NO_RATIO = Fraction(10**12)
"""More flex for its guarantee than anybody has: that of a team without a guarantee."""


class Preemption:
    """The search for victims in one pool. What is chosen for one part is no longer there for the next."""

    def __init__(self, turn: Turn, asked: Asked, parts: Sequence[PartSpec], pool: PoolKey) -> None:
        self._turn, self._asked, self._pool = turn, asked, pool
        least = {part.name: part.gpus_least for part in parts}
        claims = new_claims(asked.spec, parts, submitted=asked.submitted, gpus=least)
        key = QuotaKey(asked.spec.team, *pool)
        self._inside = inside_new(turn, key, claims, holder=asked.spec.owner)
        self._order = {claim.part: claim.order for claim in claims}
        self._held = held_in(turn, pool, team=asked.spec.team, claims=claims, holder=asked.spec.owner)
        flex = flex_by_team(self._held)
        guaranteed = turn.book.guaranteed
        self._ratio = {team: flex_ratio(gpus, guaranteed.get(QuotaKey(team, *pool), 0)) for team, gpus in flex.items()}
        wanted = sum(least[name] - inside for name, inside in self._inside.items())
        mine = guaranteed.get(key, 0)
        self._ratio_then = flex_ratio(flex.get(asked.spec.team, 0) + wanted, mine)
        self._given: dict[tuple[str, str, bool], dict[str, int]] = {}
        self.victims: list[Victim] = []
        self.price: tuple[int, ...] = (0, 0)

    def make_room(self, plan: Plan, part: PartSpec, count: int) -> bool:
        """Choose who gives way for a gang, or for so many replicas, and put them there. Whether that was possible."""
        return all(self._one(plan, part, part.gpus) for _ in range(count))

    def in_island(self, part: PartSpec, island: str, need: int) -> list[Victim] | None:
        """Who gives way for so many GPUs of one island; None where that is not to be had."""
        candidates = sorted((each for each in self._held if self._gives_way(each, part)), key=self._class)
        options = self._options([held for held in candidates if island in held.islands], island)
        taken = fewest(options, need)
        if taken is None or not taken.chosen:
            return None
        self._give(options, taken, island)
        return self.victims

    def _one(self, plan: Plan, part: PartSpec, gpus: int) -> bool:
        """A gang or one replica, in the island where that hurts least."""
        candidates = [held for held in self._held if self._gives_way(held, part)]
        candidates.sort(key=self._class)
        by_island: dict[str, list[Held]] = {}
        for held in candidates:
            for island in held.islands:
                by_island.setdefault(island, []).append(held)
        best: tuple[tuple[int, int], int, str, list[Option], Taken] | None = None
        for free, island in reversed(plan.rooms):
            need = gpus - max(0, free) if free > 0 else gpus
            if best is not None and best[0][0] == 0 and best[0][1] <= need:
                break  # the rooms come from the largest on: from here on every island hurts at least as much
            if island not in by_island or free < 0:
                continue
            options = self._options(by_island[island], island)
            taken = fewest(options, need)
            if taken is None:
                continue
            found = taken.price, free + taken.freed - gpus, island, options, taken
            if best is None or found[:3] < best[:3]:
                best = found
        if best is None:
            return False
        _, _, island, options, taken = best
        self._give(options, taken, island)
        plan.take(island, -taken.freed)
        plan.put_at(part, island, gpus)
        self.price = (self.price[0] + taken.stopped, self.price[1] + taken.hurt)
        return True

    def _gives_way(self, held: Held, part: PartSpec) -> bool:
        if not held.flex or held.work == self._asked.spec.name or held.work in self._turn.work.leaving:
            return False
        if self._inside[part.name] >= part.gpus_least:
            return True
        if held.team == self._asked.spec.team:
            return held.order > self._order[part.name]
        if self._pool not in self._turn.book.lines or self._ratio_then is None:
            return False
        theirs = self._ratio[held.team]
        return theirs is None or self._ratio_then < theirs

    def _class(self, held: Held) -> tuple[object, ...]:
        """Who goes first: spares, the team with the most flex for its guarantee, then the last of its own order."""
        ratio = self._ratio[held.team]
        return not held.is_spare, -(_NO_RATIO if ratio is None else ratio), held.team, _reversed(held.order)

    def _options(self, candidates: Sequence[Held], island: str) -> list[Option]:
        options = []
        for held in candidates:
            given = self._given.get((held.work, held.part, held.is_spare), {})
            gone = sum(given.values())
            here = held.islands[island] - given.get(island, 0)
            flex, left = held.flex - gone, held.gpus - gone
            if here <= 0 or flex <= 0:
                continue
            if held.kind is Kind.GANG:
                if not gone:
                    options.append(Option(held, here, left, True))
                continue
            options += self._elastic(held, here, flex, left)
        return options

    def _elastic(self, held: Held, here: int, flex: int, left: int) -> list[Option]:
        """Replicas above the least are given up one by one; below it the part stops, if none of it is guaranteed."""
        if held.is_spare:
            unit, least = self._turn.fleet.pools[self._pool].gpus_per_node, 0
        else:
            spec = part_spec(self._turn, held)
            unit, least = spec.gpus, spec.least
        options = []
        times = min(here // unit, flex // unit, left // unit - least)
        if times > 0:
            options.append(Option(held, unit, unit, False, times))
        if least and flex == left and times * unit < here:
            options.append(Option(held, here, left, True))
        return options

    def _give(self, options: Sequence[Option], taken: Taken, island: str) -> None:
        for place, times in taken.chosen:
            option = options[place]
            held: Held = option.who
            given = self._given.setdefault((held.work, held.part, held.is_spare), {})
            islands = held.islands if option.stops else {island: option.gpus * times}
            for where, gpus in islands.items():
                more = gpus - given.get(where, 0) if option.stops else gpus
                if more > 0:
                    given[where] = given.get(where, 0) + more
                    self.victims.append(
                        Victim(held.work, held.part, where, more, option.stops, held.team, held.is_spare)
                    )


def _reversed(order: tuple[object, ...]) -> tuple[object, ...]:
    """So that the last of an order comes first: numbers are negated, names are compared the other way round."""
    return tuple(
        -each if isinstance(each, int) else tuple(-ord(letter) for letter in each) if isinstance(each, str) else each
        for each in order
    )
