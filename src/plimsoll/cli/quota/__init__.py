"""`plimsoll quota`: what is promised."""

from __future__ import annotations

from plimsoll.cli.quota import outlets as outlets
from plimsoll.cli.quota import control, outlets, plan, rollout, show
from plimsoll.cli.quota.app import app

__all__ = ["app", "control", "outlets", "plan", "rollout", "show"]
