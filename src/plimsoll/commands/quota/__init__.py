"""`plimsoll quota`: what is promised."""

from __future__ import annotations

from plimsoll.commands.quota import (
    changes,
    compare,
    control,
    flex,
    history,
    outlets,
    pilot,
    plan,
    promise,
    request,
    rollout,
    show,
    transfer,
)
from plimsoll.commands.quota.app import app

__all__ = [
    "app", "changes", "compare", "control", "flex", "history", "outlets", "pilot", "plan", "promise", "request",
    "rollout", "show", "transfer",
]  # fmt: skip

_ORDER = (
    ("show", "plan", "apply", "compare", "report"),  # what is promised, and what would be honest
    ("rollout", "notices", "agree", "object"),  # the correction, and what teams say to it
    ("pilot", "mode", "control"),  # letting it follow health, with the group `policy`
    ("flex", "callback", "promise", "history", "changes"),  # what is lent, and what was kept
    ("request", "requests", "approve", "deny", "withdraw"),  # asking for more
    ("transfer", "grants", "end-grant", "settle", "rename"),  # what moves between teams
    ("render", "push"),  # telling schedulers
)
_PLACES = {name: place for place, name in enumerate(name for group in _ORDER for name in group)}
# Help names the commands in the order in which they are needed, not in which their modules are imported.
app.registered_commands.sort(key=lambda command: _PLACES[command.name or ""])
