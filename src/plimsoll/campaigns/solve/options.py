"""When a block may start: every way that days, windows, no-fly zones and rolling allow. Pure.

Nothing about limits here: an option is what its block could do if it were alone in the fleet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from plimsoll.campaigns.days import Days
from plimsoll.campaigns.solve.problem import Ints
from plimsoll.campaigns.units import Unit

Frozen = Mapping[str, Sequence[int]]
"""By unit: the minute in which each of its batches starts, and which is not to be changed."""


class Choice(NamedTuple):
    """The ways to start a block. `starts` and `days`: a line for each, the batches of its units in their order."""

    members: tuple[int, ...]
    starts: Ints
    days: Ints
    is_frozen: bool


class Clock:
    """The slots of all days in one table: the minute of each, and whether a clock shows it on that day."""

    def __init__(self, days: Days) -> None:
        self.days = days
        self.midnights = np.array([day.midnight for day in days.days] + [days.ends], dtype=np.int64)
        slots = [[-1 if at is None else at for at in day.slots] for day in days.days]
        self.slots = np.array(slots, dtype=np.int64).reshape(len(days.days), -1)
        self.is_there = np.array([[at is not None for at in day.slots] for day in days.days]).reshape(self.slots.shape)
        self.closes = np.array([day.closes for day in days.days], dtype=np.int64)
        self.moments = np.unique(self.slots[self.is_there & np.array([[day.is_open] for day in days.days])])

    def day_of(self, minutes: Ints) -> Ints:
        """The local day on which a minute lies; -1 before the first."""
        return np.searchsorted(self.midnights, minutes, side="right") - 1


def make_choices(
    units: Sequence[Unit], clock: Clock, *, is_together: bool, frozen: Frozen, earliest: int = 0
) -> list[Choice]:
    """The blocks and their options, by the first of their units. A block that can't start has no line.

    What is not frozen starts in the minute `earliest` or later.
    """
    alone = [_alone(unit, clock, frozen.get(unit.name), earliest) for unit in units]
    if not is_together:
        return [Choice((place,), *found, units[place].name in frozen) for place, found in enumerate(alone)]
    colos: defaultdict[str, list[int]] = defaultdict(list)
    for place, unit in enumerate(units):
        colos[unit.cluster.colo].append(place)
    blocks = [choice for members in colos.values() for choice in _colo(units, members, alone, frozen)]
    return sorted(blocks, key=lambda choice: choice.members)


def _alone(unit: Unit, clock: Clock, frozen: Sequence[int] | None, earliest: int) -> tuple[Ints, Ints]:
    count = len(unit.batches)
    if frozen is not None:
        starts = np.array(frozen, dtype=np.int64).reshape(1, count)
        return starts, clock.day_of(starts)
    permitted = np.nonzero([unit.may_be_touched(day) for day in clock.days.days])[0]
    if len(permitted) < count:
        none = np.zeros((0, count), dtype=np.int64)
        return none, none
    slots = clock.slots[permitted]
    fits = clock.is_there[permitted] & (slots + unit.minutes <= clock.closes[permitted][:, None])
    sums = np.concatenate([np.zeros((1, fits.shape[1]), dtype=np.int64), np.cumsum(fits, axis=0)])
    first, slot = np.nonzero(sums[count:] - sums[:-count] == count)
    places = first[:, None] + np.arange(count)
    starts, days = slots[places, slot[:, None]], permitted[places]
    is_late_enough = starts[:, 0] >= earliest
    return starts[is_late_enough], days[is_late_enough]


def _colo(
    units: Sequence[Unit], members: Sequence[int], alone: Sequence[tuple[Ints, Ints]], frozen: Frozen
) -> list[Choice]:
    """The units of a colo as one block. What is frozen stays what it is, and the others join it if they can."""
    fixed = [place for place in members if units[place].name in frozen]
    free = [place for place in members if units[place].name not in frozen]
    found = [Choice((place,), *alone[place], is_frozen=True) for place in fixed]
    if not free:
        return found
    common = alone[free[0]][0][:, 0]
    for place in free[1:]:
        common = np.intersect1d(common, alone[place][0][:, 0])
    for place in fixed:
        joined = np.intersect1d(common, alone[place][0][:, 0])
        common = joined if len(joined) else common
    lines = [np.searchsorted(alone[place][0][:, 0], common) for place in free]
    starts = np.hstack([alone[place][0][line] for place, line in zip(free, lines, strict=True)])
    days = np.hstack([alone[place][1][line] for place, line in zip(free, lines, strict=True)])
    return [*found, Choice(tuple(free), starts, days, is_frozen=False)]
