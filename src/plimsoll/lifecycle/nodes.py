"""How the machines of a new cluster become nodes of the fleet: they join, validate, and are let in. Pure.

A machine that a provider names joins; it validates when everything that its checks rely on is there; and it comes into
service the one way that there is. Nothing here takes a node from another cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.model import Node, PoolKey, Service
from plimsoll.fleet.sheet import changed_fields
from plimsoll.health.acts import Acting, Setting, fail_checks, missing_checks, pass_checks, set_service
from plimsoll.health.changes import HoldEnded
from plimsoll.health.decide import Bench, policy_in_force
from plimsoll.health.fold import Health
from plimsoll.ledger.model import Draft
from plimsoll.lifecycle.leave import hold_id
from plimsoll.lifecycle.model import ConditionType, Life
from plimsoll.lifecycle.outside import Look, NodeFound, set_wishes
from plimsoll.lifecycle.recipe import Recipe, Step
from plimsoll.lifecycle.world import World

JOINED = "made by Plimsoll"
MACHINE_LABEL = "provider_id"
"""What tells one machine from another of the same name."""


def join(life: Life, recipe: Recipe, found: Sequence[NodeFound], world: World) -> tuple[list[Draft], str]:
    """Nodes that are new here, and what is wrong with the first one that can't be taken."""
    nodes, islands = world.fleet.nodes, world.fleet.island_cluster
    machine = recipe.machines[life.spec.sku]
    usual = {island: wish.island for wish in set_wishes(life) for island in ("", wish.name, wish.island)}
    pool = world.fleet.pools.get(PoolKey(life.name, life.spec.sku))
    drafts: list[Draft] = []
    problem = ""
    if pool is not None and pool.gpus_per_node != machine.gpus:
        return [], f"nodes of {life.name} have {pool.gpus_per_node} GPUs, those of the recipe {machine.gpus}"
    for each in found:
        island = usual.get(each.island, each.island)
        known = nodes.get(each.node)
        if known is not None and known.cluster != life.name and known.service is not Service.RETIRED:
            problem = problem or f"{each.node} is a node of {known.cluster} already"
            continue
        if islands.get(island, life.name) != life.name:
            problem = problem or f"island {island} of {each.node} is one of {islands[island]} already"
            continue
        if known is not None and known.cluster == life.name and not _is_another(known, each):
            continue
        node = Node(
            each.node, life.name, island, life.spec.sku, machine.gpus, Service.JOINING, world.now, JOINED, each.labels
        )
        was = {} if known is None else changed_fields(known, node)
        drafts.append(Draft(NodeRecorded(node, was), JOINED, world.now))
    return drafts, problem


def _is_another(known: Node, found: NodeFound) -> bool:
    """Whether a machine is another one with the name of a node that is retired. One that somebody retired stays so."""
    machine = found.labels.get(MACHINE_LABEL, "")
    return known.service is Service.RETIRED and bool(machine) and machine != known.labels.get(MACHINE_LABEL)


def counts_by_set(life: Life, found: Sequence[NodeFound]) -> dict[str, int]:
    """How many machines of each scale set were named, by the set's name."""
    wishes = set_wishes(life)
    of_set = {name: wish.name for wish in wishes for name in (wish.name, wish.island)}
    counts = dict.fromkeys((wish.name for wish in wishes), 0)
    for each in found:
        name = of_set.get(each.island) or (wishes[0].name if len(wishes) == 1 else "")
        if name:
            counts[name] += 1
    return counts


def may_validate(life: Life, recipe: Recipe) -> bool:
    """Whether everything is there that the checks of its nodes rely on."""
    checks = recipe.setting(ConditionType.HEALTH_GREEN)
    if checks:
        return any(life.work(step.name) is not None for step in checks)
    built = (ConditionType.SCALE_SETS_READY, ConditionType.SERVICES_DEPLOYED)
    return all((condition := life.condition(kind)) is not None and condition.is_true for kind in built)


def let_validate(life: Life, world: World, actor: str) -> list[Draft]:
    """Nodes that have joined begin to validate. In production only those that we made: others' are theirs."""
    joining = [node for node in world.nodes_of(life.name) if _may_validate(life, node, world)]
    if not joining:
        return []
    acting = Acting(actor, world.now, f"{life.name} is there: its nodes are checked", world.memories)
    return set_service(world.state, joining, Setting(Service.VALIDATING), acting)[1]


def let_in(life: Life, world: World, actor: str) -> list[Draft]:
    """Nodes of a cluster that is being made come into service when all their checks are answered, by whomever."""
    if life.available_at is not None:
        return []
    bench = Bench(world.state.of(Health), policy_in_force(world.state), world.memories, world.now)
    validating = (node for node in world.nodes_of(life.name) if node.service is Service.VALIDATING)
    passed = [node.id for node in validating if not missing_checks(node, bench)]
    acting = Acting(actor, world.now, "all its checks are answered", world.memories)
    return pass_checks(world.state, passed, acting)


def are_to_validate(life: Life, found: Sequence[NodeFound], world: World) -> bool:
    """Whether one of these nodes has joined, and begins to validate with this visit."""
    nodes = world.fleet.nodes
    return any((node := nodes.get(each.node)) is not None and _may_validate(life, node, world) for each in found)


def _may_validate(life: Life, node: Node, world: World) -> bool:
    is_ours = node.cluster == life.name and (life.available_at is None or node.reason == JOINED)
    return is_ours and node.service is Service.JOINING and not world.state.of(Health).holds.get(node.id)


def answer_checks(life: Life, step: Step, look: Look, world: World, actor: str) -> list[Draft]:
    """What a validation found: nodes that are good enter service, the others are held."""
    ours = {node.id for node in world.nodes_of(life.name) if node.service is Service.VALIDATING}
    good = [each.node for each in look.nodes if each.is_ok and each.node in ours]
    bad = {each.node: each.detail for each in look.nodes if each.is_ok is False and each.node in ours}
    acting = Acting(actor, world.now, f"{step.name} of {life.name}", world.memories)
    return [*pass_checks(world.state, good, acting), *fail_checks(world.state, bad, step.name, acting)]


def retire_nodes(life: Life, world: World) -> list[Draft]:
    """The last of a cluster's nodes."""
    drafts = []
    reason = f"{life.name} is retired"
    holds, own = world.state.of(Health).holds, hold_id(life)
    for node in world.nodes_of(life.name):
        # A mark that stays for ever would keep out whoever gets that name next.
        ours = [hold for hold in holds.get(node.id, ()) if hold.id == own]
        drafts += [Draft(HoldEnded(node.id, hold.id, hold.owner, "retired"), reason, world.now) for hold in ours]
        retired = msgspec.structs.replace(node, service=Service.RETIRED, since=world.now, reason=reason)
        drafts.append(Draft(NodeRecorded(retired, changed_fields(node, retired)), reason, world.now))
    return drafts
