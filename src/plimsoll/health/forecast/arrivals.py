"""The count of nodes out, built from what makes it: who is out now and when they return, new failures with their rate
and burstiness and repair times, bursts with a common cause, and planned work that is known. Pure.

At a time u from now the count is the sum of independent parts, so its generating function is their product:

- a node out now for `a` hours is still out with the chance that a repair of age `a` lasts u more (Kaplan-Meier);
- single failures arrive at a rate that is itself uncertain and bursty: given the rate, those still out are Poisson with
  mean rate x (mean repair time counted up to u); over a gamma-distributed rate they are negative binomial;
- each burst ever seen comes again at the rate of once in the time it was looked for, and takes all its nodes at once;
- planned work is known, and shifts the count.

A promise is judged by the share of hours in which it holds, so the distribution is the average over the horizon, not
that of its worst hour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plimsoll.health.forecast.counts import quantile
from plimsoll.health.forecast.history import FloatArray, IntArray
from plimsoll.health.forecast.method import Ask, Method, Presence, Promise, Records, Taking, View, hourly_takings
from plimsoll.health.forecast.survival import REPAIRS_MIN, Survival

CELLS = 12
"""Parts of the horizon, short ones first: much changes at once, little later."""
CELL_GROWTH = 1.5
WEEK_HOURS = 168
RATE_PRIOR = 0.5
"""Half a failure more than was seen: a window without one is not proof that there are none."""
AGE_GROUPS = 4
TABLE_SPREADS = 10.0
TABLE_EXTRA = 24
TABLE_MAX = 1 << 16

Complex = npt.NDArray[np.complex128]
BurstsAhead = Callable[[FloatArray], Presence]
"""The bursts to be expected at some times."""


@dataclass(frozen=True)
class Outlook:
    """The chances of the count of nodes out: on average over the horizon, and in each part of it."""

    middle: FloatArray
    """The middle of each part, in hours from now."""
    cumulated_by_part: FloatArray
    cumulated: FloatArray
    why: dict[str, float]


@dataclass(frozen=True)
class _Singles:
    """Failures that come alone: how many an hour, how sure that is, and how long they last."""

    per_hour: float
    shape: float
    lasting: Survival
    dispersion: float


def part_edges(horizon: int) -> FloatArray:
    """Where the parts of a horizon begin and end."""
    return horizon * np.linspace(0.0, 1.0, CELLS + 1) ** CELL_GROWTH


def outlook(view: View, ask: Ask, bursts: BurstsAhead, lasting: Survival | None = None) -> Outlook:
    """The distribution of the count of nodes out over the horizon. `bursts` and `lasting` may be borrowed."""
    edges = part_edges(ask.horizon)
    middle, weight = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / ask.horizon
    singles = _singles(view, lasting)
    stays, counts = _staying(view, singles.lasting, middle)
    fresh = singles.per_hour * singles.lasting.mean_until(middle)
    ahead = bursts(middle).gathered(1.0)
    sizes, presence = ahead.nodes.astype(np.int64), ahead.expected
    planned = _planned([*ask.takings, *view.present.takings], edges)
    length = _length(counts @ stays, fresh, singles.shape, sizes, presence, planned)
    z: Complex = np.exp(-2j * np.pi * np.arange(length // 2 + 1) / length)
    # The transform of a table of chances is its generating function on the unit circle, so a burst table needs no loop.
    table = np.zeros((len(middle), length))
    table[:, sizes] = presence
    bursts_part = np.fft.rfft(table, axis=1) - presence.sum(axis=1)[:, None]
    factors: Complex = np.exp(bursts_part - singles.shape * np.log1p(fresh[:, None] / singles.shape * (1 - z)))
    for stay, count in zip(stays, counts, strict=True):
        factors *= _power(1 + stay[:, None] * (z - 1), int(count))
    if planned is not None:
        factors *= np.stack([np.fft.rfft(np.bincount(part, minlength=length) / len(part)) for part in planned])
    by_part = np.cumsum(np.fft.irfft(factors, length, axis=1), axis=1)
    why = {
        "out_now": float(view.out),
        "out_at_end": float(counts @ stays[:, -1]) + _due_after(view, middle[-1]),
        "failures_per_1000_node_days": 24_000 * singles.per_hour / max(view.total, 1),
        "weekly_dispersion": singles.dispersion,
        "repair_hours_median": singles.lasting.left(0.0, 0.5),
        "repair_hours_p90": singles.lasting.left(0.0, 0.9),
        "burst_count": float(len(view.bursts.sizes)),
        "burst_nodes_max": float(view.bursts.sizes.max(initial=0.0)),
    }
    return Outlook(middle, by_part, weight @ by_part, why)


def _due_after(view: View, hour: float) -> int:
    """How many nodes with a told return are still out then."""
    return sum(taking.node_count for taking in view.present.takings if taking.end > hour)


def _singles(view: View, lasting: Survival | None) -> _Singles:
    began, _, _ = view.singles(view.window)
    if lasting is None:
        lasting = own_survival(view)
    seen = len(began) + RATE_PRIOR
    shape = seen
    weeks = np.bincount(
        ((view.hour - began) // WEEK_HOURS).astype(np.int64), minlength=max(1, view.window // WEEK_HOURS)
    )[: max(1, view.window // WEEK_HOURS)]
    mean = float(weeks.mean())
    excess = (float(weeks.var(ddof=1)) - mean) / mean**2 if len(weeks) > 1 and mean > 0 else 0.0
    if excess > 0:
        # Both not knowing the rate and the rate moving from week to week make the count vary.
        shape = 1 / (1 / seen + excess)
    return _Singles(seen / max(view.window, 1), shape, lasting, 1 + max(0.0, excess) * mean)


def own_survival(view: View) -> Survival:
    """How long single outages last: those of the window, or of all the past where these are few."""
    _, lasted, is_open = view.singles(view.window)
    if len(lasted) < REPAIRS_MIN:
        _, lasted, is_open = view.singles(view.hour)
    return Survival.of(lasted, is_open)


def _staying(view: View, lasting: Survival, middle: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of the nodes out now, in groups: the chance to be out at each time, and how many they are."""
    ages, counts = _age_groups(view.open_ages(in_bursts=False))
    burst_ages, burst_counts = _age_groups(view.open_ages(in_bursts=True))
    stays = lasting.lasts_on(ages, middle)
    if not len(burst_ages):
        return stays, counts
    # What one cause took comes back together, and sooner or later than what broke by itself.
    burst_stays = Survival.of(*view.burst_outages()).lasts_on(burst_ages, middle)
    return np.concatenate([stays, burst_stays]), np.concatenate([counts, burst_counts])


def _power(base: Complex, exponent: int) -> Complex:
    """By squaring: exact for whole exponents, and a tenth of the time of a complex power."""
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result = result * base
        base, exponent = base * base, exponent >> 1
    return result


def _age_groups(ages: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Nodes that are out for about as long are taken together, by their mean age."""
    if len(ages) <= AGE_GROUPS:
        return ages, np.ones(len(ages))
    parts = np.array_split(np.sort(ages), AGE_GROUPS)
    return np.array([part.mean() for part in parts]), np.array([float(len(part)) for part in parts])


def _planned(takings: Sequence[Taking], edges: FloatArray) -> list[IntArray] | None:
    """Per part of the horizon how many nodes planned work takes, hour by hour; None where none is known."""
    if not takings:
        return None
    taken = hourly_takings(takings, round(edges[-1]))
    places = np.searchsorted(edges, np.arange(len(taken)) + 0.5) - 1
    return [taken[places == part] if (places == part).any() else np.zeros(1, np.int64) for part in range(CELLS)]


def _length(
    stay: FloatArray,
    fresh: FloatArray,
    shape: float,
    sizes: IntArray,
    presence: FloatArray,
    planned: list[IntArray] | None,
) -> int:
    """A table long enough that next to no chance lies beyond it; a power of two, for the transform."""
    mean = stay + fresh + presence @ sizes
    variance = stay + fresh + fresh**2 / shape + presence @ sizes.astype(float) ** 2
    most = float((mean + TABLE_SPREADS * np.sqrt(variance)).max(initial=0.0)) + TABLE_EXTRA + int(sizes.max(initial=0))
    most += max((int(part.max()) for part in planned), default=0) if planned else 0
    return min(TABLE_MAX, 1 << int(np.ceil(np.log2(most + 1))))


class Arrivals(Method):
    """Failures and repairs as they come, given who is out now, from the cluster's own past."""

    name = "arrivals"
    sees_present = True
    says = "bursty arrivals, empirical repair times and common-cause bursts, given who is out now"

    def promise(self, view: View, ask: Ask, records: Records) -> Promise:
        expected = self.expect(view, ask)
        return promise_at(view, expected, ask.target)

    def expect(self, view: View, ask: Ask) -> Outlook:
        """The distribution that a level is taken from; the same for all methods that rest on the cluster's own past."""
        key = ("own", ask.horizon, tuple(ask.takings))
        if key not in view.memo:
            view.memo[key] = outlook(view, ask, view.bursts.presence)
        expected: Outlook = view.memo[key]
        return expected


def promise_at(view: View, expected: Outlook, level: float, **why: float) -> Promise:
    """The buffer that holds with this chance on average over the horizon."""
    buffer = min(view.total, quantile(expected.cumulated, level))
    return Promise(buffer, expected.why | {"level": level} | why)
