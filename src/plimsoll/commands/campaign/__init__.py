"""`plimsoll campaign`: planned work over many clusters."""

from __future__ import annotations

from plimsoll.commands.campaign import calendar, combinations, compare, feed, plan, publish, run, status, versions
from plimsoll.commands.campaign.app import app

__all__ = ["app", "calendar", "combinations", "compare", "feed", "plan", "publish", "run", "status", "versions"]

_ORDER = (
    ("example", "plan", "check", "compare", "publish", "feed"),  # make a plan, prove it, tell it
    ("start", "run", "status", "calendar", "list", "gate"),  # carry it out
    ("tick", "agree", "returned", "pause", "resume", "replan", "cancel"),  # what people say meanwhile
    ("combinations", "tested", "want", "blocked", "behind"),  # which versions meet
)
_PLACES = {name: place for place, name in enumerate(name for group in _ORDER for name in group)}
# Help names the commands in the order in which they are needed, not in which their modules are imported.
app.registered_commands.sort(key=lambda command: _PLACES[command.name or ""])
