"""Which work to move so that one island of a pool has room for a block: the fewest stops, then the fewest moves, then
the fewest GPUs disturbed, proven.

A thing moves whole and at most once, to another island of its pool; a thing that is moved aside to make room for
another one counts like any other move. Counting answers most questions: a plain plan that costs no more than any plan
must is the best one. Only where it does not is the solver loaded (`open_block.py`). An answer must never over-fill an
island at any step, in the order given, and never depends on the order of what it is given nor on the clock.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from plimsoll.workloads.open_block import Goal, Pool, Search, Spot, Step

SLICE_SECONDS = 0.1
"""The first turn of a target. The least promising wait while the others' turns grow by SLICE_GROWTH each time."""

SLICE_GROWTH = 4


class Room(msgspec.Struct, frozen=True):
    """GPUs of an island that are healthy and unused now."""

    island: str
    free: int


class Movable(msgspec.Struct, frozen=True):
    """One thing that can go to another island of its pool as a whole: an elastic replica, or a flex gang.
    `can_stop`: it may be stopped instead.
    """

    id: str
    island: str
    gpus: int
    can_stop: bool = False


class Move(msgspec.Struct, frozen=True):
    """A thing goes to another island, or stops (`to_island` is None)."""

    id: str
    from_island: str
    to_island: str | None
    gpus: int


class Cost(NamedTuple):
    """What a plan disturbs, what counts most first. A stop is one of the moves."""

    stops: int
    moves: int
    gpus: int


class Opened(msgspec.Struct, frozen=True):
    """A plan, in an order in which it can be done. No plan costs less than `bound`."""

    island: str
    gpus_free_after: int
    moves: tuple[Move, ...]
    gpus_disturbed: int
    stops: int
    is_proven: bool
    bound: Cost


class Impossible(msgspec.Struct, frozen=True):
    """No plan opens the block. `largest` can be opened, in `island`, which has `free` now and things of `movable_gpus`
    in it; all other islands have `free_elsewhere`. Where it is not proven, a plan for up to `bound` was not ruled out.
    """

    gpus: int
    largest: int
    island: str
    free: int
    movable_gpus: int
    free_elsewhere: int
    is_proven: bool
    bound: int


class _Draft(NamedTuple):
    """A plan for a target, on counts."""

    value: int
    target: int
    stops: Counter[Spot]
    steps: tuple[Step, ...]


def open_block(
    rooms: Sequence[Room], movables: Sequence[Movable], gpus: int, *, seconds_max: float = 5.0, seed: int = 0
) -> Opened | Impossible:
    """The cheapest plan that gives one island `gpus` free, or the largest block that could be had.

    `seconds_max` is in the solver's deterministic seconds, so that the answer is the same on a slow machine.
    """
    assert gpus > 0
    rooms = sorted(rooms, key=lambda room: room.island)
    movables = sorted(movables, key=lambda movable: movable.id)
    assert all(room.free >= 0 for room in rooms)
    assert all(movable.gpus > 0 for movable in movables)
    assert len({movable.id for movable in movables}) == len(movables)
    enough = [room for room in rooms if room.free >= gpus]
    if enough:
        tightest = min(enough, key=lambda room: room.free)
        return Opened(tightest.island, tightest.free, (), 0, 0, is_proven=True, bound=Cost(0, 0, 0))
    desk = _Desk(rooms, movables, seconds_max=seconds_max, seed=seed)
    best, floor = desk.fewest(gpus)
    if best is None:
        return desk.largest(gpus, is_ruled_out=floor is None)
    moves = desk.named(best)
    return Opened(
        rooms[best.target].island,
        rooms[best.target].free + desk.gain(best),
        moves,
        gpus_disturbed=sum(move.gpus for move in moves),
        stops=best.stops.total(),
        is_proven=floor is None or floor >= best.value,
        bound=desk.cost(best.value if floor is None else min(floor, best.value)),
    )


class _Desk:
    """One question about one pool: what counting says, and the search where counting does not decide."""

    def __init__(self, rooms: list[Room], movables: list[Movable], *, seconds_max: float, seed: int) -> None:
        self.rooms, self.movables = rooms, movables
        number = {room.island: place for place, room in enumerate(rooms)}
        assert len(number) == len(rooms)
        spots = [Spot(number[movable.island], movable.gpus) for movable in movables]
        softs = Counter(spot for spot, movable in zip(spots, movables, strict=True) if movable.can_stop)
        self.pool = Pool(tuple(room.free for room in rooms), dict(Counter(spots)), dict(softs))
        self.movable_gpus: Counter[int] = Counter()
        for spot in spots:
            self.movable_gpus[spot.island] += spot.gpus
        self.unit = math.gcd(*(spot.gpus for spot in spots)) or 1
        self.move_weight = self.movable_gpus.total() + 1
        self.stop_weight = self.move_weight * (len(movables) + 1)
        self.room_weight = len(movables) + 1
        self.search = Search(self.pool, seconds_max=seconds_max, seed=seed)

    def cost(self, value: int) -> Cost:
        stops, rest = divmod(value, self.stop_weight)
        return Cost(stops, *divmod(rest, self.move_weight))

    def gain(self, draft: _Draft) -> int:
        """What the target has more in the end."""
        gained = sum(spot.gpus * count for spot, count in draft.stops.items() if spot.island == draft.target)
        return gained + sum(
            step.gpus * ((step.start == draft.target) - (step.end == draft.target)) for step in draft.steps
        )

    def fewest(self, need: int) -> tuple[_Draft | None, int | None]:
        """The cheapest plan, and the least that a plan might cost that was neither found nor ruled out."""
        floor: int | None = None
        best: _Draft | None = None
        for may_stop in (False, True) if self.pool.stoppable else (False,):
            targets = [t for t in range(len(self.rooms)) if self.limit(t, may_stop=may_stop) >= need]
            drafts = [self.plain(t, need - self.rooms[t].free, may_stop=may_stop) for t in targets]
            best = min((draft for draft in drafts if self._has(draft, need)), default=None, key=lambda d: d[:2])
            open_targets = [(self.least(t, need, may_stop=may_stop), t, SLICE_SECONDS) for t in targets]
            heapq.heapify(open_targets)
            while open_targets and (best is None or open_targets[0][:2] < best[:2]):
                at_least, target, seconds = heapq.heappop(open_targets)
                if self.search.seconds_left <= 0:
                    floor = at_least if floor is None else min(floor, at_least)
                    break
                below = self.stop_weight * self.room_weight if best is None else best.value + (target < best.target)
                goal = Goal(target, need, may_stop, move_weight=self.move_weight, stop_weight=self.room_weight)
                answer = self.search.cheapest(goal, below=below, at_least=at_least, seconds_max=seconds)
                if answer.is_found:
                    best = _Draft(answer.value, target, answer.stops, answer.steps)
                if answer.bound < answer.value and self.search.is_stuck:
                    floor = answer.bound if floor is None else min(floor, answer.bound)
                elif answer.bound < answer.value:
                    heapq.heappush(open_targets, (answer.bound, target, seconds * SLICE_GROWTH))
            if best is not None:
                break
        return best, floor

    def _has(self, draft: _Draft, need: int) -> bool:
        return self.rooms[draft.target].free + self.gain(draft) >= need

    def largest(self, need: int, *, is_ruled_out: bool) -> Impossible:
        """The largest block below `need` that can be opened."""
        may_stop = bool(self.pool.stoppable)
        limits = [self.limit(target, may_stop=may_stop) for target in range(len(self.rooms))]
        best = room = 0
        unproven = 0 if is_ruled_out else max(limits)
        for target in range(len(self.rooms)):
            draft = self.plain(target, self.movable_gpus[target], may_stop=may_stop)
            if (has := min(need - 1, self.rooms[target].free + self.gain(draft))) > room:
                best, room = target, has
        capped = [(min(need - 1, limit), target) for target, limit in enumerate(limits)]
        for limit, target in sorted(capped, key=lambda pair: (-pair[0], pair[1])):
            if (-limit, target) >= (-room, best):
                break
            room_wanted = room + (target > best)
            goal = Goal(target, None, may_stop, move_weight=self.room_weight, stop_weight=0)
            answer = self.search.cheapest(
                goal,
                below=self.room_weight * (1 - room_wanted),
                at_least=-self.room_weight * limit,
                seconds_max=self.search.seconds_left,
            )
            if answer.is_found:
                best, room = target, -(answer.value // self.room_weight)
            if answer.bound < answer.value:
                unproven = max(unproven, -(answer.bound // self.room_weight))
        return self._impossible(need, best, room, unproven=unproven)

    def _impossible(self, need: int, island: int, room: int, *, unproven: int) -> Impossible:
        if not self.rooms:
            return Impossible(need, 0, "", 0, 0, 0, is_proven=True, bound=0)
        return Impossible(
            need,
            room,
            self.rooms[island].island,
            free=self.pool.free[island],
            movable_gpus=self.movable_gpus[island],
            free_elsewhere=sum(self.pool.free) - self.pool.free[island],
            is_proven=unproven <= room,
            bound=max(room, unproven),
        )

    def limit(self, target: int, *, may_stop: bool) -> int:
        """No plan gives the target more: all that can leave it, as far as it finds room elsewhere or things stop."""
        room = sum(free // self.unit * self.unit for island, free in enumerate(self.pool.free) if island != target)
        stoppable = sum(spot.gpus * count for spot, count in self.pool.stoppable.items()) if may_stop else 0
        return self.pool.free[target] + min(self.movable_gpus[target], room + stoppable)

    def least(self, target: int, need: int, *, may_stop: bool) -> int:
        """No plan for the target costs less: its largest things leave, and what finds no room elsewhere is stopped.
        With stops, at least one: plans without were looked at before.
        """
        short = need - self.pool.free[target]
        moves, left = 0, short
        for spot, count in sorted(self.pool.held.items(), key=lambda item: -item[0].gpus):
            if spot.island == target and left > 0:
                taken = min(count, -(-left // spot.gpus))
                moves, left = moves + taken, left - taken * spot.gpus
        stops = 0
        if may_stop:
            without = self.limit(target, may_stop=False)
            stops = max(1, -(-(need - without) // max(spot.gpus for spot in self.pool.stoppable)))
            moves += max(0, stops - sum(n for spot, n in self.pool.stoppable.items() if spot.island == target))
        gpus = -(-short // self.unit) * self.unit
        return stops * self.stop_weight + moves * self.move_weight + gpus

    def plain(self, target: int, short: int, *, may_stop: bool) -> _Draft:
        """A plan by rule of thumb, which may fall short: move the largest that fits anywhere, into the tightest island,
        and at last the smallest that suffices; where nothing fits, stop something.
        """
        free = list(self.pool.free)
        held, soft = Counter(self.pool.held), Counter(self.pool.stoppable if may_stop else {})
        stops: Counter[Spot] = Counter()
        steps: list[Step] = []
        while short > 0:
            widest = max((gpus for island, gpus in enumerate(free) if island != target), default=0)
            here = [spot for spot, count in held.items() if count and spot.island == target]
            if fitting := [spot for spot in here if spot.gpus <= widest]:
                spot = _pick(fitting, short)
                ends = [(gpus, island) for island, gpus in enumerate(free) if island != target and gpus >= spot.gpus]
                _, end = min(ends)
                free[end] -= spot.gpus
                steps.append(Step(spot.gpus, target, end))
            elif stopping := _stoppable(soft, held, here):
                spot = _pick(stopping, short)
                stops[spot] += 1
                soft[spot] -= 1
            else:
                break
            held[spot] -= 1
            if spot.island == target:
                short -= spot.gpus
            else:
                free[spot.island] += spot.gpus
        gpus = sum(step.gpus for step in steps) + sum(spot.gpus * count for spot, count in stops.items())
        count = stops.total() + len(steps)
        value = stops.total() * self.stop_weight + count * self.move_weight + gpus
        return _Draft(value, target, stops, tuple(steps))

    def named(self, draft: _Draft) -> tuple[Move, ...]:
        """The moves with names, stops first. Things that are alike go by name, those that may be stopped last."""
        hard: defaultdict[Spot, list[str]] = defaultdict(list)
        soft: defaultdict[Spot, list[str]] = defaultdict(list)
        number = {room.island: place for place, room in enumerate(self.rooms)}
        for movable in reversed(self.movables):
            (soft if movable.can_stop else hard)[Spot(number[movable.island], movable.gpus)].append(movable.id)
        names = [room.island for room in self.rooms]
        moves = [
            Move(soft[spot].pop(), names[spot.island], None, spot.gpus)
            for spot, count in sorted(draft.stops.items())
            for _ in range(count)
        ]
        for step in draft.steps:
            spot = Spot(step.start, step.gpus)
            thing = hard[spot].pop() if hard[spot] else soft[spot].pop()
            moves.append(Move(thing, names[step.start], names[step.end], step.gpus))
        return tuple(moves)


def _pick(spots: list[Spot], short: int) -> Spot:
    """The smallest that suffices, else the largest."""
    enough = [spot for spot in spots if spot.gpus >= short]
    return min(enough, key=lambda spot: (spot.gpus, spot)) if enough else max(spots, key=lambda spot: (spot.gpus, spot))


def _stoppable(soft: Counter[Spot], held: Counter[Spot], here: list[Spot]) -> list[Spot]:
    """What may be stopped to go on: in the target, else elsewhere as long as the target has anything left to move."""
    found = [spot for spot in here if soft[spot] and held[spot]]
    if found or not here:
        return found
    return [spot for spot, count in soft.items() if count and held[spot] and spot.island != here[0].island]
