"""What carries a campaign out, and what it says that it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from plimsoll.campaigns.marks import Marker, NoMarks
from plimsoll.connect.errands import Errands


class Outside(NamedTuple):
    """The schedulers of the clusters, and where commands are run."""

    errands: Errands
    marker: Callable[[str, str], Marker] = lambda _campaign, _cluster: NoMarks()
    """By campaign and cluster: two campaigns may have a batch of the same id."""


class Did(NamedTuple):
    """One thing that a pass did, or could not do."""

    batch: str
    act: str
    text: str
    is_failed: bool = False
