"""A scope as files write it: `{sku: [H100, H200], area: eu}`. Keys are ANDed, the values of one key ORed. Pure.

A key is a field of a cluster, `sku`, or a label: an extra column of `clusters.csv`. The empty scope matches everything.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from plimsoll.documents import BadDocument, Field
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Cluster, PoolKey
from plimsoll.words import near

CLUSTER_KEYS = ("cluster", "region", "area", "colo", "provider", "purpose", "phase")
SKU_KEY = "sku"


class Scope(msgspec.Struct, frozen=True):
    """Which clusters and SKUs are meant."""

    terms: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def is_everything(self) -> bool:
        return not self.terms

    def matches(self, cluster: Cluster, sku: str) -> bool:
        return all(_value(cluster, sku, key) in values for key, values in self.terms)

    def __str__(self) -> str:
        return ", ".join(f"{key}: {'|'.join(values)}" for key, values in self.terms) or "everything"


def _value(cluster: Cluster, sku: str, key: str) -> str | None:
    if key == SKU_KEY:
        return sku
    if key == "cluster":
        return cluster.id
    return str(getattr(cluster, key)) if key in CLUSTER_KEYS else cluster.labels.get(key)


def read_scope(field: Field) -> Scope:
    """A mapping of keys to a value or a list of values."""
    terms = []
    for key, value in field.pairs():
        values = value.items() if value.is_list else [value]
        if not values:
            raise value.expected("at least one value")
        terms.append((key, tuple(each.text() for each in values)))
    return Scope(tuple(terms))


def check_scope(scope: Scope, fleet: Fleet, field: Field) -> None:
    """Refuse what nothing in the fleet can match: it was meant otherwise."""
    for key, values in scope.terms:
        known = _known_values(fleet, key)
        if not known:
            labels = sorted({label for cluster in fleet.clusters.values() for label in cluster.labels})
            raise _unknown(field, "key", key, (*CLUSTER_KEYS, SKU_KEY, *labels))
        for value in values:
            if value not in known:
                raise _unknown(field, key, value, known)


def _known_values(fleet: Fleet, key: str) -> set[str]:
    if key == SKU_KEY:
        return {pool.sku for pool in fleet.pools}
    return {value for cluster in fleet.clusters.values() if (value := _value(cluster, "", key)) is not None}


def _unknown(field: Field, noun: str, value: str, known: Collection[str]) -> BadDocument:
    hint = near(value, known) or f" ({len(known)} are known)"
    return field.bad(f"the fleet has no {noun} {value[:60]!r}{hint}")


def pools_in(scope: Scope, fleet: Fleet) -> list[PoolKey]:
    """The pools that a scope matches."""
    return [pool for pool in sorted(fleet.pools) if scope.matches(fleet.clusters[pool.cluster], pool.sku)]
