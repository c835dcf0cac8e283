"""The phase of a cluster, derived from what is true of it; never set. Pure."""

from __future__ import annotations

from plimsoll.fleet.model import Phase
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import ConditionType, Life
from plimsoll.state.state import State

BUILT = (ConditionType.CHECKED_IN, ConditionType.INFRASTRUCTURE_APPLIED, ConditionType.SCALE_SETS_READY)
"""What makes a cluster provisioned: from then on it is being validated."""
ORDER = (Phase.PLANNED, Phase.PROVISIONING, Phase.PROVISIONED, Phase.PRODUCTION)


def phase_of(life: Life) -> Phase:
    """Planned until quota is promised to it; a cluster stays in production whatever its health, until it leaves."""
    if life.gone_at is not None:
        return Phase.RETIRED
    if life.available_at is not None:
        return Phase.PRODUCTION
    if life.claimed_at is None:
        return Phase.PLANNED
    conditions = [life.condition(kind) for kind in BUILT]
    is_built = all(condition is not None and condition.is_true for condition in conditions)
    return Phase.PROVISIONED if is_built else Phase.PROVISIONING


def has_reached(phase: Phase, wanted: Phase) -> bool:
    """Whether a phase is as far as another one. A retired cluster has reached nothing but its end."""
    if phase is Phase.RETIRED or wanted is Phase.RETIRED:
        return phase is wanted
    return ORDER.index(phase) >= ORDER.index(wanted)


def own_phases(state: State) -> dict[str, Phase]:
    """The clusters that we make or made and that are not gone: a file does not set their phase."""
    lives = state.of(Lives).lives.items()
    return {name: phase_of(life) for name, life in lives if life.gone_at is None}
