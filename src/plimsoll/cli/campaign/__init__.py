"""`plimsoll campaign`: planned work over many clusters."""

from __future__ import annotations

from plimsoll.cli.campaign import combinations, compare, plan, publish, run, status, versions
from plimsoll.cli.campaign.app import app

__all__ = ["app", "combinations", "compare", "plan", "publish", "run", "status", "versions"]
