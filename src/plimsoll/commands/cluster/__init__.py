"""`plimsoll cluster`: clusters being made."""

from __future__ import annotations

from plimsoll.commands.cluster import listing, people, planning, quota, recipe, run, show
from plimsoll.commands.cluster.app import app

__all__ = ["app", "listing", "people", "planning", "quota", "recipe", "run", "show"]

_ORDER = (
    ("add", "import", "edit", "list", "show", "log"),  # what is wanted, and how far it is
    ("checkin", "run", "retry", "waive", "pause", "resume", "retire"),  # bring it there
    ("quota", "times", "migrate", "render"),  # what is owed, how long it takes
)
_PLACES = {name: place for place, name in enumerate(name for group in _ORDER for name in group)}
app.registered_commands.sort(key=lambda command: _PLACES[command.name or ""])
