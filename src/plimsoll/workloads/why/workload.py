"""Why a workload waits, or how it runs: the answer for one that is known by its name. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from difflib import get_close_matches

from plimsoll.errors import NotFound
from plimsoll.fleet.fold import Fleet
from plimsoll.quota.names import known_teams
from plimsoll.quota.policy import Policy
from plimsoll.state.state import State
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.shape import missing_parts
from plimsoll.workloads.why.model import WorkWhy
from plimsoll.workloads.why.running import explain_running
from plimsoll.workloads.why.waiting import explain_waiting

NAME_SHOWN = 100
NEAR_SHOWN = 5


def explain_workload(state: State, name: str, *, now: datetime, grace: timedelta, policy: Policy) -> WorkWhy:
    """The answer for work that waits or runs."""
    tables = state.of(Workloads)
    asked, running = tables.asked.get(name), tables.workloads.get(name)
    if asked is not None and missing_parts(asked.spec, running):
        return explain_waiting(state, name, now=now, grace=grace, policy=policy)
    if running is None:
        raise unknown(state, name)
    return explain_running(state, name, now=now)


def unknown(state: State, name: str) -> NotFound:
    """Nobody and nothing has that name: the nearest of all names."""
    tables = state.of(Workloads)
    work, teams, nodes = {*tables.asked, *tables.workloads, *tables.past}, known_teams(state), state.of(Fleet).nodes
    close = get_close_matches(name, [*work, *teams], n=NEAR_SHOWN) or get_close_matches(name, nodes, n=NEAR_SHOWN)
    hint = f"; did you mean {close[0]}?" if close else ""
    return NotFound(
        "no_such_name",
        f"{name[:NAME_SHOWN]!r} is none of {len(work):,} workloads, {len(teams):,} teams, {len(nodes):,} nodes{hint}",
        next_step="plimsoll workload list, plimsoll quota show, plimsoll fleet nodes",
        name=name[:NAME_SHOWN],
        near=close,
    )
