"""What a campaign file asks of the fleet, worked out for the checker alone: which units, in which batches. Pure.

Shares no code with the modules that build and search plans: a mistake there must not be repeated here. It works on
counts, not on nodes: the nodes of a cluster that are alike (SKU and the labels that the file asks for) are one shape.
A batch is dealt in the order of SKUs, so that the counts of each SKU say all that a limit can ask.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import date
from fractions import Fraction
from typing import NamedTuple

from plimsoll.campaigns.model import Campaign, Expect, Impact, Mode, Work
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase, Service
from plimsoll.fleet.selector import Scope

_FIELDS = ("cluster", "region", "area", "colo", "provider", "purpose", "phase")
_NO_LABEL = (*_FIELDS, "sku", "size")
_LAST_BITS = Fraction(1, 10**9)
"""What a product of floats may be above a whole number and still mean it."""


class Kind(NamedTuple):
    """What nodes have in common that a limit may count."""

    sku: str
    gpus: int


Lots = tuple[tuple[Kind, int], ...]
"""How many nodes of each kind, by SKU."""


class Shape(NamedTuple):
    """Nodes of one cluster that no selector of the file tells apart."""

    cluster: str
    labels: tuple[str, ...]
    kind: Kind


class Due(NamedTuple):
    """A unit that must be in the plan, as the file and the fleet say. `work`: None where no rule matches it."""

    name: str
    cluster: str
    values: Mapping[str, str]
    lots: Lots
    work: Work | None
    batches: tuple[Lots, ...]
    stays: tuple[int, ...]
    stay_seconds: float
    weight: float
    group: int | None
    is_canary: bool
    no_fly: tuple[int, ...]
    """The places of the zones that it lies in."""

    @property
    def nodes(self) -> int:
        return sum(count for _, count in self.lots)

    @property
    def mode(self) -> Mode:
        return Mode.WHOLE if self.work is None else self.work.mode


class Asked(NamedTuple):
    """What the plan must hold, and the nodes of the whole fleet, of which limits take shares."""

    due: Mapping[str, Due]
    spared: frozenset[str]
    """Units on which nothing is taken out of service."""
    fleet: tuple[tuple[Mapping[str, str], Kind, int], ...]
    already: Mapping[tuple[str, int], Lots] = {}
    """By unit and batch number: its nodes that other outages have taken."""

    def base(self, scope: Scope, *, is_fleet: bool) -> Lots:
        """The nodes of which a limit's share is taken."""
        counts: Counter[Kind] = Counter()
        for values, kind, nodes in self.fleet:
            if values["phase"] == Phase.PRODUCTION if is_fleet else fits(scope, values, (kind.sku,)):
                counts[kind] += nodes
        return tuple(sorted(counts.items()))


def fits(scope: Scope, values: Mapping[str, str], skus: Iterable[str]) -> bool:
    """Whether a scope matches what has these values, and any of these SKUs."""
    return all(
        any(sku in allowed for sku in skus) if key == "sku" else values.get(key) in allowed
        for key, allowed in scope.terms
    )


def round_up(share: float, nodes: int) -> int:
    return math.ceil(Fraction(share) * nodes - _LAST_BITS)


def ask(campaign: Campaign, fleet: Fleet, already: Collection[str] = ()) -> Asked:
    """Every unit that the plan must hold, by name. `already`: nodes that are out for other reasons."""
    keys = _label_keys(campaign, fleet)
    shapes = _shapes(fleet, keys)
    sizes = _sizes(campaign, fleet, shapes, keys)
    units: dict[str, Counter[Kind]] = {}
    values_of: dict[str, Mapping[str, str]] = {}
    names: dict[Shape, str] = {}
    everything = []
    for shape, nodes in sorted(shapes.items()):
        values = _values(fleet, shape, keys, sizes)
        everything.append((values, shape.kind, nodes))
        if fits(campaign.scope, values, (shape.kind.sku,)):
            name = names[shape] = "/".join((shape.cluster, *filter(None, shape.labels)))
            units.setdefault(name, Counter())[shape.kind] += nodes
            values_of.setdefault(name, values)
    due, spared = {}, set()
    for name, counts in units.items():
        if _is_spared(campaign, values_of[name], {kind.sku for kind in counts}):
            spared.add(name)
        else:
            due[name] = _due(campaign, name, values_of[name], tuple(sorted(counts.items())))
    taken = _already(fleet, keys, names, due, already) if already else {}
    return Asked(due, frozenset(spared), tuple(everything), taken)


def _already(
    fleet: Fleet,
    keys: tuple[str, ...],
    names: Mapping[Shape, str],
    due: Mapping[str, Due],
    already: Collection[str],
) -> dict[tuple[str, int], Lots]:
    """What of each batch is out for other reasons. The nodes of a unit stand in a row by SKU, island and name."""
    rows: dict[str, list[tuple[str, str, str, int]]] = {}
    for node in fleet.nodes.values():
        shape = Shape(node.cluster, tuple(node.labels.get(key, "") for key in keys), Kind(node.sku, node.gpus))
        if node.service is not Service.RETIRED and names.get(shape) in due:
            rows.setdefault(names[shape], []).append((node.sku, node.island, node.id, node.gpus))
    found: dict[tuple[str, int], Counter[Kind]] = {}
    for name, row in rows.items():
        size = sum(count for _, count in due[name].batches[0])
        for place, (sku, _, node_id, gpus) in enumerate(sorted(row)):
            if node_id in already:
                found.setdefault((name, place // size + 1), Counter())[Kind(sku, gpus)] += 1
    return {batch: tuple(sorted(counts.items())) for batch, counts in found.items()}


def _label_keys(campaign: Campaign, fleet: Fleet) -> tuple[str, ...]:
    """The labels of nodes that a selector of the file names."""
    named = {key for scope in campaign.scopes for key, _ in scope.terms}
    if campaign.spread:
        named.add(campaign.spread.over)
    named.difference_update(_NO_LABEL)
    return tuple(sorted(key for key in named if any(key in node.labels for node in fleet.nodes.values())))


def _shapes(fleet: Fleet, keys: tuple[str, ...]) -> Counter[Shape]:
    retired = Service.RETIRED
    alike: Counter[tuple[str, str, int, tuple[str, ...]]] = Counter(
        (node.cluster, node.sku, node.gpus, tuple([node.labels.get(key, "") for key in keys]) if keys else ())
        for node in fleet.nodes.values()
        if node.service is not retired
    )
    return Counter(
        {Shape(cluster, labels, Kind(sku, gpus)): nodes for (cluster, sku, gpus, labels), nodes in alike.items()}
    )


def _values(fleet: Fleet, shape: Shape, keys: tuple[str, ...], sizes: Mapping[str, str]) -> dict[str, str]:
    cluster = fleet.clusters[shape.cluster]
    values = dict(cluster.labels)
    values |= {field: str(getattr(cluster, field)) for field in _FIELDS[1:]}
    values["cluster"] = cluster.id
    if shape.cluster in sizes:
        values["size"] = sizes[shape.cluster]
    return values | {key: label for key, label in zip(keys, shape.labels, strict=True) if label}


def _sizes(campaign: Campaign, fleet: Fleet, shapes: Mapping[Shape, int], keys: tuple[str, ...]) -> dict[str, str]:
    """Big or small by cluster: its nodes in scope, whatever the scope says of sizes."""
    if campaign.big_over is None:
        return {}
    scope = Scope(tuple((key, allowed) for key, allowed in campaign.scope.terms if key != "size"))
    counts: Counter[str] = Counter()
    for shape, nodes in shapes.items():
        counts[shape.cluster] += nodes if fits(scope, _values(fleet, shape, keys, {}), (shape.kind.sku,)) else 0
    return {cluster: "big" if nodes > campaign.big_over else "small" for cluster, nodes in counts.items()}


def _is_spared(campaign: Campaign, values: Mapping[str, str], skus: Iterable[str]) -> bool:
    """Whether every change leaves these nodes in service. Where no rule matches, a change does not."""
    for change in campaign.changes:
        impacts = [rule.impact for rule in change.impacts if fits(rule.scope, values, skus)]
        if not impacts or impacts[0] is Impact.DISRUPTIVE:
            return False
    return True


def _due(campaign: Campaign, name: str, values: Mapping[str, str], lots: Lots) -> Due:
    skus = [kind.sku for kind, _ in lots]
    nodes = sum(count for _, count in lots)
    work = next((rule for rule in campaign.work if fits(rule.scope, values, skus)), None)
    expect = next((rule for rule in campaign.expect if fits(rule.scope, values, skus)), Expect(Scope(), 0, 0))
    group = next((place for place, each in enumerate(campaign.order) if fits(each.scope, values, skus)), None)
    size = nodes if work is None or work.mode is Mode.WHOLE else max(1, round_up(work.share_per_day, nodes))
    batches = tuple(_cut(lots, first, first + size) for first in range(0, nodes, size))
    return Due(
        name=name,
        cluster=values["cluster"],
        values=values,
        lots=lots,
        work=work,
        batches=batches,
        stays=tuple(round_up(expect.non_return_share, sum(count for _, count in batch)) for batch in batches),
        stay_seconds=expect.repair_days * 24 * 3600,
        weight=1.0 if group is None else campaign.order[group].weight,
        group=group,
        is_canary=campaign.canary is not None and not {name, values["cluster"]}.isdisjoint(campaign.canary.clusters),
        no_fly=tuple(place for place, zone in enumerate(campaign.no_fly) if fits(zone.scope, values, skus)),
    )


def _cut(lots: Lots, first: int, last: int) -> Lots:
    """The nodes from one place to another, where all stand in a row by SKU."""
    found, begins = [], 0
    for kind, count in lots:
        inside = min(last, begins + count) - max(first, begins)
        if inside > 0:
            found.append((kind, inside))
        begins += count
    return tuple(found)


def zone_on(campaign: Campaign, due: Due, day: date) -> int | None:
    """The no-fly zone that keeps a unit from being touched on a day."""
    zones = campaign.no_fly
    return next((place for place in due.no_fly if zones[place].from_day <= day <= zones[place].to_day), None)
