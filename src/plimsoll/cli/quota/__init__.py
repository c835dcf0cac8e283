"""`plimsoll quota`: what is promised."""

from __future__ import annotations

from plimsoll.cli.quota import compare, control, outlets, plan, rollout, show
from plimsoll.cli.quota.app import app

__all__ = ["app", "compare", "control", "outlets", "plan", "rollout", "show"]
