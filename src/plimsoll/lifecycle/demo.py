"""The two clusters of the demo that are still being made: one waits for quota, one for its machines. Pure."""

from __future__ import annotations

from datetime import datetime

from plimsoll.fleet.demo.names import PLANNED, PROVISIONING
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.ledger.model import Draft
from plimsoll.lifecycle.changes import ClusterCheckedIn, ClusterPlanned, QuotaClaimed
from plimsoll.lifecycle.claims import needed
from plimsoll.lifecycle.desk import find_recipe
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import Life, Said, Spec
from plimsoll.lifecycle.recipe import Recipe
from plimsoll.state.state import State

SKU = "GB200"
PLANNED_NODES = 72
SUBSCRIPTIONS = {PLANNED: "sub-research-us", PROVISIONING: "sub-applied-eu"}
SHORT_CORES = 3_072
"""What the provider still owes before the planned one can be made."""
SPARE_CORES = 1_024
USED_CORES = 6_144


def demo_lives(state: State, now: datetime) -> list[Draft]:
    """Plan the two, unless that was done before."""
    lives = state.of(Lives).lives
    recipe, drafts = find_recipe(state, "standard")
    for name in (PLANNED, PROVISIONING):
        if name in lives or name not in state.of(Fleet).clusters:
            continue
        spec = _spec(state, name)
        drafts.append(Draft(ClusterPlanned(name, spec, f"{name}-demo", recipe.version), "the demo"))
        if name == PROVISIONING:  # as if the controller had been here already
            life = Life(spec, "", recipe.version, Said("", now))
            drafts += [
                Draft(QuotaClaimed(name, needed(life, recipe)), "the demo"),
                Draft(ClusterCheckedIn(name), "the demo"),
            ]
    return drafts if len(drafts) > 1 else []


def _spec(state: State, name: str) -> Spec:
    fleet = state.of(Fleet)
    cluster = fleet.clusters[name]
    nodes = [node for node in fleet.nodes.values() if node.cluster == name and node.service is not Service.RETIRED]
    islands = {node.island for node in nodes}
    return Spec(
        name=name,
        region=cluster.region,
        area=cluster.area,
        colo=cluster.colo,
        provider=cluster.provider,
        purpose=cluster.purpose,
        subscription=SUBSCRIPTIONS[name],
        sku=nodes[0].sku if nodes else SKU,
        nodes=len(nodes) or PLANNED_NODES,
        islands=len(islands) or 1,
        owner="capacity",
        labels=cluster.labels,
    )


def demo_quota(state: State) -> list[tuple[str, str, str, int, int]]:
    """The rows of a quota file in which one of the two has enough, and the other not yet."""
    lives = state.of(Lives)
    rows = []
    for name in (PLANNED, PROVISIONING):
        life = lives.lives.get(name)
        if life is None:
            continue
        recipe: Recipe = lives.recipe_of(life)
        family = recipe.machines[life.spec.sku].family
        need = needed(life, recipe)[family]
        limit = USED_CORES + need + (-SHORT_CORES if name == PLANNED else SPARE_CORES)
        rows.append((life.spec.subscription, life.spec.region, family, limit, USED_CORES))
    return rows
