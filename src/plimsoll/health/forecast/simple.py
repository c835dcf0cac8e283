"""Methods that look at how many nodes were out in the hours of the window, and at nothing else. Pure."""

from __future__ import annotations

import numpy as np

from plimsoll.health.forecast.counts import binomial, empirical_quantile, negative_binomial, quantile
from plimsoll.health.forecast.method import Ask, Method, Promise, Records, View, hourly_takings


def _bounded(view: View, ask: Ask, buffer: int, **why: float) -> Promise:
    """Planned work that is known comes on top, as much as would hold by itself: these methods know no times."""
    known = empirical_quantile(hourly_takings(ask.takings, ask.horizon), ask.target) if ask.takings else 0
    return Promise(min(view.total, max(0, buffer + known)), why | ({"planned": float(known)} if known else {}))


class Independent(Method):
    """The naive baseline: failures that know nothing of each other.

    It can't see a burst coming, so a clean record of it is luck: it is there to compare with and is never recommended.
    """

    name = "independent"
    may_be_recommended = False
    says = "binomial: every node is out with the same chance, whatever the others do"

    def promise(self, view: View, ask: Ask, records: Records) -> Promise:
        share = float(view.recent.mean()) / max(view.total, 1) if len(view.recent) else 0.0
        return _bounded(view, ask, quantile(binomial(view.total, share), ask.target), out_share=share)


class Trailing(Method):
    """What would have held in the window."""

    name = "trailing"
    says = "the quantile of the hours of the window"

    def promise(self, view: View, ask: Ask, records: Records) -> Promise:
        return _bounded(view, ask, empirical_quantile(view.recent, ask.target), hours=float(len(view.recent)))


class Worst(Method):
    """The trivial rule."""

    name = "worst"
    says = "the worst hour of the window"

    def promise(self, view: View, ask: Ask, records: Records) -> Promise:
        return _bounded(view, ask, int(view.recent.max(initial=0)), hours=float(len(view.recent)))


class NegativeBinomial(Method):
    """Counts that vary more than chance alone would make them."""

    name = "negative_binomial"
    says = "negative binomial with the mean and the variance of the window"

    def promise(self, view: View, ask: Ask, records: Records) -> Promise:
        mean = float(view.recent.mean()) if len(view.recent) else 0.0
        variance = float(np.var(view.recent)) if len(view.recent) else 0.0
        table = negative_binomial(mean, variance, at_most=max(view.total, 1))
        return _bounded(view, ask, quantile(table, ask.target), mean=mean, variance=variance)
