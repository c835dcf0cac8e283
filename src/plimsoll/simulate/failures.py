"""When nodes fail and how long their repair takes: by dice that are seeded, so that a replay can be had again."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from plimsoll.simulate.model import DAY_US, HOUR_US

REPAIR_SIGMA = 1.0
"""The spread of a repair's logarithm: most are short, some are very long."""


class Failures:
    """Failures of nodes that are in service come as a Poisson process; repairs are lognormal with the given mean."""

    def __init__(self, nodes: Sequence[str], *, per_1000_node_days: float, repair_hours: float, seed: int) -> None:
        self._dice = random.Random(f"failures {seed}")  # noqa: S311
        self._nodes = nodes
        self._mean_us = DAY_US * 1000 / (per_1000_node_days * len(nodes)) if per_1000_node_days and nodes else 0.0
        self._mu = math.log(max(repair_hours, 1e-6) * HOUR_US) - REPAIR_SIGMA**2 / 2

    def next_at(self, now: int) -> int | None:
        """When the next failure comes; None where there are none."""
        return now + max(1, round(self._dice.expovariate(1 / self._mean_us))) if self._mean_us else None

    def node(self) -> str:
        """Whom it hits. One that is out already is not hit again: so each node in service fails at the given rate."""
        return self._dice.choice(self._nodes)

    def repair_us(self) -> int:
        return max(1, round(self._dice.lognormvariate(self._mu, REPAIR_SIGMA)))
