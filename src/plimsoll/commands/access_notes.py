"""What the commands of access say besides their answers: names that nobody knows yet, roles that are missing."""

from __future__ import annotations

from datetime import datetime

from plimsoll.access.fold import Access
from plimsoll.access.model import Kind, holder_of
from plimsoll.quota.names import known_teams
from plimsoll.state.state import State
from plimsoll.words import near


def team_notes(state: State, team: str) -> list[str]:
    """Nothing, or that the team is not known."""
    known = known_teams(state)
    return [f"no team {team!r} holds or uses anything yet{near(team, known)}"] if team and team not in known else []


def role_notes(state: State, name: str, kind: Kind) -> list[str]:
    """Nothing, or that they have no role."""
    holder = holder_of(name, kind)
    if state.of(Access).bindings_of(holder):
        return []
    return [f"{holder} has no role of its own yet: plimsoll access grant {holder} ROLE"]


def second(moment: datetime | None) -> datetime | None:
    """For a table: nobody reads microseconds there."""
    return None if moment is None else moment.replace(microsecond=0)
