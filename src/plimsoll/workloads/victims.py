"""Who must give way, so that a block of an island becomes free: the least that is enough. Pure, exact.

Elastic parts shrink before anything stops; what stops counts with all its GPUs. Among the ways that stop the fewest
GPUs the one that hurts the fewest in all is taken; among equals the lowest class goes first. Sums that can be reached
are kept as the bits of one number, so that hundreds of replicas are searched in microseconds.

Where it is not exact: what stops is chosen first, for the least cost, and only then what shrinks. Of two sets that stop
the same number of GPUs the one may leave a rest that shrinking fits more tightly; the other may be taken. Against brute
force that is so in about 3 of 1,000 random islands (tests/workloads/test_victims.py); never is more stopped than must
be, and what shrinks too much is less than one replica. Beyond `COSTS_MAX` the cheapest are taken one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

COSTS_MAX = 200_000
"""Steps of the search where parts stop that also hold GPUs elsewhere; beyond it the cheapest are taken one by one."""


class Option(NamedTuple):
    """A part that can give up GPUs of an island: `times` replicas of `gpus` each, or all of it where it `stops`.

    `cost` is what that hurts, at least `gpus`: a part that stops loses what it holds in other islands as well.
    Options come in the order in which they are to go: lowest class first.
    """

    who: Any
    gpus: int
    cost: int
    stops: bool
    times: int = 1


class Taken(NamedTuple):
    """What goes: options by place with how many times, and what it costs."""

    chosen: tuple[tuple[int, int], ...]
    stopped: int
    hurt: int
    freed: int

    @property
    def price(self) -> tuple[int, int]:
        """Stopped GPUs first, then all that are hurt."""
        return self.stopped, self.hurt


def fewest(options: Sequence[Option], need: int) -> Taken | None:
    """The cheapest of the options that frees at least `need` GPUs; None where all together are not enough.

    An option that stops replaces the option of the same `who` that shrinks: who has stopped can't shrink as well.
    """
    if need <= 0:
        return Taken((), 0, 0, 0)
    shrinks = [place for place, option in enumerate(options) if not option.stops]
    most = sum(options[place].gpus * options[place].times for place in shrinks)
    if most >= need:
        return _price(options, _tightest(options, shrinks, need))
    return _with_stops(options, shrinks, need)


def _tightest(options: Sequence[Option], places: Sequence[int], need: int) -> dict[int, int]:
    """Of options that cost what they free: the smallest sum that is enough, lowest class first."""
    units = [(place, options[place].gpus * times, times) for place in places for times in _powers(options[place].times)]
    reach = [1] * (len(units) + 1)  # reach[k]: the sums that the units from k on can make
    for k in range(len(units) - 1, -1, -1):
        reach[k] = reach[k + 1] | reach[k + 1] << units[k][1]
    target = need + _lowest_bit(reach[0] >> need)
    chosen: dict[int, int] = {}
    for k, (place, gpus, times) in enumerate(units):
        if gpus <= target and reach[k + 1] >> (target - gpus) & 1:
            chosen[place] = chosen.get(place, 0) + times
            target -= gpus
    return chosen


def _powers(times: int) -> list[int]:
    """1, 2, 4, … and the rest: sums of some of them are all numbers up to `times`."""
    found, power = [], 1
    while times > 0:
        found.append(min(power, times))
        times -= power
        power *= 2
    return found


def _lowest_bit(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _with_stops(options: Sequence[Option], shrinks: Sequence[int], need: int) -> Taken | None:
    """Shrinking alone is not enough. The fewest GPUs are stopped that leave no more than can be shrunk away."""
    shrink_of = {options[place].who: options[place].gpus * options[place].times for place in shrinks}
    stops = [place for place, option in enumerate(options) if option.stops]
    most = sum(shrink_of.values())
    # What a part that stops could have shrunk by is no longer to be had from it.
    gains = {place: options[place].gpus - shrink_of.get(options[place].who, 0) for place in stops}
    stops = [place for place in stops if gains[place] > 0]
    if most + sum(gains[place] for place in stops) < need:
        return None
    stopped = _cheapest(options, stops, gains, need - most)
    gone = {options[place].who for place in stopped}
    left = need - sum(options[place].gpus for place in stopped)
    still = [place for place in shrinks if options[place].who not in gone]
    shrunk = _tightest(options, still, left) if left > 0 else {}
    return _price(options, {**dict.fromkeys(stopped, 1), **shrunk})


def _cheapest(options: Sequence[Option], stops: Sequence[int], gains: dict[int, int], need: int) -> list[int]:
    """The stops of the least cost that gain enough."""
    if all(options[place].cost == gains[place] for place in stops):
        return list(_tightest(options, stops, need))
    if len(stops) * sum(options[place].cost for place in stops) > COSTS_MAX:
        return _one_by_one(options, stops, gains, need)
    best: list[dict[int, int]] = [{0: 0}]  # for each prefix, from the last class on: the most gained for a cost
    for place in reversed(stops):
        now = dict(best[-1])
        for cost, gained in best[-1].items():
            more = cost + options[place].cost
            if now.get(more, -1) < gained + gains[place]:
                now[more] = gained + gains[place]
        best.append(now)
    cost = min(each for each, gained in best[-1].items() if gained >= need)
    found = []
    for step, place in zip(range(len(stops), 0, -1), stops, strict=True):
        rest = best[step - 1].get(cost - options[place].cost)
        if rest is not None and rest + gains[place] >= need:
            found.append(place)
            cost -= options[place].cost
            need -= gains[place]
        if need <= 0 and cost == 0:
            break
    return found


def _one_by_one(options: Sequence[Option], stops: Sequence[int], gains: dict[int, int], need: int) -> list[int]:
    """Too many to search: the best gain for its cost first, and then whoever turns out not to be needed stays."""
    found: list[int] = []
    for place in sorted(stops, key=lambda each: (options[each].cost / gains[each], each)):
        if need <= 0:
            break
        found.append(place)
        need -= gains[place]
    for place in sorted(found, key=lambda each: -options[each].cost):
        if gains[place] <= -need:
            found.remove(place)
            need += gains[place]
    return found


def _price(options: Sequence[Option], chosen: dict[int, int]) -> Taken:
    stopped = sum(options[place].cost for place in chosen if options[place].stops)
    hurt = sum(options[place].cost * times for place, times in chosen.items())
    freed = sum(options[place].gpus * times for place, times in chosen.items())
    return Taken(tuple(sorted(chosen.items())), stopped, hurt, freed)
