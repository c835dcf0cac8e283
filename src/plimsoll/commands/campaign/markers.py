"""Which scheduler marks a cluster's nodes, by the cluster's label and the settings."""

from __future__ import annotations

import os

from plimsoll.campaigns.marks.model import AtDeadline, Marker, NoMarks
from plimsoll.campaigns.marks.settings import marker_for
from plimsoll.fleet.fold import Fleet
from plimsoll.state.state import State
from plimsoll.times import utc_now


def marker_of(state: State, campaign: str, cluster: str, at_deadline: AtDeadline) -> Marker:
    """The marker of a cluster, for one campaign."""
    found = state.of(Fleet).clusters.get(cluster)
    if found is None:
        return NoMarks()
    return marker_for(campaign, found, os.environ, clock=utc_now, at_deadline=at_deadline)
