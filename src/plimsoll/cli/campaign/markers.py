"""Which scheduler marks a cluster's nodes, by the cluster's label and the settings."""

from __future__ import annotations

from plimsoll.campaigns.marks import AtDeadline, Marker, NoMarks
from plimsoll.state.state import State


def marker_of(state: State, cluster: str, at_deadline: AtDeadline) -> Marker:
    """The marker of a cluster."""
    _ = (state, cluster, at_deadline)
    return NoMarks()
