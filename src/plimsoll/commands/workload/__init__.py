"""`plimsoll workload`: who runs where."""

from __future__ import annotations

from plimsoll.commands.workload import change, defrag, show, submit, team
from plimsoll.commands.workload.app import app

__all__ = ["app", "change", "defrag", "show", "submit", "team"]

_ORDER = (
    ("example", "submit", "list", "show"),  # ask for room, and see what became of it
    ("scale", "rank", "cancel", "finish"),  # change or end it
    ("usage", "hold", "holds", "release"),  # inside a team
    ("uptime", "defrag", "run"),  # what it was worth, and keeping it running
)
_PLACES = {name: place for place, name in enumerate(name for group in _ORDER for name in group)}
# Help names the commands in the order in which they are needed, not in which their modules are imported.
app.registered_commands.sort(key=lambda command: _PLACES[command.name or ""])
