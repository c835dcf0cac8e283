"""`plimsoll health`: what works, how well, and how much of it can be relied on."""

from __future__ import annotations

from plimsoll.commands.health import act, ahead, forecast, levels, observe, outages, policy, show
from plimsoll.commands.health.app import app

__all__ = ["act", "ahead", "app", "forecast", "levels", "observe", "outages", "policy", "show"]

_ORDER = (
    ("show", "slo", "outages", "forecast", "backtest"),  # what works, and how well
    ("signal", "listen", "sweep"),  # what comes in, with the group `observe`
    ("set", "hold", "release", "holds", "tick", "breaker"),  # what people do
    ("announce", "announced", "withdraw"),  # what they will do
)
_PLACES = {name: place for place, name in enumerate(name for group in _ORDER for name in group)}
# Help names the commands in the order in which they are needed, not in which their modules are imported.
app.registered_commands.sort(key=lambda command: _PLACES[command.name or ""])
