"""A method that spends the fleet's risk where it saves the most nodes. Pure.

One more node of buffer is worth much in a cluster whose count varies little, and next to nothing in one where only a
rare burst of half the cluster would need it. So all clusters pay the same price: a buffer grows as long as a share of
the cluster's nodes buys off at least so many violated hours. The price is such that the fleet as a whole takes the risk
that its account allows. The promise is the fleet's: a single cluster may be violated somewhat more often than the
target allows, which is why this method is not chosen for a cluster by itself.
"""

from __future__ import annotations

import numpy as np

from plimsoll.health.forecast.counts import quantile
from plimsoll.health.forecast.guarded import RISK_LEAST, Pooled, guarded_risk
from plimsoll.health.forecast.history import FloatArray
from plimsoll.health.forecast.method import Ask, FleetView, Promise, Records, View

THRIFTY_AIM = 0.85
THRIFTY_RISK_MOST = 3.0
"""However dear a buffer is, no cluster takes more than this multiple of the allowed risk in one horizon."""
PRICES = (1e-3, 1e6)
"""Shares of a cluster per unit of risk, between which the price lies."""
STEPS = 40


class Thrifty(Pooled):
    """Pooled, with the risk spread over the clusters at one price."""

    name = "thrifty"
    says = "pooled, with the fleet's risk spent where it saves most nodes; single clusters may be violated more often"
    promises_each = False
    aim = THRIFTY_AIM

    def promise(self, view: View, ask: Ask, records: Records) -> Promise:
        if view.fleet is None:
            return super().promise(view, ask, records)
        price = self._price(view.fleet, ask, records)
        costs, risks = self._curve(view, ask)
        cumulated = self.expect(view, ask).cumulated
        least, most = (quantile(cumulated, 1 - times * ask.risk) for times in (THRIFTY_RISK_MOST, RISK_LEAST))
        buffer = min(max(_bought(costs, risks, price), least), most, view.total)
        level = 1 - float(risks[min(buffer, len(risks) - 1)])
        return Promise(buffer, self.expect(view, ask).why | {"price": price, "level": level})

    def _curve(self, view: View, ask: Ask) -> tuple[FloatArray, FloatArray]:
        """For each buffer, from none up: what it costs as a share of the cluster, and which risk it leaves."""
        cumulated = self.expect(view, ask).cumulated[: view.total + 1]
        return np.arange(len(cumulated)) / max(view.total, 1), np.maximum(0.0, 1 - cumulated)

    def _price(self, fleet: FleetView, ask: Ask, records: Records) -> float:
        """The lowest price at which the clusters together take no more risk than the account allows."""
        key = ("price", ask.horizon, ask.target)
        if key not in fleet.memo:
            allowed = guarded_risk(ask, records, aim=self.aim, fleet_weight=1.0)
            plain = Ask(ask.horizon, ask.target)
            curves = [self._curve(view, plain) for view in fleet.views if view.total]
            low, high = PRICES
            for _ in range(STEPS):
                price = (low * high) ** 0.5
                taken = sum(float(risks[_bought(costs, risks, price)]) for costs, risks in curves) / len(curves)
                low, high = (price, high) if taken > allowed else (low, price)
            fleet.memo[key] = high
        found: float = fleet.memo[key]
        return found


def _bought(costs: FloatArray, risks: FloatArray, price: float) -> int:
    """The buffer that is worth its cost at this price; the higher the price of risk, the larger."""
    return int(np.argmin(costs + price * risks))
