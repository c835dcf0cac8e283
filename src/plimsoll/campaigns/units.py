"""What a campaign plans as one: clusters, or the groups of a cluster that a node label makes. Pure.

`make_units` holds a campaign file against the fleet: which nodes are in scope, how each unit is done, in which batches,
what it weighs, and where it may not be touched. Whatever the fleet makes impossible to mean is refused here, with the
place in the file where the file is at hand.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from plimsoll.campaigns.days import Day
from plimsoll.campaigns.model import Base, Campaign, Impact, Limit, Measure, Mode, NoFly, Size, Work
from plimsoll.documents import Field
from plimsoll.errors import Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import A100E_DEFAULT, Area, Cluster, Node, Phase, Purpose, Service
from plimsoll.fleet.selector import CLUSTER_KEYS, SKU_KEY, Scope
from plimsoll.words import counted, near

SIZE_KEY = "size"
_VOCABULARY: dict[str, tuple[str, ...]] = {
    "area": tuple(Area),
    "purpose": tuple(Purpose),
    "phase": tuple(Phase),
    SIZE_KEY: tuple(Size),
}
BATCHES_MAX = 100_000


class Lot(NamedTuple):
    """Nodes of a batch that are alike."""

    sku: str
    gpus_per_node: int
    nodes: int


class Unit(msgspec.Struct, frozen=True):
    """A cluster, or a group of its nodes, and how it is done.

    `batches`: the nodes of each, in the order in which they go out; `stays`: how many of each are expected not to come
    back, for `stay_minutes`. `group` is its place in the order, None where no group matches.
    """

    name: str
    cluster: Cluster
    values: tuple[tuple[str, str], ...]
    """What selectors ask of it: key and value, SKU left out."""
    mode: Mode
    minutes: int
    batches: tuple[tuple[str, ...], ...]
    lots: tuple[tuple[Lot, ...], ...]
    stays: tuple[int, ...]
    stay_minutes: int
    weight: float
    group: int | None
    is_canary: bool
    no_fly: tuple[NoFly, ...]

    @property
    def nodes(self) -> int:
        return sum(len(batch) for batch in self.batches)

    @property
    def skus(self) -> tuple[str, ...]:
        return tuple(sorted({lot.sku for lots in self.lots for lot in lots}))

    def value_of(self, key: str) -> str | None:
        return dict(self.values).get(key)

    def may_be_touched(self, day: Day) -> bool:
        """Whether a batch of it may start on a day."""
        return day.is_open and not any(zone.from_day <= day.date <= zone.to_day for zone in self.no_fly)


class Roll(NamedTuple):
    """The units of a campaign. `impactless` are nodes, by unit, on which nothing is taken out of service.

    `notes`: what in the file matches nothing in the fleet, and may have been meant otherwise.
    """

    units: tuple[Unit, ...]
    impactless: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]


class Labelled(NamedTuple):
    """A node as selectors see it."""

    node: Node
    cluster: Cluster
    values: tuple[tuple[str, str], ...]


def split_keys(campaign: Campaign, fleet: Fleet) -> tuple[str, ...]:
    """The node labels that selectors of the file name, in the order of their names."""
    asked = {key for scope in campaign.scopes for key, _ in scope.terms}
    if campaign.spread is not None:
        asked.add(campaign.spread.over)
    asked -= {*CLUSTER_KEYS, SKU_KEY, SIZE_KEY}
    if not asked:
        return ()
    known = {key for node in fleet.nodes.values() for key in node.labels if key in asked}
    return tuple(sorted(known))


def matches(scope: Scope, value_of: Callable[[str], str | None], skus: Collection[str]) -> bool:
    """Whether a scope matches what has these values. A term on SKUs is met by any of them."""
    for key, values in scope.terms:
        if key == SKU_KEY:
            if not any(sku in values for sku in skus):
                return False
        elif value_of(key) not in values:
            return False
    return True


def make_units(campaign: Campaign, fleet: Fleet, document: Field | None = None) -> Roll:
    """The units of a campaign, by name. Raises what a person has to correct in the file."""
    notes = _check_terms(campaign, fleet, document)
    keys = split_keys(campaign, fleet)
    sizes = _sizes(campaign, fleet, keys)
    groups: dict[str, list[Labelled]] = {}
    for each in _in_scope(campaign, fleet, keys, sizes):
        groups.setdefault(_unit_name(each, keys), []).append(each)
    if not groups:
        raise _bad(document, "scope", f"no node of {len(fleet.nodes):,} matches {{{campaign.scope}}}: nothing to do")
    units, impactless = [], {}
    for name in sorted(groups):
        members = sorted((each.node for each in groups[name]), key=lambda node: (node.sku, node.island, node.id))
        first = groups[name][0]
        if _is_impactless(campaign, first, members):
            impactless[name] = tuple(node.id for node in members)
        else:
            units.append(_unit(campaign, name, first, members, document))
    _check_canary(campaign, fleet, groups, document)
    return Roll(tuple(units), impactless, tuple(notes))


def _values(node: Node, cluster: Cluster, keys: Sequence[str], size: Size | None) -> tuple[tuple[str, str], ...]:
    """What selectors may ask of a node besides its SKU. A node's own label comes before its cluster's."""
    found = {**cluster.labels, **{key: str(getattr(cluster, key)) for key in CLUSTER_KEYS[1:]}, "cluster": cluster.id}
    if size is not None:
        found[SIZE_KEY] = str(size)
    found |= {key: node.labels[key] for key in keys if node.labels.get(key)}
    return tuple(sorted(found.items()))


def matches_node(scope: Scope, each: Labelled) -> bool:
    return matches(scope, dict(each.values).get, (each.node.sku,))


def _without_size(scope: Scope) -> Scope:
    return Scope(tuple(term for term in scope.terms if term[0] != SIZE_KEY))


def _sizes(campaign: Campaign, fleet: Fleet, keys: Sequence[str]) -> dict[str, Size]:
    """Each cluster's size, by its nodes in scope; nothing where the file does not say what is big."""
    if campaign.big_over is None:
        return {}
    scope = _without_size(campaign.scope)
    counts: Counter[str] = Counter()
    for each, count in _kinds(fleet, keys, {}):
        if matches_node(scope, each):
            counts[each.cluster.id] += count
    big_over = campaign.big_over
    return {name: Size.BIG if counts[name] > big_over else Size.SMALL for name in fleet.clusters}


def _labelled(fleet: Fleet, keys: Sequence[str], sizes: Mapping[str, Size]) -> Iterable[Labelled]:
    """All nodes but retired ones. Nodes of a cluster with the same labels share their values."""
    shared: dict[tuple[str, ...], tuple[tuple[str, str], ...]] = {}
    for node in fleet.nodes.values():
        if node.service is Service.RETIRED:
            continue
        mark = (node.cluster, *(node.labels.get(key, "") for key in keys))
        values = shared.get(mark)
        cluster = fleet.clusters[node.cluster]
        if values is None:
            values = shared[mark] = _values(node, cluster, keys, sizes.get(node.cluster))
        yield Labelled(node, cluster, values)


def _kinds(fleet: Fleet, keys: Sequence[str], sizes: Mapping[str, Size]) -> list[tuple[Labelled, int]]:
    """One node of each kind that selectors and sums can tell apart, and how many there are of it; retired ones not."""
    first: dict[tuple[object, ...], Node] = {}
    counts: Counter[tuple[object, ...]] = Counter()
    for node in fleet.nodes.values():
        if node.service is not Service.RETIRED:
            mark = (node.cluster, node.sku, node.gpus, *(node.labels.get(key, "") for key in keys))
            counts[mark] += 1
            first.setdefault(mark, node)
    found = []
    for mark, node in first.items():
        cluster = fleet.clusters[node.cluster]
        found.append((Labelled(node, cluster, _values(node, cluster, keys, sizes.get(node.cluster))), counts[mark]))
    return found


def labelled(campaign: Campaign, fleet: Fleet) -> Iterable[Labelled]:
    """All nodes but retired ones, as the selectors of a campaign see them."""
    keys = split_keys(campaign, fleet)
    return _labelled(fleet, keys, _sizes(campaign, fleet, keys))


def _in_scope(campaign: Campaign, fleet: Fleet, keys: Sequence[str], sizes: Mapping[str, Size]) -> Iterable[Labelled]:
    known: dict[tuple[int, str], bool] = {}
    for each in _labelled(fleet, keys, sizes):
        mark = (id(each.values), each.node.sku)  # the values are shared, and kept alive by whoever asks
        found = known.get(mark)
        if found is None:
            found = known[mark] = matches_node(campaign.scope, each)
        if found:
            yield each


def _unit_name(each: Labelled, keys: Sequence[str]) -> str:
    return "/".join([each.node.cluster, *(value for key in keys if (value := each.node.labels.get(key, "")))])


def _is_impactless(campaign: Campaign, first: Labelled, members: Sequence[Node]) -> bool:
    """Whether no change takes these nodes out of service."""
    value_of, skus = dict(first.values).get, {node.sku for node in members}
    for change in campaign.changes:
        found = next((rule.impact for rule in change.impacts if matches(rule.scope, value_of, skus)), Impact.DISRUPTIVE)
        if found is Impact.DISRUPTIVE:
            return False
    return True


def _unit(campaign: Campaign, name: str, first: Labelled, members: Sequence[Node], document: Field | None) -> Unit:
    value_of, skus = dict(first.values).get, sorted({node.sku for node in members})
    work = next((work for work in campaign.work if matches(work.scope, value_of, skus)), None)
    if work is None:
        message = f"no rule matches {name} ({', '.join(f'{key}: {value}' for key, value in first.values)})"
        raise _bad(document, "work", f"{message}; end with {{scope: {{}}, …}} to match all")
    expected = next((each for each in campaign.expect if matches(each.scope, value_of, skus)), None)
    place = next((place for place, each in enumerate(campaign.order) if matches(each.scope, value_of, skus)), None)
    batches = deal(members, work)
    canaries = campaign.canary.clusters if campaign.canary else ()
    return Unit(
        name=name,
        cluster=first.cluster,
        values=first.values,
        mode=work.mode,
        minutes=work.minutes,
        batches=tuple(tuple(node.id for node in batch) for batch in batches),
        lots=tuple(_lots(batch) for batch in batches),
        stays=tuple(_ceil(expected.non_return_share * len(batch)) if expected else 0 for batch in batches),
        stay_minutes=round(expected.repair_days * 24 * 60) if expected else 0,
        weight=campaign.order[place].weight if place is not None else 1.0,
        group=place,
        is_canary=name in canaries or first.cluster.id in canaries,
        no_fly=tuple(zone for zone in campaign.no_fly if matches(zone.scope, value_of, skus)),
    )


def _ceil(value: float) -> int:
    """Rounded up, but not for the last bits of a float: 0.07 x 100 are 7."""
    return math.ceil(value - 1e-9)


def deal(members: Sequence[Node], work: Work) -> list[Sequence[Node]]:
    """The nodes of a unit by batch."""
    if work.mode is Mode.WHOLE:
        return [members]
    size = max(1, _ceil(work.share_per_day * len(members)))
    return [members[first : first + size] for first in range(0, len(members), size)]


def _lots(batch: Sequence[Node]) -> tuple[Lot, ...]:
    counts = Counter((node.sku, node.gpus) for node in batch)
    return tuple(Lot(sku, gpus, nodes) for (sku, gpus), nodes in sorted(counts.items()))


# What limits count.


def amount(lots: Iterable[Lot], unit: Measure, a100e: Mapping[str, float]) -> float:
    """Nodes in a limit's unit."""
    if unit is Measure.NODES:
        return sum(lot.nodes for lot in lots)
    if unit is Measure.GPUS:
        return sum(lot.nodes * lot.gpus_per_node for lot in lots)
    return sum(lot.nodes * lot.gpus_per_node * a100e[lot.sku] for lot in lots)


def matched(scope: Scope, unit: Unit, lots: Iterable[Lot]) -> tuple[Lot, ...]:
    """The nodes of a batch that a scope matches."""
    if not matches(scope, unit.value_of, unit.skus):
        return ()
    return tuple(lot for lot in lots if matches(scope, unit.value_of, (lot.sku,)))


def weights(fleet: Fleet, skus: Iterable[str]) -> dict[str, float]:
    """Each SKU's weight; refuses one that nobody has given a weight."""
    found = {}
    for sku in skus:
        weight = fleet.a100e(sku)
        if weight is None:
            raise Refused(
                "unknown_weight",
                f"a limit counts A100-equivalents, and nobody has said how many a GPU of {sku} is",
                next_step="add the SKU to skus.csv (sku,a100e) and import it",
                sku=sku,
            )
        found[sku] = weight
    return found


def ceiling(limit: Limit, campaign: Campaign, fleet: Fleet) -> float:
    """The most that a limit allows, in its unit."""
    if limit.at_most is not None:
        return limit.at_most
    assert limit.at_most_share is not None, "a limit has a number or a share"
    return limit.at_most_share * base_amount(limit, campaign, fleet)


def base_amount(limit: Limit, campaign: Campaign, fleet: Fleet) -> float:
    """What a limit's share is taken of, in its unit."""
    counts: Counter[tuple[str, int]] = Counter()
    keys = split_keys(campaign, fleet)
    for each, count in _kinds(fleet, keys, _sizes(campaign, fleet, keys)):
        if limit.of is Base.FLEET:
            is_in = each.cluster.phase is Phase.PRODUCTION
        else:
            is_in = matches_node(limit.scope, each)
        if is_in:
            counts[each.node.sku, each.node.gpus] += count
    lots = [Lot(sku, gpus, nodes) for (sku, gpus), nodes in counts.items()]
    a100e = weights(fleet, {lot.sku for lot in lots}) if limit.unit is Measure.A100E else {}
    return amount(lots, limit.unit, a100e)


# What the fleet makes impossible to mean.


def _bad(document: Field | None, key: str, message: str, place: int | None = None) -> Exception:
    """The mistake, at its place in the file where there is one: the entry of that number, where there are several."""
    if document is not None:
        field = document.get(key) or document
        items = field.items() if field.is_list else [field]
        return (field if place is None else items[min(place, len(items) - 1)]).bad(message)
    where = key if place is None else f"{key}[{place}]"
    return Refused("campaign_does_not_fit", f"{where}: {message}", next_step="plimsoll campaign plan FILE")


def _check_terms(campaign: Campaign, fleet: Fleet, document: Field | None) -> list[str]:
    """Refuse keys that nothing has, words that can't be, and clusters that do not exist; note what matches nothing."""
    known: dict[str, Collection[str]] = dict(_VOCABULARY)
    known[SKU_KEY] = {*A100E_DEFAULT, *fleet.skus, *(pool.sku for pool in fleet.pools)}
    known["cluster"] = set(fleet.clusters)
    for key in ("region", "colo", "provider"):
        known[key] = {str(getattr(cluster, key)) for cluster in fleet.clusters.values()}
    labels: dict[str, set[str]] = {}
    for found in [*(each.labels for each in fleet.clusters.values()), *(each.labels for each in fleet.nodes.values())]:
        for key, value in found.items():
            labels.setdefault(key, set()).add(value)
    notes = []
    for listed, place, scope in _places(campaign):
        for key, values in scope.terms:
            values_known = known.get(key) or labels.get(key)
            if values_known is None:
                names = (*CLUSTER_KEYS, SKU_KEY, SIZE_KEY, *labels)
                hint = near(key, names) or f"; known: {', '.join(dict.fromkeys(names))}"
                raise _bad(document, listed, f"no cluster or node has the key {key!r}{hint}", place)
            for value in values:
                if value in values_known:
                    continue
                message = f"the fleet has no {key} {value[:60]!r}{near(value, values_known)}"
                if key == "cluster" or key in _VOCABULARY:
                    raise _bad(document, listed, message, place)
                notes.append(f"{listed}: {message}; what asks for it matches nothing")
    if campaign.spread is not None and campaign.spread.over not in {*known, *labels} - {SKU_KEY}:
        raise _bad(document, "spread", f"over: no cluster or node has the key {campaign.spread.over!r}")
    return list(dict.fromkeys(notes))


def _places(campaign: Campaign) -> list[tuple[str, int | None, Scope]]:
    """Every selector with the key under which it stands, and its number where that is a list."""
    found: list[tuple[str, int | None, Scope]] = [("scope", None, campaign.scope)]
    for number, change in enumerate(campaign.changes):
        found += [("changes", number, rule.scope) for rule in change.impacts]
    lists = {name: getattr(campaign, name) for name in ("work", "limits", "expect", "no_fly", "order")}
    for name, entries in lists.items():
        found += [(name, number, each.scope) for number, each in enumerate(entries)]
    return found + ([("spread", None, campaign.spread.scope)] if campaign.spread else [])


def _check_canary(
    campaign: Campaign, fleet: Fleet, groups: Mapping[str, Sequence[Labelled]], document: Field | None
) -> None:
    """Refuse a canary that is not there. One on which nothing is taken out of service is: nobody has to wait for it."""
    if campaign.canary is None:
        return
    names = {*groups, *(members[0].cluster.id for members in groups.values())}
    for name in campaign.canary.clusters:
        if name in names:
            continue
        if name in fleet.clusters:
            message = f"{name} has no node in scope {{{campaign.scope}}}: it can't go first"
        else:
            message = f"there is no cluster {name!r}{near(name, names)}"
        raise _bad(document, "canary", f"clusters: {message} (in scope: {counted(len(groups), 'unit')})")
