"""The exact search on counts: which sizes leave, enter and stop in which island so that a target has room.

Islands are numbers here and things of one size in one island are alike, so a pool of 2,000 replicas is a model of a
few hundred integers. It knows how many of a size leave and enter an island, not who goes where: pairs are made when
the moves are put in order. A plan that fits in the end may still have no order (two islands that wait for each
other's room); such a plan is cut off together with all that hang for the same reason, and the search goes on. A
model in PHASES rounds, which always has an order, gives the plan to beat and mostly ends the search at once.
It must never return a plan without an order, nor call one the best that is not proven so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

PHASES = 3
"""Rounds of the model that always has an order: room that is made in one round is used from the next one on."""

CUTS_MAX = 60
"""Plans without an order that one search cuts off before it gives up the proof."""

ORDER_STATES_MAX = 20_000
"""States that the search for an order of one plan looks at."""


SECONDS_MIN = 1e-3
"""What one run is charged at least, so that many short ones end, too."""


class OrderUnknown(Exception):
    """A plan has too many states to say whether it has an order; never leaves this module."""


class Spot(NamedTuple):
    """Things of one size in one island."""

    island: int
    gpus: int


class Step(NamedTuple):
    """One thing of this size goes from an island to another."""

    gpus: int
    start: int
    end: int


class Pool(msgspec.Struct, frozen=True):
    """Free GPUs by island; how many things are at a spot, and how many of those may be stopped."""

    free: tuple[int, ...]
    held: dict[Spot, int]
    stoppable: dict[Spot, int]


class Shift(msgspec.Struct, frozen=True):
    """How many things leave, enter and stop at each spot; zeros are left out."""

    leave: Counter[Spot]
    enter: Counter[Spot]
    stop: Counter[Spot]

    def free_after_stops(self, free: tuple[int, ...]) -> list[int]:
        return [gpus + _gpus_at(self.stop, island) for island, gpus in enumerate(free)]

    def mixed(self) -> set[int]:
        """Islands that things leave and enter: only these can wait for each other."""
        return {spot.island for spot in self.leave} & {spot.island for spot in self.enter}


class Goal(msgspec.Struct, frozen=True):
    """Room for `need` GPUs in the target at the least cost; without a need, as much room as there can be."""

    target: int
    need: int | None
    may_stop: bool
    move_weight: int
    """A move costs this much and its GPUs on top: more than all GPUs together. Without a need, so does a free GPU less,
    with the moves on top."""
    stop_weight: int
    """A stop costs as much as so many moves, more than all together."""


class Answer(msgspec.Struct, frozen=True):
    """The best plan found, or none. No plan costs less than `bound`; without a plan, none is below the limit given
    if `bound` reaches it.
    """

    value: int
    bound: int
    stops: Counter[Spot]
    steps: tuple[Step, ...]
    is_found: bool = True


class _Solved(NamedTuple):
    """What one run of the solver found: the rounds of a plan and its cost."""

    rounds: tuple[Shift, ...]
    value: int
    bound: int


class Search:
    """One pool's searches: they share the time and what was learnt about plans that have no order."""

    def __init__(self, pool: Pool, *, seconds_max: float, seed: int) -> None:
        self.pool = pool
        self.seconds_left = self.slice_left = seconds_max
        self.seed = seed
        self.deadlocks: list[Shift] = []
        self.is_stuck = False
        """More time would not help: too many plans had no order, or one had too many states to tell."""

    def cheapest(self, goal: Goal, *, below: int, at_least: int, seconds_max: float) -> Answer:
        """The cheapest plan that costs less than `below`, when none can cost less than `at_least`."""
        self.slice_left = min(seconds_max, self.seconds_left)
        best = Answer(below, at_least, Counter(), (), is_found=False)
        while True:
            solved = self._solve(goal, below=best.value, at_least=best.bound, phases=1, is_ordered=False)
            if solved is None:
                return msgspec.structs.replace(best, bound=best.value)
            best = msgspec.structs.replace(best, bound=max(best.bound, solved.bound))
            if not solved.rounds:
                return best
            shift = solved.rounds[0]
            try:
                steps = order(shift.free_after_stops(self.pool.free), shift)
            except OrderUnknown:
                self.is_stuck = True
                return best if best.is_found else self._in_phases(goal, best)
            if steps is not None:
                return Answer(solved.value, best.bound, shift.stop, tuple(steps))
            self.deadlocks.append(shift)
            if not best.is_found:
                best = self._in_phases(goal, best)
            self.is_stuck = self.is_stuck or len(self.deadlocks) >= CUTS_MAX
            if best.value <= best.bound or self.is_stuck:
                return best

    def _in_phases(self, goal: Goal, best: Answer) -> Answer:
        """The cheapest plan that is done in rounds, if it beats the best so far."""
        solved = self._solve(goal, below=best.value, at_least=best.bound, phases=PHASES, is_ordered=True)
        if solved is None or not solved.rounds:
            return best
        free = solved.rounds[0].free_after_stops(self.pool.free)
        steps: list[Step] = []
        for shift in solved.rounds:
            part = order(free, shift)
            assert part is not None, "a round has room for all that enters before anything leaves"
            steps += part
            for step in part:
                free[step.start] += step.gpus
                free[step.end] -= step.gpus
        return Answer(solved.value, best.bound, solved.rounds[0].stop, tuple(steps))

    def _solve(self, goal: Goal, *, below: int, at_least: int, phases: int, is_ordered: bool) -> _Solved | None:
        """None: there is no such plan. No rounds: none was found in the time there is."""
        from ortools.sat.python import cp_model

        if self.slice_left <= 0:
            return _Solved((), below, at_least)
        model = _Model(cp_model.CpModel(), self.pool, goal, phases, is_ordered)
        first, second = model.cost(goal)
        weight = goal.move_weight if goal.need is not None else 1
        model.cp.add(weight * first + second <= below - 1)
        model.cp.add(first <= (below - 1) // weight)
        model.cp.add(first >= at_least // weight)
        if not is_ordered:
            for shift in self.deadlocks:
                model.cut(shift)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = self.seed
        solver.parameters.linearization_level = 2
        solver.parameters.cp_model_presolve = False  # a third of the time of such small models
        model.cp.minimize(first)
        status, least = self._run(solver, model)
        if status == cp_model.INFEASIBLE:
            return None
        bound = max(at_least, weight * least)
        if status == cp_model.UNKNOWN:
            return _Solved((), below, bound)
        found = _Solved(model.rounds(solver), weight * solver.value(first) + solver.value(second), bound)
        if status == cp_model.FEASIBLE or found.value == bound:
            return found
        model.cp.add(first == least)
        model.cp.minimize(second)
        status, rest = self._run(solver, model)
        bound = max(bound, weight * least + rest)
        if status == cp_model.UNKNOWN:
            return found._replace(bound=bound)
        return _Solved(model.rounds(solver), weight * least + solver.value(second), bound)

    def _run(self, solver: cp_model.CpSolver, model: _Model) -> tuple[Any, int]:
        """How it ended, and what the objective can't be below."""
        # Not seconds of the clock: the answer must not depend on the machine.
        solver.parameters.max_deterministic_time = max(self.slice_left, SECONDS_MIN)
        status = solver.solve(model.cp)
        spent = max(solver.response_proto.deterministic_time, SECONDS_MIN)
        self.seconds_left -= spent
        self.slice_left -= spent
        return status, round(solver.best_objective_bound)


class _Model:
    """The integers of a plan. In one unordered round only the end has to fit: the least any plan can cost."""

    def __init__(self, cp: cp_model.CpModel, pool: Pool, goal: Goal, phases: int, is_ordered: bool) -> None:
        self.cp, self.pool = cp, pool
        self.sizes = sorted({spot.gpus for spot in pool.held})
        self.spots = sorted(pool.held)
        self.targets = [Spot(island, gpus) for island in range(len(pool.free)) for gpus in self.sizes]
        self.stop: dict[Spot, Any] = {
            spot: cp.new_int_var(0, count, f"stop_{spot}")
            for spot, count in sorted(pool.stoppable.items())
            if goal.may_stop and count
        }
        self.leave: list[dict[Spot, Any]] = []
        self.enter: list[dict[Spot, Any]] = []
        self.at: list[list[Spot]] = [[] for _ in pool.free]
        for spot in self.spots:
            self.at[spot.island].append(spot)
        free: list[Any] = [
            gpus + sum(spot.gpus * self.stop[spot] for spot in self.at[island] if spot in self.stop)
            for island, gpus in enumerate(pool.free)
        ]
        for phase in range(phases):
            self._add_round(phase)
            for island in range(len(free)):
                left = sum(spot.gpus * self.leave[-1][spot] for spot in self.at[island])
                entered = sum(size * self.enter[-1][Spot(island, size)] for size in self.sizes)
                if is_ordered:
                    cp.add(free[island] - entered >= 0)
                free[island] += left - entered
                cp.add(free[island] >= 0)
        for spot in self.spots:
            cp.add(sum(leave[spot] for leave in self.leave) + self.stop.get(spot, 0) <= pool.held[spot])
        if goal.need is not None:
            cp.add(free[goal.target] >= goal.need)
        self.free_at_end = free
        for island, gpus in enumerate(pool.free):
            needed = goal.need if goal.need is not None and island == goal.target else 0
            for size in self.sizes:
                self._add_rounded(island, gpus - needed, size)

    def _add_round(self, phase: int) -> None:
        """As many of a size enter as leave, and nothing enters the island that it leaves."""
        count = {size: sum(n for spot, n in self.pool.held.items() if spot.gpus == size) for size in self.sizes}
        leave = {spot: self.cp.new_int_var(0, self.pool.held[spot], f"leave_{phase}_{spot}") for spot in self.spots}
        enter = {spot: self.cp.new_int_var(0, count[spot.gpus], f"enter_{phase}_{spot}") for spot in self.targets}
        for size in self.sizes:
            leaving = sum(var for spot, var in leave.items() if spot.gpus == size)
            self.cp.add(leaving == sum(var for spot, var in enter.items() if spot.gpus == size))
            for spot in self.spots:
                if spot.gpus == size:
                    self.cp.add(enter[spot] + leave[spot] <= leaving)
        self.leave.append(leave)
        self.enter.append(enter)

    def _add_rounded(self, island: int, free: int, size: int) -> None:
        """What follows from whole things: with 40 free, one of 64 enters only if three of 8 leave. The solver's
        relaxation would let five eighths of it enter for nothing (a mixed-integer rounding cut of the island's row).
        """
        rest = free % size

        def rounded(gpus: int) -> int:
            return gpus // size * (size - rest) + max(0, gpus % size - rest)

        row = [rounded(other) * side[Spot(island, other)] for side in self.enter for other in self.sizes]
        row += [
            rounded(-spot.gpus) * side[spot]
            for side in [*self.leave, self.stop]
            for spot in self.at[island]
            if spot in side
        ]
        self.cp.add(sum(row) <= rounded(free))

    def cost(self, goal: Goal) -> tuple[Any, Any]:
        """What counts first, and what counts then: solved one after the other, because whole moves can be rounded up
        in the proof and the GPUs on top of them could not. The largest block is had faster in one go.
        """
        moves = sum(leave[spot] for leave in self.leave for spot in self.spots) + sum(self.stop.values())
        if goal.need is None:
            return moves - goal.move_weight * self.free_at_end[goal.target], 0
        gpus = sum(spot.gpus * leave[spot] for leave in self.leave for spot in self.spots)
        gpus += sum(spot.gpus * stop for spot, stop in self.stop.items())
        return goal.stop_weight * sum(self.stop.values()) + moves, gpus

    def cut(self, shift: Shift) -> None:
        """Forbid what has no order, and all that has none for the same reason.

        Islands that are only left, or only entered, never wait. So a plan that does the same in the mixed islands, has
        no other mixed island and takes no more things from elsewhere has no order either.
        """
        leave, enter, mixed = self.leave[0], self.enter[0], shift.mixed()
        ways_out: list[Any] = []
        ways_out += (self._mixed(island) for island in sorted({spot.island for spot in self.spots} - mixed))
        for size in self.sizes:
            elsewhere = [spot for spot in self.spots if spot.gpus == size and spot.island not in mixed]
            if elsewhere:
                taken = sum(shift.leave[spot] for spot in elsewhere)
                ways_out.append(self._if(sum(leave[spot] for spot in elsewhere) >= taken + 1))
            for spot in (Spot(island, size) for island in sorted(mixed)):
                ways_out += (
                    self._if(enter[spot] <= shift.enter[spot] - 1),
                    self._if(enter[spot] >= shift.enter[spot] + 1),
                )
                if spot in leave:
                    ways_out += (
                        self._if(leave[spot] <= shift.leave[spot] - 1),
                        self._if(leave[spot] >= shift.leave[spot] + 1),
                    )
                if spot in self.stop:
                    ways_out.append(self._if(self.stop[spot] >= shift.stop[spot] + 1))
        self.cp.add_bool_or(ways_out)

    def _if(self, fact: Any) -> Any:
        literal = self.cp.new_bool_var("")
        self.cp.add(fact).only_enforce_if(literal)
        return literal

    def _mixed(self, island: int) -> Any:
        literal = self.cp.new_bool_var("")
        for side in (self.leave[0], self.enter[0]):
            some = [var for spot, var in side.items() if spot.island == island]
            self.cp.add(sum(some) >= 1).only_enforce_if(literal)
        return literal

    def rounds(self, solver: cp_model.CpSolver) -> tuple[Shift, ...]:
        def counted(variables: dict[Spot, Any]) -> Counter[Spot]:
            return Counter({spot: int(solver.value(var)) for spot, var in variables.items() if solver.value(var)})

        stop = counted(self.stop)
        return tuple(
            Shift(counted(leave), counted(enter), Counter(stop) if place == 0 else Counter())
            for place, (leave, enter) in enumerate(zip(self.leave, self.enter, strict=True))
        )


def order(free: list[int], shift: Shift) -> list[Step] | None:
    """An order of the moves in which no island is ever over-full; None when there is none. `free` is what there is
    after the stops, which come first.
    """
    trip = _Trip(list(free), Counter(shift.leave), Counter(shift.enter))
    choices: list[Iterator[Step]] = [trip.choices()]
    seen = {trip.key()}
    while len(trip.steps) < shift.leave.total():
        step = next(choices[-1], None)
        if step is None:
            choices.pop()
            if not choices:
                return None
            trip.undo()
            continue
        trip.do(step)
        key = trip.key()
        if key in seen:
            trip.undo()
            continue
        if len(seen) >= ORDER_STATES_MAX:
            raise OrderUnknown
        seen.add(key)
        choices.append(trip.choices())
    return trip.steps


class _Trip:
    """How far the moves of a plan have come."""

    def __init__(self, free: list[int], leave: Counter[Spot], enter: Counter[Spot]) -> None:
        self.free, self.leave, self.enter = free, leave, enter
        self.steps: list[Step] = []

    def do(self, step: Step) -> None:
        self.steps.append(step)
        self._shift(step, 1)

    def undo(self) -> None:
        self._shift(self.steps.pop(), -1)

    def _shift(self, step: Step, count: int) -> None:
        self.free[step.start] += step.gpus * count
        self.free[step.end] -= step.gpus * count
        self.leave[Spot(step.start, step.gpus)] -= count
        self.enter[Spot(step.end, step.gpus)] -= count

    def _sides(self) -> tuple[list[Spot], list[Spot], set[int]]:
        leave = sorted(spot for spot, count in self.leave.items() if count)
        enter = sorted(spot for spot, count in self.enter.items() if count)
        return leave, enter, {spot.island for spot in leave} & {spot.island for spot in enter}

    def key(self) -> tuple[object, ...]:
        """What the rest depends on: the islands that are not mixed are alike."""
        leave, enter, mixed = self._sides()
        elsewhere: Counter[int] = Counter()
        for spot in leave:
            if spot.island not in mixed:
                elsewhere[spot.gpus] += self.leave[spot]
        return (
            tuple((spot, self.leave[spot]) for spot in leave if spot.island in mixed),
            tuple((spot, self.enter[spot]) for spot in enter if spot.island in mixed),
            tuple(sorted(elsewhere.items())),
        )

    def choices(self) -> Iterator[Step]:
        """Steps that fit now, likely ones first: into islands with room for all that is to come, out of those without.
        Of the islands that are not mixed the first one of each size stands for all.
        """
        leave, enter, mixed = self._sides()
        short = {island for island in mixed if _gpus_at(self.enter, island) > self.free[island]}
        starts = _one_of_the_pure(leave, mixed)
        ends = [spot for spot in _one_of_the_pure(enter, mixed) if self.free[spot.island] >= spot.gpus]
        steps = [
            Step(start.gpus, start.island, end.island)
            for end in ends
            for start in starts
            if start.gpus == end.gpus and start.island != end.island
        ]
        return iter(sorted(steps, key=lambda step: (step.end in short, step.start not in short, step)))


def _one_of_the_pure(spots: list[Spot], mixed: set[int]) -> list[Spot]:
    found, sizes = [], set()
    for spot in spots:
        if spot.island in mixed:
            found.append(spot)
        elif spot.gpus not in sizes:
            sizes.add(spot.gpus)
            found.append(spot)
    return found


def _gpus_at(count: Counter[Spot], island: int) -> int:
    return sum(spot.gpus * n for spot, n in count.items() if spot.island == island)
