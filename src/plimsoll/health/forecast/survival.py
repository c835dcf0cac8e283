"""How long an outage lasts, from those that ended and those that have not: the Kaplan-Meier curve. Pure.

An open repair counts for as long as it has lasted and no longer: nobody peeks at how long it will take.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plimsoll.health.forecast.history import BoolArray, FloatArray

UNKNOWN_HOURS = 24.0
"""What a repair takes where none was ever seen."""
REPAIRS_MIN = 20
"""Fewer repairs than this say too little by themselves."""
LASTS_ON = 0.05
"""Below this share the curve rests on a repair or two, and age says more than it does."""


@dataclass(frozen=True)
class Survival:
    """The share of outages that last longer than so many hours: `share[i]` from `hours[i]` on; 1 before the first."""

    hours: FloatArray
    share: FloatArray

    @classmethod
    def of(cls, lasted: FloatArray, is_open: BoolArray) -> Survival:
        """The curve of outages that lasted so long, or so far."""
        if not len(lasted) or is_open.all():
            return cls(np.array([UNKNOWN_HOURS]), np.array([0.0]))
        # An outage that ends at the same hour as another is seen to last was still at risk there: ends come first.
        order = np.lexsort((is_open, lasted))
        at_risk = len(lasted) - np.arange(len(lasted))
        steps: FloatArray = np.where(is_open[order], 1.0, 1.0 - 1.0 / at_risk)
        return cls(lasted[order], np.cumprod(steps, dtype=np.float64))

    def beyond(self, hours: FloatArray) -> FloatArray:
        """The share that lasts longer than so many hours."""
        place = np.searchsorted(self.hours, hours, side="right")
        return np.concatenate([[1.0], self.share])[place]

    def mean_until(self, hours: FloatArray) -> FloatArray:
        """How long an outage lasts on average, counting at most so many hours of it."""
        edges = np.concatenate([[0.0], self.hours])
        shares = np.concatenate([[1.0], self.share])
        whole = np.concatenate([[0.0], np.cumsum(np.diff(edges) * shares[:-1])])
        place = np.searchsorted(edges, hours, side="right") - 1
        mean: FloatArray = whole[place] + (hours - edges[place]) * shares[place]
        return mean

    def lasts_on(self, age: FloatArray, hours: FloatArray) -> FloatArray:
        """For outages of these ages (rows): the chance that each still lasts so many hours from now (columns).

        One that is older than nearly all that were ever seen follows the rule that what has lasted long lasts as long
        again: half of them are still there after another such age.
        """
        now = self.beyond(age)[:, None]
        then = self.beyond(age[:, None] + hours[None, :])
        by_age = np.maximum(age, 1.0)[:, None] / (np.maximum(age, 1.0)[:, None] + hours[None, :])
        return np.where(now > LASTS_ON, then / np.maximum(now, LASTS_ON), by_age)

    def left(self, age: float, level: float) -> float:
        """How many hours more an outage of this age lasts at most, with this chance."""
        now = float(self.beyond(np.array([age]))[0])
        ends = np.flatnonzero(self.share <= now * (1 - level))
        if now <= LASTS_ON or not len(ends):
            return max(age, 1.0) * level / (1 - level)
        return max(0.0, float(self.hours[ends[0]]) - age)
