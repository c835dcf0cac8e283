"""What people say to incidents: open one, note something, close it. Pure.

Each answer is what has to be recorded, or a refusal that says what is so and what to type instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from plimsoll.errors import NotFound, Refused, UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.incidents.changes import IncidentClosed, IncidentNoted, IncidentOpened
from plimsoll.incidents.decide import amount_text, free_id
from plimsoll.incidents.fold import Incidents
from plimsoll.incidents.model import Incident
from plimsoll.ledger.model import Draft
from plimsoll.state.state import State
from plimsoll.times import show_time
from plimsoll.words import near

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def open_incident(
    state: State, name: str, title: str, *, clusters: Sequence[str], roster: Sequence[str]
) -> list[Draft]:
    """Something is going on: campaigns wait on these clusters, or everywhere, until it is closed."""
    known = state.of(Incidents).incidents.get(name)
    if known is not None:
        state_text = "closed" if known.closed_at else "open"
        message = f"there is an incident {name!r} already, {state_text}: {known.title}"
        raise Refused("incident_exists", message, next_step="choose another --id", incident=name)
    if not _NAME.fullmatch(name):
        message = f"{name[:100]!r} is no id: letters, digits, dots, dashes and underscores, at most 100"
        raise UsageError("bad_incident", message, next_step="choose another --id, or leave it out")
    if not title.strip():
        raise UsageError("bad_incident", "an incident without a title", next_step="say what is going on, in a line")
    fleet = state.of(Fleet).clusters
    for cluster in clusters:
        if cluster not in fleet:
            message = f"there is no cluster {cluster[:100]!r}{near(cluster, fleet)}"
            raise NotFound("unknown_cluster", message, next_step="plimsoll fleet show --by cluster")
    return [Draft(IncidentOpened(name, title, tuple(roster), tuple(clusters)))]


def find_incident(state: State, name: str) -> Incident:
    incidents = state.of(Incidents).incidents
    known = incidents.get(name)
    if known is None:
        message = f"there is no incident {name[:100]!r} among {len(incidents)}{near(name, incidents)}"
        raise NotFound("no_such_incident", message, next_step="plimsoll incident list --all")
    return known


def note_incident(state: State, name: str, note: str) -> list[Draft]:
    find_incident(state, name)
    if not note.strip():
        raise UsageError("bad_incident", "a note without words", next_step="say what was found or done")
    return [Draft(IncidentNoted(name, note))]


def close_incident(state: State, name: str, *, now: datetime) -> list[Draft]:
    """It is over. One that was found by looking is over when its trouble is, and not before."""
    known = find_incident(state, name)
    if known.closed_at is not None:
        message = f"{name!r} was closed at {show_time(known.closed_at)}"
        raise Refused("incident_closed", message, next_step=f"plimsoll incident show {name}")
    if known.is_on:
        raise Refused(
            "trouble_lasts",
            f"{name!r} is about {known.about}, which still is in trouble ({amount_text(known.amount, known.unit)});"
            " it closes by itself when that is gone",
            next_step=known.next_step or f"plimsoll incident show {name}",
            incident=name,
        )
    return [Draft(IncidentClosed(name, known.numbers_at(now)))]


def next_incident_id(state: State) -> str:
    tables = state.of(Incidents)
    return free_id(f"incident-{tables.opened + 1}", tables.incidents)
