"""`plimsoll campaign`: planned work over many clusters."""

from __future__ import annotations

from plimsoll.cli.campaign import run, status
from plimsoll.cli.campaign.app import app

__all__ = ["app", "run", "status"]
