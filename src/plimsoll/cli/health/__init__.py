"""`plimsoll health`: what works, how well, and how much of it can be relied on."""

from __future__ import annotations

from plimsoll.cli.health.app import app

__all__ = ["app"]
