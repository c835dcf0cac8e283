"""What the service levels are measured against."""

from __future__ import annotations

IN_SERVICE_GOAL = 0.95
MTTR_GOAL_HOURS = 48.0
GOALS = {"in_service_share": IN_SERVICE_GOAL, "mttr_hours": MTTR_GOAL_HOURS}
"""As answers name them."""
