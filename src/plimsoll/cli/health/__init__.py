"""`plimsoll health`: what works, how well, and how much of it can be relied on."""

from __future__ import annotations

from plimsoll.cli.health import act, levels, observe, outages, policy, show  # the order of the help
from plimsoll.cli.health.app import app

__all__ = ["act", "app", "levels", "observe", "outages", "policy", "show"]
