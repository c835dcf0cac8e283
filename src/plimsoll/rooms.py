"""The composition root: which capabilities there are, in their order. The only module that knows them all."""

from __future__ import annotations

import plimsoll.access.fold
import plimsoll.campaigns.fold
import plimsoll.campaigns.versions.fold
import plimsoll.fleet.fold
import plimsoll.health.fold
import plimsoll.incidents.fold
import plimsoll.lifecycle.fold
import plimsoll.quota.fold
import plimsoll.workloads.fold
from plimsoll.campaigns.run.caps import ExceededCaps
from plimsoll.campaigns.versions.sheet import VersionsSheet
from plimsoll.fleet.sheet import Sheet
from plimsoll.fleet.sheets import ClustersSheet, NodesSheet, SkusSheet
from plimsoll.health.sheet import HistorySheet
from plimsoll.incidents.finders import FINDERS as FOUND_BY_LOOKING
from plimsoll.incidents.model import Finder
from plimsoll.ledger import open_ledger
from plimsoll.quota.sheet import QuotasSheet
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import Kinds
from plimsoll.times import Clock, utc_now
from plimsoll.workloads.service import react_to_change
from plimsoll.workloads.sheet import WorkloadsSheet

KINDS = Kinds(
    (
        plimsoll.access.fold.ROOM,
        plimsoll.fleet.fold.ROOM,
        plimsoll.health.fold.ROOM,
        plimsoll.quota.fold.ROOM,
        plimsoll.workloads.fold.ROOM,
        plimsoll.incidents.fold.ROOM,
        plimsoll.campaigns.fold.ROOM,
        plimsoll.campaigns.versions.fold.ROOM,
        plimsoll.lifecycle.fold.ROOM,
    )
)

SHEETS: tuple[Sheet, ...] = (
    SkusSheet(),
    ClustersSheet(),
    NodesSheet(),
    QuotasSheet(),
    WorkloadsSheet(),
    VersionsSheet(),
    HistorySheet(),
)
"""A fleet folder's files, each after those it refers to."""


REACTIONS = (react_to_change,)
"""Gangs are repaired, and what waits is started, as soon as nodes or promises change, whoever changed them."""


FINDERS: tuple[Finder, ...] = (*FOUND_BY_LOOKING, ExceededCaps())
"""What opens incidents: whatever of these is there. See `plimsoll.incidents.service.run_pass`."""


def open_keeper(dsn: str, *, create: bool = False, clock: Clock = utc_now) -> Keeper:
    """The state of the database that a URL names."""
    return Keeper(open_ledger(dsn, create=create, clock=clock), KINDS, REACTIONS)
