"""Distributions of a count of nodes: cumulated chances from 0 up, and their quantiles. NumPy only, pure."""

from __future__ import annotations

import math

import numpy as np

from plimsoll.health.forecast.history import FloatArray, IntArray

MEAN_MIN = 1e-3
"""A count that was always 0 is not certain to stay so."""
SPREADS = 14.0
"""A table of a count reaches so many standard deviations beyond its mean."""
TABLE_EXTRA = 32
ROUNDING = 1e-9


def quantile(cumulated: FloatArray, level: float) -> int:
    """The smallest count that is not exceeded with this chance; the end of the table where it does not reach."""
    place = int(np.searchsorted(cumulated, level - ROUNDING))
    return min(place, len(cumulated) - 1)


def binomial(count: int, chance: float) -> FloatArray:
    """So many nodes, each out with the same chance, independently."""
    chance = min(max(chance, MEAN_MIN / max(count, 1)), 1 - ROUNDING)
    k = np.arange(count)
    logs = np.concatenate([[0.0], np.cumsum(np.log((count - k) / (k + 1)) + math.log(chance / (1 - chance)))])
    return np.cumsum(np.exp(logs + count * math.log1p(-chance)))


def negative_binomial(mean: float, variance: float, *, at_most: int) -> FloatArray:
    """A count with this mean and variance; nearly Poisson where the variance is no larger than the mean."""
    mean = max(mean, MEAN_MIN)
    shape = mean * mean / max(variance - mean, 1e-3 * mean)
    stay = shape / (shape + mean)
    k = np.arange(1, min(at_most, int(mean + SPREADS * math.sqrt(max(variance, mean)) + TABLE_EXTRA)) + 1)
    start = shape * math.log(stay)
    logs = np.concatenate([[start], start + np.cumsum(np.log((k - 1 + shape) / k) + math.log1p(-stay))])
    return np.cumsum(np.exp(logs))


def empirical_quantile(values: IntArray, level: float) -> int:
    """The smallest value that at least this share of the values does not exceed."""
    if not len(values):
        return 0
    place = min(len(values) - 1, max(0, math.ceil(level * len(values) - ROUNDING) - 1))
    return int(np.partition(values, place)[place])
