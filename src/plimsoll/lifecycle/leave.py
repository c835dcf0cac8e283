"""The way out: the nodes of a cluster drain, its steps out are done, and then all of it is retired. Pure."""

from __future__ import annotations

from datetime import timedelta

from plimsoll.fleet.model import Service
from plimsoll.health.acts import Acting, place_hold
from plimsoll.health.facts import Hold
from plimsoll.health.fold import Health
from plimsoll.ledger.model import Draft
from plimsoll.lifecycle.model import Life
from plimsoll.lifecycle.recipe import Recipe
from plimsoll.lifecycle.world import World
from plimsoll.workloads.fold_tables import Workloads

DRAIN_MAX = timedelta(days=3650)
"""A cluster that leaves drains until it is empty, however long that takes."""


def hold_id(life: Life) -> str:
    return f"retire:{life.name}"


def drain(life: Life, world: World, actor: str) -> list[Draft]:
    """Hold every node that has no such hold yet, so that nothing new starts on it."""
    own, holds = hold_id(life), world.state.of(Health).holds
    nodes = [node for node in world.nodes_of(life.name) if not any(hold.id == own for hold in holds.get(node.id, ()))]
    if not nodes:
        return []
    assert life.leaving is not None, "only a cluster that leaves is drained"
    why = f": {life.leaving.why}" if life.leaving.why else ""
    acting = Acting(actor, world.now, f"planned: {life.name} is retired{why}", world.memories)
    hold = Hold(
        id=own,
        owner=actor,
        service=Service.MAINTENANCE,
        reason=acting.reason,
        placed_at=world.now,
        scope=life.name,
        drains_until=world.now + DRAIN_MAX,
    )
    return place_hold(world.state, nodes, hold, acting)[1]


def running_in(life: Life, world: World) -> list[str]:
    """The work that still runs there. Of some of it nobody knows on which nodes, so that nodes are not asked."""
    workloads = world.state.of(Workloads).workloads.items()
    return sorted(name for name, workload in workloads if workload.cluster == life.name)


def is_out(life: Life, recipe: Recipe) -> bool:
    """Whether every step of the way out is done; a cluster of which nothing was begun needs none."""
    return not life.has_begun or all(life.is_done(step.name) for step in recipe.out)
