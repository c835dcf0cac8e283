"""What a workload has, wants and becomes: pure helpers of the fold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

import msgspec

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import PoolKey
from plimsoll.fleet.selector import Scope
from plimsoll.quota.model import Claim, Kind, QuotaKey, Tier
from plimsoll.workloads.changes import WorkloadPlaced
from plimsoll.workloads.model import (
    Asked,
    Block,
    Part,
    PartPlaced,
    PartSpec,
    RunsAs,
    Shape,
    Spec,
    TeamHold,
    Workload,
    replicas,
)

Item = tuple[int, int, int, str]
HOLD_PREFIX = "hold/"
"""Of the name under which a team's hold stands among its claims; no workload's name has a slash."""


def missing_parts(spec: Spec, running: Workload | None) -> list[PartSpec]:
    """The parts that must start: gangs that do not run, elastic parts with fewer replicas than they need. Of these only
    what is missing is asked for: what they hold already stays.
    """
    if running is None:
        if spec.gpus_least:
            return list(spec.parts)
        # A workload that may be nothing starts with the smallest replica it can have.
        first = min(spec.parts, key=lambda part: part.gpus)
        return [msgspec.structs.replace(part, least=1) if part is first else part for part in spec.parts]
    found = []
    for part in spec.parts:
        has = running.running(part.name)
        if has is None:
            if part.is_gang or part.least:
                found.append(part)
        elif not part.is_gang and (count := replicas(part, has.blocks)) < part.least:
            found.append(msgspec.structs.replace(part, least=part.least - count, most=part.most - count))
    return found


def shape_of(asked: Asked, running: Workload | None) -> tuple[Shape, Item] | None:
    """Where a workload stands in the queue; None where nothing of it waits."""
    spec = asked.spec
    missing = missing_parts(spec, running)
    if not missing:
        return None
    needs = tuple(
        (part.kind.value, part.tier.place, part.rank, part.gpus, part.least, part.most, part.spare_nodes)
        for part in missing
    )
    cluster = running.cluster if running is not None else ""
    shape = Shape(spec.team, spec.where, spec.runs_as, spec.hours, spec.owner, cluster, needs)
    tier, rank = min((part.tier.place, part.rank) for part in missing)
    return shape, (tier, rank, asked.submitted, spec.name)


def wants_more(asked: Asked, running: Workload) -> tuple[tuple[PoolKey, tuple[int, int, int, str, str]], ...]:
    """The elastic parts of a workload that could use more replicas, and the gangs that lack spares, with their place in
    the order of service.
    """
    found = []
    for part in asked.spec.parts:
        has = running.running(part.name)
        if part.is_gang:
            is_wanting = part.spare_nodes > 0 and has is not None and spares_missing(part, running) > 0
        else:
            is_wanting = (replicas(part, has.blocks) if has is not None else 0) < part.most
        if is_wanting:
            pool = PoolKey(running.cluster, (has or running.parts[0]).sku)
            found.append((pool, (part.tier.place, part.rank, asked.submitted, running.id, part.name)))
    return tuple(found)


def spares_missing(part: PartSpec, running: Workload) -> int:
    """How many spare nodes a gang asked for and does not have."""
    spares = running.spares(part.name)
    return part.spare_nodes - (sum(len(block.nodes) for block in spares.blocks) if spares is not None else 0)


def named(workload: Workload) -> Workload:
    """With a name for every part: observed ones are named by their place."""
    if all(part.name for part in workload.parts):
        return workload
    parts = tuple(
        msgspec.structs.replace(part, name=part_name(part.kind, place)) for place, part in enumerate(workload.parts)
    )
    return msgspec.structs.replace(workload, parts=parts)


def part_name(kind: Kind, place: int) -> str:
    return f"{kind}-{place + 1}"


def node_size(fleet: Fleet, cluster: str, sku: str) -> int:
    """GPUs of a node in a pool; 1 where all of its nodes were retired."""
    count = fleet.pools.get(PoolKey(cluster, sku))
    return count.gpus_per_node if count is not None else 1


def adopt(workload: Workload, node_gpus: int) -> Asked:
    """Observed work as if it had been submitted: where it is, as large as it is. Elastic work may shrink to nothing."""
    parts = []
    for part in workload.parts:
        if part.kind is Kind.GANG:
            parts.append(PartSpec(part.name, part.kind, part.tier, part.rank, part.gpus))
        elif not part.is_spare:
            size = gcd(node_gpus, *(block.gpus for block in part.blocks))
            parts.append(PartSpec(part.name, part.kind, part.tier, part.rank, size, least=0, most=part.gpus // size))
    skus = tuple(dict.fromkeys(part.sku for part in workload.parts))
    where = Scope((("cluster", (workload.cluster,)), ("sku", skus)))
    owner = next((part.labels["owner"] for part in workload.parts if part.labels.get("owner")), "")
    return Asked(
        Spec(workload.id, workload.team, where, tuple(parts), owner=owner), workload.submitted, is_observed=True
    )


def parts_after(asked: Asked, running: Workload | None, change: WorkloadPlaced) -> Workload | None:
    """What a workload holds after a placement; None where it holds nothing."""
    spec = asked.spec
    placed = {each.part: each for each in change.parts}
    was = {(part.name, part.is_spare): part for part in running.parts} if running is not None else {}
    parts: list[Part] = []
    for wanted in spec.parts:
        each = placed.get(wanted.name)
        if each is None:
            parts += (was[key] for key in ((wanted.name, False), (wanted.name, True)) if key in was)
        else:
            parts += _placed_parts(wanted, each, spec, change.sku, was.get((wanted.name, False)))
    if not parts:
        return None
    return Workload(spec.name, spec.team, change.cluster, tuple(parts), asked.submitted)


def _placed_parts(wanted: PartSpec, placed: PartPlaced, spec: Spec, sku: str, before: Part | None) -> list[Part]:
    labels = before.labels if before is not None else {}
    is_flex = spec.runs_as is RunsAs.FLEX
    parts = []
    for blocks, is_spare in ((placed.blocks, False), (placed.spares, True)):
        if blocks:
            kind = Kind.ELASTIC if is_spare else wanted.kind
            parts.append(
                Part(
                    kind,
                    wanted.tier,
                    wanted.rank,
                    sku,
                    merged(blocks),
                    labels=labels,
                    name=wanted.name,
                    is_spare=is_spare,
                    is_flex=is_flex,
                    is_first=before.is_first if before is not None else False,
                    unit=1 if wanted.is_gang else wanted.gpus,
                )
            )
    return parts


def merged(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """One block for each island."""
    if len(blocks) == 1:
        return tuple(blocks)
    found: dict[str, Block] = {}
    for block in blocks:
        same = found.get(block.island)
        if same is not None:
            block = Block(
                block.island, same.gpus + block.gpus, same.idle_gpus + block.idle_gpus, same.nodes + block.nodes
            )
        found[block.island] = block
    return tuple(found.values())


def drawn_on(
    holds: Sequence[TeamHold], running: Sequence[Workload], owners: Mapping[str, str], key: QuotaKey
) -> dict[tuple[str, int], str]:
    """The parts (workload, place) that draw on what the team keeps, and on which hold: those of whom it is kept for, in
    the order of service, until it is used up. An elastic part that uses it up comes first with all of it; a gang draws
    on it only whole, so that a hold of one GPU puts no gang first.
    """
    parts = sorted(
        (part.tier.place, part.rank, workload.submitted, workload.id, place, part.gpus, part.kind is Kind.GANG)
        for workload in running
        for place, part in enumerate(workload.parts)
        if part.sku == key.sku and workload.cluster == key.cluster and not part.is_flex
    )
    drawn: dict[tuple[str, int], str] = {}
    for hold in holds:
        left = hold.gpus
        for *_, work, place, gpus, is_gang in parts:
            is_enough = left >= gpus if is_gang else left > 0
            if is_enough and hold.keeper in (work, owners[work]) and (work, place) not in drawn:
                drawn[work, place] = hold.id
                left -= gpus
    return drawn


def reserve_claims(hold: TeamHold, running: Sequence[Workload], drawn: Mapping[tuple[str, int], str]) -> list[Claim]:
    """What a hold still keeps back, as a claim of no GPUs."""
    used = sum(
        part.gpus
        for workload in running
        for place, part in enumerate(workload.parts)
        if drawn.get((workload.id, place)) == hold.id
    )
    if used >= hold.gpus:
        return []
    name = f"{HOLD_PREFIX}{hold.id}"
    return [Claim(name, "", Kind.ELASTIC, Tier.CRITICAL, 0, 0, is_first=True, reserve=hold.gpus - used)]
