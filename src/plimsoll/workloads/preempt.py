"""Preemption: which flex gives way so that a part can start in a pool. Pure.

Never anything inside another team's guarantee, never more than needed. A guarantee calls back any flex, its own team's
too. Flex takes the place of its own team's flex of a lower tier or rank, and of another team's as long as its team,
with it, holds less flex for its guarantee than that team does. Only if no flex is enough, a team's own work of a lower
tier or rank gives way even inside the guarantee, and then only to work that lies inside it too: else both would stop
each other in turn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from plimsoll.fleet.model import PoolKey
from plimsoll.quota.model import Kind, QuotaKey
from plimsoll.workloads.model import Asked, PartSpec, Right, Victim
from plimsoll.workloads.rights import (
    Held,
    flex_by_team,
    flex_in,
    flex_ratio,
    inside_new,
    new_claims,
    own_held,
    part_spec,
    stuck_in,
)
from plimsoll.workloads.rooms import Plan, barred_for
from plimsoll.workloads.shape import node_size
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.victims import Option, Taken, fewest

_NO_RATIO = float("inf")
"""More flex for its guarantee than anybody has: that of a team without a guarantee."""


_RANKED = 3
"""Of the order of claims: whether it draws on what is kept for it, tier, rank."""


class Preemption:
    """The search for victims in one pool. What is chosen for one part is no longer there for the next."""

    def __init__(
        self,
        turn: Turn,
        asked: Asked,
        parts: Sequence[PartSpec],
        pool: PoolKey,
        *,
        among: Collection[tuple[str, str, bool]] | None = None,
    ) -> None:
        """`among`: the parts (work, name, whether spare) that may be chosen, where not everybody may."""
        self._turn, self._asked, self._pool, self._among = turn, asked, pool, among
        self._barred = barred_for(turn, asked)
        least = {part.name: part.gpus_least for part in parts}
        claims = new_claims(asked.spec, parts, submitted=asked.submitted, gpus=least)
        key = QuotaKey(asked.spec.team, *pool)
        self._key, self._claims = key, claims
        self._own: list[Held] | None = None
        self._inside = inside_new(turn, key, claims, holder=asked.spec.owner)
        self._order = {claim.part: claim.order for claim in claims}
        self._held = flex_in(turn, pool, team=asked.spec.team, claims=claims, holder=asked.spec.owner)
        flex = flex_by_team(self._held)
        guaranteed = turn.book.guaranteed
        self._ratio = {team: flex_ratio(gpus, guaranteed.get(QuotaKey(team, *pool), 0)) for team, gpus in flex.items()}
        wanted = sum(least[name] - inside for name, inside in self._inside.items())
        mine = guaranteed.get(key, 0)
        self._ratio_then = flex_ratio(flex.get(asked.spec.team, 0) + wanted, mine)
        self._takes_own = False
        """Whether the team's own work of a lower class gives way even inside the guarantee: only if nothing else does.
        """
        self._given: dict[tuple[str, str, bool], dict[str, int]] = {}
        self.is_guaranteed = all(map(self._is_inside, parts))
        self.victims: list[Victim] = []
        self.freed: dict[str, int] = {}
        """GPUs by island that become free once the victims have left."""
        self.price: tuple[int, ...] = (0, 0)

    def make_room(self, plan: Plan, part: PartSpec, count: int) -> bool:
        """Choose who gives way for a gang, or for so many replicas, and put them there. Whether that was possible."""
        for _ in range(count):
            self._takes_own = False
            if not self._one(plan, part, part.gpus):
                self._takes_own = self._is_inside(part)
                if not self._takes_own or not self._one(plan, part, part.gpus):
                    return False
        return True

    def in_island(self, part: PartSpec, island: str, need: int) -> list[Victim] | None:
        """Who gives way for so many GPUs of one island; None where that is not to be had."""
        for takes_own in (False, True) if self._is_inside(part) else (False,):
            self._takes_own = takes_own
            options = self._options([held for held in self._candidates(part) if island in held.islands], island)
            taken = fewest(options, need)
            if taken is not None and taken.chosen:
                self._give(options, taken, island, part)
                return self.victims
        return None

    def _is_inside(self, part: PartSpec) -> bool:
        """Whether all that a part must have would lie inside the guarantee."""
        return self._inside[part.name] >= part.gpus_least

    def _one(self, plan: Plan, part: PartSpec, gpus: int) -> bool:
        """A gang or one replica, in the island where that hurts least."""
        candidates = self._candidates(part)
        by_island: dict[str, list[Held]] = {}
        for held in candidates:
            for island in held.islands:
                by_island.setdefault(island, []).append(held)
        best: tuple[tuple[int, int], int, str, list[Option], Taken] | None = None
        for free, island in reversed(plan.rooms):
            need = gpus - free  # below 0 more is held or kept than works: that is missing as well
            if best is not None and best[0][0] == 0 and best[0][1] <= need:
                break  # the rooms come from the largest on: from here on every island hurts at least as much
            if island not in by_island:
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
        self._give(options, taken, island, part)
        plan.take(island, -taken.freed)
        plan.put_at(part, island, gpus)
        self.price = (self.price[0] + taken.stopped, self.price[1] + taken.hurt)
        return True

    def _candidates(self, part: PartSpec) -> list[Held]:
        """Who may have to give way, in the order in which they go."""
        found = [held for held in self._all_held(part) if self._gives_way(held, part)]
        found.sort(key=lambda held: held.order, reverse=True)
        found.sort(key=self._class)
        return found

    def _all_held(self, part: PartSpec) -> Sequence[Held]:
        """All flex; and the team's own work inside its guarantee, where that may have to go."""
        mine = self._turn.book.claims.get(self._key) if self._takes_own else None
        if not mine or mine[-1].order[:_RANKED] <= self._order[part.name][:_RANKED]:
            return self._held
        if self._own is None:
            self._own = own_held(self._turn, self._key, self._claims, holder=self._asked.spec.owner)
        return [*(held for held in self._held if held.team != self._key.team), *self._own]

    def _gives_way(self, held: Held, part: PartSpec) -> bool:
        if held.work == self._asked.spec.name or held.work in self._turn.work.leaving:
            return False
        if not held.flex and not (self._takes_own and self._comes_after(held, part)):
            return False
        if self._among is not None and (held.work, held.part, held.is_spare) not in self._among:
            return False
        if self._is_inside(part):
            return True
        if held.team == self._asked.spec.team:
            return self._comes_after(held, part)
        if self._pool not in self._turn.book.lines or self._ratio_then is None:
            return False
        theirs = self._ratio[held.team]
        return theirs is None or self._ratio_then < theirs

    def _comes_after(self, held: Held, part: PartSpec) -> bool:
        """Whether it is of the same team and of a lower tier or a later rank. Who only came a little later is not
        stopped for that once it runs.
        """
        return held.team == self._asked.spec.team and held.order[:_RANKED] > self._order[part.name][:_RANKED]

    def _class(self, held: Held) -> tuple[object, ...]:
        """Who goes first: spares, the team with the most flex for its guarantee; then the last of its own order."""
        ratio = self._ratio.get(held.team, 0)
        return not held.is_spare, -(_NO_RATIO if ratio is None else ratio), held.team

    def _options(self, candidates: Sequence[Held], island: str) -> list[Option]:
        options = []
        for held in candidates:
            given = self._given.get((held.work, held.part, held.is_spare), {})
            gone = sum(given.values())
            here = held.islands[island] - given.get(island, 0) - stuck_in(self._turn, held, island, self._barred)
            left = held.gpus - gone
            flex = left if self._takes_own and held.team == self._asked.spec.team else held.flex - gone
            if here <= 0 or flex <= 0:
                continue
            if held.kind is Kind.GANG:
                if not gone:
                    options.append(Option(held, here, left, True))
                continue
            options += self._elastic(held, here, flex, left)
        return options

    def _elastic(self, held: Held, here: int, flex: int, left: int) -> list[Option]:
        """Replicas above the least are given up one by one; below it the part stops, if none of it is guaranteed. Of
        another team's, what is guaranteed stays, though it needs more: its flex can be called back all the same.
        """
        if held.is_spare:
            unit, least = node_size(self._turn.fleet, *self._pool), 0
        else:
            spec = part_spec(self._turn, held)
            is_theirs = flex < left and held.team != self._asked.spec.team
            unit, least = spec.gpus, 0 if is_theirs else spec.least
        options = []
        times = min(here // unit, flex // unit, left // unit - least)
        if times > 0:
            options.append(Option(held, unit, unit, False, times))
        if least and flex == left and times * unit < here:
            options.append(Option(held, here, left, True))
        return options

    def _right(self, held: Held, part: PartSpec) -> Right:
        if self._comes_after(held, part):
            return Right.TEAM_ORDER
        return Right.GUARANTEE if self._is_inside(part) else Right.FAIR_SHARE

    def _give(self, options: Sequence[Option], taken: Taken, island: str, part: PartSpec) -> None:
        self.freed[island] = self.freed.get(island, 0) + taken.freed
        for place, times in taken.chosen:
            option = options[place]
            held: Held = option.who
            given = self._given.setdefault((held.work, held.part, held.is_spare), {})
            islands = held.islands if option.stops else {island: option.gpus * times}
            for where, gpus in islands.items():
                more = gpus - given.get(where, 0) if option.stops else gpus
                if more > 0:
                    given[where] = given.get(where, 0) + more
                    right = self._right(held, part)
                    self.victims.append(
                        Victim(held.work, held.part, where, more, option.stops, held.team, held.is_spare, right)
                    )
