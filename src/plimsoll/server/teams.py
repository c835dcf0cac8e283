"""Whose team a request is about: named in it, or found by what it names.

Something that does not exist belongs to nobody: the command itself says so. What stands in files only the command
reads, and so it asks itself (`commands.desk.check_teams`): two readers of one text may understand it differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.access.model import NO_TEAM
from plimsoll.quota.fold import QuotaBook
from plimsoll.server.routes import Route
from plimsoll.state.state import State
from plimsoll.workloads.fold_tables import Workloads


def teams_of(state: State, route: Route, read: Mapping[str, Any]) -> list[str] | None:
    """The teams a request is about; None where the thing it names does not exist."""
    if not route.team:
        return []
    kind, _, name = route.team.rpartition(":")
    value = read.get(name)
    if not kind:
        return [str(value)]
    found = _FIND[kind](state, str(value))
    return None if found is None else [found]


def _workload(state: State, name: str) -> str | None:
    tables = state.of(Workloads)
    if (asked := tables.asked.get(name)) is not None:
        return asked.spec.team
    if (observed := tables.workloads.get(name)) is not None:
        return observed.team or NO_TEAM
    past = tables.past.get(name)
    return past.spec.team if past is not None else None


def _request(state: State, name: str) -> str | None:
    found = state.of(QuotaBook).requests.get(name)
    return found.team if found is not None else None


def _grant(state: State, name: str) -> str | None:
    found = state.of(QuotaBook).grants.get(name)
    return found.team if found is not None else None


def _hold(state: State, name: str) -> str | None:
    found = state.of(Workloads).holds.get(name)
    return found.team if found is not None else None


_FIND = {"workload": _workload, "request": _request, "grant": _grant, "hold": _hold}
