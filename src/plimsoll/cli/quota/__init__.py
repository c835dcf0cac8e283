"""`plimsoll quota`: what is promised."""

from __future__ import annotations

from plimsoll.cli.quota import compare, control, flex, outlets, plan, promise, request, rollout, show, transfer
from plimsoll.cli.quota.app import app

__all__ = ["app", "compare", "control", "flex", "outlets", "plan", "promise", "request", "rollout", "show", "transfer"]
