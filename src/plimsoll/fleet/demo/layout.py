"""What the demo fleet is made of: clusters, where they stand, what they are for, their islands and how robust they are.

The counts are fixed (72 clusters of current SKUs, 10 of them big, 4 old ones, 2 being created); the seed decides
names, sites, SKUs and sizes. Nothing here knows about time, health or quota.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from plimsoll.fleet.demo import names, worked_case
from plimsoll.fleet.demo.names import Site

GPUS_PER_NODE = {"A100": 8, "H100": 8, "H200": 8, "GB200": 4}

NODES_TARGET = 18_500
NODES_SLACK = 9
NUDGES_MAX = 10_000

BIG_NODES_OVER = 400
BIG_NODES = (432, 880)
SMALL_NODES = (72, 396)
SMALL_NODES_MODE = 130
OLD_NODES = (60, 160)
TIGER_ISLANDS = (192, 192, 128, 128)
PROVISIONING_NODES = 108

# One large unit of nodes is a rack of GB200 (NVL72: 18 nodes of 4 GPUs); the other SKUs come in rows of 8.
UNIT = {"A100": 4, "H100": 8, "H200": 8, "GB200": 18}
ISLAND_NODES_MIN = {"A100": 32, "H100": 32, "H200": 32, "GB200": 18}
ISLAND_NODES_SMALL = {"A100": (64,), "H100": (64, 96, 128), "H200": (64, 96, 128), "GB200": (36, 54, 72)}
ISLAND_NODES_BIG = {"H100": (128, 192, 256), "H200": (128, 192, 256), "GB200": (108, 144)}

SKU_COUNTS = {"H100": 34, "H200": 22, "GB200": 16}
SECOND_SKU = {"H100": "H200", "H200": "GB200"}
TWO_SKU_COUNT = 5
TWO_SKU_NODES_MIN = 144

# (purpose, serves, big) of the clusters that are not pinned below; with `tiger` there are 10 big ones.
ROLES = (
    *[("research", "", True)] * 6,
    *[("research", "", False)] * 39,
    *[("applied", "chat", True)] * 2,
    *[("applied", "chat", False)] * 7,
    *[("applied", "api", True)] * 1,
    *[("applied", "api", False)] * 8,
    *[("applied", "batch", False)] * 6,
)
OLD_ROLES = (*[("research", "", False)] * 3, ("applied", "batch", False))
AREA_PATTERN = ("us", "eu", "us", "uk", "us", "eu", "us", "other", "us", "eu")


@dataclass(frozen=True)
class Temper:
    """How a kind of cluster behaves: the share of nodes out now, and how often nodes fail against the usual."""

    out_share: tuple[float, float]
    fault_factor: tuple[float, float]


STEADY = Temper(out_share=(0.020, 0.040), fault_factor=(0.5, 0.9))
USUAL = Temper(out_share=(0.040, 0.060), fault_factor=(0.8, 1.3))
ROUGH = Temper(out_share=(0.060, 0.090), fault_factor=(1.3, 2.0))
BAD = Temper(out_share=(0.100, 0.120), fault_factor=(2.0, 3.0))
TEMPER_COUNTS = ((STEADY, 29), (USUAL, 24), (ROUGH, 12), (BAD, 4))


@dataclass(frozen=True)
class Island:
    """A network domain: nodes of one SKU."""

    name: str
    sku: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Cluster:
    """A cluster with its islands, and the two numbers that shape its history."""

    name: str
    site: Site
    purpose: str
    serves: str
    phase: str
    islands: tuple[Island, ...]
    out_node_count: int
    fault_factor: float

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes, in the order of their numbers."""
        return tuple(node for island in self.islands for node in island.nodes)

    @property
    def is_big(self) -> bool:
        """Whether planned work treats it as a big cluster."""
        return sum(len(island.nodes) for island in self.islands) > BIG_NODES_OVER


@dataclass
class _Draft:
    """A cluster while its size is still being fitted."""

    name: str
    area: str
    purpose: str
    serves: str
    sku: str
    nodes: int
    temper: Temper
    is_big: bool = False
    is_pinned: bool = False
    phase: str = "production"
    islands: list[tuple[str, int]] = field(default_factory=list)


def lay_out(seed: int) -> list[Cluster]:
    """Lay out the whole fleet, sorted by cluster name."""
    rng = random.Random(f"{seed}/layout")
    free_names = iter(rng.sample(names.ANIMALS, len(names.ANIMALS)))
    current = [*_pinned_drafts(), *_current_drafts(rng, free_names)]
    _fit_total(rng, current)
    _cut_current(rng, current)
    drafts = [*current, *_old_drafts(rng, free_names), *_unborn_drafts()]
    return sorted((_build(seed, draft) for draft in drafts), key=lambda cluster: cluster.name)


def _pinned_drafts() -> list[_Draft]:
    """The clusters that docs and examples name."""
    walrus = _Draft(worked_case.CLUSTER, "us", "research", "", worked_case.SKU, worked_case.TOTAL, BAD, is_pinned=True)
    walrus.islands = [(worked_case.SKU, nodes) for nodes in worked_case.ISLANDS]
    tiger = _Draft(names.TIGER, "us", "research", "", "H200", sum(TIGER_ISLANDS), USUAL, is_big=True, is_pinned=True)
    tiger.islands = [("H200", nodes) for nodes in TIGER_ISLANDS]
    return [
        tiger,
        _Draft(names.SWEDEN_A, "eu", "research", "", "H100", 128, STEADY, is_pinned=True),
        walrus,
    ]


def _current_drafts(rng: random.Random, free_names: Iterator[str]) -> list[_Draft]:
    """The other clusters of current SKUs: roles are fixed, SKUs and tempers are dealt at random."""
    skus = [sku for sku, count in SKU_COUNTS.items() for _ in range(count)]
    for pinned in _pinned_drafts():
        skus.remove(pinned.sku)
    tempers = [temper for temper, count in TEMPER_COUNTS for _ in range(count)]
    assert len(skus) == len(tempers) == len(ROLES)
    rng.shuffle(skus)
    rng.shuffle(tempers)
    drafts = []
    areas = {serves: itertools.cycle(AREA_PATTERN) for _, serves, _ in ROLES}
    for (purpose, serves, is_big), sku, temper in zip(ROLES, skus, tempers, strict=True):
        drawn = rng.uniform(*BIG_NODES) if is_big else rng.triangular(*SMALL_NODES, SMALL_NODES_MODE)
        nodes = round(drawn / UNIT[sku]) * UNIT[sku]
        drafts.append(_Draft(next(free_names), next(areas[serves]), purpose, serves, sku, nodes, temper, is_big=is_big))
    return drafts


def _fit_total(rng: random.Random, drafts: list[_Draft]) -> None:
    """Grow or shrink small clusters, a unit at a time, until the fleet has the wanted number of nodes."""
    total = sum(draft.nodes for draft in drafts)
    small = [draft for draft in drafts if not draft.is_big and not draft.is_pinned]
    for _ in range(NUDGES_MAX):
        if abs(total - NODES_TARGET) <= NODES_SLACK:
            return
        draft = rng.choice(small)
        step = UNIT[draft.sku] if total < NODES_TARGET else -UNIT[draft.sku]
        if SMALL_NODES[0] <= draft.nodes + step <= SMALL_NODES[1]:
            draft.nodes += step
            total += step
    raise AssertionError(f"{total} nodes after {NUDGES_MAX} nudges, wanted {NODES_TARGET}")


def _cut_current(rng: random.Random, drafts: list[_Draft]) -> None:
    """Cut each cluster into islands; a few clusters get a second SKU."""
    mixable = [
        d for d in drafts if d.sku in SECOND_SKU and d.nodes >= TWO_SKU_NODES_MIN and not (d.is_big or d.is_pinned)
    ]
    mixed = {draft.name for draft in rng.sample(mixable, TWO_SKU_COUNT)}
    for draft in drafts:
        if draft.islands:
            continue
        sizes = ISLAND_NODES_BIG if draft.is_big else ISLAND_NODES_SMALL
        second_nodes = 0
        if draft.name in mixed:
            second = SECOND_SKU[draft.sku]
            second_nodes = round(draft.nodes * rng.uniform(0.3, 0.5) / UNIT[second]) * UNIT[second]
            draft.islands += _cut(second, second_nodes, largest=rng.choice(sizes[second]))
        first = _cut(draft.sku, draft.nodes - second_nodes, largest=rng.choice(sizes[draft.sku]))
        draft.islands = [*first, *draft.islands]


def _cut(sku: str, nodes: int, *, largest: int) -> list[tuple[str, int]]:
    """Cut nodes into islands of at most `largest`, none below the smallest size of the SKU."""
    full, rest = divmod(nodes, largest)
    sizes = [largest] * full
    if rest >= ISLAND_NODES_MIN[sku]:
        sizes.append(rest)
    elif rest:
        joined = sizes.pop() + rest
        sizes += [joined - joined // 2, joined // 2]
    assert sum(sizes) == nodes
    assert min(sizes) >= ISLAND_NODES_MIN[sku]
    return [(sku, size) for size in sizes]


def _old_drafts(rng: random.Random, free_names: Iterator[str]) -> list[_Draft]:
    """The A100 clusters that are still in production."""
    drafts = []
    for (purpose, serves, _), area in zip(OLD_ROLES, ("us", "eu", "us", "uk"), strict=True):
        nodes = round(rng.uniform(*OLD_NODES) / UNIT["A100"]) * UNIT["A100"]
        draft = _Draft(next(free_names), area, purpose, serves, "A100", nodes, ROUGH)
        draft.islands = _cut("A100", nodes, largest=ISLAND_NODES_SMALL["A100"][0])
        drafts.append(draft)
    return drafts


def _unborn_drafts() -> list[_Draft]:
    """The two clusters that are still being created."""
    joining = _Draft(
        names.PROVISIONING, "eu", "applied", "api", "GB200", PROVISIONING_NODES, STEADY, phase="provisioning"
    )
    joining.islands = _cut("GB200", PROVISIONING_NODES, largest=72)
    return [_Draft(names.PLANNED, "us", "research", "", "GB200", 0, STEADY, phase="planned"), joining]


def _build(seed: int, draft: _Draft) -> Cluster:
    """Fix a draft: its site, its node ids, and where its temper puts it."""
    rng = random.Random(f"{seed}/cluster/{draft.name}")
    numbers = itertools.count(1)
    islands = tuple(
        Island(f"{draft.name}-i{index}", sku, tuple(f"{draft.name}-{next(numbers):04d}" for _ in range(size)))
        for index, (sku, size) in enumerate(draft.islands, start=1)
    )
    is_production = draft.phase == "production"
    out_node_count = round(draft.nodes * rng.uniform(*draft.temper.out_share)) if is_production else 0
    if draft.name == worked_case.CLUSTER:
        out_node_count = worked_case.TOTAL - worked_case.IN_SERVICE
    return Cluster(
        name=draft.name,
        site=rng.choice([site for site in names.SITES if site.area == draft.area]),
        purpose=draft.purpose,
        serves=draft.serves,
        phase=draft.phase,
        islands=islands,
        out_node_count=out_node_count,
        fault_factor=rng.uniform(*draft.temper.fault_factor),
    )
