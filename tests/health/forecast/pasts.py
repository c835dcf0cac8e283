"""Builders of pasts: outages as (node, begin, end) in hours; the defaults are a quiet cluster."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plimsoll.health.forecast.history import HOUR, STILL_OUT, History, Span
from plimsoll.health.forecast.method import FleetView, View

Outages = Sequence[tuple[int, float, float]]

OPEN = STILL_OUT


def past(
    outages: Outages = (),
    *,
    nodes: int = 10,
    hours: int = 1000,
    name: str = "tiger",
    planned: Sequence[int] = (),
    left: Sequence[tuple[float, int]] = (),
) -> History:
    """A history; `planned` are places in `outages`, `left` the hours at which the count of nodes changes, and by how
    much.
    """
    order = sorted(range(len(outages)), key=lambda place: outages[place][1])
    node, began, ended = (np.array([outages[place][i] for place in order]) for i in range(3))
    return History(
        name,
        Span(0, hours * HOUR),
        nodes,
        node.astype(np.int64),
        began.astype(float),
        ended.astype(float),
        np.array([place in planned for place in order], bool),
        np.array([hour for hour, _ in left], float),
        np.array([sign for _, sign in left], np.int64),
    )


def view_of(history: History, hour: int, window: int = 90 * 24) -> View:
    """What is known at an hour, of a fleet with this one cluster."""
    return FleetView([history], hour, window).views[0]
